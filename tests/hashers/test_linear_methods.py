"""What defines LSH and ITQ."""

import tracemalloc

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from hashlearn import ITQ, LSH, PCASign, Sign
from hashlearn.hashers._linear import mean_and_covariance, principal_directions
from hashlearn.threads import cores, thread_map


@pytest.fixture(scope="module")
def X():
    return load_digits().data


def test_lsh_bits_differ_as_often_as_the_angle_says():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 5))
    bits = LSH(n_bits=40_000, center=False, random_state=0).fit(X).transform(X)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    angle = np.arccos(np.clip(unit @ unit.T, -1, 1)) / np.pi
    share = (bits[:, None] != bits[None]).mean(axis=2)
    np.testing.assert_allclose(share, angle, atol=4 * 0.5 / np.sqrt(40_000))


def test_lsh_center_moves_the_hyperplanes(X):
    centered, plain = (LSH(32, center=center, random_state=0).fit(X) for center in (True, False))
    np.testing.assert_allclose(centered.mean_, X.mean(axis=0))
    assert not plain.mean_.any()
    np.testing.assert_array_equal(plain.components_, centered.components_)
    # Pixels are never negative: hyperplanes through the origin leave most of them on one side.
    balance = [abs(h.transform(X).mean(axis=0) - 0.5).mean() for h in (centered, plain)]
    assert balance[0] < balance[1]


def in_order(function, items):
    return [function(item) for item in items]


def test_moments_equal_numpys(X):
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-4), (np.uint8, 1e-4)):
        mean, covariance = mean_and_covariance(
            X.astype(dtype), lambda function, items: [function(item) for item in items]
        )
        np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(covariance, np.cov(X.T, bias=True), atol=tolerance)


def test_moments_of_wide_data_take_few_matrices_of_their_size():
    """The 16 parts are not all held at once."""
    X = np.random.default_rng(0).standard_normal((16_384, 512), dtype=np.float32)
    tracemalloc.start()
    try:
        with thread_map(2) as threads:
            mean_and_covariance(X, threads)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    matrix, blocks = 8 * 512**2, 2 * 4 * (1 << 20)
    assert peak < (2 + 2 * max(cores(), 2)) * matrix + 1.2 * blocks


def test_principal_directions_equal_scikit_learns_up_to_sign(X):
    W = principal_directions(np.cov(X.T), 10)
    reference = PCA(10, svd_solver="full").fit(X).components_.T
    np.testing.assert_allclose(np.abs((W * reference).sum(axis=0)), 1, atol=1e-8)
    assert (np.take_along_axis(W, np.abs(W).argmax(axis=0)[None], axis=0) > 0).all()


def test_itq_equals_its_literal_transcription(X):
    """Gong & Lazebnik's algorithm, line by line, from the same first rotation."""
    L = 8
    hasher = ITQ(L, max_iter=15, random_state=4).fit(X)
    V = (X - X.mean(axis=0)) @ principal_directions(np.cov(X.T), L)
    rng = np.random.default_rng(4)
    Q, T = np.linalg.qr(rng.standard_normal((L, L)))
    R = Q @ np.diag(np.where(np.diag(T) >= 0, 1, -1))
    losses = []
    for _ in range(15):
        B = np.where(V @ R >= 0, 1, -1)
        losses.append(((B - V @ R) ** 2).sum() / len(X))
        R, _ = orthogonal_procrustes(V, B)
    np.testing.assert_allclose(hasher.quantization_loss_, losses, rtol=1e-9)
    np.testing.assert_allclose(np.abs(hasher.decision_function(X)), np.abs(V @ R), atol=1e-8)
    np.testing.assert_array_equal(hasher.transform(X), (V @ R >= 0).astype(np.uint8))


@pytest.mark.parametrize("n_bits", [1, 2, 16, 40])
def test_itq_loss_never_rises_and_the_map_is_a_rotation(X, n_bits):
    hasher = ITQ(n_bits, random_state=0).fit(X)
    loss = hasher.quantization_loss_
    assert len(loss) == hasher.n_iter_ == 50
    assert (np.diff(loss) <= 1e-9 * loss[:-1]).all()
    if n_bits > 1:
        assert loss[-1] < loss[0]
    np.testing.assert_allclose(hasher.components_.T @ hasher.components_, np.eye(n_bits), atol=1e-10)


def test_itq_max_iter_counts(X):
    short, long = (ITQ(16, max_iter=n, random_state=0).fit(X) for n in (2, 30))
    assert (short.n_iter_, long.n_iter_) == (2, 30)
    assert long.quantization_loss_[-1] < short.quantization_loss_[-1]


@pytest.mark.parametrize("n_bits", [64, 10])
def test_sign_compares_the_first_features_with_their_thresholds(X, n_bits):
    first = X[:, :n_bits]
    for threshold, t in (("zero", 0), ("mean", first.mean(axis=0)), ("median", np.median(first, axis=0))):
        shift = 8 * (threshold == "zero")
        hasher = Sign(n_bits, threshold=threshold).fit(X - shift)
        np.testing.assert_array_equal(hasher.transform(X - shift), first - shift >= t)
        np.testing.assert_allclose(hasher.query_values(X - shift), first - shift - t, atol=1e-12)


def test_medians_of_many_samples_are_those_of_some():
    X = np.random.default_rng(0).standard_normal((200_000, 3), dtype=np.float32)
    hasher = Sign(3, threshold="median").fit(X)
    assert (hasher.threshold_ != np.median(X, axis=0)).any()
    share = hasher.transform(X).mean(axis=0)
    np.testing.assert_allclose(share, 0.5, atol=0.01)


def test_sign_without_thresholds_learns_nothing_and_does_not_warn(X, recwarn):
    few, many = (Sign(64).fit(rows) for rows in (X[:5] - 8, X - 8))
    np.testing.assert_array_equal(few.encode(X - 8), many.encode(X - 8))
    assert not recwarn
    with pytest.warns(UserWarning, match="no feature changes its sign in the 1797 samples: all of them get the same"):
        Sign(64).fit(X)


def test_pca_sign_is_the_sign_of_scikit_learns_components(X):
    V = PCA(20, svd_solver="full").fit_transform(X)
    H = PCASign(20).fit(X).decision_function(X)
    np.testing.assert_allclose(np.abs(H), np.abs(V), atol=1e-8)


@pytest.mark.parametrize("n_bits", [65, 100, 256])
def test_itq_of_more_bits_than_features_is_that_of_vectors_with_zeros_appended(X, n_bits):
    """The zeros add directions without variance, so that R meets only its first 64 rows."""
    hasher = ITQ(n_bits, random_state=3).fit(X)
    loss = hasher.quantization_loss_
    assert (np.diff(loss) <= 1e-9 * loss[:-1]).all()
    assert loss[-1] < loss[0]
    np.testing.assert_allclose(hasher.components_ @ hasher.components_.T, np.eye(64), atol=1e-10)
    V = (X - X.mean(axis=0)) @ principal_directions(np.cov(X.T), 64)
    V = np.hstack([V, np.zeros((len(V), n_bits - 64))])
    Q, T = np.linalg.qr(np.random.default_rng(3).standard_normal((n_bits, n_bits)))
    R = Q * np.where(np.diag(T) >= 0, 1, -1)
    for _ in range(50):
        B = np.where(V @ R >= 0, 1, -1)
        # The rows of R beside V's zeros are free: they are left out of the problem.
        U1, _, U2t = np.linalg.svd(B.T @ V[:, :64], full_matrices=False)
        R = np.vstack([U2t.T @ U1.T, np.zeros((n_bits - 64, n_bits))])
    np.testing.assert_array_equal(hasher.transform(X), (V @ R >= 0).astype(np.uint8))


def test_bad_parameters_of_linear_methods_are_refused(X):
    for bad in (0, "abc", 2.5):
        with pytest.raises(ValueError, match="max_iter must be a whole number of at least 1; got"):
            ITQ(8, max_iter=bad).fit(X)
    with pytest.raises(ValueError, match="show_progress must be None or True or False; got 'yes'"):
        ITQ(8, show_progress="yes").fit(X)
    with pytest.raises(ValueError, match="center must be True or False; got 'abc'"):
        LSH(8, center="abc").fit(X)


def test_itq_sees_small_differences_far_from_the_origin(X):
    """float64 data a billion away: the offset must not eat the digits."""
    hasher, moved = ITQ(16, random_state=0).fit(X), ITQ(16, random_state=0).fit(X + 1e9)
    assert (hasher.transform(X) == moved.transform(X + 1e9)).mean() > 0.99


def test_itq_beats_lsh(X):
    from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate

    train, queries = X[300:], X[:300]
    truth = Truth.neighbors(euclidean_neighbors(queries, train, 20))
    scores = {}
    for name, hasher in {"itq": ITQ(16, random_state=0), "lsh": LSH(16, random_state=0)}.items():
        hasher.fit(train)
        scores[name] = evaluate(hasher.encode(queries), hasher.encode(train), truth, n_bits=16).map
    assert scores["itq"] > 1.2 * scores["lsh"]
