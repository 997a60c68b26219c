"""UDH-DNN and SDH-DNN with solver="adam": estimates from batches, what training ends with, and its parameters."""

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

import hashlearn
from hashlearn import ITQ, SDHDNN, UDHDNN
from hashlearn.codes import signs
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._dnn import Lambdas
from hashlearn.hashers._init import eigen_layers
from hashlearn.hashers._network import Layer, Network, flatten
from hashlearn.hashers.sdh_dnn import Pairs
from hashlearn.hashers.udh_dnn import Discrete
from reference.gradients import check_by_differences

# Of about equal weight, so that an error in any term is seen.
LAMBDAS = Lambdas(0.1, 0.5, 0.3, 0.02)
SHORT = {"solver": "adam", "max_iter": 2, "epochs": 2, "random_state": 0}
both_methods = pytest.mark.parametrize("method", [UDHDNN, SDHDNN])
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.data, data.target


def in_order(function, items):
    return [function(item) for item in items]


def training(method, data, samples, L=6, units=(9, 8)):
    """J of these samples of the data, with a decoder that is not the best one, and parameters away from the start."""
    X, y = data
    X = (X - X.mean(axis=0)) / 5
    B = signs(ITQ(L, random_state=0).fit(X).decision_function(X)).astype(np.int8)
    sizes, rng = (64, *units, L), np.random.default_rng(0)
    theta = flatten(eigen_layers(Rows(X, np.zeros(64), 1.0, in_order), sizes, rng, np.cov(X.T, bias=True)))
    theta += 0.3 * rng.standard_normal(len(theta))
    rows = Rows(X[samples], np.zeros(64), 1.0, in_order)
    if method is SDHDNN:
        return Pairs(rows, Network(sizes), theta, B[samples], y[samples], LAMBDAS)
    J = Discrete(rows, Network(sizes), theta, B[samples], LAMBDAS, 0.3)
    J.decoder = Layer(rng.standard_normal((L, 64)), rng.standard_normal(64))
    return J


@both_methods
def test_gradient_of_a_batch(method, digits):
    J = training(method, digits, np.arange(700))
    batch = np.random.default_rng(1).permutation(700)[:300]
    layers = J.network.layers(J.theta)
    check_by_differences(lambda theta: J.objective(theta, batch), J.theta, layers, tolerance=1e-6)


@both_methods
def test_a_batch_stands_for_all_samples(method, digits):
    """J is estimated as if the batch, repeated, were all samples."""
    batch = np.arange(100, 390)
    J = training(method, digits, np.concatenate([batch] * 3))
    terms, gradient = J.objective(J.theta, np.arange(290))
    expected, slope = J.objective(J.theta)
    assert {name: pytest.approx(value, rel=1e-9) for name, value in expected.items()} == terms
    np.testing.assert_allclose(gradient, slope, rtol=1e-7, atol=1e-9)
    # Other samples are estimated from too, by their own rows, codes and classes.
    many = training(method, digits, np.random.default_rng(0).permutation(1797))
    parts = np.array_split(np.arange(1797), 3)
    estimates = [sum(many.objective(many.theta, part)[0].values()) for part in parts]
    assert np.mean(estimates) == pytest.approx(sum(many.objective(many.theta)[0].values()), rel=0.05)
    assert len(set(estimates)) == 3


# From the paper's start, SDH-DNN needs more steps of Adam than these.
@pytest.mark.parametrize(("method", "init"), [(UDHDNN, "eigen"), (UDHDNN, "itq"), (SDHDNN, "itq")])
@pytest.mark.parametrize("n_bits", [8, 32])
def test_it_gets_about_as_low_as_lbfgs(method, init, n_bits, digits):
    """Within 6 %: digits have few batches."""
    X, y = digits
    X = X.astype(np.float32)
    lbfgs, adam = (
        method(n_bits, solver=solver, init=init, random_state=0).fit(X, y).history_ for solver in ("lbfgs", "adam")
    )
    assert adam[-1]["objective"] < 1.06 * lbfgs[-1]["objective"]
    assert adam[-1]["objective"] < adam[0]["objective"]


@both_methods
def test_history_is_of_all_samples(method, digits):
    X, y = digits
    seen = []
    hasher = method(8, **SHORT, batch_size=100, callback=lambda hasher, _: seen.append(hasher.encode(X))).fit(X, y)
    assert len(seen) == len(hasher.history_) == 3
    assert (seen[0] != seen[-1]).any()
    np.testing.assert_array_equal(seen[-1], hasher.encode(X))
    record = hasher.history_[-1]
    assert record["evaluations"] == 2 * 18
    H = hasher.decision_function(X)
    expected = float(hasher.lambda3) / 2 * np.linalg.norm(H.T @ H / len(X) - np.eye(8)) ** 2
    assert record["independence"] == pytest.approx(expected, rel=1e-6)
    names = ("weights", "quantization", "independence", "balance")
    assert record["objective"] == pytest.approx(
        sum(record[n] for n in names) + record.get("pairs", 0) + record.get("reconstruction", 0)
    )


@both_methods
def test_epochs_by_default(method, digits):
    """250 batches at least: 63 epochs of 4 batches."""
    X, y = digits
    hasher = method(4, solver="adam", max_iter=1, random_state=0).fit(X, y)
    assert [record["evaluations"] for record in hasher.history_] == [252, 252]
    hasher.set_params(batch_size=10).fit(X, y)
    assert [record["evaluations"] for record in hasher.history_] == [540, 540]  # 3 epochs of 180


@both_methods
def test_threads_and_memory_maps_do_not_change_the_codes(method, digits, tmp_path, set_cores, set_free_memory):
    X, y = digits
    X = X.astype(np.float32)
    hasher = method(8, **SHORT)
    plain = hasher.fit(X, y).decision_function(X)
    set_cores(3)
    np.testing.assert_array_equal(hasher.fit(X, y).decision_function(X), plain)
    np.save(tmp_path / "x.npy", X)
    set_free_memory(0)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert Rows(mapped, np.zeros(64), 1.0, in_order).streamed
    np.testing.assert_array_equal(hasher.fit(mapped, y).decision_function(X), plain)


@both_methods
@pytest.mark.parametrize(
    "change",
    [
        {"solver": "lbfgs", "epochs": "auto"},
        {"epochs": 3},
        {"epochs": "auto"},
        {"batch_size": 100},
        {"learning_rate": 1e-3},
        {"init": "itq"},
        {"random_state": 1},
        {"lambda1": 1.0},
        {"lambda4": 1.0},
    ],
)
def test_every_option_changes_something(method, change, digits):
    X, y = digits
    plain, other = (method(8, **{**SHORT, **more}).fit(X, y).decision_function(X) for more in ({}, change))
    assert not np.allclose(plain, other)


@both_methods
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"solver": "sgd"}, "solver must be 'lbfgs' or 'adam'; got 'sgd'"),
        ({"solver": "adam", "lbfgs_iter": 50}, "lbfgs_iter has no effect for solver='adam'; leave it out, or at 100"),
        ({"solver": "adam", "lbfgs_memory": 5}, "lbfgs_memory has no effect for solver='adam'"),
        ({"epochs": 5}, "epochs has no effect for solver='lbfgs'; leave it out, or at 'auto'; got 5"),
        ({"batch_size": 100}, "batch_size has no effect for solver='lbfgs'"),
        ({"learning_rate": 0.1}, "learning_rate has no effect for solver='lbfgs'"),
        ({"solver": "adam", "epochs": 0}, "epochs must be 'auto', or a whole number of at least 1; got 0"),
        ({"solver": "adam", "batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"solver": "adam", "learning_rate": 0}, "learning_rate must be a number above 0"),
    ],
)
def test_bad_parameters(method, parameters, words, digits):
    with pytest.raises(ValueError, match=words):
        method(8, **parameters).fit(*digits)


@pytest.mark.parametrize("change", [{"constraint": "relaxed"}, {"decoder": "lbfgs"}])
def test_adam_has_the_exact_decoder_of_codes(change, digits):
    with pytest.raises(ValueError, match="solver must be 'lbfgs' for constraint='relaxed' and for decoder='lbfgs'"):
        UDHDNN(8, solver="adam", **change).fit(digits[0])


@both_methods
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_training_that_diverges_says_so(method, digits):
    hasher = method(8, **SHORT)
    with pytest.raises(ValueError, match="training diverged: choose a lower learning_rate"):
        hasher.set_params(learning_rate=1e300).fit(*digits)


@both_methods
def test_it_stops_early(method, digits):
    X, y = digits
    hasher = method(16, solver="adam", max_iter=30, validation=200, random_state=0).fit(X, y)
    found = [record["validation_map"] for record in hasher.history_]
    assert hasher.best_iter_ == len(found) - 2
    assert found[-1] <= found[-2]


@both_methods
def test_files_hold_what_is_not_the_default(method, digits, tmp_path):
    X, y = digits
    path = tmp_path / "model"
    names = ("solver", "epochs", "batch_size", "learning_rate")
    method(4, max_iter=1, lbfgs_iter=2, random_state=0).fit(X, y).save(path)
    with safe_open(path, "np") as file:
        text = "".join(file.metadata().values())
    assert not any(name in text for name in names)
    assert [getattr(hashlearn.load(path), name) for name in names] == [getattr(method(), name) for name in names]
    hasher = method(4, **SHORT, batch_size=300, learning_rate=0.01).fit(X, y)
    hasher.save(path)
    loaded = hashlearn.load(path)
    assert [getattr(loaded, name) for name in names] == ["adam", 2, 300, 0.01]
    np.testing.assert_array_equal(loaded.encode(X), hasher.encode(X))


@parametrize_with_checks([method(2, solver="adam", max_iter=1, epochs=1) for method in (UDHDNN, SDHDNN)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_training_that_diverges_is_an_error():
    X = np.random.default_rng(0).random((300, 20))
    with pytest.raises(ValueError, match="training diverged: choose a lower learning_rate"):
        UDHDNN(8, solver="adam", epochs=2, max_iter=2, learning_rate=1e3, random_state=0).fit(X)
