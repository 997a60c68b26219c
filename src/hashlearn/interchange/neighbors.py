"""A graph of nearest neighbors by code, in the place of scikit-learn's ``KNeighborsTransformer``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from hashlearn._arrays import Array, Floats, Ids
from hashlearn.errors import check_count, shown
from hashlearn.hashers import Hasher
from hashlearn.search import HammingIndex, rerank

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CodeNeighborsTransformer"]


class CodeNeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turns vectors into the sparse graph of their nearest neighbors among those of ``fit``, by code.

    It has the interface of ``sklearn.neighbors.KNeighborsTransformer``: what comes after it in a pipeline takes the
    graph with ``metric="precomputed"``.

    Parameters
    ----------
    hasher : Hasher
        Learns the codes; it is cloned, and the clone is fitted.
    n_neighbors : int, default=5
        How many neighbors of each vector the graph has. With distances it has one more, because in the graph of
        ``fit_transform`` a vector is its own nearest neighbor.
    mode : {"distance", "connectivity"}, default="distance"
        Whether the entries of the graph are distances, or 1 for each neighbor.
    oversample : int, default=None
        How many candidates for each neighbor are found by code, and compared again by their vectors. None: neighbors
        are those by code, and distances are Hamming's.
    metric : {"euclidean", "cosine"}, default="euclidean"
        With ``oversample``, the distance of vectors; by cosine it is 1 less the cosine.

    Attributes
    ----------
    hasher_ : Hasher
    n_samples_fit_ : int

    Examples
    --------
    >>> from hashlearn import ITQ
    >>> from hashlearn.datasets import load
    >>> from hashlearn.interchange import CodeNeighborsTransformer
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> digits = load("digits")
    >>> near = CodeNeighborsTransformer(ITQ(64, random_state=0), n_neighbors=5)
    >>> classifier = make_pipeline(near, KNeighborsClassifier(5, metric="precomputed"))
    >>> classifier.fit(digits.train, digits.train_labels).score(digits.queries, digits.query_labels) > 0.9
    True
    """

    def __init__(
        self,
        hasher: Hasher,
        *,
        n_neighbors: int = 5,
        mode: str = "distance",
        oversample: int | None = None,
        metric: str = "euclidean",
    ) -> None:
        self.hasher = hasher
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.oversample = oversample
        self.metric = metric

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn codes, and keep those of the vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Labels, for a hasher that learns from them.

        Returns
        -------
        self : CodeNeighborsTransformer
        """
        data = validate_data(self, X, dtype="numeric", ensure_min_samples=2)
        self._check_parameters(len(data))
        self.hasher_ = clone(self.hasher).fit(data, y)
        self._index = HammingIndex(self.hasher_.n_bits_)
        self._index.add(self.hasher_.encode(data))
        self._vectors = data if self.oversample is not None else None
        self.n_samples_fit_ = len(data)
        return self

    def _check_parameters(self, n: int) -> int:
        """Check the parameters for n samples, and return how many neighbors of each the graph has."""
        k = check_count("n_neighbors", self.n_neighbors)
        if self.mode not in ("distance", "connectivity"):
            raise ValueError(f"mode must be 'distance' or 'connectivity'; got {shown(self.mode)}.")
        if self.metric not in ("euclidean", "cosine"):
            raise ValueError(f"metric must be 'euclidean' or 'cosine'; got {shown(self.metric)}.")
        if self.oversample is not None:
            check_count("oversample", self.oversample)
        elif self.metric != "euclidean":
            raise ValueError("metric has no effect without oversample: leave it out.")
        width = k + (self.mode == "distance")
        if n < width:
            limit = n - (self.mode == "distance")
            raise ValueError(f"n_neighbors must be at most {limit}, for {n} samples and mode={self.mode!r}; got {k}.")
        return width

    def transform(self, X: ArrayLike) -> Any:
        """Return the graph of the nearest neighbors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        graph : CSR matrix of shape (n_samples, n_samples_fit)
            The neighbors of each row are in the order of their distances.
        """
        check_is_fitted(self)
        data = validate_data(self, X, reset=False, dtype="numeric")
        return self._graph(*self._neighbors(data))

    def _neighbors(self, data: Array) -> tuple[Floats, Ids]:
        k = self._check_parameters(self.n_samples_fit_)
        if (self.oversample is None) != (self._vectors is None):
            raise ValueError("oversample was changed after fit: fit again.")
        codes = self.hasher_.encode(data)
        if self._vectors is None:
            near = self._index.search(codes, k=k)
            return near.distances.astype(np.float64), near.ids
        n = min(k * int(self.oversample or 1), self.n_samples_fit_)
        metric: Literal["cosine", "euclidean"] = "cosine" if self.metric == "cosine" else "euclidean"
        scores, ids = rerank(data, self._index.search(codes, k=n).ids, self._vectors, k, metric=metric)
        values = scores.astype(np.float64)
        return np.maximum(1 - values, 0) if metric == "cosine" else np.sqrt(-values), ids

    def _graph(self, distances: Floats, ids: Ids) -> Any:
        from scipy.sparse import csr_matrix

        values = distances if self.mode == "distance" else np.ones(ids.shape)
        ends = np.arange(0, ids.size + 1, ids.shape[1])
        return csr_matrix((values.ravel(), ids.ravel(), ends), shape=(len(ids), self.n_samples_fit_))

    def fit_transform(self, X: ArrayLike, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and return the graph of the same vectors, each of which is its own nearest neighbor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
        **fit_params
            None are known.

        Returns
        -------
        graph : CSR matrix of shape (n_samples, n_samples)
        """
        self.fit(X, y, **fit_params)
        distances, ids = self._neighbors(validate_data(self, X, reset=False, dtype="numeric"))
        # Vectors with the same code come in the order of their numbers, so that a vector may not be the first or not be
        # found at all: it takes the place of the last.
        own = np.arange(len(ids))
        at = np.where((ids == own[:, None]).any(axis=1), (ids == own[:, None]).argmax(axis=1), ids.shape[1] - 1)
        for i, place in enumerate(at):
            distances[i, 1 : place + 1], ids[i, 1 : place + 1] = distances[i, :place].copy(), ids[i, :place].copy()
        distances[:, 0], ids[:, 0] = 0, own
        return self._graph(distances, ids)

    @property
    def _n_features_out(self) -> int:
        return self.n_samples_fit_
