"""The package without NumPy or any framework: buffers in, memoryviews out, errors, threads, lifetime. Needs the standard library only."""
import array
import ctypes
import gc
import inspect
import keyword
import math
import pickle
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import libsoftmax
from libsoftmax import _core, _functions

from support import block, flat, floats, problems, raw


class Table(unittest.TestCase):
    def test_every_operator_is_a_function(self):
        self.assertEqual(len(libsoftmax.OPERATORS), len(_core.operators()))
        for op in libsoftmax.OPERATORS.values():
            function = getattr(libsoftmax, op.name)
            self.assertIn(op.name, libsoftmax.__all__)
            self.assertEqual(hasattr(libsoftmax, op.name + "_backward"), op.backward)
            for part in (op.title, op.name + "_backward" if op.backward else "Source"):
                self.assertIn(part, function.__doc__)
            text = " ".join(function.__doc__.split())
            for part in (op.formula, op.about, op.source, "%g units of 2^-24" % op.tolerance):
                self.assertIn(" ".join(part.split()), text)
            for item in (*op.inputs, *op.outputs, *op.params):
                self.assertIn(" ".join(item.help.rstrip(".").split()), text, item.name)

    def test_arguments_have_different_names(self):
        for op in libsoftmax.OPERATORS.values():
            lists = [_functions.forward_arguments(op)] + ([_functions.backward_arguments(op)] if op.backward else [])
            for arguments in map(list, lists):
                names, slots = [a.name for a in arguments], [a.slot for a in arguments]
                self.assertEqual(len(set(names)), len(names), op.name)
                self.assertEqual(len(set(slots)), len(slots), op.name)
                self.assertFalse([n for n in names if keyword.iskeyword(n) or not n.isidentifier()])

    def test_names_of_the_package_stay_free(self):
        mine = {"OPERATORS", "Operator", "Param", "Port", "infer", "isa", "sample", "threads", "torch", "jax",
                "ATTENTION_KINDS", "AttentionKind", "AttentionResult", "SAMPLING_STEPS", "SamplingStep", "Sampler",
                *libsoftmax._attention_functions}
        self.assertFalse(mine & set(libsoftmax._made))

    def test_signature(self):
        self.assertEqual(str(inspect.signature(libsoftmax.hardmax)),
                         "(x, axis=-1, *, ties='first', gradient='zero', temperature=1.0, out=None, on_empty='zero', on_inf='nan')")
        self.assertEqual(list(inspect.signature(libsoftmax.cross_entropy).parameters)[:3], ["x", "target", "axis"])
        self.assertEqual(str(inspect.signature(libsoftmax.logsumexp_backward)),
                         "(dlse, *, x, wanted=None, axis=-1, keepdims=False, out=None, on_empty='zero', on_inf='nan', where=None)")

    def test_the_axis_comes_second(self):
        """By position: x and the inputs that a call needs, or x and the axis; on rows nothing else."""
        for op in libsoftmax.OPERATORS.values():
            parameters = inspect.signature(getattr(libsoftmax, op.name)).parameters.values()
            found = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
            either = [p.name for p in op.inputs if p.either][:1]
            needed = [p.name for p in op.inputs if not op.rows or not p.optional or p.name in either]
            with self.subTest(op.name):
                self.assertEqual(found, needed if not op.rows or len(needed) > 1 else [*needed, "axis"])

    def test_pickle(self):
        self.assertIs(pickle.loads(pickle.dumps(libsoftmax.softmax)), libsoftmax.softmax)


class Matrices(unittest.TestCase):
    A, B, X, V = block((3, 2), [1, 2, 0, -1, 3, 1], "float64"), block((3,), [0.5, 0, 1], "float64"), (0.2, -0.1), (1, -2)

    def near(self, found, wanted, places=12):
        for a, b in zip(flat(found), wanted, strict=True):
            self.assertAlmostEqual(a, b, places)

    def test_weights_and_gradients(self):
        x = block((3, 3), [1, 2, 3, 0, 1, 0, 2, 0, 1], "float64")
        y = libsoftmax.sinkhorn(x, steps=201)
        self.near(y, [0.0994305659, 0.2881185326, 0.6124509015, 0.2113586348, 0.6124509015, 0.1761904637, 0.6892107993, 0.0994305659,
                      0.2113586348], 9)
        dy = block((3, 3), [1, -2, 0.5, 0, 1, 2, -1, 3, 0.25], "float64")
        steps, limit = (libsoftmax.sinkhorn_backward(dy, x=x, y=y, steps=201, gradient=how) for how in ("steps", "limit"))
        self.near(steps, flat(limit))
        self.assertEqual(raw(libsoftmax.sinkhorn(x, steps=1)), raw(libsoftmax.softmax(x)))
        self.near(libsoftmax.orthostochastic(x), [0.2, 0.609523809524, 0.190476190476, 0, 0.238095238095, 0.761904761905, 0.8,
                                                  0.152380952381, 0.047619047619])
        with self.assertRaisesRegex(ValueError, r"x: shape\[1\] is 2, not 3, which is n"):
            libsoftmax.orthostochastic(self.A)
        self.assertEqual(str(inspect.signature(libsoftmax.orthostochastic)), "(x, *, out=None, on_empty='zero', on_inf='nan')")

    def test_objectives(self):
        x, v = block((2,), self.X, "float64"), block((2,), self.V, "float64")
        found = libsoftmax.logsumexp_objective(self.A, self.B, x, v, mu=0.5, return_gradient=True, return_hessian_v=True)
        self.near(found.f, [0.335747640535019])
        self.near(found.gradient, [0.751863174830844, -0.0601710314614451])
        self.near(found.hessian_v, [-1.31155799832323, -4.27096860981199])
        self.assertIsNone(found.third_vv)
        found = libsoftmax.softmax_regression(self.A, block((3,), [0.2, 0.3, 0.5], "float64"), x, return_gradient=True)
        self.near(found.f, [0.00406759890069769])
        self.near(found.gradient, [-0.0455303256455741, 0.0175410553968112])
        with self.assertRaisesRegex(ValueError, "logsumexp_objective: mu: 0 is out of range"):
            libsoftmax.logsumexp_objective(self.A, self.B, x, mu=0)
        with self.assertRaisesRegex(ValueError, "b: shape"):
            libsoftmax.logsumexp_objective(self.A, x, x)

    def test_distributions(self):
        x = block((3, 4), [2, 1, 0.1, -1, 0.5, -0.3, 1.2, 0, 0, 3, -2, 0.5], "float64")
        mix = block((3,), [0.5, -1, 0.25], "float64")
        found = libsoftmax.jensen_shannon_divergence(x, mix, return_dx=True)
        self.near(found.loss, [0.32996048072879394])
        self.near(found.dx, [0.126633517156539, -0.10122176056873, -0.0125423142293213, -0.0128694423584869, -0.0283509447936973,
                             -0.0257906566165909, 0.0498806172442828, 0.00426098416600538, -0.0436599265418424, 0.0590306053865396,
                             -0.00765929587386588, -0.00771138297283125], 9)
        self.near(libsoftmax.jensen_shannon_centroid(x, mix),
                  [0.3567273730062621, 0.4922408579865097, 0.08511268405975726, 0.06591908494747096], 8)
        votes = block((4, 3), [0, 0, 1, 1, 1, 1, 0, 0, -1, 1, 0, 1], "float64")
        self.near(libsoftmax.worker_agreement(votes, k=2), [21 / 29, 8 / 29, 0, 1, 1, 0, 9 / 29, 20 / 29])
        self.assertEqual([round(p) for p in flat(libsoftmax.dawid_skene(votes, k=2))], [1, 0, 0, 1, 1, 0, 0, 1])
        with self.assertRaisesRegex(ValueError, r"dawid_skene: x: \[0, 2\] is 1, no class of 0..0"):
            libsoftmax.dawid_skene(votes, k=1)


class Spread:
    """Elements of a flat memoryview, two apart, as DLPack shows them: a buffer of the standard library cannot have strides in C order."""

    def __init__(self, spread, shape):
        self.store = _core.Storage(tuple(shape) + (2,), {"f": "float32", "d": "float64", "q": "int64", "?": "bool"}[spread.format])
        memoryview(self.store).cast("B")[:] = spread.cast("B")

    def __dlpack__(self):
        """The capsule of the store without its last dimension of 2."""
        capsule, get = self.store.__dlpack__(), ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_int32.from_address(get(capsule, b"dltensor") + 16).value -= 1  # DLTensor: data, device, ndim
        return capsule


class Results(unittest.TestCase):
    def close(self, found, expected, tolerance=1e-6):
        found = flat(found)
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertTrue(a == b or abs(a - b) <= tolerance, (found, expected))

    def test_values(self):
        x = floats(1, 2, 3)
        total = sum(math.exp(v) for v in x)
        self.close(libsoftmax.softmax(x), [math.exp(v) / total for v in x])
        self.close(libsoftmax.logsumexp(x), [math.log(total)])
        self.close(libsoftmax.softmax(x, temperature=0.5), flat(libsoftmax.softmax(floats(2, 4, 6))))
        self.close(libsoftmax.softmax(block((1, 3), x), temperature=floats(0.5)), flat(libsoftmax.softmax(x, temperature=0.5)))
        self.assertEqual(flat(libsoftmax.hardmax(floats(1, 3, 3), ties="split")), [0, 0.5, 0.5])
        self.assertEqual(flat(libsoftmax.hardmax(floats(1, 3, 3), ties=1)), [0, 0.5, 0.5])
        self.assertEqual(flat(libsoftmax.masked_softmax(floats(1, 9, 1), bytes([1, 0, 1]))), [0.5, 0, 0.5])

    def test_kinds(self):
        for x in (floats(1, 2), memoryview(floats(1, 2)), array.array("d", [1, 2])):
            y = libsoftmax.softmax(x)
            self.assertIsInstance(y, memoryview)
            self.assertEqual(y.format, memoryview(x).format)

    def test_without_numpy(self):
        program = "import array, sys, libsoftmax; libsoftmax.softmax(array.array('f', [1, 2])); sys.exit('numpy' in sys.modules)"
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_shapes_are_those_that_infer_tells(self):
        for op, given, settings in problems():
            with self.subTest(op.name):
                found = getattr(libsoftmax, op.name)(**given, **settings)
                outputs = found if isinstance(found, tuple) else (found,)
                expected = libsoftmax.infer(op.name, **given, **settings)
                self.assertEqual(len(expected), len(op.outputs))
                for port, y, (shape, dtype) in zip(op.outputs, outputs, expected):
                    if y is not None:
                        self.assertEqual((y.shape, y.format), (shape, {"float32": "f", "int32": "i", "int64": "q"}[dtype]))

    def test_out(self):
        for op, given, settings in problems(optional=False):
            if len(op.outputs) > 1:
                continue
            with self.subTest(op.name):
                function = getattr(libsoftmax, op.name)
                y = function(**given, **settings)
                mine = block(y.shape, [7] * math.prod(y.shape), "float32")
                self.assertIs(function(**given, **settings, out=mine), mine)
                self.assertEqual(raw(mine), raw(y))
                if op.inplace:
                    x = next(iter(given.values()))
                    self.assertIs(function(**given, **settings, out=x), x)
                    self.assertEqual(raw(x), raw(y))

    def test_strides(self):
        """Every second element of wider rows: the same bits."""
        for op, given, settings in problems():
            with self.subTest(op.name):
                function = getattr(libsoftmax, op.name)
                wide = {}
                for name, a in given.items():
                    spread = memoryview(bytearray(2 * a.nbytes)).cast(a.format)
                    values = flat(a)
                    for i, v in enumerate(values):
                        spread[i * 2] = v
                    wide[name] = Spread(spread, a.shape)
                first, second = function(**given, **settings), function(**wide, **settings)
                for a, b in zip(first if isinstance(first, tuple) else (first,), second if isinstance(second, tuple) else (second,)):
                    self.assertEqual(a is None or raw(a), b is None or raw(b))

    def test_gradients_are_differences(self):
        """In f64, every gradient of every operator against central differences."""
        for op, given, settings in problems(dtype="float64"):
            if any(p.name == "straight_through" for p in op.params):
                settings["straight_through"] = "no"
            if op.backward and len(op.outputs) == 1:
                with self.subTest(op.name):
                    self.check_gradients(op, given, settings)

    def check_gradients(self, op, given, settings, step=1e-6):
        function, name = getattr(libsoftmax, op.name), op.outputs[0].name
        y = function(**given, **settings)
        up = [math.sin(1 + i) if math.isfinite(v) else 0 for i, v in enumerate(flat(y))]
        wanted = tuple(p.name for p in op.inputs if p.gradient)
        saved = {name: y} if op.outputs[0].saved else {}
        found = getattr(libsoftmax, op.name + "_backward")(block(y.shape, up, "float64"), **saved, **given, **settings, wanted=wanted)
        self.assertEqual(len(found), len(wanted))
        for name, gradient in zip(wanted, found):
            self.assertEqual(gradient.shape, given[name].shape)
            values = flat(given[name])
            for i in range(0, len(values), 5):
                sides = []
                for side in (step, -step):
                    moved = list(values)
                    moved[i] += side
                    call = {**given, name: block(given[name].shape, moved, "float64")}
                    sides.append(sum(u * v for u, v in zip(up, flat(function(**call, **settings))) if u))
                self.assertAlmostEqual(flat(gradient)[i], (sides[0] - sides[1]) / (2 * step), delta=1e-6, msg="%s of %s" % (name, op.name))


class Errors(unittest.TestCase):
    def refused(self, kind, text, function, *args, **kwargs):
        with self.assertRaises(kind) as caught:
            function(*args, **kwargs)
        self.assertEqual(str(caught.exception), text)

    def test_messages(self):
        x, soft, value, wrong = floats(1, 2, 3), libsoftmax.softmax, ValueError, TypeError
        self.refused(value, "softmax: temperature: -1 is out of range: 0 to inf", soft, x, temperature=-1)
        self.refused(value, "softmax: axis is 1, not -1..0", soft, x, axis=1)
        self.refused(value, "softmax: axis is 4294967296, far out of range", soft, x, axis=2**32)
        self.refused(value, "softmax: y: shape[0] is 2, not 3", soft, x, out=floats(1, 2))
        self.refused(value, "softmax: y: is not a writable array", soft, x, out=bytes(12))
        self.refused(value, "hardmax: ties: 'third' is not a number or a choice", libsoftmax.hardmax, x, ties="third")
        self.refused(value, "softmax: on_empty: 'no' is not 'zero', 'nan' or 'error'", soft, x, on_empty="no")
        self.refused(value, "softmax: row 0 has nothing valid", soft, floats(-math.inf), on_empty="error")
        self.refused(value, "softmax: wanted: 'z' is no input", libsoftmax.softmax_backward, x, y=x, wanted="z")
        self.refused(value, "softmax: y: overlaps x", soft, memoryview(x)[1:], out=memoryview(x)[:2])
        self.refused(wrong, "softmax: x is missing", soft)
        self.refused(wrong, "softmax: x is missing", soft, None)
        self.refused(wrong, "masked_softmax: mask is missing", libsoftmax.masked_softmax, x)
        self.refused(wrong, "softmax: y is missing", libsoftmax.softmax_backward, x)
        self.refused(wrong, "softmax: x is given twice", soft, x, x=x)
        self.refused(wrong, "softmax: no argument named 'heat'", soft, x, heat=1)
        self.refused(wrong, "softmax: 3 arguments by position, at most 2; the others go by name", soft, x, 0, x)
        self.refused(wrong, "softmax_backward: 2 arguments by position, at most 1; the others go by name", libsoftmax.softmax_backward, x, x)
        self.refused(wrong, "softmax: x: dtype (code 2, bits 128, lanes 1) is not supported", soft, (ctypes.c_longdouble * 2)())
        self.refused(wrong, "softmax: x: dict shows no array by the buffer protocol or DLPack", soft, {})
        for name, meant in {"dim": "axis", "temperatur": "temperature", "input": "x"}.items():
            self.refused(wrong, "softmax: no argument named '%s'; here it is '%s'" % (name, meant), soft, x, **{name: 1})
        with unittest.mock.patch.dict(sys.modules, numpy=None):
            self.refused(wrong, "softmax: x: list shows no array by the buffer protocol or DLPack, and there is no NumPy to make one of it",
                         soft, [1, 2])
        self.refused(wrong, "masked_softmax: mask: 0 is a number, not an array", libsoftmax.masked_softmax, x, 0)
        self.refused(wrong, "softmin: temperature: is one number for all rows, not an array", libsoftmax.softmin, x, temperature=x)
        self.refused(wrong, "softmax: base: '2' is not a number", soft, x, base="2")
        self.refused(wrong, "softmax: wanted: 3 is no name of an input, nor a tuple of them", libsoftmax.softmax_backward, x, y=x, wanted=3)
        self.refused(wrong, "softmax: on_inf: 1 is not 'nan', 'limit'", soft, x, on_inf=1)
        self.refused(value, "softmax: base: %d is out of range" % 10**400, soft, x, base=10**400)

    def test_axes(self):
        """What is no axis is refused, whatever else it could have meant."""
        x, soft = block((2, 3), range(6)), libsoftmax.softmax
        for bad in (0.5, True, "last", x, [0.5]):
            self.assertRaisesRegex(TypeError, "softmax: axis: .* is no axis", soft, x, bad)
        self.refused(ValueError, "softmax: axis: -1 is given twice", soft, x, (1, -1))
        self.refused(ValueError, "softmax: axis is 2, not -2..1", soft, x, (0, 2))
        self.refused(ValueError, "softmax: axis is 4294967296, far out of range", soft, x, (0, 2**32))
        whole = soft(memoryview(x).cast("B").cast("f"))
        for axes in (None, (0, 1), [1, 0], (-1, -2)):
            self.assertEqual(raw(soft(x, axes)), raw(whole))
        lse = libsoftmax.logsumexp(x, keepdims=True)
        self.assertEqual((lse.shape, raw(lse)), ((2, 1), raw(libsoftmax.logsumexp(x))))

    def test_nothing_is_written(self):
        y = floats(7, 7, 7)
        self.assertRaises(ValueError, libsoftmax.softmax, floats(1, 2, 3), temperature=-1, out=y)
        self.assertEqual(list(y), [7, 7, 7])

    def test_policies(self):
        nothing, infinite = floats(-math.inf, -math.inf), floats(math.inf, 1)
        self.assertEqual(flat(libsoftmax.softmax(nothing)), [0, 0])
        self.assertTrue(all(map(math.isnan, libsoftmax.softmax(nothing, on_empty="nan"))))
        self.assertTrue(all(map(math.isnan, libsoftmax.softmax(infinite))))
        self.assertEqual(flat(libsoftmax.softmax(infinite, on_inf="limit")), [1, 0])

    def test_core_refuses_what_is_not_a_call(self):
        for args in ((), (0,), (0, {}, (), (), ()), ("softmax", {}, (), (), {}), (10**6, {}, (), (), {}), (-1, {}, (), (), {})):
            with self.assertRaises((TypeError, ValueError, OverflowError)):
                _core.forward(*args)
        with self.assertRaises(SystemError):
            _core.forward(0, {"x": 10**6}, (), (), {"x": 1})


class Threads(unittest.TestCase):
    def tearDown(self):
        libsoftmax.threads(1)

    def test_same_bits(self):
        x = block((64, 1000), [math.sin(i) * 9 for i in range(64000)])
        one = libsoftmax.softmax(x)
        for n in (2, 3, -1):
            self.assertEqual(libsoftmax.threads(n), libsoftmax.threads())
            self.assertEqual(raw(libsoftmax.softmax(x)), raw(one))
        for bad in (0, -2, 2**40):
            self.assertRaises(ValueError, libsoftmax.threads, bad)
        self.assertRaises(TypeError, libsoftmax.threads, 1.5)

    def test_the_interpreter_runs_meanwhile(self):
        """While one thread is in a long call, another runs Python."""
        x = memoryview(bytearray(1 << 26)).cast("f")
        y = memoryview(bytearray(1 << 26)).cast("f")
        ticks, done = [], threading.Event()

        def work():
            for _ in range(3):
                libsoftmax.softmax(x, out=y)
            done.set()
        begin = time.monotonic()
        worker = threading.Thread(target=work)
        old = sys.getswitchinterval()
        sys.setswitchinterval(60)  # so that only a released lock lets this thread on
        try:
            worker.start()
            while not done.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)
        finally:
            sys.setswitchinterval(old)
        worker.join()
        self.assertGreater(len(ticks), 5, "in %.3f s" % (time.monotonic() - begin))

    def test_contexts_may_change_during_calls(self):
        x = block((16, 500), [math.cos(i) for i in range(8000)])
        expected, wrong = raw(libsoftmax.softmax(x)), []

        def work():
            for _ in range(100):
                if raw(libsoftmax.softmax(x)) != expected:
                    wrong.append(1)
        workers = [threading.Thread(target=work) for _ in range(3)]
        for w in workers:
            w.start()
        for i in range(50):
            libsoftmax.threads(1 + i % 3)
        for w in workers:
            w.join()
        self.assertFalse(wrong)


class Lifetime(unittest.TestCase):
    def test_ctypes(self):
        """A buffer that says nothing of strides."""
        x = ((ctypes.c_float * 3) * 2)((1, 2, 3), (4, 5, 7))
        self.assertEqual(raw(libsoftmax.softmax(x)), raw(libsoftmax.softmax(block((2, 3), (1, 2, 3, 4, 5, 7)))))

    def test_results_outlive_their_makers(self):
        y = libsoftmax.softmax(floats(1, 2, 3))
        gc.collect()
        self.assertAlmostEqual(sum(y), 1, delta=1e-6)

    def test_storage(self):
        store = _core.Storage((2, 3), "float32")
        self.assertEqual(memoryview(store).shape, (2, 3))
        self.assertEqual(store.__dlpack_device__(), (1, 0))
        for version in (None, (1, 0), (0, 8)):
            capsule = store.__dlpack__(max_version=version)
            self.assertIn("dltensor_versioned" if version == (1, 0) else "dltensor", repr(capsule))
        self.assertRaises(BufferError, store.__dlpack__, copy=True)
        self.assertRaises(BufferError, memoryview, _core.Storage((2,), "bfloat16"))
        self.assertRaises(TypeError, _core.Storage, (2,), "int8")
        self.assertRaises(ValueError, _core.Storage, (-2,), "int32")
        self.assertRaises(ValueError, _core.Storage, (1,) * 9, "int32")
        self.assertRaises(MemoryError, _core.Storage, (2**40, 2**40), "int32")
        self.assertEqual(libsoftmax.softmax(_core.Storage((0, 3), "float32")).shape, (0, 3))

    def test_no_references_are_kept(self):
        """Calls that succeed and calls that fail at every stage leave the reference counts as they were."""
        x, y, mask = floats(1, 2, 3), floats(0, 0, 0), bytes([1, 1, 0])
        soft, masked, back, lse = libsoftmax.softmax, libsoftmax.masked_softmax, libsoftmax.softmax_backward, libsoftmax.logsumexp
        whole = array.array("i", [1, 2, 3])
        calls = [lambda: soft(x, out=y), lambda: soft(x), lambda: masked(x, mask), lambda: back(x, y=y, wanted=("x",)), lambda: soft(x, out=mask),
                 lambda: soft(x, y, x), lambda: soft(x, y), lambda: soft(x, (0, 5)), lambda: soft(x, None, out=y), lambda: soft(x, where=mask),
                 lambda: soft(whole), lambda: soft(x, dim=0), lambda: soft({}), lambda: lse(x, None, keepdims=True), lambda: soft(x, axis=5),
                 lambda: soft(x, temperature="a"), lambda: masked(x, y), lambda: back(x, y=y, wanted=("x", "y")),
                 lambda: back(x, y=y, out=mask), lambda: libsoftmax.infer("softmax", x)]

        def run():
            for call in calls:
                try:
                    call()
                except (TypeError, ValueError):
                    pass
        for _ in range(300):  # the first rounds fill the caches of the interpreter: some 500 blocks
            run()
        gc.collect()
        held = [sys.getrefcount(o) for o in (x, y, mask)]
        blocks = sys.getallocatedblocks()
        for _ in range(2000):
            run()
        gc.collect()
        self.assertEqual([sys.getrefcount(o) for o in (x, y, mask)], held)
        self.assertLess(sys.getallocatedblocks() - blocks, 1000)


if __name__ == "__main__":
    unittest.main()
