"""libsoftmax.torch's attention: gradients, torch.library, and the functions of PyTorch and
FlashAttention."""
import unittest

import torch
import torch.nn.functional as F

import libsoftmax
import libsoftmax.torch as wrapped


def randn(*shape, grad=True, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def problems():
    """(function, inputs with gradients, settings)"""
    torch.manual_seed(0)
    q, k, v = randn(2, 4, 3, 2), randn(2, 2, 5, 2), randn(2, 2, 5, 3)
    for kind in (
        "softmax",
        "softmax_n",
        "ssmax",
        "sigmoid",
        "softpick",
        "self_adjust",
        "credal",
        "sparsemax",
        "entmax15",
    ):
        yield "attention", {"q": q, "k": k, "v": v}, {"weights": kind, "causal": True}
    for kind, params in (
        ("relu", {"epsilon": 0.1}),
        ("elu", {"norm": "count"}),
        ("identity", {}),
        ("softplus", {"norm": "clamp"}),
        ("taylor", {}),
        ("exp", {"norm": "l1"}),
        ("lssa", {"norm": "none"}),
        ("lssar", {"power": 2}),
        ("lssar", {"power": 1, "offset": 0.5}),
        ("lssar", {"power": 2.5}),
        ("self_adjust_range", {}),
        ("clipped", {"low": -0.1, "high": 1.2}),
        ("centred", {}),
        ("shaped", {"gain": 1.5, "mean": 0.5}),
        ("unified", {"phi": 0.5, "low": -2, "high": 2}),
    ):
        yield "attention", {"q": q, "k": k, "v": v}, {"weights": kind, "params": params}
    yield "attention", {
        "q": q,
        "k": k,
        "v": v,
        "bias": randn(3, 5),
        "slopes": randn(4),
        "sinks": randn(2, 4),
    }, {"scale": 0.5, "return_lse": True}
    yield "attention", {"q": randn(1, 2, 7, 2), "k": randn(1, 2, 7, 2), "v": randn(1, 2, 7, 2)}, \
        {"query_offsets": torch.tensor([0, 3, 7]), "key_offsets": torch.tensor([0, 3, 7]), "softcap": 2.0}
    yield "attention_parallax", {"q": q, "k": k, "v": v, "r": randn(2, 4, 3, 2)}, {}
    yield "attention_local_linear", {"q": q, "k": k, "v": v}, {"ridge": 0.1}
    yield "attention_additive", {"q": q, "k": k, "v": v, "u": randn(2, 4, 2)}, {}
    yield "attention_tropical", {"q": q, "k": k, "v": v}, {"return_winners": True}
    yield "attention", {"q": q, "k": k, "v": v}, {"weights": "softmax_n", "params": {"n": 0.5}}
    yield "rope", {"x": randn(2, 2, 3, 4)}, {"layout": "interleaved"}
    yield "rope", {"x": randn(2, 2, 3, 4), "positions": randn(2, 2, 3, 2), "frequencies": randn(2, 2, 2)}, {
        "cumulative": True,
        "return_carry": True,
    }


class Attention(unittest.TestCase):
    def test_gradients(self):
        """Every result with a gradient, against differences; those of whole numbers have none."""
        for name, given, settings in problems():
            def outputs(*arrays):
                y = getattr(wrapped, name)(**dict(zip(given, arrays)), **settings)
                return [a for a in (y if isinstance(y, tuple) else (y,)) if a.requires_grad]
            with self.subTest(name, **{k: str(v) for k, v in settings.items()}):
                self.assertTrue(outputs(*given.values()))
                self.assertTrue(
                    torch.autograd.gradcheck(lambda *a: tuple(outputs(*a)), list(given.values()), atol=1e-5)
                )
        self.assertFalse(
            wrapped.attention_tropical(
                **given_of("attention_tropical"), return_winners=True
            ).winners.requires_grad
        )

    def test_the_same_bits(self):
        q, k, v = (randn(2, 3, n, 16, dtype=torch.float32) for n in (5, 9, 9))
        y = wrapped.attention(q, k, v, causal=True)
        self.assertTrue(torch.equal(y, libsoftmax.attention(q.detach(), k.detach(), v.detach(), causal=True)))

    def test_errors(self):
        q = randn(1, 1, 2, 2)
        with self.assertRaisesRegex(RuntimeError, "attention: row: there is no gradient"):
            wrapped.attention(q, q, q, row=randn(1, 2))
        with self.assertRaisesRegex(RuntimeError, "attention: gradients of gradients"):
            g, = torch.autograd.grad(wrapped.attention(q, q, q).sum(), q, create_graph=True)
            g.sum().backward()
        with self.assertRaisesRegex(TypeError, "attention: no argument named 'heat'"):
            wrapped.attention(q, q, q, heat=1)
        with self.assertRaisesRegex(TypeError, "attention: v is missing"):
            wrapped.attention(q, q)
        with self.assertRaisesRegex(ValueError, "attention: return_lse: there is no lse"):
            wrapped.attention(q, q, q, weights="sparsemax", return_lse=True)

    def test_opcheck(self):
        for name, given, settings in problems():
            entry = wrapped._attention.ENTRIES[name]
            given = {**given, **{k: v for k, v in settings.items() if k in entry.tensors}}
            packed = wrapped._attention._pack(
                entry, {k: v for k, v in settings.items() if k in entry.settings}
            )
            with self.subTest(name, **{k: str(v) for k, v in settings.items()}):
                found = torch.library.opcheck(
                    getattr(torch.ops.libsoftmax, name).default,
                    (*(given.get(t) for t in entry.tensors), *packed),
                    test_utils=(
                        "test_schema",
                        "test_autograd_registration",
                        "test_faketensor",
                        "test_aot_dispatch_static",
                    ),
                )
                self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_compile_and_vmap(self):
        def function(q, k, v):
            return wrapped.scaled_dot_product_attention(wrapped.rope(q), wrapped.rope(k), v, is_causal=True)
        q, k, v = (randn(2, 2, 4, 8, dtype=torch.float32) for _ in range(3))
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for a, b in zip(
            torch.autograd.grad(compiled(q, k, v).sum(), (q, k, v)),
            torch.autograd.grad(function(q, k, v).sum(), (q, k, v)),
        ):
            torch.testing.assert_close(a, b)
        batch = [torch.randn(3, 2, 2, 4, 8) for _ in range(3)]
        self.assertTrue(
            torch.equal(torch.vmap(function)(*batch), torch.stack([function(*a) for a in zip(*batch)]))
        )


def given_of(name):
    return next(given for n, given, _ in problems() if n == name)


class Others(unittest.TestCase):
    def close(self, ours, theirs, given):
        a, b = ours(*given), theirs(*given)
        torch.testing.assert_close(a, b)
        up = torch.randn_like(b)
        for x, y in zip(torch.autograd.grad(a, given, up), torch.autograd.grad(b, given, up)):
            torch.testing.assert_close(x, y)

    def test_scaled_dot_product_attention(self):
        """Shapes of 2 to 5 dimensions, masks that broadcast, grouped heads, causal at the top left:
        as PyTorch has them."""
        torch.manual_seed(0)
        for lead in ((), (3,), (2, 3), (2, 2, 3)):
            q, k, v = randn(*lead, 4, 8), randn(*lead, 6, 8), randn(*lead, 6, 5)
            masks = [
                None,
                torch.rand(4, 6) > 0.4,
                torch.randn(4, 6, dtype=torch.float64),
                torch.rand(*lead, 4, 6) > 0.4,
            ]
            for mask in masks:
                if mask is not None and mask.dtype == torch.bool:
                    mask[..., 0] = True
                with self.subTest(lead=lead, mask=None if mask is None else tuple(mask.shape)):
                    self.close(lambda *a: wrapped.scaled_dot_product_attention(*a, attn_mask=mask),
                               lambda *a: F.scaled_dot_product_attention(*a, attn_mask=mask), (q, k, v))
            for scale in (None, 0.3, 0.0):
                self.close(
                    lambda *a: wrapped.scaled_dot_product_attention(*a, is_causal=True, scale=scale),
                    lambda *a: F.scaled_dot_product_attention(*a, is_causal=True, scale=scale),
                    (q, k, v),
                )
        q, k, v = randn(2, 6, 4, 8), randn(2, 2, 6, 8), randn(2, 2, 6, 8)
        self.close(lambda *a: wrapped.scaled_dot_product_attention(*a, enable_gqa=True),
                   lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True), (q, k, v))
        self.close(
            wrapped.scaled_dot_product_attention,
            F.scaled_dot_product_attention,
            (randn(2, 2, 4, 8), randn(1, 2, 6, 8), randn(1, 2, 6, 8)),
        )
        with self.assertRaisesRegex(ValueError, "key: 2 heads for 6"):
            wrapped.scaled_dot_product_attention(q, k, v)
        with self.assertRaisesRegex(ValueError, "attn_mask"):
            wrapped.scaled_dot_product_attention(
                q, k, v, attn_mask=torch.ones(4, 6, dtype=torch.bool), is_causal=True, enable_gqa=True
            )

    def test_masks_are_of_bools_or_floats(self):
        q = randn(1, 2, 4, 8)
        with self.assertRaisesRegex(TypeError, "attn_mask: dtype is torch.int32"):
            wrapped.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(4, 4, dtype=torch.int32))

    def test_whole_numbers_of_what_requires_a_gradient(self):
        mass = torch.rand(2, 6, requires_grad=True)
        index, budget = wrapped.kv_budget_prefix(mass, first=0, last=0)
        self.assertEqual(budget.sum(), 6)
        same = libsoftmax.kv_budget_prefix(mass.detach(), first=0, last=0)
        self.assertTrue(torch.equal(index, same.index))
        self.assertTrue(torch.equal(wrapped.lsh_codes(x=mass), libsoftmax.lsh_codes(mass.detach())))
        with self.assertRaisesRegex(TypeError, "require gradient"):
            wrapped.kde_attention(mass, mass, mass)

    def test_numbers_of_heads(self):
        """Against softmax and sparsemax heads of attention, whose bias has no gradient there."""
        q, k, v, bias = randn(2, 2, 4, 3), randn(2, 2, 5, 3), randn(2, 2, 5, 3), randn(2, 2, 4, 5)
        alpha = torch.tensor([1.0, 2.0], dtype=torch.float64)
        y = wrapped.entmax_attention(q, k, v, alpha, bias=bias, causal=True)[0]
        for h, kind in enumerate(("softmax", "sparsemax")):
            one = libsoftmax.attention(
                *(a.detach()[:, h:h + 1] for a in (q, k, v)), weights=kind, bias=bias.detach()[:, h:h + 1],
                causal=True
            )
            self.assertLess((y[:, h:h + 1] - one).abs().max(), 1e-14)
        gamma, beta, alpha = randn(2), randn(2), (1 + torch.rand(2).double()).requires_grad_()
        gains = tuple(randn(2) for _ in range(3))
        shaped = wrapped.shaped_attention(q, k, v, *gains, bias=bias, causal=True)[0]
        for h in range(2):
            params = {name: gain[h].item() for name, gain in zip(("identity", "gain", "mean"), gains)}
            one = libsoftmax.attention(
                *(a.detach()[:, h:h + 1] for a in (q, k, v)), weights="shaped", params=params,
                bias=bias.detach()[:, h:h + 1], causal=True
            )
            self.assertLess((shaped[:, h:h + 1] - one).abs().max(), 1e-14)
        for f, more in ((wrapped.entmax_attention, (alpha,)), (wrapped.nap_attention, (gamma, beta)),
                        (wrapped.shaped_attention, gains)):
            self.assertTrue(torch.autograd.gradcheck(
                lambda q, k, v, bias, *more: f(q, k, v, *more, bias=bias)[0], (q, k, v, bias, *more)
            ))

    def test_numbers_of_rows(self):
        q, k, v = randn(2, 4, 3, 2), randn(2, 2, 5, 2), randn(2, 2, 5, 3)
        bias, slopes = randn(3, 5), torch.rand(4).double().requires_grad_()
        alpha = (1.2 + 0.6 * torch.rand(4, 1).double()).requires_grad_()

        def attend(q, k, v, bias, slopes, alpha):
            return wrapped.attention(q, k, v, weights="entmax", bias=bias, slopes=slopes, row=alpha, causal=True)
        self.assertTrue(torch.autograd.gradcheck(attend, (q, k, v, bias, slopes, alpha)))
        q, k, v, alpha = (a.detach() for a in (q, k, v, alpha))
        heads = torch.cat([
            libsoftmax.attention(q[:, h:h + 1], k[:, h // 2:h // 2 + 1], v[:, h // 2:h // 2 + 1], weights="entmax",
                                 params={"alpha": alpha[h, 0].item()})
            for h in range(4)
        ], 1)
        self.assertTrue(torch.equal(libsoftmax.attention(q, k, v, weights="entmax", row=alpha), heads))
        with self.assertRaisesRegex(ValueError, "row: weights are of a kind"):
            libsoftmax.attention(q, k, v, row=alpha)
        with self.assertRaisesRegex(ValueError, "op is sparsemax, which has no number"):
            libsoftmax.attention(q, k, v, weights="sparsemax", row=alpha)

    def test_landmarks_as_in_the_code_of_the_authors(self):
        q, k, v = randn(2, 12, 3), randn(2, 12, 3), randn(2, 12, 2)

        def theirs(q, k, v):
            q = q * 3 ** -0.5
            few, keys = q.reshape(2, 4, 3, 3).mean(2), k.reshape(2, 4, 3, 3).mean(2)
            first, a, last = ((x @ y.mT).softmax(-1) for x, y in ((q, keys), (few, keys), (few, k)))
            unit, z = torch.eye(4, dtype=q.dtype), a.mT / a.sum(-2).max(-1).values[:, None, None]
            for _ in range(6):
                p = a @ z
                z = 0.25 * z @ (13 * unit - p @ (15 * unit - p @ (7 * unit - p)))
            return first @ z @ (last @ v)
        self.close(lambda *a: wrapped.nystrom_attention(*a, landmarks=4), theirs, (q, k, v))

    def test_dropout_follows_the_generator(self):
        q = randn(1, 2, 16, 8, grad=False)
        found = []
        for _ in range(2):
            torch.manual_seed(5)
            found.append(wrapped.scaled_dot_product_attention(q, q, q, dropout_p=0.5))
        self.assertTrue(torch.equal(*found))
        self.assertFalse(torch.equal(found[0], wrapped.scaled_dot_product_attention(q, q, q, dropout_p=0.5)))

    def test_flash_attention(self):
        """Causal at the bottom right, windows, ALiBi, a cap: beside the formula; and packed
        sequences beside each alone."""
        torch.manual_seed(0)
        q, k, v, slopes = randn(2, 3, 4, 8), randn(2, 5, 2, 8), randn(2, 5, 2, 8), torch.rand(4)

        def formula(q, k, v):
            s = torch.einsum("blhd,bmhd->bhlm", q, k.repeat_interleave(2, 2)) * 8 ** -0.5
            s = 5 * torch.tanh(s / 5)
            i, j = torch.arange(3)[:, None] + 2, torch.arange(5)
            s = s - slopes[:, None, None] * (i - j).abs()
            s = s.masked_fill((j > i) | (j < i - 2), -torch.inf)
            return torch.einsum("bhlm,bmhd->blhd", s.softmax(-1), v.repeat_interleave(2, 2)), s.logsumexp(-1)
        given = {"causal": True, "window_size": (2, 0), "softcap": 5.0, "alibi_slopes": slopes}
        self.close(lambda *a: wrapped.flash_attn_func(*a, **given), lambda *a: formula(*a)[0], (q, k, v))
        torch.testing.assert_close(
            wrapped.flash_attn_func(q, k, v, **given, return_attn_probs=True)[1], formula(q, k, v)[1]
        )
        ends = torch.tensor([0, 2, 3, 7], dtype=torch.int32)
        q, k, v = (randn(7, 2, 8) for _ in range(3))

        def each(q, k, v):
            return torch.cat(
                [
                    wrapped.flash_attn_func(*(a[None, i:j] for a in (q, k, v)), causal=True)[0]
                    for i, j in zip(ends, ends[1:])
                ]
            )
        self.close(
            lambda *a: wrapped.flash_attn_varlen_func(*a, ends, ends, 4, 4, causal=True), each, (q, k, v)
        )


if __name__ == "__main__":
    unittest.main()
