"""Modules with the names and arguments of torch.nn's. Their parameters and state_dicts are the
same, so that one can take the other's place."""

import math

import torch

from .. import torch as _package
from . import _adaptive, _checks, _cosines, _mixtures, _pairs, _pooling, _pooling_learned, _sampled
from ._adaptive import *
from ._cosines import *
from ._mixtures import *
from ._pairs import *
from ._pooling import *
from ._pooling_learned import *
from ._sampled import *


def _implicit(x, dim):
    """The axis where none is given, as in torch.nn."""
    return dim if dim is not None else 0 if x.ndim in (0, 1, 3) else 1


def _weights(name, **settings):
    """A module of an operator that makes weights of scores. settings: {argument: default} beside
    dim."""
    class Module(torch.nn.Module):
        def __init__(self, dim=None, **given):
            unknown = set(given) - set(settings)
            if unknown:
                raise TypeError("%s: no argument named %r" % (type(self).__name__, sorted(unknown)[0]))
            super().__init__()
            self.dim, self.settings = dim, {**settings, **given}

        def forward(self, input):
            return getattr(_package, name)(input, axis=_implicit(input, self.dim), **self.settings)

        def extra_repr(self):
            return ", ".join(["dim=%s" % self.dim, *("%s=%s" % item for item in self.settings.items())])
    return Module


class Softmax(_weights("softmax")):
    """torch.nn.Softmax"""


class Softmin(_weights("softmin")):
    """torch.nn.Softmin"""


class LogSoftmax(_weights("log_softmax")):
    """torch.nn.LogSoftmax"""


class Sparsemax(_weights("sparsemax")):
    """The projection to the simplex (Martins, Astudillo 2016)."""


class Entmax15(_weights("entmax15")):
    """entmax with alpha 1.5, exactly."""


class Entmax(_weights("entmax", alpha=1.5)):
    """entmax with any alpha."""


class _Loss(torch.nn.Module):
    """reduction: none, sum or mean. weight: one a class, a buffer as in torch.nn."""

    def __init__(self, weight, size_average, reduce, reduction):
        super().__init__()
        if size_average is not None or reduce is not None:
            raise TypeError(
                "%s: size_average and reduce are of the past: give reduction" % type(self).__name__
            )
        self.reduction = _checks.reduction(type(self).__name__, reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(_Loss):
    """torch.nn.CrossEntropyLoss, and with z_weight, softcap and temperature what
    libsoftmax.torch.cross_entropy has."""

    def __init__(
        self,
        weight=None,
        size_average=None,
        ignore_index=-100,
        reduce=None,
        reduction="mean",
        label_smoothing=0.0,
        **more,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing, self.more = ignore_index, label_smoothing, more

    def forward(self, input, target):
        return _package.cross_entropy(
            input,
            target,
            class_weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            **self.more,
        )


class LinearCrossEntropyLoss(_Loss):
    """torch.nn.LinearCrossEntropyLoss, and with z_weight, softcap, temperature, scale and keep what
    libsoftmax.torch.linear_cross_entropy has. out_features, more losses a row, is not possible."""

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        out_features=(),
        bias=False,
        device=None,
        dtype=None,
        reduction="mean",
        weight=None,
        ignore_index=None,
        label_smoothing=0.0,
        options=None,
        **more,
    ):
        super().__init__(weight, None, None, reduction)
        if out_features:
            raise TypeError("LinearCrossEntropyLoss: out_features: %r, and one loss a row is all there is" % (out_features,))
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.ignore_index, self.label_smoothing, self.options, self.more = ignore_index, label_smoothing, options, more

    def forward(self, input, target):
        return _package.linear_cross_entropy(
            input,
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
            **self.more,
        )


class NLLLoss(_Loss):
    """torch.nn.NLLLoss"""

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input, target):
        return _package.nll_loss(
            input, target, class_weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class MultiMarginLoss(_Loss):
    """torch.nn.MultiMarginLoss"""

    def __init__(self, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("MultiMarginLoss: p: %r is not 1 or 2" % (p,))
        self.p, self.margin = p, margin

    def forward(self, input, target):
        return _package.multiclass_hinge_loss(
            input,
            target,
            class_weight=self.weight,
            power=self.p,
            margin=self.margin,
            over="n",
            reduction=self.reduction,
        )


class BCEWithLogitsLoss(_Loss):
    """torch.nn.BCEWithLogitsLoss"""

    def __init__(
        self, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input, target):
        if target.shape != input.shape:
            raise ValueError(
                "BCEWithLogitsLoss: target: %s is not the shape of input, %s"
                % (tuple(target.shape), tuple(input.shape))
            )
        x, weight, positive = input, self.weight, self.pos_weight
        target = target.to(x.dtype)
        by_class = positive is None or (
            x.ndim > 0 and positive.shape == x.shape[-1:] and self.reduction != "none"
        )
        if not by_class:
            if target.requires_grad:
                raise NotImplementedError(
                    "BCEWithLogitsLoss: target: no gradient beside a pos_weight that is not one a class"
                    " of the last axis, or without a reduction: give target.detach()"
                )
            # c t and 1 - t are a target of another mass
            both = positive * target + (1 - target)
            target = positive * target / torch.where(both == 0, 1, both)
            weight, positive = both if weight is None else weight * both, None
        if weight is not None:
            weight = weight.to(x.dtype).expand_as(x)
        if self.reduction == "none" or x.ndim == 0:
            x, target = x.unsqueeze(-1), target.unsqueeze(-1)
            weight = None if weight is None else weight.unsqueeze(-1)
        return _package.binary_cross_entropy(
            x,
            target,
            pos_weight=positive,
            weight=weight,
            over="n" if self.reduction == "mean" else "one",
            reduction=self.reduction,
        )


class KLDivLoss(torch.nn.Module):
    """torch.nn.KLDivLoss: input are logarithms of probabilities, target probabilities or with
    log_target their logarithms. Sums have one order whatever the number of threads. Of logits
    libsoftmax.torch.knowledge_distillation is faster."""

    def __init__(self, size_average=None, reduce=None, reduction="mean", log_target=False):
        super().__init__()
        if size_average is not None or reduce is not None:
            raise TypeError("KLDivLoss: size_average and reduce are of the past: give reduction")
        self.reduction, self.log_target = _checks.reduction("KLDivLoss", reduction, "batchmean"), log_target

    def forward(self, input, target):
        if self.log_target:
            loss = target.exp() * (target - input)
        else:
            loss = torch.xlogy(target, target) - target * input
        if self.reduction == "none":
            return loss
        parts = {"sum": 1, "mean": loss.numel(), "batchmean": input.shape[0] if input.ndim else 1}
        return _adaptive.sum_in_order(loss) / parts[self.reduction]


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention, with its parameters. Weights are formed only when they are asked
    for."""

    def _projected(self, given):
        """Queries, keys and values [B, H, L, d] of tensors [B, L, E]."""
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = self.in_proj_bias.chunk(3) if self.in_proj_bias is not None else (None, None, None)
        made = (torch.nn.functional.linear(a, w, b) for a, w, b in zip(given, weights, biases))
        q, k, v = [self._heads(a) for a in made]
        return q, self._with_added(k, self.bias_k), self._with_added(v, self.bias_v)

    def _heads(self, a):
        return a.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _with_added(self, a, bias):
        """Keys or values with those that belong to no token behind them: of add_bias_kv, then of
        add_zero_attn."""
        shape = (a.shape[0], a.shape[1], 1, a.shape[3])
        more = [] if bias is None else [self._heads(bias.to(a.dtype)).expand(shape)]
        more += [a.new_zeros(shape)] if self.add_zero_attn else []
        return torch.cat([a, *more], 2) if more else a

    def _bias(self, mask, padding, q, k):
        """Both masks as one that is added to the scores, [B or 1, H or 1, L, S]; None for neither.
        Added keys are visible to every query."""
        added = (self.bias_k is not None) + self.add_zero_attn
        def floating(m):
            if m.dtype == torch.bool:
                m = torch.zeros(m.shape, dtype=q.dtype).masked_fill(m, -torch.inf)
            m = m.to(q.dtype)
            return torch.nn.functional.pad(m, (0, added)) if added else m
        bias = None
        if mask is not None:
            bias = floating(mask)
            bias = (
                bias.reshape(1, 1, *bias.shape)
                if bias.ndim == 2
                else bias.reshape(q.shape[0], self.num_heads, *bias.shape[1:])
            )
        if padding is not None:
            padding = floating(padding).reshape(k.shape[0], 1, 1, k.shape[2])
            bias = padding if bias is None else bias + padding
        return bias

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        if is_causal and attn_mask is None:
            raise ValueError(
                "MultiheadAttention: attn_mask: is needed with is_causal, which is a hint about it"
            )
        batched, given = query.ndim == 3, [query, key, value]
        if not batched:
            given = [a.unsqueeze(0) for a in given]
        elif not self.batch_first:
            given = [a.transpose(0, 1) for a in given]
        q, k, v = self._projected(given)
        bias, dropout = self._bias(attn_mask, key_padding_mask, q, k), self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-1, -2) * self.head_dim ** -0.5
            weights = _package.softmax(scores if bias is None else scores + bias)
            weights = torch.nn.functional.dropout(weights, dropout) if dropout else weights
            o = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        else:
            o = _package.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
        o = self.out_proj(o.transpose(1, 2).flatten(2))
        return (o.squeeze(0) if not batched else o if self.batch_first else o.transpose(0, 1)), weights


class CRF(torch.nn.Module):
    """A random field on a chain of tags, with the parameters, arguments and state_dict of pytorch-crf's
    torchcrf.CRF. A mask may hide any tokens, whose neighbours then follow one another; a target of
    -100 is left out as well."""

    def __init__(self, num_tags, batch_first=False):
        super().__init__()
        if num_tags < 1:
            raise ValueError("CRF: num_tags: is %s, not 1 or more" % num_tags)
        self.num_tags, self.batch_first = num_tags, batch_first
        self.start_transitions = torch.nn.Parameter(torch.empty(num_tags))
        self.end_transitions = torch.nn.Parameter(torch.empty(num_tags))
        self.transitions = torch.nn.Parameter(torch.empty(num_tags, num_tags))
        self.reset_parameters()

    def reset_parameters(self):
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self):
        return "num_tags=%d, batch_first=%s" % (self.num_tags, self.batch_first)

    def _first(self, emissions, **others):
        """Tensors with the batch first."""
        if emissions.ndim != 3 or emissions.shape[2] != self.num_tags:
            raise ValueError("CRF: emissions: has the shape %s, not tokens, sequences and %d tags"
                             % (tuple(emissions.shape), self.num_tags))
        for name, a in others.items():
            if a is not None and a.shape != emissions.shape[:2]:
                raise ValueError("CRF: %s: has the shape %s, not %s" % (name, tuple(a.shape), tuple(emissions.shape[:2])))
        if "mask" in others and others["mask"] is not None:
            others["mask"] = others["mask"].bool()
        given = [emissions, *others.values()]
        return given if self.batch_first else [a if a is None else a.transpose(0, 1) for a in given]

    def forward(self, emissions, tags, mask=None, reduction="sum"):
        """The log-likelihood of the tags: of each sequence ("none"), their sum, their mean, or a mean
        over the tokens ("token_mean")."""
        _checks.reduction("CRF", reduction, "token_mean")
        e, tags, mask = self._first(emissions, tags=_checks.whole("CRF", "tags", tags), mask=mask)
        tags = tags if mask is None else tags.masked_fill(~mask, -100)
        found = -_package.linear_chain_crf(e, self.transitions, tags, self.start_transitions, self.end_transitions).loss
        if reduction == "token_mean":
            return found.sum() / (tags != -100).sum()
        return found if reduction == "none" else found.sum() if reduction == "sum" else found.mean()

    def _asked(self, emissions, mask):
        e, mask = self._first(emissions, mask=mask)
        scores = self.transitions, self.start_transitions, self.end_transitions
        return e.detach(), *(a.detach() for a in scores), mask

    @torch.no_grad()
    def decode(self, emissions, mask=None):
        """The tags of the best path of each sequence, as lists."""
        path = _package.crf_viterbi(*self._asked(emissions, mask)).path
        rows = path.tolist()
        return rows if (path >= 0).all() else [[tag for tag in row if tag >= 0] for row in rows]

    @torch.no_grad()
    def k_best(self, emissions, count, mask=None):
        """The tags and the score of the `count` best paths of each sequence, the best first, or of all
        that there are."""
        paths, scores = _package.crf_k_best(*self._asked(emissions, mask), count=count)
        return [[([tag for tag in row if tag >= 0], score) for row, score in zip(*of) if score != -math.inf]
                for of in zip(paths.tolist(), scores.tolist())]

    @torch.no_grad()
    def marginals(self, emissions, mask=None):
        """The probability of each tag of each token, [batch, tokens, tags] where the batch is first."""
        y = _package.crf_marginals(*self._asked(emissions, mask)).y
        return y if self.batch_first else y.transpose(0, 1)


__all__ = [
    "Softmax",
    "Softmin",
    "LogSoftmax",
    "Sparsemax",
    "Entmax15",
    "Entmax",
    "CrossEntropyLoss",
    "LinearCrossEntropyLoss",
    "NLLLoss",
    "MultiMarginLoss",
    "KLDivLoss",
    "BCEWithLogitsLoss",
    "MultiheadAttention",
    "CRF",
    *_adaptive.__all__,
    *_cosines.__all__,
    *_mixtures.__all__,
    *_pairs.__all__,
    *_pooling.__all__,
    *_pooling_learned.__all__,
    *_sampled.__all__,
]
