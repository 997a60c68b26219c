"""The softmax over neighbors: batches, weights, value and derivative."""

import numpy as np
import pytest

from hashlearn.hashers import _contrast
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._contrast import bandwidth, contrast, draw_batches, with_targets
from reference import neighbor_hash as reference

M, K, POSITIVE = 40, 8, 4


@pytest.fixture(scope="module")
def neighbors():
    X = np.random.default_rng(0).standard_normal((M, 3))
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    return np.argsort(distances, axis=1)[:, 1 : K + 1].astype(np.int32)


def batches(neighbors, n=20, size=24, members=3, seed=1):
    return list(draw_batches(neighbors, POSITIVE, size, members, n, np.random.default_rng(seed)))


def test_batches_are_groups_of_a_sample_and_its_neighbors(neighbors):
    for batch in batches(neighbors, size=8):  # two groups of up to four
        samples = batch.samples.tolist()
        assert len(set(samples)) == len(samples) <= 8
        first = set(neighbors[samples[0]].tolist())
        inside = [sample in first for sample in samples[1:4]]
        assert all(inside)


def test_pairs_are_the_neighbors_in_the_batch(neighbors):
    for batch in batches(neighbors):
        samples = batch.samples
        for pairs, n in ((batch.near, K), (batch.positive, POSITIVE)):
            expected = {
                (i, j)
                for i in range(len(samples))
                for j in range(len(samples))
                if samples[j] in neighbors[samples[i], :n]
            }
            assert set(zip(*(side.tolist() for side in pairs), strict=True)) == expected
            assert (np.diff(pairs[0]) >= 0).all()  # by anchor, as contrast() needs them
        assert batch.n_anchors == len(set(batch.positive[0].tolist()))


def test_weighted_sums_estimate_those_over_all_samples():
    rng = np.random.default_rng(0)
    m, k = 400, 20
    X = rng.standard_normal((m, 2))
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    neighbors = np.argsort(distances, axis=1)[:, 1 : k + 1].astype(np.int32)
    A = np.exp(-distances)
    np.fill_diagonal(A, 0)
    true_near = np.take_along_axis(A, neighbors, axis=1).sum(axis=1)
    ratios = []
    for batch in draw_batches(neighbors, 10, 64, 3, 200, rng):
        b, samples = len(batch.samples), batch.samples
        near = np.zeros((b, b), dtype=bool)
        near[batch.near] = True
        s = near.sum(axis=1)
        unit = (m - 1 - k) / (b - 1 - s)  # the weight of any other sample
        of_batch = A[np.ix_(samples, samples)]
        estimates = batch.weights * unit * (of_batch * near).sum(axis=1), unit * (of_batch * ~near).sum(axis=1)
        truths = true_near[samples], A[samples].sum(axis=1) - true_near[samples]
        ratios.append([(e[s > 0].sum() / t[s > 0].sum()) for e, t in zip(estimates, truths, strict=True)])
    # Members of a group that are just beyond the k nearest come more often than chance would bring them.
    np.testing.assert_allclose(np.mean(ratios, axis=0), 1, atol=0.06)


def test_every_sample_is_first_once_in_a_round(neighbors):
    firsts = [batch.samples[0] for batch in batches(neighbors, n=M, size=1)]  # one group of up to four each
    assert sorted(firsts) == list(range(M))


def test_more_samples_are_asked_for_than_there_are():
    neighbors = np.array([[1], [0]], dtype=np.int32)
    for batch in draw_batches(neighbors, 1, 1024, 3, 5, np.random.default_rng(0)):
        assert sorted(batch.samples.tolist()) == [0, 1]
        assert batch.n_anchors == 2


def test_value_equals_the_definition(neighbors):
    rng = np.random.default_rng(2)
    for batch in batches(neighbors, n=5):
        b = len(batch.samples)
        A = rng.random((b, b)) + 0.1
        expected = reference.loss(lambda i, j, A=A: A[i, j], batch.samples, neighbors, POSITIVE)
        whole = contrast(A.copy(), slice(0, b), batch)
        assert whole == pytest.approx(expected, rel=1e-12)
        parts = sum(contrast(A[part].copy(), part, batch) for part in (slice(0, 5), slice(5, b)))
        assert parts == pytest.approx(expected, rel=1e-12)


def test_derivative_equals_finite_differences(neighbors):
    rng = np.random.default_rng(3)
    batch = batches(neighbors, n=1)[0]
    b = len(batch.samples)
    logs = rng.standard_normal((b, b))
    slope = np.exp(logs)
    contrast(slope, slice(0, b), batch)
    assert (np.diag(slope) == 0).all()
    for i, j in rng.integers(0, b, (40, 2)):
        if i == j:
            continue
        values = []
        for step in (1e-5, -1e-5):
            moved = logs.copy()
            moved[i, j] += step
            values.append(contrast(np.exp(moved), slice(0, b), batch))
        assert slope[i, j] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_affinities_that_vanish_leave_a_finite_value(neighbors):
    batch = batches(neighbors, n=1)[0]
    b = len(batch.samples)
    A = np.zeros((b, b), dtype=np.float32)
    assert np.isfinite(contrast(A, slice(0, b), batch))
    assert np.isfinite(A).all()


# -- targets ----------------------------------------------------------------------------------------------------------


def serial(function, items):
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).standard_normal((M, 3))  # those of the graph
    return Rows(X, np.zeros(3), 1.0, serial)


@pytest.mark.parametrize("perplexity", [2.0, 7.5, 30.0])
def test_the_bandwidth_gives_a_typical_sample_the_perplexity(rows, perplexity):
    gamma = bandwidth(rows, perplexity, np.random.default_rng(0), serial)  # of all samples, which are few
    found = np.median([reference.perplexity(i, rows[slice(0, M)], gamma) for i in range(M)])
    assert found == pytest.approx(perplexity, rel=0.03)


def test_equal_samples_do_not_decide_the_bandwidth(rows):
    X = rows[slice(0, M)]
    thrice = Rows(np.repeat(X, 3, axis=0), np.zeros(3), 1.0, serial, dtype=np.float32)
    gamma = bandwidth(thrice, 6.0, np.random.default_rng(0), serial)
    found = np.median([reference.perplexity(i, X, gamma) for i in range(M)])
    assert found == pytest.approx(6 / 3, rel=0.1)  # each other point counts three times
    same = Rows(np.ones((40, 3)), np.zeros(3), 1.0, serial)
    assert bandwidth(same, 6.0, np.random.default_rng(0), serial) == 1.0


def test_targets_are_shares_that_fall_with_distance(neighbors, rows):
    X = rows[slice(0, M)]
    for batch in with_targets(batches(neighbors, n=5), rows, 0.8, serial):
        P, samples = batch.targets, batch.samples
        np.testing.assert_allclose(P.sum(axis=1), 1)
        assert (np.diag(P) == 0).all()
        near = np.zeros(P.shape, dtype=bool)
        near[batch.near] = True
        weights = np.where(near, batch.weights[:, None], 1.0)
        squares = ((X[samples][:, None] - X[samples]) ** 2).sum(axis=2)
        expected = weights * np.exp(-0.4 * squares)
        np.fill_diagonal(expected, 0)
        np.testing.assert_allclose(P, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)


def test_with_targets_the_loss_is_the_divergence_and_its_slope_that_of_log_affinities(neighbors, rows, monkeypatch):
    monkeypatch.setattr(_contrast, "_PART", 7)
    (batch,) = with_targets(batches(neighbors, n=1), rows, 0.8, serial)
    b = len(batch.samples)
    logs = np.random.default_rng(3).standard_normal((b, b))

    def value(logs):
        A = np.exp(logs)
        return sum(contrast(A[part], part, batch) for part in batch.parts()), A

    expected = reference.divergence(lambda i, j: np.exp(logs[i, j]), batch.samples, neighbors, rows[slice(0, M)], 0.8)
    found, slope = value(logs)
    assert found == pytest.approx(expected, rel=1e-12)
    step = 1e-6
    for i, j in [(0, 1), (0, 0), (3, 9), (b - 1, 2), (5, 6)]:
        moved = [logs.copy(), logs.copy()]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        numeric = (value(moved[0])[0] - value(moved[1])[0]) / (2 * step)
        assert slope[i, j] == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_the_divergence_is_least_where_the_shares_are_the_targets(neighbors, rows):
    (batch,) = with_targets(batches(neighbors, n=1), rows, 0.8, serial)
    X = rows[slice(0, M)][batch.samples]
    A = np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))
    assert contrast(A, slice(0, len(A)), batch) == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(A, 0, atol=1e-12)
