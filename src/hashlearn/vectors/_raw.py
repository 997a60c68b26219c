"""Raw formats: TEXMEX (.fvecs .bvecs .ivecs) and big-ann-benchmarks (.fbin .u8bin .i8bin .ibin)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from hashlearn._arrays import Array, DType
from hashlearn.vectors._rules import bad, blocks, check_bytes, check_shape


def read_texmex(path: Path, dtype: DType) -> Array:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 4:
            raise bad(path, f"byte 0: an int32, row 0's dimension, is needed; found {size} bytes")
        (d,) = struct.unpack("<i", file.read(4))
        row_bytes = 4 + d * dtype.itemsize
        if d < 1 or row_bytes > size:
            rule = f"the dimension must be at least 1 and the row fit in the file's {size} bytes"
            raise bad(path, f"row 0, byte 0: {rule}; found dimension {d}")
        n_rows, torn = divmod(size, row_bytes)
        raw: Array = np.memmap(file, np.uint8, "r", 0, (n_rows, row_bytes))
    for start, block in blocks(raw):
        ds = np.ascontiguousarray(block[:, :4]).view("<i4")[:, 0]
        if (ds != d).any():
            i = int(np.argmax(ds != d))
            place = f"row {start + i}, byte {(start + i) * row_bytes}"
            raise bad(path, f"{place}: ragged, every row must have row 0's dimension, {d}; found {ds[i]}")
    if torn:
        raise bad(path, f"row {n_rows}, byte {n_rows * row_bytes}: a row takes {row_bytes} bytes; found {torn}")
    return raw[:, 4:].view(dtype)


def write_texmex(path: Path, vectors: Array, dtype: DType) -> None:
    d = vectors.shape[1]
    with open(path, "wb") as file:
        for _, block in blocks(vectors):
            rows = np.empty((len(block), 4 + d * dtype.itemsize), np.uint8)
            rows[:, :4] = np.frombuffer(struct.pack("<i", d), np.uint8)
            rows[:, 4:] = np.ascontiguousarray(block, dtype).view(np.uint8)
            file.write(rows.data)


def read_bin(path: Path, dtype: DType) -> Array:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise bad(path, f"byte 0: two uint32, the rows and columns, are needed; found {size} bytes")
        shape = struct.unpack("<II", file.read(8))
        check_shape(path, shape)
        check_bytes(path, shape, dtype, 8, size)
        return np.memmap(file, dtype, "r", 8, shape)


def write_bin(path: Path, vectors: Array, dtype: DType) -> None:
    with open(path, "wb") as file:
        file.write(struct.pack("<II", *vectors.shape))
        for _, block in blocks(vectors):
            file.write(np.ascontiguousarray(block, dtype).data)
