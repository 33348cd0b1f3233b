"""libsoftmax.distributed: results and gradients of 1, 2, 3 and 5 processes have the bits of one, whatever the cut; an error of one
rank is one of all, and nobody waits for ever."""
import itertools
import os
import tempfile
import time
import traceback
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing

import libsoftmax
import libsoftmax.torch as smx

N, ROWS = 20000, 5
PATIENCE = 400  # seconds
SPECIAL = float("inf"), float("nan")


def scores(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(3).to(dtype)


def same(a, b):
    """To the last bit."""
    if a is None or b is None:
        return a is b
    bits = [t.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)


def alike(a, b):
    """The same, but for what a NaN looks like: PyTorch's products give it other bits at the end of a vector."""
    return same(*(g.masked_fill(g.isnan(), SPECIAL[1]) for g in (a, b)))


class Ranks:
    """What the checks below run in: a process of a group."""

    def __init__(self, rank, size):
        from libsoftmax import distributed
        self.rank, self.size, self.distributed = rank, size, distributed
        shares = [distributed._core.split_shard(N, size, r)[0] for r in range(size)]
        self.cuts = [
            [N * r // size for r in range(size + 1)],                      # even, within groups
            [*shares, N],                                                  # at groups
            [0] * size + [N],                                              # all on the last
            [0, *[1, 9, 9, 9][:size - 1], N] if size > 1 else [0, N],            # one column, and a few of its group
            [0, *[12000] * (size - 1), N] if size > 1 else [0, N],    # some are empty in the middle, or none
        ]

    def each_cut(self):
        for cut in self.cuts:
            yield cut, slice(cut[self.rank], cut[self.rank + 1])

    def refused(self, kind, words, function):
        """All ranks have this error."""
        begin = time.monotonic()
        try:
            function()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError("no error with %r" % words)
        assert time.monotonic() - begin < 60


def hard_rows(dtype=torch.float32):
    """Masked elements, a masked row, NaN, +inf, ties over groups."""
    x = scores(1, ROWS + 4, N, dtype=dtype)
    x[1, ::3] = -SPECIAL[0]
    x[2] = -SPECIAL[0]
    x[3, 15000] = SPECIAL[1]
    x[4, 100] = SPECIAL[0]
    x[5] = 1.25
    return x


def check_every_operator(w):
    """All operators of scores alone, and that some of them pass from rank to rank."""
    relays = []
    relay = w.distributed._split._relay
    w.distributed._split._relay = lambda *args: relays.append(1) or relay(*args)
    count, whole = 0, []
    for op in libsoftmax.OPERATORS.values():
        if not op.rows or any(not p.optional or p.either for p in op.inputs[1:]):
            continue
        for x in scores(2, 3, N), hard_rows()[1:4]:
            expected = getattr(libsoftmax, op.name)(x)
            expected = expected if isinstance(expected, tuple) else (expected,)
            _, part = next(w.each_cut())
            try:
                made = w.distributed.forward(op.name, x[:, part])
            except ValueError as error:
                assert "split" in str(error), error
                whole.append(op.name)
                continue
            made = made if isinstance(made, tuple) else (made,)
            for a, e, port in zip(made, expected, op.outputs):
                e = e[:, part] if port.shape == 0 and e is not None else e
                assert same(a, e), (op.name, port.name, a, e)
            count += 1
    assert count > 60, count
    assert len(set(whole)) < 12, whole
    assert relays
    w.distributed._split._relay = relay


def check_cuts(w):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        x = hard_rows(dtype)
        soft, lse, top = smx.softmax(x), smx.logsumexp(x), libsoftmax.softmax_topk(x, k=50)
        for _, part in w.each_cut():
            assert same(w.distributed.softmax(x[:, part]), soft[:, part])
            assert same(w.distributed.logsumexp(x[:, part], keepdims=True), lse[:, None])
            assert same(w.distributed.forward("softmax", x.T[part], axis=0), soft[:, part].T)
            assert all(map(same, w.distributed.forward("softmax_topk", x[:, part], k=50), top))
            with_limit = w.distributed.softmax(x[:, part], on_inf="limit", temperature=2)
            assert same(with_limit, smx.softmax(x, on_inf="limit", temperature=2)[:, part])


def check_rows(w):
    """So many groups that each rank folds some of the rows for all."""
    scattered, scatter = [], w.distributed._Group.scatter
    w.distributed._Group.scatter = lambda *args: scattered.append(1) or scatter(*args)
    n = 600000
    x, target = scores(26, 9, n), torch.arange(9) * 66000
    x[1, ::3], x[2, 5], x[3] = -SPECIAL[0], SPECIAL[1], -SPECIAL[0]
    whole = gradients(smx.cross_entropy, x, target, reduction="none", upstream=torch.ones(9))
    cut = [n * r // w.size for r in range(w.size + 1)]
    part = slice(cut[w.rank], cut[w.rank + 1])
    loss, g = gradients(w.distributed.cross_entropy, x[:, part], target, reduction="none", upstream=torch.ones(9))
    assert same(loss, whole[0]) and same(g, whole[1][:, part])
    assert same(w.distributed.softmax(x[:, part]), smx.softmax(x)[:, part])
    assert all(map(same, w.distributed.forward("softmax_topk", x[:, part], k=50), libsoftmax.softmax_topk(x, k=50)))
    w.distributed._Group.scatter = scatter
    assert w.size == 1 or len(scattered) >= 3, scattered


def check_masks(w):
    """Inputs with this rank's columns, with one value for all of them, with one a row, and with one a column."""
    x, mask, heat = scores(3, 2, 3, N), scores(4, 3, N) > 0, scores(5, 2, 3).abs() + 0.5
    one = torch.ones(2, 1, 1, dtype=torch.bool)
    soft, none, warm = libsoftmax.masked_softmax(x, mask), libsoftmax.masked_softmax(x, one), libsoftmax.softmax(x, temperature=heat)
    for _, part in w.each_cut():
        assert same(w.distributed.forward("masked_softmax", x[..., part], mask[:, part]), soft[..., part])
        assert same(w.distributed.forward("masked_softmax", x[..., part], one), none[..., part])
        assert same(w.distributed.forward("softmax", x[..., part], temperature=heat), warm[..., part])
        one_column = w.distributed.forward("masked_softmax", x[..., :1], one)  # and x has one
        assert same(one_column, libsoftmax.masked_softmax(x[..., :1].repeat(1, 1, w.size), one)[..., w.rank:w.rank + 1])


def gradients(function, x, *args, upstream, **kwargs):
    x = x.clone().requires_grad_()
    y = function(x, *args, **kwargs)
    g = upstream if y.ndim else upstream.sum()
    y.backward(g.to(y.dtype))
    return y, x.grad


def check_cross_entropy(w):
    x = hard_rows()
    target = torch.tensor([0, N - 1, 3, 4, 5, 8191, 8192, -100, 16383])  # classes of several ranks
    weight = scores(6, N).abs()
    calls = [{}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}, {"ignore_index": 3}, {"weight": True},
             {"weight": True, "label_smoothing": 0.2, "reduction": "sum"}, {"z_weight": 1e-3, "softcap": 5.0}]
    for given in calls:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            given, classes = dict(given), weight.to(dtype) if given.get("weight") is not None else None
            given.pop("weight", None)
            logits = x.to(dtype)
            # float16 has its gradient formed by backward(), where NaN rows make a mean NaN as well
            rows = logits if given.get("reduction") == "none" else torch.cat([logits[:2], logits[5:]])
            labels = target if len(rows) == len(target) else torch.cat([target[:2], target[5:]])
            labels = labels.masked_fill(labels == -100, given.get("ignore_index", -100))
            upstream = scores(7, len(rows)).to(torch.float32)
            whole = gradients(smx.cross_entropy, rows, labels, class_weight=classes, upstream=upstream, **given)
            for _, part in w.each_cut():
                mine = None if classes is None else classes[part]
                loss, g = gradients(w.distributed.cross_entropy, rows[:, part], labels, mine, upstream=upstream, **given)
                assert same(loss, whole[0]) and alike(g, whole[1][:, part]), (given, dtype, part)


def check_classes_on_axis_1(w):
    x, target = scores(8, 2, N, 3), torch.tensor([[1, 9000, 17000], [8191, -100, 19999]])
    whole = gradients(smx.cross_entropy, x, target, upstream=torch.ones(1))
    single = gradients(smx.cross_entropy, x[0, :, 0], target[0, 0], upstream=torch.ones(1))
    for _, part in w.each_cut():
        loss, g = gradients(w.distributed.cross_entropy, x[:, part], target, upstream=torch.ones(1))
        assert same(loss, whole[0]) and same(g, whole[1][:, part])
        loss, g = gradients(w.distributed.cross_entropy, x[0, part, 0], target[0, 0], upstream=torch.ones(1))
        assert same(loss, single[0]) and same(g, single[1][part])


def check_soft_targets(w):
    x, target = scores(9, 4, N), torch.softmax(scores(10, 4, N), -1)
    whole = gradients(smx.cross_entropy, x, target, upstream=torch.ones(1))
    for _, part in w.each_cut():
        loss, g = gradients(w.distributed.cross_entropy, x[:, part], target[:, part], upstream=torch.ones(1))
        assert same(loss, whole[0]) and same(g, whole[1][:, part])


def check_gradients(w):
    names, dtypes = ("softmax", "log_softmax", "logsumexp", "entmax15", "logcumsumexp"), (torch.float32, torch.bfloat16)
    for name, dtype in itertools.product(names, dtypes):
        x, function = hard_rows(dtype), w.distributed.function(name)
        y = getattr(smx, name)(x)
        upstream = scores(11, *y.shape, dtype=dtype)
        whole = gradients(getattr(smx, name), x, upstream=upstream)
        for _, part in w.each_cut():
            own = upstream[:, part] if y.ndim == 2 else upstream
            y, g = gradients(function, x[:, part], upstream=own)
            assert same(y, whole[0][:, part] if y.ndim == 2 else whole[0]) and same(g, whole[1][:, part]), name


def check_two_inputs(w):
    """Gradients of more than the scores: a teacher's, of rows over ranks too, and those of one value a row."""
    x, teacher = scores(12, 3, N), scores(13, 3, N)

    def both(function, x, teacher):
        x, teacher = x.clone().requires_grad_(), teacher.clone().requires_grad_()
        loss = function(x, teacher)
        loss.backward()
        return loss, x.grad, teacher.grad
    for name in "knowledge_distillation", "jensen_shannon":
        whole = both(getattr(smx, name), x, teacher)
        for _, part in w.each_cut():
            made = both(w.distributed.function(name), x[:, part], teacher[:, part])
            assert same(made[0], whole[0]), name
            assert all(same(a, b[:, part]) for a, b in zip(made[1:], whole[1:])), name


    heat, upstream = scores(21, 3).abs() + 0.5, scores(22, 3, N)

    def warm(function, part):
        own, t = x[:, part].clone().requires_grad_(), heat.clone().requires_grad_()
        function(own, temperature=t).backward(upstream[:, part])
        return own.grad, t.grad
    whole = warm(smx.softmax, slice(N))
    for _, part in w.each_cut():
        made = warm(w.distributed.softmax, part)
        assert same(made[0], whole[0][:, part]) and same(made[1], whole[1])
    w.refused(RuntimeError, "expand", lambda: w.distributed.function("knowledge_distillation")(x, torch.ones(3, 1, requires_grad=True)))


def check_many_rows(w):
    """More rows than two blocks have."""
    x, target = scores(14, 700, 9000), torch.arange(700) * 11
    x[13], x[600, 8999] = -SPECIAL[0], SPECIAL[1]
    whole = gradients(smx.cross_entropy, x, target, reduction="none", upstream=torch.ones(700))
    cut = [9000 * r // w.size for r in range(w.size + 1)]
    part = slice(cut[w.rank], cut[w.rank + 1])
    for _ in range(2):
        loss, g = gradients(w.distributed.cross_entropy, x[:, part], target, reduction="none", upstream=torch.ones(700))
        assert same(loss, whole[0]) and same(g, whole[1][:, part])


def check_sizes(w):
    """No rows, no columns, one column, scores without rows' axes."""
    for rows, n in ((0, N), (3, 0), (3, 1), (0, 0), (1, 8192)):
        x = scores(15, rows, n)
        part = slice(0, n if w.rank == w.size - 1 else 0)
        assert same(w.distributed.softmax(x[:, part]), smx.softmax(x)[:, part])
        assert same(w.distributed.logsumexp(x[:, part]), smx.logsumexp(x))
    target = torch.zeros(0, dtype=torch.long)
    assert same(w.distributed.cross_entropy(scores(0, 0, N)[:, w.rank::w.size], target), smx.cross_entropy(scores(0, 0, N), target))
    x, part = scores(16, N), slice(N * w.rank // w.size, N * (w.rank + 1) // w.size)
    assert same(w.distributed.softmax(x[part]), smx.softmax(x)[part])


def check_torch(w):
    """The values are those of PyTorch, and what a package of others says."""
    x, target = scores(17, 6, N), torch.arange(6) * 3000
    part = slice(N * w.rank // w.size, N * (w.rank + 1) // w.size)
    loss = w.distributed.cross_entropy(x[:, part], target, first=part.start, n=N)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(x, target))
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    with autocast:
        assert same(w.distributed.cross_entropy(x.bfloat16()[:, part], target), smx.cross_entropy(x.bfloat16(), target))


def check_compile(w):
    """torch.compile breaks its graph at a call."""
    if w.size > 1:
        return
    x, target = scores(23, 4, N), torch.arange(4)
    traced = torch.compile(lambda x: w.distributed.cross_entropy(x * 2, target) + x.sum(), backend="aot_eager")
    for a, b in zip(gradients(traced, x, upstream=torch.ones(1)),
                    gradients(lambda x: smx.cross_entropy(x * 2, target) + x.sum(), x, upstream=torch.ones(1))):
        torch.testing.assert_close(a, b)


def check_more_than_the_loss(w):
    """Gradients of more than one result, and of a graph that is kept."""
    x, target, weight = scores(24, 4, N), torch.tensor([3, 19999, 8191, -100]), scores(25, N).abs()

    def several(function, part):
        own = x[:, part].clone().requires_grad_()
        made = function(own, target, class_weight=weight[part], return_lse=True)
        value = made.loss * 3 + made.lse.sum()
        value.backward(retain_graph=True)
        value.backward()
        alone = x[:, part].clone().requires_grad_()
        loss = function(alone, target) * 3
        loss.backward(retain_graph=True)
        loss.backward()
        return made.loss, made.lse, own.grad, alone.grad
    whole = several(smx.cross_entropy, slice(N))
    for _, part in w.each_cut():
        made = several(w.distributed.function("cross_entropy"), part)
        assert all(map(same, made, (*whole[:2], *(g[:, part] for g in whole[2:]))))


def check_groups(w):
    """A group whose ranks are not those of the world."""
    if w.size < 3:
        return
    group = dist.new_group([1, 2])
    if w.rank in (1, 2):
        x = scores(18, 4, N)
        part = slice(0, 9000) if w.rank == 1 else slice(9000, N)
        assert w.distributed.shard(N, group) == ((0, 16384) if w.rank == 1 else (16384, N - 16384))
        assert same(w.distributed.forward("softmax_topk", x[:, part], k=3, group=group).value, libsoftmax.softmax_topk(x, k=3).value)
        for name in ("sparsemax", "softmax", "entmax15"):
            assert same(w.distributed.function(name)(x[:, part], group=group), getattr(smx, name)(x)[:, part])
    else:
        try:
            w.distributed.softmax(scores(18, 4, N), group=group)
        except ValueError:
            pass
    dist.barrier()


def check_dtensor(w):
    """In the place of loss_parallel."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.parallel import loss_parallel
    mesh = init_device_mesh("cpu", (w.size,))
    for n in (N, 20001):
        x, target = scores(19, 6, n), torch.arange(6) * 3000
        whole = gradients(smx.cross_entropy, x, target, upstream=torch.ones(1))
        logits = distribute_tensor(x.clone(), mesh, [Shard(1)]).requires_grad_()
        loss = w.distributed.cross_entropy(logits, distribute_tensor(target, mesh, [Replicate()]))
        loss.backward()
        assert same(loss, whole[0]) and isinstance(logits.grad, DTensor) and same(logits.grad.full_tensor(), whole[1])
        y = w.distributed.softmax(logits, axis=1)
        assert isinstance(y, DTensor) and same(y.full_tensor(), smx.softmax(x))
        if n % w.size == 0:  # which loss_parallel asks for
            theirs = distribute_tensor(x.clone(), mesh, [Shard(1)]).requires_grad_()
            with loss_parallel():
                expected = torch.nn.functional.cross_entropy(theirs, target)
                expected.backward()
            torch.testing.assert_close(loss, expected.full_tensor())
            torch.testing.assert_close(logits.grad.full_tensor(), theirs.grad.full_tensor())
    w.refused(ValueError, "axis 0", lambda: w.distributed.softmax(distribute_tensor(scores(0, 6, 8), mesh, [Shard(0)])))
    alone = dist.new_group([w.rank], use_local_synchronization=True)
    assert same(w.distributed.softmax(distribute_tensor(x, mesh, [Replicate()]), group=alone), smx.softmax(x))


def check_training(w):
    """The loop of docs/pytorch.md has the losses of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    def train(spread):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, N))
        x, y, losses = torch.randn(32, 8), torch.randint(0, N, (32,)), []
        if spread:
            plan = {"2": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
            parallelize_module(model, init_device_mesh("cpu", (w.size,)), plan)
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        for _ in range(3):
            optimiser.zero_grad()
            value = w.distributed.cross_entropy(model(x), y) if spread else torch.nn.functional.cross_entropy(model(x), y)
            value.backward()
            optimiser.step()
            losses.append(value.detach())
        return torch.stack(losses)
    torch.testing.assert_close(train(True), train(False))


def check_errors(w):
    d, last = w.distributed, w.rank == w.size - 1
    x, target = scores(20, 4, N), torch.arange(4)
    _, part = next(w.each_cut())
    own, wrong = x[:, part], target + N * last
    cases = [
        (ValueError, "target", lambda: d.cross_entropy(own, wrong)),
        (ValueError, "sfmax", lambda: d.forward("sfmax" if last else "softmax", own)),
        (TypeError, "heat", lambda: d.softmax(own, **({"heat": 1} if last else {}))),
        (TypeError, "given twice", lambda: d.forward("softmax", own, **({"x": own} if last else {}))),
        (TypeError, "by position", lambda: d.forward("softmax", *([own] * 9 if last else [own]))),
        (TypeError, "target is missing", lambda: d.forward("nll_loss", own, None if last else target)),
        (ValueError, "axis", lambda: d.forward("softmax", own, axis=7 if last else -1)),
        (TypeError, "axis", lambda: d.forward("softmax", own, axis=None if last else -1)),
        (ValueError, "temperature", lambda: d.softmax(own, temperature=-1 if last else 1)),
        (ValueError, "n", lambda: d.softmax(own, n=N + last)),
        (ValueError, "n: ", lambda: d.softmax(own, n=2**70 if last else N)),
        (ValueError, "first", lambda: d.softmax(own, first=part.start + last)),
        (ValueError, "first: ", lambda: d.softmax(own, first=-1 if last else None)),
        (ValueError, "columns", lambda: d.forward("masked_softmax", own, (own > 0)[:, :7] if last else own > 0)),
        (ValueError, "k", lambda: d.forward("softmax_topk", own, k=N + 1 if last else 2)),
        (TypeError, "complex", lambda: d.forward("softmax", own.to(torch.complex64) if last else own)),
        (TypeError, "meta", lambda: d.softmax(own.to("meta") if last else own)),
        (ValueError, "on_empty", lambda: d.softmax(own, on_empty="some" if last else "zero")),
        (ValueError, "row 2", lambda: d.softmax(hard_rows()[:, part], on_empty="error")),
        (ValueError, "moe", lambda: d.forward("moe_combine", own)),
        (TypeError, "donate", lambda: d.cross_entropy(own, target, donate_logits=last)),
        (RuntimeError, "class_weight", lambda: d.cross_entropy(own, target, torch.ones(own.shape[1], requires_grad=last))),
    ]
    if w.size > 1:  # what ranks differ in
        cases += [
            (ValueError, "rank 0 has", lambda: d.softmax(own if last else own[:3])),
            (ValueError, "rank 0 has", lambda: d.softmax(own if last else own.double())),
            (ValueError, "rank 0 has", lambda: d.softmax(own) if last else d.log_softmax(own)),
            (ValueError, "rank 0 has", lambda: d.forward("cross_entropy", own, target, return_dx=last)),
            (ValueError, "another call", lambda: d.softmax(own, temperature=2 if last else 1)),
            (ValueError, "another call", lambda: d.cross_entropy(own, target + last)),
            (ValueError, "all columns", lambda: d.forward("masked_softmax", own, torch.ones(4, 1, dtype=torch.bool) if last else own > 0)),
        ]
    for kind, words, function in cases:
        w.refused(kind, words, function)
        assert same(d.softmax(own), smx.softmax(x)[:, part])
    y = d.softmax(own.clone().requires_grad_())
    if w.size > 1:
        z = d.logsumexp(own.clone().requires_grad_())
        w.refused(ValueError, "another call", lambda: z.backward(torch.ones(4) + last))
    w.refused(ValueError, "", lambda: d.backward("softmax", own[:, :-1] if last else own, y=y))


MANY = "every_operator", "cuts", "rows", "masks", "cross_entropy", "sizes", "groups", "errors"  # on more than three
CHECKS = {name[6:]: check for name, check in list(globals().items()) if name.startswith("check_")}


def work(rank, size, folder):
    torch.set_num_threads(1)
    store = "file://" + os.path.join(folder, "store")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=100))
    w, said = Ranks(rank, size), []
    for name, check in CHECKS.items():
        if size > 3 and name not in MANY:
            continue
        try:
            check(w)
        except Exception:
            said.append("rank %d of %d: %s\n%s" % (rank, size, name, traceback.format_exc()))
            break  # the ranks may not be in step any more
    with open(os.path.join(folder, "said%d" % rank), "w") as file:
        file.write("\n".join(said))
    if not said:
        dist.barrier()
        dist.destroy_process_group()
    os._exit(0)  # without waiting for others that wait


class Distributed(unittest.TestCase):
    def run_on(self, size):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [torch.multiprocessing.get_context("spawn").Process(target=work, args=(r, size, folder)) for r in range(size)]
            for process in ranks:
                process.start()
            end, said = time.monotonic() + PATIENCE, {}
            for r, process in enumerate(ranks):
                process.join(max(1, end - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    said[r] = "did not end"
            for r in range(size):
                path = os.path.join(folder, "said%d" % r)
                if os.path.exists(path):
                    with open(path) as file:
                        said[r] = file.read() or said.get(r, "")
            missing = {r: "died" for r in range(size)} | said
            self.assertFalse(any(missing.values()), "\n".join("rank %d: %s" % item for item in missing.items()))

    def test_one(self):
        self.run_on(1)

    def test_two(self):
        self.run_on(2)

    def test_three(self):
        self.run_on(3)

    def test_five(self):
        self.run_on(5)


if __name__ == "__main__":
    unittest.main()
