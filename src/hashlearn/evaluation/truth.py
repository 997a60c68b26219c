"""Who is a true neighbour: the k nearest by Euclidean distance, or the items of the same class."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.labels import label_list, numbered
from hashlearn.progress import progress_bar
from hashlearn.storage import cached_array, content_key

__all__ = ["Truth", "euclidean_neighbours"]

_LARGEST = 1e37  # squared lengths whose sums float32 still holds
_TINY = 1e-35  # what float32 may lose to underflow, in a sum of a few thousand squares


class Truth:
    """The relevant database items of each query. Made by :meth:`neighbours` or :meth:`labels`.

    ``n_queries``; ``n_database`` (None if only ids are known: then the largest id is a lower bound,
    ``min_database``); ``description``: one line for people, printed with every number.
    """

    def __init__(
        self,
        lists: Sequence[NDArray[Any]] | NDArray[Any],
        list_of_query: NDArray[np.intp] | None,
        *,
        description: str,
        n_database: int | None = None,
        min_database: int = 0,
        holes: bool = False,
    ) -> None:
        self.n_queries = len(lists) if list_of_query is None else len(list_of_query)
        self.n_database = n_database
        self.min_database = min_database
        self.description = description
        self._lists = lists  # of ids; queries may share one
        self._list_of_query = list_of_query  # None: each query has its own, in their order
        self._holes = holes  # whether -1 stands for nothing in a list

    def relevant(self, query: int) -> NDArray[Any]:
        """Ids of the database items that are relevant to query number ``query``, each once."""
        ids = self._lists[query if self._list_of_query is None else self._list_of_query[query]]
        return ids[ids >= 0] if self._holes else ids

    @classmethod
    def neighbours(cls, ids: ArrayLike, description: str | None = None, *, n_database: int | None = None) -> Truth:
        """Truth from ids (n_queries, k) of each query's true neighbours; −1 marks a missing one.

        ``ids`` is not copied: leave it unchanged. ``n_database``, if it is known, is checked against the codes later.
        """
        ids = np.asarray(ids)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise ValueError(f"neighbours must be whole numbers (n_queries, k); got {ids.dtype} {ids.shape}.")
        if 0 in ids.shape:
            raise ValueError(f"neighbours must have at least one query and one neighbour; got shape {ids.shape}.")
        largest = -1
        holes = False
        rows = max(1, (1 << 22) // ids.shape[1])
        for start in range(0, len(ids), rows):
            block = np.sort(ids[start : start + rows], axis=1)
            if block[:, 0].min() < -1:
                raise ValueError(f"neighbour ids must be at least 0, or -1 for none; got {block[:, 0].min()}.")
            twice = (block[:, 1:] == block[:, :-1]) & (block[:, 1:] >= 0)
            if twice.any():
                row = start + int(np.flatnonzero(twice.any(axis=1))[0])
                raise ValueError(f"neighbour ids must be distinct for a query; query {row} names one twice.")
            largest = max(largest, int(block[:, -1].max()))
            holes = holes or bool(block[:, 0].min() < 0)

        if n_database is not None and largest >= n_database:
            raise ValueError(f"neighbour ids must be below n_database, {n_database}; got {largest}.")
        if description is None:
            description = f"the {ids.shape[1]:,} neighbours given for each query"
        return cls(ids, None, description=description, n_database=n_database, min_database=largest + 1, holes=holes)

    @classmethod
    def labels(
        cls, query_labels: Sequence[Hashable] | ArrayLike, database_labels: Sequence[Hashable] | ArrayLike
    ) -> Truth:
        """Truth by class: relevant are the database items whose label equals the query's."""
        codes: dict[Hashable, int] = {}
        database = _label_codes(database_labels, codes, "database_labels")
        queries = _label_codes(query_labels, codes, "query_labels")
        # Ids of each class's items, ascending: one stable sort, then slices of it.
        order = np.argsort(database, kind="stable")
        ends = np.cumsum(np.bincount(database, minlength=len(codes)))
        members = np.split(order, ends[:-1])
        return cls(
            members,
            queries,
            description=f"equal class labels ({len(codes)} classes)",
            n_database=len(database),
        )


def _label_codes(labels: Any, codes: dict[Hashable, int], name: str) -> NDArray[np.intp]:
    """Labels of any hashable kind as small numbers; ``codes`` learns the new ones."""
    values = label_list(labels, name)
    if not values:
        raise ValueError(f"{name} must not be empty.")
    return numbered(values, codes)


def euclidean_neighbours(
    queries: ArrayLike,
    database: ArrayLike,
    k: int,
    *,
    cache: bool = False,
    show_progress: bool | None = None,
) -> NDArray[np.int32]:
    """Ids (n_queries, k) of each query's ``k`` nearest database vectors, by (Euclidean distance, id). Exact.

    FAISS finds candidates in float32; their distances are then computed in float64, and a query's answer is accepted
    only if float32's rounding can't have hidden a nearer vector among the rest. Queries for which that can't be shown
    are searched again with more candidates. Whole numbers that float32 handles without rounding (SIFT) need no float64.

    ``cache=True`` keeps the answer in the cache folder, keyed by the content of both sets and k; it is then
    memory-mapped and read-only.
    """
    try:
        k = operator.index(k)
    except TypeError:
        raise ValueError(f"k must be a whole number; got {k!r}.") from None
    queries, database = _vectors(queries, "queries"), _vectors(database, "database")
    if queries.shape[1] != database.shape[1]:
        raise ValueError(
            f"queries and database must have equally many features; got {queries.shape[1]} and {database.shape[1]}."
        )
    if not 1 <= k <= len(database):
        raise ValueError(f"k must be between 1 and {len(database)} (the size of the database); got {k}.")

    def compute() -> NDArray[np.int32]:
        return _exact_neighbours(queries, database, k, show_progress)

    if not cache:
        return compute()
    return cached_array("neighbours", content_key("euclidean 1", queries, database, k), compute)


def _vectors(values: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers (n, n_features), not empty; got {array.dtype} {array.shape}.")
    if len(array) > np.iinfo(np.int32).max:
        raise ValueError(f"{name} may have at most 2^31 - 1 rows; got {len(array)}.")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and max(abs(int(array.min())), int(array.max())) > 2**53:
        raise ValueError(f"{name} may hold whole numbers up to 2^53, which float64 holds exactly; got larger ones.")
    return array


def _exact_neighbours(
    queries: NDArray[Any], database: NDArray[Any], k: int, show_progress: bool | None
) -> NDArray[np.int32]:
    import faiss

    n_features = database.shape[1]
    exact32 = _whole_and_small(queries) and _whole_and_small(database)
    # Distances do not change with the origin; a central one keeps the squares, and so their rounding, small.
    origin = np.zeros(n_features) if exact32 else np.asarray(np.mean(database, axis=0, dtype=np.float64))
    unit = 1.0 if exact32 else _unit(database, origin)
    base = _as_float32(database, origin, unit)
    if not np.einsum("ij,ij->i", base, base, dtype=np.float64).max() < _LARGEST:
        raise ValueError("database must be finite, with no vector 1e18 times as long as a typical one; it is not.")
    index = faiss.IndexFlatL2(n_features)
    index.add(base)
    del base  # FAISS has its own copy

    out = np.empty((len(queries), k), dtype=np.int32)
    slack = 2 * (n_features + 8) * float(np.finfo(np.float32).eps)
    pending: NDArray[np.intp] = np.arange(len(queries))
    width = k + max(32, k // 20)  # spare candidates: ties and rounding at the k-th distance seldom need a second round
    with progress_bar("true neighbours", len(queries), unit="queries", show=show_progress) as advance:
        while pending.size:
            width = min(width, len(database))
            rows = int(max(1, min(1024, (1 << 28) // (16 * width), (1 << 28) // (8 * n_features))))
            doubtful: list[int] = []
            for start in range(0, len(pending), rows):
                batch = pending[start : start + rows]
                block = _as_float32(queries[batch], origin, unit)
                lengths = np.einsum("ij,ij->i", block, block, dtype=np.float64)
                if not lengths.max() < _LARGEST:
                    raise ValueError("queries must be finite, none 1e18 times as far away as the database is wide.")
                rough, ids = index.search(block, width)
                for i, query in enumerate(batch):
                    # By id first: the stable sort by distance then leaves ties in the order of their ids.
                    by_id = np.argsort(ids[i])
                    candidates = ids[i, by_id]
                    exact = rough[i, by_id] if exact32 else _distances(queries[query], database, candidates)
                    best = np.argsort(exact, kind="stable")[:k]
                    out[query] = candidates[best]
                    # A vector y outside that belongs inside has |y| ≤ |x| + d, d the k-th distance, and float32's
                    # |rough − true| ≤ 2(n + 8)·eps·(|x|² + |y|²): the cast, both squares, the product, the sums.
                    kth = float(exact[best[-1]]) * unit**2
                    reach = lengths[i] + (math.sqrt(lengths[i]) + math.sqrt(kth)) ** 2
                    error = 0.0 if exact32 else slack * reach + _TINY
                    if width < len(database) and rough[i, -1] <= kth + error:
                        doubtful.append(query)
                    else:
                        advance(1)
            pending = np.array(doubtful, dtype=np.intp)
            width *= 4
    return out


def _whole_and_small(X: NDArray[Any]) -> bool:
    """Whether float32 computes squared distances of ``X`` without rounding: whole numbers, all sums below 2^24."""
    for block in _row_blocks(X):
        values = block.astype(np.float64)
        if X.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
            return False
        # |x − y|² ≤ 2|x|² + 2|y|², and each of its partial sums is smaller.
        if not 4 * np.einsum("ij,ij->i", values, values).max() < 2**24:
            return False
    return True


def _unit(X: NDArray[Any], origin: NDArray[np.float64]) -> float:
    """The power of two that brings the typical |x − origin| to about 1: squares then neither vanish nor overflow."""
    with np.errstate(over="ignore"):
        lengths = [np.abs(block - origin).max(axis=1) for block in _row_blocks(X)]
    typical = float(np.median(np.concatenate(lengths)))
    if not typical < 1e150:
        raise ValueError("database must be finite, with values below 1e150, whose squares float64 holds; it is not.")
    return float(2.0 ** -np.floor(np.log2(typical))) if typical > 1e-150 else 1.0


def _as_float32(X: NDArray[Any], origin: NDArray[np.float64], unit: float) -> NDArray[np.float32]:
    """``(X − origin) · unit``, computed in float64, as contiguous float32; without either at most a cast."""
    if unit == 1.0 and not origin.any():
        return np.ascontiguousarray(X, dtype=np.float32)
    out = np.empty(X.shape, dtype=np.float32)
    with np.errstate(over="ignore"):  # infinite values are looked for afterwards
        for source, target in zip(_row_blocks(X), _row_blocks(out), strict=True):
            np.multiply(source - origin, unit, out=target, casting="unsafe")
    return out


def _row_blocks(X: NDArray[Any]) -> Iterator[NDArray[Any]]:
    rows = max(1, (1 << 22) // X.shape[1])
    return (X[start : start + rows] for start in range(0, len(X), rows))


def _distances(x: NDArray[Any], database: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.float64]:
    """Squared distances between ``x`` and the database rows ``ids``, in float64."""
    out = np.empty(len(ids))
    rows = max(1, (1 << 20) // len(x))
    for start in range(0, len(ids), rows):
        difference = database[ids[start : start + rows]].astype(np.float64) - x
        out[start : start + rows] = np.einsum("ij,ij->i", difference, difference)
    return out
