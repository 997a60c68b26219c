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

import numpy as np

from hashlearn._arrays import Array, Floats
from hashlearn.hashers._blocks import row_blocks
from hashlearn.hashers._linear import check_squares
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Affine, Center, Gaussian, Step, UnitLength, center, compute_type
from hashlearn.threads import ThreadMap

KERNELS = ("rbf", "linear")


def kernel_steps(anchors: Array, bandwidth: float | None, *, unit: bool = False) -> list[Step]:
    """Return Φ of centered rows as steps.

    Parameters
    ----------
    anchors : ndarray of shape (p, D)
        Centered like the rows; of unit length if rows are brought to unit length.
    bandwidth : float or None
        2σ²; None for the linear kernel.
    unit : bool, default=False
        Whether rows are brought to unit length first (a vector of zeros stays one).
    """
    A = np.asarray(anchors, dtype=np.float64)
    if bandwidth is None:
        kernel: Step = Affine(np.ascontiguousarray(A.T))
    else:
        kernel = Gaussian(
            np.ascontiguousarray((A * (2 / bandwidth)).T), -np.square(A).sum(axis=1) / bandwidth, bandwidth
        )
    return [UnitLength(), kernel] if unit else [kernel]


def mean_square_distance(mean: Floats, square: float, anchors: Floats) -> float:
    """Of all samples from all ``anchors``, by the ``mean`` of the samples and the mean ``square`` of their lengths."""
    return float(square + np.square(anchors).sum(axis=1).mean() - 2 * mean @ anchors.mean(axis=0))


class KernelHasher(Hasher):
    """A method that learns weights of the values of a kernel with some anchors.

    Its ``_fit`` sets ``offset_`` (n_features,), taken off all vectors; ``anchors_`` (p, n_features), without it;
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
        """Set offset_, the mean as the type holds it; return mean and mean square of the samples less offset_."""
        blocks = row_blocks(X)
        sums = threads(lambda rows: np.ascontiguousarray(X[rows]).sum(axis=0, dtype=np.float64), blocks)
        mean = sum(sums, np.zeros(X.shape[1])) / len(X)
        self.offset_ = mean.astype(compute_type(X.dtype)).astype(np.float64)

        def squares(rows: slice) -> float:
            with np.errstate(over="ignore"):  # seen below
                V = np.ascontiguousarray(center(X[rows], self.offset_))
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
        bandwidth, linear = float(self.bandwidth_), self.kernel == "linear"
        if bandwidth < 0 or (bandwidth == 0) != linear:
            raise ValueError(f"bandwidth_ must be {'0' if linear else 'above 0'}; got {bandwidth}")

    def _kernel_steps(self) -> list[Step]:
        return kernel_steps(self.anchors_, None if self._is_linear else float(self.bandwidth_), unit=self._unit)

    def _encoder_steps(self) -> list[Step]:
        if self._is_linear:  # xᵀ (anchorsᵀ A)
            return [Center(self.offset_), Affine(self.anchors_.T @ self.weights_, self.intercept_)]
        return [Center(self.offset_), *self._kernel_steps(), Affine(self.weights_, self.intercept_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int | str, ...]]:
        return {
            "offset_": (n_features,),
            "anchors_": ("anchors", n_features),
            "bandwidth_": (),
            "weights_": ("anchors", n_bits),
            "intercept_": (n_bits,),
        }
