"""Support vector machines of many labelings at once, against scikit-learn's LIBLINEAR."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._svm import LinearSVMs, scores
from hashlearn.threads import thread_map

C = 100.0


@pytest.fixture(scope="module")
def data():
    digits = load_digits()
    X = digits.data / 16
    X -= X.mean(axis=0)
    rng = np.random.default_rng(0)
    Y = np.where(np.column_stack([X @ rng.standard_normal((64, 3)) > 0, digits.target > 4, digits.target == 3]), 1, -1)
    noise = rng.random(Y.shape) < 0.02
    return X, np.where(noise, -Y, Y).astype(np.int8)


def fit(X, *labels, threads=1, **options):
    with thread_map(threads) as mapped:
        machines = LinearSVMs(Rows(X, np.zeros(X.shape[1]), 1.0, mapped), C)
        for Y in labels:
            W = machines.fit(Y, **options)
        return W, scores(machines.rows, W)


def value(X, y, w):
    return 0.5 * w @ w + C * np.sum(np.maximum(0, 1 - y * (X @ w[:-1] + w[-1])) ** 2)


def test_the_same_minimum_as_liblinear(data):
    X, Y = data
    W, _ = fit(X, Y)
    for k in range(Y.shape[1]):
        theirs = LinearSVC(C=C, dual=False, tol=1e-8, max_iter=100_000).fit(X, Y[:, k])
        w = np.append(theirs.coef_[0], theirs.intercept_)
        assert value(X, Y[:, k], W[:, k]) == pytest.approx(value(X, Y[:, k], w), rel=1e-4)
        same = (X @ w[:-1] + w[-1] >= 0) == (X @ W[:-1, k] + W[-1, k] >= 0)
        assert same.mean() > 0.995


def test_the_gradient_is_small(data):
    X, Y = data
    W, _ = fit(X, Y)
    X1 = np.column_stack([X, np.ones(len(X))])

    def gradient(W):
        Z = X1 @ W
        return W - 2 * C * X1.T @ np.where(Y * Z < 1, Y - Z, 0)

    smaller = np.minimum((Y > 0).mean(axis=0), (Y < 0).mean(axis=0))
    at_zero = np.linalg.norm(gradient(np.zeros_like(W)), axis=0)
    assert (np.linalg.norm(gradient(W), axis=0) <= 1.001e-3 * smaller * at_zero).all()


def test_from_other_labels_the_same_minimum_sooner(data, monkeypatch):
    X, Y = data
    steps = []
    one = LinearSVMs._newton_step
    monkeypatch.setattr(LinearSVMs, "_newton_step", lambda self, *args: steps.append(1) or one(self, *args))
    cold, _ = fit(X, Y)
    from_nothing = len(steps)
    almost = Y.copy()
    almost[:5] *= -1
    steps.clear()
    fit(X, almost)
    first = len(steps)
    warm, _ = fit(X, almost, Y)
    assert len(steps) - 2 * first < from_nothing
    for k in range(Y.shape[1]):
        assert value(X, Y[:, k], warm[:, k]) == pytest.approx(value(X, Y[:, k], cold[:, k]), rel=1e-4)


def test_a_few_steps_lower_the_objective_and_more_lower_it_further(data):
    X, Y = data
    values = [
        [value(X, Y[:, k], fit(X, Y, max_steps=steps)[0][:, k]) for k in range(Y.shape[1])] for steps in (1, 2, 4, 50)
    ]
    values.insert(0, [C * len(X)] * Y.shape[1])  # of w = 0
    assert (np.diff(values, axis=0) <= 1e-9 * C * len(X)).all()
    assert (np.diff(values, axis=0)[:2] < 0).all()


def test_scores_are_those_of_the_weights(data):
    X, Y = data
    W, Z = fit(X, Y)
    np.testing.assert_allclose(Z, X @ W[:-1] + W[-1], rtol=1e-9, atol=1e-9)


def test_threads_change_no_digit(data):
    X, Y = data
    X, Y = np.tile(X, (4, 1)).astype(np.float32), np.tile(Y, (4, 1))  # several blocks
    np.testing.assert_array_equal(fit(X, Y, threads=1)[0], fit(X, Y, threads=3)[0])


def test_labels_that_are_all_the_same(data):
    X, Y = data
    Y = Y.copy()
    Y[:, 0] = 1
    Y[:, 1] = -1
    _, Z = fit(X, Y)
    assert (Z[:, 0] > 0).all()
    assert (Z[:, 1] < 0).all()


def test_a_full_newton_step_that_goes_too_far_is_shortened(data, monkeypatch):
    """A step of three times the length would raise the objective."""
    X, Y = data
    one = LinearSVMs._newton_step
    monkeypatch.setattr(LinearSVMs, "_newton_step", lambda self, *args: tuple(3 * part for part in one(self, *args)))
    values = [[value(X, Y[:, k], fit(X, Y, max_steps=n)[0][:, k]) for k in range(Y.shape[1])] for n in range(1, 6)]
    values.insert(0, [C * len(X)] * Y.shape[1])
    assert (np.diff(values, axis=0) <= 1e-9 * C * len(X)).all()
