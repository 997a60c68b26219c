"""The checksum of a collection's items: the sum of their hashes, which a change updates without reading all items.

The hash of an item combines its id, the words of its code, and the CRC-32 of its source and of its payload. Each word
is mixed by a bijection (splitmix64's). So a change of a single word always changes the sum, and so does an item that is
missing or duplicated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Codes, Ids

#: Sources, or payloads as JSON.
Texts = Sequence[str | None]

_STEP = 0x9E3779B97F4A7C15
_MODULUS = 1 << 64


class Damage(Exception):
    """What is wrong with a file; the message continues a sentence that names it."""


class Rows(NamedTuple):
    """Items ordered by id: ids (n,), packed codes (n, n_bytes), sources and payloads as they are stored."""

    ids: Ids
    codes: Codes
    sources: Texts
    payloads: Texts


def check_rows(rows: list[Any], width: int) -> Rows:
    """Turn rows (id, code, source, payload), or (id, code), into columns; raise Damage at a wrong type or length."""
    if not rows:
        return Rows(np.empty(0, np.int64), np.empty((0, width), np.uint8), (), ())
    ids, codes, *texts = zip(*rows, strict=True)
    sources, payloads = texts or ((None,) * len(rows),) * 2
    if set(map(type, codes)) != {bytes} or set(map(len, codes)) != {width}:
        raise Damage(f"a code is not {width} bytes")
    if not {*map(type, sources), *map(type, payloads)} <= {str, type(None)}:
        raise Damage("a source or payload is not text")
    numbers = np.array(ids, dtype=np.int64)
    if numbers[0] < 0 or numbers[-1] == np.iinfo(np.int64).max or (numbers[1:] <= numbers[:-1]).any():
        raise Damage("its ids are not ascending from 0")
    return Rows(numbers, np.frombuffer(b"".join(codes), np.uint8).reshape(-1, width), sources, payloads)


class Tally(NamedTuple):
    """A number of items, and the sum of their hashes."""

    n_items: int
    total: int

    def plus(self, other: Tally) -> Tally:
        return Tally(self.n_items + other.n_items, (self.total + other.total) % _MODULUS)

    def minus(self, other: Tally) -> Tally:
        return Tally(self.n_items - other.n_items, (self.total - other.total) % _MODULUS)


EMPTY = Tally(0, 0)


def to_meta(value: Tally) -> dict[str, Any]:
    """The values of ``meta`` that store it."""
    return {"n_items": value.n_items, "checksum": f"{value.total:016x}"}


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


def _text_words(texts: Texts) -> NDArray[np.uint64]:
    """A word for each text; 0 for None, which no text has."""
    if None in texts:
        words = np.zeros(len(texts), np.uint64)
        words[[text is not None for text in texts]] = _text_words([text for text in texts if text is not None])
        return words
    crcs = np.fromiter(map(crc32, map(str.encode, texts)), np.uint64, len(texts))  # type: ignore[arg-type]
    return crcs + np.uint64(_MODULUS // 2)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
