"""GIST: how an image's energy spreads over orientations, scales and a 4×4 grid of places.

Oliva & Torralba, "Modeling the shape of the scene: a holistic representation of the spatial envelope",
IJCV 42(3), 2001, in the form of the MATLAB code that the hashing literature uses.

    x    (H, W)        gray image: mean of the channels, stretched to 0…255 (a constant image becomes zeros)
    h    (m, m)        p − lowpass(p), p = log(1 + x) padded to an even square of side m
    y    (H, W)        h / (0.2 + √|lowpass(h²)|), cropped: the prefiltered image
    G_f  (ny, nx)      exp(−3.5 (f/f0 − 1)² − 2π w θ²): filter f on the padded grid, ny = H + 64, nx = W + 64
    z_f  (H, W)        ifft2(fft2(padded y) · G_f), cropped; complex
    the descriptor     mean of |z_f| over the 4×4 grid

Everything before |·| is linear in y, so there are two ways to the same numbers: FFTs (here), and for many
small images one matrix product per filter (``_gist_matrix``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hashlearn._arrays import Array
from hashlearn.errors import shown
from hashlearn.features._gist_filters import GRID, PAD, gabor, grid_means, mirror, padded, prefilter_path
from hashlearn.features._gist_matrix import BLOCK, matrix_costs, matrix_path
from hashlearn.features._picture import read_picture
from hashlearn.progress import progress_bar
from hashlearn.storage import StrPath, cached_array, content_key
from hashlearn.threads import thread_map

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["GIST_320", "GIST_512", "GistExtractor", "gist"]

GIST_320 = (8, 8, 4)
"""Orientations per scale, finest scale first, of the 320-dimensional descriptor."""
GIST_512 = (8, 8, 8, 8)
"""Orientations per scale, finest scale first, of the 512-dimensional descriptor."""

_VERSION = 3  # part of the cache's key: raise it when the numbers change
_DESCRIPTION_VERSION = 1  # of an extractor's numbers: raise it when reading, resizing or GIST change them
_SIDES = (4, 1024)
_MAX_FILTERS = 1024
_LARGEST = 1e300  # the sum of three channels stays finite
_FFT_BLOCK_BYTES = 4 << 20  # of one complex array (or one image's, if larger); about five live at a time
_MATRIX_BYTES = 512 << 20
# What a FLOP of an FFT, and of building the matrices, costs in FLOPs of a matrix product (docs/gist.md).
_FFT_FLOP = 9.0
_BUILD_FLOP = 1.5


def gist(
    images: Any, orientations: Sequence[int] = GIST_320, *, cache: bool = False, show_progress: bool | None = None
) -> Array:
    """Compute GIST descriptors.

    Parameters
    ----------
    images
        uint8 or float array (n, H, W), (n, H, W, 1) or (n, H, W, 3), or a sequence of single images (H, W),
        (H, W, 1) or (H, W, 3) whose sizes may differ. Every side is at least 4 pixels. Values must be finite;
        their range does not matter, each image is stretched to 0…255.
    orientations
        Orientations per scale, finest scale first: ``GIST_320`` or ``GIST_512``, or any positive integers.
    cache
        Keep the result in the cache folder, under a hash of the images, and read it from there next time.
        The array is then memory-mapped and read-only.
    show_progress
        Show a progress bar. None: only on a terminal.

    Returns
    -------
    features : ndarray of shape (n, 16 * sum(orientations)), float32
        The features, filter by filter (scale by scale, orientation by orientation), and for each filter the 16 cells
        of the grid column by column (the cell's row varies fastest), the order of the MATLAB code: feature
        ``16 * filter + 4 * grid_column + grid_row``. The features of a constant image are zeros.
    """
    counts = check_orientations(orientations)
    groups, n = _check_images(images)

    def compute() -> Array:
        out = np.empty((n, GRID**2 * sum(counts)), dtype=np.float32)
        with progress_bar("GIST", n, unit="images", show=show_progress) as advance:
            for rows, batch in groups:
                H, W = batch.shape[1:3]
                path = _choose_path(len(batch), H, W, counts)
                out[rows] = _describe(batch, counts, path, advance)
        return out

    if not cache:
        return compute()
    return cached_array(
        "gist", content_key(_VERSION, str(counts), *(part for group in groups for part in group)), compute
    )


@dataclass(frozen=True)
class GistExtractor:
    """GIST of whole pictures, resized to a square.

    Parameters
    ----------
    side
        The square's side in pixels, 4 to 1,024.
    color
        True: gray is the mean of red, green and blue, as in the data set ``cifar10``. False: gray is luma (ITU-R 601),
        which a JPEG stores. The vectors have the same length, but must not be mixed.
    orientations
        Orientations per scale, finest scale first: ``GIST_320`` or ``GIST_512``, or any positive integers.
    """

    name: ClassVar[str] = "gist"

    side: int = 64
    color: bool = True
    orientations: tuple[int, ...] = GIST_512

    def __post_init__(self) -> None:
        least, most = _SIDES
        if not isinstance(self.side, int) or not least <= self.side <= most:
            raise ValueError(f"side must be a whole number of pixels from {least} to {most}; got {shown(self.side)}.")
        if type(self.color) is not bool:
            raise ValueError(f"color must be True or False; got {shown(self.color)}.")
        counts = check_orientations(self.orientations)
        if sum(counts) > _MAX_FILTERS:
            raise ValueError(f"orientations must add up to at most {_MAX_FILTERS} filters; got {sum(counts)}.")
        object.__setattr__(self, "orientations", counts)

    def __str__(self) -> str:
        return f"{self.n_features}-D GIST of pictures at {self.side}×{self.side}, {'color' if self.color else 'gray'}"

    @property
    def n_features(self) -> int:
        """The length of a vector."""
        return GRID**2 * sum(self.orientations)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of a prepared picture: (side, side, 3), or (side, side) if it is gray."""
        return (self.side, self.side, 3) if self.color else (self.side, self.side)

    def prepare(self, path: StrPath) -> Array:
        """Read a picture, resized to the square.

        Only the first frame or page is read. The picture is turned upright by its EXIF data, and put on white where it
        is transparent.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        image : ndarray of shape ``image_shape``, uint8

        Raises
        ------
        ImageError
            It can't be read; ``reason`` says why in one line.
        """
        return read_picture(os.fspath(path), self.side, self.color)

    def describe(self, images: Any) -> Array:
        """Compute the vectors of prepared pictures.

        Parameters
        ----------
        images : ndarray of shape (n, *image_shape), uint8, or list of n pictures
            As :meth:`prepare` returns them.

        Returns
        -------
        vectors : ndarray of shape (n, n_features), float32
        """
        return gist(images, self.orientations, show_progress=False)

    def description(self) -> dict[str, Any]:
        """Return JSON values from which :meth:`from_description` makes an equal extractor."""
        return {
            "version": _DESCRIPTION_VERSION,
            "kind": "gist",
            "side": self.side,
            "color": self.color,
            "orientations": list(self.orientations),
        }

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """Make an extractor from its description.

        Parameters
        ----------
        description
            As :meth:`description` returns it; from a file it can be any JSON value.

        Raises
        ------
        ValueError
            The vectors of the extractor would not be those described.
        """
        if not isinstance(description, dict):
            raise ValueError(f"features must be a dict; got {type(description).__name__}.")
        version = description.get("version")
        if type(version) is not int or version != _DESCRIPTION_VERSION:
            raise ValueError(
                f"features must be of version {_DESCRIPTION_VERSION}, the one computed here; got {shown(version)}."
            )
        names = set(GistExtractor().description())
        if set(description) != names:
            odd = ", ".join(sorted(map(repr, set(description) ^ names)))
            raise ValueError(f"features must have the fields {', '.join(sorted(names))}; differs in {odd}.")
        if description["kind"] != "gist":
            raise ValueError(f"kind must be 'gist'; got {shown(description['kind'])}.")
        return cls(**{name: description[name] for name in ("side", "color", "orientations")})


def _choose_path(n: int, H: int, W: int, counts: tuple[int, ...]) -> str:
    """``"matrix"`` or ``"fft"``: whichever is cheaper for n images by weighted FLOPs, if the matrices fit."""
    size, flops_per_image, flops_to_build = matrix_costs(H, W, counts)
    if size > _MATRIX_BYTES:
        return "fft"
    pixels = (H + 2 * PAD) * (W + 2 * PAD)
    fft = n * 5 * sum(counts) * pixels * math.log2(pixels)
    matrix = n * flops_per_image + _BUILD_FLOP * flops_to_build
    return "matrix" if matrix < _FFT_FLOP * fft else "fft"


def _describe(batch: Array, counts: tuple[int, ...], path: str, advance: Callable[[float], None]) -> Array:
    """Descriptors of images of one size, by ``path``, block by block."""
    n, H, W = batch.shape[:3]
    out = np.empty((n, GRID**2 * sum(counts)), dtype=np.float32)
    with thread_map() as threads:
        if path == "matrix":
            block, describe = BLOCK, matrix_path(H, W, counts)
        else:
            block = max(1, _FFT_BLOCK_BYTES // (8 * (H + 2 * PAD) * (W + 2 * PAD)))
            describe = _fft_path(H, W, counts)
        prefilter = prefilter_path(H, W)

        def work(start: int) -> None:
            part = batch[start : start + block]
            describe(prefilter(_stretched_gray(part)), out[start : start + block])
            advance(len(part))

        threads(work, range(0, n, block))
    return out


def _stretched_gray(batch: Array) -> Array:
    """(n, H, W[, channels]) to float64 (n, H, W) in 0…255; a sum of channels, as the stretch undoes any factor."""
    first = batch if batch.ndim == 3 else batch[..., 0]
    x: Array = first.astype(np.float64, order="C")
    for channel in range(1, batch.shape[3] if batch.ndim == 4 else 1):
        x += batch[..., channel]
    flat: Array = x.reshape(len(x), -1)  # a view: x is contiguous
    flat -= flat.min(axis=1, keepdims=True)
    span = flat.max(axis=1, keepdims=True)
    flat /= np.where(span == 0, 1, span)
    flat *= 255
    return x


def _fft_path(H: int, W: int, counts: tuple[int, ...]) -> Callable[[Array, Array], None]:
    from scipy import fft

    ny, nx = H + 2 * PAD, W + 2 * PAD
    filters = [g.astype(np.float32) for s, count in enumerate(counts) for g in gabor(ny, nx, s, count)]
    rows, columns = mirror(H, PAD, PAD), mirror(W, PAD, PAD)
    means_y, means_x = (grid_means(size).astype(np.float32) for size in (H, W))

    def describe(y: Array, out: Array) -> None:
        spectrum = fft.fft2(padded(y, rows, columns), overwrite_x=True)
        product = np.empty_like(spectrum)
        cells = out.reshape(len(y), len(filters), GRID, GRID)
        for f, G in enumerate(filters):
            # Crop after the first axis: the second one has fewer lines to do.
            z = fft.ifft(np.multiply(spectrum, G, out=product), axis=1, overwrite_x=True)
            z = fft.ifft(z[:, PAD : PAD + H], axis=2)[:, :, PAD : PAD + W]
            cells[:, f] = (means_y @ np.abs(z) @ means_x.T).transpose(0, 2, 1)

    return describe


def check_orientations(orientations: Sequence[int]) -> tuple[int, ...]:
    counts = tuple(orientations) if isinstance(orientations, Iterable) else ()
    if not counts or not all(isinstance(c, (int, np.integer)) and c >= 1 for c in counts):
        raise ValueError(
            f"orientations must be one or more positive integers, one per scale; got {shown(orientations)}."
        )
    return tuple(int(c) for c in counts)


def _check_images(images: Any) -> tuple[list[tuple[Array, Array]], int]:
    """Group images of one shape and type, each group with the places of its images in the output; also their number."""
    if hasattr(images, "__array__"):
        batch = np.asarray(images)
        if batch.ndim not in (3, 4):
            raise ValueError(
                "images must be an array (n, H, W), (n, H, W, 1) or (n, H, W, 3), or a sequence of single images; "
                f"got an array of shape {batch.shape}."
            )
        _check_layout(batch.shape[1:], batch.dtype, "images must be")
        groups: list[tuple[Array, Array]] = [(np.arange(len(batch)), batch)]
    elif isinstance(images, Sequence) and not isinstance(images, (str, bytes)):
        singles = [np.asarray(image) for image in images]
        places: dict[tuple[Any, ...], list[int]] = {}
        for i, single in enumerate(singles):
            _check_layout(single.shape, single.dtype, f"image {i} must be")
            places.setdefault((single.shape, single.dtype), []).append(i)
        groups = [(np.array(rows), np.stack([singles[i] for i in rows])) for rows in places.values()]
    else:
        raise ValueError(f"images must be an array or a sequence of single images; got {type(images).__name__}.")
    for rows, batch in groups:
        _check_finite(batch, rows)
    return groups, sum(len(rows) for rows, _ in groups)


def _check_layout(shape: tuple[int, ...], dtype: np.dtype[Any], subject: str) -> None:
    if dtype != np.uint8 and (dtype.kind != "f" or dtype.itemsize > 8):
        raise ValueError(f"{subject} of type uint8 or float (16, 32 or 64 bits); got {dtype}.")
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise ValueError(f"{subject} (H, W), (H, W, 1) or (H, W, 3); got {shape}.")
    if min(shape[:2]) < GRID:
        raise ValueError(f"{subject} at least 4×4 pixels (the grid is 4×4); got {shape[0]}×{shape[1]}.")


def _check_finite(batch: Array, rows: Array) -> None:
    if batch.dtype == np.uint8 or not len(batch):
        return
    step = max(1, _FFT_BLOCK_BYTES // batch[0].nbytes)
    for start in range(0, len(batch), step):
        part = batch[start : start + step]
        peaks = np.abs(part).reshape(len(part), -1).max(axis=1).astype(np.float64)
        bad = ~(peaks < _LARGEST)  # true for NaN as well
        if bad.any():
            i = int(np.argmax(bad))
            raise ValueError(f"images must be finite and below {_LARGEST:g}; image {rows[start + i]} has {peaks[i]}.")
