"""What modules and functions ask of their arguments; `name` is what the error begins with."""

import torch

REDUCTIONS = ("none", "sum", "mean")


def reduction(name, given, *more):
    if given not in (*REDUCTIONS, *more):
        raise ValueError("%s: reduction: %r is not one of %s" % (name, given, ", ".join((*REDUCTIONS, *more))))
    return given


def whole(name, what, a):
    """As int64; no floats, which would be cut, and no probabilities."""
    if a.dtype == torch.bool or a.is_floating_point() or a.is_complex():
        raise TypeError("%s: %s: dtype is %s, not of whole numbers" % (name, what, a.dtype))
    return a.long()
