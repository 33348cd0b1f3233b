"""What libsoftmax.torch keeps of a call for calls of the same form: never more than they share. And
what becomes of a gradient that was formed with its loss."""

import gc
import sys
import unittest

import torch
import torch.nn.functional as F

import libsoftmax
import libsoftmax.torch as wrapped

from frameworks import functions_run

MOST = 16  # forms of a function that are kept


class Plans(unittest.TestCase):
    def test_one_tensor_in_two_places(self):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        wanted = [wrapped.knowledge_distillation(*a, dtype=torch.float32) for a in ((x, y), (x, x), (y, x))]
        for _ in range(2):
            for a, b in zip(((x, x), (x, y), (y, x)), (wanted[1], wanted[0], wanted[2])):
                self.assertTrue(torch.equal(wrapped.knowledge_distillation(*a), b))
        for _ in range(2):
            self.assertTrue(torch.equal(wrapped.knowledge_distillation(teacher=y, x=x), wanted[0]))
            self.assertTrue(torch.equal(wrapped.knowledge_distillation(x=x, teacher=y), wanted[0]))

    def test_settings(self):
        """Errors stay errors after a call with an equal number, and results follow the settings."""
        x = torch.randn(3, 4)
        for _ in range(2):
            torch.testing.assert_close(wrapped.softmax(x, axis=1), torch.softmax(x, 1))
            torch.testing.assert_close(wrapped.softmax(x, dim=0), torch.softmax(x, 0))
            torch.testing.assert_close(wrapped.softmax(x, [0, 1]).sum(), torch.tensor(1.0))
            torch.testing.assert_close(wrapped.softmax(x, temperature=2.0), torch.softmax(x / 2, 1))
            with self.assertRaises(TypeError):
                wrapped.softmax(x, axis=1.0)
            with self.assertRaisesRegex(TypeError, "softmax: no argument named 'heat'"):
                wrapped.softmax(x, heat=1)
            with self.assertRaisesRegex(ValueError, "temperature: -1 is out of range"):
                wrapped.softmax(x, temperature=-1)
            with self.assertRaisesRegex(RuntimeError, "cross_entropy: class_weight: there is no gradient"):
                weight = torch.ones(4, requires_grad=True)
                wrapped.cross_entropy(x, torch.tensor([0, 1, 2]), class_weight=weight)

    def test_forms(self):
        """Dtypes, dimensions, views and autocast: each call gives what the first of its form
        would."""
        for _ in range(2):
            for shape in ((5,), (2, 5), (2, 5, 3)):
                for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                    x = torch.randn(shape, dtype=dtype).requires_grad_()
                    t = torch.randint(0, 5, (shape[0], *shape[2:])) if len(shape) > 1 else torch.tensor(1)
                    y = wrapped.cross_entropy(x, t)
                    self.assertEqual((y.dtype, y.shape), (dtype, ()))
                    theirs = F.cross_entropy(x.double(), t)
                    torch.testing.assert_close(y.double(), theirs, rtol=1e-2, atol=1e-2)
                    with torch.autocast("cpu"):
                        half = dtype in (torch.float16, torch.bfloat16)
                        self.assertEqual(wrapped.cross_entropy(x, t).dtype, torch.float32 if half else dtype)
                    g, = torch.autograd.grad(wrapped.softmax(x).float().square().sum(), x)
                    self.assertEqual((g.dtype, g.shape), (dtype, x.shape))
            x = torch.tensor([1 + 2j, 2 - 3j, 0j]).conj().imag
            torch.testing.assert_close(wrapped.softmax(x), torch.softmax(x, 0))
            with torch.no_grad():
                self.assertFalse(wrapped.softmax(torch.ones(3, requires_grad=True)).requires_grad)

    def test_needs(self):
        """Which tensors require a gradient, and whether any is recorded, is part of the form."""
        x, t = torch.randn(3, 4), torch.randn(3, 4)
        for _ in range(3):
            for needs in ((False, False), (True, False), (False, True), (True, True)):
                given = [a.clone().requires_grad_(n) for a, n in zip((x, t), needs)]
                y = wrapped.knowledge_distillation(*given)
                self.assertEqual(y.requires_grad, any(needs))
                with torch.no_grad():
                    self.assertTrue(torch.equal(wrapped.knowledge_distillation(*given), y))
                    self.assertFalse(wrapped.knowledge_distillation(*given).requires_grad)
                if any(needs):
                    wanted = [a for a, n in zip(given, needs) if n]
                    self.assertEqual(len(torch.autograd.grad(y, wanted)), sum(needs))

    def test_what_may_change(self):
        """Lists are read each time; views of another sign, other layouts and modes go their own
        way."""
        x, axes = torch.randn(2, 3, 4), [0, 1]
        for _ in range(2):
            torch.testing.assert_close(wrapped.softmax(x, axes).sum((0, 1)), torch.ones(4))
        axes[:] = [1, 2]
        torch.testing.assert_close(wrapped.softmax(x, axes).sum((1, 2)), torch.ones(2))
        for a in (x, torch._neg_view(x), x.transpose(0, 2), x[:, :1].expand(2, 3, 4), x[::2, ::2, ::3], x[:0]):
            torch.testing.assert_close(wrapped.softmax(a), torch.softmax(a, -1))
            up = torch._neg_view(torch.randn(a.shape))
            leaf = a.detach().requires_grad_()
            torch.testing.assert_close(torch.autograd.grad(wrapped.softmax(leaf), leaf, up),
                                       torch.autograd.grad(torch.softmax(leaf, -1), leaf, up))
        with torch.inference_mode():
            self.assertTrue(wrapped.softmax(x).is_inference())
        with self.assertRaisesRegex(TypeError, "layout"):
            wrapped.softmax(x[0].to_sparse())

    def test_large_and_small(self):
        """The short way of few elements gives the bits of the long one."""
        for shape in ((1, 2048), (2048, 1), (3, 683), (3, 682), (40, 60)):
            x, t = torch.randn(shape), torch.randint(0, shape[1], shape[:1])
            for _ in range(2):
                self.assertTrue(torch.equal(wrapped.softmax(x), libsoftmax.softmax(x)))
                wanted = libsoftmax.cross_entropy(x, t, reduction="mean").loss
                self.assertTrue(torch.equal(wrapped.cross_entropy(x, t), wanted))
                up, y = torch.randn(shape), libsoftmax.softmax(x)
                leaf = x.clone().requires_grad_()
                found, = torch.autograd.grad(wrapped.softmax(leaf), leaf, up)
                self.assertTrue(torch.equal(found, libsoftmax.softmax_backward(up, y=y)))

    def test_errors(self):
        """Those of a call of a known form, which the library finds."""
        x, t = torch.randn(3, 4), torch.tensor([0, 1, 2])
        for leaf in (x, x.clone().requires_grad_()):
            for _ in range(2):
                wrapped.cross_entropy(leaf, t)
                with self.assertRaisesRegex(ValueError, "cross_entropy: target: row 1 has target 7"):
                    wrapped.cross_entropy(leaf, torch.tensor([0, 7, 2]))
                with self.assertRaisesRegex(ValueError, "cross_entropy: target: shape is"):
                    wrapped.cross_entropy(leaf, torch.tensor([0]))
                with self.assertRaisesRegex(ValueError, "softmax: axis is 2"):
                    wrapped.softmax(leaf, 2)

    def test_their_number(self):
        """Settings that change with every call are forgotten again."""
        x = torch.randn(2, 3)
        heats = [1.0 + i for i in range(5 * MOST)]
        alone = [sys.getrefcount(heat) for heat in heats]
        for heat in heats:
            wrapped.softmin(x, temperature=heat)
        kept = [sys.getrefcount(heat) for heat in heats]
        self.assertEqual(sum(a > b for a, b in zip(kept, alone)), MOST)
        for heat in heats:
            torch.testing.assert_close(wrapped.softmin(x, temperature=heat), torch.softmax(-x / heat, -1))

    def test_what_is_forgotten_is_gone(self):
        """The torch.autograd.Function of a form too."""
        x, q = torch.randn(2, 3, requires_grad=True), torch.randn(1, 2, 3, 4, requires_grad=True)

        def count():
            gc.collect()
            return len(torch.autograd.Function.__subclasses__())
        for function in (
            lambda heat: wrapped.softmin(x, temperature=heat), lambda heat: wrapped.attention(q, q, q, scale=heat)
        ):
            before = count()
            for i in range(4 * MOST):
                function(2.0 + i).sum().backward()
            self.assertLessEqual(count() - before, MOST)

    def test_they_save_work(self):
        """A call of a known form runs no Python but its own function; its gradient none at all."""
        x = torch.randn(3, 3).requires_grad_()
        for function in (wrapped.softmax, lambda x: wrapped.cross_entropy(x, torch.arange(3))):
            function(x)
            y, names = functions_run(lambda: function(x))
            self.assertNotIn("bind", names)
            self.assertLessEqual(len(names), 4, names)
            _, names = functions_run(lambda: y.sum().backward())
            self.assertFalse([n for n in names if n in ("forward", "apply", "gradients")], names)


class Late(unittest.TestCase):
    """The gradient of a loss is formed with it, and scaled where it is when the graph goes."""

    def setUp(self):
        torch.manual_seed(0)
        self.x, self.t = torch.randn(6, 5, requires_grad=True), torch.randint(0, 5, (6,))
        wide = self.x.detach().double().requires_grad_()
        self.wanted = torch.autograd.grad(F.cross_entropy(wide, self.t), wide)[0].float()

    def test_a_graph_that_stays(self):
        """Each gradient is another tensor, which may be written to."""
        loss = wrapped.cross_entropy(self.x, self.t)
        for scale in (1.0, 0.5, 1.0):
            found, = torch.autograd.grad(loss * scale, self.x, retain_graph=True)
            torch.testing.assert_close(found, self.wanted * scale)
            found.mul_(7)
        loss.backward(retain_graph=True)
        loss.backward()
        torch.testing.assert_close(self.x.grad, 2 * self.wanted)

    def test_in_place(self):
        """No memory but that of the gradient itself."""
        for reduction, scale in (("mean", 1.0), ("mean", 0.37), ("sum", 1.0), ("none", 0.37)):
            kept = []
            with torch.autograd.graph.saved_tensors_hooks(lambda a: kept.append(a.data_ptr()) or a, lambda a: a):
                loss = wrapped.cross_entropy(self.x, self.t, reduction=reduction)
            found, = torch.autograd.grad((loss * scale).sum(), self.x)
            self.assertIn(found.data_ptr(), kept)

    def test_results_that_were_asked_for(self):
        made = wrapped.cross_entropy(self.x, self.t, return_dx=True)
        torch.autograd.grad(made.loss * 3, self.x)
        torch.testing.assert_close(made.dx, self.wanted)

    def test_batches_of_gradients(self):
        """vmap over torch.autograd.grad, as is_grads_batched and vectorize have it."""
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        t, q = torch.arange(3), torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
        for ours, theirs, leaf in (
            (wrapped.softmax, lambda x: torch.softmax(x, -1), x),
            (lambda x: wrapped.cross_entropy(x, t, reduction="none"),
             lambda x: F.cross_entropy(x, t, reduction="none"), x),
            (lambda x: wrapped.cross_entropy(x, t), lambda x: F.cross_entropy(x, t), x),
            (lambda x: wrapped.knowledge_distillation(x, x * 2), None, x),
            (lambda q: wrapped.scaled_dot_product_attention(q, q, q),
             lambda q: F.scaled_dot_product_attention(q, q, q), q),
        ):
            found = torch.autograd.functional.jacobian(ours, leaf, vectorize=True)
            wanted = torch.autograd.functional.jacobian(theirs or ours, leaf)
            torch.testing.assert_close(found, wanted)


if __name__ == "__main__":
    unittest.main()
