"""Early stopping by a validation mAP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hashlearn.evaluation import Truth
    from hashlearn.hashers._network_hasher import NetworkHasher

Array = NDArray[Any]

# How many training samples a validation searches among, at most; and at least, for each neighbour that it looks for.
_DATABASE, _LEAST_DATABASE = 50_000, 10


def check_validation(n_queries: int, k: int, n_samples: int) -> None:
    """Refuse more queries than leave samples to search, among which ``k`` neighbours mean something."""
    least = _LEAST_DATABASE * k
    if n_queries > n_samples - least:
        raise ValueError(
            f"validation must leave at least {least} of the {n_samples} samples, {_LEAST_DATABASE} for each of the "
            f"{k} neighbours (validation_neighbours); got {n_queries}."
        )


class EarlyStop:
    """Ends training when queries no longer find what is relevant better (mAP), and goes back to the best."""

    def __init__(self, queries: Array, database: Array, truth: Truth) -> None:
        self.queries, self.database, self.truth = queries, database, truth
        self.score, self.best = -1.0, dict[str, Any]()

    @classmethod
    def by_neighbours(cls, X: Array, n_queries: int, k: int, rng: np.random.Generator) -> EarlyStop:
        """Queries are training samples, as in the authors' later code; what they are searched among are others."""
        from hashlearn.evaluation import Truth, euclidean_neighbours

        drawn = rng.permutation(len(X))[: n_queries + _DATABASE]
        # Times 1: neighbours are not looked for among booleans.
        queries, database = (X[np.sort(part)] * 1 for part in (drawn[:n_queries], drawn[n_queries:]))
        neighbours = euclidean_neighbours(queries, database, k, show_progress=False)
        return cls(queries, database, Truth.neighbours(neighbours))

    @classmethod
    def by_labels(cls, kept: tuple[Array, Array], X: Array, y: Array) -> EarlyStop:
        """Queries are samples that were kept from training; relevant is what has the same label."""
        from hashlearn.evaluation import Truth

        step = -(-len(X) // _DATABASE)
        return cls(kept[0], X[::step], Truth.labels(kept[1], y[::step]))

    def reached(self, hasher: NetworkHasher, record: dict[str, Any]) -> bool:
        from hashlearn.evaluation import evaluate

        codes = hasher._encode(self.queries), hasher._encode(self.database)
        score = evaluate(*codes, self.truth, n_bits=hasher.n_bits_, show_progress=False).map
        record["validation_map"] = score
        if score <= self.score:
            return True
        self.score = score
        self.best = dict(vars(hasher))
        return False

    def restore(self, hasher: NetworkHasher) -> None:
        """The best network, ``best_iter_`` its iteration; the others tell of the whole training."""
        of_all = {name: getattr(hasher, name) for name in ("n_iter_", "converged_")}
        hasher.__dict__.update(self.best | of_all)
