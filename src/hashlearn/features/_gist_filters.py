"""The parts of GIST's definition that depend only on the image's size: padding, low-pass, Gabor filters, grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from hashlearn._arrays import Array

GRID = 4
PAD = 32
_PREFILTER_PAD = 5
_CYCLES = 4  # of the prefilter's cut-off, per (padded) image


def mirror(size: int, before: int, after: int) -> Array:
    """For each pixel of a line padded symmetrically, the pixel it repeats."""
    i: Array = np.arange(-before, size + after) % (2 * size)
    return np.asarray(np.minimum(i, 2 * size - 1 - i))


def padded(x: Array, rows: Array, columns: Array) -> Array:
    """Images (n, H, W) padded by the index maps of both axes."""
    flat: Array = x.reshape(len(x), -1).take((rows[:, None] * x.shape[2] + columns).ravel(), axis=1)
    return flat.reshape(len(x), len(rows), len(columns))


def prefilter_path(H: int, W: int) -> Callable[[Array], Array]:
    """Whitening and local contrast normalization of float64 images (n, H, W) in 0…255; the result is float32."""
    side = max(H, W) + 2 * _PREFILTER_PAD
    m = side + side % 2
    s1 = _CYCLES / math.sqrt(math.log(2))
    f = np.fft.fftfreq(m, 1 / m)
    # exp(−(fx² + fy²)/s1²) is a product of one circulant matrix per axis; this is its first column.
    kernel = np.fft.ifft(np.exp(-(f**2) / s1**2)).real
    lowpass = kernel[np.subtract.outer(np.arange(m), np.arange(m)) % m]

    def operators(size: int) -> tuple[Array, Array, Array]:
        """Of one axis: the index map of the padding, low-pass ∘ padding, and crop ∘ low-pass."""
        inner = size + 2 * _PREFILTER_PAD
        index = mirror(size, _PREFILTER_PAD, _PREFILTER_PAD)[mirror(inner, 0, m - inner)]
        low = (lowpass @ np.eye(size)[index]).astype(np.float32)
        return index, low, lowpass[_PREFILTER_PAD : _PREFILTER_PAD + size].astype(np.float32)

    (rows, low_y, crop_y), (columns, low_x, crop_x) = operators(H), operators(W)

    def prefilter(x: Array) -> Array:
        n = len(x)
        x = np.log(x + 1)
        # The low-pass leaves constants as they are, so h does not change; but p − lowpass(p) loses no digits to a
        # common offset (a bright plateau's log is 5.5, its h a hundredth).
        x -= x.mean(axis=(1, 2), keepdims=True)
        x = x.astype(np.float32)
        # h = p − lowpass(p)
        high = padded(x, rows, columns)
        high -= low_y @ (x.reshape(-1, W) @ low_x.T).reshape(n, H, -1)
        # y = h / (0.2 + √|lowpass(h²)|)
        local: Array = crop_y @ ((high * high).reshape(-1, len(columns)) @ crop_x.T).reshape(n, len(rows), W)
        np.sqrt(np.abs(local, out=local), out=local)
        local += np.float32(0.2)
        pad = _PREFILTER_PAD
        return np.divide(high[:, pad : pad + H, pad : pad + W], local, out=local)

    return prefilter


def center_frequency(scale: int) -> float:
    """f0, in cycles per pixel."""
    return float(0.3 / 1.85**scale)


def band_share(scale: int, tolerance: float) -> float:
    """The share of the frequency plane where a scale's radial factor exceeds ``tolerance``."""
    f_max = center_frequency(scale) * (1 + math.sqrt(-math.log(tolerance) / 3.5))
    return min(1.0, math.pi * f_max**2)


def gabor(ny: int, nx: int, scale: int, count: int) -> Array:
    """The transfer functions of one scale's ``count`` orientations, (count, ny, nx)."""
    fy, fx = np.fft.fftfreq(ny)[:, None], np.fft.fftfreq(nx)  # cycles per pixel
    w = 16 * count**2 / 32**2
    theta: Array = np.arctan2(fy, fx) + np.pi / count * np.arange(count)[:, None, None]
    theta -= 2 * np.pi * (theta > np.pi)
    # G = exp(−10 · 0.35 (f/f0 − 1)² − 2π w θ²)
    radial = -3.5 * (np.hypot(fx, fy) / center_frequency(scale) - 1) ** 2
    G: Array = np.exp(radial - 2 * np.pi * w * theta**2)
    return G


def grid_means(size: int) -> Array:
    """(4, size): the mean over each quarter of a line; quarter k begins at floor(size · k / 4)."""
    means = np.zeros((GRID, size))
    bounds = np.arange(GRID + 1) * size // GRID
    for cell, (start, stop) in enumerate(pairwise(bounds)):
        means[cell, start:stop] = 1 / (stop - start)
    return means
