"""Parquet files, with pyarrow.

A few hundred bytes of Parquet can decode to gigabytes. So sizes are checked before pyarrow decodes anything: the counts
in the footer against the free memory, and the page headers against the footer.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from hashlearn._arrays import Array, DType
from hashlearn.errors import import_extra
from hashlearn.vectors._rules import (
    BLOCK_BYTES,
    NUMBER_RULE,
    allocate,
    bad,
    blocks,
    check_memory,
    check_shape,
    pick,
    refusing,
)

_BATCH_ROWS = 1024
_DECODING = 4  # bytes that pyarrow needs per byte of values: it keeps nesting levels, and doubles its buffers
_HEADER_BYTES = 1 << 16
_INT32, _STRUCT = 5, 12  # kinds of fields in Thrift


def read_parquet(path: Path, key: str | None) -> Array:
    pa, pq = import_extra("pyarrow", "formats"), import_extra("pyarrow.parquet", "formats")
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    with (
        refusing(path, "is not a whole Parquet file"),
        open(path, "rb") as raw,
        pa.OSFile(str(path)) as source,
        # By default pyarrow would keep the whole column of a row group in memory beside the values.
        pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False, buffer_size=1 << 20) as file,
    ):
        schema = file.schema_arrow
        lists = [field.name for field in schema if any(test(field.type) for test in is_list)]
        name = pick(path, key, schema.names, lists, "column of lists")
        kind, where = schema.field(name).type, f"{path}: column {name!r}"
        value = kind.value_type if name in lists else pa.null()
        if not (pa.types.is_integer(value) or pa.types.is_floating(value)):
            raise bad(where, f"a row must be a list, and {NUMBER_RULE}; found {str(kind)[:100]}")
        dtype = np.dtype(value.to_pandas_dtype())
        n_values, page_bytes = _check_claims(where, raw, file.metadata, _leaf(pa, schema, name), dtype.itemsize)
        return _read_rows(where, file, name, dtype, n_values, page_bytes)


def _read_rows(where: str, file: Any, name: str, dtype: DType, n_values: int, page_bytes: int) -> Array:
    """Read all rows, batch by batch. If they have different lengths, the error names the first such row."""
    n_rows, start = file.metadata.num_rows, 0
    d, ragged = divmod(n_values, n_rows)
    row_bytes = max(1, d) * dtype.itemsize
    batch_rows = max(1, min(_BATCH_ROWS, BLOCK_BYTES // row_bytes))
    extra_bytes = 2 * page_bytes + _DECODING * batch_rows * row_bytes
    values = None if ragged else allocate(where, (n_rows, d), dtype, extra_bytes)
    row_length = None
    for batch in file.iter_batches(batch_rows, columns=[name], use_threads=False):
        block = _parquet_rows(where, start, batch.column(name), row_length)
        row_length = block.shape[1]
        if values is not None:
            values[start : start + len(block)] = block
        start += len(block)
    if values is None or start != n_rows:
        raise bad(where, f"at least one row and all of the {n_rows} promised are needed; found {start}")
    return values


def _leaf(pa: Any, schema: Any, name: str) -> int:
    """The index of the leaf column with the values of the list column ``name``."""

    def n_leaves(kind: Any) -> int:
        kind = getattr(kind, "storage_type", kind)
        return sum(n_leaves(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1

    return sum(n_leaves(field.type) for field in list(schema)[: schema.names.index(name)])


class _Column(NamedTuple):
    """The footer's description of a column in one row group."""

    n_values: int
    n_unpacked: int  # bytes of its pages
    n_packed: int
    start: int


def _check_claims(where: str, raw: IO[bytes], metadata: Any, leaf: int, item: int) -> tuple[int, int]:
    """Check the sizes; return the number of values in column ``leaf`` and the bytes of its largest page."""
    size = raw.seek(0, 2)
    n_rows, columns = _read_footer(raw, size, leaf)
    promised = metadata.num_rows
    if n_rows != promised or n_rows < 1 or len(columns) != metadata.num_row_groups:
        raise bad(where, f"at least one row and all of the {promised} promised are needed; found {n_rows}")
    n_values = sum(column.n_values for column in columns)
    check_memory(where, n_values * item, f"{n_values} values, {n_values * item} bytes")
    return n_values, max(_largest_page(where, raw, size, column) for column in columns)


def _read_footer(raw: IO[bytes], size: int, leaf: int) -> tuple[int, list[_Column]]:
    """The total number of rows, and column ``leaf`` of each row group.

    pyarrow can read this too, but it aborts the process if the metadata of a column is damaged.
    """
    raw.seek(size - 8)
    n = int.from_bytes(raw.read(4), "little")
    raw.seek(size - 8 - n)
    n_rows, columns = 0, []
    for group in _Thrift(raw.read(n)).struct()[4]:
        n_rows += group[3]
        column = group[1][leaf][3]
        start = min(column[9], column.get(11) or column[9])  # value pages; dictionary page
        columns.append(_Column(column[5], column[6], column[7], start))
        if min(group[3], *columns[-1]) < 0:
            raise ValueError("the footer has a negative number")
    return n_rows, columns


def _largest_page(where: str, raw: IO[bytes], size: int, column: _Column) -> int:
    """The unpacked size of the largest page of a column chunk. The page headers must agree with the footer."""
    place = column.start
    n_values = n_unpacked = largest = 0
    while n_values < column.n_values:
        if not 0 < place < min(size, column.start + column.n_packed):
            raise bad(where, f"the footer promises {column.n_values} values; found {n_values} in the pages")
        raw.seek(place)
        # pyarrow skips a field of another type, and would not verify a page without its checksum field.
        header = _Thrift(raw.read(_HEADER_BYTES), (_INT32, _STRUCT))
        page = header.struct()
        unpacked, packed = page[2], page[3]
        data = page.get(5) or page.get(8)  # data pages of version 1 and 2; other pages have no values
        count = data[1] if data else 0
        if min(unpacked, packed, count) < 0:
            raise ValueError("a page's header has a negative number")
        n_values, n_unpacked = n_values + count, n_unpacked + unpacked
        largest = max(largest, unpacked)
        place += header.position + packed
    if n_values != column.n_values or n_unpacked > column.n_unpacked or place > size:
        footer = f"{column.n_values} values in {column.n_unpacked} bytes"
        raise bad(where, f"the footer promises {footer}; found {n_values} in {n_unpacked} bytes of pages")
    return largest


class _Thrift:
    """A reader for the part of Thrift's compact protocol that footers and page headers use."""

    def __init__(self, data: bytes, kinds: range | tuple[int, ...] = range(16)) -> None:
        """``kinds`` are the types that the outermost fields may have."""
        self._data, self._kinds, self.position = data, kinds, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields by number: integers, structs and lists of them. Other values are skipped."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            if depth == 0 and kind not in self._kinds:
                raise ValueError(f"a field of kind {kind}")
            number = number + delta if delta else _signed(self._varint())
            # The type of a boolean field is its value; in a list a boolean takes a byte.
            fields[number] = None if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (4, 5, 6):
            return _signed(self._varint())
        if kind in (9, 10):
            return self._list(depth)
        if kind == _STRUCT and depth < 16:
            return self.struct(depth + 1)
        if kind == 8:
            n = self._varint()
        elif kind in (1, 2, 3, 7):  # true, false, a byte, a double
            n = 8 if kind == 7 else 1
        else:
            raise ValueError(f"a field of kind {kind}")
        self.position += n
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        n, kind = head >> 4, head & 15
        n = self._varint() if n == 15 else n
        if n > len(self._data) - self.position:  # each element takes at least a byte
            raise ValueError("a list extends beyond the data")
        return [self._value(kind, depth + 1) for _ in range(n)]

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number is too long")


def _signed(zigzag: int) -> int:
    return zigzag >> 1 ^ -(zigzag & 1)


def _parquet_rows(where: str, start: int, rows: Any, d: int | None) -> Array:
    """Convert lists to an array (n_rows, d). ``start`` is the index of the first row, ``d`` the length of row 0."""
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
    pa, pq = import_extra("pyarrow", "formats"), import_extra("pyarrow.parquet", "formats")
    dtype, d = vectors.dtype.newbyteorder("="), vectors.shape[1]
    schema = pa.schema([pa.field(key, pa.list_(pa.from_numpy_dtype(dtype), d))])
    # Real vectors rarely repeat a value, so a dictionary would only cost time.
    with pq.ParquetWriter(path, schema, use_dictionary=False, write_page_checksum=True) as file:
        for _, block in blocks(vectors):
            flat = pa.array(np.ascontiguousarray(block, dtype).reshape(-1))
            rows = pa.FixedSizeListArray.from_arrays(flat, type=schema.field(0).type)
            file.write_batch(pa.record_batch([rows], schema=schema))
