"""Classes to learn from: one or several for each sample, or none that is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hashlearn._arrays import Array, Indices
from hashlearn.labels import class_numbers, label_list, label_matrix


class Targets(NamedTuple):
    """The classes of m samples."""

    #: The c classes: labels, sorted if they can be, or numbers of columns.
    classes: Array
    #: A sparse matrix (m, c), 1 where a sample is of a class.
    Y: Any
    #: Numbers of the samples whose classes are known.
    labeled: Indices

    def of(self, samples: Indices, dtype: Any) -> Array:
        """The rows of Y of some samples, dense."""
        return np.asarray(self.Y[samples].toarray(), dtype=dtype)


def checked_targets(y: Any, n_samples: int, method: str) -> Targets:
    """Read labels, one for each sample, or a matrix of 0 and 1 with a column for each class.

    A sample has no known class if its label is None, NaN or the number −1, or if its row consists of NaN or −1.
    """
    matrix = label_matrix(y)
    targets = _from_labels(label_list(y, "y", missing=True)) if matrix is None else _from_matrix(matrix)
    if (n := targets.Y.shape[0]) != n_samples:
        raise ValueError(f"y must have a label for each of the {n_samples} samples; got {n}.")
    unlabeled = ", without those that have none (None, NaN or -1)" if len(targets.labeled) < n_samples else ""
    if not len(targets.labeled):
        raise ValueError(f"y has no labels, only None, NaN or -1: {method} learns from some; use NeighborHash.")
    counts = np.asarray(targets.Y.sum(axis=0)).ravel()
    present = np.flatnonzero(counts)
    if len(present) < 2:
        classes = f"{len(present)}: {targets.classes[present[0]]}" if len(present) else "0"
        raise ValueError(f"{method} learns from samples of at least 2 classes{unlabeled}; got {classes}.")
    return targets


def _from_labels(values: list[Any]) -> Targets:
    from scipy.sparse import csr_matrix

    known = [value is not None and (isinstance(value, (str, bytes, bool)) or value != -1) for value in values]
    labeled = np.flatnonzero(known)
    classes, numbers = class_numbers([values[i] for i in labeled])
    ones, shape = np.ones(len(labeled), dtype=np.float32), (len(values), len(classes))
    return Targets(classes, csr_matrix((ones, (labeled, numbers)), shape=shape), labeled)


def _from_matrix(matrix: Any) -> Targets:
    from scipy.sparse import csr_matrix, issparse

    must = (
        "y with several columns must have 1 where a sample is of a class and 0 where not, or NaN or -1 in a whole row"
    )
    try:
        values = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{must}; got values of type {matrix.dtype}.") from None
    if issparse(values):
        unknown = np.zeros(values.shape[0], dtype=bool)
        wrong = values.data[(values.data != 0) & (values.data != 1)]
    else:
        missing = np.isnan(values) | (values == -1)
        unknown = missing.all(axis=1)
        values = np.where(unknown[:, None], 0, values)
        wrong = values[(values != 0) & (values != 1)]
    if wrong.size:
        raise ValueError(f"{must}; got {wrong[0]:g}.")
    Y = csr_matrix(values, dtype=np.float32)
    return Targets(np.arange(Y.shape[1]), Y, np.flatnonzero(~unknown))
