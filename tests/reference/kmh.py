"""K-means Hashing, formula by formula: loops over samples and codewords, each codeword by a quasi-Newton method."""

import math

import numpy as np
from scipy.optimize import minimize


def hamming(i, j):
    return bin(i ^ j).count("1")


def bit(i, position, b):
    """Bit ``position`` of the index i of b bits, the most significant first."""
    return i >> (b - 1 - position) & 1


def allocate(eigenvalues, M):
    """The dimensions of each subspace; products of eigenvalues in units in which the least is e."""
    unit = min(eigenvalues) / math.e
    parts = [[] for _ in range(M)]
    for i, _ in enumerate(eigenvalues):
        open_parts = [p for p in parts if len(p) < len(eigenvalues) / M]
        min(open_parts, key=lambda part: math.prod(eigenvalues[j] / unit for j in part)).append(i)
    return parts


def pca(X):
    mean = X.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    R = vectors[:, ::-1]
    return mean, values[::-1], R * np.where(R[np.abs(R).argmax(axis=0), range(len(R))] < 0, -1, 1)


def start(Y, b):
    """PCA hashing's corners (s / 2) · ±1 in the leading dimensions."""
    s = 2 * np.mean([abs(y[i]) for y in Y for i in range(b)])
    C = np.zeros((2**b, Y.shape[1]))
    for i in range(2**b):
        for position in range(b):
            C[i, position] = s / 2 * (1 if bit(i, position, b) else -1)
    return C, s


def nearest(Y, C):
    return [min(range(len(C)), key=lambda i: float(((y - C[i]) ** 2).sum())) for y in Y]


def quantization_error(Y, C, index):
    return sum(float(((y - C[i]) ** 2).sum()) for y, i in zip(Y, index, strict=True)) / len(Y)


def affinity_error(C, index, s):
    m, k = len(index), len(C)
    n = [index.count(i) for i in range(k)]
    return sum(
        n[i] * n[j] / m**2 * (np.linalg.norm(C[i] - C[j]) - s * math.sqrt(hamming(i, j))) ** 2
        for i in range(k)
        for j in range(k)
    )


def update(Y, C, index, s, weight):
    """Each codeword in turn to a least point of its own part of E."""
    m, k, C = len(Y), len(C), C.copy()
    n = [index.count(i) for i in range(k)]
    for j in range(k):
        members = Y[[i == j for i in index]]
        if len(members) == 0:
            continue
        others = [i for i in range(k) if i != j]
        distance = np.array([s * math.sqrt(hamming(i, j)) for i in others])
        w = np.array([n[i] * n[j] / m**2 for i in others])

        def part(c, members=members, others=others, distance=distance, w=w):
            d = np.linalg.norm(c - C[others], axis=1)
            value = ((members - c) ** 2).sum() / m + 2 * weight * w @ (d - distance) ** 2
            slope = 2 * (c - members).sum(axis=0) / m + 4 * weight * (w * (d - distance) / d) @ (c - C[others])
            return value, slope

        C[j] = minimize(part, C[j], jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return C


def affinity_preserving_k_means(Y, b, weight, n_iter):
    """Codewords, and (E_quan, E_aff) at the beginning and after each iteration."""
    C, s = start(Y, b)
    index = nearest(Y, C)
    history = [(quantization_error(Y, C, index), affinity_error(C, index, s))]
    for _ in range(n_iter):
        C = update(Y, C, index, s, weight)
        index = nearest(Y, C)
        history.append((quantization_error(Y, C, index), affinity_error(C, index, s)))
    return C, history


def k_means_hashing(X, M, b, weight, n_iter):
    """Bits (m, M b), and (E_quan, E_aff) of all subspaces together, at the beginning and after each iteration."""
    mean, values, R = pca(X)
    bits, history = [], np.zeros((n_iter + 1, 2))
    for part in allocate(values, M):
        Y = (X - mean) @ R[:, part]
        C, errors = affinity_preserving_k_means(Y, b, weight, n_iter)
        history += errors
        bits += [[bit(i, position, b) for i in nearest(Y, C)] for position in range(b)]
    return np.array(bits).T, history
