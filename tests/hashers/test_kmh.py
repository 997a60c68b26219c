"""What defines KMH."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import hashlearn
from hashlearn import KMH, LSH
from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate
from hashlearn.hashers import kmh
from hashlearn.hashers.steps import margins
from hashlearn.threads import thread_map
from reference.kmh import k_means_hashing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def X():
    return load_digits().data


@pytest.fixture(scope="module")
def Y(X):
    """One subspace: a few of the digits' principal directions, largest first."""
    V = X - X.mean(axis=0)
    return V @ np.linalg.eigh(np.cov(X.T))[1][:, :-13:-1]


def in_order(function, items):
    return [function(item) for item in items]


def assign(subspace):
    subspace.gather([subspace.assign(part) for part in subspace.parts])
    return subspace


@pytest.mark.parametrize(
    ("logs", "M", "parts"),
    [
        ([3, 2, 1, 0], 2, [[0, 3], [1, 2]]),  # 4 | 3; 4 | 3 + 2, full
        ([4, 3, 2, 1, 0], 2, [[0, 3, 4], [1, 2]]),  # the first has room for one more
        ([9, 0, 0, 0, 0, 0], 2, [[0, 4, 5], [1, 2, 3]]),  # 10 | 1 + 1 + 1, full
        ([2, 1, 0], 3, [[0], [1], [2]]),
        ([5, 5, 5, 5], 1, [[0, 1, 2, 3]]),
    ],
)
def test_directions_go_to_the_smallest_product_with_room(logs, M, parts):
    assert kmh._allocate(np.exp(np.array(logs, dtype=float)), M) == parts
    assert kmh._allocate(1e-30 * np.exp(np.array(logs, dtype=float)), M) == parts


def test_eigenvalues_of_0_can_be_allocated():
    for values in ([1.0, 0, 0, 0, -1e-18, 0, 0], [0.0] * 7):
        parts = kmh._allocate(np.array(values), 3)
        assert [len(part) for part in parts] == [3, 2, 2]
        assert sorted(i for part in parts for i in part) == list(range(7))


def test_products_are_balanced(X):
    values = np.linalg.eigvalsh(np.cov(X[:, 2:62].T))[::-1]
    values = values[values > 1e-3][:40]
    logs = np.array([np.log(values[part]).sum() for part in kmh._allocate(values, 4)])
    plain = np.log(values).reshape(4, 10).sum(axis=1)
    assert np.ptp(logs) < 0.1 * np.ptp(plain)


def test_codewords_start_as_a_cube_of_the_best_side(Y):
    C, s = kmh._cube(Y, 3)
    np.testing.assert_allclose(C[5, :3], [s / 2, -s / 2, s / 2])  # 5 = 101
    assert not C[:, 3:].any()
    assert s == pytest.approx(2 * np.abs(Y[:, :3]).mean())
    subspace = assign(kmh._Subspace(Y, 3, 10.0))
    quantization, affinity = subspace.errors()
    assert affinity < 1e-20 * quantization
    for factor in (0.9, 1.1):
        subspace.C = C * factor
        assert assign(subspace).errors()[0] > quantization


def test_a_cube_is_coded_by_its_corners(X):
    """Hamming distances are then the distances: E = 0."""
    corners = 3.0 * (np.arange(16)[:, None] >> np.arange(4)[::-1] & 1) + 7
    data = np.repeat(corners, 5, axis=0)
    hasher = KMH(4).fit(data)
    np.testing.assert_allclose(hasher.quantization_error_, 0, atol=1e-12)
    np.testing.assert_allclose(hasher.affinity_error_, 0, atol=1e-12)
    assert hasher.n_iter_ <= 2
    np.testing.assert_array_equal(
        9 * hashlearn.codes.hamming(hasher.encode(data), hasher.encode(corners)),
        np.square(data[:, None] - corners).sum(axis=2),
    )


@pytest.mark.parametrize("b", [1, 2, 3])
def test_equals_its_literal_transcription(X, b, monkeypatch):
    monkeypatch.setattr(kmh, "_STEP", 1e-9)
    monkeypatch.setattr(kmh, "_STEPS", 2000)
    data = X[:200, [18, 19, 20, 21, 26, 27, 28, 29, 34, 35, 36, 37]]
    hasher = KMH(2 * b, bits_per_subspace=b, max_iter=4).fit(data)
    bits, history = k_means_hashing(data, 2, b, 10.0, 4)
    n = hasher.n_iter_ + 1  # it may settle before
    np.testing.assert_allclose(hasher.quantization_error_, history[:n, 0], rtol=1e-5)
    np.testing.assert_allclose(hasher.affinity_error_, history[:n, 1], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(hasher.transform(data), bits)


def test_one_codewords_least_point_is_that_of_a_general_solver():
    rng = np.random.default_rng(0)
    for k, d in ((4, 3), (16, 8), (64, 20)):
        C, mu, start, w, h = (rng.random(shape) for shape in ((k, d), d, d, k, k))

        def F(c, C=C, mu=mu, w=w, h=h):
            return ((c - mu) ** 2).sum() + w @ (np.linalg.norm(c - C, axis=1) - h) ** 2

        found = kmh._lower(start, mu, C, w, h, 1e-7)
        best = minimize(F, start, method="BFGS")
        assert F(found) <= F(start)
        assert F(found) == pytest.approx(best.fun, rel=1e-4)


def test_no_step_of_one_codeword_raises_its_part(monkeypatch):
    """Also where the long steps would."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        C, mu, c, w, h = (rng.random(shape) for shape in ((16, 3), 3, 3, 16, 16))
        values = []
        for n in range(25):
            monkeypatch.setattr(kmh, "_STEPS", n)
            found = kmh._lower(c, mu, C, 20 * w, 2 * h, 0.0)
            values.append(((found - mu) ** 2).sum() + 20 * w @ (np.linalg.norm(found - C, axis=1) - 2 * h) ** 2)
        assert (np.diff(values) <= 1e-12 * values[0]).all()
        assert values[-1] < values[0]


@pytest.mark.parametrize("weight", [0.0, 0.1, 10.0, 1e4])
@pytest.mark.parametrize("b", [1, 4, 6])
def test_no_step_raises_what_it_lowers(Y, b, weight):
    """The update with the cells held can't raise E, nor the cells with the codewords held E_quan."""

    def E(errors):
        return errors[0] + weight * errors[1]

    subspace = assign(kmh._Subspace(Y, b, weight))
    first, fell = subspace.errors(), 0
    for _ in range(8):
        before = subspace.errors()
        subspace.update()
        after = subspace.errors()
        assert E(after) <= E(before) * (1 + 1e-12)
        fell += E(after) < E(before)
        assert assign(subspace).errors()[0] <= after[0] * (1 + 1e-12)
    assert fell
    assert E(subspace.errors()) < E(first)


def test_without_affinity_it_is_lloyds_k_means(Y):
    (C,), history = kmh.learn([Y], 4, 0.0, in_order, 300)
    reference = KMeans(16, init=kmh._cube(Y, 4)[0], n_init=1, max_iter=300, tol=0).fit(Y)
    np.testing.assert_allclose(C, reference.cluster_centers_, atol=1e-3)
    assert history[-1][0] == pytest.approx(reference.inertia_ / len(Y), rel=1e-6)


@pytest.mark.parametrize("b", [4, 6])
def test_keeps_distances_of_codewords_at_little_cost(Y, b):
    """Beside k-means, whose indices mean nothing: each is given the side that suits it best."""

    def affinity(C, index):
        p = np.bincount(index, minlength=len(C)) / len(index)
        w = np.outer(p, p)
        d = np.linalg.norm(C[:, None] - C, axis=2)
        root = np.sqrt(kmh.hamming_distances(b))
        s = (w * d * root).sum() / (w * root**2).sum()
        return (w * (d - s * root) ** 2).sum()

    subspace = assign(kmh._Subspace(Y, b, 10.0))
    begin = subspace.errors()[0]
    for _ in range(50):
        subspace.update()
        assign(subspace)
    plain = KMeans(1 << b, n_init=1, random_state=0).fit(Y)
    rng = np.random.default_rng(0)
    at_random = [rng.permutation(1 << b) for _ in range(20)]  # the new index of each codeword
    best = min(affinity(plain.cluster_centers_[np.argsort(to)], to[plain.labels_]) for to in at_random)
    assert affinity(subspace.C, subspace.cells) < 0.15 * best
    k_means = plain.inertia_ / len(Y)
    assert subspace.errors()[0] - k_means < 0.6 * (begin - k_means)


@pytest.mark.parametrize("b", [4, 6])
def test_the_affinity_error_falls_from_k_means_with_random_indices(Y, b):
    """From the cube, where it is 0, it can but rise; from where indices mean nothing it falls."""
    subspace = kmh._Subspace(Y, b, 10.0)
    plain = KMeans(1 << b, n_init=1, random_state=0).fit(Y)
    subspace.C = plain.cluster_centers_[np.random.default_rng(0).permutation(1 << b)].astype(np.float64)
    errors = [assign(subspace).errors()]
    for _ in range(50):
        subspace.update()
        errors.append(assign(subspace).errors())
    assert errors[-1][1] < 0.1 * errors[0][1]
    assert errors[-1][0] + 10 * errors[-1][1] < 0.5 * (errors[0][0] + 10 * errors[0][1])


def test_an_empty_cell_keeps_its_codeword(Y):
    few = assign(kmh._Subspace(Y[:20], 6, 10.0))
    before, empty = few.C.copy(), few.n == 0
    assert empty.any()
    few.update()
    np.testing.assert_array_equal(few.C[empty], before[empty])
    assert (few.C[~empty] != before[~empty]).any(axis=1).all()


def test_settled_is_when_neither_cells_nor_codewords_move(Y):
    corners = np.repeat(np.arange(4)[:, None] >> np.arange(2)[::-1] & 1, 5, axis=0) - 0.5
    subspace = assign(kmh._Subspace(corners, 2, 10.0))
    subspace.update()
    assert not subspace.settled  # the cells are new, though no codeword moved
    assign(subspace).update()
    assert subspace.settled
    subspace = assign(kmh._Subspace(Y, 2, 10.0))
    assign(subspace).update()
    assert not subspace.settled  # the cells are the same, but the codewords moved


def test_the_error_of_training_falls_and_it_settles(X):
    X = X[:800]
    hasher = KMH(8, max_iter=300).fit(X)
    E = hasher.quantization_error_ + 10 * hasher.affinity_error_
    assert len(E) == hasher.n_iter_ + 1 < 301
    assert E[-1] < 0.9 * E[0]
    assert hasher.affinity_error_[0] < 1e-12 * E[0]
    again = KMH(8, max_iter=hasher.n_iter_).fit(X)
    np.testing.assert_array_equal(again.codewords_, hasher.codewords_)
    assert KMH(8, max_iter=2).fit(X).n_iter_ == 2
    # The errors are those of the codes: E_quan from the codewords that the bits name.
    index = np.packbits(hasher.transform(X).reshape(-1, 4), axis=1)[:, 0].reshape(-1, 2) >> 4
    named = sum(hasher.codewords_[p][index[:, p]] for p in range(2))
    error = np.square(X - hasher.mean_ - named).sum(axis=1).mean()
    assert error == pytest.approx(hasher.quantization_error_[-1], rel=1e-9)


def test_options_change_the_codes(X):
    base = KMH(16, max_iter=10).fit(X).transform(X)
    for option in ({"bits_per_subspace": 2}, {"affinity_weight": 1.0}, {"max_iter": 1}):
        assert (KMH(16, **{"max_iter": 10, **option}).fit(X).transform(X) != base).mean() > 0.01


def test_the_datas_scale_and_place_do_not_matter(X):
    base = KMH(8, max_iter=8).fit(X)
    for factor, offset in ((1000, 0), (1024, 0), (2.0**-40, 0), (1, 64)):
        other = KMH(8, max_iter=8).fit(factor * X + offset)
        assert (other.transform(factor * X + offset) == base.transform(X)).mean() > 0.999
        np.testing.assert_allclose(other.quantization_error_, factor**2 * base.quantization_error_, rtol=1e-3)


def test_the_number_of_threads_changes_nothing(X, set_block_rows):
    set_block_rows(37)
    data = [np.ascontiguousarray(X[:, :30]), np.ascontiguousarray(X[:, 30:])]
    results = []
    for n in (1, 3):
        with thread_map(n) as threads:
            results.append(kmh.learn(data, 4, 10.0, threads, 5))
    (codewords, errors), (others, other_errors) = results
    np.testing.assert_array_equal(errors, other_errors)
    for a, b in zip(codewords, others, strict=True):
        np.testing.assert_array_equal(a, b)


# The contract suite runs with one bit a subspace, which takes every length.
@pytest.mark.parametrize(("n_bits", "b"), [(4, 4), (12, 4), (64, 4), (8, 8), (16, 8), (15, 3)])
def test_contract_with_several_bits_a_subspace(X, n_bits, b, tmp_path, set_block_rows):
    X, n_iter = X[:400].astype(np.float32), 1 if b == 8 else 3
    hasher = KMH(n_bits, bits_per_subspace=b, max_iter=n_iter).fit(X)
    H, bits, packed = hasher.decision_function(X), hasher.transform(X), hasher.encode(X)
    assert H.shape == bits.shape == (400, n_bits)
    np.testing.assert_array_equal(bits, (H >= 0).astype(np.uint8))
    np.testing.assert_array_equal(packed, np.packbits(bits, axis=1))
    # The bits are the index of the nearest codeword.
    V = X.astype(np.float64) - hasher.mean_
    index = np.square(V[:, None, None] - hasher.codewords_).sum(axis=3).argmin(axis=2)
    expected = (index[:, :, None] >> np.arange(b)[::-1] & 1).reshape(400, n_bits)
    assert (bits == expected).mean() > 0.999
    small = KMH(np.uint8(n_bits), bits_per_subspace=np.uint8(b), max_iter=n_iter).fit(X)
    np.testing.assert_array_equal(small.encode(X), packed)
    hasher.save(tmp_path / "model")
    loaded = hashlearn.load(tmp_path / "model")
    assert loaded.get_params() == hasher.get_params()
    np.testing.assert_array_equal(loaded.decision_function(X), H)
    np.testing.assert_array_equal(KMH(n_bits, bits_per_subspace=b, max_iter=n_iter).fit(X).decision_function(X), H)
    for dtype in (np.float64, np.uint8):
        other = KMH(n_bits, bits_per_subspace=b, max_iter=n_iter).fit(X.astype(dtype))
        assert (other.encode(X.astype(dtype)) == packed).mean() > 0.98
    set_block_rows(37)
    np.testing.assert_allclose(hasher.decision_function(X), H, rtol=1e-4, atol=1e-5)


def test_values_are_the_differences_of_squared_distances(X):
    hasher = KMH(8, max_iter=5).fit(X)
    V = X[:50] - hasher.mean_
    d = np.square(V[:, None, None] - hasher.codewords_).sum(axis=3)  # (rows, 2, 16)
    one = (np.arange(16)[:, None] >> np.arange(4)[::-1] & 1).astype(bool)
    for p in range(2):
        for bit in range(4):
            gap = d[:, p, ~one[:, bit]].min(axis=1) - d[:, p, one[:, bit]].min(axis=1)
            np.testing.assert_allclose(
                2 * hasher.scale_**2 * hasher.decision_function(X[:50])[:, 4 * p + bit], gap, atol=1e-8
            )


def test_ties_go_to_the_first_codeword():
    """Two bits; the rows are vectors, the columns the distances to 00, 01, 10, 11."""
    distances = np.array([[5.0, 1, 1, 5], [3, 2, 1, 1], [2, 1, 2, 1], [4, 4, 4, 4]])
    values = margins(np.ascontiguousarray(distances.T)[None], 2)
    # 01 and 10 are equally near the first: not 11, which is near to neither.
    np.testing.assert_array_equal(values >= 0, [[False, True], [True, False], [False, True], [False, False]])
    np.testing.assert_allclose(values, [[0, 0], [1, 0], [0, 1], [0, 0]], atol=1e-300)


def test_equal_codewords_break_nothing(X):
    hasher = KMH(8, max_iter=2).fit(X)
    hasher.codewords_[:, 3] = hasher.codewords_[:, 12]
    hasher.codewords_[1] = 0
    H, bits = hasher.decision_function(X), hasher.transform(X)
    np.testing.assert_array_equal(bits, H >= 0)
    np.testing.assert_array_equal(hasher.encode(X), np.packbits(bits, axis=1))
    assert not (bits[:, :4] == [1, 1, 0, 0]).all(axis=1).any()  # 12, which is 3
    assert not bits[:, 4:].any()  # all are the first


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_odd_data(dtype):
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((50, 8)).astype(dtype)
    flat = noise.copy()
    flat[:, 3:] = 0.1
    line = noise[:, :1] * np.ones(8, dtype=dtype)
    for data in (noise[:3], flat, line, noise[:, :4], np.full((40, 8), 0.1, dtype=dtype), noise * 1e15, noise * 1e-15):
        hasher = KMH(4).fit(data)
        assert np.isfinite(hasher.decision_function(data)).all()
        np.testing.assert_array_equal(hasher.transform(data), hasher.decision_function(data) >= 0)
        assert (hasher.transform(data[:1]) == hasher.transform(np.repeat(data[:1], 9, axis=0))).all()
    same = KMH(8).fit(np.full((40, 8), 0.1, dtype=dtype))
    assert len(np.unique(same.encode(np.full((40, 8), 0.1, dtype=dtype)))) == 1


def test_float32_that_can_not_be_squared_is_refused():
    noise = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    with pytest.raises(ValueError, match="divide it first"):
        KMH(4).fit(noise * np.float32(1e30))
    with pytest.raises(ValueError, match="multiply it first"):
        KMH(4).fit(noise * np.float32(1e-30))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_bits": 30}, r"multiple of bits_per_subspace for KMH \(4, 8, 12, … for bits_per_subspace=4\); got 30"),
        ({"n_bits": 68}, r"n_features=64, for KMH, which takes a principal direction for each bit; got 68"),
        ({"bits_per_subspace": 9}, "bits_per_subspace must be a whole number of at least 1 and at most 8; got 9"),
        ({"bits_per_subspace": 0}, "bits_per_subspace must be a whole number of at least 1 and at most 8; got 0"),
        ({"bits_per_subspace": 2.0}, "bits_per_subspace must be a whole number"),
        ({"affinity_weight": -1}, "affinity_weight must be a number of at least 0; got -1"),
        ({"affinity_weight": np.nan}, "affinity_weight must be a number"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"show_progress": "yes"}, "show_progress must be None or True or False; got 'yes'"),
    ],
)
def test_bad_parameters_are_refused(X, parameters, words):
    with pytest.raises(ValueError, match=words):
        KMH(**parameters).fit(X)


def test_a_changed_b_is_not_saved_and_not_used(X, tmp_path):
    hasher = KMH(16, max_iter=2).fit(X)
    expected = hasher.encode(X)
    hasher.set_params(bits_per_subspace=8)
    np.testing.assert_array_equal(hasher.encode(X), expected)
    with pytest.raises(ValueError, match="bits_per_subspace was changed to 8 after fit learned 4: fit again"):
        hasher.save(tmp_path / "model")


def test_beats_lsh(X):
    train, queries = X[300:], X[:300]
    truth = Truth.neighbors(euclidean_neighbors(queries, train, 20))
    scores = {}
    for hasher in (KMH(16, max_iter=10), LSH(16, random_state=0)):
        hasher.fit(train)
        scores[hasher.name] = evaluate(hasher.encode(queries), hasher.encode(train), truth, n_bits=16).map
    assert scores["kmh"] > 1.2 * scores["lsh"]
