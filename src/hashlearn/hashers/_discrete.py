"""Codes that minimize a quadratic, bit by bit or exactly.

For each sample, alone,

    min_b  E(b) = bᵀ G b − 2 qᵀ b,   b ∈ {−1, 1}^L,

where G (L, L) is symmetric and q its row of Q.

:func:`descend` is discrete cyclic coordinate descent (F. Shen, C. Shen, W. Liu, H. T. Shen, "Supervised discrete
hashing", CVPR 2015). With all other bits held, bit k is best at sgn(q_k − Σ_{j≠k} G_kj b_j). A sweep sets all bits in
turn; none can raise the objective, so that sweeps end where no single flip helps. :func:`anneal` finds better codes,
from none: in its first sweeps bits are real numbers that are pushed ever harder toward ±1 (mean-field annealing). Each
sample may have a matrix of its own, G + v vᵀ.

:func:`descend_groups` sets up to :data:`GROUP` bits at once, the best of all their patterns, so that sweeps end where
no change within one group helps.

:func:`solve` finds the minimum, for a positive definite G and up to 2 · :data:`GROUP` bits. Signs are split into
(v, u), GROUP bits and the rest. If v could be real, the least E for a given u would be

    uᵀ S u − 2 sᵀ u − q_vᵀ G_vv⁻¹ q_v,   S = G_uu − G_uv G_vv⁻¹ G_vu,   s = q_u − G_uv G_vv⁻¹ q_v,

a bound for all v at the cost of 2^|u| numbers a sample. Only where it lies below E of the code that the sample has
already, the patterns of v are gone through. From a good code, few patterns u are left.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array, Indices, Signs
from hashlearn.codes import signs

#: Bits whose patterns are gone through one by one.
GROUP = 8
# Beyond this condition number of G_vv its inverse is too far from exact for a bound.
_WORST_CONDITION = 1e12
# Pairs of a sample and a pattern that are worked on at a time.
_PAIRS = 1 << 14
#: Sweeps of :func:`anneal` with relaxed bits, tanh(sharpness · slope / G_kk) in the place of sgn(slope).
SHARPNESS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
# Samples that it works on at a time.
_ROWS = 1024


def descend(Q: Array, G: Array, B: Signs, sweeps: int) -> int:
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
            bit = signs(slope)
            if settled and not np.array_equal(bit, b[k]):
                settled = False
            b[k] = bit
        if settled:
            break
    after = b.T.astype(np.int8)
    flips = int(np.count_nonzero(after != B))
    B[...] = after
    return flips


def anneal(Q: Array, G: Array, V: Array | None, sweeps: int, start: Signs | None = None) -> tuple[Signs, Array]:
    """Find codes of low E(b) = bᵀ(G + v vᵀ)b − 2 qᵀb, v the sample's row of ``V``, if there is one.

    Sweeps with relaxed bits, from zeros (:data:`SHARPNESS`), then at most ``sweeps`` with signs, until no bit flips.
    From the codes ``start``: with signs only, none of which can raise E.

    Returns
    -------
    B : ndarray of shape (rows, L), int8
        ±1.
    slopes : ndarray of shape (rows, L)
        q_k − Σ_{j≠k} (G_kj + v_k v_j) b_j of all bits. Where the sweeps ended by themselves, their signs are the bits.
    """
    others = G.astype(Q.dtype)
    np.fill_diagonal(others, 0)
    sizes = np.diag(G).astype(Q.dtype)
    np.copyto(sizes, 1, where=sizes <= 0)
    B, slopes = np.empty(Q.shape, dtype=np.int8), np.empty_like(Q)
    for first in range(0, len(Q), _ROWS):
        rows = slice(first, first + _ROWS)
        # A bit of all samples is a row here: contiguous.
        q = np.ascontiguousarray(Q[rows].T)
        v = None if V is None else np.ascontiguousarray(V[rows].T)
        if start is None:
            b = np.zeros_like(q)
            for sharpness in SHARPNESS:
                _sweep(q, others, v, b, sharpness / sizes)
            b = signs(b).astype(Q.dtype)
        else:
            b = np.ascontiguousarray(start[rows].T, dtype=Q.dtype)
        moving = np.arange(b.shape[1])  # samples in which a bit flipped in the last sweep
        for _ in range(sweeps):
            before = b[:, moving]
            after = before.copy()
            _sweep(q[:, moving], others, None if v is None else v[:, moving], after)
            b[:, moving] = after
            moving = moving[(after != before).any(axis=0)]
            if not len(moving):
                break
        slope = q - others @ b
        if v is not None:
            slope -= v * (np.einsum("kn,kn->n", v, b) - v * b)
        B[rows], slopes[rows] = b.T, slope.T
    return B, slopes


def _sweep(q: Array, others: Array, v: Array | None, b: Array, steepness: Array | None = None) -> None:
    """Set each bit ``b`` (L, n), with all others held, to the sign of its slope, or to tanh(steepness_k · slope)."""
    slope = np.empty(b.shape[1], dtype=b.dtype)
    along = None if v is None else np.einsum("kn,kn->n", v, b)  # vᵀb
    for k in range(len(b)):
        np.matmul(others[k], b, out=slope)
        np.subtract(q[k], slope, out=slope)
        if v is not None and along is not None:
            along -= v[k] * b[k]
            slope -= v[k] * along
        b[k] = signs(slope) if steepness is None else np.tanh(steepness[k] * slope)
        if v is not None and along is not None:
            along += v[k] * b[k]


def energies(Q: Array, G: Array, B: Signs) -> Array:
    """E (rows,) of the codes ``B``."""
    b = B.astype(Q.dtype)
    bG = b @ G.astype(Q.dtype)
    bG -= 2 * Q
    return np.asarray(np.einsum("ij,ij->i", bG, b))


def descend_groups(Q: Array, G: Array, B: Signs, sweeps: int) -> None:
    """Improve ``B`` in place, a group of bits at a time, until no group changes or for ``sweeps`` sweeps."""
    n, L = Q.shape
    G = G.astype(Q.dtype)
    groups = [slice(start, min(start + GROUP, L)) for start in range(0, L, GROUP)]
    rows = np.arange(n)  # those that changed in the last sweep
    for _ in range(sweeps):
        q, b, changed = Q[rows], B[rows].astype(Q.dtype), np.zeros(len(rows), dtype=np.bool_)
        for group in groups:
            inside = G[group, group]
            q_group = q[:, group] - b @ G[:, group] + b[:, group] @ inside
            better, best = _enumerate(q_group, inside, energies(q_group, inside, b[:, group]))
            b[better, group] = best
            changed[better] = True
        B[rows[changed]] = b[changed].astype(np.int8)
        rows = rows[changed]
        if not len(rows):
            break


def solve(Q: Array, G: Array, B: Signs) -> None:
    """Put the codes of least E into ``B``, which holds some already: the better they are, the faster."""
    L = Q.shape[1]
    if L > 2 * GROUP:
        raise ValueError(f"solve takes at most {2 * GROUP} bits; got {L}.")
    if L <= GROUP:
        better, best = _enumerate(Q, G, energies(Q, G, B))
        B[better] = best
        return
    G = G.astype(np.float64)
    order = _order(G)
    low, high = order[:GROUP], order[GROUP:]
    E = energies(Q, G, B).astype(np.float64)
    G_low, cross = G[np.ix_(low, low)], G[np.ix_(low, high)]
    samples, patterns = np.nonzero(_open(Q, G, E, low, high))
    U = _patterns(len(high)).astype(Q.dtype)
    Q_high, cross = Q[:, high], cross.astype(Q.dtype)
    base = np.einsum("ij,ij->i", U @ G[np.ix_(high, high)].astype(Q.dtype), U)
    for start in range(0, len(samples), _PAIRS):
        i, u = samples[start : start + _PAIRS], U[patterns[start : start + _PAIRS]]
        # E(v, u) = base(u) − 2 q_uᵀu + vᵀ G_vv v − 2 (q_v − G_vu u)ᵀ v
        of_u = base[patterns[start : start + _PAIRS]] - 2 * np.einsum("ij,ij->i", Q_high[i], u)
        q = Q[np.ix_(i, low)] - u @ cross.T
        better, v = _enumerate(q, G_low, E[i] - of_u, _rounding(Q[i], G))
        if not len(better):
            continue
        lower = energies(q[better], G_low, v) + of_u[better]
        # Sorted by sample, then E: the first of each sample is its best.
        rank = np.lexsort((lower, i[better]))
        first = rank[np.flatnonzero(np.diff(i[better][rank], prepend=-1))]
        B[np.ix_(i[better[first]], low)] = v[first]
        B[np.ix_(i[better[first]], high)] = u[better[first]].astype(np.int8)
        E[i[better[first]]] = lower[first]


def _open(Q: Array, G: Array, E: Array, low: Array, high: Array) -> NDArray[np.bool_]:
    """Which patterns u (rows, 2^|u|) may have a code below ``E``: those whose bound is not above it.

    Rounding must not rule out the best, so that what may be rounding counts in favor of a pattern.
    """
    G_low, cross = G[np.ix_(low, low)], G[np.ix_(low, high)]
    condition = np.linalg.cond(G_low)
    U = _patterns(len(high)).astype(np.float64)
    if not condition < _WORST_CONDITION:
        return np.ones((len(Q), len(U)), dtype=np.bool_)
    inverse = np.linalg.inv(G_low)
    S = G[np.ix_(high, high)] - cross.T @ inverse @ cross
    Q_low = Q[:, low].astype(np.float64)
    reduced = Q_low @ inverse
    s = Q[:, high] - reduced @ cross
    least = np.einsum("ij,ij->i", reduced, Q_low)
    sizes = np.abs(reduced * Q_low).sum(axis=1) + 2 * np.abs(s).sum(axis=1) + np.abs(S).sum()
    room = E + least + _rounding(Q, G) + 4 * np.finfo(np.float64).eps * condition * sizes
    bounds = -2 * (s @ U.T)
    bounds += np.einsum("ij,ij->i", U @ S, U)
    return np.asarray(bounds <= room[:, None])


def _enumerate(Q: Array, G: Array, E: Array, margin: Array | None = None) -> tuple[Indices, Signs]:
    """Which rows have a pattern of less than ``E`` by more than rounding, and their best patterns."""
    patterns = _patterns(Q.shape[1])
    P = patterns.astype(Q.dtype)
    costs = np.einsum("ij,ij->i", P @ G.astype(Q.dtype), P)
    parts: list[tuple[Array, Array]] = []
    margin = _rounding(Q, G) if margin is None else margin
    for start in range(0, len(Q), _PAIRS):
        rows = slice(start, start + _PAIRS)
        totals = (-2 * Q[rows]) @ P.T
        totals += costs
        best = totals.argmin(axis=1)
        least = np.take_along_axis(totals, best[:, None], axis=1)[:, 0]
        better = np.flatnonzero(least < E[rows] - margin[rows])
        parts.append((better + start, patterns[best[better]]))
    if not parts:
        return np.empty(0, dtype=np.intp), np.empty((0, Q.shape[1]), dtype=np.int8)
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([best for _, best in parts])


def _rounding(Q: Array, G: Array) -> Array:
    """What may be rounding in a difference of two E (rows,)."""
    return np.asarray(4 * np.finfo(Q.dtype).eps * (float(np.abs(G).sum()) + 2 * np.abs(Q).sum(axis=1)))


def _order(G: Array) -> Indices:
    """Bits in an order whose last decide most: those of which the rest, if real, could make good least."""
    rest, last = list(range(len(G))), []
    G = G + 1e-12 * np.trace(G) * np.eye(len(G))  # so that there is an inverse
    while len(rest) > GROUP:
        # 1 / (G⁻¹)_kk: what is left of G_kk when all others are fitted
        k = rest[int(np.argmin(np.diag(np.linalg.inv(G[np.ix_(rest, rest)]))))]
        rest.remove(k)
        last.append(k)
    return np.array([*rest, *reversed(last)])


@cache
def _patterns(n: int) -> Signs:
    """All codes (2^n, n) of n bits, ±1."""
    return signs((np.arange(1 << n)[:, None] >> np.arange(n) & 1) - 0.5)
