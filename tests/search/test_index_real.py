"""Real-valued queries of an index: ids, changes, filters, offsets."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hashlearn
from hashlearn.datasets import load
from hashlearn.search import HammingIndex, real, search_real


@pytest.fixture(params=[1, 10**9], ids=["fast scan", "products"])
def few_items(request, monkeypatch):
    """Whether few codes are repacked for the fast scan too."""
    monkeypatch.setattr(real, "_FEW_ITEMS", request.param)


def weigh(codes):
    """Some offset of each code."""
    return codes.astype(np.float64).sum(axis=1) / 50


@pytest.mark.usefixtures("few_items")
@pytest.mark.parametrize("n_bits", [12, 64, 72])
@pytest.mark.parametrize("offsets", [None, weigh])
def test_it_is_the_search_of_its_codes_by_their_ids(n_bits, offsets):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (300, n_bits))
    codes, values = np.packbits(bits, axis=1), rng.standard_normal((40, n_bits))
    ids = np.sort(rng.permutation(1000)[:300])
    index = HammingIndex(n_bits)
    index.add(codes, ids=ids)

    def check(codes, ids, **options):
        added = None if offsets is None else offsets(codes)
        expected = search_real(values, codes, 7, n_bits=n_bits, offsets=added)
        for _ in range(2):  # again, from what was kept
            found = index.search_real(values, 7, offsets=offsets, **options)
            np.testing.assert_array_equal(found.ids, ids[expected.ids])
            np.testing.assert_array_equal(found.scores, expected.scores)

    check(codes, ids)
    some = np.sort(rng.permutation(300)[:50])
    check(codes[some], ids[some], allow=[*ids[some], 10**6])
    check(codes, ids)
    index.remove(ids[::3])
    kept = np.arange(300) % 3 > 0
    check(codes[kept], ids[kept])
    index.update([int(ids[1])], codes[:1])
    codes[1] = codes[0]
    check(codes[kept], ids[kept])


@pytest.mark.usefixtures("few_items")
def test_fewer_codes_than_asked_for():
    index = HammingIndex(8)
    assert index.search_real(np.ones((2, 8)), 3).ids.tolist() == [[-1] * 3] * 2
    index.add(np.array([[255]], np.uint8), ids=[5])
    scores, ids = index.search_real(np.ones((1, 8)), 2)
    assert (scores.tolist(), ids.tolist()) == ([[8.0, -np.inf]], [[5, -1]])
    assert index.search_real(np.ones((1, 8)), 2, allow=[6]).ids.tolist() == [[-1, -1]]
    assert index.search_real(np.empty((0, 8)), 2).ids.shape == (0, 2)


def test_codes_are_made_ready_once_for_a_function_of_offsets(monkeypatch):
    rng = np.random.default_rng(0)
    index = HammingIndex(16)
    index.add(rng.integers(0, 256, (5000, 2), dtype=np.uint8))
    made = []

    class Watched(real.RealSearch):
        def __init__(self, *arguments):
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr("hashlearn.search.index.RealSearch", Watched)
    values = rng.standard_normal((3, 16))
    digits = load("digits")
    hasher = hashlearn.DecoderHash(16, epochs=0, random_state=0).fit(digits.train)
    for _ in range(3):
        index.search_real(values, 2, offsets=hasher.code_offsets)  # a new bound method each time, and an equal one
    assert len(made) == 1
    index.search_real(values, 2)
    assert len(made) == 2
    index.search_real(values, 2, allow=[1, 2, 3])
    index.search_real(values, 2)
    assert len(made) == 3
    index.add(np.zeros((1, 2), np.uint8))
    index.search_real(values, 2)
    assert len(made) == 4


def test_copies_and_threads():
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(rng.integers(0, 256, (9000, 8), dtype=np.uint8))
    values = rng.standard_normal((200, 64))
    expected = index.search_real(values, 5)
    for other in (copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        np.testing.assert_array_equal(other.search_real(values, 5).ids, expected.ids)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: copy.copy(index).search_real(values, 5), range(8)):
            np.testing.assert_array_equal(found.scores, expected.scores)
        for found in pool.map(lambda _: index.search_real(values, 5), range(8)):
            np.testing.assert_array_equal(found.ids, expected.ids)


def test_a_memory_map_is_searched_too(tmp_path):
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(rng.integers(0, 256, (6000, 8), dtype=np.uint8))
    index.save(tmp_path / "index")
    values = rng.standard_normal((20, 64))
    found = HammingIndex.open(tmp_path / "index").search_real(values, 5)
    np.testing.assert_array_equal(found.ids, index.search_real(values, 5).ids)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"values": np.ones((2, 7))}, "values must have a column for each of the 8 bits"),
        ({"values": np.full((2, 8), np.nan)}, "values must be finite"),
        ({"k": 0}, "k must be"),
        ({"offsets": lambda codes: [1.0]}, "offsets must have a number for each of the 3 items"),
        ({"allow": [-1]}, "ids must be"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    index = HammingIndex(8)
    index.add(np.zeros((3, 1), np.uint8))
    with pytest.raises(ValueError, match=words):
        index.search_real(**{"values": np.ones((2, 8)), "k": 1, **arguments})


def test_offsets_are_a_function_that_can_not_change_the_codes():
    index = HammingIndex(8)
    index.add(np.full((3, 1), 7, np.uint8))
    with pytest.raises(TypeError, match=r"offsets must be a function of packed codes, .*; got ndarray"):
        index.search_real(np.ones((1, 8)), 1, offsets=np.zeros(3))

    def spoil(codes):
        codes[:] = 0
        return np.zeros(len(codes))

    with pytest.raises(ValueError, match="read-only"):
        index.search_real(np.ones((1, 8)), 1, offsets=spoil)
    assert (index.codes == 7).all()
