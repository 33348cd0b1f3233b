"""Scores of rows for PyTorch, beside compositions of PyTorch's own functions in double."""

import unittest

import torch
import torch.nn.functional as F

import libsoftmax.torch as S


def entropy(z):
    return torch.special.entr(z.softmax(-1)).sum(-1)


def two(z):
    return z.softmax(-1).topk(2, dim=-1)[0]


PLAIN = {
    "msp": lambda z: z.softmax(-1).amax(-1),
    "least_confidence": lambda z: 1 - z.softmax(-1).amax(-1),
    "margin": lambda z: two(z)[..., 0] - two(z)[..., 1],
    "ratio": lambda z: two(z)[..., 1] / two(z)[..., 0],
    "energy": lambda z: z.logsumexp(-1),
    "entropy": entropy,
    "renyi_entropy": lambda z: -z.softmax(-1).square().sum(-1).log(),
    "tsallis_entropy": lambda z: 1 - z.softmax(-1).square().sum(-1),
    "gini": lambda z: 1 - z.softmax(-1).square().sum(-1),
    "kl_to_uniform": lambda z: torch.tensor(float(z.shape[-1])).log() - entropy(z),
    "kl_from_uniform": lambda z: -(z.log_softmax(-1).mean(-1) + torch.tensor(float(z.shape[-1]), dtype=z.dtype).log()),
    "logit_variance": lambda z: z.var(-1),
    "label_non_uniformity": lambda z: (z.softmax(-1) - 1 / z.shape[-1]).abs().sum(-1),
    "doctor_alpha": lambda z: 1 / z.softmax(-1).square().sum(-1) - 1,
    "doctor_beta": lambda z: 1 / z.softmax(-1).amax(-1) - 1,
}


class Scores(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_values_and_gradients(self):
        for name, plain in PLAIN.items():
            for shape in ((7, 5), (3, 2, 40), (4, 3000)):
                x = (2 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
                temperature = 1.0 if name in ("logit_variance",) else 1.7
                scale = temperature if name == "energy" else 1.0
                want, got = scale * plain(x / temperature), getattr(S, name)(x, temperature=temperature)
                torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
                up = torch.randn_like(want)
                (a,), (b,) = torch.autograd.grad(want, x, up), torch.autograd.grad(got, x, up)
                torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-7)

    def test_single_precision_is_near_double(self):
        """Rows as language models have them: large logits of many classes, one of which stands out."""
        x = 4 * torch.randn(64, 32000) - 20
        x[torch.arange(64), torch.arange(64) * 7] += 25
        for name, plain in PLAIN.items():
            got, want = getattr(S, name)(x).double(), plain(x.double())
            worst = ((got - want).abs() / want.abs().clamp(min=1e-30)).max().item()
            if name in ("least_confidence", "gini", "tsallis_entropy", "doctor_alpha", "doctor_beta"):
                continue  # PyTorch's own cancel here, in double too
            self.assertLess(worst, 1e-5, name)

    def test_true_class(self):
        x = torch.randn(30, 9, dtype=torch.float64, requires_grad=True)
        y = torch.randint(9, (30,))
        want, got = x.softmax(-1).gather(-1, y[:, None])[:, 0], S.true_class_probability(x, y)
        torch.testing.assert_close(got, want)
        up = torch.randn(30, dtype=torch.float64)
        torch.testing.assert_close(torch.autograd.grad(got, x, up)[0], torch.autograd.grad(want, x, up)[0])
        self.assertTrue(S.true_class_probability(x, torch.full((30,), -1)).isnan().all())

    def test_masks_lists_and_half_precision(self):
        x = torch.tensor([[1.0, -torch.inf, 3.0], [-torch.inf] * 3], requires_grad=True)
        self.assertEqual(S.entropy(x)[0].item(), S.entropy(torch.tensor([[1.0, 3.0]]))[0].item())
        S.entropy(x)[0].backward()
        self.assertTrue(x.grad.isfinite().all() and x.grad[0, 1] == 0)
        half = torch.randn(20, 100).bfloat16()
        torch.testing.assert_close(S.msp(half), S.msp(half.float()).bfloat16())

    def test_entropy_as_a_loss(self):
        """Entropy is minimised by its gradient."""
        x = torch.randn(8, 6, requires_grad=True)
        step = torch.optim.SGD([x], lr=1.0)
        for _ in range(200):
            step.zero_grad()
            S.entropy(x).mean().backward()
            step.step()
        self.assertLess(S.entropy(x).mean().item(), 0.3)
        self.assertTrue(F.softmax(x, -1).amax(-1).mean() > 0.8)


if __name__ == "__main__":
    unittest.main()
