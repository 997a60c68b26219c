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

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.hashers._linear import LinearHasher
from hashlearn.hashers.base import check_flag


class LSH(LinearHasher):
    """Random hyperplanes: bit k of x is the sign of (x − mean)ᵀ w_k, with w_k drawn from a Gaussian.

    n_bits
        Length of the code; any number of at least 1.
    center
        Whether the hyperplanes pass through the mean of the training data, as is usual where LSH is a rival of learned
        methods, or through the origin (False), as in the original, where the angle at the origin is what is preserved.
    random_state
        Seed of the hyperplanes: an int, a ``numpy.random.Generator``, or None for a fresh draw.
    """

    name = "lsh"

    def __init__(self, n_bits: int = 32, *, center: bool = True, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.center = center
        self.random_state = random_state

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        check_flag("center", self.center)

    def _fit(self, X: NDArray[Any], y: list[Hashable] | None) -> None:
        D = X.shape[1]
        self.mean_ = X.mean(axis=0, dtype=np.float64) if self.center else np.zeros(D)
        self.components_ = np.random.default_rng(self.random_state).standard_normal((D, self.n_bits))
