"""Results over their seeds: which are missing, how far two methods are apart."""

import pytest
from fake_records import make_outcomes, make_record, make_records

from hashlearn.experiments.grid import experiment, plan_runs, quick
from hashlearn.experiments.summary import group_outcomes, measure_label


def test_nothing_is_missing_where_all_runs_are_there():
    (outcomes,) = group_outcomes(make_records("check-siftsmall"))
    assert outcomes.missing() == []
    assert len(outcomes.planned()) == len(outcomes.records) == 27


def test_the_missing_runs_are_those_without_a_record():
    records = make_records("fig-mnist")
    gone = [r for r in records if (r["method"], r["n_bits"]) in {("udh-dnn", 64), ("lsh", 8)} and r["seed"] != 1]
    (outcomes,) = group_outcomes(r for r in records if r not in gone)
    # UDH-DNN has one seed at 64 bits, LSH three.
    assert [(r.entry.name, r.n_bits, r.seed) for r in outcomes.missing()] == [
        ("udh-dnn", 64, 0),
        ("lsh", 8, 0),
        ("lsh", 8, 2),
    ]


def test_a_small_version_is_held_against_the_small_grid():
    small = quick(experiment("fig-mnist"), "digits")
    records = [make_record(run) for run in plan_runs(small, "digits")]
    (outcomes,) = group_outcomes(records[1:])
    assert outcomes.small
    assert [run.n_bits for run in outcomes.missing()] == [8]


def test_differences_are_taken_seed_by_seed():
    outcomes = make_outcomes("ablation", {("udh-dnn", 16): [0.10, 0.20, 0.40], ("itq", 16): [0.11, 0.23]})
    cell = outcomes.difference("itq", "udh-dnn", 16, "map")
    assert cell.values == pytest.approx((1.0, 3.0))
    assert outcomes.difference("itq", "udh-dnn", 32, "map") is None


def test_records_of_methods_that_are_not_in_the_grid_are_no_outcome():
    stranger = {**make_records("fig-mnist", methods=["lsh"], bits=[8])[0], "method": "gone"}
    assert group_outcomes([stranger]) == []


@pytest.mark.parametrize(("data", "limit"), [("foo", None), ("foo", {"train": 9, "queries": 9}), ("digits", None)])
def test_records_of_data_sets_that_are_not_the_experiments_are_no_outcome(data, limit):
    (record,) = make_records("fig-mnist", methods=["lsh"], bits=[8], seeds=[0])
    stranger = {**record, "data": {**record["data"], "name": data, "limit": limit}}
    assert len(group_outcomes([record, stranger])) == 1
    assert group_outcomes([stranger]) == []


def test_records_that_were_judged_otherwise_are_no_outcome():
    first, *others = make_records("fig-mnist", methods=["lsh"], bits=[8])
    setting = first["setting"]
    otherwise = {**first, "setting": {**setting, "protocol": {**setting["protocol"], "ties": "expected"}}}
    (outcomes,) = group_outcomes([otherwise, *others])
    assert [record["seed"] for record in outcomes.records] == [1, 2]


def test_what_draws_nothing_stands_beside_every_seed_but_not_beside_every_split():
    values = {("udh-dnn", 16): [0.10, 0.20, 0.40], ("sh", 16): [0.10]}
    assert len(make_outcomes("fig-mnist", values).difference("udh-dnn", "sh", 16, "map").values) == 3
    assert len(make_outcomes("table-dh", values).difference("udh-dnn", "sh", 16, "map").values) == 1


def test_measures_are_called_as_people_call_them():
    assert [measure_label(name) for name in ("map", "p@3")] == ["mAP", "P@3"]
