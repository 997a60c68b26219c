"""Early stopping by a validation mAP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import blocks_of_size

if TYPE_CHECKING:
    from hashlearn.evaluation import Truth
    from hashlearn.hashers._dnn import DNNHasher


# A validation searches at most so many training samples, and at least so many for each neighbor.
_DATABASE, _LEAST_DATABASE = 50_000, 10
# How many of them are copied at a time, at most; and at least, below which the parts of small data do not go.
_PART, _LEAST_PART = 2048, 256


def check_validation(n_queries: int, k: int, n_samples: int) -> None:
    """Raise a ValueError if too few samples are left to search for ``k`` neighbors in a meaningful way."""
    least = _LEAST_DATABASE * k
    if least > _DATABASE:
        raise ValueError(
            f"validation_neighbors must be at most {_DATABASE // _LEAST_DATABASE}: a validation searches among "
            f"{_DATABASE} samples, and there must be {_LEAST_DATABASE} for each neighbor; got {k}."
        )
    if n_queries > n_samples - least:
        raise ValueError(
            f"validation must leave at least {least} of the {n_samples} samples, {_LEAST_DATABASE} for each of the "
            f"{k} neighbors (validation_neighbors); got {n_queries}."
        )


class EarlyStop:
    """Ends training when queries no longer find what is relevant better (mAP), and goes back to the best.

    ``database``: numbers of the rows of ``X`` that are searched; they are copied only a part at a time.
    """

    def __init__(self, queries: Array, X: Array, database: Array, truth: Truth) -> None:
        self.queries, self.X, self.database, self.truth = queries, X, database, truth
        self.score, self.best = -1.0, dict[str, Any]()
        self._parts = _parts(database)

    @classmethod
    def by_neighbors(cls, X: Array, n_queries: int, k: int, rng: np.random.Generator) -> EarlyStop:
        """Queries are training samples, as in the authors' later code; what they are searched among are others."""
        from hashlearn.evaluation import Truth

        drawn = rng.permutation(len(X))[: n_queries + _DATABASE]
        queries, database = X[np.sort(drawn[:n_queries])], np.sort(drawn[n_queries:])
        try:
            truth = Truth.neighbors(nearest(queries, X, database, k))
        except ValueError as error:
            raise ValueError(f"validation finds no neighbors among these samples: {error}") from error
        return cls(queries, X, database, truth)

    @classmethod
    def by_labels(cls, kept: tuple[Array, Array], X: Array, y: Array, rng: np.random.Generator) -> EarlyStop:
        """Queries are samples that were kept from training; relevant is what has the same label."""
        from hashlearn.evaluation import Truth

        database = np.sort(rng.permutation(len(X))[:_DATABASE])
        return cls(kept[0], X, database, Truth.labels(kept[1], y[database]))

    def reached(self, hasher: DNNHasher, record: dict[str, Any]) -> bool:
        from hashlearn.evaluation import evaluate

        database = np.concatenate([hasher._encode(self.X[part]) for part in self._parts])
        codes = hasher._encode(self.queries)
        score = evaluate(codes, database, self.truth, n_bits=hasher.n_bits_, show_progress=False).map
        record["validation_map"] = score
        if score <= self.score:
            return True
        self.score = score
        names = (*hasher._state(hasher.n_features_in_, hasher.n_bits_), *hasher._beside_state, "best_iter_")
        self.best = {name: getattr(hasher, name) for name in names}
        return False

    def restore(self, hasher: DNNHasher) -> None:
        """The best network, ``best_iter_`` its iteration; what else was learned tells of the whole training."""
        hasher.__dict__.update(self.best)


def nearest(queries: Array, X: Array, database: Array, k: int) -> Indices:
    """Places in ``database``, rows of X, of the ``k`` nearest of each query, by (distance, place). Exact."""
    from hashlearn.evaluation import euclidean_neighbors

    # No neighbors are looked for among booleans.
    kind = np.dtype(np.uint8) if X.dtype == np.bool_ else X.dtype
    queries = queries.astype(kind, copy=False)
    rows = np.empty((len(queries), 0), dtype=np.intp)
    distances = np.empty((len(queries), 0))
    for part in _parts(database):
        # The nearest of all are among the nearest of each part. Parts are in order, and so are ties within each.
        near = part[
            euclidean_neighbors(queries, X[part].astype(kind, copy=False), min(k, len(part)), show_progress=False)
        ]
        away = np.array([_squares(X[ids], query) for ids, query in zip(near, queries, strict=True)])
        rows, distances = np.hstack([rows, near]), np.hstack([distances, away])
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(rows, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
    return np.searchsorted(database, rows)


def _squares(rows: Array, query: Array) -> Floats:
    """Squared distances, in float64."""
    difference = rows - query.astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


def _parts(database: Array) -> list[Array]:
    size = max(min(len(database) // 16, _PART), _LEAST_PART)
    return [database[block] for block in blocks_of_size(len(database), size)]
