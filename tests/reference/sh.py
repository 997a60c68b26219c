"""Spectral Hashing, bit by bit: eigenvalues by their formula, sines by Python's own."""

import math

import numpy as np


def pca(X, n):
    """Mean and the n leading eigenvectors, as rows; the largest entry of each is positive."""
    mean = X.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    rows = vectors[:, ::-1][:, :n].T
    return mean, np.array([w if w[np.abs(w).argmax()] > 0 else -w for w in rows])


def eigenvalue(k, a, b, epsilon):
    return 1 - math.exp(-(epsilon**2) / 2 * (k * math.pi / (b - a)) ** 2)


def choose(a, b, L, epsilon):
    """The L (direction, mode) pairs with the smallest eigenvalues."""
    pairs = [(eigenvalue(k, a[i], b[i], epsilon), i, k) for i in range(len(a)) for k in range(1, L + 1)]
    return [(i, k) for _, i, k in sorted(pairs)[:L]]


def spectral_hashing(X, L, epsilon):
    """Chosen pairs and the eigenfunctions' values (m, L)."""
    mean, W = pca(X, min(L, X.shape[1]))
    V = [[float(w @ (x - mean)) for w in W] for x in X]
    a = [min(v[i] for v in V) for i in range(len(W))]
    b = [max(v[i] for v in V) for i in range(len(W))]
    pairs = choose(a, b, L, epsilon)
    values = [[math.sin(math.pi / 2 + k * math.pi / (b[i] - a[i]) * (v[i] - a[i])) for i, k in pairs] for v in V]
    return pairs, np.array(values)
