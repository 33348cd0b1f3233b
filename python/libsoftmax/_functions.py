"""Functions out of the operator table: what arguments one takes, and the function itself."""
import collections
import functools
import inspect
import keyword
from dataclasses import dataclass
from typing import Any

from . import _core, _text

POSITIONAL, NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Argument:
    name: str
    slot: int  # where the core looks for its value
    kind: Any
    default: Any
    what: str  # array, or, number, flag, axis, out, names, or words separated by |
    help: str


def python_name(name):
    return name + "_" if keyword.iskeyword(name) else name


def _number(param):
    if param.choices and 0 <= param.default < len(param.choices):
        return param.choices[int(param.default)]
    return int(param.default) if param.integer else param.default


def _params(op, taken=()):
    for i, p in enumerate(op.params):
        if p.name not in taken:
            what = "|".join(p.choices) if p.choices else "number"
            yield Argument(python_name(p.name), _core.SLOT_PARAM + i, NAMED, _number(p), what, _text.param(p))


def _specials(op, out):
    if not op.matrices:
        yield Argument("axis", _core.SLOT_AXIS, NAMED, -1, "axis", "the axis that rows run along; negative counts from the end")
    yield Argument("out", _core.SLOT_RESULT, NAMED, None, "out", out)
    yield Argument("on_empty", _core.SLOT_ON_EMPTY, NAMED, "zero", "zero|nan|error", "what a row with nothing valid gives")
    yield Argument("on_inf", _core.SLOT_ON_INF, NAMED, "nan", "nan|limit",
                   "what a row of scores with +inf gives: NaN; or they share the mass")


def forward_arguments(op):
    """Inputs, in their order or by name; then, by name, parameters and what all operators take."""
    params = {p.name: p for p in op.params}
    for i, port in enumerate(op.inputs):
        shared, help = params.get(port.name), _text.port(op, port)
        if shared:
            help = "%s. Or a number: %s" % (help.rstrip("."), _text.param(shared))
        default = None if port.optional or port.either else REQUIRED
        yield Argument(python_name(port.name), _core.SLOT_IN + i, POSITIONAL, default, "array or number" if shared else "array", help)
    yield from _params(op, taken={port.name for port in op.inputs})
    for i, port in enumerate(op.outputs):
        if port.optional:
            yield Argument("return_" + port.name, _core.SLOT_OUT + i, NAMED, False, "flag", "also give %s: %s" % (port.name, port.help))
    many = len(op.outputs) > 1
    yield from _specials(op, "a tuple with an array, or None for a new one, for each result" if many else "the array to write to")


def upstream_ports(op):
    """The outputs that have upstream gradients, numbered: not whole numbers, gradients or sums over rows, and four at most."""
    return [(i, port) for i, port in enumerate(op.outputs[:4]) if not (port.integer or port.dx or port.shape == _text.SCALAR)]


def backward_arguments(op):
    """The upstream gradient of the first output; then, by name, those of the others, and what the forward call had."""
    for i, port in upstream_ports(op):
        kind, default = (NAMED, None) if i else (POSITIONAL, REQUIRED)
        yield Argument("d" + port.name, _core.SLOT_DOUT + i, kind, default, "array", "upstream gradient of " + port.name)
    params = {p.name for p in op.params}
    for i, port in enumerate(op.inputs):
        needed = port.saved and not port.optional and not port.either
        what = "array or number" if port.name in params else "array"
        yield Argument(python_name(port.name), _core.SLOT_IN + i, NAMED, REQUIRED if needed else None, what,
                       "as in the forward call" + ("" if port.saved else "; only its shape and dtype matter"))
    for i, port in enumerate(op.outputs):
        if port.saved:
            yield Argument(python_name(port.name), _core.SLOT_OUT + i, NAMED, REQUIRED, "array", "what the forward call gave")
    yield from _params(op, taken={port.name for port in op.inputs})
    yield Argument("wanted", _core.SLOT_WANTED, NAMED, None, "names",
                   "the input whose gradient to give, or a tuple of inputs: %s; %s by default"
                   % (", ".join(p.name for p in op.inputs if p.gradient), op.inputs[0].name))
    yield from _specials(op, "the array to write to; a tuple of arrays when wanted is a tuple")


def signature(arguments):
    return inspect.Signature([inspect.Parameter(a.name, a.kind, default=a.default) for a in arguments])


def _named(function, op, name, arguments, doc):
    function.__name__ = function.__qualname__ = name
    function.__module__ = "libsoftmax"
    function.__signature__ = signature(arguments)
    function.__doc__ = doc
    return function


def forward(op, result):
    """The function of an operator. result: the named tuple of its outputs, or None if there is only one."""
    arguments = list(forward_arguments(op))
    verb, index, slots = _core.forward, op.index, {a.name: a.slot for a in arguments}
    if result:
        def function(*args, **kwargs):
            return result(*verb(index, slots, args, kwargs))
    else:
        def function(*args, **kwargs):
            return verb(index, slots, args, kwargs)
    return _named(function, op, op.name, arguments, _text.forward(op, arguments))


def backward(op):
    arguments = list(backward_arguments(op))
    verb, index, slots = _core.backward, op.index, {a.name: a.slot for a in arguments}

    def function(*args, **kwargs):
        return verb(index, slots, args, kwargs)
    return _named(function, op, op.name + "_backward", arguments, _text.backward(op, arguments))


@functools.cache
def result_type(op):
    """A named tuple of several outputs, None for one. Optional outputs that were not asked for are None."""
    if len(op.outputs) == 1:
        return None
    name = "".join(part.capitalize() for part in op.name.split("_")) + "Result"
    return collections.namedtuple(name, [python_name(p.name) for p in op.outputs], module="libsoftmax")


def make(operators):
    """All functions and result types, by name."""
    made = {}
    for op in operators.values():
        result = result_type(op)
        if result:
            made[result.__name__] = result
        made[op.name] = forward(op, result)
        if op.backward:
            made[op.name + "_backward"] = backward(op)
    return made


def infer(op, args, kwargs):
    return _core.infer(op.index, {a.name: a.slot for a in forward_arguments(op)}, args, kwargs)
