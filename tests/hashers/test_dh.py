"""Deep Hashing: against a transcription with dense matrices, and what its objective and its steps promise."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import hashlearn
from hashlearn import DH
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._network import Network, flatten
from hashlearn.hashers._optim import gradient_descent
from hashlearn.hashers.dh import Lambdas, objective, start
from hashlearn.threads import thread_map
from reference import dh as reference
from reference.gradients import as_rows, check_by_differences

pytestmark = pytest.mark.slow

PAPER = Lambdas(100, 1e-3, 1e-3)
TERMS = ("quantization", "variance", "orthogonality", "weights")
unsettled = pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning")


def in_order(function, items):
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


def rows_of(digits, m=200, variance=32.0, dtype=np.float64, threads=in_order):
    X = digits[:m] - digits[:m].mean(axis=0)
    X = (X * np.sqrt(variance / X.var(axis=0).sum())).astype(dtype)
    return X, Rows(X, np.zeros(64), 1.0, threads)


def begin(X, sizes=(64, 12, 9, 6)):
    return flatten(start(np.cov(X.T, bias=True), sizes)), sizes


def network(sizes):
    return Network(sizes, "tanh", "tanh")


def as_columns(theta, sizes):
    """W and c as the paper writes them."""
    layers = network(sizes).layers(theta)
    return [W.T for W, _ in layers], [c[:, None] for _, c in layers]


# Every term alone (quantization has no weight: it is always there), and all together, of about equal weight too.
@pytest.mark.parametrize(
    "lambdas",
    [Lambdas(0, 0, 0), Lambdas(100, 0, 0), Lambdas(0, 1, 0), Lambdas(0, 0, 1), PAPER, Lambdas(0.7, 0.2, 0.3)],
)
@pytest.mark.parametrize("sizes", [(64, 12, 9, 6), (64, 6)])
def test_gradient(lambdas, sizes, digits):
    X, rows = rows_of(digits, m=60, variance=3.0)
    theta, _ = begin(X, sizes)
    theta = theta + 0.1 * np.random.default_rng(0).standard_normal(len(theta))
    terms, gradient = objective(rows, network(sizes), theta, lambdas)
    W, c = as_columns(theta, sizes)
    assert {name: pytest.approx(terms[name], rel=1e-10) for name in TERMS} == reference.terms(X.T, W, c, lambdas)
    np.testing.assert_allclose(gradient, as_rows(*reference.gradient(X.T, W, c, lambdas)), rtol=1e-9, atol=1e-12)
    layers = network(sizes).layers(theta)
    check_by_differences(lambda at: objective(rows, network(sizes), at, lambdas), theta, layers, tolerance=1e-7)


def test_the_objective_by_hand():
    """One feature, one unit, w = 2, c = 0: H = tanh(±2x)."""
    X = np.array([[0.5], [-0.25]])
    rows = Rows(X, np.zeros(1), 1.0, in_order)
    h = np.array([np.tanh(1.0), np.tanh(-0.5)])
    terms, gradient = objective(rows, network((1, 1)), np.array([2.0, 0.0]), Lambdas(10, 4, 3))
    assert terms["quantization"] == pytest.approx(((1 - h[0]) ** 2 + (-1 - h[1]) ** 2) / 4)
    assert terms["variance"] == pytest.approx(-10 / 4 * (h**2).sum())
    assert terms["orthogonality"] == pytest.approx(4 / 2 * (4 - 1) ** 2)
    assert terms["weights"] == pytest.approx(3 / 2 * 4)
    push = (h - [1, -1] - 10 * h) * (1 - h**2) / 2
    assert gradient[0] == pytest.approx(push @ X[:, 0] + 2 * 4 * 2 * (4 - 1) + 3 * 2)
    assert gradient[1] == pytest.approx(push.sum())


@unsettled
@pytest.mark.parametrize("block_rows", [37, 2048])
def test_same_codes_as_the_transcription(block_rows, digits, set_block_rows):
    set_block_rows(block_rows)
    X = digits[:150]
    hasher = DH(6, hidden_units=(20, 10), learning_rate=0.01, max_iter=6, scale=20, tol=0).fit(X)
    V = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).sum() / 20)
    W, c, history = reference.descend(V.T, (20, 10, 6), PAPER, 0.01, 6)
    assert len(hasher.history_) == len(history) == 7
    for record, terms in zip(hasher.history_, history, strict=True):
        assert {name: pytest.approx(record[name], rel=1e-7) for name in TERMS} == terms
        assert record["objective"] == pytest.approx(sum(terms.values()))
    H = reference.encode(V.T, W, c)[-1].T
    np.testing.assert_allclose(hasher.decision_function(X), H, atol=1e-6)
    np.testing.assert_array_equal(hasher.transform(X), H >= 0)
    first = reference.encode(V.T, *reference.initialize(V.T, (20, 10, 6)))[-1].T
    assert (hasher.transform(X) != (first >= 0)).any(), "training changes bits"


def test_it_starts_with_the_signs_of_the_principal_components(digits):
    X, rows = rows_of(digits)
    theta, sizes = begin(X)
    W, c = as_columns(theta, sizes)
    components = X @ reference.initialize(X.T, (6,))[0][0].T
    H = reference.encode(X.T, W, c)[-1].T
    np.testing.assert_allclose(H, np.tanh(np.tanh(np.tanh(components))), atol=1e-10)
    terms, _ = objective(rows, network(sizes), theta, PAPER)
    assert terms["orthogonality"] == pytest.approx(0, abs=1e-20)  # all directions are orthonormal


@pytest.mark.parametrize("lambdas", [PAPER, Lambdas(0, 0, 0), Lambdas(1, 1, 1)])
def test_the_objective_falls_with_every_small_step(lambdas, digits):
    X, rows = rows_of(digits)
    theta, sizes = begin(X)
    found = gradient_descent(lambda at: objective(rows, network(sizes), at, lambdas), theta, 1e-3)
    values = [sum(next(found)[1].values()) for _ in range(30)]
    assert all(b < a for a, b in pairwise(values))


def test_without_weights_a_step_is_of_quantization_alone(digits):
    X, rows = rows_of(digits)
    theta, sizes = begin(X)
    found = gradient_descent(lambda at: objective(rows, network(sizes), at, Lambdas(0, 0, 0)), theta, 0.1)
    (first, terms), (second, after) = next(found), next(found)
    np.testing.assert_array_equal(first, theta)
    assert [terms[name] for name in TERMS[1:]] == [0, 0, 0]
    assert after["quantization"] < terms["quantization"]
    W, c = as_columns(theta, sizes)
    np.testing.assert_allclose(
        second, theta - 0.1 * as_rows(*reference.gradient(X.T, W, c, (0, 0, 0))), rtol=1e-9, atol=1e-12
    )


def test_sgn_is_the_best_b(digits):
    """The quantization of any other B is larger: each entry of B = sgn(H) is the nearer of the two."""
    X, rows = rows_of(digits)
    theta, sizes = begin(X)
    H = reference.encode(X.T, *as_columns(theta, sizes))[-1]
    best = objective(rows, network(sizes), theta, PAPER)[0]["quantization"]
    rng = np.random.default_rng(0)
    for _ in range(20):
        B = np.where(rng.random(H.shape) < 0.01, -1, 1) * reference.sgn(H)
        assert np.sum((B - H) ** 2) / (2 * len(X)) > best


def test_the_number_of_threads_changes_not_one_digit(digits, set_block_rows):
    set_block_rows(100)
    found = []
    for n in (1, 2, 5):
        with thread_map(n) as threads:
            X, rows = rows_of(digits, m=1797, dtype=np.float32, threads=threads)
            theta, sizes = begin(X)
            found.append(objective(rows, network(sizes), theta, PAPER))
    for terms, gradient in found[1:]:
        assert terms == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


@unsettled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_memory_map_that_is_read_again_and_again_gives_the_same(dtype, digits, tmp_path, set_free_memory):
    X = digits.astype(dtype)
    np.save(tmp_path / "x.npy", X)
    expected = DH(8, max_iter=5).fit(X)
    set_free_memory(X.nbytes)
    mapped = DH(8, max_iter=5).fit(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert mapped.history_ == expected.history_
    np.testing.assert_array_equal(mapped.W1_, expected.W1_)


def test_float32_and_float64_agree_at_the_same_point(digits):
    (X, single), (_, double) = (rows_of(digits, m=1500, dtype=dtype) for dtype in (np.float32, np.float64))
    theta, sizes = begin(X)
    (terms, gradient), (expected, slope) = (objective(rows, network(sizes), theta, PAPER) for rows in (single, double))
    assert {name: pytest.approx(terms[name], rel=1e-5, abs=1e-9) for name in TERMS} == expected
    assert np.linalg.norm(gradient - slope) < 1e-5 * np.linalg.norm(slope)


@unsettled
def test_history_is_what_the_model_has(digits):
    X = digits[:300]
    hasher = DH(8, max_iter=4, tol=0).fit(X)
    assert hasher.n_iter_ == 4
    assert len(hasher.history_) == 5
    assert not hasher.converged_
    last = hasher.history_[-1]
    H = hasher.decision_function(X)
    assert last["quantization"] == pytest.approx(np.sum((1 - np.abs(H)) ** 2) / 600, rel=1e-6)
    assert last["variance"] == pytest.approx(-100 / 600 * np.sum(H**2), rel=1e-8)
    square = sum(np.sum(part**2) for layer in hasher.layers_ for part in layer)
    assert last["weights"] == pytest.approx(0.001 / 2 * square)
    assert hasher.summary() == {"objective": last["objective"], "iterations": 4, "converged": False}


def test_it_ends_when_the_objective_hardly_changes_and_says_if_it_has_not(digits):
    hasher = DH(8, learning_rate=0.01, max_iter=2000, tol=1e-3).fit(digits)
    values = [record["objective"] for record in hasher.history_]
    changes = np.abs(np.diff(values)) / np.abs(values[1:])
    assert hasher.converged_
    assert 2 < hasher.n_iter_ == len(changes) < 2000
    assert changes[-1] <= 1e-3 < changes[:-1].min()
    # Cut off where a step still changes it by a little more, or a little less, than 1 %.
    last = int(np.flatnonzero(changes <= 0.01)[0]) + 1
    assert hasher.set_params(max_iter=last).fit(digits).converged_
    with pytest.warns(
        ConvergenceWarning, match=r"DH has not converged: .* in the last of its \d+ steps \(max_iter="
    ) as warned:
        hasher.set_params(max_iter=last - 1).fit(digits)
    assert warned[0].filename == __file__, "it points at the line that called fit"
    assert not hasher.converged_


@unsettled
def test_lbfgs_gets_lower_in_as_many_iterations(digits):
    descent = DH(16, max_iter=20, tol=0).fit(digits)
    lbfgs = DH(16, solver="lbfgs", max_iter=20).fit(digits)
    values = [record["objective"] for record in lbfgs.history_]
    assert values[0] == descent.history_[0]["objective"]
    assert all(b < a for a, b in pairwise(values))
    assert values[-1] < descent.history_[-1]["objective"]
    H = lbfgs.decision_function(digits)
    assert lbfgs.history_[-1]["variance"] == pytest.approx(-100 / 2 * np.mean(np.sum(H**2, axis=1)), rel=1e-8)
    assert lbfgs.n_iter_ == len(values) - 1 <= 20


@pytest.mark.parametrize(
    ("n_bits", "n_features", "units"),
    [
        (16, 512, (60, 30)),
        (32, 512, (80, 50)),
        (64, 512, (100, 80)),
        (24, 512, (70, 40)),  # half way
        (48, 512, (90, 65)),
        (8, 512, (60, 30)),  # those of 16 below it
        (128, 512, (140, 140)),  # on the line from 32 to 64 bits: 140 in both
        (160, 512, (160, 170)),
        (32, 64, (64, 50)),  # no more units than features
        (60, 64, (64, 64)),
        (2, 2, (2, 2)),
    ],
)
def test_units_of_the_papers_table_and_between(n_bits, n_features, units):
    units = (units[0], min(units))  # nor more than the layer before
    assert DH()._auto_units(n_bits, n_features) == units


@unsettled
@pytest.mark.parametrize("units", [(), (10,), (30, 20, 10), [64, 8]])
def test_any_number_of_layers(units, digits, tmp_path):
    hasher = DH(8, hidden_units=units, max_iter=3).fit(digits)
    assert [len(layer.c) for layer in hasher.layers_] == [*units, 8]
    assert hasher.history_[-1]["objective"] < hasher.history_[0]["objective"]
    hasher.save(tmp_path / "model")
    np.testing.assert_array_equal(hashlearn.load(tmp_path / "model").encode(digits), hasher.encode(digits))
    assert hashlearn.load(tmp_path / "model").summary() == {}
    hasher.set_params(hidden_units=(16, 9))
    with pytest.raises(ValueError, match=r"hidden_units was changed to \(16, 9\) after fit learned"):
        hasher.save(tmp_path / "model")
    assert len(hasher.fit(digits).layers_) == 3


@unsettled
@pytest.mark.parametrize(
    "change",
    [
        {"hidden_units": (30, 20)},
        {"lambda1": 1.0},
        {"lambda2": 0.1},
        {"lambda3": 0.1},
        {"learning_rate": 0.02},
        {"solver": "lbfgs"},
        {"max_iter": 4},
        {"tol": 0.5},
        {"scale": 5.0},
        {"scale": None},
    ],
)
def test_every_option_changes_something(change, digits):
    base = {"max_iter": 3} if "solver" in change else {"max_iter": 3, "learning_rate": 0.01, "tol": 0}
    plain = DH(8, **base).fit(digits).decision_function(digits)
    other = DH(8, **{**base, **change}).fit(digits).decision_function(digits)
    assert not np.allclose(plain, other, atol=1e-6)


@unsettled
def test_scales(digits):
    X = digits.astype(np.float32) * 3 + 100
    fixed, plain = (DH(4, scale=scale, max_iter=1).fit(X) for scale in (7.0, None))
    np.testing.assert_allclose(fixed.offset_, X.mean(axis=0), rtol=1e-6)
    assert ((X - fixed.offset_) / fixed.scale_).var(axis=0).sum() == pytest.approx(7, rel=1e-5)
    assert plain.scale_ == 1


@unsettled
def test_scale_and_offset_of_the_data_do_not_matter(digits):
    short = {"max_iter": 3, "learning_rate": 0.01}
    a = DH(8, **short).fit(digits).transform(digits)
    b = DH(8, **short).fit(digits * 1000 - 5).transform(digits * 1000 - 5)
    assert (a == b).mean() > 0.999


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@unsettled
def test_odd_data(digits):
    equal = np.ones((10, 5))
    assert np.ptp(DH(3).fit(equal).encode(equal)) == 0
    for X in (digits[:3], digits * 1e100, digits * 1e-100, (digits * 1e15).astype(np.float32)):
        assert np.isfinite(DH(8).fit(X).decision_function(X)).all()
    assert np.isfinite(DH(8, scale=None).fit(digits * 1e100).decision_function(digits * 1e100)).all()
    with pytest.raises(ValueError, match="X has values whose squares are beyond float32"):
        DH(4).fit((digits * 1e30).astype(np.float32))
    with pytest.raises(ValueError, match="X has values whose squares vanish in float32; multiply it first"):
        DH(4).fit((digits * 1e-30).astype(np.float32))


@unsettled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [3.0, 1e6])
def test_weights_that_run_away_are_called_back(rate, dtype, digits):
    hasher = DH(8, learning_rate=rate, max_iter=20, tol=0).fit(digits.astype(dtype))
    values = [record["objective"] for record in hasher.history_]
    assert max(values) == values[0]
    assert np.isfinite(values).all()
    assert values[-1] < values[0]


def test_a_rate_is_halved_until_the_step_is_below_the_start():
    """J = θ², from θ = 1: θ ← (1 − 2η) θ ends above 1 for η = 8, 4, 2, on 1 for η = 1, below for 1/2."""
    seen = []

    def square(theta):
        seen.append(float(theta[0]))
        return {"square": float(theta @ theta)}, 2 * theta

    found = gradient_descent(square, np.ones(1), 8.0)
    assert [float(next(found)[0][0]) for _ in range(3)] == [1, -1, 1]
    assert seen == [1, -15, -7, -3, -1, 1]
    found = gradient_descent(square, np.ones(1), 0.25)
    assert [float(next(found)[0][0]) for _ in range(3)] == [1, 0.5, 0.25]


def test_what_is_not_finite_at_the_start_is_refused(digits):
    for solver in ("descent", "lbfgs"):
        with pytest.raises(ValueError, match="DH can't be trained: the objective is not finite"):
            DH(8, lambda1=1e308, solver=solver).fit(digits)
    with pytest.raises(ValueError, match=r"every rate down to .* ends above the start; make learning_rate"):
        DH(8, learning_rate=1e300).fit(digits)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_bits": 65}, "n_bits must be at most the number of features, n_features=64, for DH"),
        (
            {"hidden_units": "many"},
            "hidden_units must be 'auto' or a list of .*; got 'many'",
        ),
        ({"hidden_units": 30}, "hidden_units must be 'auto' or a list"),
        ({"hidden_units": (30, 0)}, "hidden_units must be 'auto' or a list of whole numbers, of at least 1"),
        (
            {"hidden_units": (30, 7)},
            r"hidden_units must be at least n_bits \(8\) and at most .* \(30\) for DH.*; got 7",
        ),
        ({"hidden_units": (30, 31)}, r"hidden_units must be at least n_bits .* \(30\) for DH.*; got 31"),
        ({"hidden_units": (65, 31)}, r"hidden_units must be at least n_bits .* \(64\) for DH.*; got 65"),
        ({"lambda1": -1}, "lambda1 must be a number of at least 0; got -1"),
        ({"lambda2": np.nan}, "lambda2 must be a number of at least 0; got nan"),
        ({"lambda3": "1"}, "lambda3 must be a number"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0; got 0"),
        ({"solver": "sgd"}, "solver must be 'descent' or 'lbfgs'; got 'sgd'"),
        ({"tol": -1e-3}, "tol must be a number of at least 0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"scale": 0}, "scale must be None or a number of at least 1e-30 and at most .*; got 0"),
        ({"scale": 1e300}, r"scale must be None or a number of at least 1e-30 and at most 1e\+30; got 1e\+300"),
        ({"scale": "range"}, "scale must be None or a number of .*; got 'range'"),
        ({"show_progress": 3}, "show_progress must be"),
    ],
)
def test_bad_parameters(parameters, words, digits):
    with pytest.raises(ValueError, match=words):
        DH(**{"n_bits": 8, **parameters}).fit(digits)


@unsettled
def test_a_step_that_raises_the_objective_a_little_is_no_end(digits):
    """At the default rate it goes up and down; a small change is an end only if it goes down."""
    hasher = DH(16, max_iter=60).fit(digits)
    values = np.array([record["objective"] for record in hasher.history_])
    changes = np.diff(values) / np.abs(values[1:])
    assert (changes > 0).any()
    assert ((changes[:-1] < -hasher.tol) | (changes[:-1] > 0)).all()


@unsettled
def test_training_finds_classes_better_than_its_start():
    from hashlearn.evaluation import Truth, evaluate

    X, y = load_digits(return_X_y=True)
    truth = Truth.labels(y[:300], y[300:])

    def found(max_iter, **options):
        hasher = DH(32, max_iter=max_iter, **options).fit(X[300:])
        return evaluate(hasher.encode(X[:300]), hasher.encode(X[300:]), truth, n_bits=32).map

    assert found(10) > 1.5 * found(1, learning_rate=1e-9)


def test_nothing_is_drawn():
    assert not DH.draws()
