"""The linear decoder of codes, X ≈ B W + 1 c, from a few sums.

Its loss, gradient and best parameters need BᵀX, BᵀB, 1ᵀB, 1ᵀX and ‖X‖², and no more: once those are summed, an
evaluation takes O(DL²) instead of O(mDL).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hashlearn._arrays import Array, Floats


class DecoderSums(NamedTuple):
    """All that the decoder needs to know of X and B; adds up over blocks."""

    BX: Floats  # (L, D)
    BB: Floats  # (L, L)
    b: Floats  # (L,) 1ᵀB
    x: Floats  # (D,) 1ᵀX
    xx: float  # ‖X‖²
    m: int

    def loss(self, W: Floats, c: Floats) -> tuple[float, Floats, Floats]:
        """1/(2m) ‖X − B W − 1 c‖² and its gradient."""
        BBW = self.BB @ W
        dW = BBW + np.outer(self.b, c) - self.BX
        dc = self.m * c + self.b @ W - self.x
        # ‖X − BW − 1c‖² = ‖X‖² + ⟨W, BᵀBW + 2·b c − 2·BᵀX⟩ + m‖c‖² − 2 c·x
        square = (
            self.xx + float(np.sum(W * (dW + np.outer(self.b, c) - self.BX))) + float(c @ (self.m * c - 2 * self.x))
        )
        return square / (2 * self.m), dW / self.m, dc / self.m

    def solve(self, l1: float, l0: float = 1.0) -> tuple[Floats, Floats]:
        """The W, c that minimize λ₀ loss + λ₁/2 ‖W‖²: ridge regression, the offset not penalized."""
        from scipy.linalg import solve

        if not l0:  # the limit of ever smaller λ₀
            return np.zeros_like(self.BX), self.x / self.m
        m = self.m
        cov = self.BB / m - np.outer(self.b, self.b) / m**2
        cross = self.BX / m - np.outer(self.b, self.x) / m**2
        # A bit that is the same for all samples has no variance: only λ₁ holds its row, or what is above rounding.
        W = solve(cov + max(l1 / l0, 1e-7) * np.eye(len(cov)), cross, assume_a="pos")
        return W, (self.x - self.b @ W) / m


def decoder_sums(X: Array, B: Array) -> DecoderSums:
    """Of a block of rows: X (rows, D) and its codes, in its type."""
    ones = np.ones(len(X), dtype=X.dtype)
    BX, BB, b, x = (product.astype(np.float64) for product in (B.T @ X, B.T @ B, ones @ B, ones @ X))
    return DecoderSums(BX, BB, b, x, float(np.vdot(X, X)), len(X))
