import itertools
from collections import Counter
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashlearn import codes
from hashlearn.evaluation import Protocol, Truth, _ranking_metrics, evaluate, evaluate_all, metrics
from reference import metrics as slow

RULES = ("all", "retrieved", "trapezoid")


def judge(query_bits, database_bits, truth, **choices):
    return evaluate(
        codes.pack(query_bits),
        codes.pack(database_bits),
        truth,
        n_bits=np.shape(query_bits)[1],
        protocol=Protocol(**choices),
    )


# One query 0000 and a database at distances 0, 1, 1, 2; items 1 and 3 are relevant. In index order the relevant
# ranks are 2 and 4; with the tie at distance 1 turned round they are 3 and 4.
HAND_DATABASE = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]]
HAND_TRUTH = [[1, 3]]


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"ties": "index"}, (1 / 2 + 2 / 4) / 2),
        ({"ties": "expected"}, ((1 / 2 + 2 / 4) / 2 + (1 / 3 + 2 / 4) / 2) / 2),
        ({"ties": "index", "cutoff": 2}, (1 / 2) / 2),
        ({"ties": "index", "cutoff": 2, "ap": "retrieved"}, 1 / 2),
        ({"ties": "index", "cutoff": 1, "ap": "retrieved"}, 0.0),
        ({"ties": "expected", "cutoff": 2}, (1 / 2) / 2 / 2),
        ({"ties": "expected", "cutoff": 2, "ap": "retrieved"}, 1 / 2 / 2),
        # before/at: rank 2: 0/1, 1/2; rank 4: 1/3, 2/4
        ({"ties": "index", "ap": "trapezoid"}, ((0 + 1 / 2) / 2 + (1 / 3 + 2 / 4) / 2) / 2),
    ],
)
def test_average_precision_by_hand(choices, expected):
    scores = judge([[0, 0, 0, 0]], HAND_DATABASE, Truth.neighbors(HAND_TRUTH), **choices)
    assert scores.map == pytest.approx(expected, abs=1e-12)


def test_trapezoid_of_a_perfect_ranking_is_one():
    # The precision before the first rank counts 1.
    scores = judge([[0, 0]], [[0, 0], [1, 1]], Truth.neighbors([[0]]), ap="trapezoid", ties="index")
    assert scores.map == 1.0


def test_precision_within_a_radius_by_hand():
    truth = Truth.neighbors([[1, 3], [1, 3]])
    scores = judge([[0, 0, 0, 0], [0, 0, 1, 1]], HAND_DATABASE, truth, radii=(0, 1, 2, 9))
    # second query: distances 2, 3, 3, 4; nothing within radius 1
    assert [list(scores.precision_within[r]) for r in (0, 1, 2, 9)] == [[0, 0], [1 / 3, 0], [1 / 2, 0], [1 / 2, 1 / 2]]
    assert scores.precision_at_radius == {0: 0.0, 1: pytest.approx(1 / 6), 2: 0.25, 9: 0.5}
    assert scores.empty_at_radius == {0: 0.5, 1: 0.5, 2: 0.0, 9: 0.0}


def random_case(rng, n_queries, n, n_bits, labels):
    query_bits, database_bits = rng.integers(0, 2, (n_queries, n_bits)), rng.integers(0, 2, (n, n_bits))
    if labels:
        query_labels, database_labels = rng.integers(0, 3, n_queries), rng.integers(0, 3, n)
        relevant = query_labels[:, None] == database_labels[None]
        truth = Truth.labels(query_labels, database_labels)
    else:
        k = rng.integers(1, n + 1)
        ids = np.array([rng.permutation(n)[:k] for _ in range(n_queries)])
        ids[rng.random(ids.shape) < 0.1] = -1
        relevant = np.zeros((n_queries, n), dtype=bool)
        for row, row_ids in zip(relevant, ids, strict=True):
            row[row_ids[row_ids >= 0]] = True
        truth = Truth.neighbors(ids)
    return query_bits, database_bits, relevant, truth


@pytest.mark.slow
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_index_ties_equal_the_slow_version(rule, labels):
    """3 cut-offs × 7 code lengths × 60 queries: 1,260 random rankings a rule and truth, full of ties."""
    rng = np.random.default_rng([RULES.index(rule), labels])
    for n_bits, n in ((1, 7), (2, 40), (3, 11), (8, 60), (12, 100), (70, 30), (300, 20)):
        query_bits, database_bits, relevant, truth = random_case(rng, 60, n, n_bits, labels)
        for cutoff in (None, 1 + n // 3, n + 5):
            radii = (0, 1, 4)
            scores = judge(query_bits, database_bits, truth, ap=rule, cutoff=cutoff, ties="index", radii=radii)
            for q in range(60):
                d = slow.distances(query_bits[q], database_bits)
                expected = slow.ap_by_index(d, relevant[q], rule, cutoff)
                assert scores.average_precision[q] == pytest.approx(expected, abs=1e-12)
                for r in radii:
                    assert scores.precision_within[r][q] == slow.precision_within(d, relevant[q], r)
            assert scores.map == pytest.approx(scores.average_precision.mean())
            nearest = [min(slow.distances(bits, database_bits)) for bits in query_bits]
            assert scores.empty_at_radius == {r: np.mean([d > r for d in nearest]) for r in radii}
            others = judge(query_bits, database_bits, truth, ties="expected", radii=radii)
            assert others.empty_at_radius == scores.empty_at_radius


@pytest.mark.parametrize("rule", RULES)
def test_expected_ties_equal_the_mean_over_all_orders(rule):
    rng = np.random.default_rng(RULES.index(rule))
    for case in range(40):
        n = int(rng.integers(1, 7))
        query_bits, database_bits, relevant, truth = random_case(rng, 1, n, int(rng.integers(1, 4)), case % 2)
        d = slow.distances(query_bits[0], database_bits)
        for cutoff in (None, *range(1, n + 2)):
            scores = judge(query_bits, database_bits, truth, ap=rule, cutoff=cutoff, ties="expected")
            assert scores.map == pytest.approx(slow.ap_expected(d, relevant[0], rule, cutoff), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "cutoff"), [(rule, cutoff) for rule in RULES for cutoff in (None, 100)])
def test_expected_ties_equal_the_mean_over_random_orders(rule, cutoff):
    """At a size where orders can't be listed: index ties on 2,000 shuffled databases come to the expectation."""
    rng = np.random.default_rng(5)
    query_bits, database_bits, relevant, truth = random_case(rng, 1, 300, 6, True)
    expected = judge(query_bits, database_bits, truth, ap=rule, cutoff=cutoff, ties="expected").map
    d = np.array(slow.distances(query_bits[0], database_bits))
    orders = (rng.permutation(300) for _ in range(2000))
    values = [slow.ap_by_index(d[order], relevant[0][order], rule, cutoff) for order in orders]
    assert expected == pytest.approx(np.mean(values), abs=4 * np.std(values) / np.sqrt(len(values)))


@given(st.integers(0, 2**32 - 1), st.sampled_from(RULES), st.sampled_from([None, 1, 5, 50]))
@settings(max_examples=60, deadline=None)
def test_expected_ties_do_not_depend_on_the_order_of_the_database(seed, rule, cutoff):
    rng = np.random.default_rng(seed)
    query_bits, database_bits = rng.integers(0, 2, (6, 5)), rng.integers(0, 2, (40, 5))
    query_labels, database_labels = rng.integers(0, 3, 6), rng.integers(0, 3, 40)
    order = rng.permutation(40)
    a, b = (
        judge(query_bits, database_bits[o], Truth.labels(query_labels, database_labels[o]), ap=rule, cutoff=cutoff)
        for o in (np.arange(40), order)
    )
    np.testing.assert_allclose(a.average_precision, b.average_precision, atol=1e-12)
    assert (a.average_precision <= 1 + 1e-12).all()
    assert (a.average_precision >= 0).all()


def test_without_ties_both_rules_agree_and_with_ties_they_differ():
    rng = np.random.default_rng(0)
    # Distances 0…39 from the query, each once, in a random order.
    database = np.tril(np.ones((40, 40), dtype=int), -1)[rng.permutation(40)]
    truth = Truth.neighbors(rng.permutation(40)[None, :9])
    for rule, cutoff in itertools.product(RULES, (None, 7, 25)):
        by_index, expected = (
            judge(np.zeros((1, 40), int), database, truth, ap=rule, cutoff=cutoff, ties=ties).map
            for ties in ("index", "expected")
        )
        assert by_index == pytest.approx(expected, abs=1e-12)
    tied = np.zeros((10, 40), dtype=int)
    truth = Truth.neighbors([[0]])
    assert judge(np.zeros((1, 40), int), tied, truth, ties="index").map == 1.0
    assert judge(np.zeros((1, 40), int), tied, truth, ties="expected").map == pytest.approx(
        np.mean([1 / rank for rank in range(1, 11)])
    )


def test_the_result_does_not_depend_on_the_number_of_threads_or_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    query_bits, database_bits, _, truth = random_case(rng, 33, 200, 20, True)
    for ties, distance in itertools.product(("index", "expected"), ("hamming", "spherical")):
        protocol = Protocol(ties=ties, distance=distance)
        packed = codes.pack(query_bits), codes.pack(database_bits)
        a = evaluate(*packed, truth, n_bits=20, protocol=protocol, n_jobs=1)
        with monkeypatch.context() as patch:
            patch.setattr("hashlearn.evaluation.metrics._BLOCK_DISTANCES", 450)
            patch.setattr("hashlearn.evaluation._ranking_metrics._BLOCK_RANKS", 64)
            b = evaluate(*packed, truth, n_bits=20, protocol=protocol, n_jobs=3)
        np.testing.assert_array_equal(a.average_precision, b.average_precision)
        np.testing.assert_array_equal(a.precision_within[4], b.precision_within[4])


# One query 1110. Spherical distances: 0111: 2/2; 1111: 1/3; 1000: 2/1; 0001: 4/0; 0000: 3/0; 0110: 1/2; 1100: 1/2.
SPHERICAL_DATABASE = [[0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0]]


def test_spherical_ranking_by_hand():
    """The order is 1, (5, 6), 0, 2, (3, 4): item by item, the rank is 1 / AP."""
    query = [[1, 1, 1, 0]]
    for item, rank, tied in ((1, 1, 1), (5, 2, 2), (6, 3, 2), (0, 4, 1), (2, 5, 1), (3, 6, 2), (4, 7, 2)):
        truth = Truth.neighbors([[item]])
        by_index, expected = (
            judge(query, SPHERICAL_DATABASE, truth, ties=ties, distance="spherical").map
            for ties in ("index", "expected")
        )
        assert by_index == pytest.approx(1 / rank)
        first = rank - (item in (6, 4))
        assert expected == pytest.approx(np.mean([1 / place for place in range(first, first + tied)]))


def test_codes_without_a_one():
    """Two of them are equal, at distance 0; any other code is infinitely far from them, however few bits differ."""
    zero, equal = [[0, 0, 0]], [[1, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert judge(zero, equal, Truth.neighbors([[1]]), ties="index", distance="spherical").map == 1
    far = [[1, 1, 1], [1, 0, 0]]  # the second differs in fewer bits, and is as far
    for ties, expected in (("index", 1 / 2), ("expected", (1 + 1 / 2) / 2)):
        assert judge(zero, far, Truth.neighbors([[1]]), ties=ties, distance="spherical").map == pytest.approx(expected)


def test_precision_within_a_radius_is_by_plain_hamming_distance_whatever_ranks():
    rng = np.random.default_rng(0)
    query_bits, database_bits, _, truth = random_case(rng, 30, 50, 9, True)
    for ties in ("index", "expected"):
        a, b = (
            judge(query_bits, database_bits, truth, ties=ties, radii=(0, 2, 4, 99), distance=distance)
            for distance in ("hamming", "spherical")
        )
        assert a.map != b.map
        for r in (0, 2, 4, 99):
            np.testing.assert_array_equal(a.precision_within[r], b.precision_within[r])
    assert judge(query_bits, database_bits, truth, radii=(), distance="spherical").precision_at_radius == {}


def sparse_case(rng, n_queries, n, n_bits):
    """Codes of few and of many ones, some of none: every kind of spherical distance."""
    ones = rng.random()
    draw = [rng.random((rows, n_bits)) < ones * (rng.random((rows, 1)) < 0.8) for rows in (n_queries, n)]
    labels = rng.integers(0, 3, n_queries), rng.integers(0, 3, n)
    relevant = labels[0][:, None] == labels[1][None]
    return draw[0].astype(int), draw[1].astype(int), relevant, Truth.labels(*labels)


@pytest.mark.slow
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 130),
    st.integers(1, 60),
    st.sampled_from(RULES),
    st.sampled_from([None, 1, 5, 30]),
)
@settings(max_examples=100, deadline=None)
def test_spherical_ranking_equals_the_slow_version(seed, n_bits, n, rule, cutoff):
    query_bits, database_bits, relevant, truth = sparse_case(np.random.default_rng(seed), 5, n, n_bits)
    scores = judge(
        query_bits, database_bits, truth, ap=rule, cutoff=cutoff, ties="index", radii=(0, 3), distance="spherical"
    )
    for q in range(5):
        d = slow.spherical_distances(query_bits[q], database_bits)
        expected = slow.ap_by_index(d, relevant[q], rule, cutoff)
        assert scores.average_precision[q] == pytest.approx(expected, abs=1e-12)
        plain = slow.distances(query_bits[q], database_bits)
        assert scores.precision_within[3][q] == slow.precision_within(plain, relevant[q], 3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.integers(1, 6), st.sampled_from(RULES))
@settings(max_examples=40, deadline=None)
def test_expected_ties_of_a_spherical_ranking_equal_the_mean_over_all_orders(seed, n_bits, n, rule):
    query_bits, database_bits, relevant, truth = sparse_case(np.random.default_rng(seed), 1, n, n_bits)
    d = slow.spherical_distances(query_bits[0], database_bits)
    for cutoff in (None, *range(1, n + 2)):
        scores = judge(query_bits, database_bits, truth, ap=rule, cutoff=cutoff, ties="expected", distance="spherical")
        assert scores.map == pytest.approx(slow.ap_expected(d, relevant[0], rule, cutoff), abs=1e-12)


@pytest.mark.parametrize("n_bits", [1, 2, 3, 64, 130, 700])
def test_spherical_ranks_order_all_distances(n_bits):
    """Against exact fractions. 700 bits: more distances than 16 bits hold."""
    table, n_distances = codes.spherical_ranks(n_bits)
    rng = np.random.default_rng(0)
    pairs = [(0, 0), (0, n_bits), (n_bits, 0)]
    pairs += [(x, a) for x, a in rng.integers(0, n_bits + 1, (500, 2)).tolist() if x + a <= n_bits]
    if n_bits < 70:
        pairs = [(x, a) for x in range(n_bits + 1) for a in range(n_bits + 1 - x)]
    exact = [Fraction(x, a) if a else (np.inf if x else Fraction(0)) for x, a in pairs]
    ranks = [int(table[x, x + 2 * a]) for x, a in pairs]
    order = sorted(set(zip(exact, ranks, strict=True)))
    assert len({d for d, _ in order}) == len(order) == len({r for _, r in order})
    assert [r for _, r in order] == sorted(r for _, r in order)
    assert (order[0], order[-1][1]) == ((0, 0), n_distances - 1)
    if n_bits < 70:
        assert [r for _, r in order] == list(range(n_distances))


@pytest.mark.slow
def test_memory_of_a_spherical_ranking_is_bounded():
    """Many queries, a small database, 128 bits: 5,000 bins a query must not meet 2,000 queries at once."""
    import tracemalloc

    rng = np.random.default_rng(0)
    queries, database = (rng.integers(0, 256, (n, 16), dtype=np.uint8) for n in (2_000, 50))
    truth = Truth.labels([0] * 2_000, [0, 1] * 25)
    tracemalloc.start()
    try:
        evaluate(queries, database, truth, n_bits=128, protocol=Protocol(distance="spherical"), n_jobs=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 128 << 20


def test_queries_without_relevant_items_count_zero_and_are_reported():
    truth = Truth.labels(["a", "z"], ["a", "b"])
    for ties in ("index", "expected"):
        scores = judge([[0, 0], [0, 0]], [[0, 0], [1, 1]], truth, ties=ties)
        assert scores.average_precision.tolist() == [1.0, 0.0]
        assert scores.queries_without_relevant == 1
        assert "1 queries without a relevant item count 0" in str(scores)


def test_the_counting_sort_keeps_the_order_of_equal_values():
    """`evaluate` relies on it for ties in index order; FAISS's documentation does not promise it."""
    import faiss

    values = np.random.default_rng(0).integers(0, 9, 20_000)
    ends, order = faiss.bucket_sort(values, 9)
    np.testing.assert_array_equal(order, np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(ends, np.concatenate([[0], np.cumsum(np.bincount(values, minlength=9))]))


def test_far_codes_of_more_than_255_bits():
    """All 300 bits differ: a distance that a byte does not hold."""
    database = np.vstack([np.ones((1, 300)), np.zeros((2, 300))]).astype(int)
    for ties in ("index", "expected"):
        scores = judge(np.zeros((1, 300), int), database, Truth.neighbors([[0]]), ties=ties)
        assert scores.map == pytest.approx(1 / 3)


def test_numpy_integers_are_as_good_as_plain_ones():
    import json

    protocol = Protocol(cutoff=np.int64(5), radii=np.arange(3))
    assert protocol == Protocol(cutoff=5, radii=(0, 1, 2))
    codes_ = np.zeros((2, 1), dtype=np.uint8)
    scores = evaluate(codes_, codes_, Truth.neighbors([[0], [1]]), n_bits=np.uint8(8), protocol=protocol)
    assert json.loads(json.dumps(scores.as_dict()))["n_bits"] == 8


def test_scores_say_how_they_were_made():
    scores = judge([[0, 0]], [[0, 0], [1, 1]], Truth.labels([1], [1, 2]), cutoff=5, ties="index", radii=(1,))
    text = str(scores)
    for words in ("mAP 100.00", "P@1 100.00", "2 bits", "equal class labels", "top 5", "ties in database order"):
        assert words in text
    plain = scores.as_dict()
    assert plain["protocol"] == {"ap": "all", "cutoff": 5, "ties": "index", "radii": (1,), "distance": "hamming"}
    assert Protocol(**plain["protocol"]) == scores.protocol


def test_evaluate_refuses_what_does_not_fit():
    q, d = np.zeros((2, 1), dtype=np.uint8), np.zeros((3, 1), dtype=np.uint8)
    good = Truth.neighbors([[0], [2]])
    with pytest.raises(ValueError, match="truth is for 2 queries; got query_codes of 1"):
        evaluate(q[:1], d, good, n_bits=8)
    with pytest.raises(ValueError, match="at least 3 items; got database_codes of 2"):
        evaluate(q, d[:2], good, n_bits=8)
    with pytest.raises(ValueError, match="database of 4 items; got database_codes of 3"):
        evaluate(q, d, Truth.labels([0, 1], [0, 0, 1, 1]), n_bits=8)
    with pytest.raises(ValueError, match="query_codes of 9 bits must have shape"):
        evaluate(q, d, good, n_bits=9)
    with pytest.raises(ValueError, match="must not be empty"):
        evaluate(q, d[:0], good, n_bits=8)
    with pytest.raises(ValueError, match="n_jobs must be at least 1"):
        evaluate(q, d, good, n_bits=8, n_jobs=0)
    long = np.zeros((3, 257), dtype=np.uint8)
    with pytest.raises(ValueError, match="'spherical' ranks codes of at most 2,048 bits; got 2,056"):
        evaluate(long[:2], long, good, n_bits=2056, protocol=Protocol(distance="spherical"))


@pytest.mark.parametrize("n", [0, 1, 19_999, 20_000, 74_999, 75_000, 75_001, 400_001])
@pytest.mark.parametrize("n_distances", [1, 2, 10, 65, 256])
def test_histograms_count_each_distance(n, n_distances):
    def counts(d):
        return _ranking_metrics.Distances(d[None], n_distances).counts[0]

    rng = np.random.default_rng(n + n_distances)
    d = rng.integers(0, n_distances, n).astype(np.uint8)
    plain = np.array([np.count_nonzero(d == value) for value in range(n_distances)])
    np.testing.assert_array_equal(counts(d), plain)
    # As a row that begins at an odd address, and of a wider type.
    np.testing.assert_array_equal(counts(np.concatenate([d[:1], d])[1:]), plain)
    np.testing.assert_array_equal(counts(d.astype(np.uint16)), plain)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [False, True])
def test_several_protocols_at_once_are_as_one_by_one(labels):
    rng = np.random.default_rng(labels)
    n = 80_001  # enough for histograms in pairs, and odd
    query_bits, database_bits = rng.integers(0, 2, (5, 20)), rng.integers(0, 2, (n, 20))
    if labels:
        truth = Truth.labels(rng.integers(0, 3, 5), rng.integers(0, 3, n))
    else:
        truth = Truth.neighbors(np.array([rng.permutation(n)[:300] for _ in range(5)]))
    protocols = [
        Protocol(ap=rule, cutoff=cutoff, ties=ties, radii=radii, distance=distance)
        for rule, cutoff, ties, radii, distance in itertools.product(
            RULES, (None, 500), ("index", "expected"), ((2, 5), ()), ("hamming", "spherical")
        )
    ]
    packed = codes.pack(query_bits), codes.pack(database_bits)
    together = evaluate_all(*packed, truth, protocols, n_bits=20)
    assert [scores.protocol for scores in together] == protocols
    for protocol, scores in zip(protocols, together, strict=True):
        alone = evaluate(*packed, truth, n_bits=20, protocol=protocol)
        assert alone.as_dict() == scores.as_dict()
        np.testing.assert_array_equal(alone.average_precision, scores.average_precision)
        assert alone.precision_within.keys() == scores.precision_within.keys()
        for radius, values in alone.precision_within.items():
            np.testing.assert_array_equal(values, scores.precision_within[radius])
    d = slow.distances(query_bits[0], database_bits)
    relevant = np.isin(np.arange(n), truth.relevant(0))
    assert together[0].average_precision[0] == pytest.approx(slow.ap_by_index(d, relevant, "all"), abs=1e-12)


def test_distances_and_histograms_are_made_once_for_all_protocols(monkeypatch):
    made = Counter()

    def counted(module, name):
        plain = getattr(module, name)

        def call(*arguments):
            made[name] += 1
            return plain(*arguments)

        monkeypatch.setattr(module, name, call)

    counted(metrics, "distances_into")
    counted(_ranking_metrics, "_histogram")
    packed = codes.pack(np.random.default_rng(0).integers(0, 2, (30, 12)))
    protocols = [Protocol(cutoff=10, ties=ties, ap=rule) for ties in ("index", "expected") for rule in RULES]
    evaluate_all(packed, packed, Truth.labels([0] * 30, [0] * 30), protocols, n_bits=12, n_jobs=2)
    assert made == {"distances_into": 2, "_histogram": 30}


def test_protocols_with_the_same_cutoff_share_its_numbers():
    protocols = [Protocol(), Protocol(ties="index"), Protocol(cutoff=7), Protocol(cutoff=99)]
    whole, also, cut, beyond = (scorer.positions for scorer in _ranking_metrics.make_scorers(protocols, 20, 8))
    assert whole is also is beyond
    assert (whole.n, cut.n) == (20, 7)


def test_the_bar_comes_to_the_number_of_queries(monkeypatch):
    steps = []

    @contextmanager
    def bar(description, total, **options):
        steps.append(-total)
        yield steps.append

    monkeypatch.setattr(metrics, "progress_bar", bar)
    monkeypatch.setattr(metrics, "_BLOCK_DISTANCES", 1000)
    packed = codes.pack(np.random.default_rng(0).integers(0, 2, (100, 12)))
    evaluate(packed, packed, Truth.labels([0] * 100, [0] * 100), n_bits=12)
    assert steps[0] == -100
    assert sum(steps) == 0
    assert len(steps) > 5


@pytest.mark.parametrize(
    ("protocols", "error", "words"),
    [
        ([], ValueError, "protocols must not be empty"),
        (iter(()), ValueError, "protocols must not be empty"),
        (["mnist"], TypeError, "must be Protocol objects; got 'mnist'"),
        ([Protocol(), None], TypeError, "must be Protocol objects; got None"),
    ],
)
def test_protocols_must_be_given(protocols, error, words):
    packed = codes.pack(np.eye(4, dtype=int))
    with pytest.raises(error, match=words):
        evaluate_all(packed, packed, Truth.labels([0] * 4, [0] * 4), protocols, n_bits=4)


def test_protocols_may_be_an_iterator():
    packed = codes.pack(np.eye(4, dtype=int))
    truth = Truth.labels([0] * 4, [0, 0, 1, 1])
    rules = [Protocol(ap=rule) for rule in RULES]
    assert [scores.protocol for scores in evaluate_all(packed, packed, truth, iter(rules), n_bits=4)] == rules
