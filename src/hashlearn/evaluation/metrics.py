"""Average precision and precision within a Hamming radius, mostly without sorting the database.

A ranking by Hamming distance has at most L + 1 distinct keys, so a query's histogram of distances says where each
group of tied items begins. With the distances of the relevant items, everything else is arithmetic on L + 1 numbers;
only ties in index order need the items sorted, and only up to the last one that can count.

Symbols, for one query and one group of tied items (a distance d):

=====  ==========================================================
n, r   items in the group; relevant ones among them
N, R   items, relevant items, in all nearer groups
t      items of the group that are within the cut-off (t ≤ n)
=====  ==========================================================
"""

from __future__ import annotations

import operator
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.codes import check_codes, code_words, distance_type, distances_into
from hashlearn.evaluation.protocol import Protocol
from hashlearn.evaluation.truth import Truth
from hashlearn.progress import progress_bar

__all__ = ["Scores", "evaluate"]

# Distances that one worker holds at a time (queries × database).
_BLOCK_DISTANCES = 1 << 22


@dataclass(frozen=True)
class Scores:
    """What :func:`evaluate` found. Shares are between 0 and 1.

    ``average_precision`` (n_queries,) and ``precision_within[r]`` (n_queries,) are the values per query, ``map`` and
    ``precision_at_radius[r]`` their means.
    """

    map: float
    precision_at_radius: dict[int, float]
    average_precision: NDArray[np.float64]
    precision_within: dict[int, NDArray[np.float64]]
    n_bits: int
    n_database: int
    queries_without_relevant: int
    protocol: Protocol
    truth: str

    def as_dict(self) -> dict[str, Any]:
        """The means and all that defines them, as plain values for JSON (not the values per query)."""
        return {
            "map": self.map,
            "precision_at_radius": {str(r): p for r, p in self.precision_at_radius.items()},
            "n_bits": self.n_bits,
            "n_queries": len(self.average_precision),
            "n_database": self.n_database,
            "queries_without_relevant": self.queries_without_relevant,
            "truth": self.truth,
            "protocol": self.protocol.as_dict(),
        }

    def __str__(self) -> str:
        precisions = "".join(f", P@{r} {100 * p:.2f}" for r, p in self.precision_at_radius.items())
        lacking = self.queries_without_relevant
        empty = f"; {lacking:,} queries without a relevant item count 0" if lacking else ""
        return (
            f"mAP {100 * self.map:.2f}{precisions} (percent; {self.n_bits} bits, "
            f"{len(self.average_precision):,} queries, {self.n_database:,} items; "
            f"truth: {self.truth}{empty}; {self.protocol})"
        )


def evaluate(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    truth: Truth,
    *,
    n_bits: int,
    protocol: Protocol | None = None,
    n_jobs: int | None = None,
    show_progress: bool | None = None,
) -> Scores:
    """Rank the database for each query by Hamming distance and judge the ranking against ``truth``.

    Codes are packed (see :mod:`hashlearn.codes`). ``protocol=None``: ``Protocol()``. ``n_jobs=None``: a thread for
    each core that this process may use.

    Time grows with queries × database (docs/benchmarks.md); memory with the database, never with the pairs.
    """
    protocol = Protocol() if protocol is None else protocol
    n_bits = operator.index(n_bits)
    queries = check_codes(query_codes, n_bits, "query_codes")
    database = check_codes(database_codes, n_bits, "database_codes")
    if not len(queries) or not len(database):
        raise ValueError(f"query_codes and database_codes must not be empty; got {len(queries)} and {len(database)}.")
    if len(queries) != truth.n_queries:
        raise ValueError(f"truth is for {truth.n_queries} queries; got query_codes of {len(queries)}.")
    if truth.n_database not in (None, len(database)) or truth.min_database > len(database):
        wanted = truth.n_database or f"at least {truth.min_database}"
        raise ValueError(f"truth is for a database of {wanted} items; got database_codes of {len(database)}.")

    jobs = _cores() if n_jobs is None else n_jobs
    if jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, or None; got {n_jobs}.")
    rows = max(1, min(-(-len(queries) // jobs), _BLOCK_DISTANCES // len(database)))
    starts = range(0, len(queries), rows)
    judge = _Judge(code_words(queries), code_words(database), truth, n_bits, protocol)
    with (
        progress_bar("evaluate", len(queries), unit="queries", show=show_progress) as advance,
        ThreadPoolExecutor(jobs) as pool,
    ):

        def judged(start: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
            block = range(start, min(start + rows, len(queries)))
            result = judge(block)
            advance(len(block))
            return result

        parts = list(pool.map(judged, starts))
    ap = np.concatenate([part[0] for part in parts])
    within = np.concatenate([part[1] for part in parts])
    relevant = np.concatenate([part[2] for part in parts])
    return Scores(
        map=float(ap.mean()),
        precision_at_radius={r: float(within[:, i].mean()) for i, r in enumerate(protocol.radii)},
        average_precision=ap,
        precision_within={r: within[:, i] for i, r in enumerate(protocol.radii)},
        n_bits=n_bits,
        n_database=len(database),
        queries_without_relevant=int((relevant == 0).sum()),
        protocol=protocol,
        truth=truth.description,
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class _Judge:
    """Scores of a range of queries; holds what all ranges share, changes nothing, so threads may call it."""

    def __init__(
        self,
        query_words: NDArray[Any],
        database_words: NDArray[Any],
        truth: Truth,
        n_bits: int,
        protocol: Protocol,
    ) -> None:
        self.query_words = query_words
        self.database_words = database_words
        self.truth = truth
        self.n_bits = n_bits
        self.protocol = protocol
        self.n_database = database_words.shape[1]
        self.cutoff = min(protocol.cutoff or self.n_database, self.n_database)
        # harmonic[k] = 1 + 1/2 + … + 1/k
        self.harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, self.cutoff + 1))])

    def __call__(self, block: range) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """AP (b,), precision within each radius (b, radii), number of relevant items (b,)."""
        L = self.n_bits
        D = np.empty((len(block), self.n_database), dtype=distance_type(L))
        distances_into(self.query_words[:, block.start : block.stop], self.database_words, D)
        r = np.empty((len(block), L + 1), dtype=np.int64)
        for i, query in enumerate(block):
            r[i] = np.bincount(D[i][self.truth.relevant(query)], minlength=L + 1)
        radii = np.array([min(radius, L) for radius in self.protocol.radii], dtype=np.intp)
        hits = np.cumsum(r, axis=1)[:, radii]
        if self.protocol.ties == "index" and self.cutoff == self.n_database:
            # No need of the whole histogram, which costs more than a few comparisons.
            # (Plain ints: a NumPy scalar would widen the distances before they are compared.)
            inside = np.array([[np.count_nonzero(d <= r) for r in radii.tolist()] for d in D]).reshape(hits.shape)
            last = L - np.argmax(r[:, ::-1] > 0, axis=1)
        else:
            n = np.array([np.bincount(d, minlength=L + 1) for d in D])
            inside = np.cumsum(n, axis=1)
            last = np.argmax(inside >= self.cutoff, axis=1)  # the group that the cut-off falls into
            inside = inside[:, radii]
        total = r.sum(axis=1)
        ap = self._ap_by_index(block, D, last, total) if self.protocol.ties == "index" else self._expected_ap(n, r)
        return ap, hits / np.maximum(inside, 1), total

    def _ap_by_index(
        self, block: range, D: NDArray[Any], last: NDArray[np.intp], total: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """AP (b,) in the order of (distance, index). Items beyond distance ``last`` (b,) do not matter."""
        marks = np.zeros(self.n_database, dtype=np.bool_)
        ap = np.zeros(len(block))
        for i in np.flatnonzero(total):
            relevant = self.truth.relevant(block[i])
            marks[relevant] = True
            near = D[i] <= int(last[i])
            if np.count_nonzero(near) < 0.75 * self.n_database:
                ids = np.flatnonzero(near)
                hits = marks[ids[np.argsort(D[i][ids], kind="stable")[: self.cutoff]]]
            else:
                hits = marks[np.argsort(D[i], kind="stable")[: self.cutoff]]  # a radix sort for uint8 and uint16
            marks[relevant] = False
            ap[i] = _ap_of_ranks(np.flatnonzero(hits) + 1, int(total[i]), self.protocol.ap)
        return ap

    def _expected_ap(self, n: NDArray[np.int64], r: NDArray[np.int64]) -> NDArray[np.float64]:
        """AP (b,) in expectation over the orders of tied items; n, r are (b, L + 1)."""
        N = np.cumsum(n, axis=1) - n
        R = np.cumsum(r, axis=1) - r
        t = np.clip(self.cutoff - N, 0, n)
        full = t == n
        total = r.sum(axis=1)
        if self.protocol.ap != "retrieved":
            gained = self._expected_gain(N, R, n, r, t).sum(axis=1)
            return np.asarray(gained / np.maximum(total, 1))
        gained = np.where(full, self._expected_gain(N, R, n, r, t), 0.0).sum(axis=1)
        ap = np.asarray(gained / np.maximum(np.where(full, r, 0).sum(axis=1), 1))
        for i, d in zip(*np.nonzero(~full & (t > 0)), strict=True):  # at most one group a query is cut
            ap[i] = self._expected_cut(gained[i], *(int(x[i, d]) for x in (N, R, n, r, t)))
        return ap

    def _expected_gain(
        self,
        N: NDArray[np.int64],
        R: NDArray[np.int64],
        n: NDArray[np.int64],
        r: NDArray[np.int64],
        t: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Expected sum of the precisions at the relevant ranks of each group, elementwise.

        At place j of a group an item is relevant with probability r/n, and then a(j − 1) of the j − 1 before it are
        on average, a = (r − 1)/(n − 1). So the group gives, with H the harmonic numbers,

            r/n · Σ_{j=1..t} (R + 1 + a(j − 1)) / (N + j) = r/n · [ (R + 1 − a(N + 1)) · (H(N+t) − H(N)) + a·t ].

        The trapezoid rule takes the mean of that and of the precision one rank earlier,

            r/n · Σ_{j=1..t} (R + a(j − 1)) / (N + j − 1) = r/n · [ (R − aN) · (H(N+t−1) − H(N−1)) + a·t ],

        where the very first rank (N + j − 1 = 0) counts 1.
        """
        H = self.harmonic
        share = r / np.maximum(n, 1)
        a = np.where(n > 1, (r - 1) / np.maximum(n - 1, 1), 0.0)
        low = np.minimum(N, self.cutoff)
        at = (R + 1 - a * (N + 1)) * (H[low + t] - H[low]) + a * t
        if self.protocol.ap != "trapezoid":
            return np.asarray(share * at)
        first = (N == 0) & (t > 0)
        # In the first group R = 0 and N = 0: its first place counts 1, each of the t − 1 others exactly a.
        earlier = H[np.maximum(low + t - 1, 0)] - H[np.maximum(low - 1, 0)]
        before = np.where(first, 1 + a * (t - 1), (R - a * N) * earlier + a * t)
        return np.asarray(share * (at + before) / 2)

    def _expected_cut(self, gained: float, N: int, R: int, n: int, r: int, t: int) -> float:
        """AP of one query whose cut-off falls into a group, over the number of relevant items retrieved.

        Of the t items kept, j are relevant with the hypergeometric probability; given j, they lie in any order, so
        that the group is like one of t items with j relevant ones.
        """
        from scipy.stats import hypergeom

        j = np.arange(max(0, t - (n - r)), min(r, t) + 1)
        gain = self._expected_gain(np.asarray(N), np.asarray(R), np.asarray(t), j, np.asarray(t))
        return float(hypergeom.pmf(j, n, r, t) @ ((gained + gain) / np.maximum(R + j, 1)))


def _ap_of_ranks(ranks: NDArray[np.intp], n_relevant: int, rule: str) -> float:
    """AP of one query from the ranks (from 1, ascending) of its retrieved relevant items."""
    if not len(ranks):
        return 0.0
    found = np.arange(1, len(ranks) + 1)
    gained = float((found / ranks).sum())
    if rule == "retrieved":
        return gained / len(ranks)
    if rule == "trapezoid":
        before = (found - 1) / np.maximum(ranks - 1, 1)
        before[0] = 1.0 if ranks[0] == 1 else before[0]
        gained = (gained + float(before.sum())) / 2
    return gained / n_relevant
