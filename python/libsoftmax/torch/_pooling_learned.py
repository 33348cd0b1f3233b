"""Pooling of sets, layers, branches and graphs whose scores are learned (nn.py)."""

import operator

import torch

from .. import torch as _package


class AttentionPoolMIL(torch.nn.Module):
    """One row for each bag [..., n, dim]: the mean of its items by the softmax of the scores
    w tanh(V x), with gated=True w (tanh(V x) * sigmoid(U x)) (Ilse, Tomczak, Welling 2018). mask
    [..., n]: the items that are there; offsets: where bags begin that lie one behind the other.
    activation="sigmoid": of the mean (Zhu et al. 2023)."""

    def __init__(self, dim, hidden=128, gated=False, activation="none", bias=True):
        super().__init__()
        self.activation = activation
        self.v = torch.nn.Linear(dim, hidden, bias=bias)
        self.u = torch.nn.Linear(dim, hidden, bias=bias) if gated else None
        self.w = torch.nn.Linear(hidden, 1, bias=False)  # that of the softmax has no effect

    def extra_repr(self):
        return "activation=%s" % self.activation

    def scores(self, input):
        hidden = torch.tanh(self.v(input))
        return self.w(hidden * torch.sigmoid(self.u(input)) if self.u else hidden)[..., 0]

    def forward(self, input, mask=None, offsets=None):
        y = _package.attention_pool_mil(input, self.scores(input), mask=mask, offsets=offsets, activation=self.activation)
        return y if offsets is not None else y[..., 0, :]


class AttSets(torch.nn.Module):
    """One row, or `outputs` rows, for each set [..., n, dim]: means by a softmax of its own for each
    channel, whose scores are a linear layer of the items (Yang et al. 2018)."""

    def __init__(self, dim, outputs=1):
        super().__init__()
        self.outputs = outputs
        self.score = torch.nn.Linear(dim, outputs * dim, bias=False)  # that of a softmax over items has no effect

    def extra_repr(self):
        return "outputs=%d" % self.outputs

    def forward(self, input, mask=None, offsets=None):
        scores = self.score(input).unflatten(-1, (self.outputs, -1))
        y = _package.attsets_pool(input, scores, mask=mask, offsets=offsets)
        y = y if self.outputs > 1 else y[..., 0, :]
        return y if offsets is not None else y.squeeze(input.ndim - 2)


class LayerMix(torch.nn.Module):
    """Layers [..., layers, dim] mixed by the softmax of a learned score of each, times a learned
    number: the scalar mix of ELMo (Peters et al. 2018)."""

    def __init__(self, layers):
        super().__init__()
        self.score = torch.nn.Parameter(torch.zeros(layers))
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def extra_repr(self):
        return "layers=%d" % len(self.score)

    def forward(self, input):
        return _package.layer_mix(input, self.score.to(input.dtype), self.scale.to(input.dtype))


class SelectiveKernel(torch.nn.Module):
    """Branches [N, channels, ...] of one shape, most often of convolutions with different kernels,
    mixed channel by channel; the scores are made of the means of their sum (Li et al. 2019)."""

    def __init__(self, channels, branches=2, reduction=16, least=32):
        super().__init__()
        self.branches, width = branches, max(channels // reduction, least)
        self.squeeze = torch.nn.Linear(channels, width, bias=False)
        self.norm = torch.nn.BatchNorm1d(width)
        self.select = torch.nn.Linear(width, branches * channels, bias=False)

    def extra_repr(self):
        return "branches=%d" % self.branches

    def forward(self, *branches):
        if len(branches) != self.branches:
            raise TypeError("SelectiveKernel: %d branches are given, not %d" % (len(branches), self.branches))
        x = torch.stack(branches, 1)
        means = x.sum(1).flatten(2).mean(2)
        scores = self.select(torch.relu(self.norm(self.squeeze(means)))).unflatten(1, (self.branches, -1))
        return _package.selective_kernel(x.flatten(3), scores).reshape(branches[0].shape)


class QueryPool(torch.nn.Module):
    """One row for the tokens [N, n, dim] of each of N: attention that their mean asks, or that of the
    tokens `index` (Brothers 2025)."""

    def __init__(self, dim, num_heads=1, scale="model"):
        super().__init__()
        self.num_heads, self.scale = num_heads, scale
        self.wq, self.wk, self.wv, self.wo = (torch.nn.Linear(dim, dim, bias=False) for _ in range(4))

    def extra_repr(self):
        return "num_heads=%d, scale=%s" % (self.num_heads, self.scale)

    def forward(self, input, mask=None, index=None):
        matrices = (layer.weight for layer in (self.wq, self.wk, self.wv, self.wo))
        return _package.query_pool(input, *matrices, mask=mask, index=index, heads=self.num_heads, scale=self.scale)


class GraphTopKPool(torch.nn.Module):
    """The nodes [n, in_channels] of a graph that have the largest scores along a learned direction,
    times them: a part of the nodes (ratio below 1 or 1.0), so many (a whole number), or all above
    min_score. Gives what graph_topk_pool gives (Cangea et al. 2018)."""

    def __init__(self, in_channels, ratio=0.5, min_score=None, nonlinearity="tanh"):
        super().__init__()
        self.ratio, self.min_score, self.nonlinearity = ratio, min_score, nonlinearity
        self.weight = torch.nn.Parameter(torch.empty(in_channels))
        self.reset_parameters()

    def reset_parameters(self):
        bound = len(self.weight) ** -0.5 if len(self.weight) else 0
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def extra_repr(self):
        return "in_channels=%d, ratio=%s, min_score=%s" % (len(self.weight), self.ratio, self.min_score)

    def forward(self, x, edge_index, edge_weight=None, mask=None):
        if self.min_score is not None:
            how = {"choose": "threshold", "least": self.min_score}
        else:
            whole = isinstance(self.ratio, int)
            how = {"gate": self.nonlinearity, **({"k": operator.index(self.ratio)} if whole else {"ratio": self.ratio})}
        return _package.graph_topk_pool(x, self.weight.to(x.dtype), edge_index, weight=edge_weight, mask=mask, **how)


__all__ = ["AttSets", "AttentionPoolMIL", "GraphTopKPool", "LayerMix", "QueryPool", "SelectiveKernel"]
