"""What a search gives: the nearest, all within a radius, and how it was done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import numpy as np

from hashlearn.search._scan import Distances, Rows
from hashlearn.search._state import Ids
from hashlearn.search._tables import Shape

#: The distance of a neighbour that is not there (its id is −1): no radius reaches it.
MISSING = np.iinfo(np.int32).max
Engine = Literal["scan", "sort", "tables"]


class Neighbours(NamedTuple):
    """The k nearest of each query: ``distances`` (n, k) int32 and ``ids`` (n, k) int64, by (distance, id).

    Where an index has fewer than k codes, the id is −1 and the distance :data:`MISSING`.
    """

    distances: Distances
    ids: Ids


class Matches:
    """All within a radius of each query: ``matches[i]`` is query i's (distances, ids), by (distance, id).

    ``offsets`` (n + 1,), ``distances`` and ``ids`` hold them one query after the other: query i's are at
    ``offsets[i]:offsets[i + 1]``.
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
    """How a search is done, and why.

    ``engine``: ``scan`` compares every code, ``sort`` orders all distances, ``tables`` looks up pieces of the query
    (multi-index hashing). ``microseconds``: about what a query takes on one core. ``tables``: those that are used, or
    that would be faster but are not worth making yet.
    """

    engine: Engine
    reason: str
    microseconds: float
    tables: Shape | None = None

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"
