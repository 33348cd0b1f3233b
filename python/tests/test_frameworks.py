"""JAX: its arrays in and out, and gradients by libsoftmax.jax. Skipped where it is not
installed."""
import concurrent.futures
import doctest
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np

import libsoftmax

from frameworks import differentiable, has_gradient, variants

here = importlib.util.find_spec


def floating(given, make):
    return {name: make(np.array(a)) for name, a in given.items()}


@unittest.skipUnless(here("jax"), "JAX is not installed")
class Jax(unittest.TestCase):
    def setUp(self):
        import jax
        jax.config.update("jax_enable_x64", True)
        self.jax = jax

    def test_arrays(self):
        jnp = self.jax.numpy
        for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
            x = jnp.linspace(-3, 3, 15).reshape(3, 5).astype(dtype)
            y = libsoftmax.softmax(x)
            self.assertIsInstance(y, self.jax.Array)
            self.assertEqual((y.dtype, y.shape), (x.dtype, (3, 5)))
            np.testing.assert_array_equal(np.asarray(y), libsoftmax.softmax(np.asarray(x)))
            with self.assertRaisesRegex(ValueError, "softmax: y: is not a writable array"):
                libsoftmax.softmax(x, out=y)

    def test_every_output_and_reduction(self):
        """Every gradient against differences, under jit: of all outputs of all operators, and of
        losses in every reduction."""
        import libsoftmax.jax as wrapped
        from jax.test_util import check_grads
        jnp = self.jax.numpy
        for op, given, settings in differentiable():
            with self.subTest(op.name):
                call = floating(given, np.asarray)
                names = [p.name for p in op.inputs if p.gradient and p.name in call]

                def outputs(*wanted):
                    found = []
                    for extra in variants(op):
                        y = getattr(wrapped, op.name)(
                            **{**call, **dict(zip(names, wanted))}, **settings, **extra
                        )
                        found += [
                            a
                            for i, a in enumerate(y if isinstance(y, tuple) else (y,))
                            if a is not None and has_gradient(op, i)
                        ]
                    return [jnp.where(jnp.isfinite(a), a, 0) for a in found]
                check_grads(
                    self.jax.jit(outputs), [call[n] for n in names], 1, modes=["rev"], atol=1e-4, rtol=1e-4
                )

    def test_a_loss_is_the_value_for_all_rows(self):
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        x, t = jnp.linspace(-3, 3, 20).reshape(4, 5), jnp.asarray([0, 1, 2, 4])

        def plain(x):
            return -jnp.take_along_axis(jax.nn.log_softmax(x), t[:, None], 1).mean()
        value, found = jax.value_and_grad(lambda x: wrapped.cross_entropy(x, t, reduction="mean"))(x)
        expected, gradient = jax.value_and_grad(plain)(x)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(found, gradient, rtol=1e-9, atol=1e-12)
        self.assertEqual(
            float(
                jnp.abs(
                    jax.grad(
                        lambda x: wrapped.cross_entropy(x, t, reduction="mean", return_dx=True).dx.sum()
                    )(x)
                ).max()
            ),
            0,
        )

    def test_a_gradient_that_there_is_not_is_an_error(self):
        """With respect to every input that has none, beside those that have: never zeros."""
        import libsoftmax.jax as wrapped
        jax, refused = self.jax, 0
        for op, given, settings in differentiable():
            call = floating(given, np.asarray)
            names = [n for n, a in call.items() if a.dtype.kind == "f"]

            def f(*arrays):
                y = getattr(wrapped, op.name)(**{**call, **dict(zip(names, arrays))}, **settings)
                return (y[0] if isinstance(y, tuple) else y).sum()
            for i, port in [(names.index(p.name), p) for p in op.inputs if p.name in names]:
                with self.subTest(op.name, of=port.name):
                    gradient = jax.jit(jax.grad(f, i))
                    if port.gradient:
                        gradient(*(call[n] for n in names))
                        continue
                    refused += 1
                    with self.assertRaisesRegex(RuntimeError, "%s: %s: there is no gradient with respect to it:"
                                                " give jax.lax.stop_gradient" % (op.name, port.name)):
                        gradient(*(call[n] for n in names))
        self.assertGreater(refused, 20)
        q, k, bias = np.ones((1, 1, 2, 4)), np.ones((1, 1, 3, 4)), np.zeros((2, 3))
        with self.assertRaisesRegex(RuntimeError, "attention: sinks: there is no gradient"):
            jax.grad(lambda s: wrapped.attention(q, k, k, sinks=s, weights="sparsemax").sum())(np.zeros(1))
        v = np.linspace(-1, 1, 12).reshape(1, 1, 3, 4).astype("float32")
        q, bias, row = q.astype("float32"), bias.astype("float32"), np.full((1, 1), 1.5, "float32")
        for i, name in enumerate(("bias", "row")):
            found = jax.grad(
                lambda *a: wrapped.attention(q, v, v, bias=a[0], row=a[1], weights="entmax").sum(), i
            )(bias, row)
            same = libsoftmax.attention_backward(
                np.ones((1, 1, 2, 4), "float32"), q=q, k=v, v=v, bias=bias, row=row, weights="entmax", wanted=name
            )
            self.assertTrue((np.asarray(found) == same).all() and np.abs(same).max() > 0)
        table = np.int32([[0]])
        with self.assertRaisesRegex(RuntimeError, "attention: block_table: there are no gradients"):
            jax.grad(lambda q: wrapped.attention(q, k, k, block_table=table, lengths=[2]).sum())(q)

    def test_gradients_of_gradients_are_refused(self):
        import libsoftmax.jax as wrapped
        first = self.jax.grad(lambda x: (wrapped.softmax(x) ** 2).sum())
        with self.assertRaisesRegex(ValueError, "JVP|differentiat"):
            self.jax.grad(lambda x: (first(x) ** 2).sum())(self.jax.numpy.linspace(-1, 1, 5))

    def test_where(self):
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        x = jnp.asarray(np.random.default_rng(5).standard_normal((3, 4, 5)))
        keep = jnp.asarray(np.random.default_rng(6).random((3, 4, 5)) < 0.6).at[:, 0, 0].set(True)
        for name in ("softmax", "log_softmax", "logsumexp"):
            ours, theirs = getattr(wrapped, name), getattr(jax.nn, name)
            for axis in (-1, 0, (0, 2), None):
                for where in (keep, keep[:1], keep[0, :, :1]):
                    def value(function, x):
                        y = function(x, axis=axis, where=where)
                        return y if name == "logsumexp" else jnp.where(where, y, 0)
                    expected = np.asarray(value(theirs, x))
                    full = np.isfinite(expected)  # JAX has NaN, or a sum of nothing, where all is hidden
                    np.testing.assert_allclose(np.asarray(value(ours, x))[full], expected[full], rtol=1e-12)
                    if full.all() and where is keep:
                        np.testing.assert_allclose(
                            *(jax.jit(jax.grad(lambda x: (value(f, x) ** 2).sum()))(x) for f in (ours, theirs)),
                            rtol=1e-9, atol=1e-12)
        with self.assertRaisesRegex(TypeError, "softmax: where: dtype is float64, not bool or uint8"):
            wrapped.softmax(x, where=x)
        with self.assertRaisesRegex(ValueError, r"where: shape is \(3,\), which does not broadcast"):
            wrapped.softmax(x, where=keep[:, 0, 0])
        with self.assertRaisesRegex(TypeError, "sparsemax: no argument named 'where'"):
            wrapped.sparsemax(x, where=keep)

    def test_transformations(self):
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        x = jnp.linspace(-3, 3, 30).reshape(2, 3, 5)
        t = jnp.asarray([[0.5, 1.0, 2.0]])
        np.testing.assert_allclose(jax.vmap(wrapped.softmax)(x), jax.nn.softmax(x), rtol=1e-12)

        def f(x, t):
            return (wrapped.softmax(x, temperature=t) ** 2).sum()

        def g(x, t):
            return (jax.nn.softmax(x / t[..., None]) ** 2).sum()
        for a, b in zip(jax.grad(f, (0, 1))(x, t), jax.grad(g, (0, 1))(x, t)):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        mask = x > 0
        self.assertEqual(wrapped.masked_softmax(x, mask, axis=1).shape, x.shape)

    def test_dtype(self):
        """A loss in float32 of logits in bfloat16: the number before it is rounded."""
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        half = jnp.asarray(np.random.default_rng(0).standard_normal((3, 1000)), jnp.bfloat16)
        t = jnp.asarray([0, 1, 2])

        def loss(x, **more):
            return wrapped.cross_entropy(x, t, reduction="mean", **more)
        value, gradient = jax.jit(jax.value_and_grad(lambda x: loss(x, dtype=jnp.float32)))(half)
        expected, whole = jax.value_and_grad(loss)(half.astype(jnp.float32))
        self.assertEqual((value.dtype, gradient.dtype), (jnp.float32, jnp.bfloat16))
        self.assertEqual(float(value), float(expected))
        np.testing.assert_array_equal(gradient, whole.astype(jnp.bfloat16))
        found = wrapped.cross_entropy(half, t, dtype="float32", return_dx=True, return_class=True)
        self.assertEqual([a.dtype for a in found[:2]], [jnp.float32, jnp.bfloat16])
        self.assertEqual(found.class_.dtype, "int64")
        value, gradient = jax.value_and_grad(lambda x: loss(x, dtype=jnp.float64))(half)
        self.assertEqual((value.dtype, gradient.dtype), (jnp.float64, jnp.bfloat16))
        with self.assertRaisesRegex(TypeError, "softmax: dtype: int32 is none of"):
            wrapped.softmax(half, dtype="int32")
        with self.assertRaisesRegex(TypeError, "no argument named 'dim'; here it is 'axis'"):
            wrapped.softmax(half, dim=0)

    def test_direct_calls(self):
        """Compiled programs call the core itself; by callbacks, as with a GPU, results are the
        same bits."""
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        random = np.random.default_rng(0).standard_normal
        t = jnp.asarray([0, 4, -100, 2])
        mask = jnp.asarray(random((4, 5)) > 0)

        def everything(x, q):
            return (
                wrapped.softmax(x, axis=(0, 1), on_inf="limit"),
                wrapped.masked_softmax(x, mask, axis=0),
                wrapped.cross_entropy(x, t, reduction="mean", softcap=float("inf"), return_dx=True),
                wrapped.entmax(x, alpha=np.float32(1.25)),
                wrapped.logsumexp(x, keepdims=True),
                wrapped.softmax(x[:0]),
                wrapped.attention(q, q, q, weights="softmax_n", params={"n": 0.5}, return_lse=True),
                jax.vmap(wrapped.sparsemax)(x),
                jax.grad(lambda x: (wrapped.entmax15(x) ** 2).sum())(x),
                jax.grad(lambda q: (wrapped.attention(q, q[:, :1], q[:, :1], causal=True) ** 2).sum())(q),
            )
        for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
            given = jnp.asarray(random((4, 5)), dtype), jnp.asarray(random((1, 2, 3, 4)), dtype)
            text = jax.jit(everything).lower(*given).as_text()
            self.assertIn("@libsoftmax", text)
            self.assertNotIn("callback", text)
            direct = jax.jit(everything)(*given)
            with unittest.mock.patch.object(wrapped, "_direct", lambda: False):
                other = jax.jit(lambda *given: everything(*given))
                self.assertIn("callback", other.lower(*given).as_text())
                expected = other(*given)
            for a, b in zip(jax.tree.leaves(direct), jax.tree.leaves(expected), strict=True):
                self.assertEqual(a.dtype, b.dtype)
                np.testing.assert_array_equal(a, b)

    def test_batches(self):
        """vmap of every operator and its gradient is a loop over its elements, whichever way it is
        called; of rows it is one call."""
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        together = 0
        for op, given, settings in differentiable():
            call = floating(given, np.asarray)
            names = [n for n, a in call.items() if a.dtype.kind == "f" and a.ndim]
            given = [jnp.stack([call[n], call[n] * 0.75, call[n][::-1]], 1) for n in names]
            for more in ({}, {"axis": 0}) if len(call) == 1 and "k" not in settings else ({},):
                def f(*arrays):
                    given = {**call, **dict(zip(names, arrays))}
                    made = getattr(wrapped, op.name)(**given, **settings, **more)
                    made = made if isinstance(made, tuple) else (made,)
                    return [a for a in made if a is not None]

                def g(*arrays):
                    made = f(*arrays)
                    return sum(jnp.where(jnp.isfinite(a), a, 0).sum() for a in made if a.dtype == "float64")
                for function in (f, jax.grad(g)):
                    with self.subTest(op.name, gradient=function is not f, **more):
                        batch = jax.vmap(function, 1)
                        text = jax.jit(batch).lower(*given).as_text()
                        together += "while" not in text
                        expected = [function(*(a[:, i] for a in given)) for i in range(3)]
                        found = jax.tree.leaves(batch(*given))
                        for a, b in zip(found, zip(*map(jax.tree.leaves, expected)), strict=True):
                            np.testing.assert_array_equal(a, np.stack(b))
        self.assertGreater(together, 50)

    def test_errors_of_direct_calls(self):
        import libsoftmax.jax as wrapped
        jnp = self.jax.numpy
        x = jnp.zeros((2, 3))
        for call in (self.jax.jit(wrapped.cross_entropy), wrapped.cross_entropy):
            with self.assertRaisesRegex(Exception, "cross_entropy: target: .*7"):
                self.jax.block_until_ready(call(x, jnp.asarray([0, 7])))
        np.testing.assert_allclose(wrapped.softmax(x), 1 / 3, rtol=1e-6)

    def test_direct_calls_of_many_threads(self):
        import libsoftmax.jax as wrapped
        xs = [self.jax.numpy.linspace(-i, i, 3000).reshape(30, 100) for i in range(32)]
        step = self.jax.jit(lambda x: (wrapped.softmax(x), wrapped.logsumexp(x)))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for x, (y, s) in zip(xs, pool.map(step, xs)):
                np.testing.assert_array_equal(y, libsoftmax.softmax(np.asarray(x)))
                np.testing.assert_array_equal(s, libsoftmax.logsumexp(np.asarray(x)))

    def test_programs_that_are_kept(self):
        """In another process that compiled nothing, out of JAX's cache, settings are the same."""
        program = """if True:
            import jax, sys
            jax.config.update("jax_compilation_cache_dir", sys.argv[1])
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
            import libsoftmax.jax as wrapped
            heat = [2.0, 0.5] if sys.argv[2] == "one" else [0.5]
            x = jax.numpy.asarray([1.0, 2.0, 4.0])
            for t in heat:
                y = jax.jit(lambda x: wrapped.softmax(x, temperature=t))(x)
            print(y.tolist())
            """
        with tempfile.TemporaryDirectory() as folder:
            found = [
                subprocess.run(
                    [sys.executable, "-B", "-c", program, folder, word], text=True, capture_output=True
                )
                for word in ("one", "two")
            ]
            self.assertTrue(os.listdir(folder))
        self.assertEqual(found[0].stdout, found[1].stdout, found)
        expected = libsoftmax.softmax(np.float32([1, 2, 4]), temperature=0.5)
        np.testing.assert_array_equal(np.float32(json.loads(found[0].stdout)), expected)

    def test_attention(self):
        """Every function, under jit: gradients against differences; and vmap."""
        import libsoftmax.jax as wrapped
        from jax.test_util import check_grads
        random = np.random.default_rng(0).standard_normal
        q, k, v = random((2, 4, 3, 2)), random((2, 2, 5, 2)), random((2, 2, 5, 3))
        qkv = {"q": q, "k": k, "v": v}
        for name, given, settings in (
            ("attention", qkv, {"causal": True}),
            ("attention", qkv, {"weights": "sparsemax"}),
            ("attention", qkv, {"weights": "softmax_n", "params": {"n": 0.5}, "return_lse": True}),
            ("attention", {**qkv, "bias": random((3, 5)), "slopes": random(4)}, {}),
            ("attention_parallax", {**qkv, "r": random((2, 4, 3, 2))}, {}),
            ("attention_local_linear", qkv, {}),
            ("attention_additive", {**qkv, "u": random((2, 4, 2))}, {}),
            ("attention_tropical", qkv, {}),
            ("rope", {"x": random((2, 2, 3, 4))}, {}),
        ):
            def function(*arrays):
                return getattr(wrapped, name)(**dict(zip(given, arrays)), **settings)
            with self.subTest(name, **settings):
                check_grads(
                    self.jax.jit(function), list(given.values()), 1, modes=["rev"], atol=1e-4, rtol=1e-4
                )
        batch = np.stack([q, -q])
        both = self.jax.vmap(lambda q: wrapped.attention(q, k, v))(batch)
        np.testing.assert_array_equal(both, np.stack([libsoftmax.attention(a, k, v) for a in batch]))
        self.assertEqual(wrapped.attention_tropical(q, k, v, return_winners=True).winners.dtype, "int32")
        with self.assertRaisesRegex(ValueError, "attention: return_lse: there is no lse"):
            wrapped.attention(q, k, v, weights="sparsemax", return_lse=True)

    def test_the_page_of_the_documentation(self):
        page = pathlib.Path(__file__).parent.parent.parent / "docs/jax.md"
        found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
        self.assertEqual((found.failed, found.attempted > 10), (0, True))


if __name__ == "__main__":
    unittest.main()
