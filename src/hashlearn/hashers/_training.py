"""What the paper's two methods share in training: four terms of their objectives, and the variables they have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashlearn.hashers._lbfgs import Minimum, minimise
from hashlearn.hashers._network import Layer, Network, Slope, Sums, flatten, layers_of
from hashlearn.hashers._rows import Rows

Codes = NDArray[np.int8]
Floats = NDArray[np.float64]


class Lambdas(NamedTuple):
    """The weights of the terms, λ₁ … λ₄."""

    weights: float
    quantization: float
    independence: float
    balance: float


def encoder_terms(sums: Sums, m: int, lambdas: Lambdas) -> tuple[dict[str, float], Slope]:
    """λ₂/(2m) ‖H − B‖², λ₃/2 ‖HᵀH/m − I‖² and λ₄/(2m) ‖Hᵀ1‖², and their ∂/∂H."""
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


class Training(ABC):
    """The variables of an objective, a network and codes B, and the two steps that lower it in turn."""

    def __init__(self, rows: Rows, layers: Sequence[Layer], B: Codes, lambdas: Lambdas) -> None:
        self.rows, self.B, self.lambdas = rows, B, lambdas
        self.sizes = (rows.shape[1], *(len(layer.c) for layer in layers))
        self.network = Network(rows, self.sizes)
        self.theta = flatten(layers)

    @property
    def layers(self) -> list[Layer]:
        return layers_of(self.theta, self.sizes)

    @abstractmethod
    def code_step(self) -> int:
        """Better codes B, the network held; gives the number of bits that changed."""

    @abstractmethod
    def objective(self, theta: Floats) -> tuple[dict[str, float], Floats]:
        """The terms of the objective and its gradient, B held."""

    def network_step(self, max_iter: int, advance: Callable[[float], None]) -> Minimum:
        """A better network, B held: the objective at its end."""
        minimum = minimise(self.objective, self.theta, max_iter, advance)
        self.theta = minimum.theta
        return minimum

    def remarks(self) -> dict[str, float]:
        """What else is to be recorded of the network as it is now."""
        return {}

    def _weights(self, theta: Floats, gradient: Floats, square: float = 0.0) -> float:
        """λ₁/2 Σ ‖W‖², ``square`` of other weights among them; its gradient is added to ``gradient``."""
        l1 = self.lambdas.weights
        for (W, _), (slope, _) in zip(layers_of(theta, self.sizes), layers_of(gradient, self.sizes), strict=True):
            slope += l1 * W
            square += float(np.sum(W**2))
        return l1 / 2 * square
