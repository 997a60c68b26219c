"""Types of arrays, named once; random rows of an array."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Of any type.
Array = NDArray[Any]
DType: TypeAlias = "np.dtype[Any]"
Floats = NDArray[np.float64]
#: Codes as signs, ±1.
Signs = NDArray[np.int8]
Indices = NDArray[np.intp]
Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
#: Packed codes (n, n_bytes).
Codes = Bytes
Ids = Integers


def sample_rows(n: int, size: int | None, random_state: int | np.random.Generator) -> Indices | slice:
    """Draw ``size`` of ``n`` row numbers, ascending; a slice of all rows if there are no more, or ``size`` is None."""
    if size is None or size >= n:
        return slice(None)
    return np.sort(np.random.default_rng(random_state).choice(n, size, replace=False))
