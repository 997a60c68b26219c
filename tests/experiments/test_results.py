"""Results: what their keys depend on, and JSON-lines files that survive whatever ends a writer."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_records import make_record

import hashlearn
from hashlearn.datasets import load
from hashlearn.experiments import grid
from hashlearn.experiments.grid import COMPARED
from hashlearn.experiments.results import Results, fingerprint, run_key


@pytest.fixture
def run():
    chosen = grid.narrowed(grid.experiment("fig-mnist"), methods=["itq"], bits=[16])
    return next(grid.plan_runs(chosen, "mnist"))


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
    monkeypatch.setattr(hashlearn.ITQ, "revision", 2)
    keys["revision"] = run_key(run, "data")
    assert len(set(keys.values())) == len(keys), keys


def test_the_key_does_not_change_with_what_does_not_matter(run):
    plain = run_key(run, "data")
    assert run_key(replace(run, experiment="ablation"), "data") == plain
    assert run_key(replace(run, entry=replace(run.entry, name="x", label="X")), "data") == plain
    # A default that is spelled out is the default.
    assert run_key(replace(run, entry=replace(run.entry, parameters={"max_iter": 50})), "data") == plain


def test_a_release_or_a_parameter_without_effect_keeps_the_key(run, monkeypatch):
    plain = run_key(run, "data")
    monkeypatch.setattr(hashlearn, "__version__", "99", raising=False)
    assert run_key(run, "data") == plain

    class Newer(hashlearn.ITQ):
        def __init__(self, n_bits=32, max_iter=50, lookahead=0, random_state=None):
            super().__init__(n_bits, max_iter=max_iter, random_state=random_state)
            self.lookahead = lookahead

    monkeypatch.setitem(COMPARED, "itq", Newer)
    assert run_key(run, "data") == plain
    assert run_key(replace(run, entry=replace(run.entry, parameters={"lookahead": 1})), "data") != plain


def test_committed_results_were_made_with_the_defaults_of_today():
    """A changed default changes numbers: it needs a new revision, since keys hold what differs from a default."""
    folder = Path(__file__).parents[2] / "docs" / "results" / "reproduce"
    records = list(Results(folder).all())
    assert sum(not record["experiment"].startswith("beyond-") for record in records) == 909
    for record in records:
        method = COMPARED[record["library_method"]]
        if record["revision"] == method.revision:
            today = json.loads(json.dumps({**method().get_params(), **record["options"]}, default=str))
            assert {name: today.get(name) for name in record["parameters"]} == record["parameters"], record["method"]


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
    texts = replace(bare, content="of these texts")
    assert fingerprint(replace(texts, train=X)) == fingerprint(replace(texts, train=nearly))
    assert fingerprint(replace(texts, train=X)) != fingerprint(replace(texts, train=X, content="of others"))
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
    record = json.loads(json.dumps(make_record(next(grid.plan_runs(chosen, "mnist")))))
    named = ("format", "key", "experiment", "method", "label")
    return {name: value for name, value in record.items() if name not in named}


RECORD = {**made_up(), "started": "2025-12-31T23:59:00+00:00", "finished": "2026-01-01T00:00:00+00:00"}


def write_some(folder, run, n=3):
    """Results with the keys k0, k1, ... of one run each, and the path of their file."""
    results = Results(folder)
    for seed in range(n):
        results.write(replace(run, seed=seed), f"k{seed}", {**RECORD, "seed": seed})
    return results.path(run.experiment)


def read_keys(folder):
    return [record["key"] for record in Results(folder).all()]


def replace_line(path, number, content):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = content
    path.write_bytes(b"".join(lines))


def test_written_and_found(run, tmp_path):
    results = Results(tmp_path)
    assert results.find(run, "k") is None
    record = results.write(run, "k", RECORD)
    assert results.find(run, "k") == Results(tmp_path).find(run, "k") == record
    assert (record["experiment"], record["method"], record["label"]) == ("fig-mnist", "itq", "ITQ")
    assert json.loads((tmp_path / "fig-mnist.jsonl").read_text()) == record
    assert results.find(run, "other") is None
    assert results.count() == 1


def test_a_result_of_another_process_is_found(run, tmp_path):
    mine, other = Results(tmp_path), Results(tmp_path)
    mine.write(run, "k", RECORD)
    assert mine.find(run, "k2") is None
    other.write(run, "k2", RECORD)
    assert mine.find(run, "k2")["key"] == "k2"


@pytest.mark.parametrize("change", [{"experiment": "ablation"}, {"entry": "renamed"}])
def test_the_same_run_serves_under_other_names(run, tmp_path, change):
    results = Results(tmp_path)
    first = results.write(run, "k", RECORD)
    if "entry" in change:
        change = {"entry": replace(run.entry, name="renamed")}
    other = replace(run, **change)
    record = results.find(other, "k")
    assert (record["experiment"], record["method"]) == (other.experiment, other.entry.name)
    assert record["scores"] == first["scores"]
    assert list(Results(tmp_path).all()) in ([first, record], [record, first])
    assert results.find(other, "k") == record
    assert results.count() == 2  # copied once


def test_a_result_without_the_recalls_of_a_run_does_not_serve(run, tmp_path):
    results, other = Results(tmp_path), replace(run, experiment="beyond-glosses", recall=True)
    results.write(run, "k", RECORD)
    assert results.find(other, "k") is None
    results.write(other, "k", {**RECORD, "scores": {**RECORD["scores"], "recall@10": 0.5}})
    assert results.find(other, "k")["scores"]["recall@10"] == 0.5
    assert results.find(run, "k")["scores"] == RECORD["scores"]


DAMAGED = [
    *(b"", b'{"format": 1, "key": "k"}', b'{"format": 1, "key": "k2"}', b'{"key": "k", "for'),
    *(b"[1]", b'"k"', b'{"key": "another"}', b"\xff"),
    *(
        b"[" * 100_000,
        b'{"a":' * 10_000,
        b'{"format": 1' + b"0" * 400 + b"}",
        b'{"format": 1e999}',
        b"\0" * 100,
        b"NaN",
    ),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_line_is_reported_and_counts_as_missing(run, tmp_path, caplog, content):
    path = write_some(tmp_path, run)
    replace_line(path, 1, content + b"\n")
    results = Results(tmp_path)
    assert results.find(replace(run, seed=1), "k1") is None
    assert [record["key"] for record in results.all()] == ["k0", "k2"]
    (line,) = caplog.records  # once, however often it is read
    assert line.getMessage().startswith(f"{path}: line 2 ")
    assert line.getMessage().endswith(", and counts as missing")
    assert line.getMessage().removeprefix(str(path)).count("line") == 1
    results.write(replace(run, seed=1), "k1", {**RECORD, "seed": 1})
    assert read_keys(tmp_path) == ["k0", "k2", "k1"]


@pytest.mark.parametrize("content", [*DAMAGED[:-1], b"some text\nand more", b"\x89PNG\r\n\x1a\n" * 50])
def test_a_file_of_something_else_is_refused_and_left_alone(run, tmp_path, content):
    path = Results(tmp_path).path(run.experiment)
    path.write_bytes(content + b"\n")
    for look in (Results(tmp_path).check, lambda: list(Results(tmp_path).all())):
        with pytest.raises(
            ValueError, match=r"fig-mnist.jsonl is not a file of results: line 1 .* choose another folder"
        ):
            look()
    assert path.read_bytes() == content + b"\n"


def test_a_line_without_end_is_no_line(run, tmp_path):
    path = Results(tmp_path).path(run.experiment)
    path.write_bytes(b" " * (1 << 23))
    with pytest.raises(ValueError, match="line 1 is too long"):
        Results(tmp_path).check()


def test_a_folder_of_an_older_version_is_refused(run, tmp_path):
    (tmp_path / "fig-mnist").mkdir()
    (tmp_path / "fig-mnist" / "itq-16-0-0123456789abcdef.json").write_text("{}")
    with pytest.raises(ValueError, match="holds results of an older version, one file per run"):
        Results(tmp_path).check()


@pytest.mark.parametrize("kept", [1, 100, -2, -1])
def test_a_last_line_that_is_cut_off_is_ignored_and_replaced(run, tmp_path, caplog, kept):
    """Also if only its end is missing."""
    path = write_some(tmp_path, run)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second + third[:kept])
    results = Results(tmp_path)
    assert results.find(replace(run, seed=2), "k2") is None
    assert f"{path}: line 3 is cut off" in caplog.text
    results.write(replace(run, seed=2), "k2", {**RECORD, "seed": 2})
    assert path.read_bytes() == first + second + third
    assert results.find(replace(run, seed=2), "k2") is not None


def test_a_first_line_that_is_cut_off_is_replaced_too(run, tmp_path):
    path = write_some(tmp_path, run, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert read_keys(tmp_path) == []
    write_some(tmp_path, run, 1)
    assert path.read_bytes() == whole


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from test_results import *
made = next(grid.plan_runs(grid.narrowed(grid.experiment("fig-mnist"), methods=["itq"], bits=[16]), "mnist"))
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    Results(Path(sys.argv[2])).write(made, f"{sys.argv[3]}-{number}", {**RECORD, "seed": number, "more": "x" * 20_000})
"""


@pytest.mark.slow
def test_processes_that_write_at_once_do_not_mix_their_lines(tmp_path):
    """Longer lines than a pipe or a page holds; each must come out as it was written."""
    command = [sys.executable, "-c", WRITER, os.path.dirname(__file__), str(tmp_path)]
    writers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "abc"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    keys = [json.loads(line)["key"] for line in (tmp_path / "fig-mnist.jsonl").read_text().splitlines()]
    assert sorted(keys) == sorted(f"{name}-{number}" for name in "abc" for number in range(60))
    for name in "abc":  # in the order of each writer
        assert [key for key in keys if key[0] == name] == [f"{name}-{number}" for number in range(60)]


def test_a_torn_line_is_cut_off_under_the_lock(run, tmp_path):
    """A writer that finds what looks torn waits: it may be what another is just writing."""
    fcntl = pytest.importorskip("fcntl")
    path = write_some(tmp_path, run, 1)
    line = path.read_bytes()
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line[:100])
        thread = threading.Thread(target=write_some, args=(tmp_path, run, 2))
        thread.start()
        time.sleep(0.3)
        file.write(line[100:])
    thread.join(30)
    assert path.read_bytes().startswith(line + line + line[:10])
    assert read_keys(tmp_path) == ["k0", "k1"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 2),
        ("library_method", None),
        ("seed", "x"),
        ("revision", None),
        ("options", []),
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
        ("published_neighbors", "x"),
        ("truth", "\ud800"),
        ("finished", "2026-01-01T00:00:00"),  # without its zone beside one with
    ],
)
def test_a_line_with_something_else_in_a_field_is_no_result(run, tmp_path, caplog, name, value):
    """Neither for a reader of all results nor for the run itself, which is then made again."""
    path = write_some(tmp_path, run)
    record = json.loads(path.read_bytes().splitlines()[1])
    replace_line(path, 1, json.dumps({**record, name: value}).encode() + b"\n")
    for look in (lambda kept: kept.find(replace(run, seed=1), "k1"), lambda kept: len(list(kept.all())) > 2 or None):
        caplog.clear()
        assert look(Results(tmp_path)) is None
        (line,) = caplog.records  # once
        why = "can't be read (NaN is not a JSON number)" if "nan" in repr(value) else "is not a result of this version"
        assert line.getMessage() == f"{path}: line 2 {why}, and counts as missing"


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


def test_a_folder_that_takes_no_files_is_an_error_at_once(tmp_path):
    Results(tmp_path / "new").check()
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Results(tmp_path / "file").check()


def test_a_write_that_fails_leaves_nothing(run, tmp_path, monkeypatch):
    path = write_some(tmp_path, run)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Results(tmp_path).write(run, "k", {**RECORD, "more": "x" * 10000})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_results_are_flushed_to_the_disk(run, tmp_path, monkeypatch):
    """Before a run counts as made, its line is there whole."""
    sizes = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (sizes.append(os.fstat(descriptor).st_size), flush(descriptor)))
    path = write_some(tmp_path, run, 1)
    assert path.stat().st_size in sizes


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(run, tmp_path, make):
    write_some(tmp_path, run)
    make(Results(tmp_path).path("ablation"))
    with pytest.raises(OSError, match=r"a (regular )?file is needed; it is a .*ablation.jsonl"):
        Results(tmp_path).check()


@pytest.mark.parametrize("foreign", [b"my precious notes", b'{"forma', b'{"mine": 1}'])
def test_a_foreign_file_without_a_last_newline_is_left_alone(run, tmp_path, foreign):
    path = tmp_path / f"{run.experiment}.jsonl"
    path.write_bytes(foreign)
    results = Results(tmp_path)
    if foreign == b'{"forma':  # may be the beginning of a record, which a writer was stopped in
        assert results.find(run, "k") is None
        results.write(run, "k", RECORD)
        assert len(list(Results(tmp_path).all())) == 1
        return
    with pytest.raises(ValueError, match="is not a file of results"):
        results.find(run, "k")
    with pytest.raises(ValueError, match="not a result"):
        results.write(run, "k", RECORD)
    assert path.read_bytes() == foreign
