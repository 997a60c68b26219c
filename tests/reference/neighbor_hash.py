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
