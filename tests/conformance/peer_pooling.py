"""Clusters of scikit-learn and SciPy, from the same first centres, and TopKPooling of PyTorch Geometric beside the pooling of libsoftmax, as
docs/conventions.md says."""
import importlib.metadata
import sys

import numpy as np
import scipy.cluster.hierarchy
import sklearn.cluster
import torch
from torch_geometric.nn.pool import TopKPooling

import libsoftmax

random = np.random.default_rng(7)
TOLERANCE = 1e-12
TRIALS = 60


def numbered(labels):
    """Labels in the order of their first tokens, and their old numbers in that order."""
    order = list(dict.fromkeys(labels))
    return np.array([order.index(label) for label in labels]), order


def tokens():
    n, d = random.integers(6, 80), random.integers(2, 20)
    return random.standard_normal((n, d))


def k_means():
    x = tokens()
    weight, k = random.uniform(0.1, 1, len(x)), int(random.integers(2, 6))
    first = x[np.argsort(-weight, kind="stable")[:k]]
    theirs = sklearn.cluster.KMeans(k, init=first, n_init=1, tol=0, algorithm="lloyd").fit(x, sample_weight=weight)
    index, order = numbered(theirs.labels_)
    ours = libsoftmax.token_pool_kmeans(x, weight, k=k, steps=300)
    return ours.index, index, ours.y, theirs.cluster_centers_[order]


def ward(observations):
    x = tokens()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    factor = int(random.integers(2, 5))
    tree = scipy.cluster.hierarchy.linkage(1 - x @ x.T if observations == "cosine" else x, "ward")
    index, order = numbered(scipy.cluster.hierarchy.fcluster(tree, len(x) // factor, "maxclust"))
    ours = libsoftmax.token_pool_ward(x, factor=factor, observations=observations)
    return ours.index, index, ours.y, np.stack([x[index == k].mean(axis=0) for k in range(len(order))])


def graph(ours, **theirs):
    n, d = random.integers(2, 40), int(random.integers(1, 10))
    x, p, edge = random.standard_normal((n, d)), random.standard_normal(d), random.integers(0, n, (2, 50))
    layer = TopKPooling(d, **theirs)
    layer.select.weight.data = torch.tensor(p)[None]
    y, edges, weight, _, index, _ = layer(torch.tensor(x), torch.tensor(edge), torch.tensor(edge[0] * 1.0))
    found = libsoftmax.graph_topk_pool(x, p, edge, edge[0] * 1.0, **ours)
    kept = np.concatenate([found.index[:found.count], found.pooled_edge[:, :found.edges].ravel()])
    numbers = np.concatenate([found.y[:found.count].ravel(), found.pooled_weight[:found.edges]])
    return kept, torch.cat([index, edges.ravel()]).numpy(), numbers, torch.cat([y.ravel(), weight]).detach().numpy()


SAME = {  # name -> what is chosen here, there, the numbers here, there
    "KMeans with weights, scikit-learn": k_means,
    "Ward's linkage of cosine distances, SciPy": lambda: ward("cosine"),
    "Ward's linkage of vectors, SciPy": lambda: ward("vectors"),
    "TopKPooling by a ratio": lambda: graph({"ratio": 0.8}, ratio=0.8),
    "TopKPooling of three, sigmoid": lambda: graph({"k": 3, "gate": "sigmoid"}, ratio=3, nonlinearity="sigmoid"),
    "TopKPooling by a threshold": lambda: graph({"choose": "threshold", "least": 0.05}, ratio=None, min_score=0.05),
}


def main():
    failed = 0
    for name in ("scikit-learn", "scipy", "torch_geometric"):
        print("%s %s" % (name, importlib.metadata.version(name)))
    for name, one in SAME.items():
        trials = [one() for _ in range(TRIALS)]
        good = all(np.array_equal(i, j) and np.abs(y - z).max(initial=0) <= TOLERANCE for i, j, y, z in trials)
        failed += not good
        print("%-46s %s" % (name, "the same, %d times" % TRIALS if good else "FAILED"))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
