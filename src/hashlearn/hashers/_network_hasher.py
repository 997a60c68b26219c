"""What the methods share whose codes are the signs of a network's outputs: units, scale, training, encoding."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hashlearn.codes import MAX_BITS, signs_of
from hashlearn.errors import shown
from hashlearn.hashers import itq
from hashlearn.hashers._early_stop import EarlyStop
from hashlearn.hashers._linear import centred, mean_and_covariance
from hashlearn.hashers._network import Layer, fold, outputs_of
from hashlearn.hashers._rows import Rows
from hashlearn.hashers._start import STARTS, eigen_layers, itq_layers
from hashlearn.hashers._steps import Activation, Affine, Center, Step
from hashlearn.hashers._training import Lambdas, Training
from hashlearn.hashers.base import Hasher, check_choice, check_count, check_flag, check_weight, compute_type
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

Array = NDArray[Any]
Floats = NDArray[np.float64]

# Training has settled if its last B step changed at most this share of the bits.
_SETTLED = 0.01
# Units of layers 2 and 3 by bits: the paper's, for CIFAR-10 and MNIST and for SIFT (128 features).
_UNITS = {8: (90, 20), 16: (90, 30), 32: (120, 50), 64: (160, 110)}
_UNITS_SHORT = {8: (90, 20), 16: (90, 30), 32: (100, 50), 64: (100, 80)}


def auto_units(n_bits: int, n_features: int) -> tuple[int, ...]:
    """Units of the hidden layers: the paper's (see :func:`units_by_length`)."""
    return units_by_length(_UNITS_SHORT if n_features <= 128 else _UNITS, n_bits, n_features)


def units_by_length(table: Mapping[int, tuple[int, ...]], n_bits: int, n_features: int) -> tuple[int, ...]:
    """Units of the hidden layers: a table's, on a straight line between (and beyond) the lengths that it gives.

    Below its first length those of that. Never more than the layer before has, which has no more eigenvectors to start
    from, nor fewer than the bits.
    """
    lengths = list(table)
    units, before = [], n_features
    for column in zip(*table.values(), strict=True):
        slope = (column[-1] - column[-2]) / (lengths[-1] - lengths[-2])
        wanted = np.interp(n_bits, lengths, column) + slope * max(n_bits - lengths[-1], 0)
        before = max(min(round(wanted), before), n_bits)
        units.append(before)
    return tuple(units)


def check_variance(scale: object) -> None:
    """Refuse what X can't be scaled to: a total variance that is no number above 0, or out of float32's reach."""
    check_weight("scale", scale, zero=False)
    if not 1e-30 <= float(scale) <= 1e30:  # type: ignore[arg-type]
        raise ValueError(f"scale must be between 1e-30 and 1e30; got {shown(scale)}.")


class Samples(NamedTuple):
    """What a network is trained on."""

    X: Array
    y: Array | None = None  #: classes 0 … c − 1
    kept: tuple[Array, Array] | None = None  #: vectors and classes that are kept from training


class LayeredHasher(Hasher):
    """A method whose codes are the signs of a network's outputs; its ``__init__`` has ``hidden_units``.

    Learned: ``offset_`` and ``scale_``, what is taken off X and what it is divided by; ``W1_``, ``c1_``, ``W2_``, …
    """

    hidden_units: str | Sequence[int]

    offset_: Floats
    scale_: NDArray[np.float64]

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        units = self.hidden_units
        if not isinstance(units, (list, tuple)) and not (isinstance(units, str) and units == "auto"):
            raise ValueError(f"hidden_units must be 'auto' or a list of whole numbers; got {shown(units)}.")
        for n in self._hidden(n_features, self.n_bits):
            check_count("hidden_units", n, most=MAX_BITS)

    @abstractmethod
    def _auto_units(self, n_bits: int, n_features: int) -> tuple[int, ...]:
        """Units of the hidden layers unless they are given."""

    def _hidden(self, n_features: int, n_bits: int) -> Sequence[int]:
        units = self.hidden_units
        return self._auto_units(n_bits, n_features) if isinstance(units, str) else units

    def _sizes(self, n_features: int, n_bits: int) -> tuple[int, ...]:
        """Units of all layers, D to L, as the parameters have them."""
        return (n_features, *(int(units) for units in self._hidden(n_features, n_bits)), n_bits)

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        state: dict[str, tuple[int, ...]] = {"offset_": (n_features,), "scale_": ()}
        for i, (s, t) in enumerate(pairwise(self._sizes(n_features, n_bits)), 1):
            state |= {f"W{i}_": (s, t), f"c{i}_": (t,)}
        return state

    @property
    def layers_(self) -> list[Layer]:
        """The network: weights and biases of its layers, first to last."""
        layers: list[Layer] = []
        for i in count(1):
            if not hasattr(self, f"W{i}_"):
                return layers
            layers.append(Layer(getattr(self, f"W{i}_"), getattr(self, f"c{i}_")))
        raise AssertionError

    @property
    def _scaled_layers(self) -> list[Layer]:
        """The network as it takes what is centred and not scaled."""
        (W, c), *others = self.layers_
        return [Layer(W / self.scale_, c), *others]

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        self._check_parameters(self.n_features_in_)
        learned = tuple(len(layer.c) for layer in self.layers_)
        if learned != self._sizes(self.n_features_in_, self.n_bits_)[1:]:
            raise ValueError(
                f"hidden_units was changed to {shown(self.hidden_units)} after fit learned {list(learned[:-1])}: "
                "fit again."
            )

    @property
    def _width(self) -> int:
        return max(len(layer.c) for layer in self.layers_)

    def _forget(self) -> None:
        """A network of an earlier fit may have had more layers."""
        for i in range(1, len(self.layers_) + 1):
            delattr(self, f"W{i}_")
            delattr(self, f"c{i}_")

    def _keep_layers(self, layers: Sequence[Layer]) -> None:
        """Learn the network as it is now."""
        for i, layer in enumerate(layers, 1):
            setattr(self, f"W{i}_", layer.W.copy())
            setattr(self, f"c{i}_", layer.c.copy())


class NetworkHasher(LayeredHasher):
    """A method that trains a network together with codes; its ``__init__`` has the parameters below."""

    lambda1: float
    lambda2: float
    lambda3: float
    lambda4: float

    max_iter: int
    lbfgs_iter: int
    init: str
    scale: float | str | None
    validation: int | None
    random_state: Any
    show_progress: bool | None
    callback: Callable[..., object] | None

    history_: list[dict[str, Any]]

    _a_direction_a_bit = "whose codes start from ITQ's"
    _not_saved = ("callback",)
    #: What an iteration learns beside what a model file holds.
    _beside_state: tuple[str, ...] = ()

    def _auto_units(self, n_bits: int, n_features: int) -> tuple[int, ...]:
        return auto_units(n_bits, n_features)

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        for number in range(1, 5):
            check_weight(f"lambda{number}", getattr(self, f"lambda{number}"))
        check_choice("init", self.init, STARTS)
        for n in self._hidden(n_features, self.n_bits):
            if self.init == "itq" and n < self.n_bits:
                raise ValueError(
                    f"hidden_units must be at least n_bits ({self.n_bits}) for init='itq', which takes a unit for each "
                    f"bit; got {n}."
                )
        for name in ("max_iter", "lbfgs_iter"):
            check_count(name, getattr(self, name))
        if self.validation is not None:
            check_count("validation", self.validation)
        if isinstance(self.scale, str):
            check_choice("scale", self.scale, ("range",))
        elif self.scale is not None:
            check_variance(self.scale)
        check_flag("show_progress", self.show_progress, None)
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be a function or None; got {shown(self.callback)}.")

    def _project(self, X: Array) -> Array:
        return self._projector(X.dtype)(X)

    def _projector(self, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
        layers = fold(self._scaled_layers, compute_type(dtype))
        return lambda X: outputs_of(layers, centred(X, self.offset_))

    def _steps(self) -> list[Step]:
        steps: list[Step] = [Center(self.offset_)]
        for W, c in self._scaled_layers:
            steps += [Affine(W, c), Activation("sigmoid")]
        return steps[:-1]  # the last layer is linear

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        self._forget()
        rng = np.random.default_rng(self.random_state)
        started = time.perf_counter()
        samples = self._samples(X, y, rng)
        budget = (int(self.max_iter) + 1) * int(self.lbfgs_iter)
        with (
            thread_map() as threads,
            progress_bar(self.name.upper(), budget, unit="L-BFGS iterations", show=self.show_progress) as advance,
        ):
            training = self._training(samples, *self._begin(samples.X, rng, threads))
            self._train(training, self._early_stop(samples, rng), advance, started)

    @abstractmethod
    def _samples(self, X: Array, y: list[Hashable] | None, rng: np.random.Generator) -> Samples:
        """What is trained on, and what is kept from it; checked before any work."""

    @abstractmethod
    def _training(self, samples: Samples, rows: Rows, layers: Sequence[Layer], B: NDArray[np.int8]) -> Training:
        """The method's objective, at its start."""

    @abstractmethod
    def _early_stop(self, samples: Samples, rng: np.random.Generator) -> EarlyStop | None:
        """What ``validation`` asks for."""

    @property
    def _lambdas(self) -> Lambdas:
        return Lambdas(float(self.lambda1), float(self.lambda2), float(self.lambda3), float(self.lambda4))

    def _begin(
        self, X: Array, rng: np.random.Generator, threads: ThreadMap
    ) -> tuple[Rows, list[Layer], NDArray[np.int8]]:
        """The scale, the codes by ITQ and the network before its first step."""
        mean, covariance = mean_and_covariance(X, threads)
        components, _ = itq.learn(X, mean, covariance, self.n_bits_, rng, threads)
        self._learn_scale(X, mean, float(np.trace(covariance)))
        sizes = self._sizes(X.shape[1], self.n_bits_)
        scale = float(self.scale_)
        rows = Rows(X, self.offset_, scale, threads, beside=sum(sizes[1:]))
        centre, covariance, components = (mean - self.offset_) / scale, covariance / scale**2, components * scale
        B = np.empty((len(X), self.n_bits_), dtype=np.int8)
        P, shift = components.astype(rows.dtype), (centre @ components).astype(rows.dtype)

        def codes(shard: list[slice]) -> None:
            for block in shard:
                B[block] = signs_of(rows[block] @ P - shift)

        rows.map(codes)
        if self.init == "itq":
            lambdas = self._lambdas
            penalty = lambdas.weights / lambdas.quantization if lambdas.quantization else 0.0
            return rows, itq_layers(rows, sizes, rng, centre, covariance, components, B, penalty), B
        if self.init == "second-moment":
            covariance = covariance + np.outer(centre, centre)
        return rows, eigen_layers(rows, sizes, rng, covariance, centred=self.init == "eigen"), B

    def _learn_scale(self, X: Array, mean: Floats, variance: float) -> None:
        """What is taken off X and what it is divided by, before the network; ``variance``: its total."""
        if self.scale == "range":
            self.offset_ = X.min(axis=0).astype(np.float64)
            self.scale_ = np.array(float(X.max()) - self.offset_.min())
        else:
            assert not isinstance(self.scale, str)
            self.offset_ = mean
            self.scale_ = np.array(1.0 if self.scale is None else np.sqrt(variance / float(self.scale)))
        if not self.scale_ > 0:  # all samples are equal
            self.scale_ = np.array(1.0)

    def _train(
        self, training: Training, early: EarlyStop | None, advance: Callable[[float], None], started: float
    ) -> None:
        """(W, c) step, then B step and (W, c) step in turn; ``started``: when, by ``time.perf_counter``."""
        self.history_ = []
        for t in range(int(self.max_iter) + 1):
            flips = training.code_step() if t else 0
            minimum = training.network_step(int(self.lbfgs_iter), advance)
            self._keep(training)
            record = {
                "iteration": t,
                "objective": sum(minimum.terms.values()),
                **minimum.terms,
                **training.remarks(),
                "flips": flips,
                "evaluations": minimum.evaluations,
                "seconds": time.perf_counter() - started,
            }
            self.history_.append(record)
            self.n_iter_ = self.best_iter_ = t
            # Neither step has anything left to do: another round would change nothing.
            settled = t > 0 and not flips and minimum.converged
            stop = early is not None and early.reached(self, record)
            if self.callback is not None:
                answer = self.callback(self, record)
                stop |= isinstance(answer, (bool, np.bool_)) and bool(answer)
            if stop or settled:
                break
            started = time.perf_counter()
        self.converged_ = t > 0 and flips <= _SETTLED * training.B.size
        if early is not None:
            early.restore(self)
        if not self.converged_ and not stop:
            warnings.warn(
                f"{self.name.upper()} has not settled: {flips / training.B.size:.1%} of the bits changed in the last "
                f"of its {self.max_iter} iterations (max_iter).",
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

    def _keep(self, training: Any) -> None:
        """Learn what training has come to."""
        self._keep_layers(training.layers)
