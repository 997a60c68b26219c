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
X        (m, D)        training data, centred and scaled
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
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hashlearn.codes import signs_of
from hashlearn.hashers._lbfgs import Objective, minimise
from hashlearn.hashers._linear import centred, mean_and_covariance, principal_directions
from hashlearn.hashers._network import Layer, flatten, layers_of
from hashlearn.hashers._network_hasher import LayeredHasher, check_variance, units_by_length
from hashlearn.hashers._rows import Rows
from hashlearn.hashers._steps import Activation, Affine, Center, Step
from hashlearn.hashers.base import check_choice, check_count, check_flag, check_weight, compute_type
from hashlearn.progress import progress_bar
from hashlearn.threads import thread_map

Array = NDArray[Any]
Floats = NDArray[np.float64]
Terms = dict[str, float]

# Training has settled if its last step changed the objective by at most this share.
_SETTLED = 0.01
# How often the rate of a step is halved.
_HALVINGS = 60
# Units of the two hidden layers by bits: the paper's.
_UNITS = {16: (60, 30), 32: (80, 50), 64: (100, 80)}


class Lambdas(NamedTuple):
    """The weights of the terms, λ₁ … λ₃."""

    variance: float
    orthogonality: float
    weights: float


class DH(LayeredHasher):
    """Deep Hashing: bit k of x is the sign of output k of a network of tanh units.

    n_bits
        Length of the code; at most the number of features (the network starts from their principal directions).
    hidden_units
        Units of the hidden layers, first to last; ``"auto"``: the paper's, and on a line between the lengths it gives.
        No layer may have more than the one before, nor fewer than n_bits: a unit starts from one of the layer before.
    lambda1, lambda2, lambda3
        Weights of the terms: variance, orthogonality, weights. The paper's.
    solver
        ``"descent"``: gradient descent, the paper's. ``"lbfgs"``: L-BFGS, which gets lower in as many iterations.
    learning_rate
        What the gradient is multiplied by in a step of gradient descent; halved, should a step lead above the start.
    max_iter
        Most iterations. At the default rate the objective falls on the whole, not with every step; and more of them
        make the codes worse at some point.
    tol
        Gradient descent ends before that with a step that lowers the objective by at most this share.
    scale
        The total variance that X is scaled to, after its mean is taken off; None: not at all. It decides how far from
        linear the tanh units are when training starts.
    show_progress
        A progress bar on a terminal: None, as the environment says; True or False, always or never.

    Learned: ``offset_``, ``scale_``; ``W1_``, ``c1_``, ``W2_``, … (the layers); ``history_`` (a dict before the first
    and after each step: the objective and its terms); ``n_iter_``, the steps taken; ``converged_``, whether the last
    changed the objective by at most 1 % (a warning, if not).

    Products are computed in float32 if that holds X, else in float64. X is copied once in that type; a memory map that
    is too large for that is read block by block.
    """

    name = "dh"
    _a_direction_a_bit = "whose network starts from a principal direction for each bit"

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
        for name in ("lambda1", "lambda2", "lambda3", "tol"):
            check_weight(name, getattr(self, name))
        check_weight("learning_rate", self.learning_rate, zero=False)
        check_choice("solver", self.solver, ("descent", "lbfgs"))
        check_count("max_iter", self.max_iter)
        if self.scale is not None:
            check_variance(self.scale)
        check_flag("show_progress", self.show_progress, None)

    def _project(self, X: Array) -> Array:
        return self._projector(X.dtype)(X)

    def _projector(self, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
        layers = _cast(self._scaled_layers, compute_type(dtype))
        return lambda X: _forward(layers, centred(X, self.offset_))[-1]

    def _steps(self) -> list[Step]:
        steps: list[Step] = [Center(self.offset_)]
        for W, c in self._scaled_layers:
            steps += [Affine(W, c), Activation("tanh")]
        return steps

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        self._forget()
        sizes = self._sizes(X.shape[1], self.n_bits_)
        lambdas = Lambdas(float(self.lambda1), float(self.lambda2), float(self.lambda3))
        self.history_ = []
        with (
            thread_map() as threads,
            progress_bar("DH", int(self.max_iter), unit="iterations", show=self.show_progress) as advance,
        ):
            self.offset_, covariance = mean_and_covariance(X, threads)
            spread = np.sqrt(np.trace(covariance) / float(self.scale)) if self.scale is not None else 1.0
            self.scale_ = np.array(spread if spread > 0 else 1.0)  # 0 if all samples are equal
            rows = Rows(X, self.offset_, float(self.scale_), threads)
            theta = flatten(start(covariance, sizes))
            theta = (self._descend if self.solver == "descent" else self._lbfgs)(
                lambda at: objective(rows, at, sizes, lambdas), theta, advance
            )
        self._keep_layers(layers_of(theta, sizes))
        self.n_iter_ = len(self.history_) - 1
        change = _change(self.history_)
        self.converged_ = abs(change) <= _SETTLED
        if not self.converged_:
            warnings.warn(
                f"DH has not settled: its objective changed by {change:.1%} in the last of its {self.n_iter_} steps "
                f"(max_iter={self.max_iter}).",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _descend(self, J: Objective, theta: Floats, advance: Callable[[float], None]) -> Floats:
        """The paper's gradient descent."""
        for at, terms in islice(descend(J, theta, float(self.learning_rate)), int(self.max_iter) + 1):
            theta = at
            self.history_.append({"objective": sum(terms.values()), **terms})
            advance(len(self.history_) > 1)
            if -float(self.tol) <= _change(self.history_) <= 0:
                break
        return theta

    def _lbfgs(self, J: Objective, theta: Floats, advance: Callable[[float], None]) -> Floats:
        """L-BFGS: the lowest that each iteration has come to is a step."""
        lowest: Terms = {"objective": np.inf}

        def noted(theta: Floats) -> tuple[Terms, Floats]:
            nonlocal lowest
            terms, gradient = J(theta)
            value = sum(terms.values())
            if value < lowest["objective"]:
                lowest = {"objective": value, **terms}
            if not self.history_:
                _check_finite(value, gradient)
                self.history_.append(lowest)
            return terms, gradient

        def step(amount: float) -> None:
            if lowest is not self.history_[-1]:
                self.history_.append(lowest)
            advance(amount)

        return minimise(noted, theta, int(self.max_iter), step).theta

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        return {
            "objective": self.history_[-1]["objective"],
            "iterations": self.n_iter_,
            "converged": self.converged_,
        }


def _change(history: list[Terms]) -> float:
    """By what share the objective changed in the last step, negative if it fell; infinite before the first."""
    if len(history) < 2:
        return np.inf
    before, now = (record["objective"] for record in history[-2:])
    return (now - before) / max(abs(now), np.finfo(np.float64).tiny)


def start(covariance: Floats, sizes: Sequence[int]) -> list[Layer]:
    """The first layer the leading principal directions, the others the identity, cut to their shape; biases 0."""
    _, first, *_ = sizes
    layers = [Layer(principal_directions(covariance, first), np.zeros(first))]
    return [*layers, *(Layer(np.eye(s, t), np.zeros(t)) for s, t in pairwise(sizes[1:]))]


def descend(J: Objective, theta: Floats, rate: float) -> Iterator[tuple[Floats, Terms]]:
    """The parameters and the terms of J, at the start and after each step of gradient descent, without end.

    A step that ends above the start, or beyond all numbers, is taken again at half the rate, and so are those after it.
    """
    terms, gradient = J(theta)
    highest = sum(terms.values())
    _check_finite(highest, gradient)
    while True:
        yield theta, terms
        for _ in range(_HALVINGS):
            with _weights_may_overflow():
                there = theta - rate * gradient
                terms, slope = J(there)
            if sum(terms.values()) <= highest and np.isfinite(slope).all():
                break
            rate /= 2
        else:
            raise ValueError(f"DH ends above its start with every rate down to {rate:.2g}: make learning_rate smaller.")
        theta, gradient = there, slope


def _check_finite(value: float, gradient: Floats) -> None:
    """Refuse to start where there is no way down."""
    if not np.isfinite(value) or not np.isfinite(gradient).all():
        raise ValueError("the objective of DH is not finite for these weights and this scale: make them smaller.")


def objective(rows: Rows, theta: Floats, sizes: Sequence[int], lambdas: Lambdas) -> tuple[Terms, Floats]:
    """The terms of J with B = sgn(H), and its gradient."""
    m, (l1, l2, l3) = len(rows), lambdas
    layers = layers_of(theta, sizes)
    folded = _cast(layers, rows.dtype)

    def part(shard: list[slice]) -> tuple[float, float, Floats]:
        error, square, gradient = 0.0, 0.0, np.zeros(len(theta))
        with _weights_may_overflow():
            for block in shard:
                X = rows[block]
                outputs = _forward(folded, X)
                H = outputs[-1]
                Delta = H - signs_of(H).astype(H.dtype)
                error += _square(Delta)
                square += _square(H)
                Delta -= H.dtype.type(l1) * H
                _push_back(folded, X, outputs, Delta, layers_of(gradient, sizes))
        return error, square, gradient

    (error, square, gradient), *others = rows.map(part)
    with _weights_may_overflow():
        for more_error, more_square, more_gradient in others:
            error += more_error
            square += more_square
            gradient += more_gradient
        gradient /= m
        terms = {
            "quantization": error / (2 * m),
            "variance": -l1 / (2 * m) * square,
            "orthogonality": 0.0,
            "weights": l3 / 2 * float(theta @ theta),
        }
        gradient += l3 * theta
        for (W, _), (slope, _) in zip(layers, layers_of(gradient, sizes), strict=True):
            # ∂/∂W of λ₂/2 ‖WᵀW − I‖² is 2λ₂ W (WᵀW − I)
            E = W.T @ W - np.eye(W.shape[1])
            terms["orthogonality"] += l2 / 2 * float(np.sum(E * E))
            slope += 2 * l2 * (W @ E)
    return terms, gradient


def _cast(layers: Sequence[Layer], dtype: type[np.floating[Any]]) -> list[Layer]:
    with _weights_may_overflow():
        return [Layer(W.astype(dtype), c.astype(dtype)) for W, c in layers]


def _forward(layers: Sequence[Layer], X: Array) -> list[Array]:
    """The outputs of each layer for a block of rows."""
    outputs = []
    for W, c in layers:
        X = X @ W
        X += c
        np.tanh(X, out=X)
        outputs.append(X)
    return outputs


def _push_back(
    layers: Sequence[Layer], X: Array, outputs: Sequence[Array], Delta: Array, gradient: Sequence[Layer]
) -> None:
    """Add a block's part of m ∂J/∂W and m ∂J/∂c to ``gradient``; ``Delta``: m ∂J/∂H. Uses up outputs and Delta.

    Δ ← Δ ⊙ (1 − S²) in each layer, then Δ Wᵀ for the one before.
    """
    ones = np.ones(len(X), dtype=X.dtype)
    inputs = (X, *outputs[:-1])
    for layer, slope, S, before in zip(
        reversed(layers), reversed(gradient), reversed(outputs), reversed(inputs), strict=True
    ):
        Delta *= 1 - S * S
        slope.W[...] += before.T @ Delta
        slope.c[...] += ones @ Delta
        if before is not X:
            Delta = Delta @ layer.W.T


def _square(A: Array) -> float:
    return float(np.einsum("ij,ij->", A, A, dtype=np.float64))


def _weights_may_overflow() -> np.errstate:
    """If they have run away; :func:`descend` sees it."""
    return np.errstate(over="ignore", invalid="ignore")
