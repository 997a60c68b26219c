"""The binary autoencoder: its steps against enumeration, its objective, its end."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import hashlearn
from hashlearn import BA, ITQ
from hashlearn.codes import signs
from hashlearn.hashers import ba as module
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._svm import LinearSVMs
from hashlearn.threads import thread_map
from reference import ba as reference

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:700]


@pytest.fixture(scope="module")
def usual(X):
    """Trained as it is unless told otherwise."""
    return BA(16).fit(X)


@pytest.fixture(params=[np.float64])
def dtype(request):
    return request.param


@pytest.fixture
def training(X, request, dtype):
    """A training of so many bits, before its first Z step."""
    with thread_map(1) as threads:
        rows = Rows(X.astype(dtype), X.mean(axis=0), 16.0, threads)
        B = signs(np.random.default_rng(0).standard_normal((len(X), request.param)))
        yield module._Training(rows, B, LinearSVMs(rows, 100.0), exact=request.param <= 16)


def total(training, X, mu):
    """E by its definition, not by the sums that the training keeps."""
    W, c = training.decoder
    V = (X - X.mean(axis=0)) / 16
    B, hX = training.B.astype(float), training.hX.astype(float)
    return np.sum((V - B @ W - c) ** 2) + mu / 4 * np.sum((B - hX) ** 2)


@pytest.mark.parametrize("training", [8, 16, 24], indirect=True)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], indirect=True)
@pytest.mark.parametrize("mu", [1e-4, 0.05, 1.0])
def test_no_step_raises_the_objective_while_the_penalty_is_held(training, mu, X):
    values = [total(training, X, mu)]
    for _ in range(4):
        for step in (lambda: training.code_step(mu), training.decoder_step, training.hash_step):
            step()
            values.append(total(training, X, mu))
    assert (np.diff(values) <= (1e-9 if training.rows.dtype is np.float64 else 1e-6) * values[0]).all()
    assert values[-1] < values[0]
    assert training.objective(mu)["objective"] * len(X) == pytest.approx(values[-1], rel=1e-5)


@pytest.mark.parametrize(("training", "n"), [(2, 700), (5, 200), (8, 60), (10, 20)], indirect=["training"])
@pytest.mark.parametrize("mu", [1e-3, 0.3])
def test_the_z_step_finds_the_best_of_all_codes(training, n, mu, X):
    W, c = training.decoder
    hX, V = training.hX[:n].copy(), (X[:n] - X.mean(axis=0)) / 16
    training.code_step(mu)
    # Of codes 0/1: b = 2z − 1
    expected = reference.codes(V, (hX + 1) / 2, 2 * W, c - W.sum(axis=0), mu)
    np.testing.assert_array_equal(training.B[:n], 2 * expected - 1)


@pytest.mark.parametrize("training", [20], indirect=True)
def test_long_codes_start_from_the_better_of_the_old_and_the_relaxed(training, X, monkeypatch):
    monkeypatch.setattr(module, "descend_groups", lambda *args: None)
    mu, (W, c) = 0.05, training.decoder
    Q = ((X - X.mean(axis=0)) / 16 - c) @ W.T + mu / 4 * training.hX
    old, G = training.B.copy(), W @ W.T
    relaxed = signs(np.linalg.solve(G + mu / 4 * np.eye(20), Q.T).T)
    better = module.energies(Q, G, relaxed) < module.energies(Q, G, old)
    training.code_step(mu)
    np.testing.assert_array_equal(training.B, np.where(better[:, None], relaxed, old))
    assert better.any()


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
    with pytest.warns(ConvergenceWarning, match="has not converged after 4 iterations"):
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


@pytest.mark.filterwarnings("ignore:BA has not converged")
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
    np.testing.assert_array_equal(*(BA(8).fit(X).encode(X) for _ in range(2)))
    with pytest.raises(ValueError, match="random_state has no effect for init='pca', which draws nothing"):
        BA(8, random_state=0).fit(X)


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
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
        ({"n_bits": 65}, r"n_features=64, for BA, whose codes start .*; got 65"),
        ({"mu": 0}, "mu must be a number of at least 1e-09 and at most .*; got 0"),
        ({"mu": 1e-30}, "mu must be a number of .*; got 1e-30"),
        ({"C": 1e300}, "C must be a number of at least 1e-09 and at most 1e[+]09"),
        ({"mu_factor": 0.9}, r"mu_factor must be a number of at least 1; got 0\.9"),
        ({"max_iter": 0}, "max_iter must be a whole number"),
        ({"C": -1}, "C must be a number of"),
        ({"solver": "sgd"}, "solver must be 'newton' or 'liblinear'; got 'sgd'"),
        ({"z_step": "magic"}, "z_step must be 'auto' or 'groups'"),
        ({"init": "random"}, "init must be 'pca' or 'itq'"),
        ({"show_progress": "yes"}, "show_progress must be"),
    ):
        with pytest.raises(ValueError, match=words):
            BA(**bad).fit(X)


@pytest.mark.filterwarnings("ignore:BA has not converged")
@pytest.mark.parametrize("n_bits", [4, 12, 20])
@pytest.mark.parametrize("mu", [1e-9, 1e9])
def test_penalties_at_their_ends_on_data_of_few_directions(n_bits, mu):
    X = np.random.default_rng(0).standard_normal((100, 2)) @ np.ones((2, 24))
    for dtype in (np.float32, np.float64):
        hasher = BA(n_bits, mu=mu, mu_factor=1e30, max_iter=4).fit(X.astype(dtype))
        assert np.isfinite(hasher.components_).all()
        assert all(record["mu"] <= 1e9 for record in hasher.history_)


def test_liblinear_leaves_the_global_generator_alone_and_refuses_a_stream(X, tmp_path, set_free_memory):
    before = str(np.random.get_state())  # noqa: NPY002 - the one that must not move
    BA(4, solver="liblinear", max_iter=60).fit(X[:200])
    assert str(np.random.get_state()) == before  # noqa: NPY002
    np.save(tmp_path / "x.npy", X[:200])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    set_free_memory(0)
    with pytest.raises(ValueError, match="solver='liblinear' takes all samples in memory"):
        BA(4, solver="liblinear").fit(mapped)
    with pytest.warns(ConvergenceWarning):
        streamed = BA(4, max_iter=2).fit(mapped)
    with pytest.warns(ConvergenceWarning):
        np.testing.assert_array_equal(streamed.encode(X), BA(4, max_iter=2).fit(X[:200]).encode(X))
