"""Result files: the key is all that matters, and a file is whole or not there."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from made_records import record_of

from hashlearn.datasets import load
from hashlearn.experiments import grid, results
from hashlearn.experiments.results import Results, fingerprint, run_key


@pytest.fixture
def run():
    chosen = grid.narrowed(grid.experiment("fig-mnist"), methods=["itq"], bits=[16])
    return next(grid.runs_of(chosen, "mnist"))


def changed(run, **protocol):
    return replace(run, setting=replace(run.setting, protocol=replace(run.setting.protocol, **protocol)))


def test_the_key_changes_with_everything_that_matters(run, monkeypatch):
    keys = {
        "as it is": run_key(run, "data"),
        "data": run_key(run, "other data"),
        "data set": run_key(replace(run, data="digits"), "data"),
        "split": run_key(replace(run, split=0), "data"),
        "bits": run_key(replace(run, n_bits=17), "data"),
        "seed": run_key(replace(run, seed=1), "data"),
        "method": run_key(replace(run, entry=replace(run.entry, method="lsh")), "data"),
        "parameters": run_key(replace(run, entry=replace(run.entry, parameters={"max_iter": 49})), "data"),
        "truth": run_key(replace(run, setting=replace(run.setting, k=51)), "data"),
        "kind of truth": run_key(replace(run, setting=replace(run.setting, truth="labels")), "data"),
        "ties": run_key(changed(run, ties="expected"), "data"),
        "cutoff": run_key(changed(run, cutoff=10), "data"),
        "radii": run_key(changed(run, radii=(2,)), "data"),
        "distance": run_key(changed(run, distance="spherical"), "data"),
    }
    monkeypatch.setattr(results.hashlearn, "__version__", "99", raising=False)
    keys["version"] = run_key(run, "data")
    assert len(set(keys.values())) == len(keys), keys


def test_the_key_does_not_change_with_what_does_not_matter(run):
    plain = run_key(run, "data")
    assert run_key(replace(run, experiment="ablation"), "data") == plain
    assert run_key(replace(run, entry=replace(run.entry, name="x", label="X")), "data") == plain
    # A default that is spelled out is the default.
    assert run_key(replace(run, entry=replace(run.entry, parameters={"max_iter": 50})), "data") == plain


def test_the_fingerprint_is_of_the_content():
    digits = load("digits")
    plain = fingerprint(digits)
    assert fingerprint(load("digits")) == plain
    queries, labels = digits.queries.copy(), digits.query_labels.copy()
    queries[3, 4] ^= 1
    labels[0] ^= 1
    others = [
        replace(digits, train_labels=digits.train_labels[::-1]),
        replace(digits, database_labels=digits.database_labels[::-1]),
        replace(digits, queries=queries),
        replace(digits, query_labels=labels),
        replace(digits, queries=digits.queries[:-1]),
        replace(digits, name="other"),
        replace(digits, database=digits.database[::-1]),
        replace(digits, train=digits.train[:-1]),
    ]
    assert len({plain, *map(fingerprint, others)}) == 1 + len(others)


def test_computed_features_count_by_shape():
    """Their last digits are the machine's; whole numbers, in whatever type, count to the byte."""
    digits = load("digits")
    X = np.sqrt(digits.train.astype(np.float32))
    nearly = X * np.float32(1 + 1e-7)
    assert (nearly != X).any()
    assert fingerprint(replace(digits, train=X, database=X)) == fingerprint(
        replace(digits, train=nearly, database=nearly)
    )
    assert fingerprint(replace(digits, train=X, database=X)) != fingerprint(
        replace(digits, train=X[1:], database=X[1:])
    )
    # Without labels nothing says which rows they are: to the byte.
    bare = replace(digits, train_labels=None, database_labels=None, query_labels=None)
    assert fingerprint(replace(bare, train=X)) != fingerprint(replace(bare, train=nearly))
    # A few whole rows do not make it whole.
    partly = X.copy()
    partly[:5] = np.round(partly[:5])
    assert fingerprint(replace(digits, train=partly)) == fingerprint(replace(digits, train=X))
    whole = digits.train.astype(np.float32)
    other = whole.copy()
    other[5, 5] += 1
    assert fingerprint(replace(digits, train=whole)) != fingerprint(replace(digits, train=other))


def made_up():
    """A record as a run gives it, before it is kept."""
    chosen = grid.narrowed(grid.experiment("fig-mnist"), methods=["itq"], bits=[16])
    record = json.loads(json.dumps(record_of(next(grid.runs_of(chosen, "mnist")))))
    named = ("format", "key", "experiment", "method", "label")
    return {name: value for name, value in record.items() if name not in named}


RECORD = {**made_up(), "started": "2025-12-31T23:59:00+00:00", "finished": "2026-01-01T00:00:00+00:00"}


def test_written_and_found(run, tmp_path):
    kept = Results(tmp_path)
    assert kept.find(run, "k") is None
    record = kept.write(run, "k", RECORD)
    assert kept.find(run, "k") == record
    assert (record["experiment"], record["method"], record["label"]) == ("fig-mnist", "itq", "ITQ")
    assert [path.name for path in (tmp_path / "fig-mnist").iterdir()] == ["itq-16-0-k.json"]
    assert kept.find(run, "other") is None
    assert kept.find(replace(run, seed=1), "k") is None


def test_the_same_run_serves_another_experiment(run, tmp_path):
    kept = Results(tmp_path)
    kept.write(run, "k", RECORD)
    other = replace(run, experiment="ablation")
    found = kept.find(other, "k")
    assert found["experiment"] == "ablation"
    assert (tmp_path / "ablation" / "itq-16-0-k.json").exists()
    assert {record["experiment"] for record in kept.all()} == {"fig-mnist", "ablation"}


DAMAGED = [
    *("", '{"format": 1, "key": "k"}', '{"format": 1, "key": "k2"}', '{"key": "k", "for'),
    *("[1]", '"k"', '{"key": "another"}', "\xff"),
    *("[" * 100_000, '{"a":' * 10_000, f'{{"format": 1{"0" * 400}}}', '{"format": 1e999}', "\0" * 100, "NaN"),
    " " * (1 << 23),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_no_result(run, tmp_path, content):
    kept = Results(tmp_path)
    kept.write(run, "k", RECORD)
    kept.path(run, "k").write_bytes(content.encode("latin-1"))
    assert kept.find(run, "k") is None
    assert list(kept.all()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 2),
        ("library_method", None),
        ("seed", "x"),
        ("data", None),
        ("data", {"name": "mnist"}),
        ("scores", None),
        ("scores", {"map": float("nan")}),
        ("scores", {"map": "0.5"}),
        ("setting", {}),
        ("machine", {}),
        ("training", {}),
        ("training", {"seconds": float("nan"), "cpu_seconds": 1.0, "warnings": []}),
        ("training", {"seconds": 1.0, "cpu_seconds": "x", "warnings": []}),
        ("training", {"seconds": 1.0, "cpu_seconds": 1.0, "warnings": None}),
        ("data", {**RECORD["data"], "train": []}),
        ("data", {**RECORD["data"], "train": [9, "x"]}),
        ("started", None),
        ("finished", "yesterday"),
        ("n_bits", 0),
        ("n_bits", 2**63),
        ("seed", -1),
        ("seed", 2**900),
        ("scores", {"map": 1e308}),
        ("scores", {"p@3": 0.5}),
        ("encoding_microseconds", 1e300),
        ("machine", {**RECORD["machine"], "cores": 2**900}),
        ("training", {"seconds": 1.0, "cpu_seconds": 1.0, "warnings": [1]}),
        ("training", {"seconds": 1.0, "cpu_seconds": 1.0, "warnings": [], "peak_bytes": "x"}),
        ("published_neighbours", "x"),
        ("truth", "\ud800"),
        ("finished", "2026-01-01T00:00:00"),  # without its zone beside one with
    ],
)
def test_a_file_with_something_else_in_a_field_is_no_result(run, tmp_path, caplog, name, value):
    """Neither for a reader of all results nor for the run itself, which is then made again."""
    kept = Results(tmp_path)
    record = kept.write(run, "k", RECORD)
    assert list(kept.all()) == [record]
    kept.path(run, "k").write_text(json.dumps({**record, name: value}))
    for look in (lambda: kept.find(run, "k"), lambda: next(kept.all(), None)):
        caplog.clear()
        assert look() is None
        (line,) = caplog.records  # once
        why = (
            "can't be read (NaN is not a JSON number)"
            if "nan" in repr(value)
            else "is not a result file of this version"
        )
        assert line.getMessage() == f"{kept.path(run, 'k')} {why}"


def test_of_several_results_of_a_run_the_latest_counts(run, tmp_path):
    kept = Results(tmp_path)
    kept.write(run, "old", RECORD)
    kept.write(run, "new", {**RECORD, "finished": "2026-01-02T00:00:00+00:00"})
    kept.write(run, "aged", {**RECORD, "finished": "2025-01-02T00:00:00+00:00"})
    assert [record["key"] for record in kept.all()] == ["new"]
    # Another data set's is another result, and so is a small version's.
    kept.write(run, "digits", {**RECORD, "data": {**RECORD["data"], "name": "digits"}})
    kept.write(run, "small", {**RECORD, "data": {**RECORD["data"], "limit": {"train": 9, "queries": 9}}})
    assert sorted(record["key"] for record in kept.all()) == ["digits", "new", "small"]


def test_what_a_writer_has_under_way_is_no_result(run, tmp_path, caplog):
    kept = Results(tmp_path)
    kept.write(run, "k", RECORD)
    (tmp_path / "fig-mnist" / ".itq-16-0-k.0123.tmp.json").write_text("{")
    assert [record["key"] for record in kept.all()] == ["k"]
    assert (kept.count(), caplog.records) == (1, [])


def test_a_folder_that_takes_no_files_is_an_error_at_once(tmp_path):
    Results(tmp_path / "new").check()
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Results(tmp_path / "file").check()


def test_a_write_that_fails_leaves_nothing(run, tmp_path, monkeypatch):
    kept = Results(tmp_path)
    kept.write(run, "k", RECORD)
    before = kept.path(run, "k").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        kept.write(run, "k", {**RECORD, "seed": 0, "more": "x" * 10000})
    assert kept.path(run, "k").read_bytes() == before
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["itq-16-0-k.json"]
    assert json.loads(before)["key"] == "k"


def test_what_is_no_file_is_no_result(run, tmp_path, caplog):
    kept = Results(tmp_path)
    kept.write(run, "k", RECORD)
    for number, make in enumerate((os.mkfifo, os.mkdir)):
        caplog.clear()
        path = kept.path(replace(run, seed=number + 1), "k")
        make(path)
        assert len(list(kept.all())) == 1
        assert "can't be read" in caplog.text
        assert kept.find(replace(run, seed=number + 1), "k") is None
        assert kept.is_blocked(replace(run, seed=number + 1), "k")


def test_a_result_of_another_experiment_serves_where_no_file_can_be_kept(run, tmp_path):
    kept = Results(tmp_path)
    kept.write(run, "k", RECORD)
    other = replace(run, experiment="ablation")
    kept.path(other, "k").mkdir(parents=True)
    assert kept.find(other, "k")["experiment"] == "ablation"
