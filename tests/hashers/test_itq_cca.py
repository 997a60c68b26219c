"""What defines ITQ-CCA."""

import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hashlearn import ITQ, ITQCCA
from hashlearn.evaluation import Truth, evaluate
from hashlearn.hashers.itq_cca import directions
from reference.itq_cca import cca, itq


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def learned_directions(X, y, regularization):
    """Directions and correlations, and the ridge that they were found with."""
    C = np.cov(X.T, bias=True)
    counts = np.bincount(y)
    M = np.stack(
        [(X[y == k].mean(axis=0) - X.mean(axis=0)) * np.sqrt(n / len(X)) for k, n in enumerate(counts)], axis=1
    )
    return directions(C, M, regularization), C, regularization * np.trace(C) / len(C)


@pytest.mark.parametrize("regularization", [1e-4, 1e-1])
def test_directions_equal_the_textbook_solution(digits, regularization):
    X, y = digits
    (W, rho), _, ridge = learned_directions(X, y, regularization)
    expected, correlations = cca(X, np.eye(10)[y], ridge)
    assert W.shape == (64, 9)
    np.testing.assert_allclose(rho, correlations[:9], rtol=1e-6)
    assert correlations[9:].max() < 1e-3  # no others
    np.testing.assert_allclose(np.abs(W), np.abs(expected[:, :9]), atol=1e-6)


def test_directions_solve_the_eigenproblem_and_are_orthonormal(digits):
    X, y = digits
    (W, rho), C, ridge = learned_directions(X, y, 1e-3)
    held = C + ridge * np.eye(64)
    between = sum((y == k).mean() * np.outer(*[X[y == k].mean(axis=0) - X.mean(axis=0)] * 2) for k in range(10))
    np.testing.assert_allclose(between @ W, held @ W * rho**2, atol=1e-8 * np.abs(between).max())
    np.testing.assert_allclose(W.T @ held @ W, np.eye(9), atol=1e-9)
    assert (np.diff(rho) <= 0).all()


def test_rounding_makes_no_direction(digits):
    """The classes' means add up to 0 but for rounding, which is far from 0 in float32."""
    X, y = digits
    assert len(ITQCCA(32, random_state=0).fit((1000 * X).astype(np.float32) + 3e6, y).correlations_) == 9


def test_two_classes_by_hand():
    """One feature says the class, another is noise that is orthogonal to it: ρ = 1 along the first alone."""
    X = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    hasher = ITQCCA(1, regularization=1e-9, random_state=0).fit(X, ["a", "a", "b", "b"])
    np.testing.assert_allclose(hasher.correlations_, [1], rtol=1e-6)
    assert abs(hasher.components_[0, 0]) > 1e6 * abs(hasher.components_[1, 0])
    codes = hasher.transform(X)[:, 0]
    assert codes[0] == codes[1] != codes[2] == codes[3]


def random_rotation(L, seed):
    """Uniform over all rotations: Q of a Gaussian matrix, signs fixed by R's diagonal."""
    Q, T = np.linalg.qr(np.random.default_rng(seed).standard_normal((L, L)))
    return Q * np.sign(np.diag(T))


@pytest.mark.parametrize("n_bits", [4, 9])
def test_fit_equals_cca_then_itq(digits, n_bits):
    X, y = digits
    hasher = ITQCCA(n_bits, max_iter=7, random_state=3).fit(X, y)
    (W, rho), _, _ = learned_directions(X, y, 1e-4)
    P = (W * rho)[:, :n_bits]
    R = itq((X - X.mean(axis=0)) @ P, random_rotation(n_bits, 3), 7)
    np.testing.assert_allclose(hasher.components_, P @ R, atol=1e-8)
    np.testing.assert_allclose(hasher.correlations_, rho[:n_bits])


def test_bits_beyond_the_directions_are_those_of_directions_of_no_correlation(digits):
    """24 bits of 9 directions: the same as with 15 more that were multiplied by 0."""
    X, y = digits
    hasher = ITQCCA(24, max_iter=6, random_state=3).fit(X, y)
    (W, rho), _, _ = learned_directions(X, y, 1e-4)
    P = np.hstack([W * rho, np.zeros((64, 15))])
    V = (X - X.mean(axis=0)) @ P
    R = itq(V, random_rotation(24, 3), 6)
    np.testing.assert_allclose(hasher.components_, P @ R, atol=1e-8)
    assert hasher.summary() == {"samples": 1797, "classes": 10, "directions": 9}


def test_the_quantization_loss_never_rises(digits):
    X, y = digits
    for n_bits in (6, 9, 32):
        losses = ITQCCA(n_bits, random_state=0).fit(X, y).quantization_loss_
        assert len(losses) == 50
        assert (np.diff(losses) <= 1e-9).all()
        assert losses[-1] < losses[0]


def test_scale_and_shift_of_the_data_do_not_matter(digits):
    X, y = digits
    a, b = (ITQCCA(16, random_state=0).fit(data, y) for data in (X, 1000 * X - 7))
    assert (a.transform(X) == b.transform(1000 * X - 7)).mean() > 0.999


def test_names_of_labels_do_not_matter(digits):
    X, y = digits
    a = ITQCCA(12, random_state=0).fit(X, y)
    b = ITQCCA(12, random_state=0).fit(X, [f"class {9 - label}" for label in y])
    assert (a.transform(X) == b.transform(X)).mean() > 0.999


def test_so_many_samples_of_a_class(digits):
    X, y = digits
    hasher = ITQCCA(12, samples_per_class=50, random_state=0).fit(X, y)
    assert hasher.class_counts_.tolist() == [50] * 10
    assert np.bincount(y[hasher.samples_]).tolist() == [50] * 10
    np.testing.assert_allclose(hasher.mean_, X[hasher.samples_].mean(axis=0))
    assert len(ITQCCA(12, random_state=0).fit(X, y).samples_) == len(X)


def test_held_out_digits_are_found_by_class_better_than_by_itq(digits):
    X, y = digits
    truth = Truth.labels(y[:300], y[300:])
    for n_bits in (8, 32):
        scores = {}
        for hasher in (ITQCCA(n_bits, random_state=0).fit(X[300:], y[300:]), ITQ(n_bits, random_state=0).fit(X[300:])):
            codes = hasher.encode(X[:300]), hasher.encode(X[300:])
            scores[hasher.name] = evaluate(*codes, truth, n_bits=n_bits).map
        assert scores["itq-cca"] > scores["itq"] + 0.1


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"regularization": 0}, "regularization must be a number above 0; got 0"),
        ({"regularization": "some"}, "regularization must be a number above 0; got 'some'"),
        ({"samples_per_class": 0}, "samples_per_class must be None or a whole number of at least 1; got 0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"show_progress": 3}, "show_progress must be None or True or False; got 3"),
    ],
)
def test_bad_parameters_are_refused(parameters, words, digits):
    with pytest.raises(ValueError, match=words):
        ITQCCA(8, **parameters).fit(*digits)


def test_memory_with_many_classes_of_few_features():
    """5,000 classes of 8 samples of 4 features: one-hot they would be 800 MB."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40_000, 4)).astype(np.float32), np.arange(40_000) % 5000
    tracemalloc.start()
    ITQCCA(8, max_iter=2, random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_odd_data(digits):
    X, y = digits
    with pytest.raises(ValueError, match="regularization is too small for these data; got 1e-300"):
        ITQCCA(8, regularization=1e-300).fit(np.hstack([X, X]), y)
    with pytest.raises(ValueError, match="ITQ-CCA learns from samples of at least 2 classes; got 1: 3"):
        ITQCCA(8).fit(X[:50], [3] * 50)
    # Nothing to tell the classes by.
    same = ITQCCA(8, random_state=0).fit(np.ones((20, 5)), [0, 1] * 10)
    assert len(np.unique(same.encode(np.ones((4, 5))), axis=0)) == 1
    # A class for each sample; fewer samples than features; more bits than features.
    each = ITQCCA(70, random_state=0).fit(X[:40], np.arange(40))
    assert np.isfinite(each.components_).all()
    assert (each.correlations_ <= 1).all()
    # Features that never vary, and the same feature twice.
    twice = np.hstack([X, X, np.ones((len(X), 3))]).astype(np.float32)
    assert np.isfinite(ITQCCA(16, random_state=0).fit(twice, y).components_).all()
