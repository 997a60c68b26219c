"""Ground truth: the k nearest neighbors by Euclidean distance, or the items of the same class."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.labels import label_list, numbered
from hashlearn.progress import progress_bar
from hashlearn.storage import cached_array, content_key

__all__ = ["Truth", "euclidean_neighbors"]

_LARGEST = 1e37  # squared lengths whose sums float32 can still represent
_TINY = 1e-35  # what float32 may lose to underflow, in a sum of a few thousand squares


class Truth:
    """The relevant database items of each query. Create it with :meth:`neighbors` or :meth:`labels`.

    Attributes
    ----------
    n_queries : int
    n_database : int or None
        Size of the database. None if only ids are known; then ``min_database`` is a lower bound.
    description : str
        One line for people, printed with every number.
    """

    def __init__(
        self,
        lists: Sequence[Array] | Array,
        list_of_query: Indices | None,
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

    def relevant(self, query: int) -> Array:
        """Return the ids of the database items that are relevant to a query.

        Parameters
        ----------
        query : int
            Number of the query, from 0.

        Returns
        -------
        ids : ndarray of shape (n_relevant,)
            Distinct ids.
        """
        ids = self._lists[query if self._list_of_query is None else self._list_of_query[query]]
        return ids[ids >= 0] if self._holes else ids

    @classmethod
    def neighbours(cls, *arguments: Any, **options: Any) -> Truth:
        """Deprecated: use :meth:`neighbors`."""
        warnings.warn("Truth.neighbours is now Truth.neighbors.", DeprecationWarning, stacklevel=2)
        return cls.neighbors(*arguments, **options)

    @classmethod
    def neighbors(cls, ids: ArrayLike, description: str | None = None, *, n_database: int | None = None) -> Truth:
        """Create the ground truth from the ids of each query's true neighbors.

        Parameters
        ----------
        ids : (n_queries, k)
            Database ids; −1 marks a missing neighbor. Not copied, so don't modify it afterwards.
        description : str, optional
        n_database : int, optional
            Size of the database, to be checked against the codes.

        Returns
        -------
        Truth
        """
        ids = np.asarray(ids)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise ValueError(f"neighbors must be whole numbers of shape (n_queries, k); got {ids.dtype} {ids.shape}.")
        if 0 in ids.shape:
            raise ValueError(f"neighbors must have at least one query and one neighbor; got shape {ids.shape}.")
        largest = -1
        holes = False
        rows = max(1, (1 << 22) // ids.shape[1])
        for start in range(0, len(ids), rows):
            block = np.sort(ids[start : start + rows], axis=1)
            if block[:, 0].min() < -1:
                raise ValueError(f"neighbor ids must be at least 0, or -1 for none; got {block[:, 0].min()}.")
            twice = (block[:, 1:] == block[:, :-1]) & (block[:, 1:] >= 0)
            if twice.any():
                row = start + int(np.flatnonzero(twice.any(axis=1))[0])
                raise ValueError(f"neighbor ids must be distinct within a query; query {row} repeats one.")
            largest = max(largest, int(block[:, -1].max()))
            holes = holes or bool(block[:, 0].min() < 0)

        if n_database is not None and largest >= n_database:
            raise ValueError(f"neighbor ids must be below n_database, {n_database}; got {largest}.")
        if description is None:
            description = f"the {ids.shape[1]:,} neighbors given for each query"
        return cls(ids, None, description=description, n_database=n_database, min_database=largest + 1, holes=holes)

    @classmethod
    def labels(
        cls, query_labels: Sequence[Hashable] | ArrayLike, database_labels: Sequence[Hashable] | ArrayLike
    ) -> Truth:
        """Create the ground truth from class labels: an item is relevant if its label equals the query's.

        Parameters
        ----------
        query_labels : array-like of shape (n_queries,)
            A label of any hashable type for each query.
        database_labels : array-like of shape (n_database,)
            A label for each database item.

        Returns
        -------
        Truth

        Examples
        --------
        >>> Truth.labels(["cat", "dog"], ["dog", "cat", "dog"]).relevant(1)
        array([0, 2])
        """
        codes: dict[Hashable, int] = {}
        database = _label_codes(database_labels, codes, "database_labels")
        queries = _label_codes(query_labels, codes, "query_labels")
        # Ids of the items of each class, ascending: slices of one stable sort.
        order = np.argsort(database, kind="stable")
        ends = np.cumsum(np.bincount(database, minlength=len(codes)))
        members = np.split(order, ends[:-1])
        return cls(members, queries, description=f"equal class labels ({len(codes)} classes)", n_database=len(database))


def _label_codes(labels: Any, codes: dict[Hashable, int], name: str) -> Indices:
    """Map labels of any hashable type to small integers; new labels are added to ``codes``."""
    values = label_list(labels, name)
    if not values:
        raise ValueError(f"{name} must not be empty.")
    return numbered(values, codes)


def euclidean_neighbors(
    queries: ArrayLike,
    database: ArrayLike,
    k: int,
    *,
    cache: bool = False,
    show_progress: bool | None = None,
) -> NDArray[np.int32]:
    """Find the ``k`` nearest database vectors of each query, exactly, ordered by (Euclidean distance, id).

    FAISS finds candidates in float32, and their distances are computed in float64. A query's result is accepted only
    if rounding in float32 can't have hidden a nearer vector; otherwise the query is searched again with more
    candidates. Integers that float32 handles without rounding (SIFT) need no float64.

    Parameters
    ----------
    queries : (n_queries, n_features)
    database : (n_database, n_features)
    k : int
    cache : bool
        Keep the result in the cache folder, keyed by the content of both arrays and ``k``. It is then memory-mapped
        and read-only.
    show_progress : bool, optional
        Default: show a progress bar on a terminal only.

    Returns
    -------
    (n_queries, k)
        Database ids, int32.

    Examples
    --------
    >>> euclidean_neighbors([[0.0], [9.0]], [[5.0], [1.0], [8.0]], k=2)
    array([[1, 0],
           [2, 0]], dtype=int32)
    """
    try:
        k = operator.index(k)
    except TypeError:
        raise ValueError(f"k must be a whole number; got {k!r}.") from None
    queries, database = _vectors(queries, "queries"), _vectors(database, "database")
    if queries.shape[1] != database.shape[1]:
        got = f"{queries.shape[1]} and {database.shape[1]}"
        raise ValueError(f"queries and database must have the same number of features; got {got}.")
    if not 1 <= k <= len(database):
        raise ValueError(f"k must be between 1 and {len(database)} (the size of the database); got {k}.")

    def compute() -> NDArray[np.int32]:
        return _exact_neighbors(queries, database, k, show_progress)

    if not cache:
        return compute()
    # The folder keeps its first name, so that caches of earlier versions are found.
    return cached_array("neighbours", content_key("euclidean 1", queries, database, k), compute)


def _vectors(values: ArrayLike, name: str) -> Array:
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numbers (n, n_features), not empty; got {array.dtype} {array.shape}.")
    if len(array) > np.iinfo(np.int32).max:
        raise ValueError(f"{name} may have at most 2^31 - 1 rows; got {len(array)}.")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and max(abs(int(array.min())), int(array.max())) > 2**53:
        raise ValueError(f"{name} may hold whole numbers up to 2^53, the exact range of float64; got larger ones.")
    return array


def _exact_neighbors(queries: Array, database: Array, k: int, show_progress: bool | None) -> NDArray[np.int32]:
    import faiss

    n_features = database.shape[1]
    exact32 = _whole_and_small(queries) and _whole_and_small(database)
    # Distances don't depend on the origin. A central one keeps the squares, and so the rounding errors, small.
    origin = np.zeros(n_features) if exact32 else np.asarray(np.mean(database, axis=0, dtype=np.float64))
    unit = 1.0 if exact32 else _unit(database, origin)
    base = _as_float32(database, origin, unit)
    if not np.einsum("ij,ij->i", base, base, dtype=np.float64).max() < _LARGEST:
        raise ValueError("database must be finite, with no vector 1e18 times longer than a typical one.")
    index = faiss.IndexFlatL2(n_features)
    index.add(base)
    del base  # FAISS has its own copy

    out = np.empty((len(queries), k), dtype=np.int32)
    slack = 2 * (n_features + 8) * float(np.finfo(np.float32).eps)
    pending: Indices = np.arange(len(queries))
    width = k + max(32, k // 20)  # spare candidates, so that ties and rounding rarely need a second round
    with progress_bar("true neighbors", len(queries), unit="queries", show=show_progress) as advance:
        while pending.size:
            width = min(width, len(database))
            rows = int(max(1, min(1024, (1 << 28) // (16 * width), (1 << 28) // (8 * n_features))))
            doubtful: list[int] = []
            for start in range(0, len(pending), rows):
                batch = pending[start : start + rows]
                block = _as_float32(queries[batch], origin, unit)
                lengths = np.einsum("ij,ij->i", block, block, dtype=np.float64)
                if not lengths.max() < _LARGEST:
                    raise ValueError(
                        "queries must be finite, with no vector 1e18 times longer than a typical one of the database."
                    )
                rough, ids = index.search(block, width)
                for i, query in enumerate(batch):
                    # Sorted by id first, so that the stable sort by distance leaves ties in the order of their ids.
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


def _whole_and_small(X: Array) -> bool:
    """Whether float32 computes squared distances of ``X`` without rounding: integers, with all sums below 2^24."""
    for block in _row_blocks(X):
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
        lengths = [np.abs(block - origin).max(axis=1) for block in _row_blocks(X)]
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
        for source, target in zip(_row_blocks(X), _row_blocks(out), strict=True):
            np.multiply(source - origin, unit, out=target, casting="unsafe")
    return out


def _row_blocks(X: Array) -> Iterator[Array]:
    rows = max(1, (1 << 22) // X.shape[1])
    return (X[start : start + rows] for start in range(0, len(X), rows))


def _distances(x: Array, database: Array, ids: Array) -> Floats:
    """Squared distances between ``x`` and the database rows ``ids``, in float64."""
    out = np.empty(len(ids))
    rows = max(1, (1 << 20) // len(x))
    for start in range(0, len(ids), rows):
        difference = database[ids[start : start + rows]].astype(np.float64) - x
        out[start : start + rows] = np.einsum("ij,ij->i", difference, difference)
    return out
