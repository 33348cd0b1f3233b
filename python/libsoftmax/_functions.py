"""Functions out of the operator table: what arguments one takes, and the function itself."""
import collections
import dataclasses
import functools
import inspect
import keyword
import sys
from dataclasses import dataclass
from typing import Any

from . import _core, _text, _weighted

POSITIONAL, NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Argument:
    name: str
    slot: int | None  # where the core looks for its value
    kind: Any
    default: Any
    what: str  # array, or, number, flag, axes, out, names, or words separated by |
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


def _axis(kind):
    return Argument("axis", _core.SLOT_AXIS, kind, -1, "axes",
                    "the axis that rows run along; negative counts from the end. A tuple: a row has the "
                    "elements of several axes; None: of all. "
                    "What has k elements a row has them last then")


def _specials(op, out):
    if any(p.shape == _text.ROW for p in op.outputs) and op.rows:
        yield Argument("keepdims", _core.SLOT_KEEPDIMS, NAMED, False, "flag",
                       "what has one value a row keeps the axes, of length 1")
    yield Argument("out", _core.SLOT_RESULT, NAMED, None, "out", out)
    yield Argument("on_empty", _core.SLOT_ON_EMPTY, NAMED, "zero", "zero|nan|error",
                   "what a row with nothing valid gives")
    yield Argument("on_inf", _core.SLOT_ON_INF, NAMED, "nan", "nan|limit",
                   "what a row of scores with +inf gives: NaN; or they share the mass")


def _needed(op):
    """Numbers of the inputs that a call cannot do without: those that are not optional, and the first of
    those that exclude each other. Where dimensions have names all come by position."""
    either = [port.name for port in op.inputs if port.either]
    return [i for i, port in enumerate(op.inputs)
            if not op.rows or not port.optional or port.name in either[:1]]


def _input(op, i, kind):
    port, shared = op.inputs[i], {p.name: p for p in op.params}.get(op.inputs[i].name)
    help = _text.port(op, port)
    if shared:
        help = "%s. Or a number: %s" % (help.rstrip("."), _text.param(shared))
    default = None if port.optional or port.either else REQUIRED
    return Argument(python_name(port.name), _core.SLOT_IN + i, kind, default,
                    "array or number" if shared else "array", help)


def forward_arguments(op):
    """By position come x and the other inputs that a call needs, or where it needs no others, x and the axis.
    The rest goes by name: inputs, parameters, what all operators take."""
    needed = _needed(op)
    yield from (_input(op, i, POSITIONAL) for i in needed)
    if op.rows:
        yield _axis(POSITIONAL if len(needed) == 1 else NAMED)
    yield from (_input(op, i, NAMED) for i in range(len(op.inputs)) if i not in needed)
    yield from _params(op, taken={port.name for port in op.inputs})
    for i, port in enumerate(op.outputs):
        if port.optional:
            yield Argument("return_" + port.name, _core.SLOT_OUT + i, NAMED, False, "flag",
                           "also give %s: %s" % (port.name, port.help))
    many = len(op.outputs) > 1
    several = "a tuple with an array, or None for a new one, for each result"
    yield from _specials(op, several if many else "the array to write to")


def framework_arguments(op, framework):
    """Arguments of the functions with automatic gradients: results may have another dtype, and in PyTorch
    losses are means, as its own are, whose gradients may take the place of the logits. framework: torch, jax,
    or None for what both have."""
    arguments = [a for a in forward_arguments(op) if a.name != "out"]
    if framework is None:
        return arguments
    dtype = Argument("dtype", -1, NAMED, None, "dtype", "of the results; by default that of the first input")
    if framework == "jax":
        return [*arguments, *masks(op), dtype]
    donate = Argument("donate_logits", -1, NAMED, False, "flag",
                      "x is given away: its gradient takes its memory, and it is empty afterwards")
    more = [dtype, donate] if any(p.dx for p in op.outputs) else [dtype]
    means = (dataclasses.replace(a, default="mean") if a.name == "reduction" else a for a in arguments)
    return [*means, *more]


def upstream_ports(op):
    """The outputs that have upstream gradients, numbered: not whole numbers, gradients or sums over rows, and
    four at most."""
    return [(i, port) for i, port in enumerate(op.outputs[:4])
            if not (port.integer or port.dx or port.shape == _text.SCALAR)]


def backward_arguments(op):
    """The upstream gradient of the first output; then, by name, those of the others, and what the forward
    call had."""
    for i, port in upstream_ports(op):
        kind, default = (NAMED, None) if i else (POSITIONAL, REQUIRED)
        yield Argument("d" + port.name, _core.SLOT_DOUT + i, kind, default, "array",
                       "upstream gradient of " + port.name)
    params = {p.name for p in op.params}
    for i, port in enumerate(op.inputs):
        needed = port.saved and not port.optional and not port.either
        what = "array or number" if port.name in params else "array"
        yield Argument(python_name(port.name), _core.SLOT_IN + i, NAMED, REQUIRED if needed else None, what,
                       "as in the forward call" + ("" if port.saved else "; only its shape and dtype matter"))
    for i, port in enumerate(op.outputs):
        if port.saved:
            yield Argument(python_name(port.name), _core.SLOT_OUT + i, NAMED, None if port.optional else REQUIRED, "array",
                           "what the forward call gave")
    yield from _params(op, taken={port.name for port in op.inputs})
    yield Argument("wanted", _core.SLOT_WANTED, NAMED, None, "names",
                   "the input whose gradient to give, or a tuple of inputs: %s; %s by default"
                   % (", ".join(p.name for p in op.inputs if p.gradient), op.inputs[0].name))
    if op.rows:
        yield _axis(NAMED)
    yield from _specials(op, "the array to write to; a tuple of arrays when wanted is a tuple")


WHERE = ("softmax", "log_softmax", "logsumexp")  # what SciPy and JAX mask


def masks(op):
    """where=, of functions for arrays of NumPy and JAX; those for PyTorch are without it, as its own are."""
    if op.name in WHERE:
        yield Argument("where", _core.SLOT_WHERE, NAMED, None, "array",
                       "which elements exist, as the mask of numpy.ma has those that do not; broadcasts to x;"
                       " bool or uint8")


def weights(op):
    """b and return_sign of logsumexp, which are SciPy's; the core does not know them."""
    if op.name == "logsumexp":
        yield Argument("b", None, NAMED, None, "array",
                       "weights, of any sign: log |sum b e^x|; what has the weight 0 does not exist. Broadcasts "
                       "with x. Needs NumPy; its gradient is not there")
        yield Argument("return_sign", None, NAMED, False, "flag",
                       "give a tuple (lse, sign): -1, 0 or 1. Without it a sum below 0 has the logarithm NaN")


def reduced_output(op):
    """Which output of a loss is the value for all rows; None of what is no loss."""
    return next((i for i, p in enumerate(op.outputs) if p.shape == _text.SCALAR), None)


def plain(op):
    """The outputs of an operator as the library gives them, always a tuple: (**arguments) -> outputs. Those of
    a loss begin with that of each row whatever its reduction."""
    verb, index, slots = _core.forward, op.index, {a.name: a.slot for a in forward_arguments(op)}
    several = len(op.outputs) > 1

    def function(**kwargs):
        made = verb(index, slots, (), (), kwargs)
        return made if several else (made,)
    return function


def order(arguments):
    """The slots of what may come by position."""
    return tuple(a.slot for a in arguments if a.kind is POSITIONAL)


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
    arguments = [*forward_arguments(op), *masks(op)]
    verb, index, places = _core.forward, op.index, order(arguments)
    slots = {a.name: a.slot for a in arguments}
    reduced = reduced_output(op)
    if reduced is not None:
        flag = "return_" + op.outputs[reduced].name

        def function(*args, **kwargs):
            if kwargs.get("reduction", "none") in ("none", 0):
                return result(*verb(index, slots, places, args, kwargs))
            made = verb(index, slots, places, args, {**kwargs, flag: True})
            return result(made[reduced], *made[1:])
    elif result:
        def function(*args, **kwargs):
            return result(*verb(index, slots, places, args, kwargs))
    else:
        def function(*args, **kwargs):
            return verb(index, slots, places, args, kwargs)
    if op.name == "logsumexp":
        function.__signature__ = signature(arguments)
        function = _weighted.wrap(sys.modules[__package__], function)
        arguments += weights(op)
    return _named(function, op, op.name, arguments, _text.forward(op, arguments))


def backward(op):
    arguments = [*backward_arguments(op), *masks(op)]
    verb, index, places = _core.backward, op.index, order(arguments)
    slots = {a.name: a.slot for a in arguments}

    def function(*args, **kwargs):
        return verb(index, slots, places, args, kwargs)
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
    arguments = [*forward_arguments(op), *masks(op)]
    return _core.infer(op.index, {a.name: a.slot for a in arguments}, order(arguments), args, kwargs)
