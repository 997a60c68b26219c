"""Search: codes under ids, the k nearest, all within a radius."""

from hashlearn.search.index import MISSING, HammingIndex, Matches, Neighbours, Plan

__all__ = ["MISSING", "HammingIndex", "Matches", "Neighbours", "Plan"]
