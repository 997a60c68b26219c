"""On the test queries, what the grid of `hashlearn reproduce` does not have; and what was trained on as queries.

    python benchmarks/quality.py udh-dnn [--only DATA ...] [--variants NAME ...] [--json docs/results/udh-dnn.json]
    python benchmarks/quality.py sdh-dnn [--only DATA ...] [--variants NAME ...] [--json docs/results/sdh-dnn.json]
    python benchmarks/quality.py supervised [--only DATA ...] [--variants NAME ...] [--json docs/results/…]

By the grid's protocols, with its seeds and splits.

sdh-dnn, and supervised, its rivals: mnist and cifar10, labels as truth. The database is the training data, of which a
model may have seen all or a part, with labels; so that overfitting shows, each is also judged on samples that it was
trained on alone (map_seen) and on the test data alone (map_new).

A run that the file holds already is not repeated, so that it can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from study import FLOORS

from hashlearn import METHODS
from hashlearn.datasets import Dataset, load
from hashlearn.errors import DatasetError
from hashlearn.evaluation import Setting, Truth, setting
from hashlearn.experiments import dataset_truth, judge

TEXTS = ("truth", "protocol", "parameters")
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "udh-dnn": {"unscaled, first": {"scale": None, "max_iter": 5}},
    "sdh-dnn": {
        "default": {},
        "400": {"lbfgs_iter": 400},
        "all data": {"samples_per_class": None},
        "all data, 400": {"samples_per_class": None, "lbfgs_iter": 400},
    },
    "itq": {"itq": {}},
    "sdh": {"sdh": {}, "sdh, restart": {"restart": True}},
    "itq-cca": {"itq-cca": {}},
    "ksh": {"ksh": {}, "ksh, all data": {"samples_per_class": None}},
    "bre": {"bre": {}, "bre, rbf": {"kernel": "rbf"}},
}
# The methods that stand in one file.
KINDS = {
    "udh-dnn": ("udh-dnn",),
    "sdh-dnn": ("sdh-dnn", "itq"),
    "supervised": ("sdh", "itq-cca", "ksh", "bre"),
}
# Data sets: lengths, and how many seeds or splits.
REPETITIONS = {"mnist": ((8, 16, 32, 64), 3), "cifar10": ((8, 16, 32, 64), 3), "cifar10-dh": ((16, 32, 64), 10)}
# What is run on each data set unless it is said.
PLANS: dict[str, dict[str, tuple[str, ...]]] = {
    "udh-dnn": {"cifar10-dh": ("unscaled, first",)},
    "sdh-dnn": {
        "cifar10": ("itq", "default", "400", "all data", "all data, 400"),
        "mnist": ("itq", "default", "all data"),
    },
    "supervised": {
        "cifar10": ("itq-cca", "sdh", "sdh, restart", "ksh", "ksh, all data", "bre", "bre, rbf"),
        "mnist": ("itq-cca", "sdh", "sdh, restart", "ksh", "ksh, all data", "bre", "bre, rbf"),
    },
}


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in ("dataset", "variant", "n_bits", "seed"))


def all_parameters(hasher: Any) -> dict[str, Any]:
    """All that a run depends on; defaults may change."""
    left_out = ("n_bits", "random_state", "callback", "show_progress")
    return {name: value for name, value in hasher.get_params().items() if name not in left_out}


def is_supervised(method: str) -> bool:
    return any(METHODS[kind].supervised for kind in KINDS[method])


def entry_setting(method: str, name: str) -> Setting:
    """The paper's; a supervised method is judged by labels."""
    return setting(f"{name}-labels" if is_supervised(method) else name)


def repetitions(name: str, n: int) -> Iterator[tuple[int, Dataset]]:
    """(seed, data set): another split each time where splits are random, the same data otherwise."""
    if name == "cifar10-dh":
        yield from ((seed, load(name, split=seed)) for seed in range(n))
    else:
        dataset = load(name)
        yield from ((seed, dataset) for seed in range(n))


def of_seen(hasher: Any, dataset: Dataset) -> Dataset:
    """The samples that were trained on as the database, 10,000 of them as queries (each finds itself)."""
    X, y = dataset.train, dataset.train_labels
    assert y is not None
    seen = getattr(hasher, "samples_", np.arange(len(X)))
    asked = np.sort(np.random.default_rng(0).permutation(seen)[:10_000])
    return replace(
        dataset, queries=X[asked], query_labels=y[asked], database=X[seen], database_labels=y[seen], ground_truth=None
    )


def of_new(dataset: Dataset) -> Dataset:
    """One half of the test queries, the even ones, as queries and the other as the database."""
    X, y = dataset.queries, dataset.query_labels
    assert y is not None
    return replace(
        dataset, queries=X[::2], query_labels=y[::2], database=X[1::2], database_labels=y[1::2], ground_truth=None
    )


def judged(hasher: Any, dataset: Dataset, how: Setting, truth: Truth, *, supervised: bool) -> dict[str, float]:
    scores = judge(hasher, dataset, how, truth=truth)
    expected = replace(how, protocol=replace(how.protocol, ties="expected"))
    values = {"map": scores.map, "map_expected_ties": judge(hasher, dataset, expected, truth=truth).map}
    if supervised:
        values["map_seen"] = judge(hasher, of_seen(hasher, dataset), how).map
        values["map_new"] = judge(hasher, of_new(dataset), how).map
    values |= {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
    return {key: round(100 * value, 4) for key, value in values.items()}


def run_all(
    method: str, name: str, variants: Sequence[str], runs: list[dict[str, Any]], path: Path | None, seeds: int | None
) -> None:
    lengths, n = REPETITIONS[name]
    how = entry_setting(method, name)
    hashers = {
        variant: METHODS[kind](**VARIANTS[kind][variant])
        for kind in KINDS[method]
        for variant in variants
        if variant in VARIANTS[kind]
    }
    for run in runs:
        hasher = hashers.get(run["variant"]) if run["dataset"] == name else None
        # A parameter that the method has got since was, in effect, at its default.
        if hasher and {**all_parameters(type(hasher)()), **run["parameters"]} != all_parameters(hasher):
            raise SystemExit(f"the file holds a run with other parameters: {run}")
    done = {key_of(run) for run in runs}
    for seed, dataset in repetitions(name, min(n, seeds or n)):
        wanted = [(v, b) for v in variants for b in lengths if (name, v, b, seed) not in done]
        if not wanted:
            continue
        truth = dataset_truth(dataset, how)
        for variant, n_bits in wanted:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                hasher = clone(hashers[variant]).set_params(n_bits=n_bits)
                if hasher.draws():
                    hasher.set_params(random_state=seed)
                hasher.fit(dataset.train, dataset.train_labels)
            seconds = time.perf_counter() - start
            run = {"dataset": name, "variant": variant, "n_bits": n_bits, "seed": seed}
            run |= judged(hasher, dataset, how, truth, supervised=is_supervised(method))
            run |= {"seconds": round(seconds, 1)}
            if hasattr(hasher, "n_iter_"):
                run |= {"iterations": hasher.n_iter_}
            if hasattr(hasher, "best_iter_"):
                last = hasher.history_[hasher.best_iter_]
                run |= {"kept": hasher.best_iter_, "objective": round(last["objective"], 5)}
                run |= {key: round(getattr(hasher, key), 3) for key in FLOORS if hasattr(hasher, key)}
                run |= {key: round(last[key], 3) for key in ("pairs", "pairs_of_codes") if key in last}
            if hasattr(hasher, "converged_"):
                run |= {"converged": bool(hasher.converged_)}
            run |= {"truth": truth.description, "protocol": str(how.protocol), "parameters": all_parameters(hasher)}
            print(", ".join(f"{key} {value}" for key, value in run.items() if key not in TEXTS), flush=True)
            runs.append(run)
            machine.keep({"runs": runs, "rows": summary(runs)}, path)


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the seeds; of the seconds the least, since other work delays a run at times."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(key_of(run)[:3], []).append(run)
    rows = []
    for (dataset, variant, n_bits), group in sorted(groups.items()):
        row: dict[str, Any] = {"dataset": dataset, "variant": variant, "n_bits": n_bits, "repetitions": len(group)}
        for name in group[0]:
            if not all(name in run for run in group):
                continue
            if name == "seconds":
                row[name] = min(run[name] for run in group)
            elif name.startswith(("map", "p@")) or name == "pairs":
                values = np.array([run[name] for run in group])
                row[name] = round(float(values.mean()), 6)
                row[f"{name}_std"] = round(float(values.std(ddof=1)), 6) if len(group) > 1 else None
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=PLANS)
    parser.add_argument("--only", nargs="+", metavar="DATA", help="run these data sets alone")
    parser.add_argument("--variants", nargs="+", metavar="NAME", help="run these alone")
    parser.add_argument("--seeds", type=int, help="run at most so many seeds or splits")
    parser.add_argument("--json", type=Path, help="keep the results in this file, and take up where it ends")
    options = parser.parse_args()
    plans = PLANS[options.method]
    for what, given, known in (
        ("data sets", options.only, plans),
        ("variants", options.variants, [v for kind in KINDS[options.method] for v in VARIANTS[kind]]),
    ):
        if not set(known).issuperset(given or ()):
            parser.error(f"the {what} of {options.method} are {', '.join(known)}.")
    runs = json.loads(options.json.read_text())["runs"] if options.json and options.json.exists() else []
    for name in options.only or plans:
        try:
            run_all(options.method, name, options.variants or plans[name], runs, options.json, options.seeds)
        except DatasetError as error:
            print(f"{name} left out: {error}")
    for row in summary(runs):
        print(", ".join(f"{key} {value}" for key, value in row.items() if not key.endswith("_std")))


if __name__ == "__main__":
    main()
