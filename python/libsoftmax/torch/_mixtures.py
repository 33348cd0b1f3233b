"""A head that is a mixture of softmaxes with one set of classes."""

import torch

from .. import torch as _package
from . import _checks, _eager


class MixtureOfSoftmaxesLoss(torch.nn.Module):
    """Minus the log-probability of a class under sum_k pi_k softmax(W tanh(P_k h) + b), pi = softmax(A h)
    (Yang et al. 2018). The logits of num_components linear_cross_entropies are not in memory; `keep`,
    softcap and temperature are theirs. Weights of classes and label_smoothing would count in each
    component by itself, which is another loss."""

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

    def _check(self, target, there):
        """Here, since linear_cross_entropy would number the components of all rows."""
        wrong = (there & ((target < 0) | (target >= self.linear.out_features))).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise ValueError("MixtureOfSoftmaxesLoss: target: number %d is %d, not 0..%d or %d"
                             % (row, target[row], self.linear.out_features - 1, self.ignore_index))

    def forward(self, input, target):
        """input [..., features], target [...]."""
        target = _checks.whole("MixtureOfSoftmaxesLoss", "target", target)
        if target.shape != input.shape[:-1]:
            raise ValueError("MixtureOfSoftmaxesLoss: target: has the shape %s, not %s"
                             % (tuple(target.shape), tuple(input.shape[:-1])))
        flat, k = target.reshape(-1), self.gate.out_features
        there = flat != self.ignore_index
        if _eager.plain([flat]):
            self._check(flat, there)
        h = torch.tanh(self.latent(input)).reshape(-1, input.shape[-1])
        each = _package.linear_cross_entropy(h, self.linear.weight, flat.repeat_interleave(k),
                                             linear_bias=self.linear.bias, reduction="none",
                                             ignore_index=self.ignore_index, **self.more)
        shares = _package.log_softmax(self.gate(input).reshape(-1, k))
        found = -_package.logsumexp(shares - each.reshape(-1, k)).reshape(target.shape)
        found = torch.where(there.reshape(target.shape), found, 0)
        if self.reduction == "none":
            return found
        return found.sum() if self.reduction == "sum" else found.sum() / there.sum()


__all__ = ["MixtureOfSoftmaxesLoss"]
