"""Gradient descent, L-BFGS and Adam on objectives whose minimum is known."""

import itertools

import numpy as np
import pytest

from hashlearn.hashers._optim import adam, count_steps, gradient_descent, lbfgs, train_by_batches, warm_up_and_fall

A = np.diag([1.0, 10.0, 0.1])
CENTER = np.array([1.0, -2.0, 3.0])


def bowl(theta):
    """½ (θ − center)ᵀ A (θ − center), in two terms."""
    d = theta - CENTER
    square = 0.5 * d @ A @ d
    return {"one": 0.25 * square, "other": 0.75 * square}, A @ d


def test_lbfgs_finds_the_minimum_and_reports_each_iteration():
    steps = []
    minimum = lbfgs(bowl, np.zeros(3), 50, steps.append)
    np.testing.assert_allclose(minimum.theta, CENTER, atol=1e-6)
    assert minimum.converged
    assert sum(steps) == 50  # what is left of the budget is reported at the end
    assert minimum.terms == bowl(minimum.theta)[0]
    assert minimum.evaluations >= 3


def test_lbfgs_ends_at_the_lowest_point_it_has_seen():
    seen = []

    def noted(theta):
        terms, gradient = bowl(theta)
        seen.append(sum(terms.values()))
        return terms, gradient

    minimum = lbfgs(noted, np.zeros(3), 2)
    assert not minimum.converged
    assert sum(minimum.terms.values()) == min(seen)


def test_the_memory_of_lbfgs_has_an_effect():
    def valley(theta):  # Rosenbrock's, in ten dimensions
        a, b = theta[1:] - theta[:-1] ** 2, 1 - theta[:-1]
        gradient = np.zeros(len(theta))
        gradient[1:] += 200 * a
        gradient[:-1] -= 400 * theta[:-1] * a + 2 * b
        return {"value": float(100 * a @ a + b @ b)}, gradient

    short, long = (lbfgs(valley, np.zeros(10), 15, memory=memory).terms["value"] for memory in (1, 20))
    assert short != long


def test_gradient_descent_takes_the_steps_of_the_formula():
    points = [theta for theta, _ in itertools.islice(gradient_descent(bowl, np.zeros(3), 0.05), 4)]
    expected = np.zeros(3)
    for theta in points:
        np.testing.assert_allclose(theta, expected, rtol=1e-12)
        expected = expected - 0.05 * A @ (expected - CENTER)


def adam_by_hand(gradients, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Algorithm 1 of the paper, word for word, from θ = 0."""
    theta, m, v = 0.0, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        theta -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return theta


def test_adam_equals_the_paper_algorithm():
    gradients = [1.0, -0.5, 3.0, 0.25]
    steps = adam(lambda theta, g: ({"value": g}, np.array([g])), np.zeros(1), gradients, rate=0.1)
    points = [(float(theta[0]), terms["value"]) for theta, terms in steps]
    for t, (theta, value) in enumerate(points, 1):
        assert theta == pytest.approx(adam_by_hand(gradients[:t], 0.1), rel=1e-12)
        assert value == gradients[t - 1]


def test_adam_takes_its_rate_from_a_schedule_and_its_type_from_the_start():
    gradients = np.array([1.0, -0.5, 3.0, 0.25])
    rates = {1: 0.1, 2: 0.3, 3: 0.2, 4: 0.0}
    steps = adam(lambda theta, g: ({}, np.array([g])), np.zeros(1, np.float32), gradients, rate=rates.__getitem__)
    points = [theta.copy() for theta, _ in steps]
    assert {point.dtype for point in points} == {np.dtype(np.float32)}
    at_one = [adam_by_hand(gradients[:t], 1.0) for t in range(5)]
    expected = np.cumsum([rates[t] * (at_one[t] - at_one[t - 1]) for t in range(1, 5)])
    np.testing.assert_allclose(np.concatenate(points), expected, rtol=1e-6)


def test_adam_lowers_an_objective_and_leaves_its_start_alone():
    start = np.zeros(3)
    *_, (theta, _) = adam(lambda theta, _: bowl(theta), start, range(2000), rate=0.05)
    np.testing.assert_allclose(theta, CENTER, atol=1e-3)
    assert not start.any()


def test_the_rate_rises_to_its_highest_and_falls():
    rates = [warm_up_and_fall(t, 100) for t in range(1, 101)]
    assert rates.index(max(rates)) == 9
    assert rates[9] == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert 0 < rates[-1] < 0.001
    assert warm_up_and_fall(1, 1) == 1.0


def by_batches(gradients, **options):
    fixed = {"name": "test", "show_progress": False, "advice": "rest"}
    return train_by_batches(
        lambda theta, g: ({"one": g, "other": -2 * g}, np.array([g])), np.zeros(1), gradients, **fixed, **options
    )


def test_training_by_batches_is_adam_with_a_schedule_and_keeps_the_means_of_each_epoch():
    gradients = [1.0, 3.0, -0.5, 0.25, 8.0]
    theta, history = by_batches(gradients, n_steps=5, steps_an_epoch=2, rate=0.1)
    *_, (expected, _) = adam(
        lambda theta, g: ({}, np.array([g])), np.zeros(1), gradients, rate=lambda t: 0.1 * warm_up_and_fall(t, 5)
    )
    np.testing.assert_array_equal(theta, expected)
    assert [epoch["one"] for epoch in history] == [2.0, -0.125, 8.0]
    assert [epoch["other"] for epoch in history] == [-4.0, 0.25, -16.0]
    assert all(epoch["seconds"] >= 0 for epoch in history)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_training_by_batches_that_diverges_is_an_error():
    with pytest.raises(ValueError, match=r"^training diverged: rest\.$"):
        by_batches([1.0, np.nan], n_steps=2, steps_an_epoch=1, rate=0.1)
    drawn = []
    with pytest.raises(ValueError, match="diverged"):
        by_batches((drawn.append(t) or np.nan for t in range(100)), n_steps=100, steps_an_epoch=4, rate=0.1)
    assert len(drawn) == 4  # known after an epoch


def test_the_steps_of_epochs_are_counted():
    assert count_steps(60_000, 1000, 2.5) == 150
    assert count_steps(100, 1000, 1e-3) == 1
    assert count_steps(60_000, 1000, "auto") == 1200
    assert count_steps(1000, 1000, "auto") == 300
