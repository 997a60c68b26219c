"""The terms that the paper's two methods share: how far codes and outputs are apart, independence, balance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hashlearn.hashers._network import Slope, Sums


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
