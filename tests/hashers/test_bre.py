"""What defines Binary Reconstructive Embedding, supervised."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import hashlearn
from hashlearn import BRE, ITQ, LSH
from hashlearn.codes import signs
from hashlearn.evaluation import Truth, evaluate
from hashlearn.hashers import _pairs, bre
from hashlearn.hashers._pairs import Pairs
from reference import bre as slow

pytestmark = pytest.mark.slow

KERNELS = ("linear", "rbf")


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.fixture
def trainings(monkeypatch):
    """Every coordinate descent that is begun from now on."""
    found = []
    begin = bre.Descent.__init__

    def spy(self, *args):
        begin(self, *args)
        found.append(self)

    monkeypatch.setattr(bre.Descent, "__init__", spy)
    return found


def random_codes(rng, m, L, c):
    return (2 * rng.integers(0, 2, (m, L)) - 1).astype(np.int8), np.append(np.arange(c), rng.integers(0, c, m - c))


@st.composite
def problems(draw):
    """A bit among others, its kernel values small whole numbers: many ties, zeros, values of exactly 0."""
    m, L, s, c = (draw(st.integers(*bounds)) for bounds in ((3, 9), (1, 4), (1, 4), (1, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(st.integers(1, 4))
    B, y = random_codes(rng, m, L, c)
    kappas = rng.integers(-largest, largest + 1, (s, m)).astype(draw(st.sampled_from([np.float32, np.float64])))
    w = rng.integers(-largest, largest + 1, s) / 4.0
    return B, y, kappas, w, draw(st.integers(0, L - 1)), draw(st.integers(0, s - 1))


@settings(max_examples=200, deadline=None)
@given(problems())
def test_a_weight_is_set_to_the_best_of_all_intervals(problem):
    B, y, kappas, w, k, q = problem
    B[:, k] = slow.bit(kappas, w)

    def value(h):
        return slow.objective(np.column_stack([B[:, :k], h, B[:, k + 1 :]]), y)

    present = value(B[:, k])
    best = min([present, *(value(slow.with_weight(kappas, w, q, x)) for x in slow.candidates(kappas, w, q))])
    pairs = Pairs(B, y)
    pairs.hold(k)
    now = pairs.value(B[:, k])
    v, others = w @ kappas.astype(np.float64), float(np.abs(np.delete(w, q)).sum())
    found = bre.best_weight(pairs, now, v, B[:, k], kappas[q], w[q], others)
    if found is None:
        assert best == present
        return
    weight, v, h, then = found
    changed = w.copy()
    changed[q] = weight
    assert h.tolist() == slow.bit(kappas, changed) == signs(v).tolist()
    assert value(h) == best < present
    # L² J falls by half of what hᵀRh grows by.
    assert 2 * (present - best) == then - now == pairs.value(h) - now


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_values_along_a_path_equal_those_of_dense_matrices(m, L, c, seed):
    rng = np.random.default_rng(seed)
    c = min(c, m)
    B, y = random_codes(rng, m, L, c)
    k, h = int(rng.integers(L)), B[:, 0].copy()
    s = np.where(rng.random(m) < 0.2, 0, -h).astype(np.int8)
    order = rng.permutation(m)
    others = np.delete(B, k, axis=1).astype(int)
    R = L * np.where(y[:, None] == y, 1, -1) - others @ others.T
    pairs = Pairs(B, y)
    pairs.hold(k)
    found = pairs.along(h, order, s)
    expected, h = [h.astype(int) @ R @ h], h.astype(int)
    for i in order:
        h[i] = s[i] or h[i]
        expected.append(h @ R @ h)
    assert found.tolist() == expected
    assert pairs.value(h.astype(np.int8)) == expected[-1]
    # With the bit given back, another is as well judged.
    pairs.put(h.astype(np.int8))
    B[:, k], other = h, (k + 1) % L
    pairs.hold(other)
    expected = Pairs(B, y)
    expected.hold(other)
    assert pairs.value(B[:, other]) == expected.value(B[:, other])
    assert pairs.along(B[:, k], order, -B[:, k]).tolist() == expected.along(B[:, k], order, -B[:, k]).tolist()


@pytest.mark.parametrize(("m", "dtype"), [(20_000, np.float32), (104_857, np.float32), (104_858, np.float64)])
def test_the_largest_sums_are_exact(m, dtype):
    """All bits equal, and one class: nothing cancels."""
    L = 80 if m > 20_000 else 32
    pairs = Pairs(np.ones((m, L), dtype=np.int8), np.zeros(m, dtype=np.intp))
    assert pairs._E.dtype == dtype
    pairs.hold(3)
    h = -np.ones(m, dtype=np.int8)
    total = np.arange(-m, m + 1, 2)  # 1ᵀh, as they change one by one
    np.testing.assert_array_equal(pairs.along(h, np.arange(m), -h), (2 * L - L - (L - 1)) * total**2)


def test_double_precision_sums_give_the_same(digits, monkeypatch):
    X, y = digits
    expected = BRE(4, anchors_per_bit=8, random_state=0).fit(X, y)
    monkeypatch.setattr(_pairs, "_EXACT", 0)
    found = BRE(4, anchors_per_bit=8, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.anchors_, expected.anchors_)


def test_the_objective_equals_the_sum_over_pairs():
    rng = np.random.default_rng(0)
    for m, L, c in ((2, 1, 2), (17, 5, 3), (60, 8, 7)):
        B, y = random_codes(rng, m, L, c)
        assert slow.dense_objective(B, y) == slow.objective(B.tolist(), y)
        descent = bre.Descent(rng.standard_normal((4, m)), np.array([[0, 1], [2, 3]]), y, rng)
        descent.B = B
        assert descent.objective() == pytest.approx(slow.objective(B.tolist(), y) / (L * m) ** 2, rel=1e-13)


@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_its_literal_transcription(kernel, digits, trainings):
    X, y = digits[0][:60], digits[1][:60]
    with pytest.warns(ConvergenceWarning, match="BRE has not converged: sweep 2, the last"):
        hasher = BRE(3, anchors_per_bit=4, kernel=kernel, max_iter=2, tol=0, random_state=5).fit(X, y)
    rng = np.random.default_rng(5)
    rng.permutation(60)  # the draw of samples comes first
    anchors = np.array([rng.choice(60, 4, replace=False) for _ in range(3)])
    V = X - X.mean(axis=0)
    if kernel == "linear":
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        Phi = V @ V.T
    else:
        squares = ((V[:, None] - V) ** 2).sum(axis=2)
        Phi = np.exp(-squares / (2 * squares[np.unique(anchors)].mean()))
        Phi -= Phi.mean(axis=1, keepdims=True)
    W = 1e-3 * rng.standard_normal((3, 4))
    orders = (rng.permutation(4) for _ in range(100))
    B, W, history = slow.train(Phi, anchors, y, W, orders, 2)
    assert history[0] > history[1] > history[2]
    np.testing.assert_allclose(hasher.objective_, np.array(history) / (3 * 60) ** 2, rtol=1e-12)
    np.testing.assert_array_equal(hasher.transform(X), B > 0)
    # Weights up to the length of each bit's, which no sign depends on.
    found = trainings[0].W
    np.testing.assert_allclose(
        found / np.abs(found).max(axis=1)[:, None], W / np.abs(W).max(axis=1)[:, None], rtol=1e-6
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_step_raises_the_objective_and_all_keep_their_promise(kernel, dtype, digits, monkeypatch, trainings):
    X, y = digits[0][:500].astype(dtype), digits[1][:500]
    steps, ends = [], []
    step, visit = bre.best_weight, bre.Descent.visit

    def watched(pairs, now, v, h, *rest):
        assert pairs.value(h) == now
        found = step(pairs, now, v, h, *rest)
        if found is not None:
            _, v, h, then = found
            assert pairs.value(h) == then > now
            np.testing.assert_array_equal(signs(v), h)
        steps.append(found is not None)
        return found

    def watched_visit(self, k, order):
        before = self.objective()
        visit(self, k, order)
        ends.append((before, self.objective()))
        np.testing.assert_array_equal(self.B[:, k], signs(self.values(k)))

    monkeypatch.setattr(bre, "best_weight", watched)
    monkeypatch.setattr(bre.Descent, "visit", watched_visit)
    hasher = BRE(6, anchors_per_bit=12, kernel=kernel, tol=0, max_iter=100, random_state=0).fit(X, y)
    assert all(before >= after for before, after in ends)
    assert (np.diff(hasher.objective_) <= 0).all()
    # Training to the end: in the last sweep no weight can be made better.
    assert hasher.converged_
    assert len(steps) == 6 * 12 * hasher.n_iter_
    assert any(steps[: 6 * 12])
    assert not any(steps[-6 * 12 :])
    assert hasher.objective_[-1] == slow.dense_objective(trainings[0].B.astype(int), y) / (6 * 500) ** 2


def test_a_visit_that_rounding_spoils_is_undone(digits, monkeypatch):
    """Steps that promise what the weights do not hold."""
    y = digits[1][:200]
    rng = np.random.default_rng(0)
    descent = bre.Descent(rng.standard_normal((12, 200)), np.arange(12).reshape(3, 4), y, rng)
    descent.sweep()
    monkeypatch.setattr(bre, "best_weight", lambda pairs, now, v, h, kappa, w, others: (rng.normal(), v, h, now + 1))
    undone = []
    for i in range(30):
        before, W = descent.objective(), descent.W.copy()
        descent.visit(i % 3, np.arange(4))
        assert descent.objective() <= before
        np.testing.assert_array_equal(descent.B[:, i % 3], signs(descent.values(i % 3)))
        undone.append(np.array_equal(W, descent.W))
    assert any(undone)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_the_hash_functions_give_the_bits_that_training_ended_with(kernel, dtype, digits, trainings):
    X, y = digits[0].astype(dtype), digits[1]
    hasher = BRE(12, kernel=kernel, anchors_per_bit=30, samples_per_class=100, random_state=0).fit(X, y)
    bits = hasher.decision_function(X[hasher.samples_]) >= 0
    wrong = np.count_nonzero(bits != (trainings[0].B > 0))
    assert wrong <= (0 if dtype is np.float64 else 2)  # of 12,000: float32 rounds otherwise here than there


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_stored_is_the_definition(kernel, digits, trainings):
    X, y = digits
    hasher = BRE(5, anchors_per_bit=7, kernel=kernel, random_state=1).fit(X, y)
    W, which = trainings[0].W, trainings[0]._which
    rng = np.random.default_rng(1)
    rng.permutation(len(X))
    drawn = np.array([rng.choice(len(X), 7, replace=False) for _ in range(5)])
    anchors = X[drawn] - X.mean(axis=0)  # (L, s, D)
    V = X[:50] - X.mean(axis=0)
    assert hasher.anchors_.shape == ((5, 64) if kernel == "linear" else (len(np.unique(drawn)), 64))
    if kernel == "linear":
        anchors /= np.linalg.norm(anchors, axis=2, keepdims=True)
        H = np.einsum("nd,ksd,ks->nk", V, anchors, W)
        np.testing.assert_array_equal(hasher.weights_, np.eye(5))
        np.testing.assert_array_equal(hasher.intercept_, 0)
    else:
        np.testing.assert_allclose(hasher.anchors_[which], anchors)
        all_of_it = X - X.mean(axis=0)
        union = hasher.anchors_
        width = 2 * ((all_of_it[:, None] - union) ** 2).sum(axis=2).mean()
        assert hasher.bandwidth_ == pytest.approx(width)

        def kappa(V):
            return np.exp(-((V[:, None, None] - anchors) ** 2).sum(axis=3) / width)

        H = np.einsum("nks,ks->nk", kappa(V) - kappa(all_of_it).mean(axis=0), W)
        assert (np.count_nonzero(hasher.weights_, axis=0) <= 7).all()
    np.testing.assert_allclose(hasher.decision_function(X[:50]), H, atol=1e-9 * np.abs(H).max())


@pytest.mark.parametrize("kernel", KERNELS)
def test_new_queries_find_their_class_better_than_unsupervised(kernel, digits):
    X, y = digits
    truth = Truth.labels(y[:400], y[400:])

    def score(hasher):
        hasher.fit(X[400:], y[400:])
        return evaluate(hasher.encode(X[:400]), hasher.encode(X[400:]), truth, n_bits=16).map

    found = score(BRE(16, kernel=kernel, random_state=0))
    assert found > 1.05 * score(ITQ(16, random_state=0))
    assert found > 1.5 * score(LSH(16, random_state=0))


def test_names_of_labels_do_not_matter(digits):
    X, y = digits
    names = np.array(["seven", "a", "zz", "b", "1", "0", "x", "-", "q", "c"])
    for labels in (names[y], [("class", 9 - int(k)) for k in y], 2.5 * y - 3):
        found = BRE(6, anchors_per_bit=10, samples_per_class=60, random_state=0).fit(X, labels)
        expected = BRE(6, anchors_per_bit=10, samples_per_class=60, random_state=0).fit(X, y)
        np.testing.assert_array_equal(found.anchors_, expected.anchors_)
        np.testing.assert_array_equal(found.samples_, expected.samples_)


def test_samples_are_drawn_by_class(digits):
    X, y = digits
    hasher = BRE(4, anchors_per_bit=5, samples_per_class=30, random_state=0).fit(X, y)
    assert hasher.class_counts_.tolist() == np.bincount(y[hasher.samples_]).tolist() == [30] * 10
    assert hasher.classes_.tolist() == list(range(10))
    np.testing.assert_allclose(hasher.offset_, X[hasher.samples_].mean(axis=0), atol=1e-12)
    assert BRE(4, anchors_per_bit=5, samples_per_class=None, random_state=0).fit(X, y).samples_.tolist() == list(
        range(len(X))
    )
    few = np.append(np.flatnonzero(y > 0), np.flatnonzero(y == 0)[:1])  # a class of one sample
    with pytest.warns(UserWarning, match=r"fewer than 30 samples \(samples_per_class\) are used whole: 0 \(1\)"):
        hasher = BRE(4, anchors_per_bit=5, samples_per_class=30, random_state=0).fit(X[few], y[few])
    assert hasher.class_counts_.tolist() == [1] + [30] * 9


def test_memory_is_far_below_all_pairs():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((8000, 6), dtype=np.float32), rng.integers(0, 300, 8000)
    hasher = BRE(4, anchors_per_bit=6, samples_per_class=None, max_iter=1, random_state=0)
    tracemalloc.start()
    with pytest.warns(ConvergenceWarning):
        hasher.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8000**2 / 8  # bytes


def test_settings_count(digits):
    X, y = digits[0][:600], digits[1][:600]

    def fitted(**settings):
        return BRE(8, **{"anchors_per_bit": 20, "random_state": 0, **settings}).fit(X, y)

    usual = fitted()
    assert usual.converged_
    assert fitted(tol=0.01).n_iter_ < usual.n_iter_
    assert fitted(tol=0).objective_[-1] <= usual.objective_[-1]
    assert fitted(anchors_per_bit=40).objective_[-1] < usual.objective_[-1] < fitted(anchors_per_bit=3).objective_[-1]
    assert (fitted(kernel="rbf").transform(X) != usual.transform(X)).any()
    # It ends with the first sweep that lowers the objective by no more than tol of it.
    falls = -np.diff(usual.objective_) / usual.objective_[:-1]
    assert (falls > usual.tol).tolist() == [True] * (usual.n_iter_ - 1) + [False]
    with pytest.warns(ConvergenceWarning, match=r"BRE has not converged: sweep 1, the last \(max_iter\), still"):
        short = fitted(max_iter=1)
    assert (short.n_iter_, short.converged_, len(short.objective_)) == (1, False, 2)
    assert short.summary() == {
        "samples": 600,
        "classes": 10,
        "iterations": 1,
        "converged": False,
        "objective": short.objective_[-1],
    }


def test_more_anchors_than_samples_are_all_samples(digits, trainings):
    X, y = digits[0][:30], digits[1][:30]
    BRE(4, anchors_per_bit=50, random_state=0).fit(X, y)
    assert trainings[0].W.shape == (4, 30)


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@pytest.mark.filterwarnings("ignore:BRE has not converged")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: np.full((20, 4), 3.7),
        lambda rng: rng.standard_normal((4, 3)),
        lambda rng: rng.standard_normal((30, 2)),
        lambda rng: rng.standard_normal((200, 1)),
        lambda rng: rng.integers(0, 2, (100, 3)).astype(np.uint8),
        lambda rng: rng.integers(-9, 9, (100, 3)),
        lambda rng: np.hstack([rng.standard_normal((50, 2)), np.ones((50, 3))]),
        lambda rng: 1e15 * rng.standard_normal((50, 3)).astype(np.float32),
        lambda rng: 1e-15 * rng.standard_normal((50, 3)).astype(np.float32),
        lambda rng: np.vstack([rng.standard_normal((49, 3)), [[1e12, 0, 0]]]),
    ],
)
def test_poor_data(make, kernel):
    """Constant, few samples, few features, few distinct values, large and small ones, an outlier."""
    data = make(np.random.default_rng(0))
    hasher = BRE(8, kernel=kernel, random_state=0).fit(data, np.arange(len(data)) % 2)
    assert np.isfinite(hasher.decision_function(data)).all()
    assert np.isfinite(hasher.weights_).all()
    assert (np.diff(hasher.objective_) <= 0).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_distinct", [2, 5, 8])
def test_equal_vectors_have_equal_codes_whatever_their_labels(n_distinct, dtype, kernel, trainings):
    rng = np.random.default_rng(n_distinct)
    distinct = rng.standard_normal((n_distinct, 40)).astype(dtype)
    index = rng.integers(n_distinct, size=400)
    hasher = BRE(12, kernel=kernel, random_state=0).fit(distinct[index], rng.integers(3, size=400))
    alone = np.concatenate([hasher.transform(row[None]) for row in distinct])
    # Unless a value is 0 but for rounding.
    size = np.abs(hasher.weights_).sum(axis=0) * (np.abs(hasher.anchors_).max() if kernel == "linear" else 1)
    clear = (np.abs(hasher.decision_function(distinct)) > 1e-6 * size)[index]
    assert clear.mean() > 0.95
    assert (hasher.transform(distinct[index]) == alone[index])[clear].all()
    assert ((trainings[0].B > 0) == alone[index])[clear].all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("scale", "dtype", "words"),
    [
        (1e30, np.float32, "squares are beyond float32; divide it first"),
        (1e-30, np.float32, "squares vanish in float32; multiply it first"),
        (1e200, np.float64, "squares are beyond float64; divide it first"),
        (1e-200, np.float64, "squares vanish in float64; multiply it first"),
    ],
)
def test_values_whose_squares_the_type_does_not_hold_are_refused(scale, dtype, words, kernel):
    data = (np.random.default_rng(0).uniform(-1, 1, (50, 4)) * scale).astype(dtype)
    with pytest.raises(ValueError, match=words):
        BRE(4, kernel=kernel).fit(data, np.arange(50) % 2)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"anchors_per_bit": 0}, "anchors_per_bit must be a whole number of at least 1; got 0"),
        ({"kernel": "cubic"}, "kernel must be 'rbf' or 'linear'; got 'cubic'"),
        ({"samples_per_class": 1}, "samples_per_class must be None or a whole number of at least 2; got 1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"tol": -1}, "tol must be a number of at least 0; got -1"),
        ({"show_progress": "yes"}, "show_progress must be None or True or False; got 'yes'"),
    ],
)
def test_bad_parameters_are_refused(digits, parameters, words):
    with pytest.raises(ValueError, match=words):
        BRE(8, **parameters).fit(*digits)


def test_labels_that_say_nothing_are_refused(digits):
    X = digits[0][:20]
    with pytest.raises(ValueError, match="BRE learns from samples of at least 2 classes; got 1"):
        BRE(4).fit(X, np.zeros(20))
    with pytest.raises(ValueError, match="of the 20 classes none has two samples"):
        BRE(4).fit(X, np.arange(20))


@pytest.mark.parametrize("kernel", KERNELS)
def test_threads_do_not_matter(digits, kernel, set_block_rows, set_cores):
    X, y = digits
    set_block_rows(100)
    found = []
    for n in (1, 3):
        set_cores(n)
        found.append(BRE(8, anchors_per_bit=10, kernel=kernel, random_state=0).fit(X.astype(np.float32), y))
    for name in ("offset_", "anchors_", "weights_", "intercept_", "objective_"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))


def test_a_file_is_read_in_blocks(digits, tmp_path, set_free_memory):
    X, y = digits
    np.save(tmp_path / "x.npy", X)
    expected = BRE(4, anchors_per_bit=8, random_state=0).fit(X, y)
    set_free_memory(0)
    streamed = BRE(4, anchors_per_bit=8, random_state=0).fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
    np.testing.assert_array_equal(streamed.anchors_, expected.anchors_)


def test_a_loaded_model_has_no_history(digits, tmp_path):
    hasher = BRE(4, anchors_per_bit=8, kernel="rbf", random_state=0).fit(*digits)
    hasher.save(tmp_path / "model")
    loaded = hashlearn.load(tmp_path / "model")
    assert loaded.summary() == {}
    np.testing.assert_array_equal(loaded.encode(digits[0]), hasher.encode(digits[0]))
