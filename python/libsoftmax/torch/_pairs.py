"""Modules of contrastive losses, with the names and arguments of the projects that people take them
from. Similarities are never in memory as a whole."""

import math

import torch

from .. import torch as _package
from . import _checks


def _temperature(module, value):
    if not 1e-30 <= value <= 1e30:
        raise ValueError("%s: temperature: is %s, not above 0" % (type(module).__name__, value))
    return float(value)


def _features(module, **given):
    """All are [n, d] with one d."""
    d = None
    for name, a in given.items():
        if a.ndim != 2 or d not in (None, a.shape[1]):
            raise ValueError("%s: %s: has the shape %s, not [n, %s]"
                             % (type(module).__name__, name, tuple(a.shape), "d" if d is None else d))
        d = a.shape[1]


def _index(module, name, index, n):
    index = _checks.whole(type(module).__name__, name, index)
    if index.shape != (n,):
        raise ValueError("%s: %s: has the shape %s, not (%d,)" % (type(module).__name__, name, tuple(index.shape), n))
    return index


class _Contrast(torch.nn.Module):
    """reduction: "mean", "sum" or "none", of the losses of the rows."""

    def __init__(self, temperature, reduction="mean", normalize=True):
        super().__init__()
        self.reduction = _checks.reduction(type(self).__name__, reduction)
        self.temperature = _temperature(self, temperature)
        self.normalise = "yes" if normalize else "no"

    def extra_repr(self):
        return "temperature=%s, reduction=%s" % (self.temperature, self.reduction)

    def _reduced(self, loss):
        return loss if self.reduction == "none" else getattr(loss, self.reduction)()


class InfoNCELoss(_Contrast):
    """info_nce of queries and their positive keys, [n, d]: against the keys of the other rows, or, if
    they are given, against negative_keys, [m, d], alone, by a mask of [n, n + m] bytes. As info-nce-pytorch
    has it."""

    def __init__(self, temperature=0.1, reduction="mean", normalize=True):
        super().__init__(temperature, reduction, normalize)

    def forward(self, query, positive_key, negative_keys=None):
        keys, mask, n = positive_key, None, len(query)
        _features(self, query=query, positive_key=keys)
        if len(keys) != n:
            raise ValueError("InfoNCELoss: positive_key: has %d rows, not %d as query" % (len(keys), n))
        if negative_keys is not None:
            _features(self, query=query, negative_keys=negative_keys)
            keys = torch.cat([positive_key, negative_keys])
            mask = torch.ones(n, len(keys), dtype=torch.bool, device=query.device)
            mask[:, :n] = torch.eye(n, dtype=torch.bool, device=query.device)
        return self._reduced(_package.info_nce(query, keys, mask=mask, temperature=self.temperature, normalise=self.normalise))


class NTXentLoss(_Contrast):
    """nt_xent of two views of n things, [n, d] each: the loss of SimCLR, as lightly has it."""

    def __init__(self, temperature=0.5, reduction="mean", normalize=True):
        super().__init__(temperature, reduction, normalize)

    def forward(self, out0, out1):
        _features(self, out0=out0, out1=out1)
        if len(out0) != len(out1):
            raise ValueError("NTXentLoss: out1: has %d rows, not %d as out0" % (len(out1), len(out0)))
        return self._reduced(_package.nt_xent(torch.cat([out0, out1]), temperature=self.temperature, normalise=self.normalise))


class SupConLoss(_Contrast):
    """supervised_contrastive of features [n, d], or of views of n things, [n, views, d]; without labels
    a thing is a class of its own. form is "out" or "in", the two losses of the paper; the mean is
    over the rows that have a positive."""

    def __init__(self, temperature=0.07, reduction="mean", form="out", normalize=True):
        super().__init__(temperature, reduction, normalize)
        self.form = form

    def forward(self, features, labels=None):
        if features.ndim not in (2, 3):
            raise ValueError("SupConLoss: features: has the shape %s, not [n, d] or [n, views, d]" % (tuple(features.shape),))
        n, views = len(features), features.shape[1] if features.ndim == 3 else 1
        if labels is None:
            labels = torch.arange(n, device=features.device)
        labels = _index(self, "labels", labels, n).repeat_interleave(views)
        loss = _package.supervised_contrastive(features.reshape(n * views, features.shape[-1]), label=labels, form=self.form,
                                               temperature=self.temperature, normalise=self.normalise)
        if self.reduction == "mean":
            _, place, count = torch.unique(labels, return_inverse=True, return_counts=True)
            return loss.sum() / ((count[place] > 1) & (labels >= 0)).sum()
        loss = self._reduced(loss)
        return loss.reshape(features.shape[:-1]) if self.reduction == "none" else loss


class ClipLoss(torch.nn.Module):
    """clip_loss of images and texts, [n, d] each, in the mean. `logit_scale` is the logarithm of 1 /
    temperature and is learned, up to max_scale; a scale that is given to forward, as open_clip does,
    takes its place: ClipLoss(learn=False) has none of its own."""

    def __init__(self, temperature=0.07, learn=True, max_scale=100.0, normalize=True):
        super().__init__()
        self.normalise, self.max_scale = "yes" if normalize else "no", max_scale
        temperature = _temperature(self, temperature)
        self.logit_scale = torch.nn.Parameter(torch.tensor(-math.log(temperature))) if learn else None
        self.temperature = None if learn else temperature

    def forward(self, image_features, text_features, logit_scale=None):
        _features(self, image_features=image_features, text_features=text_features)
        if len(image_features) != len(text_features):
            raise ValueError("ClipLoss: text_features: has %d rows, not %d as image_features"
                             % (len(text_features), len(image_features)))
        temperature = self.temperature
        if logit_scale is not None:
            temperature = 1 / logit_scale
        elif self.logit_scale is not None:
            temperature = 1 / self.logit_scale.exp().clamp(max=self.max_scale)
        return _package.clip_loss(image_features, text_features, temperature=temperature, normalise=self.normalise).mean()


class GlobalContrastiveLoss(torch.nn.Module):
    """global_contrastive_loss in both directions, halved, in the mean. The batch is the rows `index`,
    [n], of a data set of `size`, whose running sums are buffers that a call in training moves. learn
    gives each row two temperatures of its own, which are learned with rho (iSogCLR)."""

    def __init__(self, size, temperature=0.1, gamma=0.8, rho=0.0, learn=False, normalize=True):
        super().__init__()
        self.normalise, self.gamma, self.rho = "yes" if normalize else "no", gamma, rho
        self.temperature = _temperature(self, temperature)
        for side in "a", "b":
            self.register_buffer("state_" + side, torch.full((size,), -math.inf))
            own = torch.nn.Parameter(torch.full((size,), self.temperature)) if learn else None
            self.register_parameter("temperature_" + side, own)

    def extra_repr(self):
        return "%d, temperature=%s, gamma=%s, rho=%s" % (len(self.state_a), self.temperature, self.gamma, self.rho)

    def _side(self, anchors, others, state, own, index):
        temperature = torch.full((len(index),), self.temperature, dtype=state.dtype) if own is None else own[index]
        found = _package.global_contrastive_loss(anchors, others, temperature=temperature, state=state[index], gamma=self.gamma,
                                                 rho=self.rho, normalise=self.normalise)
        if self.training:
            state[index] = found.new_state.detach().to(state.dtype)
        return found.loss

    def forward(self, a, b, index):
        _features(self, a=a, b=b)
        if len(a) != len(b):
            raise ValueError("GlobalContrastiveLoss: b: has %d rows, not %d as a" % (len(b), len(a)))
        index = _index(self, "index", index, len(a))
        if torch.compiler.is_compiling():  # then no number of a tensor is known: torch refuses what is not below the size
            index = torch.where(index < 0, len(self.state_a), index)
        elif len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self.state_a):
            raise ValueError("GlobalContrastiveLoss: index: has %d to %d, not 0..%d"
                             % (index.min(), index.max(), len(self.state_a) - 1))
        return (self._side(a, b, self.state_a, self.temperature_a, index)
                + self._side(b, a, self.state_b, self.temperature_b, index)).mean() / 2


__all__ = ["InfoNCELoss", "NTXentLoss", "SupConLoss", "ClipLoss", "GlobalContrastiveLoss"]
