"""Class labels of any hashable type, one per item, or a matrix with a column for each class."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["class_numbers", "label_list", "label_matrix", "numbered"]


def label_list(labels: Any, name: str, *, missing: bool = False) -> list[Hashable]:
    """Convert labels to a list of Python values, one for each item.

    Parameters
    ----------
    labels : iterable of hashable, or array-like of shape (n,)
        Text, sets and mappings are refused.
    name : str
        What to call the labels in an error message.
    missing : bool, default=False
        Whether an item may have no label, which becomes None.

    Returns
    -------
    labels : list of hashable

    Raises
    ------
    ValueError
        An item has no label (None, NaN), unless it may, or several. The message names the item.
    """
    if hasattr(labels, "to_numpy"):  # pandas and its like
        labels = labels.to_numpy()
    elif hasattr(labels, "__array__") and not isinstance(labels, np.ndarray):
        labels = np.asarray(labels)
    if isinstance(labels, (str, bytes, Set, Mapping)) or not isinstance(labels, Iterable):
        raise ValueError(f"{name} must be a list of labels, one per item; got {labels!r}.")
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        several = "; several labels per item are not supported" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise ValueError(f"{name} must have one label per item (1 dimension); got shape {labels.shape}{several}.")
    # tolist() turns masked items and NaT into None.
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    for i, value in enumerate(values):
        try:
            hash(value)
        except TypeError:
            raise ValueError(
                f"{name} must have one hashable label per item; item {i} is {value!r} (several labels per item are not "
                "supported)."
            ) from None
        same: Any = value == value  # False for NaN, NA for pandas' NA
        if value is None or not (isinstance(same, (bool, np.bool_)) and same):
            if missing:
                values[i] = None
                continue
            raise ValueError(f"{name} must have a label for every item; item {i} has none ({value}).")
    return values


def numbered(values: list[Hashable], numbers: dict[Hashable, int]) -> NDArray[np.intp]:
    """Map equal labels to equal numbers.

    Parameters
    ----------
    values : list of hashable
        Labels.
    numbers : dict of hashable to int
        The numbers of known labels, 0 to ``len(numbers) - 1``. New labels are added to it, with the next numbers.

    Returns
    -------
    numbers : ndarray of shape (n,), intp
        The number of each label.
    """
    return np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), dtype=np.intp, count=len(values))


def class_numbers(values: list[Hashable]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct labels, and the number of each item's label among them.

    Parameters
    ----------
    values : list of hashable
        The label of each item.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
        Sorted; in the order of their first appearance if they can't be compared. Of NumPy's type if all are int, str,
        float or bool alike, else of type object.
    numbers : ndarray of shape (n,), intp
        ``classes[numbers]`` are the labels.

    Examples
    --------
    >>> class_numbers(["dog", "cat", "dog"])
    (array(['cat', 'dog'], dtype='<U3'), array([1, 0, 1]))
    """
    numbers: dict[Hashable, int] = {}
    first = numbered(values, numbers)
    classes: list[Any] = list(numbers)
    with suppress(TypeError):  # not to be compared: in the order of their first appearance
        classes = sorted(classes)
    place = {label: i for i, label in enumerate(classes)}
    rank = np.array([place[label] for label in numbers], dtype=np.intp)
    if {type(label) for label in classes} in ({int}, {str}, {float}, {bool}):
        plain = np.array(classes)
        if plain.tolist() == classes:  # which whole numbers beyond 64 bits may not be
            return plain, rank[first]
    out = np.empty(len(classes), dtype=object)
    out[:] = classes
    return out, rank[first]


def label_matrix(y: Any) -> Any:
    """Return labels that have a column for each class as an array or a sparse matrix, others as None.

    Parameters
    ----------
    y : array-like

    Returns
    -------
    ndarray or sparse matrix of shape (n, n_classes), or None

    Raises
    ------
    ValueError
        Its rows have different numbers of columns.
    """
    from scipy.sparse import issparse

    if issparse(y):
        return y.tocsr()
    if isinstance(y, (list, tuple)) and len(y) and isinstance(y[0], (list, np.ndarray)):
        try:
            y = np.array(y)
        except ValueError:
            raise ValueError(
                "y must have as many columns, one for each class, in every row; its rows differ."
            ) from None
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    elif hasattr(y, "__array__"):
        y = np.asarray(y)
    return y if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] != 1 else None
