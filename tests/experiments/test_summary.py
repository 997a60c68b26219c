"""Results over their seeds: which are missing, how far two methods are apart."""

import pytest
from made_records import outcomes_with, record_of, records_of

from hashlearn.experiments.grid import experiment, quick, runs_of
from hashlearn.experiments.summary import measure_label, outcomes_of


def test_nothing_is_missing_where_all_runs_are_there():
    (outcomes,) = outcomes_of(records_of("check-siftsmall"))
    assert outcomes.missing() == []
    assert len(outcomes.planned()) == len(outcomes.records) == 27


def test_the_missing_runs_are_those_without_a_record():
    records = records_of("fig-mnist")
    gone = [r for r in records if (r["method"], r["n_bits"]) in {("udh-dnn", 64), ("lsh", 8)} and r["seed"] != 1]
    (outcomes,) = outcomes_of(r for r in records if r not in gone)
    # UDH-DNN has one seed at 64 bits, LSH three.
    assert [(r.entry.name, r.n_bits, r.seed) for r in outcomes.missing()] == [
        ("udh-dnn", 64, 0),
        ("lsh", 8, 0),
        ("lsh", 8, 2),
    ]


def test_a_small_version_is_held_against_the_small_grid():
    small = quick(experiment("fig-mnist"), "digits")
    records = [record_of(run) for run in runs_of(small, "digits")]
    (outcomes,) = outcomes_of(records[1:])
    assert outcomes.small
    assert [run.n_bits for run in outcomes.missing()] == [8]


def test_differences_are_taken_seed_by_seed():
    outcomes = outcomes_with("ablation", {("udh-dnn", 16): [0.10, 0.20, 0.40], ("itq", 16): [0.11, 0.23]})
    cell = outcomes.difference("itq", "udh-dnn", 16, "map")
    assert cell.values == pytest.approx((1.0, 3.0))
    assert outcomes.difference("itq", "udh-dnn", 32, "map") is None


def test_records_of_methods_that_are_not_in_the_grid_are_no_outcome():
    stranger = {**records_of("fig-mnist", methods=["lsh"], bits=[8])[0], "method": "gone"}
    assert outcomes_of([stranger]) == []


@pytest.mark.parametrize(("data", "limit"), [("foo", None), ("foo", {"train": 9, "queries": 9}), ("digits", None)])
def test_records_of_data_sets_that_are_not_the_experiments_are_no_outcome(data, limit):
    (record,) = records_of("fig-mnist", methods=["lsh"], bits=[8], seeds=[0])
    stranger = {**record, "data": {**record["data"], "name": data, "limit": limit}}
    assert len(outcomes_of([record, stranger])) == 1
    assert outcomes_of([stranger]) == []


def test_records_that_were_judged_otherwise_are_no_outcome():
    first, *others = records_of("fig-mnist", methods=["lsh"], bits=[8])
    setting = first["setting"]
    otherwise = {**first, "setting": {**setting, "protocol": {**setting["protocol"], "ties": "expected"}}}
    (outcomes,) = outcomes_of([otherwise, *others])
    assert [record["seed"] for record in outcomes.records] == [1, 2]


def test_what_draws_nothing_stands_beside_every_seed_but_not_beside_every_split():
    values = {("udh-dnn", 16): [0.10, 0.20, 0.40], ("sh", 16): [0.10]}
    assert len(outcomes_with("fig-mnist", values).difference("udh-dnn", "sh", 16, "map").values) == 3
    assert len(outcomes_with("table-dh", values).difference("udh-dnn", "sh", 16, "map").values) == 1


def test_measures_are_called_as_people_call_them():
    assert [measure_label(name) for name in ("map", "p@3")] == ["mAP", "P@3"]
