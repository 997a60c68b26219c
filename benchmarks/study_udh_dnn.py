"""Which scale of X, L-BFGS budget, start and number of sweeps UDH-DNN does best with, on training data alone.

    python benchmarks/study_udh_dnn.py [--only DATA ...] [--json docs/results/udh-dnn-study.json]

1,000 samples of the training data are queries, the others are trained on and searched: 50 Euclidean neighbours, or
class labels for cifar10-dh. No test query is seen, nor any image that is a query in one of the ten splits of
cifar10-dh. Every outer iteration is judged. A run that the file holds already is not repeated, so that the study can be
stopped and taken up again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from hashlearn import ITQ, UDHDNN
from hashlearn.datasets import cifar10_images, deep_hashing_split, load
from hashlearn.evaluation import Protocol, Truth, euclidean_neighbours, evaluate

N_QUERIES, N_BITS = 1000, 32
PROTOCOL = Protocol(radii=(2, 3, 4))


def _eigen(scale: object, lbfgs_iter: int = 100, **others: Any) -> dict[str, Any]:
    return {"init": "eigen", "scale": scale, "lbfgs_iter": lbfgs_iter, **others}


def _from_itq(scale: object, lbfgs_iter: int = 30, **others: Any) -> dict[str, Any]:
    return {"init": "itq", "scale": scale, "lbfgs_iter": lbfgs_iter, **others}


def _itq(n_bits: int) -> dict[str, Any]:
    return {"method": "itq", "n_bits": n_bits}


# What is run on each data set, at 32 bits unless it says otherwise; ITQ at 32 bits always.
PLANS: dict[str, list[dict[str, Any]]] = {
    "cifar10": [
        *(_eigen(scale) for scale in (None, 2, 3, 5, 15, 50, 500, "range")),
        *(_eigen(scale, n) for scale, n in ((5, 50), (50, 50), (50, 200))),
        *(_from_itq(scale) for scale in (None, 5, 50)),
        _from_itq(50, 100),
        _eigen(5, sweeps=1),
        _eigen(5, decoder="lbfgs"),
        {**_eigen(5), "init": "second-moment"},
        _eigen(5, 200, validation=1000),
        *(options for n_bits in (8, 16) for options in (_itq(n_bits), _eigen(5, n_bits=n_bits))),
        _itq(64),
        *(_eigen(scale, n_bits=64) for scale in (2, 3, 5)),
        _eigen(15, 50, n_bits=64),
        _eigen(5, 200, n_bits=64, validation=1000),
    ],
    "mnist": [
        *(_eigen(scale) for scale in (3, 5, 15)),
        _eigen(5, 50),
        *(options for n_bits in (8, 16) for options in (_itq(n_bits), _eigen(5, n_bits=n_bits))),
        _itq(64),
        *(_eigen(scale, n_bits=64) for scale in (3, 5)),
        _eigen(5, 200, n_bits=64, validation=1000),
    ],
    "cifar10-dh": [*(_eigen(scale) for scale in (None, 2, 5)), _from_itq(None)],
}


def split(name: str) -> tuple[Any, Any, Truth]:
    """Queries, the rest of the training data, and what is relevant."""
    data = load(name)
    X, labels = data.train, data.train_labels
    if name == "cifar10-dh":
        images = cifar10_images()
        every = np.concatenate([images.train_labels, images.test_labels])
        asked = np.unique([deep_hashing_split(every, seed)[0] for seed in range(10)])
        free = ~np.isin(deep_hashing_split(every, 0)[1], asked)
        X, labels = X[free], labels[free]
    order = np.random.default_rng(123).permutation(len(X))
    queries, rest = np.sort(order[:N_QUERIES]), np.sort(order[N_QUERIES:])
    if name == "cifar10-dh":
        return X[queries], X[rest], Truth.labels(labels[queries], labels[rest])
    return X[queries], X[rest], Truth.neighbours(euclidean_neighbours(X[queries], X[rest], 50))


def run(name: str, plan: list[dict[str, Any]], rows: list[dict[str, Any]], path: Path | None) -> None:
    queries, rest, truth = split(name)

    def judged(hasher: Any) -> dict[str, float]:
        codes = hasher.encode(queries), hasher.encode(rest)
        scores = evaluate(*codes, truth, n_bits=hasher.n_bits_, protocol=PROTOCOL)
        found = {"map": scores.map} | {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
        return {key: round(100 * value, 3) for key, value in found.items()}

    for options in [{"method": "itq"}, *plan]:
        parameters = {"n_bits": N_BITS, "random_state": 0} | options
        key = {"dataset": name, "n_bits": parameters["n_bits"], "options": options}
        if any(row["dataset"] == name and row["options"] == options for row in rows):
            continue
        iterations: list[dict[str, Any]] = []

        def note(hasher: UDHDNN, record: dict[str, Any], iterations: list[dict[str, Any]] = iterations) -> None:
            kept = ("objective", "reconstruction", "quantization", "independence", "flips", "evaluations", "seconds")
            iterations.append({key: round(record[key], 5) for key in kept} | judged(hasher))

        start = time.perf_counter()
        if "method" in options:
            del parameters["method"]
            iterations.append(judged(ITQ(**parameters).fit(rest)))
        else:
            UDHDNN(callback=note, **parameters).fit(rest)
        rows.append({**key, "seconds": round(time.perf_counter() - start, 1), "iterations": iterations})
        maps = " ".join(f"{found['map']:.2f}" for found in iterations)
        last = iterations[-1]
        print(
            f"{name} {options}: {rows[-1]['seconds']} s, mAP {maps}; P@2,3,4 {last['p@2']} {last['p@3']} {last['p@4']}"
        )
        if path is not None:
            path.write_text(
                json.dumps(
                    {"study": "udh-dnn", "queries": N_QUERIES, "protocol": str(PROTOCOL), "rows": rows}, indent=1
                )
                + "\n"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PLANS, default=list(PLANS), help="run these alone")
    parser.add_argument("--first", type=int, help="only so many runs of each data set's plan")
    parser.add_argument("--json", type=Path, help="keep the results in this file, and take up where it ends")
    options = parser.parse_args()
    rows = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    for name in options.only:
        run(name, PLANS[name][: options.first], rows, options.json)


if __name__ == "__main__":
    main()
