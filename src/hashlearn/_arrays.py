"""Types of arrays, named once; random rows of an array; arrays from tensors."""

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
    """Draw ``size`` of ``n`` row numbers, ascending; if ``size`` is None or at least ``n``, a slice of all rows."""
    if size is None or size >= n:
        return slice(None)
    return np.sort(np.random.default_rng(random_state).choice(n, size, replace=False))


def from_torch(X: Any) -> Any:
    """Return a PyTorch tensor as one that NumPy can read: without gradients, on the CPU, bfloat16 as float32."""
    if not (type(X).__module__.partition(".")[0] == "torch" and hasattr(X, "detach")):
        return X
    X = X.detach().cpu()
    return X.float() if str(X.dtype) == "torch.bfloat16" else X
