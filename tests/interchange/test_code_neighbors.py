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


@pytest.mark.parametrize("oversample", [None, 3])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_a_vector_is_its_own_nearest_neighbor(oversample, mode, digits):
    """Also where many have the same code."""
    near = CodeNeighborsTransformer(ITQ(4, random_state=0), n_neighbors=4, mode=mode, oversample=oversample)
    graph = near.fit_transform(digits.train)
    ids = graph.indices.reshape(1500, -1)
    assert ids.shape[1] == 4 + (mode == "distance")
    np.testing.assert_array_equal(ids[:, 0], np.arange(1500))
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    others = near.transform(digits.train).indices.reshape(ids.shape)
    assert all(set(row[1:]) <= set(before) for row, before in zip(ids, others, strict=True))
    if mode == "distance":
        D = graph.data.reshape(1500, -1)
        assert (D[:, 0] == 0).all()
        assert (np.diff(D, axis=1) >= 0).all()


def test_by_cosine(digits):
    X = digits.train[:300] * np.linspace(0.1, 10, 300)[:, None]
    expected = KNeighborsTransformer(n_neighbors=6, metric="cosine").fit_transform(X)
    hasher = ITQ(16, normalize=True, random_state=0)
    graph = CodeNeighborsTransformer(hasher, n_neighbors=6, oversample=300, metric="cosine").fit_transform(X)
    np.testing.assert_allclose(graph.data, expected.data, atol=1e-6)
    assert (graph.indices == expected.indices).mean() > 0.99


def test_parameters_that_were_changed_after_fit(digits):
    near = CodeNeighborsTransformer(ITQ(8, random_state=0), n_neighbors=5).fit(digits.train[:10])
    with pytest.raises(ValueError, match="n_neighbors must be at most 9, for 10 samples"):
        near.set_params(n_neighbors=20).transform(digits.train)
    with pytest.raises(ValueError, match="oversample was changed after fit"):
        near.set_params(n_neighbors=2, oversample=3).transform(digits.train)


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
        ({"n_neighbors": 20}, "n_neighbors must be at most 19, for 20 samples and mode='distance'; got 20"),
        ({"n_neighbors": 21, "mode": "connectivity"}, "n_neighbors must be at most 20, for 20 samples"),
        ({"metric": "dot", "oversample": 2}, "metric must be 'euclidean' or 'cosine'; got 'dot'"),
        ({"metric": "cosine"}, "metric has no effect without oversample"),
        ({"mode": "both"}, "mode must be 'distance' or 'connectivity'; got 'both'"),
        ({"oversample": 0}, "oversample must be"),
    ],
)
def test_bad_parameters_are_refused(options, words, digits):
    with pytest.raises(ValueError, match=words):
        CodeNeighborsTransformer(ITQ(4, random_state=0), **options).fit(digits.train[:20])
