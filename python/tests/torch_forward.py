"""Forward mode of libsoftmax.torch: tangents are derivatives along a direction, or an error."""

import unittest

import torch
import torch.autograd.forward_ad as forward_ad

import libsoftmax.torch as wrapped
from libsoftmax.torch import _forward

from frameworks import differentiable
from torch_operators import call, finite, listed, tensors

STEP = 1e-6


class Forward(unittest.TestCase):
    def test_every_operator(self):
        """Along a random direction, against differences: of all outputs that have a gradient."""
        torch.manual_seed(0)
        seen = set()
        for op, given, settings in differentiable():
            given = {name: a.detach() for name, a in tensors(op, given)[0].items()}
            x = op.inputs[0].name
            if not op.rows or not op.inputs[0].gradient:
                continue

            def function(a):
                made = listed(call(op, {**given, x: a}, settings))
                return tuple(finite(y) for y in made if y is not None and y.is_floating_point())
            t = torch.randn_like(given[x])
            with self.subTest(op.name):
                try:
                    found = torch.func.jvp(function, (given[x],), (t,))[1]
                except RuntimeError as error:
                    self.assertRegex(str(error), "^%s: forward mode is not available" % op.name)
                    self.assertNotIn(op.name, _forward.SYMMETRIC)
                    self.assertNotIn(op.outputs[0].shape, (1, 5), "rows have their dot product")
                    continue
                ahead, behind = function(given[x] + STEP * t), function(given[x] - STEP * t)
                for tangent, a, b in zip(found, ahead, behind):
                    torch.testing.assert_close(tangent, (a - b) / (2 * STEP), atol=1e-6, rtol=1e-5)
                seen.add(op.name)
        self.assertLessEqual(_forward.SYMMETRIC, seen)
        self.assertLessEqual({"log_softmax", "logsumexp", "cross_entropy", "nll_loss"}, seen)

    def test_reductions(self):
        x, t = torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, 1, -100, 4])
        v, weight = torch.randn_like(x), torch.rand(5, dtype=torch.float64)
        for reduction in ("none", "sum", "mean"):
            given = {"reduction": reduction, "label_smoothing": 0.1}
            a, b = (torch.func.jvp(f, (x,), (v,)) for f in (
                lambda x: wrapped.cross_entropy(x, t, class_weight=weight, **given),
                lambda x: torch.nn.functional.cross_entropy(x, t, weight=weight, **given)))
            torch.testing.assert_close(a, b)

    def test_levels(self):
        """Dual tensors, columns of Jacobians, forward over backward."""
        x, t = (torch.randn(3, 4, dtype=torch.float64) for _ in range(2))
        for ours, theirs in ((wrapped.softmax, torch.softmax), (wrapped.log_softmax, torch.log_softmax),
                             (wrapped.logsumexp, torch.logsumexp)):
            def square(f):
                return lambda x: (f(x) ** 2).sum()

            def reference(x):
                return theirs(x, -1)
            with forward_ad.dual_level():
                dual = forward_ad.unpack_dual(ours(forward_ad.make_dual(x, t)))
                wanted = forward_ad.unpack_dual(reference(forward_ad.make_dual(x, t)))
                torch.testing.assert_close(dual.tangent, wanted.tangent)
            for transform in (torch.func.jacfwd, lambda f: torch.func.hessian(square(f))):
                torch.testing.assert_close(transform(ours)(x), transform(reference)(x))

    def test_errors(self):
        """Never a tangent of 0 where there is one."""
        x = torch.rand(1, 1, 3, 4)
        for function, message in (
            (lambda x: wrapped.attention(x, x, x), "attention: forward mode is not available"),
            (lambda x: wrapped.rope(x), "rope: forward mode"),
            (wrapped.softpick, "softpick: forward mode"),
            (lambda t: wrapped.softmax(x, temperature=t[..., 0]), "softmax: forward mode with respect to temp"),
        ):
            with self.assertRaisesRegex(RuntimeError, message):
                torch.func.jvp(function, (x,), (x,))
            with forward_ad.dual_level(), self.assertRaisesRegex(RuntimeError, message):
                function(forward_ad.make_dual(x, x))


if __name__ == "__main__":
    unittest.main()
