"""HammingIndex against brute force: any order of changes and searches, ties, every length, files."""

import copy
import json
import pickle
import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hashlearn.codes import hamming, n_bytes, pack
from hashlearn.errors import IndexFileError
from hashlearn.search import MISSING, HammingIndex, _scan, _tables
from hashlearn.search._planning import Costs, Ledger, Size, choose, plan_within

LENGTHS = (1, 7, 8, 12, 63, 64, 65, 256)


def some_codes(rng, n, n_bits, spread=0.5):
    """Random codes; a small spread makes many of them equal or near."""
    return pack((rng.random((n, n_bits)) < spread).astype(np.uint8))


def brute_search(queries, codes, ids, k):
    """By (distance, id), from all distances."""
    distances = np.full((len(queries), k), MISSING)
    found = np.full((len(queries), k), -1)
    if len(codes):
        for i, row in enumerate(hamming(queries, codes)):
            order = sorted(range(len(ids)), key=lambda j: (row[j], ids[j]))[:k]
            distances[i, : len(order)] = row[order]
            found[i, : len(order)] = np.asarray(ids)[order]
    return distances, found


def brute_within(queries, codes, ids, radius):
    if not len(codes):
        return [[] for _ in queries]
    return [
        sorted((int(d), int(id)) for d, id in zip(row, ids, strict=True) if d <= radius)
        for row in hamming(queries, codes)
    ]


def pairs_of(matches):
    return [list(zip(map(int, d), map(int, i), strict=True)) for d, i in matches]


def filled(n_bits, n=300, seed=0, spread=0.5):
    rng = np.random.default_rng(seed)
    codes = some_codes(rng, n, n_bits, spread)
    ids = rng.choice(10 * n, n, replace=False)
    index = HammingIndex(n_bits)
    index.add(codes, ids)
    return index, codes, ids, rng


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bits", LENGTHS)
@pytest.mark.parametrize("spread", [0.05, 0.5])
@pytest.mark.parametrize("k", [1, 10, 150, 400])
def test_nearest_are_those_of_brute_force(n_bits, spread, k):
    index, codes, ids, rng = filled(n_bits, spread=spread)
    queries = np.concatenate([some_codes(rng, 5, n_bits, spread), codes[:2]])
    distances, found = index.search(queries, k)
    expected = brute_search(queries, codes, ids, k)
    np.testing.assert_array_equal(found, expected[1])
    np.testing.assert_array_equal(distances, expected[0])
    assert distances.dtype == np.int32
    assert found.dtype == np.int64


@pytest.mark.parametrize("n_bits", LENGTHS)
@pytest.mark.parametrize("engine", [None, "scan", "tables"])
@pytest.mark.parametrize("radius", [0, 1, 2, 3, 5])
def test_all_within_a_radius_are_those_of_brute_force(n_bits, engine, radius):
    index, codes, ids, rng = filled(n_bits, spread=0.02)
    queries = np.concatenate([some_codes(rng, 5, n_bits, 0.02), codes[:2]])
    found = index.within(queries, radius, engine=engine)
    expected = brute_within(queries, codes, ids, radius)
    assert pairs_of(found) == expected
    assert any(expected)
    assert (found.offsets.dtype, found.distances.dtype, found.ids.dtype) == (np.int64, np.int32, np.int64)


@pytest.mark.parametrize("n_bits", [8, 12])
def test_a_radius_that_reaches_all(n_bits):
    index, codes, ids, _ = filled(n_bits)
    for radius in (n_bits, n_bits + 1, 10**12):
        assert pairs_of(index.within(codes[:3], radius)) == brute_within(codes[:3], codes, ids, n_bits)


def test_many_equal_distances_are_in_the_order_of_ids():
    index = HammingIndex(8)
    index.add(np.zeros((500, 1), np.uint8), np.arange(500)[::-1])
    for k in (3, 100, 101, 499, 500):  # by heap, by counting
        np.testing.assert_array_equal(index.search(np.zeros((1, 1), np.uint8), k).ids[0], np.arange(k))


def test_so_many_neighbors_that_distances_are_sorted(monkeypatch):
    index, codes, ids, _ = filled(65, spread=0.2)
    assert index.explain(k=250).engine == "scan"
    monkeypatch.setattr(_scan, "_COUNTING_BYTES", 1000)
    for k in (5, 250, 300, 301):
        assert index.explain(k=k).engine == "sort"
        distances, found = index.search(codes[:4], k)
        expected = brute_search(codes[:4], codes, ids, k)
        np.testing.assert_array_equal(found, expected[1])
        np.testing.assert_array_equal(distances, expected[0])


def test_on_several_threads(monkeypatch):
    index, codes, ids, _ = filled(64, n=400, spread=0.1)
    monkeypatch.setattr(_scan, "_SHARED_WORK", 500)
    monkeypatch.setattr(_scan, "cores", lambda: 3)
    threads = set()
    select = _scan._select
    monkeypatch.setattr(_scan, "_select", lambda *a: (threads.add(threading.get_ident()), select(*a)))
    for k in (5, 200):
        np.testing.assert_array_equal(index.search(codes[:100], k).ids, brute_search(codes[:100], codes, ids, k)[1])
    assert threading.get_ident() not in threads
    expected = brute_within(codes[:100], codes, ids, 6)
    assert pairs_of(index.within(codes[:100], 6, engine="scan")) == expected
    assert pairs_of(index.within(codes[:100], 6, engine="tables")) == expected


def test_the_number_of_openmp_threads_is_left_as_it_was():
    import faiss

    before = faiss.omp_get_max_threads()
    index, codes, *_ = filled(64)
    faiss.omp_set_num_threads(3)
    try:
        index.search(codes[:2], 5)
        index.within(codes[:2], 5, engine="scan")
        index.within(codes[:2], 5, engine="tables")
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("k", [5, 500])
def test_nothing_to_find(k):
    index = HammingIndex(12)
    distances, ids = index.search(np.zeros((2, 2), np.uint8), k)
    assert (ids == -1).all()
    assert (distances == MISSING).all()
    assert ids.shape == distances.shape == (2, k)
    assert pairs_of(index.within(np.zeros((2, 2), np.uint8), 12)) == [[], []]
    assert pairs_of(index.within(np.zeros((0, 2), np.uint8), 12)) == []
    assert index.search(np.zeros((0, 2), np.uint8), k).ids.shape == (0, k)
    assert len(index) == 0
    assert index.explain(radius=2).engine == "scan"


def test_only_allowed_ids_are_found():
    index, codes, ids, rng = filled(64, spread=0.1)
    allowed = np.concatenate([rng.choice(ids, 50), [10**9, 10**9]])  # some twice, some unknown
    inside = np.isin(ids, allowed)
    for k in (3, 20, 200):
        distances, found = index.search(codes[:5], k, allow=allowed)
        expected = brute_search(codes[:5], codes[inside], ids[inside], k)
        np.testing.assert_array_equal(found, expected[1])
        np.testing.assert_array_equal(distances, expected[0])
    for engine in (None, "scan"):
        found = pairs_of(index.within(codes[:5], 8, allow=allowed, engine=engine))
        assert found == brute_within(codes[:5], codes[inside], ids[inside], 8)
    assert (index.search(codes[:2], 3, allow=[]).ids == -1).all()
    with pytest.raises(ValueError, match="allow-list"):
        index.within(codes[:2], 2, allow=allowed, engine="tables")


def test_queries_need_not_be_contiguous():
    index, codes, ids, _ = filled(64)
    wide = np.repeat(codes, 2, axis=1)[:, ::2]
    assert not wide.flags.c_contiguous
    np.testing.assert_array_equal(index.search(wide[:3], 4).ids, brute_search(codes[:3], codes, ids, 4)[1])


def test_matches_by_position():
    index, codes, ids, _ = filled(64)
    found = index.within(codes[:3], 0)
    assert len(found) == 3
    np.testing.assert_array_equal(found[-1][1], [ids[2]])
    with pytest.raises(IndexError):
        found[3]
    assert "3 queries, 3 matches" in repr(found)


# -- changes ----------------------------------------------------------------------------------------------------------


class Changes(RuleBasedStateMachine):
    """Adds, removes, updates and searches in any order, beside a dict."""

    @initialize(n_bits=st.sampled_from(LENGTHS), spread=st.sampled_from([0.03, 0.5]), seed=st.integers(0, 99))
    def start(self, n_bits, spread, seed):
        self.n_bits, self.spread, self.rng = n_bits, spread, np.random.default_rng(seed)
        self.index, self.known = HammingIndex(n_bits), {}

    def codes(self, n):
        return some_codes(self.rng, n, self.n_bits, self.spread)

    def some_known(self, data):
        return data.draw(st.lists(st.sampled_from(sorted(self.known)), unique=True, max_size=10))

    @rule(n=st.integers(0, 40))
    def add(self, n):
        codes = self.codes(n)
        ids = self.index.add(codes)
        after = max(self.known, default=-1) + 1
        assert ids.tolist() == list(range(after, after + n))
        self.known |= dict(zip(ids.tolist(), codes, strict=True))

    @rule(ids=st.lists(st.integers(0, 300), unique=True, max_size=40))
    def add_under_ids(self, ids):
        codes = self.codes(len(ids))
        if set(ids) & set(self.known):
            with pytest.raises(ValueError, match="already"):
                self.index.add(codes, ids)
        else:
            assert self.index.add(codes, ids).tolist() == ids
            self.known |= dict(zip(ids, codes, strict=True))

    @rule(data=st.data())
    def remove(self, data):
        if self.known:
            ids = self.some_known(data)
            self.index.remove(ids)
            for id in ids:
                del self.known[id]

    @rule(data=st.data())
    def update(self, data):
        if self.known:
            ids = self.some_known(data)
            codes = self.codes(len(ids))
            self.index.update(ids, codes)
            self.known |= dict(zip(ids, codes, strict=True))

    @rule(id=st.integers(0, 400))
    def unknown(self, id):
        if id not in self.known:
            assert id not in self.index
            for change in (
                lambda: self.index.remove([id]),
                lambda: self.index.update([id], self.codes(1)),
                lambda: self.index.reconstruct([id]),
            ):
                with pytest.raises(ValueError, match=f"id {id} is not in the index"):
                    change()

    @rule(k=st.integers(1, 150), radius=st.integers(0, 10), engine=st.sampled_from([None, "scan", "tables"]))
    def search(self, k, radius, engine):
        queries = self.codes(3)
        ids, codes = list(self.known), np.array(list(self.known.values())).reshape(-1, n_bytes(self.n_bits))
        distances, found = self.index.search(queries, k)
        expected = brute_search(queries, codes, ids, k)
        np.testing.assert_array_equal(found, expected[1])
        np.testing.assert_array_equal(distances, expected[0])
        radius = min(radius, 5) if engine == "tables" else radius
        assert pairs_of(self.index.within(queries, radius, engine=engine)) == brute_within(queries, codes, ids, radius)

    @invariant()
    def holds_what_was_added(self):
        if hasattr(self, "index"):
            ids = sorted(self.known)
            assert len(self.index) == len(ids)
            assert self.index.ids.tolist() == ids
            if ids:
                expected = np.array([self.known[id] for id in ids])
                np.testing.assert_array_equal(self.index.codes, expected)
                np.testing.assert_array_equal(self.index.reconstruct(ids[::-1]), expected[::-1])
                assert ids[0] in self.index


Changes.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestChanges = Changes.TestCase


def test_changes_that_are_refused_change_nothing():
    index, codes, ids, _ = filled(64, n=20)
    before = index.ids.tolist(), index.codes.tolist()
    one = codes[:1]
    for change, words in (
        (lambda: index.add(codes[:2], [5000, 5000]), "5000 is given twice"),
        (lambda: index.add(codes[:2], [5000, ids[3]]), f"id {ids[3]} is in the index already"),
        (lambda: index.add(codes[:2], [ids[0], ids[1]]), r"already \(1 more\)"),
        (lambda: index.add(codes[:2], [5000]), "an id for each of the 2 codes; got 1"),
        (lambda: index.add(one, [-1]), "from 0 to"),
        (lambda: index.add(one, [2**63 - 1]), "from 0 to"),
        (lambda: index.add(one, [2**64 - 1]), "from 0 to"),
        (lambda: index.add(one, [1.5]), "whole numbers"),
        (lambda: index.add(one, ["a"]), "whole numbers"),
        (lambda: index.add(one, [[7]]), "one dimension"),
        (lambda: index.add(one.astype(np.int8)), "uint8"),
        (lambda: index.add(codes[:, :7]), r"shape \(n, 8\)"),
        (lambda: index.remove([ids[0], ids[0]]), "is given twice"),
        (lambda: index.remove([ids[0], 5000]), "id 5000 is not in the index"),
        (lambda: index.update([ids[0], ids[0]], codes[:2]), "is given twice"),
        (lambda: index.update([ids[0], 5000], codes[:2]), "id 5000 is not"),
        (lambda: index.update([ids[0]], codes[:2]), "an id for each of the 2 codes"),
        (lambda: index.search(codes, 0), "k must be at least 1"),
        (lambda: index.search(codes, 1.5), "k must be a whole number"),
        (lambda: index.within(codes, -1), "radius must be at least 0"),
        (lambda: index.within(codes, 1, engine="magic"), "engine must be"),
        (lambda: index.explain(), "k or radius"),
        (lambda: index.explain(k=1, radius=1), "k or radius"),
    ):
        with pytest.raises(ValueError, match=words):
            change()
    assert (index.ids.tolist(), index.codes.tolist()) == before


def test_the_largest_id_leaves_no_room_behind_it():
    index = HammingIndex(8)
    index.add(np.zeros((1, 1), np.uint8), [2**63 - 2])
    with pytest.raises(ValueError, match="no larger id"):
        index.add(np.zeros((2, 1), np.uint8))
    index.add(np.zeros((1, 1), np.uint8), [3])
    assert index.ids.tolist() == [3, 2**63 - 2]


def test_what_is_given_and_what_is_shown_can_not_change_the_index():
    codes = np.zeros((4, 8), np.uint8)
    index = HammingIndex(64)
    index.add(codes)
    codes[:] = 255
    assert not index.codes.any()
    for shown in (index.codes, index.ids):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 1
    index.reconstruct([0])[:] = 255
    assert not index.codes.any()


def test_a_search_sees_the_index_before_or_after_a_change():
    """Each version holds equal codes only, so that an answer from two versions would show."""
    n = 2000
    index = HammingIndex(64)
    index.add(np.zeros((n, 8), np.uint8))
    query = np.zeros((1, 8), np.uint8)
    stop, wrong = threading.Event(), []

    def watch():
        while not stop.is_set():
            for distances in (index.search(query, n).distances, index.within(query, 64).distances):
                if len(set(distances.ravel().tolist()) - {MISSING}) != 1:
                    wrong.append(distances)

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for value in range(60):
        code = np.full((n, 8), value % 2 * 255, np.uint8)
        index.update(np.arange(n), code)
        extra = index.add(code[:500])
        index.remove(extra)
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert not wrong


def test_adding_one_by_one_does_not_copy_all_each_time():
    index = HammingIndex(64)
    index.add(np.zeros((1000, 8), np.uint8))
    index.add(np.zeros((1, 8), np.uint8))
    codes = index._state.codes
    index.add(np.ones((1, 8), np.uint8))
    assert np.shares_memory(codes, index._state.codes)


def test_an_update_stays_after_the_next_add():
    codes = some_codes(np.random.default_rng(0), 50, 64)
    index = HammingIndex(64)
    index.add(codes[:40])
    index.add(codes[40:41])  # there is room behind it now
    index.update([3], codes[49:])
    index.add(codes[41:42])
    expected = codes[:42].copy()
    expected[3] = codes[49]
    np.testing.assert_array_equal(index.codes, expected)


def test_what_was_seen_before_a_change_stays(tmp_path):
    codes = some_codes(np.random.default_rng(0), 50, 64)
    index = HammingIndex(64)
    index.add(codes[:40])
    ids, before = index.snapshot()
    index.update(np.arange(40), codes[10:])
    index.remove([0])
    index.add(codes[:1], ids=[0])
    np.testing.assert_array_equal(before, codes[:40])
    np.testing.assert_array_equal(ids, np.arange(40))


def test_tables_of_one_radius_serve_another():
    index, codes, ids, _ = filled(64, n=500, spread=0.05)
    for radius in (0, 4, 1, 5, 2):
        assert pairs_of(index.within(codes[:20], radius, engine="tables")) == brute_within(
            codes[:20], codes, ids, radius
        )


@pytest.mark.slow
def test_threads_may_search_within_different_radii():
    index, codes, ids, _ = filled(64, n=3000, spread=0.05)
    index.within(codes[:1], 5, engine="tables")
    expected = {radius: brute_within(codes[:40], codes, ids, radius) for radius in (0, 3, 5)}
    wrong = []

    def look(radius):
        for _ in range(20):
            if pairs_of(index.within(codes[:40], radius, engine="tables")) != expected[radius]:
                wrong.append(radius)

    threads = [threading.Thread(target=look, args=(radius,)) for radius in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- plans ------------------------------------------------------------------------------------------------------------


def test_tables_are_made_when_enough_was_asked_and_dropped_by_a_change():
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    codes = some_codes(rng, 40_000, 64)
    index.add(codes)
    plan = index.explain(radius=1)
    assert (plan.engine, plan.tables) == ("scan", _tables.Shape(2, 32))
    assert "would be" in plan.reason
    assert index.explain(radius=1, n_queries=10_000).engine == "tables"
    assert index.explain(radius=40, n_queries=10_000) == index.explain(radius=40)
    assert index.explain(radius=40).tables is None
    expected = index.within(codes[:50], 1, engine="scan")
    needed = int(re.search(r"after ([0-9,]+) more", index.explain(radius=1, n_queries=0).reason)[1].replace(",", ""))
    index.within(codes[: needed - 1], 1)
    assert index._content.tables is None
    index.within(codes[:1], 1)
    assert index._content.tables is not None
    assert index.explain(radius=1).engine == "tables"
    assert "exist, " in index.explain(radius=1).reason
    found = index.within(codes[:50], 1)
    np.testing.assert_array_equal(found.ids, expected.ids)
    index.remove([0])
    assert index.explain(radius=1).engine == "scan"
    assert pairs_of(index.within(codes[:1], 0)) == [[]]


def test_tables_are_replaced_when_another_radius_has_paid_for_others():
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    codes = some_codes(rng, 40_000, 64)
    index.add(codes)
    for _ in range(2):
        index.within(codes[:1], 1, engine="tables")
    assert index._content.tables.shape == _tables.Shape(2, 32)
    plan = index.explain(radius=3, n_queries=0)
    assert (plan.engine, plan.tables) == ("tables", _tables.Shape(2, 32))
    assert "; 4 tables of 16 bits would be" in plan.reason
    many = int(re.search(r"after ([0-9,]+) more", plan.reason)[1].replace(",", ""))
    expected = pairs_of(index.within(codes[:20], 3, engine="scan"))
    index.within(codes[: many // 2], 3)
    assert index._content.tables.shape == _tables.Shape(2, 32)
    plan = index.explain(radius=3, n_queries=0)
    left = int(re.search(r"after ([0-9,]+) more", plan.reason)[1].replace(",", ""))
    assert left == pytest.approx(many - many // 2, abs=1)
    assert index.explain(radius=3, n_queries=left).engine == "tables"
    index.within(codes[:left], 3)
    assert index._content.tables.shape == _tables.Shape(4, 16)
    assert pairs_of(index.within(codes[:20], 3)) == expected
    # And back again, each time for what was asked since.
    for _ in range(20):
        index.within(codes, 1)
        if index._content.tables.shape == _tables.Shape(2, 32):
            break
        assert index.explain(radius=1).tables == _tables.Shape(4, 16)
    assert index._content.tables.shape == _tables.Shape(2, 32)
    index.within(codes[:1], 3)
    assert index._content.tables.shape == _tables.Shape(2, 32)


def known_costs():
    """A million codes; at radius 1 two tables are best, at radius 3 four, by a million comparisons a query."""
    size, shapes = Size(1_000_000, 64, 8), (_tables.Shape(2, 32), _tables.Shape(4, 16))
    estimate = _tables.Estimate(some_codes(np.random.default_rng(0), 1000, 64), 64)
    estimate._agreeing = {(shape, flips): 1e-6 for shape in shapes for flips in range(4)}
    estimate._cheapest = {1: (1_000_000, shapes[0]), 3: (1_000_000, shapes[1])}
    return Costs(size, estimate), *shapes


def test_tables_are_replaced_once_others_would_have_saved_what_they_cost():
    costs, two, four = known_costs()
    gain = costs.query(two, 3) - costs.query(four, 3)
    enough = int(costs.build(four) / gain) + 1
    ledger = Ledger()
    ledger.note(3, enough - 1)
    ledger.settle(costs, two)
    assert choose(costs, 3, two, ledger) == (two, None)
    assert plan_within(costs, 3, two, ledger, 0).tables == two
    assert "after 1 more such" in plan_within(costs, 3, two, ledger, 0).reason
    assert plan_within(costs, 3, two, ledger, 1).tables == four
    ledger.note(3, 1)
    ledger.settle(costs, two)
    assert choose(costs, 3, two, ledger) == (two, four)
    assert choose(costs, 1, two, ledger) == (two, None)  # at that radius the others are no better


def test_what_the_tables_at_hand_serve_better_counts_against_others_but_leaves_no_debt():
    costs, two, four = known_costs()
    gain, loss = costs.query(two, 3) - costs.query(four, 3), costs.query(four, 1) - costs.query(two, 1)
    assert min(gain, loss) > 0
    ledger = Ledger()
    ledger.note(3, 100)
    ledger.settle(costs, two)
    assert ledger.saved(four) == pytest.approx(100 * gain)
    ledger.note(1, int(50 * gain / loss))
    ledger.settle(costs, two)
    assert ledger.saved(four) == pytest.approx(50 * gain, rel=0.05)
    ledger.note(1, 10**9)
    ledger.settle(costs, two)
    assert ledger.saved(four) == 0
    ledger.note(3, 7)
    ledger.settle(costs, two)
    assert ledger.saved(four) == pytest.approx(7 * gain)


class HeldTables(_tables.Tables):
    """Tables whose making waits until the test lets it go on."""

    def __init__(self, *args):
        self.made.append(args[1])
        self.begun.set()
        assert self.go_on.wait(30)
        super().__init__(*args)


@pytest.fixture
def held(monkeypatch):
    HeldTables.begun, HeldTables.go_on, HeldTables.made = threading.Event(), threading.Event(), []
    monkeypatch.setattr("hashlearn.search.index.Tables", HeldTables)
    yield HeldTables
    HeldTables.go_on.set()


def large_index():
    codes = some_codes(np.random.default_rng(0), 20_000, 64)
    index = HammingIndex(64)
    index.add(codes)
    return index, codes


def test_others_scan_and_change_while_tables_are_made(held):
    index, codes = large_index()
    expected = pairs_of(index.within(codes[:30], 2, engine="scan"))
    found = []
    thread = threading.Thread(target=lambda: found.append(pairs_of(index.within(codes[:15_000], 2)[:30])))
    thread.start()
    assert held.begun.wait(30)
    assert pairs_of(index.within(codes[:30], 2)) == expected  # does not wait
    assert pairs_of(index.within(codes[:15_000], 5)[:1])[0][0][0] == 0
    assert len(held.made) == 1
    held.go_on.set()
    thread.join()
    assert found == [expected]
    assert index._content.tables is not None


def test_tables_of_what_has_changed_meanwhile_are_not_kept(held):
    index, codes = large_index()
    expected = pairs_of(index.within(codes[:1], 0))
    assert expected == [[(0, 0)]]
    found = []
    thread = threading.Thread(target=lambda: found.append(pairs_of(index.within(codes[:15_000], 2)[:1])))
    thread.start()
    assert held.begun.wait(30)
    index.remove([0])
    held.go_on.set()
    thread.join()
    assert found == [expected]  # as it was when the search began
    assert index._content.tables is None
    assert pairs_of(index.within(codes[:1], 0)) == [[]]
    assert pairs_of(index.within(codes[:1], 0, engine="tables")) == [[]]


def test_nothing_is_made_for_codes_that_have_changed_already(held, monkeypatch):
    """A thread that has seen the codes before a change, and comes to make tables after it, scans."""
    index, _codes = large_index()
    state = index._state
    held.go_on.set()
    index.remove([5])
    assert index._tables_for(state, 2, 100_000, forced=False) is None
    assert index._make_tables(state, _tables.Shape(2, 32), None, wait=False) is None
    assert not held.made
    old = index._make_tables(state, _tables.Shape(2, 32), None, wait=True)  # as engine="tables" asks for
    assert old is not index._content.tables
    assert index._content.tables is None
    new = index._make_tables(index._state, _tables.Shape(2, 32), None, wait=False)
    assert new is index._content.tables
    assert (
        index._make_tables(index._state, _tables.Shape(4, 16), None, wait=False) is None
    )  # decided before there were some
    assert index._make_tables(index._state, _tables.Shape(4, 16), new, wait=False) is index._content.tables


@pytest.mark.slow
def test_a_scan_answers_where_there_is_no_memory_for_tables(monkeypatch):
    index, codes = large_index()
    made = []

    def fail(*args):
        made.append(args)
        raise MemoryError

    monkeypatch.setattr("hashlearn.search.index.Tables", fail)
    expected = pairs_of(index.within(codes[:5], 2, engine="scan"))
    for _ in range(3):
        assert pairs_of(index.within(codes[:15_000], 2)[:5]) == expected
    assert len(made) == 1
    with pytest.raises(MemoryError):
        index.within(codes[:5], 2, engine="tables")


def test_tables_that_were_waited_for_are_used(held):
    index, codes = large_index()
    threads = [threading.Thread(target=index.within, args=(codes[:5], 2), kwargs={"engine": "tables"}) for _ in "ab"]
    for thread in threads:
        thread.start()
    assert held.begun.wait(30)
    held.go_on.set()
    for thread in threads:
        thread.join()
    assert len(held.made) == 1


@pytest.mark.slow
def test_two_radii_in_turn_do_not_make_tables_all_the_time(held):
    index, codes = large_index()
    held.go_on.set()
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            index.within(codes[:1], 1)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(40):
        index.within(codes[:2000], 5)
    stop.set()
    thread.join()
    assert len(held.made) <= 4


def test_an_estimate_is_made_anew_when_codes_have_changed():
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(some_codes(rng, 40_000, 64))
    assert index.explain(radius=1).tables is not None
    index.update(np.arange(40_000), np.zeros((40_000, 8), np.uint8))
    assert index.explain(radius=1).tables is None


def test_very_long_codes_are_planned_soon():
    index = HammingIndex(16_384)
    index.add(np.zeros((10, 2048), np.uint8))
    assert index.explain(radius=1).engine == "scan"
    assert index._fresh_estimate(index._state)._differing.shape[0] <= 512


def test_small_indexes_are_scanned():
    index, *_ = filled(64, n=200)
    assert index.explain(radius=1, n_queries=10**9).engine == "scan"
    assert "faster than any tables" in str(index.explain(radius=1, n_queries=10**9))


def test_the_estimate_counts_what_tables_find():
    """What a query is compared with, as FAISS itself counts it."""
    import faiss

    rng = np.random.default_rng(0)
    centers = some_codes(rng, 300, 64)
    codes = centers[rng.integers(0, 300, 30_000)] ^ some_codes(rng, 30_000, 64, 0.08)
    index = HammingIndex(64)
    index.add(codes)
    counted = faiss.cvar.indexBinaryHash_stats
    for radius, shape in ((1, _tables.Shape(2, 32)), (3, _tables.Shape(4, 16)), (5, _tables.Shape(3, 21))):
        tables = _tables.Tables(index._state.codes, shape)
        counted.reset()
        tables.within(codes[:1000], radius)
        expected = len(codes) * index._fresh_estimate(index._state).agreeing(shape, shape.flips(radius))
        assert expected == pytest.approx(counted.ndis / 1000, rel=0.35)


@given(n_tables=st.integers(1, 16), piece=st.integers(1, 32), radius=st.integers(0, 20))
def test_enough_pieces_are_looked_up(n_tables, piece, radius):
    """The rule under which FAISS's answer is exact."""
    shape = _tables.Shape(n_tables, piece)
    assert radius < n_tables * (shape.flips(radius) + 1)
    assert shape.lookups(radius) >= n_tables


def test_tables_for_a_radius_of_too_many_lookups_are_refused():
    index, codes, *_ = filled(256)
    with pytest.raises(ValueError, match="too many lookups"):
        index.within(codes[:1], 200, engine="tables")


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bits", LENGTHS)
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("n", [0, 1, 100])
def test_what_is_saved_is_opened(n_bits, mmap, n, tmp_path):
    index, codes, ids, _ = filled(n_bits, n=n)
    path = tmp_path / "codes.index"
    index.save(path)
    again = HammingIndex.open(path, mmap=mmap)
    assert again.n_bits == n_bits
    np.testing.assert_array_equal(again.ids, index.ids)
    np.testing.assert_array_equal(again.codes, index.codes)
    np.testing.assert_array_equal(again.search(codes[:3], 5).ids, index.search(codes[:3], 5).ids)
    assert pairs_of(again.within(codes[:3], 3)) == pairs_of(index.within(codes[:3], 3))
    bytes_before = path.read_bytes()
    again.add(codes[:1])
    if n:
        again.update(ids[:1], codes[-1:])
        again.remove(ids[-1:])
    assert path.read_bytes() == bytes_before


def test_a_map_is_not_copied(tmp_path):
    index, *_ = filled(64)
    index.save(tmp_path / "index")
    mapped = HammingIndex.open(tmp_path / "index")
    assert not mapped._state.codes.flags.writeable
    assert not mapped._state.codes.flags.owndata
    loaded = HammingIndex.open(tmp_path / "index", mmap=False)
    assert loaded._state.codes.flags.owndata


def test_an_index_file_is_plain_safetensors(tmp_path):
    from safetensors.numpy import load_file

    index, codes, ids, _ = filled(12)
    index.save(tmp_path / "index")
    arrays = load_file(tmp_path / "index")
    order = np.argsort(ids)
    np.testing.assert_array_equal(arrays["codes"], codes[order])
    np.testing.assert_array_equal(arrays["ids"], ids[order])


def changed_header(content, **changes):
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    own = json.loads(header["__metadata__"]["hashlearn"])
    header["__metadata__"]["hashlearn"] = json.dumps(own | changes)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda c: c[:-1], "bytes, and .* are promised"),
        (lambda c: c + b"x", "are promised"),
        (lambda c: c[:20], "damaged"),
        (lambda c: b"", "damaged"),
        (lambda c: b"PK" + c, "damaged"),
        (lambda c: c[:-1] + bytes([c[-1] ^ 16]), "checksum"),
        (lambda c: changed_header(c, version=2), "version 2, and this hashlearn reads version 1"),
        (lambda c: changed_header(c, format="hashlearn model"), "another kind of data"),
        (lambda c: changed_header(c, n_bits=13), "checksum"),
        (lambda c: changed_header(c, n_bits=64), r"can't have the shape \(300, 2\)"),
        (lambda c: changed_header(c, n_bits=0), "n_bits is 0"),
        (lambda c: changed_header(c, n_bits="8"), "n_bits is '8'"),
    ],
)
def test_files_that_do_not_fit_are_refused(damage, words, tmp_path):
    index, *_ = filled(12)
    path = tmp_path / "index"
    index.save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(IndexFileError, match=words):
        HammingIndex.open(path)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_bytes_changed_at_random_never_do_worse_than_an_error(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    index, *_ = filled(16, n=20)
    index.save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        again = HammingIndex.open(path)
    except IndexFileError:
        return
    np.testing.assert_array_equal(again.ids, index.ids)
    np.testing.assert_array_equal(again.codes, index.codes)


def test_a_model_is_not_an_index(tmp_path):
    from hashlearn import ITQ

    ITQ(n_bits=4).fit(np.random.default_rng(0).random((50, 8))).save(tmp_path / "model")
    with pytest.raises(IndexFileError, match="not an index"):
        HammingIndex.open(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="no index file"):
        HammingIndex.open(tmp_path / "nothing")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    index, *_ = filled(64)
    index.save(tmp_path / "index")
    before = (tmp_path / "index").read_bytes()
    index.remove(index.ids[:3])
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        index.save(tmp_path / "index")
    assert (tmp_path / "index").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


# -- copies -----------------------------------------------------------------------------------------------------------


class Remarked(HammingIndex):
    """One with an attribute and a way to be made of its own."""

    def __init__(self, remark):
        super().__init__(12)
        self.remark = remark


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))])
def test_a_copy_of_an_index_is_one_of_its_own(copied):
    index, (_, codes, ids, _) = Remarked("mine"), filled(12, n=50)
    index.add(codes, ids)
    other = copied(index)
    assert other.n_bits == 12
    assert other.remark == "mine"
    assert type(other) is Remarked
    np.testing.assert_array_equal(other.ids, index.ids)
    np.testing.assert_array_equal(other.codes, index.codes)
    other.remove(ids[:1])
    assert len(index) == len(other) + 1


def test_a_slice_of_matches_is_what_its_queries_found():
    index, codes, *_ = filled(12, n=50)
    found = index.within(codes[:9], 3)
    for part in (slice(2, 5), slice(None, None, -2), slice(4, 4), slice(-3, None)):
        some = found[part]
        assert pairs_of(some) == pairs_of(found)[part]
        assert some.ids.dtype == np.int64
        assert some.distances.dtype == np.int32
    with pytest.raises(IndexError):
        found[9]
