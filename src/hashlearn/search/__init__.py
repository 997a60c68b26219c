"""Exact search in binary codes: the k nearest, or all within a radius."""

from typing import Any

from hashlearn.errors import find_renamed
from hashlearn.search._answers import MISSING, Matches, Neighbors, Plan
from hashlearn.search.index import HammingIndex

__all__ = ["MISSING", "HammingIndex", "Matches", "Neighbors", "Plan"]
_RENAMED = {
    **{name: f"hashlearn.collection.{name}" for name in ("Collection", "Item", "near_duplicates")},
    "Neighbours": "hashlearn.search.Neighbors",
}


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name, _RENAMED)
