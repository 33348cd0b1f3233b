"""What libsoftmax.torch keeps of a call for calls of the same form: never more than they share."""

import sys
import unittest

import torch
import torch.nn.functional as F

import libsoftmax.torch as wrapped
from libsoftmax.torch import _eager


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

    def test_their_number(self):
        x = torch.randn(2, 3)
        plans = wrapped.softmin.__closure__
        plans = next(c.cell_contents for c in plans if isinstance(c.cell_contents, _eager.Plans))
        for i in range(3 * plans.MOST):
            wrapped.softmin(x, temperature=1.0 + i)
        self.assertLessEqual(len(plans.made), plans.MOST)

    def test_they_save_work(self):
        """A call of a form that is known runs a third of the Python functions that one of another
        form does, or fewer, and reads no argument a second time."""
        x = torch.randn(3, 3)
        plans = next(c.cell_contents for c in wrapped.softmax.__closure__
                     if isinstance(c.cell_contents, _eager.Plans))

        def calls():
            names = []

            def count(frame, event, argument):
                if event == "call":
                    names.append(frame.f_code.co_name)
            sys.setprofile(count)
            try:
                wrapped.softmax(x)
            finally:
                sys.setprofile(None)
            return names
        plans.made.clear()
        first, again = calls(), calls()
        self.assertIn("bind", first)
        self.assertNotIn("bind", again)
        self.assertLessEqual(3 * len(again), len(first), (first, again))
        self.assertEqual(again, calls())


if __name__ == "__main__":
    unittest.main()
