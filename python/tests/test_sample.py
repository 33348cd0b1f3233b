"""sample() and Sampler: steps by name and as a list, seeds, streams, what is remembered, and arrays of every
kind."""
import copy
import importlib.util
import pickle
import random
import unittest

import ml_dtypes
import numpy as np

import libsoftmax
from libsoftmax import SAMPLING_STEPS, Sampler, sample


def scores(shape, dtype="float32", seed=1):
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(dtype)


def probabilities(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def drawn(x, **chain):
    """Which elements of a row are ever drawn."""
    return set(sample(x, draws=4000, method="cdf", **chain).tolist())


def filled(step, number):
    """A value of this step with a number in the place of its first."""
    value = tuple([number] + [0.5 for _ in step.params[1:]]) if step.params else ()
    tokens = [[1, 2]] * step.tokens + [[0.5, 1]] * step.values
    return (*value, *tokens) if step.params or step.values else tokens[0]


class Steps(unittest.TestCase):
    def refused(self, kind, text, function, *args, **kwargs):
        with self.assertRaises(kind) as caught:
            function(*args, **kwargs)
        self.assertIn(text, str(caught.exception))

    def test_every_step_is_the_one_that_it_is_called(self):
        """The library names the step whose number or token is wrong."""
        x = scores(8)
        for step in SAMPLING_STEPS.values():
            with self.subTest(step.name):
                value = filled(step, float("nan")) if step.params else {99: 1.0} if step.values else [99]
                for call in ({step.name: value}, {"steps": [(step.name, value)]}):
                    with self.assertRaises(ValueError) as caught:
                        sample(x, **call)
                    named = str(caught.exception).split(", ")[1].split(":")[0]
                    self.assertEqual(named.replace("-", "_").replace(" ", "_"), step.name)

    def test_what_is_kept(self):
        x = scores(12)
        p, order = probabilities(x), np.argsort(-x)
        mass = np.cumsum(p[order])
        self.assertEqual(drawn(x, top_k=3), set(order[:3].tolist()))
        self.assertEqual(drawn(x, top_p=0.7), set(order[:np.searchsorted(mass, 0.7) + 1].tolist()))
        self.assertEqual(drawn(x, min_p=0.2), set(np.flatnonzero(p >= 0.2 * p.max()).tolist()))
        self.assertEqual(drawn(x, epsilon=0.05), set(np.flatnonzero(p >= 0.05).tolist()))
        self.assertEqual(drawn(x, allow=[3, 5], temperature=50), {3, 5})
        self.assertEqual(drawn(x, ban=[3, 5], temperature=50), set(range(12)) - {3, 5})
        self.assertEqual(drawn(x, temperature=0), {int(x.argmax())})
        self.assertEqual(drawn(x, bias={4: 100}), {4})
        self.assertEqual(drawn(x, xtc=(1, 0.05)) & set(np.flatnonzero(p >= 0.05).tolist()),
                         {int(order[(p[order] >= 0.05).sum() - 1])})
        self.assertEqual(drawn(x, no_repeat=(2, [3, 7, 1, 3]), bias={7: 50, 2: 40}), {2})

    def test_order(self):
        """By name steps are taken as they are written, those of the list first."""
        x = np.float32([2, 1.5, 1, 0.5, 0, -1])
        flat, sharp = drawn(x, temperature=4, top_p=0.6), drawn(x, top_p=0.6, temperature=4)
        self.assertGreater(len(flat), len(sharp))
        for one, other in (({"steps": [("temperature", 4), ("top_p", 0.6)]}, flat),
                           ({"steps": [("top_p", 0.6)], "temperature": 4}, sharp),
                           ({"steps": [["top_p", 0.6]], "temperature": 4, "top_k": None}, sharp)):
            self.assertEqual(drawn(x, **one), other)

    def test_spellings(self):
        """Tuples, parts by name, arrays, masks and lists of a step say the same."""
        x = scores((3, 20))
        text = [4, 5, 4, 5, 4]
        same = [
            [{"dry": (0.8, text)}, {"dry": (0.8, 1.75, 2, text)},
             {"dry": {"multiplier": 0.8, "tokens": text}}, {"steps": [("dry", 0.8, text)]},
             {"dry": (0.8, np.int32(text))}, {"dry": (np.float32(0.8).astype("f8").round(7), text)}],
            [{"frequency": (0.5, text)}, {"frequency": (0.5, 0, text)},
             {"frequency": {"frequency": 0.5, "tokens": tuple(text)}}],
            [{"ban": [0, 7]}, {"ban": (0, 7)}, {"ban": np.array([0, 7])},
             {"ban": np.isin(np.arange(20), [0, 7])}, {"ban": {"tokens": [0, 7]}},
             {"steps": [("ban", [0, 7])]}],
            [{"bias": {2: 1.0, 9: -3}}, {"bias": ([2, 9], [1, -3])},
             {"bias": {"tokens": [9, 2], "values": np.float64([-3, 1])}}],
            [{"xtc": (0.5, 0.1)}, {"xtc": {"threshold": 0.1, "chance": 0.5}}, {"steps": [("xtc", 0.5, 0.1)]}],
        ]
        for spellings in same:
            found = [sample(x, draws=50, seed=3, return_log=True, **one) for one in spellings]
            for one in found[1:]:
                np.testing.assert_array_equal(one.index, found[0].index)
                np.testing.assert_array_equal(one.log, found[0].log)

    def test_one_a_row(self):
        """Numbers and tokens of each row: what each row gives alone."""
        x = scores((3, 20))
        tokens = [[1, 2, 2], [], [5]]
        found = sample(x, temperature=np.float32([0.5, 1, 2]), frequency=(0.3, 0.1, tokens), top_k=[2, 5, 20],
                       seed=9, draws=30)
        for r in range(3):
            alone = sample(x[r], temperature=[0.5, 1, 2][r], frequency=(0.3, 0.1, tokens[r]),
                           top_k=[2, 5, 20][r], seed=9, stream=r, draws=30)
            np.testing.assert_array_equal(found[r], alone)
        masks = np.arange(20) % 3 == np.arange(3)[:, None]
        self.assertTrue(masks[np.arange(3)[:, None], sample(x, allow=masks, draws=20)].all())

    def test_refused(self):
        x = scores((2, 5))
        for kind, text, call in (
                (ValueError, " is 2, not 0 to 1", {"top_p": 2}),
            (TypeError, "no argument named 'topk'; here it is 'top_k'", {"topk": 2}),
                (TypeError, "no argument named 'dim'; here it is 'axis'", {"dim": 0}),
                (TypeError, "named 'repetition_penalty'; here it is 'repetition'",
                 {"repetition_penalty": 1.1}), (TypeError, "xtc: threshold is missing", {"xtc": 0.5}),
                (TypeError, "repetition: tokens is missing", {"repetition": 1.2}),
            (TypeError, "top_k: k: 'x' is not a number", {"top_k": "x"}),
                (TypeError, "xtc: 3 numbers, at most 2", {"xtc": (1, 1, 1)}),
            (TypeError, "there is no 'k'", {"top_p": {"k": 1}}),
                (TypeError, "tokens: [True] are not whole numbers", {"ban": [True]}),
            (TypeError, "tokens: [1.5] are not", {"ban": [1.5]}),
                (ValueError, "bias: 2 tokens and 1 values", {"bias": ([1, 2], [1])}),
            (ValueError, "token 5 is not one of the 5", {"ban": [5]}),
                (ValueError, "given for 1 rows, and x has 2", {"temperature": [1]}),
            (ValueError, "given for 2 rows and for 3 rows", None),
                (TypeError, "steps: 'top_k' is not a tuple", {"steps": ["top_k"]}),
            (ValueError, "method: 'best' is not one of", {"method": "best"}),
                (ValueError, "draws: 0 is not at least 1", {"draws": 0}),
            (TypeError, "seed: 1.5 is neither", {"seed": 1.5}),
            (ValueError, "seed: -1 is not a whole number from 0 to 2^64 - 1", {"seed": -1}),
            (ValueError, "seed: 18446744073709551616 is not", {"seed": 2**64}),
            (ValueError, "seed: -3 is not", {"seed": np.array([1, -3])}),
            (ValueError, "stream: -1 is not", {"stream": -1}),
            (ValueError, "stream: -2 is not", {"stream": [-2, 0]}),
                (ValueError, "seeds: shape is (3,), not one a row, (2,)", {"seed": [1, 2, 3]}),
            (TypeError, "axis: 0.8 is no axis", {"axis": 0.8}),
                (ValueError, "axis is 2, not -2..1", {"axis": 2})):
            if call is None:
                call, text = {"temperature": [1, 2], "top_k": [1, 2, 3]}, "steps are given for"
            with self.subTest(text):
                self.refused(kind, text, sample, x, **call)
        self.refused(TypeError, "sample: x: dict shows no array", sample, {})
        self.refused(ValueError, "x: some elements are masked", sample, np.ma.array(x, mask=True))


class Draws(unittest.TestCase):
    def test_distribution(self):
        x, many = scores(6, "float64"), 40000
        for method in ("gumbel", "cdf"):
            p = probabilities(x / 0.7)
            counts = np.bincount(sample(x, temperature=0.7, method=method, draws=many, seed=5), minlength=6)
            self.assertLess(np.abs((counts - many * p) / np.sqrt(many * p * (1 - p))).max(), 5)
        self.assertEqual(int(sample(x, method="greedy")), int(x.argmax()))

    def test_streams(self):
        """A draw depends on its row, seed and stream alone: not on the batch, the axis, or how many draws
        there are."""
        x = scores((4, 3, 50))
        all_of_them = sample(x, seed=7, stream=100, draws=5, top_p=0.9)
        self.assertEqual((all_of_them.shape, all_of_them.dtype), ((4, 3, 5), np.int64))
        for i in range(4):
            for j in range(3):
                for d in range(5):
                    alone = sample(x[i, j], seed=7, stream=100 + 3 * i + j + (d << 32), top_p=0.9)
                    self.assertEqual(int(alone), int(all_of_them[i, j, d]))
        np.testing.assert_array_equal(sample(x, seed=7, stream=100, top_p=0.9), all_of_them[..., 0])
        np.testing.assert_array_equal(sample(np.moveaxis(x, -1, 0), 0, seed=7, stream=100, draws=5,
                                             top_p=0.9), all_of_them)
        streams = np.arange(100, 112, dtype="uint64").reshape(4, 3)
        np.testing.assert_array_equal(sample(x, seed=np.full((4, 3), 7), stream=streams, draws=5, top_p=0.9),
                                      all_of_them)
        self.assertEqual(sample(x, keepdims=True).shape, (4, 3, 1))
        self.assertEqual(sample(x, (0, 2), keepdims=True, draws=2).shape, (1, 3, 1, 2))
        np.testing.assert_array_equal(sample(x, None, seed=1), sample(x.reshape(-1), seed=1))
        self.assertNotEqual(sample(x, seed=1).tolist(), sample(x, seed=2).tolist())
        self.assertEqual(sample(x, seed=2**64 - 1, stream=2**64 - 1).shape, (4, 3))

    def test_generators(self):
        """A generator gives a seed, and another one the next time."""
        x = scores((100, 50))
        for make in (lambda: np.random.default_rng(3), lambda: random.Random(3)):
            one, other = make(), make()
            first, second = sample(x, seed=one), sample(x, seed=one)
            np.testing.assert_array_equal(first, sample(x, seed=other))
            np.testing.assert_array_equal(second, sample(x, seed=other))
            self.assertNotEqual(first.tolist(), second.tolist())

    def test_arrays(self):
        """Every dtype and layout: the draw of the values in f32 or f64."""
        x = scores((4, 30))
        for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64", "int64"):
            narrow = x.astype(dtype)
            wide = narrow.astype("float64" if dtype in ("float64", "int64") else "float32")
            expected = sample(wide, seed=2, draws=9, return_log=True, return_status=True)
            self.assertEqual((expected.log.dtype, expected.status.dtype), (wide.dtype, np.int32))
            for layout in (np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2],
                           lambda a: a[::-1].copy()[::-1]):
                found = sample(layout(narrow), seed=2, draws=9, return_log=True, return_status=True)
                for a, b in zip(found, expected):
                    np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(sample(x.astype("f8").tolist(), seed=2), sample(x.astype("f8"), seed=2))
        # subnormal and normal numbers of half precision
        every = np.array([0, 2**-24, 2**-14, -2**-24 * 3, 65504, 1.5, -0.0, 2**-15], "float16")
        self.assertEqual(sample(every, method="greedy", return_log=True).log,
                         sample(every.astype("f4"), method="greedy", return_log=True).log)
        self.assertEqual(sample(x[:0]).shape, (0,))

    def test_rows_without_a_draw(self):
        x = np.float32([[1, 2], [np.nan, 0], [-np.inf, -np.inf], [np.inf, 0]])
        found = sample(x, return_status=True, return_log=True)
        self.assertEqual((found.index[1:].tolist(), found.status.tolist()), ([-1] * 3, [0, 2, 1, 3]))
        self.assertEqual(np.isnan(found.log).tolist(), [False, True, True, True])
        self.assertEqual(sample(np.zeros((2, 0), "f4")).tolist(), [-1, -1])

    def test_threads(self):
        x = scores((64, 300))
        expected = sample(x, top_p=0.9, draws=3)
        try:
            libsoftmax.threads(2)
            np.testing.assert_array_equal(sample(x, top_p=0.9, draws=3), expected)
        finally:
            libsoftmax.threads(1)


class Remembering(unittest.TestCase):
    def test_calls_are_draws(self):
        x = scores((3, 40))
        draw = Sampler(temperature=0.9, top_k=20, seed=4, stream=10)
        found = np.stack([draw(x) for _ in range(6)], -1)
        np.testing.assert_array_equal(found, sample(x, temperature=0.9, top_k=20, seed=4, stream=10, draws=6))
        self.assertEqual((draw.tokens, draw.drawn), (found.tolist(), 6))
        each = Sampler(temperature=0.9, top_k=20, seed=4, stream=[10, 11, 12])
        np.testing.assert_array_equal(np.stack([each(x) for _ in range(6)], -1), found)

    def test_history(self):
        """Steps without tokens see what was fed and drawn; others keep theirs."""
        x = scores((2, 10))
        draw = Sampler(no_repeat=1, temperature=0)
        draw.feed([[int(x[0].argmax())], []])
        order = np.argsort(-x, -1)
        self.assertEqual([draw(x).tolist() for _ in range(3)],
                         [[order[0, i + 1], order[1, i]] for i in range(3)])
        draw = Sampler(ban=[int(x[0].argmax())], temperature=0, last=2)
        draw.feed([7, 8, 9])
        self.assertEqual((int(draw(x[0])), draw.tokens), (order[0, 1], [[9, order[0, 1]]]))
        with self.assertRaisesRegex(ValueError, "Sampler: 2 rows, and 1 before"):
            draw(x)

    def test_mirostat(self):
        """The state begins at twice the target, is what surprise is given, and moves by the rate times what a
        draw missed the target by."""
        x = scores((2, 500))
        draw, state = Sampler(surprise=3.0, rate=0.2, seed=1), [6.0, 6.0]
        for t in range(5):
            expected = sample(x, surprise=state, seed=1, stream=t << 32, return_log=True)
            np.testing.assert_array_equal(draw(x), expected.index)
            state = [s - 0.2 * (-float(log) / np.log(2) - 3) for s, log in zip(state, expected.log)]
            np.testing.assert_allclose(draw.surprise, state, rtol=1e-12)

    def test_copies(self):
        x = scores((2, 30))
        draw = Sampler(repetition=1.3, mirostat=4, seed=np.random.default_rng(0))
        draw(x)
        for other in (copy.deepcopy(draw), pickle.loads(pickle.dumps(draw))):
            alike = copy.deepcopy(draw)
            self.assertEqual([other(x).tolist() for _ in range(3)], [alike(x).tolist() for _ in range(3)])


@unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed")
class BasisAware(unittest.TestCase):
    def proven(self, p, basis, token, eta):
        """Whether HiGHS says that the program has no solution."""
        from scipy.optimize import linprog
        most = p / (1 - eta)
        most[token] = 0
        equal = np.column_stack((np.ones_like(p), basis)).T
        return linprog(0 * p, A_eq=equal, b_eq=equal @ p, bounds=np.stack((0 * p, most), axis=1)).status == 2

    def bases(self, rng):
        """Of a model, of small whole numbers, with half of the tokens alike, and with dependent columns."""
        for n, c in ((12, 3), (60, 20), (300, 12), (20, 20)):
            model = np.linalg.svd(rng.standard_normal((n, n)), full_matrices=False)[0][:, :c]
            yield model
            yield rng.integers(-1, 2, (n, c)).astype(float)
            yield np.concatenate((model[:n // 2], model[:n - n // 2]))
            yield np.column_stack((model, model[:, 0] + 1, 1e6 * model[:, 1]))

    def test_like_highs(self):
        rng = np.random.default_rng(2)
        decided = 0
        for basis in self.bases(rng):
            p = libsoftmax.softmax(3 * rng.standard_normal(len(basis)))
            for eta in (0.01, 0.3):
                token = rng.integers(0, len(p), 8)
                want = [p[t] >= eta or self.proven(p, basis, t, eta) for t in token]
                got = libsoftmax.basis_aware_accept(p, basis, token, eta=eta, return_index=True)
                self.assertEqual(got.accepted.tolist(), [int(w) for w in want])
                decided += sum(p[t] < eta and w for t, w in zip(token, want))
                first = [int(t) for t, w in zip(token, want) if w] + [int(p.argmax())]
                self.assertEqual(got.index, first[0])
        self.assertGreater(decided, 20)  # by the basis, not by the threshold


if __name__ == "__main__":
    unittest.main()
