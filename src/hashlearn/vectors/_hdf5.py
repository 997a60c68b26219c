"""HDF5 files, with h5py.

Names are looked up directly and only a bounded part of the top level is listed, because iterating over a damaged file
may never end. Values are written with their CRC-32, through a file object that hides disk errors from libhdf5.
"""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from hashlearn._arrays import Array, DType
from hashlearn.errors import import_extra
from hashlearn.vectors._rules import allocate, bad, blocks, check_dtype, check_shape, pick, refusing

_CHUNK_BYTES = 1 << 20
_MAX_NAMES = 300  # listed from the top level
_MAX_LINKS = 100  # followed to a dataset: soft links may form a cycle
_FLETCHER_BYTES = 4
_CRC = "hashlearn_crc32"


def read_hdf5(path: Path, key: str | None) -> Array:
    h5py = import_extra("h5py", "formats")
    with refusing(path, "is not a whole HDF5 file"), h5py.File(path, "r") as file:
        name, data = _choose(path, file, key and key.strip("/"), h5py)
        where = f"{path}: data set {name!r}"
        dtype, shape = check_dtype(where, data.dtype.str, str(data.dtype)), tuple(data.shape or ())
        check_shape(where, shape)
        _check_stored(where, data, shape)
        # A whole chunk is unpacked at a time, with its packed bytes still in memory.
        values = allocate(where, shape, dtype, extra_bytes=2 * math.prod(data.chunks or (0,)) * dtype.itemsize)
        data.read_direct(values)
        _check_crc(where, data, values, dtype)
    return values


def _choose(path: Path, file: Any, key: str | None, h5py: Any) -> tuple[str, Any]:
    """The dataset named ``key``; without a key ``train``, else the only 2-D dataset at the top level."""
    name = "train" if key is None else key
    item = _resolve(file, name.encode(), h5py)
    if isinstance(item, h5py.Dataset):
        return name, item
    items = _top_level(file, h5py)
    tables = [name for name, item in items.items() if isinstance(item, h5py.Dataset) and len(item.shape or ()) == 2]
    name = pick(path, key, items, tables, "2-D data set")
    return name, items[name]


def _top_level(file: Any, h5py: Any) -> dict[str, Any]:
    """The datasets and groups (as ``name/``) at the top level, by name; at most ``_MAX_NAMES``."""
    names: list[bytes] = []

    def keep(name: bytes) -> bool:
        names.append(name)
        return len(names) >= _MAX_NAMES  # True stops the iteration; h5py's own iterator would read all names

    file.id.links.iterate(keep)
    items: dict[str, Any] = {}
    for name in names:
        item, text = _resolve(file, name, h5py), name.decode("utf-8", "backslashreplace")
        if isinstance(item, (h5py.Dataset, h5py.Group)):
            items[text if isinstance(item, h5py.Dataset) else f"{text}/"] = item
    return items


def _resolve(file: Any, name: bytes, h5py: Any) -> Any:
    """The object called ``name``; None if it does not exist or is a link into another file.

    HDF5 itself would follow such a link and open the other file, which may be a pipe.
    """
    item, parts = file, name.split(b"/")
    for _ in range(_MAX_LINKS):
        parts = [part for part in parts if part not in (b"", b".")]
        if not parts:
            return item
        if not isinstance(item, h5py.Group) or not item.id.links.exists(parts[0]):
            return None
        kind = item.id.links.get_info(parts[0]).type
        if kind == h5py.h5l.TYPE_SOFT:
            target = item.id.links.get_val(parts[0])
            item = file if target.startswith(b"/") else item
            parts[:1] = target.split(b"/")
        elif kind == h5py.h5l.TYPE_HARD:
            item = item[parts.pop(0)]
        else:
            return None
    return None


def _check_stored(where: str, data: Any, shape: tuple[int, ...]) -> None:
    """Check that all values were written, and to this file: HDF5 fills in values that are missing."""
    if data.is_virtual or data.external:
        raise bad(where, "the values must be in the file itself; found a reference to other files")
    if data.chunks is None:
        unit, stored = "bytes", data.id.get_storage_size()
        needed = math.prod(shape) * data.id.get_type().get_size()
    else:
        unit, stored = "chunks", data.id.get_num_chunks()
        needed = math.prod(-(-size // chunk) for size, chunk in zip(shape, data.chunks, strict=True))
    if stored != needed:
        raise bad(where, f"shape {shape} takes {needed} {unit} in the file; found {stored}")
    # libhdf5 crashes on a chunk that is shorter than its checksum. chunk_iter needs version 1.12.3.
    if data.fletcher32 and hasattr(data.id, "chunk_iter") and data.id.chunk_iter(_is_short):
        raise bad(where, f"a chunk must hold its checksum, {_FLETCHER_BYTES} bytes; found a shorter one")


def _is_short(chunk: Any) -> bool | None:
    return True if chunk.size < _FLETCHER_BYTES else None  # None continues with the next chunk


def _check_crc(where: str, data: Any, values: Array, dtype: DType) -> None:
    """Verify the checksum that ``write_hdf5`` stores; files of other programs have none."""
    if _CRC not in data.attrs:
        return
    kind = data.attrs.get_id(_CRC)  # checked before the value is read: text may have any length
    if kind.shape != () or kind.dtype.kind not in "iu":
        raise bad(where, f"attribute {_CRC} must be one integer; found {kind.dtype}, shape {kind.shape}")
    crc = 0
    for _, block in blocks(values):
        crc = _crc32(block, dtype, crc)
    if crc != int(data.attrs[_CRC]):
        raise bad(where, f"the values do not have the checksum that they were written with (attribute {_CRC})")


def _crc32(block: Array, dtype: DType, crc: int) -> int:
    """Update a CRC-32 with the values of a block, in row order, stored as ``dtype``."""
    return zlib.crc32(np.ascontiguousarray(block, dtype).data, crc)


def write_hdf5(path: Path, vectors: Array, key: str) -> None:
    h5py = import_extra("h5py", "formats")
    chunk, dtype = next(blocks(vectors, _CHUNK_BYTES))[1].shape, vectors.dtype.newbyteorder("=")
    with open(path, "w+b", buffering=0) as raw:
        target = _DeferredErrorFile(raw)
        # The 1.10 layout has checksums of the metadata, fletcher32 adds checksums of the values.
        with h5py.File(target, "w", libver=("v110", "v110")) as file:
            data = file.create_dataset(key.strip("/"), vectors.shape, dtype, chunks=chunk, fletcher32=True)
            crc = 0  # fletcher32 can't tell the words 0x0000 and 0xFFFF apart
            for start, block in blocks(vectors, _CHUNK_BYTES):
                data[start : start + len(block)] = block
                crc = _crc32(block, dtype, crc)
                if target.error is not None:
                    break
            data.attrs[_CRC] = np.uint32(crc)
        if target.error is not None:
            raise target.error


class _DeferredErrorFile:
    """A file whose operations never fail, because HDF5 crashes the interpreter if they do.

    The first error is stored in ``error``; the caller stops and raises it. Later writes are kept in memory and read
    back from there, so that HDF5 can close the file normally.
    """

    def __init__(self, raw: io.RawIOBase | IO[bytes]) -> None:
        self._raw, self._position = raw, 0
        self._end = 0
        self._pending: list[tuple[int, bytes]] = []
        self.error: BaseException | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._attempt(lambda: self._write(view))
        if self.error is not None:
            self._pending.append((self._position, bytes(view)))
        self._position += len(view)
        self._end = max(self._end, self._position)
        return len(view)

    def _write(self, view: memoryview) -> None:
        self._raw.seek(self._position)
        written = 0
        while written < len(view):  # a nearly full disk may write a part only
            written += self._raw.write(view[written:]) or 0

    def read(self, n: int) -> bytes:  # h5py requires it of a file object
        buffer = bytearray(n)
        self.readinto(buffer)
        return bytes(buffer)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        try:
            self._raw.seek(self._position)
            done = 0
            while done < len(view) and (n := self._raw.readinto(view[done:])):  # type: ignore[union-attr]
                done += n
        except BaseException as error:
            self.error = self.error or error
        for start, data in self._pending:
            low, high = max(start, self._position), min(start + len(data), self._position + len(view))
            if low < high:
                view[low - self._position : high - self._position] = data[low - start : high - start]
        self._position += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        size = self._position if size is None else size
        self._attempt(lambda: self._raw.truncate(size))
        self._end = size
        return size

    def flush(self) -> None:
        self._attempt(self._raw.flush)

    def _attempt(self, operation: Callable[[], object]) -> None:
        """Call ``operation`` unless an earlier one failed, and store its error."""
        if self.error is None:
            try:
                operation()
            except BaseException as error:  # HDF5 would crash on KeyboardInterrupt too
                self.error = error
