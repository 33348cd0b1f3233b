"""PyTorch: its tensors in and out, and libsoftmax.torch: gradients, gradients of gradients, what
torch.compile and transforms see. Skipped where it is not installed."""

import importlib.util
import unittest
import unittest.mock

import numpy as np

import libsoftmax
from libsoftmax import _autograd, _dims

from frameworks import differentiable, has_gradient, variants
from support import problems

HERE = importlib.util.find_spec("torch") is not None
if HERE:
    import torch
    import torch.nn.functional as F

    import libsoftmax.torch as wrapped

AGAIN = {
    "softmax",
    "softmin",
    "masked_softmax",
    "sparse_softmax",
    "softmax_n",
    "log_softmax",
    "logsumexp",
    "logmeanexp",
    "mellowmax",
    "sparsemax",
    "entmax15",
    "entmax",
    "cross_entropy",
}  # what has gradients of gradients


def tensors(op, given):
    made = {name: torch.tensor(np.array(a)) for name, a in given.items()}
    names = [p.name for p in op.inputs if p.gradient and p.name in made]
    return {name: a.requires_grad_() if name in names else a for name, a in made.items()}, names


def call(op, given, settings, reduction_axis=-1):
    """The function of an operator with the axis where problems() have it."""
    if any(p.target for p in op.inputs):
        settings = {"axis": reduction_axis, **settings}
    return getattr(wrapped, op.name)(**given, **settings)


def named_shape(port):
    """Of an input whose dimensions have names: 4 each, of planes where they are any number."""
    words = {"...": (2,), "s*": (4, 4)}
    return tuple(n for w in port.dims.split("|")[0].split() for n in words.get(w, (int(w) if w.isdigit() else 4,)))


def needed(port):
    """Some are optional in the table, and still one of several has to be there."""
    return not port.optional or "to be given" in port.help


def named_inputs(op):
    """Those that such an operator needs."""
    given = {p.name: np.random.randint(0, 4, named_shape(p)) if p.integer else np.random.rand(*named_shape(p))
             for p in op.inputs if needed(p)}
    if "offsets" in given:  # of four tokens
        given["offsets"] = np.array([0, 1, 3, 4])
    if "parent" in given:  # a tree of five classes, with as many inner nodes as w has rows
        given.update(zip(("parent", "bit"), libsoftmax.huffman_tree(np.ones(5))))
    if "leaf" in given:  # one more than w has rows, a power of two
        given["w"] = given["w"][:3]
    if op.name == "product_key_memory":  # queries of two keys, of which k are chosen; as many values as pairs of keys
        given.update(keys=np.random.rand(4, 2, 32, 2), values=np.random.rand(1024, 4))
    if op.name in ("adaptive_softmax", "adaptive_log_softmax"):  # 998 frequent classes, and a cluster of two
        given.update(w=np.random.rand(999, 4), projection=np.random.rand(1, 4), tail=np.random.rand(2), cutoff=np.array([998]))
    if op.name == "factored_spherical_head":  # the state of its own rows
        given["state"] = libsoftmax.factored_spherical_state(given["v"])
    if op.name == "ada_unpool":  # a number for each window
        given["y"] = given["x"][:, ::2, ::2].copy()
    if op.name == "tree_pool":  # one gate less than leaves
        given["gate"] = given["gate"][:3]
    return given


def listed(y):
    return y if isinstance(y, tuple) else (y,)


def finite(y):
    return torch.where(y.isfinite(), y, 0)  # a logit of -inf stays what it is: differences would be NaN


@unittest.skipUnless(HERE, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    def test_tensors(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            x = torch.randn(3, 5, dtype=torch.float64).to(dtype)
            y = libsoftmax.softmax(x.T, axis=0)
            self.assertEqual((type(y), y.dtype, tuple(y.shape)), (torch.Tensor, dtype, (5, 3)))
            torch.testing.assert_close(y, torch.softmax(x.double().T, 0).to(dtype))
            out = torch.empty(5, 3, dtype=dtype)
            self.assertIs(libsoftmax.softmax(x.T, axis=0, out=out), out)
            self.assertTrue(torch.equal(out, y))
            self.assertIs(libsoftmax.softmax(x, out=x), x)
            self.assertTrue(torch.equal(x, y.T))
        mask = torch.tensor([[True, False, True]])
        y = libsoftmax.masked_softmax(torch.ones(2, 3), mask)
        self.assertTrue(torch.equal(y, torch.tensor([[0.5, 0, 0.5]] * 2)))
        with self.assertRaisesRegex(TypeError, "softmax: x: .*meta"):
            libsoftmax.softmax(torch.empty(3, device="meta"))
        with self.assertRaisesRegex(TypeError, "softmax: x: .*gradient"):
            libsoftmax.softmax(torch.ones(3, requires_grad=True))

    def test_lazy_views(self):
        """Memory of another sign than the values: refused by the package, resolved by its
        wrapper."""
        x = torch.tensor([1 + 2j, 2 - 3j, 0j]).conj().imag
        self.assertTrue(x.is_neg())
        with self.assertRaisesRegex(TypeError, "softmax: x: is a lazily negated view"):
            libsoftmax.softmax(x)
        with self.assertRaisesRegex(TypeError, "softmax: y: is a lazily negated view"):
            libsoftmax.softmax(torch.ones(3), out=x)
        with self.assertRaisesRegex(TypeError, "attention: q: is a lazily negated view"):
            libsoftmax.attention(*[torch._neg_view(torch.ones(1, 1, 2, 4))] * 3)
        torch.testing.assert_close(wrapped.softmax(x), torch.softmax(x, 0))
        with self.assertRaisesRegex(TypeError, "softmax: x"):
            libsoftmax.softmax(torch.tensor([1j, 2]).conj())
        x, q = torch.randn(2, 3, requires_grad=True), torch.randn(1, 1, 2, 4, requires_grad=True)
        for a, f in (
            (x, wrapped.softmax),
            (x, lambda x: wrapped.sink_softmax(x, torch.zeros(2))[1]),
            (x, lambda x: wrapped.cross_entropy(x, torch.tensor([0, 1]), reduction="none")),
            (q, lambda q: wrapped.attention(q, q, q)),
        ):
            y = f(a)
            lazily, at_once = torch._neg_view(torch.ones_like(y)), -torch.ones_like(y)
            found, expected = (torch.autograd.grad(f(a), a, up)[0] for up in (lazily, at_once))
            self.assertTrue(torch.equal(found, expected))

    def test_masked_arrays(self):
        """Of NumPy: PyTorch would drop the mask without a word."""
        x = np.ma.array([[1.0, 2.0, 3.0]], mask=[[False, True, False]])
        for call, name in (
            (lambda: wrapped.softmax(x), "softmax: x"),
            (lambda: wrapped.cross_entropy(torch.ones(1, 3), soft_target=x), "cross_entropy: soft_target"),
            (lambda: wrapped.attention(x.reshape(1, 1, 1, 3), *[torch.ones(1, 1, 1, 3)] * 2), ""),
        ):
            with self.assertRaisesRegex(ValueError, name + ".*some elements are masked"):
                call()
        torch.testing.assert_close(wrapped.softmax(np.ma.array([1.0, 2])), torch.tensor([1.0, 2]).double().softmax(0))

    def test_words_of_others(self):
        x = torch.randn(2, 3)
        torch.testing.assert_close(wrapped.logsumexp(x, dim=0, keepdim=True), x.logsumexp(0, keepdim=True))
        for wrong, here, f in (
            ("weight", "class_weight", lambda **w: wrapped.cross_entropy(x, torch.tensor([0, 1]), **w)),
            ("temprature", "temperature", lambda **w: wrapped.softmax(x, **w)),
            ("is_causal", "causal", lambda **w: wrapped.attention(*[x.reshape(1, 1, 2, 3)] * 3, **w)),
        ):
            with self.assertRaisesRegex(TypeError, "no argument named '%s'; here it is '%s'" % (wrong, here)):
                f(**{wrong: 1})


@unittest.skipUnless(HERE, "PyTorch is not installed")
class Gradients(unittest.TestCase):
    def test_every_output_and_reduction(self):
        """Every gradient against differences: of all outputs of all operators, of losses in every
        reduction, with all outputs or the loss alone. What has no gradient says so."""
        for op, given, settings in differentiable():
            given, names = tensors(op, given)
            for extra in [
                *variants(op),
                *({"reduction": v["reduction"]} for v in variants(op) if "reduction" in v),
            ]:
                def outputs(*wanted):
                    return listed(call(op, {**given, **dict(zip(names, wanted))}, {**settings, **extra}))
                for i, y in enumerate(outputs(*(given[n] for n in names))):
                    with self.subTest(op.name, output=op.outputs[i].name, **extra):
                        self.assertEqual(
                            y is not None and y.requires_grad, y is not None and has_gradient(op, i)
                        )
                        if y is not None and y.requires_grad:
                            self.assertTrue(
                                torch.autograd.gradcheck(
                                    lambda *w: finite(outputs(*w)[i]), [given[n] for n in names]
                                )
                            )

    def test_gradients_of_gradients(self):
        """They are the derivatives, or an error; where the upstream gradient is a constant too."""
        for op, given, settings in differentiable():
            given, names = tensors(op, given)
            names = [n for n in names if not (op.name == "entmax" and n == "alpha")]
            given = {name: a for name, a in given.items() if not (op.name == "entmax" and name == "alpha")}

            def function(*wanted):
                return finite(call(op, {**given, **dict(zip(names, wanted))}, settings) if names else None)
            with self.subTest(op.name):
                if op.name in AGAIN:
                    self.assertTrue(
                        torch.autograd.gradgradcheck(
                            lambda *w: listed(function(*w))[0], [given[n] for n in names], atol=1e-4
                        )
                    )
                    continue
                y = listed(call(op, given, settings))[0]
                with self.assertRaisesRegex(RuntimeError, op.name + ": gradients of gradients"):
                    g, = torch.autograd.grad(y.sum(), given["x"], create_graph=True)
                    g.square().sum().backward()

    def test_second_derivatives_of_cross_entropy(self):
        """All that it has: soft targets, weights, smoothing, a cap, a temperature; beside PyTorch
        where that has it."""
        torch.manual_seed(0)
        x, soft = torch.randn(4, 5, dtype=torch.float64), torch.rand(4, 5, dtype=torch.float64)
        t, w = torch.tensor([1, 4, -100, 0]), torch.rand(5, dtype=torch.float64)
        for settings in (
            {},
            {"label_smoothing": 0.1},
            {"label_smoothing": 0.2, "smoothing": "uniform_others"},
            {"z_weight": 0.1, "softcap": 2.0},
            {"label_smoothing": 0.7, "smoothing": "target_mass", "temperature": 0.5},
            {"class_weight": w},
        ):
            for targets in ({"target": t}, {"soft_target": soft}):
                for reduction in ("none", "sum", "mean"):
                    def loss(x, *soft):
                        given = {"soft_target": soft[0]} if soft else targets
                        return wrapped.cross_entropy(x, **given, **settings, reduction=reduction)
                    wanted = [
                        a.clone().requires_grad_() for a in ([x, soft] if "soft_target" in targets else [x])
                    ]
                    with self.subTest(str(settings), reduction=reduction, soft="soft_target" in targets):
                        self.assertTrue(torch.autograd.gradcheck(loss, wanted))
                        self.assertTrue(torch.autograd.gradgradcheck(loss, [x.clone().requires_grad_()]))

    def test_as_in_the_report(self):
        torch.manual_seed(1)
        X, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
        found = []
        for loss in (wrapped.cross_entropy, F.cross_entropy):
            torch.manual_seed(2)
            W, V = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((4, 5), (5, 3)))
            g, = torch.autograd.grad(loss((X @ W) @ V, y), W, create_graph=True)
            g.square().sum().backward()
            found.append((W.grad, V.grad))
        torch.testing.assert_close(found[0], found[1])

    def test_memory_and_bits(self):
        """softmax needs y alone; a loss has formed its gradient when backward comes, and both ways
        give the bits of the package."""
        x = torch.randn(3, 7, requires_grad=True)
        z = x * 1
        y = wrapped.softmax(z)
        z.zero_()
        up = torch.randn(3, 7)
        y.backward(up)
        self.assertTrue(torch.equal(x.grad, libsoftmax.softmax_backward(up, y=y.detach())))
        t = torch.tensor([0, 6, 3])
        for scale in (1.0, 0.5):
            x.grad = None
            (wrapped.focal_loss(x, t) * scale).backward()
            dx = libsoftmax.focal_loss(x.detach(), t, reduction="mean", return_dx=True).dx
            self.assertTrue(torch.equal(x.grad, dx * scale))

    def test_what_has_no_gradient_says_so(self):
        x, t = torch.randn(2, 3, requires_grad=True), torch.rand(2, 3, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "decoupled_kd: teacher: there is no gradient"):
            wrapped.decoupled_kd(x, t, torch.tensor([0, 1]))
        self.assertFalse(wrapped.softmax(x.detach(), temperature=0.5).requires_grad)
        with torch.no_grad():
            self.assertFalse(wrapped.softmax(x).requires_grad)

    def test_broadcast_and_settings(self):
        x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
        t = torch.full((1, 3), 0.7, dtype=torch.float64, requires_grad=True)
        wrapped.softmax(x, temperature=t, dim=2).square().sum().backward()
        dx, dt = torch.autograd.grad(torch.softmax(x / t[..., None], 2).square().sum(), (x, t))
        torch.testing.assert_close(x.grad, dx)
        torch.testing.assert_close(t.grad, dt)
        for axis in (None, (0, 2)):
            dx, = torch.autograd.grad(wrapped.logsumexp(x, axis=axis).square().sum(), x)
            (expected,) = torch.autograd.grad(
                torch.logsumexp(x, (0, 1, 2) if axis is None else axis).square().sum(), x
            )
            torch.testing.assert_close(dx, expected)

    def test_every_operator_is_there(self):
        self.assertLessEqual(
            {op.name for op in libsoftmax.OPERATORS.values() if op.backward}, set(wrapped.__all__)
        )


@unittest.skipUnless(HERE, "PyTorch is not installed")
class Conventions(unittest.TestCase):
    def test_cross_entropy_is_that_of_pytorch(self):
        torch.manual_seed(0)
        w = torch.rand(3, dtype=torch.float64)
        for shape in ((3,), (4, 3), (4, 3, 5), (3, 3, 3), (2, 3, 4, 5)):
            x = torch.randn(*shape, dtype=torch.float64)
            t = torch.randint(0, 3, [n for d, n in enumerate(shape) if d != (len(shape) > 1)])
            soft = torch.softmax(torch.randn_like(x), min(1, x.ndim - 1))
            for reduction in ("none", "sum", "mean"):
                for e in (0, 0.1):
                    for target in (t, t.to(torch.uint8), t.to(torch.int8), soft):
                        found = wrapped.cross_entropy(
                            x, target, class_weight=w, label_smoothing=e, reduction=reduction
                        )
                        torch.testing.assert_close(
                            found,
                            F.cross_entropy(
                                x,
                                target if target is soft else t,
                                weight=w,
                                label_smoothing=e,
                                reduction=reduction,
                            ),
                        )
        with self.assertRaisesRegex(ValueError, "cross_entropy: target: "):
            wrapped.cross_entropy(
                torch.randn(2, 5, 3), torch.zeros(2, 5, dtype=torch.long)
            )  # classes last is axis=-1, and said

    def test_dtypes(self):
        """A loss in f32 of logits in bf16: asked for, or under autocast; the gradient is in
        bf16."""
        x, t = torch.randn(4, 1000).bfloat16().requires_grad_(), torch.arange(4)
        expected = F.cross_entropy(x.float(), t)
        self.assertEqual(wrapped.cross_entropy(x, t).dtype, torch.bfloat16)
        loss = wrapped.cross_entropy(x, t, dtype=torch.float32)
        torch.testing.assert_close(loss, expected)
        loss.backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(expected, x)[0], rtol=1e-2, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(wrapped.cross_entropy(x, t).dtype, torch.float32)
            self.assertEqual(wrapped.softmax(x).dtype, torch.bfloat16)
        for dtype in (torch.float16, torch.float64):
            y = wrapped.softmax(x, dtype=dtype)
            torch.testing.assert_close(y, torch.softmax(x.float(), 1).to(dtype), rtol=1e-3, atol=1e-7)
            self.assertEqual(torch.autograd.grad(y.sum(), x)[0].dtype, x.dtype)


    def test_scaled_losses(self):
        """Gradients that float16 has only when the loss is scaled before backward, as GradScaler
        does."""
        half, t = torch.randn(64, 1000).half().requires_grad_(), torch.arange(64)
        wide = half.detach().float().requires_grad_()
        expected, = torch.autograd.grad(F.cross_entropy(wide, t), wide)
        found, = torch.autograd.grad(wrapped.cross_entropy(half, t, dtype=torch.float32) * 65536, half)
        torch.testing.assert_close(found.float() / 65536, expected, rtol=2e-3, atol=1e-9)

    def test_meta(self):
        self.assertEqual(
            wrapped.cross_entropy(
                torch.empty(3, 4, device="meta"), torch.empty(3, dtype=torch.long, device="meta")
            ).shape,
            (),
        )


@unittest.skipUnless(HERE, "PyTorch is not installed")
class Library(unittest.TestCase):
    def packed(self, op, settings):
        d = wrapped._operators[op.name]
        settings = d.ask({"reduction": "mean", **settings} if d.loss else settings)
        return d, [
            *wrapped._library.pack(d, settings),
            [i for i, a in enumerate(d.asked(settings)) if a],
            None,
        ]

    def test_shapes_without_data(self):
        """Fake kernels say what the library's own inference says."""
        for op, given, settings in problems():
            if op.backward:
                given = {name: torch.tensor(np.array(a)) for name, a in given.items()}
                settings |= variants(op)[0]
                d, packed = self.packed(op, settings)
                packed[-2] = list(range(len(op.outputs)))
                made = wrapped._library._fake(d)(*(given.get(p.name) for p in op.inputs), *packed)
                settings = {k: v for k, v in settings.items() if k in d.names}
                expected = libsoftmax.infer(op.name, **given, **settings)
                with self.subTest(op.name):
                    self.assertEqual(
                        [(tuple(y.shape), str(y.dtype).split(".")[1]) for y in listed(made)], expected
                    )

    def test_sizes_from_the_library(self):
        """Where the names of dimensions do not tell a size, the library does, from sizes alone."""
        named = [op for op in libsoftmax.OPERATORS.values()
                 if op.backward and not op.rows and not any(map(needed, op.inputs[1:]))]
        self.assertGreater(len(named), 1)
        for op in named:
            with self.subTest(op.name):
                x, whole = torch.rand(named_shape(op.inputs[0])), getattr(wrapped, op.name)

                def function(x, whole=whole):
                    made = whole(x)
                    return made[0] if isinstance(made, tuple) else made

                shapes = _autograd.Differentiable(op).shapes
                expected, made = [tuple(shape) for shape in shapes([x], {})], function(x)
                with unittest.mock.patch.object(_dims.Names, "shape", lambda names, port: None):
                    self.assertEqual(shapes([x], {}), expected)
                    torch._dynamo.reset()
                    compiled = torch.compile(lambda x: function(x), fullgraph=True, backend="aot_eager")
                    self.assertTrue(torch.equal(compiled(x), made))
                    module = torch.nn.Module()
                    module.forward = function
                    program = torch.export.export(module, (x,))
                self.assertTrue(torch.equal(program.module()(x), made))

    def test_opcheck(self):
        """torch.library's own test of every operator."""
        named = [(op, named_inputs(op), {}) for op in libsoftmax.OPERATORS.values() if not op.rows]
        for op, given, settings in [*differentiable(exact=False), *named]:
            if not op.backward:
                continue
            given, _ = tensors(op, given)
            _, packed = self.packed(op, settings)
            with self.subTest(op.name):
                operator = getattr(torch.ops.libsoftmax, op.name).default
                found = torch.library.opcheck(operator, (*(given.get(p.name) for p in op.inputs), *packed))
                self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_compile(self):
        """One graph, forward and backward, with the bits of eager calls; and again for another
        shape."""
        @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
        def model(x, t):
            y = wrapped.entmax15(wrapped.softmax(x * 2, dim=-1), axis=-1) + wrapped.logsumexp(
                x, keepdims=True
            )
            return wrapped.cross_entropy(y, t, label_smoothing=0.1), wrapped.softmax_topk(y, k=2).value

        def plain(x, t):
            return model._torchdynamo_orig_callable(x, t)
        for rows in (4, 9):
            x, t = torch.randn(rows, 6, requires_grad=True), torch.arange(rows) % 6
            found = []
            for function in (model, plain):
                loss, best = function(x, t)
                g, = torch.autograd.grad(loss + best.sum(), x)
                found.append((loss.detach(), best.detach(), g))
            for a, b in zip(*found):
                torch.testing.assert_close(a, b)

    def test_vmap(self):
        """Every operator: over the first axis and the last, and over its rows one by one."""
        for op, given, settings in problems(dtype="float64"):
            if not op.backward or not op.rows:
                continue
            given = {name: torch.tensor(np.array(a)) for name, a in given.items()}
            rows = [p.name for p in op.inputs if p.name in given and p.shape in (0, 1, 4)]
            fixed = {name: a for name, a in given.items() if name not in rows}

            def function(*arrays):
                settings_ = (
                    {**settings, "reduction": "none"}
                    if any(p.name == "reduction" for p in op.params)
                    else settings
                )
                return listed(getattr(wrapped, op.name)(**dict(zip(rows, arrays)), **fixed, **settings_))[0]
            with self.subTest(op.name):
                arrays = [given[name] for name in rows]
                expected = torch.stack([function(*row) for row in zip(*arrays)])
                self.assertTrue(torch.equal(finite(torch.vmap(function)(*arrays)), finite(expected)))
                batch = [torch.stack([a, a.flip(0)], -1) for a in arrays]
                expected = torch.stack([function(*arrays), function(*(a.flip(0) for a in arrays))])
                if not any(p.target for p in op.inputs):  # which have classes on axis 1
                    self.assertTrue(torch.equal(finite(torch.vmap(function, -1)(*batch)), finite(expected)))

    def test_transforms(self):
        x, t = torch.randn(3, 5, dtype=torch.float64), torch.tensor([0, 4, 2])

        def ours(x, t):
            return wrapped.cross_entropy(x, t)

        def theirs(x, t):
            return F.cross_entropy(x, t)
        for transform in (torch.func.grad, torch.func.jacrev, lambda f: torch.vmap(torch.func.grad(f)),
                          lambda f: torch.func.jacrev(torch.func.jacrev(f))):
            torch.testing.assert_close(transform(ours)(x, t), transform(theirs)(x, t))
        torch.testing.assert_close(
            torch.func.jacrev(wrapped.softmax)(x), torch.func.jacrev(lambda x: torch.softmax(x, -1))(x)
        )

    def test_checkpoint(self):
        from torch.utils.checkpoint import checkpoint
        x = torch.randn(3, 5, requires_grad=True)
        (a,) = torch.autograd.grad(
            checkpoint(lambda x: wrapped.sparsemax(x * 2), x, use_reentrant=False).square().sum(), x
        )
        b, = torch.autograd.grad(wrapped.sparsemax(x * 2).square().sum(), x)
        self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
