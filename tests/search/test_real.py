"""Search with real-valued queries: exact, in the order of (score, id)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashlearn.codes import pack
from hashlearn.search import _fast_scan, real, search_real
from hashlearn.threads import thread_map


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


@given(
    n=st.integers(1, 400),
    n_bits=st.integers(1, 70),
    k=st.integers(1, 500),
    kind=st.sampled_from(["whole", "real", "one large", "clusters"]),
    with_offsets=st.booleans(),
    spare=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_the_fast_scan_finds_the_same(n, n_bits, k, kind, with_offsets, spare, seed):
    """With ties or without, and with too few candidates, which it must notice."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_bits)).astype(bool)
    values = rng.integers(-2, 3, (5, n_bits)).astype(float) if kind == "whole" else rng.standard_normal((5, n_bits))
    if kind == "one large":
        values[:, 0] *= 1000
    if kind == "clusters":
        bits = bits[rng.integers(0, min(n, 5), n)]
    offsets = rng.standard_normal(n) * rng.choice([0, 0.01, 100]) if with_offsets else None
    packed = pack(bits)
    expected = search_real(values, packed, k, n_bits=n_bits, offsets=offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "_FEW_ITEMS", 1)
        patch.setattr(real, "_FAST_QUERIES", 2)
        patch.setattr(_fast_scan, "_FACTOR", 1)
        patch.setattr(_fast_scan, "_SPARE", spare)
        found = search_real(values, packed, k, n_bits=n_bits, offsets=offsets)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.parametrize("n_bits", [3, 64, 100, 1000])
@pytest.mark.parametrize("with_offsets", [True, False])
def test_the_bound_of_the_fast_scan_holds(n_bits, with_offsets):
    """Approximate scores of all items are within the bound of the exact ones, and not far within."""
    rng = np.random.default_rng(0)
    n = 2000
    codes = pack(rng.integers(0, 2, (n, n_bits)))
    values = real._on_grid(*(lambda V: (V, np.abs(V).sum(axis=1)))(rng.standard_normal((20, n_bits)) ** 3))
    offsets = rng.standard_normal(n).astype(np.float32) * 3 if with_offsets else None
    scan = _fast_scan.FastScan(codes, n_bits, offsets)
    tables, errors = scan._tables(values)
    rough, ids = scan.index.search(tables, n)
    difference = np.abs(rough.astype(float) + scan.low - scan._scores(values, ids))
    difference = np.where(ids >= 0, difference, 0).max(axis=1)  # FAISS leaves out items with the lowest score there is
    assert (difference <= errors).all()
    if n_bits > 3:
        assert (difference > errors / (30 if n_bits == 1000 else 15)).mean() > 0.5


@pytest.mark.parametrize("scale", [1e-36, 1e-20, 1e30])
def test_tiny_and_large_values_in_a_fast_scan(scale, monkeypatch):
    rng = np.random.default_rng(0)
    codes, values = rng.integers(0, 256, (3000, 4), np.uint8), scale * rng.standard_normal((20, 32))
    offsets = scale * rng.standard_normal(3000)
    expected = search_real(values, codes, 9, n_bits=32, offsets=offsets)  # by products
    monkeypatch.setattr(real, "_FEW_ITEMS", 1)
    found = search_real(values, codes, 9, n_bits=32, offsets=offsets)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    equal = search_real(values, codes, 9, n_bits=32, offsets=np.where(offsets > 0, 1e-45, 0))
    np.testing.assert_array_equal(equal.ids, search_real(values, codes, 9, n_bits=32).ids)


def test_most_queries_are_decided_by_candidates(monkeypatch):
    """Products with all items, which would find the same, are not needed."""
    rng = np.random.default_rng(0)
    codes, values = rng.integers(0, 256, (20_000, 8), np.uint8), rng.standard_normal((50, 64))
    expected = search_real(values, codes, 10, n_bits=64)
    monkeypatch.setattr(real, "search_products", None)
    again = search_real(values, codes, 10, n_bits=64, offsets=None)
    np.testing.assert_array_equal(again.ids, expected.ids)


def test_many_items_at_the_usual_block_sizes():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (20_000, 64)).astype(bool)
    values = rng.standard_normal((300, 64))
    scores, ids = search_real(values, pack(bits), 10, n_bits=64)
    expected = brute_force(values, bits, 10)
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5)
    np.testing.assert_array_equal(ids, expected[1])


@pytest.mark.parametrize("n_bits", [64, 100, 256])
def test_equal_codes_have_equal_scores_whatever_else_is_searched(n_bits):
    rng = np.random.default_rng(n_bits)
    bits = np.tile(rng.integers(0, 2, (3001, n_bits)).astype(bool), (3, 1))
    values = rng.standard_normal((301, n_bits)) * np.exp(rng.standard_normal((301, 1)) * 10)
    values[5] = 0
    offsets = np.tile(rng.standard_normal(3001), 3)
    for added in (None, offsets):
        scores, ids = search_real(values, pack(bits), 6, n_bits=n_bits, offsets=added)
        first = ids[6:, ::3]
        np.testing.assert_array_equal(ids[6:], np.stack([first, first + 3001, first + 6002], axis=2).reshape(-1, 6))
        for i in range(0, 301, 50):
            alone = search_real(values[i : i + 1], pack(bits), 6, n_bits=n_bits, offsets=added)
            np.testing.assert_array_equal(alone.ids[0], ids[i])
            np.testing.assert_array_equal(alone.scores[0], scores[i])
    assert search_real(values[5:6], pack(bits), 3, n_bits=n_bits).ids.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(scores, brute_force(values, bits, 6, offsets)[0], rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 10_000), n_bits=st.integers(1, 300), scale=st.integers(-60, 30))
def test_values_are_rounded_so_that_sums_are_exact(seed, n_bits, scale):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((3, n_bits)) * 10.0**scale
    lengths = np.abs(values).sum(axis=1)
    rounded = real._on_grid(values, lengths)
    assert rounded.dtype == np.float32
    assert (np.abs(rounded - values) <= np.maximum(lengths * 2.0**-23, 2.0**-126)[:, None]).all()
    signs = rng.choice([-1, 1], n_bits)
    for row in rounded:
        total = np.float32(0)
        for term in rng.permutation(row * signs.astype(np.float32)):
            total += term
        assert total == np.sum(row.astype(np.float64) * signs)


def test_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    codes, values, offsets = rng.integers(0, 256, (9000, 8), np.uint8), rng.standard_normal((700, 64)), rng.random(9000)
    found = []
    for n in (1, 3):
        monkeypatch.setattr(real, "thread_map", lambda n=n: thread_map(n))
        found.append(search_real(values, codes, 5, n_bits=64, offsets=offsets))
    np.testing.assert_array_equal(found[0].ids, found[1].ids)
    np.testing.assert_array_equal(found[0].scores, found[1].scores)


def test_no_queries_and_no_items():
    assert search_real(np.empty((0, 8)), np.zeros((3, 1), np.uint8), 2, n_bits=8).ids.shape == (0, 2)
    assert search_real(np.ones((1, 8)), np.empty((0, 1), np.uint8), 2, n_bits=8).ids.tolist() == [[-1, -1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"values": np.ones((2, 7))}, r"values must have a column for each of the 8 bits; got shape \(2, 7\)"),
        ({"values": np.full((2, 8), np.nan)}, "values must be finite"),
        ({"values": [[1.0] * 8, [np.inf] * 8]}, "values must be finite.*row 1 is not"),
        ({"values": np.ones((2, 8), complex)}, "values must be real numbers; got values of type complex128"),
        ({"values": [["a"] * 8]}, "values must be real numbers"),
        ({"values": [[1.0], [1.0, 2.0]]}, "values must be an array of real numbers; its rows differ in length"),
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
