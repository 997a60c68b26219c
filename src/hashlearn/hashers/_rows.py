"""Training vectors in blocks of rows, centred and scaled: from memory, or read block by block from a file."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hashlearn.hashers.base import compute_type
from hashlearn.memory import free_memory
from hashlearn.threads import ThreadMap, cores

Array = NDArray[Any]
R = TypeVar("R")

# Rows of a block: what is made of it stays near a core, and BLAS still runs at its full rate.
BLOCK_ROWS = 2048
# Parts whose sums are taken apart and added in order, so that a result does not depend on the number of threads.
SHARDS = 16
# A memory map is copied into memory if that, and what is kept beside it, takes at most this share of it.
_SHARE_OF_MEMORY = 0.5


class Rows:
    """(X − offset) / scale, a block of rows at a time.

    They are prepared once, as a copy in the type that is computed in, unless X is a memory map of a file too large for
    that: then only the blocks under way are in memory, read and prepared whenever they are asked for.

    ``beside``: numbers (of the same type) for each row that are to be kept in memory as well.
    """

    def __init__(
        self,
        X: Array,
        offset: NDArray[np.float64],
        scale: float,
        thread_map: ThreadMap,
        *,
        beside: int = 0,
    ) -> None:
        self.dtype = compute_type(X.dtype)
        self.shape: tuple[int, int] = X.shape
        self._X = X
        #: Whether rows are read whenever they are asked for.
        self.streamed = is_mapped(X) and self._bytes(X.shape[1] + beside) > _SHARE_OF_MEMORY * free_memory()
        self.shards = _shards(len(X))
        self._offset = offset.astype(self.dtype)
        self._factor = self.dtype(1 / scale)
        self._map = thread_map
        self._prepared: Array | None = None
        if not self.streamed:
            prepared = np.empty(self.shape, dtype=self.dtype)
            self.map(lambda shard: [self._prepare(block, out=prepared[block]) for block in shard])
            self._prepared = prepared

    def __len__(self) -> int:
        return len(self._X)

    def _bytes(self, width: int) -> int:
        return len(self) * width * np.dtype(self.dtype).itemsize

    def _prepare(self, block: slice, out: Array | None = None) -> Array:
        if out is None:  # in C order, whatever that of X is: products round differently otherwise
            out = np.empty((block.stop - block.start, self.shape[1]), dtype=self.dtype)
        X: Array = np.subtract(self._X[block], self._offset, out=out, dtype=self.dtype)
        X *= self._factor
        return X

    def __getitem__(self, block: slice) -> Array:
        """A block of rows, not to be changed."""
        return self._prepare(block) if self._prepared is None else self._prepared[block]

    def map(self, work: Callable[[list[slice]], R]) -> list[R]:
        """``work`` of each shard, a list of blocks, shared among threads; results in the order of the shards."""
        return self._map(work, self.shards)

    def total(self, work: Callable[[slice, Array], Iterable[Any]], *, large: bool = False) -> list[Any]:
        """The sum over all blocks, item by item, of ``work(block, X of the block)``, added in a fixed order.

        ``large``: what is summed takes much memory, so that no more of it is held than there are cores.
        """

        def shard_total(shard: list[slice]) -> list[Any]:
            return _add(work(block, self[block]) for block in shard)

        step = cores() if large else len(self.shards)
        parts = (self.shards[start : start + step] for start in range(0, len(self.shards), step))
        return _add(result for part in parts for result in self._map(shard_total, part))


def _add(results: Iterable[Iterable[Any]]) -> list[Any]:
    total: list[Any] = []
    for result in results:
        total = [a + b for a, b in zip(total, result, strict=True)] if total else list(result)
    return total


def _shards(m: int) -> list[list[slice]]:
    """At most ``SHARDS`` parts of about equal size, each in blocks of about equal size."""
    n = min(SHARDS, -(-m // BLOCK_ROWS))
    return [_cut(part, -(-(part.stop - part.start) // BLOCK_ROWS)) for part in _cut(slice(0, m), n)]


def _cut(part: slice, n: int) -> list[slice]:
    size = part.stop - part.start
    return [slice(part.start + size * i // n, part.start + size * (i + 1) // n) for i in range(n)]


def is_mapped(X: Array) -> bool:
    """Whether an array's memory is a file's. A copy of a memory map is a ``np.memmap`` too, and is not."""
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)
