"""What a set of codes is like, whatever it is for: balance of the bits, their correlation, how many codes are used."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from hashlearn.codes import check_codes

__all__ = ["BitStatistics", "bit_statistics"]

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class BitStatistics:
    """Of n codes of L bits, with bits as ±1.

    imbalance, most_imbalance
        Mean and largest |mean of a bit|: 0 if it is 1 for half of the codes, 1 if it is the same for all.
    correlation, most_correlation
        Mean and largest |correlation of two bits|; a constant bit has correlation 0 with the others. 0 for one bit.
    n_codes
        Distinct codes.
    utilisation
        Distinct codes / the most there could be, min(n, 2^L).
    entropy
        Of the distribution of the codes, in bits; at most min(L, log₂ n).
    """

    imbalance: float
    most_imbalance: float
    correlation: float
    most_correlation: float
    n_codes: int
    utilisation: float
    entropy: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def bit_statistics(codes: ArrayLike, n_bits: int) -> BitStatistics:
    """The statistics of packed codes (n, ceil(n_bits / 8)); blocks of rows, O(n (L² + log n)) time."""
    packed = check_codes(codes, n_bits)
    n = len(packed)
    if not n:
        raise ValueError("codes must not be empty.")
    ones, both = np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for start in range(0, n, _BLOCK_ROWS):
        # Counts in a block stay below 2^24, so that float32 holds them exactly.
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
        most_imbalance=float(np.abs(mean).max()),
        correlation=float(pairs.mean()) if pairs.size else 0.0,
        most_correlation=float(pairs.max()) if pairs.size else 0.0,
        n_codes=len(counts),
        utilisation=len(counts) / min(n, 2**n_bits),
        entropy=max(0.0, float(-(share * np.log2(share)).sum())),
    )
