"""Modules of heads that touch a few of their rows: losses of sampled classes, product-key memories."""

import math

import torch

from .. import torch as _package


class _Sampled(torch.nn.Module):
    """A linear layer with a loss of the classes of a row and some others, drawn for each call from
    torch's random numbers. Classes are numbered by falling frequency where form is log_uniform;
    counts, how often each is there, take its place with their `power`."""

    def __init__(self, in_features, num_classes, num_sampled, *, bias=True, form="log_uniform", counts=None, power=0.75,
                 unique=True, remove_hits=True, reduction="mean", ignore_index=-100, device=None, dtype=None):
        super().__init__()
        name = type(self).__name__
        if reduction not in ("none", "sum", "mean"):
            raise ValueError("%s: reduction: %r is not one of none, sum, mean" % (name, reduction))
        if num_sampled < 1 or (unique and num_sampled > num_classes):
            raise ValueError("%s: num_sampled: is %s, not 1..%s" % (name, num_sampled, num_classes if unique else "more"))
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.register_buffer("counts", None if counts is None else torch.as_tensor(counts, dtype=torch.float64), persistent=False)
        self.draws = dict(classes=num_classes, count=num_sampled, form=form, power=power, unique="yes" if unique else "no")
        self.remove_hits, self.reduction, self.ignore_index = "yes" if remove_hits else "no", reduction, ignore_index

    def extra_repr(self):
        return ", ".join([*("%s=%s" % item for item in self.draws.items()), "remove_hits=%s" % self.remove_hits])

    def sample(self, target):
        """Classes, and how often the targets [n, t] and these are expected among them."""
        seed = int(torch.randint(1 << 53, ()))
        return _package.sample_classes(target, counts=self.counts, seed=seed, ignore_index=self.ignore_index, **self.draws)

    def forward(self, input, target):
        """input [..., features]; target [...], or [..., t] of t classes each; those that are
        ignore_index are none."""
        h = input.reshape(-1, input.shape[-1])
        several = target.ndim == input.ndim
        if target.shape[: input.ndim - 1] != input.shape[:-1]:
            raise ValueError("%s: target: has the shape %s, not that of input without its last axis, %s"
                             % (type(self).__name__, tuple(target.shape), tuple(input.shape[:-1])))
        classes = target.reshape(h.shape[0], target.shape[-1] if several else 1).long()
        found = self._loss(h, classes)
        if self.reduction == "none":
            return found.reshape(input.shape[:-1])
        there = (classes != self.ignore_index).any(1)
        return found.sum() if self.reduction == "sum" else found.sum() / there.sum()

    def _sampled(self, function, h, target):
        sampled, true_expected, expected = self.sample(target)
        return function(h, self.linear.weight, target, sampled, self.linear.bias, true_expected, expected,
                        remove_hits=self.remove_hits, ignore_index=self.ignore_index)


class SampledSoftmaxLoss(_Sampled):
    """TensorFlow's sampled_softmax_loss with its layer. In eval mode rows of one class have their
    cross-entropy among all classes."""

    def _loss(self, h, target):
        if self.training or target.shape[1] != 1:
            return self._sampled(_package.sampled_softmax, h, target)
        return _package.linear_cross_entropy(h, self.linear.weight, target[:, 0], linear_bias=self.linear.bias,
                                             reduction="none", ignore_index=self.ignore_index)


class NCELoss(_Sampled):
    """TensorFlow's nce_loss with its layer, whose outputs become log-probabilities."""

    def __init__(self, in_features, num_classes, num_sampled, *, remove_hits=False, **more):
        super().__init__(in_features, num_classes, num_sampled, remove_hits=remove_hits, **more)

    def _loss(self, h, target):
        return self._sampled(_package.nce_loss, h, target)


class ProductKeyMemory(torch.nn.Module):
    """num_keys^2 values of out_features, of which each head of a query [..., heads * key_features]
    takes the mean of the best k: the memory of Lample et al., without query network and
    projections. In `indices` are those of the last call, [..., heads, k]."""

    def __init__(self, key_features, out_features, num_keys, heads=4, k=32, device=None, dtype=None):
        super().__init__()
        if key_features < 2 or key_features % 2:
            raise ValueError("ProductKeyMemory: key_features: is %s, not an even number of 2 or more" % key_features)
        if not 1 <= k <= num_keys:
            raise ValueError("ProductKeyMemory: k: is %s, not 1..num_keys, which is %s" % (k, num_keys))
        made = dict(device=device, dtype=dtype)
        self.heads, self.k, self.indices = heads, k, None
        self.keys = torch.nn.Parameter(torch.empty(heads, 2, num_keys, key_features // 2, **made))
        self.values = torch.nn.Parameter(torch.empty(num_keys**2, out_features, **made))
        torch.nn.init.uniform_(self.keys, -1 / math.sqrt(key_features), 1 / math.sqrt(key_features))
        torch.nn.init.normal_(self.values, std=1 / math.sqrt(out_features))

    def extra_repr(self):
        return "heads=%d, k=%d" % (self.heads, self.k)

    def forward(self, query):
        width = 2 * self.keys.shape[3]
        if query.shape[-1] != self.heads * width:
            raise ValueError("ProductKeyMemory: query: has %d features, not %d heads of %d" % (query.shape[-1], self.heads, width))
        found = _package.product_key_memory(query.unflatten(-1, (self.heads, width)), self.keys, self.values, k=self.k)
        self.indices = found.index
        return found.y


__all__ = ["SampledSoftmaxLoss", "NCELoss", "ProductKeyMemory"]
