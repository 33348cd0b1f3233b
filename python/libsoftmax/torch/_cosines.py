"""Modules of classifiers by directions with their losses."""

import math

import torch

from .. import torch as _package
from . import _checks


class _Directions(torch.nn.Module):
    """The directions of the classes are the parameter `weight`, [classes, features]."""

    def __init__(self, in_features, num_classes, reduction, ignore_index, **settings):
        super().__init__()
        self.reduction = _checks.reduction(type(self).__name__, reduction)
        self.ignore_index, self.settings = ignore_index, settings
        self._make_weight(num_classes, in_features)

    def _make_weight(self, *shape):
        self.weight = torch.nn.Parameter(torch.empty(shape))
        torch.nn.init.normal_(self.weight, std=0.01)

    def extra_repr(self):
        return ", ".join("%s=%s" % item for item in self.settings.items())

    def _given(self, input, target):
        if target.shape != input.shape[:-1]:
            raise ValueError("%s: target: has the shape %s, not %s"
                             % (type(self).__name__, tuple(target.shape), tuple(input.shape[:-1])))
        return input.reshape(-1, input.shape[-1]), self.weight, _checks.whole(type(self).__name__, "target", target).reshape(-1)

    def _reduced(self, loss, target):
        if self.reduction == "none":
            return loss.reshape(target.shape)
        return loss.sum() if self.reduction == "sum" else loss.sum() / (target != self.ignore_index).sum()


class CosineMarginLoss(_Directions):
    """margin_softmax of the cosines of features and directions. m1, m2, m3, scale, beyond and detach are
    those of cosine_margin, of which the defaults are ArcFace's."""

    def __init__(self, in_features, num_classes, m1=1.0, m2=0.5, m3=0.0, scale=64.0, beyond="fold", detach=False,
                 reduction="mean", ignore_index=-100):
        super().__init__(in_features, num_classes, reduction, ignore_index, m1=m1, m2=m2, m3=m3, scale=scale, beyond=beyond,
                         detach="yes" if detach else "no")

    def forward(self, input, target):
        found = _package.cosine_margin(*self._given(input, target), ignore_index=self.ignore_index, **self.settings)
        return self._reduced(found, target)


class EquiangularBasisHead(_Directions):
    """Fixed directions of classes by equiangular_basis, the buffer `weight`, with the cross-entropy of
    the cosines over temperature; form, bound, steps and seed are those of the operator."""

    def __init__(self, in_features, num_classes, temperature=0.07, form="equiangular", bound=0.0, steps=200, seed=0,
                 reduction="mean", ignore_index=-100):
        if not temperature > 0:
            raise ValueError("EquiangularBasisHead: temperature: is %s, not above 0" % temperature)
        super().__init__(in_features, num_classes, reduction, ignore_index, temperature=temperature, form=form, bound=bound,
                         steps=steps, seed=seed)

    def _make_weight(self, *shape):
        asked = {name: self.settings[name] for name in ("form", "bound", "steps", "seed")}
        with torch.device("cpu"):
            made = _package.equiangular_basis(torch.empty(shape), **asked)
        self.largest = made.largest.item()
        self.register_buffer("weight", made.basis.to(torch.get_default_device()))

    def forward(self, input, target):
        found = _package.cosine_margin(*self._given(input, target), m2=0.0, scale=1 / self.settings["temperature"],
                                       ignore_index=self.ignore_index)
        return self._reduced(found, target)

    def predict(self, input):
        """The class whose direction is nearest."""
        return (input @ self.weight.T).argmax(-1)


class SphereFace2Loss(_Directions):
    """sphereface2, with `bias` as a parameter that begins where the authors begin it."""

    def __init__(self, in_features, num_classes, balance=0.7, scale=40.0, margin=0.4, power=3.0, factor=50.0, detach=False,
                 reduction="mean", ignore_index=-100):
        super().__init__(in_features, num_classes, reduction, ignore_index, balance=balance, scale=scale, margin=margin,
                         power=power, factor=factor, detach="yes" if detach else "no")
        if num_classes < 2 or not 0 < balance < 1:
            raise ValueError("SphereFace2Loss: num_classes: is %s, not 2 or more, or balance, %s, not between 0 and 1"
                             % (num_classes, balance))
        z, own = balance / ((1 - balance) * (num_classes - 1)), scale * (2 * 0.5**power - 1 - margin)
        others = own + 2 * scale * margin
        bias = math.log(2 * z) - others - math.log(1 - z + math.sqrt((1 - z) ** 2 + 4 * z * math.exp(own - others)))
        self.bias = torch.nn.Parameter(torch.tensor(bias))

    def forward(self, input, target):
        found = _package.sphereface2(*self._given(input, target), self.bias, ignore_index=self.ignore_index, **self.settings)
        return self._reduced(found, target)


class WCDASLoss(_Directions):
    """wcdas, with the parameters `concentration`, of each class, and `strength`; scale, a number, takes
    the place of the strength."""

    def __init__(self, in_features, num_classes, concentration=0.0, strength=0.0, scale=None, reduction="mean", ignore_index=-100):
        super().__init__(in_features, num_classes, reduction, ignore_index, **{} if scale is None else {"scale": scale})
        self.concentration = torch.nn.Parameter(torch.full((num_classes,), float(concentration)))
        self.strength = torch.nn.Parameter(torch.tensor(float(strength))) if scale is None else None

    def forward(self, input, target):
        found = _package.wcdas(*self._given(input, target), self.concentration, self.strength, ignore_index=self.ignore_index,
                               **self.settings)
        return self._reduced(found, target)


class AdaptiveScaleMarginLoss(_Directions):
    """adaptive_scale_margin_softmax. In training `scale` and `margin` become those of the batch; in eval
    mode the last scale is used, without a margin."""

    def __init__(self, in_features, num_classes, alpha=0.1, of="median_row", reduction="mean", ignore_index=-100):
        super().__init__(in_features, num_classes, reduction, ignore_index, alpha=alpha, of=of)
        self.register_buffer("scale", torch.tensor(32.0))
        self.register_buffer("margin", torch.tensor(0.0))

    def forward(self, input, target):
        found = _package.adaptive_scale_margin_softmax(*self._given(input, target), None if self.training else self.scale,
                                                       ignore_index=self.ignore_index, return_scale=True, return_margin=True,
                                                       **self.settings)
        if self.training:
            most = torch.finfo(found.scale.dtype).max  # of float16, which the scale of parted classes is above
            self.scale.copy_(found.scale.detach().clamp(max=most)), self.margin.copy_(found.margin.detach())
        return self._reduced(found.loss, target)


__all__ = ["CosineMarginLoss", "EquiangularBasisHead", "SphereFace2Loss", "WCDASLoss", "AdaptiveScaleMarginLoss"]
