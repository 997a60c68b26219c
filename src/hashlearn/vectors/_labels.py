"""Labels in files: one for each vector."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from hashlearn.vectors._rules import Array, bad, refusing


def read_labels(path: str | os.PathLike[str]) -> Array:
    """The labels in ``path`` (n,): a 1-D .npy of numbers or text, or a text file (UTF-8) with one label a line."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        with refusing(path, "is not a whole .npy file of labels", OSError):
            labels: Array = np.load(path, allow_pickle=False)
        if labels.ndim != 1 or labels.dtype.kind not in "biufUS":
            raise bad(path, f"labels must be 1-D, numbers or text; found {labels.dtype} of shape {labels.shape}")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise bad(path, f"row {int(np.argmin(np.isfinite(labels)))}: every vector needs a label; found none")
    else:
        with refusing(path, "is not a text file in UTF-8", OSError):
            lines = path.read_text(encoding="utf-8").splitlines()
        empty = next((i for i, line in enumerate(lines, start=1) if not line.strip()), None)
        if empty is not None:
            raise bad(path, f"line {empty}: every line must be a label; found an empty one")
        labels = np.array([line.strip() for line in lines])
    if not len(labels):
        raise bad(path, "there must be at least one label; found none")
    return labels
