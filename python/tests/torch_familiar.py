"""libsoftmax.torch's attention in the words of FlashAttention and FlexAttention: caches of pages,
keys that are used in part, what is done to scores by name."""

import unittest

import torch
import torch.nn.functional as F

import libsoftmax.torch as wrapped

from frameworks import functions_run

LENGTHS = [3, 9, 6]
PAGE = 4


def packed(grad=False):
    """(q, k, v, cu_seqlens_q, cu_seqlens_k) of three sequences, with fewer key heads."""
    torch.manual_seed(0)
    starts = [torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32) for n in ([1, 4, 2], LENGTHS)]
    shapes = ((int(starts[0][-1]), 4, 8), *[(int(starts[1][-1]), 2, 8)] * 2)
    return *(torch.randn(s, dtype=torch.float64).requires_grad_(grad) for s in shapes), *starts


def pages(a, starts):
    """(pages in any order, the table) of packed keys."""
    each = [F.pad(a[i:j], (0, 0, 0, 0, 0, -(j - i) % PAGE)).unflatten(0, (-1, PAGE))
            for i, j in zip(starts.tolist(), starts.tolist()[1:])]
    order = torch.randperm(sum(map(len, each)))
    table = torch.zeros(len(each), max(map(len, each)), dtype=torch.int32)
    where = iter(order.argsort().tolist())
    for row, sequence in zip(table, each):
        row[: len(sequence)] = torch.tensor([next(where) for _ in sequence])
    return torch.cat(each)[order], table


class Familiar(unittest.TestCase):
    def test_pages(self):
        """The bits of packed keys, and no wrong gradient."""
        q, k, v, rows, keys = packed()
        torch.manual_seed(1)
        k_pages, table = pages(k, keys)
        torch.manual_seed(1)
        v_pages, _ = pages(v, keys)
        for given in ({}, {"causal": True}, {"window_size": (2, 0), "softcap": 3.0}):
            wanted = wrapped.flash_attn_varlen_func(q, k, v, rows, keys, 4, 9, **given)
            found = wrapped.flash_attn_varlen_func(
                q, k_pages, v_pages, rows, keys, 4, 9, block_table=table, **given)
            self.assertTrue(torch.equal(found, wanted))
        with self.assertRaisesRegex(RuntimeError, "attention: block_table: there are no gradients"):
            wrapped.flash_attn_varlen_func(q.requires_grad_(), k_pages, v_pages, rows, keys, block_table=table)

    def test_known_forms(self):
        """What is learnt of one call holds for other shapes of the same form."""
        torch.manual_seed(0)

        def some(batch, heads, rows, grad):
            return torch.randn(batch, heads, rows, 8, dtype=torch.float64, requires_grad=grad)
        for grad in (False, True):
            for function, given in (
                (wrapped.scaled_dot_product_attention, {}),
                (wrapped.scaled_dot_product_attention, {"is_causal": True}),
                (wrapped.scaled_dot_product_attention, {"attn_mask": torch.randn(1, 1, 1, 1).double().requires_grad_()}),
                (wrapped.attention, {}),
            ):
                for b, h, n in ((2, 4, 5), (1, 2, 7), (2, 4, 5)):
                    q, k, v = (some(b, h, n, grad) for _ in range(3))
                    o, wanted = function(q, k, v, **given), F.scaled_dot_product_attention(q, k, v, **given)
                    torch.testing.assert_close(o, wanted)
                    if not grad:
                        continue
                    up = torch.randn_like(o)
                    for a, b_ in zip(*(torch.autograd.grad(y, (q, k, v), up) for y in (o, wanted))):
                        torch.testing.assert_close(a, b_)
                q, k = some(3, 4, 5, grad), some(1, 4, 6, grad)
                o = function(q, k, k, **given)
                torch.testing.assert_close(o, F.scaled_dot_product_attention(q, k, k, **given))
                if grad:
                    self.assertEqual(torch.autograd.grad(o.sum(), k)[0].shape, k.shape)
                if function is not wrapped.attention:
                    with self.assertRaisesRegex(ValueError, "key: 2 heads for 4 of the queries"):
                        function(q, k[:, :2], k[:, :2], **given)

    def test_known_forms_save_work(self):
        q = torch.randn(2, 4, 5, 8, requires_grad=True)
        for function in (wrapped.scaled_dot_product_attention, wrapped.attention):
            function(q, q, q)
            _, names = functions_run(lambda: function(q, q, q).sum().backward())
            self.assertNotIn("bind", names)
            self.assertFalse([n for n in names if n in ("gradients_of", "attention_backward")], names)

    def test_keys_used_in_part(self):
        q, k, v, rows, keys = packed(grad=True)
        used = torch.tensor([2, 9, 5], dtype=torch.int32)
        both = []
        for n in (used, used.tolist()):
            both.append(wrapped.flash_attn_varlen_func(q, k, v, rows, keys, 4, 9, causal=True, seqused_k=n))
        each = torch.cat([
            wrapped.flash_attn_func(q[None, i:j], k[None, a:a + n], v[None, a:a + n], causal=True)[0]
            for i, j, a, n in zip(rows, rows[1:], keys, used)])
        self.assertTrue(torch.equal(both[0], each) and torch.equal(both[1], each))
        for a, b in zip(*(torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (both[0], each))):
            torch.testing.assert_close(a, b)
        k_pages, table = pages(k.detach(), keys)
        found = wrapped.flash_attn_varlen_func(
            q.detach(), k_pages, k_pages, rows, keys, block_table=table, seqused_k=used)
        wanted = wrapped.flash_attn_varlen_func(q.detach(), k.detach(), k.detach(), rows, keys, seqused_k=used)
        self.assertTrue(torch.equal(found, wanted))
        for wrong in ([4, 9, 5], [-1, 9, 5], [2, 9]):
            with self.assertRaisesRegex(ValueError, "lengths: "):
                wrapped.flash_attn_varlen_func(q, k, v, rows, keys, seqused_k=wrong)

    def test_dropout(self):
        """Other weights each time, by PyTorch's generator; torch.compile has those of eager calls."""
        torch.manual_seed(0)
        q = torch.randn(2, 3, 4, 8, requires_grad=True)
        rows, offsets = torch.randn(5, 2, 8, requires_grad=True), torch.tensor([0, 2, 5], dtype=torch.int32)
        for function, leaf in (
            (lambda q: wrapped.scaled_dot_product_attention(q, q, q, dropout_p=0.5), q),
            (lambda q: wrapped.flash_attn_func(q, q, q, dropout_p=0.5), q),
            (lambda q: wrapped.flash_attn_varlen_func(q, q, q, offsets, offsets, dropout_p=0.5), rows),
        ):
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
            found = []
            for f in (function, compiled):
                torch.manual_seed(1)
                o = f(leaf)
                found += [o, *torch.autograd.grad(o.square().sum(), leaf)]
                self.assertFalse(torch.equal(o, f(leaf)))
            torch.testing.assert_close(found[:2], found[2:])

    def test_scores_by_name(self):
        """Against the scores as a matrix."""
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 4, n, 8, dtype=torch.float64) for n in (6, 7, 7))
        slopes, sinks = torch.rand(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
        i, j = torch.arange(6)[:, None], torch.arange(7)
        scores, inf = q @ k.transpose(-1, -2) * 8 ** -0.5, torch.inf
        distance = (i - j).abs()
        for name, z in (
            (None, scores),
            ("causal", scores.masked_fill(j > i, -inf)),
            ({"softcap": 2.0}, 2 * (scores / 2).tanh()),
            ({"sliding_window": 2}, scores.masked_fill(j < i - 2, -inf)),
            ({"sliding_window": (1, 0), "causal": True}, scores.masked_fill((j < i - 1) | (j > i), -inf)),
            ({"bias": scores}, 2 * scores),
            ({"alibi": slopes, "causal": True},
             (scores - slopes[:, None, None] * distance).masked_fill(j > i, -inf)),
        ):
            torch.testing.assert_close(wrapped.flex_attention(q, k, v, name), z.softmax(-1) @ v)
        o, lse = wrapped.flex_attention(q, k, v, "causal", return_lse=True)
        torch.testing.assert_close(lse, scores.masked_fill(j > i, -inf).logsumexp(-1))
        self.assertTrue(torch.equal(
            wrapped.flex_attention(q, k, v, {"softmax_n": {"n": 2}}),
            wrapped.attention(q, k, v, weights="softmax_n", params={"n": 2})))
        torch.testing.assert_close(wrapped.flex_attention(q, k, v, "sparsemax"), wrapped.sparsemax(scores) @ v)
        wanted = torch.cat([scores, sinks[:, None, None].expand(2, 4, 6, 1)], -1).softmax(-1)[..., :-1] @ v
        torch.testing.assert_close(wrapped.flex_attention(q, k, v, {"sinks": sinks}), wanted)
        torch.testing.assert_close(
            wrapped.flex_attention(q, k, v, block_mask=j <= i),
            wrapped.flex_attention(q, k, v, "causal"), rtol=0, atol=0)
        for wrong, kind, message in (
            ("causl", ValueError, "flex_attention: score_mod: 'causl' is not one of"),
            ("softcap", ValueError, "flex_attention: score_mod: 'softcap' is not one of"),
            (lambda s, *i: s, TypeError, "flex_attention: score_mod: .* is a function"),
        ):
            with self.assertRaisesRegex(kind, message):
                wrapped.flex_attention(q, k, v, wrong)
        with self.assertRaisesRegex(TypeError, "flex_attention: block_mask: str is not a tensor"):
            wrapped.flex_attention(q, k, v, block_mask="causal")
        with self.assertRaisesRegex(ValueError, "flex_attention: key: 2 heads for 4"):
            wrapped.flex_attention(q, k[:, :2], v[:, :2])

    def test_dimensions(self):
        """3-D and 5-D inputs, broadcast batches, lists for lengths."""
        q, k, v = (torch.randn(2, 3, 4, n, 8, dtype=torch.float64) for n in (5, 6, 6))
        for a, b, c in ((q, k, v), (q[0, 0], k[0, 0], v[0, 0]), (q[0], k[0], v[0]), (q, k[:, :1], v[:1])):
            torch.testing.assert_close(wrapped.scaled_dot_product_attention(a, b, c),
                                       F.scaled_dot_product_attention(a, *torch.broadcast_tensors(b, c)
                                                                      if b.ndim == 5 else (b, c)))
        cut = [2, 6, 4]
        found = wrapped.attention(q[0], k[0], v[0], lengths=cut)
        for b, n in enumerate(cut):
            one = wrapped.attention(*(a[0, b:b + 1] for a in (q, k[..., :n, :], v[..., :n, :])))
            self.assertTrue(torch.equal(found[b:b + 1], one))


if __name__ == "__main__":
    unittest.main()
