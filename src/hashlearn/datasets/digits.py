"""The 1,797 handwritten digits that come with scikit-learn (8×8, values 0…16): no download."""

from __future__ import annotations

import numpy as np

from hashlearn._arrays import Array, Indices
from hashlearn.datasets._types import Dataset, labeled_dataset

__all__ = ["load_digits"]

N_QUERIES = 297
SEED = 0


def load_digits() -> Dataset:
    """Raw values (uint8, 64-D): 1,500 training and database rows, 297 queries; a fixed stratified split."""
    import sklearn.datasets

    bunch = sklearn.datasets.load_digits()
    X, labels = bunch.data.astype(np.uint8), bunch.target.astype(np.uint8)
    query_ids, database_ids = stratified_split(labels, N_QUERIES, SEED)
    train, queries = ((X[ids], labels[ids]) for ids in (database_ids, query_ids))
    return labeled_dataset("digits", *train, *queries, "scikit-learn's digits")


def stratified_split(labels: Array, n_queries: int, seed: int) -> tuple[Indices, Indices]:
    """Rows of the queries and all other rows, ascending. Classes are represented in proportion, within one row.

    The rows are shuffled, sorted by class, and sampled at equal steps.
    """
    n = len(labels)
    shuffled = np.random.default_rng(seed).permutation(n)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    is_query = np.zeros(n, dtype=bool)
    is_query[by_class[np.arange(n_queries) * n // n_queries]] = True
    return np.flatnonzero(is_query), np.flatnonzero(~is_query)
