"""Methods on the test queries, once: the default, which a study of the training data chose, and its variants.

    python benchmarks/quality.py udh-dnn [--only DATA ...] [--variants NAME ...] [--json docs/results/udh-dnn.json]
    python benchmarks/quality.py sdh-dnn [--only DATA ...] [--variants NAME ...] [--json docs/results/sdh-dnn.json]
    python benchmarks/quality.py rivals [--only DATA ...] [--variants NAME ...] [--json docs/results/rivals.json]
    python benchmarks/quality.py supervised [--only DATA ...] [--variants NAME ...] [--json docs/results/…]

udh-dnn: data, lengths, seeds and protocols of baselines.py, whose LSH and ITQ stand beside; on sift-photos three seeds,
and ITQ with them. rivals: likewise, the other unsupervised methods; one run where nothing is drawn and the data are the
same; SPH is judged by spherical Hamming distance too (map_spherical).

sdh-dnn: mnist and cifar10, labels as truth, with ITQ beside it; supervised: likewise, the other supervised methods. The
database is the training data, of which a model may have seen all or a part, with labels; so that overfitting shows,
each is also judged on samples that it was trained on alone (map_seen) and on the test data alone (map_new).

A run that the file holds already is not repeated, so that it can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import baselines
import machine
import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from study import FLOORS

from hashlearn import METHODS
from hashlearn.datasets import Dataset
from hashlearn.errors import DatasetError
from hashlearn.evaluation import Setting, Truth, setting
from hashlearn.experiments import dataset_truth, judge

TEXTS = ("truth", "protocol", "parameters")
# Of each method the first is the paper's algorithm as the library runs it unless told otherwise.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "udh-dnn": {
        "default": {},
        "early stop": {"validation": 1000},
        "from itq": {"init": "itq", "lbfgs_iter": 30, "validation": 1000},
        "unscaled": {"scale": None, "lbfgs_iter": 200, "max_iter": 2},
        "unscaled, first": {"scale": None, "max_iter": 5},
    },
    "sdh-dnn": {
        "default": {},
        "400": {"lbfgs_iter": 400},
        "all data": {"samples_per_class": None},
        "all data, 400": {"samples_per_class": None, "lbfgs_iter": 400},
    },
    "itq": {"itq": {}},
    "sh": {"sh": {}},
    "sph": {"sph": {}},
    "kmh": {"kmh": {}, "kmh, 8 bits a subspace": {"bits_per_subspace": 8}},
    "ba": {"ba": {}, "ba, from itq": {"init": "itq"}},
    "dh": {"dh": {}},
    "sdh": {"sdh": {}, "sdh, restart": {"restart": True}},
    "itq-cca": {"itq-cca": {}},
    "ksh": {"ksh": {}, "ksh, all data": {"samples_per_class": None}},
    "bre": {"bre": {}, "bre, rbf": {"kernel": "rbf"}},
}
# The methods that stand in one file.
KINDS = {
    "udh-dnn": ("udh-dnn", "itq"),
    "sdh-dnn": ("sdh-dnn", "itq"),
    "rivals": ("sh", "sph", "kmh", "ba", "dh"),
    "supervised": ("sdh", "itq-cca", "ksh", "bre"),
}
# Variants of a method that draws something otherwise.
NOTHING_DRAWN = ("ba",)
# A validation looks for as large a share of 50,000 samples as the truth is of the database: 10,000 of a million.
NEIGHBOURS = {"sift-photos": {"validation_neighbours": 500}}
# What is run on each data set unless it is said.
PLANS: dict[str, dict[str, tuple[str, ...]]] = {
    "udh-dnn": {
        "mnist": ("default", "early stop", "from itq"),
        "cifar10": ("default", "early stop", "from itq"),
        "cifar10-dh": ("unscaled",),
        "sift-photos": ("itq", "from itq"),
    },
    "sdh-dnn": {
        "cifar10": ("itq", "default", "400", "all data", "all data, 400"),
        "mnist": ("itq", "default", "all data"),
    },
    "rivals": {
        "cifar10": ("sh", "sph", "kmh", "kmh, 8 bits a subspace", "dh", "ba", "ba, from itq"),
        "mnist": ("sh", "sph", "kmh", "kmh, 8 bits a subspace", "dh", "ba", "ba, from itq"),
        "cifar10-dh": ("sh", "sph", "kmh", "dh", "ba", "ba, from itq"),
        "sift-photos": ("sh", "sph", "kmh", "dh", "ba"),
    },
    "supervised": {
        "cifar10": ("itq-cca", "sdh", "sdh, restart", "ksh", "ksh, all data", "bre", "bre, rbf"),
        "mnist": ("itq-cca", "sdh", "sdh, restart", "ksh", "ksh, all data", "bre", "bre, rbf"),
    },
}


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in ("dataset", "variant", "n_bits", "seed"))


def parameters_of(hasher: Any) -> dict[str, Any]:
    """All that a run depends on; defaults may change."""
    left_out = ("n_bits", "random_state", "callback", "show_progress")
    return {name: value for name, value in hasher.get_params().items() if name not in left_out}


def is_supervised(method: str) -> bool:
    return any(METHODS[kind].supervised for kind in KINDS[method])


def setting_of(method: str, name: str) -> Setting:
    """The paper's; a supervised method is judged by labels."""
    return setting(f"{name}-labels" if is_supervised(method) else name)


def is_drawn(hasher: Any, variant: str, name: str) -> bool:
    """Whether another seed may give another result."""
    return name == "cifar10-dh" or (hasher.draws() and variant not in NOTHING_DRAWN)


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
    if hasher.distance != how.protocol.distance:
        own = replace(how, protocol=replace(how.protocol, distance=hasher.distance))
        values[f"map_{hasher.distance}"] = judge(hasher, dataset, own, truth=truth).map
    values |= {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
    return {key: round(100 * value, 4) for key, value in values.items()}


def run_all(
    method: str, name: str, variants: Sequence[str], runs: list[dict[str, Any]], path: Path | None, seeds: int | None
) -> None:
    lengths, n = baselines.PLANS[name]
    if method != "rivals":
        n = max(n, 3)
    how = setting_of(method, name)
    hashers = {
        variant: METHODS[kind](**VARIANTS[kind][variant], **(NEIGHBOURS.get(name, {}) if kind == "udh-dnn" else {}))
        for kind in KINDS[method]
        for variant in variants
        if variant in VARIANTS[kind]
    }
    for run in runs:
        mine = run["dataset"] == name and run["variant"] in hashers
        if mine and run["parameters"] != parameters_of(hashers[run["variant"]]):
            raise SystemExit(f"the file holds a run with other parameters: {run}")
    done = {key_of(run) for run in runs}
    for seed, dataset in baselines.repetitions(name, min(n, seeds or n)):
        drawn = [v for v in variants if seed == 0 or is_drawn(hashers[v], v, name)]
        wanted = [(v, b) for v in drawn for b in lengths if (name, v, b, seed) not in done]
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
            run |= {"truth": truth.description, "protocol": str(how.protocol), "parameters": parameters_of(hasher)}
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
