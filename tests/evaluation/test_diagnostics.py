"""Statistics of codes against answers by hand and against the slow definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hashlearn.codes import pack
from hashlearn.evaluation import bit_statistics, diagnostics


def test_by_hand():
    # Bit 0 is 1 for three of four, bit 1 for two, bit 2 for all; bits 0 and 1 share two ones.
    bits = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 1], [0, 0, 1]], dtype=np.uint8)
    statistics = bit_statistics(pack(bits), 3)
    assert statistics.imbalance == pytest.approx((0.5 + 0 + 1) / 3)
    assert statistics.max_imbalance == 1
    correlation = (2 / 4 - 3 / 4 * 2 / 4) / np.sqrt(3 / 16 * 1 / 4)
    assert statistics.correlation == pytest.approx(correlation / 3)  # a constant bit has none
    assert statistics.max_correlation == pytest.approx(correlation)
    assert statistics.n_codes == 3
    assert statistics.utilization == 3 / 4  # of min(4 items, 8 codes)
    assert statistics.entropy == pytest.approx(1.5)  # shares 1/2, 1/4, 1/4


def test_extremes():
    equal = bit_statistics(pack(np.ones((5, 9), dtype=np.uint8)), 9)
    assert (equal.imbalance, equal.correlation, equal.n_codes, equal.entropy) == (1, 0, 1, 0)
    every = bit_statistics(np.arange(256, dtype=np.uint8)[:, None], 8)
    assert every.as_dict() == {
        "imbalance": 0,
        "max_imbalance": 0,
        "correlation": 0,
        "max_correlation": 0,
        "n_codes": 256,
        "utilization": 1,
        "entropy": 8,
    }
    assert bit_statistics(pack(np.array([[0], [1]], dtype=np.uint8)), 1).correlation == 0


@settings(max_examples=60, deadline=None)
@given(bits=arrays(np.uint8, st.tuples(st.integers(1, 30), st.integers(1, 20)), elements=st.integers(0, 1)))
def test_equals_the_slow_definition(bits):
    n_bits = bits.shape[1]
    statistics = bit_statistics(pack(bits), n_bits)
    signs = 2.0 * bits - 1
    assert statistics.max_imbalance == pytest.approx(np.abs(signs.mean(axis=0)).max())
    pairs = []
    for j in range(n_bits):
        for k in range(j):
            a, b = signs[:, j] - signs[:, j].mean(), signs[:, k] - signs[:, k].mean()
            scale = np.sqrt((a @ a) * (b @ b))
            pairs.append(abs(a @ b) / scale if scale else 0.0)
    assert statistics.correlation == pytest.approx(np.mean(pairs) if pairs else 0, abs=1e-6)
    assert statistics.max_correlation == pytest.approx(max(pairs, default=0), abs=1e-6)
    assert statistics.n_codes == len({tuple(row) for row in bits.tolist()})


def test_blocks_change_nothing(monkeypatch):
    codes = pack(np.random.default_rng(0).integers(0, 2, (1000, 13), dtype=np.uint8))
    whole = bit_statistics(codes, 13)
    monkeypatch.setattr(diagnostics, "_BLOCK_ROWS", 7)
    assert bit_statistics(codes, 13) == whole


def test_bad_codes_are_refused():
    with pytest.raises(ValueError, match="must not be empty"):
        bit_statistics(np.empty((0, 1), dtype=np.uint8), 8)
    with pytest.raises(ValueError, match="must be packed bytes"):
        bit_statistics(np.zeros((3, 1)), 8)
