"""What defines Spherical Hashing."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import hashlearn
from hashlearn import SPH
from hashlearn.hashers import sph
from hashlearn.threads import thread_map
from reference import sph as slow


@pytest.fixture(scope="module")
def X():
    return load_digits().data


def overlaps(bits):
    """o_ij / m of all pairs i < j."""
    Z = bits.astype(np.float64)
    return (Z.T @ Z)[np.triu_indices(bits.shape[1], 1)] / len(bits)


@pytest.mark.parametrize("n_bits", [2, 16, 64])
def test_spheres_halve_the_data_and_share_a_quarter_of_it(X, n_bits):
    hasher = SPH(n_bits, random_state=0).fit(X)
    bits = hasher.transform(X)
    # No two distances of these data to a pivot are equal: the halves are exact.
    assert (bits.sum(axis=0) == len(X) // 2).all()
    o = overlaps(bits)
    assert hasher.converged_
    assert np.abs(o - 0.25).mean() <= 0.10 / 4
    assert o.std() <= 0.15 / 4
    assert hasher.overlap_error_[-1] == pytest.approx(4 * np.abs(o - 0.25).mean(), abs=1e-12)
    assert hasher.overlap_std_[-1] == pytest.approx(4 * o.std(), abs=1e-12)
    assert len(hasher.overlap_error_) == len(hasher.overlap_std_) == hasher.n_iter_
    # It ends with the first iteration that meets both tolerances, and the start met neither.
    met = (hasher.overlap_error_ <= 0.10) & (hasher.overlap_std_ <= 0.15)
    assert met.tolist() == [False] * (hasher.n_iter_ - 1) + [True]


def test_spheres_share_a_quarter_of_mnist():
    try:
        train = hashlearn.datasets.load("mnist").train[:5000]
    except OSError as error:
        pytest.skip(" | ".join(str(error).splitlines()))
    hasher = SPH(32, random_state=0).fit(train)
    bits = hasher.transform(train)
    np.testing.assert_allclose(bits.mean(axis=0), 0.5, atol=1e-3)  # float32 may move a sample on the border
    o = overlaps(bits)
    assert hasher.converged_
    assert np.abs(o - 0.25).mean() <= 0.101 / 4
    assert o.std() <= 0.151 / 4


def test_bits_are_spheres(X):
    """1 within the radius of the pivot; the real value is t² − d²."""
    hasher = SPH(12, random_state=1).fit(X)
    d = np.linalg.norm(X[:, None] - (hasher.mean_ + hasher.pivots_), axis=2)
    np.testing.assert_array_equal(hasher.transform(X), d <= hasher.radii_)
    np.testing.assert_allclose(hasher.decision_function(X), hasher.radii_**2 - d**2, atol=1e-8)


def test_the_border_is_inside():
    hasher = SPH(1, random_state=0).fit(np.array([[0.0], [1.0]]))
    hasher.mean_, hasher.pivots_, hasher.thresholds_ = np.zeros(1), np.zeros((1, 1)), np.array([4.0])
    assert hasher.radii_.tolist() == [2]
    points = np.array([[-2.0], [2.0], [2.001], [0.0], [-2.001]])
    assert hasher.transform(points).ravel().tolist() == [1, 1, 0, 1, 0]


def start_of(X, n_bits, seed):
    """The first pivots, in the coordinates of X."""
    rng = np.random.default_rng(seed)
    return np.array([X[rng.choice(len(X), 5, replace=False)].mean(axis=0) for _ in range(n_bits)])


@pytest.mark.parametrize("n_bits", [3, 8])
def test_equals_its_literal_transcription(X, n_bits):
    few = X[:301]  # an odd number too
    hasher = SPH(n_bits, random_state=4).fit(few)
    P, t, history = slow.train(few, start_of(few, n_bits, 4), 0.10, 0.15, 200)
    assert hasher.n_iter_ == len(history) > 3
    np.testing.assert_allclose(hasher.overlap_error_, history[:, 0], atol=1e-12)
    np.testing.assert_allclose(hasher.overlap_std_, history[:, 1], atol=1e-12)
    np.testing.assert_allclose(hasher.mean_ + hasher.pivots_, P, atol=1e-9)
    np.testing.assert_allclose(hasher.radii_, t, atol=1e-9)
    np.testing.assert_array_equal(hasher.transform(few), slow.inside(few, P, t))


def test_forces_by_hand():
    """Spheres that share too much repel, spheres that share too little attract; a quarter leaves them."""
    P = np.array([[0.0, 0.0], [2.0, 0.0]])

    def forces(shared):
        return sph._forces(P, np.array([[50, shared], [shared, 50]]), 100).tolist()

    # ½ · (o_12 − 25)/25 · (p_1 − p_2) / 2 = ∓½ (o_12 − 25)/25
    assert forces(50) == [[-0.5, 0], [0.5, 0]]
    assert forces(0) == [[0.5, 0], [-0.5, 0]]
    assert forces(25) == [[0, 0], [0, 0]]
    assert forces(30) == pytest.approx(np.array([[-0.1, 0], [0.1, 0]]))


def test_forces_equal_the_sum_over_pairs():
    rng = np.random.default_rng(0)
    P, o = rng.standard_normal((6, 3)), rng.integers(0, 50, (6, 6))
    o = np.triu(o, 1) + np.triu(o, 1).T + 50 * np.eye(6, dtype=int)
    pairs = {(i, j): o[i, j] for i in range(6) for j in range(i + 1, 6)}
    np.testing.assert_allclose(sph._forces(P, o, 100), slow.forces(P, pairs, 100), atol=1e-12)


def test_overlaps_are_counted_exactly_whatever_the_blocks(X, set_block_rows):
    # Not at samples, where distances of these data, whole numbers, are equal.
    centers = X[:7] + np.random.default_rng(0).standard_normal((7, 64))
    P = centers - X.mean(axis=0)
    results = []
    for rows, n_threads in ((2048, 1), (100, 1), (100, 3)):
        set_block_rows(rows)
        with thread_map(n_threads) as threads:
            results.append(sph._Spheres(X, X.mean(axis=0), 7, threads)(P))
    expected = slow.overlap(slow.inside(X, centers, slow.radii(X, centers)))
    for tau, o in results:
        np.testing.assert_allclose(tau, results[0][0], rtol=1e-12)
        assert o.dtype == np.int64
        assert {pair: o[pair] for pair in expected} == expected
        assert (np.diag(o) == len(X) // 2).all()


def test_the_threshold_is_half_way_and_ties_are_inside():
    assert sph._halving(np.array([5.0, 1.0, 4.0, 2.0])) == 3
    assert sph._halving(np.array([9.0, 1.0, 4.0, 2.0, 8.0])) == 3  # 2 of 5
    assert sph._halving(np.array([1.0, 2.0, 2.0, 2.0])) == pytest.approx(2)  # all 4
    assert sph._halving(np.array([1.0, 2.0, 2.0, 2.0])) > 2
    # Equal but for rounding, and the next: half way to that.
    nearly = np.nextafter(np.float32(2), np.float32(3))
    assert sph._halving(np.array([1, 2, nearly, 3], dtype=np.float32)) == pytest.approx(2.5)
    # Two of thousands that happen to be as near: half of the data counts for more.
    many = np.arange(4000, dtype=np.float32)
    many[2000] = np.nextafter(many[1999], np.float32(3000))
    assert sph._halving(many) == many[1999]


def test_tolerances_and_max_iter_count(X):
    loose, usual, strict = (
        SPH(16, tol_mean=mean, tol_std=std, random_state=0).fit(X).n_iter_
        for mean, std in ((0.2, 0.2), (0.10, 0.15), (0.08, 0.15))
    )
    assert loose < usual < strict
    assert SPH(16, tol_std=0.1, random_state=0).fit(X).n_iter_ > usual
    with pytest.warns(ConvergenceWarning, match=r"SPH has not converged: after 3 iterations \(max_iter\)"):
        short = SPH(16, max_iter=3, random_state=0).fit(X)
    assert (short.n_iter_, short.converged_, len(short.overlap_error_)) == (3, False, 3)
    assert short.summary() == {"iterations": 3, "converged": False}


def test_one_bit_has_no_pairs(X):
    hasher = SPH(1, random_state=0).fit(X)
    assert hasher.converged_
    assert hasher.n_iter_ == 1
    assert hasher.transform(X).sum() == len(X) // 2
    np.testing.assert_allclose(hasher.mean_ + hasher.pivots_, start_of(X, 1, 0), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_small_differences_far_from_the_origin_are_seen(X, dtype):
    offset = {np.float64: 1e9, np.float32: 2.0**18}[dtype]  # float32 still holds whole numbers there
    hasher, moved = (SPH(16, random_state=0).fit((X + o).astype(dtype)) for o in (0, offset))
    assert (hasher.transform(X.astype(dtype)) == moved.transform((X + offset).astype(dtype))).mean() > 0.99


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@pytest.mark.filterwarnings("ignore:SPH has not converged")
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: np.full((20, 4), 3.7),
        lambda rng: np.zeros((2, 1)),
        lambda rng: rng.standard_normal((2, 3)),
        lambda rng: rng.standard_normal((5, 2)),
        lambda rng: rng.standard_normal((200, 1)),
        lambda rng: rng.integers(0, 2, (100, 3)).astype(np.uint8),
        lambda rng: np.hstack([rng.standard_normal((50, 2)), np.ones((50, 3))]),
        lambda rng: 1e15 * rng.standard_normal((50, 3)).astype(np.float32),
        lambda rng: 1e-15 * rng.standard_normal((50, 3)).astype(np.float32),
    ],
)
def test_poor_data(make):
    """Constant, two samples, fewer samples than bits, one feature, few distinct values, large and small ones."""
    data = make(np.random.default_rng(0))
    hasher = SPH(8, random_state=0).fit(data)
    H = hasher.decision_function(data)
    assert np.isfinite(H).all()
    assert np.isfinite(hasher.radii_).all()
    # A sphere holds at least half; more where distances are equal.
    assert (hasher.transform(data).sum(axis=0) >= len(data) // 2).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:SPH has not converged")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_distinct", [2, 5, 8])
def test_equal_vectors_have_equal_codes_alone_and_in_company(n_distinct, dtype):
    rng = np.random.default_rng(n_distinct)
    distinct = rng.standard_normal((n_distinct, 40)).astype(dtype)
    index = rng.integers(n_distinct, size=400)
    hasher = SPH(24, max_iter=50, random_state=0).fit(distinct[index])
    alone = np.concatenate([hasher.transform(row[None]) for row in distinct])
    np.testing.assert_array_equal(hasher.transform(distinct), alone)
    np.testing.assert_array_equal(hasher.transform(distinct[index]), alone[index])


@pytest.mark.parametrize("sign", [1, -1])
def test_values_that_can_not_be_squared_are_refused_of_either_sign(sign, X):
    with pytest.raises(ValueError, match="squares are beyond float32"):
        SPH(4, random_state=0).fit((sign * 1e18 * (X + 1)).astype(np.float32))


def test_a_pivot_that_leaves_for_infinity_ends_the_training():
    """Seven samples in ten are one point: all spheres share it, and repel each other for ever."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        data = np.zeros((500, 6), dtype=dtype)
        data[:150] = 1 + rng.standard_normal((150, 6))
        with pytest.warns(ConvergenceWarning, match="a pivot left for infinity"):
            hasher = SPH(8, max_iter=5000, random_state=0).fit(data)
        assert hasher.n_iter_ < 5000
        assert np.isfinite(hasher.decision_function(data)).all()


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_pivots_that_do_not_move_end_the_training():
    with pytest.warns(ConvergenceWarning, match=r"after 1 iterations \(no pivot moves any more\)"):
        hasher = SPH(4, random_state=0).fit(np.zeros((20, 3)))
    assert not hasher.converged_
    assert hasher.transform(np.zeros((1, 3))).all()


def test_a_perfect_start_stays_where_it_is():
    """Four samples, two spheres that share one: no force, and the tolerances are met."""
    square = np.array([[1.0, 1.0], [1.0, -1.1], [-1.2, 1.0], [-1.3, -1.4]])
    hasher = SPH(2, random_state=3).fit(square)
    assert (hasher.converged_, hasher.n_iter_, hasher.overlap_error_.tolist()) == (True, 1, [0.0])
    rng = np.random.default_rng(3)
    start = [square[rng.choice(4, 2, replace=False)].mean(axis=0) for _ in range(2)]
    np.testing.assert_allclose(hasher.mean_ + hasher.pivots_, start, atol=1e-12)


def test_what_is_far_away_is_outside(X):
    data = X.astype(np.float32)
    hasher = SPH(8, random_state=0).fit(data)
    for far in (1e10, 1e25, 1e36):
        for signs in (1, -1, np.where(np.arange(64) % 2, 1, -1)):
            H = hasher.decision_function(np.full((1, 64), far, dtype=np.float32) * np.float32(signs))
            assert np.isfinite(H).all()
            assert (H < 0).all()


@pytest.mark.parametrize(
    ("scale", "dtype", "words"),
    [
        (1e30, np.float32, "squares are beyond float32; divide it first"),
        (1e36, np.float32, "squares are beyond float32; divide it first"),
        (1e-30, np.float32, "squares vanish in float32; multiply it first"),
        (1e200, np.float64, "squares are beyond float64; divide it first"),
        (1e-200, np.float64, "squares vanish in float64; multiply it first"),
    ],
)
def test_values_whose_squares_the_type_does_not_hold_are_refused(scale, dtype, words):
    data = np.random.default_rng(0).uniform(-1, 1, (50, 4)) * scale
    with pytest.raises(ValueError, match=words):
        SPH(4).fit(data.astype(dtype))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"tol_mean": -0.1}, "tol_mean must be a number of at least 0; got -0.1"),
        ({"tol_std": "a"}, "tol_std must be a number of at least 0; got 'a'"),
        ({"tol_std": np.inf}, "tol_std must be a number of at least 0; got inf"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"show_progress": "yes"}, "show_progress must be None or True or False; got 'yes'"),
    ],
)
def test_bad_parameters_are_refused(X, parameters, words):
    with pytest.raises(ValueError, match=words):
        SPH(8, **parameters).fit(X)


def test_threads_do_not_matter(X, set_block_rows, set_cores):
    set_block_rows(100)
    found = []
    for n in (1, 3):
        set_cores(n)
        found.append(SPH(16, random_state=0).fit(X.astype(np.float32)))
    np.testing.assert_array_equal(found[0].pivots_, found[1].pivots_)
    np.testing.assert_array_equal(found[0].thresholds_, found[1].thresholds_)


def test_a_file_too_large_for_memory_is_read_in_blocks(X, tmp_path, set_free_memory):
    np.save(tmp_path / "x.npy", X)
    expected = SPH(8, random_state=0).fit(X)
    set_free_memory(0)
    streamed = SPH(8, random_state=0).fit(np.load(tmp_path / "x.npy", mmap_mode="r"))
    np.testing.assert_array_equal(streamed.pivots_, expected.pivots_)


def test_training_helps(X):
    """Trained spheres find neighbors better than the first ones do."""
    from hashlearn.evaluation import Protocol, Truth, euclidean_neighbors, evaluate

    assert SPH.distance == "spherical"
    train, queries = X[300:], X[:300]
    truth = Truth.neighbors(euclidean_neighbors(queries, train, 20))

    def score(hasher):
        protocol = Protocol(distance=hasher.distance)
        return evaluate(hasher.encode(queries), hasher.encode(train), truth, n_bits=32, protocol=protocol).map

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = SPH(32, max_iter=1, random_state=0).fit(train)
    trained = SPH(32, random_state=0).fit(train)
    assert score(trained) > 1.1 * score(first)
