"""libsoftmax.torch's losses of a linear layer: PyTorch's composition and its gradients, the same bits
whatever is kept, tracers and transforms, and what is refused."""

import itertools
import unittest

import torch
import torch.nn.functional as F

import libsoftmax
import libsoftmax.torch as wrapped

TARGET = torch.randint(0, 50, (2, 70), generator=torch.Generator().manual_seed(1)).index_fill(1, torch.tensor([3]), -100)


def composed(h, w, b, target, **given):
    """The definition, with all logits in memory."""
    made = F.cross_entropy(F.linear(h, w, b).flatten(0, -2), target.flatten(), **given)
    return made.reshape(target.shape) if given["reduction"] == "none" else made


def gradients(function, *arrays):
    arrays = [a if a is None else a.clone().requires_grad_() for a in arrays]
    made = function(*arrays)
    (made * torch.linspace(1, 3, made.numel(), dtype=made.dtype).reshape(made.shape)).sum().backward()
    return [made.detach(), *(a.grad for a in arrays if a is not None)]


class Heads(unittest.TestCase):
    def test_composition(self):
        torch.manual_seed(0)
        within = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 3e-2}
        for dtype, reduction, bias, weight in itertools.product(within, ("mean", "sum", "none"), *[(False, True)] * 2):
            h, w = torch.randn(2, 70, 33, dtype=dtype), torch.randn(50, 33, dtype=dtype) * 0.3
            b, classes = torch.randn(50, dtype=dtype) if bias else None, torch.rand(50).to(dtype) + 0.5 if weight else None
            given = dict(weight=classes, reduction=reduction, label_smoothing=0.1)
            ours = gradients(lambda h, w, b: wrapped.linear_cross_entropy(h, w, TARGET, linear_bias=b, **given), h, w, b)
            theirs = gradients(lambda h, w, b: composed(h, w, b, TARGET, **given), h, w, b)
            for a, e in zip(ours, theirs):
                self.assertEqual((a.shape, a.dtype), (e.shape, e.dtype))
                self.assertLess((a - e).abs().max(), within[dtype] * e.abs().max())

    def test_same_bits(self):
        h, w = torch.randn(200, 90), torch.randn(300, 90)
        target = torch.randint(0, 300, (200,))
        made = [gradients(lambda h, w: wrapped.linear_cross_entropy(h, w, target, keep=keep), h, w) for keep in (1e-6, 1, 32)]
        for other in made[1:]:
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(made[0], other)))
        rows = wrapped.linear_cross_entropy(h, w, target, reduction="none")
        self.assertTrue(torch.equal(rows[7:9], wrapped.linear_cross_entropy(h[7:9], w, target[7:9], reduction="none")))
        self.assertTrue(torch.equal(rows, libsoftmax.linear_cross_entropy(h, w, target).loss))

    def test_gradcheck(self):
        arrays = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((5, 7), (6, 7), (6,))]
        target = torch.tensor([0, 1, 5, -100, 2])
        for reduction in ("mean", "sum", "none"):
            self.assertTrue(torch.autograd.gradcheck(lambda h, w, b: wrapped.linear_cross_entropy(
                h, w, target, linear_bias=b, reduction=reduction, z_weight=0.1, softcap=3.0, scale=0.7), arrays))

    def test_sampled(self):
        """TensorFlow's formulas of tf.nn.sampled_softmax_loss and tf.nn.nce_loss, in torch."""
        torch.manual_seed(1)
        h, w, b = (torch.randn(*s, dtype=torch.float64) for s in ((6, 5), (20, 5), (20,)))
        target = torch.randint(0, 20, (6, 3))
        drawn = libsoftmax.sample_classes(target, classes=20, count=11, unique="no", seed=4)
        sampled, q_true, q = (torch.as_tensor(a).to(t) for a, t in zip(drawn, (torch.long, h.dtype, h.dtype)))

        def composed(h, w, b, softmax):
            true = torch.einsum("nd,ntd->nt", h, w[target]) + b[target] - q_true.log()
            others = h @ w[sampled].T + b[sampled] - q.log()
            if softmax:
                others = others.masked_fill((target[:, :, None] == sampled).any(1), -torch.inf)
            logits = torch.cat((true, others), 1)
            labels = torch.cat((torch.full_like(true, 1 / 3), torch.zeros_like(others)), 1)
            if softmax:
                return (torch.logsumexp(logits, 1)[:, None] - true).mean(1)
            return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").sum(1)

        for name in ("sampled_softmax", "nce_loss"):
            ours = gradients(lambda h, w, b: getattr(wrapped, name)(h, w, target, sampled, b, q_true, q), h, w, b)
            theirs = gradients(lambda h, w, b: composed(h, w, b, name == "sampled_softmax"), h, w, b)
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)

    def test_memory(self):
        """The layer of Lample et al. in torch: topk of the sub-queries, of their sums, an embedding bag."""
        torch.manual_seed(2)
        q, keys, values = (torch.randn(*s, dtype=torch.float64) for s in ((7, 2, 6), (2, 2, 5, 3), (25, 4)))

        def composed(q, keys, values):
            s = torch.einsum("nhpe,hpme->nhpm", q.reshape(7, 2, 2, 3), keys)
            (s1, i1), (s2, i2) = s[:, :, 0].topk(3), s[:, :, 1].topk(3)
            all, index = (s1[..., :, None] + s2[..., None, :]).flatten(-2), (5 * i1[..., :, None] + i2[..., None, :]).flatten(-2)
            best, at = all.topk(3)
            return torch.einsum("nhk,nhkd->nd", best.softmax(-1), values[index.gather(-1, at)])

        ours = gradients(lambda *a: wrapped.product_key_memory(*a, k=3).y, q, keys, values)
        torch.testing.assert_close(ours, gradients(composed, q, keys, values))

    def test_factored(self):
        """Steps of torch.optim.SGD on the layer itself; those that U cannot take; a state_dict."""
        for form in ("z_loss", "mse", "log_spherical", "log_taylor"):
            torch.manual_seed(4)
            ours = wrapped.nn.FactoredSphericalHead(6, 40, form, epsilon=1e-2, renew_every=7)
            layer = torch.nn.Linear(6, 40, bias=False, dtype=torch.float64)
            layer.weight.data = ours.weight.clone()
            steps = torch.optim.SGD(layer.parameters(), 1e-2)

            def composed(h, target):
                o, y = layer(h), layer(h).gather(-1, target[..., None])[..., 0]
                if form == "z_loss":
                    return F.softplus((o.mean(-1) - y) / (o.std(-1, correction=0) + 1e-2))
                if form == "mse":
                    return (o - F.one_hot(target, 40)).square().sum(-1)
                f = (lambda x: x * x + 1e-2) if form == "log_spherical" else (lambda x: 1 + x + x * x / 2)
                return f(o).sum(-1).log() - f(y).log()

            for _ in range(20):
                h = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
                target = torch.randint(0, 40, (2, 5))
                made = gradients(lambda h: ours(h, target), h.detach())
                torch.testing.assert_close(made, gradients(lambda h: composed(h, target), h.detach()))
                steps.zero_grad()
                h.grad = None
                composed(h, target).mean().backward()
                loss, dh = ours.step(h, target, lr=1e-2)
                torch.testing.assert_close(loss, composed(h, target).detach())
                torch.testing.assert_close(dh, h.grad)
                steps.step()
                torch.testing.assert_close(ours.weight, layer.weight.detach())
            other = wrapped.nn.FactoredSphericalHead(6, 40, form).half()
            other.load_state_dict(ours.state_dict())
            self.assertTrue(torch.equal(other.weight, ours.weight))
        h, target = torch.ones(1, 1, dtype=torch.float64), torch.tensor([1])
        none = wrapped.nn.FactoredSphericalHead(1, 3, "mse")
        none.step(h, target, lr=0.5)  # w - (w - y): nothing is left of U
        torch.testing.assert_close(none.weight, torch.tensor([[0.0], [1], [0]], dtype=torch.float64))
        before = none.weight
        with self.assertRaisesRegex(FloatingPointError, "gradient of input"):
            none.step(h * torch.nan, target, lr=0.5)
        self.assertTrue(torch.equal(before, none.weight))

    def test_targets_are_classes(self):
        """No probabilities, which cross_entropy takes: as classes they would all be 0."""
        input = torch.randn(3, 4)
        for module in (wrapped.nn.SampledSoftmaxLoss(4, 9, 5), wrapped.nn.NCELoss(4, 9, 5), wrapped.nn.FactoredSphericalHead(4, 9)):
            for target in (torch.rand(3, 9), torch.ones(3), torch.ones(3, dtype=torch.bool)):
                with self.assertRaisesRegex(TypeError, "%s: target: dtype is %s" % (type(module).__name__, target.dtype)):
                    module(input, target)
        head = wrapped.nn.FactoredSphericalHead(4, 9)
        with self.assertRaisesRegex(TypeError, "target: dtype is torch.float32"):
            head.step(input, torch.rand(3, 9), lr=0.1)
        classes = torch.tensor([1, 2, 3])
        self.assertTrue(torch.equal(head(input, classes), head(input, classes.to(torch.uint8))))

    def test_sampled_modules(self):
        """Training on samples of a layer that is wide enough learns its classes; eval has the whole sum."""
        for make in (wrapped.nn.SampledSoftmaxLoss, wrapped.nn.NCELoss):
            torch.manual_seed(3)
            ours, h, target = make(16, 50, 20), torch.eye(16)[None], torch.arange(16)[None] * 3
            steps = torch.optim.Adam(ours.parameters(), 0.2)
            for _ in range(150):
                steps.zero_grad()
                ours(h, target).backward()
                steps.step()
            self.assertTrue(torch.equal(ours.linear(h).argmax(-1), target), make.__name__)
        ours = wrapped.nn.SampledSoftmaxLoss(16, 50, 20, reduction="none").eval()
        target[0, 5] = -100
        torch.testing.assert_close(ours(h, target)[0], F.cross_entropy(ours.linear(h[0]), target[0], reduction="none"))
        torch.manual_seed(0)
        first = ours.train()(h, torch.stack((target, target.clamp(min=0) + 1), -1))
        torch.manual_seed(0)
        self.assertTrue(torch.equal(first, ours(h, torch.stack((target, target.clamp(min=0) + 1), -1))))
        self.assertEqual(first.shape, (1, 16))
        counted = wrapped.nn.NCELoss(16, 50, 5, counts=torch.arange(50), power=1.0)
        self.assertTrue(torch.isfinite(counted(h, target.clamp(min=1))))
        for bad in (dict(num_sampled=51), dict(num_sampled=0), dict(num_sampled=3, reduction="some")):
            with self.assertRaisesRegex(ValueError, "SampledSoftmaxLoss: "):
                wrapped.nn.SampledSoftmaxLoss(16, 50, **bad)
        with self.assertRaisesRegex(ValueError, "target: has the shape"):
            ours(h, target[:, :3])

    def test_memory_module(self):
        torch.manual_seed(4)
        ours = wrapped.nn.ProductKeyMemory(6, 5, 7, heads=2, k=3)
        query = torch.randn(2, 3, 12, requires_grad=True)
        y = ours(query)
        self.assertEqual((y.shape, ours.indices.shape), ((2, 3, 5), (2, 3, 2, 3)))
        y.sum().backward()
        self.assertEqual(int((ours.values.grad != 0).any(1).sum()), len(ours.indices.unique()))
        self.assertTrue((query.grad != 0).any())
        for bad in (dict(key_features=5), dict(k=8), dict(k=0)):
            with self.assertRaisesRegex(ValueError, "ProductKeyMemory: "):
                wrapped.nn.ProductKeyMemory(**{**dict(key_features=6, out_features=5, num_keys=7), **bad})
        with self.assertRaisesRegex(ValueError, "query: has 11 features"):
            ours(query[..., 1:])

    def test_repeated(self):
        """A graph that is kept gives the same gradients again."""
        h, w, t = torch.randn(5, 7), torch.randn(6, 7, requires_grad=True), torch.tensor([0, 1, 5, -100, 2])
        loss = wrapped.linear_cross_entropy(h, w, t)
        g, = torch.autograd.grad(loss, w, retain_graph=True)
        for _ in range(3):
            loss.backward(retain_graph=True)
        torch.testing.assert_close(w.grad, 3 * g)

    def test_transforms(self):
        h, w, target = torch.randn(5, 7), torch.randn(6, 7), torch.tensor([0, 1, 5, -100, 2])
        plain = gradients(lambda h: wrapped.linear_cross_entropy(h, w, target), h)
        traced = torch.compile(lambda h: wrapped.linear_cross_entropy(h, w, target), fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(gradients(traced, h), plain)
        torch.testing.assert_close(torch.func.grad(lambda h: wrapped.linear_cross_entropy(h, w, target))(h), plain[1])

    def test_module(self):
        torch.manual_seed(0)
        ours = wrapped.nn.LinearCrossEntropyLoss(7, 6, bias=True, label_smoothing=0.2)
        h, target = torch.randn(3, 4, 7), torch.randint(0, 6, (3, 4))
        expected = composed(h, ours.linear.weight, ours.linear.bias, target, label_smoothing=0.2, reduction="mean")
        torch.testing.assert_close(ours(h, target), expected)
        self.assertEqual(sorted(ours.state_dict()), ["linear.bias", "linear.weight"])

    def test_sizes_and_dtypes(self):
        w = torch.randn(6, 7, requires_grad=True)
        self.assertEqual(wrapped.linear_cross_entropy(torch.randn(7), w, torch.tensor(3)).shape, ())
        self.assertTrue(wrapped.linear_cross_entropy(torch.randn(0, 7), w, torch.tensor([], dtype=torch.long)).isnan())
        wrapped.linear_cross_entropy(torch.randn(2, 7, dtype=torch.bfloat16), w, torch.tensor([1, 2], dtype=torch.uint8)).backward()
        self.assertEqual(w.grad.dtype, torch.float32)
        self.assertEqual(wrapped.linear_cross_entropy(torch.randn(3, 0), torch.randn(6, 0), torch.tensor([1, 2, 3])), torch.tensor(6.0).log())
        masses = torch.softmax(torch.randn(4, 6), -1)
        h = torch.randn(4, 7)
        torch.testing.assert_close(wrapped.linear_cross_entropy(h, w, masses), F.cross_entropy(F.linear(h, w), masses))

    def test_refused(self):
        h, w, t = torch.randn(5, 7), torch.randn(6, 7), torch.tensor([0, 1, 5, -100, 2])
        for word, call in (("target", lambda: wrapped.linear_cross_entropy(h, w, t[:3])),
                           ("shape", lambda: wrapped.linear_cross_entropy(h, w[:, :3], t)),
                           ("0..5", lambda: wrapped.linear_cross_entropy(h, w, t + 1)),
                           ("reduction", lambda: wrapped.linear_cross_entropy(h, w, t, reduction="some")),
                           ("weight", lambda: wrapped.linear_cross_entropy(h, w, t, weight=torch.ones(6, requires_grad=True))),
                           ("foo", lambda: wrapped.linear_cross_entropy(h, w, t, foo=1))):
            with self.assertRaisesRegex((TypeError, ValueError, RuntimeError), word):
                call()


class Margins(unittest.TestCase):
    def test_definition(self):
        torch.manual_seed(5)
        h, target = torch.randn(9, 6, dtype=torch.float64), torch.randint(0, 4, (9,)).index_fill(0, torch.tensor([2]), -100)
        for m1, m2, m3, detach in ((1, 0.5, 0, False), (1, 0, 0.35, False), (1.2, 0.1, 0.2, False), (1, 0.3, 0, True)):
            ours = wrapped.nn.CosineMarginLoss(6, 4, m1=m1, m2=m2, m3=m3, scale=8, detach=detach).double()

            def composed(h, w):
                x = F.normalize(h) @ F.normalize(w).T
                kept = target.clamp(min=0)[:, None]
                c = x.gather(1, kept)
                psi = torch.cos(m1 * torch.acos(c) + m2) - m3
                if detach:
                    psi = c + (psi - c).detach()
                return F.cross_entropy(8 * x.scatter(1, kept, psi), target)
            for a, b in zip(gradients(lambda h: ours(h, target), h), gradients(lambda h: composed(h, ours.weight), h)):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
            w = ours.weight.detach()
            for a, b in zip(gradients(lambda w: torch.func.functional_call(ours, {"weight": w}, (h, target)), w),
                            gradients(lambda w: composed(h, w), w)):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)

    def test_reductions(self):
        h, target = torch.randn(2, 5, 6), torch.tensor([[0, 1, 2, -100, 3], [3, 2, 1, 0, 0]])
        ours = wrapped.nn.CosineMarginLoss(6, 4, reduction="none")
        rows = ours(h, target)
        self.assertEqual(rows.shape, target.shape)
        self.assertEqual(rows[0, 3], 0)
        for reduction, value in (("sum", rows.sum()), ("mean", rows.sum() / 9)):
            ours.reduction = reduction
            torch.testing.assert_close(ours(h, target), value)
        with self.assertRaisesRegex(ValueError, "reduction"):
            wrapped.nn.CosineMarginLoss(6, 4, reduction="some")


class Mixtures(unittest.TestCase):
    """MixtureOfSoftmaxesLoss."""

    def test_definition(self):
        torch.manual_seed(4)
        ours = wrapped.nn.MixtureOfSoftmaxesLoss(6, 11, 3, reduction="none").double()
        h, target = torch.randn(2, 5, 6, dtype=torch.float64), torch.randint(0, 11, (2, 5)).index_fill(1, torch.tensor([2]), -100)

        def composed(h):
            pi = torch.softmax(ours.gate(h), -1)
            p = torch.softmax(ours.linear(torch.tanh(ours.latent(h)).unflatten(-1, (3, 6))), -1)
            mixed = (pi[..., None] * p).sum(-2)
            return torch.where(target < 0, 0, -mixed.gather(-1, target.clamp(min=0)[..., None])[..., 0].log())
        for a, b in zip(gradients(lambda h: ours(h, target), h), gradients(composed, h)):
            torch.testing.assert_close(a, b)
        one = [p.grad for p in ours.parameters()]
        ours.zero_grad()
        gradients(composed, h)
        for a, b in zip(one, (p.grad for p in ours.parameters())):
            torch.testing.assert_close(a, 2 * b)
        ours.reduction = "mean"
        torch.testing.assert_close(ours(h, target), composed(h).sum() / 8)
        for call in (lambda: ours(h, target[:1]), lambda: wrapped.nn.MixtureOfSoftmaxesLoss(6, 11, 0)):
            with self.assertRaisesRegex(ValueError, "MixtureOfSoftmaxesLoss: (target|num_components)"):
                call()

    def test_operator(self):
        """All gradients, with the losses of the components saved and without; half precision has those of the widened
        inputs, rounded, and their components are float32."""
        torch.manual_seed(6)
        target = torch.randint(0, 9, (8,)).index_fill(0, torch.tensor([3]), -100)
        up, weight = torch.randn(8, dtype=torch.float64), torch.rand(9, dtype=torch.float64)
        for dtype, rtol in ((torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 0.02), (torch.float16, 0.004)):
            given = [torch.randn(*shape).to(dtype).requires_grad_() for shape in ((8, 3, 6), (8, 3), (9, 6), (9,))]
            h, prior, w, bias = wide = [a.detach().double().requires_grad_() for a in given]
            each = torch.log_softmax(h @ w.T + bias, -1)
            mixed = torch.logsumexp(torch.log_softmax(prior, -1)[..., None] + each, 1)
            rounded = up.to(dtype), weight.to(dtype)
            rows = F.nll_loss(mixed, target, rounded[1].double(), reduction="none")
            expected, found = torch.autograd.grad(rows, wide, rounded[0].double()), []
            for saved in (False, True):
                y = wrapped.mixture_of_softmaxes(*given[:3], target, given[3], class_weight=rounded[1], return_component=saved)
                torch.testing.assert_close(y.loss, rows.to(dtype), rtol=rtol, atol=rtol)
                found.append(torch.autograd.grad(y.loss, given, rounded[0]))
                for a, b in zip(found[-1], expected):
                    torch.testing.assert_close(a, b.to(dtype), rtol=rtol, atol=rtol * b.abs().max().item())
            self.assertTrue(all(map(torch.equal, *found)))
            self.assertEqual(y.component.dtype, dtype if dtype.itemsize > 2 else torch.float32)
            one = -each.gather(-1, target.clamp(min=0)[:, None, None].expand(8, 3, 1))[..., 0]
            torch.testing.assert_close(y.component.double(), torch.where(target[:, None] < 0, 0, one), rtol=1e-5, atol=1e-5)

    def test_settings(self):
        torch.manual_seed(5)
        ours = wrapped.nn.MixtureOfSoftmaxesLoss(4, 7, 2, softcap=0.3, temperature=2.0, keep=1.0)
        h, target = torch.randn(6, 4), torch.randint(0, 7, (6,))
        logits = ours.linear(torch.tanh(ours.latent(h)).unflatten(-1, (2, 4)))
        p = torch.softmax(0.3 * torch.tanh(logits / 0.3) / 2, -1)
        mixed = (torch.softmax(ours.gate(h), -1)[..., None] * p).sum(-2)
        torch.testing.assert_close(ours(h, target), F.nll_loss(mixed.log(), target))
        compiled = torch.compile(ours, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(h, target), ours(h, target))
        for name, value in (("weight", torch.ones(7)), ("label_smoothing", 0.1), ("z_weight", 1e-4), ("of", 1)):
            with self.assertRaisesRegex(TypeError, "MixtureOfSoftmaxesLoss: no argument named '%s'" % name):
                wrapped.nn.MixtureOfSoftmaxesLoss(4, 7, 2, **{name: value})
        for wrong in (7, -1):
            target[3] = wrong
            with self.assertRaisesRegex(ValueError, "mixture_of_softmaxes: target: number 3 is %d, not 0..6 or -100" % wrong):
                ours(h, target)


class Bases(unittest.TestCase):
    """EquiangularBasisHead."""

    def test_definition(self):
        ours = wrapped.nn.EquiangularBasisHead(5, 12, temperature=0.2, steps=50, seed=3).double()
        self.assertEqual(([*ours.parameters()], [*ours.state_dict()]), ([], ["weight"]))
        cosines = ours.weight @ ours.weight.T - torch.eye(12)
        self.assertAlmostEqual(cosines.abs().max().item(), ours.largest, places=6)
        h, target = torch.randn(9, 5, dtype=torch.float64), torch.randint(0, 12, (9,)).index_fill(0, torch.tensor([2]), -100)
        for a, b in zip(gradients(lambda h: ours(h, target), h),
                        gradients(lambda h: F.cross_entropy(F.normalize(h) @ F.normalize(ours.weight).T / 0.2, target), h)):
            torch.testing.assert_close(a, b)
        self.assertTrue(torch.equal(ours.predict(ours.weight * 3), torch.arange(12)))
        with self.assertRaisesRegex(ValueError, "temperature"):
            wrapped.nn.EquiangularBasisHead(5, 12, temperature=0)
        with self.assertRaisesRegex((ValueError, RuntimeError), "simplex"):
            wrapped.nn.EquiangularBasisHead(5, 12, form="simplex")

    def test_construction(self):
        """No number of torch's generator is drawn; devices are those of torch.device."""
        torch.manual_seed(7)
        before = torch.get_rng_state()
        ours = wrapped.nn.EquiangularBasisHead(5, 12, steps=20, seed=3)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))
        self.assertEqual(ours.extra_repr(), "temperature=0.07, form=equiangular, bound=0.0, steps=20, seed=3")
        with torch.device("meta"):
            other = wrapped.nn.EquiangularBasisHead(5, 12, steps=20, seed=3)
        self.assertEqual((other.weight.device.type, other.weight.shape, other.largest), ("meta", (12, 5), ours.largest))


class Clusters(unittest.TestCase):
    """adaptive_softmax and adaptive_log_softmax against PyTorch's module."""

    def test_definition(self):
        torch.manual_seed(2)
        for bias, cutoffs, div in ((True, [5, 9, 20], 2.0), (False, [30], 4.0), (True, [1, 2], 1.0)):
            theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 40, cutoffs, div, head_bias=bias, dtype=torch.float64)
            h, target = torch.randn(70, 16, dtype=torch.float64), torch.randint(0, 40, (70,))
            layers = [theirs.head.weight, *([theirs.head.bias] if bias else []), *(t[i].weight for t in theirs.tail for i in (0, 1))]

            def taken(h, w, *rest):
                b, parts = (rest[0], rest[1:]) if bias else (None, rest)
                return (h, w, torch.cat(parts[::2]), torch.cat([t.reshape(-1) for t in parts[1::2]]), torch.tensor(cutoffs)), \
                    {"bias": b, "classes": 40, "div_value": div}

            def loss(*arrays):
                given, more = taken(*arrays)
                return wrapped.adaptive_softmax(*given, target, **more)

            def log(*arrays):
                given, more = taken(*arrays)
                return wrapped.adaptive_log_softmax(*given, **more)

            def with_theirs(function):
                names = ["head.weight", *(["head.bias"] if bias else []),
                         *("tail.%d.%d.weight" % (i, k) for i in range(len(cutoffs)) for k in (0, 1))]
                return lambda h, *w: torch.func.functional_call(function, dict(zip(("of." + n for n in names), w)), (h,))

            class Called(torch.nn.Module):
                def __init__(self, log):
                    super().__init__()
                    self.of, self.log = theirs, log

                def forward(self, h):
                    return self.of.log_prob(h) if self.log else -self.of(h, target).output
            for ours, is_log in ((loss, False), (log, True)):
                arrays = [h, *(w.detach() for w in layers)]
                for a, b in zip(gradients(ours, *arrays), gradients(with_theirs(Called(is_log)), *arrays)):
                    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)

    def test_widths(self):
        h, w = torch.randn(6, 4), torch.randn(5, 4)
        given = (h, w, torch.randn(3, 4), torch.randn(4 * 1 + 4 * 2), [3, 7])
        y = wrapped.adaptive_log_softmax(*given, width=[1, 2], classes=11)
        torch.testing.assert_close(y.exp().sum(1), torch.ones(6))
        target = torch.tensor([0, 10, 3, -100, 7, 2])
        loss = wrapped.adaptive_softmax(*given, target, width=[1, 2], classes=11)
        torch.testing.assert_close(loss, torch.where(target < 0, 0, -y.gather(1, target.clamp(min=0)[:, None])[:, 0]))
        with self.assertRaisesRegex((ValueError, RuntimeError), "projection: the widths of clusters"):
            wrapped.adaptive_softmax(*given, target, width=[1, 1], classes=11)


def log_likelihood(crf, e, tags, length):
    """pytorch-crf's definition: a loop over the tokens of one sequence."""
    first, last, a = crf.start_transitions, crf.end_transitions, crf.transitions
    score, alpha = first[tags[0]] + e[0, tags[0]], first + e[0]
    for t in range(1, length):
        score = score + a[tags[t - 1], tags[t]] + e[t, tags[t]]
        alpha = torch.logsumexp(alpha[:, None] + a, 0) + e[t]
    return score + last[tags[length - 1]] - torch.logsumexp(alpha + last, 0)


class Chains(unittest.TestCase):
    def made(self, dtype=torch.float64, batch_first=True):
        torch.manual_seed(3)
        crf = wrapped.nn.CRF(4, batch_first=batch_first).to(dtype)
        for p in crf.parameters():
            torch.nn.init.normal_(p)
        lengths = torch.tensor([6, 1, 4])
        mask = torch.arange(6) < lengths[:, None]
        return crf, torch.randn(3, 6, 4, dtype=dtype), torch.randint(0, 4, (3, 6)), mask, lengths

    def test_definition(self):
        crf, e, tags, mask, lengths = self.made()
        weights = torch.tensor([1.0, 2, 3], dtype=e.dtype)
        def run(function):
            crf.zero_grad()
            x = e.clone().requires_grad_()
            made = function(x)
            (made * weights).sum().backward()
            return [made.detach(), x.grad, *(p.grad.clone() for p in crf.parameters())]
        ours = run(lambda x: crf(x, tags, mask, reduction="none"))
        theirs = run(lambda x: torch.stack([log_likelihood(crf, x[i], tags[i], lengths[i]) for i in range(3)]))
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
        rows = ours[0]
        for reduction, value in (("sum", rows.sum()), ("mean", rows.mean()), ("token_mean", rows.sum() / mask.sum())):
            torch.testing.assert_close(crf(e, tags, mask.byte(), reduction=reduction), value)

    def test_tokens_first(self):
        crf, e, tags, mask, _ = self.made()
        other, *_ = self.made(batch_first=False)
        other.load_state_dict(crf.state_dict())
        turned = [a.transpose(0, 1) for a in (e, tags, mask)]
        self.assertTrue(torch.equal(crf(e, tags, mask), other(*turned)))
        self.assertEqual(crf.decode(e, mask), other.decode(turned[0], turned[2]))
        self.assertTrue(torch.equal(crf.marginals(e, mask), other.marginals(turned[0], turned[2]).transpose(0, 1)))

    def test_decode(self):
        crf, e, _, mask, lengths = self.made()
        for i, path in enumerate(crf.decode(e, mask)):
            length = int(lengths[i])
            self.assertEqual(len(path), length)
            all_paths = itertools.product(range(4), repeat=length)
            best = max(all_paths, key=lambda p: log_likelihood(crf, e[i], torch.tensor(p), length).item())
            self.assertEqual(tuple(path), best)
        for i, paths in enumerate(crf.k_best(e, 7, mask)):
            length = int(lengths[i])
            scores = sorted((log_likelihood(crf, e[i], torch.tensor(p), length).item()
                             for p in itertools.product(range(4), repeat=length)), reverse=True)[:7]
            log_z = paths[0][1] - scores[0]
            torch.testing.assert_close([score - log_z for _, score in paths], scores)
            for tags, _ in paths:
                torch.testing.assert_close(log_likelihood(crf, e[i], torch.tensor(tags), length).item(), scores.pop(0))
        y = crf.marginals(e, mask)
        torch.testing.assert_close(y.sum(-1), mask.to(y.dtype))
        loss = crf(e.requires_grad_(), torch.zeros(3, 6, dtype=torch.long), mask)
        g, = torch.autograd.grad(loss, e)
        torch.testing.assert_close(-g, y - mask[..., None] * torch.tensor([1.0, 0, 0, 0], dtype=y.dtype))

    def test_gradcheck_and_state(self):
        crf, e, tags, mask, _ = self.made()
        given = (e.requires_grad_(), *crf.parameters())
        self.assertTrue(torch.autograd.gradcheck(lambda x, *p: crf(x, tags, mask, reduction="none"), given))
        self.assertEqual(sorted(crf.state_dict()), ["end_transitions", "start_transitions", "transitions"])
        self.assertEqual(repr(crf), "CRF(num_tags=4, batch_first=True)")

    def test_refused(self):
        crf, e, tags, mask, _ = self.made()
        with self.assertRaisesRegex(TypeError, "CRF: tags: dtype is torch.float32, not of whole numbers"):
            crf(e, tags + 0.7)
        for word, call in (("num_tags", lambda: wrapped.nn.CRF(0)), ("emissions", lambda: crf(e[..., :3], tags)),
                           ("tags", lambda: crf(e, tags[:2])), ("mask", lambda: crf.decode(e, mask[:, :3])),
                           ("reduction", lambda: crf(e, tags, reduction="some")), ("0..3", lambda: crf(e, tags + 1))):
            with self.assertRaisesRegex((ValueError, RuntimeError), word):
                call()


if __name__ == "__main__":
    unittest.main()
