"""How well a model's codes find the nearest neighbors in one's own vectors, with and without re-ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Ids, Indices
from hashlearn.errors import check_count
from hashlearn.evaluation import METRICS, Truth, evaluate_search, nearest_neighbors
from hashlearn.evaluation.neighbors import Metric
from hashlearn.hashers import Hasher
from hashlearn.search import HammingIndex, rerank

__all__ = ["ModelScores", "Ranking", "evaluate_model"]

# Measures of each ranking.
_MEASURES = ("recall", "precision", "ndcg", "mrr")
# The share of the vectors that become queries, at most.
_SHARE = 0.1


@dataclass(frozen=True)
class Ranking:
    """The scores of one way to search.

    Attributes
    ----------
    query : {"code", "real"}
        Whether queries are compared by their codes, by Hamming distance, or by their real values.
    reranked : int
        How many of the first items are compared again by their vectors; 0: none.
    scores : dict
        Means over the queries by measure: ``"recall"``, ``"precision"``, ``"ndcg"`` and ``"mrr"`` of the first k items.
    standard_errors : dict
        Of the means.
    """

    query: Literal["code", "real"]
    reranked: int
    scores: dict[str, float]
    standard_errors: dict[str, float]


@dataclass(frozen=True)
class ModelScores:
    """The result of :func:`evaluate_model`.

    Attributes
    ----------
    rankings : list of Ranking
    k : int
    metric : str
    n_bits, n_queries, n_database : int
    truth : str
        Description of the ground truth.
    queries_without_relevant : int
        Queries that no item is relevant to; all their scores are 0.
    held_out : bool
        Whether the queries were drawn from the vectors.
    """

    rankings: list[Ranking]
    k: int
    metric: Metric
    n_bits: int
    n_queries: int
    n_database: int
    truth: str
    queries_without_relevant: int
    held_out: bool

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        # One query has no standard error: NaN, which JSON does not have.
        rankings = [
            {**vars(one), "standard_errors": {name: None if e != e else e for name, e in one.standard_errors.items()}}
            for one in self.rankings
        ]
        return {**vars(self), "rankings": rankings}


def evaluate_model(
    hasher: Hasher,
    vectors: ArrayLike,
    queries: ArrayLike | None = None,
    *,
    k: int = 10,
    metric: Metric | None = None,
    rerank_depths: Sequence[int] | None = None,
    truth: Truth | None = None,
    n_queries: int = 1000,
    random_state: int = 0,
    show_progress: bool | None = None,
) -> ModelScores:
    """Search one's own vectors by a fitted model's codes, and compare the answers with the true nearest neighbors.

    Parameters
    ----------
    hasher : Hasher
        A fitted model.
    vectors : array-like of shape (n, n_features)
        The vectors to search; may be a memory map that is larger than memory.
    queries : array-like of shape (n_queries, n_features), optional
        By default, some of the vectors are drawn, and the others are searched. Give others if the model was trained on
        these vectors: what it has seen, it may find better.
    k : int, default=10
        How many nearest neighbors should be found, among the first k items.
    metric : {"euclidean", "cosine", "inner_product"}, optional
        What makes a vector a near neighbor. Default: cosine, if the model's codes do not depend on the lengths of
        vectors, or else Euclidean.
    rerank_depths : sequence of int, optional
        How many of the first items are compared again by their vectors: each gives a ranking beside that by code alone.
        Default: 5, 10 and 20 times k.
    truth : Truth, optional
        The items that are relevant to each of the given queries, such as judgments. Default: the k nearest neighbors.
    n_queries : int, default=1000
        How many vectors to draw as queries; at most a tenth of them.
    random_state : int, default=0
        Seed of the draw.
    show_progress : bool, optional
        Default: show progress bars on a terminal only.

    Returns
    -------
    ModelScores

    Examples
    --------
    >>> from hashlearn import ITQ
    >>> from hashlearn.compare import evaluate_model
    >>> from hashlearn.datasets import load
    >>> digits = load("digits")
    >>> hasher = ITQ(32, random_state=0).fit(digits.train)
    >>> scores = evaluate_model(hasher, digits.database, digits.queries)
    >>> [(ranking.query, ranking.reranked) for ranking in scores.rankings][:3]
    [('code', 0), ('code', 50), ('code', 100)]
    """
    k, n_queries = check_count("k", k), check_count("n_queries", n_queries)
    asked = (5 * k, 10 * k, 20 * k) if rerank_depths is None else rerank_depths
    depths = [check_count("rerank_depths", depth, k) for depth in asked]
    metric = hasher.default_metric if metric is None else metric
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}; got {metric!r}.")
    X = _matrix("vectors", vectors)
    if truth is not None and queries is None:
        raise ValueError("truth must be given together with its queries.")
    if queries is None:
        rows, rest = hold_out(len(X), n_queries, random_state)
        Q: Array = np.asarray(X[rows])
    else:
        Q, rest = _matrix("queries", queries), np.arange(len(X))
    if len(rest) < k or not len(Q):
        raise ValueError(f"the {len(X):,} vectors are too few to look for {k} neighbors.")
    if truth is not None and (truth.n_database not in (None, len(X)) or truth.min_database > len(X)):
        expected = truth.n_database or f"at least {truth.min_database}"
        raise ValueError(f"truth is for a database of {expected} items; got {len(X)} vectors.")
    depths = sorted({min(depth, len(rest)) for depth in depths})
    codes = hasher.encode(X)
    query_codes = hasher.encode(Q)
    if truth is None:
        chosen = None if queries is not None else rest
        near = nearest_neighbors(Q, X, k, metric=metric, rows=chosen, show_progress=show_progress)
        truth = Truth.neighbors(near, f"the {k} nearest by {METRIC_NAMES[metric]}", n_database=len(X))
    index = HammingIndex(hasher.n_bits_)
    index.add(codes[rest] if queries is None else codes, ids=rest)
    most = max([k, *depths])
    found: dict[Literal["code", "real"], Ids] = {"code": index.search(query_codes, k=most).ids}
    if hasher.has_query_values:
        found["real"] = index.search_real(hasher.query_values(Q), most, offsets=hasher.code_offsets).ids
    rankings = []
    for query, ids in found.items():
        for depth in (0, *depths):
            answers = rerank(Q, ids[:, :depth], X, k, metric=metric).ids if depth else ids[:, :k]
            scores = evaluate_search(answers, truth, k=k)
            means = {measure: scores[f"{measure}@{k}"] for measure in _MEASURES}
            errors = {measure: scores.standard_error(f"{measure}@{k}") for measure in _MEASURES}
            rankings.append(Ranking(query, depth, means, errors))
    sizes = {"n_bits": hasher.n_bits_, "n_queries": len(Q), "n_database": len(rest)}
    sizes["queries_without_relevant"] = scores.queries_without_relevant
    return ModelScores(rankings, k, metric, **sizes, truth=truth.description, held_out=queries is None)


#: Metrics in words.
METRIC_NAMES: dict[Metric, str] = {
    "euclidean": "Euclidean distance",
    "cosine": "cosine",
    "inner_product": "inner product",
}


def hold_out(n: int, n_queries: int, random_state: int) -> tuple[Indices, Indices]:
    """Draw queries, at most a tenth of n vectors: the numbers of the queries and those of the others, ascending."""
    drawn = np.random.default_rng(random_state).permutation(n)
    n_queries = min(n_queries, int(_SHARE * n))
    return np.sort(drawn[:n_queries]), np.sort(drawn[n_queries:])


def _matrix(name: str, values: ArrayLike) -> Array:
    array = np.asanyarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, (n, n_features); got shape {array.shape}.")
    return array
