"""One run: its record is what the library gives when it is called by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

import hashlearn
from hashlearn.datasets import DATASETS, Dataset, ImageSet, deep_hashing_split, load
from hashlearn.evaluation import Truth, bit_statistics, euclidean_neighbors, evaluate
from hashlearn.experiments import grid, runner
from hashlearn.experiments.runner import Runner


def quick_run(experiment, method, n_bits=16, **changes):
    chosen = grid.narrowed(grid.quick(grid.experiment(experiment), "digits"), methods=[method], bits=[n_bits])
    return replace(next(grid.plan_runs(chosen, "digits")), **changes)


@pytest.fixture
def set_loader(monkeypatch):
    """Have a data set loaded by a function of the split."""

    def change(name, loader):
        entry = replace(DATASETS[name], loader=lambda source, show_progress, split=0: loader(split))
        monkeypatch.setitem(DATASETS, name, entry)

    return change


@pytest.fixture(scope="module")
def shared_runner():
    return Runner()


def test_the_record_is_what_the_library_gives(shared_runner):
    run = quick_run("fig-mnist", "itq", limit=None, seed=3)
    record = shared_runner.run(run)
    digits = load("digits")
    hasher = hashlearn.ITQ(16, random_state=3).fit(digits.train)
    codes, query_codes = hasher.encode(digits.database), hasher.encode(digits.queries)
    truth = Truth.neighbors(euclidean_neighbors(digits.queries, digits.database, 10))
    scores = evaluate(query_codes, codes, truth, n_bits=16, protocol=run.setting.protocol)
    found = record["scores"]
    assert found["map"] == pytest.approx(scores.map, abs=1e-8)
    assert found["p@3"] == pytest.approx(scores.precision_at_radius[3], abs=1e-8)
    assert found["empty@4"] == scores.empty_at_radius[4]
    assert found["map_standard_error"] == pytest.approx(scores.average_precision.std() / 297**0.5, abs=1e-8)
    expected = evaluate(query_codes, codes, truth, n_bits=16, protocol=replace(scores.protocol, ties="expected"))
    assert found["map_expected_ties"] == pytest.approx(expected.map, abs=1e-8)
    assert found["map_expected_ties"] != found["map"]
    assert "map_new" not in found
    assert record["codes"] == {k: round(v, 8) for k, v in bit_statistics(codes, 16).as_dict().items()}
    assert record["data"]["train"] == [1500, 64]
    assert record["parameters"] == {"max_iter": 50, "normalize": False}
    assert record["training"]["seconds"] > 0
    assert record["training"]["cpu_seconds"] > 0
    assert record["machine"]["numpy"] == np.__version__
    asked = record["examples"]["queries"]
    for query, items, distances in zip(asked, *(record["examples"][k] for k in ("items", "distances")), strict=True):
        d = np.unpackbits(query_codes[query] ^ codes, axis=1).sum(axis=1)
        order = np.lexsort((np.arange(len(d)), d))[:10]
        assert (items, distances) == (order.tolist(), d[order].tolist())
    assert json.loads(json.dumps(record))["scores"] == record["scores"]  # plain values


def test_labels_are_judged_among_new_samples_too(shared_runner):
    run = quick_run("fig-mnist-sup", "itq", limit=None)
    record = shared_runner.run(run)
    digits = load("digits")
    query_codes = hashlearn.ITQ(16, random_state=0).fit(digits.train).encode(digits.queries)
    truth = Truth.labels(digits.query_labels[::2], digits.query_labels[1::2])
    scores = evaluate(query_codes[::2], query_codes[1::2], truth, n_bits=16, protocol=run.setting.protocol)
    assert record["scores"]["map_new"] == pytest.approx(scores.map, abs=1e-8)


def test_a_limit_takes_the_first_vectors(shared_runner):
    run = quick_run("fig-mnist", "lsh", limit=grid.Limit(100, 20))
    record = shared_runner.run(run)
    assert (record["data"]["train"], record["data"]["database"], record["data"]["queries"]) == (
        [100, 64],
        [100, 64],
        [20, 64],
    )
    assert record["data"]["limit"] == {"train": 100, "queries": 20}
    dataset = shared_runner.dataset(run)
    np.testing.assert_array_equal(dataset.queries, load("digits").queries[:20])
    np.testing.assert_array_equal(dataset.train_labels, load("digits").train_labels[:100])
    np.testing.assert_array_equal(dataset.database_labels, load("digits").database_labels[:100])
    assert dataset.database is dataset.train


def test_each_split_is_its_own(set_loader):
    """The data of one split must not serve another, under whose key the result would be kept."""
    asked = []

    def load_split(split):
        asked.append(split)
        digits = load("digits")
        return replace(digits, queries=np.roll(digits.queries, split, axis=1))

    set_loader("cifar10-dh", load_split)
    own = Runner()
    runs = [quick_run("table-dh", "itq", data="cifar10-dh", split=split, limit=None) for split in (0, 1, 1, 2)]
    found = [own.run(run)["scores"]["map"] for run in runs]
    assert asked == [0, 1, 2]
    assert found[1] == found[2]
    assert len(set(found)) == 3


def test_a_study_sees_the_training_data_alone(set_loader):
    """Whatever the test queries are, and the rows that serve as queries are neither trained on nor searched."""
    digits = load("digits")
    records = []
    for queries in (digits.queries, digits.queries[::-1] + 1):
        set_loader("digits", lambda _, queries=queries: replace(digits, queries=queries))
        study = Runner()
        run = quick_run("fig-mnist", "itq", limit=None, held_out=300)
        records.append(study.run(run))
        data = study.dataset(run)
        assert [len(part) for part in (data.train, data.database, data.queries)] == [1200, 1200, 300]
        parts = {tuple(row) for row in np.vstack([data.train, data.queries])}
        assert parts == {tuple(row) for row in digits.train}
        everything = np.column_stack([np.vstack([data.train, data.queries]), [*data.train_labels, *data.query_labels]])
        source = np.column_stack([digits.train, digits.train_labels])
        assert sorted(map(tuple, everything)) == sorted(map(tuple, source))
    assert records[0]["scores"] == records[1]["scores"]
    assert records[0]["data"]["held_out"] == 300
    assert "held_out" not in Runner().run(quick_run("fig-mnist", "itq", limit=None))["data"]


def test_a_study_of_drawn_splits_uses_no_query_of_any_split(set_loader, monkeypatch):
    """Vectors are their own numbers here, so that rows can be told."""
    labels = np.repeat(np.arange(10, dtype=np.uint8), 6000)
    images = ImageSet(
        np.zeros((50_000, 1, 1), np.uint8), labels[:50_000], np.zeros((10_000, 1, 1), np.uint8), labels[50_000:], ()
    )
    queries, rest = deep_hashing_split(labels, 0)
    X = np.arange(60_000)[:, None]
    data = Dataset("cifar10-dh", X[rest], X[rest], X[queries], labels[rest], labels[rest], labels[queries])
    set_loader("cifar10-dh", lambda _: data)
    monkeypatch.setattr(runner, "cifar10_images", lambda **_: images)
    study = Runner().dataset(quick_run("table-dh", "itq", data="cifar10-dh", split=None, limit=None, held_out=1000))
    used = np.concatenate([study.train, study.queries])[:, 0]
    for split in range(10):
        assert not np.isin(deep_hashing_split(labels, split)[0], used).any()
    assert len(used) == len(set(used)) > 45_000


def test_published_neighbors_are_held_against_ours(set_loader):
    digits = load("digits")
    published = euclidean_neighbors(digits.queries, digits.database, 100)
    assert "published_neighbors" not in Runner().run(quick_run("fig-mnist", "lsh", limit=None))
    for wrong, share in ((0, 1.0), (1, 0.9)):
        theirs = published.copy()
        theirs[:, :wrong] = published[:, 50 : 50 + wrong]  # not among the ten nearest
        set_loader("digits", lambda _, theirs=theirs: replace(digits, ground_truth=theirs))
        record = Runner().run(quick_run("fig-mnist", "lsh", limit=None))
        assert record["published_neighbors"] == pytest.approx(share)


def test_what_a_run_has_warned_of_is_kept(shared_runner):
    record = shared_runner.run(quick_run("fig-mnist", "udh-dnn", 8))
    assert any("UDH-DNN has not converged" in words for words in record["training"]["warnings"])
    assert record["training"]["converged"] is False


def test_runs_do_not_depend_on_those_before(shared_runner):
    """The data set and the truth are kept from run to run: another setting must not see them."""
    labels, neighbors = quick_run("fig-mnist-sup", "itq"), quick_run("fig-mnist", "itq")
    first = [shared_runner.run(run)["scores"] for run in (labels, neighbors, labels)]
    assert first[0] == first[2] != first[1]
    assert Runner().run(neighbors)["scores"] == first[1]
    smaller = quick_run("fig-mnist", "itq", limit=grid.Limit(300, 50))
    assert shared_runner.run(smaller)["scores"] == Runner().run(smaller)["scores"] != first[1]


@pytest.mark.slow
@pytest.mark.skipif(not runner.forget_peak(), reason="the system keeps no peak to forget")
def test_memory_is_that_of_the_run(shared_runner):
    big = shared_runner.run(quick_run("fig-mnist", "itq"))["training"]["peak_bytes"]
    hog = np.ones(40_000_000)  # 320 MB
    with_hog = shared_runner.run(quick_run("fig-mnist", "itq", seed=1))["training"]["peak_bytes"]
    del hog
    without = shared_runner.run(quick_run("fig-mnist", "itq", seed=2))["training"]["peak_bytes"]
    assert with_hog > big + 300_000_000
    assert without < with_hog - 300_000_000


def recalls(scores, truth):
    """By brute force: higher scores first, of equal ones the first item."""
    pairs = list(zip(np.argsort(-scores, axis=1, kind="stable").tolist(), truth.tolist(), strict=True))
    return {n: np.mean([len(set(found[:n]) & set(true)) / len(true) for found, true in pairs]) for n in (10, 50, 100)}


def test_recalls_are_those_of_brute_force(shared_runner):
    digits = load("digits")
    truth = euclidean_neighbors(digits.queries, digits.database, 10)
    found = shared_runner.run(quick_run("beyond-glosses", "itq", limit=None))["scores"]
    hasher = hashlearn.ITQ(16, random_state=0).fit(digits.train)
    items = 2.0 * hasher.transform(digits.database) - 1
    by_codes = recalls((2.0 * hasher.transform(digits.queries) - 1) @ items.T, truth)
    by_values = recalls(hasher.query_values(digits.queries) @ items.T, truth)
    for first in (10, 50, 100):
        assert found[f"recall@{first}"] == pytest.approx(by_codes[first], abs=1e-8)
        assert found[f"real_recall@{first}"] == pytest.approx(by_values[first], abs=1e-3)  # float32


def test_a_method_that_refuses_real_valued_queries_has_recalls_by_hamming_distance_alone(shared_runner):
    run = quick_run("beyond-glosses", "itq", limit=None)
    found = shared_runner.run(replace(run, entry=grid.Entry("sph", "SPH", "sph")))["scores"]
    assert {f"recall@{first}" for first in (10, 50, 100)} <= set(found)
    assert not any(name.startswith("real_") for name in found)


def test_a_quantizer_has_recalls_of_real_valued_queries_alone(shared_runner):
    digits = load("digits")
    run = quick_run("beyond-glosses", "faiss-pq", limit=None)
    found = shared_runner.run(run)["scores"]
    assert set(found) == {f"real_recall@{first}" for first in (10, 50, 100)}
    quantizer = run.entry.hasher().set_params(n_bits=16, random_state=0).fit(digits.train)
    items = quantizer.index_.sa_decode(quantizer.encode(digits.database))
    distances = np.square(np.asarray(digits.queries, float)[:, None] - items).sum(axis=2)
    truth = euclidean_neighbors(digits.queries, digits.database, 10)
    for first, expected in recalls(-distances, truth).items():
        assert found[f"real_recall@{first}"] == pytest.approx(expected, abs=5e-3)
