"""Early stopping by a validation mAP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.evaluation import Truth, euclidean_neighbours, evaluate

if TYPE_CHECKING:
    from hashlearn.hashers.base import Hasher

Array = NDArray[Any]

# Of a validation: true neighbours of a query, and the most training samples that they are looked for among.
_VALIDATION_NEIGHBOURS, _VALIDATION_DATABASE = 50, 50_000


class EarlyStop:
    """Ends training when samples of it no longer find their neighbours better (mAP), and goes back to the best.

    The queries are training samples, as in the authors' later code; what they are searched among are others.
    """

    def __init__(self, X: Array, n_queries: int, rng: np.random.Generator) -> None:
        if n_queries >= len(X):
            raise ValueError(f"validation must be below the number of samples ({len(X)}); got {n_queries}.")
        drawn = rng.permutation(len(X))[: n_queries + _VALIDATION_DATABASE]
        self.queries, self.database = X[np.sort(drawn[:n_queries])], X[np.sort(drawn[n_queries:])]
        k = min(_VALIDATION_NEIGHBOURS, len(self.database))
        self.truth = Truth.neighbours(euclidean_neighbours(self.queries, self.database, k, show_progress=False))
        self.score, self.state = -1.0, dict[str, Any]()

    def reached(self, hasher: Hasher, record: dict[str, Any]) -> bool:
        codes = hasher.encode(self.queries), hasher.encode(self.database)
        score = evaluate(*codes, self.truth, n_bits=hasher.n_bits_, show_progress=False).map
        record["validation_map"] = score
        if score <= self.score:
            return True
        self.score = score
        self.state = dict(hasher.__dict__)
        return False

    def restore(self, hasher: Hasher) -> None:
        hasher.__dict__.update(self.state)
