"""Types of arrays, named once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of any type.
Array = NDArray[Any]
Floats = NDArray[np.float64]
#: Codes as signs, ±1.
Signs = NDArray[np.int8]
Indices = NDArray[np.intp]
#: Packed codes, (n, n_bytes).
Codes = NDArray[np.uint8]
Ids = NDArray[np.int64]
