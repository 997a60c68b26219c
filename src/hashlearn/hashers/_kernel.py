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

from hashlearn.hashers._linear import centred, check_squares
from hashlearn.hashers._steps import Affine, Center, Gaussian, Step, UnitLength
from hashlearn.hashers.base import Hasher, compute_type, row_blocks
from hashlearn.threads import ThreadMap

Array = NDArray[Any]
Floats = NDArray[np.float64]

KERNELS = ("rbf", "linear")


class Kernel:
    """κ of rows with the anchors (p, D), for rows and anchors whose offset is taken off already.

    ``bandwidth``: 2σ²; None for the linear kernel. ``unit``: rows are brought to unit length first (anchors are so
    already; a vector of zeros stays one).
    """

    def __init__(self, anchors: Array, bandwidth: float | None, dtype: Any, *, unit: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self._bandwidth, self._unit = bandwidth, unit
        A = np.asarray(anchors, dtype=np.float64)
        if bandwidth is not None:
            self._squares = (-np.square(A).sum(axis=1) / bandwidth).astype(dtype)
            A = A * (2 / bandwidth)
        self._A = np.ascontiguousarray(A.T, dtype=dtype)

    def steps(self) -> list[Step]:
        """Φ in plain steps, but for the linear kernel."""
        assert self._bandwidth is not None
        kernel = Gaussian(self._A, self._squares, self._bandwidth)
        return [UnitLength(), kernel] if self._unit else [kernel]

    def __call__(self, X: Array) -> Array:
        """Φ (rows, p)."""
        if self._unit:
            X = unit_rows(X)
        with np.errstate(over="ignore", invalid="ignore"):
            K = X @ self._A
            if self._bandwidth is None:
                return K
            # −‖x − a‖² / (2σ²) = (2xᵀa − ‖x‖² − ‖a‖²) / (2σ²)
            squares = np.square(X).sum(axis=1, dtype=np.float64).astype(self.dtype)
            far = ~np.isfinite(squares)  # beyond the type: so is the distance from every anchor
            squares /= self.dtype.type(self._bandwidth)
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
    ``bandwidth_`` (), 2σ², or 0 for the linear kernel; ``weights_`` (p, n_bits); ``intercept_`` (n_bits,).
    """

    offset_: Floats
    anchors_: Floats
    bandwidth_: Floats
    weights_: Floats
    intercept_: Floats
    #: A parameter of the methods that have a choice.
    kernel: str = "rbf"

    @property
    def _unit(self) -> bool:
        """Whether vectors are brought to unit length; anchors are so then."""
        return False

    @property
    def _is_linear(self) -> bool:
        return float(self.bandwidth_) == 0

    def _mean_and_square(self, X: Array, threads: ThreadMap) -> tuple[Floats, float]:
        """Set offset_, the mean as the type holds it; gives mean and mean square of the samples less offset_."""
        blocks = list(row_blocks(X))
        sums = threads(lambda rows: np.ascontiguousarray(X[rows]).sum(axis=0, dtype=np.float64), blocks)
        mean = sum(sums, np.zeros(X.shape[1])) / len(X)
        self.offset_ = mean.astype(compute_type(X.dtype)).astype(np.float64)

        def squares(rows: slice) -> float:
            with np.errstate(over="ignore"):  # seen below
                V = np.ascontiguousarray(centred(X[rows], self.offset_))
                return float(np.square(V).sum(axis=1).sum(dtype=np.float64))

        square = sum(threads(squares, blocks)) / len(X)
        check_squares(X, square)
        return mean - self.offset_, square

    def _keep_bandwidth(self, mean: Floats, square: float) -> None:
        """2σ² from the mean squared distance of samples (their ``mean`` and mean ``square``) from the anchors.

        1 if that is rounding beside the squares: all samples are one.
        """
        bandwidth = 2 * mean_square_distance(mean, square, self.anchors_)
        self.bandwidth_ = np.array(bandwidth if bandwidth > 1e-6 * square else 1.0)

    def _check_state(self) -> None:
        found, linear = float(self.bandwidth_), self.kernel == "linear"
        if found < 0 or (found == 0) != linear:
            raise ValueError(f"bandwidth_ must be {'0' if linear else 'above 0'}; got {found}")

    def _kernel(self, dtype: Any) -> Kernel:
        return Kernel(self.anchors_, None if self._is_linear else float(self.bandwidth_), dtype, unit=self._unit)

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

    def _steps(self) -> list[Step]:
        if self._is_linear:
            return [Center(self.offset_), Affine(self.anchors_.T @ self.weights_, self.intercept_)]
        return [Center(self.offset_), *self._kernel(np.float64).steps(), Affine(self.weights_, self.intercept_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int | str, ...]]:
        return {
            "offset_": (n_features,),
            "anchors_": ("anchors", n_features),
            "bandwidth_": (),
            "weights_": ("anchors", n_bits),
            "intercept_": (n_bits,),
        }

    @property
    def _width(self) -> int:
        return self.n_bits_ if self._is_linear else max(self.n_bits_, len(self.anchors_))
