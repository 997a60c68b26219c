"""The checksum of a collection's items: by hand, in parts, and what changes it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashlearn.collection import Collection
from hashlearn.collection._checksums import EMPTY, check_rows, tally

M = 1 << 64
TEXTS = st.none() | st.text(max_size=5)


def mix(word):
    """splitmix64, as its author has it."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % M
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % M
    return word ^ (word >> 31)


def slow_total(rows):
    """The obvious version, item by item."""
    from zlib import crc32

    total = 0
    for id, code, source, payload in rows:
        padded = code + bytes(-len(code) % 8)
        words = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
        words += [0 if text is None else (1 << 63) + crc32(text.encode()) for text in (source, payload)]
        mixed = sum(mix((word + (i + 1) * 0x9E3779B97F4A7C15) % M) for i, word in enumerate(words)) % M
        total += mix(mixed ^ mix(id))
    return total % M


@st.composite
def some_rows(draw):
    width = draw(st.integers(1, 20))
    ids = sorted(draw(st.sets(st.integers(0, 2**63 - 2), max_size=8)))
    return width, [(id, draw(st.binary(min_size=width, max_size=width)), draw(TEXTS), draw(TEXTS)) for id in ids]


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_rows(), st.integers(1, 9))
def test_the_sum_is_that_of_the_items_in_whatever_parts(made, size):
    width, rows = made
    columns = check_rows(rows, width)
    assert tally(columns) == (len(rows), slow_total(rows))
    parts = [check_rows(rows[start : start + size], width) for start in range(0, len(rows), size)]
    total = EMPTY
    for part in parts:
        total = total.plus(tally(part))
    assert total == tally(columns)
    for part in parts:
        total = total.minus(tally(part))
    assert total == EMPTY


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_rows(), st.data())
def test_whatever_is_changed_changes_it(made, data):
    width, rows = made
    if not rows:
        return
    i = data.draw(st.integers(0, len(rows) - 1))
    id, code, source, payload = rows[i]
    bit = data.draw(st.integers(0, 8 * width - 1))
    flipped = bytearray(code)
    flipped[bit // 8] ^= 1 << bit % 8
    for other in (
        (id, bytes(flipped), source, payload),
        (id, code, "" if source is None else None, payload),
        (id, code, source, "x" if payload is None else f"{payload}x"),
        (id + 1, code, source, payload),
    ):
        assert slow_total([*rows[:i], other, *rows[i + 1 :]]) != slow_total(rows)
    assert slow_total(rows[:i] + rows[i + 1 :]) != slow_total(rows)
    if source != payload:
        assert slow_total([*rows[:i], (id, code, payload, source), *rows[i + 1 :]]) != slow_total(rows)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "update", "texts"]), st.integers(0, 2**32)), max_size=12))
def test_any_changes_leave_a_file_that_opens(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("sums") / "c.hl"
    with Collection.create(path, n_bits=12) as collection:
        for kind, seed in changes:
            rng = np.random.default_rng(seed)
            pool = np.concatenate([np.arange(250, 262), [2**62, 2**63 - 2], rng.integers(0, 2**62, 3)])
            known = collection.index.contains(pool)
            ids = rng.permutation(np.unique(pool[~known] if kind == "add" else pool[known]))[: rng.integers(0, 6)]
            codes = rng.integers(0, 256, (len(ids), 2), dtype=np.uint8) & np.array([0xFF, 0xF0], np.uint8)
            texts = [None if rng.random() < 0.3 else str(id) for id in ids]
            if kind == "add":
                collection.add(codes, ids=ids, sources=texts, payloads=texts[::-1])
            elif kind == "remove":
                collection.remove(ids)
            elif kind == "update":
                collection.update(ids, codes)
            else:
                collection.update(ids, sources=texts, payloads=texts)
            with Collection.open(path, readonly=True) as again:
                np.testing.assert_array_equal(again.ids, collection.ids)
                np.testing.assert_array_equal(again.index.codes, collection.index.codes)


@pytest.mark.parametrize("size", [1, 7, 1000, 1500, 2499, 2500, 9999])
def test_batches_have_the_size_and_hold_every_item_once(tmp_path, size):
    n = 2500
    codes = np.random.default_rng(0).integers(0, 256, (n, 2), dtype=np.uint8)
    with Collection.create(tmp_path / "c.hl", n_bits=16) as collection:
        assert list(collection.batches(size)) == []
        collection.add(codes, sources=[str(row) if row % 3 else None for row in range(n)], payloads=list(range(n)))
        batches = list(collection.batches(size))
        with pytest.raises(ValueError, match="size must be at least 1; got 0"):
            list(collection.batches(0))
    assert [len(items) for _, items in batches] == [min(size, n - start) for start in range(0, n, size)]
    np.testing.assert_array_equal(np.concatenate([block for block, _ in batches]), codes)
    items = [item for _, some in batches for item in some]
    assert [(item.id, item.source, item.payload) for item in items] == [
        (row, str(row) if row % 3 else None, row) for row in range(n)
    ]
