"""A softmax over neighbors: how much of what is near a sample, by its code, are its true neighbors.

For anchor i of a batch, affinities a_ij > 0 to the others, weights w_ij and its true neighbors N_i:

    ℓ_i = log Σ_{j≠i} w_ij a_ij − log Σ_{j∈N_i} w_ij a_ij,

averaged over the anchors that have a true neighbor in the batch. This is neighborhood component analysis
(J. Goldberger, S. Roweis, G. Hinton and R. Salakhutdinov, NIPS 2004), of codes, with true neighbors in the place of
classes.

With targets instead, shares p_ij that fall with distance, ℓ_i is how far the shares by codes are from them,

    ℓ_i = Σ_{j≠i} p_ij (log p_ij − log q_ij),   q_ij ∝ w_ij a_ij,   p_ij ∝ w_ij exp(−γ ‖x_i − x_j‖² / 2),

averaged over all anchors. This is stochastic neighbor embedding (G. Hinton and S. Roweis, NIPS 2002), of codes, with
one γ for all (:func:`bandwidth`).

A batch consists of groups: a sample, and some of its k nearest neighbors. So it holds more neighbors of an anchor than
chance would bring. Weights make up for that: s samples of the batch that are among the k nearest of an anchor stand for
all k, with w = k / s, and the others for the rest, with w = (m − 1 − k) / (b − 1 − s). The first sum then estimates
that over all samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from hashlearn._arrays import Array, Indices
from hashlearn.codes import signs
from hashlearn.hashers._blocks import Rows, blocks_of_size, shuffled_batches
from hashlearn.threads import ThreadMap

# The slope of the tanh whose derivative replaces that of the sign.
_SLOPE = 2.0
# Rows of a batch that are processed together: the sums of a step do not depend on the number of threads.
_PART = 256
# γ is the median of those of this many samples, and is searched for between these bounds, which suit rows whose squared
# lengths are about 1 to 100. Rows are equal up to this share of the mean squared distance, the rounding of float32.
_TYPICAL, _WIDEST, _EQUAL = 51, (1e-6, 1e6), 1e-5


class Batch(NamedTuple):
    """Samples to contrast with one another."""

    #: Their numbers (b,).
    samples: Indices
    #: Pairs of positions in the batch, by the first: an anchor and one of its k nearest; and one of its true neighbors.
    near: tuple[Indices, Indices]
    positive: tuple[Indices, Indices]
    #: For each anchor (b,), the weight of one of its k nearest in units of that of any other sample.
    weights: Array
    #: How many anchors have a true neighbor in the batch.
    n_anchors: int
    #: For each anchor, the share that each sample of the batch should have (b, b); None: true neighbors count the same.
    targets: Array | None = None

    def parts(self) -> list[slice]:
        """The batch in parts that are processed together."""
        return blocks_of_size(len(self.samples), _PART)


def draw_batches(
    neighbors: Array, n_positive: int, batch_size: int, members: int, n_batches: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Draw batches of groups, each of a sample and ``members`` of its neighbors; a sample that comes again is left out.

    The first samples of the groups are drawn in rounds, in each of which no sample comes twice.

    Parameters
    ----------
    neighbors : ndarray of shape (m, k)
        The graph, nearest first.
    n_positive : int
        How many of them are true neighbors.
    batch_size, members, n_batches : int
    rng : Generator
    """
    m, k = neighbors.shape
    members = min(members, k)
    n_groups = max(1, min(batch_size, m) // (members + 1))
    position = np.full(m, -1, dtype=np.intp)
    rounds = (first for _ in count() for first in shuffled_batches(m, n_groups, rng) if len(first) == n_groups)
    for first in islice(rounds, n_batches):
        others = np.argsort(rng.random((n_groups, k)), axis=1)[:, :members]
        drawn = np.hstack([first[:, None], np.take_along_axis(neighbors[first], others, axis=1)]).ravel()
        samples = drawn[np.sort(np.unique(drawn, return_index=True)[1])].astype(np.intp)
        b = len(samples)
        position[samples] = np.arange(b)
        places = position[neighbors[samples]]
        position[samples] = -1
        anchors, columns = np.nonzero(places >= 0)
        others = places[anchors, columns]
        s = np.bincount(anchors, minlength=b)
        weights = k / np.maximum(s, 1) * np.maximum(b - 1 - s, 1) / max(m - 1 - k, 1)
        true = columns < n_positive
        positive = anchors[true], others[true]
        yield Batch(samples, (anchors, others), positive, weights, len(np.unique(positive[0])))


def bandwidth(rows: Rows, perplexity: float, rng: np.random.Generator, threads: ThreadMap) -> float:
    """Return the γ for which the shares exp(−γ ‖x − y‖² / 2) of the others y have this perplexity for a typical x.

    The perplexity, the exponential of the entropy, tells among how many neighbors the shares are divided. A typical
    sample is the median of some that are drawn at random. Others that are equal to x, but for rounding, do not count.

    Parameters
    ----------
    rows : Rows
    perplexity : float
        Above 1.
    rng : Generator
    threads : ThreadMap
    """
    some = rng.choice(len(rows), min(_TYPICAL, len(rows)), replace=False)
    Y = rows.take(some)
    lengths = np.einsum("ij,ij->i", Y, Y)
    squares = rows.map(lambda _, X: np.einsum("ij,ij->i", X, X)[:, None] + lengths - 2 * X @ Y.T)

    def solve(i: int) -> float:
        d = squares[:, i]
        d = d[d > _EQUAL * d.mean()]
        if not len(d):
            return 1.0
        d -= d.min()
        low, high = _WIDEST
        while high > 1.01 * low:
            gamma = float(np.sqrt(low * high))
            p = np.exp(-gamma / 2 * d)
            total = float(p.sum(dtype=np.float64))
            entropy = np.log(total) + gamma / 2 * float(p @ d) / total
            low, high = (gamma, high) if entropy > np.log(perplexity) else (low, gamma)
        return low

    return float(np.median(threads(solve, range(len(some)))))


def with_targets(batches: Iterable[Batch], rows: Rows, gamma: float, threads: ThreadMap) -> Iterator[Batch]:
    """Give batches their targets, the shares w_ij exp(−γ ‖x_i − x_j‖² / 2) of each anchor."""
    for batch in batches:
        X = rows.take(batch.samples)
        X *= np.sqrt(gamma, dtype=X.dtype)
        halves = np.einsum("ij,ij->i", X, X) / 2

        def shares(part: slice, batch: Batch = batch, X: Array = X, halves: Array = halves) -> Array:
            P = X[part] @ X.T
            P -= halves
            n = len(P)
            P[np.arange(n), np.arange(part.start, part.stop)] = -np.inf
            P -= P.max(axis=1, keepdims=True)
            np.exp(P, out=P)
            i, j = _pairs(batch.near, part)
            P[i, j] *= batch.weights[i + part.start].astype(P.dtype)
            P /= P.sum(axis=1, keepdims=True)
            return P

        yield batch._replace(targets=np.concatenate(threads(shares, batch.parts())))


def contrast(A: Array, rows: slice, batch: Batch) -> float:
    """Return the sum of ℓ_i over the anchors ``rows``, divided by the number of anchors that have an ℓ_i.

    ``A`` (n, b) holds the anchors' affinities to all samples of the batch, and is overwritten with the derivative with
    respect to their logarithms.
    """
    n, least = rows.stop - rows.start, np.finfo(A.dtype).tiny
    A[np.arange(n), np.arange(rows.start, rows.stop)] = 0
    i, j = _pairs(batch.near, rows)
    A[i, j] *= batch.weights[i + rows.start].astype(A.dtype)
    total = np.maximum(A.sum(axis=1, dtype=np.float64), least)
    if batch.targets is not None:
        A /= total.astype(A.dtype)[:, None]
        P, b = batch.targets[rows], len(batch.samples)
        value = np.sum(P * (np.log(np.maximum(P, least)) - np.log(np.maximum(A, least))), dtype=np.float64)
        A -= P
        A /= b
        return float(value) / b
    i, j = _pairs(batch.positive, rows)
    near = A[i, j].astype(np.float64)
    sums = np.maximum(np.bincount(i, weights=near, minlength=n), least)
    counted = np.zeros(n)
    counted[i] = 1 / max(batch.n_anchors, 1)
    A *= (counted / total).astype(A.dtype)[:, None]
    A[i, j] -= (near / sums[i] * counted[i]).astype(A.dtype)
    return float(counted @ (np.log(total) - np.log(sums)))


def _pairs(pairs: tuple[Indices, Indices], rows: slice) -> tuple[Indices, Indices]:
    """The pairs of anchors ``rows``, numbered from 0."""
    first, last = np.searchsorted(pairs[0], [rows.start, rows.stop])
    return pairs[0][first:last] - rows.start, pairs[1][first:last]


def bit_loss(
    H: Array, alpha: float, batch: Batch, threads: ThreadMap, *, slope: float | None = None
) -> tuple[float, Array]:
    """Return J of codes B = sgn(H), with which anchors are compared as tanh(slope · H), or as H; and ∂J/∂H.

    The derivative is exact where H stands for anchors. Where it is rounded to codes, the derivative of tanh(2H) takes
    the place of that of sgn(H).
    """
    T = H if slope is None else np.tanh(slope * H)
    B, derivative = straight_through(H)
    value, of_anchors, of_codes = bit_contrast(T, B, alpha, batch, threads)
    if slope is not None:
        of_anchors *= slope * (1 - T * T)
    of_codes *= derivative
    return value, of_anchors + of_codes


def straight_through(H: Array) -> tuple[Array, Array]:
    """Return the codes sgn(H), and what takes the place of their derivative, that of tanh(2H)."""
    t = np.tanh(_SLOPE * H)
    return signs(H).astype(H.dtype), _SLOPE * (1 - t * t)


def bit_contrast(
    left: Array, right: Array, alpha: float, batch: Batch, threads: ThreadMap
) -> tuple[float, Array, Array]:
    """Return J with affinities exp(α leftᵢᵀrightⱼ / 2), for codes a multiple of exp(−α d), ∂J/∂left and ∂J/∂right."""
    half = left.dtype.type(alpha / 2)

    def affinities(S: Array, part: slice) -> tuple[Array, Any]:
        S[np.arange(len(S)), np.arange(part.start, part.stop)] = -np.inf
        S -= S.max(axis=1, keepdims=True)
        S *= half
        return np.exp(S, out=S), half

    return _contrast(left, right, affinities, batch, threads)


def cell_loss(H: Array, K: Array, batch: Batch, threads: ThreadMap) -> tuple[float, Array]:
    """Return J of samples whose cells have the probabilities softmax(H), with affinities pᵢᵀ K pⱼ, and ∂J/∂H."""
    P = np.exp(H - H.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)

    def affinities(S: Array, part: slice) -> tuple[Array, Any]:
        np.maximum(S, np.finfo(S.dtype).tiny, out=S)
        return S, 1 / S

    value, of_left, slope = _contrast(P @ K, P, affinities, batch, threads)
    slope += of_left @ K
    slope -= np.einsum("ij,ij->i", slope, P)[:, None]
    slope *= P
    return value, slope


def _contrast(
    left: Array,
    right: Array,
    affinities: Callable[[Array, slice], tuple[Array, Any]],
    batch: Batch,
    threads: ThreadMap,
) -> tuple[float, Array, Array]:
    """Return J, ∂J/∂left and ∂J/∂right, with affinities of S = left rightᵀ.

    ``affinities(S, part)``, of a part of the anchors, returns them and the derivative of their logarithms.
    """

    def work(part: slice) -> tuple[float, Array, Array]:
        A, slope = affinities(left[part] @ right.T, part)
        value = contrast(A, part, batch)
        A *= slope  # ∂J/∂S
        return value, A @ right, A.T @ left[part]

    values, of_left, of_right = zip(*threads(work, batch.parts()), strict=True)
    total = of_right[0]
    for other in of_right[1:]:
        total += other
    return sum(values), np.concatenate(of_left), total
