"""The grid file, and the runs it stands for."""

import pytest

from hashlearn.datasets import DATASETS
from hashlearn.evaluation import setting
from hashlearn.experiments import grid
from hashlearn.experiments.results import changed_parameters
from hashlearn.hashers import Hasher

PAPER = ["fig-cifar10", "fig-mnist", "fig-sift", "table-dh", "fig-cifar10-sup", "fig-mnist-sup", "ablation"]


def test_has_the_papers_experiments():
    assert [name for name in grid.names() if name in PAPER] == PAPER
    for name in ("fig-cifar10", "fig-mnist", "fig-sift"):
        chosen = grid.experiment(name)
        assert {"lsh", "sh", "itq", "ba", "sph", "kmh", "udh-dnn"} <= set(chosen.methods)
        assert (chosen.bits, chosen.measures, chosen.subject) == ((8, 16, 32, 64), ("map", "p@3", "p@4"), "udh-dnn")
    dh = grid.experiment("table-dh")
    assert (dh.bits, dh.seeds, dh.measures) == ((16, 32, 64), 10, ("map", "p@2"))
    assert dh.published["udh-dnn"] == {"map": {16: 16.83, 32: 17.52, 64: 18.02}, "p@2": {16: 24.97, 32: 22.20}}
    for name in ("fig-cifar10-sup", "fig-mnist-sup"):
        chosen = grid.experiment(name)
        assert {"sdh-dnn", "sdh-dnn-all", "sdh", "itq-cca", "ksh", "bre"} <= set(chosen.methods)
        assert chosen.setting.truth == "labels"


@pytest.mark.parametrize("name", grid.names())
def test_every_entry_is_a_method_with_parameters_it_takes(name):
    chosen = grid.experiment(name)
    assert set(chosen.data) <= set(DATASETS)
    assert chosen.subject in chosen.methods
    assert chosen.tuned is None or chosen.tuned in chosen.variants
    assert set(chosen.undrawn) <= set(chosen.variants) - {chosen.tuned}
    for entry in (*chosen.entries, *grid.quick(chosen).entries):
        hasher = entry.hasher()
        assert type(hasher) is grid.COMPARED[entry.method]
        if isinstance(hasher, Hasher):
            hasher._check_parameters(784)
    for method, lengths in chosen.fewer.items():
        assert method in chosen.methods
        assert set(lengths) <= set(chosen.bits)
    assert set(chosen.published) <= set(chosen.methods)


def test_entries_of_one_method_differ():
    """Two lines of a table that are the same run would be one too many."""
    for name in grid.names():
        entries = grid.experiment(name).entries
        seen = [(entry.method, entry.distance, str(entry.hasher().get_params())) for entry in entries]
        assert len(set(seen)) == len(seen)
        assert len({entry.label for entry in entries}) == len(entries)


@pytest.mark.parametrize("name", grid.study_names())
def test_studies_are_of_training_data_and_of_parameters_the_method_takes(name):
    chosen = grid.experiment(name)
    held_out = 10_000 if name.startswith(("study-label-hash-", "study-neighbor-hash-new-")) else 1000
    assert chosen.held_out == held_out
    assert chosen.subject in chosen.methods
    assert len(set(chosen.methods)) == len(chosen.methods)
    assert all(run.held_out == held_out for run in grid.plan_runs(chosen, chosen.data[0]))
    for entry in chosen.entries:
        if isinstance(hasher := entry.hasher(), Hasher):  # not FAISS's quantizers
            hasher._check_parameters(784)
    seen = [(entry.method, str(changed_parameters(entry))) for entry in chosen.entries]
    assert len(set(seen)) == len(seen)


def test_a_study_is_a_grid_of_parameters():
    chosen = grid.experiment("study-sdh-dnn-memory")
    assert [(entry.name, entry.label, entry.method, entry.parameters) for entry in chosen.entries] == [
        ("lbfgs_memory=20", "SDH-DNN, lbfgs_memory=20", "sdh-dnn", {"lbfgs_memory": 20}),
        ("lbfgs_memory=100", "SDH-DNN, lbfgs_memory=100", "sdh-dnn", {"lbfgs_memory": 100}),
        ("itq", "ITQ", "itq", {}),
    ]
    assert chosen.setting.truth == "labels"
    starts = grid.experiment("study-udh-dnn-sift")
    assert (starts.setting.k, starts.setting.protocol.cutoff) == (990, None)
    assert starts.entries[1].parameters == {"init": "itq", "lbfgs_iter": 30}
    unscaled = {entry.name: entry for entry in grid.experiment("study-udh-dnn-cifar10").entries}["scale=none"]
    assert unscaled.hasher().scale is None


def test_a_study_names_what_is_shown_beside_it():
    chosen = grid.experiment("study-label-hash-mnist")
    assert chosen.variants == ("sdh",)
    assert chosen.entries[-1].method == "sdh"
    assert all(entry.method == "label-hash" for entry in chosen.entries[:-1])


def test_choose():
    assert [one.name for one in grid.choose()] == grid.names()  # no study
    chosen = grid.choose(["study-ba-cifar10", "ablation", "fig-mnist", "ablation"])
    assert [one.name for one in chosen] == ["fig-mnist", "ablation", "study-ba-cifar10"]
    (small,) = grid.choose(["study-ba-cifar10"], small=True, data="digits", bits=[8])
    assert (small.held_out, small.limit.queries, small.bits) == (200, 200, (8,))
    (narrow,) = grid.choose(["study-bre-cifar10"], methods=["kernel=rbf"])
    assert narrow.methods == ["kernel=rbf"]
    both = grid.choose(["fig-mnist", "study-bre-cifar10"], methods=["kernel=rbf", "lsh"])
    assert [one.methods for one in both] == [["lsh"], ["kernel=rbf"]]
    for selected in ([], ["fig-mnist"]):  # a study's entry, without the study
        with pytest.raises(ValueError, match="no method of the experiments is named 'kernel=rbf': choose from lsh, "):
            grid.choose(selected, methods=["kernel=rbf"])
    with pytest.raises(ValueError, match=r"is named 'udhdnn': did you mean udh-dnn\?"):
        grid.choose(methods=["udhdnn"])
    with pytest.raises(ValueError, match="no data set is named 'foo': choose from digits, "):
        grid.choose(small=True, data="foo")
    with pytest.raises(ValueError, match="no experiment is named 'fig-1'"):
        grid.choose(["fig-mnist", "fig-1"])
    with pytest.raises(ValueError, match="nothing is left to run"):
        grid.choose(["fig-mnist"], bits=[7])


def test_what_the_variants_are():
    """The values that a reader of the tables relies on."""
    parameters = {entry.name: entry.parameters for name in grid.names() for entry in grid.experiment(name).entries}
    assert parameters["no-similarity"] == {"similarity": 0}
    assert parameters["no-independence"] == {"lambda3": 0}
    assert parameters["no-balance"] == {"lambda4": 0}
    assert parameters["relaxed"] == {"constraint": "relaxed"}
    assert parameters["linear"] == {"hidden_units": []}
    assert parameters["udh-dnn-unscaled"] == {"scale": None, "lbfgs_iter": 200, "max_iter": 2}
    assert parameters["udh-dnn"] == parameters["sdh-dnn"] == parameters["ba"] == {}
    sift = {entry.name: entry.parameters for entry in grid.experiment("fig-sift").entries}
    assert sift["udh-dnn-from-itq"]["validation_neighbors"] == 500


def test_none_is_spelled_none():
    entries = {entry.name: entry for entry in grid.experiment("fig-mnist-sup").entries}
    assert entries["sdh-dnn-all"].parameters == {"samples_per_class": None}
    assert entries["sdh-dnn-all"].hasher().samples_per_class is None


def test_runs_by_seeds():
    runs = list(grid.plan_runs(grid.experiment("fig-mnist"), "mnist"))
    seeds = {}
    for run in runs:
        seeds.setdefault((run.entry.name, run.n_bits), []).append(run.seed)
    assert seeds["itq", 8] == [0, 1, 2]
    assert seeds["sh", 8] == [0]  # draws nothing
    assert seeds["ba", 8] == [0]  # draws nothing from this start
    assert seeds["udh-dnn", 16] == [0, 1, 2]
    assert seeds["udh-dnn", 64] == [0]  # more than five minutes each
    # One of everything comes first.
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert all(run.split is None for run in runs)


def test_random_splits_are_repeated_whatever_draws():
    runs = list(grid.plan_runs(grid.experiment("table-dh"), "cifar10-dh"))
    assert [run.split for run in runs if run.entry.name == "sh" and run.n_bits == 16] == list(range(10))
    assert all(run.split == run.seed for run in runs)


def test_a_methods_own_distance_ranks():
    runs = list(grid.plan_runs(grid.experiment("fig-mnist"), "mnist"))
    distances = {run.entry.name: run.setting.protocol.distance for run in runs}
    assert distances["sph-own"] == "spherical"
    assert distances["sph"] == distances["itq"] == "hamming"
    assert {run.setting for run in runs if run.entry.name == "itq"} == {setting("mnist")}


def test_narrowed():
    chosen = grid.narrowed(grid.experiment("fig-mnist"), bits=[32, 5], methods=["itq", "sdh"], seeds=2)
    assert [(run.entry.name, run.n_bits, run.seed) for run in grid.plan_runs(chosen, "mnist")] == [
        ("itq", 32, 0),
        ("itq", 32, 1),
    ]
    assert grid.narrowed(grid.experiment("fig-mnist"), seeds=99).seeds == 3
    with pytest.raises(ValueError, match="seeds must be at least 1; got 0"):
        grid.narrowed(grid.experiment("fig-mnist"), seeds=0)


def test_quick_is_small_and_has_everything():
    for name in grid.names():
        chosen = grid.experiment(name)
        small = grid.quick(chosen)
        assert small.methods == chosen.methods
        slow = {"glosses-minilm", "package-names"} & set(chosen.data)
        assert small.data == (("glosses",) if slow else chosen.data) + ("digits",)
        assert grid.quick(chosen, "digits").data == ("digits",)
        assert small.limit == grid.Limit(2000, 200)
        assert max(small.bits) <= 16
        assert not small.published
    entries = {entry.name: entry.parameters for entry in grid.quick(grid.experiment("fig-mnist")).entries}
    assert entries["udh-dnn-from-itq"] == {
        "init": "itq",
        "lbfgs_iter": 20,
        "max_iter": 2,
        "validation": 200,
        "validation_neighbors": 10,
    }


def test_an_unknown_experiment_is_an_error():
    with pytest.raises(ValueError, match="no experiment is named 'fig-1': choose from fig-cifar10, "):
        grid.experiment("fig-1")


def test_a_small_study_still_compares_what_it_is_about():
    for name in grid.study_names():
        small = grid.quick(grid.experiment(name), "digits")
        compared = [str(sorted(entry.parameters.items(), key=str)) for entry in small.entries if entry.name != "itq"]
        full = [str(sorted(entry.parameters.items(), key=str)) for entry in grid.experiment(name).entries]
        assert len(set(compared)) >= len(set(full)) - 2, name  # a default may be what the small version sets
