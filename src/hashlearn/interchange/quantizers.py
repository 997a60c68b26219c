"""FAISS's product quantizers, to be compared with codes of the same number of bytes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from hashlearn._arrays import Array, Bytes, Floats
from hashlearn.codes import check_codes
from hashlearn.errors import check_count
from hashlearn.search.real import Scored, search_products
from hashlearn.threads import cores

# Codes of a subspace, one byte.
_CODES = 256


class ProductQuantizer(BaseEstimator):  # type: ignore[misc]
    """Product quantization (H. Jégou, M. Douze and C. Schmid, 2011) by FAISS, with a byte for each subspace.

    Items are ranked by the distance between the query, which is not quantized, and what their codes stand for.

    Parameters
    ----------
    n_bits : int, default=64
        Length of a code, a multiple of 8.
    rotate : bool, default=False
        Whether to rotate vectors first by a matrix that is learned with the quantizer: OPQ (T. Ge, K. He, Q. Ke and
        J. Sun, 2013).
    random_state : int, default=0
        Seed of the order of the samples, on which FAISS's draws depend.

    Attributes
    ----------
    index_ : faiss.Index
        The trained quantizer.
    """

    #: As for a method (:class:`Hasher`): the version of its numbers, and what it needs.
    revision, supervised, is_random = 1, False, True
    distance: Literal["hamming"] = "hamming"

    def __init__(self, n_bits: int = 64, *, rotate: bool = False, random_state: int = 0) -> None:
        self.n_bits = n_bits
        self.rotate = rotate
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> ProductQuantizer:
        """Train the quantizer; of many samples FAISS uses a part.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            At least 256 samples, the number of codes of a subspace; the number of features must be a multiple of
            ``n_bits / 8``.
        y : None
            Not used.
        """
        import faiss

        X = _rows(X)
        (m, D), n_bits = X.shape, check_count("n_bits", self.n_bits, 0)
        n_bytes = n_bits // 8
        if n_bytes < 1 or n_bits % 8 or D % n_bytes:
            raise ValueError(
                f"n_bits must be a multiple of 8, and the {D} features of n_bits / 8; got n_bits={n_bits}."
            )
        if m < _CODES:
            raise ValueError(f"X must have at least {_CODES} samples, the codes of a subspace; got {m}.")
        order = np.random.default_rng(self.random_state).permutation(m)
        index = faiss.index_factory(D, f"OPQ{n_bytes},PQ{n_bytes}" if self.rotate else f"PQ{n_bytes}")
        n_threads = faiss.omp_get_max_threads()
        try:
            faiss.omp_set_num_threads(cores())
            index.train(X[order])
        finally:
            faiss.omp_set_num_threads(n_threads)
        self.index_ = index
        return self

    def encode(self, X: ArrayLike) -> Bytes:
        """Return the codes, a byte for each subspace.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        """
        codes: Bytes = self._trained().sa_encode(_rows(X, self._trained().d))
        return codes

    def search(self, queries: ArrayLike, codes: ArrayLike, k: int) -> Scored:
        """Find the items whose codes stand for the vectors nearest to each query.

        Parameters
        ----------
        queries : array-like of shape (n_queries, n_features)
        codes : ndarray of shape (n_items, n_bits / 8)
        k : int

        Returns
        -------
        Scored
            Scores are qᵀx − ‖x‖² / 2, x what the code of an item stands for: the larger, the nearer. They are sums in
            float32, so the last digits may differ for items of equal codes, whose order is then not that of their
            numbers.
        """

        index, packed = self._trained(), check_codes(codes, int(self.n_bits))

        def rows(block: slice) -> tuple[Array, Floats | None]:
            X = index.sa_decode(packed[block])
            return X, -np.einsum("ij,ij->i", X, X, dtype=np.float64) / 2

        return search_products(_rows(queries, index.d), len(packed), rows, k)

    def _trained(self) -> Any:
        check_is_fitted(self, "index_")
        return self.index_

    def summary(self) -> dict[str, Any]:
        """Return nothing to be told of the training."""
        return {}


def _rows(X: ArrayLike, n_features: int | None = None) -> NDArray[np.float32]:
    """Vectors as FAISS takes them: finite float32, row after row."""
    rows: NDArray[np.float32] = check_array(X, dtype=np.float32, order="C", ensure_min_samples=0)
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} features, as in fit; got {rows.shape[1]}.")
    return rows
