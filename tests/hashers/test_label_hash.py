"""LabelHash: losses and gradients, what it learns from one label, several or none."""

import numpy as np
import pytest

from hashlearn import LabelHash, NeighborHash
from hashlearn.datasets import load
from hashlearn.evaluation import Truth, evaluate
from hashlearn.hashers import _blocks, label_hash
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._class_codes import (
    LabelBatch,
    Losses,
    Sizes,
    class_contrast,
    cross_entropy,
    first_weights,
    folded,
    objective,
)
from hashlearn.hashers._contrast import draw_batches
from hashlearn.hashers._targets import checked_targets
from hashlearn.hashers.steps import compile_steps
from hashlearn.threads import thread_map
from reference import label_hash as reference
from reference.neighbor_hash import loss as neighbor_loss

STILL = 1e-30  # a learning rate that leaves the start as it is
CLASSES = [{0}, {1}, {0, 2}, {2}, set(), {1}, {0, 1, 2}, {3}]
SMALL = {"n_hidden": 32, "random_state": 0}


def serial(function, items):
    return [function(item) for item in items]


def indicators(classes, n):
    return np.array([[float(k in own) for k in range(n)] for own in classes])


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def quality(hasher, digits, n_bits):
    truth = Truth.labels(digits.query_labels, digits.train_labels)
    codes = hasher.encode(digits.queries), hasher.encode(digits.train)
    return evaluate(*codes, truth, n_bits=n_bits, show_progress=False).map


# -- losses -----------------------------------------------------------------------------------------------------------


def test_contrast_is_the_softmax_over_hamming_distances():
    codes = np.where(np.random.default_rng(0).random((8, 6)) < 0.5, -1.0, 1.0)
    value, _ = class_contrast(codes, indicators(CLASSES, 4), 0.7, serial)
    assert value == pytest.approx(reference.contrast(codes, CLASSES, 0.7), rel=1e-12)


def test_cross_entropy_of_several_classes():
    outputs = np.random.default_rng(1).standard_normal((8, 4))
    value, slope = cross_entropy(outputs, indicators(CLASSES, 4))
    assert value == pytest.approx(reference.cross_entropy(outputs, CLASSES), rel=1e-12)
    assert (slope[4] == 0).all()  # of no class: nothing to learn


def test_losses_of_two_samples_by_hand():
    codes = np.array([[1.0, 1.0], [1.0, -1.0]])
    assert class_contrast(codes, np.array([[1.0, 0], [1.0, 0]]), 1.0, serial)[0] == 0  # the only other one is alike
    value, slope = class_contrast(codes, np.eye(2), 1.0, serial)  # nobody to be near
    assert value == 0
    assert (slope == 0).all()
    value, slope = cross_entropy(np.zeros((1, 2)), np.array([[1.0, 0]]))
    assert value == pytest.approx(np.log(2))
    np.testing.assert_allclose(slope, [[-0.5, 0.5]])


def test_far_codes_of_a_class_do_not_end_in_nan():
    codes = np.ones((3, 2000), dtype=np.float32)
    codes[1] = -1
    value, slope = class_contrast(codes, np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32), 1.0, serial)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


# -- the network ------------------------------------------------------------------------------------------------------


def smooth(H):
    t = np.tanh(2 * H)
    return t, 2 * (1 - t * t)


@pytest.fixture(scope="module")
def problem():
    """Rows, sizes, parameters, and a batch of labeled samples and of groups of neighbors."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    neighbors = np.argsort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)[:, 1:9].astype(np.int32)
    groups = next(draw_batches(neighbors, 4, 16, 3, 1, np.random.default_rng(5)))
    rows = Rows(X, np.zeros(5), 1.0, serial, dtype=np.float64)
    batch = LabelBatch(np.concatenate([np.arange(8), groups.samples]), indicators(CLASSES, 4), groups)
    sizes = Sizes(5, 7, 3, 4)
    theta = first_weights(sizes, rng)
    theta += 0.1 * rng.standard_normal(len(theta))
    return X, rows, sizes, theta, batch, neighbors


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(("cross", "contrast"), [(1.0, 1.0), (2.0, 0.0), (0.0, 3.0)])
def test_gradient_equals_finite_differences(problem, dropout, cross, contrast):
    _, rows, sizes, theta, batch, _ = problem
    losses = Losses(cross, contrast, 0.8, 0.7, 1.3)

    def evaluated(theta):  # anew: the same values are dropped
        return objective(rows, sizes, losses, dropout, np.array([3]), serial, smooth)(theta, batch)

    _, gradient = evaluated(theta)
    for i in range(0, len(theta), 3):
        step = np.zeros(len(theta))
        step[i] = 1e-6
        up, down = (sum(evaluated(theta + sign * step)[0].values()) for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-7)
    assert np.abs(gradient).max() > 0.01


def test_terms_are_the_losses_of_the_codes(problem):
    X, rows, sizes, theta, batch, graph = problem
    w = sizes.split(theta)
    terms, _ = objective(rows, sizes, Losses(2.0, 3.0, 0.8, 0.7, 1.3), 0.0, np.array([3]), serial)(theta, batch)
    B = np.where(reference.outputs(X[batch.samples], w) >= 0, 1.0, -1.0)
    assert terms["cross_entropy"] == pytest.approx(2 * reference.cross_entropy(B[:8] @ w.V + w.c2, CLASSES))
    assert terms["contrast"] == pytest.approx(3 * reference.contrast(B[:8], CLASSES, 0.8))
    expected = neighbor_loss(lambda i, j: np.exp(-1.3 * (B[8 + i] != B[8 + j]).sum()), batch.groups.samples, graph, 4)
    assert terms["neighbors"] == pytest.approx(0.7 * expected)


def test_the_encoder_is_the_network_with_statistics_of_all_samples(problem):
    X, rows, sizes, theta, *_ = problem
    w = sizes.split(theta)
    W1, c1, W2, c2 = folded(w, rows)
    H = np.maximum(X @ W1 + c1, 0) @ W2 + c2
    np.testing.assert_allclose(H, reference.outputs(X, w), atol=1e-9)


# -- what it learns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bits", [8, 16])
def test_samples_of_a_class_get_near_codes(digits, n_bits):
    X, y = digits.train, digits.train_labels
    hasher = LabelHash(n_bits, n_hidden=64, epochs=60, random_state=0).fit(X, y)
    still = LabelHash(n_bits, n_hidden=64, epochs=1, learning_rate=STILL, random_state=0).fit(X, y)
    assert quality(still, digits, n_bits) < 0.6
    assert quality(hasher, digits, n_bits) > 0.9
    first, *_, last = hasher.history_
    assert last["cross_entropy"] < 0.5 * first["cross_entropy"]
    assert last["contrast"] < 0.5 * first["contrast"]


def test_unlabeled_samples_help(digits):
    y = np.array(digits.train_labels, dtype=int)
    some, n = y.copy(), 60
    some[n:] = -1
    alone = LabelHash(16, n_hidden=64, random_state=0).fit(digits.train[:n], y[:n])
    both = LabelHash(16, n_hidden=64, epochs=40, random_state=0).fit(digits.train, some)
    assert quality(both, digits, 16) > quality(alone, digits, 16) + 0.1
    assert (alone.n_guessed_, both.n_guessed_ > 700) == (0, True)
    assert set(both.history_[0]) == {"cross_entropy", "contrast", "neighbors", "seconds"}


def test_every_way_to_say_unlabeled_is_the_same(digits):
    X, y = digits.train[:200], np.array(digits.train_labels[:200], dtype=int)
    hidden = np.arange(200) % 3 == 0
    forms = [
        np.where(hidden, -1, y),
        np.where(hidden, np.nan, y.astype(float)),
        [None if h else int(label) for h, label in zip(hidden, y, strict=True)],
        [None if h else f"class {label}" for h, label in zip(hidden, y, strict=True)],
        np.where(hidden[:, None], -1, np.eye(10, dtype=int)[y]),
        np.where(hidden[:, None], np.nan, np.eye(10)[y]),
    ]
    first, *others = (LabelHash(8, n_hidden=8, n_neighbors=5, random_state=0).fit(X, form).encode(X) for form in forms)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_several_labels(digits):
    """Labels: the digit is even, is small, is prime. Codes are nearer the more samples share."""
    facts = np.array([[d % 2 == 0, d < 5, d in (2, 3, 5, 7)] for d in range(10)], dtype=int)
    y = facts[np.array(digits.train_labels, dtype=int)]
    hasher = LabelHash(12, n_hidden=64, random_state=0).fit(digits.train, y)
    np.testing.assert_array_equal(hasher.classes_, [0, 1, 2])
    B = 2.0 * hasher.transform(digits.queries) - 1
    own = facts[np.array(digits.query_labels)]
    distance, shares = (12 - B @ B.T) / 2, own @ own.T > 0
    assert distance[shares].mean() < distance[~shares].mean() - 2


def test_sparse_indicators_and_lists_are_matrices_too(digits):
    from scipy.sparse import csr_array, csr_matrix

    X, Y = digits.train[:100], np.eye(10, dtype=int)[np.array(digits.train_labels[:100], dtype=int)]
    expected = LabelHash(8, n_hidden=4, random_state=0).fit(X, Y).encode(X)
    for form in (csr_matrix(Y), csr_array(Y), Y.tolist(), Y.astype(bool), Y.astype(np.float32)):
        np.testing.assert_array_equal(LabelHash(8, n_hidden=4, random_state=0).fit(X, form).encode(X), expected)


def test_labeled_samples_need_no_graph(digits, monkeypatch):
    monkeypatch.setattr(label_hash, "neighbor_graph", lambda *args, **kwargs: pytest.fail("a graph was made"))
    LabelHash(8, n_hidden=4, random_state=0).fit(digits.train[:100], digits.train_labels[:100])


# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([-1] * 4, "y has no labels, only None, NaN or -1: LabelHash learns from some; use NeighborHash"),
        ([None] * 4, "use NeighborHash"),
        ([[-1, -1]] * 4, "use NeighborHash"),
        ([1, -1, -1, 1], r"at least 2 classes, without those that have none \(None, NaN or -1\); got 1: 1"),
        (["a"] * 4, "at least 2 classes; got 1: a"),
        (np.zeros((4, 3)), "at least 2 classes; got 0"),
        ([0, 1, 2], "a label for each of the 4 samples; got 3"),
        (np.zeros((3, 2)), "a label for each of the 4 samples; got 3"),
        (np.array([[0, 1], [1, 0], [2, 0], [0, 1]]), "1 where a sample is of a class and 0 where not, .*; got 2"),
        (np.array([[0, 1], [1, 0], [-1, 0], [0, 1]]), "NaN or -1 in a whole row; got -1"),
        (np.array([[0, 1], [1, 0], [np.nan, 0], [0, 1]]), "NaN or -1 in a whole row; got nan"),
        (np.array([["a", "b"]] * 4), "got values of type <U1"),
        ([[0, 1], [1], [0], [1]], "its rows differ"),
        (np.array([[0], [1], [0], [1]]), r"one label per item \(1 dimension\); got shape \(4, 1\)"),
        (np.zeros((4, 2, 2)), r"one label per item \(1 dimension\); got shape \(4, 2, 2\)"),
        (None, "LabelHash learns from labels"),
    ],
)
@pytest.mark.filterwarnings("ignore:X has 4 samples")
def test_bad_labels_are_refused(y, words):
    with pytest.raises(ValueError, match=words):
        LabelHash(4, n_hidden=2).fit(np.arange(8.0).reshape(4, 2), y)


def test_targets_by_hand():
    classes, Y, labeled = checked_targets(["b", None, "a", "b"], 4, "LabelHash")
    np.testing.assert_array_equal(classes, ["a", "b"])
    np.testing.assert_array_equal(Y.toarray(), [[0, 1], [0, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(labeled, [0, 2, 3])
    _, Y, labeled = checked_targets(np.array([[1, 1], [0, 0], [-1, -1], [0, 1]]), 4, "LabelHash")
    np.testing.assert_array_equal(Y.toarray(), [[1, 1], [0, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(labeled, [0, 1, 3])  # of no class is known too
    assert checked_targets(["-1", "1", "-1"], 3, "LabelHash").classes.tolist() == ["-1", "1"]  # texts are labels
    assert checked_targets([True, False, -1], 3, "LabelHash").labeled.tolist() == [0, 1]


# -- the rest of the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"n_hidden": 5},
        {"cross_entropy": 5.0},
        {"contrast": 5.0},
        {"sharpness": 6.0},
        {"dropout": 0.1},
        {"epochs": 500},
        {"batch_size": 64},
        {"learning_rate": 1e-3},
    ],
)
def test_every_option_has_an_effect(digits, options):
    X, y = digits.train[:300], digits.train_labels[:300]
    plain = LabelHash(8, **SMALL).fit(X, y).encode(X)
    assert (LabelHash(**{"n_bits": 8, **SMALL, **options}).fit(X, y).encode(X) != plain).any()


def test_neighbors_have_an_effect_on_unlabeled_samples(digits):
    X, y = digits.train[:300], np.array(digits.train_labels[:300], dtype=int)
    y[::2] = -1
    plain = LabelHash(8, **SMALL).fit(X, y).encode(X)
    assert (LabelHash(8, n_neighbors=20, **SMALL).fit(X, y).encode(X) != plain).any()


def test_a_memory_map_is_read_as_it_is_needed(digits, tmp_path, monkeypatch):
    X, y = digits.train[:400], np.array(digits.train_labels[:400], dtype=int)
    y[::4] = -1
    np.save(tmp_path / "x.npy", X)
    expected = LabelHash(12, **SMALL).fit(X, y).encode(X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr(_blocks, "_SHARE_OF_MEMORY", 0.0)
    np.testing.assert_array_equal(LabelHash(12, **SMALL).fit(mapped, y).encode(X), expected)


def test_a_cached_graph_gives_the_same_codes(digits, tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    X, y = digits.train[:200], np.array(digits.train_labels[:200], dtype=int)
    y[::2] = -1
    expected = LabelHash(12, **SMALL).fit(X, y).encode(X)
    for _ in range(2):
        np.testing.assert_array_equal(LabelHash(12, cache_graph=True, **SMALL).fit(X, y).encode(X), expected)
    assert len(list((tmp_path / "graphs").glob("*.npy"))) == 1


def test_a_graph_that_another_method_cached_does_not_matter(digits, tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    X, y = digits.train[:1000], np.array(digits.train_labels[:1000], dtype=int)
    y[::2] = -1
    options = {**SMALL, "n_neighbors": 20}
    expected = LabelHash(12, **options).fit(X, y).encode(X)
    NeighborHash(12, n_neighbors=20, n_hidden=4, epochs=0.1, random_state=0, cache_graph=True).fit(X)
    np.testing.assert_array_equal(LabelHash(12, cache_graph=True, **options).fit(X, y).encode(X), expected)


def test_threads_do_not_matter(digits, monkeypatch):
    X, y, values = digits.train[:700], np.array(digits.train_labels[:700], dtype=int), []
    y[::3] = -1
    for n in (1, 3):
        monkeypatch.setattr(label_hash, "thread_map", lambda n=n: thread_map(n))
        hasher = LabelHash(12, n_hidden=300, epochs=3, random_state=0).fit(X, y)
        values.append(hasher.decision_function(X))
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_offset_and_scale_of_a_feature_do_not_matter(digits, factor):
    X, y = digits.train[:300].astype(np.float64), digits.train_labels[:300]
    factors, offsets = np.geomspace(1, factor, X.shape[1]), np.geomspace(1, factor, X.shape[1])
    plain = LabelHash(12, learning_rate=1e-3, **SMALL).fit(X, y)
    other = LabelHash(12, learning_rate=1e-3, **SMALL).fit(X * factors + offsets, y)
    assert (plain.transform(X) == other.transform(X * factors + offsets)).mean() > 0.95


def test_constant_features_are_ignored(digits):
    X, y = digits.train[:300], digits.train_labels[:300]
    hasher = LabelHash(8, **SMALL).fit(X, y)
    constant = X.std(axis=0) == 0
    assert constant.any()
    assert np.isfinite(hasher.decision_function(X)).all()
    wider = LabelHash(8, **SMALL).fit(np.hstack([X, np.full((300, 1), 7.0)]), y)
    assert np.isfinite(wider.decision_function(np.hstack([X, np.full((300, 1), 7.0)]))).all()


def test_outputs_have_mean_0_and_deviation_1(digits):
    hasher = LabelHash(8, epochs=5, **SMALL).fit(digits.train, digits.train_labels)
    H = compile_steps(hasher.encoder_steps(), np.float64)(digits.train)
    np.testing.assert_allclose(H.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(H.std(axis=0), 1, atol=1e-3)


@pytest.mark.filterwarnings("ignore:X has 2 samples")
def test_two_samples_are_enough():
    X = np.array([[0.0, 1.0], [1.0, 0.0]])
    hasher = LabelHash(12, n_hidden=2, random_state=0).fit(X, [0, 1])
    assert np.isfinite(hasher.decision_function(X)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_hidden": 0}, "n_hidden must be a whole number of at least 1"),
        ({"cross_entropy": 0, "contrast": 0}, "cross_entropy or contrast must be above 0; got 0 for both"),
        ({"cross_entropy": -1}, "cross_entropy must be a number of at least 0; got -1"),
        ({"contrast": 0, "sharpness": 3.0}, "sharpness has no effect with contrast=0"),
        ({"sharpness": 0}, "sharpness must be a number above 0; got 0"),
        ({"dropout": 1}, "dropout must be a number of at least 0 and at most 0.95; got 1"),
        ({"epochs": 0}, "epochs must be 'auto', or a number of at least 0.001 and at most"),
        ({"batch_size": 7}, "batch_size must be a whole number of at least 8; got 7"),
    ],
)
def test_bad_parameters_are_refused(options, words, digits):
    with pytest.raises(ValueError, match=words):
        LabelHash(**options).fit(digits.train[:50], digits.train_labels[:50])


def test_the_number_of_units_must_not_change_after_fit(digits, tmp_path):
    hasher = LabelHash(12, n_hidden=4, random_state=0).fit(digits.train[:100], digits.train_labels[:100])
    with pytest.raises(ValueError, match="n_hidden was changed to 5 after fit learned 4 units: fit again"):
        hasher.set_params(n_hidden=5).save(tmp_path / "m")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_training_that_diverges_is_an_error(digits):
    with pytest.raises(ValueError, match="training diverged: choose a lower learning_rate"):
        LabelHash(12, learning_rate=1e38, random_state=0).fit(digits.train[:100], digits.train_labels[:100])


def test_samples_that_no_label_reaches_are_not_guessed():
    """60 clusters far apart, a label in each of 30 of them, nearly all of one class."""
    rng = np.random.default_rng(0)
    centers = 1000 * rng.normal(size=(60, 8))
    X = (centers[:, None] + rng.normal(size=(60, 20, 8))).reshape(-1, 8)
    y = np.full(1200, -1)
    for cluster in range(30):
        y[20 * cluster] = int(cluster == 29)
    hasher = LabelHash(8, n_hidden=16, n_neighbors=5, epochs=1, random_state=0).fit(X, y)
    assert hasher.n_guessed_ <= 30 * 19


def test_one_labeled_sample_trains_without_nan():
    X = np.random.default_rng(0).normal(size=(300, 6))
    Y = np.full((300, 2), -1.0)
    Y[0] = 1
    hasher = LabelHash(8, n_hidden=16, epochs=2, random_state=0).fit(X, Y)
    assert np.isfinite(hasher.decision_function(X)).all()
