"""What defines SH."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hashlearn import LSH, SH
from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate
from hashlearn.hashers.sh import _sides, _smoothest
from reference.sh import spectral_hashing


def grid_of_a_box(sides, steps):
    """Points spread evenly over a box: the centers of equal cells, and its corners, which make it the whole box."""
    axes = [(np.arange(n) + 0.5) / n * side for side, n in zip(sides, steps, strict=True)]
    corners = np.stack(np.meshgrid(*[[0, side] for side in sides], indexing="ij"), axis=-1).reshape(-1, len(sides))
    return np.concatenate([np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(sides)), corners])


@pytest.fixture(scope="module")
def box():
    """A box of sides 1 and 0.6, turned and moved."""
    angle = 0.4
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return grid_of_a_box((1, 0.6), (300, 180)) @ turn + (5, -3), turn


def test_the_modes_of_a_box_by_hand(box):
    """k / side: 1, 2, 3, 4, 5 along the side of 1; 1.67, 3.33, 5 along that of 0.6."""
    X, turn = box
    hasher = SH(6).fit(X)
    assert list(zip(hasher.directions_.tolist(), hasher.modes_.tolist(), strict=True)) == [
        (0, 1),
        (1, 1),
        (0, 2),
        (0, 3),
        (1, 2),
        (0, 4),
    ]
    np.testing.assert_allclose(hasher.frequencies_, np.pi * np.array([1, 1 / 0.6, 2, 3, 2 / 0.6, 4]), rtol=1e-9)
    np.testing.assert_allclose(np.abs(turn @ hasher.components_[:, :2]), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(hasher.starts_[:2], (-0.5, -0.3), atol=1e-9)


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_bits_of_a_box_by_hand():
    """One feature from 0 to 8: a cosine of one, two and three half waves."""
    hasher = SH(3).fit(np.array([[0.0], [8.0]]))
    at = np.array([[0.0], [1], [3], [5], [7], [8]])
    np.testing.assert_array_equal(
        hasher.transform(at), [[1, 1, 1], [1, 1, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]]
    )
    expected = np.cos(np.pi / 8 * at * [1, 2, 3])
    np.testing.assert_allclose(hasher.decision_function(at), expected, atol=1e-12)
    # Beyond the box the waves go on: 8 + t is as 8 − t.
    np.testing.assert_array_equal(hasher.transform([[9.0], [11], [-1]]), hasher.transform([[7.0], [5], [1]]))


def test_eigenfunctions_of_a_box_are_balanced_and_uncorrelated(box):
    X, _ = box
    H = SH(8).fit(X).decision_function(X)
    np.testing.assert_allclose(H.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(H.T @ H / len(H), np.eye(8) / 2, atol=1e-3)


def test_eigenfunctions_solve_the_equation_with_flat_ends():
    """Φ'' = −ω²Φ, and Φ' = 0 at the ends, by differences."""
    hasher = SH(5).fit(grid_of_a_box((2.0,), (50,)))
    h, at = 1e-4, np.linspace(0.1, 1.9, 37)[:, None]
    before, here, after = (hasher.decision_function(at + step) for step in (-h, 0, h))
    np.testing.assert_allclose(
        (before - 2 * here + after) / h**2, -(hasher.frequencies_**2) * here, rtol=1e-4, atol=1e-4
    )
    ends = np.array([[0.0], [2.0]])
    slope = (hasher.decision_function(ends + h) - hasher.decision_function(ends - h)) / (2 * h)
    np.testing.assert_allclose(slope, 0, atol=1e-8)


@pytest.mark.parametrize(("n_bits", "n_features"), [(5, 64), (24, 64), (40, 6)])
def test_equals_its_literal_transcription(n_bits, n_features):
    X = np.roll(load_digits().data, -2, axis=1)[:300, :n_features]
    hasher = SH(n_bits).fit(X)
    pairs, values = spectral_hashing(X, n_bits, epsilon=5.0)
    assert list(zip(hasher.directions_, hasher.modes_, strict=True)) == pairs
    np.testing.assert_allclose(hasher.decision_function(X), values, atol=1e-8)


def test_ties_go_by_direction_then_mode_and_flat_sides_are_left_out():
    directions, modes = _smoothest(np.array([2.0, 0.0, 1.0, 1.0]), 7)
    assert directions.tolist() == [0, 0, 2, 3, 0, 0, 2]  # k / side: .5, 1, 1, 1, 1.5, 2, 2
    assert modes.tolist() == [1, 2, 1, 1, 3, 4, 2]


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_constant_features_and_equal_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2)).astype(np.float32)
    flat = np.concatenate([X, np.full((200, 3), 0.1, dtype=np.float32)], axis=1)
    hasher = SH(8).fit(flat)
    assert (hasher.directions_ < 2).all()
    assert (hasher.transform(flat) == SH(8).fit(X).transform(X)).mean() > 0.99
    # Nothing to tell apart: the constant, whose sign is +.
    for value in (0.1, 1e9 + 0.1, 0.0):
        equal = np.full((3001, 7), value)
        hasher = SH(9).fit(equal)
        assert not hasher.modes_.any()
        assert hasher.transform(equal).all()
        assert hasher.transform(equal + 1).all()


def test_a_side_that_is_only_rounding_counts_as_flat():
    a, b = np.array([1e-8, -1e-20, 0.0]), np.array([1e-8 * (1 + 4e-16), 1e-20, 0.0])
    np.testing.assert_array_equal(_sides(a, b, np.float64), [0, 2e-20, 0])


def test_beats_lsh_with_few_bits():
    X = load_digits().data
    train, queries = X[300:], X[:300]
    truth = Truth.neighbors(euclidean_neighbors(queries, train, 20))
    scores = {}
    for hasher in (SH(16), LSH(16, random_state=0)):
        hasher.fit(train)
        scores[hasher.name] = evaluate(hasher.encode(queries), hasher.encode(train), truth, n_bits=16).map
    assert scores["sh"] > 1.1 * scores["lsh"]
