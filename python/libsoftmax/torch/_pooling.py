"""Pooling with the names and arguments of torch.nn's modules (nn.py), of one to three spatial
dimensions behind any others."""

import math
import operator

import torch

from .. import torch as _package

_AXES = ("_d", "_h", "")  # of parameters, by spatial dimension; the last are those of the width


def _by_axis(name, values):
    """{parameter: value}"""
    return {name + axis: value for axis, value in zip(_AXES[3 - len(values):], values)}


class _Spatial(torch.nn.Module):
    spatial = 2

    def extra_repr(self):
        return ", ".join("%s=%s" % (name, getattr(self, name)) for name in self.shown)

    def _each(self, name, least, none=False):
        """An argument as one whole number a spatial dimension, with none or None. Those below least
        are refused here: to an operator they may mean that height or depth are as the width."""
        given = getattr(self, name)
        values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * self.spatial
        if len(values) != self.spatial:
            raise ValueError("%s: %s: has %d numbers, not %d" % (type(self).__name__, name, len(values), self.spatial))
        try:
            values = tuple(value if none and value is None else operator.index(value) for value in values)
        except TypeError:
            raise TypeError("%s: %s: %r is not made of whole numbers" % (type(self).__name__, name, given)) from None
        if any(value is not None and value < least for value in values):
            raise ValueError("%s: %s: %r is below %d" % (type(self).__name__, name, given, least))
        return values


class _Pool(_Spatial):
    """Windows."""
    shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode
        self._windows()

    def _windows(self):
        """The parameters that say which cells are together."""
        return {"spatial": self.spatial, **_by_axis("kernel", self._each("kernel_size", 1)),
                **_by_axis("stride", self._each("stride", 1)), **_by_axis("padding", self._each("padding", 0)),
                **_by_axis("dilation", self._each("dilation", 1)), "ceil": "yes" if self.ceil_mode else "no"}


class _MaxPool(_Pool):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode)
        self.return_indices = return_indices

    def forward(self, input):
        y, index = _package.max_pool(input, return_index=self.return_indices, **self._windows())
        return (y, index) if self.return_indices else y


class _AvgPool(_Pool):
    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        super().__init__(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override
        if divisor_override is not None and divisor_override < 1:
            raise ValueError("%s: divisor_override: %r is not above 0" % (type(self).__name__, divisor_override))

    def forward(self, input):
        return _package.avg_pool(input, count="padded" if self.count_include_pad else "present",
                                 divisor=self.divisor_override or 0, **self._windows())


class _OwnPool(_Pool):
    """Windows of an operator that torch.nn has not. more: {parameter: default}"""
    operator, more = "", {}

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **more):
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode)
        unknown = set(more) - set(self.more)
        if unknown:
            raise TypeError("%s: no argument named %r" % (type(self).__name__, sorted(unknown)[0]))
        self.settings = {**self.more, **more}

    def forward(self, input):
        return getattr(_package, self.operator)(input, **self._windows(), **self.settings)

    def extra_repr(self):
        return ", ".join([super().extra_repr(), *("%s=%s" % item for item in self.settings.items())])


class _MixedPool(_OwnPool):
    """learned: mix is where its parameter begins."""
    operator, more = "mixed_pool", {"mix": 0.5}

    def __init__(self, *args, learned=False, **given):
        super().__init__(*args, **given)
        self.mix = torch.nn.Parameter(torch.tensor(float(self.settings["mix"]))) if learned else None

    def forward(self, input):
        if self.mix is None:
            return super().forward(input)
        return _package.mixed_pool(input, self.mix.to(input.dtype), **self._windows())


class _LPPool(_Pool):
    """Powers of the size of a cell, where torch.nn has those of the cell: the same for an even
    norm_type, and for cells that are not below 0."""
    shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__(kernel_size, stride, 0, 1, ceil_mode)
        self.norm_type = norm_type

    def forward(self, input):
        power, windows = float(self.norm_type), self._windows()
        y = _package.lp_pool(input, power=power, **windows)
        if not self.ceil_mode:
            return y
        # torch.nn has the mean of the cells that are there, times the cells of a whole window.
        part = _package.avg_pool(input.new_ones(input.shape[-self.spatial:]), divisor=math.prod(self._each("kernel_size", 1)), **windows)
        return y / part ** (1 / power)


class _MaxUnpool(_Spatial):
    """The inverse of _MaxPool with return_indices=True; output_size: the last dimensions, or all."""
    shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding = padding
        self._windows()

    def _windows(self):
        return {"spatial": self.spatial, **_by_axis("kernel", self._each("kernel_size", 1)),
                **_by_axis("stride", self._each("stride", 1)), **_by_axis("padding", self._each("padding", 0))}

    def forward(self, input, indices, output_size=None):
        if output_size is not None and len(output_size) not in (self.spatial, input.ndim):
            raise ValueError("%s: output_size: has %d numbers, not %d or %d"
                             % (type(self).__name__, len(output_size), self.spatial, input.ndim))
        sizes = {} if output_size is None else self._sizes(list(output_size)[-self.spatial:], input)
        return _package.max_unpool(input, indices, **self._windows(), **sizes)

    def _sizes(self, sizes, input):
        """Sizes that windows may come from: within a stride of those of all windows."""
        each = (self._each(name, lowest) for name, lowest in (("kernel_size", 1), ("stride", 1), ("padding", 0)))
        for size, cells, kernel, stride, padding in zip(sizes, input.shape[-self.spatial:], *each):
            whole = (cells - 1) * stride - 2 * padding + kernel
            least = max(whole - stride, 0)
            if not least < operator.index(size) < whole + stride:
                raise ValueError("%s: output_size: %d is not between %d and %d"
                                 % (type(self).__name__, size, least, whole + stride))
        return _by_axis("size", sizes)


class _AdaptivePool(_Spatial):
    operator = ""
    shown = ("output_size",)

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size
        self._each("output_size", 1, none=True)

    def _bins(self, input):
        """None: as many as there are cells."""
        sizes = self._each("output_size", 1, none=True)
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


class SimPool(torch.nn.Module):
    """One row for the tokens [N, n, dim], or cells [N, dim, H, W], of each of N: attention that their
    mean asks (Psomas et al. 2023). gamma: a power mean of the values in place of their sum."""

    def __init__(self, dim, num_heads=1, gamma=None, eps=1e-6):
        super().__init__()
        self.num_heads, self.gamma = num_heads, gamma
        self.norm = torch.nn.LayerNorm(dim, eps=eps)
        self.wq, self.wk = (torch.nn.Linear(dim, dim, bias=False) for _ in range(2))

    def extra_repr(self):
        return "num_heads=%d, gamma=%s" % (self.num_heads, self.gamma)

    def forward(self, input):
        tokens = input.flatten(2).transpose(1, 2) if input.ndim == 4 else input
        return _package.sim_pool(tokens, self.wq.weight, self.wk.weight, gain=self.norm.weight, bias=self.norm.bias,
                                 heads=self.num_heads, gamma=self.gamma or 0, eps=self.norm.eps)


class LayerAttentionPool(torch.nn.Module):
    """One row of length 1 for what the layers of a model say of a sequence, [N, layers, dim]:
    learned latents look at the layers, in one block of a transformer, and their mean is normalised
    (Tang, Yang 2024). Layers are keys and values, with an embedding of their own each; the
    feed-forward part is gated by GELU, and mult times as wide."""

    def __init__(self, dim, layers, num_latents=64, num_heads=8, dim_head=64, mult=4):
        super().__init__()
        inner = num_heads * dim_head
        self.num_heads = num_heads
        self.latents = torch.nn.Parameter(torch.randn(num_latents, dim))
        self.layers = torch.nn.Embedding(layers, dim)
        self.norm_layers, self.norm_latents, self.norm = (torch.nn.LayerNorm(dim) for _ in range(3))
        self.wq, self.wk, self.wv = (torch.nn.Linear(dim, inner, bias=False) for _ in range(3))
        self.wo = torch.nn.Linear(inner, dim, bias=False)
        self.wide, self.narrow = torch.nn.Linear(dim, 2 * mult * dim), torch.nn.Linear(mult * dim, dim)

    def extra_repr(self):
        return "num_latents=%d, num_heads=%d" % (len(self.latents), self.num_heads)

    def _heads(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def forward(self, input):
        if input.shape[1:] != self.layers.weight.shape:
            raise ValueError("LayerAttentionPool: input: shape is %s, not [N, %d, %d]"
                             % (list(input.shape), *self.layers.weight.shape))
        told = self.norm_layers(input + self.layers.weight)
        asked = self.wq(self.norm_latents(self.latents)).expand(len(input), -1, -1)
        q, k, v = (self._heads(a) for a in (asked, self.wk(told), self.wv(told)))
        found = _package.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2)
        x = self.wo(found) + self.latents
        y, gate = self.wide(self.norm(x)).chunk(2, dim=-1)
        x = self.narrow(y * torch.nn.functional.gelu(gate)) + x
        return torch.nn.functional.normalize(x.mean(1), dim=-1)


class Maxout(torch.nn.Module):
    """The largest of every `pieces` neighbours along the last dimension."""

    def __init__(self, pieces=2):
        super().__init__()
        self.pieces = pieces

    def extra_repr(self):
        return "pieces=%d" % self.pieces

    def forward(self, input):
        return _package.maxout(input, pieces=self.pieces)[0]


class SpatialPyramidPool(torch.nn.Module):
    """The largest, or with mode="avg" the mean, of n x n bins of [N, C, H, W] for each of the
    levels n, end to end: [N, C * sum of n^2], level by level, bin by bin, its channels side by side
    (He et al. 2014)."""

    def __init__(self, levels=(6, 3, 2, 1), mode="max"):
        super().__init__()
        if mode not in ("max", "avg"):
            raise ValueError("SpatialPyramidPool: mode: %r is not one of max, avg" % (mode,))
        self.levels, self.mode = tuple(levels), mode

    def extra_repr(self):
        return "levels=%s, mode=%s" % (self.levels, self.mode)

    def forward(self, input):
        if input.ndim != 4:
            raise ValueError("SpatialPyramidPool: input: has %d dimensions, not 4" % input.ndim)
        parts = []
        for n in self.levels:
            y = _package.adaptive_avg_pool(input, size=n) if self.mode == "avg" else _package.adaptive_max_pool(input, size=n)[0]
            parts.append(y.flatten(2).transpose(1, 2).flatten(1))
        return torch.cat(parts, 1)


class _AdaPool(_Pool):
    def __init__(self, *args, beta=0.5, **given):
        super().__init__(*args, **given)
        self.beta = torch.nn.Parameter(torch.as_tensor(beta, dtype=torch.get_default_dtype()).clone())

    def _mixture(self, input):
        return {"map" if self.beta.ndim else "mix": self.beta.to(input.dtype)}

    def forward(self, input):
        return _package.ada_pool(input, **self._mixture(input), **self._windows())

    def unpool(self, cells, input):
        """Gives input, an output for each window, to the cells by their weights in `cells`, which were
        pooled. Windows have to lie side by side."""
        windows = self._windows()
        kernels = self._each("kernel_size", 1)
        if self._each("stride", 1) != kernels or any(self._each("padding", 0)) or any(step > 1 for step in self._each("dilation", 1)):
            raise ValueError("%s: unpool: windows do not lie side by side" % type(self).__name__)
        given = {name: value for name, value in windows.items() if name[:6] in ("spatia", "kernel", "ceil")}
        return _package.ada_unpool(cells, input, **self._mixture(input), **given)


class _StochasticPool(_Pool):
    def __init__(self, *args, chances="softmax", **given):
        super().__init__(*args, **given)
        self.chances = chances

    def forward(self, input):
        if not self.training:
            return _package.stochastic_pool(input, chances=self.chances, form="mean", **self._windows())[0]
        seed = int(torch.randint(2**53 - 1, ()))
        return _package.stochastic_pool(input, chances=self.chances, seed=seed, **self._windows())[0]


class _GatedPool(_Pool):
    def __init__(self, *args, **given):
        super().__init__(*args, **given)
        self.weight = torch.nn.Parameter(torch.zeros(math.prod(self._each("kernel_size", 1))))

    def forward(self, input):
        return _package.gated_pool(input, self.weight.to(input.dtype), **self._windows())


class _TreePool(_Pool):
    """leaves: 2, 4 ... 64."""
    shown = (*_Pool.shown, "leaves")

    def __init__(self, *args, leaves=2, **given):
        super().__init__(*args, **given)
        if leaves not in (2, 4, 8, 16, 32, 64):
            raise ValueError("%s: leaves: %r is not one of 2, 4, 8, 16, 32, 64" % (type(self).__name__, leaves))
        self.leaves = leaves = int(leaves)
        cells = math.prod(self._each("kernel_size", 1))
        self.weight = torch.nn.Parameter(torch.full((leaves, cells), 1 / cells) * (1 + 0.1 * torch.randn(leaves, cells)))
        self.gate = torch.nn.Parameter(torch.zeros(leaves - 1, cells))

    def forward(self, input):
        return _package.tree_pool(input, self.weight.to(input.dtype), self.gate.to(input.dtype), **self._windows())


_KINDS = {
    "MaxPool": (_MaxPool, {}, "torch.nn.%s"),
    "AvgPool": (_AvgPool, {}, "torch.nn.%s"),
    "SoftPool": (_OwnPool, {"operator": "soft_pool", "more": {"beta": 1.0, "gradient": "exact"}},
                 "The mean of each window under its own softmax (Stergiou et al. 2021)."),
    "LSEPool": (_OwnPool, {"operator": "lse_pool"}, "The logarithm of the sum of exponentials of each window."),
    "MaxUnpool": (_MaxUnpool, {}, "torch.nn.%s"),
    "MixedPool": (_MixedPool, {}, "mix of the maximum of each window, and 1 - mix of its mean; learned=True: it is a parameter "
                  "(Lee et al. 2015)."),
    "AdaPool": (_AdaPool, {}, "The mean under Dice coefficients and soft pooling, mixed by a learned beta, one number or, as a tensor, "
                "one for each output (Stergiou, Poppe 2021)."),
    "IDWPool": (_OwnPool, {"operator": "idw_pool"}, "The mean of each window by inverse distances to its plain mean."),
    "StochasticPool": (_StochasticPool, {}, "A cell of each window, drawn by softmax or with chances=\"ratio\" by size; the mean by these "
                       "chances in evaluation. torch's generator gives the seed (Zeiler, Fergus 2013)."),
    "LPPool": (_LPPool, {}, "torch.nn.%s, of the sizes of cells where norm_type is odd."),
    "TreePool": (_TreePool, {}, "Learned filters mixed by a tree of learned gates; they begin near the mean (Lee et al. 2015)."),
    "GatedPool": (_GatedPool, {}, "Maximum and mean mixed by a learned gate, which begins at a half (Lee et al. 2015)."),
    "AdaptiveAvgPool": (_AdaptivePool, {"operator": "adaptive_avg_pool"}, "torch.nn.%s"),
    "AdaptiveMaxPool": (_AdaptiveMaxPool, {}, "torch.nn.%s"),
    "AdaptiveSoftPool": (_AdaptivePool, {"operator": "adaptive_soft_pool"},
                         "The mean of each bin under its own softmax."),
}

__all__ = ["GeM", "LayerAttentionPool", "Maxout", "SimPool", "SpatialPyramidPool"]
for _kind, (_base, _own, _text) in _KINDS.items():
    for _spatial in (1, 2, 3):
        _name = "%s%dd" % (_kind, _spatial)
        _doc = _text % _name if "%" in _text else _text
        globals()[_name] = type(_name, (_base,), {**_own, "spatial": _spatial, "__doc__": _doc, "__module__": __name__})
        __all__.append(_name)
