"""GIST's filters as matrices, for many small images.

Everything between the prefiltered image y (H·W pixels) and |·| is linear: z_f(p) = Σ_x M_f[x, p] y(x), where
M_f[x, p] = Σ k_f(p − q) over the padded pixels q that mirror x. Two facts make the product small:

* G_f is real, so turning an image by 180° turns z_f and conjugates it. Split y = (e + o)/2 by e(p) = y(p) + y(p')
  and o(p) = y(p) − y(p'), p' the pixel opposite to p. With E and O the responses to the two halves,
  z_f(p) = E + O and z_f(p') = conj(E − O): half the inputs and half the outputs, twice.
* Coarse filters are band-limited. All filters of a scale see e (and o) only through r of its dimensions:
  T_f = Vᵀ M_f with V (h, r) orthonormal, e → eV once a scale, then (eV) T_f once a filter.

    h = ⌈H·W/2⌉    V (h, r)    T_f (r, 2h): real parts of E at the first h pixels, then imaginary parts
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hashlearn._arrays import Array
from hashlearn.features._gist_filters import GRID, PAD, band_share, gabor, grid_means, mirror

RANK_TOLERANCE = 1e-6  # singular values below this share of the scale's largest are dropped
BLOCK = 256  # images per product: enough for BLAS, few enough for the cache


class _Scale(NamedTuple):
    """The filters of one scale; each pair is for the even and the odd part of an image."""

    bases: tuple[Array | None, Array | None]  # V, or None where it would save nothing
    filters: list[tuple[Array, ...]]  # T_f


def matrix_costs(H: int, W: int, counts: tuple[int, ...]) -> tuple[float, float, float]:
    """Approximate bytes of all T_f, FLOPs per image, and FLOPs to build the matrices."""
    # The number of filters of full rank that cost as much: r is about the share of frequencies a scale passes.
    full = sum(count * band_share(scale, RANK_TOLERANCE) for scale, count in enumerate(counts))
    # The contractions and the eigenvectors.
    build = 4 * sum(counts) * (W + 2 * PAD) + 6 * len(counts) * H * W
    return 4 * (H * W) ** 2 * full, 2 * (H * W) ** 2 * full, build * (H * W) ** 2


def matrix_path(H: int, W: int, counts: tuple[int, ...]) -> Callable[[Array, Array], None]:
    """A function that writes the descriptors of at most ``BLOCK`` prefiltered images into its second argument."""
    N, h = H * W, _half(H * W)
    scales = _matrices(H, W, counts)
    # (pixels, cells); MATLAB's order of cells, the grid's row fastest.
    cells = np.einsum("ay,bx->yxba", grid_means(H), grid_means(W)).reshape(N, -1).astype(np.float32)
    opposite = cells[::-1][:h].copy()
    if N % 2:
        opposite[-1] = 0  # the middle pixel is its own opposite: count it once
    local = threading.local()  # buffers of each thread

    def describe(y: Array, out: Array) -> None:
        if not hasattr(local, "buffers"):
            local.buffers = np.empty((3, BLOCK, 2 * h), dtype=np.float32)
        E, D, S = local.buffers[:, : len(y)]
        flat = y.reshape(len(y), N)
        turned = flat[:, ::-1]
        parts = (flat[:, :h] + turned[:, :h], flat[:, : N - h] - turned[:, : N - h])
        f = 0
        for bases, filters in scales:
            even, odd = (part if V is None else part @ V for part, V in zip(parts, bases, strict=True))
            for T_even, T_odd in filters:
                np.matmul(even, T_even, out=E)
                np.matmul(odd, T_odd, out=D)
                np.add(E, D, out=S)
                np.subtract(E, D, out=D)
                out[:, f : f + GRID**2] = _moduli(S) @ cells[:h] + _moduli(D) @ opposite
                f += GRID**2

    return describe


def _moduli(z: Array) -> Array:
    """√(re² + im²) of rows [re | im], in place."""
    h = z.shape[1] // 2
    z *= z
    power = z[:, :h]
    power += z[:, h:]
    return np.sqrt(power, out=power)


@lru_cache(maxsize=2)
def _matrices(H: int, W: int, counts: tuple[int, ...]) -> list[_Scale]:
    h = _half(H * W)
    (A_y, B_y), (A_x, B_x) = _fourier_pair(H), _fourier_pair(W)
    # Outputs are needed at the first h pixels only, which lie in the upper half of the rows.
    P_y = _products(A_y[: _half(H)], B_y).astype(np.complex64)
    P_x = _products(A_x, B_x).astype(np.complex64)
    scales = []
    for scale, count in enumerate(counts):
        G = gabor(H + 2 * PAD, W + 2 * PAD, scale, count)
        bases: tuple[Array | None, Array | None] = (None, None)
        if band_share(scale, RANK_TOLERANCE) < 1:
            # Parseval: Σ_f ‖k_f ∗ padded y‖² is proportional to yᵀ K y, K = Σ_k Σ_f G_f(k)² b_k* b_kᵀ, b_k = B[:, k].
            # Eigenvectors of its tiny eigenvalues are the dimensions that no filter of this scale sees.
            Q_y, Q_x = _products(B_y.conj(), B_y), _products(B_x.conj(), B_x)
            K = _contract(Q_y, (G**2).sum(axis=0), Q_x, H, W).real
            bases = (_basis(K, 1, count), _basis(K, -1, count))
        filters = []
        for g in G:
            M = _contract(P_y, np.asarray(g, dtype=np.float32), P_x, H, W)[:, :h]
            T = np.concatenate([M.real, M.imag], axis=1)
            even, odd = _part(T, 1), _part(T, -1)
            filters.append(tuple(t if V is None else V.T @ t for t, V in zip((even, odd), bases, strict=True)))
        scales.append(_Scale(bases, filters))
    return scales


def _half(n: int) -> int:
    return n - n // 2


def _fourier_pair(size: int) -> tuple[Array, Array]:
    """A: inverse DFT at the image's own pixels; B: DFT ∘ padding. Both (size, size + 64), frequencies last."""
    n = size + 2 * PAD
    k = np.arange(n)
    A = np.exp(2j * np.pi / n * np.outer(np.arange(PAD, PAD + size), k)) / n
    B = np.eye(size)[:, mirror(size, PAD, PAD)] @ np.exp(-2j * np.pi / n * np.outer(k, k))
    return A, B


def _products(A: Array, B: Array) -> Array:
    """(a, k) and (b, k) to (a · b, k): each row of A times each row of B."""
    products: Array = A[:, None] * B
    return products.reshape(-1, A.shape[1])


def _contract(P_y: Array, g: Array, P_x: Array, H: int, W: int) -> Array:
    """Σ_k g(k) P_y[(p_y, x_y), k_y] P_x[(p_x, x_x), k_x] as a matrix (inputs x, outputs p)."""
    M: Array = P_y @ g @ P_x.T
    return M.reshape(-1, H, W, W).transpose(1, 3, 0, 2).reshape(H * W, -1)


def _part(M: Array, sign: int) -> Array:
    """M's rows for the inputs y(p) + y(p') (sign 1) or y(p) − y(p') (sign −1)."""
    N = len(M)
    rows = _half(N) if sign > 0 else N // 2
    part: Array = (M[:rows] + sign * M[::-1][:rows]) / 2
    if sign > 0 and N % 2:
        part[-1] /= 2  # the middle pixel is its own opposite
    return part


def _basis(K: Array, sign: int, count: int) -> Array | None:
    """V of the even or odd part; None if projecting first costs more than it saves."""
    values, vectors = np.linalg.eigh(_part(_part(K, sign).T, sign))
    V: Array = vectors[:, values > RANK_TOLERANCE**2 * values[-1]].astype(np.float32)
    h, r = V.shape
    return V if r * h + count * r * 2 * h < count * h * 2 * h else None
