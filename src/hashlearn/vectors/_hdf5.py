"""HDF5, with h5py, which is imported when used.

Names are looked up, and of the top level a bounded part is listed: a walk through a damaged file may never end. Values
are written with their CRC-32, through a file of our own, which keeps errors of the disk from libhdf5.
"""

from __future__ import annotations

import io
import math
import os
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from hashlearn.errors import import_extra
from hashlearn.vectors._rules import (
    Array,
    DType,
    allocate,
    bad,
    blocks,
    check_dtype,
    check_shape,
    pick,
    refusing,
)

_CHUNK_BYTES = 1 << 20
_MOST_NAMES = 300  # of the file's top level
_MOST_LINKS = 100  # on the way to a data set: soft links may go around in circles
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
        # A chunk is unpacked as a whole, with its packed bytes beside it.
        values = allocate(where, shape, dtype, beside=2 * math.prod(data.chunks or (0,)) * dtype.itemsize)
        data.read_direct(values)
        _check_crc(where, data, values, dtype)
    return values


def _choose(path: Path, file: Any, key: str | None, h5py: Any) -> tuple[str, Any]:
    """The data set that ``key`` names, else ``train``, else the only table at the file's top level."""
    wanted = "train" if key is None else key
    item = _in_this_file(file, wanted.encode(), h5py)
    if isinstance(item, h5py.Dataset):
        return wanted, item
    found = _top_level(file, h5py)
    tables = [name for name, item in found.items() if isinstance(item, h5py.Dataset) and len(item.shape or ()) == 2]
    name = pick(path, key, found, tables, "2-D data set")
    return name, found[name]


def _top_level(file: Any, h5py: Any) -> dict[str, Any]:
    """The data sets and groups (as ``name/``) at the top level, by name, or the first few of them."""
    names: list[bytes] = []

    def keep(name: bytes) -> bool:
        names.append(name)
        return len(names) >= _MOST_NAMES  # True ends it; an iterator of h5py's would take in all names

    file.id.links.iterate(keep)
    found: dict[str, Any] = {}
    for name in names:
        item, text = _in_this_file(file, name, h5py), name.decode("utf-8", "backslashreplace")
        if isinstance(item, (h5py.Dataset, h5py.Group)):
            found[text if isinstance(item, h5py.Dataset) else f"{text}/"] = item
    return found


def _in_this_file(file: Any, name: bytes, h5py: Any) -> Any:
    """What ``name`` stands for; None if it is nothing, or a link into another file.

    Left to itself, HDF5 goes through a soft link that leads to another file, and opens it, and it may be a pipe.
    """
    item, parts = file, name.split(b"/")
    for _ in range(_MOST_LINKS):
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
    """All values must have been written, and into this file: HDF5 would make up (fill) the others."""
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
    # libhdf5 crashes over a chunk that is shorter than its checksum; chunk_iter came with version 1.12.3.
    if data.fletcher32 and hasattr(data.id, "chunk_iter") and data.id.chunk_iter(_is_short):
        raise bad(where, f"a chunk must hold its checksum, {_FLETCHER_BYTES} bytes; found a shorter one")


def _is_short(chunk: Any) -> bool | None:
    return True if chunk.size < _FLETCHER_BYTES else None  # None goes on to the next chunk


def _check_crc(where: str, data: Any, values: Array, dtype: DType) -> None:
    """Compare the values with the checksum that ``write_hdf5`` keeps; files of other writers have none."""
    if _CRC not in data.attrs:
        return
    kind = data.attrs.get_id(_CRC)  # looked at before the value: text may be of any length
    if kind.shape != () or kind.dtype.kind not in "iu":
        raise bad(where, f"attribute {_CRC} must be one integer; found {kind.dtype}, shape {kind.shape}")
    crc = 0
    for _, block in blocks(values):
        crc = _crc32(block, dtype, crc)
    if crc != int(data.attrs[_CRC]):
        raise bad(where, f"the values do not have the checksum that they were written with (attribute {_CRC})")


def _crc32(block: Array, dtype: DType, crc: int) -> int:
    """The CRC-32 continued over the block's values, row after row, as ``dtype`` stores them."""
    return zlib.crc32(np.ascontiguousarray(block, dtype).data, crc)


def write_hdf5(path: Path, vectors: Array, key: str) -> None:
    h5py = import_extra("h5py", "formats")
    chunk, dtype = next(blocks(vectors, _CHUNK_BYTES))[1].shape, vectors.dtype.newbyteorder("=")
    with open(path, "w+b", buffering=0) as raw:
        target = _DeferredErrorFile(raw)
        # The 1.10 layout has checksums over the metadata, fletcher32 over the values: damage becomes visible.
        with h5py.File(target, "w", libver=("v110", "v110")) as file:
            data = file.create_dataset(key.strip("/"), vectors.shape, dtype, chunks=chunk, fletcher32=True)
            crc = 0  # to fletcher32, the words 0x0000 and 0xFFFF are the same
            for start, block in blocks(vectors, _CHUNK_BYTES):
                data[start : start + len(block)] = block
                crc = _crc32(block, dtype, crc)
                if target.error is not None:
                    break
            data.attrs[_CRC] = np.uint32(crc)
        if target.error is not None:
            raise target.error


class _DeferredErrorFile:
    """A file that never fails as long as HDF5 uses it, for HDF5 crashes the interpreter over a file that does.

    The first error is kept in ``error``, for the caller to stop and raise it. From then on writes are kept in memory
    and answered from there, so that HDF5 can close what is to it a sound file.
    """

    def __init__(self, raw: io.RawIOBase | IO[bytes]) -> None:
        self._raw, self._place = raw, 0
        self._end = 0
        self._kept: list[tuple[int, bytes]] = []
        self.error: BaseException | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self.error is None:
            try:
                self._write(view)
            except BaseException as error:  # an interrupt from the keyboard would be a failure to HDF5 as well
                self.error = error
        if self.error is not None:
            self._kept.append((self._place, bytes(view)))
        self._place += len(view)
        self._end = max(self._end, self._place)
        return len(view)

    def _write(self, view: memoryview) -> None:
        self._raw.seek(self._place)
        written = 0
        while written < len(view):  # a disk that is nearly full takes a part
            written += self._raw.write(view[written:]) or 0

    def read(self, n: int) -> bytes:  # h5py knows a file by it
        buffer = bytearray(n)
        self.readinto(buffer)
        return bytes(buffer)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        try:
            self._raw.seek(self._place)
            done = 0
            while done < len(view) and (n := self._raw.readinto(view[done:])):  # type: ignore[union-attr]
                done += n
        except BaseException as error:
            self.error = self.error or error
        for start, data in self._kept:
            low, high = max(start, self._place), min(start + len(data), self._place + len(view))
            if low < high:
                view[low - self._place : high - self._place] = data[low - start : high - start]
        self._place += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        size = self._place if size is None else size
        if self.error is None:
            try:
                self._raw.truncate(size)
            except BaseException as error:
                self.error = error
        self._end = size
        return size

    def flush(self) -> None:
        if self.error is None:
            try:
                self._raw.flush()
            except BaseException as error:
                self.error = error
