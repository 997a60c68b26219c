"""The SIFT folders, on tiny files and sizes; the genuine siftsmall and the stand-in where their folder is named."""

from __future__ import annotations

import dataclasses
import hashlib
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from hashlearn import datasets
from hashlearn.datasets import sift
from hashlearn.errors import ChecksumError, DatasetError, VectorFileError

ROWS = {"base": 12, "learn": 7, "query": 3, "truth": 3}


def vecs(array: np.ndarray) -> bytes:
    """The TEXMEX layout: each row's dimension, then its values."""
    dimension = np.full((len(array), 1), array.shape[1], dtype="<i4")
    return np.hstack([dimension, array.view("<i4")]).tobytes()


def shrink(monkeypatch: pytest.MonkeyPatch, name: str, contents: dict[str, bytes], columns: dict[str, int]) -> None:
    """Expect the made-up files' sizes, and their sums where the genuine ones have sums."""
    changed = {}
    for role, content in contents.items():
        file = getattr(sift.SETS[name], role)
        expected = None if file.sha256 is None else hashlib.sha256(content).hexdigest()
        changed[role] = dataclasses.replace(file, rows=ROWS[role], columns=columns[role], sha256=expected)
    monkeypatch.setitem(sift.SETS, name, dataclasses.replace(sift.SETS[name], **changed))


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {role: rng.integers(0, 200, (ROWS[role], 8)).astype(np.float32) for role in ("base", "learn", "query")}
    made["truth"] = rng.integers(0, ROWS["base"], (3, 5), dtype=np.int32)
    return made


def texmex(folder: Path, name: str, arrays: dict[str, np.ndarray], monkeypatch, *, packed: bool = False) -> Path:
    contents = {role: vecs(array) for role, array in arrays.items()}
    shrink(monkeypatch, name, contents, {"base": 8, "learn": 8, "query": 8, "truth": 5})
    folder.mkdir()
    for role, content in contents.items():
        path = folder / getattr(sift.SETS[name], role).name
        if packed:
            path.with_name(path.name + ".xz").write_bytes(lzma.compress(content))
        else:
            path.write_bytes(content)
    return folder


def same(dataset: datasets.Dataset, arrays: dict[str, np.ndarray]) -> bool:
    had = [dataset.database, dataset.train, dataset.queries, dataset.ground_truth]
    wanted = [arrays[role] for role in ("base", "learn", "query", "truth")]
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(had, wanted, strict=True))


def stored(cache: Path) -> list[Path]:
    return [file for file in cache.rglob("*") if file.is_file()]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "variable"), [("sift1m", "HASHLEARN_SIFT1M"), ("siftsmall", "HASHLEARN_SIFTSMALL")])
def test_a_folder(cache, tmp_path, arrays, monkeypatch, name: str, variable: str, packed: bool) -> None:
    folder = texmex(tmp_path / "mine", name, arrays, monkeypatch, packed=packed)
    dataset = datasets.load(name, source=folder)
    assert same(dataset, arrays)
    assert dataset.name == name
    assert dataset.train_labels is dataset.database_labels is dataset.query_labels is None
    assert len(stored(cache)) == (8 if packed else 0)  # each with its seal
    monkeypatch.setenv(variable, str(folder))
    assert same(datasets.load(name), arrays)


def test_published_sizes() -> None:
    sizes = {
        name: [(f.rows, f.columns) for f in (s.base, s.learn, s.query, s.truth) if f is not None]
        for name, s in sift.SETS.items()
    }
    assert sizes == {
        "sift1m": [(1_000_000, 128), (100_000, 128), (10_000, 128), (10_000, 100)],
        "siftsmall": [(10_000, 128), (25_000, 128), (100, 128), (100, 100)],
        "sift-photos": [(1_000_000, 128), (100_000, 128), (10_000, 128)],
    }


@pytest.mark.parametrize("name", ["sift1m", "siftsmall", "sift-photos"])
def test_no_folder_named(cache, name: str) -> None:
    with pytest.raises(DatasetError, match=rf"source= or in the environment variable {sift.SETS[name].variable}\."):
        datasets.load(name)


def test_a_missing_file(cache, tmp_path, arrays, monkeypatch) -> None:
    folder = texmex(tmp_path / "mine", "sift1m", arrays, monkeypatch)
    (folder / "sift_learn.fvecs").unlink()
    with pytest.raises(DatasetError, match=r"mine has neither sift_learn.fvecs nor sift_learn.fvecs.xz\."):
        datasets.load("sift1m", source=folder)


def test_siftsmall_without_its_learn_file_trains_on_the_base(cache, tmp_path, arrays, monkeypatch) -> None:
    folder = texmex(tmp_path / "mine", "siftsmall", arrays, monkeypatch)
    assert "siftsmall_learn.fvecs by its size" in datasets.load("siftsmall", source=folder).note
    (folder / "siftsmall_learn.fvecs").unlink()
    dataset = datasets.load("siftsmall", source=folder)
    assert dataset.train is dataset.database
    assert "siftsmall_learn.fvecs is not there, so training is on the base" in dataset.note


def test_a_wrong_size(cache, tmp_path, arrays, monkeypatch) -> None:
    folder = texmex(tmp_path / "mine", "sift1m", arrays, monkeypatch)
    (folder / "sift_base.fvecs").write_bytes(vecs(arrays["base"][:11]))
    with pytest.raises(DatasetError, match=r"sift_base.fvecs should hold 12×8 values; got 11×8\."):
        datasets.load("sift1m", source=folder)
    (folder / "sift_base.fvecs").write_bytes(vecs(arrays["base"])[:-3])
    with pytest.raises(VectorFileError, match=r"sift_base.fvecs"):
        datasets.load("sift1m", source=folder)


def test_a_ground_truth_of_another_base(cache, tmp_path, arrays, monkeypatch) -> None:
    for wrong in (12, -1):
        arrays["truth"][1, 2] = wrong
        folder = texmex(tmp_path / f"mine{wrong}", "sift1m", arrays, monkeypatch)
        with pytest.raises(DatasetError, match=r"ground truth has rows outside 0…11"):
            datasets.load("sift1m", source=folder)


@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_sum(cache, tmp_path, arrays, monkeypatch, packed: bool) -> None:
    folder = texmex(tmp_path / "mine", "siftsmall", arrays, monkeypatch, packed=packed)
    other = vecs(arrays["base"] + 1)
    if packed:
        (folder / "siftsmall_base.fvecs.xz").write_bytes(lzma.compress(other))
    else:
        (folder / "siftsmall_base.fvecs").write_bytes(other)
    with pytest.raises(ChecksumError, match=rf"siftsmall_base.fvecs.*got {hashlib.sha256(other).hexdigest()}"):
        datasets.load("siftsmall", source=folder)
    assert stored(cache) == []


def test_unpacking_happens_once_and_again_when_the_copy_is_damaged(
    cache, tmp_path, arrays, monkeypatch, caplog
) -> None:
    folder = texmex(tmp_path / "mine", "siftsmall", arrays, monkeypatch, packed=True)
    datasets.load("siftsmall", source=folder)
    unpacked = []
    decompress = sift.decompress
    monkeypatch.setattr(
        sift, "decompress", lambda path, *a, **k: unpacked.append(path.name) or decompress(path, *a, **k)
    )
    datasets.load("siftsmall", source=folder)
    assert unpacked == []
    (copy,) = (file for file in stored(cache) if file.name.endswith("siftsmall_base.fvecs"))
    copy.write_bytes(copy.read_bytes()[:-8] + bytes(8))
    assert same(datasets.load("siftsmall", source=folder), arrays)
    assert unpacked == ["siftsmall_base.fvecs.xz"]
    assert "is damaged and will be recreated" in caplog.text


def test_a_damaged_or_overlong_xz_file(cache, tmp_path, arrays, monkeypatch) -> None:
    folder = texmex(tmp_path / "mine", "sift1m", arrays, monkeypatch, packed=True)
    path = folder / "sift_base.fvecs.xz"
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    with pytest.raises(DatasetError, match=r"sift_base.fvecs.xz is damaged"):
        datasets.load("sift1m", source=folder)
    path.write_bytes(lzma.compress(bytes(1_000_000)))
    with pytest.raises(DatasetError, match=r"sift_base.fvecs.xz is damaged: it holds more than 4,528 bytes"):
        datasets.load("sift1m", source=folder)
    assert stored(cache) == []


@pytest.mark.parametrize("packed", [False, True])
def test_the_stand_in(cache, tmp_path, arrays, monkeypatch, packed: bool) -> None:
    small = {role: arrays[role].astype(np.uint8) for role in ("base", "learn", "query")}
    folder = tmp_path / "photos"
    folder.mkdir()
    contents = {}
    for role, array in small.items():
        path = folder / f"{role}.u8.npy"
        np.save(path, array)
        contents[role] = path.read_bytes()
        if packed:
            (folder / f"{path.name}.xz").write_bytes(lzma.compress(contents[role]))
            path.unlink()
    shrink(monkeypatch, "sift-photos", contents, dict.fromkeys(small, 8))
    dataset = datasets.load("sift-photos", source=folder)
    for had, role in ((dataset.database, "base"), (dataset.train, "learn"), (dataset.queries, "query")):
        assert had.dtype == np.uint8
        np.testing.assert_array_equal(had, small[role])
    assert dataset.name == "sift-photos"
    assert dataset.ground_truth is None
    assert "stand-in" in dataset.note
    assert "not SIFT1M" in dataset.note


def needs(name: str) -> None:
    variable = sift.SETS[name].variable
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no folder")


def test_genuine_siftsmall() -> None:
    needs("siftsmall")
    dataset = datasets.load("siftsmall")
    assert dataset.ground_truth is not None
    distances = (
        (dataset.queries**2).sum(axis=1)[:, None]
        - 2 * dataset.queries @ dataset.database.T
        + (dataset.database**2).sum(axis=1)
    )
    # Values are whole numbers, so float32 is exact; ties may be in any order.
    nearest = np.take_along_axis(distances, dataset.ground_truth, axis=1)
    np.testing.assert_array_equal(nearest, np.sort(distances, axis=1)[:, :100])


def test_genuine_stand_in() -> None:
    needs("sift-photos")
    dataset = datasets.load("sift-photos")
    assert dataset.database.shape == (1_000_000, 128)
    norms = np.linalg.norm(dataset.train.astype(np.float32), axis=1)
    assert np.all(np.abs(norms - 512) < 2)  # OpenCV scales to 512 and rounds each value
