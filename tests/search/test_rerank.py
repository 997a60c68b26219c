"""Re-ranking by vectors, beside one comparison at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashlearn import ITQ
from hashlearn.datasets import load
from hashlearn.evaluation import METRICS, Truth, evaluate_search, nearest_neighbors
from hashlearn.search import HammingIndex, rerank

every_metric = pytest.mark.parametrize("metric", METRICS)


def slow_rerank(queries, ids, vectors, k, metric):
    """The k best candidates of each query, with scores of whole numbers or in float64."""
    answers = []
    for q, row in zip(np.asarray(queries, dtype=np.float64), ids, strict=True):
        scored = []
        for i in row:
            if i < 0:
                continue
            v = np.asarray(vectors[i], dtype=np.float64)
            match metric:
                case "euclidean":
                    score = -((v - q) ** 2).sum()
                case "inner_product":
                    score = v @ q
                case _:
                    lengths = np.linalg.norm(v) * np.linalg.norm(q)
                    score = v @ q / lengths if lengths else 0.0
            scored.append((-score, int(i)))
        scored = sorted(scored)[:k]
        answers.append([i for _, i in scored] + [-1] * (k - len(scored)))
    return answers


@every_metric
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 12), k=st.integers(1, 15))
@settings(max_examples=40, deadline=None)
def test_it_equals_one_comparison_at_a_time(metric, seed, n, k):
    rng = np.random.default_rng(seed)
    # Products and distances of small whole numbers are exact; cosines are compared on vectors that hardly tie.
    vectors = rng.integers(-3, 4, (20, 4)) if metric != "cosine" else rng.standard_normal((20, 4))
    queries = rng.integers(-3, 4, (5, 4)) if metric != "cosine" else rng.standard_normal((5, 4))
    ids = np.array([rng.permutation(20)[:n] for _ in range(5)]).reshape(5, n)
    ids[rng.random(ids.shape) < 0.2] = -1
    scores, found = rerank(queries, ids, vectors, k, metric=metric)
    assert found.tolist() == slow_rerank(queries, ids, vectors, k, metric)
    assert scores.dtype == np.float32
    assert (np.isneginf(scores) == (found < 0)).all()


@every_metric
def test_all_items_as_candidates_give_the_true_neighbors(metric):
    rng = np.random.default_rng(0)
    vectors, queries = rng.standard_normal((300, 16)), rng.standard_normal((40, 16))
    ids = np.tile(rng.permutation(300), (40, 1))
    expected = nearest_neighbors(queries, vectors, 20, metric=metric)
    np.testing.assert_array_equal(rerank(queries, ids, vectors, 20, metric=metric).ids, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8])
def test_vectors_of_any_type_from_a_file(dtype, tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 100, (200, 8)).astype(dtype)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    queries = rng.integers(0, 100, (30, 8)).astype(np.float64) + 0.25
    ids = np.array([rng.permutation(200)[:50] for _ in range(30)])
    found = rerank(queries, ids, mapped, 10).ids
    assert found.tolist() == slow_rerank(queries, ids, vectors, 10, "euclidean")


def test_blocks_of_queries_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    vectors, queries = rng.standard_normal((100, 8)), rng.standard_normal((50, 8))
    ids = np.array([rng.permutation(100)[:30] for _ in range(50)])
    expected = rerank(queries, ids, vectors, 5)
    monkeypatch.setattr("hashlearn.search.reranking._BLOCK_VALUES", 1000)
    again = rerank(queries, ids, vectors, 5)
    np.testing.assert_array_equal(again.ids, expected.ids)
    np.testing.assert_array_equal(again.scores, expected.scores)


def test_it_raises_the_recall_of_codes_to_that_of_the_candidates():
    digits = load("digits")
    truth = Truth.neighbors(nearest_neighbors(digits.queries, digits.database, 10))
    hasher = ITQ(16, random_state=0).fit(digits.train)
    index = HammingIndex(16)
    index.add(hasher.encode(digits.database))
    candidates = index.search(hasher.encode(digits.queries), k=100).ids
    found = rerank(digits.queries, candidates, digits.database, k=10).ids
    before, after = evaluate_search(candidates, truth, k=[10, 100]), evaluate_search(found, truth, k=10)
    assert after["recall@10"] == before["recall@100"] > before["recall@10"] + 0.2


@every_metric
@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1.0, 1e15])
def test_scales_do_not_change_the_order(metric, scale):
    rng = np.random.default_rng(0)
    vectors, queries = rng.standard_normal((60, 8)), rng.standard_normal((10, 8))
    ids = np.array([rng.permutation(60)[:30] for _ in range(10)])
    vectors, queries = (array.astype(np.float32) for array in (vectors, queries))
    expected = rerank(queries, ids, vectors, 20, metric=metric).ids
    scaled = (queries * np.float32(scale)) if metric == "euclidean" else queries
    np.testing.assert_array_equal(rerank(scaled, ids, vectors * np.float32(scale), 20, metric=metric).ids, expected)


def test_numbers_that_float32_does_not_hold():
    found = rerank([[1e9, 0.0]], [[0, 1]], [[1e9 + 30, 0.0], [1e9 + 1, 0.0]], k=2)
    assert (found.ids.tolist(), found.scores.tolist()) == ([[1, 0]], [[-1.0, -900.0]])
    whole = rerank(np.array([[2**40]]), [[0, 1]], np.array([[2**40 + 5], [2**40 - 3]]), k=2)
    assert whole.ids.tolist() == [[1, 0]]


def test_no_vectors():
    scores, ids = rerank(np.ones((1, 2)), [[-1, -1]], np.empty((0, 2)), k=3)
    assert (scores.tolist(), ids.tolist()) == ([[-np.inf] * 3], [[-1] * 3])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "dot"}, "metric must be one of 'euclidean', 'cosine', 'inner_product'; got 'dot'"),
        ({"k": 0}, "k must be"),
        ({"ids": [[0, 3]]}, "ids must be rows of the 3 vectors, or -1; got 0 to 3"),
        ({"ids": [[-2]]}, "or -1; got -2 to -2"),
        ({"ids": [[0], [1]]}, "a row for each of the 1 queries"),
        ({"ids": [[0.5]]}, "ids must be whole numbers"),
        ({"queries": [[1.0]]}, "same number of features; got 1 and 2"),
        ({"queries": [1.0, 2.0]}, "queries must be numbers of shape"),
        ({"vectors": [["a", "b"]] * 3}, "vectors must be numbers"),
        ({"queries": [[np.nan, 0]]}, "must be finite"),
    ],
)
def test_bad_input_is_refused(change, words):
    arguments = {"queries": [[1.0, 0.0]], "ids": [[0, 1]], "vectors": np.eye(3, 2), "k": 1} | change
    with pytest.raises(ValueError, match=words):
        rerank(**arguments)
