"""Exact nearest neighbors by Euclidean distance, cosine or inner product.

FAISS finds candidates in float32, and they are compared again in float64. A query's result is accepted only if rounding
in float32 can't have hidden a nearer vector; otherwise the query is searched again with more candidates.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.errors import shown
from hashlearn.progress import progress_bar
from hashlearn.search.reranking import METRICS, Metric
from hashlearn.storage import cached_array, content_key

__all__ = ["METRICS", "Metric", "euclidean_neighbors", "nearest_neighbors"]

# Values of the database that are compared at a time: it may be a memory map that is larger than memory.
_BLOCK_VALUES = 1 << 26
_LARGEST = 1e37  # squared lengths whose sums float32 can still represent
_TINY = 1e-35  # what float32 may lose to underflow, in a sum of a few thousand squares


def nearest_neighbors(
    queries: ArrayLike,
    database: ArrayLike,
    k: int,
    *,
    metric: Metric = "euclidean",
    rows: ArrayLike | None = None,
    cache: bool = False,
    show_progress: bool | None = None,
) -> NDArray[np.int32]:
    """Find the ``k`` nearest database vectors of each query, exactly; of equally near ones, those with smaller ids.

    The database is read in blocks, and may be a memory map that is larger than memory. The cosine with zeros is 0.
    Cosines are rounded, so that vectors of equal directions and different lengths may be in another order.

    Parameters
    ----------
    queries : array-like of shape (n_queries, n_features)
    database : array-like of shape (n_database, n_features)
    k : int
    metric : {"euclidean", "cosine", "inner_product"}, default="euclidean"
        Nearest are the vectors with the smallest Euclidean distance, or with the largest cosine or inner product.
    rows : array-like of int, optional
        Search only these rows of the database, which are distinct and ascending. Default: all.
    cache : bool, default=False
        Keep the result in the cache folder, keyed by the content of both arrays and the other parameters. It is then
        memory-mapped and read-only.
    show_progress : bool, optional
        Default: show a progress bar on a terminal only.

    Returns
    -------
    ids : ndarray of shape (n_queries, k), int32
        Database ids, nearest first.

    Examples
    --------
    >>> nearest_neighbors([[1.0, 0.0]], [[9.0, 9.0], [0.5, 0.1], [1.0, 3.0]], k=2, metric="cosine")
    array([[1, 0]], dtype=int32)
    >>> nearest_neighbors([[1.0, 0.0]], [[9.0, 9.0], [0.5, 0.1], [1.0, 3.0]], k=2, metric="inner_product")
    array([[0, 2]], dtype=int32)
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}; got {shown(metric)}.")
    try:
        k = operator.index(k)
    except TypeError:
        raise ValueError(f"k must be a whole number; got {k!r}.") from None
    Q, X = _vectors(queries, "queries"), _vectors(database, "database")
    if Q.shape[1] != X.shape[1]:
        raise ValueError(
            f"queries and database must have the same number of features; got {Q.shape[1]} and {X.shape[1]}."
        )
    chosen = None if rows is None else _rows(rows, len(X))
    n_searched = len(X) if chosen is None else len(chosen)
    if not 1 <= k <= n_searched:
        raise ValueError(f"k must be between 1 and {n_searched} (the size of the database); got {k}.")

    def compute() -> NDArray[np.int32]:
        return _merged(Q, X, chosen, k, metric, show_progress)

    if not cache:
        return compute()
    # The folder and this key keep their first names, so that caches of earlier versions are found.
    key = content_key(f"{metric} 1", Q, X, k, *([] if chosen is None else [chosen]))
    return cached_array("neighbours", key, compute)


def euclidean_neighbors(
    queries: ArrayLike,
    database: ArrayLike,
    k: int,
    *,
    cache: bool = False,
    show_progress: bool | None = None,
) -> NDArray[np.int32]:
    """Find the ``k`` nearest database vectors of each query by Euclidean distance: see :func:`nearest_neighbors`.

    Parameters
    ----------
    queries : array-like of shape (n_queries, n_features)
    database : array-like of shape (n_database, n_features)
    k : int
    cache : bool, default=False
    show_progress : bool, optional

    Returns
    -------
    ids : ndarray of shape (n_queries, k), int32

    Examples
    --------
    >>> euclidean_neighbors([[0.0], [9.0]], [[5.0], [1.0], [8.0]], k=2)
    array([[1, 0],
           [2, 0]], dtype=int32)
    """
    return nearest_neighbors(queries, database, k, cache=cache, show_progress=show_progress)


def _vectors(values: ArrayLike, name: str) -> Array:
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers (n, n_features), not empty; got {array.dtype} {array.shape}.")
    if len(array) > np.iinfo(np.int32).max:
        raise ValueError(f"{name} may have at most 2^31 - 1 rows; got {len(array)}.")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and max(abs(int(array.min())), int(array.max())) > 2**53:
        raise ValueError(f"{name} may hold whole numbers up to 2^53, the exact range of float64; got larger ones.")
    return array


def _rows(rows: ArrayLike, n: int) -> Indices:
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not len(chosen):
        raise ValueError(f"rows must be whole numbers, one dimension, not empty; got {chosen.dtype} {chosen.shape}.")
    if chosen[0] < 0 or chosen[-1] >= n or (chosen[1:] <= chosen[:-1]).any():
        raise ValueError(f"rows must be distinct, ascending, and from 0 to {n - 1}.")
    return chosen.astype(np.intp)


def _merged(
    queries: Array, database: Array, rows: Indices | None, k: int, metric: Metric, show_progress: bool | None
) -> NDArray[np.int32]:
    """The nearest neighbors in blocks of the database, merged."""
    n = len(database) if rows is None else len(rows)
    size = max(k, _BLOCK_VALUES // database.shape[1], 1)
    values: Floats = np.empty((len(queries), 0))
    ids: NDArray[np.int32] = np.empty((len(queries), 0), dtype=np.int32)
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    with progress_bar("true neighbors", len(queries) * len(blocks), unit="queries", show=show_progress) as advance:
        for block in blocks:
            numbers: Indices = np.arange(block.start, block.stop) if rows is None else rows[block]
            X = database[block if rows is None else numbers]
            geometry = _Euclidean(queries, X) if metric == "euclidean" else _Products(X, numbers, metric == "cosine")
            near, found = _exact_neighbors(queries, len(X), min(k, len(X)), geometry, advance)
            values, ids = np.hstack([values, near]), np.hstack([ids, numbers[found].astype(np.int32)])
            order = np.lexsort((ids, values))[:, :k]
            values, ids = np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
    return np.ascontiguousarray(ids)


def _exact_neighbors(
    queries: Array, n: int, k: int, geometry: _Euclidean | _Products, advance: Callable[[float], object]
) -> tuple[Floats, NDArray[np.int32]]:
    """The k nearest of each query, and their exact values."""
    n_features = queries.shape[1]
    out, values = np.empty((len(queries), k), dtype=np.int32), np.empty((len(queries), k))
    pending: Indices = np.arange(len(queries))
    width = k + max(32, k // 20)  # spare candidates, so that ties and rounding rarely need a second round
    while pending.size:
        width = min(width, n)
        rows = int(max(1, min(1024, (1 << 28) // (16 * width), (1 << 28) // (8 * n_features))))
        doubtful: list[int] = []
        for start in range(0, len(pending), rows):
            batch = pending[start : start + rows]
            block = geometry.prepared(queries[batch])
            lengths = np.einsum("ij,ij->i", block, block, dtype=np.float64)
            rough, ids = geometry.search(block, width)
            for i, query in enumerate(batch):
                # Sorted by id first, so that the stable sort by distance leaves ties in the order of their ids.
                by_id = np.argsort(ids[i])
                candidates = ids[i, by_id]
                exact = geometry.exact(queries[query], candidates, rough[i, by_id])
                best = np.argsort(exact, kind="stable")[:k]
                out[query], values[query] = candidates[best], exact[best]
                if width < n and rough[i, -1] <= geometry.reach(float(exact[best[-1]]), float(lengths[i])):
                    doubtful.append(query)
                else:
                    advance(1)
        pending = np.array(doubtful, dtype=np.intp)
        width *= 4
    return values * geometry.scale, out


class _Euclidean:
    """Squared Euclidean distances: rough ones in float32, by FAISS, and exact ones in float64.

    Integers that float32 handles without rounding (SIFT) need no float64.
    """

    scale = 1.0

    def __init__(self, queries: Array, database: Array) -> None:
        import faiss

        self.database = database
        self.exact32 = _whole_and_small(queries) and _whole_and_small(database)
        # Distances don't depend on the origin. A central one keeps the squares, and so the rounding errors, small.
        zero = np.zeros(database.shape[1])
        self.origin = zero if self.exact32 else np.asarray(np.mean(database, axis=0, dtype=np.float64))
        self.unit = 1.0 if self.exact32 else _unit(database, self.origin)
        base = _as_float32(database, self.origin, self.unit)
        if not np.einsum("ij,ij->i", base, base, dtype=np.float64).max() < _LARGEST:
            raise ValueError("database must be finite, with no vector 1e18 times longer than a typical one.")
        self.index = faiss.IndexFlatL2(database.shape[1])
        self.index.add(base)  # a copy of its own
        self.slack = _slack(database.shape[1])

    def prepared(self, queries: Array) -> NDArray[np.float32]:
        block = _as_float32(queries, self.origin, self.unit)
        if not np.einsum("ij,ij->i", block, block, dtype=np.float64).max() < _LARGEST:
            raise ValueError(
                "queries must be finite, with no vector 1e18 times longer than a typical one of the database."
            )
        return block

    def search(self, block: NDArray[np.float32], width: int) -> tuple[Array, Array]:
        rough, ids = self.index.search(block, width)
        return rough, ids

    def exact(self, query: Array, ids: Array, rough: Array) -> Array:
        return rough if self.exact32 else _distances(query, self.database, ids)

    def reach(self, kth: float, length: float) -> float:
        """The largest rough distance that a vector nearer than ``kth`` may have; ``length``: the query's, squared.

        A vector y outside of the candidates that belongs inside has |y| ≤ |x| + d, d the k-th distance, and float32's
        |rough − true| ≤ 2(n + 8)·eps·(|x|² + |y|²): the cast, both squares, the product, the sums.
        """
        scaled = kth * self.unit**2
        lengths = length + (math.sqrt(length) + math.sqrt(scaled)) ** 2
        return scaled + (0.0 if self.exact32 else self.slack * lengths + _TINY)


class _Products:
    """Negated inner products: rough ones in float32, by FAISS, and exact ones in float64.

    Queries, and vectors unless they are divided by their lengths for cosines, are divided by powers of two, so that
    products neither vanish nor overflow, and those that are equal stay so.
    """

    def __init__(self, database: Array, numbers: Indices, cosine: bool) -> None:
        import faiss

        self.database, self.cosine = database, cosine
        lengths = _lengths(database, "database", numbers)
        if cosine:
            self.divisors = np.where(lengths > 0, lengths, 1)  # the cosine of zeros is 0
        else:
            self.divisors = _powers_of_two(lengths.max(keepdims=True))
        base = np.empty(database.shape, dtype=np.float32)
        for start, rows in _numbered_blocks(database):
            base[start : start + len(rows)] = rows / self._divisors(slice(start, start + len(rows)))[:, None]
        #: What values are multiplied with, to be comparable to those of another block.
        self.scale = 1.0 if cosine else float(self.divisors[0])
        self.index = faiss.IndexFlatIP(database.shape[1])
        self.index.add(base)
        # |rough − true| ≤ (n + 8)·eps·|x||y|, and both lengths are below 2.
        self.error = 2 * _slack(database.shape[1]) + _TINY

    def _divisors(self, rows: slice | Array) -> Floats:
        return self.divisors[rows] if self.cosine else self.divisors

    def prepared(self, queries: Array) -> NDArray[np.float32]:
        return _scaled_rows(queries).astype(np.float32)

    def search(self, block: NDArray[np.float32], width: int) -> tuple[Array, Array]:
        rough, ids = self.index.search(block, width)
        return -rough, ids

    def exact(self, query: Array, ids: Array, rough: Array) -> Floats:
        [x] = _scaled_rows(query[None])
        out = np.empty(len(ids))
        rows = max(1, (1 << 20) // len(x))
        for start in range(0, len(ids), rows):
            part = ids[start : start + rows]
            Y = self.database[part] / self._divisors(part)[:, None]
            # Each sum by itself, so that equal vectors have equal products.
            out[start : start + rows] = -np.einsum("ij,j->i", Y, x, dtype=np.float64)
        return out

    def reach(self, kth: float, length: float) -> float:
        """The largest rough value that a vector nearer than ``kth`` may have."""
        return kth + self.error


def _slack(n_features: int) -> float:
    return 2 * (n_features + 8) * float(np.finfo(np.float32).eps)


def _lengths(X: Array, name: str, numbers: Indices | None = None) -> Floats:
    """Lengths of the rows, in float64; ``numbers``: what the rows are called in an error."""
    lengths = np.empty(len(X))
    with np.errstate(over="ignore"):  # refused below
        for start, rows in _numbered_blocks(X):
            lengths[start : start + len(rows)] = np.linalg.norm(rows.astype(np.float64), axis=1)
    if len(wrong := np.flatnonzero(~((lengths < 1e150) & ((lengths > 1e-150) | (lengths == 0))))):
        row = wrong[0] if numbers is None else numbers[wrong[0]]
        raise ValueError(f"{name} must be finite, with lengths between 1e-150 and 1e150; row {row} is not.")
    return lengths


def _scaled_rows(queries: Array) -> Floats:
    lengths = _lengths(queries, "queries")
    rows: Floats = queries / _powers_of_two(lengths)[:, None]
    return rows


def _powers_of_two(lengths: Floats) -> Floats:
    """The largest powers of two that are at most the lengths; 1 for 0."""
    return np.where(lengths > 0, 2.0 ** np.floor(np.log2(np.where(lengths > 0, lengths, 1))), 1)


def _whole_and_small(X: Array) -> bool:
    """Whether float32 computes squared distances of ``X`` without rounding: integers, with all sums below 2^24."""
    for _, block in _numbered_blocks(X):
        values = block.astype(np.float64)
        if X.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
            return False
        # |x − y|² ≤ 2|x|² + 2|y|², and each of its partial sums is smaller.
        if not 4 * np.einsum("ij,ij->i", values, values).max() < 2**24:
            return False
    return True


def _unit(X: Array, origin: Floats) -> float:
    """The power of two that scales the typical |x − origin| to about 1, so squares neither underflow nor overflow."""
    with np.errstate(over="ignore"):
        lengths = [np.abs(block - origin).max(axis=1) for _, block in _numbered_blocks(X)]
    typical = float(np.median(np.concatenate(lengths)))
    if not typical < 1e150:
        raise ValueError("database must be finite, with values below 1e150, whose squares float64 can represent.")
    return float(2.0 ** -np.floor(np.log2(typical))) if typical > 1e-150 else 1.0


def _as_float32(X: Array, origin: Floats, unit: float) -> NDArray[np.float32]:
    """``(X − origin) · unit``, computed in float64, as contiguous float32; just a cast if both are trivial."""
    if unit == 1.0 and not origin.any():
        return np.ascontiguousarray(X, dtype=np.float32)
    out = np.empty(X.shape, dtype=np.float32)
    with np.errstate(over="ignore"):  # infinite values are checked afterwards
        for start, rows in _numbered_blocks(X):
            np.multiply(rows - origin, unit, out=out[start : start + len(rows)], casting="unsafe")
    return out


def _numbered_blocks(X: Array) -> Iterator[tuple[int, Array]]:
    """Blocks of rows, each with the number of its first row."""
    rows = max(1, (1 << 22) // X.shape[1])
    return ((start, X[start : start + rows]) for start in range(0, len(X), rows))


def _distances(x: Array, database: Array, ids: Array) -> Floats:
    """Squared distances between ``x`` and the database rows ``ids``, in float64."""
    out = np.empty(len(ids))
    rows = max(1, (1 << 20) // len(x))
    for start in range(0, len(ids), rows):
        difference = database[ids[start : start + rows]].astype(np.float64) - x
        out[start : start + rows] = np.einsum("ij,ij->i", difference, difference)
    return out
