"""Cells of a space: k-means, and codes for the cells such that neighboring cells differ in few bits."""

from __future__ import annotations

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import Rows

# Iterations of k-means, which end earlier if no sample changes its cell.
_MAX_ITER = 25
# How often codes are assigned from a random start; the best counts.
_STARTS = 4


def nearest_cells(Y: Array, C: Floats) -> Indices:
    """The index of the nearest center, the first of those equally near: the largest yᵀc − ‖c‖² / 2."""
    near = Y @ C.T.astype(Y.dtype)
    near -= (0.5 * np.einsum("ij,ij->i", C, C)).astype(Y.dtype)
    return np.asarray(near.argmax(axis=1))


def cell_sums(Y: Array, cells: Indices, k: int) -> Floats:
    """The sum (k, d) of the samples of each cell."""
    from scipy.sparse import csc_array

    m = len(Y)
    return np.asarray(csc_array((np.ones(m), cells, np.arange(m + 1)), shape=(k, m)) @ Y)


def hamming_distances(b: int) -> Floats:
    """Hamming distances (2^b, 2^b) of the numbers below 2^b."""
    i = np.arange(1 << b)
    return np.asarray(np.bitwise_count(i[:, None] ^ i), dtype=np.float64)


def k_means(rows: Rows, k: int, rng: np.random.Generator) -> tuple[Floats, Indices]:
    """Return the centers (k, D) and the cell of each sample, by Lloyd's iterations from random samples.

    A cell that loses all samples keeps its center.
    """
    m = len(rows)
    C = rows.take(np.sort(rng.choice(m, k, replace=m < k))).astype(np.float64)
    cells = np.full(m, -1, dtype=np.intp)
    for _ in range(_MAX_ITER):

        def assign(block: slice, X: Array, C: Floats = C) -> tuple[list[Indices], Floats, Indices]:
            nearest = nearest_cells(X, C)
            return [nearest], cell_sums(X, nearest, k), np.bincount(nearest, minlength=k)

        parts, sums, counts = rows.total(assign)
        before, cells = cells, np.concatenate(parts)
        if np.array_equal(cells, before):
            break
        C = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], C)
    return C, cells


def cell_links(cells: Indices, neighbors: Array, k: int) -> Floats:
    """How many pairs (k, k) of neighbors lie in two cells; symmetric, 0 on the diagonal."""
    links = np.zeros((k, k))
    for column in neighbors.T:
        links += np.bincount(cells * k + cells[column], minlength=k * k).reshape(k, k)
    links += links.T
    np.fill_diagonal(links, 0)
    return np.asarray(links)


def assign_codes(links: Floats, b: int, rng: np.random.Generator) -> Indices:
    """Return a code (2^b,) for each cell, so that Σ links · Hamming distance is low: no swap of two codes lowers it.

    The best swap is made until none helps, from several random starts. Links are whole numbers, so that sums are
    exact.
    """
    H = hamming_distances(b)
    best: tuple[float, Indices] = (np.inf, np.arange(len(H)))
    for _ in range(_STARTS):
        codes = rng.permutation(len(H))
        D = H[np.ix_(codes, codes)]
        M = links @ D
        while True:
            diagonal = np.diag(M)
            # Half the change of the sum if the codes of cells i and j are swapped.
            change = M + M.T - diagonal - diagonal[:, None] + 2 * links * D
            i, j = np.unravel_index(change.argmin(), change.shape)
            if change[i, j] >= 0:
                break
            swapped, order = np.array([i, j]), np.array([j, i])
            before = D[swapped].copy()
            codes[swapped] = codes[order]
            D[swapped] = D[order]
            D[:, swapped] = D[:, order]
            M += links[:, swapped] @ (D[swapped] - before)
            M[:, swapped] = links @ D[:, swapped]
        value = float((links * D).sum())
        if value < best[0]:
            best = value, codes
    return best[1]
