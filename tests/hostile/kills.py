"""Writers killed with kill -9 at any moment: what was acknowledged is there, and nothing is half done.

    python tests/hostile/kills.py --kills 1000

A writer tells in a file what it begins and what it has done, and is killed after a random time. Then what it wrote is
opened: all that was done must be there, and of what was under way all or nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hashlearn.collection import Collection
from hashlearn.interchange.exports import export_npy
from hashlearn.search import HammingIndex

Tell = Callable[[Any], None]
Items = dict[int, Any]


class Writer:
    """A forked process that does ``write(tell)`` until it is killed."""

    def __init__(self, folder: Path, write: Callable[[Tell], None]) -> None:
        # A file, not a pipe, which would stop the writer when it is full.
        self._told = folder / "told"
        self._told.unlink(missing_ok=True)
        self._file = os.open(self._told, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._pid = os.fork()
        if not self._pid:
            try:
                write(lambda words: os.write(self._file, json.dumps(words).encode() + b"\n"))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        while not self._told.stat().st_size and os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            time.sleep(0.001)

    def kill(self) -> list[Any]:
        """What it told."""
        os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._file)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the writer failed by itself"
        return [json.loads(line) for line in self._told.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def some_codes(rng: np.random.Generator, n: int) -> Any:
    return rng.integers(0, 256, (n, 8), dtype=np.uint8)


# -- changes of a collection ------------------------------------------------------------------------------------------


def change_for_ever(path: Path, seed: int, lane: int, lanes: int, tell: Tell) -> None:
    """Add, remove and update items without end; this writer's ids are those that leave ``lane`` over ``lanes``."""
    rng = np.random.default_rng(seed)
    with Collection.open(path) as collection:
        tell("ready")
        while True:
            collection.refresh()
            own = collection.ids[collection.ids % lanes == lane]
            n = int(rng.integers(1, 60))
            kind = str(rng.choice(["add", "remove", "update"] if len(own) > 300 else ["add", "add", "update"]))
            if kind == "add":
                ids = (own[-1] + lanes if len(own) else lane) + lanes * np.arange(n)
            else:
                ids = rng.choice(own, min(n, len(own)), replace=False)
            codes, texts = some_codes(rng, len(ids)), [f"{seed}/{i}" for i in range(len(ids))]
            tell({"kind": kind, "ids": ids.tolist(), "codes": codes.tolist(), "texts": texts})
            if kind == "add":
                collection.add(codes, ids=ids, sources=texts, payloads=texts)
            elif kind == "remove":
                collection.remove(ids)
            else:
                collection.update(ids, codes, sources=texts, payloads=texts)
            tell("done")


def applied(known: Items, change: dict[str, Any]) -> Items:
    known = dict(known)
    for id, code, text in zip(change["ids"], change["codes"], change["texts"], strict=True):
        if change["kind"] == "remove":
            del known[id]
        else:
            known[id] = tuple(code), text, text
    return known


def items_of(path: Path) -> Items:
    """What is in the file at one moment, while others may go on."""
    with Collection.open(path) as collection:
        return {
            item.id: (tuple(code.tolist()), item.source, item.payload)
            for codes, items in collection.batches()
            for code, item in zip(codes, items, strict=True)
        }


def settled(known: Items, told: list[Any], there: Items) -> tuple[Items, int]:
    """What is known now, and how many changes were acknowledged; an AssertionError if something was lost."""
    n_done = 0
    for words, answer in zip(told, [*told[1:], None], strict=False):
        if isinstance(words, dict):
            if answer == "done":
                known, n_done = applied(known, words), n_done + 1
            elif there != known:  # killed before it could tell: all of it, or nothing
                known = applied(known, words)
    assert there == known, f"{len(there)} items are there, {len(known)} were acknowledged"
    return known, n_done


def kill_one(folder: Path, n: int, rng: random.Random) -> int:
    """A writer alone."""
    path, known, n_done = folder / "one.hl", Items(), 0
    Collection.create(path, n_bits=64).close()
    for _ in range(n):
        seed = rng.getrandbits(32)
        writer = Writer(folder, lambda tell, seed=seed: change_for_ever(path, seed, 0, 1, tell))  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.04))
        known, more = settled(known, writer.kill(), items_of(path))
        n_done += more
    return n_done


def kill_beside_another(folder: Path, n: int, rng: random.Random) -> int:
    """Writers beside one that goes on, which is killed at last."""
    path, known, n_done = folder / "two.hl", [Items(), Items()], 0
    Collection.create(path, n_bits=64).close()
    (folder / "beside").mkdir()

    def lane_of(lane: int) -> Items:
        return {id: item for id, item in items_of(path).items() if id % 2 == lane}

    for start in range(0, n, 5):
        seed = rng.getrandbits(32)
        beside = Writer(folder / "beside", lambda tell, s=seed: change_for_ever(path, s, 0, 2, tell))  # type: ignore[misc]
        for i in range(1, min(5, n - start)):
            writer = Writer(folder, lambda tell, s=seed + i: change_for_ever(path, s, 1, 2, tell))  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.06))
            known[1], more = settled(known[1], writer.kill(), lane_of(1))
            n_done += more
        known[0], more = settled(known[0], beside.kill(), lane_of(0))
        n_done += more
    return n_done


# -- files that are made at once --------------------------------------------------------------------------------------


def kill_create(folder: Path, n: int, rng: random.Random) -> int:
    """While collections are made: each is there, empty, or not at all."""
    n_made = 0
    for i in range(n):

        def write(tell: Tell, i: int = i) -> None:
            tell("ready")
            for j in range(1_000_000):
                Collection.create(folder / f"new-{i}-{j}.hl", n_bits=64, info={"j": j}).close()
                tell(j)

        writer = Writer(folder, write)
        time.sleep(rng.uniform(0, 0.15))
        done = writer.kill()[1:]
        there = sorted(folder.glob(f"new-{i}-*.hl"))
        assert len(done) <= len(there) <= len(done) + 1
        for path in there:
            with Collection.open(path) as collection:
                assert len(collection) == 0
                assert path.stem == f"new-{i}-{collection.info['j']}"
        n_made += len(done)
    return n_made


def kill_migrate(folder: Path, n: int, rng: random.Random) -> int:
    """While a file of the first version is brought up to date: it is the one or the other, with all items."""
    from crafted import as_version_1

    n_done = 0
    codes = some_codes(np.random.default_rng(0), 5000)
    old = folder / "old.hl"
    with Collection.create(old, n_bits=64) as collection:
        collection.add(codes, payloads=[{"n": i} for i in range(len(codes))])
    as_version_1(old)
    path = folder / "migrated.hl"
    for _ in range(n):
        path.write_bytes(old.read_bytes())

        def write(tell: Tell) -> None:
            tell("ready")
            with Collection.open(path):
                tell("done")
            signal.pause()

        writer = Writer(folder, write)
        time.sleep(rng.uniform(0, 0.2))
        n_done += writer.kill()[-1] == "done"
        for readonly in (True, False):
            with Collection.open(path, readonly=readonly) as collection:
                np.testing.assert_array_equal(collection.index.codes, codes)
                assert collection.get([4321])[0].payload == {"n": 4321}
        path.unlink()
    return n_done


def kill_save(folder: Path, n: int, rng: random.Random) -> int:
    """While an index is saved over another one: the file is the one or the other."""
    path, n_saved = folder / "saved.index", 0
    indexes = [HammingIndex(64) for _ in range(3)]
    for seed, index in enumerate(indexes):
        index.add(some_codes(np.random.default_rng(seed), 20_000))
    indexes[0].save(path)
    for _ in range(n):

        def write(tell: Tell) -> None:
            tell("ready")
            for i in range(1_000_000):
                indexes[i % 3].save(path)
                tell(i)

        writer = Writer(folder, write)
        time.sleep(rng.uniform(0, 0.05))
        done = writer.kill()[1:]
        found = HammingIndex.open(path).codes
        which = [np.array_equal(found, index.codes) for index in indexes]
        assert sum(which) == 1
        assert not done or which[done[-1] % 3] or which[(done[-1] + 1) % 3]
        n_saved += len(done)
    return n_saved


def kill_export(folder: Path, n: int, rng: random.Random) -> int:
    """While codes and ids are exported over others: never the codes of one collection beside the ids of another."""
    n_done, collections = 0, []
    for seed in (0, 1):
        with Collection.create(folder / f"export-{seed}.hl", n_bits=64) as collection:
            collection.add(some_codes(np.random.default_rng(seed), 5000), ids=seed + 2 * np.arange(5000))
        collections.append(folder / f"export-{seed}.hl")
    codes, ids = folder / "codes.npy", folder / "codes-ids.npy"
    for _ in range(n):

        def write(tell: Tell) -> None:
            opened = [Collection.open(path, readonly=True) for path in collections]
            tell("ready")
            for i in range(1_000_000):
                export_npy(opened[i % 2], codes)
                tell(i)

        writer = Writer(folder, write)
        time.sleep(rng.uniform(0, 0.05))
        done = writer.kill()[1:]
        n_done += len(done)
        assert codes.exists() or not done
        if codes.exists() and ids.exists():  # the ids are gone for a moment before new codes come
            seed = int(np.load(ids)[0])
            np.testing.assert_array_equal(np.load(codes), some_codes(np.random.default_rng(seed), 5000))
    return n_done


#: What is killed, and which share of the kills it gets.
KINDS: dict[str, tuple[Callable[[Path, int, random.Random], int], float]] = {
    "changes of a collection": (kill_one, 0.5),
    "changes beside another writer": (kill_beside_another, 0.2),
    "making a collection": (kill_create, 0.1),
    "bringing a collection up to date": (kill_migrate, 0.05),
    "saving an index": (kill_save, 0.05),
    "exporting codes and ids": (kill_export, 0.1),
}


def run(n_kills: int, seed: int, folder: Path) -> dict[str, tuple[int, int]]:
    """Kills and acknowledged actions of each kind; an AssertionError if anything acknowledged is not there."""
    rng, counts = random.Random(seed), {}
    for name, (kill, share) in KINDS.items():
        own = folder / name.replace(" ", "-")
        own.mkdir()
        n = max(1, round(share * n_kills))
        counts[name] = n, kill(own, n, rng)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    # On a real disk, whose waiting is part of what is tested.
    with tempfile.TemporaryDirectory() as folder:
        counts = run(options.kills, options.seed, Path(folder))
    for name, (kills, done) in counts.items():
        print(f"{name}: {kills:,} kills, {done:,} acknowledged, 0 lost")
    n, done = (sum(count[i] for count in counts.values()) for i in (0, 1))
    print(f"{n:,} kills, {done:,} acknowledged, 0 lost, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "search"))
    main()
