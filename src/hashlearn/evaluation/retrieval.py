"""Recall, precision, nDCG and reciprocal rank of the items that a search found, whatever searched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Floats
from hashlearn.errors import check_count
from hashlearn.evaluation.truth import Truth

__all__ = ["SearchScores", "evaluate_search"]

_DEFAULT_K = (1, 10, 100)


@dataclass(frozen=True)
class SearchScores:
    """The result of :func:`evaluate_search`. Scores are between 0 and 1.

    ``scores["recall@10"]`` is the mean over the queries.

    Attributes
    ----------
    per_query : dict of ndarray of shape (n_queries,)
        The measures of each query by name: ``"recall@10"``, ``"precision@10"``, ``"ndcg@10"`` and ``"mrr@10"`` for each
        ``k``.
    queries_without_relevant : int
        Queries that no item is relevant to; all their scores are 0.
    truth : str
        Description of the ground truth.
    """

    per_query: dict[str, Floats]
    queries_without_relevant: int
    truth: str

    def __getitem__(self, measure: str) -> float:
        return float(self.per_query[measure].mean())

    def standard_error(self, measure: str) -> float:
        """Return the standard error of a measure's mean, as that of a sample of queries.

        Parameters
        ----------
        measure : str

        Returns
        -------
        float
        """
        values = self.per_query[measure]
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return the means and what defines them, as plain values for JSON."""
        return {
            **{measure: self[measure] for measure in self.per_query},
            "n_queries": len(next(iter(self.per_query.values()))),
            "queries_without_relevant": self.queries_without_relevant,
            "truth": self.truth,
        }

    def __str__(self) -> str:
        means = ", ".join(f"{measure} {100 * self[measure]:.2f}" for measure in self.per_query)
        lacking = self.queries_without_relevant
        empty = f"; {lacking:,} queries without a relevant item count 0" if lacking else ""
        n_queries = len(next(iter(self.per_query.values())))
        return f"{means} (percent; {n_queries:,} queries; truth: {self.truth}{empty})"


def evaluate_search(ids: ArrayLike, truth: Truth, *, k: int | Iterable[int] | None = None) -> SearchScores:
    """Compare what a search found with the ground truth.

    With G relevant items of a query, h(k) of them among the first k, and g(r) the grade of the item at rank r (1 if
    grades were not given, 0 if it is not relevant):

    - recall@k = h(k) / G;
    - precision@k = h(k) / k, also where fewer than k items were found;
    - nDCG@k = Σ g(r) / log₂(r + 1) over the first k ranks, divided by the largest sum that any order of all items has;
    - MRR@k = 1 / the rank of the first relevant item, 0 if it is beyond k.

    A query without a relevant item has 0 everywhere and counts in the means.

    Parameters
    ----------
    ids : array-like of shape (n_queries, n)
        Ids of the items found for each query, best first, as of :meth:`HammingIndex.search` or :func:`search_real`; −1
        where there were no more.
    truth : Truth
        The relevant items of each query.
    k : int or iterable of int, optional
        How many of the first items count; at most n. Default: 1, 10 and 100, up to n.

    Returns
    -------
    SearchScores

    Examples
    --------
    >>> from hashlearn.evaluation import Truth, evaluate_search
    >>> truth = Truth.neighbors([[0, 1], [2, 3]])
    >>> scores = evaluate_search([[1, 5, 0], [4, 5, 6]], truth, k=[1, 3])
    >>> scores["recall@1"], scores["recall@3"], scores["mrr@3"]
    (0.25, 0.5, 0.5)
    """
    found = np.asarray(ids)
    if found.ndim != 2 or found.dtype.kind not in "iu" or 0 in found.shape:
        raise ValueError(f"ids must be whole numbers (n_queries, n), not empty; got {found.dtype} {found.shape}.")
    if len(found) != truth.n_queries:
        raise ValueError(f"truth is for {truth.n_queries:,} queries; got ids for {len(found):,}.")
    if k is None:
        k = [value for value in _DEFAULT_K if value <= found.shape[1]]
    ks = [check_count("k", value) for value in (k if isinstance(k, Iterable) else [k])]
    if not ks or max(ks) > found.shape[1]:
        raise ValueError(f"k must be at most {found.shape[1]}, the number of items found, and at least one; got {ks}.")
    if found.min() < -1 or (truth.n_database is not None and found.max() >= truth.n_database):
        limit = "" if truth.n_database is None else f", and below {truth.n_database:,}, the size of the database"
        raise ValueError(f"ids must be at least 0, or -1 for none{limit}; got {found.min()} to {found.max()}.")
    depth = max(ks)
    G, H = _gains(found[:, :depth], truth)
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    ideal = np.zeros((len(found), depth))
    n_relevant = np.empty(len(found))
    for query in range(len(found)):
        grades = np.sort(truth.grades(query))[::-1]
        n_relevant[query] = len(grades)
        ideal[query, : len(grades)] = grades[:depth]
    first = np.where(H.any(axis=1), H.argmax(axis=1), depth)  # the rank of the first relevant item, from 0
    some = np.maximum(n_relevant, 1)
    per_query: dict[str, Floats] = {}
    for cut in ks:
        hits = H[:, :cut].sum(axis=1)
        best = ideal[:, :cut] @ discounts[:cut]
        per_query[f"recall@{cut}"] = hits / some
        per_query[f"precision@{cut}"] = hits / cut
        per_query[f"ndcg@{cut}"] = G[:, :cut] @ discounts[:cut] / np.where(best > 0, best, 1)
        per_query[f"mrr@{cut}"] = np.where(first < cut, 1 / (first + 1), 0)
    return SearchScores(per_query, int((n_relevant == 0).sum()), truth.description)


def _gains(found: np.ndarray[Any, Any], truth: Truth) -> tuple[Floats, np.ndarray[Any, Any]]:
    """The grades of the items found, 0 if they are not relevant, and whether they are."""
    G, H = np.zeros(found.shape), np.zeros(found.shape, dtype=bool)
    for query, row in enumerate(found):
        items = row[row >= 0]
        if len(np.unique(items)) < len(items):
            raise ValueError(f"ids must be distinct within a query; query {query} has one twice.")
        relevant, grades = truth.relevant(query), truth.grades(query)
        order = np.argsort(relevant)
        at = np.minimum(np.searchsorted(relevant, row, sorter=order), len(relevant) - 1)
        if len(relevant):
            H[query] = relevant[order[at]] == row
            G[query] = np.where(H[query], grades[order[at]], 0)
    return G, H
