"""The functions: an operator's arguments as PyTorch's users write them."""
import functools

import torch

import libsoftmax

from .. import _arrays, _autograd, _core, _functions, _text
from . import _eager, _library

LOSS_DTYPE = torch.float32  # of a loss under autocast, as in PyTorch


def _as_tensor(value):
    if not isinstance(value, torch.Tensor):
        value = torch.as_tensor(_arrays.unmasked(value))
    return value.resolve_neg()


def _narrow(a, port):
    """Whole numbers of the widths that the library has."""
    return (
        a.long()
        if port.integer and a.dtype in (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32)
        else a
    )


def _classes_first(d, given, x):
    """Losses of one class a row have the classes where torch.nn.functional has them."""
    if d.loss and d.target is not None and "axis" not in given and x.ndim > 2:
        given["axis"] = 1


def _soft(d, given):
    """Targets of cross_entropy that are no classes are probabilities, as in torch.nn.functional."""
    target = given.get("target")
    if "soft_target" in d.inputs and isinstance(target, torch.Tensor) and target.is_floating_point():
        if given.get("soft_target") is not None:
            raise TypeError("%s: target: floating, and soft_target is given too" % d.name)
        given["soft_target"] = given.pop("target")


def _wide(arrays, dtype):
    """float64 results of other arrays: x is converted, since the arithmetic follows it."""
    if dtype == torch.float64 and arrays[0].dtype != dtype:
        arrays[0] = arrays[0].to(dtype)
    return None if dtype == arrays[0].dtype else dtype


def _read(d, args, kwargs):
    """(arrays, settings, dtype of the results or None, whether the logits are given away) of a
    call."""
    dtype, donated = kwargs.pop("dtype", None), kwargs.pop("donate_logits", False)
    if donated and d.dx is None:
        raise TypeError(_text.unknown(d.name, "donate_logits", d.names))
    for theirs, ours in (("dim", "axis"), ("keepdim", "keepdims")):
        if theirs in kwargs and ours not in kwargs:
            kwargs[ours] = kwargs.pop(theirs)
    given = d.bind(args, kwargs)
    first = d.inputs[0]
    x = given[first] = d.array(first, given[first], _as_tensor)
    _classes_first(d, given, x)
    _soft(d, given)
    arrays, settings = d.split(given, _as_tensor)
    if d.loss:
        settings.setdefault("reduction", "mean")
    arrays = [a if a is None else _narrow(a, p) for a, p in zip(arrays, d.op.inputs)]
    half = d.loss and x.dtype in _eager.HALF
    if dtype is None and half and torch.is_autocast_enabled("cpu"):
        dtype = LOSS_DTYPE
    return arrays, settings, _wide(arrays, dtype), donated


def make(d):
    _library.register(d)
    known = _core.forms()

    def read(args, kwargs):
        return _read(d, args, dict(kwargs))

    def function(*args, **kwargs):
        if not _eager.dynamo():
            made = known(*args, **kwargs)
            if made is not None:
                return made
        arrays, settings, dtype, donated = read(args, kwargs)
        if not _eager.plain(arrays):
            return d.give(_traced(d, arrays, d.ask(settings), dtype), settings)
        return _eager.call(
            d, known, args, kwargs, arrays, settings, dtype, donated, lambda *given: read(*given)[0]
        )
    return _autograd.dress(function, d, _functions.signature(_functions.framework_arguments(d.op, "torch")))


def without_gradient(name):
    """The function of an operator that has no gradient: where all results are whole numbers, tensors that
    require one are detached; others are refused."""
    function = getattr(libsoftmax, name)
    if not all(p.integer for p in libsoftmax.OPERATORS[name].outputs):
        return function

    @functools.wraps(function)
    def whole(*args, **kwargs):
        kwargs = dict(zip(kwargs, _library.detached_all(kwargs.values())))
        return function(*_library.detached_all(args), **kwargs)
    return whole


def _traced(d, arrays, settings, dtype):
    if torch.is_grad_enabled():
        for i, a in enumerate(arrays):
            if a is not None and a.requires_grad and not d.may_have_gradient(i):
                d.refuse(d.inputs[i])
    asked = d.asked(settings)
    made = _library.call(
        d.name, *arrays, *_library.pack(d, settings), [i for i, a in enumerate(asked) if a], dtype
    )
    return [y if a else None for y, a in zip(made, asked)]
