"""Scores of all items for real-valued queries, approximately but with a bound, by FAISS's scan of 4-bit pieces.

The scan ("fast scan" of product quantizers; F. André, A.-M. Kermarrec and N. Le Scouarnec, "Cache locality is not
enough: high-performance nearest neighbor search with product quantization fast scan", VLDB 2015) keeps a table of 16
values for each piece of the code in a register, as whole numbers from 0 to 255. Here the pieces are those of the codes
themselves. The sum of a query's values with the signs of four bits has 16 cases.

The candidates that it finds are scored again, exactly. No other item has a score above the lowest approximate score
among them plus the bound on the error; so if that is below the k-th exact score, the result is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Codes, Floats, Ids, Indices
from hashlearn.codes import unpack
from hashlearn.search._scan import one_openmp_thread

Values = NDArray[np.float32]

# Longest code: the scan adds up numbers below 256 in 16 bits, so there may be 257 pieces, two of them for offsets.
MAX_BITS = 1000
# Levels that offsets are rounded to: one more byte of the code.
_LEVELS = 256
# Candidates: so many for each of the k best, and some more; rounds, and how many times as many there are in the next.
_FACTOR, _SPARE, _ROUNDS, _MORE = 2, 32, 2, 8
# Most candidates of a query, and as a share of the items: beyond, products with all items are about as fast.
_MOST, _MOST_SHARE = 4096, 1 / 64
# Values of candidates that are scored at a time.
_SCORED_VALUES = 1 << 21
# Differences in a table below which FAISS's units overflow, and steps of offsets that count as 0.
_LEAST_SPAN = 1e-30
# Rounding of sums in float32, as a share of their largest possible value.
_ROUNDING = 1e-5


class FastScan:
    """Codes in the order that the scan reads, a copy of them.

    Parameters
    ----------
    codes : ndarray of shape (n, ceil(n_bits / 8)), uint8
        Packed codes, which must not change while this is used.
    n_bits : int
    offsets : ndarray of shape (n,), float32, optional
        Added to the scores.
    """

    def __init__(self, codes: Codes, n_bits: int, offsets: Values | None) -> None:
        import faiss

        self.codes, self.n_bits, self.offsets = codes, n_bits, offsets
        self.low, self.step = 0.0, 0.0
        stored = codes
        if offsets is not None:
            self.low = float(offsets.min(initial=np.inf))
            step = (float(offsets.max(initial=-np.inf)) - self.low) / (_LEVELS - 1)
            self.step = step if step > _LEAST_SPAN else 0.0
            levels = np.rint((offsets - self.low) / (self.step or 1.0)).astype(np.uint8)
            stored = np.hstack([codes, levels[:, None]])
        n_bytes = stored.shape[1]
        plain = faiss.IndexPQ(8 * n_bytes, 2 * n_bytes, 4, faiss.METRIC_INNER_PRODUCT)
        faiss.copy_array_to_vector(self._cases(n_bytes).ravel(), plain.pq.centroids)
        faiss.copy_array_to_vector(np.ascontiguousarray(stored).ravel(), plain.codes)
        plain.ntotal, plain.is_trained = len(codes), True
        self.index: Any = faiss.IndexPQFastScan(plain)  # type: ignore[arg-type]

    def _cases(self, n_bytes: int) -> Values:
        """What the bits of a piece are multiplied with: (pieces, 16, 4); FAISS takes the low half of a byte first."""
        numbers = np.arange(16)
        signs = 2 * (numbers[:, None] >> np.arange(4)[::-1] & 1) - 1
        cases = np.tile(signs.astype(np.float32), (2 * n_bytes, 1, 1))
        if self.offsets is not None:
            cases[-2:] = 0
            cases[-2, :, 0], cases[-1, :, 0] = self.step * numbers, self.step * 16 * numbers
        return cases

    def search(self, values: Values, k: int) -> tuple[Values, Ids, Indices]:
        """Find the k items with the highest scores of each query, exactly.

        Parameters
        ----------
        values : ndarray of shape (n_queries, n_bits), float32
            Such that sums of them, with any signs, are exact.
        k : int
            At most the number of items.

        Returns
        -------
        scores : ndarray of shape (n_queries, k), float32
        ids : ndarray of shape (n_queries, k), int64
            Ordered by (falling score, id).
        undecided : ndarray of int
            Queries whose rows are not to be used, because candidates do not decide them: most have many ties.
        """
        n = len(self.codes)
        scores, ids = np.empty((len(values), k), dtype=np.float32), np.empty((len(values), k), dtype=np.int64)
        tables, errors = self._tables(values)
        small = ~np.isfinite(errors)
        pending: Indices = np.flatnonzero(~small)
        width = min(_FACTOR * k + _SPARE, n)
        for _ in range(_ROUNDS):
            if not pending.size or width > max(_MOST, _MOST_SHARE * n):
                break
            with one_openmp_thread():
                rough, found = self.index.search(tables[pending], width)
            exact = self._scores(values[pending], found)
            order = np.lexsort((found, -exact))[:, :k]
            scores[pending], ids[pending] = (np.take_along_axis(both, order, axis=1) for both in (exact, found))
            reach = rough[:, -1].astype(np.float64) + self.low + errors[pending]
            # Items with the lowest approximate score that there can be are left out, and all items if values are 0.
            decided = (found >= 0).all(axis=1) & ((reach < scores[pending, -1]) | (width == n))
            pending = pending[~decided]
            width = min(_MORE * width, n)
        return scores, ids, np.concatenate([pending, np.flatnonzero(small)])

    def _tables(self, values: Values) -> tuple[Values, Floats]:
        """The queries as FAISS takes them, and bounds on the errors of their approximate scores.

        The values of a table are rounded to whole multiples of a unit, from its smallest value on. 255 units are the
        largest difference in any table. If that is too small for float32, the bound is infinite.
        """
        n_bytes = self.codes.shape[1]
        halves = np.zeros((len(values), n_bytes, 2, 4), dtype=np.float32)
        halves.reshape(len(values), -1)[:, : self.n_bits] = values
        spans = 2.0 * np.abs(halves, dtype=np.float64).sum(axis=3).reshape(len(values), -1)
        most = spans.sum(axis=1) + abs(self.low)
        if self.offsets is not None:
            more = np.zeros((len(values), 1, 2, 4), dtype=np.float32)
            more[..., 0] = 1
            halves = np.concatenate([halves, more], axis=1)
            spans = np.hstack([spans, np.tile(self.step * 15 * np.array([1.0, 16.0]), (len(values), 1))])
        errors = spans.max(axis=1) / 255 * spans.shape[1] / 2 + self.step / 2
        errors[spans.max(axis=1) < _LEAST_SPAN] = np.inf
        most += 2 * self.step * _LEVELS
        # The low half of a byte, its last four bits, comes first.
        return halves[:, :, ::-1].reshape(len(values), -1), errors + _ROUNDING * most

    def _scores(self, values: Values, found: Ids) -> Values:
        S = np.empty(found.shape, dtype=np.float32)
        size = max(1, _SCORED_VALUES // (found.shape[1] * self.n_bits))
        for start in range(0, len(found), size):
            part = slice(start, start + size)
            signs = 2 * unpack(self.codes[found[part].ravel()], self.n_bits).astype(np.float32) - 1
            signs = signs.reshape(*found[part].shape, self.n_bits)
            S[part] = np.matmul(signs, values[part, :, None])[..., 0]
        if self.offsets is not None:
            S += self.offsets[found]
        return S
