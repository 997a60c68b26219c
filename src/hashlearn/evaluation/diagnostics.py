"""Statistics of a set of codes: balance and correlation of the bits, number of distinct codes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from hashlearn.codes import check_codes

__all__ = ["BitStatistics", "bit_statistics"]

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class BitStatistics:
    """Statistics of n codes of L bits, with bits as ±1.

    Attributes
    ----------
    imbalance, max_imbalance : float
        Mean and maximum over the bits of |mean|: 0 if a bit is 1 in half of the codes, 1 if it is constant.
    correlation, max_correlation : float
        Mean and maximum |correlation| over the pairs of bits. A constant bit has correlation 0; one bit alone, 0.
    n_codes : int
        Number of distinct codes.
    utilization : float
        Distinct codes divided by the largest possible number, min(n, 2^L).
    entropy : float
        Entropy of the distribution of the codes, in bits; at most min(L, log₂ n).
    """

    imbalance: float
    max_imbalance: float
    correlation: float
    max_correlation: float
    n_codes: int
    utilization: float
    entropy: float

    def as_dict(self) -> dict[str, float]:
        """Return the statistics by name, as plain values for JSON."""
        return asdict(self)


def bit_statistics(codes: ArrayLike, n_bits: int) -> BitStatistics:
    """Compute the statistics of packed codes in O(n (L² + log n)) time.

    Parameters
    ----------
    codes : array-like of shape (n, ceil(n_bits / 8)), uint8
        Packed codes, at least one.
    n_bits : int
        Code length, L.

    Returns
    -------
    BitStatistics

    Examples
    --------
    >>> from hashlearn.codes import pack
    >>> statistics = bit_statistics(pack([[0, 1], [1, 1], [0, 1], [1, 1]]), n_bits=2)
    >>> statistics.imbalance, statistics.n_codes, statistics.entropy
    (0.5, 2, 1.0)
    """
    packed = check_codes(codes, n_bits)
    n = len(packed)
    if not n:
        raise ValueError("codes must not be empty.")
    ones, both = np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for start in range(0, n, _BLOCK_ROWS):
        # Counts in a block stay below 2^24, which float32 represents exactly.
        bits = np.unpackbits(packed[start : start + _BLOCK_ROWS], axis=1, count=n_bits).astype(np.float32)
        ones += bits.sum(axis=0, dtype=np.float64)
        both += bits.T @ bits
    mean = 2 * ones / n - 1
    covariance = both / n - np.outer(ones, ones) / n**2
    deviation = np.sqrt(np.diag(covariance).clip(0))
    scale = np.outer(deviation, deviation)
    correlation = np.abs(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0))
    pairs = correlation[np.triu_indices(n_bits, 1)].clip(0, 1)
    counts = np.unique(np.ascontiguousarray(packed).view(f"V{packed.shape[1]}"), return_counts=True)[1]
    share = counts / n
    return BitStatistics(
        imbalance=float(np.abs(mean).mean()),
        max_imbalance=float(np.abs(mean).max()),
        correlation=float(pairs.mean()) if pairs.size else 0.0,
        max_correlation=float(pairs.max()) if pairs.size else 0.0,
        n_codes=len(counts),
        utilization=len(counts) / min(n, 2**n_bits),
        entropy=max(0.0, float(-(share * np.log2(share)).sum())),
    )
