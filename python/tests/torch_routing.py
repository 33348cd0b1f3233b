"""Routing for PyTorch, beside compositions of PyTorch's own functions."""

import unittest

import torch
import torch.nn.functional as F

import libsoftmax.torch as S


def grouped(x, bias, k, groups, top):
    """The gate of DeepSeek-V3, as its authors have it."""
    score = torch.sigmoid(x)
    chosen = score + bias
    best = chosen.view(len(x), groups, -1).topk(2, dim=-1)[0].sum(-1).topk(top, dim=-1)[1]
    mask = torch.ones(len(x), groups, dtype=torch.bool).scatter_(1, best, False)
    chosen = chosen.view(len(x), groups, -1).masked_fill(mask.unsqueeze(-1), -torch.inf).flatten(1)
    index = chosen.topk(k, dim=-1)[1]
    weight = score.gather(1, index)
    return weight / weight.sum(-1, keepdim=True) * 2.5, index


def layer(x, logits, up, down, k):
    """Every token through all of its experts, one by one."""
    weight, index = logits.softmax(-1).topk(k, dim=-1)
    weight = weight / weight.sum(-1, keepdim=True)
    rows = [
        sum(w * (torch.relu(token @ up[e]) @ down[e]) for w, e in zip(ws, es))
        for token, ws, es in zip(x, weight, index)
    ]
    return torch.stack(rows)


def routed(x, logits, up, down, k):
    """The same: tokens sorted by expert, a product an expert."""
    weight, index = S.gate_topk(logits, k=k)
    slot, source, offset, *_ = S.moe_permutation(index, experts=len(up))
    rows = S.moe_dispatch(x, source)
    ends = offset.tolist()
    made = [torch.relu(rows[a:b] @ up[e]) @ down[e] for e, (a, b) in enumerate(zip(ends, ends[1:]))]
    return S.moe_combine(torch.cat(made), slot, weight=weight)


class Gates(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_groups_and_bias_choose_as_the_authors(self):
        for dtype in (torch.float32, torch.float64):
            x, bias = torch.randn(500, 64, dtype=dtype, requires_grad=True), torch.randn(64, dtype=dtype)
            how = {"k": 6, "score": "sigmoid", "groups": 8, "top_groups": 3, "scale": 2.5}
            want, index = grouped(x, bias, 6, 8, 3)
            got, chosen = S.gate_topk(x, bias=bias, **how)
            self.assertTrue(torch.equal(chosen, index))
            torch.testing.assert_close(got, want)
            up = torch.randn_like(want)
            (a,), (b,) = torch.autograd.grad(want, x, up), torch.autograd.grad(got, x, up)
            torch.testing.assert_close(b, a)

    def test_softmax_before_and_after_the_choice(self):
        x = torch.randn(300, 40, dtype=torch.float64, requires_grad=True)
        up = torch.randn(300, 5, dtype=torch.float64)
        p, index = x.softmax(-1).topk(5, dim=-1)
        for renormalise, want in (("no", p), ("yes", p / p.sum(-1, keepdim=True))):
            got, chosen = S.gate_topk(x, k=5, renormalise=renormalise)
            self.assertTrue(torch.equal(chosen, index))
            torch.testing.assert_close(got, want)
            a = torch.autograd.grad(want, x, up, retain_graph=True)[0]
            torch.testing.assert_close(torch.autograd.grad(got, x, up)[0], a)

    def test_a_token_does_not_depend_on_the_others(self):
        x = torch.randn(5000, 96)
        whole = S.gate_topk(x, k=8, score="sigmoid", groups=4, top_groups=2, group="two")
        for i in (0, 17, 4999):
            one = S.gate_topk(x[i], k=8, score="sigmoid", groups=4, top_groups=2, group="two")
            self.assertTrue(all(torch.equal(a[i], b) for a, b in zip(whole, one)))

    def test_nothing_and_not_a_number(self):
        x = torch.tensor([[1.0, torch.nan, 0], [-torch.inf] * 3, [-torch.inf, 2, -torch.inf]], requires_grad=True)
        weight, index = S.gate_topk(x, k=2)
        self.assertTrue(weight[0].isnan().all() and (index[0] == -1).all())
        self.assertEqual((weight[1:].tolist(), index[1:].tolist()), ([[0, 0], [1, 0]], [[-1, -1], [1, -1]]))
        weight[1:].sum().backward()
        self.assertTrue((x.grad == 0).all())
        with self.assertRaisesRegex(ValueError, "k is 4, but there are 3 experts"):
            S.gate_topk(x, k=4)

    def test_experts_choose(self):
        x = torch.randn(50, 7, dtype=torch.float64, requires_grad=True)
        want, index = x.softmax(-1).topk(15, dim=0)
        got, chosen = S.gate_expert_choice(x)
        self.assertTrue(torch.equal(chosen, index.T))
        torch.testing.assert_close(got, want.T)
        up = torch.randn_like(got)
        a, b = torch.autograd.grad(want, x, up.T)[0], torch.autograd.grad(got, x, up)[0]
        torch.testing.assert_close(b, a)

    def test_dense_to_sparse(self):
        x, bias, gain = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((90, 8), (8,), ()))
        functions = {"none": lambda v: v, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu, "relu": torch.relu}
        for activation, f in functions.items():
            p = (gain * (f(x) + bias) / 0.7).softmax(-1)
            want, index = p.topk(8, dim=-1)
            stays = (want >= 0.1) | (torch.arange(8) == 0)
            want = want.where(stays, 0.0)
            for renormalise in ("no", "yes"):
                want = want / want.sum(-1, keepdim=True) if renormalise == "yes" else want
                how = {"temperature": 0.7, "threshold": 0.1, "activation": activation, "renormalise": renormalise}
                got, chosen = S.gate_dense_to_sparse(x, bias=bias, gain=gain, **how)
                torch.testing.assert_close(got, want)
                self.assertTrue(torch.equal(chosen, index.where(stays, -1)))
                up = torch.randn_like(want)
                wanted = torch.autograd.grad(want, (x, bias, gain), up, retain_graph=True)
                for a, b in zip(wanted, torch.autograd.grad(got, (x, bias, gain), up)):
                    torch.testing.assert_close(b, a)

    def test_noise_is_gumbel(self):
        """With noise the best is a draw of the softmax."""
        x = torch.tensor([0.0, 1.0, 2.0]).expand(20000, 3).contiguous()
        index = S.gate_dense_to_sparse(x, noise="gumbel", seed=3, k=1)[1]
        share = torch.bincount(index[:, 0], minlength=3) / 20000
        torch.testing.assert_close(share, x[0].softmax(0), atol=0.015, rtol=0)

    def test_modified_features(self):
        x = torch.randn(30, 7, dtype=torch.float64, requires_grad=True)
        for transform, want in (("unit", F.normalize(x, dim=-1)), ("tanh", x.tanh())):
            got, up = S.gate_modified(x, transform=transform), torch.randn(30, 7, dtype=torch.float64)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got, x, up)[0], torch.autograd.grad(want, x, up)[0])

    def test_importance_and_load(self):
        x = torch.randn(60, 5, dtype=torch.float64, requires_grad=True)
        weight, index, chance = S.gate_noisy_topk(x, k=2, return_chance=True)
        dense = torch.zeros(60, 5, dtype=torch.float64).scatter(1, index, weight)
        for got, v in (
            (S.importance_loss(weight, index=index, experts=5, scale=0.1), dense.sum(0)),
            (S.importance_loss(chance, scale=0.1), chance.sum(0)),
        ):
            got = got[0] if isinstance(got, tuple) else got
            want = 0.1 * v.var() / (v.mean() ** 2 + 1e-10)
            torch.testing.assert_close(got, want)
            a, b = (torch.autograd.grad(y, x, retain_graph=True)[0] for y in (want, got))
            torch.testing.assert_close(b, a)

    def test_losses(self):
        x = torch.randn(200, 12, dtype=torch.float64, requires_grad=True)
        index = x.topk(2, dim=-1)[1]
        share = F.one_hot(index, 12).sum((0, 1)) / 400
        for want, got in (
            (0.01 * 12 * (share * x.softmax(-1).mean(0)).sum(), S.load_balancing_loss(x, index, scale=0.01)),
            (1e-3 * x.logsumexp(-1).square().mean(), S.router_z_loss(x, scale=1e-3)),
        ):
            got = got[0] if isinstance(got, tuple) else got
            torch.testing.assert_close(got, want)
            a, b = torch.autograd.grad(want, x)[0], torch.autograd.grad(got, x)[0]
            torch.testing.assert_close(b, a)


class Layer(unittest.TestCase):
    def test_a_layer_and_its_gradients(self):
        torch.manual_seed(1)
        shapes = ((40, 8), (40, 6), (6, 8, 10), (6, 10, 8))
        given = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]
        want, got = layer(*given, 2), routed(*given, 2)
        torch.testing.assert_close(got, want)
        up = torch.randn_like(want)
        for a, b in zip(torch.autograd.grad(want, given, up), torch.autograd.grad(got, given, up)):
            torch.testing.assert_close(b, a)

    def test_capacity_drops_the_later_tokens(self):
        index = torch.tensor([[0, 1], [0, 1], [0, 2], [1, 0]])
        slot, source, offset, *_ = S.moe_permutation(index, experts=3, capacity=2, order="choice", layout="fixed")
        self.assertEqual(slot.tolist(), [[0, 3], [1, -1], [-1, 4], [2, -1]])
        self.assertEqual((source.tolist(), offset.tolist()), ([0, 1, 3, 0, 2, -1], [0, 2, 4, 6]))
        weight = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.8, 0.2]])
        slot = S.moe_permutation(index, weight, experts=3, capacity=2, order="priority", layout="fixed")[0]
        self.assertEqual(slot.tolist(), [[0, 3], [-1, -1], [1, 4], [2, -1]])

    def test_balance_without_a_loss(self):
        counts = torch.tensor([3, 9, 6])
        got = S.expert_bias_update(torch.zeros(3), counts, rate=0.01)
        torch.testing.assert_close(got, torch.tensor([0.01, -0.01, 0.0]))


if __name__ == "__main__":
    unittest.main()
