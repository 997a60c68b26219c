"""Exact search in binary codes: the k nearest, all within a radius, or the best for real-valued queries."""

from typing import Any

from hashlearn.errors import find_renamed
from hashlearn.search._answers import MISSING, Matches, Neighbors, Plan
from hashlearn.search.index import HammingIndex
from hashlearn.search.real import Scored, search_real
from hashlearn.search.reranking import rerank

__all__ = ["MISSING", "HammingIndex", "Matches", "Neighbors", "Plan", "Scored", "rerank", "search_real"]
_RENAMED = {
    **{name: f"hashlearn.collection.{name}" for name in ("Collection", "Item", "near_duplicates")},
    "Neighbours": "hashlearn.search.Neighbors",
}


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name, _RENAMED)
