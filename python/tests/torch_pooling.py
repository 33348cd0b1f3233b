"""libsoftmax.torch.nn's pooling beside torch.nn's: the same arguments, results and gradients."""

import inspect
import unittest

import torch

from libsoftmax import torch as smx
from libsoftmax.torch import nn

SHAPES = {1: (2, 3, 11), 2: (2, 3, 9, 11), 3: (2, 3, 5, 6, 7)}


class Pooling(unittest.TestCase):
    def close(self, ours, theirs, x):
        x = x.detach().requires_grad_()
        a, b = ours(x), theirs(x)
        torch.testing.assert_close(a, b)
        a, b = (y[0] if isinstance(y, tuple) else y for y in (a, b))
        g = torch.randn_like(b)
        torch.testing.assert_close(torch.autograd.grad(a, x, g), torch.autograd.grad(b, x, g))

    def both(self, name, spatial, **given):
        name = "%s%dd" % (name, spatial)
        torch.manual_seed(spatial)
        for x in (torch.randn(SHAPES[spatial]), torch.randn(SHAPES[spatial][1:], dtype=torch.float64)):
            self.close(getattr(nn, name)(**given), getattr(torch.nn, name)(**given), x)

    def test_arguments(self):
        for name in ("MaxPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool"):
            for spatial in (1, 2, 3):
                theirs = inspect.signature(getattr(torch.nn, "%s%dd" % (name, spatial))).parameters
                ours = inspect.signature(getattr(nn, "%s%dd" % (name, spatial))).parameters
                self.assertEqual([(p.name, p.default) for p in theirs.values()],
                                 [(p.name, p.default) for p in ours.values()][:len(theirs)])

    def test_windows(self):
        for spatial in (1, 2, 3):
            for given in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
                          {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
                          {"kernel_size": (2, 3, 1)[:spatial], "stride": (1, 2, 2)[:spatial], "padding": (1, 0, 0)[:spatial]}):
                self.both("MaxPool", spatial, **given)
                self.both("MaxPool", spatial, return_indices=True, **given)
                self.both("AvgPool", spatial, **given)
                self.both("AvgPool", spatial, count_include_pad=False, **given)
                if spatial > 1:
                    self.both("AvgPool", spatial, divisor_override=3, **given)
            self.both("MaxPool", spatial, kernel_size=2, dilation=2)
            self.both("MaxPool", spatial, kernel_size=2, dilation=(1, 3, 2)[:spatial], stride=(2, 1, 3)[:spatial])

    def test_narrow(self):
        """Cells that a kernel reaches beyond: with ceil_mode there is a window of those that are there."""
        for x in (torch.randn(2, 3, 9, 1), torch.randn(2, 3, 2, 5), torch.randn(0, 3, 2, 2)):
            for given in ({"kernel_size": 2}, {"kernel_size": (4, 3), "padding": 1}, {"kernel_size": 3, "stride": 3}):
                for name in ("MaxPool", "AvgPool"):
                    self.close(getattr(nn, name + "2d")(ceil_mode=True, **given), getattr(torch.nn, name + "2d")(ceil_mode=True, **given), x)
        with self.assertRaisesRegex(ValueError, "kernel: reaches over 2 cells"):
            nn.MaxPool2d(2)(torch.randn(2, 3, 9, 1))

    def test_channels_last(self):
        """The layout of torch.nn's results, and the bits of planes in C order."""
        torch.manual_seed(0)
        for x, last in ((torch.randn(2, 5, 8, 9), torch.channels_last), (torch.randn(2, 3, 4, 6, 5), torch.channels_last_3d),
                        (torch.randn(2, 70, 80, 90), torch.channels_last)):
            spatial, turned = x.ndim - 2, x.to(memory_format=last)
            for name, given in (("MaxPool", {"kernel_size": 2}), ("MaxPool", {"kernel_size": 3, "return_indices": True}),
                                ("AvgPool", {"kernel_size": 3, "stride": 2, "padding": 1}), ("AdaptiveAvgPool", {"output_size": 1}),
                                ("AdaptiveMaxPool", {"output_size": 3}), ("SoftPool", {"kernel_size": 2}),
                                ("LSEPool", {"kernel_size": 2}), ("AdaPool", {"kernel_size": 2})):
                with self.subTest(name, shape=x.shape):
                    module = getattr(nn, "%s%dd" % (name, spatial))(**given)
                    for dtype in (torch.float32, torch.float16):
                        if name == "AdaPool" and dtype == torch.float16:
                            continue
                        have, want = module(turned.to(dtype)), module(x.to(dtype))
                        for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (have, want))):
                            self.assertTrue(torch.equal(a, b))
                            self.assertEqual(a.stride(), torch.empty(a.shape, memory_format=last).stride())
                    theirs = getattr(torch.nn, "%s%dd" % (name, spatial), None)
                    if theirs and not (spatial == 3 and name == "AdaptiveMaxPool"):
                        self.close(module, theirs(**given), turned)
        x = torch.randn(2, 5, 8, 9).to(memory_format=torch.channels_last)
        self.assertTrue(smx.avg_pool(x, spatial=1).is_contiguous())  # no layout of torch.nn
        self.assertTrue(torch.equal(torch.compile(nn.MaxPool2d(2), backend="eager")(x), nn.MaxPool2d(2)(x)))
        packed = ([2.0, 2] + [0.0] * 5 + [0, -1, -1, 1, 0, 0, 0], [-1], False, "zero", "nan", [0, 1], None)
        torch.library.opcheck(torch.ops.libsoftmax.max_pool, (x, *packed))

    def test_what_goes_back(self):
        for spatial in (1, 2, 3):
            x = torch.randn(SHAPES[spatial], dtype=torch.float64)
            for window, size in (({"kernel_size": 2}, x.shape), ({"kernel_size": 3, "padding": 1}, x.shape[-spatial:]),
                                 ({"kernel_size": 1}, None), ({"kernel_size": (1, 2, 2)[-spatial:]}, x.shape)):
                name = "Pool%dd" % spatial
                y, index = getattr(torch.nn, "Max" + name)(return_indices=True, **window)(x)
                ours, theirs = (getattr(of, "MaxUn" + name.lower())(**window) for of in (nn, torch.nn))
                self.close(lambda y: ours(y, index, size), lambda y: theirs(y, index, size), y)
        with self.assertRaisesRegex(ValueError, "MaxUnpool1d: output_size: has 3 numbers, not 1 or 2"):
            nn.MaxUnpool1d(2)(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.int64), (1, 2, 3))
        for size in (0, 2, 6):  # as torch: within a stride of what all windows have
            with self.assertRaisesRegex(ValueError, "MaxUnpool1d: output_size: %d is not between 2 and 6" % size):
                nn.MaxUnpool1d(2)(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.int64), (1, size))
        # two windows with one cell: the last one counts, and has the gradient
        y, index = torch.tensor([[3.0, 5.0]], requires_grad=True), torch.tensor([[1, 1]])
        z = smx.max_unpool(y, index, spatial=1, size=3)
        self.assertEqual(z.tolist(), [[0, 5, 0]])
        self.assertEqual(torch.autograd.grad(z.sum(), y)[0].tolist(), [[0, 1]])

    def test_prior(self):
        for tokens, alpha in ((10, 0.2), (1000, 0.03)):
            bits = (torch.rand(4, tokens, dtype=torch.float64) < alpha).double()
            prior = torch.distributions.Binomial(tokens, torch.tensor(alpha, dtype=torch.float64))
            def theirs(bits):
                k = bits.sum(-1)
                ways = torch.lgamma(prior.total_count + 1.0) - torch.lgamma(k + 1) - torch.lgamma(tokens - k + 1)
                return -(ways + k * prior.probs.log() + (tokens - k) * torch.log1p(-prior.probs)) / tokens
            torch.testing.assert_close(smx.binomial_prior(bits, alpha=alpha), -prior.log_prob(bits.sum(-1)) / tokens)
            self.close(lambda bits: smx.binomial_prior(bits, alpha=alpha), theirs, bits)

    def test_bins(self):
        for spatial in (1, 2, 3):
            for size in (1, 3, (2, None, 4)[:spatial]):
                self.both("AdaptiveAvgPool", spatial, output_size=size)
                self.both("AdaptiveMaxPool", spatial, output_size=size)
                self.both("AdaptiveMaxPool", spatial, output_size=size, return_indices=True)

    def test_what_torch_has_not(self):
        x = torch.randn(2, 3, 8, 6, dtype=torch.float64)
        def cells(x):
            return x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        def mixed(x):
            return 0.3 * cells(x).amax(-1) + 0.7 * cells(x).mean(-1)
        for power, kernel, stride, ceil in ((2, 3, None, False), (3.5, (3, 2), 1, False), (1, 3, 2, True)):
            self.close(nn.LPPool2d(power, kernel, stride, ceil), torch.nn.LPPool2d(power, kernel, stride, ceil), x.abs())
        self.close(nn.LPPool2d(2, 2), torch.nn.LPPool2d(2, 2), x)
        self.close(nn.LPPool1d(2, 2), torch.nn.LPPool1d(2, 2), x[0])
        self.close(nn.SoftPool2d(2), lambda x: (cells(x).softmax(-1) * cells(x)).sum(-1), x)
        self.close(nn.SoftPool2d(2, beta=-2.0), lambda x: ((-2 * cells(x)).softmax(-1) * cells(x)).sum(-1), x)
        self.close(nn.LSEPool2d(2), lambda x: cells(x).logsumexp(-1), x)
        self.close(nn.MixedPool2d(2, mix=0.3), mixed, x)
        self.close(nn.AdaptiveSoftPool2d(1), lambda x: (x.flatten(2).softmax(-1) * x.flatten(2)).sum(-1)[..., None, None], x)
        self.close(nn.Maxout(3), lambda x: x.unflatten(-1, (2, 3)).amax(-1), x)

    def test_gem(self):
        x = torch.rand(2, 6, 4, 5, dtype=torch.float64)
        for groups in (1, 3):
            module = nn.GeM(2.5, groups=groups)
            p = module.p.detach().double().requires_grad_()
            def theirs(x):
                each = p.repeat_interleave(6 // groups)[:, None, None]
                return x.clamp(min=1e-6).pow(each).mean((2, 3), keepdim=True).pow(1 / each)
            self.close(module, theirs, x)
            module(x).sum().backward()
            torch.testing.assert_close(module.p.grad.double(), torch.autograd.grad(theirs(x).sum(), p)[0], rtol=1e-5, atol=1e-7)
        self.assertEqual(list(nn.GeM().state_dict()), ["p"])

    def test_learned_windows(self):
        x = torch.randn(2, 3, 8, 6, dtype=torch.float64)
        def cells(x):
            return x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        gated = nn.GatedPool2d(2).double()
        torch.nn.init.normal_(gated.weight)
        w = gated.weight.detach().requires_grad_()
        def theirs(x):
            a = torch.sigmoid(cells(x) @ w)
            return a * cells(x).amax(-1) + (1 - a) * cells(x).mean(-1)
        self.close(gated, theirs, x)
        gated(x).sum().backward()
        torch.testing.assert_close(gated.weight.grad, torch.autograd.grad(theirs(x).sum(), w)[0])
        tree = nn.TreePool2d(2, leaves=4).double()
        self.assertEqual(tree.extra_repr(), "kernel_size=2, stride=2, padding=0, leaves=4")
        torch.nn.init.normal_(tree.gate)
        leaf, gate = (p.detach().requires_grad_() for p in (tree.weight, tree.gate))
        def branches(x):
            a, f = torch.sigmoid(cells(x) @ gate.T), cells(x) @ leaf.T
            left, right = (a[..., k] * f[..., 2 * k - 2] + (1 - a[..., k]) * f[..., 2 * k - 1] for k in (1, 2))
            return a[..., 0] * left + (1 - a[..., 0]) * right
        self.close(tree, branches, x)
        tree(x).sum().backward()
        for ours, theirs in zip((tree.weight.grad, tree.gate.grad), torch.autograd.grad(branches(x).sum(), (leaf, gate))):
            torch.testing.assert_close(ours, theirs)
        ada = nn.AdaPool2d(2, beta=0.25).double()
        b = torch.tensor(0.25, dtype=torch.float64, requires_grad=True)
        def mixture(x):
            c, m = cells(x), cells(x).mean(-1, keepdim=True)
            dice = 2 * (c * m).abs() / (c * c + m * m)
            return b * (dice.softmax(-1) * c).sum(-1) + (1 - b) * (c.softmax(-1) * c).sum(-1)
        self.close(ada, mixture, x)
        ada(x).sum().backward()
        torch.testing.assert_close(ada.beta.grad, torch.autograd.grad(mixture(x).sum(), b)[0])

        share = nn.MixedPool2d(2, mix=0.3, learned=True).double()
        self.close(share, lambda x: share.mix.detach() * cells(x).amax(-1) + (1 - share.mix.detach()) * cells(x).mean(-1), x)
        share(x).sum().backward()
        torch.testing.assert_close(share.mix.grad, (cells(x).amax(-1) - cells(x).mean(-1)).sum())

        maps = nn.AdaPool2d(2, beta=torch.full((4, 3), 0.25)).double()
        torch.testing.assert_close(maps(x), ada(x))
        maps(x).sum().backward()
        torch.testing.assert_close(maps.beta.grad.sum(), ada.beta.grad)
        spread = maps.unpool(x, maps(x))
        torch.testing.assert_close(cells(spread).sum(-1), maps(x))
        with self.assertRaisesRegex(ValueError, "AdaPool2d: unpool: windows do not lie side by side"):
            nn.AdaPool2d(2, stride=1).unpool(x, x)

    def test_stochastic(self):
        x = torch.rand(2, 3, 8, 6, dtype=torch.float64)
        def cells(x):
            return x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        pool = nn.StochasticPool2d(2)
        torch.manual_seed(3)
        first = pool(x)
        self.assertTrue((cells(x) == first[..., None]).any(-1).all())
        self.assertFalse(torch.equal(pool(x), first))
        torch.manual_seed(3)
        self.assertTrue(torch.equal(pool(x), first))
        self.close(pool.eval(), lambda x: (cells(x).softmax(-1) * cells(x)).sum(-1), x)
        self.close(nn.StochasticPool2d(2, chances="ratio").eval(), lambda x: (cells(x) ** 2).sum(-1) / cells(x).sum(-1), x)
        def inverse(x):
            a = 1 / (cells(x) - cells(x).mean(-1, keepdim=True)).abs()
            return (a * cells(x)).sum(-1) / a.sum(-1)
        self.close(nn.IDWPool2d(2), inverse, x)

    def test_one_query(self):
        x = torch.randn(2, 7, 6, dtype=torch.float64)
        def attention(q, k, v, heads, width):
            q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
            return ((q @ k.mT / width ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)[:, 0]
        for heads, gamma in ((1, None), (3, None), (2, 1.25)):
            module = nn.SimPool(6, heads, gamma).double()
            torch.nn.init.normal_(module.norm.weight), torch.nn.init.normal_(module.norm.bias)
            def theirs(x):
                z, v = module.norm(x), module.norm(x)
                if gamma:
                    v = (z - z.amin((1, 2), keepdim=True) + 1e-6) ** gamma
                y = attention(module.wq(x.mean(1, keepdim=True)), module.wk(z), v, heads, 6 / heads)
                return y ** (1 / gamma) if gamma else y
            self.close(module, theirs, x)
            ours = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
            for mine, other in zip(ours, torch.autograd.grad(theirs(x).square().sum(), list(module.parameters()))):
                torch.testing.assert_close(mine, other)
        self.assertEqual(nn.SimPool(6)(torch.randn(2, 6, 3, 4)).shape, (2, 6))
        wq, wk, wv, wo = (torch.randn(6, 6, dtype=torch.float64) for _ in range(4))
        for index in (None, [2], [0, 5, 3]):
            def theirs(x):
                u = (x if index is None else x[:, index]).mean(1, keepdim=True)
                y = attention(u @ wq.T, x @ wk.T, x @ wv.T, 2, 6) @ wo.T
                return y + u[:, 0] if index and len(index) == 1 else y
            given = None if index is None else torch.tensor(index)
            self.close(lambda x: smx.query_pool(x, wq, wk, wv, wo, index=given, heads=2), theirs, x)

    def test_layers(self):
        x, f = torch.randn(4, 5, 6, dtype=torch.float64), torch.nn.functional
        module = nn.LayerAttentionPool(6, 5, num_latents=3, num_heads=2, dim_head=4, mult=2).double()
        for norm in (module.norm_layers, module.norm_latents, module.norm):
            torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)

        def theirs(x):
            told, latents = module.norm_layers(x + module.layers.weight), module.latents.expand(4, -1, -1)
            q, k, v = module.wq(module.norm_latents(latents)), module.wk(told), module.wv(told)
            heads = [f.softmax(q[..., i:i + 4] @ k[..., i:i + 4].mT / 2, -1) @ v[..., i:i + 4] for i in (0, 4)]
            y = module.wo(torch.cat(heads, -1)) + latents
            a, b = module.wide(module.norm(y)).chunk(2, -1)
            y = (module.narrow(a * f.gelu(b)) + y).mean(1)
            return y / y.norm(dim=-1, keepdim=True)
        self.close(module, theirs, x)
        ours = torch.autograd.grad(module(x)[:, 0].sum(), list(module.parameters()))
        for mine, other in zip(ours, torch.autograd.grad(theirs(x)[:, 0].sum(), list(module.parameters()))):
            torch.testing.assert_close(mine, other)
        with self.assertRaisesRegex(ValueError, r"LayerAttentionPool: input: shape is \[4, 4, 6\], not \[N, 5, 6\]"):
            module(x[:, 1:])

    def learns(self, module, theirs, *given):
        """Results, and the gradients of the inputs and of all parameters."""
        given = [x.detach().requires_grad_() for x in given]
        a, b = module(*given), theirs(*given)
        torch.testing.assert_close(a, b)
        wanted = [*given, *module.parameters()]
        ours = torch.autograd.grad(a.square().sum(), wanted)
        for mine, other in zip(ours, torch.autograd.grad(b.square().sum(), wanted)):
            torch.testing.assert_close(mine, other)

    def test_learned_scores(self):
        torch.manual_seed(5)
        x, offsets = torch.randn(2, 7, 6, dtype=torch.float64), torch.tensor([0, 2, 7])
        mask = torch.rand(2, 7) < 0.6
        for gated in (False, True):
            module = nn.AttentionPoolMIL(6, 4, gated=gated).double()
            def scores(x):
                h = torch.tanh(module.v(x))
                return module.w(h * torch.sigmoid(module.u(x)) if gated else h)
            def means(x, mask=None):
                s = scores(x) if mask is None else scores(x).masked_fill(~mask[..., None], -torch.inf)
                return (s.softmax(-2) * x).sum(-2)
            self.learns(module, means, x)
            torch.testing.assert_close(module(x, mask), means(x, mask))
            torch.testing.assert_close(module(x[0], offsets=offsets), torch.stack([means(x[0, :2]), means(x[0, 2:])]))
            if gated:
                module.activation = "sigmoid"
                self.learns(module, lambda x: means(x).sigmoid(), x)
        for outputs in (1, 3):
            module = nn.AttSets(6, outputs).double()
            def means(x):
                w = module.score(x).unflatten(-1, (outputs, 6)).softmax(-3)
                y = (w * x[..., None, :]).sum(-3)
                return y if outputs > 1 else y[..., 0, :]
            self.learns(module, means, x)
            torch.testing.assert_close(module(x[0], offsets=offsets), torch.stack([means(x[0, :2]), means(x[0, 2:])]))
        module = nn.LayerMix(7).double()
        torch.nn.init.normal_(module.score), torch.nn.init.constant_(module.scale, 1.5)
        self.learns(module, lambda x: module.scale * (module.score.softmax(0)[:, None] * x).sum(-2), x)
        module = nn.QueryPool(6, 2).double()
        def asked(x):
            q, k, v = (layer(y).unflatten(-1, (2, 3)).transpose(1, 2) for layer, y in
                       ((module.wq, x.mean(1, keepdim=True)), (module.wk, x), (module.wv, x)))
            return module.wo(((q @ k.mT / 6 ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(1))
        self.learns(module, asked, x)

    def test_branches(self):
        torch.manual_seed(6)
        module = nn.SelectiveKernel(5, 3, least=4).double()
        branches = [torch.randn(4, 5, 3, 2, dtype=torch.float64) for _ in range(3)]
        def theirs(*branches):
            x = torch.stack(branches)
            z = torch.relu(module.norm(module.squeeze(x.sum(0).mean((2, 3)))))
            p = module.select(z).unflatten(1, (3, 5)).softmax(1)
            return sum(p[:, i, :, None, None] * branches[i] for i in range(3))
        self.learns(module, theirs, *branches)
        with self.assertRaisesRegex(TypeError, "SelectiveKernel: 2 branches are given, not 3"):
            module(*branches[:2])

    def test_graph(self):
        torch.manual_seed(7)
        x, edge = torch.randn(6, 4, dtype=torch.float64), torch.tensor([[0, 1, 2, 3, 5], [1, 2, 3, 4, 0]])
        module = nn.GraphTopKPool(4, ratio=3).double()
        def theirs(x):
            s = x @ module.weight / module.weight.norm()
            best = s.topk(3).indices
            return x[best] * s[best, None].tanh()
        torch.testing.assert_close(module(x, edge)[0], theirs(x))
        ours, = torch.autograd.grad(module(x, edge)[0].square().sum(), module.weight)
        torch.testing.assert_close(ours, torch.autograd.grad(theirs(x).square().sum(), module.weight)[0])
        self.assertEqual(int(nn.GraphTopKPool(4, ratio=0.5).double()(x, edge)[5]), 3)
        self.assertEqual(int(nn.GraphTopKPool(4, min_score=1.0).double()(x, edge)[5]), 1)

    def test_pyramid(self):
        x = torch.randn(2, 3, 7, 9, dtype=torch.float64)
        for mode, bins in (("max", torch.nn.AdaptiveMaxPool2d), ("avg", torch.nn.AdaptiveAvgPool2d)):
            def theirs(x):
                return torch.cat([bins(n)(x)[:, :, i, j] for n in (3, 1) for i in range(n) for j in range(n)], 1)
            self.close(nn.SpatialPyramidPool((3, 1), mode), theirs, x)
        self.assertEqual(nn.SpatialPyramidPool()(x).shape, (2, 150))

    def test_wrong_arguments(self):
        for make, words in ((lambda: nn.MaxPool2d((1, 2, 3)), "MaxPool2d: kernel_size: has 3 numbers, not 2"),
                            (lambda: nn.MaxPool2d(2, dilation=(1, 0)), r"MaxPool2d: dilation: \(1, 0\) is below 1"),
                            (lambda: nn.AvgPool2d(2, divisor_override=0), "AvgPool2d: divisor_override: 0 is not above 0"),
                            (lambda: nn.AdaptiveAvgPool1d((1, 2)), "AdaptiveAvgPool1d: output_size: has 2 numbers, not 1"),
                            (lambda: nn.MaxPool2d((0, 2)), r"MaxPool2d: kernel_size: \(0, 2\) is below 1"),
                            (lambda: nn.AvgPool2d(2, 0), "AvgPool2d: stride: 0 is below 1"),
                            (lambda: nn.MaxPool2d(2, (0, 1)), r"MaxPool2d: stride: \(0, 1\) is below 1"),
                            (lambda: nn.MaxPool2d(3, 1, (-1, 1)), r"MaxPool2d: padding: \(-1, 1\) is below 0"),
                            (lambda: nn.AdaptiveMaxPool2d((0, 3)), r"AdaptiveMaxPool2d: output_size: \(0, 3\) is below 1"),
                            *((lambda n=n: nn.TreePool2d(2, leaves=n), "TreePool2d: leaves: %s is not one of 2, 4, 8" % n)
                              for n in (0, 1, 3, 128, -2, 2.5)),
                            (lambda: nn.MaxPool2d(3)(torch.zeros(1, 2, 2)), "kernel: reaches over 3 cells"),
                            (lambda: nn.GeM()(torch.zeros(2, 2)), "GeM: input: has 2 dimensions")):
            with self.assertRaisesRegex(ValueError, words):
                make()
        for make, words in ((lambda: nn.SoftPool2d(2, mix=1), "SoftPool2d: no argument named 'mix'"),
                            (lambda: nn.MaxPool2d(2.5), "MaxPool2d: kernel_size: 2.5 is not made of whole numbers"),
                            (lambda: nn.MaxPool2d(3, 1, (0, "1")), "MaxPool2d: padding: .* is not made of whole numbers"),
                            (lambda: nn.AdaptiveAvgPool1d(2.5), "AdaptiveAvgPool1d: output_size: 2.5 is not made")):
            with self.assertRaisesRegex(TypeError, words):
                make()
