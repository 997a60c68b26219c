"""Results of searches, and plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import numpy as np

from hashlearn._arrays import Ids
from hashlearn.search._scan import Distances, Rows
from hashlearn.search._tables import Shape

#: The distance of a missing neighbor, whose id is −1. It is larger than any radius.
MISSING = np.iinfo(np.int32).max
Engine = Literal["scan", "sort", "tables"]


class Neighbors(NamedTuple):
    """The k nearest of each query, ordered by (distance, id).

    If an index has fewer than k codes, the remaining ids are −1 and the distances :data:`MISSING`.

    Attributes
    ----------
    distances : ndarray of shape (n, k), int32
    ids : ndarray of shape (n, k), int64
    """

    distances: Distances
    ids: Ids


class Matches:
    """All codes within a radius of each query: ``matches[i]`` is (distances, ids) of query i, by (distance, id).

    Parameters
    ----------
    offsets : ndarray of shape (n + 1,), int64
        The matches of query i are at ``offsets[i]:offsets[i + 1]`` of the other arrays.
    distances : ndarray of shape (n_matches,), int32
        The distances of the matches of all queries.
    ids : ndarray of shape (n_matches,), int64
        Their ids.
    """

    def __init__(self, offsets: Rows, distances: Distances, ids: Ids) -> None:
        self.offsets, self.distances, self.ids = offsets, distances, ids

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> tuple[Distances, Ids]: ...

    @overload
    def __getitem__(self, i: slice) -> Matches: ...

    def __getitem__(self, i: int | slice) -> tuple[Distances, Ids] | Matches:
        chosen = range(len(self))[i]
        if isinstance(chosen, range):
            offsets = np.cumsum([0, *(self.offsets[j + 1] - self.offsets[j] for j in chosen)])
            parts = [self[j] for j in chosen] or [(self.distances[:0], self.ids[:0])]
            distances, ids = (np.concatenate(column) for column in zip(*parts, strict=True))
            return Matches(offsets, distances, ids)
        part = slice(self.offsets[chosen], self.offsets[chosen + 1])
        return self.distances[part], self.ids[part]

    def __iter__(self) -> Iterator[tuple[Distances, Ids]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Matches({len(self):,} queries, {len(self.ids):,} matches)"


@dataclass(frozen=True)
class Plan:
    """How a search runs, and why.

    Attributes
    ----------
    engine
        ``scan`` compares every code, ``sort`` sorts all distances, ``tables`` looks up pieces of the query (multi-index
        hashing).
    reason
        Why, in words.
    microseconds
        The estimated time of a query on one core.
    tables
        The tables that are used, or that would be faster but are not worth building yet.
    """

    engine: Engine
    reason: str
    microseconds: float
    tables: Shape | None = None

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"
