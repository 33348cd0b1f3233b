"""Forward mode: the product of an operator's Jacobian with a tangent, where that is an operator of
the library, or a row's dot product with one."""

import torch

from .._autograd import FULL, ROW, SCALAR, row_axes
from . import _double, _library

# Operators whose Jacobian with respect to x is symmetric: the gradient operator is the product.
SYMMETRIC = frozenset((
    "softmax", "softmin", "masked_softmax", "scaled_masked_softmax", "segment_softmax", "sparse_softmax",
    "softmax_n", "ssmax", "sparsemax", "entmax15", "entmax", "normmax", "budget_sparsemax", "softcap",
    "sigmoid_attention", "normalized_attention", "unnormalized_attention", "gumbel_softmax",
    "binary_concrete"))


def active():
    """Whether a level of forward mode is entered outside of functorch."""
    return torch.autograd.forward_ad._current_level >= 0


def _refuse(name, of=None):
    what = "" if of is None else " with respect to %s" % of
    raise RuntimeError("%s: forward mode%s is not available" % (name, what))


def _gradient(d, arrays, outputs, upstream, settings, i):
    """The gradient of input i, in the full shape, for an upstream gradient of one output."""
    given = d.upstream_of_rows(arrays, outputs, upstream, settings, _library.FRAME)
    made = _library.call(d.name + "_backward", *arrays, *outputs, *(given[u] for u in d.upstream),
                         *_library.pack(d, settings), [i])
    return made[d.wanted.index(i)]


def _row(d, at, arrays, outputs, tangents, settings):
    """The tangent of output `at`, which has one value a row: the sum over the row of gradient times
    tangent."""
    x, total = arrays[0], 0
    axes, keep = row_axes(x.ndim, settings), bool(settings.get("keepdims", False))
    for i, t in tangents.items():
        upstream = [torch.ones_like(y) if u == at else None for u, y in enumerate(outputs)]
        product = _gradient(d, arrays, outputs, upstream, settings, i) * t
        total = total + product.sum(axes, keepdim=keep)
    return total.to(outputs[at].dtype)


def jvp(d, arrays, outputs, tangents, settings, asked):
    """Tangents of the outputs, None for those that have none."""
    tangents = {i: t for i, t in enumerate(tangents) if t is not None}
    for i in tangents:
        if i not in d.wanted or (i and d.op.inputs[i].shape != FULL):
            _refuse(d.name, d.inputs[i])
    found = [torch.zeros_like(y) if i in d.differentiable else None for i, y in enumerate(outputs)]
    for i in (i for i in d.differentiable if i in asked):
        rule = d.op.outputs[i].shape
        if rule == SCALAR:  # after the rows' own loss
            share = d.share(arrays, settings, _library.FRAME)
            rows = found[0].double() * share
            found[i] = rows.sum().to(outputs[i].dtype).reshape(outputs[i].shape)
        elif rule == ROW:
            found[i] = _row(d, i, arrays, outputs, tangents, settings)
        elif d.name == "log_softmax":
            found[i] = _log_softmax(outputs[0], tangents[0], settings)
        elif d.name in SYMMETRIC and set(tangents) == {0}:
            t = tangents[0].expand(arrays[0].shape)
            found[i] = _gradient(d, arrays, outputs, [t, *[None] * (len(outputs) - 1)], settings, 0)
        else:
            _refuse(d.name)
    return tuple(found)


def _log_softmax(y, t, settings):
    mean = (y.exp() * t).sum(row_axes(y.ndim, settings), keepdim=True)
    return (t - mean) / settings.get("temperature", 1.0)


def forward_rule(d):
    n = len(d.inputs)

    def rule(ctx, *tangents):
        saved = ctx.saved_for_forward
        settings = _library.unpack(d, saved[:n], *ctx.packed)
        outputs = saved[n:]
        return _one(jvp(d, saved[:n], outputs, tangents[:n], settings, ctx.asked))
    return rule


def backward_rule(d):
    """Of the gradient itself, where gradients of gradients are there."""
    def rule(ctx, *tangents):
        saved = ctx.saved_for_forward
        moved = [i for i, t in enumerate(tangents[:len(saved)]) if t is not None]
        formula = _double.formula(d, saved, moved, ctx.others, _refuse)
        _, found = torch.func.jvp(
            formula, tuple(saved[i] for i in moved), tuple(tangents[i] for i in moved)
        )
        made, wanted = [found[0].new_zeros(0)] * len(d.wanted), ctx.others[-1]
        for i, t in zip(wanted, found):
            made[d.wanted.index(i)] = t
        return _one(made)
    return rule


def refused(name):
    def rule(ctx, *tangents):
        _refuse(name)
    return rule


def _one(made):
    return made[0] if len(made) == 1 else tuple(made)
