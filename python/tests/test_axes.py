"""Axes and masks as NumPy, SciPy and JAX have them, and what counts as an array: integers, lists, data
frames, masked arrays."""
import importlib
import unittest

import numpy as np

import libsoftmax

from support import problems

FULL, ROW = 0, 1


def outputs(found):
    return [y for y in (found if isinstance(found, tuple) else (found,)) if y is not None]


def scores(shape, dtype="float32", seed=1):
    return (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)


def here(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Case(unittest.TestCase):
    def same(self, found, expected):
        self.assertEqual(len(outputs(found)), len(outputs(expected)))
        for a, b in zip(outputs(found), outputs(expected)):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            np.testing.assert_array_equal(np.ascontiguousarray(a).view("u1"),
                                          np.ascontiguousarray(b).view("u1"))

    def refused(self, kind, text, function, *args, **kwargs):
        with self.assertRaises(kind) as caught:
            function(*args, **kwargs)
        self.assertIn(text, str(caught.exception))


def split(a):
    """(3, 8) as (2, 3, 4): rows run along the axes 0 and 2, which no stride makes one."""
    return np.ascontiguousarray(a.reshape(3, 2, 4).transpose(1, 0, 2))


def joined(a):
    return np.ascontiguousarray(a.transpose(1, 0, 2)).reshape(3, 8)


class Axes(Case):
    def calls(self):
        """(operator, arguments for rows along one axis, the same for rows along two, settings)"""
        for op, given, settings in problems(optional=False):
            one = {k: np.array(a) for k, a in given.items()}
            two = {p.name: split(one[p.name]) if p.shape == FULL else one[p.name]
                   for p in op.inputs if p.name in one}
            yield op, one, two, settings

    def test_several(self):
        """Every operator over two axes: the bits of rows that lie so in memory."""
        for op, one, two, settings in self.calls():
            function = getattr(libsoftmax, op.name)
            with self.subTest(op.name):
                for axes in ((0, 2), [-1, 0]):
                    expected = outputs(function(**one, **settings))
                    found = outputs(function(**two, **settings, axis=axes))
                    ports = [p for p in op.outputs if not p.optional]
                    self.same(tuple(joined(y) if p.shape == FULL else y for p, y in zip(ports, found)),
                              tuple(expected))

    def test_all(self):
        """axis=None: every element, in any layout."""
        for op, given, settings in problems(optional=False, shape=(8,)):
            with self.subTest(op.name):
                one = {p.name: np.array(given[p.name]) for p in op.inputs if p.name in given}
                rows = [p.name for p in op.inputs if p.shape == ROW and p.name in one]
                one.update((name, one[name].reshape(())) for name in rows)
                two = {p.name: one[p.name].reshape(2, 4) if p.shape == FULL else one[p.name]
                       for p in op.inputs if p.name in one}
                function = getattr(libsoftmax, op.name)
                expected = outputs(function(**one, **settings))
                found = outputs(function(**two, **settings, axis=None))
                self.same(tuple(y.reshape(-1) if y.shape == (2, 4) else y for y in found), tuple(expected))
                for name, axes in (("Fortran", (0, 1)), ("one more dimension", None)):
                    move = np.asfortranarray if axes else lambda a: a[None]
                    moved = {k: move(a) if a.shape == (2, 4) else a for k, a in two.items()}
                    again = outputs(function(**moved, **settings, axis=axes))
                    self.same(tuple(y.reshape(-1) if y.size == 8 else y for y in again),
                              tuple(y.reshape(-1) if y.size == 8 else y for y in found))

    def test_gradients(self):
        """Those over two axes are those of rows, and keepdims=True takes what it gave."""
        for op, one, two, settings in self.calls():
            if not op.backward or len(op.outputs) > 1:
                continue
            with self.subTest(op.name):
                port, forward = op.outputs[0], getattr(libsoftmax, op.name)
                backward = getattr(libsoftmax, op.name + "_backward")
                y, wanted = forward(**one,
                                    **settings), tuple(p.name for p in op.inputs if p.gradient
                                                       and p.name in one)
                dy = np.sin(1 + np.arange(y.size)).reshape(y.shape).astype(y.dtype)
                saved = {port.name: y} if port.saved else {}
                expected = backward(dy, **saved, **one, **settings, wanted=wanted)
                for keep in ({}, {"keepdims": True}) if port.shape == ROW else ({},):
                    two_y = forward(**two, **settings, axis=(0, 2), **keep)
                    self.assertEqual(two_y.shape,
                                     (2, 3, 4) if port.shape == FULL else (1, 3, 1) if keep else y.shape)
                    saved = {port.name: two_y} if port.saved else {}
                    up = split(dy) if port.shape == FULL else dy.reshape(two_y.shape)
                    found = backward(up, **saved, **two, **settings, axis=(0, 2), wanted=wanted, **keep)
                    self.same(tuple(joined(g) if g.shape == (2, 3, 4) else g for g in found), expected)

    def test_keepdims(self):
        for op, given, settings in problems(optional=False):
            rows = [p for p in op.outputs if p.shape == ROW]
            if not rows:
                self.refused(TypeError, "no argument named 'keepdims'", getattr(libsoftmax, op.name),
                             keepdims=True)
                continue
            call = {k: np.array(a) for k, a in given.items()}
            asked = {"return_" + p.name: True for p in rows if p.optional and p.name != "rank"}
            plain, kept = (getattr(libsoftmax, op.name)(**call, **settings, **asked, keepdims=k)
                           for k in (False, True))
            shapes = libsoftmax.infer(op.name, **call, **settings, keepdims=True)
            for i, p in enumerate(op.outputs):
                a, b = (plain[i], kept[i]) if isinstance(plain, tuple) else (plain, kept)
                if a is not None:
                    self.same(b, a[..., None] if p in rows else a)
                    self.assertEqual(shapes[i][0], b.shape)

    def test_scipy(self):
        special = here("scipy.special")
        if not special:
            self.skipTest("SciPy is not installed")
        x = scores((2, 3, 4), "float64")
        for axis in (None, 0, (0, 2), (2, 1), (0, 1, 2), ()):
            np.testing.assert_allclose(libsoftmax.softmax(x, axis), special.softmax(x, axis), rtol=1e-14)
            np.testing.assert_allclose(libsoftmax.log_softmax(x, axis), special.log_softmax(x, axis),
                                       rtol=1e-12)
            for keepdims in (False, True):
                np.testing.assert_allclose(libsoftmax.logsumexp(x, axis, keepdims=keepdims),
                                           special.logsumexp(x, axis, keepdims=keepdims),
                                           rtol=1e-14)
        self.assertEqual(float(libsoftmax.logsumexp(3.0, None)), 3)

    def test_out(self):
        """Results go where they are wanted whatever the layout, in place too, and nowhere when something is
        wrong."""
        x = scores((2, 3, 4))
        for layout in (np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, -1)[..., ::2]):
            out = layout(np.zeros((2, 3, 4), "f4"))
            self.assertIs(libsoftmax.softmax(x, (0, 2), out=out), out)
            self.same(np.ascontiguousarray(out), libsoftmax.softmax(x, (0, 2)))
            here = layout(x.copy())
            libsoftmax.softmax(here, (0, 2), out=here)
            self.same(np.ascontiguousarray(here), np.ascontiguousarray(out))
        before = out.copy()
        self.refused(ValueError, "temperature: -1", libsoftmax.softmax, x, (0, 2), temperature=-1, out=out)
        self.same(out.copy(), before)
        lse = np.zeros((1, 3, 1), "f4")
        self.assertIs(libsoftmax.logsumexp(x, (0, 2), keepdims=True, out=lse), lse)
        self.refused(ValueError, "logsumexp: lse: shape is (3,), with keepdims not (1, 3, 1)",
                     libsoftmax.logsumexp, x, (0, 2), keepdims=True,
                     out=np.zeros(3, "f4"))

    def test_broadcast(self):
        x, t = scores((2, 3, 4)), np.float32([0.5, 1, 2])
        expected = np.stack([libsoftmax.softmax(x[:, i].copy(), None, temperature=float(t[i]))
                             for i in range(3)], 1)
        self.same(libsoftmax.softmax(x, (0, 2), temperature=t), expected)
        mask = np.array([True, False, True, True])
        self.same(libsoftmax.masked_softmax(x, mask, axis=None),
                  libsoftmax.masked_softmax(x, np.broadcast_to(mask, x.shape).copy(), axis=None))
        self.refused(ValueError, "mask: shape is (3,), which does not broadcast to (2, 3, 4)",
                     libsoftmax.masked_softmax, x, mask[:3], axis=None)

    def test_second_argument(self):
        """An array where the axis goes is no temperature; a number where an array goes is no array."""
        x = scores((2, 3))
        self.same(libsoftmax.softmax(x, 0), libsoftmax.softmax(x, axis=0))
        self.refused(TypeError, "softmax: axis: ndarray is no axis", libsoftmax.softmax, x,
                     np.float32([1, 2]))
        for number in (0, 1.0):
            self.refused(TypeError, "is a number, not an array", libsoftmax.knowledge_distillation, x, number)
            self.refused(ValueError, "is a single number, not an array", libsoftmax.knowledge_distillation, x,
                         np.float32(number))


class Targets(Case):
    def test_no_broadcast(self):
        """A target for each row, and a mass for each class of each row: one for all of them is a mistake more
        often than not."""
        for op, given, settings in problems(optional=False):
            for p in op.inputs:
                call = {k: np.array(a) for k, a in given.items()}
                if p.name not in call or not (p.target or p.name in ("soft_target", "teacher")):
                    continue
                function, full = getattr(libsoftmax, op.name), call[p.name]
                with self.subTest(op=op.name, port=p.name):
                    function(**call, **settings)
                    for wrong in (full[:1], full[0], full[:, None]) if p.target else (full[:1], full[0]):
                        self.refused(ValueError, "%s: %s: shape is " % (op.name, p.name), function,
                                     **{**call, p.name: wrong}, **settings)

    def test_one_row(self):
        loss = libsoftmax.cross_entropy([1.0, 2, 3], 2).loss
        self.assertEqual(loss.shape, ())
        self.same(loss, libsoftmax.cross_entropy(np.array([[1.0, 2, 3]]), np.array([2])).loss[0])

    def test_integers(self):
        """Classes in any width, scores of whole numbers as float64."""
        x, classes = scores((4, 3), "float64"), [0, 2, 1, 2]
        expected = libsoftmax.cross_entropy(x, np.array(classes)).loss
        for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"):
            self.same(libsoftmax.cross_entropy(x, np.array(classes, dtype)).loss, expected)
        self.same(libsoftmax.cross_entropy(x, classes).loss, expected)
        self.refused(ValueError, "row 1 has target -1", libsoftmax.cross_entropy, x, np.int8([0, -1, 1, 1]))
        whole = (x * 3).astype("i8")
        for dtype in ("i1", "i2", "i4", "i8"):
            self.same(libsoftmax.softmax(whole.astype(dtype)), libsoftmax.softmax(whole.astype("f8")))
        self.same(libsoftmax.softmax(abs(whole).astype("u1")), libsoftmax.softmax(abs(whole).astype("f8")))
        self.same(libsoftmax.softmax(whole > 0), libsoftmax.softmax((whole > 0).astype("f8")))

    def test_negative_weights(self):
        x, classes = scores((4, 3)), np.array([0, 2, 1, 2])
        for function in (libsoftmax.cross_entropy, libsoftmax.nll_loss):
            self.refused(ValueError, "class_weight: class 1 has -1, not at least 0", function, x, classes,
                         class_weight=np.array([1, -1, 2]))
        self.refused(ValueError, "class 1 has -1", libsoftmax.cross_entropy, x, soft_target=abs(x),
                     class_weight=np.array([1, -1, 2.0]))

    def test_masses_where_a_class_goes(self):
        x = scores((2, 3))
        for target in (abs(x), [0.0, 1.0]):
            self.refused(TypeError,
                         "cross_entropy: target: is not whole numbers; a mass for each class is soft_target=",
                         libsoftmax.cross_entropy, x, target)

    def test_levels(self):
        """class_level, whole numbers, as an array of whole numbers."""
        x, level = scores((2, 4)), np.array([0, 1])
        call = dict(x=x, target=np.array([0, 3]), level=level)
        self.same(libsoftmax.semantic_softmax(**call, class_level=np.array([0, 0, 1, 1])),
                  libsoftmax.semantic_softmax(**call, class_level=np.float32([0, 0, 1, 1])))


class Masks(Case):
    KEEP = np.array([[True, False, True, True], [False, False, True, False], [True] * 4])

    def test_where(self):
        x = scores((3, 4))
        x[0, 1] = x[1, 0] = np.nan
        hidden = np.where(self.KEEP, x, -np.inf).astype("f4")
        for name in ("softmax", "log_softmax", "logsumexp"):
            function = getattr(libsoftmax, name)
            for dtype in ("f2", "f4", "f8"):
                self.same(function(x.astype(dtype), where=self.KEEP), function(hidden.astype(dtype)))
            self.same(function(x, None, where=self.KEEP), function(hidden, None))
            self.same(function(x, 0, where=self.KEEP.astype("u1")), function(hidden, 0))
            self.same(function(x, where=self.KEEP[:1]),
                      function(np.where(self.KEEP[:1], x, -np.inf).astype("f4")))
        self.same(libsoftmax.softmax(x, where=self.KEEP, temperature=2),
                  libsoftmax.softmax(hidden, temperature=2))
        self.same(libsoftmax.softmax(x, where=self.KEEP), libsoftmax.masked_softmax(x, self.KEEP))
        self.same(libsoftmax.logsumexp_backward(np.ones(3, "f4"), x=x, where=self.KEEP),
                  libsoftmax.softmax(hidden))
        self.assertTrue(np.isnan(x[0, 1]))
        self.refused(TypeError, "softmax: where: dtype is float32, not bool or uint8", libsoftmax.softmax, x,
                     where=x)
        self.refused(ValueError, "where: shape is (3,), which does not broadcast to (3, 4)",
                     libsoftmax.softmax, x, where=self.KEEP[:, 0])

    def test_masked_arrays(self):
        """The mask of numpy.ma is honoured by operators that have one, and no other operator takes such an
        array."""
        x = np.ma.array(scores((3, 4)), mask=~self.KEEP)
        for name in ("softmax", "log_softmax", "logsumexp"):
            self.same(getattr(libsoftmax, name)(x), getattr(libsoftmax, name)(x.data, where=self.KEEP))
        other = np.array([True, True, False, True])
        self.same(libsoftmax.softmax(x, where=other), libsoftmax.softmax(x.data, where=self.KEEP & other))
        self.same(libsoftmax.masked_softmax(x, other), libsoftmax.masked_softmax(x.data, self.KEEP & other))
        self.same(libsoftmax.scaled_masked_softmax(x),
                  libsoftmax.scaled_masked_softmax(x.data, mask=self.KEEP))
        self.same(libsoftmax.sparsemax(np.ma.array(x.data)), libsoftmax.sparsemax(x.data))
        for op, given, settings in problems(optional=False, shape=(3, 4)):
            if op.name in ("softmax", "log_softmax", "logsumexp") or any(p.mask for p in op.inputs):
                continue
            first, *rest = given
            call = {k: np.array(a) for k, a in given.items()}
            for name in (first, *rest):
                masked = np.ma.array(call[name],
                                     mask=np.arange(call[name].size).reshape(call[name].shape) == 0)
                with self.subTest(op=op.name, port=name):
                    self.refused(ValueError, "%s: %s: some elements are masked" % (op.name, name),
                                 getattr(libsoftmax, op.name),
                                 **{**call, name: masked}, **settings)
        self.refused(ValueError, "y: is not a writable array", libsoftmax.softmax, x.data, out=x)
        self.refused(ValueError, "q: some elements are masked", libsoftmax.attention,
                     *[np.ma.array(np.ones((1, 1, 2, 2)), mask=True)] * 3)

    def test_masked_features(self):
        """A mask of pairs is none of features, even where it has their shape."""
        a = np.ma.array(scores((4, 4)), mask=np.eye(4))
        for name in ("info_nce", "nt_xent", "soft_clip_loss"):
            self.refused(ValueError, "%s: a: some elements are masked" % name, getattr(libsoftmax, name), a, a.data)
        self.refused(ValueError, "linear_chain_crf: emissions: some elements are masked",
                     libsoftmax.linear_chain_crf, a, a.data, np.zeros(4, int))

    def test_nothing_is_left(self):
        x = scores((2, 3))
        self.assertTrue((libsoftmax.softmax(x, where=np.zeros(3, bool)) == 0).all())
        self.assertTrue((libsoftmax.logsumexp(x, where=np.zeros(3, bool)) == -np.inf).all())


class Arrays(Case):
    def test_lists(self):
        x = [[1, 2, 3], [0, 0.5, -1]]
        for name in ("softmax", "logsumexp", "sparsemax"):
            self.same(getattr(libsoftmax, name)(x), getattr(libsoftmax, name)(np.array(x)))
        self.same(libsoftmax.softmax(tuple(x), temperature=[0.5, 2]),
                  libsoftmax.softmax(np.array(x), temperature=np.array([0.5, 2])))
        self.same(libsoftmax.masked_softmax(x, [True, False, True]),
                  libsoftmax.masked_softmax(np.array(x), np.array([True, False, True])))
        self.same(libsoftmax.softmax_backward(x, y=x),
                  libsoftmax.softmax_backward(np.array(x), y=np.array(x)))
        self.same(libsoftmax.softmax(range(3)), libsoftmax.softmax(np.arange(3.0)))
        for text in ("abc", b"abc"):
            self.refused(TypeError, "softmax: x: ", libsoftmax.softmax, text)
        self.refused(ValueError, "softmax: x: setting an array element", libsoftmax.softmax, [[1], [1, 2]])
        self.refused(TypeError, "softmax: x: elements", libsoftmax.softmax, [1, "a"])
        self.refused(ValueError, "softmax: y: is not a writable array", libsoftmax.softmax, x, out=x)
        self.refused(ValueError, "softmax: x: ndim is 0", libsoftmax.softmax, 3.0)

    def test_data_frames(self):
        x = scores((3, 2), "float64")
        makers = {"pandas": lambda m: m.DataFrame(x, columns=["a", "b"]), "xarray": lambda m: m.DataArray(x),
                  "polars": lambda m: m.DataFrame({"a": x[:, 0], "b": x[:, 1]})}
        for name, make in makers.items():
            module = here(name)
            if module:
                with self.subTest(name):
                    self.same(libsoftmax.softmax(make(module)), libsoftmax.softmax(x))
                    self.same(libsoftmax.softmax(make(module), 0), libsoftmax.softmax(x, 0))
                    self.same(libsoftmax.softmax(make(module)["a"], 0) if name != "xarray"
                              else libsoftmax.softmax(make(module)[:, 0], 0),
                              libsoftmax.softmax(x[:, 0].copy()))

    def test_whatever_numpy_takes(self):
        """An object whose only way to be an array is NumPy's."""
        class Table:
            def __array__(self, dtype=None, copy=None):
                return scores((2, 3))
        self.same(libsoftmax.softmax(Table()), libsoftmax.softmax(scores((2, 3))))


if __name__ == "__main__":
    unittest.main()
