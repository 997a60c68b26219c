"""One picture file to a small square of pixels, whatever the file holds.

What a file claims is checked before it costs anything: that it is a regular file of a format that is read, and how
many pixels its header promises. Then, in this order, so that little is held at full size:

    draft        a JPEG is decoded at 1/2, 1/4 or 1/8 of its size, as small as keeps ``_SPARE`` times the side
    flatten      to 8-bit grey or RGB; what is transparent becomes white; grey of more bits is stretched (below)
    resize       the whole picture to side × side, each pixel the mean of what it covers, whatever the shape was
    turn         as the orientation in the EXIF data says
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hashlearn.errors import ImageError
from hashlearn.features._silence import silent_pillow
from hashlearn.memory import free_memory

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MAX_BYTES", "MAX_PIXELS", "read_picture"]

Array: TypeAlias = "np.ndarray[Any, Any]"

MAX_PIXELS = 1 << 27
"""Pictures of more pixels are refused; Pillow takes up to 16 bytes for each (WebP), 2.1 GB."""
MAX_BYTES = 1 << 30
"""Larger files are refused: some formats are read into memory whole."""

# EPS, which is run as a program, and the dozens of formats that no camera or web page has are not tried.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_SPARE = 2
_LARGE_PIXELS = 1 << 24
_PIXEL_BYTES = 16
_large = threading.Lock()  # larger pictures are decoded one at a time, however many threads there are
_ORIENTATION = 0x0112


def _begin_anew() -> None:
    """In a forked child, where the thread that decodes a large picture is not."""
    global _large
    _large = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_begin_anew)


def read_picture(path: str, side: int, color: bool, *, square: bool = True) -> Array:
    """uint8 (side, side, 3), or (side, side) for grey. Whatever is wrong with the file is an :class:`ImageError`.

    ``square=False``: the picture keeps its shape, and ``side`` is the longer one.
    """
    try:
        with _opened(path) as file, silent_pillow():
            return _decoded(file, side, color, square)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make Pillow raise anything
        raise ImageError(path, _reason(error)) from error


class _RefusedError(Exception):
    """Carries a reason of our own."""


def _opened(path: str) -> IO[bytes]:
    """The file, if it is a regular one; a pipe does not block, a device is not touched."""
    _check_file(os.stat(path))
    # Another file may have taken its place since, so it is looked at again. Only Windows has O_BINARY and needs it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_file(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_file(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise _RefusedError("a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise _RefusedError("a pipe, socket or device, not a file")
    if status.st_size == 0:
        raise _RefusedError("the file is empty (0 bytes)")
    if status.st_size > MAX_BYTES:
        raise _RefusedError(f"the file has {status.st_size:,} bytes; at most {MAX_BYTES:,} are read")


def _decoded(file: IO[bytes], side: int, color: bool, square: bool) -> Array:
    # The two that Pillow would look for by importing every format it knows.
    from PIL import Image, TiffImagePlugin, WebPImagePlugin  # noqa: F401

    image: Image.Image = Image.open(file, formats=_FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _RefusedError(f"{width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are read")
    if width * height > _LARGE_PIXELS and 0 < free_memory() < _PIXEL_BYTES * width * height:
        raise _RefusedError(f"{width:,} × {height:,} pixels; there is not enough memory free to read them")
    drafted = image.draft("RGB" if color else "L", (_SPARE * side, _SPARE * side))
    # A progressive JPEG is held whole, even where a small one is asked for.
    held = width * height if image.info.get("progressive") else image.width * image.height
    with _large if held > _LARGE_PIXELS else nullcontext():
        image.load()
        if drafted is None:
            width, height = image.size  # a TIFF may have been turned
        longer = max(width, height)
        size = (side, side) if square else (max(1, side * width // longer), max(1, side * height // longer))
        turn = _orientation(image)
        pixels = _shrunk(image, size, None if drafted is None else drafted[1])
    if color and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    elif not color and pixels.ndim == 3:
        pixels = np.asarray(Image.fromarray(pixels).convert("L"))
    return np.ascontiguousarray(_turned(pixels, turn))


def _shrunk(image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None) -> Array:
    """uint8 (height, width) of a grey picture, (height, width, 3) of any other; ``box``: the part of it that counts."""
    from PIL import Image

    def resized(image: Image.Image) -> Array:
        # Without the gap a picture 1 pixel wide and millions high would first be made ``side`` wide at that height.
        return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box, reducing_gap=3.0))

    mode = image.mode
    if mode in ("I", "F") or mode.startswith("I;16"):
        return _stretched(resized(image.convert("F")))
    if mode in ("PA", "LA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        # Premultiplied, so that colours count as much as they are seen: over white, c·α + 255 (1 − α).
        rgba = resized(image.convert("RGBA").convert("RGBa")).astype(np.int16)
        return np.asarray(rgba[..., :3] + 255 - rgba[..., 3:], dtype=np.uint8)
    if mode == "CMYK" and image.format in ("JPEG", "MPO") and "adobe" not in image.info:
        # Pillow takes every JPEG's inks for inverted, which Adobe's are; without Adobe's marker they are not.
        from PIL import ImageChops

        image = ImageChops.invert(image)
    if mode not in ("L", "RGB"):
        image = image.convert("RGB")
    return resized(image)


def _stretched(values: Array) -> Array:
    """Grey of more than 8 bits, from its least to its greatest value, to 0…255: 12 of 16 bits may be in use, and
    float has no white at all. GIST would stretch it anyway."""
    if not np.isfinite(values).all():
        raise _RefusedError("the pixels must be finite; found NaN or infinity")
    values = values.astype(np.float64)
    low, high = values.min(), values.max()
    return np.asarray(np.rint((values - low) * (255 / (high - low) if high > low else 0)), dtype=np.uint8)


def _orientation(image: Image.Image) -> int:
    """1 to 8 by the EXIF data; 1, upright, where they are absent or broken. Valid only after ``load``."""
    if image.format == "TIFF":
        return 1  # Pillow has turned it while loading, and may leave the tag
    try:
        found: Any = image.getexif().get(_ORIENTATION)
    except MemoryError:
        raise
    except Exception:  # a picture is seen without its EXIF data too
        return 1
    return int(found) if found in range(1, 9) else 1


def _turned(pixels: Array, orientation: int) -> Array:
    """Upright: of 1…4 and of 5…8, which lie on their side, the second and third are mirrored, the third and fourth
    upside down."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def _reason(error: Exception) -> str:
    """One line for a person."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, _RefusedError):
        text = str(error)
    elif isinstance(error, UnidentifiedImageError):
        text = f"not a picture, or damaged at its beginning (the formats are {', '.join(_FORMATS)})"
    elif isinstance(error, Image.DecompressionBombError):
        text = f"too many pixels; at most {MAX_PIXELS:,} are read"
    elif isinstance(error, OSError):
        text = error.strerror or str(error)
    else:
        text = f"damaged ({type(error).__name__}: {error})"
    return " ".join(text.split())[:300]
