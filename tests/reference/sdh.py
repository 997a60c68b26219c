"""Supervised Discrete Hashing, L2 loss, step by step with dense matrices in float64."""

import numpy as np


def rbf(X, anchors, sigma):
    return np.array([[np.exp(-np.sum((x - a) ** 2) / (2 * sigma**2)) for a in anchors] for x in X])


def objective(Y, B, W, F, P, nu, lambda_g, lambda_f):
    return (
        np.sum((Y - B @ W) ** 2) + lambda_g * np.sum(W**2) + nu * (np.sum((B - F @ P) ** 2) + lambda_f * np.sum(P**2))
    )


def sdh(F, Y, B, nu, lambda_g, lambda_f, n_iter, restart):
    """Codes, classifier and hash functions from the codes B, and J after each step."""
    L = B.shape[1]
    B = B.astype(float)

    def classifier():
        return np.linalg.inv(B.T @ B + lambda_g * np.eye(L)) @ B.T @ Y

    def functions():
        return np.linalg.inv(F.T @ F + lambda_f * np.eye(F.shape[1])) @ F.T @ B

    W, P = classifier(), functions()
    values = []
    for _ in range(n_iter):
        Q = Y @ W.T + nu * F @ P
        if restart:
            B = np.zeros_like(B)
        while True:
            before = B.copy()
            for k in range(L):
                others = [j for j in range(L) if j != k]
                B[:, k] = np.where(Q[:, k] - B[:, others] @ W[others] @ W[k] >= 0, 1, -1)
            if (before == B).all():
                break
        values.append(objective(Y, B, W, F, P, nu, lambda_g, lambda_f))
        W = classifier()
        values.append(objective(Y, B, W, F, P, nu, lambda_g, lambda_f))
        P = functions()
        values.append(objective(Y, B, W, F, P, nu, lambda_g, lambda_f))
    return B, W, P, values
