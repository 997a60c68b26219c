"""Properties of reading and writing vectors: round trips, exactness, torn and damaged files, random bytes."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hashlearn.errors import VectorFileError
from hashlearn.vectors import FORMATS, read_vectors, write_vectors

pytestmark = pytest.mark.slow

TEXMEX = [".fvecs", ".bvecs", ".ivecs"]
FIXED = [ending for ending, form in FORMATS.items() if form.dtype is not None]
NUMBERS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FEW = settings(max_examples=25, deadline=None, derandomize=True)
SOME = settings(max_examples=80, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vectors")


def matrices(codes: list[str]) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Finite matrices from 1 x 1 up, of every byte order and memory layout."""

    def of(code: str) -> st.SearchStrategy[np.ndarray[Any, Any]]:
        dtype = np.dtype(code)
        finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
        arrays = hnp.arrays(dtype, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite)
        layouts = [lambda a: a, np.asfortranarray, lambda a: a[::-1, ::-1], lambda a: np.repeat(a, 2, axis=1)[:, ::2]]
        return st.tuples(arrays, st.sampled_from(layouts)).map(lambda pair: pair[1](pair[0]))

    return st.sampled_from([order + code for code in codes for order in "<>"]).flatmap(of)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Equal bit for bit (-0.0 is not 0.0), in the machine's byte order."""
    native = b.astype(b.dtype.newbyteorder("="))
    return a.dtype == native.dtype and a.shape == b.shape and a.tobytes() == native.tobytes()


def outcome(path: Path, data: bytes) -> np.ndarray[Any, Any] | None:
    """What reading ``data`` gives: a valid array, or None for a proper refusal; all else fails the test."""
    path.unlink(missing_ok=True)  # not overwritten: an earlier example's map may still be alive
    path.write_bytes(data)
    message = None
    try:
        array = read_vectors(path)
    except VectorFileError as error:
        message = str(error)
    if message is not None:
        assert len(message.splitlines()) == 1
        assert message.startswith(f"{path}: ")
        return None
    assert isinstance(array, np.ndarray)
    assert array.ndim == 2
    assert array.size
    assert array.dtype.str[1:] in NUMBERS
    assert array.dtype.isnative
    assert np.isfinite(array).all()
    return array


@pytest.mark.parametrize("ending", FORMATS)
def test_round_trip(folder: Path, ending: str) -> None:
    dtype = FORMATS[ending].dtype

    @FEW
    @given(matrices([dtype.str[1:]] if dtype else NUMBERS))
    def check(vectors: np.ndarray[Any, Any]) -> None:
        before = vectors.copy()
        write_vectors(folder / f"trip{ending}", vectors)
        assert same(read_vectors(folder / f"trip{ending}"), vectors)
        assert same(np.array(vectors, vectors.dtype.newbyteorder("=")), before)

    check()


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """The slow, obvious version: can ``dtype`` hold this Python number exactly?"""
    if dtype.kind == "f":
        try:
            (narrow,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            return False
        return Fraction(narrow) == Fraction(value)
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max and Fraction(value).denominator == 1)


def near_edges(codes: list[str]) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Matrices with values where a narrower type begins to lose: around powers of two, and fractions."""
    edges = [s * (2**p + o) for p in (0, 7, 8, 11, 15, 24, 31, 32, 53, 63, 64) for o in (-1, 0, 1) for s in (1, -1)]

    def of(code: str) -> st.SearchStrategy[np.ndarray[Any, Any]]:
        dtype = np.dtype(code)
        if dtype.kind == "f":
            limit = float(np.finfo(dtype).max)
            fitting = [float(dtype.type(e)) for e in [*edges, 0.5, 0.1, 1e-8, -0.0, 3e38] if abs(e) <= limit]
        else:
            fitting = [e for e in edges if np.iinfo(dtype).min <= e <= np.iinfo(dtype).max]
        shapes = st.tuples(st.integers(1, 3), st.integers(1, 3))
        return hnp.arrays(dtype, shapes, elements=st.sampled_from(fitting), fill=st.nothing())

    return st.sampled_from(codes).flatmap(of)


@pytest.mark.parametrize("ending", FIXED)
def test_written_exactly_or_refused_at_the_first_loss(folder: Path, ending: str) -> None:
    dtype = FORMATS[ending].dtype
    assert dtype is not None

    @SOME
    @given(near_edges(NUMBERS) | matrices(NUMBERS))
    def check(vectors: np.ndarray[Any, Any]) -> None:
        path = folder / f"exact{ending}"
        places = itertools.product(*map(range, vectors.shape))
        lost = [place for place in places if not holds(dtype, vectors[place].item())]
        if lost:
            row, column = lost[0]
            with pytest.raises(VectorFileError, match=f"row {row}, column {column}: "):
                write_vectors(path, vectors)
        else:
            write_vectors(path, vectors)
            assert read_vectors(path).tolist() == vectors.tolist()

    check()


# --- torn and damaged files -----------------------------------------------------------------------------------

VECTORS = np.random.default_rng(0).integers(0, 100, (4, 3))


def own(ending: str) -> Callable[[Path], None]:
    return lambda path: write_vectors(path, VECTORS.astype(FORMATS[ending].dtype or np.float32))


def contiguous_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["train"] = VECTORS.astype(np.float32)
        file["more/test"] = VECTORS[:2]


def packed_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=VECTORS, chunks=(3, 2), compression="gzip", shuffle=True)


def list_parquet(path: Path) -> None:
    pq.write_table(pa.table({"id": range(4), "v": VECTORS.tolist()}), path, row_group_size=3)


def packed_parquet(path: Path) -> None:
    rows = pa.array(VECTORS.tolist(), pa.list_(pa.float32(), 3))
    pq.write_table(pa.table({"v": rows}), path, compression="gzip", data_page_version="2.0")


def fortran_npy(path: Path) -> None:
    np.save(path, np.asfortranarray(VECTORS.astype(">f8")))


def packed_npz(path: Path) -> None:
    np.savez_compressed(path, x=VECTORS)


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    **{f"own {ending}": (ending, own(ending)) for ending in FORMATS},
    "contiguous hdf5": (".hdf5", contiguous_hdf5),
    "packed hdf5": (".hdf5", packed_hdf5),
    "list parquet": (".parquet", list_parquet),
    "packed parquet": (".parquet", packed_parquet),
    "fortran npy": (".npy", fortran_npy),
    "packed npz": (".npz", packed_npz),
}


def made(folder: Path, name: str) -> tuple[Path, bytes]:
    ending, make = FILES[name]
    make(folder / f"good{ending}")
    good = (folder / f"good{ending}").read_bytes()
    whole = outcome(folder / f"bad{ending}", good)
    assert whole is not None
    assert whole.tolist() == VECTORS.tolist()
    return folder / f"bad{ending}", good


@pytest.mark.parametrize("name", FILES)
def test_torn_at_every_byte(folder: Path, name: str) -> None:
    path, good = made(folder, name)
    row = len(good) // len(VECTORS)
    for size in range(len(good)):
        got = outcome(path, good[:size])
        if path.suffix in TEXMEX and size and size % row == 0:
            # TEXMEX does not say how many rows there are: whole rows are a whole file.
            assert got is not None
            assert got.tolist() == VECTORS[: size // row].tolist()
        else:
            assert got is None, size


@pytest.mark.parametrize("name", ["own .npz", "own .hdf5", "own .parquet", "packed npz"])
def test_a_changed_byte_never_gives_other_values(folder: Path, name: str) -> None:
    """Checksums cover what we write: one changed byte is refused, or is one that does not matter."""
    path, good = made(folder, name)
    refused = 0
    for place in range(len(good)):
        got = outcome(path, good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        if got is None:
            refused += 1
        else:
            assert got.tolist() == VECTORS.tolist(), place
    assert refused >= VECTORS.size


@pytest.mark.parametrize("name", FILES)
def test_changed_bytes_give_an_array_or_a_refusal(folder: Path, name: str) -> None:
    path, good = made(folder, name)
    telling = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])
    changes = st.lists(st.tuples(st.integers(0, len(good) - 1), telling | st.integers(0, 255)), min_size=1, max_size=8)

    @SOME
    @given(changes)
    def check(changes: list[tuple[int, int]]) -> None:
        data = bytearray(good)
        for place, byte in changes:
            data[place] = byte
        outcome(path, bytes(data))

    check()


STARTS = st.sampled_from([b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"PK\x05\x06", b"\x89HDF\r\n\x1a\n", b"PAR1"])
ENDS = st.sampled_from([b"", b"PAR1", b"\x10\x00\x00\x00PAR1", b"PK\x05\x06" + bytes(18)])
RANDOM = st.binary(max_size=200) | st.tuples(STARTS, st.binary(max_size=99), ENDS).map(b"".join)

SIZES = st.sampled_from([1, 2, 3] * 4 + [0])


@st.composite
def plausible(draw: st.DrawFn, ending: str) -> bytes:
    """A header in the format's form, and random values of the length that it asks for, or nearly."""
    dtype = FORMATS[ending].dtype
    code = dtype.str if dtype else draw(st.sampled_from([*("<" + number for number in NUMBERS), ">f4", "|b1", "<c8"]))
    n, d = draw(SIZES), draw(SIZES)
    item = np.dtype(code).itemsize
    if ending in TEXMEX:
        heads = [struct.pack("<i", draw(st.sampled_from([d] * 9 + [d + 1]))) for _ in range(n)]
        data = b"".join(head + draw(st.binary(min_size=d * item, max_size=d * item)) for head in heads)
    else:
        header = struct.pack("<II", n, d)
        if ending == ".npy":
            order = draw(st.sampled_from(["True", "False"] * 4 + ["1"]))
            dims = draw(st.sampled_from([f"{n}, {d}"] * 4 + [f"{n},"]))
            text = f"{{'descr': '{code}', 'fortran_order': {order}, 'shape': ({dims})}}".encode()
            header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        data = header + draw(st.binary(min_size=n * d * item, max_size=n * d * item))
    return data + draw(st.sampled_from([b""] * 8 + [b"\0", b"\1\0\0\0"]))


@pytest.mark.parametrize("ending", FORMATS)
def test_random_bytes_give_an_array_or_a_refusal(folder: Path, ending: str) -> None:
    has_plain_layout = ending == ".npy" or ending in FIXED
    seen = {"array": 0, "refusal": 0}

    @settings(SOME, max_examples=150)
    @given(RANDOM | plausible(ending) if has_plain_layout else RANDOM)
    def check(data: bytes) -> None:
        seen["refusal" if outcome(folder / f"random{ending}", data) is None else "array"] += 1

    check()
    assert seen["refusal"]
    assert seen["array"] or not has_plain_layout
