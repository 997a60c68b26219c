"""GIST, image by image, with plain float64 FFTs: slow and obvious, the truth for the fast one."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def gist_reference(images: Any, orientations: tuple[int, ...] = (8, 8, 4)) -> Array:
    """The descriptors of a sequence of images, (n, 16 * sum(orientations)), float64."""
    return np.array([gist_of_one(np.asarray(image), orientations) for image in images])


def gist_of_one(image: Array, orientations: tuple[int, ...]) -> Array:
    x = prefilter(stretch(gray(image)))
    rows, columns = x.shape
    spectrum = np.fft.fft2(np.pad(x, 32, mode="symmetric"))
    features = []
    for scale, count in enumerate(orientations):
        for j in range(count):
            G = gabor(rows + 64, columns + 64, scale, j, count)
            response = np.abs(np.fft.ifft2(spectrum * G))[32 : 32 + rows, 32 : 32 + columns]
            # MATLAB unrolls a matrix column by column.
            features.append(grid_means(response).ravel(order="F"))
    return np.concatenate(features)


def gray(image: Array) -> Array:
    x = image.astype(np.float64)
    return x.mean(axis=2) if x.ndim == 3 else x


def stretch(x: Array) -> Array:
    if x.max() == x.min():
        return np.zeros_like(x)
    return 255 * ((x - x.min()) / (x.max() - x.min()))


def prefilter(x: Array) -> Array:
    """Whiten and normalize the local contrast."""
    rows, columns = x.shape
    padded = np.pad(np.log(1 + x), 5, mode="symmetric")
    n = max(padded.shape)
    n += n % 2
    padded = np.pad(padded, ((0, n - padded.shape[0]), (0, n - padded.shape[1])), mode="symmetric")
    high = padded - lowpass(padded).real
    local_std = np.sqrt(np.abs(lowpass(high**2)))
    return (high / (0.2 + local_std))[5 : 5 + rows, 5 : 5 + columns]


def lowpass(x: Array) -> Array:
    n = x.shape[0]
    s1 = 4 / np.sqrt(np.log(2))
    f = np.fft.fftfreq(n, 1 / n)  # cycles per image
    return np.fft.ifft2(np.fft.fft2(x) * np.exp(-(f[:, None] ** 2 + f**2) / s1**2))


def gabor(ny: int, nx: int, scale: int, j: int, count: int) -> Array:
    fy, fx = np.fft.fftfreq(ny)[:, None], np.fft.fftfreq(nx)  # cycles per pixel
    f0 = 0.3 / 1.85**scale
    w = 16 * count**2 / 32**2
    theta = np.arctan2(fy, fx) + np.pi / count * j
    theta = np.where(theta > np.pi, theta - 2 * np.pi, theta)
    return np.exp(-10 * 0.35 * (np.hypot(fx, fy) / f0 - 1) ** 2 - 2 * np.pi * w * theta**2)


def grid_means(x: Array) -> Array:
    rows = np.fix(np.linspace(0, x.shape[0], 5)).astype(int)
    columns = np.fix(np.linspace(0, x.shape[1], 5)).astype(int)
    return np.array(
        [[x[rows[a] : rows[a + 1], columns[b] : columns[b + 1]].mean() for b in range(4)] for a in range(4)]
    )
