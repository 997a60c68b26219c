"""Algorithm 1 of the paper, word for word: samples are columns, everything dense, float64, one bit at a time."""

import numpy as np
from scipy.optimize import minimize


def sigmoid(Z):
    return 1 / (1 + np.exp(-Z))


def sgn(Z):
    return np.where(Z >= 0, 1.0, -1.0)


def top_eigenvectors(C, n):
    """As rows; the largest entry of each is positive."""
    _, vectors = np.linalg.eigh(C)
    W = vectors[:, ::-1][:, :n].T
    largest = W[np.arange(n), np.abs(W).argmax(axis=1)]
    return W * sgn(largest)[:, None]


def initialize(X, units):
    """Line 2: W^(1) from X, W^(l) from H^(l), the decoder I, biases 0. ``units``: s_2, …, s_{n−1}."""
    D = len(X)
    W, c, H = [], [], X
    for s in units:
        W.append(top_eigenvectors(np.cov(H, bias=True), s))
        c.append(np.zeros((s, 1)))
        H = sigmoid(W[-1] @ H)
    W.append(np.eye(D, units[-1]))
    c.append(np.zeros((D, 1)))
    return W, c


def encode(X, W, c):
    """H^(1), …, H^(n−1)."""
    H = [X]
    for layer in range(len(W) - 1):
        Z = W[layer] @ H[-1] + c[layer]
        H.append(Z if layer == len(W) - 2 else sigmoid(Z))
    return H


def terms(X, B, W, c, lambdas, similarity=1):
    """The five terms of equation (obj_5), the first weighted with ``similarity``."""
    l1, l2, l3, l4 = lambdas
    m, L = X.shape[1], len(B)
    H = encode(X, W, c)[-1]
    return {
        "reconstruction": similarity * np.linalg.norm(X - W[-1] @ B - c[-1]) ** 2 / (2 * m),
        "weights": l1 / 2 * sum(np.linalg.norm(w) ** 2 for w in W),
        "quantization": l2 / (2 * m) * np.linalg.norm(H - B) ** 2,
        "independence": l3 / 2 * np.linalg.norm(H @ H.T / m - np.eye(L)) ** 2,
        "balance": l4 / (2 * m) * np.linalg.norm(H.sum(axis=1)) ** 2,
    }


def gradient(X, B, W, c, lambdas, similarity=1):
    """The paper's formulas; the sums over samples with matrices of ones."""
    l1, l2, l3, l4 = lambdas
    m, L = X.shape[1], len(B)
    H = encode(X, W, c)
    Hn = H[-1]
    dW, dc = [None] * len(W), [None] * len(W)
    dW[-1] = -similarity / m * (X - W[-1] @ B - c[-1]) @ B.T + l1 * W[-1]
    dc[-1] = -similarity / m * ((X - W[-1] @ B) @ np.ones((m, 1)) - m * c[-1])
    Delta = l2 / m * (Hn - B) + 2 * l3 / m * (Hn @ Hn.T / m - np.eye(L)) @ Hn + l4 / m * Hn @ np.ones((m, m))
    for layer in range(len(W) - 2, -1, -1):
        dW[layer] = Delta @ H[layer].T + l1 * W[layer]
        dc[layer] = Delta @ np.ones((m, 1))
        Delta = (W[layer].T @ Delta) * H[layer] * (1 - H[layer])
    return dW, dc


def lbfgs(value_and_gradient, W, c, max_iter):
    """W and c that minimize a function of them: ``value_and_gradient(W, c) -> value, (dW, dc)``."""
    shapes = [part.shape for part in (*W, *c)]
    edges = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

    def split(theta):
        parts = [theta[a:b].reshape(shape) for a, b, shape in zip(edges, edges[1:], shapes, strict=False)]
        return parts[: len(W)], parts[len(W) :]

    def function(theta):
        value, (dW, dc) = value_and_gradient(*split(theta))
        return value, np.concatenate([part.ravel() for part in (*dW, *dc)])

    theta = np.concatenate([part.ravel() for part in (*W, *c)])
    options = {"maxiter": max_iter, "maxfun": 10_000, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-9}
    return split(minimize(function, theta, jac=True, method="L-BFGS-B", options=options).x)


def weights_step(X, B, W, c, lambdas, lbfgs_iter, similarity=1):
    def value_and_gradient(W, c):
        return sum(terms(X, B, W, c, lambdas, similarity).values()), gradient(X, B, W, c, lambdas, similarity)

    return lbfgs(value_and_gradient, W, c, lbfgs_iter)


def codes_step(X, B, W, c, lambdas, sweeps, similarity=1):
    B, L = B.copy(), len(B)
    H = encode(X, W, c)[-1]
    Wd = W[-1]
    V = X - c[-1]
    Q = similarity * Wd.T @ V + lambdas[1] * H
    for _ in range(sweeps):
        before = B.copy()
        for k in range(L):
            others = [j for j in range(L) if j != k]
            B[k] = sgn(Q[k] - similarity * Wd[:, k] @ Wd[:, others] @ B[others])
        if (before == B).all():
            break
    return B


def algorithm_1(X, B, units, lambdas, max_iter, lbfgs_iter, sweeps, similarity=1):
    """``B``: the codes by ITQ (line 1). Returns B, W, c and the terms after each iteration."""
    W, c = weights_step(X, B, *initialize(X, units), lambdas, lbfgs_iter, similarity)
    history = [terms(X, B, W, c, lambdas, similarity)]
    for _ in range(max_iter):
        B = codes_step(X, B, W, c, lambdas, sweeps, similarity)
        W, c = weights_step(X, B, W, c, lambdas, lbfgs_iter, similarity)
        history.append(terms(X, B, W, c, lambdas, similarity))
    return B, W, c, history


def relaxed_terms(X, W, c, lambdas, similarity=1):
    """With H in the place of B, so that nothing is quantized; W and c without the decoder, which is at its best."""
    m = X.shape[1]
    H = encode(X, [*W, None], [*c, None])[-1]
    # λ₀/(2m) ‖X − W_d H − c_d 1ᵀ‖² + λ₁/2 ‖W_d‖² as least squares: m rows for the samples, then L for the weights.
    A = np.sqrt(similarity / m) * np.hstack([H.T, np.ones((m, 1))])
    A = np.vstack([A, np.sqrt(lambdas[0]) * np.eye(len(H), len(H) + 1)])
    target = np.vstack([np.sqrt(similarity / m) * X.T, np.zeros((len(H), len(X)))])
    decoder, *_ = np.linalg.lstsq(A, target)
    return terms(X, H, [*W, decoder[:-1].T], [*c, decoder[-1:].T], lambdas, similarity)
