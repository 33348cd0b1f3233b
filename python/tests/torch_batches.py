"""Attention on any number of axes of batches: against calls of each sequence, in PyTorch and out
of it."""
import unittest
import unittest.mock

import numpy as np
import torch

import libsoftmax
import libsoftmax.torch as wrapped

OWN = {"q": 3, "k": 3, "v": 3, "r": 3, "u": 2, "x": 3, "bias": 3, "mask": 3, "slopes": 1, "sinks": 1,
       "lengths": 0, "positions": 3, "frequencies": 2}


def some(name, batch, heads=4):
    rows = {"q": (heads, 5, 6), "k": (2, 7, 6), "v": (2, 7, 3), "r": (heads, 5, 6), "u": (heads, 6),
            "x": (heads, 5, 6), "bias": (heads, 5, 7), "mask": (1, 5, 7), "slopes": (heads,),
            "sinks": (heads,), "lengths": (), "positions": (1, 5, 3), "frequencies": (heads, 3)}[name]
    if name == "lengths":
        return torch.randint(3, 8, batch)
    if name == "mask":
        return torch.rand(*batch, *rows) < 0.8
    return torch.randn(*batch, *rows, dtype=torch.float64)


def one(arrays, batch, at):
    """The arrays of one sequence, [1, ...]."""
    found = {}
    for name, a in arrays.items():
        lead = max(a.ndim - OWN[name], 0)
        index = tuple(0 if n == 1 else i for n, i in zip(a.shape[:lead], at[len(batch) - lead:]))
        found[name] = a[index].unsqueeze(0)
    return found


def with_gaps(a):
    return np.repeat(a, 2, -1)[..., ::2] if a.ndim else a


# name, arguments with the batch of each, other settings
CASES = [
    ("attention", {"q": (2, 3), "k": (2, 3), "v": (2, 3)}, {"causal": True}),
    ("attention", {"q": (2, 3), "k": (3,), "v": (1, 3)}, {}),
    ("attention", {"q": (), "k": (3,), "v": (3,)}, {"causal": True}),
    ("attention", {"q": (3,), "k": (), "v": ()}, {"softcap": 2.0}),
    ("attention", {"q": (), "k": (), "v": (), "bias": (), "slopes": ()}, {}),
    ("attention", {"q": (2, 3), "k": (2, 3), "v": (2, 3), "bias": (3,), "mask": (2, 1), "slopes": (2, 3),
                   "sinks": (1, 3), "lengths": (2, 3)}, {}),
    ("attention", {"q": (2, 3), "k": (2, 3), "v": (2, 3), "bias": (), "mask": (), "slopes": (), "sinks": ()},
     {}),
    ("attention", {"q": (2, 1, 2), "k": (1, 3, 1), "v": (2, 3, 2)}, {"weights": "sparsemax"}),
    ("attention_parallax", {"q": (2, 3), "k": (3,), "v": (1, 3), "r": (2, 1)}, {}),
    ("attention_local_linear", {"q": (2, 3), "k": (3,), "v": (3,)}, {"ridge": 0.5}),
    ("attention_additive", {"u": (), "q": (2, 3), "k": (2, 3), "v": (2, 3)}, {}),
    ("attention_additive", {"u": (3,), "q": (2, 3), "k": (2, 1), "v": (2, 1)}, {}),
    ("attention_tropical", {"q": (2, 3), "k": (3,), "v": (3,)}, {}),
    ("rope", {"x": (2, 3)}, {}),
    ("rope", {"x": ()}, {"layout": "interleaved"}),
    ("rope", {"x": (2, 3), "positions": (3,), "frequencies": (2, 1)}, {}),
    ("rope", {"x": (2, 3), "positions": (), "frequencies": ()}, {}),
]


class Batches(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def cases(self):
        for name, batches, settings in CASES:
            with self.subTest(function=name, batches=batches, settings=settings):
                makes = [b for n, b in batches.items() if n in ("q", "k", "v", "r", "x")]
                batch = torch.broadcast_shapes(*makes)
                yield name, {n: some(n, b) for n, b in batches.items()}, batch, settings

    def test_values(self):
        """The bits of each sequence alone, whether arrays are PyTorch's or NumPy's, and lie as they
        may."""
        for name, arrays, batch, settings in self.cases():
            function = getattr(wrapped, name)
            whole = function(**arrays, **settings)
            self.assertEqual(whole.shape[:len(batch)], batch)
            for at in np.ndindex(*batch):
                alone = function(**one(arrays, batch, at), **settings)[0]
                self.assertTrue(torch.equal(whole[at], alone))
            function, given = getattr(libsoftmax, name), {n: a.numpy() for n, a in arrays.items()}
            for lay in (np.asarray, np.asfortranarray, with_gaps):
                plain = function(**{n: lay(a) for n, a in given.items()}, **settings)
                self.assertTrue(np.array_equal(plain, whole.numpy()))
                out = lay(np.full(plain.shape, np.nan))
                self.assertIs(function(**given, **settings, out=out), out)
                self.assertTrue(np.array_equal(plain, out))

    def test_gradients(self):
        for name, arrays, batch, settings in self.cases():
            for n, a in arrays.items():
                a.requires_grad_(a.dtype == torch.float64)
            leaves = [a for a in arrays.values() if a.requires_grad]
            function = getattr(wrapped, name)
            up = torch.randn_like(function(**arrays, **settings))
            found = torch.autograd.grad(function(**arrays, **settings), leaves, up)
            wanted = [torch.zeros_like(a) for a in leaves]
            for at in np.ndindex(*batch):
                o = function(**one(arrays, batch, at), **settings)[0]
                for w, g in zip(wanted, torch.autograd.grad(o, leaves, up[at])):
                    w += g
            for a, b in zip(found, wanted):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            traced = torch.compile(
                lambda **given: function(**given, **settings), fullgraph=True, backend="aot_eager")
            again = torch.autograd.grad(traced(**arrays), leaves, up)
            for a, b in zip(found, again):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            torch._dynamo.reset()

    def test_vmap(self):
        """One more axis of batches in one call, over any of the arrays."""
        calls = []
        for name, arrays, batch, settings in self.cases():
            function, names = getattr(wrapped, name), [n for n in arrays if arrays[n].is_floating_point()]
            rest = {n: a for n, a in arrays.items() if n not in names}

            def loss(*given):
                return function(**dict(zip(names, given)), **rest, **settings).square().sum()
            for moved in filter(None, (names, names[:1], names[1:])):
                dims = tuple(-1 if n in moved else None for n in names)
                given = [
                    torch.stack([arrays[n], arrays[n].flip(0)], -1) if n in moved else arrays[n]
                    for n in names
                ]
                for what in (loss, torch.func.grad(loss, tuple(range(len(names))))):
                    found = torch.vmap(what, dims)(*given)
                    each = [
                        what(*(a if dim is None else a.select(-1, b) for a, dim in zip(given, dims)))
                        for b in range(2)
                    ]
                    for a, *b in zip(*[y if isinstance(y, tuple) else (y,) for y in (found, *each)]):
                        torch.testing.assert_close(a, torch.stack(b), rtol=1e-12, atol=1e-12)
        q, core = torch.randn(5, 2, 3, 4), libsoftmax._core.attention
        patch = unittest.mock.patch.object
        with patch(libsoftmax._core, "attention", lambda *a: calls.append(a) or core(*a)):
            torch.vmap(lambda q: wrapped.attention(q, q, q))(q)
        self.assertEqual(len(calls), 1)

    def test_one_head(self):
        q, k, v = torch.randn(5, 6), torch.randn(7, 6), torch.randn(7, 3)
        o, lse = wrapped.attention(q, k, v, return_lse=True)
        wanted = wrapped.attention(q[None, None], k[None, None], v[None, None], return_lse=True)
        self.assertTrue(torch.equal(o, wanted.o[0, 0]) and torch.equal(lse, wanted.lse[0, 0]))

    def test_other_entry_points(self):
        """Those without a gradient."""
        q, k, v = (torch.randn(2, 3, h, n, 6) for h, n in ((4, 5), (2, 7), (2, 7)))
        flat = [a.flatten(0, 1) for a in (q, k, v)]
        o, lse = libsoftmax.attention(q, k, v, return_lse=True)
        w = libsoftmax.attention_scores(q, k)
        mass = libsoftmax.attention_column_mass(q, k, lse)
        for found, wanted in (
            (w, libsoftmax.attention_scores(flat[0], flat[1])),
            (libsoftmax.attention_apply(w, v), libsoftmax.attention(*flat)),
            (mass, libsoftmax.attention_column_mass(flat[0], flat[1], lse.flatten(0, 1))),
            (libsoftmax.attention_states(q, k, v), libsoftmax.attention_states(*flat)),
            *zip(libsoftmax.attention_select(mass, 3), libsoftmax.attention_select(mass.flatten(0, 1), 3)),
        ):
            self.assertEqual(found.shape[:2], (2, 3))
            torch.testing.assert_close(found.flatten(0, 1), wanted, rtol=1e-6, atol=1e-6)

    def test_refused(self):
        q, k = torch.randn(2, 3, 4, 5, 6), torch.randn(2, 2, 4, 7, 6)
        wrong = r"attention: k: shape is \(2, 2, 4, 7, 6\), which does not go with the"
        with self.assertRaisesRegex(ValueError, wrong):
            wrapped.attention(q, k, k)
        with self.assertRaisesRegex(ValueError, r"attention: lengths: shape is \(2, 2\)"):
            wrapped.attention(q, q, q, lengths=torch.ones(2, 2, dtype=torch.int64))
        with self.assertRaisesRegex(ValueError, r"attention: bias: shape is \(2, 1, 5, 5\)"):
            wrapped.attention(q, q, q, bias=torch.ones(2, 1, 5, 5))
        bias = np.zeros([1] * 8 + [5, 5])  # more axes than there can be
        for function in (
            lambda q: libsoftmax.attention(q, q, q, bias=bias),
            lambda q: libsoftmax.attention_backward(
                q, q=q, k=q, v=q, o=q, lse=q[..., 0], bias=bias, wanted="bias"),
        ):
            with self.assertRaisesRegex(ValueError, r"bias: ndim is 10, not 0\.\.8"):
                function(np.zeros((1, 4, 5, 6)))
        with self.assertRaisesRegex(ValueError, "attention_backward: q: is broadcast"):
            a = q.numpy()
            o, lse = libsoftmax.attention(a[:1], a, a, return_lse=True)
            libsoftmax.attention_backward(o, q=a[:1], k=a, v=a, o=o, lse=lse)


if __name__ == "__main__":
    unittest.main()
