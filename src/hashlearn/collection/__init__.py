"""Collections: codes, ids, sources, payloads and the model in one file that can be searched."""

from hashlearn.collection._items import Item
from hashlearn.collection.collection import Collection
from hashlearn.collection.duplicates import near_duplicates
from hashlearn.collection.ingest import Ingested, open_or_create
from hashlearn.collection.queries import Match

__all__ = ["Collection", "Ingested", "Item", "Match", "near_duplicates", "open_or_create"]
