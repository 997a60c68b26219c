"""The network that turns vectors into real-valued codes, and its gradient, as two maps over blocks of rows.

Layers of sigmoid units, the last one linear, so that H = h(X) and the codes are sgn(H). An objective may depend on the
codes through H in any way that can be told from a few small sums, :class:`Sums`. Its value and gradient then take

1. a map: each block's H and its sums (:func:`measure`),
2. a reduction of the sums, the objective's own, to its value and to ∂J/∂H in the form of a :class:`Slope`,
3. a map: each block's ∂J/∂H, pushed back through the layers (:func:`push_back`).

Both maps are functions of the parameters and one block; nothing as large as the number of samples squared is made.

=======  ============  =====================================================================
symbol   shape         meaning
=======  ============  =====================================================================
X        (m, D)        vectors, as the network takes them (centred and scaled)
W, c     (s, t), (t,)  weights and biases of a layer from s to t units
S        (m, s)        outputs of a hidden layer, the sigmoid of its input Z
H        (m, L)        outputs
B        (m, L)        codes, ±1, or None: the objective reads X itself
y        (m,)          classes 0 … c − 1, or None: one class
Delta    (m, s)        ∂J/∂Z of a layer
=======  ============  =====================================================================

The signs in 1/(1 + exp(−Z)) go into the weights once for each set of parameters (:func:`fold`), not into the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hashlearn.hashers._rows import Rows

R = TypeVar("R")
Array = NDArray[Any]
Floats = NDArray[np.float64]


class Layer(NamedTuple):
    """Weights (s, t) and biases (t,)."""

    W: Array
    c: Array


class Sums(NamedTuple):
    """What an objective is told of the outputs; adds up over blocks."""

    gram: Floats  #: HᵀH (L, L)
    class_sums: Floats  #: YᵀH (c, L), the sum of H over each class
    agreement: float  #: ⟨H, B⟩
    cross: Any = 0.0  #: HᵀX (L, D), if there is no B


class Slope(NamedTuple):
    """∂J/∂H = H A + T[y] + b B + X C."""

    A: Floats  # (L, L)
    T: Floats  # (c, L)
    b: float
    C: Floats | None = None  # (D, L); None: 0


class Block(NamedTuple):
    """Rows of the training data."""

    X: Array
    B: Array | None
    y: Array | None


def flatten(layers: Sequence[Layer]) -> Floats:
    """All parameters as one vector, float64: W₁, c₁, W₂, c₂, …"""
    return np.concatenate([np.ravel(part) for layer in layers for part in layer]).astype(np.float64)


def layers_of(theta: Floats, sizes: Sequence[int]) -> list[Layer]:
    """The layers whose parameters are ``theta``: views, not copies."""
    layers, start = [], 0
    for s, t in pairwise(sizes):
        layers.append(Layer(theta[start : start + s * t].reshape(s, t), theta[start + s * t : start + (s + 1) * t]))
        start += (s + 1) * t
    return layers


class Folded(NamedTuple):
    """A layer as the rows use it, in their type: exp(X W + c) is exp(−Z) if it is hidden, X W + c is Z if not."""

    W: Array
    c: Array
    hidden: bool


def fold(layers: Sequence[Layer], dtype: type[np.floating[Any]], *, all_hidden: bool = False) -> list[Folded]:
    """The layers for :func:`forward`; all but the last are hidden, or all."""
    folded = [Folded(-W.astype(dtype), -c.astype(dtype), hidden=True) for W, c in layers]
    if layers and not all_hidden:
        W, c = layers[-1]
        folded[-1] = Folded(W.astype(dtype), c.astype(dtype), hidden=False)
    return folded


def forward(layers: Sequence[Folded], X: Array, out: Sequence[Array]) -> Array:
    """Fill ``out`` with the outputs of each layer for a block of rows; gives the last, H."""
    with np.errstate(over="ignore"):  # exp(−Z) = ∞ is a sigmoid of 0
        for (W, c, hidden), S in zip(layers, out, strict=True):
            np.matmul(X, W, out=S)
            S += c
            if hidden:
                np.exp(S, out=S)
                S += 1
                np.reciprocal(S, out=S)
            X = S
    return X


def measure(H: Array, block: Block, n_classes: int) -> Sums:
    """The sums of a block whose outputs are ``H``; in float64 where their differences count: classes, no codes."""
    cross = (H.T @ block.X).astype(np.float64) if block.B is None else 0.0
    if block.y is not None or block.B is None:
        H = H.astype(np.float64)
    gram = (H.T @ H).astype(np.float64)
    if block.y is None:
        class_sums = np.ones(len(H), dtype=H.dtype) @ H
        class_sums = class_sums[None]
    else:
        class_sums = _one_hot(block.y, n_classes, H.dtype).T @ H
    agreement = 0.0 if block.B is None else float(np.vdot(H, block.B.astype(H.dtype)))
    return Sums(gram, class_sums.astype(np.float64), agreement, cross)


def _one_hot(y: Array, n_classes: int, dtype: Any) -> Any:
    """(rows, c), sparse."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(y), dtype=dtype), y, np.arange(len(y) + 1)), shape=(len(y), n_classes))


def push_back(
    layers: Sequence[Folded], block: Block, outputs: Sequence[Array], slope: Slope, gradient: Sequence[Layer]
) -> None:
    """Add a block's part of ∂J/∂W and ∂J/∂c to ``gradient`` (float64); uses up the outputs of the layers.

    Δ of the last layer is ∂J/∂H; before it, Δ ← (Δ Wᵀ) ⊙ S ⊙ (1 − S).
    """
    *hidden, H = outputs
    dtype = H.dtype
    Delta = H @ slope.A.astype(dtype)
    Delta += slope.T.astype(dtype)[0 if block.y is None else block.y]
    if slope.C is not None:
        Delta += block.X @ slope.C.astype(dtype)
    if block.B is not None:
        pull = block.B.astype(dtype)
        pull *= dtype.type(slope.b)
        Delta += pull
    ones = np.ones(len(H), dtype=dtype)
    for layer, slopes, S in zip(reversed(layers), reversed(gradient), (*reversed(hidden), block.X), strict=True):
        slopes.c[...] += ones @ Delta
        slopes.W[...] += S.T @ Delta
        if S is block.X:
            return
        Delta = Delta @ layer.W.T
        Delta *= S
        np.subtract(1, S, out=S)
        if layer.hidden:  # whose folded weights are −W
            np.negative(S, out=S)
        Delta *= S


class Network:
    """The two maps over all rows: an objective's value and gradient.

    Outputs of the layers are kept between the maps if the rows are in memory; if they are read from a file again and
    again, the outputs are computed again too.
    """

    def __init__(self, rows: Rows, sizes: Sequence[int]) -> None:
        self.rows = rows
        self.sizes = tuple(sizes)
        self._keep = not rows.streamed
        kept = len(rows) if self._keep else 0
        self._kept = [np.empty((kept, s), dtype=rows.dtype) for s in self.sizes[1:]]

    def _outputs(self, block: slice) -> list[Array]:
        """Where the outputs of the layers go."""
        if self._keep:
            return [S[block] for S in self._kept]
        return empty_outputs(self.sizes[1:], block.stop - block.start, self.rows.dtype)

    def __call__(
        self,
        theta: Floats,
        reduce: Callable[[Sums], tuple[R, Slope]],
        B: Array | None,
        y: Array | None = None,
        c: int = 1,
    ) -> tuple[R, Floats]:
        """The value that ``reduce`` makes of the sums, and the gradient (as theta) that follows from its slope."""
        layers = fold(layers_of(theta, self.sizes), self.rows.dtype)

        def block_of(rows: slice, X: Array) -> Block:
            return Block(X, None if B is None else B[rows], None if y is None else y[rows])

        def first(rows: slice, X: Array) -> Sums:
            return measure(forward(layers, X, self._outputs(rows)), block_of(rows, X), c)

        def second(shard: list[slice]) -> Floats:
            gradient = np.zeros(len(theta))
            for rows in shard:
                X, outputs = self.rows[rows], self._outputs(rows)
                if not self._keep:
                    forward(layers, X, outputs)
                push_back(layers, block_of(rows, X), outputs, slope, layers_of(gradient, self.sizes))
            return gradient

        value, slope = reduce(Sums(*self.rows.total(first)))
        gradient, *others = self.rows.map(second)
        for other in others:
            gradient += other
        return value, gradient


def empty_outputs(sizes: Sequence[int], n_rows: int, dtype: type[np.floating[Any]]) -> list[Array]:
    return [np.empty((n_rows, s), dtype=dtype) for s in sizes]


def outputs_of(layers: Sequence[Folded], X: Array) -> Array:
    """The last layer's outputs for a block of rows, in new arrays."""
    return forward(layers, X, empty_outputs([len(layer.c) for layer in layers], len(X), X.dtype.type))
