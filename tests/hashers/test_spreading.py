"""Labels that spread along the graph of neighbors."""

import numpy as np
import pytest

from hashlearn.hashers import _spreading
from hashlearn.hashers._spreading import spread_labels, trusted_share
from hashlearn.hashers._targets import checked_targets


def moons(n=300, seed=0):
    """Two half circles, whose points are nearer to each other along the arc than across; their classes; neighbors."""
    rng = np.random.default_rng(seed)
    angle, y = rng.uniform(0, np.pi, n), np.arange(n) % 2
    X = np.column_stack([np.cos(angle) + y, np.sin(angle) * np.where(y, -1, 1) + 0.3 * y])
    X += 0.02 * rng.standard_normal(X.shape)
    neighbors = np.argsort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)[:, 1:8].astype(np.int32)
    return X, y, neighbors


def with_labels(y, rows):
    hidden = np.full(len(y), -1)
    hidden[rows] = y[rows]
    return checked_targets(hidden, len(y), "LabelHash")


def test_labels_spread_along_the_arcs():
    X, y, neighbors = moons()
    order = np.argsort(X[:, 0])
    rows = np.concatenate([order[y[order] == 0][:15], order[y[order] == 1][-15:]])  # at the far ends
    spread = spread_labels(with_labels(y, rows), neighbors, np.random.default_rng(0))
    assert len(spread.labeled) > 0.5 * len(y)
    found = spread.of(spread.labeled, float)
    assert (found.sum(axis=1) == 1).all()
    assert (found.argmax(axis=1) == y[spread.labeled]).mean() > 0.97
    # The nearest labeled sample says less.
    nearest = rows[np.linalg.norm(X[:, None] - X[rows], axis=2).argmin(axis=1)]
    assert (y[nearest] == y).mean() < 0.9


def test_known_labels_stay():
    _, y, neighbors = moons()
    wrong = np.where(np.arange(len(y)) == 0, 1 - y, y)
    spread = spread_labels(with_labels(wrong, np.arange(40)), neighbors, np.random.default_rng(0))
    np.testing.assert_array_equal(spread.of(np.arange(40), float).argmax(axis=1), wrong[:40])


def test_nothing_is_guessed_if_guesses_are_wrong():
    _, y, neighbors = moons()
    random = np.random.default_rng(3).permutation(y)  # labels that have nothing to do with neighbors
    targets = with_labels(random, np.arange(100))
    spread = spread_labels(targets, neighbors, np.random.default_rng(0))
    np.testing.assert_array_equal(spread.labeled, targets.labeled)
    np.testing.assert_array_equal(spread.Y.toarray(), targets.Y.toarray())


def test_samples_of_several_classes_are_left_alone():
    _, y, neighbors = moons()
    Y = np.full((len(y), 2), -1)
    Y[:40] = np.eye(2)[y[:40]]
    Y[3] = 1
    targets = checked_targets(Y, len(y), "LabelHash")
    assert spread_labels(targets, neighbors, np.random.default_rng(0)) is targets


def test_the_trusted_share_by_hand(monkeypatch):
    monkeypatch.setattr(_spreading, "_LEAST", 2)
    shares = np.array([0.5, 0.9, 0.6, 0.8])
    assert trusted_share(shares, np.array([True, True, True, True])) == 0.5
    assert trusted_share(shares, np.array([True, True, False, True])) == 0.8
    assert trusted_share(shares, np.array([True, False, True, True])) == np.inf
    assert trusted_share(np.empty(0), np.empty(0, dtype=bool)) == np.inf


def test_one_step_of_spreading_equals_its_formula(monkeypatch):
    monkeypatch.setattr(_spreading, "_ITERATIONS", 1)
    neighbors = np.array([[1], [2], [1]])  # 0 – 1 – 2: degrees 1, 2, 1
    targets = with_labels(np.array([0, 1, 1]), np.array([0, 2]))
    guesses, shares = _spreading._spread(_spreading._similarities(neighbors), targets.Y, np.array([0, 2]))
    np.testing.assert_array_equal(guesses[[0, 2]], [0, 1])
    assert shares == pytest.approx([1, 0.5, 1])  # 1 hears as much from both sides


def test_classes_in_blocks_give_the_same(monkeypatch):
    _, y, neighbors = moons()
    classes = 2 * y + (np.arange(len(y)) % 4 > 1)
    targets, S = with_labels(classes, np.arange(80)), _spreading._similarities(neighbors)
    expected = _spreading._spread(S, targets.Y, targets.labeled)
    monkeypatch.setattr(_spreading, "_CLASSES", 1)
    guesses, shares = _spreading._spread(S, targets.Y, targets.labeled)
    np.testing.assert_array_equal(guesses, expected[0])
    np.testing.assert_allclose(shares, expected[1], rtol=1e-12)
