"""Index files: a safetensors file with the arrays ``codes`` and ``ids`` and a JSON header. No pickle."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import IO, Any

import numpy as np

from hashlearn._arrays import Array, Codes, Ids
from hashlearn._safetensors import Span, read_array, read_frame, write_frame
from hashlearn.codes import check_codes, n_bytes
from hashlearn.errors import IndexFileError
from hashlearn.memory import free_memory
from hashlearn.storage import StrPath, content_key, open_regular, parse_json

FORMAT = "hashlearn index"
VERSION = 1
_TYPES = {"codes": np.dtype(np.uint8), "ids": np.dtype("<i8")}
# Larger than any header of an index.
_MAX_HEADER_BYTES = 1 << 20
# The next id, one more than the largest, must be an int64 too.
_MAX_ID = np.iinfo(np.int64).max - 1


def write_index(path: StrPath, n_bits: int, codes: Codes, ids: Ids) -> None:
    arrays: dict[str, Array] = {"codes": np.ascontiguousarray(codes), "ids": np.ascontiguousarray(ids)}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "hashlearn": version("hashlearn"),
        "n_bits": n_bits,
        "sha256": content_key(n_bits, arrays["codes"], arrays["ids"]),
    }
    write_frame(path, arrays, json.dumps(header))


def read_index(path: StrPath, *, mmap: bool, check: bool) -> tuple[int, Codes, Ids]:
    """Read n_bits, packed codes and ids; raise an IndexFileError if the file is invalid."""
    try:
        with open_regular(path) as file:
            return _read(file, mmap=mmap, check=check)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(f"no index file is at {os.fspath(path)}.") from None
    except ValueError as error:
        why = f"{os.fspath(path)} is not an index that can be opened: {str(error).rstrip('.')}."
        raise IndexFileError(" ".join(why.split())) from None


def _read(file: IO[bytes], *, mmap: bool, check: bool) -> tuple[int, Codes, Ids]:
    n_bits, sha256, spans = _read_header(file)
    codes, ids = (_array(file, spans[name]) for name in _TYPES)
    if check and content_key(n_bits, codes, ids) != sha256:
        raise ValueError("its content does not have the checksum that it was saved with: it is damaged")
    if not mmap:
        needed, free = codes.nbytes + ids.nbytes, free_memory()
        if 0 < free < needed:
            raise ValueError(f"it has {needed:,} bytes, and {free:,} bytes of memory are free: open it with mmap=True")
        codes, ids = np.array(codes), np.array(ids)
    if check:
        codes = check_codes(codes, n_bits)
        if len(ids) and (ids[0] < 0 or (ids[1:] <= ids[:-1]).any()):
            raise ValueError("its ids are not ascending from 0")
    if len(ids) and ids[-1] > _MAX_ID:
        raise ValueError(f"its ids must be at most {_MAX_ID}; got {ids[-1]}")
    return n_bits, codes, ids


def _read_header(file: IO[bytes]) -> tuple[int, Any, dict[str, Span]]:
    """Read and check n_bits, the checksum, and where the arrays are."""
    try:
        text, spans = read_frame(file, _MAX_HEADER_BYTES)
        header = parse_json(text or "", unique_keys=True)
    except ValueError as error:
        raise ValueError(f"not an index of hashlearn, or damaged ({error})") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError("it holds another kind of data")
    if header.get("version") != VERSION:
        raise ValueError(f"it is of version {header.get('version')!r}, and this hashlearn reads version {VERSION}")
    if {name: span.dtype for name, span in spans.items()} != _TYPES:
        raise ValueError("not an index of hashlearn, or damaged (it must hold the arrays codes, of bytes, and ids)")
    n_bits = header.get("n_bits")
    if type(n_bits) is not int or n_bits < 1:
        raise ValueError(f"n_bits is {n_bits!r}")
    codes, ids = spans["codes"].shape, spans["ids"].shape
    if len(ids) != 1 or codes != (*ids, n_bytes(n_bits)):
        raise ValueError(f"codes of {n_bits} bits can't have the shape {codes}, with ids {ids}")
    return n_bits, header.get("sha256"), spans


def _array(file: IO[bytes], span: Span) -> Array:
    if span.begin == span.end:
        return read_array(file, span)
    return np.asarray(np.memmap(file, dtype=span.dtype, mode="r", offset=span.begin, shape=span.shape))
