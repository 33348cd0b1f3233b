"""Modules of heads that touch a few of their rows: losses of sampled classes, product-key memories,
factored layers."""

import math

import torch

from .. import torch as _package
from . import _checks


def _classes(module, input, target):
    """The classes [n, t] of the rows of input [..., features]; target [...], or [..., t]."""
    name = type(module).__name__
    target = _checks.whole(name, "target", target)
    if target.shape[: input.ndim - 1] != input.shape[:-1]:
        raise ValueError("%s: target: has the shape %s, not that of input without its last axis, %s"
                         % (name, tuple(target.shape), tuple(input.shape[:-1])))
    return target.reshape(input.shape[:-1].numel(), target.shape[-1] if target.ndim == input.ndim else 1)


class _Sampled(torch.nn.Module):
    """A linear layer with a loss of the classes of a row and some others, drawn for each call from
    torch's random numbers. Classes are numbered by falling frequency where form is log_uniform;
    counts, how often each is there, take its place with their `power`."""

    def __init__(self, in_features, num_classes, num_sampled, *, bias=True, form="log_uniform", counts=None, power=0.75,
                 unique=True, remove_hits=True, reduction="mean", ignore_index=-100, device=None, dtype=None):
        super().__init__()
        name = type(self).__name__
        self.reduction = _checks.reduction(name, reduction)
        if num_sampled < 1 or (unique and num_sampled > num_classes):
            raise ValueError("%s: num_sampled: is %s, not 1..%s" % (name, num_sampled, num_classes if unique else "more"))
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.register_buffer("counts", None if counts is None else torch.as_tensor(counts, dtype=torch.float64), persistent=False)
        self.draws = dict(classes=num_classes, count=num_sampled, form=form, power=power, unique="yes" if unique else "no")
        self.remove_hits, self.ignore_index = "yes" if remove_hits else "no", ignore_index

    def extra_repr(self):
        return ", ".join([*("%s=%s" % item for item in self.draws.items()), "remove_hits=%s" % self.remove_hits])

    def sample(self, target):
        """Classes, and how often the targets [n, t] and these are expected among them."""
        seed = int(torch.randint(1 << 53, ()))
        return _package.sample_classes(target, counts=self.counts, seed=seed, ignore_index=self.ignore_index, **self.draws)

    def forward(self, input, target):
        """input [..., features]; target [...], or [..., t] of t classes each; those that are
        ignore_index are none."""
        classes = _classes(self, input, target)
        found = self._loss(input.reshape(-1, input.shape[-1]), classes)
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


class FactoredSphericalHead(torch.nn.Module):
    """A layer of num_classes classes and its loss, of which a step of gradient descent costs as much for
    any number of classes (factored_spherical_head). `v` and `state` are buffers, in double. An
    optimizer knows nothing of them: `step` moves the layer, and has the gradient of its input.

        loss, dh = head.step(h, target, lr=0.01)
        h.backward(dh)
    """

    def __init__(self, in_features, num_classes, form="z_loss", *, a=1.0, b=0.0, epsilon=None, ignore_index=-100,
                 max_condition=1e6, renew_every=1000, device=None):
        super().__init__()
        if epsilon is None:
            epsilon = 1e-12 if form == "z_loss" else 1e-2
        self.settings = dict(form=form, a=a, b=b, epsilon=epsilon, ignore_index=ignore_index)
        self.max_condition, self.renew_every, self.taken = max_condition, renew_every, 0
        v = torch.empty(num_classes, in_features, dtype=torch.float64, device=device)
        torch.nn.init.normal_(v, std=1 / math.sqrt(in_features))
        self.register_buffer("v", v)
        self.register_buffer("state", _package.factored_spherical_state(v))

    def extra_repr(self):
        return ", ".join(["%d, %d" % self.v.shape[::-1], *("%s=%s" % item for item in self.settings.items())])

    def _apply(self, fn, recurse=True):
        made = super()._apply(fn, recurse)
        self.v, self.state = self.v.double(), self.state.double()  # half() and float() are for the rest of a model
        return made

    @property
    def weight(self):
        """The weights of all classes."""
        return _package.factored_spherical_weights(self.v, self.state)

    def _given(self, input, target, value):
        classes = _classes(self, input, target)
        return input.reshape(-1, input.shape[-1]).double(), classes, None if value is None else value.reshape(classes.shape).double()

    def forward(self, input, target, value=None):
        """The loss of each row of input [..., features]; target [...], or [..., t] of t classes each, with
        their values. It has the gradient of input alone."""
        h, classes, value = self._given(input, target, value)
        loss = _package.factored_spherical_head(h, self.v, self.state, classes, value, **self.settings)
        return loss.reshape(input.shape[:-1]).to(input.dtype)

    @torch.no_grad()
    def step(self, input, target, lr, grad=None, value=None):
        """Takes a step on all classes. Returns the losses before it and the gradient of input, both for
        the mean of the rows that count, or for `grad` [...], the gradient of each loss."""
        h, classes, value = self._given(input.detach(), target, value)
        if grad is None:
            there = (classes != self.settings["ignore_index"]).any(1)
            grad = (there.double() / there.sum().clamp(min=1)).reshape(input.shape[:-1])
        grad = torch.as_tensor(grad, dtype=torch.float64, device=h.device).detach().expand(input.shape[:-1]).reshape(-1)
        def moved(by):
            return _package.factored_spherical_step(h, self.v, self.state, classes, value, grad, lr=by * lr, **self.settings)
        found, there = moved(1), classes != self.settings["ignore_index"]
        if not torch.isfinite(found.dh).all():
            raise FloatingPointError("FactoredSphericalHead: the gradient of input has numbers that are not finite")
        # A step that U cannot take is found from one that it can, as weights are linear in lr.
        part, by = found, 1
        for by in (1, -1, 0.5, -0.5, 0.25, -0.25, 2**-10):
            part = found if by == 1 else moved(by)
            if part.condition <= self.max_condition:
                break
        else:
            raise FloatingPointError("FactoredSphericalHead: lr: is %s, a step that has no finite numbers" % lr)
        before = None if by == 1 else self.weight
        self.v[classes[there]] = part.rows[there]
        self.state.copy_(part.next)
        self.taken += 1
        if by != 1:
            self._begin(before + (self.weight - before) / by)
        elif self.taken % self.renew_every == 0:
            self.renew()
        return found.loss.reshape(input.shape[:-1]).to(input.dtype), found.dh.reshape(input.shape).to(input.dtype)

    @torch.no_grad()
    def renew(self):
        """Begins anew with U = I, which takes away what roundings have added up to."""
        self._begin(self.weight)

    def _begin(self, w):
        self.v.copy_(w)
        self.state.copy_(_package.factored_spherical_state(self.v))


__all__ = ["SampledSoftmaxLoss", "NCELoss", "ProductKeyMemory", "FactoredSphericalHead"]
