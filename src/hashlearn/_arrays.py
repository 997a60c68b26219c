"""Types of arrays, named once."""

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
