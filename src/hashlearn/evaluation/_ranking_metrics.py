"""Scores of a block of rankings, mostly without sorting the database.

A Hamming distance has at most L + 1 values, so the histogram of a query's distances tells where each group of tied
items begins. Together with the distances of the relevant items, everything else is arithmetic on L + 1 numbers. Only
ties in index order need sorted items, and mostly only up to the last item that can count. Spherical Hamming distances
are replaced by their ranks among all values that codes of L bits can have, about 0.3 L²; the rest is the same.

Symbols, for one query and one group of tied items (a distance d):

=====  ==========================================================
n, r   items in the group; relevant ones among them
N, R   items and relevant items in all nearer groups
t      items of the group within the cutoff (t ≤ n)
=====  ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hashlearn._arrays import Array, Floats, Indices, Integers
from hashlearn.codes import count_ones, spherical_ranks
from hashlearn.evaluation.protocol import Protocol

# Distances whose ranks are looked up at a time, so that temporary arrays stay in cache.
_BLOCK_RANKS = 1 << 16
# Largest number of distinct distances that are counted in pairs: the counts, 8 bytes a pair, must stay in cache.
_MAX_IN_PAIRS = 129


class BlockScores(NamedTuple):
    """AP (b,) of a block of queries, and the precision and number of items within each radius (b, radii)."""

    ap: Floats
    precision: Floats
    inside: Integers


class Distances:
    """Distances ``D`` (b, n_database) of a block of queries, integers below ``n_distances``. Not thread-safe."""

    def __init__(self, D: Array, n_distances: int) -> None:
        self.D = D
        self.n_distances = n_distances
        self._counts: Integers | None = None

    @property
    def counts(self) -> Integers:
        """The number of items at each distance, (b, n_distances); computed on first use."""
        if self._counts is None:
            self._counts = np.array([_histogram(d, self.n_distances) for d in self.D])
        return self._counts


def _histogram(d: Array, n_distances: int) -> Integers:
    """The number of items at each distance, (n_distances,)."""
    # Counting two bytes as one 16-bit number halves the work. It pays for many items and few distinct pairs. (Byte
    # order does not matter.)
    if d.dtype.itemsize > 1 or n_distances > _MAX_IN_PAIRS or len(d) < 10_000 + 1_000 * n_distances:
        return np.bincount(d, minlength=n_distances)
    even = len(d) // 2 * 2
    pairs = np.bincount(d[:even].view(np.uint16), minlength=256 * n_distances).reshape(-1, 256)
    counts: Integers = pairs.sum(axis=1) + pairs.sum(axis=0)[:n_distances]
    counts[d[even:]] += 1
    return counts


class SphericalRanks:
    """Ranks of spherical Hamming distances, computed from plain ones: |a| + |b| = |a ⊕ b| + 2 |a ∧ b|."""

    def __init__(self, query_words: Array, database_words: Array, n_bits: int) -> None:
        table, self.n_distances = spherical_ranks(n_bits)
        self.width = table.shape[1]
        self.table = table.ravel()
        self.query_ones, self.database_ones = count_ones(query_words), count_ones(database_words)

    def __call__(self, block: range, D: Array) -> Array:
        """The ranks (b, n_database) for the Hamming distances ``D`` of a range of queries."""
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


class _Positions:
    """Tables for the first ``n`` positions: 1, 2, …; 1, 1/2, …; and harmonic[k] = 1 + 1/2 + … + 1/k."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.count = np.arange(1.0, n + 1)
        self.reciprocal = 1 / self.count
        self.harmonic = np.concatenate([[0.0], np.cumsum(self.reciprocal)])


def make_scorers(protocols: Sequence[Protocol], n_database: int, n_bits: int) -> list[Scorer]:
    """A scorer for each protocol. Those with the same cutoff share its tables."""
    cutoffs = [min(protocol.cutoff or n_database, n_database) for protocol in protocols]
    positions = {cutoff: _Positions(cutoff) for cutoff in set(cutoffs)}
    return [
        Scorer(n_database, n_bits, protocol, positions[cutoff])
        for protocol, cutoff in zip(protocols, cutoffs, strict=True)
    ]


class Scorer:
    """Computes the scores of blocks of queries under one protocol. Thread-safe."""

    def __init__(self, n_database: int, n_bits: int, protocol: Protocol, positions: _Positions) -> None:
        self.protocol = protocol
        self.n_database = n_database
        self.cutoff = positions.n
        self.positions = positions
        self.radii = [min(radius, n_bits) for radius in protocol.radii]

    def __call__(self, ranking: Distances, hamming: Distances, relevant: list[Array]) -> BlockScores:
        """Score queries ranked by ``ranking``; radii are in ``hamming``, which is usually the same object."""
        score = self._by_index if self.protocol.ties == "index" else self._expected
        if ranking is hamming:
            ap, hits, inside = score(ranking, relevant, self.radii)
        else:
            ap, _, _ = score(ranking, relevant, [])
            hits, inside = self._within(hamming.D, relevant)
        return BlockScores(ap, hits / np.maximum(inside, 1), inside)

    def _within(self, D: Array, relevant: list[Array]) -> tuple[Integers, Integers]:
        """The numbers of relevant and of all items within each radius, (b, radii), if another distance ranks."""
        inside = np.array([[np.count_nonzero(d <= r) for r in self.radii] for d in D])
        hits = [[np.count_nonzero(d[ids] <= r) for r in self.radii] for d, ids in zip(D, relevant, strict=True)]
        return np.array(hits), inside

    def _by_index(
        self, ranking: Distances, relevant: list[Array], radii: list[int]
    ) -> tuple[Floats, Integers, Integers]:
        """AP (b,) in the order of (distance, index); relevant and all items within each radius, (b, radii).

        Sorts only the items up to the last one that can count (the last relevant one, or the cutoff's distance). If
        that is most of the database, it sorts all of it, by counting.
        """
        import faiss

        D, n, whole = ranking.D, self.n_database, self.cutoff == self.n_database
        marks = np.zeros(n, dtype=np.bool_)
        # Whether the item at each rank is relevant, padded with ones so that more than a tenth are set: below a tenth,
        # np.flatnonzero uses a branching loop, which takes twice as long.
        hit = np.ones(n + n // 8 + 1, dtype=np.bool_)
        distances = np.empty(n, dtype=np.int64)
        ap = np.zeros(len(D))
        hits = np.zeros((len(D), len(radii)), dtype=np.int64)
        inside = np.zeros_like(hits)
        marked = np.empty(0, dtype=np.intp)
        # Queries of the same class share a list of relevant items: in this order it is marked once.
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
                # A stable counting sort that releases the GIL.
                np.copyto(distances, d)
                ends, order = faiss.bucket_sort(distances, ranking.n_distances)
                np.take(marks, order, out=hit[:n], mode="clip")
                ranks = np.flatnonzero(hit)[: len(ids)] if many else np.flatnonzero(hit[:n])
                inside[i] = [ends[radius + 1] for radius in radii]
                hits[i] = np.searchsorted(ranks, inside[i])
            else:
                # (Python ints: a NumPy scalar would widen the distances before the comparison.)
                hits[i] = [np.count_nonzero(nearest <= radius) for radius in radii]
                if whole:
                    inside[i] = [np.count_nonzero(d <= radius) for radius in radii]
                    last = int(nearest.max())
                else:
                    up_to = np.cumsum(ranking.counts[i])
                    inside[i] = up_to[radii]
                    last = int(np.searchsorted(up_to, self.cutoff))
                near = np.flatnonzero(d <= last)
                order = near[np.argsort(d[near], kind="stable")[: self.cutoff]]
                ranks = np.flatnonzero(marks[order])
            ap[i] = self._average_precision(ranks, len(ids))
        return ap, hits, inside

    def _average_precision(self, ranks: Indices, n_relevant: int) -> float:
        """AP of one truncated list with relevant items at ``ranks``, which count from 0."""
        count = self.positions.count[: len(ranks)]
        # Σ i / pᵢ, with pᵢ the position of the i-th relevant item. (Not by BLAS, which would start more threads.)
        gained = float(np.einsum("i,i->", count, self.positions.reciprocal[ranks]))
        if self.protocol.ap == "retrieved":
            return gained / max(len(ranks), 1)
        if self.protocol.ap == "trapezoid":
            # Σ (i − 1)/(pᵢ − 1): the same, one rank and one item earlier. Before the first rank the precision is 1.
            first = int(ranks[:1].tolist() == [0])
            before = self.positions.reciprocal[ranks[first:] - 1]
            gained = (gained + first + float(np.einsum("i,i->", count[first:] - 1, before))) / 2
        return gained / n_relevant

    def _expected(
        self, ranking: Distances, relevant: list[Array], radii: list[int]
    ) -> tuple[Floats, Integers, Integers]:
        """Expected AP (b,) over all orders of ties; relevant and all items within each radius, (b, radii)."""
        n, bins = ranking.counts, ranking.n_distances
        r = np.array([np.bincount(d[ids], minlength=bins) for d, ids in zip(ranking.D, relevant, strict=True)])
        return self._expected_ap(n, r), np.cumsum(r, axis=1)[:, radii], np.cumsum(n, axis=1)[:, radii]

    def _expected_ap(self, n: Integers, r: Integers) -> Floats:
        """Expected AP (b,) over all orders of tied items; n and r are (b, distances)."""
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
        for i, d in zip(*np.nonzero(~full & (t > 0)), strict=True):  # the cutoff splits at most one group per query
            ap[i] = self._expected_cut(gained[i], *(int(x[i, d]) for x in (N, R, n, r, t)))
        return ap

    def _expected_gain(self, N: Integers, R: Integers, n: Integers, r: Integers, t: Integers) -> Floats:
        """Expected sum of the precisions at the relevant ranks of each group, elementwise.

        At position j of a group an item is relevant with probability r/n; if it is, on average a(j − 1) of the j − 1
        items before it are too, with a = (r − 1)/(n − 1). With H the harmonic numbers, the group contributes

            r/n · Σ_{j=1..t} (R + 1 + a(j − 1)) / (N + j) = r/n · [ (R + 1 − a(N + 1)) · (H(N+t) − H(N)) + a·t ].

        The trapezoid rule takes the mean of that and of the precision one rank earlier,

            r/n · Σ_{j=1..t} (R + a(j − 1)) / (N + j − 1) = r/n · [ (R − aN) · (H(N+t−1) − H(N−1)) + a·t ],

        where the very first rank (N + j − 1 = 0) counts 1.
        """
        H = self.positions.harmonic
        share = r / np.maximum(n, 1)
        a = np.where(n > 1, (r - 1) / np.maximum(n - 1, 1), 0.0)
        low = np.minimum(N, self.cutoff)
        at = (R + 1 - a * (N + 1)) * (H[low + t] - H[low]) + a * t
        if self.protocol.ap != "trapezoid":
            return np.asarray(share * at)
        first = (N == 0) & (t > 0)
        # In the first group R = 0 and N = 0: its first position counts 1, each of the t − 1 others exactly a.
        earlier = H[np.maximum(low + t - 1, 0)] - H[np.maximum(low - 1, 0)]
        before = np.where(first, 1 + a * (t - 1), (R - a * N) * earlier + a * t)
        return np.asarray(share * (at + before) / 2)

    def _expected_cut(self, gained: float, N: int, R: int, n: int, r: int, t: int) -> float:
        """AP of one query whose cutoff splits a group, divided by the number of relevant items retrieved.

        The number j of relevant items among the t kept has a hypergeometric distribution. Given j, their order is
        random, so the group is like one of t items with j relevant ones.
        """
        from scipy.stats import hypergeom

        j = np.arange(max(0, t - (n - r)), min(r, t) + 1)
        gain = self._expected_gain(np.asarray(N), np.asarray(R), np.asarray(t), j, np.asarray(t))
        return float(hypergeom.pmf(j, n, r, t) @ ((gained + gain) / np.maximum(R + j, 1)))
