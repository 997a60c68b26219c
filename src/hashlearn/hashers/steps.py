"""An encoder as a list of plain steps, from vectors to the values whose signs are the bits.

Each step says how the rows Y that it receives become the rows of the next step. This is the only description of a
method's encoder: :func:`compile_steps` evaluates it with NumPy, and :mod:`hashlearn.interchange` translates it into
other formats. Arrays are float64, and rounded once if the encoder is computed in another type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array, Signs
from hashlearn.hashers._discrete import anneal

Float = type[np.float32] | type[np.float64]


class Center(NamedTuple):
    """Y − offset."""

    offset: Array  # (s,)


class Affine(NamedTuple):
    """Y W + c."""

    W: Array  # (s, t)
    c: Array | None = None  # (t,); None: 0


class Scale(NamedTuple):
    """Y times a factor for each column."""

    factors: Array  # (s,)


class Activation(NamedTuple):
    """A function of each value."""

    function: Literal["sigmoid", "tanh", "relu", "cos"]


class UnitLength(NamedTuple):
    """Rows of unit length; rows of zeros stay zeros. Rows are divided by their largest |y| first."""


class Gaussian(NamedTuple):
    """exp(min(Y A − ‖y‖² / bandwidth + c, 0)): the kernel exp(−‖y − anchor‖² / bandwidth) with each anchor.

    A is 2 anchorᵀ / bandwidth, c is −‖anchor‖² / bandwidth. ‖y‖² is summed in float64; if it overflows the result is 0.
    """

    A: Array  # (s, t)
    c: Array  # (t,)
    bandwidth: float


class Spheres(NamedTuple):
    """thresholds − (‖y‖² − 2 yᵀ pivot): at least 0 inside a sphere.

    ‖y‖² is summed in float64. A result that is not finite becomes the lowest number of the type.
    """

    pivots: Array  # (t, s)
    thresholds: Array  # (t,)


class Margins(NamedTuple):
    """b values for each of ``runs`` runs of 2^b columns; their signs are the index of the smallest column, in binary.

    The value of a bit is the smallest column whose index has 0 there, less the smallest whose index has 1. If columns
    tie, the first one counts: a value of 0 whose bit is 0 becomes the largest negative normal number.
    """

    runs: int
    b: int


class Descent(NamedTuple):
    """A value for each bit of the code b ∈ {−1, 1}^t with y ≈ b W, whose sign is the bit.

    b has a low ‖r‖² + anisotropy · (r·y)² / ‖y‖², r = y − b W, found by annealed coordinate descent with at most
    ``sweeps`` sweeps over the signs (:func:`._discrete.anneal`). The value is a quarter of how much larger that sum is
    with −1 than with +1 for the bit, with all other bits of b held.
    """

    W: Array  # (t, s)
    anisotropy: float
    sweeps: int


Step: TypeAlias = Center | Affine | Scale | Activation | UnitLength | Gaussian | Spheres | Margins | Descent


def compile_steps(steps: Sequence[Step], dtype: Float) -> Callable[[Array], Array]:
    """Return a function that evaluates the steps, computed in ``dtype``, for a block of rows.

    The first step must be one that makes a new array: some of the others work in place.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # weights beyond the type become infinite
        functions = [_compile(step, dtype) for step in steps]

    def evaluate(Y: Array) -> Array:
        for function in functions:
            Y = function(Y)
        return Y

    return evaluate


def width(steps: Sequence[Step]) -> int:
    """Return the largest number of values that a step makes of one vector."""
    widths = [1]
    for step in steps:
        match step:
            case Affine(W) | Gaussian(W):
                widths.append(W.shape[1])
            case Spheres(pivots):
                widths.append(len(pivots))
            case Descent(W):
                widths.append(len(W))
    return max(widths)


def center(X: Array, offset: Array) -> Array:
    """Return X − offset in the type that products are computed in; before a product, so that no digits cancel in it."""
    dtype = compute_type(X.dtype)
    return np.asarray(np.subtract(X, offset.astype(dtype), dtype=dtype))


def compute_type(dtype: np.dtype[Any]) -> Float:
    """Return float32 if it holds the type without loss, else float64."""
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def _compile(step: Step, dtype: Float) -> Callable[[Array], Array]:
    match step:
        case Center(offset):
            taken_off = offset.astype(dtype)
            return lambda Y: np.subtract(Y, taken_off, dtype=dtype)
        case Affine(W, c):
            return _affine(W.astype(dtype), None if c is None else c.astype(dtype))
        case Scale(factors):
            by = factors.astype(dtype)
            return lambda Y: np.multiply(Y, by, out=Y)
        case Activation(function):
            return ACTIVATIONS[function]
        case UnitLength():
            return unit_rows
        case Gaussian(A, c, bandwidth):
            return _gaussian(A.astype(dtype), c.astype(dtype), dtype(bandwidth))
        case Spheres(pivots, thresholds):
            return _spheres((2 * pivots.T).astype(dtype), thresholds.astype(dtype))
        case Margins(runs, b):
            return lambda Y: margins(Y.T.reshape(runs, 1 << b, len(Y)), b)
        case Descent(W, anisotropy, sweeps):
            return lambda Y: descent(Y, W, anisotropy, sweeps)[1]


def _affine(W: Array, c: Array | None) -> Callable[[Array], Array]:
    def apply(Y: Array) -> Array:
        Z: Array = Y @ W
        if c is not None:
            Z += c
        return Z

    return apply


def sigmoid(Z: Array) -> Array:
    """1 / (1 + exp(−Z)), in place."""
    with np.errstate(over="ignore"):  # exp(−Z) = ∞ is a sigmoid of 0
        np.negative(Z, out=Z)
        np.exp(Z, out=Z)
    Z += 1
    return np.reciprocal(Z, out=Z)


#: Functions of each value, in place.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": sigmoid,
    "tanh": lambda Z: np.tanh(Z, out=Z),
    "relu": lambda Z: np.maximum(Z, 0, out=Z),
    "cos": lambda Z: np.cos(Z, out=Z),
}


def unit_rows(Y: Array) -> Array:
    """Return rows of unit length; rows of zeros stay zeros."""
    largest = np.abs(Y).max(axis=1, keepdims=True)  # first, so that squares neither overflow nor vanish
    Y = Y / np.where(largest > 0, largest, 1)
    length = np.sqrt(np.square(Y).sum(axis=1, keepdims=True, dtype=np.float64)).astype(Y.dtype)
    return np.asarray(Y / np.where(length > 0, length, 1))


def squares(Y: Array) -> Array:
    """Return ‖y‖² of each row, summed in float64, in the type of the rows."""
    return np.asarray(np.square(Y).sum(axis=1, dtype=np.float64).astype(Y.dtype))


def _gaussian(A: Array, c: Array, bandwidth: Any) -> Callable[[Array], Array]:
    def apply(Y: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            K: Array = Y @ A
            lengths = squares(Y)
            far = ~np.isfinite(lengths)  # beyond the type: so is the distance from every anchor
            lengths /= bandwidth
            K -= lengths[:, None]
        K += c
        np.minimum(K, 0, out=K)  # where rounding leaves a distance below 0
        np.exp(K, out=K)
        if far.any():
            K[far] = 0
        return K

    return apply


def _spheres(P: Array, thresholds: Array) -> Callable[[Array], Array]:
    def apply(Y: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            H = thresholds - (squares(Y)[:, None] - Y @ P)
        H[~np.isfinite(H)] = np.finfo(H.dtype).min  # a vector whose squares overflow is far outside every sphere
        return np.asarray(H)

    return apply


def margins(distances: Array, b: int) -> Array:
    """Evaluate :class:`Margins` for columns (runs, 2^b, rows); the result is (rows, runs · b)."""
    runs, _, rows = distances.shape
    values = np.empty((runs, b, rows), dtype=distances.dtype)
    left = distances
    for bit in range(b):  # the most significant first
        zero, one = np.split(left, 2, axis=1)
        np.subtract(zero.min(axis=1), one.min(axis=1), out=values[:, bit])
        left = np.minimum(zero, one)  # over both values of this bit
    p, row = np.nonzero((values == 0).any(axis=1))
    if p.size:
        bits = index_bits(b)[distances[p, :, row].argmin(axis=1)]
        tied = values[p, :, row]
        values[p, :, row] = np.where((tied == 0) & (bits == 0), -np.finfo(tied.dtype).tiny, tied)
    return values.reshape(runs * b, rows).T


def index_bits(b: int) -> NDArray[np.int64]:
    """Return the bits (2^b, b) of the numbers below 2^b, the most significant first."""
    return np.arange(1 << b)[:, None] >> np.arange(b)[::-1] & 1


def descent(Y: Array, W: Array, anisotropy: float, sweeps: int, start: Signs | None = None) -> tuple[Signs, Array]:
    """Evaluate :class:`Descent`, from the codes ``start`` if they are given: the codes and the slopes."""
    Q, V = Y @ W.T.astype(Y.dtype), None
    if anisotropy:
        # (y − bW)(I + η yᵀy/‖y‖²)(y − bW)ᵀ = b(WWᵀ + vᵀv)bᵀ − 2(1 + η) yWᵀbᵀ + …, v = √η yWᵀ/‖y‖
        lengths = np.sqrt(squares(Y))
        V = Q * (np.sqrt(anisotropy) / np.where(lengths > 0, lengths, 1)).astype(Y.dtype)[:, None]
        Q *= Y.dtype.type(1 + anisotropy)
    return anneal(Q, W @ W.T, V, sweeps, start)
