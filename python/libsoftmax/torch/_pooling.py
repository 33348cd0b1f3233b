"""Pooling with the names and arguments of torch.nn's modules (nn.py), of one to three spatial
dimensions behind any others."""

import torch

from .. import torch as _package

_AXES = ("_d", "_h", "")  # of parameters, by spatial dimension; the last are those of the width


def _each(module, name, given, spatial):
    """An argument as one value a spatial dimension."""
    if not isinstance(given, (tuple, list)):
        return (given,) * spatial
    if len(given) != spatial:
        raise ValueError("%s: %s: has %d numbers, not %d" % (type(module).__name__, name, len(given), spatial))
    return tuple(given)


def _by_axis(name, values):
    """{parameter: value}"""
    return {name + axis: int(value) for axis, value in zip(_AXES[3 - len(values):], values)}


class _Pool(torch.nn.Module):
    spatial = 2
    shown = ("kernel_size", "stride", "padding")

    def extra_repr(self):
        return ", ".join("%s=%s" % (name, getattr(self, name)) for name in self.shown)

    def _windows(self):
        """The parameters that say which cells are together."""
        made = {"spatial": self.spatial}
        for name, given in (("kernel", self.kernel_size), ("stride", self.stride), ("padding", self.padding)):
            made.update(_by_axis(name, _each(self, name + "_size" * (name == "kernel"), given, self.spatial)))
        steps = set(_each(self, "dilation", getattr(self, "dilation", 1), self.spatial))
        if len(steps) > 1:
            raise ValueError("%s: dilation: %r, and it is one for all dimensions" % (type(self).__name__, self.dilation))
        return {**made, "dilation": steps.pop(), "ceil": "yes" if self.ceil_mode else "no"}


class _MaxPool(_Pool):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode
        self._windows()

    def forward(self, input):
        y, index = _package.max_pool(input, return_index=self.return_indices, **self._windows())
        return (y, index) if self.return_indices else y


class _AvgPool(_Pool):
    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override
        if divisor_override is not None and divisor_override < 1:
            raise ValueError("%s: divisor_override: %r is not above 0" % (type(self).__name__, divisor_override))
        self._windows()

    def forward(self, input):
        return _package.avg_pool(input, count="padded" if self.count_include_pad else "present",
                                 divisor=self.divisor_override or 0, **self._windows())


class _OwnPool(_Pool):
    """Windows of an operator that torch.nn has not. more: {parameter: default}"""
    operator, more = "", {}

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **more):
        super().__init__()
        unknown = set(more) - set(self.more)
        if unknown:
            raise TypeError("%s: no argument named %r" % (type(self).__name__, sorted(unknown)[0]))
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode
        self.settings = {**self.more, **more}
        self._windows()

    def forward(self, input):
        return getattr(_package, self.operator)(input, **self._windows(), **self.settings)

    def extra_repr(self):
        return ", ".join([super().extra_repr(), *("%s=%s" % item for item in self.settings.items())])


class _AdaptivePool(_Pool):
    operator = ""
    shown = ("output_size",)

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size
        _each(self, "output_size", output_size, self.spatial)

    def _bins(self, input):
        """None: as many as there are cells."""
        sizes = _each(self, "output_size", self.output_size, self.spatial)
        cells = input.shape[-self.spatial:]
        sizes = [cell if size is None else size for size, cell in zip(sizes, cells)]
        return {"spatial": self.spatial, **_by_axis("size", sizes)}

    def forward(self, input):
        return getattr(_package, self.operator)(input, **self._bins(input))


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size, return_indices=False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input):
        y, index = _package.adaptive_max_pool(input, return_index=self.return_indices, **self._bins(input))
        return (y, index) if self.return_indices else y


class GeM(torch.nn.Module):
    """Generalised-mean pooling of all cells of [N, C, ...], to [N, C, 1, ...]. p is learned: one
    number, or one for each of `groups` groups of neighbouring channels (GGeM)."""

    def __init__(self, p=3.0, eps=1e-6, groups=1):
        super().__init__()
        self.p, self.eps = torch.nn.Parameter(torch.full((groups,), float(p))), eps

    def extra_repr(self):
        return "groups=%d, eps=%g" % (len(self.p), self.eps)

    def forward(self, input):
        if input.ndim < 3:
            raise ValueError("GeM: input: has %d dimensions, not 3 or more" % input.ndim)
        y = _package.gem_pool(input.flatten(2).transpose(1, 2), p=self.p.to(input.dtype), least=self.eps)
        return y.reshape(*input.shape[:2], *(1 for _ in input.shape[2:]))


class Maxout(torch.nn.Module):
    """The largest of every `pieces` neighbours along the last dimension."""

    def __init__(self, pieces=2):
        super().__init__()
        self.pieces = pieces

    def extra_repr(self):
        return "pieces=%d" % self.pieces

    def forward(self, input):
        return _package.maxout(input, pieces=self.pieces)[0]


_KINDS = {
    "MaxPool": (_MaxPool, {}, "torch.nn.%s"),
    "AvgPool": (_AvgPool, {}, "torch.nn.%s"),
    "SoftPool": (_OwnPool, {"operator": "soft_pool", "more": {"beta": 1.0, "gradient": "exact"}},
                 "The mean of each window under its own softmax (Stergiou et al. 2021)."),
    "LSEPool": (_OwnPool, {"operator": "lse_pool"}, "The logarithm of the sum of exponentials of each window."),
    "MixedPool": (_OwnPool, {"operator": "mixed_pool", "more": {"mix": 0.5}},
                  "mix of the maximum of each window, and 1 - mix of its mean (Lee et al. 2015)."),
    "AdaptiveAvgPool": (_AdaptivePool, {"operator": "adaptive_avg_pool"}, "torch.nn.%s"),
    "AdaptiveMaxPool": (_AdaptiveMaxPool, {}, "torch.nn.%s"),
    "AdaptiveSoftPool": (_AdaptivePool, {"operator": "adaptive_soft_pool"},
                         "The mean of each bin under its own softmax."),
}

__all__ = ["GeM", "Maxout"]
for _kind, (_base, _own, _text) in _KINDS.items():
    for _spatial in (1, 2, 3):
        _name = "%s%dd" % (_kind, _spatial)
        _doc = _text % _name if "%" in _text else _text
        globals()[_name] = type(_name, (_base,), {**_own, "spatial": _spatial, "__doc__": _doc, "__module__": __name__})
        __all__.append(_name)
