"""Linear hash functions, sgn((x − mean) W), and the principal directions of data."""

from __future__ import annotations

import numpy as np

from hashlearn._arrays import Array, Floats
from hashlearn.hashers._blocks import in_parts, row_blocks, total
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Affine, Center, Step, center, compute_type
from hashlearn.threads import ThreadMap


class LinearHasher(Hasher):
    """A method that learns ``mean_`` (n_features,) and ``components_`` (n_features, n_bits), float64."""

    mean_: Floats
    components_: Floats

    def _encoder_steps(self) -> list[Step]:
        return [Center(self.mean_), Affine(self.components_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        return {"mean_": (n_features,), "components_": (n_features, n_bits)}


def mean_and_covariance(X: Array, threads: ThreadMap) -> tuple[Floats, Floats]:
    """Return mean (D,) and covariance (D, D; divided by m), in two passes.

    The products of a block are computed in its type, their sums in float64.
    """
    m, parts = len(X), in_parts(row_blocks(X))
    (sums,) = total(lambda rows: (X[rows].sum(axis=0, dtype=np.float64),), parts, threads)
    mean: Floats = sums / m

    def products(rows: slice) -> tuple[Floats]:
        V = center(X[rows], mean)
        with np.errstate(over="ignore", invalid="ignore"):  # noticed below
            return ((V.T @ V).astype(np.float64),)

    (covariance,) = total(products, parts, threads, large=True)
    covariance /= m
    check_squares(X, float(np.trace(covariance)))
    return mean, covariance


def check_squares(X: Array, square: float) -> None:
    """Raise a ValueError if squares, on average ``square`` a sample, overflow or vanish in the type of the products."""
    kind = compute_type(X.dtype)
    if not np.isfinite(square):
        raise ValueError(f"X has values whose squares are beyond {kind.__name__}; divide it first.")
    if square < 1e3 * X.shape[1] * np.finfo(kind).tiny and np.any(X[0] != X):
        raise ValueError(f"X has values whose squares vanish in {kind.__name__}; multiply it first.")


def principal_directions(covariance: Floats, n: int) -> Floats:
    """Return the ``n`` eigenvectors (D, n) with the largest eigenvalues, largest first.

    The sign of an eigenvector is arbitrary: its largest entry is made positive, so that the result is reproducible.
    """
    from scipy.linalg import eigh

    D = len(covariance)
    if n == 0:
        return np.empty((D, 0))
    _, vectors = eigh(covariance, subset_by_index=[D - n, D - 1])
    W: Floats = vectors[:, ::-1]
    largest = np.take_along_axis(W, np.abs(W).argmax(axis=0)[None], axis=0)
    return np.ascontiguousarray(W * np.where(largest < 0, -1.0, 1.0))
