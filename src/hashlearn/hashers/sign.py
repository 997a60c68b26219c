"""Binary quantization: a bit for each feature.

What vector databases and sentence-transformers call binary quantization, the baseline for methods that learn. There is
no paper to cite; it is as old as one-bit quantization.

=======  ========  ============================================
symbol   shape     meaning
=======  ========  ============================================
X        (m, D)    training data, only its thresholds are used
t        (D,)      thresholds: 0, means or medians
=======  ========  ============================================
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats
from hashlearn.hashers._blocks import row_blocks
from hashlearn.hashers._parameters import Rule, choice
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Affine, Center, Step

# Medians are those of at most so many samples.
_MEDIAN_SAMPLES = 1 << 16


class Sign(Hasher):
    """Binary quantization: bit k of x is 1 if feature k is at least its threshold.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code: the first ``n_bits`` features have a bit; at most the number of features. Embeddings that
        were trained to be cut off (Matryoshka) keep most of what they hold in the first features.
    threshold : {"zero", "mean", "median"}, default="zero"
        ``"zero"``: for features that vary around 0, as those of most embeddings do; nothing is learned. ``"mean"`` or
        ``"median"``: those of each feature in the training data; medians of at most 65,536 of the samples.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.

    Attributes
    ----------
    threshold_ : ndarray of shape (n_features,)
    """

    name = "sign"
    _max_bits_reason = "which has a bit for each feature"
    _parameters: ClassVar[Mapping[str, Rule]] = {"threshold": choice("zero", "mean", "median")}

    threshold_: Floats

    def __init__(self, n_bits: int = 32, *, threshold: str = "zero", normalize: bool = False) -> None:
        self.n_bits = n_bits
        self.threshold = threshold
        self.normalize = normalize

    def _unused(self) -> dict[str, str]:
        return {"normalize": "for threshold='zero': length does not change signs"} if self.threshold == "zero" else {}

    def _warn_degenerate(self, X: Array) -> None:
        if self.threshold != "zero":
            super()._warn_degenerate(X)
        elif all(((X[rows, : self.n_bits_] >= 0) == (X[0, : self.n_bits_] >= 0)).all() for rows in row_blocks(X)):
            message = f"no feature changes its sign in the {len(X)} samples: all of them get the same code."
            warnings.warn(f"{message} threshold='mean' gives others.", UserWarning, stacklevel=3)

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        match self.threshold:
            case "zero":
                self.threshold_ = np.zeros(X.shape[1])
            case "mean":
                self.threshold_ = X.mean(axis=0, dtype=np.float64)
            case _:
                step = -(-len(X) // _MEDIAN_SAMPLES)
                self.threshold_ = np.median(np.asarray(X[::step]), axis=0).astype(np.float64)

    def _encoder_steps(self) -> list[Step]:
        D, L = len(self.threshold_), self.n_bits_
        return [Center(self.threshold_), *([Affine(np.eye(D, L))] if L < D else [])]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        return {"threshold_": (n_features,)}
