"""A scorer for scikit-learn's searches of parameters: how many true neighbors codes find."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from hashlearn.errors import check_count, shown
from hashlearn.evaluation.neighbors import METRICS, Metric, nearest_neighbors
from hashlearn.evaluation.retrieval import evaluate_search
from hashlearn.evaluation.truth import Truth
from hashlearn.search import HammingIndex, search_real

__all__ = ["recall_scorer"]


def recall_scorer(
    k: int = 10,
    *,
    first: int | None = None,
    metric: Metric | None = None,
    query: Literal["code", "real"] = "code",
    n_queries: int = 1000,
    random_state: int = 0,
) -> Callable[..., float]:
    """Return a scorer for ``GridSearchCV`` and its like: the recall of the k nearest neighbors by code.

    Of the vectors that it is called with, some are queries and the others are searched. Neither were trained on if they
    are the test part of a split.

    Parameters
    ----------
    k : int, default=10
        How many nearest neighbors of each query should be found.
    first : int, optional
        Among how many of the first items by code they count; by default ``k``.
    metric : {"euclidean", "cosine", "inner_product"}, optional
        What makes a vector a near neighbor. Default: cosine, if the codes do not depend on the lengths of vectors, or
        else Euclidean.
    query : {"code", "real"}, default="code"
        Whether queries are compared by their codes, or by their real values (``query_values``).
    n_queries : int, default=1000
        How many vectors are queries, but at most a fifth of them.
    random_state : int, default=0
        Seed of the draw of queries.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y=None)``, for a hasher or a pipeline that ends with one. It can be pickled.

    Examples
    --------
    >>> from hashlearn import ITQ
    >>> from hashlearn.datasets import load
    >>> from hashlearn.evaluation import recall_scorer
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = load("digits").train
    >>> search = GridSearchCV(ITQ(random_state=0), {"n_bits": [8, 16, 32]}, scoring=recall_scorer(k=10), cv=3).fit(X)
    >>> search.best_params_
    {'n_bits': 32}
    """
    check_count("n_queries", n_queries)
    if metric is not None and metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}; got {shown(metric)}.")
    if query not in ("code", "real"):
        raise ValueError(f"query must be 'code' or 'real'; got {shown(query)}.")
    k = check_count("k", k)
    first = k if first is None else check_count("first", first)
    return partial(
        _recall, k=k, first=first, metric=metric, query=query, n_queries=int(n_queries), random_state=random_state
    )


def _recall(
    estimator: Any,
    X: ArrayLike,
    y: Any = None,
    *,
    k: int,
    first: int,
    metric: Metric | None,
    query: str,
    n_queries: int,
    random_state: int,
) -> float:
    n_rows = _num_samples(X)
    order = np.random.default_rng(random_state).permutation(n_rows)
    n = min(n_queries, n_rows // 5)
    if not n or n_rows - n < max(k, first):
        raise ValueError(f"the {n_rows} vectors are too few to look for {k} neighbors among the first {first} items.")
    queries, database = (_safe_indexing(X, np.sort(part)) for part in (order[:n], order[n:]))
    hasher = estimator
    Q, Y = np.asarray(queries), np.asarray(database)
    if hasattr(estimator, "steps"):  # a pipeline
        hasher = estimator[-1]
        if len(estimator) > 1:
            queries, database = (estimator[:-1].transform(rows) for rows in (queries, database))
    metric = hasher.default_metric if metric is None else metric
    truth = Truth.neighbors(nearest_neighbors(Q, Y, k, metric=metric, show_progress=False))
    codes = hasher.encode(database)
    if query == "real":
        values, offsets = hasher.query_values(queries), hasher.code_offsets(codes)
        ids = search_real(values, codes, first, n_bits=hasher.n_bits_, offsets=offsets).ids
    else:
        index = HammingIndex(hasher.n_bits_)
        index.add(codes)
        ids = index.search(hasher.encode(queries), k=first).ids
    return evaluate_search(ids, truth, k=first)[f"recall@{first}"]
