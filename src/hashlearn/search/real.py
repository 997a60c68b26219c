"""Exact search with real-valued queries: items are ranked by a product with their codes, or other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Array, Bytes, Floats, Ids, Indices
from hashlearn.codes import check_codes, unpack
from hashlearn.errors import check_count
from hashlearn.search._fast_scan import MAX_BITS, FastScan
from hashlearn.threads import cores, thread_map

__all__ = ["Scored", "search_products", "search_real"]

# Items and queries that are multiplied at a time: the products stay in a shared cache.
_ITEMS, _QUERIES = 8192, 256
# Items that are too few to be repacked for a fast scan, and queries that a thread scans for at a time.
_FEW_ITEMS, _FAST_QUERIES = 4096, 64
# Steps of the values of queries are no smaller than float32's smallest normal number.
_LEAST_EXPONENT = -126


class Scored(NamedTuple):
    """The k items with the highest scores of each query, ordered by (falling score, id).

    If there are fewer than k items, the remaining ids are −1 and the scores −inf.

    Attributes
    ----------
    scores : ndarray of shape (n, k), float32
    ids : ndarray of shape (n, k), int64
    """

    scores: NDArray[np.float32]
    ids: Ids


def search_real(
    values: ArrayLike, codes: ArrayLike, k: int, *, n_bits: int, offsets: ArrayLike | None = None
) -> Scored:
    """Find the items whose codes have the highest scores for real-valued queries.

    The score of an item is the product of the query's values with the item's bits as ±1, plus its offset, in float32.
    Values and offsets are those of :meth:`Hasher.query_values` and :meth:`Hasher.code_offsets`. The values of a query
    are rounded to multiples of a step, at most 2⁻²² of the sum of their absolute values, or 2⁻¹²⁶. Sums are then exact,
    so that items with equal codes and offsets have equal scores, whatever else is searched for or stored.

    Parameters
    ----------
    values : array-like of shape (n_queries, n_bits)
    codes : array-like of shape (n_items, ceil(n_bits / 8)), uint8
        Packed codes.
    k : int
        How many items to find for each query.
    n_bits : int
        Length of the codes.
    offsets : array-like of shape (n_items,), optional
        By default 0.

    Returns
    -------
    Scored

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0b1100_0000], [0b1000_0000], [0b0000_0000]], dtype=np.uint8)
    >>> search_real([[1.0, -0.5]], codes, k=2, n_bits=2)
    Scored(scores=array([[1.5, 0.5]], dtype=float32), ids=array([[1, 0]]))
    """
    packed = check_codes(codes, check_count("n_bits", n_bits))
    queries = checked_values(values, n_bits)
    added = None if offsets is None else checked_offsets(offsets, len(packed))
    return RealSearch(packed, n_bits, added).search(queries, check_count("k", k))


def checked_values(values: ArrayLike, n_bits: int) -> NDArray[np.float32]:
    """Return the values of queries, rounded so that their sums are exact."""
    queries = _numbers("values", values)
    if queries.ndim != 2 or queries.shape[1] != n_bits:
        raise ValueError(f"values must have a column for each of the {n_bits} bits; got shape {queries.shape}.")
    lengths = np.abs(queries).sum(axis=1)
    _check_sizes("values", lengths)
    return _on_grid(queries, lengths)


def checked_offsets(offsets: ArrayLike, n: int) -> NDArray[np.float32]:
    """Return the offsets of items in float32."""
    added = _numbers("offsets", offsets)
    if added.shape != (n,):
        raise ValueError(f"offsets must have a number for each of the {n:,} items; got shape {added.shape}.")
    _check_sizes("offsets", np.abs(added))
    return added.astype(np.float32)


def _check_sizes(name: str, sizes: Floats) -> None:
    if len(wrong := np.flatnonzero(~(sizes < np.finfo(np.float32).max / 4))):
        raise ValueError(f"{name} must be finite, and small enough for sums in float32; row {wrong[0]} is not.")


class RealSearch:
    """Codes that are ready to be searched with real-valued queries.

    Parameters
    ----------
    codes : ndarray of shape (n, ceil(n_bits / 8)), uint8
        Packed codes, which must not change while this is used.
    n_bits : int
    offsets : ndarray of shape (n,), float32, optional
    """

    def __init__(self, codes: Bytes, n_bits: int, offsets: NDArray[np.float32] | None) -> None:
        self._codes, self._n_bits, self._offsets = codes, n_bits, offsets
        fits = len(codes) >= _FEW_ITEMS and n_bits <= MAX_BITS
        self._scan = FastScan(codes, n_bits, offsets) if fits else None

    def search(self, values: NDArray[np.float32], k: int) -> Scored:
        """Find the items with the highest scores.

        Parameters
        ----------
        values : ndarray of shape (n_queries, n_bits), float32
            As :func:`checked_values` returns them.
        k : int

        Returns
        -------
        Scored
        """
        scan, n = self._scan, len(self._codes)
        if scan is None or not len(values):
            return search_products(values, n, self._rows, k)
        found = min(k, n)
        scores = np.full((len(values), k), -np.inf, dtype=np.float32)
        ids = np.full((len(values), k), -1, dtype=np.int64)

        def work(part: slice) -> Indices:
            scores[part, :found], ids[part, :found], undecided = scan.search(values[part], found)
            undecided += part.start
            return undecided

        size = min(_FAST_QUERIES, -(-len(values) // cores()))
        parts = [slice(start, min(start + size, len(values))) for start in range(0, len(values), size)]
        if len(parts) == 1:
            undecided = work(parts[0])
        else:
            with thread_map() as threads:
                undecided = np.concatenate(threads(work, parts))
        if undecided.size:
            scores[undecided], ids[undecided] = search_products(values[undecided], n, self._rows, k)
        return Scored(scores, ids)

    def _rows(self, block: slice) -> tuple[Array, Array | None]:
        signs = 2 * unpack(self._codes[block], self._n_bits).astype(np.float32) - 1
        return signs, None if self._offsets is None else self._offsets[block]


def _numbers(name: str, values: ArrayLike) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} must be an array of real numbers; its rows differ in length.") from None
    if array.dtype.kind not in "buif":
        raise ValueError(f"{name} must be real numbers; got values of type {array.dtype}.")
    return array.astype(np.float64)


def _on_grid(queries: Floats, lengths: Floats) -> NDArray[np.float32]:
    """Round the values of each query so that all sums of them, with any signs, are exact in float32.

    They become whole multiples of a step, and a sum of them is at most 2²⁴ steps. ``lengths``: the sums of their
    absolute values.
    """
    exponents = np.frexp(lengths)[1] - 23  # lengths < 2^exponent
    steps = np.ldexp(1.0, np.maximum(exponents, _LEAST_EXPONENT))[:, None]
    rounded: Floats = np.rint(queries / steps) * steps
    return rounded.astype(np.float32)


def search_products(
    queries: NDArray[np.float32], n: int, rows: Callable[[slice], tuple[Array, Array | None]], k: int
) -> Scored:
    """Find the items with the highest products with each query, plus their offsets.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, width), float32
    n : int
        The number of items.
    rows : callable
        Returns the rows (items, width) of a slice of the items, float32, and their offsets or None.
    k : int

    Returns
    -------
    Scored
    """
    k = check_count("k", k)
    if not np.isfinite(queries).all():
        raise ValueError("queries must be finite.")
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    ids = np.full((len(queries), k), -1, dtype=np.int64)
    parts = [slice(start, min(start + _QUERIES, len(queries))) for start in range(0, len(queries), _QUERIES)]
    with thread_map() as threads:
        for start in range(0, n, _ITEMS):
            block = slice(start, min(start + _ITEMS, n))
            X, offsets = rows(block)

            def work(part: slice, start: int = start, X: Array = X, offsets: Any = offsets) -> None:
                S = queries[part] @ X.T
                if offsets is not None:
                    S += offsets.astype(np.float32)
                _keep_best(scores[part], ids[part], S, start)

            threads(work, parts)
    return Scored(scores, ids)


def _keep_best(scores: Array, ids: Array, S: Array, start: int) -> None:
    """Merge the scores ``S`` of the items from ``start`` on into the best ones so far, in place."""
    k = scores.shape[1]
    if ids[0, -1] < 0 and S.shape[1] > k:  # the first block: most scores would pass
        least = np.partition(S, S.shape[1] - k, axis=1)[:, -k]
        passed = least[:, None] <= S
    else:
        # Of equal scores that of the smaller id, an earlier one, stays.
        passed = scores[:, -1:] < S
    queries, items = np.nonzero(passed)
    ends = np.searchsorted(queries, np.arange(len(S) + 1))
    for i in np.flatnonzero(np.diff(ends)):
        found = items[ends[i] : ends[i + 1]]
        all_scores = np.concatenate([scores[i], S[i, found]])
        all_ids = np.concatenate([ids[i], found + start])
        best = np.lexsort((all_ids, -all_scores))[:k]
        scores[i], ids[i] = all_scores[best], all_ids[best]
