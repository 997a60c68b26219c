"""Discrete cyclic coordinate descent (DCC): codes that minimise a quadratic, one bit at a time.

F. Shen, C. Shen, W. Liu, H. T. Shen, "Supervised discrete hashing", CVPR 2015. For each sample, alone,

    min_b  bᵀ G b − 2 qᵀ b,   b ∈ {−1, 1}^L,

where G (L, L) is symmetric and q its row of Q. With all other bits held, bit k is best at sgn(q_k − Σ_{j≠k} G_kj b_j).
A sweep sets all bits in turn; none can raise the objective, so that sweeps end where no single flip helps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.codes import signs_of

Array = NDArray[Any]


def descend(Q: Array, G: Array, B: NDArray[np.int8], sweeps: int) -> int:
    """Improve the codes ``B`` (rows, L; ±1) in place: sweeps until no bit flips, at most ``sweeps``.

    Gives how many bits differ from before. A block of rows that stays in cache is best: each bit of a sweep reads all
    of the others.
    """
    others = G.astype(Q.dtype)
    np.fill_diagonal(others, 0)
    # A bit of all samples is a row here: contiguous.
    q, b = np.ascontiguousarray(Q.T), np.ascontiguousarray(B.T, dtype=Q.dtype)
    slope = np.empty(len(Q), dtype=Q.dtype)
    for _ in range(sweeps):
        settled = True
        for k in range(len(b)):
            np.matmul(others[k], b, out=slope)
            np.subtract(q[k], slope, out=slope)
            bit = signs_of(slope)
            if settled and not np.array_equal(bit, b[k]):
                settled = False
            b[k] = bit
        if settled:
            break
    after = b.T.astype(np.int8)
    flips = int(np.count_nonzero(after != B))
    B[...] = after
    return flips
