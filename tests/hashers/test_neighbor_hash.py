"""NeighborHash: losses and gradients, where it starts, what it learns."""

import numpy as np
import pytest

import hashlearn
from hashlearn import ITQ, NeighborHash
from hashlearn.datasets import load
from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate
from hashlearn.hashers import _blocks, _contrast, neighbor_hash
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._cells import hamming_distances
from hashlearn.hashers._contrast import bit_contrast, bit_loss, cell_loss, draw_batches
from hashlearn.hashers._network import Network
from hashlearn.search import search_real
from hashlearn.threads import thread_map
from reference import neighbor_hash as reference

STILL = 1e-30  # a learning rate that leaves the start as it is


def serial(function, items):
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def graph():
    X = np.random.default_rng(0).standard_normal((60, 4))
    return np.argsort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)[:, 1:9].astype(np.int32)


@pytest.fixture
def batch(graph):
    return next(draw_batches(graph, 4, 32, 3, 1, np.random.default_rng(5)))


def slope_by_differences(function, X, entries, step=1e-5):
    slopes = []
    for entry in entries:
        values = []
        for sign in (1, -1):
            moved = X.copy()
            moved[entry] += sign * step
            values.append(function(moved))
        slopes.append((values[0] - values[1]) / (2 * step))
    return np.array(slopes)


# -- losses -----------------------------------------------------------------------------------------------------------


def test_bit_loss_is_the_softmax_over_hamming_distances(batch, graph):
    H = np.random.default_rng(1).standard_normal((len(batch.samples), 6))
    bits = H >= 0
    expected = reference.loss(lambda i, j: np.exp(-0.8 * (bits[i] != bits[j]).sum()), batch.samples, graph, 4)
    value, _ = bit_loss(H, 0.8, batch, serial, slope=1e6)  # anchors are codes too
    assert value == pytest.approx(expected, rel=1e-12)
    for slope, T in ((None, H), (1.5, np.tanh(1.5 * H))):
        expected = reference.loss(
            lambda i, j, T=T: np.exp(0.4 * T[i] @ np.where(bits[j], 1, -1)), batch.samples, graph, 4
        )
        value, _ = bit_loss(H, 0.8, batch, serial, slope=slope)
        assert value == pytest.approx(expected, rel=1e-12)


def test_gradient_of_real_codes_equals_finite_differences(batch):
    left, right = np.random.default_rng(2).standard_normal((2, len(batch.samples), 5))

    def value(left, right):
        return bit_contrast(left, right, 0.7, batch, serial)[0]

    _, of_left, of_right = bit_contrast(left, right, 0.7, batch, serial)
    entries = [(i, k) for i in range(0, len(left), 3) for k in range(5)]
    numeric = slope_by_differences(lambda B: value(B, right), left, entries)
    np.testing.assert_allclose([of_left[entry] for entry in entries], numeric, rtol=1e-6, atol=1e-9)
    numeric = slope_by_differences(lambda B: value(left, B), right, entries)
    np.testing.assert_allclose([of_right[entry] for entry in entries], numeric, rtol=1e-6, atol=1e-9)


def test_the_sign_has_the_derivative_of_tanh(batch):
    H = np.random.default_rng(3).standard_normal((len(batch.samples), 5))
    B = np.where(H >= 0, 1.0, -1.0)
    step = 1e-6

    def tanh_slope(beta):
        return (np.tanh(beta * (H + step)) - np.tanh(beta * (H - step))) / (2 * step)

    for beta in (1.0, 2.0):
        _, of_anchors, of_codes = bit_contrast(np.tanh(beta * H), B, 0.7, batch, serial)
        _, slope = bit_loss(H, 0.7, batch, serial, slope=beta)
        np.testing.assert_allclose(
            slope, of_anchors * tanh_slope(beta) + of_codes * tanh_slope(2), rtol=1e-6, atol=1e-12
        )
    _, of_anchors, of_codes = bit_contrast(H, B, 0.7, batch, serial)
    _, slope = bit_loss(H, 0.7, batch, serial)
    np.testing.assert_allclose(slope, of_anchors + of_codes * tanh_slope(2), rtol=1e-6, atol=1e-12)


def test_cell_loss_is_the_softmax_over_expected_affinities(batch, graph):
    H = np.random.default_rng(4).standard_normal((len(batch.samples), 8))
    P = np.exp(H) / np.exp(H).sum(axis=1, keepdims=True)
    K = np.exp(-1.5 * hamming_distances(3))

    def affinity(i, j):
        return sum(P[i, a] * P[j, b] * K[a, b] for a in range(8) for b in range(8))

    value, slope = cell_loss(H, K, batch, serial)
    assert value == pytest.approx(reference.loss(affinity, batch.samples, graph, 4), rel=1e-12)
    entries = [(i, k) for i in range(0, len(H), 4) for k in range(8)]
    numeric = slope_by_differences(lambda H: cell_loss(H, K, batch, serial)[0], H, entries)
    np.testing.assert_allclose([slope[entry] for entry in entries], numeric, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_gradient_of_the_whole_network_equals_finite_differences(batch, hidden, monkeypatch):
    monkeypatch.setattr(_contrast, "_PART", 7)  # several parts
    rng = np.random.default_rng(6)
    X = rng.standard_normal((60, 4))
    network = Network((4, *hidden, 8), "relu", skip=bool(hidden))
    rows = Rows(X, np.zeros(4), 1.0, serial)
    K = np.exp(-1.5 * hamming_distances(3))
    J = neighbor_hash.objective(rows, network, lambda H, b: cell_loss(H, K, b, serial), serial)
    theta = rng.standard_normal((4 * 6 + 6) + (6 * 8 + 8) + 4 * 8 if hidden else 4 * 8 + 8)
    _, gradient = J(theta, batch)
    assert gradient.shape == theta.shape
    numeric = slope_by_differences(lambda theta: J(theta, batch)[0]["loss"], theta, range(len(theta)))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-8)


# -- where it starts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_hidden", [0, 16])
def test_bits_start_as_those_of_itq(digits, n_hidden):
    X = digits.train[:500]
    start = NeighborHash(16, n_hidden=n_hidden, learning_rate=STILL, random_state=3).fit(X)
    itq = ITQ(16, random_state=3).fit(X)
    assert (start.transform(X) == itq.transform(X)).mean() > 0.9999  # but for rounding


@pytest.mark.parametrize("n_hidden", [0, 16])
def test_cells_start_as_those_of_k_means_and_neighbors_differ_in_few_bits(digits, n_hidden):
    X = digits.train[:800].astype(float)
    start = NeighborHash(4, n_hidden=n_hidden, n_neighbors=10, learning_rate=STILL, random_state=0).fit(X)
    bits = start.transform(X)
    codes = np.packbits(bits, axis=1)[:, 0]
    centers = {code: X[codes == code].mean(axis=0) for code in np.unique(codes)}
    assert len(centers) == 16
    names = np.array(list(centers))
    nearest = names[np.linalg.norm(X[:, None] - np.array(list(centers.values())), axis=2).argmin(axis=1)]
    assert (nearest == codes).mean() > 0.98  # Lloyd's iterations may not have ended
    near = euclidean_neighbors(X, X, 6)[:, 1:]
    apart = (bits[:, None] != bits[near]).sum(axis=2)
    outside = apart[apart > 0]  # of neighbors in two cells; two codes of 4 bits differ in 2.13 bits on average
    assert outside.mean() < 1.7


def test_an_encoder_is_the_network(digits):
    X = digits.train[:300].astype(np.float64)
    hasher = NeighborHash(12, n_hidden=10, random_state=0).fit(X)
    Y = (X - hasher.offset_) / hasher.scale_
    H = Y @ hasher.V_ + np.maximum(Y @ hasher.W1_ + hasher.c1_, 0) @ hasher.W2_ + hasher.c2_
    np.testing.assert_allclose(hasher.decision_function(X), H, rtol=1e-9, atol=1e-9)
    cells = NeighborHash(5, n_hidden=10, random_state=0).fit(X)
    Y = (X - cells.offset_) / cells.scale_
    H = Y @ cells.V_ + np.maximum(Y @ cells.W1_ + cells.c1_, 0) @ cells.W2_ + cells.c2_
    np.testing.assert_array_equal(np.packbits(cells.transform(X), axis=1)[:, 0] >> 3, H.argmax(axis=1))


# -- what it learns ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n_bits", "gain"), [(8, 0.10), (16, 0.05), (32, 0.04)])
def test_new_queries_find_their_neighbors_better_than_by_itq(digits, n_bits, gain):
    truth = Truth.neighbors(euclidean_neighbors(digits.queries, digits.database, 10))

    def score(hasher):
        hasher.fit(digits.train)
        return evaluate(hasher.encode(digits.queries), hasher.encode(digits.database), truth, n_bits=n_bits).map

    for seed in range(2):
        ours = score(NeighborHash(n_bits, n_neighbors=10, random_state=seed))
        assert ours > score(ITQ(n_bits, random_state=seed)) + gain


@pytest.mark.slow
def test_real_valued_queries_are_answered_best_by_codes_that_were_trained_for_them(digits):
    truth = euclidean_neighbors(digits.queries, digits.database, 10)

    def recall(hasher):
        codes = hasher.fit(digits.train).encode(digits.database)
        found = search_real(hasher.query_values(digits.queries), codes, 10, n_bits=16).ids
        return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(truth.tolist(), found.tolist(), strict=True)])

    def mean_recall(**options):
        return np.mean([recall(NeighborHash(16, n_neighbors=10, random_state=seed, **options)) for seed in (0, 1)])

    itq = recall(ITQ(16, random_state=0))
    by_neighbors, by_distances = (mean_recall(query="real", loss=loss) for loss in ("neighbors", "distances"))
    assert by_neighbors > max(mean_recall() + 0.02, itq + 0.1)
    assert by_distances > itq + 0.1


def test_training_lowers_the_loss(digits):
    hasher = NeighborHash(16, n_neighbors=10, random_state=0).fit(digits.train)
    losses = [record["loss"] for record in hasher.history_]
    assert losses[-1] < 0.8 * losses[0]
    assert hasher.summary() == {"loss": losses[-1], "epochs": len(losses), "graph_recall": 1.0}
    assert len(losses) == 150  # 300 batches, of which two hold all samples


@pytest.mark.parametrize(
    "options",
    [
        {"code": "cells"},
        {"n_hidden": 0},
        {"n_neighbors": 5},
        {"loss": "distances"},
        {"query": "real"},
        {"sharpness": 2.0},
        {"epochs": 100},
        {"epochs": 1},
        {"batch_size": 128},
        {"learning_rate": 1e-2},
    ],
)
def test_every_option_has_an_effect(digits, options):
    X = digits.train[:300]
    plain = NeighborHash(8, n_hidden=4, code="bits", random_state=0).fit(X).encode(X)
    other = NeighborHash(**{"n_bits": 8, "n_hidden": 4, "code": "bits", "random_state": 0, **options}).fit(X)
    assert (other.encode(X) != plain).any()


def test_a_memory_map_is_read_as_it_is_needed(digits, tmp_path, monkeypatch):
    X = digits.train[:400]
    np.save(tmp_path / "x.npy", X)
    expected = NeighborHash(12, n_hidden=4, random_state=0).fit(X).encode(X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr(_blocks, "_SHARE_OF_MEMORY", 0.0)
    np.testing.assert_array_equal(NeighborHash(12, n_hidden=4, random_state=0).fit(mapped).encode(X), expected)


def test_a_cached_graph_gives_the_same_codes(digits, tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    X = digits.train[:400]
    expected = NeighborHash(12, n_hidden=4, random_state=0).fit(X).encode(X)
    for _ in range(2):
        cached = NeighborHash(12, n_hidden=4, random_state=0, cache_graph=True).fit(X)
        np.testing.assert_array_equal(cached.encode(X), expected)
    assert len(list((tmp_path / "graphs").glob("*.npy"))) == 1


def test_at_most_a_tenth_of_the_samples_are_true_neighbors(digits):
    X = digits.train[:120]
    for options in ({}, {"loss": "distances"}):
        expected, many = (NeighborHash(12, n_neighbors=n, random_state=0, **options).fit(X).V_ for n in (12, 50))
        np.testing.assert_array_equal(many, expected)
    few = NeighborHash(12, n_neighbors=50, random_state=0).fit(X[:15])  # one neighbor of each
    assert few.history_[0]["loss"] > 0


def test_an_offset_does_not_matter(digits):
    X = digits.train[:300].astype(np.float64)
    plain = NeighborHash(12, n_hidden=4, random_state=0).fit(X)
    moved = NeighborHash(12, n_hidden=4, random_state=0).fit(X + 2.0**20)
    assert (plain.transform(X) == moved.transform(X + 2.0**20)).mean() > 0.99


def test_codes_may_be_longer_than_vectors():
    X = np.random.default_rng(0).standard_normal((200, 6))
    hasher = NeighborHash(24, n_hidden=4, random_state=0).fit(X)
    assert hasher.encode(X).shape == (200, 3)
    assert len(np.unique(hasher.transform(X), axis=1).T) > 12


@pytest.mark.filterwarnings("ignore:X has 2 samples")
@pytest.mark.parametrize("n_bits", [3, 12])
def test_two_samples_are_enough(n_bits):
    X = np.array([[0.0, 1.0], [1.0, 0.0]])
    hasher = NeighborHash(n_bits, n_hidden=2, random_state=0).fit(X)
    assert np.isfinite(hasher.decision_function(X)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_bits": 12, "code": "cells"}, "n_bits must be at most 8 for code='cells'; got 12"),
        ({"n_bits": 8, "code": "cells", "query": "real"}, "query must be 'code' for code='cells'"),
        ({"n_bits": 8, "code": "cells", "loss": "distances"}, "loss must be 'neighbors' for code='cells'"),
        ({"loss": "ranks"}, "loss must be 'neighbors' or 'distances'; got 'ranks'"),
        ({"query": "vector"}, "query must be 'code' or 'real'; got 'vector'"),
        ({"code": "bytes"}, "code must be 'auto' or 'bits' or 'cells'; got 'bytes'"),
        ({"n_hidden": -1}, "n_hidden must be a whole number of at least 0"),
        ({"sharpness": 0}, "sharpness must be 'auto', or a number above 0; got 0"),
        ({"sharpness": "high"}, "sharpness must be 'auto', or a number above 0; got 'high'"),
        ({"epochs": 0}, "epochs must be 'auto', or a number of at least 0.001 and at most"),
        ({"batch_size": 7}, "batch_size must be a whole number of at least 8; got 7"),
    ],
)
def test_bad_parameters_are_refused(options, words, digits):
    with pytest.raises(ValueError, match=words):
        NeighborHash(**options).fit(digits.train[:50])


def test_parameters_that_decide_shapes_must_not_change_after_fit(digits, tmp_path):
    hasher = NeighborHash(12, n_hidden=4, random_state=0).fit(digits.train[:100])
    for name, value in (("n_hidden", 5), ("n_hidden", 0), ("code", "cells")):
        changed = hashlearn.NeighborHash(**{**hasher.get_params(), name: value})
        changed.__dict__.update({k: v for k, v in vars(hasher).items() if k.endswith("_")})
        with pytest.raises(ValueError, match=r"fit again|at most 8"):
            changed.save(tmp_path / "m")


@pytest.mark.parametrize(
    "options",
    [{"n_bits": 5}, {"n_bits": 12}, {"n_bits": 12, "loss": "distances"}, {"n_bits": 12, "query": "real"}],
)
def test_threads_do_not_matter(digits, options, monkeypatch):
    X, values = digits.train[:700], []
    for n in (1, 3):
        monkeypatch.setattr(neighbor_hash, "thread_map", lambda n=n: thread_map(n))
        values.append(NeighborHash(**options, n_hidden=4, random_state=0).fit(X).decision_function(X))
    np.testing.assert_array_equal(*values)


def test_one_step_trains_at_the_learning_rate(digits):
    X = digits.train[:100]
    still, moved = (
        NeighborHash(12, n_hidden=4, epochs=1, learning_rate=r, random_state=0).fit(X) for r in (STILL, 0.1)
    )
    assert np.abs(moved.V_ - still.V_).max() == pytest.approx(0.1, rel=1e-3)  # the first step of Adam is the rate


@pytest.mark.parametrize("options", [{"query": "real"}, {"loss": "distances"}])
def test_short_codes_for_real_valued_queries_or_by_distances_are_bits(digits, options):
    assert NeighborHash(8, n_hidden=4, random_state=0, **options).fit(digits.train[:100]).V_.shape == (64, 8)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_training_that_diverges_is_an_error(digits):
    with pytest.raises(ValueError, match="training diverged: choose a lower learning_rate or sharpness"):
        NeighborHash(12, learning_rate=1e38, random_state=0).fit(digits.train[:100])


@pytest.mark.parametrize("scale", [1e-42, 1e40])
def test_any_scale_of_float64_is_learned_from(digits, scale):
    X = digits.train[:200].astype(np.float64)
    plain = NeighborHash(12, n_hidden=4, random_state=0).fit(X)
    scaled = NeighborHash(12, n_hidden=4, random_state=0).fit(X * scale)
    assert (plain.transform(X) == scaled.transform(X * scale)).mean() > 0.95


def test_far_cells_do_not_end_in_nan(digits):
    hasher = NeighborHash(6, sharpness=400.0, learning_rate=0.1, random_state=0).fit(digits.train[:300])
    assert len(np.unique(hasher.encode(digits.train[:300]))) > 1


@pytest.mark.parametrize("loss", ["neighbors", "distances"])
def test_of_many_samples_some_are_drawn_and_have_fewer_true_neighbors(digits, loss):
    X = digits.train
    some = NeighborHash(16, loss=loss, n_neighbors=20, max_samples=600, epochs=2, random_state=0).fit(X)
    rng = np.random.default_rng(0)
    drawn = X[np.sort(rng.choice(len(X), 600, replace=False))]
    assert 20 * 600 / len(X) == 8
    same = NeighborHash(16, loss=loss, n_neighbors=8, epochs=2, random_state=rng).fit(drawn)
    np.testing.assert_array_equal(some.encode(X), same.encode(X))
    # Where there are no more samples, nothing is drawn.
    options = {"loss": loss, "n_neighbors": 20, "epochs": 2, "random_state": 0}
    all_, none = (NeighborHash(16, max_samples=n, **options).fit(drawn) for n in (600, None))
    np.testing.assert_array_equal(all_.encode(X), none.encode(X))


def test_the_true_neighbors_of_drawn_samples_are_not_too_few(digits):
    X = digits.train
    few = NeighborHash(16, n_neighbors=20, max_samples=100, epochs=2, random_state=0).fit(X)
    rng = np.random.default_rng(0)
    drawn = X[np.sort(rng.choice(len(X), 100, replace=False))]
    same = NeighborHash(16, n_neighbors=5, epochs=2, random_state=rng).fit(drawn)
    np.testing.assert_array_equal(few.encode(X), same.encode(X))
