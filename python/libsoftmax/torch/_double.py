"""Gradients of gradients: for some operators, their gradient as an expression of PyTorch's in what
the backward function saved. It is never evaluated for its value, only differentiated, so that first
derivatives have the library's bits."""

import math

import torch

from .._autograd import row_axes


def _along(values, settings):
    return row_axes(values.ndim, settings)


def _centred(y, dy, settings):
    return y * (dy - (y * dy).sum(_along(y, settings), keepdim=True))


def _softmax(d, x, y, dy, settings):
    temperature, base = x[1] if x[1] is not None else settings.get("temperature", 1.0), settings.get(
        "base", math.e
    )
    axes = _along(y, settings)
    if x[1] is not None:
        temperature = _keep(x[1], y.ndim, axes)
    scale = math.log(base) if base != math.e else 1.0
    centred = _centred(y, dy, settings)
    of_temperature = -(centred * torch.where(y > 0, y, 1).log()).sum(axes) / (
        temperature if x[1] is None else x[1]
    )
    return scale / temperature * centred, of_temperature


def _softmin(d, x, y, dy, settings):
    return (-_centred(y, dy, settings) / settings.get("temperature", 1.0),)


def _masked_softmax(d, x, y, dy, settings):
    return (_centred(y, dy, settings) * (x[1] != 0),)


def _plain(d, x, y, dy, settings):
    return (_centred(y, dy, settings),)


def _log_softmax(d, x, y, dy, settings):
    return ((dy - y.exp() * dy.sum(_along(y, settings), keepdim=True)) / settings.get("temperature", 1.0),)


def _keep(row, ndim, axes):
    """One value a row, with the axes of rows put back."""
    if row.ndim < ndim:
        for a in sorted(axes):
            row = row.unsqueeze(a)
    return row


def _logsumexp(d, x, y, dy, settings):
    x, axes = x[0], _along(x[0], settings)
    scaled = x * settings.get("omega", 1.0)
    weights = (scaled - scaled.logsumexp(axes, keepdim=True)).exp()
    return (weights * _keep(dy, x.ndim, axes),)


def _threshold(power):
    """Of y = [x - tau]_+^p: the gradient is weighted by y^power where y is not 0."""
    def formula(d, x, y, dy, settings):
        axes, p = _along(y, settings), power(settings)
        weights = torch.where(y > 0, torch.where(y > 0, y, 1) ** p, 0)
        mean = (weights * dy).sum(axes, keepdim=True) / weights.sum(axes, keepdim=True)
        return (weights * (dy - mean),)
    return formula


def cross_entropy(d, arrays, settings):
    """The outputs (loss, lse, entropy) of cross_entropy as an expression of PyTorch's."""
    x, target, soft, weight = arrays
    axes = row_axes(x.ndim, settings)
    if len(axes) > 1:
        raise RuntimeError("cross_entropy: gradients of gradients are along one axis only")
    value, axis, n = (lambda name: settings.get(name, d.params[name].default)), axes[0], x.shape[axes[0]]
    cap, word = value("softcap"), (lambda name: d.word(name, settings))
    z = (cap * (x / cap).tanh() if cap != math.inf else x) / value("temperature")
    lse = z.logsumexp(axis)
    log_p = z - lse.unsqueeze(axis)
    ignored = (
        target == value("ignore_index") if target is not None else torch.zeros_like(lse, dtype=torch.bool)
    )
    if soft is None:
        index = torch.where(ignored, 0, target).long().unsqueeze(axis)
        soft = torch.zeros_like(x).scatter(axis, index, 1.0)
    entropy = -torch.where(log_p > -math.inf, log_p.exp() * log_p, 0).sum(axis)
    on = torch.ones_like(x) if word("uniform_over") == "all" else (x != -math.inf).to(x.dtype)
    classes, e, kept = on.sum(axis, keepdim=True), value("label_smoothing"), 1.0
    each = torch.zeros_like(classes)
    if word("smoothing") == "uniform_all":
        if n > 1:
            kept, each = 1 - e, e / classes
    elif n > 1:
        e = 1 - e if word("smoothing") == "target_mass" else e
        each = torch.where(classes > 1, e / (classes - 1).clamp(min=1), 0)
        kept = 1 - e - each
    mass = kept * soft + each * on
    if weight is not None:
        shape = [1] * x.ndim
        shape[axis] = -1
        mass = mass * weight.reshape(shape)
    log_p = torch.where((mass != 0) | (log_p > -math.inf), log_p, 0)
    loss = (-mass * log_p).sum(axis) + value("z_weight") * lse ** 2
    return [torch.where(ignored, 0, loss), lse, entropy]


CROSS_ENTROPY_OUTPUTS = (0, 2, 3)  # where loss, lse and entropy are among the outputs


def cross_entropy_vjp(d, arrays, upstream, settings, wanted):
    """Gradients of the inputs with these numbers. upstream: one an output, that of the loss by
    rows; None counts as 0."""
    def outputs(*given):
        full = list(arrays)
        for i, a in zip(wanted, given):
            full[i] = a
        made = cross_entropy(d, full, settings)
        return tuple(y for y, i in zip(made, CROSS_ENTROPY_OUTPUTS) if upstream[i] is not None)
    primal, pull = torch.func.vjp(outputs, *(arrays[i] for i in wanted))
    given = (upstream[i] for i in CROSS_ENTROPY_OUTPUTS if upstream[i] is not None)
    return pull(tuple(g.to(y.dtype).reshape(y.shape) for g, y in zip(given, primal)))


def _cross_entropy(d, arrays, upstream, settings):
    """Of d.wanted: the logits, and soft targets where there are any."""
    soft = arrays[2] is not None
    made = cross_entropy_vjp(d, arrays, upstream, settings, (0, 2) if soft else (0,))
    return (*made, *([] if soft else [None]))


def of_loss(d):
    """Whether a loss has gradients of gradients, which need its inputs."""
    return d.name == "cross_entropy"


# name -> formula(d, inputs, the first output, its upstream gradient, settings) -> gradients of
# the inputs that have one
FORMULAS = {
    "softmax": _softmax,
    "softmin": _softmin,
    "masked_softmax": _masked_softmax,
    "sparse_softmax": _plain,
    "softmax_n": _plain,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "logmeanexp": _logsumexp,
    "mellowmax": _logsumexp,
    "sparsemax": _threshold(lambda settings: 0.0),
    "entmax15": _threshold(lambda settings: 0.5),
    "entmax": _threshold(lambda settings: 2 - settings.get("alpha", 1.5)),
}


def gradients(d, arrays, outputs, upstream, settings):
    """Gradients of the inputs that have one, as far as the formulas go, or None where there is no
    formula."""
    if of_loss(d):
        return _cross_entropy(d, arrays, upstream, settings)
    if d.name not in FORMULAS or (d.name == "entmax" and arrays[1] is not None):
        return None
    return FORMULAS[d.name](d, arrays, outputs[0], upstream[0], settings)


def formula(d, saved, moved, others, refuse):
    """NAME_backward as a function of those of its tensors that are in `moved`, which gives the
    gradients that are wanted. refuse(name): called where there is no formula."""
    def function(*given):
        full = list(saved)
        for i, a in zip(moved, given):
            full[i] = a
        arrays, outputs, upstream, packed, wanted = _library.split_backward(d, (*full, *others))
        found = gradients(d, arrays, outputs, upstream, _library.unpack(d, arrays, *packed))
        if found is None:
            refuse(d.name)
        return tuple(found[d.wanted.index(i)] for i in wanted)
    return function


from . import _library  # noqa: E402  which imports this file
