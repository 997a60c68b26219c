"""Files of a ``HammingIndex``: a safetensors file of the arrays ``codes`` and ``ids`` and a JSON text. No pickle."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.codes import check_codes, n_bytes
from hashlearn.errors import IndexFileError
from hashlearn.storage import atomic_path, content_key

FORMAT = "hashlearn index"
VERSION = 1
_TYPES: dict[str, tuple[str, np.dtype[Any]]] = {"codes": ("U8", np.dtype(np.uint8)), "ids": ("I64", np.dtype("<i8"))}
# A header that says more than two small arrays and a few numbers is not ours.
_MOST_HEADER_BYTES = 1 << 20


def write_index(path: str | os.PathLike[str], n_bits: int, codes: NDArray[np.uint8], ids: NDArray[np.int64]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays: dict[str, NDArray[Any]] = {"codes": np.ascontiguousarray(codes), "ids": np.ascontiguousarray(ids)}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "hashlearn": version("hashlearn"),
        "n_bits": n_bits,
        "sha256": content_key(n_bits, arrays["codes"], arrays["ids"]),
    }
    with atomic_path(path) as temporary:
        try:
            save_file(arrays, temporary, metadata={"hashlearn": json.dumps(header)})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(f"{path} could not be written: {' '.join(str(error).split())}") from error


def read_index(
    path: str | os.PathLike[str], *, mmap: bool, check: bool
) -> tuple[int, NDArray[np.uint8], NDArray[np.int64]]:
    """n_bits, packed codes and ids; refused, with the reason, if anything does not fit."""

    def refuse(why: str) -> IndexFileError:
        return IndexFileError(f"{path} is not an index that can be opened: {why}.")

    if not Path(path).is_file():
        raise FileNotFoundError(f"no index file is at {path}.")
    try:
        described, begin = _header(Path(path))
        header = json.loads(described.pop("__metadata__")["hashlearn"])
        spans = {name: _span(described[name], kind) for name, (kind, _) in _TYPES.items()}
    except PermissionError:
        raise
    except Exception:  # whatever foreign bytes make of it
        raise refuse("not an index of hashlearn, or damaged") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise refuse("it holds something else")
    if header.get("version") != VERSION:
        raise refuse(f"it is of version {header.get('version')!r}, and this hashlearn reads version {VERSION}")
    n_bits = header.get("n_bits")
    if type(n_bits) is not int or n_bits < 1:
        raise refuse(f"n_bits is {n_bits!r}")
    shapes = {name: shape for name, (shape, _, _) in spans.items()}
    if len(shapes["ids"]) != 1 or shapes["codes"] != (*shapes["ids"], n_bytes(n_bits)):
        raise refuse(f"codes of {n_bits} bits can't have the shape {shapes['codes']}, with ids {shapes['ids']}")
    size = os.path.getsize(path)
    needed = begin + max(end for _, _, end in spans.values())
    if size != needed:
        raise refuse(f"it has {size:,} bytes, and {needed:,} are promised")
    arrays = {name: _array(path, begin + first, shape, _TYPES[name][1]) for name, (shape, first, _) in spans.items()}
    if check and content_key(n_bits, arrays["codes"], arrays["ids"]) != header.get("sha256"):
        raise refuse("its content does not have the checksum that it was saved with: it is damaged")
    if not mmap:
        arrays = {name: np.array(array) for name, array in arrays.items()}
    try:
        codes = check_codes(arrays["codes"], n_bits) if check else arrays["codes"]
    except ValueError as error:
        raise refuse(str(error).rstrip(".")) from None
    ids = arrays["ids"]
    if check and len(ids) and (ids[0] < 0 or (ids[1:] <= ids[:-1]).any()):
        raise refuse("its ids do not ascend from 0 on")
    return n_bits, codes, ids


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of itself, and the byte at which its arrays begin."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _MOST_HEADER_BYTES:
            raise ValueError
        return json.loads(file.read(size)), 8 + size


def _span(described: dict[str, Any], kind: str) -> tuple[tuple[int, ...], int, int]:
    """Shape, first byte and end of an array, if they agree."""
    shape, (begin, end) = tuple(described["shape"]), described["data_offsets"]
    itemsize = next(dtype.itemsize for k, dtype in _TYPES.values() if k == kind)
    numbers = (*shape, begin, end)
    if described["dtype"] != kind or any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError
    if int(np.prod(shape, dtype=object)) * itemsize != end - begin:
        raise ValueError
    return shape, begin, end


def _array(path: str | os.PathLike[str], begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", offset=begin, shape=shape))
