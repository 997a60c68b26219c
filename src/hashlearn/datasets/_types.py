"""The results of the loaders: a data set split for retrieval, or raw images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Dataset", "ImageSet"]

Array: TypeAlias = np.ndarray[Any, Any]


def _shape(array: Array) -> str:
    return "×".join(map(str, array.shape)) + f" {array.dtype}"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Vectors for training, for the database and for queries; samples are rows.

    If the database is the training set, ``database is train`` (no copy). Arrays may be memory-mapped and read-only.

    Attributes
    ----------
    name : str
        The name it was loaded by.
    train, database, queries : (n, n_features)
    train_labels, database_labels, query_labels : (n,) or None
    ground_truth : (n_queries, k) or None
        Rows of each query's nearest neighbors in the database, nearest first, if published with the data.
    note : str
        Where the data came from, and what to know before quoting numbers.
    """

    name: str
    train: Array
    database: Array
    queries: Array
    train_labels: Array | None = None
    database_labels: Array | None = None
    query_labels: Array | None = None
    ground_truth: Array | None = None
    note: str = ""

    def __repr__(self) -> str:
        same = "the same" if self.database is self.train else _shape(self.database)
        return (
            f"Dataset({self.name!r}: train {_shape(self.train)}, database {same}, "
            f"queries {_shape(self.queries)}; {self.note})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Labeled images, uint8: ``(n, height, width)`` gray or ``(n, height, width, 3)`` RGB; labels ``(n,)``."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    class_names: tuple[str, ...]
    note: str = ""

    def __repr__(self) -> str:
        return f"ImageSet(train {_shape(self.train_images)}, test {_shape(self.test_images)}; {self.note})"
