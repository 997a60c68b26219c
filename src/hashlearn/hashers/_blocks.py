"""Rows of vectors in blocks: map a function over them, add up its results in a fixed order, draw shuffled batches.

The functions of :meth:`Rows.map` and :meth:`Rows.total` take and return plain arrays and write into none that another
block sees, so that they can run in a thread, in a process or on another machine. Results are added in an order that
does not depend on the number of threads. (:meth:`Rows.each` is for methods that fill a large array of another layout.)
"""

from __future__ import annotations

import copy
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers.steps import Float, compute_type, unit_rows
from hashlearn.memory import free_memory
from hashlearn.threads import ThreadMap, cores, thread_map

R = TypeVar("R")

# Elements of X in a block of :func:`row_blocks`: its float32 copy (4 MiB) stays in a shared cache.
_BLOCK_ELEMENTS = 1 << 20
# Rows in a block of :class:`Rows`: what is made of them stays near a core, and BLAS still runs at its full rate.
BLOCK_ROWS = 2048
# Rows in a block of a batch: the batch is shared among threads, and its sums do not depend on their number.
BATCH_ROWS = 256
# Blocks are summed in so many parts, which are then added in order.
PARTS = 16
# A memory map is copied into memory if the copy, and what is kept beside it, takes at most this share of it.
_SHARE_OF_MEMORY = 0.5


def blocks_of_size(n: int, size: int) -> list[slice]:
    """Cut ``n`` rows into blocks of ``size`` rows; the last one may be smaller."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def row_blocks(X: Array, width: int = 1) -> list[slice]:
    """Cut ``X`` into blocks of rows that stay in cache, also if ``width`` values are made of each row."""
    return blocks_of_size(len(X), max(1, _BLOCK_ELEMENTS // max(X.shape[1], width)))


def in_parts(blocks: Sequence[slice], most: int | None = None) -> list[list[slice]]:
    """Group blocks into at most :data:`PARTS` parts (or ``most``) of about equal size."""
    n = min(len(blocks), PARTS if most is None else most)
    return [list(blocks[len(blocks) * i // n : len(blocks) * (i + 1) // n]) for i in range(n)]


def total(
    work: Callable[[slice], Iterable[Any]], parts: Sequence[list[slice]], threads: ThreadMap, *, large: bool = False
) -> list[Any]:
    """Add up, item by item, what ``work(block)`` returns: blocks within a part, then parts, always in this order.

    Parameters
    ----------
    work : callable
        Returns new arrays or numbers, which are added, or lists, which are joined.
    parts : sequence of lists of slices
        Blocks of rows.
    threads : ThreadMap
        Parts are shared among these threads.
    large : bool, default=False
        Hold no more results at a time than there are cores, because each takes much memory.
    """

    def part_total(part: list[slice]) -> list[Any]:
        return _add(work(block) for block in part)

    step = cores() if large else len(parts)
    groups = (parts[start : start + step] for start in range(0, len(parts), step))
    return _add(result for group in groups for result in threads(part_total, group))


def _add(results: Iterable[Iterable[Any]]) -> list[Any]:
    sums: list[Any] = []
    for result in results:
        if sums:
            for i, item in enumerate(result):
                sums[i] += item
        else:
            sums = list(result)
    return sums


class Rows:
    """(X − offset) / scale, a block of rows at a time.

    Rows are prepared once, as a copy in the type that is computed in. If X is a memory map of a file that is too large
    for that, only the blocks in use are in memory, and each is read and prepared whenever it is needed.

    Parameters
    ----------
    X : ndarray of shape (m, D)
    offset : ndarray of shape (D,)
    scale : float or ndarray of shape (D,)
    thread_map : ThreadMap
    beside : int, default=0
        How many numbers of the same type will be kept in memory for each row as well.
    dtype : float32 or float64, optional
        The type of the rows, which are rounded to it after they are centered and scaled. Default: float32 if that
        holds X, else float64.
    """

    def __init__(
        self,
        X: Array,
        offset: Floats,
        scale: float | Floats,
        thread_map: ThreadMap,
        *,
        beside: int = 0,
        dtype: Float | None = None,
    ) -> None:
        self._exact = compute_type(X.dtype)
        self.dtype = self._exact if dtype is None else dtype
        self.shape: tuple[int, int] = X.shape
        self._X = X
        #: Whether rows are read whenever they are needed.
        self.streamed = is_mapped(X) and self._bytes(X.shape[1] + beside) > _SHARE_OF_MEMORY * free_memory()
        #: At most :data:`PARTS` lists of blocks of about equal size.
        self.parts = _even_parts(len(X))
        self._offset = offset.astype(self._exact)
        self._factor = np.asarray(1 / scale, dtype=self._exact)
        self._threads = thread_map
        self._prepared: Array | None = None
        if not self.streamed:
            prepared = np.empty(self.shape, dtype=self.dtype)
            thread_map(lambda part: [self._prepare(block, out=prepared[block]) for block in part], self.parts)
            self._prepared = prepared

    def __len__(self) -> int:
        return len(self._X)

    def _bytes(self, width: int) -> int:
        return len(self) * width * np.dtype(self.dtype).itemsize

    def _prepare(self, block: slice | Indices, out: Array | None = None) -> Array:
        X = self._X[block]
        if out is None:  # in C order, whatever that of X is: products round differently otherwise
            out = np.empty(X.shape, dtype=self.dtype)
        if self.dtype is self._exact:
            np.subtract(X, self._offset, out=out, dtype=self.dtype)
            out *= self._factor
        else:  # rounded last
            np.multiply(np.subtract(X, self._offset, dtype=self._exact), self._factor, out=out, casting="same_kind")
        return out

    def __getitem__(self, block: slice) -> Array:
        """A block of rows; read-only by convention."""
        return self._prepare(block) if self._prepared is None else self._prepared[block]

    def take(self, numbers: Indices) -> Array:
        """Copy the rows with these numbers."""
        return self._prepare(numbers) if self._prepared is None else self._prepared[numbers]

    def batch(self, numbers: Indices) -> Rows:
        """Copy the rows with these numbers, as rows in small blocks."""
        batch = copy.copy(self)
        batch._X = batch._prepared = self.take(numbers)
        batch.shape, batch.streamed = batch._X.shape, False
        batch.parts = in_parts(blocks_of_size(len(numbers), BATCH_ROWS))
        return batch

    def each(self, work: Callable[[slice, Array], object]) -> None:
        """Call ``work(block, X of the block)`` for every block, to fill arrays of another layout."""
        self._threads(lambda part: [work(block, self[block]) for block in part], self.parts)

    def map(self, work: Callable[[slice, Array], Array]) -> Array:
        """Join what ``work(block, X of the block)`` returns, in the order of the rows."""

        def part_results(part: list[slice]) -> list[Array]:
            return [work(block, self[block]) for block in part]

        return np.concatenate([result for part in self._threads(part_results, self.parts) for result in part])

    def total(self, work: Callable[[slice, Array], Iterable[Any]], *, large: bool = False) -> list[Any]:
        """Add up what ``work(block, X of the block)`` returns (see :func:`total`)."""
        return total(lambda block: work(block, self[block]), self.parts, self._threads, large=large)

    def total_beside(self, work: Callable[[slice, Array, Any], Iterable[Any]], beside: Mapping[int, Any]) -> list[Any]:
        """Add up what ``work(block, X of the block, entry of the block)`` returns.

        ``beside`` has an entry for each block, by its first row, or None is passed. The block may change its entry.
        """
        return self.total(lambda block, X: work(block, X, beside.get(block.start)))


def shuffled_batches(n: int, size: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Yield the numbers below ``n`` in random order, ``size`` at a time; the last batch may be smaller."""
    order = rng.permutation(n)
    return (order[block] for block in blocks_of_size(n, size))


def _even_parts(m: int) -> list[list[slice]]:
    n = min(PARTS, -(-m // BLOCK_ROWS))
    return [_cut(part, -(-(part.stop - part.start) // BLOCK_ROWS)) for part in _cut(slice(0, m), n)]


def _cut(part: slice, n: int) -> list[slice]:
    size = part.stop - part.start
    return [slice(part.start + size * i // n, part.start + size * (i + 1) // n) for i in range(n)]


def unit_copy(X: Array) -> Array:
    """Copy the rows, brought to unit length; those of a memory map that is too large for memory into another file."""
    dtype = compute_type(X.dtype)
    out: Array
    if is_mapped(X) and X.size * np.dtype(dtype).itemsize > _SHARE_OF_MEMORY * free_memory():
        with tempfile.TemporaryFile() as file:  # the map keeps it until nobody needs it
            if hasattr(os, "posix_fallocate"):  # an error now if the disk is full, and not a crash later
                os.posix_fallocate(file.fileno(), 0, X.size * np.dtype(dtype).itemsize)
            out = np.memmap(file, dtype=dtype, shape=X.shape)
    else:
        out = np.empty(X.shape, dtype=dtype)

    def work(rows: slice) -> None:
        out[rows] = unit_rows(X[rows].astype(dtype))

    with thread_map() as threads:
        threads(work, row_blocks(X))
    return out


def is_mapped(X: Array) -> bool:
    """Whether an array's memory is a file. A copy of a memory map is a ``np.memmap`` too, but its memory is not."""
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)
