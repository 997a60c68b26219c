"""Search: codes under ids, the k nearest, all within a radius; in memory, and in a file that is kept."""

from hashlearn.search._answers import MISSING, Matches, Neighbours, Plan
from hashlearn.search._items import Item
from hashlearn.search.collection import Collection
from hashlearn.search.duplicates import near_duplicates
from hashlearn.search.index import HammingIndex

__all__ = ["MISSING", "Collection", "HammingIndex", "Item", "Matches", "Neighbours", "Plan", "near_duplicates"]
