"""Whether a model that was trained earlier still fits new vectors, and what training it again would bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from hashlearn._arrays import Array, Codes, Floats
from hashlearn.codes import unpack
from hashlearn.compare.own_vectors import hold_out
from hashlearn.errors import check_count
from hashlearn.evaluation import BitStatistics, Truth, bit_statistics, evaluate_search, nearest_neighbors
from hashlearn.evaluation.neighbors import Metric
from hashlearn.hashers import Hasher
from hashlearn.hashers.steps import unit_rows
from hashlearn.search import HammingIndex

__all__ = ["CodeQuality", "ModelCheck", "check_model"]

# Vectors that are looked at, and queries among them.
_SAMPLE, _QUERIES = 20_000, 1000
# Among how many times k items the k neighbors should be found.
_FACTOR = 10
# Fewer vectors can't show much.
_LEAST = 500
# What training again must bring to be worth it: so much recall, and so many standard errors.
_WORTH, _ERRORS = 0.01, 2.0
# Weight of the squared map beside the mean squared error, relative to the variance of a bit.
_RIDGE = 1e-3


@dataclass(frozen=True)
class CodeQuality:
    """How good the codes of some vectors are.

    Attributes
    ----------
    recall : float
        The share of the k nearest neighbors that are among the first 10 k items by Hamming distance.
    explained : float
        The share of the vectors' variance that a linear map of their codes gives, on vectors that the map was not
        fitted to; of vectors of unit length, if codes do not depend on the length.
    bits : BitStatistics
    """

    recall: float
    explained: float
    bits: BitStatistics


@dataclass(frozen=True)
class ModelCheck:
    """The result of :func:`check_model`.

    Attributes
    ----------
    model, retrained : CodeQuality
        Of the model, and of the same method with the same parameters trained on the new vectors.
    gain : float
        Recall of the retrained model less that of the model.
    standard_error : float
        Of the gain, over the queries.
    fits : bool
        Whether training again brings no more than chance or than one point of recall.
    verdict : str
        The same in a sentence.
    k, n_queries, n_searched : int
    metric : str
    """

    model: CodeQuality
    retrained: CodeQuality
    gain: float
    standard_error: float
    fits: bool
    verdict: str
    k: int
    n_queries: int
    n_searched: int
    metric: Metric

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        quality = {name: vars(getattr(self, name)) for name in ("model", "retrained")}
        return {**vars(self), **{name: {**of, "bits": of["bits"].as_dict()} for name, of in quality.items()}}


def check_model(
    hasher: Hasher,
    vectors: ArrayLike,
    *,
    k: int = 10,
    metric: Metric | None = None,
    random_state: int = 0,
    show_progress: bool | None = None,
) -> ModelCheck:
    """Say whether a model still fits vectors that it was not trained on.

    Of at most 20,000 of the vectors, drawn at random, 1,000 are queries (a tenth, if there are fewer) and search the
    others by the model's codes. The same is done with a model that is trained on the others.

    Parameters
    ----------
    hasher : Hasher
        A fitted model of a method that learns without labels.
    vectors : array-like of shape (n, n_features)
        At least 500 new vectors; may be a memory map.
    k : int, default=10
        How many nearest neighbors should be found, among the first 10 k items.
    metric : {"euclidean", "cosine", "inner_product"}, optional
        What makes a vector a near neighbor. Default: cosine, if the model's codes do not depend on the lengths of
        vectors, or else Euclidean.
    random_state : int, default=0
        Seed of the draw, and of the training if the method draws.
    show_progress : bool, optional
        Default: show progress bars on a terminal only.

    Returns
    -------
    ModelCheck

    Examples
    --------
    >>> from hashlearn import ITQ
    >>> from hashlearn.compare import check_model
    >>> from hashlearn.datasets import load
    >>> digits = load("digits")
    >>> hasher = ITQ(32, random_state=0).fit(digits.train)
    >>> check_model(hasher, digits.database).fits
    True
    >>> check_model(hasher, digits.database[:, ::-1]).fits  # other vectors than it was trained on
    False
    """
    k = check_count("k", k)
    if hasher.supervised:
        raise ValueError(
            f"{hasher.name} learns from labels, and its codes are for items of the same class: a check by nearest "
            "neighbors would say nothing about them."
        )
    X = np.asanyarray(vectors)
    if X.ndim != 2:
        raise ValueError(f"vectors must have two dimensions, (n, n_features); got shape {X.shape}.")
    if len(X) < max(_LEAST, 20 * k):
        raise ValueError(f"vectors must be at least {max(_LEAST, 20 * k)}, to tell anything; got {len(X)}.")
    hasher.encode(X[:1])  # at once an error if the features are others
    metric = hasher.default_metric if metric is None else metric
    rng = np.random.default_rng(random_state)
    X = np.asarray(X[np.sort(rng.permutation(len(X))[:_SAMPLE])])
    asked, rest = hold_out(len(X), _QUERIES, random_state)
    queries, database = X[asked], X[rest]
    truth = Truth.neighbors(nearest_neighbors(queries, database, k, metric=metric, show_progress=show_progress))
    again = clone(hasher)
    if again.is_random:
        again.set_params(random_state=random_state)
    if "show_progress" in again.get_params():
        again.set_params(show_progress=show_progress)
    again.fit(database)
    qualities, recalls = [], []
    for model in (hasher, again):
        codes = model.encode(database)
        found = _recalls(model, queries, codes, truth, _FACTOR * k)
        recalls.append(found)
        explained = _explained(codes, unit_rows(database) if hasher.ignores_length else database, model.n_bits_)
        qualities.append(CodeQuality(float(found.mean()), explained, bit_statistics(codes, model.n_bits_)))
    differences = recalls[1] - recalls[0]
    gain, error = float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))
    fits = gain <= max(_WORTH, _ERRORS * error)
    before, after = (f"{100 * quality.recall:.1f} %" for quality in qualities)
    found_words = f"of the {k} nearest neighbors among the first {_FACTOR * k} items"
    if fits:
        verdict = (
            f"The model fits these vectors: it finds {before} {found_words}, and one trained on them {after}, "
            f"which is no more than {'chance' if gain <= _ERRORS * error else 'a point'}."
        )
    else:
        verdict = f"Train again: the model finds {before} {found_words}, and one trained on these vectors {after}."
    sizes = {"n_queries": len(queries), "n_searched": len(database)}
    return ModelCheck(qualities[0], qualities[1], gain, error, fits, verdict, k, **sizes, metric=metric)


def _recalls(hasher: Hasher, queries: Array, codes: Codes, truth: Truth, first: int) -> Floats:
    index = HammingIndex(hasher.n_bits_)
    index.add(codes)
    found = index.search(hasher.encode(queries), k=first).ids
    return evaluate_search(found, truth, k=first).per_query[f"recall@{first}"]


def _explained(codes: Codes, X: Array, n_bits: int) -> float:
    """The share of the variance of every other vector that a ridge regression of the rest on their codes explains."""
    B = 2 * unpack(codes, n_bits).astype(np.float64) - 1
    Y = X.astype(np.float64)
    mean, bits_mean = Y[::2].mean(axis=0), B[::2].mean(axis=0)
    b, y = B[::2] - bits_mean, Y[::2] - mean
    W = np.linalg.solve(b.T @ b / len(b) + _RIDGE * np.eye(n_bits), b.T @ y / len(b))
    rest = Y[1::2] - mean
    error = rest - (B[1::2] - bits_mean) @ W
    total = float(np.sum(rest * rest))
    return 1 - float(np.sum(error * error)) / total if total > 0 else 0.0
