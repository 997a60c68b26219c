"""Multi-index hashing: find all codes within a small radius without reading every code.

A code is cut into ``n_tables`` disjoint pieces of ``piece`` bits. Two codes within a distance r of each other agree in
one of the pieces up to ⌊r / n_tables⌋ bits. So it is enough to look up each piece of the query, and all pieces that
differ from it in that many bits, in the table of the piece, and to compare the codes in the table: M. Norouzi,
A. Punjani, D. J. Fleet, "Fast exact search in Hamming space with multi-index hashing", TPAMI 2014.
The tables are FAISS's.

The cost is estimated in advance: the number of lookups follows from the sizes, and the number of candidates from how
often two stored codes agree in a piece, in a sample of pairs. Clustered codes have far more candidates than random
ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf
from threading import Lock
from typing import Any

import numpy as np

from hashlearn._arrays import Codes
from hashlearn.search._scan import Distances, Rows, merge_parts, one_openmp_thread, share

# Nanoseconds (benchmarks/bench_search.py) of a query, a lookup, a candidate in a table, and an insertion into one, for
# 200,000 codes and more. Fewer codes lie in the cache, and a scan is fast anyway.
_QUERY, _LOOKUP, _CANDIDATE, _INSERT = 1200.0, 110.0, 150.0, 420.0
# Nanoseconds to compare one code in a scan, by its bytes; longer codes in proportion.
_COMPARE = {4: 0.55, 8: 0.6, 16: 1.0, 20: 1.4, 32: 2.2, 64: 4.5}
_MAX_TABLES = 16
_MAX_PIECE = 32
_MAX_LOOKUPS = 100_000
_N_PAIRS = 20_000


def scan_cost(n_codes: int, width: int) -> float:
    """Nanoseconds to compare a query with every code of ``width`` bytes."""
    return n_codes * _COMPARE.get(width, width * _COMPARE[64] / 64)


def min_queries(n_codes: int, width: int) -> int:
    """The number of queries below which no tables are worth building, however fast."""
    return int(_INSERT * n_codes / max(1.0, scan_cost(n_codes, width)))


@dataclass(frozen=True)
class Shape:
    """How codes are cut into pieces, with a table for each."""

    n_tables: int
    piece: int

    def flips(self, radius: int) -> int:
        """The number of bits in which a piece may differ, for an exact result."""
        return radius // self.n_tables

    def lookups(self, radius: int) -> int:
        return self.n_tables * sum(comb(self.piece, i) for i in range(self.flips(radius) + 1))

    def __str__(self) -> str:
        return f"{self.n_tables} {'table' if self.n_tables == 1 else 'tables'} of {self.piece} bits"

    @property
    def insert_cost(self) -> float:
        """Nanoseconds to insert one code into the tables."""
        return _INSERT * self.n_tables


def _lookup_cost(shape: Shape, radius: int) -> float:
    """Nanoseconds of a query without candidates."""
    return _QUERY + _LOOKUP * shape.lookups(radius)


class Estimate:
    """The cost of searches in tables of these codes, estimated from a sample of pairs."""

    def __init__(self, codes: Codes, n_bits: int) -> None:
        self.n_codes = len(codes)
        self._n_bits = n_bits
        draw = np.random.default_rng(0).integers(0, len(codes), (2, _N_PAIRS))
        used = codes[:, : _MAX_TABLES * _MAX_PIECE // 8]
        x = np.take(used, draw[0], axis=0) ^ np.take(used, draw[1], axis=0)
        #: Whether the codes of a pair differ: (bits, pairs), bits in FAISS's order.
        self._differing = np.unpackbits(x, axis=1, bitorder="little").T.copy()
        self._agreeing: dict[tuple[Shape, int], float] = {}
        #: By tables and radius: the cost of the lookups, and of the candidates per stored code.
        self._parts: dict[tuple[Shape, int], tuple[float, float]] = {}
        #: By radius: the cheapest tables, and the number of codes for which they were chosen.
        self._cheapest: dict[int, tuple[int, Shape | None]] = {}

    def agreeing(self, shape: Shape, flips: int) -> float:
        """The mean number of pieces in which two codes differ by at most ``flips`` bits."""
        key = shape, flips
        if key not in self._agreeing:
            pieces = self._differing[: shape.n_tables * shape.piece].reshape(shape.n_tables, shape.piece, -1)
            self._agreeing[key] = float((pieces.sum(axis=1, dtype=np.uint8) <= flips).sum(axis=0).mean())
        return self._agreeing[key]

    def cost(self, shape: Shape, radius: int, n_codes: int) -> float:
        """Nanoseconds of a query in tables of ``n_codes`` codes; inf: too many lookups."""
        if (shape, radius) not in self._parts:
            few = shape.lookups(radius) <= _MAX_LOOKUPS
            candidates = self.agreeing(shape, shape.flips(radius)) if few else 0.0
            self._parts[shape, radius] = _lookup_cost(shape, radius) if few else inf, _CANDIDATE * candidates
        fixed, each = self._parts[shape, radius]
        return fixed + each * n_codes

    def cheapest(self, radius: int, n_codes: int) -> Shape | None:
        """The fastest tables for a radius; None if all would need too many lookups."""
        known, best = self._cheapest.get(radius, (-1, None))
        if known == n_codes:
            return best
        shapes = {Shape(n, min(self._n_bits // n, _MAX_PIECE)) for n in range(1, min(_MAX_TABLES, self._n_bits) + 1)}
        costs = {shape: self.cost(shape, radius, n_codes) for shape in shapes}
        best = min(shapes, key=lambda shape: (costs[shape], shape.n_tables))
        best = best if costs[best] < inf else None
        self._cheapest[radius] = n_codes, best
        return best


class Tables:
    """Tables of codes, of up to about 130 bytes per code and table. Threads take turns to search them."""

    def __init__(self, codes: Codes, shape: Shape) -> None:
        import faiss

        self.shape = shape
        self._index = faiss.IndexBinaryMultiHash(8 * codes.shape[1], shape.n_tables, shape.piece)
        with one_openmp_thread():
            self._index.add(codes)
        # FAISS sets the number of flips for the index, not for a search.
        self._lock = Lock()

    def within(self, queries: Codes, radius: int) -> tuple[Rows, Distances, Rows]:
        """As :func:`~hashlearn.search._scan.rows_within`."""

        def work(part: slice) -> tuple[Any, Any, Any]:
            with one_openmp_thread():
                limits, distances, rows = self._index.range_search(queries[part], radius + 1)
            return np.diff(limits.astype(np.int64)), distances, rows

        with self._lock:
            self._index.nflip = self.shape.flips(radius)
            # The work as a number of compared codes; a fourth of it, so that starting threads pays off.
            like_codes = _lookup_cost(self.shape, radius) / scan_cost(1, queries.shape[1]) / 4
            parts = share(work, len(queries), int(like_codes), len(queries))
        return merge_parts(parts)
