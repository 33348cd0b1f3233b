"""A softmax whose rare classes are in clusters."""

import torch
from torch.nn.modules.adaptive import _ASMoutput as Adapted

from .. import torch as _package

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def sum_in_order(a):
    """The sum of all elements in a fixed order, pairwise: torch.sum's depends on the threads."""
    a = a.reshape(-1)
    while len(a) > 1:
        half = len(a) // 2
        a = torch.cat([a[:half] + a[half:2 * half], a[2 * half:]])
    return a.sum()


def _has_hooks():
    """Whether there are hooks of all modules."""
    return any(getattr(torch.nn.modules.module, "_global" + name) for name in _HOOKS)


class AdaptiveLogSoftmaxWithLoss(torch.nn.AdaptiveLogSoftmaxWithLoss):
    """torch.nn.AdaptiveLogSoftmaxWithLoss (Grave et al. 2017), with its parameters: log_prob and
    predict too."""

    def forward(self, input_, target_):
        if input_.shape[:-1] != target_.shape or target_.ndim > 1:
            raise RuntimeError("AdaptiveLogSoftmaxWithLoss: target: shape is %s, the input's is %s"
                               % (tuple(target_.shape), tuple(input_.shape)))
        x, target = (input_, target_) if target_.ndim else (input_[None], target_[None])
        if len(target) and not 0 <= int(target.min()) <= int(target.max()) < self.n_classes:
            raise RuntimeError(
                "AdaptiveLogSoftmaxWithLoss: target: is not within 0..%d" % (self.n_classes - 1)
            )
        if self._plain():
            output = -_package.adaptive_softmax(*self._layers(x), target, **self._settings(), ignore_index=-1)
        else:
            output = self._by_modules(x, target)
        loss = -sum_in_order(output) / len(output)
        return Adapted(output if target_.ndim else output[0], loss)

    def _plain(self):
        """Whether there is nothing to the modules but their weights: they are those that torch.nn makes,
        and no hook has to see a call of them."""
        if _has_hooks() or not all(type(tail) is torch.nn.Sequential and len(tail) == 2 for tail in self.tail):
            return False
        layers = [self.head, *(layer for tail in self.tail for layer in tail)]
        return (all(type(layer) is torch.nn.Linear for layer in layers)
                and all(layer.bias is None for layer in layers[1:])
                and not any(getattr(module, name) for module in (*layers, *self.tail) for name in _HOOKS))

    def _by_modules(self, x, target):
        """Minus the losses of rows, from the logits of the modules."""
        def loss(scores, target):
            return _package.cross_entropy(scores, target, ignore_index=-1, reduction="none")
        head, tails = target, []
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            inside = (target >= low) & (target < high)
            head = torch.where(inside, self.shortlist_size + i, head)
            tails.append((inside.nonzero().squeeze(1), low, self.tail[i]))
        output = -loss(self.head(x), head)
        for rows, low, tail in tails:
            if len(rows):
                output = output.index_add(0, rows, -loss(tail(x[rows]), target[rows] - low))
        return output

    def _layers(self, x):
        """Features, head, projections, tails, and the first class of each cluster."""
        narrow = [tail[0].weight for tail in self.tail] or [x.new_empty(0, self.in_features)]
        rows = [tail[1].weight.reshape(-1) for tail in self.tail] or [x.new_empty(0)]
        cutoff = torch.tensor(self.cutoffs[:-1], dtype=torch.int64)
        return x, self.head.weight, torch.cat(narrow), torch.cat(rows), cutoff

    def _settings(self):
        width = torch.tensor([tail[0].out_features for tail in self.tail], dtype=torch.int64)
        return {"bias": self.head.bias, "width": width, "classes": self.n_classes}

    def log_prob(self, input):
        return self._get_full_log_prob(input, None if self._plain() else self.head(input))

    def _get_full_log_prob(self, input, head_output):
        if self._plain():
            return _package.adaptive_log_softmax(*self._layers(input), **self._settings())
        head = _package.log_softmax(head_output, axis=1)
        made = [head[:, :self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            within = _package.log_softmax(tail(input), axis=1)
            made.append(within + head[:, self.shortlist_size + i, None])
        return torch.cat(made, 1)


__all__ = ["AdaptiveLogSoftmaxWithLoss"]
