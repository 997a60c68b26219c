"""The results of the loaders: a data set split for retrieval, or raw images."""

from __future__ import annotations

from dataclasses import dataclass

from hashlearn._arrays import Array, Bytes

__all__ = ["Dataset", "ImageSet", "labeled_dataset"]


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
    content : str or None
        What identifies vectors that are computed from other data, whose last digits differ between machines.
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
    content: str | None = None

    def __repr__(self) -> str:
        same = "the same" if self.database is self.train else _shape(self.database)
        return (
            f"Dataset({self.name!r}: train {_shape(self.train)}, database {same}, "
            f"queries {_shape(self.queries)}; {self.note})"
        )


def labeled_dataset(
    name: str, train: Array, train_labels: Array, queries: Array, query_labels: Array, note: str
) -> Dataset:
    """Create a labeled data set whose database is the training set."""
    return Dataset(name, train, train, queries, train_labels, train_labels, query_labels, note=note)


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Labeled images.

    Attributes
    ----------
    train_images, test_images : (n, height, width) gray or (n, height, width, 3) RGB, uint8
    train_labels, test_labels : (n,), uint8
        Positions in ``class_names``.
    class_names : tuple of str
    note : str
        Where the images came from.
    """

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes
    class_names: tuple[str, ...]
    note: str = ""

    def __repr__(self) -> str:
        return f"ImageSet(train {_shape(self.train_images)}, test {_shape(self.test_images)}; {self.note})"
