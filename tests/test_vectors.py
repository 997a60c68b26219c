"""Reading and writing vectors: hand-made files, every way a file can be bad, and the claims about memory."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hashlearn.errors import MissingExtraError, VectorFileError
from hashlearn.vectors import FORMATS, read_labels, read_vectors, write_vectors

TEXMEX = {".fvecs": "<f4", ".bvecs": "u1", ".ivecs": "<i4"}
BIN = {".fbin": "<f4", ".u8bin": "u1", ".i8bin": "i1", ".ibin": "<i4"}
RAW = TEXMEX | BIN
NAMED = [".npz", ".hdf5", ".h5", ".parquet"]
EXTRAS = {".hdf5": "h5py", ".h5": "h5py", ".parquet": "pyarrow"}
MAPPED = [".npy", *RAW]
SMALL = np.array([[1, 2, 3], [4, 5, 6]])  # every format can hold it
MB = 1 << 20


def refused(path: Path, *words: str, key: str | None = None) -> str:
    """Reading ``path`` is refused in one line that names the file and has all ``words``."""
    with pytest.raises(VectorFileError) as caught:
        read_vectors(path, key=key)
    return checked(caught.value, path, *words)


def checked(error: Exception, path: Path, *words: str) -> str:
    message = str(error)
    assert len(message.splitlines()) == 1
    assert message.startswith(f"{path}: ")
    for word in words:
        assert word in message, (word, message)
    return message


def npy_bytes(descr: str, shape: str, values: bytes, order: str = "False", version: int = 1) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return (
        b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + values
    )


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def h5(path: Path, **data: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file[name] = values
    return path


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


# --- files made by hand or by others ------------------------------------------------------------------------


def test_texmex_by_hand(tmp_path: Path) -> None:
    path = put(tmp_path / "a.fvecs", struct.pack("<iffiff", 2, 1.5, -2.0, 2, 0.25, 8.0))
    got = read_vectors(path)
    assert got.dtype == np.float32
    assert got.tolist() == [[1.5, -2.0], [0.25, 8.0]]
    assert read_vectors(put(tmp_path / "a.bvecs", bytes([3, 0, 0, 0, 7, 8, 255]))).tolist() == [[7, 8, 255]]
    assert read_vectors(put(tmp_path / "a.ivecs", struct.pack("<iii", 2, -1, 9))).tolist() == [[-1, 9]]


def test_bin_by_hand(tmp_path: Path) -> None:
    assert read_vectors(put(tmp_path / "a.fbin", struct.pack("<IIff", 2, 1, 0.5, -1.0))).tolist() == [[0.5], [-1.0]]
    assert read_vectors(put(tmp_path / "a.u8bin", struct.pack("<II3B", 1, 3, 0, 1, 255))).tolist() == [[0, 1, 255]]
    assert read_vectors(put(tmp_path / "a.i8bin", struct.pack("<II2b", 2, 1, -128, 127))).tolist() == [[-128], [127]]
    assert read_vectors(put(tmp_path / "a.ibin", struct.pack("<IIi", 1, 1, -(2**31)))).tolist() == [[-(2**31)]]


@pytest.mark.parametrize(("ending", "code"), RAW.items())
def test_raw_files_are_written_byte_for_byte(tmp_path: Path, ending: str, code: str) -> None:
    write_vectors(tmp_path / f"a{ending}", SMALL)
    rows = [np.array(row, code).tobytes() for row in SMALL]
    if ending in TEXMEX:
        expected = b"".join(struct.pack("<i", 3) + row for row in rows)
    else:
        expected = struct.pack("<II", 2, 3) + b"".join(rows)
    assert (tmp_path / f"a{ending}").read_bytes() == expected


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("code", ["<f4", ">f4", ">i8", "<u2", ">f2"])
def test_numpy_reads_ours_and_we_read_numpys(tmp_path: Path, code: str, order: Any) -> None:
    array = np.array([[1, 2, 3], [4, 5, 600]], code, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", array)
    np.savez_compressed(tmp_path / "b.npz", x=array)
    for name in ("a.npy", "a.npz", "b.npz"):
        got = read_vectors(tmp_path / name)
        assert got.dtype == array.dtype.newbyteorder("=")
        assert got.dtype.isnative
        assert got.tolist() == array.tolist()
    write_vectors(tmp_path / "c.npy", array)
    write_vectors(tmp_path / "c.npz", array, key="mine")
    assert np.load(tmp_path / "c.npy").tolist() == array.tolist()
    with np.load(tmp_path / "c.npz") as archive:
        assert {name: archive[name].tolist() for name in archive} == {"mine": array.tolist()}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_npy_headers_of_other_writers(tmp_path: Path, version: int) -> None:
    values = struct.pack("<ff", 1.5, 2.5)
    for shape in ("(1, 2)", "(1,2,)", "( 1L, 2L )"):
        path = put(tmp_path / "a.npy", npy_bytes("'<f4'", shape, values, version=version))
        assert read_vectors(path).tolist() == [[1.5, 2.5]]
    other = b'{"shape": (2, 1), "fortran_order": False, "descr": "<f4"}'  # other quotes, another order
    path = put(tmp_path / "a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(other)) + other + values)
    assert read_vectors(path).tolist() == [[1.5], [2.5]]


def test_ann_benchmarks_hdf5(tmp_path: Path) -> None:
    path = h5(tmp_path / "a.hdf5", train=SMALL, test=SMALL[:1], neighbors=SMALL + 1, distances=SMALL / 2)
    assert read_vectors(path).tolist() == SMALL.tolist()
    assert read_vectors(path, key="test").tolist() == SMALL[:1].tolist()
    assert read_vectors(path, key="/distances").tolist() == (SMALL / 2).tolist()
    assert "'distances', 'neighbors', 'test', 'train'" in refused(path, "'nothing'", key="nothing")


def test_hdf5_layouts(tmp_path: Path) -> None:
    array = np.arange(200.0).reshape(20, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("deep/er/gzip", data=array, chunks=(7, 3), compression="gzip", shuffle=True)
        file["flat"] = array[0]  # 1-D: not in the way of the only 2-D data set
        file["big"] = array.astype(">f4")
        del file["big"]
    assert read_vectors(tmp_path / "a.h5", key="deep/er/gzip").tolist() == array.tolist()
    refused(tmp_path / "a.h5", "found 0", "'deep/', 'flat'")  # what is inside a group needs its key
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["top"] = array
    assert read_vectors(tmp_path / "a.h5").tolist() == array.tolist()
    got = read_vectors(h5(tmp_path / "b.h5", x=array.astype(">f4")))
    assert got.dtype.isnative
    assert got.tolist() == array.tolist()


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)])
def test_parquet_of_other_writers(tmp_path: Path, kind: Any) -> None:
    array = np.arange(9000, dtype=np.float32).reshape(3000, 3)  # several batches and row groups
    table = pa.table({"id": range(3000), "a.b": pa.array(array.tolist(), kind), "name": ["x"] * 3000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1700)
    for key in (None, "a.b"):
        got = read_vectors(tmp_path / "a.parquet", key=key)
        assert got.dtype == np.float32
        assert np.array_equal(got, array)


def test_parquet_is_written_as_a_fixed_size_list(tmp_path: Path) -> None:
    write_vectors(tmp_path / "a.parquet", SMALL.astype(np.float32))
    write_vectors(tmp_path / "b.parquet", SMALL.astype(np.uint8), key="v")
    assert pq.read_schema(tmp_path / "a.parquet").field("vector").type == pa.list_(pa.float32(), 3)
    assert pq.read_schema(tmp_path / "b.parquet").field("v").type == pa.list_(pa.uint8(), 3)
    assert pq.read_table(tmp_path / "b.parquet")["v"].to_pylist() == SMALL.tolist()


@pytest.mark.parametrize("ending", NAMED)
def test_key_names_what_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL, key="mine")
    assert read_vectors(path).tolist() == read_vectors(path, key="mine").tolist() == SMALL.tolist()
    refused(path, "'other'", "'mine'", key="other")
    for key in ("", "a\0b"):
        refused(path, "key must be", key=key)
        with pytest.raises(VectorFileError, match="key must be"):
            write_vectors(path, SMALL, key=key)


@pytest.mark.parametrize("ending", MAPPED)
def test_key_is_refused_where_there_are_no_names(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL)
    refused(path, "key must be None", "'train'", key="train")
    with pytest.raises(VectorFileError, match="key must be None"):
        write_vectors(path, SMALL, key="train")


@pytest.mark.parametrize("ending", FORMATS)
def test_the_ending_may_be_in_capitals(tmp_path: Path, ending: str) -> None:
    write_vectors(str(tmp_path / f"A{ending.upper()}"), SMALL)
    assert read_vectors(str(tmp_path / f"A{ending.upper()}")).tolist() == SMALL.tolist()


# --- memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", MAPPED)
def test_maps_are_views_of_the_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL)
    got = read_vectors(path)
    assert isinstance(got, np.memmap)
    assert not got.flags.writeable
    item = got.dtype.itemsize
    assert got.strides == ((4 if ending in TEXMEX else 0) + 3 * item, item)
    # A change of the file's last byte shows in the array: nothing was copied.
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    assert got.tobytes()[-1] == 1


@pytest.mark.parametrize("ending", MAPPED)
def test_a_map_outlives_the_replacing_of_its_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL)
    old = read_vectors(path)
    write_vectors(path, old[:1])  # from the map itself
    assert old.tolist() == SMALL.tolist()
    assert read_vectors(path).tolist() == SMALL[:1].tolist()


def test_a_map_is_not_read_to_be_opened(tmp_path: Path) -> None:
    path = put(tmp_path / "a.u8bin", struct.pack("<II", 1 << 16, 1 << 17))
    os.truncate(path, 8 + (1 << 33))  # sparse: takes no room
    start = time.perf_counter()
    got = read_vectors(path)
    assert got.shape == (1 << 16, 1 << 17)
    assert time.perf_counter() - start < 1  # 8 GB were not read
    assert got[-1, -1] == 0


@pytest.mark.parametrize("ending", [".npy", ".fvecs", ".fbin"])
def test_checks_and_writing_go_by_blocks(tmp_path: Path, ending: str) -> None:
    vectors = np.zeros((12 * MB // 128, 128), np.float32)  # 48 MB
    path = tmp_path / f"a{ending}"
    tracemalloc.start()
    try:
        write_vectors(path, vectors)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        got = read_vectors(path)
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written < 36 * MB
    assert read < 12 * MB
    assert got.shape == vectors.shape


@pytest.mark.parametrize("ending", [".npz", ".h5", ".parquet"])
def test_what_does_not_fit_in_memory_is_refused(tmp_path: Path, ending: str, monkeypatch: Any) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL)
    monkeypatch.setattr(os, "sysconf", lambda name: 6)  # 36 bytes of memory; 48 are needed
    refused(path, "must fit in memory, 36 bytes", "48 bytes")
    monkeypatch.delattr(os, "sysconf")
    assert read_vectors(path).tolist() == SMALL.tolist()


def test_rows_are_counted_across_blocks(tmp_path: Path) -> None:
    vectors = np.zeros((5000, 1024), np.float32)  # 20 MB: two blocks
    path = tmp_path / "a.fvecs"
    write_vectors(path, vectors)
    data = bytearray(path.read_bytes())
    struct.pack_into("<f", data, 4900 * 4100 + 4 + 4 * 7, np.nan)
    refused(put(tmp_path / "b.fvecs", data), "row 4900, column 7:", "nan")
    struct.pack_into("<i", data, 4800 * 4100, 3)
    refused(put(tmp_path / "c.fvecs", data), "row 4800, byte 19680000:", "ragged", "1024", "found 3")
    vectors = vectors.astype(np.float64)
    vectors[4700, 3] = 0.1
    with pytest.raises(VectorFileError, match=r"row 4700, column 3: .*float32.* got 0\.1 \(float64\)"):
        write_vectors(path, vectors)


# --- files that are not vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", FORMATS)
def test_not_a_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    with pytest.raises(FileNotFoundError, match=rf"a\{ending}"):
        read_vectors(path)
    refused(put(path, b""), "empty (0 bytes)")
    path.unlink()
    path.mkdir()
    refused(path, "directory")
    with pytest.raises(VectorFileError) as caught:
        write_vectors(path, SMALL)
    checked(caught.value, path, "directory")
    path.rmdir()
    os.mkfifo(path)
    refused(path, "pipe")


@pytest.mark.parametrize("name", ["a.txt", "a", ".npy", "a.npy.gz"])
def test_unknown_endings_list_the_known(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, b"1 2 3")
    refused(path, *FORMATS)
    with pytest.raises(VectorFileError) as caught:
        write_vectors(path, SMALL)
    checked(caught.value, path, *FORMATS)
    assert path.read_bytes() == b"1 2 3"


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    "data", [b"\n", b"PK", b"hello, world\n" * 50, bytes(200), b"\xff" * 999, b"\x89HDF\r\n\x1a\n" * 9]
)
def test_garbage(tmp_path: Path, ending: str, data: bytes) -> None:
    refused(put(tmp_path / f"a{ending}", data))


@pytest.mark.parametrize("ending", FORMATS)
def test_one_line_also_for_a_name_of_two(tmp_path: Path, ending: str) -> None:
    path = put(tmp_path / f"a\nb{ending}", b"x")
    with pytest.raises(VectorFileError) as caught:
        read_vectors(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("ending", FORMATS)
def test_another_formats_file(tmp_path: Path, ending: str) -> None:
    for other in FORMATS:
        if {ending, other} != {".h5", ".hdf5"} and ending != other:
            write_vectors(tmp_path / f"a{other}", np.arange(30).reshape(5, 6))
            path = put(tmp_path / f"b{ending}", (tmp_path / f"a{other}").read_bytes())
            same_layout = {ending, other} in ({".fvecs", ".ivecs"}, {".fbin", ".ibin"}, {".u8bin", ".i8bin"})
            if same_layout:
                assert read_vectors(path).shape == (5, 6)
            else:
                refused(path)


@pytest.mark.parametrize("d", [0, -1, -(2**31), 2**31 - 1, 1 << 20, 4])
@pytest.mark.parametrize("ending", TEXMEX)
def test_texmex_bad_dimensions(tmp_path: Path, ending: str, d: int) -> None:
    refused(put(tmp_path / f"a{ending}", struct.pack("<i", d) + bytes(3)), "row 0, byte 0", f"found dimension {d}")


@pytest.mark.parametrize(("ending", "code"), TEXMEX.items())
def test_texmex_torn_and_ragged(tmp_path: Path, ending: str, code: str) -> None:
    path, row = tmp_path / f"a{ending}", 4 + 3 * np.dtype(code).itemsize
    write_vectors(path, np.arange(12).reshape(4, 3))
    good = path.read_bytes()
    refused(put(path, good[:-1]), f"row 3, byte {3 * row}", f"takes {row} bytes", f"found {row - 1}")
    refused(put(path, good + b"\3\0"), f"row 4, byte {4 * row}", "found 2")
    for wrong in (2, 4, 0, -3):
        ragged = good[: 2 * row] + struct.pack("<i", wrong) + good[2 * row + 4 :]
        refused(put(path, ragged), f"row 2, byte {2 * row}", "dimension, 3", f"found {wrong}")
    refused(put(path, b"\1\0\0"), "byte 0", "3 bytes")


@pytest.mark.parametrize(("ending", "code"), BIN.items())
def test_bin_headers(tmp_path: Path, ending: str, code: str) -> None:
    path, values = tmp_path / f"a{ending}", np.arange(6).astype(code).tobytes()
    n = len(values)
    refused(put(path, bytes(7)), "byte 0", "7 bytes")
    for shape in ((0, 6), (6, 0), (0, 0)):
        refused(put(path, struct.pack("<II", *shape) + values), "at least one row and one column", str(shape))
    for shape in ((2, 4), (1, 3), (2**32 - 1, 2**32 - 1)):
        refused(put(path, struct.pack("<II", *shape) + values), f"{shape[0]} x {shape[1]}", f"found {n} bytes")
    refused(put(path, struct.pack("<II", 2, 3) + values[:-1]), "from byte 8", f"found {n - 1} bytes")
    refused(put(path, struct.pack("<II", 2, 3) + values + b"\0"), "from byte 8", f"found {n + 1} bytes")


NPY_BAD: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "more promised": (npy_bytes("'<f4'", "(3, 2)", bytes(16)), ("3 x 2 float32", "24 bytes", "found 16 bytes")),
    "less promised": (npy_bytes("'<f4'", "(1, 2)", bytes(16)), ("1 x 2 float32", "8 bytes", "found 16 bytes")),
    "absurd": (npy_bytes("'<f8'", f"({10**15}, {10**3})", bytes(16)), (f"{8 * 10**18} bytes", "found 16 bytes")),
    "overflow": (npy_bytes("'<f8'", f"({2**61}, 8)", b""), (f"{2**67} bytes", "found 0 bytes")),
    "digits": (npy_bytes("'<f8'", f"({'9' * 5000}, 2)", bytes(16)), ("whole numbers", "'99999")),
    "negative": (npy_bytes("'<f4'", "(-1, -4)", bytes(16)), ("whole numbers", "'-1, -4'")),
    "two numbers": (npy_bytes("'<f4'", "(1 2, 2)", bytes(96)), ("whole numbers", "'1 2, 2'")),
    "empty place": (npy_bytes("'<f4'", "(1,, 2)", bytes(8)), ("whole numbers",)),
    "0-D": (npy_bytes("'<f4'", "()", bytes(4)), ("must be 2-D", "0-D")),
    "1-D": (npy_bytes("'<f4'", "(4,)", bytes(16)), ("must be 2-D", "found 1-D, shape (4,)")),
    "3-D": (npy_bytes("'<f4'", "(1, 2, 2)", bytes(16)), ("must be 2-D", "found 3-D, shape (1, 2, 2)")),
    "no rows": (npy_bytes("'<f4'", "(0, 4)", b""), ("at least one row", "(0, 4)")),
    "no columns": (npy_bytes("'<f4'", "(4, 0)", b""), ("at least one row and one column", "(4, 0)")),
    "object": (npy_bytes("'|O'", "(1, 1)", b"cos\nsystem\n(S'x'\ntR."), ("values must be", "'|O'")),
    "string": (npy_bytes("'<U2'", "(1, 2)", bytes(16)), ("values must be", "'<U2'")),
    "bytes": (npy_bytes("'|S2'", "(1, 2)", bytes(4)), ("values must be", "'|S2'")),
    "complex": (npy_bytes("'<c8'", "(1, 2)", bytes(16)), ("values must be", "'<c8'")),
    "bool": (npy_bytes("'|b1'", "(1, 2)", bytes(2)), ("values must be", "'|b1'")),
    "date": (npy_bytes("'<M8[D]'", "(1, 2)", bytes(16)), ("values must be", "'<M8[D]'")),
    "span": (npy_bytes("'<m8[s]'", "(1, 2)", bytes(16)), ("values must be", "'<m8[s]'")),
    "long double": (npy_bytes("'<f16'", "(1, 1)", bytes(16)), ("values must be", "'<f16'")),
    "no such type": (npy_bytes("'<f3'", "(1, 2)", bytes(6)), ("values must be", "'<f3'")),
    "list of types": (npy_bytes("'f4,f4'", "(1, 1)", bytes(8)), ("values must be", "'f4,f4'")),
    "structured": (npy_bytes("[('a', '<f4')]", "(1, 2)", bytes(8)), ("values must be", "a structured type")),
    "no type": (npy_bytes("''", "(1, 2)", bytes(8)), ("values must be",)),
    "no order": (npy_bytes("'<f4'", "(1, 2)", bytes(8), order="0"), ("byte 10", "fortran_order")),
    "no shape": (npy_bytes("'<f4'", "None", bytes(8)), ("byte 10", "shape")),
    "code": (npy_bytes("'<f4'", "__import__('os')", bytes(8)), ("byte 10",)),
    "deep": (npy_bytes("'<f4'", "(" * 9000, bytes(8)), ("byte 10",)),
    "version": (npy_bytes("'<f4'", "(1, 2)", bytes(8), version=4), ("byte 0", "version 1 to 3")),
    "magic": (b"\x92" + npy_bytes("'<f4'", "(1, 2)", bytes(8))[1:], ("byte 0", "NUMPY")),
    "header size": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'", ("byte 8", "found 4294967295")),
    "header torn": (npy_bytes("'<f4'", "(1, 2)", b"")[:-1], ("byte 10",)),
    "not finite": (npy_bytes("'>f8'", "(2, 1)", struct.pack(">dd", 1, np.inf)), ("row 1, column 0", "found inf")),
    "not finite, Fortran": (
        npy_bytes("'<f2'", "(2, 2)", struct.pack("<4e", 1, 2, np.nan, 4), "True"),
        ("row 0, column 1",),
    ),
}


@pytest.mark.parametrize("case", NPY_BAD)
def test_bad_npy_and_npz_member(tmp_path: Path, case: str) -> None:
    data, words = NPY_BAD[case]
    refused(put(tmp_path / "a.npy", data), *words)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("x.npy", data)
        refused(tmp_path / "a.npz", *words)


def test_npz_choice(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=SMALL, two=SMALL + 1)
    refused(tmp_path / "a.npz", "'one', 'two'", "found 2")
    assert read_vectors(tmp_path / "a.npz", key="two").tolist() == (SMALL + 1).tolist()
    refused(tmp_path / "a.npz", "'one', 'two'", "got 'three'", key="three")
    np.savez(tmp_path / "b.npz", **{f"array{i}": SMALL for i in range(500)})
    assert len(refused(tmp_path / "b.npz")) < 1000
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("readme.txt", "no arrays")
    refused(tmp_path / "c.npz", "holds: none")


@pytest.mark.slow
def test_npz_bombs_and_methods(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((1000, 1000)))
    good = path.read_bytes()
    assert read_vectors(path).shape == (1000, 1000)
    directory = good.rindex(b"PK\x01\x02")

    # The directory claims 4 GB for a member of a few kB: no deflate stream unpacks to that.
    bomb = good[: directory + 24] + struct.pack("<I", 0xFFFFFFF0) + good[directory + 28 :]
    refused(put(path, bomb), "array 'x'", "at most", "4294967280")
    # A claim that deflate could keep, but that the member's own header does not make.
    off = good[: directory + 24] + struct.pack("<I", 8_000_129) + good[directory + 28 :]
    refused(put(path, off), "8000000 bytes from byte 128", "found 8000001 bytes")
    # The claims agree, the packed bytes hold less.
    full = io.BytesIO()
    np.save(full, np.zeros((1000, 1000)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", full.getvalue()[:-4096])
    short = path.read_bytes()
    directory = short.rindex(b"PK\x01\x02")
    refused(put(path, short[: directory + 24] + struct.pack("<I", 8_000_128) + short[directory + 28 :]), "not a whole")

    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("x.npy", full.getvalue())
        refused(path, "stored or deflated", str(method))


def test_npz_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_vectors(path, SMALL)
    data = bytearray(path.read_bytes())
    data[data.index(SMALL.tobytes())] ^= 1
    refused(put(path, data), "CRC")


def test_bad_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    refused(h5(path), "holds: none")
    refused(h5(path, one=SMALL, two=SMALL), "'one', 'two'", "found 2")
    refused(h5(path, one=SMALL[0]), "'one'", "found 0")
    refused(h5(path, train=SMALL[0]), "data set 'train'", "must be 2-D", "(3,)")
    refused(h5(path, train=np.zeros((2, 2, 2))), "must be 2-D", "3-D")
    refused(h5(path, train=5.0), "must be 2-D", "0-D")
    refused(h5(path, train=h5py.Empty("f4")), "must be 2-D")
    refused(h5(path, train=np.zeros((0, 3))), "at least one row", "(0, 3)")
    refused(h5(path, train=np.zeros((3, 0))), "at least one row", "(3, 0)")
    refused(h5(path, train=[[1.0, np.nan]]), "row 0, column 1", "nan")
    refused(h5(path, train=[["a", "b"]]), "values must be", "object")
    for dtype in ("c8", "?", "S3", [("a", "f4")]):
        refused(h5(path, train=np.zeros((2, 2), dtype)), "values must be", "data set 'train'")


def test_hdf5_values_must_be_in_the_file(tmp_path: Path) -> None:
    path, other = tmp_path / "a.h5", h5(tmp_path / "other.h5", x=SMALL)
    (tmp_path / "raw").write_bytes(SMALL.tobytes())

    def made(make: Callable[[Any], object]) -> Path:
        with h5py.File(path, "w") as file:
            make(file)
        return path

    # HDF5 would answer all of these with zeros, or from another file.
    refused(made(lambda f: f.create_dataset("train", (10**12, 10**4), "f8", chunks=(10**3, 10**3))), "found 0")
    refused(made(lambda f: f.create_dataset("train", (2, 3), "f8")), "48 bytes", "found 0")
    refused(
        made(
            lambda f: f.create_dataset("train", (9, 2), "f4", chunks=(2, 2)).write_direct(
                np.ones((2, 2), "f4"), None, np.s_[:2]
            )
        ),
        "takes 5 chunks",
        "found 1",
    )
    raw = [(str(tmp_path / "raw"), 0, 48)]
    refused(made(lambda f: f.create_dataset("train", SMALL.shape, SMALL.dtype, external=raw)), "other files")
    layout = h5py.VirtualLayout((2, 3), "i8")
    layout[:] = h5py.VirtualSource(other, "x", (2, 3))
    refused(made(lambda f: f.create_virtual_dataset("train", layout)), "other files")
    refused(made(lambda f: f.__setitem__("train", h5py.ExternalLink(str(other), "x"))), "holds: none", key="train")


def test_bad_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [[1.0, 2.0]] * 3000
    refused(parquet(path, id=[1, 2]), "'id'", "found 0")
    refused(parquet(path, a=rows, b=rows), "'a', 'b'", "found 2")
    refused(parquet(path, a=rows, id=range(3000)), "column 'id'", "must be a list", "int64", key="id")
    refused(parquet(path, a=rows), "got 'z'", "'a'", key="z")
    refused(parquet(path, a=[*rows, [1.0]]), "column 'a'", "row 3000", "ragged", "length, 2", "found 1")
    refused(parquet(path, a=[*rows, []]), "row 3000", "ragged", "found 0")
    refused(parquet(path, a=[*rows, None]), "row 3000", "found null")
    refused(parquet(path, a=[*rows, [1.0, None]]), "row 3000, column 1", "found null")
    refused(parquet(path, a=[*rows, [np.inf, 1.0]]), "row 3000, column 0", "finite", "inf")
    fixed = pa.list_(pa.float32(), 2)
    # Arrow before 26 stumbles over a null among fixed-size lists itself, and says so without the row.
    words = ("row 3000", "found null") if int(pa.__version__.split(".")[0]) >= 26 else ("Parquet",)
    refused(parquet(path, a=pa.array([*rows, None], fixed)), *words)
    refused(parquet(path, a=pa.array([*rows, [None, 1.0]], fixed)), "row 3000, column 0", "found null")
    refused(parquet(path, a=pa.array([], fixed)), "at least one row", "found 0")
    refused(parquet(path, a=pa.array([[], []], pa.list_(pa.float32()))), "one column", "(2, 0)")
    for wrong in ([["a"]], [[True]], [[[1.0]]], [[b"x"]], [[{"x": 1}]]):
        refused(parquet(path, a=wrong), "column 'a'", "values must be")
    pq.write_table(pa.table([pa.array(rows), pa.array(rows)], ["a", "a"]), path)
    refused(path, "'a', 'a'", key="a")


def test_parquet_name_with_a_dot_is_not_a_path(tmp_path: Path) -> None:
    rows = pa.array(SMALL.tolist(), pa.list_(pa.int64(), 3))
    path = parquet(tmp_path / "a.parquet", a=[{"b": 1}, {"b": 2}], **{"a.b": rows})
    assert read_vectors(path).tolist() == SMALL.tolist()


def test_parquet_footer_that_counts_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_vectors(path, np.arange(93).reshape(31, 3))
    good, found = path.read_bytes(), []
    for place in range(len(good) - 8 - struct.unpack("<I", good[-8:-4])[0], len(good) - 8):
        if good[place] == 62:  # 31, as the footer writes it
            for other in (60, 64):
                put(path, good[:place] + bytes([other]) + good[place + 1 :])
                try:
                    meta = pq.read_metadata(path)
                except OSError:
                    continue
                if meta.num_rows != 31 and meta.row_group(0).num_rows == 31:
                    found.append(meta.num_rows)
                    refused(path)
                    if other == 64:
                        refused(path, "32 promised", "found 31")
    assert found == [30, 32]


def test_parquet_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    vectors = np.random.default_rng(0).standard_normal((10, 3))
    write_vectors(path, vectors)
    data = bytearray(path.read_bytes())
    data[data.index(vectors[5].tobytes())] ^= 1
    refused(put(path, data), "not a whole Parquet file")


# --- writing ----------------------------------------------------------------------------------------------------

UNFIT: dict[str, tuple[Any, str]] = {
    "0-D": (np.float32(1), "must be 2-D"),
    "1-D": (np.zeros(3), "must be 2-D"),
    "3-D": (np.zeros((2, 2, 2)), "must be 2-D"),
    "no rows": (np.zeros((0, 3)), "at least one row"),
    "no columns": (np.zeros((3, 0)), "at least one row and one column"),
    "object": (np.array([[1, None]]), "values must be"),
    "string": (np.array([["a"]]), "values must be"),
    "complex": (np.zeros((1, 1), complex), "values must be"),
    "bool": (np.zeros((1, 1), bool), "values must be"),
    "structured": (np.zeros((1, 1), [("a", "f4"), ("b", "i4")]), "values must be"),
    "date": (np.zeros((1, 1), "M8[D]"), "values must be"),
    "long double": (np.zeros((1, 1), np.longdouble), "values must be"),
    "nan": (np.array([[1, 2], [3, np.nan]]), "row 1, column 1"),
    "inf": (np.array([[1, 2], [-np.inf, 3]], np.float16), "row 1, column 0"),
}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("case", UNFIT)
def test_unfit_vectors_are_not_written(tmp_path: Path, ending: str, case: str) -> None:
    vectors, word = UNFIT[case]
    path = put(tmp_path / f"a{ending}", b"as it was")
    with pytest.raises(VectorFileError) as caught:
        write_vectors(path, vectors)
    checked(caught.value, path, word)
    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("ending", "value"),
    [
        *[(".bvecs", 256), (".bvecs", -1), (".u8bin", 0.5), (".i8bin", 128), (".i8bin", -129.0), (".ibin", 2**31)],
        *[(".ivecs", -(2.0**31) - 1), (".ivecs", 1e300), (".fvecs", 0.1), (".fvecs", 1e39), (".fbin", 1e-50)],
        *[(".fvecs", 2**24 + 1), (".fbin", 2**53 + 1), (".fvecs", 2**63 - 1), (".fbin", np.uint64(2**64 - 1))],
    ],
)
def test_values_that_would_change_are_refused(tmp_path: Path, ending: str, value: Any) -> None:
    vectors = np.zeros((2, 3), np.asarray(value).dtype)
    vectors[1, 2] = value
    with pytest.raises(VectorFileError) as caught:
        write_vectors(tmp_path / f"a{ending}", vectors)
    checked(caught.value, tmp_path / f"a{ending}", "row 1, column 2", str(vectors[1, 2]), FORMATS[ending].dtype.name)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    for ending in FORMATS:
        write_vectors(tmp_path / "new" / "folder" / f"a{ending}", SMALL)
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(f"a{e}" for e in FORMATS)


def test_a_name_the_format_can_not_hold(tmp_path: Path) -> None:
    for name, key in (("a.h5", "/"), ("a.h5", "."), ("a.npz", "x" * 70_000), ("a.parquet", "\udc80")):
        with pytest.raises(VectorFileError) as caught:
            write_vectors(tmp_path / name, SMALL, key=key)
        checked(caught.value, tmp_path / name, "could not be written")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("ending", "package"), EXTRAS.items())
def test_a_missing_extra_is_named(tmp_path: Path, ending: str, package: str, monkeypatch: Any) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} .*pip install '\.\[formats\]'"):
        read_vectors(path)
    with pytest.raises(MissingExtraError, match=rf"{package} .*pip install '\.\[formats\]'"):
        write_vectors(tmp_path / f"b{ending}", SMALL)
    assert list(tmp_path.iterdir()) == [path]


def test_extras_are_imported_only_when_needed() -> None:
    code = "import sys, hashlearn.vectors; sys.exit('h5py' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_check_finite_can_be_left_out(tmp_path: Path) -> None:
    path = put(tmp_path / "a.fbin", struct.pack("<IIff", 1, 2, 1.0, np.nan))
    refused(path, "row 0, column 1")
    assert np.isnan(read_vectors(path, check_finite=False)[0, 1])


def test_labels_from_npy_and_text(tmp_path):
    np.save(tmp_path / "y.npy", np.array([3, 1, 3]))
    assert read_labels(tmp_path / "y.npy").tolist() == [3, 1, 3]
    np.save(tmp_path / "names.npy", np.array(["cat", "dog"]))
    assert read_labels(tmp_path / "names.npy").tolist() == ["cat", "dog"]
    (tmp_path / "y.txt").write_text("cat\n näher \n7\n", encoding="utf-8")
    assert read_labels(tmp_path / "y.txt").tolist() == ["cat", "näher", "7"]
    # A byte-order mark is not part of a label; only line feeds part lines.
    (tmp_path / "bom.txt").write_bytes("\ufeffcat\r\na\u2028b\r\ncat".encode())
    assert read_labels(tmp_path / "bom.txt").tolist() == ["cat", "a\u2028b", "cat"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("y.npy", np.zeros((2, 2)), "must be 1-D"),
        ("y.npy", np.array([1.0, np.nan]), "row 1: every vector needs a label"),
        ("y.npy", np.array([1j]), "numbers or text"),
        ("y.npy", np.zeros(0), "not a whole .npy file|at least one label"),
        ("y.npy", np.array(["a", ""]), "row 1: every vector needs a label"),
        ("y.npy", b"\x93NUMPY\x01", "not a whole .npy file"),
        ("y.npy", b"PK\x03\x04 a zip", r"starts with .x93NUMPY"),
        ("y.txt", b"a\n\nb\n", "row 1: every vector needs a label"),
        ("y.txt", b"", "empty"),
        ("y.txt", b"\xff\xfe\x00", "not a text file in UTF-8"),
    ],
)
def test_bad_labels_are_refused(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with pytest.raises(VectorFileError, match=words) as caught:
        read_labels(path)
    assert "\n" not in str(caught.value)


def test_labels_are_never_unpickled(tmp_path):
    np.save(tmp_path / "y.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(VectorFileError, match=r"not a whole \.npy file"):
        read_labels(tmp_path / "y.npy")


def test_an_hdf5_data_set_is_found_under_each_of_its_names(tmp_path):
    import h5py

    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["train"] = values
        file["alias"] = file["train"]
        file["soft"] = h5py.SoftLink("/train")
        file["away"] = h5py.ExternalLink("other.h5", "/train")
        file["gone"] = h5py.SoftLink("/nowhere")
    for key in (None, "train", "alias", "soft"):
        np.testing.assert_array_equal(read_vectors(tmp_path / "x.h5", key=key), values)
    for key in ("away", "gone"):
        with pytest.raises(VectorFileError, match="key must name one"):
            read_vectors(tmp_path / "x.h5", key=key)


def test_masked_and_ragged_input_is_not_written(tmp_path):
    with pytest.raises(VectorFileError, match="masked array"):
        write_vectors(tmp_path / "x.npy", np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]]))
    with pytest.raises(VectorFileError, match="rows of equal length"):
        write_vectors(tmp_path / "x.npy", [[1.0, 2.0], [3.0]])
    assert not list(tmp_path.iterdir())


# --- files that once crashed, hung or took too much --------------------------------------------------------------

READ = """
import sys
from hashlearn.errors import VectorFileError
from hashlearn.vectors import read_vectors
for key in sys.argv[2:]:
    try:
        print(read_vectors(sys.argv[1], key=key or None).shape)
    except VectorFileError as error:
        print("key must name one" in str(error))
"""


def read_apart(path: Path, *keys: str) -> list[str]:
    """What reading ``path`` with each key (empty: none) gives in a process of its own, soon."""
    run = [sys.executable, "-c", READ, path, *keys]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()


def endless_group(path: Path, which: int) -> None:
    """Give one of the file's groups an index of 13 levels, each 32 times the one below: 32^13 names."""
    data, old = bytearray(path.read_bytes()), -1
    for _ in range(which + 1):
        old = data.index(b"TREE", old + 1)
    first, child, last = struct.unpack_from("<QQQ", data, old + 24)
    for level in range(13):
        node = struct.pack("<4sBBHqq", b"TREE", 0, level, 32, -1, -1) + struct.pack("<QQ", first, child)
        node += struct.pack("<QQ", last, child) * 31 + struct.pack("<Q", last)
        child = len(data)
        data += node
    data[old : old + len(node)] = node
    struct.pack_into("<Q", data, 40, len(data))
    path.write_bytes(data)


@pytest.mark.parametrize("which", [0, 1])  # the top level, the group
def test_hdf5_is_not_walked(tmp_path: Path, which: int) -> None:
    path = h5(tmp_path / "a.h5", **{"only": SMALL, "more/x": SMALL[:1]})
    endless_group(path, which)
    assert read_apart(path, "", "only", "more/x", "z", "more/z") == ["(2, 3)", "(2, 3)", "(1, 3)", "True", "True"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_hdf5_links_to_other_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for ever
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = SMALL
        file["away"] = h5py.ExternalLink(str(tmp_path / "pipe"), "x")
        file["soft"] = h5py.SoftLink("/away")
        file["deep/soft"] = h5py.SoftLink("../away")
        file["train"] = h5py.SoftLink("away/x")
    assert read_apart(tmp_path / "a.h5", "", "x") == ["(2, 3)"] * 2
    assert read_apart(tmp_path / "a.h5", "away", "soft", "deep/soft", "train", "away/x") == ["True"] * 5


@pytest.mark.slow
def test_hdf5_chunk_that_is_shorter_than_its_checksum(tmp_path: Path) -> None:
    """libhdf5 crashes over it. In the old layout, a chunk's size has no checksum of its own."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=SMALL, chunks=(1, 3), fletcher32=True)
    good = path.read_bytes()
    for row in range(2):
        place = good.index(struct.pack("<IIQQQ", 28, 0, row, 0, 0))  # size, filters left out, where it begins
        for size in range(4):
            put(path, good[:place] + struct.pack("<I", size) + good[place + 4 :])
            assert read_apart(path, "") == ["False"]
            refused(path, "data set 'train'", "a chunk must hold its checksum")


def test_hdf5_damage_that_fletcher32_does_not_see(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"

    def damage() -> None:
        with h5py.File(path) as file:
            start = file["train"].id.get_chunk_info(0).byte_offset
        data = bytearray(path.read_bytes())
        assert data[start : start + 6] == bytes([7, 0, 0, 0, 9, 0])
        data[start + 2 : start + 4] = b"\xff\xff"
        path.write_bytes(data)

    vectors = np.array([[7, 0, 9]], np.uint16)
    write_vectors(path, vectors)
    damage()
    refused(path, "data set 'train'", "do not have the checksum", "attribute hashlearn_crc32")
    write_vectors(path, vectors)
    with h5py.File(path, "a") as file:
        del file["train"].attrs["hashlearn_crc32"]
    damage()
    assert read_vectors(path).tolist() == [[7, 0xFFFF, 9]]  # so it was before there was the attribute


def test_hdf5_checksum_is_of_the_values_as_stored(tmp_path: Path) -> None:
    path, vectors = tmp_path / "a.h5", np.random.default_rng(0).standard_normal((700, 1000)).astype(">f4")
    for order in (vectors, np.asfortranarray(vectors), np.repeat(vectors, 2, axis=1)[:, ::2]):
        write_vectors(path, order)  # of several chunks
        with h5py.File(path) as file:
            assert file["train"].attrs["hashlearn_crc32"] == zlib.crc32(file["train"][...].tobytes())
        assert np.array_equal(read_vectors(path), vectors)
    with h5py.File(h5(path, train=vectors), "a") as file:
        assert file["train"].dtype == np.dtype(">f4")
        file["train"].attrs["hashlearn_crc32"] = zlib.crc32(vectors.tobytes())
    assert np.array_equal(read_vectors(path), vectors)


@pytest.mark.parametrize("wrong", ["text", b"text", 1.5, [1, 2], [1], True, h5py.Empty("u4"), np.zeros(2, "i4,i4")])
def test_hdf5_checksum_of_a_wrong_type(tmp_path: Path, wrong: Any) -> None:
    path = tmp_path / "a.h5"
    write_vectors(path, SMALL)
    with h5py.File(path, "a") as file:
        file["train"].attrs["hashlearn_crc32"] = wrong
    refused(path, "data set 'train'", "attribute hashlearn_crc32 must be one integer")


@pytest.mark.parametrize("wrong", [0, -1, 2**40])
def test_hdf5_checksum_that_is_another(tmp_path: Path, wrong: int) -> None:
    path = h5(tmp_path / "a.h5", train=SMALL)
    with h5py.File(path, "a") as file:
        file["train"].attrs["hashlearn_crc32"] = wrong
    refused(path, "do not have the checksum")


def test_hdf5_checksum_takes_no_copy(tmp_path: Path) -> None:
    vectors = np.ones((4 * MB // 128, 128), np.float32)  # 16 MB
    for array in (vectors, vectors.reshape(1, -1)):
        tracemalloc.start()
        try:
            write_vectors(tmp_path / "a.h5", array)
            written = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            read_vectors(tmp_path / "a.h5", check_finite=False)
            read = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert written < 6 * MB  # a map of what is finite
        assert read < 17 * MB


@pytest.mark.slow
@pytest.mark.parametrize("libver", [None, "v108", "latest", ("v110", "v110")])
def test_hdf5_of_every_layout(tmp_path: Path, libver: Any) -> None:
    """What h5py writes is read as h5py reads it, from each kind of index and through each filter."""
    path, array = tmp_path / "a.h5", np.arange(1200).reshape(60, 20)
    packings: list[dict[str, Any]] = [
        {},
        {"shuffle": True},
        {"fletcher32": True},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "lzf"},
    ]
    for largest in ((60, 20), (None, 20), (60, None), (None, None), (500, 90), (None, 90)):
        for chunk in ((60, 20), (7, 3), (1, 1)):
            for code, packing in zip(("<f4", ">i8", "<u2", ">f8", "<i4"), packings, strict=True):
                if chunk == (1, 1) and packing not in (packings[0], packings[3]):
                    continue  # many chunks, so that an index has pages: two kinds are enough
                with h5py.File(path, "w", libver=libver) as file:
                    options = {"chunks": chunk, "maxshape": largest, **packing}
                    file.create_dataset("train", (30, 20), code, **options)[...] = array[:30]
                    if largest[0] != 60:
                        file["train"].resize(60, 0)
                        file["train"][30:] = array[30:]
                got = read_vectors(path)
                assert got.dtype == np.dtype(code).newbyteorder("=")
                assert got.tolist() == array[: len(got)].tolist(), (largest, chunk, packing)
                assert len(got) == (30 if largest[0] == 60 else 60)


@pytest.mark.parametrize("libver", [None, "latest"])
def test_hdf5_among_many_names(tmp_path: Path, libver: Any) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=512) as file:
        for i in range(1500):
            file.create_group(f"group number {i}")
        file["group number 700/x"] = SMALL
        file["group number 700/soft"] = h5py.SoftLink("x")
        file["circle"] = h5py.SoftLink("/circle")
        file.attrs["note"] = "x" * 5000
    assert read_vectors(path, key="group number 700/x").tolist() == SMALL.tolist()
    assert read_vectors(path, key="/group number 700/soft/").tolist() == SMALL.tolist()
    assert len(refused(path, "'group number", key="circle")) < 1000
    assert len(refused(path, "found 0", "'group number")) < 1000
    refused(path, "key must name one", key="group number 700")


FAILING_DISK = """
import errno, gc, io, sys
import numpy as np
from hashlearn.vectors import _hdf5, write_vectors

class Disk(io.FileIO):
    calls, fails = 0, None
    def count(self):
        Disk.calls += 1
        if Disk.fails is not None and Disk.calls > Disk.fails:
            raise OSError(errno.ENOSPC, "no room", "disk")
    def write(self, data):
        self.count()
        return super().write(data[: max(1, len(data) // 2)])  # in parts, as a disk may
    def truncate(self, size=None):
        self.count()
        return super().truncate(size)
    def flush(self):
        if not self.closed:
            self.count()

_hdf5.open = lambda path, mode, buffering: Disk(path, mode)
vectors = np.arange(3 * 2**18, dtype=np.float32).reshape(-1, 128)  # three chunks
write_vectors(sys.argv[1], vectors)
n_calls, caught = Disk.calls, 0
for Disk.fails in range(n_calls - 1):
    Disk.calls = 0
    try:
        write_vectors(sys.argv[1], vectors)
    except OSError as error:
        assert (error.errno, error.strerror) == (errno.ENOSPC, "no room"), error
        caught += 1
    gc.collect()
print(n_calls, caught)
"""


@pytest.mark.slow
def test_hdf5_on_a_disk_that_fails_at_any_call(tmp_path: Path) -> None:
    """HDF5 can't close a file that fails, and crashes later; so it must not see the failure."""
    path = tmp_path / "a.hdf5"
    run = [sys.executable, "-c", FAILING_DISK, path]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    n_calls, caught = map(int, done.stdout.split())
    assert caught == n_calls - 1 > 20
    assert list(tmp_path.iterdir()) == [path]
    assert read_vectors(path).shape == (6144, 128)  # as it was


FULL_DISK = """
import errno, gc, sys
import numpy as np
from hashlearn.vectors import write_vectors
try:
    write_vectors(sys.argv[1], np.random.default_rng(0).standard_normal((20_000, 64)).astype(np.float32))
except OSError as error:
    gc.collect()
    print(error.errno == errno.ENOSPC)
"""


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can't be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".hdf5", ".npy", ".npz", ".fvecs", ".fbin", ".parquet"])
def test_a_full_disk(full_disk: Path, ending: str) -> None:
    path = put(full_disk / f"a{ending}", b"as it was")
    run = [sys.executable, "-c", FULL_DISK, path]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert path.read_bytes() == b"as it was"
    assert list(full_disk.iterdir()) == [path]


NPY_HEADERS = {
    "key twice": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), 'shape': (2, 1)}",
    "key in a string": "{'descr': '<f4', 'fortran_order': False, 'x': \"'shape': (1, 2)\"}",
    "key within a key": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), 'more': {'descr': '<i4'}}",
    "key too many": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), 'more': True}",
    "key too few": "{'descr': '<f4', 'shape': (1, 2)}",
    "text before": "x{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}",
    "text after": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}x",
    "two": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}" * 2,
    "comment": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}  # {",
    "no braces": "'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)",
    "not closed": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)",
    "two commas": "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2),,}",
    "no comma": "{'descr': '<f4' 'fortran_order': False, 'shape': (1, 2)}",
    "kinds exchanged": "{'descr': True, 'fortran_order': '<f4', 'shape': (1, 2)}",
    "escape": "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1, 2)}",
}


@pytest.mark.parametrize("case", NPY_HEADERS)
def test_npy_headers_are_read_strictly(tmp_path: Path, case: str) -> None:
    header = NPY_HEADERS[case].encode()
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8)
    refused(put(tmp_path / "a.npy", data), "byte 10", "the header must give")
    with pytest.raises(VectorFileError, match="the header must give"):
        read_labels(tmp_path / "a.npy")


def test_npy_headers_with_padding(tmp_path: Path) -> None:
    header = b"{\t'shape' :\n( 1 ,\t2 ) , \"descr\": '<f4','fortran_order':True , }  \n \n"
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<ff", 1, 2)
    assert read_vectors(put(tmp_path / "a.npy", data)).tolist() == [[1, 2]]


def test_npz_with_two_members_of_one_name(tmp_path: Path) -> None:
    path, member = tmp_path / "a.npz", io.BytesIO()
    np.save(member, SMALL)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, member.getvalue())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", member.getvalue())
    for key in (None, "x", "y"):
        refused(path, "'x.npy' twice", key=key)


@pytest.fixture
def set_free_memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the free memory in bytes; 0 stands for a system that does not tell."""
    return lambda n: monkeypatch.setattr("hashlearn.vectors._rules.free_memory", lambda: n)


@pytest.mark.parametrize("ending", [".npz", ".h5", ".parquet"])
def test_a_container_s_memory_counts(tmp_path: Path, ending: str, set_free_memory: Any) -> None:
    path = tmp_path / f"a{ending}"
    write_vectors(path, SMALL)
    set_free_memory(47)
    refused(path, "must fit in memory, 47 bytes", "48 bytes")
    set_free_memory(0)  # not known
    assert read_vectors(path).tolist() == SMALL.tolist()


def test_labels_take_memory_in_proportion_to_the_file(tmp_path: Path, set_free_memory: Any) -> None:
    path = put(tmp_path / "y.txt", b"ab\n" * 1000 + b"x" * 300_000 + b"\n")
    tracemalloc.start()
    try:
        labels = read_labels(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MB  # an array of fixed width would take 1.2 GB
    assert labels.tolist() == ["ab"] * 1000 + ["x" * 300_000]
    np.save(tmp_path / "y.npy", np.arange(1000))
    set_free_memory(2000)
    for name in ("y.txt", "y.npy"):
        with pytest.raises(VectorFileError, match="must fit in memory, 2000 bytes"):
            read_labels(tmp_path / name)


@pytest.mark.parametrize("code", ["?", "<f2", ">f8", "|i1", ">u4", "<U3", ">U3", "|S3"])
def test_labels_of_every_kind(tmp_path: Path, code: str) -> None:
    labels = np.array([1, 0, 1], code)
    np.save(tmp_path / "y.npy", labels)
    got = read_labels(tmp_path / "y.npy")
    assert got.dtype.isnative
    assert got.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("descr", "shape", "values", "words"),
    [
        ("'<U1'", "(1,)", b"\xff\xff\xff\xff", "no str32 value"),
        ("'|b1'", "(1,)", b"\x02", "no bool value"),
        ("'<i4'", "(2,)", bytes(9), "8 bytes from byte .* found 9 bytes"),
        ("'<i4'", f"({2**62},)", bytes(8), "found 8 bytes"),
        ("'|S999999999'", "(1,)", bytes(8), "found 8 bytes"),
        ("'<U0'", "(1,)", b"", "numbers or text"),
        ("[('a', '<i4')]", "(1,)", bytes(4), "a structured type"),
    ],
)
def test_label_headers_that_do_not_fit(tmp_path: Path, descr: str, shape: str, values: bytes, words: str) -> None:
    path = put(tmp_path / "y.npy", npy_bytes(descr, shape, values))
    with pytest.raises(VectorFileError, match=words) as caught:
        read_labels(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_parquet_bombs(tmp_path: Path, monkeypatch: Any, set_free_memory: Any) -> None:
    path, n = tmp_path / "a.parquet", 36 * MB
    rows = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), pa.array(np.zeros(n)))
    parquet(path, a=rows)
    del rows
    assert path.stat().st_size < 1000
    set_free_memory(8 * n - 1)
    start = time.perf_counter()
    refused(path, f"must fit in memory, {8 * n - 1} bytes", f"{8 * n} bytes")
    assert time.perf_counter() - start < 1  # nothing was decoded
    monkeypatch.undo()
    parquet(path, a=np.zeros((1000, 128)).tolist())  # as many zeros as a table may well have
    assert read_vectors(path).shape == (1000, 128)
    set_free_memory(1_000_000)
    refused(path, "must fit in memory, 1000000 bytes", "1024000 bytes")


def varint(value: int) -> bytes:
    value *= 2  # zigzag
    return bytes([value & 127 | 128, value >> 7]) if value > 127 else bytes([value])


def test_parquet_pages_that_claim_other_values_than_the_footer(tmp_path: Path) -> None:
    """Decoded with the footer's count, such pages would give a part of the values, or memory for too many."""
    path, n = tmp_path / "a.parquet", 500
    pq.write_table(pa.table({"a": np.ones((n // 5, 5)).tolist()}), path, compression="none", use_dictionary=False)
    good, old = path.read_bytes(), b"\x15" + varint(n)  # field 1 of the page's header, an int32
    start = len(good) - 8 - struct.unpack("<I", good[-8:-4])[0]
    page, footer = good.index(old), good.index(b"\x16" + varint(n), start)  # an int64 in the footer
    for count in (n + 100, n - 100, 2 * n):
        for place in (page, footer):
            data = good[: place + 1] + varint(count) + good[place + 3 :]
            refused(put(path, data), "column 'a'", "promise")
    assert read_vectors(put(path, good)).shape == (100, 5)


def test_parquet_checksum_that_is_disguised(tmp_path: Path) -> None:
    """A checksum whose field is of another kind is passed over by pyarrow, and so was damage to the values."""
    path = tmp_path / "a.parquet"
    vectors = np.random.default_rng(0).standard_normal((10, 3))
    write_vectors(path, vectors)
    data = bytearray(path.read_bytes())
    value = data.index(vectors[5].tobytes())
    places = [i for i in range(4, 20) if data[i] == 0x15]  # the int32 fields that a page's header starts with
    assert len(places) >= 4
    data[value] ^= 1
    for place in places:
        for kind in (0x14, 0x16):
            disguised = data[:place] + bytes([kind]) + data[place + 1 :]
            refused(put(path, disguised))


@pytest.mark.slow
def test_parquet_takes_little_more_than_the_values(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    flat = pa.array(np.random.default_rng(0).standard_normal(8 * MB).astype(np.float32))
    parquet(path, a=pa.FixedSizeListArray.from_arrays(flat, 128))  # one row group of 32 MB
    del flat
    code = "import sys, pyarrow as pa; from hashlearn.vectors import read_vectors; read_vectors(sys.argv[1]); "
    code += "print(pa.default_memory_pool().max_memory())"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 * MB  # beside the values
