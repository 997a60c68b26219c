"""What defines Kernel-based Supervised Hashing."""

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.datasets import load_digits

import hashlearn
from hashlearn import ITQ, KSH
from hashlearn.evaluation import Truth, evaluate
from hashlearn.hashers import _residual, ksh
from hashlearn.hashers.steps import compile_steps
from hashlearn.threads import thread_map
from reference import ksh as slow

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data():
    digits = load_digits()
    return digits.data, digits.target


@pytest.fixture(scope="module")
def fitted(data):
    """On all but 300 samples, with most of the defaults."""
    return KSH(16, max_iter=100, random_state=0).fit(data[0][300:], data[1][300:])


@pytest.fixture
def small():
    """K̄ (m, p) and classes of unequal sizes, L, some bits, and the dense R after them."""
    rng = np.random.default_rng(0)
    K, y, L = rng.standard_normal((70, 6)), rng.choice(4, 70, p=(0.1, 0.2, 0.3, 0.4)), 5
    B = np.where(rng.standard_normal((3, 70)) >= 0, 1.0, -1.0)
    return K, y, L, B, L * slow.similarities(y) - B.T @ B


def residual_of(K, y, L, B=(), n_threads=1):
    with thread_map(n_threads) as threads:
        residual = _residual.Residual(np.ascontiguousarray(K.T), y, L, threads)
        for b in B:
            residual.add(b)
    residual._threads = lambda function, items: [function(item) for item in items]
    return residual


@pytest.mark.parametrize("block", [7, 2048])
def test_products_by_factors_equal_those_with_the_matrix(small, block, set_block_rows):
    set_block_rows(block)
    K, y, L, B, R = small
    residual = residual_of(K, y, L, B)
    v = np.random.default_rng(1).standard_normal(len(K))
    sums = residual.sums(v)
    np.testing.assert_allclose(residual.product(sums, slice(0, len(K))), R @ v, atol=1e-10)
    np.testing.assert_allclose(residual.product(sums, slice(5, 20)), (R @ v)[5:20], atol=1e-10)
    assert residual.quadratic(sums) == pytest.approx(v @ R @ v, abs=1e-9)
    assert residual.quadratic(residual.sums(B[0])) == B[0] @ R @ B[0]
    np.testing.assert_allclose(residual.gram, K.T @ K, atol=1e-10)
    np.testing.assert_allclose(residual.form, K.T @ R @ K, atol=1e-9)
    np.testing.assert_allclose(residual.values(v[:6]), K @ v[:6], atol=1e-12)
    phi, sums = residual.squash(K @ v[:6])
    np.testing.assert_allclose(phi, slow.squash(K @ v[:6]), atol=1e-15)
    assert residual.quadratic(sums) == pytest.approx(phi @ R @ phi, abs=1e-9)


def test_the_square_of_the_residual_is_exact_after_every_bit(small):
    K, y, L, B, _ = small
    R, residual = L * slow.similarities(y), residual_of(K, y, L)
    assert residual.square == np.sum(R**2)
    for b in B:
        R = R - np.outer(b, b)
        residual.add(b)
        assert residual.square == np.sum(R**2)


def test_the_gradient_equals_finite_differences(small):
    K, y, L, B, R = small
    residual = residual_of(K, y, L, B)
    for seed in range(3):
        a = np.random.default_rng(seed).standard_normal(6)
        found = residual.gradient(*residual.squash(K @ a))
        np.testing.assert_allclose(found, approx_fprime(a, lambda a: slow.g(K, R, a), 1e-7), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(found, slow.gradient(K, R, a), atol=1e-9)


def test_the_spectral_weights_are_the_best_of_all(small):
    """No other a of aᵀK̄ᵀK̄a = m has a larger aᵀK̄ᵀRK̄a."""
    K, y, L, B, R = small
    a = ksh.spectral(residual_of(K, y, L, B))
    z = K @ a
    assert z @ z == pytest.approx(len(K))
    assert a[np.abs(a).argmax()] > 0
    others = K @ np.random.default_rng(0).standard_normal((6, 2000))
    others *= np.sqrt(len(K)) / np.linalg.norm(others, axis=0)
    assert (np.einsum("ij,ij->j", others, R @ others) < z @ R @ z).all()
    np.testing.assert_allclose(a, slow.spectral(K, R), atol=1e-8)


def test_the_smoothing_ends_below_its_start(fitted, data):
    """On digits, bit after bit; and it lowers g, does not just leave it."""
    X, y = data[0][300:], data[1][300:]
    K = compile_steps(fitted._kernel_steps(), np.float64)(X - fitted.offset_)
    residual = residual_of(K - K.mean(axis=0), y, 16)
    for _ in range(16):
        a = ksh.spectral(residual)
        smooth, values, _ = ksh.smoothed(residual, a, 60, 1e-2)
        assert values[0] == pytest.approx(-residual.quadratic(residual.squash(residual.values(a))[1]))
        # z = K̄a is carried along, not computed anew: it must not have drifted.
        assert values[-1] == pytest.approx(-residual.quadratic(residual.squash(residual.values(smooth))[1]), rel=1e-9)
        assert values[-1] < values[0]
        ksh.learn_bit(residual, 60, 1e-2)


def test_the_smoothing_ends_by_tol_by_max_iter_and_when_no_step_helps(small, monkeypatch):
    K, y, L, B, _ = small
    residual = residual_of(K, y, L, B)
    a = ksh.spectral(residual)
    _, values, converged = ksh.smoothed(residual, a, 500, 1e-2)
    changes = np.abs(np.diff(values)) / len(K)
    assert converged
    assert (changes <= 1e-2).tolist() == [False] * (len(changes) - 1) + [True]
    _, values, converged = ksh.smoothed(residual, a, 2, 0.0)
    assert (len(values), converged) == (3, False)
    downhill = _residual.Residual.gradient
    monkeypatch.setattr(_residual.Residual, "gradient", lambda *arguments: -downhill(*arguments))
    found, values, converged = ksh.smoothed(residual, a, 500, 1e-2)
    np.testing.assert_array_equal(found, a)
    assert (len(values), converged) == (1, True)


def draws(y, n_samples, n_anchors, per_class, seed):
    """The samples and the anchors of a fit, drawn as it draws them."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n_samples)
    samples = [i for c in np.unique(y) for i in order[y[order] == c][:per_class]]
    return np.sort(rng.choice(n_samples, n_anchors, replace=False)), np.sort(samples)


@pytest.mark.parametrize(("n_bits", "max_iter"), [(1, 500), (12, 60)])
def test_equals_its_literal_transcription(data, n_bits, max_iter):
    X, y = data[0][:400], data[1][:400]
    hasher = KSH(n_bits, n_anchors=25, samples_per_class=20, max_iter=max_iter, random_state=3).fit(X, y)
    anchors, samples = draws(y, 400, 25, 20, 3)
    np.testing.assert_array_equal(hasher.samples_, samples)
    np.testing.assert_allclose(hasher.offset_ + hasher.anchors_, X[anchors], atol=1e-12)
    A, mean, sigma2, history = slow.train(X, y, anchors, samples, n_bits, max_iter, 1e-2)
    assert float(hasher.bandwidth_) == pytest.approx(2 * sigma2, rel=1e-12)
    assert [r["smoothed"] for r in hasher.history_] == [smooth for _, smooth, _ in history]
    assert [r["iterations"] for r in hasher.history_] == [n for *_, n in history]
    assert hasher.n_iter_ == sum(n for *_, n in history)
    np.testing.assert_allclose([r["objective"] for r in hasher.history_], [e for e, *_ in history], rtol=1e-12)
    np.testing.assert_allclose(hasher.weights_, A, atol=1e-6 * np.abs(A).max())
    H = (slow.kernel(X, X[anchors], sigma2) - mean) @ A
    np.testing.assert_allclose(hasher.decision_function(X), H, atol=1e-6)
    np.testing.assert_array_equal(hasher.transform(X), H >= 0)


def test_every_bit_lowers_the_residual(fitted, data):
    objectives = [1.0] + [record["objective"] for record in fitted.history_]
    assert (np.diff(objectives) < 0).all()
    # By the codes that the model gives: the objective is of them.
    X, y = data[0][300:], data[1][300:]
    B = 2.0 * fitted.transform(X) - 1
    dense = np.sum((B @ B.T - 16 * slow.similarities(y)) ** 2) / (16 * len(X)) ** 2
    assert objectives[-1] == pytest.approx(dense, rel=1e-12)


def test_a_bit_is_kept_even_if_it_raises_the_residual(data):
    """One bit for ten classes can't agree with S in half of the pairs: bᵀSb ≤ m²/5 < m²/2."""
    hasher = KSH(1, n_anchors=50, random_state=0).fit(*data)
    assert hasher.history_[0]["objective"] > 1
    assert 0.2 < hasher.transform(data[0]).mean() < 0.8


def test_the_smoothed_weights_are_kept_only_if_their_signs_are_better(small, monkeypatch):
    K, y, L, B, R = small
    a = ksh.spectral(residual_of(K, y, L, B))
    b = np.where(K @ a >= 0, 1.0, -1.0)
    found = set()
    for seed in range(30):
        other = np.random.default_rng(seed).standard_normal(6) + a / np.linalg.norm(a)
        monkeypatch.setattr(ksh, "smoothed", lambda *_, other=other: (other, [0.0, 0.0], True))
        c = np.where(K @ other >= 0, 1.0, -1.0)
        residual = residual_of(K, y, L, B)
        kept, record = ksh.learn_bit(residual, 5, 1e-2)
        assert record["smoothed"] == (c @ R @ c > b @ R @ b)
        np.testing.assert_array_equal(kept, other if record["smoothed"] else a)
        np.testing.assert_array_equal(residual.B[3], c if record["smoothed"] else b)
        found.add(record["smoothed"])
    assert found == {True, False}


def test_smoothing_helps(data, fitted):
    """Of the bits most are smoothed, and the residual is smaller than after one iteration."""
    short = KSH(16, max_iter=1, random_state=0).fit(data[0][300:], data[1][300:])
    assert sum(record["smoothed"] for record in fitted.history_) > 8
    assert fitted.history_[-1]["objective"] < short.history_[-1]["objective"] - 0.01


def test_memory_stays_far_below_all_pairs():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20_000, 16), dtype=np.float32), rng.integers(10, size=20_000)
    tracemalloc.start()
    KSH(3, samples_per_class=None, max_iter=2, random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kernel_values = 20_000 * 300 * 4
    assert peak < 3 * kernel_values  # a matrix of all pairs has 20,000² numbers: 66 times as many


def test_names_and_order_of_classes_do_not_matter(data):
    X, y = data[0][:600], data[1][:600]
    names = np.array(["nine", "two", "x", "a", "0", "five", "seven", "b", "c", "z"])
    expected, *others = (
        KSH(8, n_anchors=40, max_iter=40, random_state=0).fit(X, labels)
        for labels in (y, names[y], 9 - y, [(int(k), "tuple") for k in y])
    )
    for other in others:
        np.testing.assert_array_equal(other.weights_, expected.weights_)
        assert sorted(other.class_counts_) == sorted(expected.class_counts_)


def test_finds_classes_of_new_samples_far_better_than_itq(data, fitted):
    X, y = data
    truth = Truth.labels(y[:300], y[300:])

    def score(hasher):
        return evaluate(hasher.encode(X[:300]), hasher.encode(X[300:]), truth, n_bits=16).map

    assert score(fitted) > score(ITQ(16, random_state=0).fit(X[300:])) + 0.25


def test_every_parameter_counts(data):
    X, y = data[0][:500], data[1][:500]
    settings = {"n_anchors": 40, "samples_per_class": 30, "max_iter": 20, "random_state": 0}
    usual = KSH(8, **settings).fit(X, y)
    for change in ({"n_anchors": 41}, {"samples_per_class": 31}, {"max_iter": 3}, {"tol": 50.0}, {"random_state": 1}):
        assert (KSH(8, **{**settings, **change}).fit(X, y).transform(X) != usual.transform(X)).any(), change
    assert len(usual.samples_) == 300
    assert usual.class_counts_.tolist() == [30] * 10
    assert len(KSH(1, **{**settings, "samples_per_class": None}).fit(X, y).samples_) == 500
    assert len(KSH(1, n_anchors=900, max_iter=1).fit(X, y).anchors_) == 500


def test_history_and_summary(data, tmp_path):
    X, y = data[0][:300], data[1][:300]
    hasher = KSH(4, n_anchors=30, max_iter=3, random_state=0).fit(X, y)
    assert hasher.converged_ is False
    assert [set(record) for record in hasher.history_] == [{"objective", "smoothed", "iterations", "converged"}] * 4
    summary = hasher.summary()
    assert (summary["iterations"], summary["samples"], summary["classes"]) == (12, 300, 10)
    hasher.save(tmp_path / "model")
    assert hashlearn.load(tmp_path / "model").summary() == {}
    assert KSH(4, n_anchors=30, tol=1e4, random_state=0).fit(X, y).converged_


def test_threads_do_not_matter(data, set_block_rows, set_cores):
    set_block_rows(100)
    X, found = data[0].astype(np.float32), []
    for n in (1, 3):
        set_cores(n)
        found.append(KSH(6, n_anchors=50, max_iter=30, random_state=0).fit(X, data[1]))
    np.testing.assert_array_equal(found[0].weights_, found[1].weights_)
    np.testing.assert_array_equal(found[0].intercept_, found[1].intercept_)


def test_float32_gives_the_codes_of_float64(data):
    X, y = data
    for form in (X.astype(np.float32), X.astype(np.uint8), X.astype(np.int64)):
        a, b = (KSH(8, n_anchors=100, max_iter=50, random_state=0).fit(data, y) for data in (X, form))
        assert (a.transform(X) == b.transform(form)).mean() > 0.999


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_small_differences_far_from_the_origin_are_seen(data, dtype):
    X, y = data[0][:500], data[1][:500]
    offset = {np.float64: 1e9, np.float32: 2.0**18}[dtype]  # float32 still holds whole numbers there
    a, b = (KSH(8, n_anchors=50, max_iter=20, random_state=0).fit((X + o).astype(dtype), y) for o in (0, offset))
    assert (a.transform(X.astype(dtype)) == b.transform((X + offset).astype(dtype))).mean() > 0.99


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@pytest.mark.filterwarnings("ignore:classes of fewer than")
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.standard_normal((3, 3)),
        lambda rng: rng.standard_normal((30, 2)),
        lambda rng: rng.standard_normal((400, 1)).astype(np.float32),
        lambda rng: rng.integers(0, 2, (100, 3)).astype(np.uint8),
        lambda rng: np.hstack([rng.standard_normal((50, 2)), np.ones((50, 3))]),
        lambda rng: 1e15 * rng.standard_normal((50, 3)).astype(np.float32),
        lambda rng: 1e-15 * rng.standard_normal((50, 3)).astype(np.float32),
    ],
)
def test_poor_data(make):
    """Fewer samples than bits, few features, few distinct values, large and small ones; a class of one."""
    X = make(np.random.default_rng(0))
    y = np.arange(len(X)) % 2
    y[0] = 5
    y[-1] = 1
    hasher = KSH(8, samples_per_class=5, random_state=0).fit(X, y)
    H = hasher.decision_function(X)
    assert np.isfinite(H).all()
    assert len(np.unique(hasher.transform(X), axis=0)) > 1
    B = 2.0 * hasher.transform(X[hasher.samples_]) - 1
    dense = np.sum((B @ B.T - 8 * slow.similarities(y[hasher.samples_])) ** 2) / (8 * len(B)) ** 2
    if (np.abs(H[hasher.samples_]) > 1e-4).all():  # or rounding may move a sample on the border
        assert hasher.history_[-1]["objective"] == pytest.approx(dense)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_distinct", [2, 4, 8])
def test_bits_beyond_what_the_data_can_tell(n_distinct, dtype):
    """A few distinct vectors, labels at random: bits are soon used up, and directions of no variance must not do."""
    rng = np.random.default_rng(n_distinct)
    X = rng.standard_normal((n_distinct, 3)).astype(dtype)[rng.integers(n_distinct, size=300)]
    hasher = KSH(48, max_iter=20, random_state=0).fit(X, rng.integers(3, size=300))
    assert np.abs(hasher.weights_).max() < 1e4
    assert np.isfinite(hasher.decision_function(X)).all()


def test_random_labels_of_two_features():
    from sklearn.datasets import make_moons

    X, _ = make_moons(500, noise=0.1, random_state=0)
    hasher = KSH(64, max_iter=10, random_state=0).fit(X, np.random.default_rng(0).integers(2, size=500))
    assert np.isfinite(hasher.weights_).all()


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e5 + 0.3, 1e-12])
def test_equal_samples_have_equal_codes(value, dtype):
    """Whatever the rounding of their mean."""
    X = np.full((23, 5), value, dtype=dtype)
    hasher = KSH(3, random_state=0).fit(X, np.arange(23) % 3)
    assert not hasher.weights_.any()
    assert hasher.transform(X).all()  # sgn(0) = +1
    assert hasher.converged_


@pytest.mark.parametrize(
    ("scale", "dtype", "words"),
    [
        (1e30, np.float32, "squares are beyond float32; divide it first"),
        (1e-30, np.float32, "squares vanish in float32; multiply it first"),
        (1e200, np.float64, "squares are beyond float64; divide it first"),
        (1e-200, np.float64, "squares vanish in float64; multiply it first"),
    ],
)
def test_values_whose_squares_the_type_does_not_hold_are_refused(scale, dtype, words):
    X = np.random.default_rng(0).uniform(-1, 1, (50, 4)) * scale
    with pytest.raises(ValueError, match=words):
        KSH(4).fit(X.astype(dtype), np.arange(50) % 2)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(30), "at least 2 classes; got 1"),
        (np.arange(30), "of the 30 classes none has two samples"),
    ],
)
def test_labels_that_teach_nothing_are_refused(data, labels, words):
    with pytest.raises(ValueError, match=words):
        KSH(4).fit(data[0][:30], labels)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_anchors": 0}, "n_anchors must be a whole number of at least 1; got 0"),
        ({"samples_per_class": 1}, "samples_per_class must be None or a whole number of at least 2; got 1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
        ({"show_progress": "yes"}, "show_progress must be None or True or False; got 'yes'"),
    ],
)
def test_bad_parameters_are_refused(data, parameters, words):
    with pytest.raises(ValueError, match=words):
        KSH(8, **parameters).fit(*data)
