"""The package with arrays of NumPy (bfloat16 of ml_dtypes too): strides and dtypes without a copy, results of the caller's kind."""
import itertools
import timeit
import unittest

import ml_dtypes
import numpy as np

import libsoftmax

from support import problems

DTYPES = [np.dtype(t) for t in ("float16", ml_dtypes.bfloat16, "float32", "float64")]


def scores(shape, dtype="float32", seed=1):
    return (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)


def arrays(given, dtype=None):
    """The buffers of a problem as arrays of NumPy; float ones in that dtype."""
    made = {name: np.array(a) for name, a in given.items()}
    return {name: a.astype(dtype) if dtype and a.dtype.kind == "f" else a for name, a in made.items()}


def outputs(found):
    return [y for y in (found if isinstance(found, tuple) else (found,)) if y is not None]


class NumPy(unittest.TestCase):
    def same(self, found, expected):
        for a, b in zip(outputs(found), outputs(expected)):
            self.assertEqual(a.dtype, b.dtype)
            np.testing.assert_array_equal(np.ascontiguousarray(a).view("u1"), np.ascontiguousarray(b).view("u1"))

    def test_kind_and_dtype(self):
        for op, given, settings in problems():
            for dtype in DTYPES:
                with self.subTest(op=op.name, dtype=str(dtype)):
                    call = arrays(given, dtype)
                    found = outputs(getattr(libsoftmax, op.name)(**call, **settings))
                    expected = libsoftmax.infer(op.name, **call, **settings)
                    for y, (shape, name) in zip(found, expected):
                        self.assertIs(type(y), np.ndarray)
                        self.assertEqual((y.shape, str(y.dtype)), (shape, name))

    def test_layouts(self):
        """Any axis, transposed, reversed, every second element, Fortran order, read-only, broadcast: the same bits."""
        for op, given, settings in problems():
            function = getattr(libsoftmax, op.name)
            with self.subTest(op.name):
                call = arrays(given)
                expected = function(**call, **settings)
                layouts = {
                    "Fortran": lambda a: np.asfortranarray(a),
                    "spread": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
                    "reversed": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
                    "shifted": lambda a: np.concatenate([a[..., :1], a], axis=-1)[..., 1:],
                }
                for name, layout in layouts.items():
                    moved = {k: layout(a) for k, a in call.items()}
                    for a in moved.values():
                        a.flags.writeable = False
                    self.same(function(**moved, **settings), expected)

    def test_axis(self):
        x = scores((3, 4, 5))
        for axis in (-3, -2, -1, 0, 1, 2):
            expected = np.moveaxis(libsoftmax.softmax(np.ascontiguousarray(np.moveaxis(x, axis, -1))), -1, axis)
            self.same(libsoftmax.softmax(x, axis=axis), expected)
        self.assertEqual(libsoftmax.logsumexp(x, axis=1).shape, (3, 5))

    def test_no_copy(self):
        """A view of a huge broadcast row would need 8 TiB if it were copied; out= is written where it lies."""
        x = np.broadcast_to(scores(16), (3, 16))
        self.same(libsoftmax.softmax(x), libsoftmax.softmax(x.copy()))
        wide = np.full((4, 10), 7, "float32")
        out = wide[::2, 1:9:2]
        self.assertIs(libsoftmax.softmax(scores((2, 4)), out=out), out)
        self.assertEqual(int((wide == 7).sum()), 40 - 8)
        self.same(np.ascontiguousarray(out), libsoftmax.softmax(scores((2, 4))))
        huge = np.lib.stride_tricks.as_strided(scores(1), (2**41, 0), (0, 4))
        self.assertEqual(libsoftmax.infer("softmax", np.broadcast_to(scores(1), (2**38, 2)))[0][0], (2**38, 2))
        self.assertEqual(huge.shape[1], 0)

    def test_out_of_another_dtype(self):
        x = scores((3, 7))
        for dtype in DTYPES:
            out = np.empty((3, 7), dtype)
            self.assertIs(libsoftmax.softmax(x, out=out), out)
            self.same(out, libsoftmax.softmax(x).astype(dtype))

    def test_in_place(self):
        for dtype in DTYPES:
            x = scores((3, 7), dtype)
            expected = libsoftmax.softmax(x)
            self.assertIs(libsoftmax.softmax(x, out=x), x)
            self.same(x, expected)

    def test_numbers(self):
        x = scores((2, 5))
        for t in (0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5)):
            self.same(libsoftmax.softmax(x, temperature=t), libsoftmax.softmax(x, temperature=0.5))
        self.same(libsoftmax.softmax(x, temperature=np.array(0.5, "float32")),
                  libsoftmax.softmax(x, temperature=np.full(2, 0.5, "float32")))
        self.same(libsoftmax.sparse_softmax(x, k=np.int64(2)), libsoftmax.sparse_softmax(x, k=2.0))
        self.same(libsoftmax.softmax(x, axis=np.int8(0)), libsoftmax.softmax(x, axis=0))

    def test_refused(self):
        x = scores((2, 3))
        for bad in (x.astype(">f4"), x.astype("complex64"), np.array(["a"]), np.zeros(2, "datetime64[s]"), np.array([None])):
            self.assertRaises(TypeError, libsoftmax.softmax, bad)
        packed = np.zeros(3, np.dtype([("a", "u1"), ("x", "f4")]))
        with self.assertRaisesRegex(ValueError, "strides.0. is 5 bytes, not a whole number"):
            libsoftmax.softmax(packed["x"])
        with self.assertRaisesRegex(ValueError, "not aligned"):
            libsoftmax.softmax(np.frombuffer(bytes(9), "u1")[1:].view("f4"))
        frozen = x.astype(ml_dtypes.bfloat16)
        frozen.flags.writeable = False
        for out in (np.broadcast_to(x[:1], (2, 3)), frozen):
            with self.assertRaisesRegex(ValueError, "softmax: y: is not a writable array"):
                libsoftmax.softmax(x, out=out)
        self.assertRaises(ValueError, libsoftmax.softmax, np.zeros((1,) * 9, "f4"))

    def test_gradients(self):
        """wanted= as a name and as tuples in any order; out=; gradients of broadcast inputs have the full shape."""
        x, t = scores((4, 6), "float64"), np.linspace(0.5, 2, 4)
        y = libsoftmax.softmax(x, temperature=t)
        dy = scores((4, 6), "float64", 2)
        dx, dt = libsoftmax.softmax_backward(dy, y=y, temperature=t, wanted=("x", "temperature"))
        np.testing.assert_allclose(dx, y * (dy - (y * dy).sum(-1, keepdims=True)) / t[:, None], rtol=1e-12)
        for wanted in ("temperature", ("temperature",), ["temperature", "x"]):
            found = libsoftmax.softmax_backward(dy, y=y, temperature=t, wanted=wanted)
            self.assertEqual(type(found), np.ndarray if isinstance(wanted, str) else tuple)
            self.same(found[0] if isinstance(wanted, list) else found, dt)
        mine = np.empty((4, 6))
        self.assertIs(libsoftmax.softmax_backward(dy, y=y, temperature=t, out=mine), mine)
        self.same(mine, dx)
        both = (None, np.empty(4))
        found = libsoftmax.softmax_backward(dy, y=y, temperature=t, wanted=("x", "temperature"), out=both)
        self.assertIs(found[1], both[1])
        self.same(found, (dx, dt))
        bias = scores((1, 6), "float64", 3)
        y = libsoftmax.scaled_masked_softmax(x, bias=bias)
        db = libsoftmax.scaled_masked_softmax_backward(dy, y=y, bias=bias, wanted="bias")
        self.assertEqual(db.shape, x.shape)

    def test_empty(self):
        for shape in ((0, 3), (3, 0), (0,), (2, 0, 3)):
            self.assertEqual(libsoftmax.softmax(np.zeros(shape, "f4")).shape, shape)
        self.assertTrue((libsoftmax.logsumexp(np.zeros((2, 0), "f4")) == -np.inf).all())

    def test_subclasses_and_scalars(self):
        class Mine(np.ndarray):
            pass
        self.assertIs(type(libsoftmax.softmax(scores((2, 3)).view(Mine))), np.ndarray)
        self.assertEqual(libsoftmax.logsumexp(scores(5)).shape, ())
        with self.assertRaisesRegex(ValueError, "ndim is 0"):
            libsoftmax.softmax(np.float32(1))

    def test_overhead(self):
        """A call on a small row is a few of NumPy's own calls; measured in turns, the fastest of many."""
        x = scores((1, 16))
        y, number = np.empty_like(x), 200  # short enough to fall between interruptions
        calls = {"softmax(x)": lambda: libsoftmax.softmax(x), "softmax(x, out=y)": lambda: libsoftmax.softmax(x, out=y),
                 "np.exp(x)": lambda: np.exp(x)}
        best = dict.fromkeys(calls, np.inf)
        for _ in range(200):
            for name, call in calls.items():
                best[name] = min(best[name], timeit.timeit(call, number=number) / number)
        print("\n" + ", ".join("%s %.2f us" % (name, 1e6 * t) for name, t in best.items()))
        self.assertLess(best["softmax(x)"], 10 * best["np.exp(x)"])

    def test_policies_and_dtypes_together(self):
        for dtype, empty in itertools.product(DTYPES, ("zero", "nan")):
            x = np.full((2, 3), -np.inf, dtype)
            y = libsoftmax.softmax(x, on_empty=empty).astype("f4")
            self.assertTrue(np.isnan(y).all() if empty == "nan" else (y == 0).all())


if __name__ == "__main__":
    unittest.main()
