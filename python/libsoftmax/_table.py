"""The operator table of the library as records. Everything else here is made from it."""
from dataclasses import dataclass

from . import _core


@dataclass(frozen=True)
class Port:
    """An input or an output."""
    name: str
    shape: int  # smx_shape_rule of softmax.h
    optional: bool
    mask: bool
    integer: bool
    gradient: bool  # the backward function can give its gradient
    saved: bool  # the backward function reads it
    either: bool  # exactly one of the inputs with this is given
    dx: bool  # an output that is the gradient of x
    help: str


@dataclass(frozen=True)
class Param:
    """A number, or one of several words."""
    name: str
    help: str
    default: float
    min: float
    max: float
    integer: bool
    open_min: bool  # min itself is not allowed
    nonzero: bool
    max_n: bool  # at most the length of a row
    even: bool  # even whole numbers only
    choices: tuple[str, ...] | None


@dataclass(frozen=True)
class Operator:
    """All there is to know about an operator."""
    index: int
    id: int
    name: str
    family: str
    title: str
    formula: str
    about: str
    source: str
    example: str
    tolerance: float  # largest error of f32 results, in units of 2^-24 of the result's scale
    backward: bool
    inplace: bool
    detached: bool  # its gradient leaves out something that depends on x, as `about` says
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    params: tuple[Param, ...]

    @property
    def matrices(self):
        """Whether it runs over matrices, the last two dimensions of its first input, and not over rows along an axis."""
        return self.family == "matrix"


def _operator(index, record):
    ports = {key: tuple(Port(**p) for p in record.pop(key)) for key in ("inputs", "outputs")}
    return Operator(index=index, params=tuple(Param(**p) for p in record.pop("params")), **ports, **record)


OPERATORS = {record["name"]: _operator(index, record) for index, record in enumerate(_core.operators())}
