"""Rules that all vector formats share, and the error for files that break them."""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hashlearn._arrays import Array, DType
from hashlearn.errors import VectorFileError
from hashlearn.memory import free_memory

BLOCK_BYTES = 1 << 24
DEFLATE_LIMIT = 1032  # the largest compression ratio of deflate
_NUMBER = re.compile(r"[<>|=]?(f[248]|[iu][1248])")
NUMBER_RULE = "the values must be float16/32/64 or (u)int8/16/32/64"


def bad(where: Path | str, text: str) -> VectorFileError:
    """Create the error. Its message is one line, even if the file's name or a library's message has line breaks."""
    return VectorFileError(" ".join(f"{where}: {text}".splitlines()))


@contextmanager
def refusing(where: Path | str, text: str, *passed: type[Exception]) -> Iterator[None]:
    """Turn any exception of a library into a VectorFileError, except the types ``passed``."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (VectorFileError, *passed)):
            raise
        raise bad(where, f"{text} ({type(error).__name__}: {str(error)[:300]})") from error


def check_regular(path: Path) -> None:
    """Reject an empty file and anything that is not a regular file. OSErrors (missing, forbidden) are passed on."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise bad(path, "a file is needed; found a directory")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
        raise bad(path, "a regular file is needed; found a pipe, socket or device")
    if status.st_size == 0:
        raise bad(path, "the file is empty (0 bytes)")
    with open(path, "rb"):
        pass


def pick(path: Path, key: str | None, names: Iterable[str], candidates: Iterable[str], what: str) -> str:
    """Check that ``key`` is one of ``names``; without a key, choose the only candidate."""
    names, candidates = list(names), list(candidates)
    if key is None and len(candidates) == 1:
        key = candidates[0]
    if key is not None and names.count(key) == 1:
        return key
    problem = f"found {len(candidates)} to choose from" if key is None else f"got {key!r}"
    shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
    raise bad(path, f"key must name one {what}; {problem}; the file holds: {shown or 'none'}")


def check_dtype(where: Path | str, code: str, name: str) -> DType:
    """Convert a NumPy type code such as ``<f4`` to a dtype; it must be a number type."""
    if not _NUMBER.fullmatch(code):
        raise bad(where, f"{NUMBER_RULE}; found {name[:100]}")
    return np.dtype(code)


def check_shape(where: Path | str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise bad(where, f"the array must be 2-D, one vector a row; found {len(shape)}-D, shape {shape}")
    if min(shape) < 1:
        raise bad(where, f"there must be at least one row and one column; found shape {shape}")


def check_bytes(where: Path | str, shape: tuple[int, ...], dtype: DType, offset: int, size: int) -> None:
    """Check that the values fill the bytes from ``offset`` to ``size`` exactly."""
    needed = math.prod(shape) * dtype.itemsize
    if needed != size - offset:
        promise = f"the header promises {shape[0]} x {shape[1]} {dtype.name} values"
        raise bad(where, f"{promise}, {needed} bytes from byte {offset}; found {size - offset} bytes")


def check_values(path: Path, vectors: Array) -> None:
    if vectors.dtype.kind != "f":
        return
    for start, block in blocks(vectors):
        for left in range(0, block.shape[1], BLOCK_BYTES):  # even a single row may be larger than memory
            finite = np.isfinite(block[:, left : left + BLOCK_BYTES])
            if not finite.all():
                i, j = divmod(int(np.argmin(finite)), finite.shape[1])
                value = block[i, left + j]
                raise bad(path, f"row {start + i}, column {left + j}: the values must be finite; found {value}")


def check_exact(path: Path, vectors: Array, dtype: DType) -> None:
    if np.can_cast(vectors.dtype, dtype, "safe"):
        return
    for start, block in blocks(vectors):
        lost = _lost(block, dtype)
        if lost.any():
            i, j = np.argwhere(lost)[0]
            rule = f"{path.suffix} files hold {dtype.name} values, and nothing may be lost"
            raise bad(path, f"row {start + i}, column {j}: {rule}; got {block[i, j]} ({block.dtype.name})")


def _lost(block: Array, dtype: DType) -> Array:
    """Mask of the values of a finite ``block`` that ``dtype`` can't represent exactly."""
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        # float16 can't represent the bounds; float64 can, as they are at most those of int32.
        values = block.astype(np.float64) if block.dtype.kind == "f" else block
        return np.asarray((values < bounds.min) | (values > bounds.max) | (values != np.trunc(values)))
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = block.astype(dtype)
        if block.dtype.kind == "f":
            return np.asarray(narrow != block)
        # Values rounded up to 2^31, 2^63, ... are never exact, and casting them back is undefined.
        beyond = narrow >= dtype.type(np.iinfo(block.dtype).max)
        return np.asarray(beyond | (narrow.astype(block.dtype) != block))


def blocks(vectors: Array, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, Array]]:
    """Yield (first row, block of rows) with blocks of about 16 MB: a memory map may be larger than memory."""
    vectors = np.asarray(vectors)
    rows = max(1, block_bytes // (vectors.shape[1] * vectors.dtype.itemsize))
    for start in range(0, vectors.shape[0], rows):
        yield start, vectors[start : start + rows]


def check_memory(where: Path | str, needed: int, what: str) -> None:
    """Raise an error if ``needed`` bytes are more than the free memory, where that is known."""
    free = free_memory()
    if free and needed > free:
        raise bad(where, f"the values must fit in memory, {free} bytes; found {what}")


def allocate(where: Path | str, shape: tuple[int, ...], dtype: DType, extra_bytes: int = 0) -> Array:
    """Create an empty array in native byte order; an error if it and ``extra_bytes`` don't fit in memory."""
    needed = math.prod(shape) * dtype.itemsize
    also = f", and {extra_bytes} bytes to unpack them" if extra_bytes else ""
    check_memory(where, needed + extra_bytes, f"{shape} {dtype.name}, {needed} bytes{also}")
    with refusing(where, f"no memory for {needed} bytes of values"):
        return np.empty(shape, dtype.newbyteorder("="))
