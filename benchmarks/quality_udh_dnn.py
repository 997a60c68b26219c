"""UDH-DNN under the paper's settings, on the test queries: once, with what the study of the training data chose.

    python benchmarks/quality_udh_dnn.py [--only DATA ...] [--variants NAME ...] [--json docs/results/udh-dnn.json]

Data, lengths, seeds and protocols are those of baselines.py, whose LSH and ITQ stand beside. A run that the file holds
already is not repeated, so that it can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import baselines
import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from hashlearn import UDHDNN
from hashlearn.errors import DatasetError
from hashlearn.evaluation import setting
from hashlearn.experiments import dataset_truth, judge

TEXTS = ("truth", "protocol", "parameters")
# The first is the paper's algorithm as the library runs it unless told otherwise; the others stand beside it.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "early stop": {"lbfgs_iter": 200, "validation": 1000},
    "from itq": {"init": "itq", "lbfgs_iter": 30, "validation": 1000},
    "unscaled": {"scale": None, "max_iter": 5},
}
# A validation looks for as large a share of 50,000 samples as the truth is of the database: 10,000 of a million.
NEIGHBOURS = {"sift-photos": {"validation_neighbours": 500}}


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in ("dataset", "variant", "n_bits", "seed"))


def parameters_of(hasher: UDHDNN) -> dict[str, Any]:
    """All that a run depends on; defaults may change."""
    left_out = ("n_bits", "random_state", "callback", "show_progress")
    return {name: value for name, value in hasher.get_params().items() if name not in left_out}


def run_all(name: str, variants: list[str], runs: list[dict[str, Any]], path: Path | None) -> None:
    lengths, n = baselines.PLANS[name]
    n = max(n, 3)
    how = setting(name)
    expected = replace(how, protocol=replace(how.protocol, ties="expected"))
    hashers = {variant: UDHDNN(**VARIANTS[variant], **NEIGHBOURS.get(name, {})) for variant in variants}
    for run in runs:
        mine = run["dataset"] == name and run["variant"] in hashers
        if mine and run["parameters"] != parameters_of(hashers[run["variant"]]):
            raise SystemExit(f"the file holds a run with other parameters: {run}")
    done = {key_of(run) for run in runs}
    for seed, dataset in baselines.repetitions(name, n):
        wanted = [(v, b) for v in variants for b in lengths if (name, v, b, seed) not in done]
        if not wanted:
            continue
        truth = dataset_truth(dataset, how)
        for variant, n_bits in wanted:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                hasher = clone(hashers[variant]).set_params(n_bits=n_bits, random_state=seed).fit(dataset.train)
            seconds = time.perf_counter() - start
            scores = judge(hasher, dataset, how, truth=truth)
            values = {"map": scores.map, "map_expected_ties": judge(hasher, dataset, expected, truth=truth).map}
            values |= {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
            run = {"dataset": name, "variant": variant, "n_bits": n_bits, "seed": seed}
            run |= {key: round(100 * value, 4) for key, value in values.items()}
            run |= {"seconds": round(seconds, 1), "iterations": hasher.n_iter_, "kept": hasher.best_iter_}
            run |= {"truth": truth.description, "protocol": str(how.protocol), "parameters": parameters_of(hasher)}
            print(", ".join(f"{key} {value}" for key, value in run.items() if key not in TEXTS), flush=True)
            runs.append(run)
            if path is not None:
                path.write_text(json.dumps({"runs": runs, "rows": summary(runs)}, indent=1) + "\n")


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the seeds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(key_of(run)[:3], []).append(run)
    rows = []
    for (dataset, variant, n_bits), group in sorted(groups.items()):
        row: dict[str, Any] = {"dataset": dataset, "variant": variant, "n_bits": n_bits, "repetitions": len(group)}
        for name in group[0]:
            if name in ("map", "map_expected_ties", "seconds") or name.startswith("p@"):
                values = np.array([run[name] for run in group])
                row[name] = round(float(values.mean()), 3)
                row[f"{name}_std"] = round(float(values.std(ddof=1)), 3) if len(group) > 1 else None
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=baselines.PLANS, default=list(baselines.PLANS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["default"])
    parser.add_argument("--json", type=Path, help="keep the results in this file, and take up where it ends")
    options = parser.parse_args()
    runs = json.loads(options.json.read_text())["runs"] if options.json and options.json.exists() else []
    for name in options.only:
        try:
            run_all(name, options.variants, runs, options.json)
        except DatasetError as error:
            print(f"{name} left out: {error}")
    for row in summary(runs):
        print(", ".join(f"{key} {value}" for key, value in row.items() if not key.endswith("_std")))


if __name__ == "__main__":
    main()
