"""Locality-sensitive hashing by random hyperplanes.

M. S. Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002: the angle between two vectors
is the expected share of random hyperplanes through the origin that separate them. The rival named LSH in "Discrete
Hashing with Deep Neural Network".

=======  ====================  =====================================
symbol   shape                 meaning
=======  ====================  =====================================
X        (m, D)                training data, only its mean is used
W        (D, L)                normals of the hyperplanes, N(0, 1)
=======  ====================  =====================================
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np

from hashlearn._arrays import Array
from hashlearn.hashers._linear import LinearHasher
from hashlearn.hashers._parameters import FLAG, Rule


class LSH(LinearHasher):
    """Random hyperplanes: bit k of x is the sign of (x − mean)ᵀ w_k, with w_k drawn from a Gaussian.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    center : bool, default=True
        Whether the hyperplanes pass through the mean of the training data, as is usual where LSH is compared with
        learned methods. False: through the origin, as in the original, which preserves angles there.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the hyperplanes.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    components_ : ndarray of shape (n_features, n_bits)
        The normals of the hyperplanes.
    """

    name = "lsh"
    _parameters: ClassVar[Mapping[str, Rule]] = {"center": FLAG}

    def __init__(
        self, n_bits: int = 32, *, center: bool = True, normalize: bool = False, random_state: Any = None
    ) -> None:
        self.n_bits = n_bits
        self.center = center
        self.normalize = normalize
        self.random_state = random_state

    def _unused(self) -> dict[str, str]:
        return {} if self.center else {"normalize": "for center=False: length does not change signs"}

    def _warn_degenerate(self, X: Array) -> None:
        """Nothing is learned but the mean, so that any data will do."""

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        D = X.shape[1]
        self.mean_ = X.mean(axis=0, dtype=np.float64) if self.center else np.zeros(D)
        self.components_ = np.random.default_rng(self.random_state).standard_normal((D, self.n_bits))
