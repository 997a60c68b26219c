"""Linear hash functions, sgn((x − mean) W), and the principal directions of data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.hashers._steps import Affine, Center, Step
from hashlearn.hashers.base import Hasher, compute_type, row_blocks
from hashlearn.threads import ThreadMap, cores

# Sums of products that are taken apart.
_PARTS = 16


class LinearHasher(Hasher):
    """A method whose learned state is ``mean_`` (n_features,) and ``components_`` (n_features, n_bits), float64."""

    mean_: NDArray[np.float64]
    components_: NDArray[np.float64]

    def _project(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(centred(X, self.mean_) @ self.components_.astype(compute_type(X.dtype)))

    def _steps(self) -> list[Step]:
        return [Center(self.mean_), Affine(self.components_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        return {"mean_": (n_features,), "components_": (n_features, n_bits)}


def centred(X: NDArray[Any], mean: NDArray[np.float64]) -> NDArray[Any]:
    """X − mean, in the type that the products are computed in. Before the product, so that no digits cancel in it."""
    dtype = compute_type(X.dtype)
    return np.asarray(np.subtract(X, mean.astype(dtype), dtype=dtype))


def parts_of(X: NDArray[Any]) -> list[list[slice]]:
    """The blocks of rows of X in at most ``_PARTS`` parts, each to be summed apart."""
    blocks = list(row_blocks(X))
    n = min(len(blocks), _PARTS)
    return [blocks[len(blocks) * i // n : len(blocks) * (i + 1) // n] for i in range(n)]


def mean_and_covariance(X: NDArray[Any], threads: ThreadMap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean (D,) and covariance (D, D; divided by m) in two passes; a block's products in its type, sums in float64.

    Parts of the blocks are summed apart and then added in order, so that the number of threads changes no digit: as
    many at a time as there are cores, since each is as large as the result.
    """
    m, D = X.shape
    parts = parts_of(X)

    def total(part: list[slice]) -> NDArray[np.float64]:
        result = np.zeros(D)
        for rows in part:
            result += X[rows].sum(axis=0, dtype=np.float64)
        return result

    def products(part: list[slice]) -> NDArray[np.float64]:
        result = np.zeros((D, D))
        for rows in part:
            V = centred(X[rows], mean)
            with np.errstate(over="ignore", invalid="ignore"):  # seen below
                result += V.T @ V
        return result

    mean: NDArray[np.float64] = sum(threads(total, parts), np.zeros(D)) / m
    covariance = np.zeros((D, D))
    for start in range(0, len(parts), cores()):
        for product in threads(products, parts[start : start + cores()]):
            covariance += product
    covariance /= m
    check_squares(X, float(np.trace(covariance)))
    return mean, covariance


def check_squares(X: NDArray[Any], square: float) -> None:
    """Refuse data whose squares, ``square`` a sample on average, overflow or vanish in the type that is computed in."""
    kind = compute_type(X.dtype)
    if not np.isfinite(square):
        raise ValueError(f"X has values whose squares are beyond {kind.__name__}; divide it first.")
    if square < 1e3 * X.shape[1] * np.finfo(kind).tiny and np.any(X[0] != X):
        raise ValueError(f"X has values whose squares vanish in {kind.__name__}; multiply it first.")


def principal_directions(covariance: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """The ``n`` eigenvectors (D, n) with the largest eigenvalues, largest first.

    An eigenvector's sign is arbitrary: its largest entry is made positive, so that the answer is reproducible.
    """
    from scipy.linalg import eigh

    D = len(covariance)
    if n == 0:
        return np.empty((D, 0))
    _, vectors = eigh(covariance, subset_by_index=[D - n, D - 1])
    W: NDArray[np.float64] = vectors[:, ::-1]
    largest = np.take_along_axis(W, np.abs(W).argmax(axis=0)[None], axis=0)
    return np.ascontiguousarray(W * np.where(largest < 0, -1.0, 1.0))
