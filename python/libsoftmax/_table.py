"""The operator table of the library as records. Everything else here is made from it."""
from dataclasses import dataclass

from . import _core


@dataclass(frozen=True)
class Port:
    """An input or an output."""
    name: str
    shape: int  # smx_shape_rule of softmax.h
    dims: str | None  # the names of its dimensions, as smx_port.dims has them; None where rows have an axis
    optional: bool
    mask: bool
    integer: bool
    target: bool  # of whole numbers: each is a class, or ignore_index
    weight: bool  # a mean over the rows divides by the sum of these at the targets
    gradient: bool  # the backward function can give its gradient
    saved: bool  # the backward function reads it
    either: bool  # exactly one of the inputs with this is given
    dx: bool  # an output that is the gradient of x
    state: bool  # an output that a later call goes on with: never in half precision
    help: str


@dataclass(frozen=True)
class Param:
    """A number, or one of several words."""
    name: str
    help: str
    default: float  # nan: worked out of the call, as help says
    min: float
    max: float
    integer: bool
    open_min: bool  # min itself is not allowed
    nonzero: bool
    max_n: bool  # at most the length of a row
    even: bool  # even whole numbers only
    required: bool  # of a step of sampling: has to be given; default is one to begin with
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
    def rows(self) -> bool:
        """Whether it runs over rows along an axis; otherwise the dimensions of its arrays have names."""
        return self.inputs[0].dims is None


@dataclass(frozen=True)
class AttentionKind:
    """How scores of attention become weights."""
    id: int
    name: str
    title: str
    formula: str  # of the scores z of the n visible keys of a row
    about: str
    source: str
    sinks: bool  # there may be sinks
    backward: bool
    states: bool  # keys may be split among calls
    params: tuple[Param, ...]


@dataclass(frozen=True)
class SamplingStep:
    """What a step does to a row of scores z before a draw; p is their softmax."""
    id: int
    name: str
    title: str
    formula: str
    about: str
    source: str
    tokens: bool  # takes a list of tokens
    values: bool  # and a value for each
    text: bool  # the tokens are the text so far, oldest first
    params: tuple[Param, ...]


def _operator(index, record):
    ports = {key: tuple(Port(**p) for p in record.pop(key)) for key in ("inputs", "outputs")}
    return Operator(index=index, params=tuple(Param(**p) for p in record.pop("params")), **ports, **record)


OPERATORS = {record["name"]: _operator(index, record) for index, record in enumerate(_core.operators())}


def _entries(kind, records):
    return {r["name"]: kind(params=tuple(Param(**p) for p in r.pop("params")), **r) for r in records}


ATTENTION_KINDS = _entries(AttentionKind, _core.attention_kinds())
SAMPLING_STEPS = _entries(SamplingStep, _core.sampling_steps())
