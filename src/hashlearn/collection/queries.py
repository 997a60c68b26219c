"""Search a collection: the items behind the ids that the index finds, and the vectors of pictures to search with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hashlearn._arrays import Array, Codes
from hashlearn.collection.ingest import to_paths
from hashlearn.errors import ImageError, check_count

if TYPE_CHECKING:
    from hashlearn.collection.collection import Collection
    from hashlearn.collection.ingest import Images
    from hashlearn.features import Extractor

__all__ = ["Match"]


@dataclass(frozen=True)
class Match:
    """An item that a search returned.

    Attributes
    ----------
    id : int
    distance : int
        The Hamming distance of its code from the query's.
    source : str or None
        Where it comes from, such as a path.
    payload
        A JSON value, or None.
    """

    id: int
    distance: int
    source: str | None
    payload: Any


def search_codes(collection: Collection, codes: Codes, k: int | None, radius: int | None) -> list[list[Match]]:
    """See :meth:`Collection.search_vectors`."""
    if radius is None:
        k = 10 if k is None else check_count("k", k)
        neighbors = collection.search(codes, min(k, max(1, len(collection))))
        pairs = [(d[i >= 0], i[i >= 0]) for d, i in zip(*neighbors, strict=True)]
    elif k is None:
        pairs = list(collection.within(codes, radius))
    else:
        raise ValueError("give k or radius, not both.")
    # Without those that another process has removed meanwhile.
    unique = dict.fromkeys(id for _, ids in pairs for id in ids.tolist())
    items = {item.id: item for item in collection.get(list(unique), skip_missing=True)}
    return [
        [
            Match(id, distance, items[id].source, items[id].payload)
            for distance, id in zip(distances.tolist(), ids.tolist(), strict=True)
            if id in items
        ]
        for distances, ids in pairs
    ]


def read_images(extractor: Extractor, images: Images) -> Array:
    """Compute the vectors of a picture or of several; raise an ImageError if one can't be read."""
    from hashlearn.features import image_vectors

    def fail(path: str, reason: str) -> None:
        raise ImageError(path, reason)

    batches = image_vectors("", to_paths(images), extractor, on_error=fail)
    return np.concatenate([np.empty((0, extractor.n_features), np.float32), *(batch for _, batch in batches)])
