"""Formats of other libraries, imported when used: HDF5 (h5py) and Parquet (pyarrow)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from hashlearn.vectors._rules import (
    NUMBER_RULE,
    Array,
    allocate,
    bad,
    blocks,
    check_dtype,
    check_shape,
    extra,
    pick,
    refusing,
)

_HDF5_CHUNK_BYTES = 1 << 20
_PARQUET_BATCH_ROWS = 1024


def read_hdf5(path: Path, key: str | None) -> Array:
    h5py = extra("h5py")
    with refusing(path, "is not a whole HDF5 file"), h5py.File(path, "r") as file:
        found: dict[str, Any] = {}
        # Visits what this file holds; links into other files are not followed.
        file.visititems(lambda name, item: found.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        tables = [name for name, data in found.items() if len(data.shape or ()) == 2]
        # An object with several names is visited under one of them: look the wanted name up as well.
        wanted = (key or "train").strip("/")
        if wanted and isinstance(item := _in_this_file(file, wanted, h5py), h5py.Dataset):
            found[wanted] = item
        candidates = ["train"] if "train" in found else tables
        name = pick(path, key and key.strip("/"), found, candidates, "2-D data set")
        data, where = found[name], f"{path}: data set {name!r}"
        dtype = check_dtype(where, data.dtype.str, str(data.dtype))
        shape = tuple(data.shape or ())
        check_shape(where, shape)
        if data.is_virtual or data.external:
            raise bad(where, "the values must be in the file itself; found a reference to other files")
        # HDF5 answers with fill values for what was never written: such an array would be made up.
        if data.chunks is None:
            unit, stored = "bytes", data.id.get_storage_size()
            needed = math.prod(shape) * data.id.get_type().get_size()
        else:
            unit, stored = "chunks", data.id.get_num_chunks()
            needed = math.prod(-(-size // chunk) for size, chunk in zip(shape, data.chunks, strict=True))
        if stored != needed:
            raise bad(where, f"shape {shape} takes {needed} {unit} in the file; found {stored}")
        values = allocate(where, shape, dtype)
        data.read_direct(values)
    return values


def _in_this_file(file: Any, name: str, h5py: Any) -> Any:
    """What ``name`` stands for, if no part of it is a link into another file; else None."""
    item = file
    for part in name.split("/"):
        if not isinstance(item, h5py.Group) or isinstance(item.get(part, getlink=True), h5py.ExternalLink):
            return None
        item = item.get(part)
    return item if item is not None and item.file.filename == file.filename else None


def write_hdf5(path: Path, vectors: Array, key: str) -> None:
    h5py = extra("h5py")
    chunk = next(blocks(vectors, _HDF5_CHUNK_BYTES))[1].shape
    # The 1.10 layout has checksums over the metadata, fletcher32 over the values: damage becomes visible.
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        dtype = vectors.dtype.newbyteorder("=")
        data = file.create_dataset(key.strip("/"), vectors.shape, dtype, chunks=chunk, fletcher32=True)
        for start, block in blocks(vectors, _HDF5_CHUNK_BYTES):
            data[start : start + len(block)] = block


def read_parquet(path: Path, key: str | None) -> Array:
    pa, pq = extra("pyarrow"), extra("pyarrow.parquet")
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    with (
        refusing(path, "is not a whole Parquet file"),
        pa.OSFile(str(path)) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        schema, n_rows, start = file.schema_arrow, file.metadata.num_rows, 0
        lists = [field.name for field in schema if any(test(field.type) for test in is_list)]
        name = pick(path, key, schema.names, lists, "column of lists")
        kind, where = schema.field(name).type, f"{path}: column {name!r}"
        value = kind.value_type if name in lists else pa.null()
        if not (pa.types.is_integer(value) or pa.types.is_floating(value)):
            raise bad(where, f"a row must be a list, and {NUMBER_RULE}; found {str(kind)[:100]}")
        values = None
        for batch in file.iter_batches(_PARQUET_BATCH_ROWS, columns=[name]):
            block = _parquet_rows(where, start, batch.column(name), None if values is None else values.shape[1])
            if values is None:
                values = allocate(where, (n_rows, block.shape[1]), block.dtype)
            values[start : start + len(block)] = block
            start += len(block)
    if values is None or start != n_rows:
        raise bad(where, f"at least one row and all of the {n_rows} promised are needed; found {start}")
    return values


def _parquet_rows(where: str, start: int, rows: Any, d: int | None) -> Array:
    """Lists as (n_rows, d); ``start`` is the number of the first, ``d`` the length of row 0 if it is known."""
    if rows.null_count:
        raise bad(where, f"row {start + _first_null(rows)}: a list of numbers is needed; found null")
    lengths = rows.value_lengths().to_numpy(zero_copy_only=False)
    d = int(lengths[0]) if d is None else d
    if (lengths != d).any():
        i = int(np.argmax(lengths != d))
        raise bad(where, f"row {start + i}: ragged, every row must have row 0's length, {d}; found {lengths[i]}")
    check_shape(where, (len(rows), d))
    numbers = rows.flatten()
    if numbers.null_count:
        i, j = divmod(_first_null(numbers), d)
        raise bad(where, f"row {start + i}, column {j}: a number is needed; found null")
    return np.asarray(numbers.to_numpy(zero_copy_only=False)).reshape(len(rows), d)


def _first_null(array: Any) -> int:
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


def write_parquet(path: Path, vectors: Array, key: str) -> None:
    pa, pq = extra("pyarrow"), extra("pyarrow.parquet")
    dtype, d = vectors.dtype.newbyteorder("="), vectors.shape[1]
    schema = pa.schema([pa.field(key, pa.list_(pa.from_numpy_dtype(dtype), d))])
    # Real vectors seldom repeat a value: a dictionary only costs time. Checksums make damage visible.
    with pq.ParquetWriter(path, schema, use_dictionary=False, write_page_checksum=True) as file:
        for _, block in blocks(vectors):
            flat = pa.array(np.ascontiguousarray(block, dtype).reshape(-1))
            rows = pa.FixedSizeListArray.from_arrays(flat, type=schema.field(0).type)
            file.write_batch(pa.record_batch([rows], schema=schema))
