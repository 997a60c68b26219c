"""Deep Hashing (DH), unsupervised.

V. E. Liong, J. Lu, G. Wang, P. Moulin, J. Zhou, "Deep hashing for compact binary codes learning", CVPR 2015. A network
of tanh units, the last layer's too, whose outputs' signs are the codes; gradient descent on

    min_{W, c}  J =  1/(2m) ‖B − H‖²                quantization, B = sgn(H)
                   − λ₁/(2m) ‖H‖²                   variance of the outputs, which stands for balanced bits
                   + λ₂/2 Σ ‖WᵀW − I‖²              orthogonality, which stands for independent bits
                   + λ₃/2 Σ (‖W‖² + ‖c‖²)           size of the weights and biases.

=======  ============  =====================================================================
symbol   shape         meaning
=======  ============  =====================================================================
X        (m, D)        training data, centered and scaled
W, c     (s, t), (t,)  weights and biases of a layer from s to t units
S        (m, t)        outputs of a layer, tanh(input W + 1 c)
H        (m, L)        outputs of the last layer
B        (m, L)        codes
Delta    (m, t)        m ∂J/∂Z of a layer, Z = input W + 1 c
η                      ``learning_rate``
=======  ============  =====================================================================

Each iteration sets B = sgn(H), which makes the first term least for this H, and (W, c) ← (W, c) − η ∂J/∂(W, c). It
starts with the principal directions of X in the first layer and slices of the identity in the others, so that bit k is
the sign of the k-th principal component. Nothing is drawn at random.

∂J/∂H = (H − B − λ₁ H)/m needs no sum over the samples: an iteration is one map over blocks of rows, and nothing but X
is kept. Cost: 2mD² for the start; 2m(3 Σ st − D s₁) an iteration, the sum over the layers, s₁ the units of the first.

Samples are rows here and columns in the paper, so that matrices are the transposes of the paper's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hashlearn._arrays import Array, Floats
from hashlearn.codes import signs
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._layered import VARIANCE, LayeredHasher, units_by_length
from hashlearn.hashers._linear import mean_and_covariance, principal_directions
from hashlearn.hashers._network import Layer, Network, flatten
from hashlearn.hashers._optim import Objective, Terms, gradient_descent, lbfgs
from hashlearn.hashers._parameters import Rule, choice, count, number, optional
from hashlearn.progress import progress_bar
from hashlearn.threads import thread_map

# Training has converged if its last step changed the objective by at most this share.
_SETTLED = 0.01
# Units of the two hidden layers by bits: the paper's.
_UNITS = {16: (60, 30), 32: (80, 50), 64: (100, 80)}


class Lambdas(NamedTuple):
    """The weights of the terms, λ₁ … λ₃."""

    variance: float
    orthogonality: float
    weights: float


class DH(LayeredHasher):
    """Deep Hashing: bit k of x is the sign of output k of a network of tanh units.

    Products are computed in float32 if that holds X, else in float64. X is copied once in that type; a memory map that
    is too large for that is read block by block.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code; at most the number of features (the network starts from their principal directions).
    hidden_units : "auto" or list of int, default="auto"
        Units of the hidden layers, first to last; ``"auto"``: the paper's, interpolated between its lengths. No layer
        may have more units than the one before, nor fewer than n_bits: each unit starts from one of the layer before.
    lambda1, lambda2, lambda3 : float
        Weights of the terms: variance, orthogonality, weights. The defaults are the paper's.
    solver : {"descent", "lbfgs"}, default="descent"
        ``"descent"``: gradient descent, the paper's. ``"lbfgs"``: L-BFGS, which gets lower in as many iterations.
    learning_rate : float, default=0.3
        What the gradient is multiplied by in a step of gradient descent; halved if a step ends above the start.
    max_iter : int, default=10
        Most iterations. At the default rate the objective falls on the whole, but not with every step; and at some
        point more iterations make the codes worse.
    tol : float, default=1e-4
        Gradient descent ends with the first step that lowers the objective by at most this share.
    scale : float or None, default=64.0
        The total variance that X is scaled to after it is centered; None: it is not scaled. It decides how far from
        linear the tanh units are when training starts.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    offset_, scale_ : ndarray
        What is taken off X and what it is divided by.
    W1_, c1_, W2_, ... : ndarray
        Weights and biases of the layers.
    history_ : list of dict
        The objective and its terms, at the start and after each step.
    n_iter_ : int
        Steps taken.
    converged_ : bool
        Whether the last step changed the objective by at most 1 %; if not, there is a warning.
    """

    name = "dh"
    _activation = "tanh"
    _output = "tanh"
    _max_bits_reason = "whose network starts from a principal direction for each bit"
    _parameters: ClassVar[Mapping[str, Rule]] = {
        **{f"lambda{i}": number() for i in range(1, 4)},
        "solver": choice("descent", "lbfgs"),
        "learning_rate": number(above=0),
        "max_iter": count(),
        "tol": number(),
        "scale": optional(VARIANCE),
    }

    history_: list[Terms]

    def __init__(
        self,
        n_bits: int = 32,
        *,
        hidden_units: str | Sequence[int] = "auto",
        lambda1: float = 100.0,
        lambda2: float = 0.001,
        lambda3: float = 0.001,
        solver: str = "descent",
        learning_rate: float = 0.3,
        max_iter: int = 10,
        tol: float = 1e-4,
        scale: float | None = 64.0,
        normalize: bool = False,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden_units = hidden_units
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.solver = solver
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.scale = scale
        self.normalize = normalize
        self.show_progress = show_progress

    def _auto_units(self, n_bits: int, n_features: int) -> tuple[int, ...]:
        return units_by_length(_UNITS, n_bits, n_features)

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        for before, n in pairwise(self._sizes(n_features, self.n_bits)[:-1]):
            if not self.n_bits <= n <= before:
                raise ValueError(
                    f"hidden_units must be at least n_bits ({self.n_bits}) and at most those of the layer before "
                    f"({before}) for DH, whose units start each from one before; got {n}."
                )

    def _unused(self) -> dict[str, str]:
        why = "for solver='lbfgs', which chooses its own steps and its end"
        return {} if self.solver == "descent" else {"learning_rate": why, "tol": why}

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        network, max_iter = self._network(X.shape[1]), int(self.max_iter)
        lambdas = Lambdas(float(self.lambda1), float(self.lambda2), float(self.lambda3))
        with (
            thread_map() as threads,
            progress_bar("DH", max_iter, unit="iterations", show=self.show_progress) as advance,
        ):
            self.offset_, covariance = mean_and_covariance(X, threads)
            spread = np.sqrt(np.trace(covariance) / float(self.scale)) if self.scale is not None else 1.0
            self.scale_ = np.array(spread if spread > 0 else 1.0)  # 0 if all samples are equal
            rows = Rows(X, self.offset_, float(self.scale_), threads)
            theta = flatten(start(covariance, network.sizes))

            def J(theta: Floats) -> tuple[Terms, Floats]:
                return objective(rows, network, theta, lambdas)

            if self.solver == "descent":
                self.history_ = []
                try:
                    steps = gradient_descent(J, theta, float(self.learning_rate))
                    for at, terms in islice(steps, max_iter + 1):
                        theta = at
                        self.history_.append({"objective": sum(terms.values()), **terms})
                        advance(len(self.history_) > 1)
                        if -float(self.tol) <= _change(self.history_) <= 0:
                            break
                except FloatingPointError as error:
                    raise ValueError(
                        f"DH can't be trained: {error}; make learning_rate, the weights or scale smaller."
                    ) from None
            else:
                theta, self.history_ = _minimize(J, theta, max_iter, advance)
        self._keep_layers(network.layers(theta))
        self.n_iter_ = len(self.history_) - 1
        change = _change(self.history_)
        self.converged_ = abs(change) <= _SETTLED
        if not self.converged_:
            warnings.warn(
                f"DH has not converged: its objective changed by {change:.1%} in the last of its {self.n_iter_} steps "
                f"(max_iter={self.max_iter}).",
                ConvergenceWarning,
                stacklevel=3,
            )

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        return {
            "objective": self.history_[-1]["objective"],
            "iterations": self.n_iter_,
            "converged": self.converged_,
        }


def _change(history: list[Terms]) -> float:
    """Return the relative change of the objective in the last step; infinite before the first."""
    if len(history) < 2:
        return np.inf
    before, now = (record["objective"] for record in history[-2:])
    return (now - before) / max(abs(now), np.finfo(np.float64).tiny)


def _minimize(
    J: Objective, theta: Floats, max_iter: int, advance: Callable[[float], None]
) -> tuple[Floats, list[Terms]]:
    """Minimize J by L-BFGS; return the parameters, and the lowest terms at the start and after each iteration."""
    lowest: Terms = {"objective": np.inf}
    history: list[Terms] = []

    def recorded(theta: Floats) -> tuple[Terms, Floats]:
        nonlocal lowest
        terms, gradient = J(theta)
        value = sum(terms.values())
        if value < lowest["objective"]:
            lowest = {"objective": value, **terms}
        if not history:
            if not np.isfinite(value) or not np.isfinite(gradient).all():
                raise ValueError("DH can't be trained: the objective is not finite; make the weights or scale smaller.")
            history.append(lowest)
        return terms, gradient

    def step(amount: float) -> None:
        if lowest is not history[-1]:
            history.append(lowest)
        advance(amount)

    with np.errstate(over="ignore", invalid="ignore"):  # of weights that run away in a line search
        return lbfgs(recorded, theta, max_iter, step).theta, history


def start(covariance: Floats, sizes: Sequence[int]) -> list[Layer]:
    """Return the first layers: the leading principal directions, then the identity, cut to shape; biases 0."""
    _, first, *_ = sizes
    layers = [Layer(principal_directions(covariance, first), np.zeros(first))]
    return [*layers, *(Layer(np.eye(s, t), np.zeros(t)) for s, t in pairwise(sizes[1:]))]


def objective(rows: Rows, network: Network, theta: Floats, lambdas: Lambdas) -> tuple[Terms, Floats]:
    """Return the terms of J with B = sgn(H), and its gradient."""
    m, (l1, l2, l3) = len(rows), lambdas
    weights = network.cast(theta, rows.dtype)

    def part(_: slice, X: Array) -> tuple[float, float, Floats]:
        with np.errstate(over="ignore", invalid="ignore"):  # per thread
            outputs = network.forward(weights, X)
            H = outputs[-1]
            Delta = H - signs(H).astype(H.dtype)
            error, square = _square(Delta), _square(H)
            Delta -= H.dtype.type(l1) * H
            return error, square, network.backward(weights, X, outputs, Delta)

    error, square, gradient = rows.total(part)
    gradient /= m
    gradient += l3 * theta
    orthogonality = 0.0
    for (W, _), (slope, _) in zip(network.layers(theta), network.layers(gradient), strict=True):
        # ∂/∂W of λ₂/2 ‖WᵀW − I‖² is 2λ₂ W (WᵀW − I)
        E = W.T @ W - np.eye(W.shape[1])
        orthogonality += l2 / 2 * float(np.sum(E * E))
        slope += 2 * l2 * (W @ E)
    terms = {
        "quantization": error / (2 * m),
        "variance": -l1 / (2 * m) * square,
        "orthogonality": orthogonality,
        "weights": l3 / 2 * float(theta @ theta),
    }
    return terms, gradient


def _square(A: Array) -> float:
    return float(np.einsum("ij,ij->", A, A, dtype=np.float64))
