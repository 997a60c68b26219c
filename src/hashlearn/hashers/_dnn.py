"""What UDH-DNN and SDH-DNN share: the terms of their objectives that concern the network, its start, the record."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hashlearn._arrays import Array, Floats, Indices, Signs
from hashlearn.codes import signs
from hashlearn.hashers import itq
from hashlearn.hashers._blocks import Rows, shuffled_batches
from hashlearn.hashers._early_stop import EarlyStop
from hashlearn.hashers._init import INITS, eigen_layers, itq_layers
from hashlearn.hashers._layered import VARIANCE, LayeredHasher, units_by_length
from hashlearn.hashers._linear import mean_and_covariance
from hashlearn.hashers._network import Network, Slope, Sums, flatten
from hashlearn.hashers._optim import MEMORY, Minimum, Terms, adam
from hashlearn.hashers._parameters import CALLBACK, Rule, choice, count, either, number, optional
from hashlearn.threads import ThreadMap

# Training has converged if its last B step changed at most this share of the bits.
_SETTLED = 0.01
# A (W, c) step of Adam that raises J by this factor has diverged.
_DIVERGED = 10.0
# Epochs of Adam in a (W, c) step by default, and batches at least.
_EPOCHS, _LEAST_BATCHES = 3, 250
# About how many samples are in a batch of Adam by default.
BATCH_SIZE = 512
# Units of layers 2 and 3 by bits: the paper's, for CIFAR-10 and MNIST and for SIFT (128 features).
_UNITS = {8: (90, 20), 16: (90, 30), 32: (120, 50), 64: (160, 110)}
_UNITS_SHORT = {8: (90, 20), 16: (90, 30), 32: (100, 50), 64: (100, 80)}


class Lambdas(NamedTuple):
    """The weights of the terms, λ₁ … λ₄."""

    weights: float
    quantization: float
    independence: float
    balance: float


def encoder_terms(sums: Sums, m: int, lambdas: Lambdas) -> tuple[dict[str, float], Slope]:
    """Return λ₂/(2m) ‖H − B‖², λ₃/2 ‖HᵀH/m − I‖² and λ₄/(2m) ‖Hᵀ1‖², and their ∂/∂H."""
    L = len(sums.gram)
    _, l2, l3, l4 = lambdas
    C = sums.gram / m - np.eye(L)
    h = sums.class_sums.sum(axis=0)
    terms = {
        # ‖H − B‖² = ‖H‖² − 2 ⟨H, B⟩ + mL
        "quantization": l2 / (2 * m) * (float(np.trace(sums.gram)) - 2 * sums.agreement + m * L),
        "independence": l3 / 2 * float(np.sum(C * C)),
        "balance": l4 / (2 * m) * float(h @ h),
    }
    # λ₂/m (H − B) + 2λ₃/m H (HᵀH/m − I) + λ₄/m 1 (1ᵀH)
    return terms, Slope(A=l2 / m * np.eye(L) + 2 * l3 / m * C, T=l4 / m * h[None], b=-l2 / m)


def weight_term(network: Network, theta: Floats, gradient: Floats, l1: float, square: float = 0.0) -> float:
    """Return λ₁/2 Σ ‖W‖², ``square`` of other weights included; its gradient is added to ``gradient``."""
    for (W, _), (slope, _) in zip(network.layers(theta), network.layers(gradient), strict=True):
        slope += l1 * W
        square += float(np.sum(W**2))
    return l1 / 2 * square


def auto_units(n_bits: int, n_features: int) -> tuple[int, ...]:
    """Return the units of the hidden layers: the paper's (see :func:`._layered.units_by_length`)."""
    return units_by_length(_UNITS_SHORT if n_features <= 128 else _UNITS, n_bits, n_features)


class Training(Protocol):
    """J of a network (theta) and codes, and its (W, c) step."""

    @property
    def rows(self) -> Rows: ...

    theta: Floats

    def network_step(self, max_iter: int, advance: Callable[[float], None], memory: int = MEMORY) -> Minimum:
        """The (W, c) step by L-BFGS; returns J at its end."""


class StochasticTraining(Training, Protocol):
    """J that can be estimated from batches."""

    def objective(self, theta: Array, batch: Indices | None = None) -> tuple[Terms, Floats]:
        """The terms of J and its gradient, or estimates of them from the samples ``batch``."""

    def adam_step(self, steps: Iterator[tuple[Array, Terms]]) -> Minimum:
        """The (W, c) step by steps of Adam; returns J at its end."""


def run_adam(J: StochasticTraining, steps: Iterator[tuple[Array, Terms]]) -> Minimum:
    """Set theta to where the steps of Adam end; return J there, of all samples."""
    start = np.inf
    for n, (theta, terms) in enumerate(steps, 1):  # noqa: B007 - the last ones are used
        start = sum(terms.values()) if n == 1 else start  # of the first batch
    J.theta = theta.astype(np.float64)
    terms, _ = J.objective(J.theta)
    if not sum(terms.values()) < _DIVERGED * start:
        raise ValueError("training diverged: choose a lower learning_rate.")
    return Minimum(J.theta, terms, n, converged=False)


class DNNHasher(LayeredHasher):
    """A method that trains a network together with codes."""

    lambda1: float
    lambda2: float
    lambda3: float
    lambda4: float

    max_iter: int
    solver: str
    lbfgs_iter: int
    lbfgs_memory: int
    epochs: int | str
    batch_size: int
    learning_rate: float
    init: str
    scale: float | str | None
    validation: int | None
    random_state: Any
    show_progress: bool | None
    callback: Callable[..., object] | None

    history_: list[dict[str, Any]]

    #: What an iteration learns beside the arrays of a model file; an early stop restores it too.
    _beside_state: ClassVar[tuple[str, ...]] = ()
    _not_saved = ("callback",)
    _later_parameters: ClassVar[Mapping[str, Any]] = {
        "lbfgs_memory": MEMORY,
        "solver": "lbfgs",
        "epochs": "auto",
        "batch_size": BATCH_SIZE,
    }
    _parameters: ClassVar[Mapping[str, Rule]] = {
        **{f"lambda{i}": number() for i in range(1, 5)},
        "max_iter": count(),
        "solver": choice("lbfgs", "adam"),
        "lbfgs_iter": count(),
        "lbfgs_memory": count(),
        "epochs": either(choice("auto"), count()),
        "batch_size": count(),
        "learning_rate": number(above=0),
        "init": choice(*INITS),
        "scale": optional(either(choice("range"), VARIANCE)),
        "validation": optional(count()),
        "callback": CALLBACK,
    }

    def _auto_units(self, n_bits: int, n_features: int) -> tuple[int, ...]:
        return auto_units(n_bits, n_features)

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        for n in self._hidden(n_features, self.n_bits):
            if self.init == "itq" and n < self.n_bits:
                raise ValueError(
                    f"hidden_units must be at least n_bits ({self.n_bits}) for init='itq', which takes a unit for each "
                    f"bit; got {n}."
                )

    def _unused(self) -> dict[str, str]:
        if self.solver == "adam":
            return dict.fromkeys(("lbfgs_iter", "lbfgs_memory"), "for solver='adam'")
        return dict.fromkeys(("epochs", "batch_size", "learning_rate"), "for solver='lbfgs'")

    @property
    def _lambdas(self) -> Lambdas:
        return Lambdas(float(self.lambda1), float(self.lambda2), float(self.lambda3), float(self.lambda4))

    def _initialize(
        self, X: Array, rng: np.random.Generator, threads: ThreadMap
    ) -> tuple[Rows, Network, Floats, Signs]:
        """Return the scaled rows, the network, its first parameters, and the codes of ITQ; set offset_ and scale_."""
        mean, covariance = mean_and_covariance(X, threads)
        components, _ = itq.learn(X, mean, covariance, self.n_bits_, rng, threads)
        self.offset_, self.scale_ = _offset_and_scale(X, self.scale, mean, float(np.trace(covariance)))
        network = self._network(X.shape[1])
        sizes, scale = network.sizes, float(self.scale_)
        rows = Rows(X, self.offset_, scale, threads, beside=sum(sizes[1:]))
        # Of the rows, which are centered and scaled.
        mean, covariance, components = (mean - self.offset_) / scale, covariance / scale**2, components * scale
        P, shift = components.astype(rows.dtype), (mean @ components).astype(rows.dtype)
        B = rows.map(lambda _, X: signs(X @ P - shift))
        if self.init == "itq":
            lambdas = self._lambdas
            penalty = lambdas.weights / lambdas.quantization if lambdas.quantization else 0.0
            layers = itq_layers(rows, sizes, rng, mean, covariance, components, B, penalty)
        else:
            if self.init == "second-moment":
                covariance = covariance + np.outer(mean, mean)
            layers = eigen_layers(rows, sizes, rng, covariance, center=self.init == "eigen")
        return rows, network, flatten(layers), B

    def _n_batches(self, m: int) -> int:
        """Return the number of batches in an epoch of Adam."""
        return max(1, round(m / int(self.batch_size)))

    def _budget(self, m: int) -> tuple[int, str]:
        """Return the most iterations, or the batches, of a (W, c) step, and which of these they are."""
        if self.solver == "lbfgs":
            return int(self.lbfgs_iter), "L-BFGS iterations"
        n = self._n_batches(m)
        epochs = max(_EPOCHS, -(-_LEAST_BATCHES // n)) if isinstance(self.epochs, str) else int(self.epochs)
        return epochs * n, "batches"

    def _lbfgs(self, J: Training, advance: Callable[[float], None]) -> Callable[[], Minimum]:
        """Return a function that makes a (W, c) step by L-BFGS."""
        n, _ = self._budget(len(J.rows))
        return lambda: J.network_step(n, advance, int(self.lbfgs_memory))

    def _adam(
        self, J: StochasticTraining, rng: np.random.Generator, advance: Callable[[float], None]
    ) -> Callable[[], Minimum]:
        """Return a function that makes a (W, c) step by Adam, whose moments are kept from one step to the next."""
        m, highest = len(J.rows), float(self.learning_rate)
        n, _ = self._budget(m)
        size = -(-m // self._n_batches(m))  # no batch is much smaller than the others

        def batches() -> Iterator[Indices]:
            while True:
                for batch in shuffled_batches(m, size, rng):
                    advance(1)
                    yield batch

        # In each (W, c) step, the rate falls as a cosine to 0.
        rate = lambda t: highest * (0.5 + 0.5 * float(np.cos(np.pi * ((t - 1) % n) / n)))  # noqa: E731
        steps = adam(J.objective, J.theta.astype(J.rows.dtype), batches(), rate=rate)
        return lambda: J.adam_step(islice(steps, n))

    def _end_iteration(
        self, minimum: Minimum, flips: int, remarks: Mapping[str, float], early: EarlyStop | None, started: float
    ) -> bool:
        """Record an iteration; return whether the early stop or the callback ends training."""
        t = len(self.history_)
        record = {
            "iteration": t,
            "objective": sum(minimum.terms.values()),
            **minimum.terms,
            **remarks,
            "flips": flips,
            "evaluations": minimum.evaluations,
            "seconds": time.perf_counter() - started,
        }
        self.history_.append(record)
        self.n_iter_ = self.best_iter_ = t
        stop = early is not None and early.reached(self, record)
        if self.callback is not None:
            answer = self.callback(self, record)
            stop |= isinstance(answer, (bool, np.bool_)) and bool(answer)
        return stop

    def _end_training(self, flips: int, n_bits: int, early: EarlyStop | None, *, stopped: bool) -> None:
        """Set converged_ and, after an early stop, the best iteration; warn if training has not converged.

        ``flips``: bits that the last B step changed, of ``n_bits`` bits of all codes.
        """
        share = flips / n_bits
        self.converged_ = self.n_iter_ > 0 and share <= _SETTLED
        if early is not None:
            early.restore(self)
        if not self.converged_ and not stopped:
            warnings.warn(
                f"{self.name.upper()} has not converged: {share:.1%} of the bits changed in the last of its "
                f"{self.max_iter} iterations (max_iter).",
                ConvergenceWarning,
                stacklevel=4,
            )

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        return {
            "objective": self.history_[self.best_iter_]["objective"],
            "iterations": self.n_iter_,
            "kept_iteration": self.best_iter_,
            "converged": self.converged_,
        }


def _offset_and_scale(X: Array, scale: float | str | None, mean: Floats, variance: float) -> tuple[Floats, Floats]:
    """Return what is taken off X and what it is divided by; ``variance``: its total."""
    if isinstance(scale, str):  # "range"
        offset = X.min(axis=0).astype(np.float64)
        divisor = float(X.max()) - offset.min()
    else:
        offset = mean
        divisor = 1.0 if scale is None else np.sqrt(variance / float(scale))
    return offset, np.array(divisor if divisor > 0 else 1.0)  # 0 if all samples are equal
