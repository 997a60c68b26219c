"""Deep Hashing word for word: samples are columns, everything dense, float64, one weight matrix at a time."""

from itertools import pairwise

import numpy as np


def sgn(Z):
    return np.where(Z >= 0, 1.0, -1.0)


def initialize(X, units):
    """W^1: the top eigenvectors of the covariance as rows, the largest entry positive; W^m: the identity; c^m = 0."""
    _, vectors = np.linalg.eigh(np.cov(X, bias=True))
    W = [vectors[:, ::-1][:, : units[0]].T]
    W[0] = W[0] * sgn(W[0][np.arange(units[0]), np.abs(W[0]).argmax(axis=1)])[:, None]
    for s, t in pairwise(units):
        W.append(np.eye(t, s))
    return W, [np.zeros((t, 1)) for t in units]


def encode(X, W, c):
    """H^0 = X, H^1, …, H^M."""
    H = [X]
    for w, b in zip(W, c, strict=True):
        H.append(np.tanh(w @ H[-1] + b))
    return H


def terms(X, W, c, lambdas):
    l1, l2, l3 = lambdas
    m = X.shape[1]
    H = encode(X, W, c)[-1]
    B = sgn(H)
    return {
        "quantization": np.linalg.norm(B - H) ** 2 / (2 * m),
        "variance": -l1 / 2 * np.trace(H @ H.T / m),
        "orthogonality": l2 / 2 * sum(np.linalg.norm(w @ w.T - np.eye(len(w))) ** 2 for w in W),
        "weights": l3 / 2 * sum(np.linalg.norm(w) ** 2 + np.linalg.norm(b) ** 2 for w, b in zip(W, c, strict=True)),
    }


def gradient(X, W, c, lambdas):
    """Backpropagation, layer by layer."""
    l1, l2, l3 = lambdas
    m, M = X.shape[1], len(W)
    H = encode(X, W, c)
    dW, dc = [None] * M, [None] * M
    Delta = None
    for layer in range(M, 0, -1):
        slope = 1 - H[layer] ** 2
        if layer == M:
            Delta = (-(sgn(H[M]) - H[M]) / m - l1 / m * H[M]) * slope
        else:
            Delta = (W[layer].T @ Delta) * slope
        w, b = W[layer - 1], c[layer - 1]
        dW[layer - 1] = Delta @ H[layer - 1].T + 2 * l2 * (w @ w.T - np.eye(len(w))) @ w + l3 * w
        dc[layer - 1] = Delta @ np.ones((m, 1)) + l3 * b
    return dW, dc


def descend(X, units, lambdas, rate, steps):
    """W, c and the terms at the start and after each step."""
    W, c = initialize(X, units)
    history = [terms(X, W, c, lambdas)]
    for _ in range(steps):
        dW, dc = gradient(X, W, c, lambdas)
        W = [w - rate * d for w, d in zip(W, dW, strict=True)]
        c = [b - rate * d for b, d in zip(c, dc, strict=True)]
        history.append(terms(X, W, c, lambdas))
    return W, c, history
