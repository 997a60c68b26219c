"""The recommended method, and the choice by validation."""

import numpy as np
import pytest

import hashlearn
from hashlearn import choose, recommended
from hashlearn.datasets import load
from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate
from hashlearn.experiments.grid import experiment


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_recommended_is_a_method_with_the_given_length_and_seed():
    assert recommended(24, random_state=3).get_params() == hashlearn.NeighborHash(24, random_state=3).get_params()
    assert recommended(8, supervised=True).get_params() == hashlearn.LabelHash(8).get_params()
    with pytest.raises(ValueError, match="n_bits must be"):
        recommended("x")
    with pytest.raises(ValueError, match="query must be 'code' or 'real'; got 'bits'"):
        recommended(8, query="bits")
    with pytest.raises(ValueError, match="query must be 'code' for supervised=True"):
        recommended(8, query="real", supervised=True)


def test_recommended_for_real_valued_queries():
    real = recommended(64, query="real", n_features=256, random_state=3)
    measured = experiment("beyond-glosses").entry("neighbor-hash-real").hasher()
    assert real.get_params() == {**measured.get_params(), "n_bits": 64, "random_state": 3}
    real = recommended(256, query="real", n_features=256)
    assert real.get_params() == hashlearn.DecoderHash(256).get_params()
    assert recommended(256, query="real", n_features=384).name == "decoder-hash"
    assert recommended(255, query="real", n_features=384).name == "neighbor-hash"
    with pytest.raises(ValueError, match="n_features must be given with query='real'"):
        recommended(64, query="real")
    with pytest.raises(ValueError, match="n_features must not be given with query='code'"):
        recommended(64, n_features=64)
    with pytest.raises(ValueError, match="n_features must be at least 1; got 0"):
        recommended(64, query="real", n_features=0)
    with pytest.raises(ValueError, match="n_bits must be"):
        recommended("x", query="real", n_features=64)


@pytest.mark.parametrize("labels", [range(150), [i // 2 for i in range(150)], [max(i - 9, 0) for i in range(150)]])
def test_too_few_vectors_of_each_class_are_not_compared_on(digits, labels):
    choice = choose(digits.train[:150], 8, list(labels), random_state=0)
    assert choice.scores == {}
    n, n_queries = len(set(labels)), (150 - len(set(labels))) // 5
    assert choice.reason == (
        f"too few of the {n_queries} held-out vectors find one of their class to compare methods on "
        f"({n} classes), so label-hash is used."
    )


@pytest.mark.slow
def test_ten_classes_of_a_hundred_vectors_are_compared_on(digits):
    choice = choose(digits.train[:104], 8, digits.train_labels[:104], random_state=0)
    assert set(choice.scores) == {"label-hash", "sdh"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("labeled", [False, True])
def test_values_that_are_not_finite_are_refused(digits, value, labeled):
    X = digits.train[:300].astype(np.float32)
    X[7, 3] = value
    with pytest.raises(ValueError, match=r"^Input X contains"):
        choose(X, 16, digits.train_labels[:300] if labeled else None, random_state=0)


@pytest.mark.slow
def test_the_choice_is_the_best_of_the_candidates(digits):
    choice = choose(digits.train, 16, random_state=0)
    variants = {f"neighbor-hash, {words}" for words in ("sharpness=4", "sharpness=6", "loss=distances")}
    assert set(choice.scores) == {"neighbor-hash", "itq", *variants}
    assert list(choice.scores.values()) == sorted(choice.scores.values(), reverse=True)
    best = next(iter(choice.scores))
    assert best.startswith(choice.hasher.name)
    assert choice.reason.startswith(f"{best} {100 * choice.scores[best]:.2f} is the highest mAP on 300 held-out")
    # The score of ITQ, by hand.
    order = np.random.default_rng(0).permutation(1500)
    queries, rows = digits.train[order[:300]], digits.train[np.sort(order[300:])]
    itq = hashlearn.ITQ(16, random_state=0).fit(rows)
    truth = Truth.neighbors(euclidean_neighbors(queries, rows, 50))
    score = evaluate(itq.encode(queries), itq.encode(rows), truth, n_bits=16).map
    assert choice.scores["itq"] == pytest.approx(score, abs=1e-12)
    assert choice.hasher.get_params()["random_state"] == 0
    assert not hasattr(choice.hasher, "n_bits_")  # not fitted


@pytest.mark.slow
def test_with_labels_supervised_methods_are_compared(digits):
    choice = choose(digits.train[:600], 16, digits.train_labels[:600], random_state=0)
    assert set(choice.scores) == {"label-hash", "sdh"}
    assert choice.hasher.supervised
    assert all(0.5 < score <= 1 for score in choice.scores.values())


@pytest.mark.slow
def test_itq_is_compared_at_every_length():
    X = np.random.default_rng(0).standard_normal((200, 12))
    assert "itq" in choose(X, 16, random_state=0).scores  # more bits than features
    assert set(choose(X, 8, random_state=0).scores) == {"neighbor-hash", "itq"}


@pytest.mark.slow
def test_normalized_candidates_are_judged_by_cosine(digits):
    """Of vectors whose lengths are noise, ITQ finds neighbors by cosine only if it brings them to unit length."""
    X = digits.train[:600] * np.random.default_rng(0).lognormal(0, 2, (600, 1))
    choice = choose(X, 16, normalize=True, random_state=0)
    assert choice.hasher.normalize
    plain = choose(digits.train[:600] / np.linalg.norm(digits.train[:600], axis=1, keepdims=True), 16, random_state=0)
    assert choice.scores["itq"] == pytest.approx(plain.scores["itq"], abs=0.02)
    assert recommended(64, normalize=True).normalize
    assert choose(X, 16, digits.train_labels[:600], normalize=True, random_state=0).scores["sdh"] > 0.5


def test_few_vectors_are_not_compared(digits):
    choice = choose(digits.train[:99], 16)
    assert choice.scores == {}
    assert choice.hasher.name == "itq"
    assert choice.reason == "99 vectors are too few to compare methods on, so itq is used."
    assert choose(digits.train[:99], 128).hasher.name == "itq"  # of 64 features
    assert choose(digits.train[:99], 16, digits.train_labels[:99]).hasher.name == "label-hash"
    matrix = np.eye(10)[digits.train_labels[:99]]
    assert choose(digits.train[:99], 16, matrix).hasher.name == "label-hash"


def test_bad_input_is_refused(digits):
    with pytest.raises(ValueError, match="X must have two dimensions"):
        choose(digits.train[0])
    with pytest.raises(ValueError, match="y must have a label for each of the 1,500 vectors; it has 7"):
        choose(digits.train, 8, digits.train_labels[:7])
    with pytest.raises(ValueError, match=r"y must have one label per item \(1 dimension\); got shape \(1500, 1\)"):
        choose(digits.train, 8, np.asarray(digits.train_labels)[:, None])


def test_only_label_hash_learns_from_missing_and_several_labels(digits):
    X, labels = digits.train[:300], [str(label) for label in digits.train_labels[:300]]
    number = np.asarray(digits.train_labels[:300]).astype(int)
    for y in (
        ["7", None, *labels[2:]],
        [float("nan"), *labels[1:]],
        np.where(number == 3, -1, number),
        np.eye(10)[number],
        np.eye(10)[number].tolist(),
    ):
        choice = choose(X, 8, y)
        assert (choice.hasher.name, choice.scores) == ("label-hash", {})
        assert choice.reason.startswith("only label-hash learns from several labels")


@pytest.mark.slow
def test_a_class_of_one_vector_is_trained_on(digits):
    y = np.zeros(300, dtype=int)
    y[0] = 1
    assert choose(digits.train[:300], 8, y, random_state=0).scores
