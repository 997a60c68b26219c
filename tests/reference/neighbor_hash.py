"""The softmax over neighbors of NeighborHash, anchor by anchor and pair by pair, as its definition says."""

import math

import numpy as np


def loss(affinity, samples, neighbors, n_positive):
    """The mean loss of a batch.

    ``affinity(i, j)``: of two positions in the batch; ``samples``: their numbers; ``neighbors``: the graph (m, k), of
    whose columns the first ``n_positive`` are true neighbors.
    """
    m, k = neighbors.shape
    b = len(samples)
    losses = []
    for i in range(b):
        near = [j for j in range(b) if samples[j] in neighbors[samples[i]]]
        inside = k / max(len(near), 1)
        outside = max(m - 1 - k, 1) / max(b - 1 - len(near), 1)
        everything = true = 0.0
        has_neighbor = False
        for j in range(b):
            if j == i:
                continue
            term = (inside if j in near else outside) * affinity(i, j)
            everything += term
            if samples[j] in neighbors[samples[i], :n_positive]:
                true += term
                has_neighbor = True
        if has_neighbor:
            losses.append(math.log(everything) - math.log(true))
    return float(np.mean(losses))


def divergence(affinity, samples, neighbors, X, gamma):
    """The mean over a batch of how far the shares by codes are from those by the distances of ``X``."""
    m, k = neighbors.shape
    b = len(samples)
    total = 0.0
    for i in range(b):
        near = [j for j in range(b) if samples[j] in neighbors[samples[i]]]
        inside = k / max(len(near), 1)
        outside = max(m - 1 - k, 1) / max(b - 1 - len(near), 1)
        others = [j for j in range(b) if j != i]
        weights = [inside if j in near else outside for j in others]
        true = [
            w * math.exp(-gamma / 2 * np.sum((X[samples[i]] - X[samples[j]]) ** 2))
            for w, j in zip(weights, others, strict=True)
        ]
        ours = [w * affinity(i, j) for w, j in zip(weights, others, strict=True)]
        for p, q in zip(true, ours, strict=True):
            p, q = p / sum(true), q / sum(ours)
            total += p * (math.log(p) - math.log(q))
    return total / b


def perplexity(i, X, gamma):
    """The exponential of the entropy of the shares that the others have by their distances to sample ``i``."""
    shares = [math.exp(-gamma / 2 * np.sum((X[i] - x) ** 2)) for j, x in enumerate(X) if j != i]
    shares = [share / sum(shares) for share in shares]
    return math.exp(-sum(p * math.log(p) for p in shares if p > 0))
