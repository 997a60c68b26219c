"""Labels that spread from labeled samples to their neighbors, and on from there.

D. Zhou, O. Bousquet, T. N. Lal, J. Weston and B. Schölkopf, "Learning with local and global consistency", NIPS 2003:

    F ← a S F + (1 − a) F₀,      S = D^{−½} A D^{−½},

A (m, m) the graph of neighbors, made symmetric; D its degrees; F₀ (m, c) the known labels, each class divided by its
size. A sample's class is where its row of F is largest, and the share of that in the row says how sure it is.

How far that can be trusted is measured: half of the labels are hidden and guessed from the other half. The least share
at which guesses are right often enough is asked of the samples that have no label.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import blocks_of_size
from hashlearn.hashers._targets import Targets

# How much of its label a sample has from its neighbors, and how often labels are passed on.
_FROM_NEIGHBORS, _ITERATIONS = 0.99, 50
# How often a guess must be right, and how many guesses at least must show it.
_RIGHT, _LEAST = 0.9, 10
# Classes that are spread together.
_CLASSES = 64


def spread_labels(y: Targets, neighbors: Array, rng: np.random.Generator) -> Targets:
    """Return the targets with guessed labels for the samples where guesses are right nine times in ten.

    Nothing is guessed if samples have several labels, or none of the classes.

    Parameters
    ----------
    y : Targets
    neighbors : ndarray of shape (m, k)
    rng : Generator
        Draws the labels to hide.
    """
    from scipy.sparse import csr_matrix

    counts = np.asarray(y.Y.sum(axis=1)).ravel()[y.labeled]
    if (counts != 1).any():
        return y
    order = y.labeled[rng.permutation(len(y.labeled))]
    hidden, seen = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    S = _similarities(neighbors)
    guesses, shares = _spread(S, y.Y, seen)
    right = (np.asarray(y.Y[hidden, guesses[hidden]]).ravel() > 0) & (shares[hidden] > 0)
    least = trusted_share(shares[hidden], right)
    guesses, shares = _spread(S, y.Y, y.labeled)
    shares[y.labeled] = -np.inf  # known, not guessed
    sure = np.flatnonzero((shares >= least) & (shares > 0))  # 0: no label arrives
    added = csr_matrix((np.ones(len(sure), dtype=np.float32), (sure, guesses[sure])), shape=y.Y.shape)
    return Targets(y.classes, y.Y + added, np.union1d(y.labeled, sure))


def trusted_share(shares: Floats, right: Array) -> float:
    """Return the least share such that guesses with at least this share are right often enough; ∞: there is none."""
    order = np.argsort(-shares, kind="stable")
    precision = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero((precision >= _RIGHT) & (np.arange(1, len(order) + 1) >= _LEAST))
    return float(shares[order[enough[-1]]]) if len(enough) else np.inf


def _similarities(neighbors: Array) -> Any:
    """Return S, sparse: the graph, symmetric, each entry divided by the roots of both samples' degrees."""
    from scipy.sparse import csr_matrix, diags_array

    m, k = neighbors.shape
    A = csr_matrix((np.ones(m * k), neighbors.ravel(), np.arange(0, m * k + 1, k)), shape=(m, m))
    A = A.maximum(A.T)
    D = diags_array(1 / np.sqrt(np.asarray(A.sum(axis=1)).ravel()))
    return (D @ A @ D).tocsr()


def _spread(S: Any, Y: Any, seen: Indices) -> tuple[Indices, Floats]:
    """Return the guessed class of every sample, from the labels of some, and its share; 0 where no label arrives."""
    m, c = Y.shape
    best, largest, sums = np.zeros(m, dtype=np.intp), np.zeros(m), np.zeros(m)
    for classes in blocks_of_size(c, _CLASSES):
        first = np.zeros((m, classes.stop - classes.start))
        first[seen] = Y[seen][:, classes].toarray()
        first /= np.maximum(first.sum(axis=0), 1)
        F = first
        for _ in range(_ITERATIONS):
            F = _FROM_NEIGHBORS * (S @ F) + (1 - _FROM_NEIGHBORS) * first
        top = F.argmax(axis=1)
        value = np.take_along_axis(F, top[:, None], axis=1)[:, 0]
        better = value > largest
        best[better], largest[better] = top[better] + classes.start, value[better]
        sums += F.sum(axis=1)
    return best, largest / np.where(sums > 0, sums, 1)
