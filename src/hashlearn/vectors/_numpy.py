"""NumPy's .npy and .npz files. NumPy's own reader is not used, because it evaluates the header's text."""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np

from hashlearn._arrays import Array, DType
from hashlearn.errors import VectorFileError
from hashlearn.vectors._rules import (
    BLOCK_BYTES,
    DEFLATE_LIMIT,
    NUMBER_RULE,
    allocate,
    bad,
    blocks,
    check_bytes,
    check_dtype,
    check_shape,
    pick,
    refusing,
)

_NPY_HEADER_LIMIT = 1 << 16  # far more than three keys need
_NPY_KEYS = ("descr", "fortran_order", "shape")
_QUOTES = ("'", '"')
_BLANK = " \t\r\n"
_STRING = r"""(?:'[^'\\\n]*'|"[^"\\\n]*")"""
# The possible values of the three keys: a string, True or False, a tuple. "[" starts a structured type.
_NPY_PAIR = re.compile(
    rf"[{_BLANK}]*(?P<key>{_STRING})[{_BLANK}]*:[{_BLANK}]*(?P<value>{_STRING}|True|False|\([^()]*\)|\[)"
    rf"[{_BLANK}]*(?P<comma>,?)"
)
_NPY_SIZE = re.compile(rf"[{_BLANK}]*[0-9]{{1,19}}L?[{_BLANK}]*")  # Python 2 wrote the L


class NpyHeader(NamedTuple):
    code: str  # of the type, such as "<f4"
    shape: tuple[int, ...]
    fortran: bool
    n_bytes: int  # offset of the values


def read_npy_header(where: Path | str, file: IO[bytes]) -> NpyHeader:
    """Parse the header; the caller checks its values. NumPy's reader would evaluate it as a Python literal."""
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY"[: len(magic)]:
        raise bad(where, f"byte 0: a .npy file starts with \\x93NUMPY and version 1 to 3; found {magic!r}")
    if len(magic) < 8:
        raise bad(where, f"is not a whole .npy file: it starts with \\x93NUMPY and a version; found {magic!r}")
    if magic[6] not in (1, 2, 3) or magic[7]:
        raise bad(where, f"byte 0: a .npy file starts with \\x93NUMPY and version 1 to 3; found {magic!r}")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _NPY_HEADER_LIMIT:
        raise bad(where, f"byte 8: the header must be at most {_NPY_HEADER_LIMIT} bytes; found {length}")
    text = file.read(length).decode("latin-1")
    where_header = f"{where}: byte {8 + width}"
    values = _npy_dict(where_header, text) if len(text) == length else {}
    code, order, shape = (values.get(name, "") for name in _NPY_KEYS)
    if code[:1] not in _QUOTES or order not in ("True", "False") or shape[:1] != "(":
        raise _bad_npy_header(where_header, text)
    return NpyHeader(code[1:-1], _npy_shape(where_header, shape), order == "True", 8 + width + length)


def _npy_dict(where: str, text: str) -> dict[str, str]:
    """Parse a dict literal that has each of the three keys once, and nothing else, into the texts of its values."""
    values: dict[str, str] = {}
    place = text.find("{") + 1
    while pair := _NPY_PAIR.match(text, place):
        key, value = pair["key"][1:-1], pair["value"]
        if key == "descr" and value == "[":
            raise bad(where, f"{NUMBER_RULE}; found a structured type")
        if key in values:
            raise bad(where, f"the header must give each key once; found {key[:80]!r} twice")
        values[key] = value
        place = pair.end()
        if not pair["comma"]:
            break
    if text[: text.find("{") + 1].strip(_BLANK) != "{" or text[place:].strip(_BLANK) != "}":
        raise _bad_npy_header(where, text)
    if sorted(values) != sorted(_NPY_KEYS):
        raise _bad_npy_header(where, text)
    return values


def _npy_shape(where: str, text: str) -> tuple[int, ...]:
    inner = text[1:-1].strip(_BLANK)
    sizes = inner.removesuffix(",").split(",") if inner else []
    if not all(_NPY_SIZE.fullmatch(size) for size in sizes):
        raise bad(where, f"the shape must be whole numbers; found {text[1:-1][:80]!r}")
    return tuple(int(size.strip(_BLANK + "L")) for size in sizes)


def _bad_npy_header(where: str, text: str) -> VectorFileError:
    return bad(where, f"the header must give descr, fortran_order and shape, and no more; found {text[:80]!r}")


def _read_table_header(where: Path | str, file: IO[bytes], size: int) -> tuple[NpyHeader, DType]:
    """Read and check the header of a table of numbers whose values fill the file's ``size`` bytes exactly."""
    header = read_npy_header(where, file)
    dtype = check_dtype(where, header.code, repr(header.code))
    check_shape(where, header.shape)
    check_bytes(where, header.shape, dtype, header.n_bytes, size)
    return header, dtype


def read_npy(path: Path) -> Array:
    with open(path, "rb") as file:
        header, dtype = _read_table_header(path, file, os.fstat(file.fileno()).st_size)
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        mapped: Array = np.memmap(file, dtype, "r", header.n_bytes, header.shape, order)
    if mapped.dtype.isnative:
        return mapped
    native = allocate(path, header.shape, dtype)
    native[...] = mapped
    return native


def _write_npy_stream(file: IO[bytes], vectors: Array) -> None:
    dtype = vectors.dtype.newbyteorder("=")
    header = {"descr": dtype.str, "fortran_order": False, "shape": vectors.shape}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call, unused-ignore]
    for _, block in blocks(vectors):
        file.write(np.ascontiguousarray(block, dtype).data)


def write_npy(path: Path, vectors: Array) -> None:
    with open(path, "wb") as file:
        _write_npy_stream(file, vectors)


def read_npz(path: Path, key: str | None) -> Array:
    with refusing(path, "is not a whole .npz (zip) file"), zipfile.ZipFile(path) as archive:
        ((twice, count),) = Counter(info.filename for info in archive.infolist()).most_common(1) or [("", 0)]
        if count > 1:
            raise bad(path, f"every member must have a name of its own; found {twice[:80]!r} twice")
        members = {info.filename[:-4]: info for info in archive.infolist() if info.filename.endswith(".npy")}
        name = pick(path, key, members, members, "array")
        info, where = members[name], f"{path}: array {name!r}"
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if not deflated and info.compress_type != zipfile.ZIP_STORED:
            raise bad(where, f"must be stored or deflated; found zip method {info.compress_type}")
        # Check the size in the zip directory before unpacking anything.
        limit = min(info.compress_size, path.stat().st_size) * (DEFLATE_LIMIT if deflated else 1)
        if info.file_size > limit:
            raise bad(where, f"its packed bytes hold at most {limit}; found a claim of {info.file_size} bytes")
        with archive.open(info) as file:
            header, dtype = _read_table_header(where, file, info.file_size)
            shape = header.shape[::-1] if header.fortran else header.shape
            values = allocate(where, shape, dtype)
            flat = values.reshape(-1).view(np.uint8).data
            for start in range(0, len(flat), BLOCK_BYTES):
                part = flat[start : start + BLOCK_BYTES]
                part[:] = file.read(len(part))  # reading the last part verifies the zip's checksum
    if not dtype.isnative:
        values.byteswap(inplace=True)
    return values.T if header.fortran else values


def write_npz(path: Path, vectors: Array, key: str) -> None:
    with zipfile.ZipFile(path, "w") as archive, archive.open(f"{key}.npy", "w", force_zip64=True) as file:
        _write_npy_stream(file, vectors)
