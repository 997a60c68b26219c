"""Algorithm 2 of the paper, word for word: samples are columns, the m × m matrices are made, float64."""

import numpy as np

from reference.udh_dnn import lbfgs, sgn, sigmoid, top_eigenvectors


def pairwise_labels(y):
    return np.where(np.equal.outer(y, y), 1.0, -1.0)


def initialize(X, units):
    """Line 3. ``units``: s_2, …, s_n."""
    W, c, H = [], [], X
    for s in units:
        W.append(top_eigenvectors(np.cov(H, bias=True), s))
        c.append(np.zeros((s, 1)))
        H = sigmoid(W[-1] @ H)
    return W, c


def encode(X, W, c):
    """H^(1), …, H^(n)."""
    H = [X]
    for layer in range(len(W)):
        Z = W[layer] @ H[-1] + c[layer]
        H.append(Z if layer == len(W) - 1 else sigmoid(Z))
    return H


def terms(X, S, B, W, c, lambdas):
    """The five terms of equation (obj_sup2)."""
    l1, l2, l3, l4 = lambdas
    m, L = X.shape[1], len(B)
    H = encode(X, W, c)[-1]
    return {
        "pairs": np.linalg.norm(H.T @ H / L - S) ** 2 / (2 * m),
        "weights": l1 / 2 * sum(np.linalg.norm(w) ** 2 for w in W),
        "quantization": l2 / (2 * m) * np.linalg.norm(H - B) ** 2,
        "independence": l3 / 2 * np.linalg.norm(H @ H.T / m - np.eye(L)) ** 2,
        "balance": l4 / (2 * m) * np.linalg.norm(H.sum(axis=1)) ** 2,
    }


def gradient(X, S, B, W, c, lambdas):
    l1, l2, l3, l4 = lambdas
    m, L = X.shape[1], len(B)
    H = encode(X, W, c)
    Hn = H[-1]
    V = Hn.T @ Hn / L - S
    dW, dc = [None] * len(W), [None] * len(W)
    Delta = (
        Hn @ (V + V.T) / (m * L)
        + l2 / m * (Hn - B)
        + 2 * l3 / m * (Hn @ Hn.T / m - np.eye(L)) @ Hn
        + l4 / m * Hn @ np.ones((m, m))
    )
    for layer in range(len(W) - 1, -1, -1):
        dW[layer] = Delta @ H[layer].T + l1 * W[layer]
        dc[layer] = Delta @ np.ones((m, 1))
        Delta = (W[layer].T @ Delta) * H[layer] * (1 - H[layer])
    return dW, dc


def weights_step(X, S, B, W, c, lambdas, lbfgs_iter):
    return lbfgs(
        lambda W, c: (sum(terms(X, S, B, W, c, lambdas).values()), gradient(X, S, B, W, c, lambdas)), W, c, lbfgs_iter
    )


def algorithm_2(X, y, B, units, lambdas, max_iter, lbfgs_iter):
    """``B``: the codes by ITQ (line 2). Returns B, W, c and the terms after each iteration."""
    S = pairwise_labels(y)
    W, c = weights_step(X, S, B, *initialize(X, units), lambdas, lbfgs_iter)
    history = [terms(X, S, B, W, c, lambdas)]
    for _ in range(max_iter):
        B = sgn(encode(X, W, c)[-1])
        W, c = weights_step(X, S, B, W, c, lambdas, lbfgs_iter)
        history.append(terms(X, S, B, W, c, lambdas))
    return B, W, c, history
