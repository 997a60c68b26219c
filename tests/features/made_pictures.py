"""Pictures to write to files, and how close two are."""

from __future__ import annotations

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from hashlearn.errors import ImageError
from hashlearn.features import GistExtractor, read_image

SIDE = 32
COLOR, GRAY = GistExtractor(side=SIDE), GistExtractor(side=SIDE, color=False)
BILINEAR = Image.Resampling.BILINEAR


def picture(width: int = SIDE, height: int = SIDE) -> Image.Image:
    """Smooth, in color, and different from each of its turns."""
    y, x = np.mgrid[:height, :width]
    y, x = y / max(1, height - 1), x / max(1, width - 1)
    waves = np.sin(3 * x + 1), np.cos(2 * y), np.sin(2 * x + 4 * y)
    return Image.fromarray(np.stack([127 + 120 * wave for wave in waves], axis=2).astype(np.uint8))


def encoded(image: Image.Image, form: str, **options) -> bytes:
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


def reason(path, features: GistExtractor = COLOR) -> str:
    with pytest.raises(ImageError) as caught:
        read_image(path, features)
    assert caught.value.path == os.fspath(path)
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    assert "\n" not in str(caught.value)
    return caught.value.reason


def pixels_of(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), BILINEAR))


def differ(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.abs(a.astype(int) - b).max())


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, color: int, rows: bytes, *between: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(between) + body + chunk(b"IEND", b"")


def exif(orientation: int) -> Image.Exif:
    data = Image.Exif()
    data[0x0112] = orientation
    return data
