"""A full disk: an error that names the file, the file as it was, and a process that goes on."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

from hashlearn import LSH
from hashlearn.collection import Collection
from hashlearn.interchange.exports import EXPORTS
from hashlearn.search import HammingIndex
from hashlearn.vectors import FORMATS, read_vectors, write_vectors

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)


@pytest.fixture
def small_disk(tmp_path):
    """A folder of two megabytes, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        pytest.skip("there is no mount")
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_collection_that_fills_the_disk(small_disk):
    path = small_disk / "things.hl"
    with Collection.create(path, n_bits=64) as collection:
        with contextlib.suppress(OSError):
            for _ in range(1000):
                collection.add(RNG.integers(0, 256, (2000, 8), dtype=np.uint8))
        known = len(collection)
        assert 0 < known < 200_000
        with pytest.raises(OSError, match=r"things\.hl: .*full"):
            collection.add(RNG.integers(0, 256, (5000, 8), dtype=np.uint8))
        assert collection.search(RNG.integers(0, 256, (1, 8), dtype=np.uint8), 3).ids.shape == (1, 3)
    with Collection.open(path, readonly=True) as again:
        assert len(again) == known


def test_what_is_written_at_once_is_the_old_or_the_new(small_disk):
    big = RNG.integers(0, 256, (300_000, 8), dtype=np.uint8)
    index = HammingIndex(64)
    index.add(big[:100])
    index.save(small_disk / "a.index")
    before = (small_disk / "a.index").read_bytes()
    index.add(big)
    with pytest.raises(OSError, match=r"a\.index"):
        index.save(small_disk / "a.index")
    assert (small_disk / "a.index").read_bytes() == before
    model = LSH(n_bits=800, random_state=0).fit(RNG.normal(size=(20, 800)))
    with pytest.raises(OSError, match=r"a\.model"):
        model.save(small_disk / "a.model")
    assert names(small_disk) == ["a.index"]


@pytest.mark.parametrize("ending", FORMATS)
def test_vectors(ending, small_disk):
    """In a process of its own, which must not crash at its end either."""
    path = small_disk / f"x{ending}"
    small = np.arange(6).reshape(3, 2).astype(FORMATS[ending].dtype or np.float32)
    write_vectors(path, small)
    code = f"""
import numpy as np
from hashlearn.vectors import write_vectors
X = np.random.default_rng(0).integers(0, 100, (600_000, 8)).astype({small.dtype.str!r})
try:
    write_vectors({str(path)!r}, X)
except OSError as error:
    assert {path.name!r} in str(error), error
    print("refused")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "refused\n"), ended.stderr
    np.testing.assert_array_equal(read_vectors(path), small)
    assert names(small_disk) == [path.name]


@pytest.mark.parametrize("to", EXPORTS)
def test_exports(to, small_disk, tmp_path):
    ending = {"faiss": ".faiss", "npy": ".npy", "parquet": ".parquet", "pgvector": ".sql"}[to]
    with Collection.create(tmp_path / "c.hl", n_bits=64) as collection:
        collection.add(RNG.integers(0, 256, (200_000, 8), dtype=np.uint8))
        with pytest.raises(OSError, match=r"out"):
            EXPORTS[to](collection, small_disk / f"out{ending}")
    assert names(small_disk) == []


def test_making_a_collection(small_disk):
    with open(small_disk / "rest", "wb") as file:
        file.write(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    with pytest.raises(OSError, match=r"new\.hl|full|space"):
        Collection.create(small_disk / "new.hl", n_bits=64)
    assert names(small_disk) == ["rest"]
