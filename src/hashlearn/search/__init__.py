"""Exact search in binary codes: the k nearest, or all within a radius."""

from typing import Any

from hashlearn.search._answers import MISSING, Matches, Neighbours, Plan
from hashlearn.search.index import HammingIndex

__all__ = ["MISSING", "HammingIndex", "Matches", "Neighbours", "Plan"]
_MOVED = ("Collection", "Item", "near_duplicates")


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'hashlearn.search' has no attribute {name!r}")
    import warnings
    from importlib import import_module

    warnings.warn(f"hashlearn.search.{name} is now hashlearn.collection.{name}.", DeprecationWarning, stacklevel=2)
    return getattr(import_module("hashlearn.collection"), name)
