"""CCA with class indicators by its textbook eigenproblem, and ITQ with the directions beyond the last left in."""

import numpy as np
from scipy.linalg import eig


def cca(X, Y, ridge):
    """All D directions w and correlations of centered X and Y, largest first; ridge of X's covariance.

    Centered indicators add up to 0, so that their covariance has no inverse, only a pseudo-inverse.
    """
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    m = len(X)
    Cxx, Cxy, Cyy = X.T @ X / m + ridge * np.eye(X.shape[1]), X.T @ Y / m, Y.T @ Y / m
    values, vectors = eig(np.linalg.inv(Cxx) @ Cxy @ np.linalg.pinv(Cyy, rcond=1e-10) @ Cxy.T)
    order = np.argsort(values.real)[::-1]
    W = vectors.real[:, order]
    W = W / np.sqrt(np.einsum("ik,ij,jk->k", W, Cxx, W))
    return W, np.sqrt(np.maximum(values.real[order], 0))


def itq(V, R, n_iter):
    """The rotation (L, L) after so many iterations."""
    for _ in range(n_iter):
        B = np.where(V @ R >= 0, 1, -1)
        U1, _, U2t = np.linalg.svd(B.T @ V)
        R = U2t.T @ U1.T
    return R
