"""Forked processes, files that are replaced, signals while one waits: nothing that was acknowledged is lost."""

import gc
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from interrupts import interrupted

from hashlearn.collection import Collection
from hashlearn.errors import CollectionError
from hashlearn.search import HammingIndex

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"), pytest.mark.slow]
CODES = np.random.default_rng(0).integers(0, 256, (50, 8), dtype=np.uint8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "things.hl"


def in_child(action):
    """What ``action()`` gives, as JSON, in a forked process; "nothing" for None, None if it does not end in time."""
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            answer = action()
            os.write(told, json.dumps("nothing" if answer is None else answer).encode())
            code = 0
        except BaseException as error:
            os.write(told, json.dumps(f"{type(error).__name__}: {error}").encode())
        os._exit(code)
    os.close(told)
    end = time.monotonic() + 20
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(heard)
            return None
        time.sleep(0.01)
    with os.fdopen(heard) as answer:
        return json.load(answer)


def count_items(path):
    """As another process sees it."""
    code = (
        "import sys; from hashlearn.collection import Collection\n"
        "print(len(Collection.open(sys.argv[1], readonly=True)))"
    )
    return int(subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True).stdout)


def test_a_forked_process_must_open_it_again(path):
    collection = Collection.create(path, n_bits=64)
    collection.add(CODES[:5])
    for use in (
        lambda: collection.add(CODES[:1]),
        lambda: collection.remove([0]),
        lambda: collection.update([0], CODES[:1]),
        lambda: collection.get([0]),
        collection.refresh,
        collection.find_ids,
        lambda: next(collection.batches()),
        lambda: collection.model,
    ):
        assert "opened before this process was forked: close it before forking" in in_child(use)
    assert in_child(lambda: collection.search(CODES[:1], 1).ids.tolist()) == [[0]]  # from memory
    assert in_child(collection.close) == "nothing"


@pytest.mark.parametrize("readonly", [True, False])
def test_a_file_that_was_open_at_the_fork_is_not_opened_in_the_child(readonly, path):
    """SQLite would count on locks that the parent has, and the child lacks: both would write at once."""
    collection = Collection.create(path, n_bits=64)
    collection.add(CODES[:5])

    def again():
        with Collection.open(path, readonly=readonly) as own:
            return len(own)

    assert "was open in the process that this one was forked from" in in_child(again)
    assert "forked from" in in_child(lambda: in_child(again))  # and in a child's child
    collection.close()
    assert in_child(again) == 5


def test_parent_and_child_write_one_after_the_other(path):
    """The parent closes it before it forks, and opens it again while the child writes."""
    Collection.create(path, n_bits=64).close()
    acknowledged = 0
    for _ in range(3):
        pid = os.fork()
        if not pid:
            with Collection.open(path) as own:
                for code in CODES[:20]:
                    own.add(code[None])
            os._exit(0)
        for code in CODES[:10]:
            with Collection.open(path) as own:
                own.add(code[None])
        acknowledged += 30
        assert os.waitpid(pid, 0)[1] == 0
    assert count_items(path) == acknowledged


def test_batches_that_were_begun_do_not_go_on_in_a_fork(path):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(np.zeros((5000, 8), np.uint8))
        begun = collection.batches(10)
        next(begun)

        def rest():
            return sum(len(codes) for codes, _ in begun)

        assert "forked" in in_child(rest)
        assert rest() == 4990


def test_a_child_that_ends_takes_nothing_away(path):
    """Closing the parent's connection in a child could remove the log of writes, with what a killed process wrote."""
    collection = Collection.create(path, n_bits=64)
    collection.add(CODES[:5])
    ready, go = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(ready, 1)
        del collection
        gc.collect()
        os._exit(0)
    collection.close()
    writer = f"""
import os, signal, numpy as np
from hashlearn.collection import Collection
Collection.open({str(path)!r}).add(np.zeros((20, 8), np.uint8))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", writer])
    os.write(go, b"x")
    os.waitpid(pid, 0)
    assert count_items(path) == 25


def _add(path, n):
    with Collection.open(path) as collection:
        return collection.add(CODES[:n]).tolist()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_recipe_of_the_documentation(path, method):
    """Each process of a pool opens the collection for itself; the parent does so again once they are there."""
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES[:1])
    with multiprocessing.get_context(method).Pool(2) as pool, Collection.open(path) as collection:
        ids = [id for ids in pool.starmap(_add, [(path, 3)] * 6) for id in ids]
        ids += collection.add(CODES[:2]).tolist()
        assert sorted(ids) == list(range(1, 21))
        assert collection.ids.tolist() == list(range(21))


def test_a_fork_while_another_thread_changes_the_index():
    index = HammingIndex(64)
    index.add(CODES)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            index.update([3], CODES[:1])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):

            def use():
                index.add(CODES[:1], ids=[700])
                return len(index.within(CODES[:1], 2)[0][1]) > 0

            assert in_child(use) is True
    finally:
        stop.set()
        thread.join()


def test_a_fork_while_a_lock_is_held(path):
    """A child has none of the threads that hold its locks."""
    index = HammingIndex(64)
    index.add(CODES)
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES)
        with index._changing, index._making, collection._database.lock:
            held = threading.Thread(target=lambda: None)  # forked from here on by a thread that may not hold them
            held.start()
            held.join()
            assert in_child(lambda: index.within(CODES[:1], 64, engine="scan").ids.size) == 50
            assert in_child(lambda: len(index.add(CODES[:1]))) == 1
            answer = in_child(lambda: threads_answer(lambda: collection.add(CODES[:1])))
            assert "forked" in answer
            assert "forked" in in_child(lambda: threads_answer(lambda: len(Collection.open(path, readonly=True))))
            other = path.with_name("other.hl")
            assert in_child(lambda: threads_answer(lambda: len(Collection.create(other, n_bits=8)))) == 0


def threads_answer(action):
    """What it gives in another thread, which does not hold the locks of this one."""
    answers = []

    def run():
        try:
            answers.append(action())
        except Exception as error:
            answers.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    return answers[0]


# -- files behind one's back ------------------------------------------------------------------------------------------


def add_elsewhere(path):
    code = "import sys, numpy as np; from hashlearn.collection import Collection\n"
    code += "with Collection.open(sys.argv[1]) as c: c.add(np.zeros((1, 8), np.uint8))"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_opening_it_twice_in_a_process_keeps_its_locks(path):
    """A process that closes a file loses all its locks on it; another one might then take the log of writes away."""
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES[:5])
        for readonly in (True, False):
            Collection.open(path, readonly=readonly).close()
            add_elsewhere(path)
            collection.add(CODES[:20])
            assert collection.refresh() is False
            assert count_items(path) == len(collection)


def replaced(path):
    os.replace(path, f"{path}.old")
    Collection.create(path, n_bits=64).close()


def without_its_log(path):
    os.unlink(f"{path}-wal")


def without_its_shared_memory(path):
    os.unlink(f"{path}-shm")


@pytest.mark.parametrize("change", [os.unlink, replaced, without_its_log, without_its_shared_memory])
def test_nothing_is_acknowledged_in_a_file_that_is_gone(change, path):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES[:5])
        if change is replaced:  # what is left of it would be in the way
            os.rename(f"{path}-wal", f"{path}.old-wal")
            os.rename(f"{path}-shm", f"{path}.old-shm")
        change(path)
        for write in (lambda: collection.add(CODES[:3]), lambda: collection.remove([1])):
            with pytest.raises(CollectionError, match="was removed or replaced since it was opened"):
                write()
        assert len(collection) == 5


def test_a_file_that_is_removed_while_it_is_written(path, monkeypatch):
    with Collection.create(path, n_bits=64) as collection:
        log = type(collection._database).log_change
        monkeypatch.setattr(type(collection._database), "log_change", lambda *a: (log(*a), path.unlink()))
        with pytest.raises(CollectionError, match="was removed or replaced"):
            collection.add(CODES[:3])


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def interrupts():
    """A shell that starts the tests in the background has its children ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_while_waiting_for_another_writer(path):
    """Python takes the signal when SQLite has the lock at last; then it must be given back."""
    with Collection.create(path, n_bits=64) as collection:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")

        def interrupt():
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            other.execute("ROLLBACK")

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            collection.add(CODES[:3])
        thread.join()
        other.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        assert len(collection.add(CODES[:3])) == 3


def test_a_signal_handler_may_read_in_the_middle_of_a_change(path):
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES)
        answers = []

        def handle(*_):
            answers.append(collection.get([0])[0].id)
            with pytest.raises(CollectionError, match="in use by this thread"):
                collection.remove([0])

        before = signal.signal(signal.SIGALRM, handle)
        log = type(collection._database).log_change
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    type(collection._database), "log_change", lambda *a: (signal.raise_signal(signal.SIGALRM), log(*a))
                )
                assert len(collection.add(CODES)) == 50
        finally:
            signal.signal(signal.SIGALRM, before)
        assert answers == [0]
    assert count_items(path) == 100


def test_an_interrupt_while_an_error_is_handled(path):
    """The error of an id that is not there, and Ctrl-C as it is rolled back."""
    line = 0
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES[:5])

        def fail():
            with pytest.raises(ValueError, match="id 77"):
                collection.remove([77])

        while interrupted(fail, line):
            other = sqlite3.connect(path, timeout=0, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
            other.close()
            line += 1
    assert line > 30


def test_a_transaction_that_was_left_open_is_ended(collection_left_open):
    assert len(collection_left_open.add(CODES[:3])) == 3


@pytest.fixture
def collection_left_open(path):
    with Collection.create(path, n_bits=64) as collection:
        collection._database._connection.execute("BEGIN IMMEDIATE")
        yield collection
