"""libsoftmax.torch's modules of contrastive losses, and of losses by directions, beside PyTorch's
compositions, and their gradients."""

import math
import unittest

import torch
import torch.nn.functional as F

import libsoftmax.torch as wrapped

nn = wrapped.nn


def supcon(features, labels, temperature):
    """L_out of Khosla et al., as the authors' code forms it."""
    s = F.normalize(features, dim=1)
    s = s @ s.T / temperature
    s = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -math.inf)
    positive = (labels[:, None] == labels[None]).fill_diagonal_(False)
    log_p = s.log_softmax(1).masked_fill(~positive, 0)
    there = positive.any(1)
    return -(log_p.sum(1)[there] / positive.sum(1)[there]).mean()


class Pairs(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.a, self.b = (torch.randn(7, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
        self.unit = [F.normalize(x, dim=1) for x in (self.a, self.b)]
        self.own = torch.arange(7)

    def alike(self, ours, theirs, *learned):
        """Values and gradients."""
        torch.testing.assert_close(ours, theirs)
        of = [self.a, self.b, *learned]
        for one, other in zip(torch.autograd.grad(ours, of, retain_graph=True), torch.autograd.grad(theirs, of, retain_graph=True)):
            torch.testing.assert_close(one, other)

    def test_info_nce(self):
        a, b = self.unit
        self.alike(nn.InfoNCELoss(0.2)(self.a, self.b), F.cross_entropy(a @ b.T / 0.2, self.own))
        other = torch.randn(9, 5, dtype=torch.float64)
        logits = torch.cat([(a * b).sum(1, keepdim=True), a @ F.normalize(other, dim=1).T], 1) / 0.1
        self.alike(nn.InfoNCELoss(reduction="sum")(self.a, self.b, other),
                   F.cross_entropy(logits, torch.zeros_like(self.own), reduction="sum"))
        self.assertEqual(nn.InfoNCELoss(reduction="none")(self.a, self.b).shape, (7,))

    def test_nt_xent(self):
        z = torch.cat(self.unit)
        s = (z @ z.T / 0.5).masked_fill(torch.eye(14, dtype=torch.bool), -math.inf)
        self.alike(nn.NTXentLoss()(self.a, self.b), F.cross_entropy(s, torch.cat([self.own + 7, self.own])))

    def test_supervised(self):
        labels = torch.tensor([0, 0, 1, 1, 1, 2, 3])
        views = torch.stack([self.a, self.b], 1)
        self.alike(nn.SupConLoss(0.3)(views, labels), supcon(views.flatten(0, 1), labels.repeat_interleave(2), 0.3))
        self.alike(nn.SupConLoss(0.3)(views), nn.NTXentLoss(0.3)(self.a, self.b))
        torch.testing.assert_close(nn.SupConLoss(0.3)(self.a, labels), supcon(self.a, labels, 0.3))
        rows = nn.SupConLoss(reduction="none")(views, labels)
        self.assertEqual(rows.shape, (7, 2))
        hidden = nn.SupConLoss(0.3)(self.a, torch.tensor([0, 0, 1, 1, 1, -1, -1]))
        torch.testing.assert_close(hidden, supcon(self.a, labels, 0.3))  # a label below 0 is no class

    def test_clip(self):
        a, b = self.unit
        ours = nn.ClipLoss().double()
        self.assertEqual(list(ours.state_dict()), ["logit_scale"])
        logits = ours.logit_scale.exp() * a @ b.T
        both = (F.cross_entropy(logits, self.own) + F.cross_entropy(logits.T, self.own)) / 2
        self.alike(ours(self.a, self.b), both, ours.logit_scale)
        self.alike(nn.ClipLoss(learn=False)(self.a, self.b, ours.logit_scale.exp()), both, ours.logit_scale)
        torch.testing.assert_close(nn.ClipLoss(0.07, learn=False)(self.a, self.b), both)
        with torch.no_grad():
            ours.logit_scale.fill_(9)
        torch.testing.assert_close(ours(self.a, self.b), nn.ClipLoss(0.01, learn=False)(self.a, self.b))

    def test_global(self):
        """With gamma = 1 the loss of a batch by itself; else the sums of the data set move, in training."""
        a, b = self.unit
        s, off = a @ b.T, ~torch.eye(7, dtype=torch.bool)
        d = [((x - s.diagonal()[:, None]) / 0.2).masked_fill(~off, -math.inf) for x in (s, s.T)]
        ours = nn.GlobalContrastiveLoss(20, 0.2, gamma=1.0).double()
        index = torch.tensor([3, 19, 0, 4, 5, 6, 7])
        self.alike(ours(self.a, self.b, index), sum(0.2 * (x.logsumexp(1) - math.log(6)) for x in d).mean() / 2)
        torch.testing.assert_close(ours.state_a[index], d[0].logsumexp(1).detach())
        self.assertTrue((ours.state_b[1:3] == -math.inf).all())
        moving = nn.GlobalContrastiveLoss(20, 0.2, gamma=0.4).double()
        moving(self.a, self.b, index)
        moving(2 * self.a, -self.b, index)
        last = ((-s + s.diagonal()[:, None]) / 0.2).masked_fill(~off, -math.inf).logsumexp(1)
        mixed = torch.log(0.6 * d[0].logsumexp(1).exp() + 0.4 * last.exp())
        torch.testing.assert_close(moving.state_a[index], mixed.detach())
        before = moving.state_a.clone()
        moving.eval()(self.a, self.b, index)
        self.assertTrue(torch.equal(before, moving.state_a))
        learned = nn.GlobalContrastiveLoss(20, 0.2, rho=6.0, learn=True)
        learned(self.a.float(), self.b.float(), index).backward()
        self.assertEqual(learned.temperature_a.grad.nonzero().flatten().tolist(), index.sort().values.tolist())

    def test_directions(self):
        """Modules of losses by directions: their compositions, with what is learned beside the weights."""
        h, target = self.a, torch.tensor([0, 3, 1, 2, 0, 1, -100])
        there, own = target >= 0, F.one_hot(target.clamp(min=0), 4).bool()
        sphere = nn.SphereFace2Loss(5, 4).double()
        self.assertAlmostEqual(nn.SphereFace2Loss(2, 10).bias.item(), 12.9501779, 5)
        self.assertAlmostEqual(nn.SphereFace2Loss(2, 85742).bias.item(), 3.4882387, 5)

        def cosines(module):
            torch.nn.init.normal_(module.weight)
            return F.normalize(h, dim=1) @ F.normalize(module.weight, dim=1).T

        def alike(module, loss, *of):
            of = h, module.weight, *of
            ours = module(h, target)
            torch.testing.assert_close(ours, loss)
            for one, other in zip(torch.autograd.grad(ours, of), torch.autograd.grad(loss, of)):
                torch.testing.assert_close(one, other)

        g = 2 * ((cosines(sphere) + 1) / 2) ** 3 - 1
        u = 40 * torch.where(own, g - 0.4, g + 0.4) + sphere.bias
        rows = 50 / 40 * torch.where(own, 0.7 * F.softplus(-u, threshold=700), 0.3 * F.softplus(u, threshold=700)).sum(1)
        alike(sphere, rows[there].mean(), sphere.bias)
        cauchy = nn.WCDASLoss(5, 4, concentration=-1).double()
        k, c = cauchy.concentration.sigmoid(), cosines(cauchy)
        z = (1 + F.softplus(cauchy.strength)) / (2 * math.pi) * (1 - k * k) / (1 + k * k - 2 * k * c)
        alike(cauchy, F.cross_entropy(z, target), cauchy.concentration, cauchy.strength)
        self.assertEqual(len(list(nn.WCDASLoss(5, 4, scale=250).parameters())), 2)
        adaptive = nn.AdaptiveScaleMarginLoss(5, 4, alpha=0.02).double()
        c = cosines(adaptive)
        adaptive(h, target)
        scale, margin = adaptive.scale.clone(), adaptive.margin.clone()
        alike(adaptive, F.cross_entropy(scale * (c - margin * own), target))
        c = cosines(adaptive)
        alike(adaptive.eval(), F.cross_entropy(adaptive.scale * c, target))

    def test_parted_classes_in_float16(self):
        """Their scale is beyond float16, and in eval mode it is an argument."""
        loss = nn.AdaptiveScaleMarginLoss(4, 4).half()
        loss.weight.data = torch.eye(4, dtype=torch.float16)
        loss(torch.eye(4, dtype=torch.float16), torch.arange(4))
        self.assertEqual(loss.scale.item(), 65504)
        self.assertEqual(loss.eval()(torch.eye(4, dtype=torch.float16), torch.arange(4)).item(), 0)

    def test_running_sums_in_a_compiled_function(self):
        eager, loss = nn.GlobalContrastiveLoss(9), nn.GlobalContrastiveLoss(9)
        compiled = torch.compile(lambda *x: loss(*x), fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(self.a, self.b, self.own), eager(self.a, self.b, self.own)))
        self.assertTrue(torch.equal(loss.state_a, eager.state_a))
        for wrong in (-1, 9):
            with self.assertRaises(IndexError):
                compiled(self.a, self.b, torch.where(self.own == 2, wrong, self.own))

    def test_what_is_refused(self):
        a, b, long = self.a, self.b, self.own
        for word, call in (
            ("InfoNCELoss: temperature: is 0,", lambda: nn.InfoNCELoss(0)),
            ("ClipLoss: temperature: is nan,", lambda: nn.ClipLoss(math.nan)),
            ("NTXentLoss: reduction: 'avg'", lambda: nn.NTXentLoss(0.1, "avg")),
            ("InfoNCELoss: positive_key: has 6 rows, not 7", lambda: nn.InfoNCELoss()(a, b[1:])),
            ("InfoNCELoss: negative_keys: has the shape", lambda: nn.InfoNCELoss()(a, b, torch.ones(3, 4))),
            ("NTXentLoss: out1: has the shape", lambda: nn.NTXentLoss()(a, b[:, 1:])),
            ("ClipLoss: text_features: has 6 rows", lambda: nn.ClipLoss()(a, b[1:])),
            ("SupConLoss: labels: has the shape", lambda: nn.SupConLoss()(a, long[1:])),
            ("SupConLoss: labels: dtype is torch.float32", lambda: nn.SupConLoss()(a, torch.ones(7))),
            ("SupConLoss: features: has the shape", lambda: nn.SupConLoss()(a[0])),
            ("GlobalContrastiveLoss: index: has 0 to 6, not 0..5", lambda: nn.GlobalContrastiveLoss(6)(a, b, long)),
            ("SphereFace2Loss: num_classes: is 1,", lambda: nn.SphereFace2Loss(4, 1)),
            ("SphereFace2Loss: target: dtype is torch.float32", lambda: nn.SphereFace2Loss(5, 4)(torch.ones(7, 5), torch.ones(7))),
            ("WCDASLoss: target: has the shape .7,., not .1, 7.", lambda: nn.WCDASLoss(5, 4)(torch.ones(1, 7, 5), long)),
            ("NTXentLoss: out1: has the shape .3, 2., not .n, 0.", lambda: nn.NTXentLoss()(torch.ones(3, 0), torch.ones(3, 2))),
            ("WCDASLoss: reduction: 'some'", lambda: nn.WCDASLoss(4, 3, reduction="some")),
            ("GlobalContrastiveLoss: b: has 6 rows", lambda: nn.GlobalContrastiveLoss(9)(a, b[1:], long)),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), word):
                call()


if __name__ == "__main__":
    unittest.main()
