"""libsoftmax.torch.nn beside torch.nn: the same arguments, results, gradients, state_dicts and
training runs."""

import copy
import inspect
import itertools
import io
import pathlib
import unittest
import warnings

import numpy as np
import torch
import torch.nn.utils.prune

import libsoftmax.torch as wrapped
from libsoftmax.torch import nn

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"


class Modules(unittest.TestCase):
    def close(self, ours, theirs, *given):
        given = [a.detach().requires_grad_(a.is_floating_point()) for a in given]
        a, b = ours(*given), theirs(*given)
        torch.testing.assert_close(a, b)
        for x, y in zip(torch.autograd.grad(a.sum(), given[0]), torch.autograd.grad(b.sum(), given[0])):
            torch.testing.assert_close(x, y)

    def test_arguments(self):
        """Every argument of torch.nn's, in its order, with its default."""
        for name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss", "BCEWithLogitsLoss", "KLDivLoss",
                     "AdaptiveLogSoftmaxWithLoss", "MultiheadAttention"):
            theirs = inspect.signature(getattr(torch.nn, name)).parameters
            ours = inspect.signature(getattr(nn, name)).parameters
            if name != "MultiheadAttention":
                self.assertEqual(
                    [(p.name, p.default) for p in theirs.values()],
                    [(p.name, p.default) for p in ours.values()][: len(theirs)],
                )
        for name in nn.__all__:
            self.assertTrue(issubclass(getattr(nn, name), torch.nn.Module), name)

    def test_weights(self):
        torch.manual_seed(0)
        for name in ("Softmax", "Softmin", "LogSoftmax"):
            for shape in ((5,), (3, 5), (3, 5, 2), (2, 3, 5, 2)):
                for dim in (0, -1):
                    self.close(
                        getattr(nn, name)(dim),
                        getattr(torch.nn, name)(dim),
                        torch.randn(shape, dtype=torch.float64),
                    )
        x = torch.randn(3, 5)
        self.assertTrue(torch.equal(nn.Softmax()(x), nn.Softmax(1)(x)))
        self.assertTrue(torch.equal(nn.Entmax(dim=1, alpha=2.0)(x), wrapped.entmax(x, alpha=2.0)))
        with self.assertRaisesRegex(TypeError, "Softmax: no argument named 'beta'"):
            nn.Softmax(1, beta=2)

    def test_losses(self):
        torch.manual_seed(0)
        weight = torch.rand(5, dtype=torch.float64)
        for shape in ((3, 5), (3, 5, 4)):
            x, t = torch.randn(shape, dtype=torch.float64), torch.randint(0, 5, (shape[0], *shape[2:]))
            soft = torch.softmax(torch.randn_like(x), 1)
            for reduction in ("none", "sum", "mean"):
                for given in (
                    {},
                    {"weight": weight},
                    {"ignore_index": 2},
                    {"label_smoothing": 0.2, "weight": weight},
                ):
                    given = {**given, "reduction": reduction}
                    self.close(nn.CrossEntropyLoss(**given), torch.nn.CrossEntropyLoss(**given), x, t)
                    if "ignore_index" not in given:
                        self.close(
                            lambda x: nn.CrossEntropyLoss(**given)(x, soft),
                            lambda x: torch.nn.CrossEntropyLoss(**given)(x, soft),
                            x,
                        )
                    given.pop("label_smoothing", None)
                    self.close(nn.NLLLoss(**given), torch.nn.NLLLoss(**given), x.log_softmax(1), t)
                if len(shape) == 2:
                    for p, weight in itertools.product((1, 2), (None, torch.rand(5, dtype=torch.float64))):
                        self.close(
                            nn.MultiMarginLoss(p, 0.7, weight, reduction=reduction),
                            torch.nn.MultiMarginLoss(p, 0.7, weight, reduction=reduction),
                            x,
                            t,
                        )

    def test_divergence(self):
        torch.manual_seed(0)
        x, t = (torch.randn(7, 5, dtype=torch.float64).log_softmax(1) for _ in range(2))
        for reduction in ("none", "sum", "mean", "batchmean"):
            for log, target in ((True, t), (False, t.exp())):
                self.close(*(m.KLDivLoss(reduction=reduction, log_target=log) for m in (nn, torch.nn)),
                           x, target)
        for wrong, kind in (({"reduction": "all"}, ValueError), ({"reduce": True}, TypeError)):
            with self.assertRaisesRegex(kind, "KLDivLoss: "):
                nn.KLDivLoss(**wrong)
        given = torch.randn(300001).log_softmax(0), torch.randn(300001).softmax(0)
        found, threads = [], torch.get_num_threads()
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(nn.KLDivLoss(reduction="sum")(*given))
        torch.set_num_threads(threads)
        self.assertEqual(len({y.item() for y in found}), 1)

    def test_adaptive(self):
        torch.manual_seed(0)
        for bias in (False, True):
            ours, theirs = (
                m.AdaptiveLogSoftmaxWithLoss(6, 20, [5, 9], 2.0, head_bias=bias, dtype=torch.float64)
                for m in (nn, torch.nn)
            )
            ours.load_state_dict(theirs.state_dict())
            x, t = torch.randn(11, 6, dtype=torch.float64), torch.randint(0, 20, (11,))
            self.close(lambda x: ours(x, t).output, lambda x: theirs(x, t).output, x)
            self.close(lambda x: ours(x, t).loss, lambda x: theirs(x, t).loss, x)
            self.close(ours.log_prob, theirs.log_prob, x)
            self.close(lambda x: ours(x, t[0]).output, lambda x: theirs(x, t[0]).output, x[0])
            self.assertTrue(torch.equal(ours.predict(x), theirs.predict(x)))
            grads = [torch.autograd.grad(m(x, t).loss, list(m.parameters())) for m in (ours, theirs)]
            torch.testing.assert_close(*grads)
        for wrong in (torch.tensor([20]), torch.tensor([-1]), torch.tensor([[1]])):
            with self.assertRaisesRegex(RuntimeError, "AdaptiveLogSoftmaxWithLoss: target"):
                ours(x[:1], wrong)

    def test_adaptive_hooks(self):
        """What is done to the modules of the layers counts as in PyTorch, and hooks see their calls."""
        x, t = torch.randn(9, 8), torch.tensor([0, 3, 5, 8, 9, 12, 19, 2, 14])
        def pruned(m):
            torch.nn.utils.prune.random_unstructured(m.head, "weight", 0.5)
            m.head.weight_orig.data.mul_(2)
        def normed(m):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.nn.utils.weight_norm(m.tail[1][1])
            m.tail[1][1].weight_g.data.mul_(3)
        def parametrised(m):
            torch.nn.utils.parametrizations.weight_norm(m.tail[0][0])
            m.tail[0][0].parametrizations.weight.original0.data.mul_(3)
        changes = [pruned, normed, parametrised, lambda m: m.head.register_forward_hook(lambda m, x, y: 2 * y),
                   lambda m: m.tail[0].register_forward_pre_hook(lambda m, x: (2 * x[0],)),
                   lambda m: m.tail[1][0].register_forward_hook(lambda m, x, y: 2 * y),
                   lambda m: setattr(m.tail[1], "1", torch.nn.Linear(2, 11)),
                   lambda m: setattr(m.tail, "1", torch.nn.Linear(8, 11))]
        for change in changes:
            models = [m.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 9], 2.0) for m in (nn, torch.nn)]
            models[0].load_state_dict(models[1].state_dict())
            for model in models:
                torch.manual_seed(0)
                change(model)
            ours, theirs = models
            for a, b in zip(ours(x, t), theirs(x, t)):
                torch.testing.assert_close(a, b)
            torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x))
            self.assertTrue(torch.equal(ours.predict(x), theirs.predict(x)))
            grads = [torch.autograd.grad(m(x, t).loss, list(m.parameters())) for m in models]
            torch.testing.assert_close(*grads)
        seen = []
        hook = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
        try:
            ours = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 9], 2.0)
            ours(x, t)
        finally:
            hook.remove()
        self.assertTrue({ours.head, *ours.tail, ours.tail[0][0]} <= set(seen))

    def test_binary_cross_entropy(self):
        """Weights of elements and of what is present, of every shape that broadcasts."""
        torch.manual_seed(0)
        like = {"dtype": torch.float64}
        for shape in ((), (4,), (3, 4), (2, 3, 4)):
            x, t = torch.randn(shape, **like, requires_grad=True), torch.rand(shape, **like)
            weights = [None, torch.rand(shape, **like), torch.rand(shape[-1:], **like)]
            positives = [None, 3 * torch.rand(shape[-1:], **like)]
            if len(shape) == 3:
                positives.append(torch.rand(shape[1:], **like))
                weights.append(torch.rand(shape[1], 1, **like))
            for reduction in ("none", "sum", "mean"):
                for weight, positive in itertools.product(weights, positives):
                    given = {"weight": weight, "pos_weight": positive, "reduction": reduction}
                    ours, theirs = nn.BCEWithLogitsLoss(**given), torch.nn.BCEWithLogitsLoss(**given)
                    self.close(lambda x: ours(x, t), lambda x: theirs(x, t), x)
        x = torch.randn(3, 4, **like)
        t = torch.rand(3, 4, **like, requires_grad=True)
        c = torch.rand(4, **like)
        ours = torch.autograd.grad(nn.BCEWithLogitsLoss(pos_weight=c)(x, t), t)[0]
        theirs = torch.autograd.grad(torch.nn.BCEWithLogitsLoss(pos_weight=c)(x, t), t)[0]
        torch.testing.assert_close(ours, theirs)
        with self.assertRaisesRegex(NotImplementedError, "target: no gradient beside a pos_weight"):
            nn.BCEWithLogitsLoss(pos_weight=c, reduction="none")(x, t)
        with self.assertRaisesRegex(ValueError, "target: \\(4,\\) is not the shape of input"):
            nn.BCEWithLogitsLoss()(x, t[0])

    def attend(self, ours, theirs, given, **how):
        """Both modules with weights, their means and without: results, and every gradient."""
        for need, average in ((True, True), (True, False), (False, True)):
            found = []
            for module in (ours, theirs):
                inputs = [a.detach().requires_grad_() for a in given]
                made = module(*inputs, need_weights=need, average_attn_weights=average, **how)
                outputs = [y for y in made if y is not None]
                total = sum((y * (1 + torch.arange(y.numel()).view_as(y))).sum() for y in outputs)
                found.append((made, torch.autograd.grad(total, [*inputs, *module.parameters()])))
            torch.testing.assert_close(*found)

    def test_attention(self):
        """Its state_dict, masks, layouts, other widths of keys and keys that are added."""
        torch.manual_seed(0)
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False, True] * 2 + [False]])
        like = {"dtype": torch.float64}
        masks = (None, torch.triu(torch.ones(4, 5, dtype=torch.bool), 1), torch.randn(6, 4, 5, **like))
        added = {"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True}
        for batch_first, other in itertools.product(
            (False, True), ({}, {"kdim": 6, "vdim": 10}, {"bias": False}, *added)
        ):
            ours, theirs = (
                m.MultiheadAttention(8, 2, batch_first=batch_first, **like, **other) for m in (nn, torch.nn)
            )
            ours.load_state_dict(theirs.state_dict())
            widths = ((4, 8), (5, other.get("kdim", 8)), (5, other.get("vdim", 8)))
            given = [torch.randn(*((3, n) if batch_first else (n, 3)), e, **like) for n, e in widths]
            for mask, pad in itertools.product(masks, (None, padding)):
                if pad is not None and mask is not None and mask.dtype != torch.bool:
                    pad = torch.zeros(pad.shape, **like).masked_fill(pad, -torch.inf)
                with self.subTest(batch_first=batch_first, mask=mask is None, pad=pad is None, **other):
                    self.attend(ours, theirs, given, key_padding_mask=pad, attn_mask=mask)
            self.attend(ours, theirs, [a.select(0 if batch_first else 1, 0) for a in given])

    def test_attention_to_nothing_but_what_is_added(self):
        """Queries whose own keys are all masked see the added ones."""
        torch.manual_seed(0)
        for other in ({"add_bias_kv": True}, {"add_zero_attn": True}):
            ours, theirs = (m.MultiheadAttention(8, 2, **other) for m in (nn, torch.nn))
            ours.load_state_dict(theirs.state_dict())
            mask = torch.ones(5, 5, dtype=torch.bool)
            self.attend(ours, theirs, 3 * [torch.randn(5, 3, 8)], attn_mask=mask)

    def test_copies(self):
        for module in (
            nn.CrossEntropyLoss(torch.rand(3), label_smoothing=0.1),
            nn.Entmax(dim=1),
            nn.MultiheadAttention(4, 2),
            nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True),
        ):
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            for copied in (copy.deepcopy(module), torch.load(file, weights_only=False)):
                self.assertEqual(repr(copied), repr(module))
                self.assertEqual(list(copied.state_dict()), list(module.state_dict()))

    def test_a_training_run(self):
        """A classifier of the digits: the loss of every step is PyTorch's to 1e-6."""
        x = torch.tensor(np.load(EXAMPLES / "digits_logits.npy"), dtype=torch.float32)
        y = torch.tensor(np.load(EXAMPLES / "digits_labels.npy")).long()
        curves = []
        for loss in (
            nn.CrossEntropyLoss(label_smoothing=0.1),
            torch.nn.CrossEntropyLoss(label_smoothing=0.1),
        ):
            torch.manual_seed(0)
            model = torch.nn.Sequential(
                torch.nn.Linear(x.shape[1], 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)
            )
            steps, curve = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
            for _ in range(60):
                steps.zero_grad()
                value = loss(model(x), y)
                value.backward()
                steps.step()
                curve.append(value.item())
            curves.append(curve)
        self.assertLess(curves[0][-1], curves[0][0] / 2)
        np.testing.assert_allclose(*curves, rtol=0, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
