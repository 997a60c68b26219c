"""Labels in files: one for each vector."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from hashlearn.vectors._rules import Array, bad, check_regular, refusing


def read_labels(path: str | os.PathLike[str]) -> Array:
    """The labels in ``path`` (n,): a 1-D .npy of numbers or text, or a text file (UTF-8) with one label a line."""
    path = Path(path)
    check_regular(path)
    if path.suffix.lower() == ".npy":
        labels = _read_npy_labels(path)
    else:
        with refusing(path, "is not a text file in UTF-8", OSError):
            text = path.read_text(encoding="utf-8-sig")
        lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
        labels = np.array(lines)
    if not len(labels):
        raise bad(path, "there must be at least one label; found none")
    missing = ~np.isfinite(labels) if labels.dtype.kind == "f" else labels == labels.dtype.type()
    if labels.dtype.kind in "fUS" and missing.any():
        raise bad(path, f"row {int(np.argmax(missing))}: every vector needs a label; found none")
    return labels


def _read_npy_labels(path: Path) -> Array:
    with refusing(path, "is not a whole .npy file of labels", OSError):
        with open(path, "rb") as file:
            if file.read(6) != b"\x93NUMPY":
                raise bad(path, "byte 0: a .npy file starts with \\x93NUMPY")
        # Mapped, so that a header can't promise more than the file holds.
        labels: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    if labels.ndim != 1 or labels.dtype.kind not in "biufUS":
        raise bad(path, f"labels must be 1-D, numbers or text; found {labels.dtype} of shape {labels.shape}")
    return np.array(labels)
