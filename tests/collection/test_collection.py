"""Collections: what is kept, transactions that are really killed, readers beside a writer, files that do not fit."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from crafted import altered, crafted
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hashlearn import ITQ, LSH
from hashlearn.codes import pack
from hashlearn.collection import Collection, Item, _connection, _database
from hashlearn.errors import CollectionBusyError, CollectionError


def some_codes(n, n_bits=64, seed=0):
    return pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "things.hl"


@pytest.fixture
def collection(path):
    with Collection.create(path, n_bits=64) as made:
        yield made


@pytest.fixture(scope="module")
def model():
    return ITQ(n_bits=12, random_state=0).fit(np.random.default_rng(0).normal(size=(200, 20)))


def content(collection):
    """Ids, codes, sources and payloads as they are in the file, seen by a reader of its own."""
    with Collection.open(collection.path, readonly=True) as other:
        return other.ids.tolist(), other.index.codes.tolist(), other.get(other.ids)


# -- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bits", [1, 12, 64, 256])
def test_items_are_there_when_it_is_opened_again(n_bits, path):
    codes = some_codes(50, n_bits)
    with Collection.create(path, n_bits=n_bits, info={"features": "none"}) as collection:
        ids = collection.add(codes[:40], sources=[f"a/{i}.png" for i in range(40)], payloads=range(40))
        assert ids.tolist() == list(range(40))
        more = collection.add(codes[40:], ids=[100, 7000, *range(200, 208)])
        assert more.tolist() == [100, 7000, *range(200, 208)]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with Collection.open(path) as again:
        assert len(again) == 50
        assert again.n_bits == n_bits
        assert again.info == {"features": "none"}
        np.testing.assert_array_equal(again.index.reconstruct(ids), codes[:40])
        np.testing.assert_array_equal(again.index.reconstruct(more), codes[40:])
        assert again.get([3, 100, 3]) == [Item(3, "a/3.png", 3), Item(100, None, None), Item(3, "a/3.png", 3)]
        assert again.search(codes[:1], 1).distances[0, 0] == 0
        assert 0 in again.within(codes[:1], 0)[0][1]
        assert list(again.find_ids().items())[:2] == [("a/0.png", [0]), ("a/1.png", [1])]
        assert 7000 in again
        assert 7001 not in again


@pytest.mark.parametrize("payload", [None, True, 0, 1.5, "text – ü 𝄞", [1, [2]], {"a": {"b": None}}, "", [], {}])
def test_payloads_come_back_as_they_were(payload, collection):
    collection.add(some_codes(1), payloads=[payload])
    assert collection.get([0])[0].payload == payload


def test_removed_ids_are_not_given_again(collection):
    collection.add(some_codes(5))
    collection.remove([4, 3])
    assert collection.add(some_codes(2)).tolist() == [5, 6]
    collection.remove([5, 6])
    collection.close()
    with Collection.open(collection.path) as again:
        assert again.add(some_codes(1)).tolist() == [7]
        assert again.add(some_codes(1), ids=[100]).tolist() == [100]
        assert again.add(some_codes(1)).tolist() == [101]
        assert again.add(some_codes(1), ids=[4]).tolist() == [4]  # asked for by name it may be


def test_updates_change_what_is_given_alone(collection):
    codes = some_codes(4)
    collection.add(codes[:3], sources=["a", "b", "c"], payloads=[1, 2, 3])
    collection.update([1], codes[3:])
    collection.update([2, 0], sources=["x", None], payloads=[None, 9])
    ids, kept, items = content(collection)
    assert ids == [0, 1, 2]
    assert kept == [codes[0].tolist(), codes[3].tolist(), codes[2].tolist()]
    assert items == [Item(0, None, 9), Item(1, "b", 2), Item(2, "x", None)]
    np.testing.assert_array_equal(collection.index.codes, kept)


def test_what_is_refused_changes_nothing(collection):
    codes = some_codes(10)
    collection.add(codes[:4], sources=list("abcd"))
    before = content(collection)
    for change, words in (
        (lambda: collection.add(codes[:2], ids=[9, 2]), "id 2 is in the collection already"),
        (lambda: collection.add(codes[:2], ids=[9, 9]), "twice"),
        (lambda: collection.add(codes[:2], ids=[9]), "an id for each"),
        (lambda: collection.add(codes[:2], ids=[-1, 9]), "from 0"),
        (lambda: collection.add(codes[:2], sources=["a"]), "a source for each of the 2 items; got 1"),
        (lambda: collection.add(codes[:2], sources=["a", 5]), "must be Unicode text or None; got 5"),
        (lambda: collection.add(codes[:2], sources=["a", "\udcff"]), "must be Unicode text"),
        (lambda: collection.add(codes[:2], payloads=[1]), "a payload for each"),
        (lambda: collection.add(codes[:2], payloads=[1, object()]), "a JSON value"),
        (lambda: collection.add(codes[:2], payloads=[1, float("nan")]), "a JSON value"),
        (lambda: collection.add(codes[:2], payloads=[1, "\udcff"]), "a JSON value"),
        (lambda: collection.add(codes[:, :3]), "shape"),
        (lambda: collection.remove([0, 77]), "id 77 is not in"),
        (lambda: collection.remove([0, 0]), "twice"),
        (lambda: collection.update([0, 77], codes[:2]), "id 77 is not in"),
        (lambda: collection.update([0, 1], codes[:1]), "a code for each of the 2 ids; got 1"),
        (lambda: collection.update([0]), "update needs"),
        (lambda: collection.update([0], sources=["a", "b"]), "a source for each"),
        (lambda: collection.get([0, 77]), "id 77 is not in"),
        (lambda: collection.encode(np.zeros((1, 3))), "has no model"),
    ):
        with pytest.raises(ValueError, match=words):
            change()
    assert content(collection) == before
    np.testing.assert_array_equal(collection.ids, before[0])


def test_no_larger_id_is_left(collection):
    collection.add(some_codes(1), ids=[2**63 - 2])
    with pytest.raises(ValueError, match="no larger id"):
        collection.add(some_codes(2))
    assert len(collection) == 1


def test_adding_nothing(collection):
    assert collection.add(np.empty((0, 8), np.uint8)).tolist() == []
    collection.remove([])
    assert len(collection) == 0
    assert (collection.search(some_codes(1), 2).ids == -1).all()


class Changes(RuleBasedStateMachine):
    """Changes by two writers and a reader in turn, beside a dict; each is in step after a refresh."""

    @initialize(n_bits=st.sampled_from([7, 64]), kept=st.sampled_from([3, 10_000]))
    def start(self, n_bits, kept):
        import tempfile
        from pathlib import Path

        self.log, _database._MAX_CHANGES = _database._MAX_CHANGES, kept
        self.folder = tempfile.TemporaryDirectory()
        self.n_bits, self.seed, self.known = n_bits, 0, {}
        path = Path(self.folder.name) / "c.hl"
        self.writers = [Collection.create(path, n_bits=n_bits), Collection.open(path)]
        self.reader = Collection.open(path, readonly=True)

    def codes(self, n):
        self.seed += 1
        return some_codes(n, self.n_bits, self.seed)

    @rule(who=st.integers(0, 1), n=st.integers(0, 20))
    def add(self, who, n):
        codes = self.codes(n)
        ids = self.writers[who].add(codes, payloads=list(range(n)))
        assert not set(ids.tolist()) & set(self.known)
        self.known |= {id: (code.tolist(), i) for i, (id, code) in enumerate(zip(ids.tolist(), codes, strict=True))}

    @rule(who=st.integers(0, 1), ids=st.lists(st.integers(0, 60), unique=True, max_size=10))
    def add_under_ids(self, who, ids):
        codes = self.codes(len(ids))
        if set(ids) & set(self.known):
            with pytest.raises(ValueError, match="already"):
                self.writers[who].add(codes, ids=ids)
        else:
            self.writers[who].add(codes, ids=ids)
            self.known |= {id: (code.tolist(), None) for id, code in zip(ids, codes, strict=True)}

    @rule(who=st.integers(0, 1), data=st.data())
    def remove(self, who, data):
        if self.known:
            ids = data.draw(st.lists(st.sampled_from(sorted(self.known)), unique=True, max_size=8))
            self.writers[who].remove(ids)
            for id in ids:
                del self.known[id]

    @rule(who=st.integers(0, 1), data=st.data())
    def update(self, who, data):
        if self.known:
            ids = data.draw(st.lists(st.sampled_from(sorted(self.known)), unique=True, max_size=8))
            codes = self.codes(len(ids))
            self.writers[who].update(ids, codes)
            for id, code in zip(ids, codes, strict=True):
                self.known[id] = code.tolist(), self.known[id][1]

    @rule()
    def look(self):
        self.compare(self.reader)

    def compare(self, collection):
        collection.refresh()
        ids = sorted(self.known)
        assert collection.ids.tolist() == ids
        assert collection.index.codes.tolist() == [self.known[id][0] for id in ids]
        assert [item.payload for item in collection.get(ids)] == [self.known[id][1] for id in ids]

    def teardown(self):
        if hasattr(self, "folder"):
            for collection in (*self.writers, self.reader):
                self.compare(collection)
                collection.close()
            self.folder.cleanup()
            _database._MAX_CHANGES = self.log

    @invariant()
    def the_log_is_short(self):
        if hasattr(self, "folder"):
            (n,) = self.writers[0]._database.execute("SELECT count(*) FROM change_log")[0]
            assert n <= _database._MAX_CHANGES


Changes.TestCase.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestChanges = Changes.TestCase


# -- killed in the middle ---------------------------------------------------------------------------------------------

WRITER = """
import json, sys
import numpy as np
from hashlearn.collection import Collection

path, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
with Collection.open(path) as collection:
    print("ready", flush=True)
    while True:
        n, ids = int(rng.integers(1, 200)), collection.ids
        kind = rng.choice(["add", "add", "remove", "update"]) if len(ids) > 50 else "add"
        codes = rng.integers(0, 256, (n, 8), dtype=np.uint8)
        chosen = rng.choice(ids, min(n, len(ids)), replace=False) if len(ids) else ids
        told = {"kind": kind, "codes": codes.tolist(), "ids": [int(i) for i in chosen]}
        print(json.dumps({"begin": told}), flush=True)
        if kind == "add":
            told["ids"] = collection.add(codes, payloads=[{"n": i} for i in range(n)]).tolist()
        elif kind == "remove":
            collection.remove(chosen)
        else:
            collection.update(chosen, codes[: len(chosen)])
        print(json.dumps({"done": told}), flush=True)
"""


def applied(known, told):
    """What is there after a change."""
    known = dict(known)
    if told["kind"] == "remove":
        for id in told["ids"]:
            del known[id]
    else:
        known |= dict(zip(told["ids"], map(tuple, told["codes"]), strict=False))
    return known


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_by_killing_the_writer(path):
    Collection.create(path, n_bits=64).close()
    known, n_changes = {}, 0
    pick = random.Random(0)
    for attempt in range(15):
        command = [sys.executable, "-c", WRITER, str(path), str(attempt)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(pick.uniform(0.0, 0.3))
        os.kill(writer.pid, signal.SIGKILL)
        output = writer.communicate()[0].splitlines()
        told = []
        for line in output:
            try:
                told.append(json.loads(line))
            except ValueError:
                break  # the line under way
        for line in told:
            if "done" in line:
                known, n_changes = applied(known, line["done"]), n_changes + 1
        under_way = told[-1]["begin"] if told and "begin" in told[-1] else None
        with Collection.open(path) as collection:
            there = dict(zip(collection.ids.tolist(), map(tuple, collection.index.codes.tolist()), strict=True))
            if there != known:  # the last change was made, and only its answer was lost
                assert under_way is not None
                if under_way["kind"] == "add":
                    first = max(there)
                    n = len(under_way["codes"])
                    under_way["ids"] = list(range(first - n + 1, first + 1))
                known = applied(known, under_way)
                assert there == known
            assert len(collection.get(collection.ids)) == len(known)
            (checked,) = collection._database.execute("PRAGMA integrity_check")[0]
            assert checked == "ok"
    assert n_changes > 30


@pytest.mark.slow
def test_a_process_killed_while_making_a_collection_leaves_none(path):
    code = f"""
import os, signal
from hashlearn.collection import Collection, _connection
made = _connection._write_empty
def write(*a):
    made(*a)
    os.kill(os.getpid(), signal.SIGKILL)
_connection._write_empty = write
Collection.create({str(path)!r}, n_bits=8)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert not path.exists()
    Collection.create(path, n_bits=8).close()


def test_an_error_in_the_middle_of_a_transaction_takes_all_of_it_back(collection, monkeypatch):
    collection.add(some_codes(5))
    before = content(collection)
    monkeypatch.setattr(type(collection._store), "_catch_up", lambda self: None)
    monkeypatch.setattr(type(collection._database), "log_change", lambda *a: 1 / 0)
    for change in (
        lambda: collection.add(some_codes(3)),
        lambda: collection.remove([1]),
        lambda: collection.update([1], some_codes(1, seed=9)),
    ):
        with pytest.raises(ZeroDivisionError):
            change()
    assert content(collection) == before
    np.testing.assert_array_equal(collection.index.codes, before[1])


def test_an_interrupt_after_the_transaction_is_made_good(collection, monkeypatch):
    codes = some_codes(6)
    collection.add(codes[:3])
    exchange = type(collection.index).exchange

    def interrupted(*_):
        raise KeyboardInterrupt

    for moment in (interrupted, lambda *a: (exchange(*a), interrupted())):
        monkeypatch.setattr(type(collection.index), "exchange", moment)
        with pytest.raises(KeyboardInterrupt):
            collection.add(codes[3:4])
        monkeypatch.setattr(type(collection.index), "exchange", exchange)
        collection.refresh()
        assert collection.ids.tolist() == content(collection)[0]


# -- several at once --------------------------------------------------------------------------------------------------


def test_a_change_is_on_the_disk_when_it_is_acknowledged(collection):
    """In WAL mode SQLite waits for the disk at every commit only if it is told to: FULL, which is 2."""
    assert collection._database.execute("PRAGMA journal_mode") == [("wal",)]
    assert collection._database.execute("PRAGMA synchronous") == [(2,)]


def test_a_reader_sees_changes_after_a_refresh(collection):
    codes = some_codes(20)
    collection.add(codes[:10])
    with Collection.open(collection.path, readonly=True) as reader:
        collection.add(codes[10:15])
        collection.remove([0])
        collection.update([1], codes[15:16])
        assert len(reader) == 10
        assert reader.refresh()
        assert reader.ids.tolist() == collection.ids.tolist()
        np.testing.assert_array_equal(reader.index.codes, collection.index.codes)
        assert not reader.refresh()
        collection.update([2], payloads=["new"])
        assert reader.get([2])[0].payload == "new"


def test_a_small_change_is_not_a_reading_of_everything(collection, monkeypatch):
    collection.add(some_codes(2000))
    with Collection.open(collection.path, readonly=True) as reader:
        collection.remove([5])
        collection.add(some_codes(3))
        read = []
        codes = type(reader._database).codes
        monkeypatch.setattr(type(reader._database), "codes", lambda self, *a: (read.append(a), codes(self, *a))[1])
        reader.refresh()
        assert read == [(5, 5), (2000, 2002)]
        assert len(reader) == 2002


def test_scattered_ids_are_one_range_of_the_log(collection):
    ids = np.arange(0, 6000, 2)
    collection.add(some_codes(3000), ids=ids)
    assert collection._database.execute("SELECT first, last FROM change_log WHERE number > 1") == [(0, 5998)]


def test_a_writer_waits_for_another_and_then_says_so(collection, monkeypatch):
    monkeypatch.setattr(_connection, "BUSY_SECONDS", 0.2)
    with Collection.open(collection.path) as other:
        held = sqlite3.connect(collection.path, isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(CollectionBusyError, match="another process"):
            other.add(some_codes(1))
        assert len(collection.search(some_codes(1), 3).ids) == 1
        assert not other.refresh()
        held.execute("COMMIT")
        held.close()
        other.add(some_codes(1))
        collection.refresh()
        assert len(collection) == 1


def test_many_processes_read_while_one_writes(path):
    """Every state that a reader sees is one that was written: the number of items goes up by a hundred at a time."""
    Collection.create(path, n_bits=64).close()
    code = """
import sys
from hashlearn.collection import Collection
with Collection.open(sys.argv[1], readonly=True) as c:
    print("ready", flush=True)
    seen = 0
    while seen < 1000:
        c.refresh()
        assert len(c) % 100 == 0 and len(c) >= seen, len(c)
        assert len(c.get(c.ids)) == len(c)
        seen = len(c)
"""
    readers = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for reader in readers:
        assert reader.stdout.readline() == "ready\n"
    with Collection.open(path) as writer:
        for i in range(10):
            writer.add(some_codes(100, seed=i))
            time.sleep(0.02)
        for reader in readers:
            reader.communicate(timeout=60)
            assert reader.returncode == 0


def test_threads_of_one_process_may_change_one_collection(collection):
    failures = []

    def work(seed):
        try:
            for i in range(10):
                ids = collection.add(some_codes(5, seed=100 * seed + i))
                collection.update(ids[:1], some_codes(1, seed=seed))
                collection.remove(ids[1:2])
                collection.get(ids[2:])
                collection.search(some_codes(1), 3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(collection) == 4 * 10 * 4
    assert collection.ids.tolist() == content(collection)[0]


# -- the model --------------------------------------------------------------------------------------------------------


def test_the_model_is_kept_in_the_file(path, model):
    X = np.random.default_rng(1).normal(size=(30, 20))
    with Collection.create(path, model=model) as collection:
        assert collection.n_bits == 12
        collection.add(collection.encode(X))
    with Collection.open(path) as again:
        np.testing.assert_array_equal(again.encode(X), model.encode(X))
        assert isinstance(again.model, ITQ)
        assert again.has_model(model)
        assert not again.has_model(LSH(n_bits=12, random_state=0).fit(X))
        with pytest.raises(ValueError, match=r"vectors of shape \(n, 20\); got \(30, 19\)"):
            again.encode(X[:, 1:])


def test_a_model_that_does_not_fit_is_refused(path, model):
    Collection.create(path, model=model).close()
    other = LSH(n_bits=16, random_state=0).fit(np.zeros((5, 20)))
    other.save(path.parent / "model")
    for content, words in (
        ((path.parent / "model").read_bytes(), "codes have 12 bits, its model's 16"),
        (b"nonsense", "a model that can't be used"),
    ):
        crafted(path, "UPDATE meta SET value = ? WHERE name = 'model'", (content,))
        with Collection.open(path) as collection, pytest.raises(CollectionError, match=words):
            collection.encode(np.zeros((1, 20)))


# -- files that do not fit --------------------------------------------------------------------------------------------


def test_a_collection_takes_a_model_or_a_number_of_bits(path, model):
    for options, words in (
        ({}, "either a model or n_bits"),
        ({"model": model, "n_bits": 12}, "either a model or n_bits"),
        ({"n_bits": 0}, "at least 1"),
        ({"n_bits": 8, "info": {"a": object()}}, "JSON"),
    ):
        with pytest.raises(ValueError, match=words):
            Collection.create(path, **options)
    assert not path.exists()
    Collection.create(path, n_bits=8).close()
    with pytest.raises(FileExistsError, match="exists already"):
        Collection.create(path, n_bits=8)


def foreign(path):
    altered(path, "CREATE TABLE items (id INTEGER PRIMARY KEY, code BLOB)")


def newer(path):
    Collection.create(path, n_bits=8).close()
    altered(path, "PRAGMA user_version = 7")


def damaged(path):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(some_codes(5000))
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xff" * (len(content) - 8192 - 4096)
    path.write_bytes(content)


def cut(part):
    def make(path):
        with Collection.create(path, n_bits=64) as collection:
            collection.add(some_codes(5000))
        path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])

    return make


def without(sql, change=altered):
    def make(path):
        Collection.create(path, n_bits=8).close()
        change(path, sql)

    return make


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (foreign, "another program"),
        (newer, "version 7; this hashlearn reads version 2"),
        (damaged, "damaged"),
        (cut(0.5), "truncated: it has"),
        (cut(0.999), "truncated: it has"),
        (lambda path: path.write_bytes(b""), "not an SQLite file, or truncated"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "truncated"),
        (lambda path: path.write_bytes(b"PK" * 1000), "not an SQLite file"),
        (without("DROP TABLE items"), "damaged"),
        (without("DROP TABLE change_log"), "damaged"),
        (without("DELETE FROM change_log"), "damaged"),
        (without("DROP TABLE meta"), "damaged"),
        (without("DELETE FROM meta WHERE name = 'n_bits'"), "meta must hold n_bits"),
        (without("UPDATE meta SET value = 'x' WHERE name = 'n_bits'"), "n_bits is not a valid int"),
        (without("UPDATE meta SET value = 7 WHERE name = 'n_bits'"), "its n_bits does not have the checksum"),
        (without("UPDATE meta SET value = 64 WHERE name = 'n_bits'", crafted), "does not say how long"),
    ],
)
@pytest.mark.parametrize("readonly", [True, False])
def test_files_that_are_no_collection_are_refused(make, words, readonly, path):
    make(path)
    before = path.read_bytes()
    with pytest.raises(CollectionError, match=words):
        Collection.open(path, readonly=readonly)
    assert path.read_bytes() == before


def test_codes_of_another_length_are_refused(path):
    with Collection.create(path, n_bits=8) as collection:
        collection.add(some_codes(3, 8))
    crafted(path, "UPDATE meta SET value = 64 WHERE name = 'n_bits'")
    with pytest.raises(CollectionError, match="damaged: it does not say how long its codes are"):
        Collection.open(path)


def test_nothing_there(path):
    with pytest.raises(FileNotFoundError, match="there is no collection at"):
        Collection.open(path)
    assert not path.exists()


def test_a_reader_can_not_change_it(collection):
    collection.add(some_codes(3))
    with Collection.open(collection.path, readonly=True) as reader:
        for change in (lambda: reader.add(some_codes(1)), lambda: reader.remove([0])):
            with pytest.raises(CollectionError, match="reading only"):
                change()
    assert len(collection) == 3


@pytest.fixture
def can_be_written(monkeypatch):
    """Whether the folder can be. As root every folder can: SQLite is told to say no."""
    connect = sqlite3.connect

    def refusing(name, **options):
        if "immutable" not in name and name != ":memory:":
            raise sqlite3.OperationalError("unable to open database file")
        return connect(name, **options)

    return lambda yes: monkeypatch.setattr(sqlite3, "connect", connect if yes else refusing)


def test_a_folder_that_can_not_be_written(path, can_be_written):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(some_codes(3))
    can_be_written(False)
    with Collection.open(path, readonly=True) as reader:
        assert len(reader) == 3
    with pytest.raises(OSError, match="unable to open"):
        Collection.open(path)


@pytest.mark.slow
def test_what_changes_in_a_folder_that_can_not_be_written_is_told_and_seen(path, can_be_written):
    codes = some_codes(40_000)
    with Collection.create(path, n_bits=64) as writer:
        writer.add(codes, payloads=[{"i": i, "more": "x" * 60} for i in range(40_000)])
    can_be_written(False)
    with Collection.open(path, readonly=True) as reader:
        assert reader.get([3])[0].payload["i"] == 3
        begun = reader.batches(1000)
        assert len(next(begun)[1]) == 1000
        can_be_written(True)
        with Collection.open(path) as writer:
            writer.remove(np.arange(10, 35_000))
            writer.update([3], payloads=["new"])
        can_be_written(False)
        looks = (lambda: reader.get([3]), lambda: next(reader.batches()), lambda: list(begun), reader.find_ids)
        for look in looks:
            with pytest.raises(CollectionError, match=r"was changed since it was opened.*refresh"):
                look()
        found = reader.search(codes[20:21], 1)  # from memory, as it was
        assert (found.distances[0, 0], found.ids[0, 0]) == (0, 20)
        assert reader.refresh()
        assert len(reader) == 5010
        assert reader.get([3])[0].payload == "new"
        assert sum(len(items) for _, items in reader.batches()) == 5010
        assert not reader.refresh()
        # A log of writes beside it counts too.
        can_be_written(True)
        with Collection.open(path) as writer:
            writer.add(codes[:1])
            with pytest.raises(CollectionError, match="was changed since"):
                reader.get([3])
            assert reader.refresh()  # now by the log
            assert len(reader) == 5011


@pytest.mark.parametrize("n_bits", [64, 32])
def test_another_collection_in_the_place_of_one_that_can_not_be_locked(n_bits, path, tmp_path, can_be_written):
    other = tmp_path / "other.hl"
    for file, bits, payload in ((path, 64, "old"), (other, n_bits, "new")):
        with Collection.create(file, n_bits=bits) as writer:
            writer.add(some_codes(3, bits, seed=len(payload) + bits), payloads=[payload] * 3)
            expected = writer.index.codes
    can_be_written(False)
    with Collection.open(path, readonly=True) as reader:
        os.replace(other, path)
        if n_bits == 64:
            assert reader.refresh()
            np.testing.assert_array_equal(reader.index.codes, expected)
            assert reader.get([0])[0].payload == "new"
        else:
            with pytest.raises(CollectionError, match="another collection now, of 32 bits"):
                reader.refresh()


def test_batches_go_on_in_another_thread_and_another_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with Collection.create(path.name, n_bits=64) as collection:
        collection.add(some_codes(30))
        begun, rest = collection.batches(10), []
        next(begun)
        thread = threading.Thread(target=lambda: rest.extend(items for _, items in begun))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        assert [len(items) for items in rest] == [10, 10]
        monkeypatch.chdir("/")
        assert sum(len(items) for _, items in collection.batches()) == 30


def test_anything_can_be_done_between_batches(collection):
    collection.add(some_codes(30), payloads=list(range(30)))
    seen = []
    for codes, items in collection.batches(10):
        seen += [item.payload for item in items]
        assert len(codes) == len(items)
        assert collection.get([0])[0].id == 0
        collection.update([items[-1].id], payloads=["seen"])
        collection.add(some_codes(1), payloads=["late"])
        assert len(list(collection.batches())) == 1
        thread = threading.Thread(target=collection.get, args=([0],))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert seen == list(range(30))  # as it was when it began
    assert len(collection) == 33
    left = collection.batches(10)
    next(left)
    collection.close()
    left.close()
    with pytest.raises(ValueError, match="closed"):
        next(collection.batches())


def test_names_with_signs_that_mean_something_to_sqlite(tmp_path):
    path = tmp_path / "a?b#c %20 ü.hl"
    with Collection.create(path, n_bits=8) as collection:
        collection.add(some_codes(2, 8))
    with Collection.open(path, readonly=True) as again:
        assert len(again) == 2
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_few_bytes_an_item(path):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(some_codes(20_000))
    assert path.stat().st_size / 20_000 < 25


# -- what a review found ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_what_is_left_of_an_earlier_collection_is_in_the_way(path, ending):
    """SQLite would take the log for the new file's, and the old items would be back."""
    code = f"""
import os, signal
from hashlearn.collection import Collection
import numpy as np
collection = Collection.create({str(path)!r}, n_bits=64)
collection.add(np.zeros((1000, 8), np.uint8))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    path.unlink()
    for other in {"-wal", "-shm"} - {ending}:
        path.with_name(path.name + other).unlink()
    with pytest.raises(FileExistsError, match=f"{ending} exists already, left by an earlier"):
        Collection.create(path, n_bits=128)
    assert not path.exists()
    path.with_name(path.name + ending).unlink()
    with Collection.create(path, n_bits=128) as collection:
        assert len(collection) == 0
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_of_two_who_create_one_is_refused(path, monkeypatch):
    write = _connection._write_empty

    def meanwhile(*arguments):
        write(*arguments)
        monkeypatch.setattr(_connection, "_write_empty", write)
        with Collection.create(path, n_bits=64) as sooner:
            sooner.add(some_codes(50))

    monkeypatch.setattr(_connection, "_write_empty", meanwhile)
    with pytest.raises(FileExistsError, match="exists already"):
        Collection.create(path, n_bits=64)
    with Collection.open(path) as collection:
        assert len(collection) == 50
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_system_without_links(path, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    Collection.create(path, n_bits=64).close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_collection_behind_a_link(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.hl"
    link.symlink_to(path)
    with Collection.create(link, n_bits=64) as collection:
        collection.add(some_codes(3))
        assert (collection.path, collection.file) == (link, path)
        assert path.with_name(path.name + "-wal").exists()
    assert link.is_symlink()
    with Collection.open(link, readonly=True) as again:
        assert len(again) == 3


def test_what_is_there_is_left_out_if_asked_for(collection):
    codes = some_codes(6)
    collection.add(codes[:2], sources=["a", "b"])
    with Collection.open(collection.path) as other:
        ids = other.add(codes[:4], sources=["b", "c", "c", None], skip_known=True)
        assert ids.tolist() == [2, 3]
        assert [item.source for item in other.get(ids)] == ["c", None]
        np.testing.assert_array_equal(other.index.reconstruct(ids), codes[[1, 3]])
    assert collection.add(codes[:3], ids=[1, 9, 0], payloads=[1, 2, 3], skip_known=True).tolist() == [9]
    assert collection.get([9])[0].payload == 2
    assert collection.add(codes[:1], sources=["a"]).tolist() == [10]
    assert collection.find_ids(["a", "none", "c"]) == {"a": [0, 10], "c": [2]}


def test_the_same_model_saved_by_another_version_is_the_same(path, model, monkeypatch):
    Collection.create(path, model=model).close()
    monkeypatch.setattr("hashlearn.hashers._model_file.version", lambda name: "99.9")
    with Collection.open(path) as collection:
        assert collection.has_model(model)


def test_a_closed_collection_says_so(collection):
    collection.add(some_codes(2))
    collection.close()
    for use in (
        lambda: collection.add(some_codes(1)),
        lambda: collection.get([0]),
        lambda: collection.refresh(),
        lambda: collection.model,
    ):
        with pytest.raises(ValueError, match="is closed"):
            use()


def test_items_that_another_has_removed_can_be_skipped(collection):
    collection.add(some_codes(4), payloads=list("abcd"))
    with Collection.open(collection.path, readonly=True) as reader:
        collection.remove([1])
        assert [item.payload for item in reader.get([0, 1, 2], skip_missing=True)] == ["a", "c"]
        seen = [item.id for _, items in reader.batches(2) for item in items]
        assert seen == [0, 2, 3]


def test_batches_are_of_one_moment(collection):
    codes = some_codes(10)
    collection.add(codes)
    with Collection.open(collection.path, readonly=True) as reader:
        found = reader.batches(4)
        first, items = next(found)
        collection.remove([9])
        collection.update([8], some_codes(1, seed=5))
        rest = list(found)
    assert [item.id for _, some in [(first, items), *rest] for item in some] == list(range(10))
    np.testing.assert_array_equal(np.concatenate([first, *(part for part, _ in rest)]), codes)


def test_a_low_id_does_not_lower_the_next(collection):
    collection.add(some_codes(1), ids=[100])
    collection.add(some_codes(1), ids=[4])
    assert collection.add(some_codes(1)).tolist() == [101]


def test_how_the_file_is_kept(collection):
    execute = collection._database.execute
    assert execute("PRAGMA synchronous") == [(2,)]
    assert execute("PRAGMA journal_mode") == [("wal",)]


@pytest.mark.slow
def test_writers_take_turns(path):
    Collection.create(path, n_bits=64).close()
    code = """
import sys, numpy as np
from hashlearn.collection import Collection
with Collection.open(sys.argv[1]) as c:
    for i in range(60):
        c.add(np.full((2, 8), i, np.uint8))
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(3)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    with Collection.open(path) as collection:
        assert collection.ids.tolist() == list(range(360))


@pytest.mark.parametrize(
    ("sql", "use", "words"),
    [
        ("UPDATE items SET payload = '{'", lambda c: c.get([0]), "payload of item 0 is not JSON"),
        (f"UPDATE items SET payload = '{'[' * 100_000}'", lambda c: c.get([0]), "payload of item 0 is not JSON"),
        ("UPDATE meta SET value = '[' WHERE name = 'info'", lambda c: c.info, "not a JSON object"),
        ("UPDATE meta SET value = '[]' WHERE name = 'info'", lambda c: c.info, "not a JSON object"),
        (f"UPDATE meta SET value = '{'[' * 100_000}' WHERE name = 'info'", lambda c: c.info, "not a JSON object"),
    ],
)
def test_damage_that_shows_later(path, sql, use, words):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(some_codes(1), payloads=[1])
    crafted(path, sql)
    with Collection.open(path) as collection, pytest.raises(CollectionError, match=words):
        use(collection)


def test_stray_bits_are_damage(path):
    with Collection.create(path, n_bits=12) as collection:
        collection.add(some_codes(1, 12))
    crafted(path, "UPDATE items SET code = x'ffff'")
    with pytest.raises(CollectionError, match="damaged: the last 4 bits"):
        Collection.open(path)
