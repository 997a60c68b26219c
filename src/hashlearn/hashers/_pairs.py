"""One bit of codes against all pairs of labeled samples: exact, in whole numbers, without a matrix of pairs.

    ‖BBᵀ/L − S‖² = a constant − (2/L²) hᵀRh,    hᵀRh = 2L ‖Yᵀh‖² − L (1ᵀh)² − ‖B̄ᵀh‖²

=======  ========  =================================================================
symbol   shape     meaning
=======  ========  =================================================================
B        (m, L)    codes, ±1
h, B̄               one bit (m,) of B, and the others (m, L − 1), which are held
Y        (m, c)    classes, one-hot; y (m,) their numbers
S        (m, m)    1 for two samples of a class, −1 for others: S = 2YYᵀ − 11ᵀ
=======  ========  =================================================================

As h_i changes to s_i, a sum u = bᵀh grows by 2 s_i b_i and u² by 4 s_i b_i u + 4, so that running sums give hᵀRh after
each of m changes: O(mL), and for Yᵀh O(m), since a change touches the sum of one class only.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array, Indices, Signs

# Whole numbers below this are exact in float32.
_EXACT = 1 << 24


class Pairs:
    """hᵀRh of one bit h, over all pairs of labeled samples: ``hold(k)`` says which, ``put(h)`` what it becomes."""

    def __init__(self, B: Signs, y: Indices) -> None:
        m, L = B.shape
        self.m, self.L = m, L
        # Sums of whole and half numbers, at most m L, which this type holds exactly.
        dtype = np.float32 if 2 * m * L < _EXACT else np.float64
        # Rows b, then −b, then 0: so that ±b of a sample is a row.
        self._E = np.zeros((2 * m + 1, L), dtype=dtype)
        self._E[:m], self._E[m:-1] = B, -B
        # Those of (bᵀh)² in hᵀRh; a column of ones, whose factor is −L, takes the place of the bit that is h.
        self._factors = np.full(L, -1, dtype=dtype)
        self._held: int | None = None
        self._y = y.astype(np.uint16 if y.max() < 1 << 16 else np.intp)
        self._counts = np.bincount(y)
        self._starts = np.cumsum(self._counts) - self._counts
        # Scratch for s b and u / 2 of each step: step i is at [i % g, i // g], so that running sums are sums of a few
        # long rows. Kept, since new pages cost more than the sums.
        g = isqrt(m) + 1
        self._G, self._U = np.empty((2, g, -(-m // g), L), dtype=dtype)

    def hold(self, k: int) -> None:
        """From now on, h is bit k; the others are held."""
        assert self._held is None
        self._set(k, np.ones(self.m))
        self._factors[k], self._held = -self.L, k

    def put(self, h: Signs) -> None:
        """Bit k is h."""
        assert self._held is not None
        self._set(self._held, h)
        self._factors[self._held], self._held = -1, None

    def _set(self, k: int, column: Array) -> None:
        self._E[: self.m, k], self._E[self.m : -1, k] = column, -column

    def _sums(self, h: Signs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[B̄, 1]ᵀh (L,) and Yᵀh (c,)."""
        u = h.astype(self._E.dtype) @ self._E[: self.m]
        return u.astype(np.int64), np.bincount(self._y, weights=h).astype(np.int64)

    def _value(self, u: NDArray[np.int64], K: NDArray[np.int64]) -> int:
        return int(2 * self.L * (K @ K) + self._factors.astype(np.int64) @ (u * u))

    def value(self, h: Signs) -> int:
        """hᵀRh = 2L ‖Yᵀh‖² − L (1ᵀh)² − ‖B̄ᵀh‖²."""
        return self._value(*self._sums(h))

    def along(self, h: Signs, order: Indices, s: Signs) -> NDArray[np.int64]:
        """hᵀRh (m + 1,): of h, and as each h_i = −s_i in this order becomes s_i (or stays as it is, if s_i = 0)."""
        u, K = self._sums(h)
        s = s[order]
        values = np.empty(self.m + 1, dtype=np.int64)
        values[0] = self._value(u, K)
        steps = values[1:]
        # u² grows by 4 s b u + 4
        np.multiply(4, self._held_bits(u, order, s), out=steps)
        steps += 8 * self.L * self._classes(K, order, s)
        steps += (8 * self.L + 4 * int(self._factors.sum())) * (s != 0)
        return np.cumsum(values, out=values)

    def _held_bits(self, u: NDArray[np.int64], order: Indices, s: Signs) -> NDArray[np.int64]:
        """Σ over the columns of [B̄, 1] of factor · s b u, u as it is before each step (m,)."""
        G, U = self._G, self._U
        g, n, L = G.shape
        place = np.full(n * g, 2 * self.m)
        place[: self.m] = np.where(s == 0, 2 * self.m, order + self.m * (s < 0))
        self._E.take(place.reshape(n, g).T, axis=0, out=G, mode="clip")  # s b
        U[0] = u / 2
        U[0, 1:] += np.cumsum(G.sum(axis=0)[:-1], axis=0)
        for i in range(1, g):
            np.add(U[i - 1], G[i - 1], out=U[i])
        U *= G
        sums = (U.reshape(-1, L) @ self._factors).reshape(g, n).T.ravel()[: self.m]
        return np.asarray((2 * sums).astype(np.int64))

    def _classes(self, K: NDArray[np.int64], order: Indices, s: Signs) -> NDArray[np.int64]:
        """s K_y, the sum of h over the sample's class as it is before each step (m,)."""
        by_class = np.argsort(self._y[order], kind="stable")
        steps = s[by_class].astype(np.int64)
        sums = 2 * (np.cumsum(steps) - steps)
        sums += np.repeat(K - sums[self._starts], self._counts)
        steps *= sums
        out = np.empty(self.m, dtype=np.int64)
        out[by_class] = steps
        return out
