"""A head that is a mixture of softmaxes with one set of classes."""

import torch

from .. import torch as _package
from . import _checks


class MixtureOfSoftmaxesLoss(torch.nn.Module):
    """Minus the log-probability of a class under sum_k pi_k softmax(W tanh(P_k h) + b), pi = softmax(A h)
    (Yang et al. 2018), by mixture_of_softmaxes, whose `keep`, softcap and temperature these are. The
    logits are not in memory."""

    def __init__(self, in_features, num_classes, num_components, *, bias=True, reduction="mean", ignore_index=-100,
                 device=None, dtype=None, **more):
        super().__init__()
        unknown = sorted(set(more) - {"keep", "softcap", "temperature"})
        if unknown:
            raise TypeError("MixtureOfSoftmaxesLoss: no argument named %r" % unknown[0])
        if num_components < 1:
            raise ValueError("MixtureOfSoftmaxesLoss: num_components: is %s, not 1 or more" % num_components)
        self.reduction = _checks.reduction("MixtureOfSoftmaxesLoss", reduction)
        where = {"device": device, "dtype": dtype}
        self.gate = torch.nn.Linear(in_features, num_components, bias=False, **where)
        self.latent = torch.nn.Linear(in_features, num_components * in_features, **where)
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, **where)
        self.ignore_index, self.more = ignore_index, more

    def forward(self, input, target):
        """input [..., features], target [...]."""
        target = _checks.whole("MixtureOfSoftmaxesLoss", "target", target)
        if target.shape != input.shape[:-1]:
            raise ValueError("MixtureOfSoftmaxesLoss: target: has the shape %s, not %s"
                             % (tuple(target.shape), tuple(input.shape[:-1])))
        k, d = self.gate.out_features, input.shape[-1]
        h = torch.tanh(self.latent(input)).reshape(-1, k, d)
        # with the losses of the components the gradient need not form them again
        found = _package.mixture_of_softmaxes(h, self.gate(input).reshape(-1, k), self.linear.weight, target.reshape(-1),
                                              self.linear.bias, return_component=True, ignore_index=self.ignore_index,
                                              **self.more).loss
        if self.reduction == "none":
            return found.reshape(target.shape)
        return found.sum() if self.reduction == "sum" else found.sum() / (target != self.ignore_index).sum()


__all__ = ["MixtureOfSoftmaxesLoss"]
