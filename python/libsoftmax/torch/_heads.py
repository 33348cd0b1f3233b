"""Losses of a linear layer whose logits are not kept, with the arguments of torch.nn.functional."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import libsoftmax as _base

from .._table import OPERATORS
from . import _checks, _eager, _library

_OUTPUTS = [port.name for port in OPERATORS["linear_cross_entropy_gradient"].outputs]

made: dict[str, Any] = {}  # functions of operators, by name


class _Reduced(torch.autograd.Function):
    """The gradients come from the walk that makes the loss."""

    @staticmethod
    def forward(ctx, h, w, bias, target, class_weight, settings):
        out, asked = [None] * len(_OUTPUTS), {}
        for name, a, wanted in zip(("dh", "dw", "dbias"), (h, w, bias), ctx.needs_input_grad):
            if wanted:
                asked["return_" + name] = True
                out[_OUTPUTS.index(name)] = torch.empty(a.shape, dtype=a.dtype)
        h, w, bias, class_weight = _library.detached_all((h, w, bias, class_weight))
        result = _base.linear_cross_entropy_gradient(
            h, w, target, bias, class_weight, return_reduced=True, out=tuple(out), **asked, **settings
        )
        ctx.save_for_backward(result.dh, result.dw, result.dbias)
        return result.reduced

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        found = [a if a is None else a * g.to(a.dtype) for a in ctx.saved_tensors]
        return *found, None, None, None


def _reduce(loss, target, class_weight, ignore_index, reduction):
    """What a tracer sees of the reduction."""
    if reduction == "sum":
        return loss.sum()
    counts = target != ignore_index
    if class_weight is None:
        return loss.sum() / counts.sum()
    return loss.sum() / class_weight[target.clamp(min=0)].mul(counts).sum()


def _check(input, linear_weight, target, reduction):
    name = "linear_cross_entropy: "
    for what, a in (("input", input), ("linear_weight", linear_weight), ("target", target)):
        if not isinstance(a, Tensor):
            raise TypeError("%s%s: %s is not a tensor" % (name, what, type(a).__name__))
    _checks.reduction("linear_cross_entropy", reduction)
    if linear_weight.ndim != 2:
        raise ValueError("%slinear_weight: has %d axes, not 2, classes and features" % (name, linear_weight.ndim))
    if input.ndim < 1 or target.shape != input.shape[:-1]:
        raise ValueError("%starget: has the shape %s, not that of input without its last axis, %s"
                         % (name, tuple(target.shape), tuple(input.shape[:-1])))


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    **more: Any,
) -> Tensor:
    """torch.nn.functional.linear_cross_entropy: cross-entropy of input @ linear_weight.T + linear_bias
    in memory that does not grow with the product of rows and classes. input [..., d], linear_weight
    [classes, d], target [...]: a class for each row, on every axis but the last of input. The same
    bits for any number of threads, and of any row whatever is beside it.

    Sums and means cost 6 N C d operations with their gradients, losses of rows ("none") 8. options
    (how PyTorch cuts the batch) changes nothing here. more: z_weight, softcap, temperature, scale
    and keep of libsoftmax.linear_cross_entropy. Class probabilities as targets, [..., classes], are
    given to cross_entropy with all logits in memory."""
    if isinstance(target, Tensor) and target.is_floating_point():
        if ignore_index is not None or more:
            raise TypeError("linear_cross_entropy: %s: not beside class probabilities"
                            % (["ignore_index", *more][ignore_index is None]))
        logits = F.linear(input, linear_weight, linear_bias)
        loss = made["cross_entropy"](
            logits.reshape(-1, logits.shape[-1]), target.reshape(-1, target.shape[-1]), class_weight=weight,
            label_smoothing=label_smoothing, reduction=reduction
        )
        return loss.reshape(input.shape[:-1]) if reduction == "none" else loss
    _check(input, linear_weight, target, reduction)
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("linear_cross_entropy: weight: there is no gradient of it; detach it")
    settings = {"ignore_index": -100 if ignore_index is None else ignore_index, "label_smoothing": label_smoothing, **more}
    h, classes = input.reshape(target.numel(), input.shape[-1]), target.reshape(-1).long()
    arrays = [h, linear_weight, linear_bias, classes, weight]
    if reduction == "none":
        return made["linear_cross_entropy"](h, linear_weight, classes, linear_bias, weight, **settings).loss.reshape(input.shape[:-1])
    if not _eager.plain(arrays):
        loss = made["linear_cross_entropy"](h, linear_weight, classes, linear_bias, weight, **settings).loss
        return _reduce(loss, classes, weight, settings["ignore_index"], reduction)
    settings["reduction"] = reduction
    if torch.is_grad_enabled() and any(a is not None and a.requires_grad for a in arrays):
        return _Reduced.apply(h, linear_weight, linear_bias, classes, weight, settings)
    h, w, bias, class_weight = _library.detached_all((h, linear_weight, linear_bias, weight))
    return _base.linear_cross_entropy_gradient(h, w, classes, bias, class_weight, return_reduced=True, **settings).reduced


__all__ = ["linear_cross_entropy"]
