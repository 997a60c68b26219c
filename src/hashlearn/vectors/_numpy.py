"""NumPy's own files, .npy and .npz, read without NumPy's reader: that one evaluates the header's text."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np

from hashlearn.vectors._rules import (
    BLOCK_BYTES,
    Array,
    DType,
    allocate,
    bad,
    blocks,
    check_bytes,
    check_dtype,
    check_shape,
    pick,
    refusing,
)

_NPY_HEADER_LIMIT = 1 << 16  # far above what three keys need
_DEFLATE_LIMIT = 1032  # deflate can't shrink more than this many times


class _NpyHeader(NamedTuple):
    dtype: DType
    shape: tuple[int, ...]
    fortran: bool
    n_bytes: int  # where the values begin


def _read_npy_header(where: Path | str, file: IO[bytes]) -> _NpyHeader:
    """Read by pattern, not with NumPy's reader: that one evaluates the text as a Python literal."""
    magic = file.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise bad(where, f"byte 0: a .npy file starts with \\x93NUMPY and version 1 to 3; found {magic!r}")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _NPY_HEADER_LIMIT:
        raise bad(where, f"byte 8: the header must be at most {_NPY_HEADER_LIMIT} bytes; found {length}")
    text = file.read(length).decode("latin-1")
    descr = re.search(r"""['"]descr['"]\s*:\s*(?:'([^']*)'|"([^"]*)"|\[)""", text)
    order = re.search(r"""['"]fortran_order['"]\s*:\s*(True|False)""", text)
    shape = re.search(r"""['"]shape['"]\s*:\s*\(([^()]*)\)""", text)
    if len(text) < length or not (descr and order and shape):
        rule = "the header must give descr, fortran_order and shape"
        raise bad(where, f"byte {8 + width}: {rule}; found {text[:80]!r}")
    code = descr[1] or descr[2] or "a structured type"
    dtype = check_dtype(where, code, repr(code))
    sizes = shape[1].strip().removesuffix(",").split(",") if shape[1].strip() else []
    if not all(re.fullmatch(r" *[0-9]{1,19}L? *", size) for size in sizes):  # Python 2 wrote the L
        raise bad(where, f"byte {8 + width}: the shape must be whole numbers; found {shape[1][:80]!r}")
    dims = tuple(int(size.strip(" L")) for size in sizes)
    check_shape(where, dims)
    return _NpyHeader(dtype, dims, order[1] == "True", 8 + width + length)


def read_npy(path: Path) -> Array:
    with open(path, "rb") as file:
        header = _read_npy_header(path, file)
        check_bytes(path, header.shape, header.dtype, header.n_bytes, os.fstat(file.fileno()).st_size)
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        mapped: Array = np.memmap(file, header.dtype, "r", header.n_bytes, header.shape, order)
    if mapped.dtype.isnative:
        return mapped
    native = allocate(path, header.shape, header.dtype)
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
        members = {info.filename[:-4]: info for info in archive.infolist() if info.filename.endswith(".npy")}
        name = pick(path, key, members, members, "array")
        info, where = members[name], f"{path}: array {name!r}"
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if not deflated and info.compress_type != zipfile.ZIP_STORED:
            raise bad(where, f"must be stored or deflated; found zip method {info.compress_type}")
        # The zip's own claim first: what its bytes can't possibly unpack to is not unpacked.
        most = min(info.compress_size, path.stat().st_size) * (_DEFLATE_LIMIT if deflated else 1)
        if info.file_size > most:
            raise bad(where, f"its packed bytes hold at most {most}; found a claim of {info.file_size} bytes")
        with archive.open(info) as file:
            header = _read_npy_header(where, file)
            check_bytes(where, header.shape, header.dtype, header.n_bytes, info.file_size)
            shape = header.shape[::-1] if header.fortran else header.shape
            values = allocate(where, shape, header.dtype)
            flat = values.reshape(-1).view(np.uint8).data
            for start in range(0, len(flat), BLOCK_BYTES):
                part = flat[start : start + BLOCK_BYTES]
                part[:] = file.read(len(part))  # the last part brings the zip's checksum test
    if not header.dtype.isnative:
        values.byteswap(inplace=True)
    return values.T if header.fortran else values


def write_npz(path: Path, vectors: Array, key: str) -> None:
    with zipfile.ZipFile(path, "w") as archive, archive.open(f"{key}.npy", "w", force_zip64=True) as file:
        _write_npy_stream(file, vectors)
