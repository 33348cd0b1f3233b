"""PyTorch and JAX: their arrays in and out, and gradients by libsoftmax.torch and libsoftmax.jax. What is not installed is skipped."""
import importlib.util
import unittest

import numpy as np

import libsoftmax

from support import problems

here = importlib.util.find_spec


def floating(given, make):
    return {name: make(np.array(a)) for name, a in given.items()}


def differentiable(one=True):
    for op, given, settings in problems(dtype="float64"):
        if op.backward and len(op.outputs) == 1:
            yield op, given, settings


@unittest.skipUnless(here("torch"), "PyTorch is not installed")
class Torch(unittest.TestCase):
    def setUp(self):
        import torch
        self.torch = torch

    def test_tensors(self):
        torch = self.torch
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

    def test_gradcheck(self):
        """Every operator and input, with torch's own check."""
        import libsoftmax.torch as wrapped
        torch = self.torch
        for op, given, settings in differentiable():
            if op.detached or "gradient" in {p.name for p in op.params}:
                continue  # defined to differ from the derivative
            settings |= {p.name: "no" for p in op.params if p.name in ("detach", "straight_through")}
            with self.subTest(op.name):
                tensors = floating(given, torch.tensor)
                names = [p.name for p in op.inputs if p.gradient]
                for name in names:
                    tensors[name].requires_grad_()

                def function(*wanted):
                    y = getattr(wrapped, op.name)(**{**tensors, **dict(zip(names, wanted))}, **settings)
                    return torch.where(y.isfinite(), y, 0)  # a logit of -inf stays what it is: differences would be NaN
                self.assertTrue(torch.autograd.gradcheck(function, [tensors[name] for name in names]))

    def test_broadcast_and_settings(self):
        import libsoftmax.torch as wrapped
        torch = self.torch
        x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
        t = torch.full((1, 3), 0.7, dtype=torch.float64, requires_grad=True)
        wrapped.softmax(x, t, axis=1 + 1).square().sum().backward()
        dx, dt = torch.autograd.grad(torch.softmax(x / t[..., None], 2).square().sum(), (x, t))
        torch.testing.assert_close(x.grad, dx)
        torch.testing.assert_close(t.grad, dt)
        self.assertFalse(wrapped.softmax(x.detach(), temperature=0.5).requires_grad)

    def test_every_operator_is_there(self):
        import libsoftmax.torch as wrapped
        self.assertEqual(set(wrapped.__all__), {op.name for op in libsoftmax.OPERATORS.values() if op.backward})


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

    def test_gradients(self):
        """Every operator and input, under jit: the bits of the backward function."""
        import libsoftmax.jax as wrapped
        for op, given, settings in differentiable():
            with self.subTest(op.name):
                call = floating(given, np.asarray)
                names = [p.name for p in op.inputs if p.gradient]
                function, name = getattr(libsoftmax, op.name), op.outputs[0].name
                y = function(**call, **settings)
                up = np.sin(1 + np.arange(y.size)).reshape(y.shape)

                def loss(*wanted):
                    return (getattr(wrapped, op.name)(**{**call, **dict(zip(names, wanted))}, **settings) * up).sum()
                found = self.jax.jit(self.jax.grad(loss, argnums=tuple(range(len(names)))))(*(call[n] for n in names))
                saved = {name: y} if op.outputs[0].saved else {}
                expected = getattr(libsoftmax, op.name + "_backward")(up, **saved, **call, **settings, wanted=tuple(names))
                for a, b in zip(found, expected):
                    np.testing.assert_array_equal(np.asarray(a), b)

    def test_transformations(self):
        import libsoftmax.jax as wrapped
        jax, jnp = self.jax, self.jax.numpy
        x = jnp.linspace(-3, 3, 30).reshape(2, 3, 5)
        t = jnp.asarray([[0.5, 1.0, 2.0]])
        np.testing.assert_allclose(jax.vmap(wrapped.softmax)(x), jax.nn.softmax(x), rtol=1e-12)

        def f(x, t):
            return (wrapped.softmax(x, t) ** 2).sum()

        def g(x, t):
            return (jax.nn.softmax(x / t[..., None]) ** 2).sum()
        for a, b in zip(jax.grad(f, (0, 1))(x, t), jax.grad(g, (0, 1))(x, t)):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        mask = x > 0
        self.assertEqual(wrapped.masked_softmax(x, mask, axis=1).shape, x.shape)


if __name__ == "__main__":
    unittest.main()
