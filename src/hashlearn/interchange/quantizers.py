"""FAISS's product quantizers, to be compared with codes of the same number of bytes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from hashlearn._arrays import Array, Bytes, Floats
from hashlearn.search.real import Scored, search_products
from hashlearn.threads import cores


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

    def fit(self, X: Array, y: Any = None) -> ProductQuantizer:
        """Train the quantizer; of many samples FAISS uses a part.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            The number of features must be a multiple of ``n_bits / 8``.
        y : None
            Not used.
        """
        import faiss

        D, n_bytes = X.shape[1], self.n_bits // 8
        if n_bytes < 1 or self.n_bits % 8 or D % n_bytes:
            raise ValueError(
                f"n_bits must be a multiple of 8, and the {D} features of n_bits / 8; got n_bits={self.n_bits}."
            )
        order = np.random.default_rng(self.random_state).permutation(len(X))
        rows = np.ascontiguousarray(X[order], dtype=np.float32)
        faiss.omp_set_num_threads(cores())
        self.index_ = faiss.index_factory(D, f"OPQ{n_bytes},PQ{n_bytes}" if self.rotate else f"PQ{n_bytes}")
        self.index_.train(rows)
        return self

    def encode(self, X: Array) -> Bytes:
        """Return the codes, a byte for each subspace.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
        """
        codes: Bytes = self.index_.sa_encode(np.ascontiguousarray(X, dtype=np.float32))
        return codes

    def search(self, queries: Array, codes: Bytes, k: int) -> Scored:
        """Find the items whose codes stand for the vectors nearest to each query.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)
        codes : ndarray of shape (n_items, n_bits / 8)
        k : int

        Returns
        -------
        Scored
            Scores are qᵀx − ‖x‖² / 2, x what the code of an item stands for: the larger, the nearer.
        """

        def rows(block: slice) -> tuple[Array, Floats | None]:
            X = self.index_.sa_decode(codes[block])
            return X, -np.einsum("ij,ij->i", X, X, dtype=np.float64) / 2

        return search_products(np.ascontiguousarray(queries, dtype=np.float32), len(codes), rows, k)

    def summary(self) -> dict[str, Any]:
        """Return nothing to be told of the training."""
        return {}
