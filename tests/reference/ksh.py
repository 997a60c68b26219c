"""KSH the slow way: S and R as matrices, every product anew, float64."""

import numpy as np
from scipy.linalg import eigh


def kernel(X, anchors, sigma2):
    return np.array([[np.exp(-((x - a) ** 2).sum() / (2 * sigma2)) for a in anchors] for x in X])


def similarities(y):
    return np.array([[1.0 if a == b else -1.0 for b in y] for a in y])


def squash(x):
    with np.errstate(over="ignore"):
        return 2 / (1 + np.exp(-x)) - 1


def g(K, R, a):
    return -squash(K @ a) @ R @ squash(K @ a)


def gradient(K, R, a):
    """By the chain rule, a sample at a time: ∂g/∂φ_i = −2 (Rφ)_i, φ' = e^{−x} · 2/(1 + e^{−x})²."""
    x = K @ a
    slope = -2 * R @ squash(x)
    e = np.exp(-x)
    return sum(s * 2 * q / (1 + q) ** 2 * row for s, q, row in zip(slope, e, K, strict=True))


def spectral(K, R):
    m = len(K)
    G = K.T @ K
    _, vectors = eigh(K.T @ R @ K, G)
    a = vectors[:, -1]
    a = a * np.sqrt(m / (a @ G @ a))
    return a if a[np.abs(a).argmax()] > 0 else -a


def smoothed(K, R, a, max_iter, tol):
    """The last a and the number of iterations."""
    costs = [g(K, R, a)]
    a0 = a1 = a
    delta, beta = [0.0, 1.0], 1.0
    for t in range(max_iter):
        v = a1 + (delta[t] - 1) / delta[t + 1] * (a1 - a0)
        slope = gradient(K, R, v)
        for j in range(51):
            b = 2.0**j * beta
            z = v - slope / b
            if g(K, R, z) <= g(K, R, v) + slope @ (z - v) + b / 2 * (z - v) @ (z - v):
                break
        else:
            break
        beta, a0, a1 = b, a1, z
        costs.append(g(K, R, z))
        delta.append((1 + np.sqrt(1 + 4 * delta[-1] ** 2)) / 2)
        if abs(costs[-1] - costs[-2]) / len(K) <= tol:
            break
    return a1, len(costs) - 1


def train(X, y, anchors, samples, n_bits, max_iter, tol):
    """A (p, n_bits), the mean of the kernel values, σ², and (objective, smoothed?, iterations) of each bit."""
    sigma2 = np.mean([[((x - a) ** 2).sum() for a in X[anchors]] for x in X])
    K = kernel(X, X[anchors], sigma2)
    mean = K.mean(axis=0)
    K = K[samples] - mean
    m = len(K)
    target = n_bits * similarities(y[samples])
    R, A, history = target.copy(), [], []
    for _ in range(n_bits):
        a = spectral(K, R)
        other, iterations = smoothed(K, R, a, max_iter, tol)
        b, c = (np.where(K @ w >= 0, 1.0, -1.0) for w in (a, other))
        better = c @ R @ c > b @ R @ b
        if better:
            a, b = other, c
        R = R - np.outer(b, b)
        A.append(a)
        history.append(((R**2).sum() / (m * n_bits) ** 2, better, iterations))
    return np.array(A).T, mean, sigma2, history
