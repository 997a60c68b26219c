"""The scorer for scikit-learn's searches of parameters."""

import pickle

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import hashlearn
from hashlearn import ITQ, NeighborHash
from hashlearn.codes import hamming
from hashlearn.datasets import load
from hashlearn.evaluation import recall_scorer


@pytest.fixture(scope="module")
def X():
    return load("digits").train


def slow_recall(hasher, X, k, first, unit=False):
    """The recall of k neighbors among the first items: all distances, sorted."""
    order = np.random.default_rng(0).permutation(len(X))
    n = min(1000, len(X) // 5)
    queries, database = X[np.sort(order[:n])], X[np.sort(order[n:])]
    a, b = (V / np.linalg.norm(V, axis=1, keepdims=True) if unit else V.astype(float) for V in (queries, database))
    near = np.argsort(((a[:, None] - b[None]) ** 2).sum(axis=2), axis=1, kind="stable")[:, :k]
    found = np.argsort(hamming(hasher.encode(queries), hasher.encode(database)), axis=1, kind="stable")[:, :first]
    return np.mean([len(set(row) & set(best)) / k for row, best in zip(found.tolist(), near.tolist(), strict=True)])


def test_it_is_the_recall_of_a_plain_search(X):
    hasher = ITQ(24, random_state=0).fit(X[:700])
    assert recall_scorer(k=5)(hasher, X[700:]) == pytest.approx(slow_recall(hasher, X[700:], 5, 5))
    assert recall_scorer(k=5, first=20)(hasher, X[700:]) == pytest.approx(slow_recall(hasher, X[700:], 5, 20))
    by_cosine = recall_scorer(k=5, metric="cosine")(hasher, X[700:])
    assert by_cosine == pytest.approx(slow_recall(hasher, X[700:], 5, 5, unit=True))


def test_real_valued_queries_find_more(X):
    hasher = ITQ(16, random_state=0).fit(X[:700])
    code, real = (recall_scorer(query=query)(hasher, X[700:]) for query in ("code", "real"))
    assert real > code + 0.05
    assert 0 < recall_scorer(query="real")(hashlearn.DecoderHash(16, epochs=0, random_state=0).fit(X), X) < 1


def test_it_chooses_parameters_as_the_readme_says(X):
    search = GridSearchCV(ITQ(random_state=0), {"n_bits": [8, 32]}, scoring=recall_scorer(k=10), cv=3).fit(X)
    assert search.best_params_ == {"n_bits": 32}
    folds = list(KFold(3).split(X))
    scores = [recall_scorer()(ITQ(32, random_state=0).fit(X[train]), X[test]) for train, test in folds]
    np.testing.assert_allclose([search.cv_results_[f"split{i}_test_score"][1] for i in range(3)], scores)


def test_frames_keep_the_names_of_their_columns(X):
    import pandas as pd
    from sklearn.compose import ColumnTransformer

    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    hasher = ITQ(16, random_state=0).fit(frame)
    assert recall_scorer()(hasher, frame) == recall_scorer()(ITQ(16, random_state=0).fit(X), X)
    some = ColumnTransformer([("some", "passthrough", ["p10", "p20", "p30", "p40"])])
    pipeline = hashlearn.make_pipeline(some, ITQ(8, random_state=0)).fit(frame)
    assert recall_scorer()(pipeline, frame) > 0


def test_the_metric_is_that_of_the_codes(X):
    rows = X * np.linspace(0.1, 10, 1500)[:, None]
    for hasher in (ITQ(16, random_state=0), ITQ(16, normalize=True, random_state=0)):
        metric = "cosine" if hasher.normalize else "euclidean"
        assert recall_scorer()(hasher.fit(rows), rows) == recall_scorer(metric=metric)(hasher, rows)


def test_of_a_pipeline_and_in_other_processes(X):
    pipeline = hashlearn.make_pipeline(PCA(20), ITQ(16, random_state=0))
    scores = cross_val_score(pipeline, X, scoring=recall_scorer(query="real"), cv=3, n_jobs=2)
    assert (scores > 0.2).all()
    alone = hashlearn.make_pipeline(ITQ(16, random_state=0)).fit(X)
    scorer = pickle.loads(pickle.dumps(recall_scorer()))
    assert scorer(alone, X) == recall_scorer()(alone[-1], X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 0}, "k must be"),
        ({"first": 0}, "first must be"),
        ({"n_queries": 0}, "n_queries must be"),
        ({"query": "vector"}, "query must be 'code' or 'real'; got 'vector'"),
        ({"metric": "dot"}, "metric must be one of 'euclidean', 'cosine', 'inner_product'; got 'dot'"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        recall_scorer(**options)


def test_too_few_vectors_are_refused(X):
    hasher = ITQ(8, random_state=0).fit(X)
    for n in (4, 11):
        with pytest.raises(ValueError, match=f"the {n} vectors are too few to look for 10 neighbors"):
            recall_scorer()(hasher, X[:n])
    with pytest.raises(ValueError, match="has no query_values"):
        recall_scorer(query="real")(NeighborHash(8, n_neighbors=5, random_state=0).fit(X[:300]), X)
