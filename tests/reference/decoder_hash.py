"""DecoderHash, sample by sample, as its definition says."""

import numpy as np


def code_energy(x, b, W, anisotropy):
    """‖r‖² + η (r·x)² / ‖x‖², r = x − b W."""
    r = x - b @ W
    return r @ r + anisotropy * (r @ x) ** 2 / (x @ x)


def reconstruction_distances(q, B, mean, scale, W):
    """‖q − (mean + scale · b W)‖² of each code."""
    return np.array([np.sum((q - mean - scale * (b @ W)) ** 2) for b in B])


def query_loss(X, B, W, U, c, sharpness, batch):
    """The mean of −log of the share of the true neighbors, for each anchor of a batch that has one."""
    X, B, losses = X[batch.samples], B[batch.samples].astype(float), []
    for i, x in enumerate(X):
        near = set(batch.near[1][batch.near[0] == i])
        true = set(batch.positive[1][batch.positive[0] == i])
        scores = [(x @ U + c) @ b - np.sum((b @ W) ** 2) for b in B]
        weights = [batch.weights[i] if j in near else 1.0 for j in range(len(X))]
        shares = [w * np.exp(sharpness * s) for w, s in zip(weights, scores, strict=True)]
        if true:
            others = sum(share for j, share in enumerate(shares) if j != i)
            losses.append(-np.log(sum(shares[j] for j in true) / others))
    return np.mean(losses)
