"""Read a picture file, which may be damaged or hostile, at a small size.

Before a picture is decoded, it is checked that it is a regular file of a known format, and how many pixels its header
declares. The steps are in this order, so that little is held at full size:

    draft        decode a JPEG at 1/2, 1/4 or 1/8 of its size, but at least ``_SPARE`` times the side
    flatten      convert to 8-bit gray or RGB; transparent pixels become white; gray of more bits is stretched (below)
    resize       scale the whole picture to side × side, whatever its shape; a pixel is the mean of what it covers
    turn         apply the orientation of the EXIF data
"""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hashlearn._arrays import Array
from hashlearn.errors import ImageError
from hashlearn.features._silence import silent_pillow
from hashlearn.memory import free_memory
from hashlearn.storage import open_regular

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MAX_BYTES", "MAX_PIXELS", "read_picture"]

MAX_PIXELS = 1 << 27
"""The largest number of pixels that is read. Pillow takes up to 16 bytes for each (WebP): 2.1 GB."""
MAX_BYTES = 1 << 30
"""The largest file that is read: some formats are read into memory as a whole."""

# Without EPS, which is executed as a program, and dozens of rare formats.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_SPARE = 2
_LARGE_PIXELS = 1 << 24
_PIXEL_BYTES = 16
_large = threading.Lock()  # larger pictures are decoded one at a time, whatever the number of threads
_ORIENTATION = 0x0112


def _reset_lock() -> None:
    """In a forked child, which does not have the thread that holds the lock."""
    global _large
    _large = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_reset_lock)


def read_picture(path: str, side: int, color: bool, *, square: bool = True) -> Array:
    """Read a picture as uint8 (side, side, 3), or (side, side) if gray.

    ``square=False``: keep the proportions; ``side`` is the longer side. Every error is an :class:`ImageError`.
    """
    try:
        with _open(path) as file, silent_pillow():
            return _decode(file, side, color, square)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make Pillow raise anything
        raise ImageError(path, _reason(error)) from error


class _RefusedError(Exception):
    """A file that is refused before Pillow reads it; its message is the reason."""


def _open(path: str) -> IO[bytes]:
    file = open_regular(path)
    size = os.fstat(file.fileno()).st_size
    if 0 < size <= MAX_BYTES:
        return file
    file.close()
    reason = f"the file has {size:,} bytes; at most {MAX_BYTES:,} are read" if size else "the file is empty (0 bytes)"
    raise _RefusedError(reason)


def _decode(file: IO[bytes], side: int, color: bool, square: bool) -> Array:
    # Otherwise Pillow imports all its formats to find these two.
    from PIL import Image, TiffImagePlugin, WebPImagePlugin  # noqa: F401

    image: Image.Image = Image.open(file, formats=_FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _RefusedError(f"{width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are read")
    if width * height > _LARGE_PIXELS and 0 < free_memory() < _PIXEL_BYTES * width * height:
        raise _RefusedError(f"{width:,} × {height:,} pixels; there is not enough memory free to read them")
    drafted = image.draft("RGB" if color else "L", (_SPARE * side, _SPARE * side))
    # A progressive JPEG is held at full size, also if a small one is requested.
    held = width * height if image.info.get("progressive") else image.width * image.height
    with _large if held > _LARGE_PIXELS else nullcontext():
        image.load()
        if drafted is None:
            width, height = image.size  # Pillow may have turned a TIFF
        longer = max(width, height)
        size = (side, side) if square else (max(1, side * width // longer), max(1, side * height // longer))
        turn = _orientation(image)
        pixels = _shrink(image, size, None if drafted is None else drafted[1])
    if color and pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    elif not color and pixels.ndim == 3:
        pixels = np.asarray(Image.fromarray(pixels).convert("L"))
    return np.ascontiguousarray(_turn(pixels, turn))


def _shrink(image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None) -> Array:
    """Resize to uint8 (height, width) if gray, else (height, width, 3); ``box``: the part to use."""
    from PIL import Image

    def resized(image: Image.Image) -> Array:
        # Without the gap, a picture 1 pixel wide and millions high would first become ``side`` wide at that height.
        return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box, reducing_gap=3.0))

    mode = image.mode
    if mode in ("I", "F") or mode.startswith("I;16"):
        return _stretch(resized(image.convert("F")))
    if mode in ("PA", "LA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        # Premultiplied, so that colors are weighted by their opacity: over white, c·α + 255 (1 − α).
        rgba = resized(image.convert("RGBA").convert("RGBa")).astype(np.int16)
        return np.asarray(rgba[..., :3] + 255 - rgba[..., 3:], dtype=np.uint8)
    if mode == "CMYK" and image.format in ("JPEG", "MPO") and "adobe" not in image.info:
        # Pillow inverts CMYK of every JPEG, which is right only with Adobe's marker.
        from PIL import ImageChops

        image = ImageChops.invert(image)
    if mode not in ("L", "RGB"):
        image = image.convert("RGB")
    return resized(image)


def _stretch(values: Array) -> Array:
    """Stretch gray of more than 8 bits from its range to 0…255: 12 of 16 bits may be in use, and float has no white.

    GIST stretches it anyway.
    """
    if not np.isfinite(values).all():
        raise _RefusedError("the pixels must be finite; found NaN or infinity")
    values = values.astype(np.float64)
    low, high = values.min(), values.max()
    return np.asarray(np.rint((values - low) * (255 / (high - low) if high > low else 0)), dtype=np.uint8)


def _orientation(image: Image.Image) -> int:
    """Read the EXIF orientation, 1 to 8; 1 (upright) if it is missing or broken. Call it after ``load``."""
    if image.format == "TIFF":
        return 1  # Pillow has turned it, and may keep the tag
    try:
        orientation: Any = image.getexif().get(_ORIENTATION)
    except MemoryError:
        raise
    except Exception:  # the picture may be readable all the same
        return 1
    return int(orientation) if orientation in range(1, 9) else 1


def _turn(pixels: Array, orientation: int) -> Array:
    """Turn upright.

    Orientations 5…8 lie on their side. Of 1…4 and of 5…8, the second and third are mirrored, and the third and fourth
    are upside down.
    """
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def _reason(error: Exception) -> str:
    """The reason in one line."""
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
