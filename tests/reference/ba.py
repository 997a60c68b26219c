"""The binary autoencoder, literally: codes 0/1, all of them tried for each sample, scikit-learn's machines."""

from itertools import product

import numpy as np
from sklearn.svm import LinearSVC


def objective(X, Z, hX, W, c, mu):
    """Σ ‖x − f(z)‖² + μ Σ ‖z − h(x)‖², for codes 0/1."""
    return np.sum((X - Z @ W - c) ** 2) + mu * np.sum((Z - hX) ** 2)


def decoder(X, Z):
    """Least squares with an offset."""
    solution = np.linalg.lstsq(np.column_stack([Z, np.ones(len(Z))]), X, rcond=None)[0]
    return solution[:-1], solution[-1]


def encoder(X, Z, C=100.0):
    """A support vector machine a bit."""
    return [LinearSVC(C=C, dual=False, tol=1e-6, max_iter=10_000).fit(X, Z[:, k]) for k in range(Z.shape[1])]


def encode(machines, X):
    return np.column_stack([(machine.decision_function(X) >= 0).astype(float) for machine in machines])


def codes(X, hX, W, c, mu):
    """For each sample the best of all codes."""
    candidates = np.array(list(product((0.0, 1.0), repeat=len(W))))
    best = []
    for x, h in zip(X, hX, strict=True):
        costs = [np.sum((x - z @ W - c) ** 2) + mu * np.sum((z - h) ** 2) for z in candidates]
        best.append(candidates[int(np.argmin(costs))])
    return np.array(best)


def train(X, L, mu, mu_factor, n_iter):
    """Codes of the hash functions after ``n_iter`` iterations, and the reconstruction error of the codes."""
    X = (X - X.mean(axis=0)) / np.ptp(X, axis=0).max()
    _, vectors = np.linalg.eigh(X.T @ X)
    P = vectors[:, ::-1][:, :L]
    P = P * np.sign(P[np.abs(P).argmax(axis=0), np.arange(L)])
    Z = (X @ P >= 0).astype(float)
    W, c = decoder(X, Z)
    hX = encode(encoder(X, Z), X)
    for i in range(n_iter):
        Z = codes(X, hX, W, c, mu * mu_factor**i)
        W, c = decoder(X, Z)
        hX = encode(encoder(X, Z), X)
    return hX, np.sum((X - Z @ W - c) ** 2) / len(X)
