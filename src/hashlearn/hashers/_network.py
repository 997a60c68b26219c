"""A network that turns vectors into real-valued codes: layers and activations, forward and backward.

:class:`Network` says what the layers are; its parameters are one vector theta. An objective that depends on the outputs
H only through a few small sums, :class:`Sums`, is evaluated by :class:`Evaluation` in

1. a map over blocks: the outputs of a block and its sums (:func:`measure`),
2. a reduction of the sums, the objective's own, to its value and to ∂J/∂H in the form of a :class:`Slope`,
3. a map over blocks: ∂J/∂H of a block, sent back through the layers (:func:`slope_gradient`).

Both maps take and return plain arrays; nothing as large as the number of samples squared is made.

=======  ============  =====================================================================
symbol   shape         meaning
=======  ============  =====================================================================
X        (m, D)        vectors, as the network takes them (centered and scaled)
W, c     (s, t), (t,)  weights and biases of a layer from s to t units
V        (D, L)        weights of the linear skip, if there is one
S        (m, s)        outputs of a hidden layer: its activation of input W + 1 c
H        (m, L)        outputs: those of the last layer, plus X V
B        (m, L)        codes, ±1, or None: the objective reads X itself
y        (m,)          classes 0 … c − 1, or None: one class
Delta    (m, s)        ∂J/∂(input W + 1 c) of a layer
=======  ============  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers.steps import ACTIVATIONS

R = TypeVar("R")


class Layer(NamedTuple):
    """Weights (s, t) and biases (t,); of a linear skip, weights and no biases (0,)."""

    W: Array
    c: Array


@dataclass(frozen=True)
class Network:
    """Layers of units, the first as wide as a vector and the last as wide as a code.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of units, D to L.
    activation : {"sigmoid", "tanh", "relu"}
        Of the hidden layers.
    output : same, or None
        Of the last layer; None: it is linear.
    skip : bool
        Whether a linear function of X is added to the outputs of the last layer, which must be linear then.
    """

    sizes: Sequence[int]
    activation: Literal["sigmoid", "tanh", "relu"] = "sigmoid"
    output: Literal["sigmoid", "tanh", "relu"] | None = None
    skip: bool = False

    def __post_init__(self) -> None:
        if self.skip and self.output is not None:
            raise ValueError(f"a network with a skip must have a linear output; got {self.output!r}.")

    def layers(self, theta: Array) -> list[Layer]:
        """Return the layers whose parameters are ``theta`` (views, not copies); a skip is the last of them."""
        layers, start = [], 0
        shapes = [(s, t, t) for s, t in pairwise(self.sizes)]
        if self.skip:
            shapes.append((self.sizes[0], self.sizes[-1], 0))
        for s, t, biases in shapes:
            end = start + s * t
            layers.append(Layer(theta[start:end].reshape(s, t), theta[end : end + biases]))
            start = end + biases
        return layers

    def cast(self, theta: Floats, dtype: type[np.floating[Any]]) -> list[Layer]:
        """Return the layers in the type that rows are computed in."""
        with np.errstate(over="ignore", invalid="ignore"):  # of weights that have run away
            return self.layers(theta.astype(dtype))

    def forward(self, layers: Sequence[Layer], X: Array, out: Sequence[Array] | None = None) -> list[Array]:
        """Return the outputs of each layer for a block of rows, the last of them H; ``out``: arrays to use for them."""
        depth = len(self.sizes) - 1
        outputs = [np.empty((len(X), t), dtype=X.dtype) for t in self.sizes[1:]] if out is None else list(out)
        S = X
        for i, (layer, output) in enumerate(zip(layers[:depth], outputs, strict=True), 1):
            np.matmul(S, layer.W, out=output)
            output += layer.c
            function = self.activation if i < depth else self.output
            if function is not None:
                ACTIVATIONS[function](output)
            S = output
        if self.skip:
            S += X @ layers[-1].W
        return outputs

    def outputs(self, layers: Sequence[Layer], X: Array) -> Array:
        """Return H of a block of rows."""
        return self.forward(layers, X)[-1]

    def backward(self, layers: Sequence[Layer], X: Array, outputs: Sequence[Array], Delta: Array) -> Floats:
        """Return a block's part of the gradient, as theta is, from ``Delta`` = ∂J/∂H. Uses up Delta and the outputs.

        Δ ← Δ ⊙ (derivative of the activation), then Δ Wᵀ for the layer before.
        """
        depth = len(self.sizes) - 1
        gradient = np.empty(sum(W.size + c.size for W, c in layers))
        slopes = self.layers(gradient)
        if self.skip:
            slopes[-1].W[...] = X.T @ Delta
        ones = np.ones(len(X), dtype=X.dtype)
        inputs = (X, *outputs[:-1])
        for i in reversed(range(depth)):
            function = self.activation if i < depth - 1 else self.output
            if function is not None:
                _times_derivative(Delta, function, outputs[i])
            slopes[i].c[...] = ones @ Delta
            slopes[i].W[...] = inputs[i].T @ Delta
            if i:
                Delta = Delta @ layers[i].W.T
        return gradient


def flatten(layers: Sequence[Layer]) -> Floats:
    """Return all parameters as one vector, float64: W₁, c₁, W₂, c₂, …"""
    return np.concatenate([np.ravel(part) for layer in layers for part in layer]).astype(np.float64)


def _times_derivative(Delta: Array, function: str, S: Array) -> None:
    """Multiply Delta by the derivative of an activation, computed from its outputs S, which are used up."""
    if function == "sigmoid":  # S (1 − S)
        Delta *= S
    elif function == "tanh":  # 1 − S²
        S *= S
    else:  # relu
        Delta *= S > 0
        return
    np.subtract(1, S, out=S)
    Delta *= S


class Sums(NamedTuple):
    """What an objective needs to know of the outputs; adds up over blocks."""

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


def measure(H: Array, block: Block, n_classes: int) -> Sums:
    """Return the sums of a block; in float64 where differences of them count: classes, no codes."""
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


def slope_gradient(
    network: Network, layers: Sequence[Layer], block: Block, outputs: Sequence[Array], slope: Slope
) -> Floats:
    """Return a block's part of the gradient from the slope of the objective; uses up the outputs."""
    H = outputs[-1]
    dtype = H.dtype
    Delta = H @ slope.A.astype(dtype)
    Delta += slope.T.astype(dtype)[0 if block.y is None else block.y]
    if slope.C is not None:
        Delta += block.X @ slope.C.astype(dtype)
    if block.B is not None:
        pull = block.B.astype(dtype)
        pull *= dtype.type(slope.b)
        Delta += pull
    return network.backward(layers, block.X, outputs, Delta)


class Evaluation:
    """Values and gradients of objectives of :class:`Sums`, over all rows.

    Outputs of the layers are kept between the two maps if the rows are in memory. If rows are read from a file each
    time, the outputs are computed again too.
    """

    def __init__(self, network: Network, rows: Rows) -> None:
        self.network, self.rows = network, rows
        # Outputs of each block, by its first row. A block gets its own back at the next evaluation, to overwrite them:
        # new memory costs time. It makes new ones if it gets none.
        self._outputs: dict[int, list[Array]] = {}

    def __call__(
        self,
        theta: Floats,
        reduce: Callable[[Sums], tuple[R, Slope]],
        B: Array | None,
        y: Array | None = None,
        c: int = 1,
    ) -> tuple[R, Floats]:
        """Return the value that ``reduce`` makes of the sums, and the gradient (as theta) by its slope."""
        network, rows = self.network, self.rows
        layers, keep = network.cast(theta, rows.dtype), not rows.streamed

        def block(part: slice, X: Array) -> Block:
            return Block(X, None if B is None else B[part], None if y is None else y[part])

        def first(part: slice, X: Array, out: list[Array] | None) -> tuple[Any, ...]:
            outputs = network.forward(layers, X, out)
            return [(part.start, outputs)] if keep else [], *measure(outputs[-1], block(part, X), c)

        def second(part: slice, X: Array, outputs: list[Array] | None) -> tuple[Floats]:
            outputs = network.forward(layers, X) if outputs is None else outputs
            return (slope_gradient(network, layers, block(part, X), outputs, slope),)

        kept, *sums = rows.total_beside(first, self._outputs)
        self._outputs = dict(kept)
        value, slope = reduce(Sums(*sums))
        (gradient,) = rows.total_beside(second, self._outputs)
        return value, gradient


def evaluate_batch(
    network: Network,
    rows: Rows,
    numbers: Indices,
    theta: Array,
    reduce: Callable[[Sums], tuple[R, Slope]],
    B: Array,
    y: Array | None = None,
    c: int = 1,
) -> tuple[R, Floats]:
    """Return an estimate of what :class:`Evaluation` does, from the rows with these numbers.

    Their sums, multiplied such that they stand for all rows, take the place of the sums over all rows.
    """
    factor = len(rows) / len(numbers)

    def of_all(sums: Sums) -> tuple[R, Slope]:
        gram, class_sums, agreement, cross = sums
        return reduce(Sums(factor * gram, factor * class_sums, factor * agreement, factor * cross))

    classes = None if y is None else y[numbers]
    value, gradient = Evaluation(network, rows.batch(numbers))(theta, of_all, B[numbers], classes, c)
    gradient *= factor
    return value, gradient
