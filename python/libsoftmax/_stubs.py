"""Typing stubs out of the operator table: python -m libsoftmax._stubs FOLDER writes __init__.pyi,
torch/__init__.pyi and jax.pyi there."""
import inspect
import sys
from pathlib import Path

from . import _attention, _functions, _sample, _text
from ._table import OPERATORS

HEADER = '''\
# Made by libsoftmax._stubs out of the operator table.
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, overload

from random import Random

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

class _NumPy(Protocol):  # data frames, and whatever else NumPy makes an array of
    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...

_D = TypeVar("_D", bound=_DLPack)
_R = TypeVar("_R")
_Rows = Sequence[Sequence[float]]
_List = Sequence[float] | _Rows | Sequence[_Rows] | Sequence[Sequence[_Rows]]
_Like = _NumPy | _List | float
_Made = NDArray[np.floating[Any] | np.integer[Any]]
_Array = _DLPack | Buffer | _Like
_Names = tuple[str, ...] | list[str]
_Step = float | _Array | tuple[float | _Array, ...] | Mapping[str, float | _Array] | Mapping[int, float]
'''

PACKAGE = '''
from ._table import AttentionKind as AttentionKind, Operator as Operator, Param as Param, Port as Port, SamplingStep as SamplingStep

ATTENTION_KINDS: dict[str, AttentionKind]
SAMPLING_STEPS: dict[str, SamplingStep]
OPERATORS: dict[str, Operator]
__version__: str
__all__: list[str]
isa: str

def threads(n: int | None = None) -> int: ...
def infer(name: str, *args: Any, **kwargs: Any) -> list[tuple[tuple[int, ...], str]]: ...
'''

FRAMEWORK = '''\
# Made by libsoftmax._stubs out of the operator table.
from collections.abc import Sequence
from typing import Literal, overload
from %s

from %s import %s

__all__: list[str]
'''

WHAT = {"array": "_Array", "array or number": "_Array | float", "number": "float", "flag": "bool",
        "axes": "int | Sequence[int] | None",
        "out": "_Array | Sequence[_Array | None]", "names": "str | _Names | None", "dtype": "dtype"}

# Arrays with DLPack give arrays of their kind, other buffers give memoryviews, and what NumPy makes an array
# of gives one of NumPy's.
KINDS = (("_D", "_D"), ("Buffer", "memoryview"), ("_Like", "_Made"))

# Of functions that no operator stands behind: arguments that are not what their default says, and results.
NONE = {"params": "Mapping[str, float | str]"}
OTHERS = {"kernel": "int | Sequence[int]", "keep": "int", "size": "int"}
RESULTS = {"AttentionResult": ("o", "lse"), "TropicalResult": ("o", "winners"),
           "SelectResult": ("keys", "kept"),
           "RopeResult": ("y", "carry")}
FLAGGED = {"return_lse": "AttentionResult", "return_winners": "TropicalResult", "return_carry": "RopeResult"}


ATTENTION = '''
from collections.abc import Mapping

from %s import AttentionResult, RopeResult, TropicalResult

'''

# Modules, and functions with the arguments that others have, are annotated where they are.
TORCH = '''
from . import nn as nn
from ._familiar import flash_attn_func as flash_attn_func, flash_attn_varlen_func as flash_attn_varlen_func
from ._familiar import flex_attention as flex_attention
from ._familiar import scaled_dot_product_attention as scaled_dot_product_attention

'''


def annotation(argument, array=None):
    if "|" in argument.what:
        words = ", ".join(repr(word) for word in argument.what.split("|"))
        return "Literal[%s]" % words + (" | float" if argument.what not in ("zero|nan|error", "nan|limit")
                                        else "")
    kind = array if array and argument.what == "array" else WHAT[argument.what]
    kind = kind.replace("_Array", array) if array and argument.what == "array or number" else kind
    return kind + (" | None" if argument.default is None else "")


def literal(value):
    return "..." if value in (float("inf"), -float("inf")) else repr(value)


def default(argument):
    return "" if argument.default is _functions.REQUIRED else " = %s" % literal(argument.default)


def written(name, words, result):
    """A def. words: [(whether by name only, its text)]"""
    texts = [text for _, text in words]
    named = [i for i, (by_name, _) in enumerate(words) if by_name]
    if named:
        texts.insert(named[0], "*")
    return "def %s(%s) -> %s: ...\n" % (name, ", ".join(texts), result)


def definition(name, arguments, result, types={}, array=None):
    """types: those of some arguments, which the result depends on: what the default is not has none."""
    words = []
    for a in arguments:
        kind = types.get(a.name) or annotation(a, array)
        words.append((a.kind is _functions.NAMED,
                      "%s: %s%s" % (a.name, kind, "" if kind in ("_Names", "Literal[True]") else default(a))))
    return written(name, words, result)


def overloads(definitions):
    for one in definitions:
        yield "@overload\n" + one


def forward(op):
    named = _functions.result_type(op)
    arguments = [*_functions.forward_arguments(op), *_functions.masks(op)]
    weights = list(_functions.weights(op))
    for first, kind in KINDS:
        result, types = "%s[%s]" % (named.__name__, kind) if named else kind, {arguments[0].name: first}
        if weights:  # a flag makes a tuple of the result
            yield definition(op.name, arguments + weights, result, {**types, "return_sign": "Literal[False]"})
            yield definition(op.name, arguments + weights, "tuple[%s, %s]" % (kind, kind),
                             {**types, "return_sign": "Literal[True]"})
        else:
            yield definition(op.name, arguments, result, types)


def backward(op):
    """One gradient for a name, a tuple of them for several."""
    arguments = [*_functions.backward_arguments(op), *_functions.masks(op)]
    for first, kind in KINDS:
        for wanted, result in ("str | None", kind), ("_Names", "tuple[%s, ...]" % kind):
            yield definition(op.name + "_backward", arguments, result,
                             {arguments[0].name: first, "wanted": wanted})


def result_class(name, fields):
    """fields: [(name, whether it may be None)]"""
    methods = ("index", "count")  # of tuples, which these fields hide
    lines = "".join("    %s: _R%s%s\n"
                    % (field, " | None" * optional, "  # type: ignore[assignment]" * (field in methods))
                    for field, optional in fields)
    return "class %s(NamedTuple, Generic[_R]):\n%s\n" % (name, lines)


def plain(function, first, types={}):
    """The arguments of a function that no operator stands behind: their types are those of the defaults."""
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        kind = types.get(p.name) or OTHERS.get(p.name)
        if not kind:
            kind = first if i == 0 else "_Array"
            if p.default is None:
                kind = NONE.get(p.name, "_Array") + " | None"
            elif p.default is not p.empty:
                kind = type(p.default).__name__
        other = kind == "Literal[True]" or (p.name == "wanted"
                                            and (kind == "str") != isinstance(p.default, str))
        text = "" if p.default is p.empty or other else " = %r" % (p.default,)
        yield p.kind is p.KEYWORD_ONLY, "%s: %s%s" % (p.name, kind, text)


def variants(function, kind):
    """[(types of some arguments, result)]: what the result depends on."""
    parameters = inspect.signature(function).parameters
    flag = next((name for name in FLAGGED if name in parameters), None)
    if flag:
        named = "%s[%s]" % (FLAGGED[flag], kind)
        return [({flag: "Literal[False]"}, kind), ({flag: "Literal[True]"}, named),
                ({flag: "bool"}, "%s | %s" % (kind, named))]
    if "wanted" in parameters:
        return [({"wanted": "str"}, kind), ({"wanted": "_Names"}, "tuple[%s, ...]" % kind)]
    return [({}, "SelectResult[%s]" % kind if function.__name__ == "attention_select" else kind)]


def attention(function):
    first_name = next(iter(inspect.signature(function).parameters))
    for first, kind in KINDS[:2] if first_name == "states" else KINDS:
        first = "Sequence[%s]" % first if first_name == "states" else first
        for types, result in variants(function, kind):
            yield written(function.__name__, list(plain(function, first, types)), result)


def steps(function, types):
    """Arguments of a function that takes steps by name."""
    own = {"steps": "Sequence[tuple[str | float | _Step, ...]] | None",
           "seed": "int | _Array | np.random.Generator | Random", "stream": "int | _Array",
           "axis": WHAT["axes"], "draws": "int | None", "last": "int | None", "rate": "float",
           "method": "Literal[%s]" % repr(_sample.METHODS)[1:-1]}
    for p in inspect.signature(function).parameters.values():
        kind = types.get(p.name) or own.get(p.name) or ("_Step | None" if p.name in _sample.SAMPLING_STEPS
                                                        else "bool")
        text = "" if p.default is p.empty or kind == "Literal[True]" else " = %r" % (p.default,)
        yield p.kind is p.KEYWORD_ONLY, "%s: %s%s" % (p.name, kind, text)


def sample():
    """The indices alone, unless more is asked for."""
    flags = ("return_log", "return_status")
    for first, kind in KINDS:
        yield written("sample",
                      list(steps(_sample.sample, {"x": first, **dict.fromkeys(flags, "Literal[False]")})),
                      kind)
        for flag in flags:
            yield written("sample", list(steps(_sample.sample, {"x": first, flag: "Literal[True]"})),
                          "SampleResult[%s]" % kind)


SAMPLER = '''
class Sampler:
    drawn: int
    tokens: list[list[int]]
    surprise: list[float]
    def feed(self, tokens: _Array) -> None: ...
'''


def sampler():
    yield SAMPLER
    yield "    " + written("__init__", [(False, "self"), *steps(_sample.Sampler, {})], "None")
    for first, kind in KINDS:
        yield "    @overload\n    def __call__(self, x: %s) -> %s: ...\n" % (first, kind)
    yield "\n"


def package():
    yield HEADER + PACKAGE + "\n"
    for name, fields in RESULTS.items():
        yield result_class(name, [(field, False) for field in fields])
    for function in _attention.FUNCTIONS:
        yield from overloads(attention(function))
    yield result_class("SampleResult", [("index", False), ("log", True), ("status", True)])
    yield from overloads(sample())
    yield from sampler()
    for op in OPERATORS.values():
        named = _functions.result_type(op)
        if named:
            yield result_class(named.__name__,
                               [(_functions.python_name(p.name), p.optional) for p in op.outputs])
        yield from overloads(forward(op))
        if op.backward:
            yield from overloads(backward(op))


def reduced(op, arguments, array):
    """A loss is one array, unless more is asked for."""
    flags = [a.name for a in arguments if a.name.startswith("return_")]
    yield definition(op.name, arguments, array, dict.fromkeys(flags, "Literal[False]"), array)
    for flag in flags:
        yield definition(op.name, arguments, "%s[%s]" % (_functions.result_type(op).__name__, array),
                         {flag: "Literal[True]"}, array)


def framework(name, source, array, package):
    """Functions of what gradients are taken of. package: of the results, seen from there."""
    yield FRAMEWORK % (source, package,
                       ", ".join(_functions.result_type(op).__name__
                                 for op in OPERATORS.values() if op.backward and len(op.outputs) > 1))
    for op in OPERATORS.values():
        if not op.backward:
            continue
        arguments = _functions.framework_arguments(op, name)
        if any(p.shape == _text.SCALAR for p in op.outputs):
            yield from overloads(reduced(op, arguments, array))
        else:
            named = _functions.result_type(op)
            yield definition(op.name, arguments, "%s[%s]" % (named.__name__, array) if named else array,
                             array=array)


def framework_attention(array):
    """Attention with automatic gradients, without out=."""
    names = {f.__name__ for f in _attention.FUNCTIONS}
    for function in _attention.FUNCTIONS:
        if function.__name__ + "_backward" in names:
            made = []
            for types, result in variants(function, array):
                words = [w for w in plain(function, array, types) if not w[1].startswith("out:")]
                made.append(written(function.__name__, words, result).replace("_Array", array))
            yield from overloads(made) if len(made) > 1 else made


def without_gradient():
    """libsoftmax.torch has them as the package does."""
    names = (op.name for op in OPERATORS.values() if not op.backward)
    return "from .. import %s\n" % ", ".join("%s as %s" % (name, name) for name in names)


FRAMEWORKS = (("torch", "torch/__init__.pyi", "torch import Tensor, dtype", "Tensor", ".."),
              ("jax", "jax.pyi", "jax import Array\nfrom jax.typing import DTypeLike as dtype", "Array", "."))


def main(folder):
    folder = Path(folder)
    (folder / "__init__.pyi").write_text("".join(package()))
    (folder / "torch").mkdir(exist_ok=True)
    for name, file, source, array, package_name in FRAMEWORKS:
        text = [*framework(name, source, array, package_name), ATTENTION % package_name, *framework_attention(array)]
        (folder / file).write_text("".join(text) + (TORCH + without_gradient() if name == "torch" else ""))


if __name__ == "__main__":
    main(sys.argv[1])
