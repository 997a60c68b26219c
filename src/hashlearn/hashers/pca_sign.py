"""PCA hashing: bit k is the sign of the k-th principal component.

J. Wang, S. Kumar and S.-F. Chang, "Semi-supervised hashing for scalable image retrieval", CVPR 2010, where it is the
case without labels; ITQ's start, without the rotation.
"""

from __future__ import annotations

from collections.abc import Hashable

from hashlearn._arrays import Array
from hashlearn.hashers._linear import LinearHasher, mean_and_covariance, principal_directions
from hashlearn.threads import thread_map


class PCASign(LinearHasher):
    """PCA hashing: bit k of x is the sign of its k-th principal component.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code; at most the number of features.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    components_ : ndarray of shape (n_features, n_bits)
    """

    name = "pca-sign"
    _max_bits_reason = "which takes a principal direction for each bit"

    def __init__(self, n_bits: int = 32, *, normalize: bool = False) -> None:
        self.n_bits = n_bits
        self.normalize = normalize

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        with thread_map() as threads:
            self.mean_, covariance = mean_and_covariance(X, threads)
        self.components_ = principal_directions(covariance, self.n_bits_)
