"""donate_logits: the gradient of a loss in the memory of its logits, and what is refused."""

import unittest

import numpy as np
import torch

import libsoftmax.torch as wrapped
from libsoftmax.torch import nn
from frameworks import differentiable


def losses():
    for op, given, settings in differentiable("float32"):
        if any(p.dx for p in op.outputs):
            yield op.name, {name: torch.tensor(np.array(a)) for name, a in given.items()}, settings


class Donated(unittest.TestCase):
    def gradient(self, name, given, settings, scale=1.0, **more):
        """(loss, gradient of the scores, whether it is where they were)."""
        first = next(iter(given))
        leaf = given[first].clone().requires_grad_()
        x = leaf * 1
        place = x.data_ptr()
        loss = getattr(wrapped, name)(**{**given, first: x}, **settings, **more)
        found, = torch.autograd.grad(loss.sum() * scale, x)
        return loss.detach(), found, found.data_ptr() == place

    def test_every_loss(self):
        """The same bits in every reduction, and no memory of its own for the gradient."""
        for name, given, settings in losses():
            for reduction in ("mean", "sum", "none"):
                with self.subTest(name, reduction=reduction):
                    how = {**settings, "reduction": reduction}
                    a, wanted, _ = self.gradient(name, given, how)
                    b, found, there = self.gradient(name, given, how, donate_logits=True)
                    self.assertTrue(torch.equal(a, b) and torch.equal(wanted, found))
                    self.assertTrue(there)

    def test_scaled(self):
        x, t = torch.randn(6, 5), torch.randint(0, 5, (6,))
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            given = {"x": x.to(dtype), "target": t}
            for more in ({}, {"dtype": torch.float32}):
                if dtype == torch.float64 and more:
                    continue
                for scale in (1.0, 0.37, -2.0):
                    plain = self.gradient("cross_entropy", given, {}, scale, **more)
                    into = self.gradient("cross_entropy", given, {}, scale, donate_logits=True, **more)
                    self.assertTrue(torch.equal(plain[0], into[0]) and torch.equal(plain[1], into[1]))
                    self.assertTrue(into[2])

    def test_in_a_model(self):
        """Gradients of all parameters; scores of any strides."""
        torch.manual_seed(0)
        model, x, t = torch.nn.Linear(4, 6), torch.randn(3, 5, 4), torch.randint(0, 6, (3, 5))
        found = []
        for into in (False, True):
            model.zero_grad()
            loss = nn.CrossEntropyLoss(label_smoothing=0.1, donate_logits=into)
            loss(model(x).transpose(1, 2), t).backward()
            found.append([p.grad.clone() for p in model.parameters()])
        for a, b in zip(*found):
            self.assertTrue(torch.equal(a, b))

    def test_scores_that_stay(self):
        """Nothing is written where no gradient is formed in the forward pass."""
        x, t = torch.randn(3, 5), torch.tensor([0, 1, 2])
        for scores in (x.clone(), x.half().requires_grad_() * 1):
            before = scores.detach().clone()
            wrapped.cross_entropy(scores, t, donate_logits=True)
            self.assertTrue(torch.equal(scores.detach(), before))
        with torch.no_grad():
            scores = x.clone().requires_grad_()
            wrapped.cross_entropy(scores, t, donate_logits=True)
            self.assertTrue(torch.equal(scores, x))
        compiled = torch.compile(
            lambda x: wrapped.cross_entropy(x, t, donate_logits=True), fullgraph=True, backend="aot_eager"
        )
        self.assertTrue(torch.equal(compiled(x.clone().requires_grad_()), wrapped.cross_entropy(x, t)))

    def test_what_is_refused(self):
        x, t = torch.randn(3, 5, requires_grad=True), torch.tensor([0, 1, 2])
        before = x.detach().clone()
        with self.assertRaisesRegex(ValueError, "cross_entropy: donate_logits: x is a leaf"):
            wrapped.cross_entropy(x, t, donate_logits=True)
        self.assertTrue(torch.equal(x.detach(), before))
        with self.assertRaisesRegex(TypeError, "softmax: no argument named 'donate_logits'"):
            wrapped.softmax(x, donate_logits=True)

        def loss(scores):
            return wrapped.cross_entropy(scores, t, donate_logits=True)
        for keeps in (torch.exp, lambda x: torch.exp(x).t().t(), lambda x: torch.exp(x)[:, :]):
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss(keeps(x)).backward()
        scores = x * 1
        squares = (scores * scores).sum()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            (loss(scores) + squares).backward()
        with self.assertRaisesRegex(ValueError, "donate_logits: x is a leaf .* or a view of one"):
            loss(x.view(3, 5))
        self.assertTrue(torch.equal(x.detach(), before))
        for scores in (x * 1, torch.nn.functional.linear(x, torch.eye(5)).t().t()):
            loss(scores)
            self.assertEqual((scores.numel(), 0 if scores._base is None else scores._base.numel()), (0, 0))
            with self.assertRaises((IndexError, RuntimeError)):
                scores.argmax(-1)
        scores = x * 1
        value = loss(scores)
        value.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "donate_logits: the gradient can be asked for once"):
            value.backward()
        with self.assertRaisesRegex(RuntimeError, "cross_entropy: gradients of gradients"):
            torch.autograd.grad(loss(x * 1), x, create_graph=True)
        with self.assertRaisesRegex(ValueError, "cross_entropy: dx: "):
            wrapped.cross_entropy((x[:1] * 1).expand(3, 5), t, donate_logits=True)


if __name__ == "__main__":
    unittest.main()
