"""Recall, precision, nDCG and MRR of a search, beside slow versions and answers computed by hand."""

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from hashlearn import ITQ
from hashlearn.datasets import load
from hashlearn.evaluation import Judgment, Truth, evaluate_search, nearest_neighbors, read_judgments
from hashlearn.search import HammingIndex


def slow_scores(found, grades, k):
    """Recall, precision, nDCG and MRR of one query, word for word; ``grades``: of the relevant items, by id."""
    first = [item for item in found[:k] if item >= 0]
    hits = sum(item in grades for item in first)
    gain = sum(grades.get(item, 0) / log2(rank + 1) for rank, item in enumerate(first, 1))
    best = sum(grade / log2(rank + 1) for rank, grade in enumerate(sorted(grades.values(), reverse=True)[:k], 1))
    ranks = [rank for rank, item in enumerate(found[:k], 1) if item in grades]
    return {
        "recall": hits / len(grades) if grades else 0,
        "precision": hits / k,
        "ndcg": gain / best if grades else 0,
        "mrr": 1 / ranks[0] if ranks else 0,
    }


@st.composite
def searches(draw):
    n_queries, n_items = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    depth = draw(st.integers(1, 14))
    found = []
    for _ in range(n_queries):
        row = draw(st.permutations(range(n_items)))[:depth]
        found.append([*row, *[-1] * (depth - len(row))])
    ids = st.integers(0, n_items - 1)
    judged = draw(
        st.lists(st.dictionaries(ids, st.sampled_from([-1, 0, 1, 2, 0.5])), min_size=n_queries, max_size=n_queries)
    )
    return n_items, found, judged, draw(st.lists(st.integers(1, depth), min_size=1, max_size=3))


@given(searches())
@settings(deadline=None)
def test_measures_equal_their_definitions(search):
    n_items, found, judged, ks = search
    judgments = [(query, item, grade) for query, of in enumerate(judged) for item, grade in of.items()]
    if not judgments:
        return
    truth = Truth.judgments(judgments, list(range(len(found))), list(range(n_items)))
    scores = evaluate_search(found, truth, k=ks)
    for query, row in enumerate(found):
        grades = {item: grade for item, grade in judged[query].items() if grade > 0}
        for k in ks:
            for measure, expected in slow_scores(row, grades, k).items():
                assert scores.per_query[f"{measure}@{k}"][query] == pytest.approx(expected)
    assert scores.queries_without_relevant == sum(all(grade <= 0 for grade in of.values()) for of in judged)


def test_answers_computed_by_hand():
    truth = Truth.judgments(
        [("a", "x", 3), ("a", "y", 1), ("a", "z", 0), ("b", "z", 2)], ["a", "b", "c"], ["x", "y", "z"]
    )
    scores = evaluate_search([[1, 2, 0], [2, 1, 0], [0, 1, 2]], truth, k=[1, 2, 3])
    assert scores.per_query["recall@2"].tolist() == [0.5, 1, 0]
    assert scores.per_query["precision@2"].tolist() == [0.5, 0.5, 0]
    assert scores.per_query["mrr@3"].tolist() == [1, 1, 0]
    # The ranks of y (grade 1) and x (3) are 1 and 3; best is x before y.
    assert scores.per_query["ndcg@3"][0] == pytest.approx((1 + 3 / 2) / (3 + 1 / log2(3)))
    assert scores["recall@3"] == pytest.approx(2 / 3)
    assert scores.standard_error("recall@3") == pytest.approx(np.std([1, 1, 0], ddof=1) / np.sqrt(3))
    assert scores.queries_without_relevant == 1
    assert str(scores).endswith("(percent; 3 queries; truth: 4 judgments; 1 queries without a relevant item count 0)")
    assert scores.as_dict()["n_queries"] == 3


def test_ndcg_equals_scikit_learns():
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, (5, 30)).astype(float)
    grades[:, 0] = 1
    order = np.argsort(rng.random((5, 30)), axis=1)
    ranks = np.empty((5, 30))
    np.put_along_axis(ranks, order, np.arange(30.0)[None], axis=1)
    judgments = [(query, item, grades[query, item]) for query in range(5) for item in range(30)]
    truth = Truth.judgments(judgments, range(5), range(30))
    for k in (1, 5, 30):
        assert evaluate_search(order, truth, k=k)[f"ndcg@{k}"] == pytest.approx(ndcg_score(grades, -ranks, k=k))


def test_recall_of_a_search_among_real_vectors():
    """Whatever the search: here by codes, and exact, which finds everything."""
    digits = load("digits")
    true = nearest_neighbors(digits.queries, digits.database, 10, metric="cosine")
    truth = Truth.neighbors(true, n_database=len(digits.database))
    assert evaluate_search(true, truth, k=10)["recall@10"] == 1
    hasher = ITQ(32, random_state=0).fit(digits.train)
    index = HammingIndex(32)
    index.add(hasher.encode(digits.database))
    found = index.search(hasher.encode(digits.queries), k=100).ids
    scores = evaluate_search(found, truth)
    slow = np.mean(
        [len(set(row[:10]) & set(best)) / 10 for row, best in zip(found.tolist(), true.tolist(), strict=True)]
    )
    assert scores["recall@10"] == pytest.approx(slow)
    assert 0.3 < scores["recall@10"] == scores["precision@10"] < scores["recall@100"] < 1


def test_by_default_the_usual_numbers_of_items_count_up_to_those_that_were_found():
    truth = Truth.neighbors([[3]])
    for n, expected in ((1, [1]), (12, [1, 10]), (100, [1, 10, 100])):
        scores = evaluate_search([list(range(n))], truth)
        assert list(scores.per_query)[::4] == [f"recall@{k}" for k in expected]


def test_truth_by_labels_counts_all_of_a_class():
    truth = Truth.labels(["a", "b"], ["a", "b", "a", "a"])
    scores = evaluate_search([[0, 1], [2, 1]], truth, k=2)
    assert scores.per_query["recall@2"] == pytest.approx([1 / 3, 1])


@pytest.mark.parametrize(
    ("ids", "k", "words"),
    [
        ([[0, 1]], 3, "k must be at most 2, the number of items found"),
        ([[0, 1]], [], "and at least one"),
        ([[0, 1]], 0, "k must be"),
        ([[0, 1]], 1.5, "k must be"),
        ([[0, 0]], 1, "distinct"),
        ([[0, 7]], 1, "below 3, the size of the database; got 0 to 7"),
        ([[-2, 0]], 1, "at least 0, or -1 for none"),
        ([[0.0]], 1, "ids must be whole numbers"),
        ([[0], [1]], 1, "truth is for 1 queries; got ids for 2"),
    ],
)
def test_bad_results_are_refused(ids, k, words):
    if words == "distinct":
        k = 2
    with pytest.raises(ValueError, match=words):
        evaluate_search(ids, Truth.neighbors([[0]], n_database=3), k=k)


def test_judgments_are_read_in_both_forms(tmp_path):
    expected = [Judgment("q 1", "d 7", 2.0), Judgment("q2", "d1", 0.0)]
    lines = "query-id\tcorpus-id\tscore\nq 1\td 7\t2\n\nq2\td1\t0\n"
    (tmp_path / "beir.tsv").write_text(lines, encoding="utf-8-sig")  # with a mark of the byte order
    assert read_judgments(tmp_path / "beir.tsv") == expected
    (tmp_path / "qrels").write_text("q1 0 d7 2\nq2  Q0\td1 0\n", encoding="utf-8")
    assert read_judgments(tmp_path / "qrels") == [Judgment("q1", "d7", 2.0), Judgment("q2", "d1", 0.0)]
    truth = Truth.judgments(read_judgments(tmp_path / "qrels"), ["q2", "q1"], ["d1", "d7"])
    assert [truth.relevant(query).tolist() for query in range(2)] == [[], [1]]
    assert truth.grades(1).tolist() == [2.0]


@pytest.mark.parametrize("text", ["q1 0 d7 x\n", "q1 d7\n", "a b c d e\n", "q\td\tx\nq\td\tx\n", "q\td\tx9\n"])
def test_a_file_that_holds_no_judgments_is_refused(text, tmp_path):
    (tmp_path / "qrels").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"line [12]: a judgment has the columns query, iteration, item and grade"):
        read_judgments(tmp_path / "qrels")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no judgments"):
        read_judgments(tmp_path / "empty")


@pytest.mark.parametrize(
    ("judgments", "words"),
    [
        ([("q", "z", 1)], "judgment 1 is of item 'z', which is not among the item_ids, such as 'd'"),
        ([(7, "d", 1)], "no judgment is of a query .*: the last is of 7, and query_ids has 'q'"),
        ([], "no judgment is of a query that is among the query_ids: there are none"),
        ([("q", "d")], r"judgment 1 must be \(query, item, grade\); got \('q', 'd'\)"),
        ([("q", "d", "high")], "judgment 1 must be"),
        ([("q", "d", np.nan)], "grades must be finite"),
        ([("q", "d", 1), ("q", "d", 2)], "judgment 2 gives item 'd' a second grade for the same query"),
    ],
)
def test_bad_judgments_are_refused(judgments, words):
    with pytest.raises(ValueError, match=words):
        Truth.judgments(judgments, ["q"], ["d"])


def test_ids_of_judgments_must_be_distinct():
    with pytest.raises(ValueError, match="item_ids must be distinct"):
        Truth.judgments([("q", "d", 1)], ["q"], ["d", "d"])
