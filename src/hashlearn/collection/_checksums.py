"""The checksum of a collection's items: a sum of their hashes, to which a change adds and from which it takes away.

The hash of an item is made of its id, the words of its code, and the CRC-32 of its source and of its payload, each word
mixed by a function that maps no two words to one (splitmix64's). So a single word that is changed always changes the
sum, and so does an item that is missing or there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hashlearn.collection._schema import Damage

_STEP = 0x9E3779B97F4A7C15
_MODULUS = 1 << 64


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


def check_rows(rows: list[Any], width: int) -> Rows:
    """Rows (id, code, source, payload) by id, as columns; a Damage if one is not of its type or length.

    Rows (id, code) have no texts.
    """
    if not rows:
        return Rows(np.empty(0, np.int64), np.empty((0, width), np.uint8), (), ())
    ids, codes, *texts = zip(*rows, strict=True)
    sources, payloads = texts or ((None,) * len(rows),) * 2
    if set(map(type, codes)) != {bytes} or set(map(len, codes)) != {width}:
        raise Damage(f"a code is not {width} bytes")
    if not {*map(type, sources), *map(type, payloads)} <= {str, type(None)}:
        raise Damage("a source or payload is no text")
    numbers = np.array(ids, dtype=np.int64)
    if numbers[0] < 0 or numbers[-1] == np.iinfo(np.int64).max or (numbers[1:] <= numbers[:-1]).any():
        raise Damage("its ids do not ascend from 0 on")
    return Rows(numbers, np.frombuffer(b"".join(codes), np.uint8).reshape(-1, width), sources, payloads)


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


class Tally(NamedTuple):
    """How many items there are, and the sum of their hashes."""

    n_items: int
    total: int

    def plus(self, other: Tally) -> Tally:
        return Tally(self.n_items + other.n_items, (self.total + other.total) % _MODULUS)

    def minus(self, other: Tally) -> Tally:
        return Tally(self.n_items - other.n_items, (self.total - other.total) % _MODULUS)


EMPTY = Tally(0, 0)


def as_meta(of: Tally) -> dict[str, Any]:
    """How a file keeps it."""
    return {"n_items": of.n_items, "checksum": f"{of.total:016x}"}


def tally(rows: Rows) -> Tally:
    n, width = rows.codes.shape
    words = np.zeros((n, -(-width // 8) * 8), np.uint8)
    words[:, :width] = rows.codes
    columns = [*words.view("<u8").T.astype(np.uint64), _text_words(rows.sources), _text_words(rows.payloads)]
    mixed = np.zeros(n, np.uint64)
    for place, column in enumerate(columns, 1):
        mixed += _mix(column + np.uint64(place * _STEP % _MODULUS))
    hashes = _mix(mixed ^ _mix(rows.ids.astype(np.uint64)))
    return Tally(n, int(hashes.sum(dtype=np.uint64)))


def _text_words(texts: Sequence[str | None]) -> NDArray[np.uint64]:
    """A word for each text; another one for a text that is not there."""
    if None in texts:
        texts_there = [text for text in texts if text is not None]
        words = np.zeros(len(texts), np.uint64)
        words[[text is not None for text in texts]] = _text_words(texts_there)
        return words
    crcs = np.fromiter(map(crc32, map(str.encode, texts)), np.uint64, len(texts))  # type: ignore[arg-type]
    return crcs + np.uint64(_MODULUS // 2)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
