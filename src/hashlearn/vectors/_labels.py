"""Files of labels, one label per vector."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np

from hashlearn._arrays import Array
from hashlearn.vectors._numpy import read_npy_header
from hashlearn.vectors._rules import bad, check_memory, check_regular, refusing

_LABEL_CODE = re.compile(r"[<>|=]?(b1|f[248]|[iu][1248]|[US][1-9][0-9]{0,8})")
_DECODED = 4  # bytes per character that Python may need for a decoded string


def read_labels(path: str | os.PathLike[str]) -> Array:
    """Read labels from a file, one per vector.

    Parameters
    ----------
    path : path-like
        A 1-D .npy file of numbers or text, or a UTF-8 text file with one label per line.

    Returns
    -------
    (n,)
        Labels from a text file are Python strings (dtype object), so that one long line does not widen all of them.

    Raises
    ------
    VectorFileError
        The file is invalid or empty, or a label is missing: an empty line or text, NaN, or infinity.
    """
    path = Path(path)
    check_regular(path)
    labels = _read_npy_labels(path) if path.suffix.lower() == ".npy" else _read_text_labels(path)
    if not len(labels):
        raise bad(path, "there must be at least one label; found none")
    if labels.dtype.kind in "biu":
        return labels
    empty = b"" if labels.dtype.kind == "S" else ""
    missing = ~np.isfinite(labels) if labels.dtype.kind == "f" else labels == empty
    if missing.any():
        raise bad(path, f"row {int(np.argmax(missing))}: every vector needs a label; found none")
    return labels


def _read_text_labels(path: Path) -> Array:
    size = path.stat().st_size
    check_memory(path, _DECODED * size, f"a text of {size} bytes, {_DECODED * size} when decoded")
    labels: list[str] = []
    known: dict[str, str] = {}  # equal labels share one object
    with refusing(path, "is not a text file in UTF-8", OSError), open(path, encoding="utf-8-sig") as file:
        for line in file:
            label = line.strip()
            labels.append(known.setdefault(label, label))
        return np.array(labels, dtype=object)


def _read_npy_labels(path: Path) -> Array:
    with open(path, "rb") as file:
        header, size = read_npy_header(path, file), os.fstat(file.fileno()).st_size
        if not _LABEL_CODE.fullmatch(header.code):
            rule = "numbers or text are needed"
            raise bad(path, f"is not a whole .npy file of labels: {rule}; found {header.code[:80]!r}")
        if len(header.shape) != 1:
            raise bad(path, f"labels must be 1-D; found shape {header.shape}")
        with refusing(path, "is not a whole .npy file of labels", OSError):
            dtype, (n_labels,) = np.dtype(header.code), header.shape
            if n_labels * dtype.itemsize != size - header.n_bytes:
                needed = f"{n_labels} labels take {n_labels * dtype.itemsize} bytes from byte {header.n_bytes}"
                raise bad(path, f"{needed}; found {size - header.n_bytes} bytes")
            check_memory(path, 2 * (size - header.n_bytes), f"{n_labels} labels of {dtype.itemsize} bytes, and a copy")
            labels: Array = np.fromfile(file, dtype, n_labels).astype(dtype.newbyteorder("="), copy=False)
    # Bytes that are not a valid boolean or character would cause errors later, far from the file.
    kind, largest = {"b": (np.uint8, 1), "U": (np.uint32, sys.maxunicode)}.get(dtype.kind, (None, 0))
    if kind and (labels.view(kind) > largest).any():
        raise bad(path, f"is not a whole .npy file of labels: found bytes that are no {dtype.name} value")
    return labels
