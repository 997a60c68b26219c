"""Spectral Hashing (SH).

Y. Weiss, A. Torralba and R. Fergus, "Spectral hashing", NIPS 2008. Balanced, uncorrelated bits that keep similar
vectors together are, without the rule that they be ±1, the smoothest eigenfunctions of the data's weighted Laplacian.
For data spread evenly over a box along its principal directions these have a formula; the bits are their signs:

    Φ_k(v) = sin(π/2 + kπ (v − a) / (b − a)),    eigenvalue 1 − exp(−(ε²/2) (kπ / (b − a))²).

=======  ========  ==========================================================================
symbol   shape     meaning
=======  ========  ==========================================================================
X        (m, D)    training data; its mean is taken off
P        (D, n)    principal directions of X, largest first; n = min(L, D)
a, b     (n,)      the box: the least and the largest value of XP in each direction
k                  mode, 1, 2, …: half waves along a direction (0, the constant, is left out)
ω        (L,)      kπ / (b − a) of each bit's direction and mode
=======  ========  ==========================================================================

The eigenvalue grows with k / (b − a) whatever ε is, so the L pairs of a direction and a mode with the least ω are the
bits. Cost: 2mD² + 2mDn, and nothing else that grows with m.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import row_blocks
from hashlearn.hashers._linear import mean_and_covariance, principal_directions
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Activation, Affine, Center, Scale, Step, center, compute_type
from hashlearn.threads import ThreadMap, thread_map


class SH(Hasher):
    """Spectral Hashing: bit l of x is the sign of cos(ω_l ((x − mean)ᵀ w_l − a_l)), w_l a principal direction.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code. With more bits than features, directions are used in several modes.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    components_ : ndarray of shape (n_features, n_bits)
        The direction of each bit.
    starts_, frequencies_ : ndarray of shape (n_bits,)
        a and ω of each bit.
    directions_, modes_ : ndarray of shape (n_bits,)
        The number of each bit's direction (0, 1, …) and mode (1, 2, …); only after ``fit``.
    """

    name = "sh"

    mean_: Floats
    components_: Floats
    starts_: Floats
    frequencies_: Floats

    def __init__(self, n_bits: int = 32, *, normalize: bool = False) -> None:
        self.n_bits = n_bits
        self.normalize = normalize

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        L, D = self.n_bits_, X.shape[1]
        with thread_map() as threads:
            self.mean_, covariance = mean_and_covariance(X, threads)
            P = principal_directions(covariance, min(L, D))
            a, b = _box(X, self.mean_, P, threads)
        self.directions_, self.modes_ = _smoothest(_sides(a, b, compute_type(X.dtype)), L)
        self.components_ = np.ascontiguousarray(P[:, self.directions_])
        self.starts_ = a[self.directions_]
        # Mode 0 is there only if all samples are equal.
        sides = np.where(self.modes_ > 0, (b - a)[self.directions_], 1)
        self.frequencies_ = np.pi * self.modes_ / sides

    def _encoder_steps(self) -> list[Step]:
        return [
            Center(self.mean_),
            Affine(self.components_),
            Center(self.starts_),
            Scale(self.frequencies_),
            Activation("cos"),  # sin(π/2 + ·)
        ]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        return {
            "mean_": (n_features,),
            "components_": (n_features, n_bits),
            "starts_": (n_bits,),
            "frequencies_": (n_bits,),
        }


def _box(X: Array, mean: Floats, P: Floats, threads: ThreadMap) -> tuple[Floats, Floats]:
    """a and b (n,): the ends of (X − mean) P in each direction."""

    def ends(rows: slice) -> tuple[Array, Array]:
        V = center(X[rows], mean) @ P.astype(compute_type(X.dtype))
        return V.min(axis=0), V.max(axis=0)

    least, largest = zip(*threads(ends, row_blocks(X)), strict=True)
    return np.min(least, axis=0).astype(np.float64), np.max(largest, axis=0).astype(np.float64)


def _sides(a: Floats, b: Floats, dtype: type[np.floating[Any]]) -> Floats:
    """b − a, and 0 where it is but rounding: values about their mean lie on both sides of 0, equal ones do not."""
    return np.where(b - a > 8 * np.finfo(dtype).eps * np.maximum(np.abs(a), np.abs(b)), b - a, 0.0)


def _smoothest(sides: Floats, L: int) -> tuple[Indices, Indices]:
    """Direction and mode of the ``L`` eigenfunctions of least eigenvalue; ties by direction, then mode.

    A side of length 0 has no modes; if all are, every bit is the constant: direction 0, mode 0.
    """
    wide = np.flatnonzero(sides)
    if wide.size == 0:
        return np.zeros(L, dtype=np.intp), np.zeros(L, dtype=np.intp)
    # No direction gives more than L modes.
    modes = np.tile(np.arange(1, L + 1), wide.size)
    directions = np.repeat(wide, L)
    chosen = np.lexsort((modes, directions, modes / sides[directions]))[:L]
    return directions[chosen], modes[chosen]
