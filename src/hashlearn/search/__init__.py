"""Search: codes under ids, the k nearest, all within a radius; in memory, and in a file that is kept."""

from hashlearn.search.collection import Collection, Item
from hashlearn.search.duplicates import near_duplicates
from hashlearn.search.index import MISSING, HammingIndex, Matches, Neighbours, Plan

__all__ = ["MISSING", "Collection", "HammingIndex", "Item", "Matches", "Neighbours", "Plan", "near_duplicates"]
