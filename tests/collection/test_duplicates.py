"""Near-duplicates against all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashlearn.codes import hamming, pack
from hashlearn.collection import duplicates, near_duplicates
from hashlearn.search import HammingIndex


def by_all_pairs(ids, codes, radius):
    """Groups grown from every pair of codes within the radius."""
    near = hamming(codes, codes) <= radius if len(codes) else np.zeros((0, 0), bool)
    left, groups = set(range(len(ids))), []
    while left:
        group, edge = set(), {left.pop()}
        while edge:
            group |= edge
            edge = {int(j) for i in edge for j in np.flatnonzero(near[i])} - group
        left -= group
        if len(group) > 1:
            groups.append(sorted(int(ids[i]) for i in group))
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def found_in(codes, ids, n_bits, radius):
    index = HammingIndex(n_bits)
    index.add(codes, ids)
    return [group.tolist() for group in near_duplicates(index, radius)]


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 120),
    n_bits=st.sampled_from([1, 7, 16, 64, 65]),
    radius=st.integers(0, 6),
    spread=st.sampled_from([0.02, 0.1, 0.5]),
    seed=st.integers(0, 99),
    block=st.sampled_from([7, 10_000]),
    held=st.sampled_from([0, 10**9]),
)
def test_groups_are_those_of_all_pairs(n, n_bits, radius, spread, seed, block, held):
    rng = np.random.default_rng(seed)
    codes = pack((rng.random((n, n_bits)) < spread).astype(np.uint8))
    ids = rng.permutation(5 * n)[:n]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_BLOCK", block)
        patch.setattr(duplicates, "_FIRST_BLOCK", 5)
        patch.setattr(duplicates, "_MAX_LINKS", held)
        assert found_in(codes, ids, n_bits, radius) == by_all_pairs(ids, codes, radius)


def test_a_chain_is_one_group():
    steps = np.tril(np.ones((9, 8), np.uint8), -1)  # each differs from the one before by a bit
    assert found_in(pack(steps), np.arange(9), 8, 1) == [list(range(9))]
    assert found_in(pack(steps[::2]), np.arange(5), 8, 1) == []


def test_equal_codes_make_no_pairs(monkeypatch):
    asked = []
    within = HammingIndex.within
    monkeypatch.setattr(HammingIndex, "within", lambda *a, **k: (asked.append(len(a[1])), within(*a, **k))[1])
    codes = np.repeat(np.array([[0], [255]], np.uint8), 50_000, axis=0)
    assert [len(group) for group in found_in(codes, np.arange(100_000), 8, 2)] == [50_000, 50_000]
    assert asked == [2]


def test_many_codes_are_searched_by_tables():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (30_000, 8), dtype=np.uint8)
    codes[7] = codes[20_000]
    codes[7, 3] ^= 1
    assert found_in(codes, np.arange(30_000), 64, 1) == [[7, 20_000]]


def test_blocks_are_small_where_much_is_found(monkeypatch):
    asked = []
    within = HammingIndex.within
    monkeypatch.setattr(HammingIndex, "within", lambda *a, **k: (asked.append(len(a[1])), within(*a, **k))[1])
    monkeypatch.setattr(duplicates, "_BLOCK_MATCHES", 20_000)
    codes = np.random.default_rng(0).integers(0, 256, (2000, 8), dtype=np.uint8)
    assert [len(group) for group in found_in(codes, np.arange(2000), 64, 64)] == [2000]
    assert asked[:3] == [200, 10, 10]


def test_a_radius_below_zero_is_refused():
    with pytest.raises(ValueError, match="at least 0"):
        near_duplicates(HammingIndex(8), -1)
