"""Codes in the place of scikit-learn's KNeighborsTransformer."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.manifold import Isomap
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline

from hashlearn import ITQ, SDH
from hashlearn.codes import hamming
from hashlearn.datasets import load
from hashlearn.interchange import CodeNeighborsTransformer


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_the_graph_is_that_of_all_distances(digits):
    X, queries = digits.train[:400], digits.queries
    near = CodeNeighborsTransformer(ITQ(16, random_state=0), n_neighbors=4).fit(X)
    hasher = ITQ(16, random_state=0).fit(X)
    D = hamming(hasher.encode(queries), hasher.encode(X))
    order = np.argsort(D, axis=1, kind="stable")[:, :5]
    graph = near.transform(queries)
    assert graph.shape == (len(queries), 400)
    np.testing.assert_array_equal(graph.indices.reshape(-1, 5), order)
    np.testing.assert_array_equal(graph.data.reshape(-1, 5), np.take_along_axis(D, order, axis=1))
    links = clone(near).set_params(mode="connectivity").fit(X).transform(queries)
    np.testing.assert_array_equal(links.indices.reshape(-1, 4), order[:, :4])
    assert (links.data == 1).all()


def test_with_all_candidates_it_is_scikit_learns(digits):
    X = digits.train[:300]
    expected = KNeighborsTransformer(n_neighbors=6).fit_transform(X)
    graph = CodeNeighborsTransformer(ITQ(16, random_state=0), n_neighbors=6, oversample=300).fit_transform(X)
    # Vectors at equal distances may be in another order.
    np.testing.assert_allclose(graph.data, expected.data, atol=1e-4)
    assert (graph.indices == expected.indices).mean() > 0.99


def test_the_more_candidates_the_more_true_neighbors(digits):
    X = digits.train
    true = KNeighborsTransformer(n_neighbors=10, mode="connectivity").fit(X).transform(digits.queries)
    shared = []
    for oversample in (None, 2, 10):
        near = CodeNeighborsTransformer(
            ITQ(16, random_state=0), n_neighbors=10, mode="connectivity", oversample=oversample
        )
        shared.append(near.fit(X).transform(digits.queries).multiply(true).sum() / true.sum())
    assert shared[0] + 0.05 < shared[1] < shared[2] - 0.05
    assert shared[2] > 0.9


def test_in_pipelines(digits):
    X, y = digits.train, digits.train_labels
    near = CodeNeighborsTransformer(ITQ(64, random_state=0), n_neighbors=5)
    scores = cross_val_score(make_pipeline(near, KNeighborsClassifier(5, metric="precomputed")), X, y, cv=3)
    assert scores.mean() > 0.9
    flat = make_pipeline(
        clone(near).set_params(n_neighbors=10, oversample=4), Isomap(n_neighbors=10, metric="precomputed")
    )
    assert flat.fit_transform(X[:300]).shape == (300, 2)
    # A hasher that learns from labels gets them.
    assert CodeNeighborsTransformer(SDH(16, n_anchors=50, random_state=0)).fit(X, y).hasher_.supervised
    near.set_params(hasher__n_bits=4)
    assert list(near.fit(X[:9]).get_feature_names_out())[:2] == [
        "codeneighborstransformer0",
        "codeneighborstransformer1",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be"),
        ({"n_neighbors": 20}, "n_neighbors must be below 20, the number of samples; got 20"),
        ({"mode": "both"}, "mode must be 'distance' or 'connectivity'; got 'both'"),
        ({"oversample": 0}, "oversample must be"),
    ],
)
def test_bad_parameters_are_refused(options, words, digits):
    with pytest.raises(ValueError, match=words):
        CodeNeighborsTransformer(ITQ(4, random_state=0), **options).fit(digits.train[:20])
