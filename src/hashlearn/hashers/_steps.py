"""An encoder as a list of plain steps: what other formats (:mod:`hashlearn.interchange`) are written from.

A step says what is made of the rows Y that the one before gave; the first gets the vectors, the last gives the values
whose signs are the bits. Arrays are float64: whoever computes in another type rounds each of them once.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from numpy.typing import NDArray

Array = NDArray[Any]


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

    function: Literal["sigmoid", "tanh", "cos"]


class UnitLength(NamedTuple):
    """Rows of unit length; zeros stay zeros. Divided by the largest of |y| first, then by the length."""


class Gaussian(NamedTuple):
    """exp(min(Y A − ‖y‖² / bandwidth + c, 0)): the kernel exp(−‖y − anchor‖² / bandwidth) of each anchor.

    A is 2 anchorᵀ / bandwidth, c is −‖anchor‖² / bandwidth. ‖y‖² is summed in float64; where it overflows, 0.
    """

    A: Array  # (s, t)
    c: Array  # (t,)
    bandwidth: float


class Spheres(NamedTuple):
    """thresholds − (‖y‖² − 2 yᵀ pivot): 0 or more inside a sphere.

    ‖y‖² is summed in float64; where the result is not finite, the least number of the type.
    """

    pivots: Array  # (t, s)
    thresholds: Array  # (t,)


class Margins(NamedTuple):
    """b values for each of some runs of 2^b columns, whose signs are the bits of the number of the least in the run.

    A bit's value is the least of the columns that have 0 there less the least of those that have 1. Of equal columns
    the first counts: a value of 0 whose bit is 0 there is made the largest negative number (without leading zeros).
    """

    runs: int
    b: int


Step: TypeAlias = Center | Affine | Scale | Activation | UnitLength | Gaussian | Spheres | Margins
