"""What the tests of the package share: inputs for any operator, and arrays without NumPy."""
import array
import itertools
import math
import random
import struct

import libsoftmax

SHAPE = (3, 8)
FULL, ROW, OFFSETS, COLUMN, K = 0, 1, 2, 3, 4
FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint8": "B", "bool": "?"}


def block(shape, values, dtype="float32"):
    """A memoryview of that shape."""
    format = FORMATS[dtype]
    data = bytearray(struct.pack("%d%s" % (math.prod(shape), format), *values))
    return memoryview(data).cast(format, shape) if shape else memoryview(data).cast(format)


def flat(view):
    """The elements of an array of any kind, in C order."""
    found = view.tolist()
    while found and isinstance(found, list) and isinstance(found[0], list):
        found = list(itertools.chain.from_iterable(found))
    return found if isinstance(found, list) else [found]


def raw(view):
    return memoryview(view).tobytes()


def row_range(op, port):
    """Where values of rows lie: within the range of the parameter that they stand for."""
    for p in op.params:
        if p.name == port.name:
            return max(p.min + 0.1, 0.5), min(p.max, 3)
    return 0.5, 3


def inputs(op, dtype="float32", shape=SHAPE, optional=True):
    """One array for each input, by name, for operators whose inputs follow x along the last axis; None for any other operator."""
    random.seed(op.id)
    made, either = {}, [port.name for port in op.inputs if port.either]
    for port in op.inputs:
        sizes = {FULL: shape, ROW: shape[:-1], COLUMN: shape[-1:], K: (*shape[:-1], 3)}.get(port.shape)
        if (port.optional and not port.either and not optional) or port.name in either[1:]:
            continue
        if port.shape == OFFSETS:
            made[port.name] = block((3,), [0, shape[-1] // 2, shape[-1]], "int64")
        elif sizes is None:
            return None
        elif port.integer:
            made[port.name] = block(sizes, [i % shape[-1] for i in range(math.prod(sizes))], "int64")
        elif port.mask:
            made[port.name] = block(sizes, [i % 4 != 0 for i in range(math.prod(sizes))], "bool")
        else:
            low, high = (-3, 3) if port.shape == FULL else row_range(op, port)
            if "probability of a class" in port.help:
                low, high = 0.1, 1
            made[port.name] = block(sizes, [random.uniform(low, high) for _ in range(math.prod(sizes))], dtype)
    return made


def params(op, n=SHAPE[-1]):
    """Parameters that are not the defaults where the defaults do not suit rows of n."""
    return {p.name: min(p.default, n // 2) for p in op.params if p.max_n}


def problems(**options):
    """(operator, inputs, parameters) for every operator on rows that inputs() knows to feed."""
    for op in libsoftmax.OPERATORS.values():
        made = None if not op.rows else inputs(op, **options)
        if made is not None:
            yield op, made, params(op)


def floats(*values):
    return array.array("f", values)
