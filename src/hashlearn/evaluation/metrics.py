"""Average precision and precision within a Hamming radius, mostly without sorting the database.

A ranking by Hamming distance has at most L + 1 distinct keys, so a query's histogram of distances says where each
group of tied items begins. With the distances of the relevant items, everything else is arithmetic on L + 1 numbers;
only ties in index order need the items in order, and mostly only up to the last one that can count. Spherical Hamming
distances are replaced by their ranks among all that codes of L bits can have, about 0.3 L²; the rest is the same.

Symbols, for one query and one group of tied items (a distance d):

=====  ==========================================================
n, r   items in the group; relevant ones among them
N, R   items, relevant items, in all nearer groups
t      items of the group that are within the cut-off (t ≤ n)
=====  ==========================================================
"""

from __future__ import annotations

import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.codes import check_codes, code_words, distance_type, distances_into, ones_of, spherical_ranks
from hashlearn.evaluation.protocol import Protocol
from hashlearn.evaluation.truth import Truth
from hashlearn.progress import progress_bar
from hashlearn.threads import cores

__all__ = ["Scores", "evaluate"]

# Distances that one worker holds at a time (queries × database).
_BLOCK_DISTANCES = 1 << 22
# Distances whose ranks are looked up at a time: what is made on the way stays in cache.
_BLOCK_RANKS = 1 << 16
# Longest code that is ranked by spherical distance: a histogram of its 1.3 million distinct ones takes 10 MiB.
_MOST_SPHERICAL_BITS = 2048


@dataclass(frozen=True)
class Scores:
    """What :func:`evaluate` found. Shares are between 0 and 1.

    ``average_precision`` (n_queries,) and ``precision_within[r]`` (n_queries,) are the values per query, ``map`` and
    ``precision_at_radius[r]`` their means; ``empty_at_radius[r]`` is the share of queries with nothing within r.
    """

    map: float
    precision_at_radius: dict[int, float]
    empty_at_radius: dict[int, float]
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
            "empty_at_radius": {str(r): share for r, share in self.empty_at_radius.items()},
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
    """Rank the database for each query by the protocol's distance and judge the ranking against ``truth``.

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

    if protocol.distance == "spherical" and n_bits > _MOST_SPHERICAL_BITS:
        raise ValueError(f"distance 'spherical' ranks codes of at most {_MOST_SPHERICAL_BITS:,} bits; got {n_bits:,}.")

    jobs = cores() if n_jobs is None else n_jobs
    if jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, or None; got {n_jobs}.")
    judge = _Judge(code_words(queries), code_words(database), truth, n_bits, protocol)
    # A distance takes a byte or a few, a bin of a query's histogram 8.
    width = max(len(database), 8 * judge.n_distances)
    rows = max(1, min(-(-len(queries) // jobs), _BLOCK_DISTANCES // width))
    starts = range(0, len(queries), rows)
    with (
        progress_bar("evaluate", len(queries), unit="queries", show=show_progress) as advance,
        ThreadPoolExecutor(jobs) as pool,
    ):

        def judged(start: int) -> tuple[NDArray[Any], ...]:
            block = range(start, min(start + rows, len(queries)))
            result = judge(block)
            advance(len(block))
            return result

        parts = list(pool.map(judged, starts))
    ap = np.concatenate([part[0] for part in parts])
    within = np.concatenate([part[1] for part in parts])
    inside = np.concatenate([part[2] for part in parts])
    relevant = np.concatenate([part[3] for part in parts])
    return Scores(
        map=float(ap.mean()),
        precision_at_radius={r: float(within[:, i].mean()) for i, r in enumerate(protocol.radii)},
        empty_at_radius={r: float((inside[:, i] == 0).mean()) for i, r in enumerate(protocol.radii)},
        average_precision=ap,
        precision_within={r: within[:, i] for i, r in enumerate(protocol.radii)},
        n_bits=n_bits,
        n_database=len(database),
        queries_without_relevant=int((relevant == 0).sum()),
        protocol=protocol,
        truth=truth.description,
    )


class _Spherical:
    """Ranks of spherical Hamming distances, made from plain ones: |a| + |b| = |a ⊕ b| + 2 |a ∧ b|."""

    def __init__(self, query_words: NDArray[Any], database_words: NDArray[Any], n_bits: int) -> None:
        table, self.n_distances = spherical_ranks(n_bits)
        self.width = table.shape[1]
        self.table = table.ravel()
        self.query_ones, self.database_ones = ones_of(query_words), ones_of(database_words)

    def __call__(self, block: range, D: NDArray[Any]) -> NDArray[Any]:
        """The ranks (b, n_database) that belong to the Hamming distances ``D`` of a range of queries."""
        ranks = np.empty(D.shape, dtype=self.table.dtype)
        for i, query in enumerate(block):
            for start in range(0, D.shape[1], _BLOCK_RANKS):
                items = slice(start, start + _BLOCK_RANKS)
                place = D[i, items].astype(np.intp)
                place *= self.width
                place += self.database_ones[items]
                place += self.query_ones[query]
                np.take(self.table, place, out=ranks[i, items], mode="clip")
        return ranks


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
        self.radii = [min(radius, n_bits) for radius in protocol.radii]
        self.spherical = _Spherical(query_words, database_words, n_bits) if protocol.distance == "spherical" else None
        # Distances are whole numbers below this.
        self.n_distances = n_bits + 1 if self.spherical is None else self.spherical.n_distances
        self.count = np.arange(1.0, self.cutoff + 1)
        self.reciprocal = 1 / self.count
        # harmonic[k] = 1 + 1/2 + … + 1/k
        self.harmonic = np.concatenate([[0.0], np.cumsum(self.reciprocal)])

    def __call__(self, block: range) -> tuple[NDArray[Any], ...]:
        """AP (b,), precision and number of items within each radius (b, radii), number of relevant items (b,)."""
        D = np.empty((len(block), self.n_database), dtype=distance_type(self.n_bits))
        distances_into(self.query_words[:, block.start : block.stop], self.database_words, D)
        relevant = [self.truth.relevant(query) for query in block]
        judged = self._by_index if self.protocol.ties == "index" else self._expected
        if self.spherical is None:
            ap, hits, inside = judged(D, relevant, self.radii)
        else:
            ap, _, _ = judged(self.spherical(block, D), relevant, [])
            hits, inside = self._within(D, relevant)
        return ap, hits / np.maximum(inside, 1), inside, np.array([len(ids) for ids in relevant])

    def _within(self, D: NDArray[Any], relevant: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Relevant and all items within each radius, (b, radii), for Hamming distances that do not rank."""
        inside = np.array([[np.count_nonzero(d <= r) for r in self.radii] for d in D])
        of_relevant = [d[ids] for d, ids in zip(D, relevant, strict=True)]
        return np.array([[np.count_nonzero(d <= r) for r in self.radii] for d in of_relevant]), inside

    def _by_index(
        self, D: NDArray[Any], relevant: list[NDArray[Any]], radii: list[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """AP (b,) in the order of (distance, index); relevant and all items within each radius, (b, radii).

        Only items up to the last one that can count are ordered (the last relevant one, or the cut-off's distance),
        unless that is most of the database: then all of it, by counting.
        """
        import faiss

        n, whole = self.n_database, self.cutoff == self.n_database
        marks = np.zeros(n, dtype=np.bool_)
        # Whether the item at each rank is relevant; then as many ones that more than a tenth are: up to a tenth, NumPy
        # looks for one after the other, which takes twice as long as to go through them all without a branch.
        hit = np.ones(n + n // 8 + 1, dtype=np.bool_)
        distances = np.empty(n, dtype=np.int64)
        ap = np.zeros(len(D))
        hits = np.zeros((len(D), len(radii)), dtype=np.int64)
        inside = np.zeros_like(hits)
        marked = np.empty(0, dtype=np.intp)
        # Queries that share a list of relevant items, as those of a class do, one after the other: marked once.
        for i in sorted(range(len(D)), key=lambda i: id(relevant[i])):
            ids, d = relevant[i], D[i]
            if not len(ids):
                inside[i] = [np.count_nonzero(d <= radius) for radius in radii]
                continue
            if ids is not marked:
                marks[marked] = False
                marks[ids] = True
                marked = ids
            many = whole and 20 * len(ids) > n
            nearest = d[:0] if many else d[ids]
            if many or (whole and 2 * np.count_nonzero(d <= int(nearest.max())) > n):
                # A counting sort, which keeps the order of equal distances; it lets other threads run meanwhile.
                np.copyto(distances, d)
                ends, order = faiss.bucket_sort(distances, self.n_distances)
                found = np.take(marks, order, out=hit[:n], mode="clip")
                ranks = np.flatnonzero(hit)[: len(ids)] if many else np.flatnonzero(found)
                inside[i] = [ends[radius + 1] for radius in radii]
                hits[i] = np.searchsorted(ranks, inside[i])
            else:
                for j, radius in enumerate(radii):
                    # (Plain ints: a NumPy scalar would widen the distances before they are compared.)
                    hits[i, j] = np.count_nonzero(nearest <= radius)
                    inside[i, j] = np.count_nonzero(d <= radius)
                if whole:
                    last = int(nearest.max())
                else:
                    last = int(np.searchsorted(np.cumsum(np.bincount(d)), self.cutoff))
                near = np.flatnonzero(d <= last)
                order = near[np.argsort(d[near], kind="stable")[: self.cutoff]]
                ranks = np.flatnonzero(marks[order])
            ap[i] = self._ap_of(ranks, len(ids))
        return ap, hits, inside

    def _ap_of(self, ranks: NDArray[np.intp], n_relevant: int) -> float:
        """AP of one ranked list, cut off already; ``ranks``: where the relevant items are, the first place being 0."""
        count = self.count[: len(ranks)]
        # Σ i / pᵢ, with pᵢ the place of the i-th relevant item. (Not by BLAS, whose threads would add to ours.)
        gained = float(np.einsum("i,i->", count, self.reciprocal[ranks]))
        if self.protocol.ap == "retrieved":
            return gained / max(len(ranks), 1)
        if self.protocol.ap == "trapezoid":
            # Σ (i − 1)/(pᵢ − 1): the same, one rank and one item earlier; before the first rank it is 1.
            first = int(ranks[:1].tolist() == [0])
            before = self.reciprocal[ranks[first:] - 1]
            gained = (gained + first + float(np.einsum("i,i->", count[first:] - 1, before))) / 2
        return gained / n_relevant

    def _expected(
        self, D: NDArray[Any], relevant: list[NDArray[Any]], radii: list[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """AP (b,) in expectation over the orders of ties; relevant and all items within each radius, (b, radii)."""
        bins = self.n_distances
        n = np.array([np.bincount(d, minlength=bins) for d in D])
        r = np.array([np.bincount(d[ids], minlength=bins) for d, ids in zip(D, relevant, strict=True)])
        return self._expected_ap(n, r), np.cumsum(r, axis=1)[:, radii], np.cumsum(n, axis=1)[:, radii]

    def _expected_ap(self, n: NDArray[np.int64], r: NDArray[np.int64]) -> NDArray[np.float64]:
        """AP (b,) in expectation over the orders of tied items; n, r are (b, distances)."""
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
