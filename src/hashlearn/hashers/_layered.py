"""Methods whose codes are the signs of a network's outputs: the parameters and learned arrays of its layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from typing import ClassVar, Literal

import numpy as np

from hashlearn._arrays import Floats
from hashlearn.errors import shown
from hashlearn.hashers._network import Layer, Network
from hashlearn.hashers._parameters import HIDDEN_UNITS, Rule, number
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Activation, Affine, Center, Step

#: A total variance that X can be scaled to, and that float32 can hold.
VARIANCE = number(1e-30, 1e30)


def units_by_length(table: Mapping[int, tuple[int, ...]], n_bits: int, n_features: int) -> tuple[int, ...]:
    """Return units of the hidden layers from a table, linear between (and beyond) the lengths that it gives.

    Below its first length the units are those of the first. A layer has never more units than the one before, which
    has no more eigenvectors to start from, nor fewer than bits.
    """
    lengths = list(table)
    units, before = [], n_features
    for column in zip(*table.values(), strict=True):
        slope = (column[-1] - column[-2]) / (lengths[-1] - lengths[-2])
        interpolated = np.interp(n_bits, lengths, column) + slope * max(n_bits - lengths[-1], 0)
        before = max(min(round(interpolated), before), n_bits)
        units.append(before)
    return tuple(units)


class LayeredHasher(Hasher):
    """A method that learns a network; its ``__init__`` has ``hidden_units``.

    Learned: ``offset_`` and ``scale_``, which are taken off X and divide it; ``W1_``, ``c1_``, ``W2_``, …
    """

    _activation: ClassVar[Literal["sigmoid", "tanh", "relu"]] = "sigmoid"
    #: Activation of the last layer; None: it is linear.
    _output: ClassVar[Literal["sigmoid", "tanh", "relu"] | None] = None
    _parameters: ClassVar[Mapping[str, Rule]] = {"hidden_units": HIDDEN_UNITS}

    hidden_units: str | Sequence[int]

    offset_: Floats
    scale_: Floats

    @abstractmethod
    def _auto_units(self, n_bits: int, n_features: int) -> tuple[int, ...]:
        """Return the units of the hidden layers for ``hidden_units="auto"``."""

    def _hidden(self, n_features: int, n_bits: int) -> Sequence[int]:
        units = self.hidden_units
        return self._auto_units(n_bits, n_features) if isinstance(units, str) else units

    def _sizes(self, n_features: int, n_bits: int) -> tuple[int, ...]:
        """Return the units of all layers, D to L, by the parameters."""
        return (n_features, *(int(units) for units in self._hidden(n_features, n_bits)), n_bits)

    def _network(self, n_features: int) -> Network:
        return Network(self._sizes(n_features, self.n_bits_), self._activation, self._output)

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

    def _encoder_steps(self) -> list[Step]:
        steps: list[Step] = [Center(self.offset_)]
        scale = self.scale_
        for W, c in self.layers_:
            # The first layer divides by the scale.
            steps += [Affine(W / scale, c), Activation(self._activation)]
            scale = np.array(1.0)
        return [*steps[:-1], *([] if self._output is None else [Activation(self._output)])]

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        self._check_parameters(self.n_features_in_)
        learned = tuple(len(layer.c) for layer in self.layers_)
        if learned != self._sizes(self.n_features_in_, self.n_bits_)[1:]:
            raise ValueError(
                f"hidden_units was changed to {shown(self.hidden_units)} after fit learned {list(learned[:-1])}: "
                "fit again."
            )

    def _keep_layers(self, layers: Sequence[Layer]) -> None:
        """Set the learned layers; those of an earlier fit, which may have had more, are removed."""
        for i in range(1, len(self.layers_) + 1):
            delattr(self, f"W{i}_")
            delattr(self, f"c{i}_")
        for i, layer in enumerate(layers, 1):
            setattr(self, f"W{i}_", layer.W.copy())
            setattr(self, f"c{i}_", layer.c.copy())
