"""Multi-index hashing: all codes within a small radius without reading every code, and when that is faster.

A code is cut into ``n_tables`` disjoint pieces of ``piece`` bits. Two codes within a distance r of each other agree in
one of the pieces up to ⌊r / n_tables⌋ bits. So it is enough to look up each piece of the query, and all that differ
from it in so many bits, in a table of that piece, and to compare the codes found there: M. Norouzi, A. Punjani,
D. J. Fleet, "Fast exact search in Hamming space with multi-index hashing", TPAMI 2014. The tables are FAISS's.

What it costs can be told beforehand: the number of lookups from the sizes, and the number of codes found in the tables
from how often two of the stored codes agree in a piece, which a sample of pairs shows. On codes that lie in
clusters that is far more than on codes at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf
from threading import Lock
from typing import Any

import numpy as np

from hashlearn.search._scan import Codes, Distances, Rows, gathered, one_openmp_thread, share

# Nanoseconds, measured (benchmarks/bench_search.py): a query, a lookup, a code found in a table, a code put into one.
# Of 200,000 codes and more: where there are fewer, all of it lies in the cache, and a scan is soon done anyway.
_QUERY, _LOOKUP, _FOUND, _STORED = 1200.0, 110.0, 150.0, 420.0
# Nanoseconds to compare one code in a scan, by its bytes; longer ones in proportion.
_COMPARED = {4: 0.55, 8: 0.6, 16: 1.0, 20: 1.4, 32: 2.2, 64: 4.5}
_MOST_TABLES = 16
_MOST_BITS = 32
_MOST_LOOKUPS = 100_000
_N_PAIRS = 20_000


def scan_cost(n_codes: int, width: int) -> float:
    """Nanoseconds of a query that is compared with every code of this many bytes."""
    return n_codes * _COMPARED.get(width, width * _COMPARED[64] / 64)


def least_queries(n_codes: int, width: int) -> int:
    """With fewer queries than this no tables are worth making, however fast they are."""
    return int(_STORED * n_codes / max(1.0, scan_cost(n_codes, width)))


@dataclass(frozen=True)
class Shape:
    """How codes are cut into pieces, a table for each."""

    n_tables: int
    piece: int

    def flips(self, radius: int) -> int:
        """In how many bits a piece must be allowed to differ for the answer to be exact."""
        return radius // self.n_tables

    def lookups(self, radius: int) -> int:
        return self.n_tables * sum(comb(self.piece, i) for i in range(self.flips(radius) + 1))

    def __str__(self) -> str:
        return f"{self.n_tables} {'table' if self.n_tables == 1 else 'tables'} of {self.piece} bits"

    @property
    def stored_cost(self) -> float:
        """Nanoseconds to put one code into the tables."""
        return _STORED * self.n_tables


def _lookup_cost(shape: Shape, radius: int) -> float:
    """Nanoseconds of a query that finds nothing."""
    return _QUERY + _LOOKUP * shape.lookups(radius)


class Estimate:
    """What searches through tables of codes like these would cost, from a sample of pairs of them."""

    def __init__(self, codes: Codes, n_bits: int) -> None:
        self.n_codes = len(codes)
        self._n_bits = n_bits
        draw = np.random.default_rng(0).integers(0, len(codes), (2, _N_PAIRS))
        used = codes[:, : _MOST_TABLES * _MOST_BITS // 8]
        x = np.take(used, draw[0], axis=0) ^ np.take(used, draw[1], axis=0)
        #: Where the codes of a pair differ: (bits, pairs), in the order in which FAISS reads bits.
        self._differing = np.unpackbits(x, axis=1, bitorder="little").T.copy()
        self._agreeing: dict[tuple[Shape, int], float] = {}
        #: For tables and a radius: the cost of the lookups, and, for each stored code, of what they find.
        self._parts: dict[tuple[Shape, int], tuple[float, float]] = {}
        #: For each radius, for how many codes the cheapest tables were sought, and which they are.
        self._cheapest: dict[int, tuple[int, Shape | None]] = {}

    def agreeing(self, shape: Shape, flips: int) -> float:
        """The number of pieces that two codes have in common but for so many bits, in the mean over pairs."""
        key = shape, flips
        if key not in self._agreeing:
            pieces = self._differing[: shape.n_tables * shape.piece].reshape(shape.n_tables, shape.piece, -1)
            self._agreeing[key] = float((pieces.sum(axis=1, dtype=np.uint8) <= flips).sum(axis=0).mean())
        return self._agreeing[key]

    def cost(self, shape: Shape, radius: int, n_codes: int) -> float:
        """Nanoseconds of a query, like the codes themselves, of tables of so many codes; inf: too many lookups."""
        if (shape, radius) not in self._parts:
            few = shape.lookups(radius) <= _MOST_LOOKUPS
            found = self.agreeing(shape, shape.flips(radius)) if few else 0.0
            self._parts[shape, radius] = _lookup_cost(shape, radius) if few else inf, _FOUND * found
        fixed, each = self._parts[shape, radius]
        return fixed + each * n_codes

    def cheapest(self, radius: int, n_codes: int) -> Shape | None:
        """The tables that answer this radius soonest; None if each would take too many lookups."""
        known, best = self._cheapest.get(radius, (-1, None))
        if known == n_codes:
            return best
        shapes = {Shape(n, min(self._n_bits // n, _MOST_BITS)) for n in range(1, min(_MOST_TABLES, self._n_bits) + 1)}
        costs = {shape: self.cost(shape, radius, n_codes) for shape in shapes}
        best = min(shapes, key=lambda shape: (costs[shape], shape.n_tables))
        best = best if costs[best] < inf else None
        self._cheapest[radius] = n_codes, best
        return best


class Tables:
    """The tables themselves: up to about 130 bytes for each code and table. Searches of several threads take turns."""

    def __init__(self, codes: Codes, shape: Shape) -> None:
        import faiss

        self.shape = shape
        self._index = faiss.IndexBinaryMultiHash(8 * codes.shape[1], shape.n_tables, shape.piece)
        with one_openmp_thread():
            self._index.add(codes)
        # The number of flips is the index's, not the search's.
        self._lock = Lock()

    def within(self, queries: Codes, radius: int) -> tuple[Rows, Distances, Rows]:
        """As :func:`~hashlearn.search._scan.rows_within`."""
        parts: dict[int, tuple[Any, Any, Any]] = {}

        def work(part: slice) -> None:
            with one_openmp_thread():
                limits, distances, rows = self._index.range_search(queries[part], radius + 1)
            ends = limits.astype(np.int64)
            parts[part.start] = ends[1:] - ends[:-1], distances, rows

        with self._lock:
            self._index.nflip = self.shape.flips(radius)
            # At least as much work as a scan of so many codes; a fourth of it, for threads to be worth their start.
            like_codes = _lookup_cost(self.shape, radius) / scan_cost(1, queries.shape[1]) / 4
            share(work, len(queries), int(like_codes), len(queries))
        return gathered([parts[start] for start in sorted(parts)])
