"""How well a model does on one's own vectors."""

import json

import numpy as np
import pytest

from hashlearn import ITQ, SPH
from hashlearn.codes import hamming
from hashlearn.compare import evaluate_model
from hashlearn.datasets import load
from hashlearn.evaluation import METRICS, Truth


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def true_neighbors(queries, vectors, k, metric):
    Q, X = queries.astype(float), vectors.astype(float)
    if metric == "euclidean":
        scores = -((Q[:, None] - X[None]) ** 2).sum(axis=2)
    else:
        scores = Q @ X.T / (np.linalg.norm(X, axis=1) if metric == "cosine" else 1)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def by_name(scores):
    return {(ranking.query, ranking.reranked): ranking.scores for ranking in scores.rankings}


@pytest.mark.parametrize("metric", METRICS)
def test_recall_is_that_of_plain_searches(digits, metric):
    hasher = ITQ(24, random_state=0).fit(digits.train)
    scores = evaluate_model(hasher, digits.database, digits.queries, k=5, metric=metric, rerank_depths=[30])
    true = true_neighbors(digits.queries, digits.database, 5, metric)
    D = hamming(hasher.encode(digits.queries), hasher.encode(digits.database))
    signs = 2.0 * hasher.transform(digits.database) - 1
    S = hasher.decision_function(digits.queries).astype(float) @ signs.T
    for query, order in (
        ("code", np.argsort(D, axis=1, kind="stable")),
        ("real", np.argsort(-S, axis=1, kind="stable")),
    ):
        plain, again = by_name(scores)[query, 0], by_name(scores)[query, 30]
        found = [len(set(row[:5]) & set(best)) / 5 for row, best in zip(order, true, strict=True)]
        assert plain["recall"] == plain["precision"] == pytest.approx(np.mean(found), abs=1e-3)
        # The true neighbors among the first 30 come first after they are compared again, but for ties.
        within = [len(set(row[:30]) & set(best)) / 5 for row, best in zip(order, true, strict=True)]
        assert again["recall"] == pytest.approx(np.mean(within), abs=2e-3)
        assert again["recall"] > plain["recall"] + 0.1
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert scores.rankings[2].standard_errors["recall"] == pytest.approx(error, abs=1e-3)
    assert (scores.n_queries, scores.n_database, scores.held_out) == (297, 1500, False)
    json.dumps(scores.as_dict())


def test_queries_are_drawn_from_the_vectors_and_not_searched(digits):
    hasher = ITQ(32, random_state=0).fit(digits.train)
    scores = evaluate_model(hasher, digits.database, n_queries=100, random_state=3, rerank_depths=[1350])
    assert (scores.n_queries, scores.n_database, scores.held_out) == (100, 1400, True)
    # With all items compared again, recall is 1: queries that were searched would find themselves.
    assert by_name(scores)["code", 1350]["recall"] > 0.99
    assert evaluate_model(hasher, digits.database).n_queries == 150
    again = evaluate_model(hasher, digits.database, n_queries=100, random_state=3, rerank_depths=[1350])
    assert again == scores
    assert evaluate_model(hasher, digits.database, n_queries=100, rerank_depths=[1350]) != scores


def test_the_metric_is_that_of_the_model(digits):
    X = digits.train * np.linspace(0.1, 10, 1500)[:, None]
    plain, normalized = (ITQ(32, normalize=flag, random_state=0).fit(X) for flag in (False, True))
    assert evaluate_model(plain, X).metric == "euclidean"
    scores = evaluate_model(normalized, X)
    assert scores.metric == "cosine"
    by_cosine = [by_name(evaluate_model(h, X, metric="cosine"))["code", 0]["recall"] for h in (plain, normalized)]
    assert by_cosine[1] > by_cosine[0] + 0.1


def test_depths_are_by_default_multiples_of_k_and_at_most_all_items(digits):
    hasher = ITQ(16, random_state=0).fit(digits.train)
    depths = [one.reranked for one in evaluate_model(hasher, digits.database, k=20).rankings if one.query == "code"]
    assert depths == [0, 100, 200, 400]
    scores = evaluate_model(hasher, digits.database, digits.queries[:1], rerank_depths=[5000, 2000, 20])
    assert [one.reranked for one in scores.rankings[:3]] == [0, 20, 1500]
    assert scores.as_dict()["rankings"][0]["standard_errors"]["recall"] is None  # of one query


def test_queries_without_a_relevant_item_are_counted(digits):
    hasher = ITQ(16, random_state=0).fit(digits.train)
    truth = Truth.judgments([("q0", "d1", 1)], [f"q{i}" for i in range(297)], [f"d{i}" for i in range(1500)])
    assert evaluate_model(hasher, digits.database, digits.queries, truth=truth).queries_without_relevant == 296


def test_judgments_in_the_place_of_neighbors(digits):
    hasher = ITQ(32, random_state=0).fit(digits.train)
    truth = Truth.labels(digits.query_labels, digits.database_labels)
    scores = evaluate_model(hasher, digits.database, digits.queries, truth=truth, rerank_depths=[])
    assert by_name(scores)["code", 0]["precision"] > 0.8
    assert by_name(scores)["code", 0]["recall"] < 0.1  # a class has 150 items
    assert scores.truth == "equal class labels (10 classes)"


def test_a_method_without_real_values_has_one_ranking(digits):
    scores = evaluate_model(SPH(16, random_state=0).fit(digits.train), digits.database, rerank_depths=[20])
    assert list(by_name(scores)) == [("code", 0), ("code", 20)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "dot"}, "metric must be one of 'euclidean'"),
        ({"k": 0}, "k must be"),
        ({"rerank_depths": [5]}, "rerank_depths must be"),
        ({"queries": np.ones((1, 64)), "truth": Truth.neighbors([[1500]])}, "truth is for a database of at least 1501"),
        ({"queries": np.ones((1, 64)), "truth": Truth.neighbors([[1]], n_database=9)}, "truth is for a database of 9"),
        ({"n_queries": 0}, "n_queries must be"),
        ({"vectors": np.ones((5, 64))}, "the 5 vectors are too few to look for 10 neighbors"),
        ({"vectors": np.ones(64)}, "vectors must have two dimensions"),
        ({"truth": Truth.neighbors([[0]])}, "truth must be given together with its queries"),
        ({"queries": np.ones((3, 5))}, "5 features"),
    ],
)
def test_bad_input_is_refused(options, words, digits):
    hasher = ITQ(8, random_state=0).fit(digits.train)
    with pytest.raises(ValueError, match=words):
        evaluate_model(hasher, **{"vectors": digits.train, **options})
