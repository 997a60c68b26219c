"""LSH and ITQ under the paper's settings: the numbers that every other method stands beside.

    python benchmarks/baselines.py [--only NAME ...] [--json docs/results/baselines.json]

mnist and cifar10 (320-D GIST): 50 Euclidean neighbours, 8/16/32/64 bits, 3 seeds. cifar10-dh (512-D GIST): class
labels, 16/32/64 bits, 10 random splits. sift-photos, if its folder is named: 10,000 neighbours, top 10,000, 16/32/64
bits, 1 seed. Ties in database order, as in the paper's settings, and by expectation beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import machine
import numpy as np

from hashlearn import METHODS
from hashlearn.datasets import Dataset, load
from hashlearn.errors import DatasetError
from hashlearn.evaluation import setting
from hashlearn.experiments import dataset_truth, judge

PLANS = {
    "mnist": ((8, 16, 32, 64), 3),
    "cifar10": ((8, 16, 32, 64), 3),
    "cifar10-dh": ((16, 32, 64), 10),
    "sift-photos": ((16, 32, 64), 1),
}


def repetitions(name: str, n: int) -> Iterator[tuple[int, Dataset]]:
    """(seed, data set): another split each time where splits are random, the same data otherwise."""
    if name == "cifar10-dh":
        yield from ((seed, load(name, split=seed)) for seed in range(n))
    else:
        dataset = load(name)
        yield from ((seed, dataset) for seed in range(n))


def run(name: str) -> list[dict[str, object]]:
    lengths, n = PLANS[name]
    how = setting(name)
    expected = replace(how, protocol=replace(how.protocol, ties="expected"))
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for seed, dataset in repetitions(name, n):
        truth = dataset_truth(dataset, how)
        for method in ("lsh", "itq"):
            for n_bits in lengths:
                start = time.perf_counter()
                hasher = METHODS[method](n_bits=n_bits, random_state=seed).fit(dataset.train)
                seconds = time.perf_counter() - start
                scores = judge(hasher, dataset, how, truth=truth)
                values = {"map": scores.map, "map_expected_ties": judge(hasher, dataset, expected, truth=truth).map}
                values |= {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
                found.setdefault((method, n_bits), []).append({**values, "fit_seconds": seconds})
    rows = []
    print(f"{name}: {n} repetitions; truth: {truth.description}; {how.protocol}")
    for (method, n_bits), runs in found.items():
        row: dict[str, object] = {"dataset": name, "method": method, "n_bits": n_bits, "repetitions": n}
        for key in runs[0]:
            values = np.array([run[key] for run in runs])
            scale = 1 if key == "fit_seconds" else 100
            row[key] = round(float(scale * values.mean()), 3)
            row[f"{key}_std"] = round(float(scale * values.std(ddof=1)), 3) if n > 1 else None
        rows.append(row)
        shown = "  ".join(f"{key} {row[key]:6.2f}" for key in runs[0])
        print(f"  {method:4} {n_bits:3} bits  {shown}  (mAP ± {row['map_std']})")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PLANS, default=list(PLANS), help="run these alone")
    parser.add_argument(
        "--json", type=Path, help="write the results to this file, beside those of other data sets in it"
    )
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    if options.json and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    for name in options.only:
        try:
            rows = [row for row in rows if row["dataset"] != name] + run(name)
        except DatasetError as error:
            print(f"{name} left out: {error}")
    machine.report("baselines", {"unit": "percent, but seconds", "rows": rows}, options.json)


if __name__ == "__main__":
    main()
