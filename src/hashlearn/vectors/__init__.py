"""Read and write files of vectors, one vector per row. The file's extension selects the format.

==================  ==============================  =======================================  =============
ending              values                          layout                                   read
==================  ==============================  =======================================  =============
.npy                any number                      NumPy's header, then the values          memory-mapped
.fvecs              float32                         TEXMEX: each row is its dimension        memory-mapped
.bvecs              uint8                           (int32), then its values
.ivecs              int32
.fbin               float32                         big-ann-benchmarks: rows and columns     memory-mapped
.u8bin              uint8                           (two uint32), then the values
.i8bin              int8
.ibin               int32
.npz                any number                      a zip of .npy files; ``key``: its name   into memory
.hdf5  .h5          any number                      a dataset; ``key``: its name             into memory
.parquet            any number                      a list column; ``key``: its name         into memory
==================  ==============================  =======================================  =============

"Any number" is float16/32/64 or (u)int8/16/32/64. The raw formats are little-endian. HDF5 and Parquet need the extra
``formats``.

An invalid file raises a one-line :class:`~hashlearn.errors.VectorFileError`. The sizes in a header are compared with
the size of the file and with the free memory before anything is allocated, and nothing is ever unpickled or evaluated.
Files written as .npz, HDF5 or Parquet have checksums, which are verified on reading (in HDF5 also the attribute
``hashlearn_crc32`` of the dataset, over its values in C order).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hashlearn._arrays import Array, DType
from hashlearn.errors import MissingExtraError, find_renamed
from hashlearn.storage import atomic_path
from hashlearn.vectors._hdf5 import read_hdf5, write_hdf5
from hashlearn.vectors._labels import read_labels
from hashlearn.vectors._numpy import read_npy, read_npz, write_npy, write_npz
from hashlearn.vectors._parquet import read_parquet, write_parquet
from hashlearn.vectors._raw import read_bin, read_texmex, write_bin, write_texmex
from hashlearn.vectors._rules import bad, check_dtype, check_exact, check_regular, check_shape, check_values, refusing

__all__ = ["FORMATS", "VectorFormat", "get_format", "read_labels", "read_vectors", "write_vectors"]


def read_vectors(path: str | os.PathLike[str], *, key: str | None = None, check_finite: bool = True) -> Array:
    """Read the vectors in a file.

    Parameters
    ----------
    path : path-like
    key : str, optional
        Name of the array, dataset or column in a file that can hold several. Default: the only one. In HDF5 the
        default is ``train`` if it exists, else the only 2-D dataset at the top level of the file; a dataset inside a
        group needs its key, such as ``group/name``.
    check_finite : bool
        Whether to look for NaN and infinity, which takes one pass over the values.

    Returns
    -------
    (n_rows, n_columns)
        In the file's type and the machine's byte order. For memory-mapped formats (see the module's table) a
        read-only view of the file, unless a .npy file has a foreign byte order.
    """
    path = Path(path)
    form = get_format(path, key)
    check_regular(path)
    vectors = form.read(path, key)
    if check_finite:
        check_values(path, vectors)
    return vectors


def write_vectors(path: str | os.PathLike[str], vectors: Array, *, key: str | None = None) -> None:
    """Write vectors to a file atomically. An existing file is replaced.

    Parameters
    ----------
    path : path-like
    vectors : (n_rows, n_columns)
        Finite values. A format with one fixed type accepts every value that this type can represent exactly.
    key : str, optional
        Name of the array (.npz, default "vectors"), dataset (HDF5, "train") or column (Parquet, "vector").
    """
    path = Path(path)
    form = get_format(path, key)
    if path.is_dir():
        raise bad(path, "a file name is needed; found a directory")
    with refusing(path, "vectors must be an array or rows of equal length"):
        if isinstance(vectors, np.ma.MaskedArray):
            raise bad(path, "vectors must have a value everywhere; got a masked array")
        vectors = np.asarray(vectors)
    check_dtype(path, vectors.dtype.str, str(vectors.dtype))
    check_shape(path, vectors.shape)
    check_values(path, vectors)
    if form.dtype is not None:
        check_exact(path, vectors, form.dtype)
    with atomic_path(path) as temporary, refusing(path, "could not be written", OSError, MissingExtraError):
        form.write(temporary, vectors, key or form.default_key)


def get_format(path: str | os.PathLike[str], key: str | None = None) -> VectorFormat:
    """Look up the format of a file by its extension, and check that the format accepts ``key``.

    Parameters
    ----------
    path : path-like
        The file, which need not exist.
    key : str, optional
        As for :func:`read_vectors`.

    Returns
    -------
    VectorFormat

    Raises
    ------
    VectorFileError
        The extension is unknown, or the format does not accept the key.
    """
    path = Path(path)
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise bad(path, f"the ending must be one of {' '.join(FORMATS)}; found {path.suffix!r}")
    if key is not None and form.default_key is None:
        raise bad(path, f"a {path.suffix} file has no names, so key must be None; got {key!r}")
    if key is not None and (not key or "\0" in key):
        raise bad(path, f"key must be a non-empty string without NUL; got {key!r}")
    return form


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name, {"format_of": "hashlearn.vectors.get_format"})


@dataclass(frozen=True)
class VectorFormat:
    """How to read and write one file format.

    Attributes
    ----------
    read : callable
        ``read(path, key)`` returns the vectors, with ``key`` as for :func:`read_vectors`.
    write : callable
        ``write(path, vectors, key)`` writes them.
    dtype : dtype or None
        The only type of value that the format holds; None: any number.
    default_key : str or None
        The name under which an array is written; None: the format has no names.
    """

    read: Callable[[Path, str | None], Array]
    write: Callable[[Path, Array, Any], None]
    dtype: DType | None = None
    default_key: str | None = None


def _raw(read: Callable[[Path, DType], Array], write: Callable[[Path, Array, DType], None], code: str) -> VectorFormat:
    dtype = np.dtype(code)
    return VectorFormat(lambda path, _: read(path, dtype), lambda path, vectors, _: write(path, vectors, dtype), dtype)


FORMATS: dict[str, VectorFormat] = {
    ".npy": VectorFormat(lambda path, _: read_npy(path), lambda path, vectors, _: write_npy(path, vectors)),
    ".npz": VectorFormat(read_npz, write_npz, default_key="vectors"),
    ".fvecs": _raw(read_texmex, write_texmex, "<f4"),
    ".bvecs": _raw(read_texmex, write_texmex, "u1"),
    ".ivecs": _raw(read_texmex, write_texmex, "<i4"),
    ".fbin": _raw(read_bin, write_bin, "<f4"),
    ".u8bin": _raw(read_bin, write_bin, "u1"),
    ".i8bin": _raw(read_bin, write_bin, "i1"),
    ".ibin": _raw(read_bin, write_bin, "<i4"),
    ".hdf5": VectorFormat(read_hdf5, write_hdf5, default_key="train"),
    ".h5": VectorFormat(read_hdf5, write_hdf5, default_key="train"),
    ".parquet": VectorFormat(read_parquet, write_parquet, default_key="vector"),
}
