"""The losses of LabelHash, sample by sample and pair by pair, as their definitions say; its network, layer by layer."""

import math

import numpy as np


def contrast(codes, classes, alpha):
    """The mean over samples that share a class with another; ``classes``: a set for each sample."""
    losses = []
    for i in range(len(codes)):
        everything = alike = 0.0
        for j in range(len(codes)):
            if j == i:
                continue
            affinity = math.exp(-alpha * (codes[i] != codes[j]).sum())
            everything += affinity
            if classes[i] & classes[j]:
                alike += affinity
        if alike:
            losses.append(math.log(everything) - math.log(alike))
    return float(np.mean(losses))


def cross_entropy(outputs, classes):
    """The mean over samples that have a class; several count in equal parts."""
    losses = []
    for row, own in zip(outputs, classes, strict=True):
        if own:
            total = math.log(sum(math.exp(value) for value in row))
            losses.append(float(np.mean([total - row[k] for k in own])))
    return float(np.mean(losses))


def outputs(X, w, epsilon=1e-5):
    """H of all rows, with statistics of all rows, and nothing dropped."""

    def normalized(Z):
        return (Z - Z.mean(axis=0)) / np.sqrt(Z.var(axis=0) + epsilon)

    return normalized(np.maximum(normalized(X @ w.W1) * w.g + w.c1, 0) @ w.W2)
