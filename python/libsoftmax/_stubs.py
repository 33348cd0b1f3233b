"""Typing stubs out of the operator table: python -m libsoftmax._stubs FOLDER writes __init__.pyi, torch.pyi and jax.pyi there."""
import inspect
import sys
from pathlib import Path

from . import _attention, _functions
from ._table import OPERATORS

HEADER = '''\
# Made by libsoftmax._stubs out of the operator table.
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, overload
from typing_extensions import Buffer

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_D = TypeVar("_D", bound=_DLPack)
_Array = _DLPack | Buffer
'''

PACKAGE = '''
from ._table import Operator as Operator, Param as Param, Port as Port

ATTENTION_KINDS: dict[str, dict[str, Any]]
OPERATORS: dict[str, Operator]
__version__: str
__all__: list[str]
isa: str

def threads(n: int | None = None) -> int: ...
def infer(name: str, *args: Any, **kwargs: Any) -> list[tuple[tuple[int, ...], str]]: ...
'''

FRAMEWORK = '''\
# Made by libsoftmax._stubs out of the operator table.
from typing import Any, Literal
from %s

__all__: list[str]
'''

WHAT = {"array": "_Array", "array or number": "_Array | float", "number": "float", "flag": "bool", "axis": "int",
        "out": "_Array | Sequence[_Array | None]", "names": "str | Sequence[str]"}


def annotation(argument, array=None):
    if "|" in argument.what:
        words = ", ".join(repr(word) for word in argument.what.split("|"))
        return "Literal[%s]" % words + (" | float" if argument.what not in ("zero|nan|error", "nan|limit") else "")
    kind = array if array and argument.what == "array" else WHAT[argument.what]
    kind = kind.replace("_Array", array) if array and argument.what == "array or number" else kind
    return kind + (" | None" if argument.default is None else "")


def default(argument):
    return "" if argument.default is _functions.REQUIRED else " = %s" % literal(argument.default)


def literal(value):
    return "..." if value in (float("inf"), -float("inf")) else repr(value)


def definition(name, arguments, result, first=None, array=None):
    """One def. first: the type of the first argument."""
    words, named = [], False
    for i, a in enumerate(arguments):
        if a.kind is _functions.NAMED and not named:
            words.append("*")
            named = True
        words.append("%s: %s%s" % (a.name, first if first and i == 0 else annotation(a, array), default(a)))
    return "def %s(%s) -> %s: ...\n" % (name, ", ".join(words), result)


def overloads(name, arguments, result):
    """Arrays with DLPack give arrays of their kind, other buffers give memoryviews."""
    for first, kind in ("_D", "_D"), ("Buffer", "memoryview"):
        yield "@overload\n" + definition(name, arguments, result(kind), first)


def result_class(op):
    fields = "".join("    %s: Any\n" % _functions.python_name(p.name) for p in op.outputs)
    return "class %s(NamedTuple):\n%s\n" % (_functions.result_type(op).__name__, fields)


def plain(function):
    """The def of a function that no operator stands behind: the types are those of the defaults, or what it says."""
    words, named = [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not named:
            words.append("*")
            named = True
        if p.default is p.empty:
            words.append("%s: %s" % (p.name, "_Array" if p.annotation is p.empty else p.annotation.__name__))
        else:
            kind = "Any" if p.default is None else "str | Sequence[str]" if isinstance(p.default, tuple) else type(p.default).__name__
            words.append("%s: %s = %r" % (p.name, kind, p.default))
    return "def %s(%s) -> Any: ...\n" % (function.__name__, ", ".join(words))


def package():
    yield HEADER + PACKAGE + "\n"
    yield "class AttentionResult(NamedTuple):\n    o: Any\n    lse: Any\n\n"
    yield "class TropicalResult(NamedTuple):\n    o: Any\n    winners: Any\n\n"
    yield "class SelectResult(NamedTuple):\n    keys: Any\n    kept: Any\n\n"
    yield "class RopeResult(NamedTuple):\n    y: Any\n    carry: Any\n\n"
    for function in _attention.FUNCTIONS:
        yield plain(function)
    for op in OPERATORS.values():
        named = _functions.result_type(op)
        if named:
            yield result_class(op)
        yield from overloads(op.name, list(_functions.forward_arguments(op)), lambda kind: named.__name__ if named else kind)
        if op.backward:
            yield definition(op.name + "_backward", list(_functions.backward_arguments(op)), "Any")


def framework(source, array):
    yield FRAMEWORK % source
    for op in OPERATORS.values():
        if op.backward:
            arguments = [a for a in _functions.forward_arguments(op) if a.name != "out"]
            result = array if len(op.outputs) == 1 else "Any"
            yield definition(op.name, arguments, result, array=array)


def main(folder):
    folder = Path(folder)
    (folder / "__init__.pyi").write_text("".join(package()))
    (folder / "torch.pyi").write_text("".join(framework("torch import Tensor", "Tensor")))
    (folder / "jax.pyi").write_text("".join(framework("jax import Array", "Array")))


if __name__ == "__main__":
    main(sys.argv[1])
