"""The operators of libsoftmax for PyTorch, with the arguments they have in libsoftmax, without out=
where they have a gradient.

    from libsoftmax.torch import softmax, cross_entropy
    cross_entropy(logits, classes, label_smoothing=0.1).backward()

Tensors are used where they are, on the CPU, without a copy. Losses give the mean over the rows, as
those of torch.nn.functional do, or what reduction= says. torch.compile, torch.export, vmap and
torch.func see one operator each. Gradients of gradients are there for softmax and its relatives,
logsumexp, sparsemax, entmax and cross_entropy, and an error elsewhere. dtype= is that of the
results: a loss in float32 of logits in bfloat16, which autocast chooses by itself; nothing else is
converted under autocast, because sums are in float32 anyway.

Attention: attention, attention_parallax, attention_local_linear, attention_additive,
attention_tropical and rope as in libsoftmax; scaled_dot_product_attention with PyTorch's arguments,
flash_attn_func and flash_attn_varlen_func with FlashAttention's, flex_attention with what is done
to scores by name. libsoftmax.torch.nn has modules with the names and arguments of torch.nn's;
importing libsoftmax.torch.transformers makes attn_implementation="libsoftmax" known there."""

import libsoftmax as _numbers

from .. import _autograd as _shared
from . import _attention, _familiar, _functions, _heads, _library

_operators = _shared.operators()
_made = {name: _functions.make(d) for name, d in _operators.items()}
_heads.made.update(_made)
_all = {module: module.__all__ for module in (_attention, _familiar, _heads)}
_made.update({name: _functions.without_gradient(name) for name in _numbers.OPERATORS if name not in _operators})
_made.update({name: getattr(module, name) for module, names in _all.items() for name in names})
globals().update(_made)
__all__ = [*_made]

from . import nn as nn  # noqa: E402  its modules call the functions above
