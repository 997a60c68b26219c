"""Classes of labeled samples, and random samples of each."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np

from hashlearn._arrays import Array, Indices
from hashlearn.labels import class_numbers


def checked_classes(y: list[Hashable] | None, method: str) -> tuple[Array, Indices]:
    """The classes, sorted if they can be, and each sample's number among them; fewer than 2 are refused."""
    assert y is not None
    classes, numbers = class_numbers(y)
    if len(classes) < 2:
        raise ValueError(f"{method} learns from samples of at least 2 classes; got 1: {classes[0]}.")
    return classes, numbers


def places(numbers: Array) -> Array:
    """How many items before each have the same number."""
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers)
    out = np.empty(len(numbers), dtype=np.intp)
    out[order] = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return out


def draw(numbers: Array, per_class: int | None, rng: np.random.Generator) -> Indices:
    """Rows, in ascending order: ``per_class`` of each class at random, or all it has; None: all."""
    if per_class is None:
        return np.arange(len(numbers))
    order = rng.permutation(len(numbers))
    return np.sort(order[places(numbers[order]) < per_class])


def warn_small_classes(classes: Array, counts: Array, per_class: int | None, *, stacklevel: int) -> None:
    """Warn of classes that have fewer samples than others are trained on."""
    if per_class is None or not (counts < per_class).any() or (counts < per_class).all():
        return
    small = np.flatnonzero(counts < per_class)
    names = ", ".join(f"{classes[i]} ({counts[i]})" for i in small[:5])
    more = f" and {len(small) - 5} more" if len(small) > 5 else ""
    warnings.warn(
        f"classes of fewer than {per_class} samples (samples_per_class) are used whole: {names}{more}.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def draw_samples(hasher: Any, y: list[Hashable] | None, rng: np.random.Generator, *, pairs: bool = True) -> Indices:
    """Draw a method's ``samples_per_class``; return the numbers of their classes. ``pairs``: it learns from pairs.

    Sets ``classes_``, ``samples_`` and ``class_counts_``, the rows that are trained on and how many of each class.
    """
    method = hasher.name.upper()
    hasher.classes_, numbers = checked_classes(y, method)
    limit = None if hasher.samples_per_class is None else int(hasher.samples_per_class)
    warn_small_classes(hasher.classes_, np.bincount(numbers), limit, stacklevel=4)
    hasher.samples_ = draw(numbers, limit, rng)
    drawn: Indices = numbers[hasher.samples_]
    hasher.class_counts_ = np.bincount(drawn, minlength=len(hasher.classes_))
    if pairs and hasher.class_counts_.max() < 2:
        raise ValueError(
            f"{method} learns that samples of a class are alike; of the {len(hasher.classes_)} classes none has two "
            "samples to train on."
        )
    return drawn
