"""Candidates that a search by codes found, compared again by their vectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Array, Floats
from hashlearn.errors import check_count, shown
from hashlearn.search.real import Scored
from hashlearn.threads import thread_map

__all__ = ["METRICS", "Metric", "rerank"]

Metric = Literal["euclidean", "cosine", "inner_product"]
#: By what vectors can be compared.
METRICS: tuple[Metric, ...] = ("euclidean", "cosine", "inner_product")
# Values of candidates that a thread holds at a time.
_BLOCK_VALUES = 1 << 21


def rerank(
    queries: ArrayLike,
    ids: ArrayLike,
    vectors: ArrayLike,
    k: int,
    *,
    metric: Metric = "euclidean",
) -> Scored:
    """Compare the items that a search found again, by their vectors, and keep the ``k`` nearest of each query.

    Only the vectors of these items are read. Scores are computed in float32 if that holds queries and vectors, else in
    float64.

    Parameters
    ----------
    queries : array-like of shape (n_queries, n_features)
    ids : array-like of shape (n_queries, n), int
        Distinct ids of candidates, the rows of ``vectors``; −1 where there is none.
    vectors : array-like of shape (n_items, n_features)
        Numbers of any type, such as float16 or int8; may be a memory map.
    k : int
        How many items to keep for each query.
    metric : {"euclidean", "cosine", "inner_product"}, default="euclidean"
        Scores are negative squared Euclidean distances, cosines, or inner products.

    Returns
    -------
    Scored
        The ids with the highest scores, ordered by (falling score, id). If there are fewer than k candidates, the
        remaining ids are −1 and the scores −inf.

    Examples
    --------
    >>> vectors = [[0.0, 0.0], [1.0, 1.0], [3.0, 0.0]]
    >>> rerank([[1.0, 0.5]], [[0, 2, 1]], vectors, k=2)
    Scored(scores=array([[-0.25, -1.25]], dtype=float32), ids=array([[1, 0]]))
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}; got {shown(metric)}.")
    k = check_count("k", k)
    Q, X = _rows("queries", queries), _rows("vectors", vectors)
    if Q.shape[1] != X.shape[1]:
        raise ValueError(
            f"queries and vectors must have the same number of features; got {Q.shape[1]} and {X.shape[1]}."
        )
    candidates = np.asarray(ids)
    if candidates.ndim != 2 or candidates.dtype.kind not in "iu" or len(candidates) != len(Q):
        raise ValueError(
            f"ids must be whole numbers, a row for each of the {len(Q):,} queries; "
            f"got {candidates.dtype} {candidates.shape}."
        )
    if candidates.size and not (candidates.min() >= -1 and candidates.max() < len(X)):
        raise ValueError(
            f"ids must be rows of the {len(X):,} vectors, or -1; got {candidates.min()} to {candidates.max()}."
        )
    n = candidates.shape[1]
    scores, kept = np.full((len(Q), max(n, k)), -np.inf), np.full((len(Q), max(n, k)), -1, dtype=np.int64)
    kept[:, :n] = candidates
    size = max(1, _BLOCK_VALUES // max(1, n * X.shape[1]))
    parts = [slice(start, start + size) for start in range(0, len(Q), size)]

    def work(part: slice) -> None:
        block = kept[part, :n]
        if len(X):
            scores[part, :n] = np.where(block >= 0, _scores(Q[part], X[block.ravel()], metric, n), -np.inf)
        order = np.lexsort((kept[part], -scores[part]))
        scores[part], kept[part] = (np.take_along_axis(values[part], order, axis=1) for values in (scores, kept))

    with thread_map() as threads:
        threads(work, parts)
    if not (np.abs(scores[kept >= 0]) < np.finfo(np.float32).max).all():
        raise ValueError("queries and the vectors of candidates must be finite, and their scores within float32.")
    return Scored(scores[:, :k].astype(np.float32), np.ascontiguousarray(kept[:, :k]))


def _rows(name: str, values: ArrayLike) -> Array:
    array = np.asanyarray(values)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers of shape (n, n_features); got {array.dtype} {array.shape}.")
    return array


def _scores(queries: Array, vectors: Array, metric: Metric, n: int) -> Floats:
    """Scores (q, n) of the vectors (q · n, D) of n candidates for each query; each is summed in the same order.

    Before they are multiplied, values are divided by powers of two, so that products neither vanish nor overflow.
    """
    exact = np.can_cast(queries.dtype, np.float32) and np.can_cast(vectors.dtype, np.float32)
    dtype = np.dtype(np.float32 if exact else np.float64)
    Q: NDArray[Any] = queries.astype(dtype)
    Y: NDArray[Any] = vectors.astype(dtype).reshape(len(Q), n, Q.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # refused by the caller
        if metric == "euclidean":
            Y -= Q[:, None]
            exponents = _divide(Y, (1, 2))
            return np.asarray(-np.ldexp(np.einsum("ijk,ijk->ij", Y, Y).astype(np.float64), 2 * exponents[..., 0]))
        exponents = _divide(Y, (2,) if metric == "cosine" else (1, 2))[..., 0] + _divide(Q, (1,))
        S = np.asarray(np.einsum("ijk,ik->ij", Y, Q), dtype=np.float64)
        if metric == "cosine":
            lengths = np.sqrt(np.einsum("ijk,ijk->ij", Y, Y)) * np.sqrt(np.einsum("ik,ik->i", Q, Q))[:, None]
            return np.asarray(S / np.where(lengths > 0, lengths, 1))  # of zeros: 0
        return np.asarray(np.ldexp(S, exponents))


def _divide(A: Array, axes: tuple[int, ...]) -> Array:
    """Divide, in place, by a power of two that brings the largest value to between 1/2 and 1; return the exponents."""
    exponents = np.frexp(np.abs(A).max(axis=axes, keepdims=True, initial=0))[1]
    A *= np.ldexp(1.0, -np.clip(exponents, -120, 120)).astype(A.dtype)
    return np.asarray(np.clip(exponents, -120, 120))
