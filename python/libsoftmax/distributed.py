"""Operators on rows whose columns lie on the ranks of torch.distributed, with the bits and gradients of one process.

    from libsoftmax import distributed
    loss = distributed.cross_entropy(logits, classes)    # logits [rows, this rank's classes], classes of all ranks
    loss.backward()                                      # logits.grad [rows, this rank's classes]

Every rank of the group calls the same function with the columns that it holds, in the order of ranks; any cut will
do, and ranks may hold none. At multiples of 8192 (shard) no column is copied. Tensors as long as a row, and those
with one value a column (weight), are this rank's part; all others are whole, and the same on every rank, as are
results that are not as long as a row. n (columns of all ranks) and first (where this rank's begin) may be said, and
are checked then. An error on one rank is one on all of them. group=None is the default group; its backend needs
tensors on the CPU: gloo, mpi.

A DTensor with its classes sharded stands for the local part and its group, so that

    with torch.distributed.tensor.parallel.loss_parallel():
        torch.nn.functional.cross_entropy(logits, classes).backward()

becomes distributed.cross_entropy(logits, classes).backward().

The gradient of cross_entropy is formed with the loss, and backward() sends nothing; of other functions backward()
is a call of all ranks. A gradient of what every rank has is to be the same on every rank."""
import functools
import sys
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

from . import _autograd, _core, _split
from ._table import OPERATORS
from .torch import _eager, _functions, _library

try:
    from torch._compile import _disable_dynamo as _disable  # what torch.optim uses: it does not load the compiler
except ImportError:
    _disable = torch.compiler.disable


class _Group:
    """A transport of _split.py. A message of gloo takes hundreds of microseconds."""

    quick = False

    def __init__(self, group):
        self.group = dist.group.WORLD if group is None else group
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if self.rank < 0:
            raise ValueError("libsoftmax.distributed: this process is not in the group")

    def _world(self, rank):
        return dist.get_global_rank(self.group, rank)

    def gather(self, message, sizes):
        most, mine = max(sizes), bytearray(message)
        mine += bytes(most - len(mine))  # all of one length, as collectives want it
        made = bytearray(most * self.size)
        work = dist.all_gather_into_tensor(_bytes(made), _bytes(mine), group=self.group, async_op=True)

        def wait():
            work.wait()
            if min(sizes) == most:
                return made
            return b"".join(memoryview(made)[r * most:r * most + size] for r, size in enumerate(sizes))
        return wait

    def scatter(self, message, to, sizes):
        made, mine = bytearray(sum(sizes)), bytearray(message)
        work = dist.all_to_all_single(_bytes(made), _bytes(mine), sizes, to, group=self.group, async_op=True)

        def wait():
            work.wait()
            return made
        return wait

    def exchange(self, sent, columns, rows, like):
        size = like.element_size()
        parts = [like.new_empty(0) if a is None else a.reshape(-1) for a in sent]
        come = like.new_empty(rows * sum(columns))
        dist.all_to_all_single(come.view(torch.uint8), torch.cat(parts).view(torch.uint8), [rows * k * size for k in columns],
                               [a.numel() * size for a in parts], group=self.group)
        return [a.reshape(rows, k) for a, k in zip(come.split([rows * k for k in columns]), columns)]

    def send(self, data, rank):
        dist.send(_bytes(bytearray(data)), self._world(rank), group=self.group)

    def receive(self, count, rank):
        made = bytearray(count)
        dist.recv(_bytes(made), self._world(rank), group=self.group)
        return made

    def spread(self, data, count, root):
        made = bytearray(data if self.rank == root else count)
        dist.broadcast(_bytes(made), self._world(root), group=self.group)
        return made

    def close(self):
        pass

    # ---- tensors ----

    @staticmethod
    def array(value):
        a = _functions._as_tensor(value).detach()
        if not a.is_cpu:
            raise TypeError("is on %s, not on the CPU" % a.device)
        return a

    @staticmethod
    def whole(a):
        return not a.is_floating_point() and not a.is_complex()

    @staticmethod
    def cast(a, dtype):
        return a.to(getattr(torch, dtype))

    @staticmethod
    def dtype(a):
        return str(a.dtype).rpartition(".")[2]

    @staticmethod
    def empty(shape, dtype):
        return torch.empty(shape, dtype=getattr(torch, dtype))

    move = staticmethod(torch.movedim)


def _bytes(memory):
    return torch.frombuffer(memory, dtype=torch.uint8) if memory else torch.empty(0, dtype=torch.uint8)


def _untraced(function):
    """torch.compile breaks its graph here, because messages are not for it."""
    aside = _disable(function)

    @functools.wraps(function)
    def either(*args, **kwargs):
        return (aside if _eager.dynamo() else function)(*args, **kwargs)
    return either


# ---- without a graph ----


def shard(n: int, group: dist.ProcessGroup | None = None) -> tuple[int, int]:
    """(first, count): an even share of n columns for this rank, cut at multiples of 8192."""
    t = _Group(group)
    return _core.split_shard(n, t.size, t.rank)


@_untraced
def forward(name: str, *inputs: Any, n: int | None = None, first: int | None = None, group: dist.ProcessGroup | None = None,
            **params: Any) -> Any:
    """libsoftmax.NAME, for any operator on rows: its arguments, but for out= and where=, with one axis. No graph is
    recorded."""
    return _split.forward(_Group(group), name, inputs, params, n, first)


@_untraced
def backward(name: str, *inputs: Any, n: int | None = None, first: int | None = None, group: dist.ProcessGroup | None = None,
             **params: Any) -> Any:
    """libsoftmax.NAME_backward, in the same way."""
    return _split.backward(_Group(group), name, inputs, params, n, first)


# ---- with gradients ----


class _Call:
    """A call of libsoftmax.torch.NAME over ranks."""

    def __init__(self, d, args, kwargs):
        self.d = d
        arrays, self.settings, self.dtype, donated = _functions._read(d, args, dict(kwargs))
        if donated:
            raise TypeError("%s: donate_logits: not of rows over ranks" % d.name)
        self.needs = [torch.is_grad_enabled() and a is not None and a.requires_grad for a in arrays]
        for i, needed in enumerate(self.needs):
            if needed:
                self._check_gradient(i, arrays)
        asked = d.ask(self.settings)
        others = any(asked.get(d.flags[i]) for i in d.differentiable[1:] if i != d.reduced)
        self.early = d.dx is not None and self.needs[0] and not any(self.needs[1:]) and not others \
            and arrays[0].dtype != torch.float16
        self.arrays, self.asked = arrays, {**asked, d.flags[d.dx]: True} if self.early else asked
        self.there = d.asked(asked)
        late_mean = any(self.needs) and not self.early and d.loss and d.reduction(self.settings) not in ("none", "sum")
        if late_mean and d.word("over", self.settings) == "all":
            raise RuntimeError("%s: reduction='mean' with over='all' has the gradient of %s alone, and not of float16"
                               % (d.name, d.inputs[0]))
        self.late_mean = late_mean

    def _check_gradient(self, i, arrays):
        d, a, x = self.d, arrays[i], arrays[0]
        if not d.may_have_gradient(i):
            d.refuse(d.inputs[i])
        axis = _autograd.row_axes(x.ndim, self.settings)[0] - x.ndim
        if i and d.op.inputs[i].shape == _autograd.FULL and (a.ndim < -axis or a.shape[axis] == 1 != x.shape[axis]):
            raise RuntimeError("%s: %s: one value for all columns has no gradient over ranks: expand it"
                               % (d.name, d.inputs[i]))

    def run(self, t, n, first):
        self.t = t
        given = {name: a for name, a in zip(self.d.inputs, self.arrays) if a is not None}
        dtype = None if self.dtype is None else t.dtype(torch.empty(0, dtype=self.dtype))
        return _split.run(t, self.d.op, {**given, **self.asked}, n=n, first=first, dtype=dtype)

    def gradients(self, arrays, outputs, upstream):
        """Of all inputs, None where none is wanted."""
        d, settings = self.d, self.settings
        upstream = d.upstream_of_rows(self._with_whole_weights(arrays), outputs, upstream, settings, _library.FRAME)
        saved = [(name, a) for name, a, p in zip(d.outputs, outputs, d.op.outputs) if p.saved]
        above = [("d" + d.op.outputs[i].name, upstream[i]) for i in d.upstream]
        given = {name: a for name, a in [*zip(d.inputs, arrays), *saved, *above] if a is not None}
        wanted = tuple(p.name for p, needed in zip(d.op.inputs, self.needs) if needed)
        numbers = {k: v for k, v in settings.items() if not k.startswith("return_")}
        return _split.run(self.t, d.op, {**given, **numbers, "wanted": wanted}, backward=True)

    def _with_whole_weights(self, arrays):
        """For what a mean divides by: weights of the classes of all ranks."""
        i = self.d.weight
        if not self.late_mean or i is None or arrays[i] is None:
            return arrays
        t, own = self.t, arrays[i].clone(memory_format=torch.contiguous_format)
        counts = [count for _, _, count, *_ in _split.tell(t, count=own.numel())]
        whole = t.gather(own.view(torch.uint8).numpy().tobytes(), [count * own.element_size() for count in counts])()
        return [*arrays[:i], _bytes(bytearray(whole)).view(own.dtype), *arrays[i + 1:]]


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, t, n, first, *arrays):
        d = call.d
        ctx.set_materialize_grads(False)
        outputs = call.run(t, n, first)
        kept = [a for a in outputs if a is not None and not call.early]
        ctx.call, ctx.there = call, [a is not None for a in outputs]
        ctx.save_for_backward(*[outputs[d.dx]] if call.early else [*arrays, *kept])
        outputs = [a if there else None for a, there in zip(outputs, call.there)]
        ctx.mark_non_differentiable(*[a for i, a in enumerate(outputs) if a is not None and i not in d.differentiable])
        call.arrays = None  # the graph keeps them
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *upstream):
        call, saved = ctx.call, ctx.saved_tensors
        d = call.d
        if call.early:
            into = not _eager._KEEPS_GRAPH() and _eager._opens(upstream)
            dx = _eager._scaled(d, saved[0], upstream, call.settings, into)
            return None, None, None, None, dx, *[None] * (len(d.inputs) - 1)
        arrays, kept = list(saved[:len(d.inputs)]), iter(saved[len(d.inputs):])
        outputs = [next(kept) if there else None for there in ctx.there]
        found = call.gradients(arrays, outputs, list(upstream))
        found = [g if g is None else _autograd.sum_to(g, a.shape).to(a.dtype) for g, a in zip(found, arrays)]
        return None, None, None, None, *found


# ---- DTensor ----


def _local(value, group, made):
    """The local part of a DTensor. made: its group and what makes a DTensor of a result go there."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not isinstance(value, module.DTensor):
        return value
    cut = [i for i, p in enumerate(value.placements) if not p.is_replicate()]
    if len(cut) > 1 or any(not value.placements[i].is_shard() for i in cut):
        raise ValueError("libsoftmax.distributed: a DTensor with the placements %s, not one Shard" % (value.placements,))
    if cut and group is None:
        mesh, placements, shape, stride = value.device_mesh, value.placements, value.shape, value.stride()
        made.append((mesh.get_group(cut[0]), placements[cut[0]].dim % value.ndim, value.ndim, lambda a: module.DTensor.from_local(
            a, mesh, placements, run_check=False, shape=shape, stride=stride)))
    return value.to_local()


def function(name: str) -> Callable[..., Any]:
    """The function libsoftmax.torch.NAME over ranks, of any operator with a gradient: its arguments, but for
    donate_logits=, and n=, first= and group=."""
    op = OPERATORS.get(name)
    if op is None or not op.backward or not op.rows:
        raise ValueError("libsoftmax.distributed: %r is no operator on rows with a gradient" % (name,))
    d = _autograd.Differentiable(op)

    def call(*args, n=None, first=None, group=None, **kwargs):
        meshes = []
        args = [_local(a, group, meshes) for a in args]
        kwargs = {key: _local(a, group, meshes) for key, a in kwargs.items()}
        wrap = None
        if meshes:
            group, axis, ndim, wrap = meshes[0]
        t = _Group(group)
        one = _split.attempt(t, _Call, d, args, kwargs)
        if meshes and _autograd.row_axes(ndim, one.settings)[0] != axis:
            raise ValueError("%s: the DTensor is cut along axis %d, which is not that of the rows" % (name, axis))
        if any(one.needs):
            outputs = _Function.apply(one, t, n, first, *one.arrays)
        else:
            outputs = [a if there else None for a, there in zip(one.run(t, n, first), one.there)]
        if wrap:
            outputs = [wrap(a) if a is not None and p.shape == _autograd.FULL and not p.dx else a
                       for a, p in zip(outputs, op.outputs)]
        return d.give(outputs, one.settings)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = "libsoftmax.torch.%s, of rows over the ranks of group." % name
    return _untraced(call)


softmax: Callable[..., Tensor] = function("softmax")
log_softmax: Callable[..., Tensor] = function("log_softmax")
logsumexp: Callable[..., Tensor] = function("logsumexp")
_cross_entropy = function("cross_entropy")


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    n: int | None = None,
    first: int | None = None,
    group: dist.ProcessGroup | None = None,
    **params: Any,
) -> Any:
    """torch.nn.functional.cross_entropy of logits whose classes lie on the ranks of group.

    input: [N, classes of this rank, ...], or [classes of this rank]; or a DTensor with its classes sharded. target:
    classes of all ranks, the same on every rank; or probabilities like input. weight: of the classes of this rank.
    params: those of libsoftmax.torch.cross_entropy (z_weight, temperature, softcap, axis, dtype ...)."""
    return _cross_entropy(input, target, class_weight=weight, ignore_index=ignore_index, reduction=reduction,
                          label_smoothing=label_smoothing, n=n, first=first, group=group, **params)


__all__ = ["backward", "cross_entropy", "forward", "function", "log_softmax", "logsumexp", "shard", "softmax"]
