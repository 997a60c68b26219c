"""The residual R = L S − BBᵀ of the similarities of labeled samples, never as a matrix, with K̄ beside it.

S = 2YYᵀ − 11ᵀ is 1 for two samples of one class and −1 for others; symbols as in :mod:`.ksh`. R v takes the sums of v
over each class and the products of v with the bits so far, K̄ᵀRK̄ those of K̄.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import blocks_of_size, in_parts
from hashlearn.threads import ThreadMap, cores

# Eigenvalues of K̄ᵀK̄ below this share of their mean, by the type of K̄: weights along them would magnify its rounding.
_LEAST = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
# Samples of a block: small enough for float32 sums over one.
_BLOCK = 2048


class Sums(NamedTuple):
    """Of a vector v (m,): all that vᵀRv, and Rv at any sample, take."""

    classes: Floats  # Yᵀv (c,)
    bits: Floats  # Bᵀv (k,)


class Residual:
    """R = L S − BBᵀ by its factors, and K̄ᵀ (p, m). Sums are added in float64 and in a fixed order.

    K̄ is held by its columns: as narrow as it is, its products with vectors are then twice as fast.
    """

    def __init__(self, KT: Array, y: Indices, L: int, threads: ThreadMap) -> None:
        self.KT, self.y, self.L, self._threads = KT, y, L, threads
        self.n_classes = int(y.max()) + 1
        self.B = np.empty((L, len(y)))  # a bit a row
        self.k = 0
        self._blocks = blocks_of_size(len(y), _BLOCK)
        #: ‖R‖², a whole number: ‖S‖² = m².
        self.square = float(L * len(y)) ** 2
        #: K̄ᵀK̄, K̄ᵀRK̄ (p, p)
        self.gram, self.form = self._products()
        #: T (p, r) with TᵀK̄ᵀK̄T = I, r the rank of K̄ beyond rounding
        self.basis = _basis(self.gram, _LEAST[KT.dtype])

    def __len__(self) -> int:
        return len(self.y)

    def _products(self) -> tuple[Floats, Floats]:
        from scipy.sparse import csr_array

        p = len(self.KT)
        gram, C = np.zeros((p, p)), np.zeros((p, self.n_classes))  # C = K̄ᵀY
        for block in self._blocks:
            K = self.KT[:, block].astype(np.float64)
            gram += K @ K.T
            n = K.shape[1]
            C += K @ csr_array((np.ones(n), (np.arange(n), self.y[block])), shape=(n, self.n_classes))
        total = C.sum(axis=1)
        return gram, self.L * (2 * C @ C.T - np.outer(total, total))

    def _total(self, work: Callable[[slice], tuple[Any, ...]]) -> list[Any]:
        """The sum over all blocks of samples, item by item, of ``work(block)``; the blocks are shared among threads.

        Lists are joined. (:func:`._blocks.total` adds in another order, and so rounds differently.)
        """
        groups = in_parts(self._blocks, 2 * cores())  # a few long tasks: a block is done in less time than a task takes

        def works(group: list[slice]) -> list[tuple[Any, ...]]:
            return [work(block) for block in group]

        results = self._threads(works, groups) if len(groups) > 1 else [works(self._blocks)]
        return [sum(items[1:], items[0]) for items in zip(*chain(*results), strict=True)]

    def values(self, a: Floats) -> Floats:
        """K̄a (m,)."""
        a = a.astype(self.KT.dtype)
        (values,) = self._total(lambda block: ([a @ self.KT[:, block]],))
        return np.concatenate(values, dtype=np.float64)

    def sums(self, v: Floats) -> Sums:
        """Of v (m,)."""
        return Sums(*self._total(lambda block: self._sums(v[block], block)))

    def squash(self, z: Floats) -> tuple[Floats, Sums]:
        """φ (m,) of z = K̄a, and its sums."""

        def part(block: slice) -> tuple[list[Floats], Floats, Floats]:
            out = np.negative(z[block])
            with np.errstate(over="ignore"):  # e^{−z} = ∞ gives −1
                np.exp(out, out=out)
            out += 1
            np.divide(2, out, out=out)
            out -= 1
            return [out], *self._sums(out, block)

        phi, *sums = self._total(part)
        return np.concatenate(phi), Sums(*sums)

    def _sums(self, v: Floats, block: slice) -> tuple[Floats, Floats]:
        """Yᵀv and Bᵀv over the samples of a block, v theirs."""
        classes: Any = np.bincount(self.y[block], weights=v, minlength=self.n_classes)
        return classes, self.B[: self.k, block] @ v

    def quadratic(self, sums: Sums) -> float:
        """vᵀRv = 2L‖Yᵀv‖² − L(1ᵀv)² − ‖Bᵀv‖²."""
        c, b = sums
        return float(self.L * (2 * c @ c - c.sum() ** 2) - b @ b)

    def product(self, sums: Sums, block: slice) -> Floats:
        """Rv at the samples of a block: 2L Y(Yᵀv) − L 1(1ᵀv) − B(Bᵀv)."""
        c, b = sums
        return np.asarray((self.L * (2 * c - c.sum()))[self.y[block]] - b @ self.B[: self.k, block])

    def gradient(self, phi: Floats, sums: Sums) -> Floats:
        """∇g (p,) = −K̄ᵀ((Rφ) ⊙ (1 − φ²))."""

        def part(block: slice) -> tuple[Floats]:
            t = self.product(sums, block)
            t *= 1 - np.square(phi[block])
            return ((self.KT[:, block] @ t.astype(self.KT.dtype)).astype(np.float64),)

        (total,) = self._total(part)
        return np.asarray(-total)

    def add(self, b: Floats) -> None:
        """One more bit b (m,): R ← R − bbᵀ."""
        self.square += float(len(self)) ** 2 - 2 * self.quadratic(self.sums(b))
        (q,) = self._total(lambda block: (self.KT[:, block].astype(np.float64) @ b[block],))
        self.form -= np.outer(q, q)
        self.B[self.k] = b
        self.k += 1


def _basis(gram: Floats, least: float) -> Floats:
    """T (p, r): eigenvectors of the Gram matrix over the roots of their eigenvalues, where those are not too small."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > least * max(float(np.trace(gram)) / len(gram), np.finfo(np.float64).tiny)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
