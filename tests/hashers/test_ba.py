"""The binary autoencoder: its steps against enumeration, its objective, its end."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import hashlearn
from hashlearn import BA, ITQ
from hashlearn.codes import signs_of
from hashlearn.hashers import ba as module
from hashlearn.hashers._rows import Rows
from hashlearn.hashers._svm import LinearSVMs
from hashlearn.threads import thread_map
from reference import ba as reference


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:700]


@pytest.fixture(scope="module")
def usual(X):
    """Trained as it is unless told otherwise."""
    return BA(16).fit(X)


@pytest.fixture
def training(X, request):
    """A training of so many bits, before its first Z step."""
    with thread_map(1) as threads:
        rows = Rows(X, X.mean(axis=0), 16.0, threads)
        B = signs_of(np.random.default_rng(0).standard_normal((len(X), request.param)))
        yield module._Training(rows, B, LinearSVMs(rows, 100.0), exact=request.param <= 16)


def total(training, X, mu):
    """E by its definition, not by the sums that the training keeps."""
    W, c = training.decoder
    V = (X - X.mean(axis=0)) / 16
    B, hX = training.B.astype(float), training.hX.astype(float)
    return np.sum((V - B @ W - c) ** 2) + mu / 4 * np.sum((B - hX) ** 2)


@pytest.mark.parametrize("training", [8, 16, 24], indirect=True)
@pytest.mark.parametrize("mu", [1e-4, 0.05, 1.0])
def test_no_step_raises_the_objective_while_the_penalty_is_held(training, mu, X):
    values = [total(training, X, mu)]
    for _ in range(4):
        for step in (lambda: training.code_step(mu), training.decoder_step, training.hash_step):
            step()
            values.append(total(training, X, mu))
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < values[0]
    assert training.objective(mu)["objective"] * len(X) == pytest.approx(values[-1])


@pytest.mark.parametrize(("training", "n"), [(2, 700), (5, 200), (8, 60), (10, 20)], indirect=["training"])
@pytest.mark.parametrize("mu", [1e-3, 0.3])
def test_the_z_step_finds_the_best_of_all_codes(training, n, mu, X):
    W, c = training.decoder
    hX, V = training.hX[:n].copy(), (X[:n] - X.mean(axis=0)) / 16
    training.code_step(mu)
    # Of codes 0/1: b = 2z − 1
    expected = reference.codes(V, (hX + 1) / 2, 2 * W, c - W.sum(axis=0), mu)
    np.testing.assert_array_equal(training.B[:n], 2 * expected - 1)


@pytest.mark.parametrize("training", [6], indirect=True)
def test_a_hash_function_that_errs_more_often_is_not_taken(training, monkeypatch):
    before, hX = training.A.copy(), training.hX.copy()
    wrong = np.zeros_like(before)
    wrong[-1] = -100.0  # all bits 0
    wrong[:, 2] = before[:, 2]
    monkeypatch.setattr(training.svms, "fit", lambda *args: wrong)
    training.B[:, :2] = 1
    training._count()
    training.hash_step()
    np.testing.assert_array_equal(training.A, before)
    np.testing.assert_array_equal(training.hX, hX)


def test_it_does_what_the_literal_algorithm_does(X):
    X = X[:300]
    with pytest.warns(ConvergenceWarning, match="has not settled after 4 iterations"):
        hasher = BA(4, mu=0.02, mu_factor=1.5, max_iter=4).fit(X)
    expected, error = reference.train(X, 4, 0.02, 1.5, 4)
    assert (hasher.transform(X) == expected).mean() > 0.99
    V = (X - X.mean(axis=0)) / hasher.range_
    B = 2.0 * hasher.transform(X) - 1
    assert np.sum((V - B @ hasher.decoder_ - hasher.decoder_offset_) ** 2) / len(X) == pytest.approx(error, rel=0.05)


def test_it_ends_where_codes_and_hash_functions_agree(X, usual):
    hasher = usual
    assert hasher.converged_
    assert hasher.history_[-1]["penalty"] == 0
    assert hasher.history_[-1]["flips"] == 0
    assert hasher.n_iter_ == len(hasher.history_) < hasher.max_iter
    # So the codes that the decoder was fitted to are those of the hash functions.
    V, B = (X - X.mean(axis=0)) / hasher.range_, 2.0 * hasher.transform(X) - 1
    error = np.sum((V - B @ hasher.decoder_ - hasher.decoder_offset_) ** 2) / len(X)
    assert error == pytest.approx(hasher.history_[-1]["reconstruction"], rel=1e-6)
    start = np.where(V @ np.linalg.svd(V, full_matrices=False)[2][:16].T >= 0, 1.0, -1.0)
    W, c = reference.decoder(V, start)
    assert error < 0.97 * np.sum((V - start @ W - c) ** 2) / len(X)


def test_penalties_grow_by_the_factor(X):
    history = BA(8, mu=0.1, mu_factor=1.5).fit(X).history_
    np.testing.assert_allclose([record["mu"] for record in history], 0.1 * 1.5 ** np.arange(len(history)))


@pytest.mark.filterwarnings("ignore:BA has not settled")
@pytest.mark.parametrize(
    "change",
    [
        {"init": "itq", "random_state": 0},
        {"mu": 0.1},
        {"mu_factor": 3.0},
        {"max_iter": 2},
        {"C": 0.1},
        {"z_step": "groups"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_option_changes_something(change, X, usual):
    assert (BA(16, **change).fit(X).transform(X) != usual.transform(X)).any()


def test_liblinear_gives_nearly_the_same(X):
    ours, theirs = BA(8).fit(X), BA(8, solver="liblinear").fit(X)
    assert (ours.transform(X) == theirs.transform(X)).mean() > 0.95
    last, other = ours.history_[-1]["reconstruction"], theirs.history_[-1]["reconstruction"]
    assert last == pytest.approx(other, rel=0.01)


def test_from_itq_it_begins_with_itqs_codes(X, monkeypatch):
    seen = []
    begin = module._Training.__init__

    def spy(self, rows, B, *args, **options):
        seen.append(B.copy())
        begin(self, rows, B, *args, **options)

    monkeypatch.setattr(module._Training, "__init__", spy)
    BA(8, init="itq", random_state=3).fit(X)
    BA(8).fit(X)
    np.testing.assert_array_equal(seen[0], 2 * ITQ(8, random_state=3).fit(X).transform(X).astype(np.int8) - 1)
    assert (seen[0] != seen[1]).any()


def test_place_and_size_of_the_data_do_not_matter(X):
    plain = BA(8).fit(X).transform(X)
    moved = 1024 * X + 4096
    assert (BA(8).fit(moved).transform(moved) == plain).mean() > 0.99


def test_a_start_from_principal_components_draws_nothing(X):
    np.testing.assert_array_equal(BA(8, random_state=0).fit(X).encode(X), BA(8, random_state=1).fit(X).encode(X))


@pytest.mark.parametrize("solver", ["newton", "liblinear"])
def test_samples_that_are_all_the_same(solver):
    X = np.full((20, 5), 3.0)
    assert len(np.unique(BA(3, solver=solver).fit(X).encode(X))) == 1


def test_summary_and_parameters(X, tmp_path):
    hasher = BA(8).fit(X)
    assert hasher.summary()["converged"] is True
    hasher.save(tmp_path / "model")
    assert hashlearn.load(tmp_path / "model").summary() == {}
    for bad, words in (
        ({"n_bits": 65}, r"for BA, whose codes start .* \(n_features=64\); got 65"),
        ({"mu": 0}, "mu must be a number above 0; got 0"),
        ({"mu_factor": 0.9}, r"mu_factor must be at least 1; got 0\.9"),
        ({"max_iter": 0}, "max_iter must be a whole number"),
        ({"C": -1}, "C must be a number above 0"),
        ({"solver": "sgd"}, "solver must be 'newton' or 'liblinear'; got 'sgd'"),
        ({"z_step": "magic"}, "z_step must be 'auto' or 'groups'"),
        ({"init": "random"}, "init must be 'pca' or 'itq'"),
        ({"show_progress": "yes"}, "show_progress must be"),
    ):
        with pytest.raises(ValueError, match=words):
            BA(**bad).fit(X)
