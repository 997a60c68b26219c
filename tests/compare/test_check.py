"""Whether a model still fits."""

import json

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from hashlearn import ITQ, SDH, NeighborHash
from hashlearn.codes import hamming
from hashlearn.compare import check_model
from hashlearn.compare.check import _explained
from hashlearn.compare.own_vectors import hold_out
from hashlearn.datasets import load
from hashlearn.evaluation import bit_statistics


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_a_model_fits_vectors_like_those_that_it_was_trained_on(digits):
    found = check_model(ITQ(32, random_state=0).fit(digits.train[:700]), digits.train[700:])
    assert found.fits
    assert abs(found.gain) < 0.03
    assert found.verdict.startswith("The model fits these vectors: it finds ")
    json.dumps(found.as_dict())


def test_a_model_does_not_fit_other_vectors(digits):
    turned = digits.train[:, ::-1].copy()
    turned[:, :20] *= 3
    found = check_model(ITQ(32, random_state=0).fit(digits.train), turned)
    assert not found.fits
    assert found.gain > 0.05 > 5 * found.standard_error / 2
    assert found.retrained.explained > found.model.explained + 0.05
    assert found.verdict.startswith("Train again: the model finds ")
    shifted = check_model(ITQ(32, random_state=0).fit(digits.train), digits.train + 5.0)
    assert shifted.model.bits.imbalance > shifted.retrained.bits.imbalance + 0.2
    assert not shifted.fits


def test_recall_and_statistics_are_those_of_plain_searches(digits):
    X = digits.train
    hasher = ITQ(16, random_state=0).fit(X)
    found = check_model(hasher, X, k=5, random_state=2)
    rows = np.sort(np.random.default_rng(2).permutation(len(X)))
    asked, rest = hold_out(len(X), 1000, 2)
    queries, database = X[rows][asked], X[rows][rest]
    assert (found.n_queries, found.n_searched, found.k) == (150, 1350, 5)
    Q, Y = queries.astype(float), database.astype(float)
    near = np.argsort(((Q[:, None] - Y[None]) ** 2).sum(axis=2), axis=1, kind="stable")[:, :5]
    recalls = []
    for model in (hasher, ITQ(16, random_state=2).fit(database)):
        D = hamming(model.encode(queries), model.encode(database))
        first = np.argsort(D, axis=1, kind="stable")[:, :50]
        recalls.append([len(set(row) & set(best)) / 5 for row, best in zip(first, near, strict=True)])
    assert found.model.recall == pytest.approx(np.mean(recalls[0]))
    assert found.retrained.recall == pytest.approx(np.mean(recalls[1]))
    differences = np.subtract(*recalls[::-1])
    assert found.gain == pytest.approx(differences.mean())
    assert found.standard_error == pytest.approx(differences.std(ddof=1) / np.sqrt(150))
    assert found.model.bits == bit_statistics(hasher.encode(database), 16)


def test_explained_variance_equals_scikit_learns_ridge(digits):
    X = digits.train.astype(float)
    hasher = ITQ(20, random_state=0).fit(X)
    codes = hasher.encode(X)
    B = 2.0 * hasher.transform(X) - 1
    ridge = Ridge(alpha=1e-3 * len(B[::2])).fit(B[::2], X[::2])
    rest = X[1::2]
    expected = 1 - ((rest - ridge.predict(B[1::2])) ** 2).sum() / ((rest - X[::2].mean(axis=0)) ** 2).sum()
    assert _explained(codes, X, 20) == pytest.approx(expected)
    assert _explained(codes, np.ones((1500, 3)), 20) == 0


def test_many_vectors_are_sampled_and_methods_of_all_kinds(digits):
    rng = np.random.default_rng(0)
    X = np.repeat(digits.train, 20, axis=0) + rng.standard_normal((30_000, 64))
    found = check_model(ITQ(16, normalize=True, random_state=0).fit(X), X)
    assert (found.n_queries, found.n_searched, found.metric) == (1000, 19_000, "cosine")
    short = NeighborHash(16, n_hidden=0, n_neighbors=5, epochs=1, random_state=0)
    assert 0 < check_model(short.fit(digits.train), digits.train).retrained.recall <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vectors": np.ones((499, 64))}, "vectors must be at least 500, to tell anything; got 499"),
        ({"vectors": np.ones((600, 64)), "k": 40}, "vectors must be at least 800"),
        ({"vectors": np.ones(64)}, "vectors must have two dimensions"),
        ({"vectors": np.ones((600, 5))}, "5 features"),
        ({"k": 0}, "k must be"),
        ({"metric": "dot"}, "metric must be one of"),
    ],
)
def test_bad_input_is_refused(change, words, digits):
    with pytest.raises(ValueError, match=words):
        check_model(ITQ(8, random_state=0).fit(digits.train), **{"vectors": digits.train, **change})


def test_a_method_with_labels_is_refused(digits):
    hasher = SDH(8, n_anchors=50, random_state=0).fit(digits.train, digits.train_labels)
    with pytest.raises(ValueError, match="sdh learns from labels"):
        check_model(hasher, digits.train)
