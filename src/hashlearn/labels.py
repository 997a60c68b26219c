"""Class labels: one for each item, of any hashable kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["class_numbers", "label_list", "numbered"]


def label_list(labels: Any, name: str) -> list[Hashable]:
    """The labels as Python values, or a ValueError that says which item has none, or several."""
    if hasattr(labels, "to_numpy"):  # pandas and its like
        labels = labels.to_numpy()
    elif hasattr(labels, "__array__") and not isinstance(labels, np.ndarray):
        labels = np.asarray(labels)
    if isinstance(labels, (str, bytes, Set, Mapping)) or not isinstance(labels, Iterable):
        raise ValueError(f"{name} must be a list of labels, one an item; got {labels!r}.")
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        several = "; several labels an item are not supported" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise ValueError(f"{name} must be one label an item (1 dimension); got shape {labels.shape}{several}.")
    # A masked item, and a time that is not one, are None in a list.
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    for i, value in enumerate(values):
        try:
            hash(value)
        except TypeError:
            raise ValueError(
                f"{name} must be one hashable label an item; item {i} is {value!r} (several labels an item are not "
                "supported)."
            ) from None
        same: Any = value == value  # NaN differs from itself; pandas' NA says NA
        if value is None or not (isinstance(same, (bool, np.bool_)) and same):
            raise ValueError(f"{name} must have a label for every item; item {i} has none ({value}).")
    return values


def numbered(values: list[Hashable], numbers: dict[Hashable, int]) -> NDArray[np.intp]:
    """Equal labels get equal numbers; ``numbers`` learns the new ones, counting on."""
    return np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), dtype=np.intp, count=len(values))


def class_numbers(values: list[Hashable]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The different labels, sorted if they can be, and the number of each item's among them."""
    numbers: dict[Hashable, int] = {}
    found = numbered(values, numbers)
    classes: list[Any] = list(numbers)
    with suppress(TypeError):  # not to be compared: in the order of their first appearance
        classes = sorted(classes)
    place = {label: i for i, label in enumerate(classes)}
    rank = np.array([place[label] for label in numbers], dtype=np.intp)
    if {type(label) for label in classes} in ({int}, {str}, {float}, {bool}):
        plain = np.array(classes)
        if plain.tolist() == classes:  # which whole numbers beyond 64 bits may not be
            return plain, rank[found]
    out = np.empty(len(classes), dtype=object)
    out[:] = classes
    return out, rank[found]
