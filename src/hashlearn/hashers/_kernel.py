"""Hash functions on a kernel: bit k of x is the sign of Σ_q κ(x, anchor_q) A_qk + a_k.

=======  ========  ========================================================
symbol   shape     meaning
=======  ========  ========================================================
p                  number of anchors, samples of the training data
Φ        (m, p)    κ(x, anchor): exp(−‖x − anchor‖² / (2σ²)), or xᵀ anchor
A, a     (p, L)    weights, intercept
=======  ========  ========================================================

Φ is made a block of rows at a time, in training as in ``encode``: 2pD + O(p) a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.hashers._linear import centred
from hashlearn.hashers.base import Hasher, compute_type

Array = NDArray[Any]
Floats = NDArray[np.float64]

KERNELS = ("rbf", "linear")


class Kernel:
    """κ of rows with the anchors (p, D), for rows and anchors whose offset is taken off already.

    ``width``: 2σ²; None for the linear kernel. ``unit``: rows are brought to unit length first (anchors are so
    already; a vector of zeros stays one).
    """

    def __init__(self, anchors: Array, width: float | None, dtype: Any, *, unit: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self._width, self._unit = width, unit
        A = np.asarray(anchors, dtype=np.float64)
        if width is not None:
            self._squares = (-np.square(A).sum(axis=1) / width).astype(dtype)
            A = A * (2 / width)
        self._A = np.ascontiguousarray(A.T, dtype=dtype)

    def __call__(self, X: Array) -> Array:
        """Φ (rows, p)."""
        if self._unit:
            X = unit_rows(X)
        with np.errstate(over="ignore", invalid="ignore"):
            K = X @ self._A
            if self._width is None:
                return K
            # −‖x − a‖² / (2σ²) = (2xᵀa − ‖x‖² − ‖a‖²) / (2σ²)
            squares = np.square(X).sum(axis=1, dtype=np.float64).astype(self.dtype)
            far = ~np.isfinite(squares)  # beyond the type: so is the distance from every anchor
            squares /= self.dtype.type(self._width)
            K -= squares[:, None]
        K += self._squares
        np.minimum(K, 0, out=K)  # where rounding leaves a distance below 0
        np.exp(K, out=K)
        if far.any():
            K[far] = 0
        return K


def unit_rows(X: Array) -> Array:
    """Rows of unit length; zeros stay zeros."""
    largest = np.abs(X).max(axis=1, keepdims=True)  # first, so that squares neither overflow nor vanish
    X = X / np.where(largest > 0, largest, 1)
    length = np.sqrt(np.square(X).sum(axis=1, keepdims=True, dtype=np.float64)).astype(X.dtype)
    return np.asarray(X / np.where(length > 0, length, 1))


def mean_square_distance(mean: Floats, square: float, anchors: Floats) -> float:
    """Of all samples from all ``anchors``, by the ``mean`` of the samples and the mean ``square`` of their lengths."""
    return float(square + np.square(anchors).sum(axis=1).mean() - 2 * mean @ anchors.mean(axis=0))


class KernelHasher(Hasher):
    """A method that learns weights of the values of a kernel with some anchors.

    It gives, in ``_fit``: ``offset_`` (n_features,), taken off all vectors; ``anchors_`` (p, n_features), without it;
    ``width_`` (), 2σ², or 0 for the linear kernel; ``weights_`` (p, n_bits); ``intercept_`` (n_bits,).
    """

    #: Whether vectors are brought to unit length; anchors are then stored so.
    _unit = False

    offset_: Floats
    anchors_: Floats
    width_: Floats
    weights_: Floats
    intercept_: Floats

    @property
    def _is_linear(self) -> bool:
        return float(self.width_) == 0

    def _keep_width(self, width: float, dtype: np.dtype[Any]) -> None:
        """2σ², or 1 if that is 0; refused if vectors of this type can't be divided by it."""
        kind = compute_type(dtype)
        width = width if width != 0 else 1.0
        most = float(np.finfo(kind).max) / 8
        if not 1 / most < width < most:
            raise ValueError(f"X, or sigma, has values whose squares {kind.__name__} does not hold; scale it first.")
        self.width_ = np.array(width)

    def _kernel(self, dtype: Any) -> Kernel:
        return Kernel(self.anchors_, None if self._is_linear else float(self.width_), dtype, unit=self._unit)

    def _project(self, X: Array) -> Array:
        return self._projector(X.dtype)(X)

    def _projector(self, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
        kind = compute_type(dtype)
        kernel, A, a = self._kernel(kind), self.weights_.astype(kind), self.intercept_.astype(kind)
        if self._is_linear:  # xᵀ (anchorsᵀ A)
            W = (self.anchors_.T @ self.weights_).astype(kind)
            return lambda X: np.asarray(centred(X, self.offset_) @ W + a)

        def project(X: Array) -> Array:
            H: Array = kernel(centred(X, self.offset_)) @ A
            H += a
            return H

        return project

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int | str, ...]]:
        return {
            "offset_": (n_features,),
            "anchors_": ("anchors", n_features),
            "width_": (),
            "weights_": ("anchors", n_bits),
            "intercept_": (n_bits,),
        }

    @property
    def _width(self) -> int:
        return self.n_bits_ if self._is_linear else max(self.n_bits_, len(self.anchors_))
