"""SDH-DNN: against the paper's algorithm with its m × m matrices, and what its steps promise."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits

from hashlearn import ITQ, SDHDNN
from hashlearn.codes import signs
from hashlearn.evaluation import Truth, evaluate
from hashlearn.hashers import _early_stop
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._dnn import Lambdas
from hashlearn.hashers._init import eigen_layers
from hashlearn.hashers._network import Network, Sums, flatten
from hashlearn.hashers.sdh_dnn import Pairs, pair_floors, pair_term
from reference import sdh_dnn as reference
from reference.gradients import as_rows, check_by_differences

LAMBDAS = Lambdas(1e-3, 5.0, 1.0, 1e-4)
TERMS = ("pairs", "weights", "quantization", "independence", "balance")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.slow,
]


def in_order(function, items):
    return [function(item) for item in items]


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.data, data.target


@pytest.fixture(scope="module")
def unbalanced(digits):
    """Samples of four classes: 5, 20, 60 and 65 of them."""
    X, y = digits
    rows = np.concatenate([np.flatnonzero(y == k)[:n] for k, n in ((3, 5), (8, 20), (0, 60), (7, 65))])
    rows = np.random.default_rng(0).permutation(rows)
    return X[rows], np.unique(y[rows], return_inverse=True)[1]


def training(data, *, lambdas=LAMBDAS, units=(9, 8), L=6, dtype=np.float64):
    X, y = data
    X = ((X - X.mean(axis=0)) / 5).astype(dtype)
    B = signs(ITQ(L, random_state=0).fit(X).decision_function(X)).astype(np.int8)
    rows = Rows(X, np.zeros(64), 1.0, in_order)
    layers = eigen_layers(rows, (64, *units, L), np.random.default_rng(0), np.cov(X.T, bias=True))
    return X, y, Pairs(rows, Network((64, *units, L)), flatten(layers), B, y, lambdas)


# Lambdas of about equal weight too, so that an error in any term is seen.
@pytest.mark.parametrize("lambdas", [LAMBDAS, Lambdas(0.1, 0.5, 0.3, 0.02)])
def test_objective_and_gradient_equal_those_with_dense_matrices(unbalanced, lambdas):
    X, y, found = training(unbalanced, lambdas=lambdas)
    rng = np.random.default_rng(0)
    theta = found.theta + 0.3 * rng.standard_normal(len(found.theta))
    terms, gradient = found.objective(theta)
    layers = found.network.layers(theta)
    W, c = [layer.W.T for layer in layers], [layer.c[:, None] for layer in layers]
    S, B = reference.pairwise_labels(y), found.B.T.astype(float)
    assert {name: pytest.approx(terms[name], rel=1e-10) for name in TERMS} == reference.terms(X.T, S, B, W, c, lambdas)
    flat = as_rows(*reference.gradient(X.T, S, B, W, c, lambdas))
    np.testing.assert_allclose(gradient, flat, rtol=1e-7, atol=1e-9)

    check_by_differences(found.objective, theta, layers, tolerance=1e-6)


def test_float32_agrees_with_float64(digits):
    (_, _, single), (_, _, double) = (training(digits, dtype=dtype) for dtype in (np.float32, np.float64))
    single.B[...] = double.B
    (terms, gradient), (expected, slope) = (found.objective(double.theta) for found in (single, double))
    assert {name: pytest.approx(terms[name], rel=1e-5) for name in TERMS} == expected
    assert np.linalg.norm(gradient - slope) < 1e-5 * np.linalg.norm(slope)


@pytest.mark.parametrize("block_rows", [37, 2048])
def test_same_codes_as_algorithm_2_word_for_word(block_rows, unbalanced, set_block_rows):
    set_block_rows(block_rows)
    X, y = unbalanced
    hasher = SDHDNN(
        6, hidden_units=(9, 8), max_iter=3, lbfgs_iter=15, samples_per_class=None, scale=50, random_state=0
    ).fit(X, y)
    V = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).sum() / 50)
    rng = np.random.default_rng(0)
    rng.permutation(len(X))  # the draw of samples comes first
    B = signs(ITQ(6, random_state=rng).fit(X).decision_function(X)).T.astype(float)
    B, W, c, history = reference.algorithm_2(V.T, y, B, (9, 8, 6), LAMBDAS, 3, 15)
    for record, terms in zip(hasher.history_, history, strict=True):
        assert {name: pytest.approx(record[name], rel=1e-5) for name in TERMS} == terms
    np.testing.assert_array_equal(hasher.transform(X), reference.sgn(reference.encode(V.T, W, c)[-1]).T > 0)


@pytest.mark.parametrize("block_rows", [37, 2048])
def test_sgn_h_is_the_best_of_all_codes(block_rows, unbalanced, set_block_rows):
    set_block_rows(block_rows)
    X, y, found = training(unbalanced, L=4)
    found.network_step(5, lambda _: None)
    layers = found.network.layers(found.theta)
    W, c = [layer.W.T for layer in layers], [layer.c[:, None] for layer in layers]
    S = reference.pairwise_labels(y)
    before = found.B.copy()
    flips = found.code_step()
    assert flips == (before != found.B).sum() > 0
    np.testing.assert_array_equal(found.B, reference.sgn(reference.encode(X.T, W, c)[-1]).T)

    def value(B):
        return sum(reference.terms(X.T, S, B.T.astype(float), W, c, LAMBDAS).values())

    best = value(found.B)
    for i in range(0, len(X), 31):
        for code in itertools.product((-1, 1), repeat=4):
            B = found.B.copy()
            B[i] = code
            assert value(B) >= best - 1e-12


def test_no_step_raises_the_objective(digits):
    _, _, found = training(digits, L=8)
    last = np.inf
    for t in range(5):
        if t:
            found.code_step()
            after_codes = sum(found.objective(found.theta)[0].values())
            assert after_codes <= last * (1 + 1e-9)
            last = after_codes
        after = sum(found.network_step(10, lambda _: None).terms.values())
        assert after <= last * (1 + 1e-9)
        last = after


@pytest.mark.parametrize("counts", [(7, 7, 7, 7), (3, 10, 4), (12, 2), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("L", [2, 3, 8])
def test_the_pair_term_reaches_its_floor_and_falls_no_lower(counts, L):
    """By minimizing over all real H, without a network."""
    y = np.repeat(np.arange(len(counts)), counts)
    m = len(y)
    floor, floor_codes = pair_floors(counts, L)
    one_hot = np.eye(len(counts))[y]

    def value_and_gradient(flat):
        H = flat.reshape(m, L)
        value, slope = pair_term(Sums(H.T @ H, one_hot.T @ H, 0.0), m)
        return value, (H @ slope.A + slope.T[y]).ravel()

    rng = np.random.default_rng(0)
    reached = min(
        minimize(value_and_gradient, rng.standard_normal(m * L), jac=True, method="L-BFGS-B").fun for _ in range(5)
    )
    assert reached == pytest.approx(floor, rel=1e-4, abs=1e-4)
    assert reached >= floor - 1e-9
    assert floor_codes >= floor


@pytest.mark.parametrize("counts", [(7, 7, 7, 7), (3, 10, 4), (12, 2), (90, 5, 5), (1, 2, 3, 4), (4, 4, 4)])
@pytest.mark.parametrize("L", [1, 2, 3])
def test_no_codes_fall_below_their_floor(counts, L):
    """All codes of classes: equal codes within a class are no worse than others."""
    y = np.repeat(np.arange(len(counts)), counts)
    S = reference.pairwise_labels(y)
    _, floor = pair_floors(counts, L)
    values = []
    for codes in itertools.product(itertools.product((-1.0, 1.0), repeat=L), repeat=len(counts)):
        B = np.array(codes)[y]
        values.append(np.linalg.norm(B @ B.T / L - S) ** 2 / (2 * len(y)))
    assert min(values) >= floor - 1e-9
    if (counts, L) in REACHED:
        assert min(values) == pytest.approx(floor), "this one can be reached"


# Four equal classes with codes of three bits, each pair two apart; and two classes, which can be opposite.
REACHED = [((7, 7, 7, 7), 3), ((12, 2), 1), ((12, 2), 2), ((12, 2), 3)]


def test_floors_of_many_classes_of_many_sizes():
    """As the eigenvalues of the whole matrix have it."""
    n = np.random.default_rng(0).integers(1, 30, 200).astype(float)
    values = np.sort(np.linalg.eigvalsh(np.diag(2 * n) - np.sqrt(np.outer(n, n))))[::-1]
    for L in (1, 8, 64, 500):
        left = np.sum(values**2) - np.sum(np.maximum(values[:L], 0) ** 2)
        assert pair_floors(n, L)[0] == pytest.approx(left / (2 * n.sum()))
    assert pair_floors(np.ones(100_000), 32)[0] == pytest.approx((100_000**2 - 4 * 32) / 200_000)


def test_floors_of_equal_classes_in_closed_form():
    c, n = 10, 200
    m = c * n
    floor, floor_codes = pair_floors([n] * c, 32)
    assert floor == pytest.approx(((c - 2) / c) ** 2 * m / 2)
    assert floor_codes == pytest.approx((1 - 1 / c) * (1 - 1 / (c - 1)) ** 2 * m / 2)
    # Two classes can be opposite.
    assert pair_floors([n, n], 8) == (pytest.approx(0, abs=1e-6), 0)


def test_it_finds_classes_that_itq_does_not(digits):
    X, y = digits
    hasher = SDHDNN(16, lbfgs_iter=60, random_state=0).fit(X[:1300], y[:1300])
    truth = Truth.labels(y[1300:], y[:1300])
    found, itq = (
        evaluate(h.encode(X[1300:]), h.encode(X[:1300]), truth, n_bits=16).map
        for h in (hasher, ITQ(16, random_state=0).fit(X[:1300]))
    )
    assert found > itq + 0.2
    assert hasher.history_[-1]["pairs"] > hasher.pair_floor_


def test_samples_per_class(digits):
    X, y = digits
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])[y]
    short = {"max_iter": 1, "lbfgs_iter": 3, "random_state": 0}
    hasher = SDHDNN(8, samples_per_class=30, **short).fit(X, names)
    np.testing.assert_array_equal(hasher.class_counts_, 30)
    assert list(hasher.classes_) == sorted(set(names))
    # Another seed, other samples.
    other = SDHDNN(8, samples_per_class=30, **{**short, "random_state": 1}).fit(X, names)
    assert not np.array_equal(other.offset_, hasher.offset_)
    whole = SDHDNN(8, samples_per_class=None, **short).fit(X, names)
    np.testing.assert_array_equal(whole.class_counts_, np.unique(names, return_counts=True)[1])
    np.testing.assert_allclose(whole.offset_, X.mean(axis=0))
    with pytest.warns(UserWarning, match=r"fewer than 175 samples \(samples_per_class\) are used whole: eight \(174\)"):
        some = SDHDNN(8, samples_per_class=175, **short).fit(X, names)
    assert some.class_counts_.sum() == np.minimum(np.unique(names, return_counts=True)[1], 175).sum()


def test_labels_of_any_kind_are_the_same_classes(digits):
    X, y = digits[0][:300], digits[1][:300]
    short = {"max_iter": 1, "lbfgs_iter": 3, "random_state": 0}
    plain = SDHDNN(4, **short).fit(X, y)
    other = SDHDNN(4, **short).fit(X, [frozenset({int(k), 77}) for k in y])
    assert len(other.classes_) == 10
    assert sorted(other.class_counts_) == sorted(plain.class_counts_)
    assert (other.transform(X) == plain.transform(X)).mean() > 0.999


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (lambda y: None, "SDHDNN learns from labels: it requires y"),
        (lambda y: y[:-1], "y must have a label for each of the 300 samples; got 299"),
        (lambda y: np.eye(10)[y], r"got shape \(300, 10\); several labels per item are not supported"),
        (lambda y: [{int(k), 11} for k in y], "item 0 is {.*several labels per item are not supported"),
        (lambda y: [None if i == 7 else k for i, k in enumerate(y)], "y must have a label for every item; item 7"),
        (lambda y: y * 0, "samples of at least 2 classes; got 1: "),
        (lambda y: np.arange(300), "of the 300 classes none has two samples to train on"),
    ],
)
def test_bad_labels(labels, words, digits):
    X, y = digits[0][:300], digits[1][:300]
    with pytest.raises(ValueError, match=words):
        SDHDNN(4, max_iter=1, lbfgs_iter=3).fit(X, labels(y))


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_no_pairs_of_a_class(digits):
    X, y = digits[0][:40], np.repeat(np.arange(20), 2)
    with pytest.raises(ValueError, match="samples_per_class must be None or a whole number of at least 2; got 1"):
        SDHDNN(4, samples_per_class=1).fit(X, y)
    with pytest.raises(ValueError, match="of the 20 classes none has two samples to train on beside the 20 of valid"):
        SDHDNN(4, validation=20).fit(X, y)


def test_early_stop_by_labels(digits, stops):
    """Queries are kept from training, judged by their own labels, and the best iteration is what stays."""
    X, y = digits
    encoded = []
    hasher = SDHDNN(
        8,
        max_iter=20,
        lbfgs_iter=30,
        validation=200,
        random_state=0,
        callback=lambda hasher, record: encoded.append(hasher.encode(X)),
    ).fit(X, y)
    (stop,) = stops
    kept = np.setdiff1d(np.arange(len(X)), hasher.samples_)
    np.testing.assert_array_equal(stop.queries, X[kept])
    assert hasher.class_counts_.sum() == len(X) - 200
    np.testing.assert_allclose(hasher.offset_, X[hasher.samples_].mean(axis=0))
    scores = [record["validation_map"] for record in hasher.history_]
    assert 2 < len(scores) < 21, "stopped on the way"
    assert hasher.best_iter_ == len(scores) - 2
    np.testing.assert_array_equal(hasher.encode(X), encoded[-2])
    codes = encoded[-2]
    truth = Truth.labels(y[kept], y[hasher.samples_])
    expected = evaluate(codes[kept], codes[hasher.samples_], truth, n_bits=8).map
    assert scores[-2] == pytest.approx(expected)
    summary, kept = hasher.summary(), hasher.history_[-2]
    assert (summary["iterations"], summary["kept_iteration"]) == (len(scores) - 1, len(scores) - 2)
    assert (summary["objective"], summary["pair_term"]) == (kept["objective"], kept["pairs"])


def test_a_validation_with_few_samples_a_class_and_a_small_database(digits, stops, monkeypatch):
    """The database of the validation is drawn from what is trained on, with its labels."""
    X, y = digits
    monkeypatch.setattr(_early_stop, "_DATABASE", 120)
    codes = []
    hasher = SDHDNN(
        8,
        max_iter=1,
        lbfgs_iter=5,
        validation=300,
        samples_per_class=30,
        random_state=0,
        callback=lambda hasher, record: codes.append(hasher.encode(X)),
    ).fit(X, y)
    np.testing.assert_array_equal(hasher.class_counts_, 30)
    (stop,) = stops
    assert len(stop.queries) == 300
    assert len(stop.database) == 120
    searched = hasher.samples_[stop.database]
    asked = np.array([np.flatnonzero((query == X).all(axis=1))[0] for query in stop.queries])
    assert not set(asked) & set(hasher.samples_)
    truth = Truth.labels(y[asked], y[searched])
    expected = evaluate(codes[0][asked], codes[0][searched], truth, n_bits=8).map
    assert hasher.history_[0]["validation_map"] == pytest.approx(expected)


def test_a_validation_leaves_a_sample_of_each_class(digits):
    X, y = digits[0][:100], np.arange(100) == 3
    for seed in range(6):
        hasher = SDHDNN(2, validation=50, max_iter=1, lbfgs_iter=2, random_state=seed).fit(X, y)
        assert list(hasher.class_counts_) == [49, 1]
    with pytest.raises(ValueError, match="leave at least half of the 100 samples and one of each class; got 30"):
        SDHDNN(2, validation=30).fit(X, np.arange(100) % 75)
    with pytest.raises(ValueError, match="leave at least half of the 100 samples and one of each class; got 51"):
        SDHDNN(2, validation=51).fit(X, y)


def test_small_classes_are_named(digits):
    X, y = digits
    counts = np.minimum(np.bincount(y), np.r_[np.full(7, 20), 100, 100, 180])
    rows = np.concatenate([np.flatnonzero(y == k)[:n] for k, n in enumerate(counts)])
    short = {"max_iter": 1, "lbfgs_iter": 2, "random_state": 0}
    words = r"fewer than 95 samples .* used whole: 0 \(20\), 1 \(20\), 2 \(20\), 3 \(20\), 4 \(20\) and 2 more\."
    with pytest.warns(UserWarning, match=words):
        SDHDNN(4, samples_per_class=95, **short).fit(X[rows], y[rows])
    # What a validation keeps is missing too.
    with pytest.warns(UserWarning, match="fewer than 95 samples .* and 4 more"):
        SDHDNN(4, samples_per_class=95, validation=100, **short).fit(X[rows], y[rows])


def test_float32_does_not_end_a_step_early(digits):
    """The pair term is a difference of sums of m² numbers: in float32's noise, L-BFGS would find nothing lower."""
    X, y = digits[0].astype(np.float32), digits[1] % 2
    single, double = (
        [
            record["evaluations"]
            for record in SDHDNN(16, max_iter=3, lbfgs_iter=400, scale=50, random_state=0).fit(data, y).history_
        ]
        for data in (X, X.astype(float))
    )
    assert min(single) > 0.5 * min(double), (single, double)


@pytest.mark.parametrize("block_rows", [37, 2048])
def test_it_tells_its_floors(block_rows, digits, set_block_rows):
    set_block_rows(block_rows)
    X, y = digits
    hasher = SDHDNN(16, max_iter=2, lbfgs_iter=50, random_state=0).fit(X, y)
    last = hasher.history_[-1]
    S, B = reference.pairwise_labels(y), 2.0 * hasher.transform(X) - 1
    assert last["pairs_of_codes"] == pytest.approx(np.linalg.norm(B @ B.T / 16 - S) ** 2 / (2 * len(X)))
    assert hasher.pair_floor_ < last["pairs"]
    assert hasher.pair_floor_codes_ < last["pairs_of_codes"]
    assert hasher.summary() == {
        "objective": last["objective"],
        "iterations": 2,
        "kept_iteration": 2,
        "converged": hasher.converged_,
        "samples_per_class": 2000,
        "samples": 1797,
        "classes": 10,
        "fewest_of_a_class": 174,
        "most_of_a_class": 183,
        "pair_term": last["pairs"],
        "floor_of_the_pair_term": hasher.pair_floor_,
        "pair_term_of_the_codes": last["pairs_of_codes"],
        "floor_of_the_pair_term_of_codes": hasher.pair_floor_codes_,
    }


LIMITED = """
import resource, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from hashlearn import SDHDNN
limit = 4_000_000_000
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
rng = np.random.default_rng(0)
y = rng.integers(0, 10, 50_000)
X = rng.standard_normal((50_000, 320), dtype=np.float32) + 2 * rng.standard_normal((10, 320), dtype=np.float32)[y]
hasher = SDHDNN(32, samples_per_class=None, max_iter=1, lbfgs_iter=10, random_state=0).fit(X, y)
print(hasher.class_counts_.sum(), hasher.history_[-1]["pairs"] < hasher.history_[0]["pairs"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits private memory as Linux does")
def test_fifty_thousand_samples_in_four_gigabytes():
    """An m × m matrix of float32 alone would take 10 GB."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["50000", "True"]


def test_parameters_of_the_paper():
    hasher = SDHDNN()
    assert (hasher.lambda1, hasher.lambda2, hasher.lambda3, hasher.lambda4) == LAMBDAS
    assert (hasher.samples_per_class, hasher.max_iter) == (2000, 5)
