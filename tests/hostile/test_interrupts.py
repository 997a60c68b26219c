"""A change that is interrupted at any of its lines is made or not, and nothing stays locked.

HASHLEARN_HOSTILE=1 interrupts each line each time that it is run, not only the first time.
"""

import os
import shutil
import sqlite3

import numpy as np
import pytest
from interrupts import interrupted

from hashlearn.codes import hamming
from hashlearn.collection import Collection
from hashlearn.search import HammingIndex

pytestmark = pytest.mark.slow

AGAIN = bool(os.environ.get("HASHLEARN_HOSTILE"))
CODES = np.random.default_rng(0).integers(0, 256, (40, 8), dtype=np.uint8)


def content(collection):
    return [
        (item.id, code.tolist(), item.source, item.payload)
        for codes, items in collection.batches()
        for code, item in zip(codes, items, strict=True)
    ]


CHANGES = {
    "add": lambda c: c.add(CODES[30:33], sources=["x", "y", None], payloads=[1, None, [2]]),
    "add under ids": lambda c: c.add(CODES[30:32], ids=[700, 31]),
    "remove": lambda c: c.remove([3, 29]),
    "update": lambda c: c.update([3, 4], CODES[30:32]),
    "update payloads": lambda c: c.update([3, 4], payloads=["new", None]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_collection_is_made_or_not(change, tmp_path):
    begin = tmp_path / "begin.hl"
    with Collection.create(begin, n_bits=64) as collection:
        collection.add(CODES[:30], sources=[f"{i}" for i in range(30)])
        before = content(collection)
    path = tmp_path / "changed.hl"
    shutil.copy(begin, path)
    with Collection.open(path) as collection:
        change(collection)
        after = content(collection)
    seen, line = set(), 0
    while True:
        shutil.copy(begin, path)
        with Collection.open(path) as collection:
            was_interrupted = interrupted(lambda: change(collection), line, again=AGAIN)
            # Nothing stays locked, for this object or for others.
            with sqlite3.connect(path, timeout=0, isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
            other.close()
            found = content(collection)
            assert found in (before, after), line
            seen.add(found == after)
            # What is searched is what was there before, or what is there.
            for state in (before, after):
                if collection.ids.tolist() == [row[0] for row in state]:
                    break
            else:
                pytest.fail(f"line {line}: {collection.ids}")
            collection.refresh()
            assert collection.index.codes.tolist() == [row[1] for row in found]
            collection.add(CODES[39:], ids=[900])
            assert 900 in collection.search(CODES[39:], 2).ids[0]
        if not was_interrupted:
            assert found == after
            break
        line += 1
    assert seen == {False, True}
    assert line > 100


INDEX_CHANGES = {
    "add": lambda i: i.add(CODES[30:33]),
    "add in between": lambda i: i.add(CODES[30:32], ids=[45, 700]),
    "remove": lambda i: i.remove([3, 50]),
    "update": lambda i: i.update([3, 4], CODES[30:32]),
    "exchange": lambda i: i.exchange([3, 4], CODES[30:32], [4, 800]),
    "within, by tables": lambda i: i.within(CODES[:2], 3, engine="tables"),
}


def answers(index):
    """By every engine."""
    scan, tables = (index.within(CODES, 3, engine=engine) for engine in ("scan", "tables"))
    for (d, i), (d2, i2) in zip(scan, tables, strict=True):
        np.testing.assert_array_equal(d, d2)
        np.testing.assert_array_equal(i, i2)
    distances = np.sort(hamming(CODES, index.codes), axis=1)[:, :5]
    np.testing.assert_array_equal(index.search(CODES, 5).distances, distances)
    return index.ids.tolist(), index.codes.tolist()


@pytest.mark.parametrize("with_tables", [True, False])
@pytest.mark.parametrize("change", INDEX_CHANGES.values(), ids=INDEX_CHANGES)
def test_a_change_of_an_index_is_made_or_not(change, with_tables):
    def made():
        index = HammingIndex(n_bits=64)
        index.add(CODES[:20])
        index.add(CODES[20:30], ids=50 + np.arange(10))
        if not with_tables:
            index.remove([0])
            index.add(CODES[:1], ids=[0])
            return index
        index.remove([17])
        index.within(CODES, 3, engine="tables")
        return index

    before, changed = answers(made()), made()
    change(changed)
    after = answers(changed)
    line = 0
    while True:
        index = made()
        was_interrupted = interrupted(lambda: change(index), line, again=AGAIN)  # noqa: B023
        assert answers(index) in (before, after), line
        index.add(CODES[39:], ids=[999])
        answers(index)
        if not was_interrupted:
            break
        line += 1
    assert line > 10
