"""What the tests of the frameworks share: a problem for every operator with a gradient, and the
ways to call it."""

import math
import sys

from libsoftmax._text import SCALAR

from support import block, flat, problems


def differentiable(dtype="float64", exact=True):
    """(operator, inputs, parameters) where the gradient is the derivative; without exact also where
    it is defined to differ from that."""
    for op, given, settings in problems(dtype=dtype):
        if not op.backward or (exact and (op.detached or "gradient" in {p.name for p in op.params})):
            continue
        settings |= {p.name: "no" for p in op.params if p.name in ("detach", "straight_through")}
        if op.name == "fidelity_loss":  # its targets are probabilities
            given["soft_target"] = block(
                given["soft_target"].shape,
                [1 / (1 + math.exp(-t)) for t in flat(given["soft_target"])],
                dtype,
            )
        yield op, given, settings


def has_gradient(op, i):
    """Whether there is one of output i: others are metrics, or gradients themselves."""
    port = op.outputs[i]
    return not (port.integer or port.dx) and (i < 4 or port.shape == SCALAR)


def functions_run(function):
    """What function() gives, and the names of the Python functions that run meanwhile."""
    names = []

    def count(frame, event, argument):
        if event == "call":
            names.append(frame.f_code.co_name)
    sys.setprofile(count)
    try:
        return function(), names
    finally:
        sys.setprofile(None)


def variants(op):
    """Settings: everything is asked for that may be, in every reduction."""
    everything = {"return_" + p.name: True for p in op.outputs if p.optional}
    reductions = next((p.choices for p in op.params if p.name == "reduction"), None)
    return [{**everything, "reduction": r} for r in reductions] if reductions else [everything]
