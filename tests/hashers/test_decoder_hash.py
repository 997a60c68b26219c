"""DecoderHash: codes, decoder, and the scores of real-valued queries."""

import numpy as np
import pytest

from hashlearn import ITQ, KMH, METHODS, SPH, DecoderHash, NeighborHash
from hashlearn.codes import signs
from hashlearn.datasets import load
from hashlearn.evaluation import euclidean_neighbors
from hashlearn.hashers import _blocks, decoder_hash
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._contrast import draw_batches
from hashlearn.hashers.decoder_hash import decoder_step, query_objective
from hashlearn.hashers.steps import descent
from hashlearn.threads import thread_map
from reference import decoder_hash as reference
from reference.gradients import check_by_differences


def serial(function, items):
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def codes_as_signs(hasher, X):
    return 2.0 * hasher.transform(X) - 1


def scores(hasher, queries, X):
    return hasher.query_values(queries) @ codes_as_signs(hasher, X).T + hasher.code_offsets(hasher.encode(X))


def recall(scores, truth):
    found = np.argsort(-scores, axis=1, kind="stable")[:, : truth.shape[1]]
    return np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, truth, strict=True)]) / truth.shape[1]


@pytest.mark.parametrize("anisotropy", [0.0, 0.5])
def test_untrained_scores_are_distances_to_the_reconstruction(digits, anisotropy):
    X, queries = digits.train[:300].astype(np.float64), digits.queries[:20].astype(np.float64)
    hasher = DecoderHash(40, anisotropy=anisotropy, epochs=0, random_state=0).fit(X)
    found, B = scores(hasher, queries, X), codes_as_signs(hasher, X)
    for q, row in zip(queries, found, strict=True):
        distances = reference.reconstruction_distances(q, B, hasher.mean_, hasher.scale_, hasher.decoder_)
        expected = np.sum((q - hasher.mean_) ** 2) - hasher.scale_**2 * row
        np.testing.assert_allclose(distances, expected, rtol=1e-9)
        gaps = np.diff(distances[np.argsort(-row, kind="stable")])
        assert (gaps >= -1e-9 * distances.max()).all()  # the same order, but for ties


def test_offsets_are_minus_the_squared_lengths_of_reconstructions(digits):
    hasher = DecoderHash(21, epochs=0, random_state=0).fit(digits.train[:300])
    B = codes_as_signs(hasher, digits.train[:50])
    expected = [-sum(float(b @ w) ** 2 for w in hasher.decoder_.T) for b in B]
    np.testing.assert_allclose(hasher.code_offsets(hasher.encode(digits.train[:50])), expected, rtol=1e-12)
    assert hasher.code_offsets(np.empty((0, 3), dtype=np.uint8)).shape == (0,)
    with pytest.raises(ValueError, match="codes of 21 bits must have shape"):
        hasher.code_offsets(np.zeros((4, 2), dtype=np.uint8))


@pytest.mark.parametrize("anisotropy", [0.0, 0.5, 3.0])
def test_no_flip_of_a_bit_lowers_the_energy_of_a_code(digits, anisotropy):
    X = digits.train[:200].astype(np.float64)
    hasher = DecoderHash(24, anisotropy=anisotropy, epochs=0, random_state=0).fit(X)
    W, values = hasher.decoder_, hasher.decision_function(X[:30])
    for x, b, slopes in zip(
        (X[:30] - hasher.mean_) / hasher.scale_, codes_as_signs(hasher, X[:30]), values, strict=True
    ):
        energy = reference.code_energy(x, b, W, anisotropy)
        for k in range(24):
            other = b.copy()
            other[k] *= -1
            more = reference.code_energy(x, other, W, anisotropy) - energy
            assert more >= -1e-12
            assert more == pytest.approx(4 * b[k] * slopes[k], abs=1e-9)


def test_neither_step_raises_the_objective(digits):
    """From given codes, without anisotropy."""
    X = digits.train[:500]
    rows = Rows(X, X.mean(axis=0), 30.0, serial, dtype=np.float64)
    V = np.random.default_rng(0).standard_normal((64, 20))
    B = signs(rows[slice(None)] @ V)

    def objective(W):
        return np.mean(np.sum((rows[slice(None)] - B @ W) ** 2, axis=1)) + decoder_hash._RIDGE * np.sum(W**2)

    W, loss = decoder_step(rows, B)
    for _ in range(6):
        last = objective(W)
        B, _ = descent(rows[slice(None)], W, 0.0, 1, B)
        assert objective(W) <= last + 1e-12
        last = objective(W)
        W, loss = decoder_step(rows, B)
        assert objective(W) <= last + 1e-12
        assert loss == pytest.approx(objective(W) - decoder_hash._RIDGE * np.sum(W**2))


def test_the_objective_of_queries_and_its_gradient():
    rng = np.random.default_rng(0)
    X, B, W = rng.standard_normal((60, 5)) / 3, signs(rng.standard_normal((60, 4))), rng.standard_normal((4, 5)) / 4
    rows = Rows(X, np.zeros(5), 1.0, serial, dtype=np.float64)
    neighbors = np.argsort(((X[:, None] - X) ** 2).sum(axis=2), axis=1)[:, 1:13]
    batch = next(draw_batches(neighbors, 4, 30, 5, 1, rng))
    J = query_objective(rows, B, np.sum((B @ W) ** 2, axis=1), serial)
    theta = rng.standard_normal((6, 4)) / 5
    terms, _ = J(theta.ravel(), batch)
    expected = reference.query_loss(X, B, W, theta[:-1], theta[-1], decoder_hash._SHARPNESS, batch)
    assert terms["loss"] == pytest.approx(expected)
    check_by_differences(lambda t: J(t, batch), theta.ravel(), [(theta[:-1], theta[-1])], tolerance=1e-6)


def test_real_valued_queries_find_more_than_those_of_itq(digits):
    truth = euclidean_neighbors(digits.queries, digits.train, 10)
    for seed in range(2):
        ours, plain = (
            recall(scores(h.fit(digits.train), digits.queries, digits.train), truth)
            for h in (DecoderHash(64, random_state=seed), ITQ(64, random_state=seed))
        )
        assert ours > plain + 0.08


def test_training_changes_queries_only_and_lowers_their_loss(digits):
    X = digits.train
    plain, trained = (DecoderHash(32, epochs=e, random_state=0).fit(X) for e in (0, 10))
    np.testing.assert_array_equal(plain.encode(X), trained.encode(X))
    np.testing.assert_array_equal(plain.query_map_, 2 * plain.decoder_.T)
    assert not plain.query_offset_.any()
    varies = digits.train.std(axis=0) > 0
    assert (plain.query_map_ != trained.query_map_)[varies].mean() > 0.99
    assert trained.query_history_[-1]["loss"] < trained.query_history_[0]["loss"]
    assert trained.summary()["query_loss"] == trained.query_history_[-1]["loss"]
    assert "query_loss" not in plain.summary()


@pytest.mark.parametrize(
    "options",
    [{"anisotropy": 0.0}, {"max_iter": 1}, {"max_samples": 200}, {"n_neighbors": 3}, {"learning_rate": 0.1}],
)
def test_every_parameter_has_an_effect(digits, options):
    X = digits.train[:400]
    plain = DecoderHash(16, epochs=1, random_state=0).fit(X)
    other = DecoderHash(16, epochs=1, random_state=0).set_params(**options).fit(X)
    assert (plain.query_values(X) != other.query_values(X)).any()
    if set(options) <= {"anisotropy", "max_iter", "max_samples"}:
        assert (plain.encode(X) != other.encode(X)).any()


def test_many_neighbors_count(digits):
    few, many = (DecoderHash(16, n_neighbors=n, random_state=0).fit(digits.train[:400]) for n in (100, 300))
    assert (few.query_map_ != many.query_map_).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anisotropy": -1}, "anisotropy must be a number of at least 0"),
        ({"max_samples": 1}, "max_samples must be None or a whole number of at least 2"),
        ({"epochs": 0, "n_neighbors": 5}, "n_neighbors has no effect for epochs=0"),
        ({"epochs": 0, "learning_rate": 0.1}, "learning_rate has no effect for epochs=0"),
    ],
)
def test_bad_parameters_are_refused(digits, options, words):
    with pytest.raises(ValueError, match=words):
        DecoderHash(8, **options).fit(digits.train[:50])


def test_anisotropy_belongs_to_the_model(digits, tmp_path):
    X = digits.train[:200]
    hasher = DecoderHash(24, epochs=0, random_state=0).fit(X)
    codes = hasher.encode(X)
    hasher.set_params(anisotropy=5.0)
    np.testing.assert_array_equal(hasher.encode(X), codes)
    with pytest.raises(ValueError, match=r"anisotropy was changed to 5\.0 after fit: fit again"):
        hasher.save(tmp_path / "model")


def test_a_loaded_model_has_the_same_queries_and_offsets(digits, tmp_path):
    X = digits.train[:300]
    hasher = DecoderHash(24, epochs=1, random_state=0).fit(X)
    hasher.save(tmp_path / "model")
    loaded = DecoderHash.load(tmp_path / "model")
    np.testing.assert_array_equal(scores(loaded, X[:9], X), scores(hasher, X[:9], X))


def test_threads_do_not_matter(digits, monkeypatch):
    values = []
    for n in (1, 3):
        monkeypatch.setattr(decoder_hash, "thread_map", lambda n=n: thread_map(n))
        monkeypatch.setattr(_blocks, "BLOCK_ROWS", 128)
        hasher = DecoderHash(24, epochs=1, random_state=0).fit(digits.train[:700])
        values.append((hasher.query_map_, hasher.decoder_))
    for a, b in zip(*values, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("max_samples", [300, None])
def test_a_memory_map_gives_the_same_model(digits, tmp_path, monkeypatch, max_samples):
    X = digits.train[:400]
    np.save(tmp_path / "x.npy", X)
    expected = scores(DecoderHash(24, epochs=1, max_samples=max_samples, random_state=0).fit(X), X[:9], X)
    monkeypatch.setattr(_blocks, "_SHARE_OF_MEMORY", 0.0)
    mapped = DecoderHash(24, epochs=1, max_samples=max_samples, random_state=0)
    mapped.fit(np.load(tmp_path / "x.npy", mmap_mode="r"))
    np.testing.assert_array_equal(scores(mapped, X[:9], X), expected)


@pytest.mark.parametrize("scale", [1e-20, 1e15])
def test_the_scale_does_not_matter(digits, scale):
    X = digits.train[:300].astype(np.float64)
    plain, scaled = (DecoderHash(24, epochs=1, random_state=0).fit(Y) for Y in (X, X * scale))
    assert (plain.transform(X) == scaled.transform(X * scale)).mean() > 0.99
    np.testing.assert_allclose(plain.query_map_, scaled.query_map_, atol=0.02 * np.abs(plain.query_map_).max())


def test_codes_may_be_longer_than_vectors():
    X = np.random.default_rng(0).standard_normal((200, 6))
    hasher = DecoderHash(24, random_state=0).fit(X)
    loss = hasher.history_[-1]["loss"]
    assert loss < DecoderHash(6, random_state=0).fit(X).history_[-1]["loss"] / 4


@pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("sph", "kmh", "decoder-hash")])
def test_other_methods_take_their_decision_function(name, digits):
    short = {
        "udh-dnn": {"max_iter": 1, "lbfgs_iter": 5},
        "sdh-dnn": {"max_iter": 1, "lbfgs_iter": 5},
        "dh": {"max_iter": 1},
        "sign": {"threshold": "mean"},
    }
    X, y = digits.train[:200], digits.train_labels[:200]
    hasher = METHODS[name](12, **short.get(name, {}))
    hasher.fit(X, y)
    assert hasher.has_query_values
    np.testing.assert_array_equal(hasher.query_values(X), hasher.decision_function(X))
    np.testing.assert_array_equal(hasher.code_offsets(hasher.encode(X)), np.zeros(200))


@pytest.mark.parametrize(
    ("hasher", "words"),
    [
        (SPH(12, random_state=0), "sph has no query_values: its codes are ranked by spherical distance"),
        (KMH(12, bits_per_subspace=4), "kmh has no query_values: 4 bits together are the number of a cell"),
        (NeighborHash(4, n_hidden=4, random_state=0), "neighbor-hash has no query_values: 4 bits together"),
    ],
)
def test_methods_whose_values_can_not_be_added_are_refused(hasher, words, digits):
    hasher.fit(digits.train[:200])
    assert not hasher.has_query_values
    with pytest.raises(ValueError, match=words):
        hasher.query_values(digits.queries)


def test_kmh_with_one_bit_a_subspace_gives_distances_from_codewords(digits):
    """The score is the distance from the code's codewords, up to a constant of the query and a factor."""
    X = digits.train[:300].astype(np.float64)
    hasher = KMH(16, bits_per_subspace=1).fit(X)
    scores = hasher.query_values(X[:5]) @ codes_as_signs(hasher, X).T
    words = hasher.codewords_[np.arange(16), hasher.transform(X)].sum(axis=1)  # in orthogonal subspaces
    distances = ((X[:5, None] - hasher.mean_ - words) ** 2).sum(axis=2)
    for row, exact in zip(scores, distances, strict=True):
        slope, _ = np.polyfit(row, exact, 1)
        assert slope < 0
        np.testing.assert_allclose(exact - slope * row, (exact - slope * row).mean(), rtol=1e-6)
