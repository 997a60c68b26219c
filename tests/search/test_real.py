"""Search with real-valued queries: exact, in the order of (score, id)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashlearn.codes import pack
from hashlearn.search import real, search_real


def brute_force(values, bits, k, offsets=None):
    signs = np.where(bits, 1.0, -1.0)
    scores = values @ signs.T + (0 if offsets is None else offsets)
    order = [np.lexsort((np.arange(len(bits)), -row))[:k] for row in scores]
    return np.take_along_axis(scores, np.array(order), axis=1), np.array(order)


@given(
    n=st.integers(1, 60),
    n_bits=st.integers(1, 20),
    k=st.integers(1, 70),
    block=st.integers(1, 30),
    with_offsets=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_best_are_found_in_order_whatever_the_blocks(n, n_bits, k, block, with_offsets, seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_bits)).astype(bool)
    values = rng.integers(-2, 3, (7, n_bits)).astype(float)  # many ties, and no rounding
    offsets = rng.integers(-2, 3, n) / 2 if with_offsets else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "_ITEMS", block)
        patch.setattr(real, "_QUERIES", 3)
        scores, ids = search_real(values, pack(bits), k, n_bits=n_bits, offsets=offsets)
    expected = brute_force(values, bits, k, offsets)
    found = min(n, k)
    np.testing.assert_array_equal(scores[:, :found], expected[0])
    np.testing.assert_array_equal(ids[:, :found], expected[1])
    assert (ids[:, found:] == -1).all()
    assert (scores[:, found:] == -np.inf).all()
    assert (scores.dtype, ids.dtype) == (np.float32, np.int64)


def test_many_items_at_the_usual_block_sizes():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (20_000, 64)).astype(bool)
    values = rng.standard_normal((300, 64))
    scores, ids = search_real(values, pack(bits), 10, n_bits=64)
    expected = brute_force(values, bits, 10)
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5)
    np.testing.assert_array_equal(ids, expected[1])


def test_no_queries_and_no_items():
    assert search_real(np.empty((0, 8)), np.zeros((3, 1), np.uint8), 2, n_bits=8).ids.shape == (0, 2)
    assert search_real(np.ones((1, 8)), np.empty((0, 1), np.uint8), 2, n_bits=8).ids.tolist() == [[-1, -1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"values": np.ones((2, 7))}, r"values must have a column for each of the 8 bits; got shape \(2, 7\)"),
        ({"values": np.full((2, 8), np.nan)}, "values must be finite"),
        ({"values": np.full((2, 8), 1e38)}, "values must be finite, and small enough"),
        ({"values": np.full((2, 8), 1e60)}, "values must be finite, and small enough"),
        ({"offsets": [0.0, np.nan, 0.0]}, "offsets must be finite"),
        ({"offsets": [0.0, -np.inf, 0.0]}, "offsets must be finite"),
        ({"k": 0}, "k must be"),
        ({"offsets": [1.0]}, r"offsets must have a number for each of the 3 items; got shape \(1,\)"),
        ({"codes": np.zeros((3, 2), np.uint8)}, "codes"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    good = {"values": np.ones((2, 8)), "codes": np.zeros((3, 1), np.uint8), "k": 1, "n_bits": 8}
    with pytest.raises(ValueError, match=words):
        search_real(**{**good, **arguments})
