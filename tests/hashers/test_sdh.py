"""What defines SDH."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits

import hashlearn
from hashlearn import ITQ, SDH
from hashlearn.errors import ModelFileError
from hashlearn.evaluation import Truth, evaluate
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._discrete import energies
from hashlearn.hashers._kernel import kernel_steps
from hashlearn.hashers.sdh import Lambdas, Training
from hashlearn.hashers.steps import compile_steps, unit_rows
from hashlearn.threads import thread_map
from reference.sdh import objective, rbf, sdh

LAMBDAS = Lambdas(nu=1e-2, g=1.0, f=1e-2)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def small(digits):
    """Vectors, anchors, classes, Φ and first codes of 8 bits, in float64."""
    X, y = digits[0][:150] / 16, digits[1][:150]
    anchors = X[::10]
    F = np.hstack([rbf(X, anchors, 1.5), np.ones((150, 1))])
    B = np.where(np.random.default_rng(0).random((150, 8)) < 0.5, 1, -1).astype(np.int8)
    return X, y, anchors, F, B


@pytest.fixture(params=[7, 2048])
def training(request, small, set_block_rows):
    """In blocks of 7 samples, and in one."""
    set_block_rows(request.param)
    X, y, anchors, _, B = small
    with thread_map() as threads:
        rows = Rows(X, np.zeros(X.shape[1]), 1.0, threads)
        yield Training(rows, compile_steps(kernel_steps(anchors, 2 * 1.5**2), np.float64), B.copy(), y, 10, LAMBDAS)


@pytest.mark.parametrize("restart", [False, True])
def test_steps_equal_the_transcription(small, training, restart):
    _, y, _, F, B = small
    expected_B, expected_W, expected_P, expected = sdh(F, np.eye(10)[y], B, *LAMBDAS, 4, restart)
    found = []
    for _ in range(4):
        training.code_step(restart=restart)
        found.append(training.objective())
        training.classifier_step()
        found.append(training.objective())
        training.hash_step()
        found.append(training.objective())
    np.testing.assert_array_equal(training.B, expected_B)
    np.testing.assert_allclose(training.W, expected_W, atol=1e-9)
    np.testing.assert_allclose(training.P, expected_P, atol=1e-6)
    np.testing.assert_allclose(np.array(found) * 150, expected, rtol=1e-9)


def test_the_objective_from_sums_equals_the_dense_one(small, training):
    _, y, _, F, B = small
    assert training.objective() * 150 == pytest.approx(
        objective(np.eye(10)[y], B, training.W, F, training.P, *LAMBDAS), rel=1e-12
    )


def test_the_objective_falls_at_every_step(digits):
    X, y = digits
    for n_bits in (8, 16, 48):
        hasher = SDH(n_bits, nu=1e-2, max_iter=8, n_anchors=200, random_state=1).fit(X, y)
        steps = [record[name] for record in hasher.history_ for name in ("codes", "classifier", "hash_functions")]
        assert len(steps) >= 6
        assert all(after <= before + 1e-12 for before, after in pairwise(steps))
        assert steps[-1] < steps[0]


def test_from_zeros_the_objective_rises(digits):
    """What `restart` does; it would not be an option otherwise."""

    def rises(seed):
        history = SDH(8, restart=True, n_anchors=200, random_state=seed).fit(*digits).history_
        steps = [record[name] for record in history for name in ("codes", "classifier", "hash_functions")]
        return any(after > before + 1e-3 for before, after in pairwise(steps))

    assert any(map(rises, range(5)))


def test_no_flip_of_a_bit_improves_a_code(small, training):
    _, y, _, F, _ = small
    W, P = training.W.copy(), training.P.copy()
    training.code_step(restart=False)
    Q, G = np.eye(10)[y] @ W.T + LAMBDAS.nu * F @ P, W @ W.T
    best = energies(Q, G, training.B)
    for k in range(8):
        flipped = training.B.copy()
        flipped[:, k] *= -1
        assert (energies(Q, G, flipped) >= best - 1e-12).all()


def test_classifier_and_hash_functions_are_stationary(training):
    """A nudge of any entry of W or P raises J."""
    best = training.objective()
    rng = np.random.default_rng(0)
    for name in ("W", "P"):
        kept = getattr(training, name)
        for _ in range(10):
            setattr(training, name, kept + 1e-3 * rng.standard_normal(kept.shape))
            assert training.objective() > best
        setattr(training, name, kept)


def test_hash_functions_are_the_kernel_machine_that_was_learned(digits):
    X, y = digits
    hasher = SDH(16, n_anchors=50, random_state=0).fit(X, y)
    lengths = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(np.linalg.norm(hasher.anchors_, axis=1), 1)
    F = rbf(X[:20] / lengths[:20, None], hasher.anchors_, 0.4)
    np.testing.assert_allclose(hasher.decision_function(X[:20]), F @ hasher.weights_ + hasher.intercept_, atol=1e-9)
    # Unit length: a vector's scale does not matter.
    np.testing.assert_array_equal(hasher.encode(X), hasher.encode(7 * X))


def test_without_unit_length_the_width_is_the_mean_distance(digits):
    X, y = digits
    hasher = SDH(16, n_anchors=50, unit_length=False, sigma=None, random_state=0).fit(X, y)
    anchors = hasher.anchors_ + hasher.offset_
    squares = ((X[:, None] - anchors) ** 2).sum(axis=2)
    assert float(hasher.bandwidth_) == pytest.approx(2 * squares.mean(), rel=1e-9)
    F = rbf(X[:20], anchors, np.sqrt(squares.mean()))
    np.testing.assert_allclose(hasher.decision_function(X[:20]), F @ hasher.weights_ + hasher.intercept_, atol=1e-6)
    # Neither does a shift of all data, nor its scale.
    moved = SDH(16, n_anchors=50, unit_length=False, sigma=None, random_state=0).fit(3 * X + 100, y)
    assert (moved.transform(3 * X + 100) == hasher.transform(X)).mean() > 0.999


def test_what_was_learned_counts_not_what_is_set_later(digits, tmp_path):
    X, y = digits
    hasher = SDH(16, n_anchors=50, random_state=0).fit(X, y)
    codes = hasher.encode(X)
    np.testing.assert_array_equal(hasher.set_params(unit_length=False).encode(X), codes)
    hasher.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="unit_ must be as unit_length is"):
        hashlearn.load(tmp_path / "model")


def test_training_ends_when_nothing_changes(digits):
    X, y = digits
    hasher = SDH(16, n_anchors=100, max_iter=50, random_state=0).fit(X, y)
    assert hasher.converged_
    assert 1 < hasher.n_iter_ < 50
    flips = [record["flips"] for record in hasher.history_]
    assert flips[0] > 0.1
    assert all(flips[:-1])
    assert flips[-1] == 0
    assert not SDH(16, n_anchors=100, max_iter=1, random_state=0).fit(X, y).converged_


def test_anchors_are_different_samples(digits):
    X, y = digits
    assert len(np.unique(SDH(4, n_anchors=500, random_state=0).fit(X, y).anchors_, axis=0)) == 500


def test_names_of_labels_do_not_matter(digits):
    X, y = digits
    a = SDH(12, n_anchors=100, random_state=0).fit(X, y)
    b = SDH(12, n_anchors=100, random_state=0).fit(X, [f"class {9 - label}" for label in y])
    assert (a.transform(X) == b.transform(X)).mean() > 0.999
    assert list(b.classes_) == [f"class {k}" for k in range(10)]


def test_so_many_samples_of_a_class(digits):
    X, y = digits
    hasher = SDH(12, samples_per_class=50, random_state=0).fit(X, y)
    assert hasher.class_counts_.tolist() == [50] * 10
    assert np.bincount(y[hasher.samples_]).tolist() == [50] * 10
    drawn = unit_rows(X[hasher.samples_])
    assert all((np.abs(drawn - anchor).max(axis=1) < 1e-12).any() for anchor in hasher.anchors_)
    assert len(SDH(12, random_state=0).fit(X, y).samples_) == len(X)


def test_held_out_digits_are_found_by_class_far_better_than_by_itq(digits):
    X, y = digits
    truth = Truth.labels(y[:300], y[300:])
    scores = {}
    for hasher in (SDH(16, random_state=0).fit(X[300:], y[300:]), ITQ(16, random_state=0).fit(X[300:])):
        scores[hasher.name] = evaluate(hasher.encode(X[:300]), hasher.encode(X[300:]), truth, n_bits=16).map
    assert scores["sdh"] > 0.9
    assert scores["sdh"] > scores["itq"] + 0.2


@pytest.mark.slow
def test_kernel_values_are_never_kept_whole():
    """100,000 samples, 400 anchors: 320 MB in float64, 160 in float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 100_000)
    X = (rng.standard_normal((100_000, 8)) + y[:, None]).astype(np.float32)
    tracemalloc.start()
    SDH(8, n_anchors=400, max_iter=1, random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_anchors": 0}, "n_anchors must be a whole number of at least 1; got 0"),
        ({"sigma": 0}, "sigma must be None or a number of at least 1e-15 and at most .*; got 0"),
        ({"sigma": 1e-200}, "sigma must be None or .*; got 1e-200"),
        ({"sigma": 1e200}, "sigma must be None or"),
        ({"sigma": "wide"}, "sigma must be None or .*; got 'wide'"),
        ({"nu": 0}, "nu must be a number above 0; got 0"),
        ({"lambda_g": -1}, "lambda_g must be a number above 0; got -1"),
        ({"lambda_f": None}, "lambda_f must be a number above 0; got None"),
        ({"samples_per_class": 0}, "samples_per_class must be None or a whole number of at least 1; got 0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"restart": "yes"}, "restart must be True or False; got 'yes'"),
        ({"unit_length": 2}, "unit_length must be True or False; got 2"),
    ],
)
def test_bad_parameters_are_refused(parameters, words, digits):
    with pytest.raises(ValueError, match=words):
        SDH(8, **parameters).fit(digits[0][:100], digits[1][:100])


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_odd_data(digits):
    X, y = digits
    with pytest.raises(ValueError, match="SDH learns from samples of at least 2 classes; got 1: 3"):
        SDH(8).fit(X[:50], [3] * 50)
    # All samples equal: no code can tell the classes, but there is one.
    same = SDH(8, random_state=0).fit(np.ones((20, 5)), [0, 1] * 10)
    assert len(np.unique(same.encode(np.ones((4, 5))), axis=0)) == 1
    for sigma in (0.4, None):
        zeros = SDH(8, sigma=sigma, unit_length=False, random_state=0).fit(np.zeros((20, 5)), [0, 1] * 10)
        assert np.isfinite(zeros.decision_function(np.zeros((3, 5)))).all()
    # Parallel vectors are one of unit length.
    parallel = SDH(8, sigma=None, random_state=0).fit(np.outer(np.arange(1.0, 21), np.arange(5)), [0, 1] * 10)
    assert float(parallel.bandwidth_) == 1
    with pytest.raises(ValueError, match="lambda_f is too small for these data and anchors; got 1e-300"):
        SDH(8, lambda_f=1e-300, random_state=0).fit(np.repeat(X[:20], 5, axis=0), np.repeat(y[:20], 5))
    # More anchors than samples: all of them.
    assert len(SDH(8, random_state=0).fit(X[:60], y[:60]).anchors_) == 60
    # A vector beyond all measure is far from every anchor.
    far = SDH(8, unit_length=False, sigma=None, n_anchors=50, random_state=0).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(far.decision_function(np.full((1, 64), 1e30, np.float32))[0], far.intercept_, rtol=1e-5)
    with pytest.raises(ValueError, match="squares are beyond float32; divide it first"):
        SDH(8, unit_length=False, sigma=None).fit((X * 1e30).astype(np.float32), y)


def test_unit_rows_of_any_size():
    X = np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0], [-6, 8]], dtype=np.float32)
    np.testing.assert_allclose(unit_rows(X), [[0.6, 0.8], [0.6, 0.8], [0, 0], [-0.6, 0.8]], rtol=1e-6)


def test_the_kernel_near_and_far():
    """exp(−d² / (2σ²)) of points that float32 tells from their anchor, far from 0 as near."""
    anchors = np.array([[0.0, 0], [3, 4]])
    K = compile_steps(kernel_steps(anchors, 2 * 2.0**2), np.float32)(
        np.array([[0, 0], [3, 4], [1e30, 0], [100, 0]], dtype=np.float32)
    )
    e = np.exp(-25 / 8)
    np.testing.assert_allclose(K, [[1, e], [e, 1], [0, 0], [0, 0]], rtol=1e-5, atol=1e-30)
    # Where rounding would leave squared distances below 0.
    X = (1000 + np.random.default_rng(0).random((50, 20))).astype(np.float32)
    assert compile_steps(kernel_steps(X, 1.0), np.float32)(X).max() == 1


def test_memory_of_encoding_short_vectors_is_bounded():
    """A kernel value for each of 1,000 anchors, of vectors of 4 features: blocks are sized by what is made of them."""
    X = np.random.default_rng(0).random((100_000, 4), dtype=np.float32)
    hasher = SDH(16, random_state=0).fit(X[:2000], np.arange(2000) % 2)
    tracemalloc.start()
    hasher.encode(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
