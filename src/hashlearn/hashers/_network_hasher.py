"""What the methods share whose codes are the signs of a network's outputs: units, scale, training, encoding."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hashlearn.hashers._early_stop import EarlyStop
from hashlearn.hashers._lbfgs import Minimum
from hashlearn.hashers._linear import centred
from hashlearn.hashers._network import Layer, fold, outputs_of
from hashlearn.hashers.base import Hasher, check_choice, check_count, check_flag, check_weight, compute_type

Array = NDArray[Any]
Floats = NDArray[np.float64]

# Training has settled if its last B step changed at most this share of the bits.
_SETTLED = 0.01
# Units of layers 2 and 3 by bits: the paper's, for CIFAR-10 and MNIST and for SIFT (128 features).
_UNITS = {8: (90, 20), 16: (90, 30), 32: (120, 50), 64: (160, 110)}
_UNITS_SHORT = {8: (90, 20), 16: (90, 30), 32: (100, 50), 64: (100, 80)}


def auto_units(n_bits: int, n_features: int) -> tuple[int, ...]:
    """Units of the hidden layers: the paper's, on a straight line between (and beyond) the lengths that it gives.

    Below 8 bits those of 8. Never more than the layer before has, which has no more eigenvectors to start from, nor
    fewer than the bits.
    """
    table = _UNITS_SHORT if n_features <= 128 else _UNITS
    lengths = list(table)
    units, before = [], n_features
    for column in zip(*table.values(), strict=True):
        slope = (column[-1] - column[-2]) / (lengths[-1] - lengths[-2])
        wanted = np.interp(n_bits, lengths, column) + slope * max(n_bits - lengths[-1], 0)
        before = max(min(round(wanted), before), n_bits)
        units.append(before)
    return tuple(units)


class Training(Protocol):
    """The variables of an objective, and the two steps that lower it in turn."""

    B: NDArray[np.int8]

    @property
    def layers(self) -> Sequence[Layer]: ...

    def code_step(self) -> int:
        """Better codes B, the network held; gives the number of bits that changed."""

    def network_step(self, max_iter: int, advance: Callable[[float], None]) -> Minimum:
        """A better network, B held: the objective at its end."""


class NetworkHasher(Hasher):
    """A method that trains a network together with codes.

    Its ``__init__`` has the parameters below. ``_fit`` makes a :class:`Training` and hands it to ``_train``.
    """

    hidden_units: str | Sequence[int]
    max_iter: int
    lbfgs_iter: int
    init: str
    scale: float | str | None
    validation: int | None
    random_state: Any
    show_progress: bool | None
    callback: Callable[..., object] | None

    offset_: Floats
    scale_: NDArray[np.float64]
    history_: list[dict[str, Any]]

    #: What ``init`` may be.
    _starts: ClassVar[Sequence[str]]
    _not_saved = ("callback",)

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        units = self.hidden_units
        if not isinstance(units, (list, tuple)) and not (isinstance(units, str) and units == "auto"):
            raise ValueError(f"hidden_units must be 'auto' or a list of whole numbers; got {units!r}.")
        for n in self._hidden(n_features, self.n_bits):
            check_count("hidden_units", n)
            if self.init == "itq" and n < self.n_bits:
                raise ValueError(
                    f"hidden_units must be at least n_bits ({self.n_bits}) for init='itq', which takes a unit for each "
                    f"bit; got {n}."
                )
        for name in ("max_iter", "lbfgs_iter"):
            check_count(name, getattr(self, name))
        if self.validation is not None:
            check_count("validation", self.validation)
        check_choice("init", self.init, self._starts)
        if isinstance(self.scale, str):
            check_choice("scale", self.scale, ("range",))
        elif self.scale is not None:
            check_weight("scale", self.scale, zero=False)
        check_flag("show_progress", self.show_progress, None)
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be a function or None; got {self.callback!r}.")

    def _hidden(self, n_features: int, n_bits: int) -> Sequence[int]:
        return auto_units(n_bits, n_features) if isinstance(self.hidden_units, str) else self.hidden_units

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

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        learned = tuple(len(layer.c) for layer in self.layers_)
        if learned != self._sizes(self.n_features_in_, self.n_bits_)[1:]:
            raise ValueError(
                f"hidden_units was changed to {self.hidden_units!r} after fit learned {list(learned[:-1])}: fit again."
            )

    def _project(self, X: Array) -> Array:
        return self._projector(X.dtype)(X)

    def _projector(self, dtype: np.dtype[Any]) -> Callable[[Array], Array]:
        (W, c), *others = self.layers_
        layers = fold([Layer(W / self.scale_, c), *others], compute_type(dtype))
        return lambda X: outputs_of(layers, centred(X, self.offset_))

    @property
    def _width(self) -> int:
        return max(len(layer.c) for layer in self.layers_)

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
        for t in range(self.max_iter + 1):
            flips = training.code_step() if t else 0
            minimum = training.network_step(self.lbfgs_iter, advance)
            self._keep(training)
            record = {
                "iteration": t,
                "objective": sum(minimum.terms.values()),
                **minimum.terms,
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
                stop |= self.callback(self, record) in (True,)  # np.True_ too
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

    def _forget(self) -> None:
        """A network of an earlier fit may have had more layers."""
        for i in range(1, len(self.layers_) + 1):
            delattr(self, f"W{i}_")
            delattr(self, f"c{i}_")

    def _keep(self, training: Any) -> None:
        """Learn the network as it is now."""
        for i, layer in enumerate(training.layers, 1):
            setattr(self, f"W{i}_", layer.W.copy())
            setattr(self, f"c{i}_", layer.c.copy())
