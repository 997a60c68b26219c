"""Spherical Hashing the slow way: one sphere, one pair, one sample at a time."""

from itertools import combinations, permutations

import numpy as np


def radii(X, pivots):
    """Half way between the two distances (squared) in the middle: m // 2 samples are inside."""
    half = len(X) // 2
    squares = []
    for p in pivots:
        d = sorted(float(((x - p) ** 2).sum()) for x in X)
        squares.append((d[half - 1] + d[half]) / 2)
    return np.sqrt(squares)


def inside(X, pivots, t):
    return np.array([[np.sqrt(((x - p) ** 2).sum()) <= t_k for p, t_k in zip(pivots, t, strict=True)] for x in X])


def overlap(bits):
    """{(i, j): number of samples inside both}, i < j."""
    return {(i, j): int((bits[:, i] & bits[:, j]).sum()) for i, j in combinations(range(bits.shape[1]), 2)}


def forces(pivots, o, m):
    f = np.zeros_like(pivots)
    for i, j in permutations(range(len(pivots)), 2):
        o_ij = o[min(i, j), max(i, j)]
        f[i] += 0.5 * (o_ij - m / 4) / (m / 4) * (pivots[i] - pivots[j])
    return f / len(pivots)


def train(X, pivots, tol_mean, tol_std, max_iter):
    """Pivots, radii and (mean |o_ij − m/4|, standard deviation of o_ij), both over m/4, after each iteration."""
    m = len(X)
    t = radii(X, pivots)
    history = []
    for _ in range(max_iter):
        pivots = pivots + forces(pivots, overlap(inside(X, pivots, t)), m)
        t = radii(X, pivots)
        o = np.array(list(overlap(inside(X, pivots, t)).values()))
        history.append((np.mean(np.abs(o - m / 4)) / (m / 4), np.std(o) / (m / 4)))
        if history[-1][0] <= tol_mean and history[-1][1] <= tol_std:
            break
    return pivots, t, np.array(history)
