"""logsumexp with weights and signs, against 60 digits and SciPy."""
import decimal
import importlib.util
import math
import unittest

import ml_dtypes
import numpy as np

import libsoftmax
from libsoftmax import logsumexp

inf, nan = np.inf, np.nan


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def exact(x, b):
    """(log |sum b e^x|, its sign) of lists of finite numbers."""
    with decimal.localcontext(decimal.Context(prec=60, Emax=10**6, Emin=-10**6)):
        total = sum((decimal.Decimal(float(w)) * decimal.Decimal(float(v)).exp() for v, w in zip(x, b)),
                    decimal.Decimal(0))
        return (-inf, 0) if not total else (float(abs(total).ln()), 1 if total > 0 else -1)


class Weighted(unittest.TestCase):
    def near(self, found, expected, slack=0.0):
        """Within a few units of the last place of the largest number on the way."""
        self.assertTrue(abs(found - expected) <= slack + 4e-16 * max(1, abs(expected)) or found == expected,
                        (found, expected))

    def test_against_60_digits(self):
        rng = np.random.default_rng(1)
        for n in (1, 2, 3, 17, 200):
            for scale in (1e-3, 1, 30, 700):
                x, b = rng.standard_normal(n) * scale, np.exp(rng.standard_normal(n) * 20)
                slack = 8e-16 * (abs(x).max() + abs(np.log(b)).max())
                self.near(float(logsumexp(x, b=b)), exact(x, b)[0], slack)
                signed = b * rng.choice([-1, 1], n)
                found, sign = logsumexp(x, b=signed, return_sign=True)
                wanted, wanted_sign = exact(x, signed)
                lost = math.exp(exact(x, b)[0] - wanted)  # by cancellation
                if lost < 1e6:
                    self.assertEqual(sign, wanted_sign)
                    self.near(float(found), wanted, slack * lost)
                plain = logsumexp(x, b=signed)
                self.assertTrue(np.isnan(plain) if sign < 0 else plain == found)

    def test_extremes(self):
        """Weights and scores that meet only in their product; SciPy has -690.8 for the first, whose second
        term it loses."""
        for x, b in (([0, -750], [1e-300, 1e300]), ([700, 700], [1e308, 1]), ([1000, 0], [1e-308, 1]),
                     ([0], [5e-324]), ([0, 0], [1, 1e-17]),
                     ([1e5, -1e5], [1, 1]), ([0, 0], [1.7e308, 1.7e308])):
            self.near(float(logsumexp(np.float64(x), b=b)), exact(x, b)[0], 1e-15 * max(map(abs, x)))

    def test_conventions(self):
        """What SciPy gives, but for +inf, which is as everywhere here."""
        for x, b, wanted in (([-inf], None, (-inf, 0)), ([nan], None, (nan, nan)),
                             ([1, 2], [1, -1], (math.log(math.e**2 - math.e), -1)),
                             ([1, 1], [1, -1], (-inf, 0)), ([1, 2], [0, 0], (-inf, 0)),
                             ([nan, 2], [0, 1], (2, 1)), ([inf, 2], [0, 1], (2, 1)),
                             ([1, 2], [nan, 1], (nan, nan)), ([inf, 2], [1, 1], (nan, nan)),
                             ([1, -inf], [-1, 1], (1, -1)), ([3], [-1], (3, -1))):
            found = logsumexp(np.float64(x), b=b, return_sign=True)
            np.testing.assert_allclose(found, wanted, rtol=1e-15)
            np.testing.assert_allclose(logsumexp(np.float64(x), b=b), nan if wanted[1] < 0 else wanted[0],
                                       rtol=1e-15)
        for x, b, wanted in (([inf, 2], [-1, 1], (inf, -1)), ([inf, 2], None, (inf, 1))):
            self.assertEqual(tuple(logsumexp(np.float64(x), b=b, return_sign=True, on_inf="limit")), wanted)
        with self.assertRaisesRegex(ValueError, "nothing valid"):
            logsumexp(np.zeros(2), b=[0, 0], on_empty="error")

    def test_shapes(self):
        x, b = normal((2, 3, 4), 2), normal((3, 1), 3)
        for axis in (-1, 0, None, (0, 2), [1], ()):
            for keepdims in (False, True):
                found, sign = logsumexp(x, axis, b=b, keepdims=keepdims, return_sign=True)
                shape = np.sum(x, tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims).shape
                self.assertEqual((found.shape, sign.shape), (shape, shape))
                numpys = tuple(axis) if isinstance(axis, list) else axis
                sums = (np.broadcast_to(b, x.shape) * np.exp(x)).sum(numpys, keepdims=keepdims)
                np.testing.assert_allclose(sign * np.exp(found), sums, rtol=1e-12, atol=1e-14)
        self.assertEqual(logsumexp(x[0, 0], b=np.ones((5, 4))).shape, (5,))
        out = np.zeros((2, 3), "f4")
        self.assertIs(logsumexp(x, b=abs(b), out=out), out)
        np.testing.assert_array_equal(out, logsumexp(x, b=abs(b)).astype("f4"))
        with self.assertRaisesRegex(ValueError, "logsumexp: lse: shape is"):
            logsumexp(x, b=b, out=np.zeros(3))

    def test_where_and_masked(self):
        x, b = normal((3, 5), 4), normal((3, 5), 5)
        keep = np.arange(15).reshape(3, 5) % 3 > 0
        expected = logsumexp(x, b=np.where(keep, b, 0), return_sign=True)
        x[~keep] = nan
        for found in (logsumexp(x, b=b, where=keep, return_sign=True),
                      logsumexp(np.ma.array(x, mask=~keep), b=b, return_sign=True)):
            np.testing.assert_array_equal(found, expected)

    def test_kinds(self):
        x, b = np.random.default_rng(6).standard_normal((3, 5)) * 4, np.arange(5) - 1.0
        for dtype in ("float16", ml_dtypes.bfloat16, "float32", "float64"):
            found, sign = logsumexp(x.astype(dtype), b=b, return_sign=True)
            self.assertEqual((found.dtype, sign.dtype), (np.dtype(dtype),) * 2)
            exactly = logsumexp(x.astype(dtype).astype("f8"), b=b, return_sign=True)
            np.testing.assert_array_equal(found, exactly[0].astype(dtype))
        self.assertEqual(logsumexp([1, 2], b=[1, 2]).dtype, np.float64)
        self.assertIsInstance(logsumexp(memoryview(x), b=b), memoryview)
        np.testing.assert_array_equal(np.asarray(logsumexp(memoryview(x), b=b)), logsumexp(x, b=b))

    def test_same_bits(self):
        """Without negative weights of another size, weights of 1 change no bit; nor do those of a power of
        two, but for the scale."""
        x = np.random.default_rng(7).standard_normal((4, 300)) * 9
        np.testing.assert_array_equal(logsumexp(x, b=np.ones(300)), logsumexp(x))
        np.testing.assert_array_equal(logsumexp(x, b=[1], return_sign=True)[0], logsumexp(x))

    @unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is not installed")
    def test_scipy(self):
        from scipy.special import logsumexp as other
        x, b = normal((2, 3, 4), 8) * 10, normal((2, 3, 4), 9)
        for axis in (None, 0, (0, 2), (1,)):
            for keepdims in (False, True):
                for found, wanted in zip(logsumexp(x, axis, b=b, keepdims=keepdims, return_sign=True),
                                         other(x, axis, b=b, keepdims=keepdims, return_sign=True)):
                    np.testing.assert_allclose(found, wanted, rtol=1e-12)

    def test_operators_are_as_they_were(self):
        x = np.random.default_rng(10).standard_normal((2, 3)).astype("f4")
        self.assertEqual(logsumexp(x).dtype, np.float32)
        with self.assertRaisesRegex(TypeError, "no argument named 'b'"):
            libsoftmax.softmax(x, b=[1, 2, 3])


if __name__ == "__main__":
    unittest.main()
