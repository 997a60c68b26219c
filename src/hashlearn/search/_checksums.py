"""Checksums of a collection's items: one CRC-32 for each block of 256 consecutive ids.

A block, not an item, because checking a million items one by one in Python would take longer than reading them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hashlearn.search._schema import Damage

_BLOCK_BITS = 8
#: Ids of one block.
BLOCK_IDS = 1 << _BLOCK_BITS


class Rows(NamedTuple):
    """Items by id: ids (n,), packed codes (n, bytes), sources and payloads as the file has them."""

    ids: NDArray[np.int64]
    codes: NDArray[np.uint8]
    sources: Sequence[str | None]
    payloads: Sequence[str | None]

    def part(self, start: int, stop: int) -> Rows:
        rows = slice(start, stop)
        return Rows(self.ids[rows], self.codes[rows], self.sources[rows], self.payloads[rows])

    def and_then(self, more: Rows) -> Rows:
        return Rows(
            np.concatenate([self.ids, more.ids]),
            np.concatenate([self.codes, more.codes]),
            (*self.sources, *more.sources),
            (*self.payloads, *more.payloads),
        )


class Sums(NamedTuple):
    """Blocks, ascending, and the checksum of each."""

    blocks: NDArray[np.int64]
    crcs: NDArray[np.int64]


def block_runs(ids: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """The blocks that these ids are in, as ranges (first, last) of at most so many."""
    blocks = np.unique(ids >> _BLOCK_BITS)
    runs = np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1) if len(blocks) else []
    return [(int(run[i]), int(run[i : i + most][-1])) for run in runs for i in range(0, len(run), most)]


def block_range(first: int, last: int) -> tuple[int, int]:
    """The blocks of the ids from ``first`` to ``last``."""
    return first >> _BLOCK_BITS, last >> _BLOCK_BITS


def id_range(first: int, last: int) -> tuple[int, int]:
    """The ids of the blocks from ``first`` to ``last``."""
    return first << _BLOCK_BITS, (last << _BLOCK_BITS) + BLOCK_IDS - 1


def checked_rows(rows: list[Any], width: int) -> Rows:
    """Rows (id, code, source, payload) as columns; a Damage if one is not of its type or length."""
    if not rows:
        return Rows(np.empty(0, np.int64), np.empty((0, width), np.uint8), (), ())
    ids, codes, sources, payloads = zip(*rows, strict=True)
    if set(map(type, codes)) != {bytes} or set(map(len, codes)) != {width}:
        raise Damage(f"a code is not {width} bytes")
    if not {*map(type, sources), *map(type, payloads)} <= {str, type(None)}:
        raise Damage("a source or payload is no text")
    numbers = np.array(ids, dtype=np.int64)
    if numbers[0] < 0 or numbers[-1] == np.iinfo(np.int64).max or (numbers[1:] <= numbers[:-1]).any():
        raise Damage("its ids do not ascend from 0 on")
    return Rows(numbers, np.frombuffer(b"".join(codes), np.uint8).reshape(-1, width), sources, payloads)


def whole_blocks(batches: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """The same rows in other batches, which end where a block ends."""
    rest: list[Any] = []
    for batch in batches:
        rest += batch
        last = rest[-1][0] >> _BLOCK_BITS
        cut = len(rest)
        while cut and rest[cut - 1][0] >> _BLOCK_BITS == last:
            cut -= 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def resized(batches: Iterable[Rows], size: int) -> Iterator[Rows]:
    """The same items, so many at a time."""
    rest: Rows | None = None
    for batch in batches:
        rows = batch if rest is None else rest.and_then(batch)
        whole = len(rows.ids) - len(rows.ids) % size
        for start in range(0, whole, size):
            yield rows.part(start, start + size)
        rest = rows.part(whole, len(rows.ids))
    if rest is not None and len(rest.ids):
        yield rest


def block_sums(rows: Rows) -> Sums:
    """The checksums of the blocks that these rows, which are whole blocks, are in."""
    if not len(rows.ids):
        return Sums(rows.ids, rows.ids)
    blocks, starts = np.unique(rows.ids >> _BLOCK_BITS, return_index=True)
    ids = memoryview(rows.ids.astype("<i8").tobytes())
    codes, width = memoryview(rows.codes.tobytes()), rows.codes.shape[1]
    # U+0000 for a text that is not there, U+001F between two: no single changed bit makes one text of another.
    sources, payloads = (
        ["\0" if text is None else text for text in column] for column in (rows.sources, rows.payloads)
    )
    crcs = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows.ids)], strict=True):
        crc = crc32(codes[start * width : end * width], crc32(ids[8 * start : 8 * end]))
        crc = crc32("\x1f".join(sources[start:end]).encode(), crc)
        crcs.append(crc32("\x1f".join(payloads[start:end]).encode(), crc))
    return Sums(blocks, np.array(crcs, np.int64))


def check_sums(found: Sums, kept: Sums) -> None:
    """A Damage that names the first block that is not as it was written."""
    if np.array_equal(found.blocks, kept.blocks) and np.array_equal(found.crcs, kept.crcs):
        return
    known = dict(zip(kept.blocks.tolist(), kept.crcs.tolist(), strict=True))
    seen = dict(zip(found.blocks.tolist(), found.crcs.tolist(), strict=True))
    block = min(block for block in known.keys() | seen.keys() if known.get(block) != seen.get(block))
    first, last = id_range(block, block)
    raise Damage(f"the items with ids from {first} to {last} do not have the checksum that they were written with")
