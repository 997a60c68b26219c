"""Where the training of a network starts.

- ``"eigen"``, the paper's: weights are the leading eigenvectors of the covariance of each layer's input, biases 0.
- ``"second-moment"``, from the authors' later code: the same for the second moment, which includes the mean.
- ``"itq"``, ours: a network whose codes are nearly those of ITQ. One unit of each hidden layer stands for one bit, with
  a steep sigmoid of the ITQ projection; the others take the leading eigenvectors; the last layer is a ridge regression
  to the codes. It leaves L-BFGS little to do in its first step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hashlearn._arrays import Array, Floats, Signs
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._linear import principal_directions
from hashlearn.hashers._network import Layer, Network, flatten

INITS = ("eigen", "second-moment", "itq")
# The slope of a bit's unit, in standard deviations of the ITQ projections; and in the hidden layers after the first.
_STEEP, _STEEP_AGAIN = 4.0, 4.0


def eigen_layers(
    rows: Rows, sizes: Sequence[int], rng: np.random.Generator, covariance: Floats, *, center: bool = True
) -> list[Layer]:
    """Each layer's weights the leading eigenvectors of its input's covariance (of X: ``covariance``), biases 0.

    A layer wider than its input has no more eigenvectors: the weights of the units beyond are random, of unit length.
    """
    layers: list[Layer] = []
    for t in sizes[1:]:
        if layers:
            covariance = _covariance(rows, layers, center=center)[1]
        layers.append(Layer(_directions(covariance, t, rng), np.zeros(t)))
    return layers


def itq_layers(
    rows: Rows,
    sizes: Sequence[int],
    rng: np.random.Generator,
    mean: Floats,
    covariance: Floats,
    components: Floats,
    B: Signs,
    penalty: float,
) -> list[Layer]:
    """A network whose outputs are close to the codes ``B`` that ITQ's ``components`` (D, L) give.

    ``mean``, ``covariance``: of the rows. ``penalty``: the weight of ‖W‖² beside ‖H − B‖²/m in the last layer. A hidden
    layer of fewer than L units can't hold a unit for each bit.
    """
    L = sizes[-1]
    spread = np.sqrt(np.einsum("ik,ij,jk->", components, covariance, components) / L) or 1.0
    bits = components * (_STEEP / spread)
    layers: list[Layer] = []
    for t in sizes[1:-1]:
        if layers:
            mean, covariance = _covariance(rows, layers)
            # Of sigmoids near 0 and 1: from −1 to 1.
            bits = 2 * _STEEP_AGAIN * np.eye(len(mean), L)
            covariance[:L] = covariance[:, :L] = 0
        W = np.hstack([bits, _directions(covariance, t - L, rng)])
        layers.append(Layer(W, -mean @ W))
    layers.append(_regression(rows, layers, B, penalty))
    return layers


def _directions(covariance: Floats, n: int, rng: np.random.Generator) -> Floats:
    s = len(covariance)
    W = principal_directions(covariance, min(n, s))
    beyond = rng.standard_normal((s, n - W.shape[1]))
    return np.hstack([W, beyond / np.linalg.norm(beyond, axis=0)])


def _hidden_part(rows: Rows, layers: Sequence[Layer]) -> tuple[Network, list[Layer]]:
    """Return the network that ends with the last of these hidden layers, and its layers in the type of the rows."""
    network = Network((rows.shape[1], *(len(layer.c) for layer in layers)), output="sigmoid")
    return network, network.cast(flatten(layers), rows.dtype) if layers else []


def _covariance(rows: Rows, layers: Sequence[Layer], *, center: bool = True) -> tuple[Floats, Floats]:
    """Return mean (s,) and covariance (s, s) of the outputs of the last of these hidden layers."""
    hidden, weights = _hidden_part(rows, layers)

    def part(block: slice, X: Array) -> tuple[Floats, Floats]:
        S = hidden.outputs(weights, X)
        S -= 0.5  # sigmoids of small inputs are near 0.5, and beside it their small differences would be lost
        return S.sum(axis=0, dtype=np.float64), (S.T @ S).astype(np.float64)

    mean, second = (total / len(rows) for total in rows.total(part))
    covariance = second - np.outer(mean, mean)
    mean = mean + 0.5
    return mean, covariance if center else covariance + np.outer(mean, mean)


def _regression(rows: Rows, layers: Sequence[Layer], B: Signs, penalty: float) -> Layer:
    """The last layer: W, c that minimize ‖S W + 1 c − B‖²/m + penalty ‖W‖², S the outputs of the layer before."""
    hidden, weights = _hidden_part(rows, layers)

    def part(block: slice, X: Array) -> tuple[Floats, Floats]:
        S = hidden.outputs(weights, X) if weights else X
        S = np.hstack([S, np.ones((len(S), 1), dtype=S.dtype)])
        return (S.T @ S).astype(np.float64), (S.T @ B[block].astype(S.dtype)).astype(np.float64)

    SS, SB = (total / len(rows) for total in rows.total(part))
    # The bias is not penalized; the least penalty keeps outputs that never vary from making it singular.
    ridge = np.full(len(SS), max(penalty, 1e-9))
    ridge[-1] = 0
    solution = np.linalg.solve(SS + np.diag(ridge), SB)
    return Layer(solution[:-1], solution[-1])
