"""The container of model and index files: named arrays and one metadata text in a safetensors file.

Files are written by the safetensors package, and read here so that everything in a header is checked before it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.memory import free_memory
from hashlearn.storage import atomic_path, parse_json

__all__ = ["Span", "read_array", "read_frame", "write_frame"]

_KEY = "hashlearn"
# The limit of the safetensors package.
_MAX_HEADER_BYTES = 100_000_000
# Bytes of memory per byte of parsed JSON: "{}," becomes a dict.
_PARSED_BYTES = 30
_SMALL_BYTES = 1 << 20  # not checked against the free memory
_MAX_SIZE = 1 << 48
_MAX_DIMENSIONS = 8
_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """The position of an array in the file: bytes ``begin`` to ``end``, exclusive."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def write_frame(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], text: str) -> None:
    """Write the file atomically."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic_path(path) as temporary:
        try:
            save_file(dict(arrays), temporary, metadata={_KEY: text})
        except SafetensorError as error:  # such as a full disk
            words = " ".join(str(error).split())
            number = re.search(r"\(os error (\d+)\)", words)
            if number is not None:
                raise OSError(int(number[1]), f"could not be written: {words}", os.fspath(path)) from error
            raise OSError(f"{os.fspath(path)} could not be written: {words}") from error


def frame_bytes(arrays: Mapping[str, NDArray[Any]], text: str) -> bytes:
    """The content of the file."""
    from safetensors.numpy import save

    return bytes(save(dict(arrays), metadata={_KEY: text}))


def read_frame(file: IO[bytes], max_header_bytes: int = _MAX_HEADER_BYTES) -> tuple[str | None, dict[str, Span]]:
    """Read the metadata text, if any, and the positions of the arrays; ValueError if the file is invalid."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header_bytes = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= header_bytes <= min(max_header_bytes, size - 8):
        raise ValueError(f"a header of {header_bytes:,} bytes in a file of {size:,}")
    if header_bytes > _SMALL_BYTES and 0 < (free := free_memory()) < _PARSED_BYTES * header_bytes:
        raise ValueError(f"a header of {header_bytes:,} bytes, which is too much for {free:,} bytes of free memory")
    described = parse_json(file.read(header_bytes), unique_keys=True)
    if not isinstance(described, dict):
        raise ValueError("the header is not an object")
    metadata = described.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("the metadata are not strings")
    spans = {name: _span(name, entry, 8 + header_bytes) for name, entry in described.items()}
    place = 8 + header_bytes
    for span in sorted(spans.values(), key=lambda span: (span.begin, span.end)):
        if span.begin != place:
            raise ValueError(f"the arrays overlap, or leave bytes out, at byte {min(place, span.begin):,}")
        place = span.end
    if place != size:
        raise ValueError(f"it has {size:,} bytes, and {place:,} are promised")
    return metadata.get(_KEY), spans


def _span(name: str, entry: Any, start: int) -> Span:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name[:100]!r} is not described as an array")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _TYPES:
        raise ValueError(f"{name[:100]!r} is of a type that is not read")
    # The shape of an empty array may have sizes that NumPy can't represent.
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or prod(s or 1 for s in shape) > _MAX_SIZE:
        raise ValueError(f"{name[:100]!r} has no sizes that an array can have")
    dtype, (begin, end) = np.dtype(_TYPES[code]), offsets
    if prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"{name[:100]!r} has {end - begin:,} bytes, which its shape does not")
    return Span(dtype, tuple(shape), start + begin, start + end)


def _are_sizes(numbers: Any) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) <= _MAX_DIMENSIONS
        and all(type(number) is int and 0 <= number <= _MAX_SIZE for number in numbers)
    )


def read_array(file: IO[bytes], span: Span) -> NDArray[Any]:
    """Read an array into memory."""
    array = np.empty(span.shape, span.dtype)
    file.seek(span.begin)
    if file.readinto(array.reshape(-1).view(np.uint8).data) != span.end - span.begin:  # type: ignore[attr-defined]
        raise ValueError("it became shorter while it was read")
    return array
