"""Which scale of X, L-BFGS budget and start a network does best with, on training data alone.

    python benchmarks/study.py {udh-dnn,sdh-dnn} [--only DATA ...] [--json docs/results/udh-dnn-study.json]

1,000 samples of the training data are queries, the others are trained on and searched. Relevant are, for udh-dnn, the
50 Euclidean neighbours (sift-photos: 1 % of what is searched, as in its protocol), or the same class for cifar10-dh;
for sdh-dnn the same class. No test query is seen, nor any image that is a query in one of the ten splits of cifar10-dh.
Every outer iteration is judged. A run that the file holds already is not repeated, so that the study can be stopped and
taken up again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np

from hashlearn import ITQ, METHODS
from hashlearn.datasets import cifar10_images, deep_hashing_split, load
from hashlearn.evaluation import Protocol, Truth, euclidean_neighbours, evaluate

N_QUERIES, N_BITS = 1000, 32
FLOORS = ("pair_floor_", "pair_floor_codes_")
PROTOCOL = Protocol(radii=(2, 3, 4))


def _eigen(scale: object, lbfgs_iter: int = 100, **others: Any) -> dict[str, Any]:
    return {"init": "eigen", "scale": scale, "lbfgs_iter": lbfgs_iter, **others}


def _from_itq(scale: object, lbfgs_iter: int = 30, **others: Any) -> dict[str, Any]:
    return {"init": "itq", "scale": scale, "lbfgs_iter": lbfgs_iter, **others}


def _itq(n_bits: int) -> dict[str, Any]:
    return {"method": "itq", "n_bits": n_bits}


_SUPERVISED = [
    *(_eigen(scale) for scale in (5, 50, 500, 5000, "range", None)),
    _eigen(50, 50),
    _eigen(500, 200),
    _from_itq(500, 100),
    _eigen(500, samples_per_class=None),
]
# What is run on each data set, at 32 bits unless it says otherwise; ITQ at 32 bits always.
PLANS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "udh-dnn": {
        "cifar10": [
            *(_eigen(scale) for scale in (None, 2, 3, 5, 15, 50, 500, "range")),
            *(_eigen(scale, n) for scale, n in ((5, 50), (50, 50), (50, 200))),
            *(_from_itq(scale) for scale in (None, 5, 50)),
            _from_itq(50, 100),
            _eigen(5, sweeps=1),
            _eigen(5, decoder="lbfgs"),
            {**_eigen(5), "init": "second-moment"},
            _eigen(5, 200),
            _eigen(5, validation=1000),
            *(options for n_bits in (8, 16) for options in (_itq(n_bits), _eigen(5, n_bits=n_bits))),
            _itq(64),
            *(_eigen(scale, n_bits=64) for scale in (2, 3, 5)),
            _eigen(15, 50, n_bits=64),
            _eigen(5, 200, n_bits=64),
            _eigen(5, n_bits=64, validation=1000),
            *(_from_itq(5, n_bits=n_bits, validation=1000) for n_bits in (32, 64)),
        ],
        "mnist": [
            *(_eigen(scale) for scale in (3, 5, 15)),
            _eigen(5, 50),
            *(options for n_bits in (8, 16) for options in (_itq(n_bits), _eigen(5, n_bits=n_bits))),
            _itq(64),
            *(_eigen(scale, n_bits=64) for scale in (3, 5)),
            *(_from_itq(5, n_bits=n_bits, validation=1000) for n_bits in (32, 64)),
        ],
        "cifar10-dh": [
            *(_eigen(scale) for scale in (None, 2, 5, "range")),
            _eigen(None, 400, max_iter=3),
            _from_itq(None),
            *(options for n_bits in (16, 64) for options in (_itq(n_bits), _eigen(None, n_bits=n_bits))),
            _eigen(None, 400, n_bits=16, max_iter=3),
            *(_eigen(None, 200, n_bits=n_bits, max_iter=5) for n_bits in (16, 64)),
            _eigen(None, 200, max_iter=5),
        ],
        "sift-photos": [
            _eigen(5),
            _from_itq(5),
            *(options for n in (16, 64) for options in (_itq(n), _eigen(5, n_bits=n), _from_itq(5, n_bits=n))),
        ],
    },
    "sdh-dnn": {
        "cifar10": [
            *_SUPERVISED,
            *(_eigen(50, n) for n in (200, 400)),
            _eigen(500, 400),
            _from_itq(50, 100),
            *(_eigen(scale, n_bits=n_bits) for n_bits in (8, 64) for scale in (50, 500)),
            _eigen(500, validation=1000),
            # The best ones again, with other draws.
            *(
                {**options, "random_state": seed}
                for seed in (1, 2)
                for options in (_eigen(500), _eigen(5000), _eigen(500, 200), _eigen(50, 200), _from_itq(500, 100))
            ),
            _eigen(500, 400, samples_per_class=None),
            # The pair term grows with the number of samples: the other weights grow with it, from 20,000 to 49,000.
            _eigen(500, samples_per_class=None, lambda1=2.45e-3, lambda2=12.25, lambda3=2.45),
        ],
        "mnist": _SUPERVISED,
    },
}


def split(name: str, by_labels: bool) -> tuple[Any, Any, Any, Truth]:
    """Queries, the rest of the training data and its labels, and what is relevant."""
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
    if by_labels:
        return X[queries], X[rest], labels[rest], Truth.labels(labels[queries], labels[rest])
    k = len(rest) // 100 if name == "sift-photos" else 50
    return X[queries], X[rest], None, Truth.neighbours(euclidean_neighbours(X[queries], X[rest], k))


def run(method: str, name: str, plan: list[dict[str, Any]], rows: list[dict[str, Any]], path: Path | None) -> None:
    plan = [{"method": "itq"}, *plan]
    if all(any(row["dataset"] == name and row["options"] == options for row in rows) for options in plan):
        return
    queries, rest, labels, truth = split(name, method == "sdh-dnn" or name == "cifar10-dh")

    def judged(hasher: Any) -> dict[str, float]:
        codes = hasher.encode(queries), hasher.encode(rest)
        scores = evaluate(*codes, truth, n_bits=hasher.n_bits_, protocol=PROTOCOL)
        found = {"map": scores.map} | {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
        return {key: round(100 * value, 3) for key, value in found.items()}

    for options in plan:
        parameters = {"n_bits": N_BITS, "random_state": 0} | options
        key = {"dataset": name, "n_bits": parameters["n_bits"], "options": options}
        if any(row["dataset"] == name and row["options"] == options for row in rows):
            continue
        iterations: list[dict[str, Any]] = []

        def note(hasher: Any, record: dict[str, Any], iterations: list[dict[str, Any]] = iterations) -> None:
            left_out = ("iteration", "balance", "weights")
            iterations.append({k: round(value, 5) for k, value in record.items() if k not in left_out} | judged(hasher))

        start = time.perf_counter()
        if "method" in options:
            del parameters["method"]
            iterations.append(judged(ITQ(**parameters).fit(rest)))
            kept = 0
        else:
            hasher = METHODS[method](callback=note, **parameters).fit(rest, labels)
            kept = hasher.best_iter_
            key |= {name: round(getattr(hasher, name), 3) for name in FLOORS if hasattr(hasher, name)}
        seconds = round(time.perf_counter() - start, 1)
        rows.append({**key, "seconds": seconds, "kept": kept, "iterations": iterations})
        maps = " ".join(f"{found['map']:.2f}" for found in iterations)
        precision = ", ".join(f"P@{r} {iterations[kept][f'p@{r}']}" for r in PROTOCOL.radii)
        print(f"{name} {options}: {seconds} s, mAP {maps}; kept {kept}: {precision}", flush=True)
        machine.keep({"study": method, "queries": N_QUERIES, "protocol": str(PROTOCOL), "rows": rows}, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=PLANS)
    parser.add_argument("--only", nargs="+", metavar="DATA", help="run these data sets alone")
    parser.add_argument("--json", type=Path, help="keep the results in this file, and take up where it ends")
    options = parser.parse_args()
    rows = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    plans = PLANS[options.method]
    if not set(plans).issuperset(options.only or ()):
        parser.error(f"the data sets of {options.method} are {', '.join(plans)}.")
    for name in options.only or plans:
        run(options.method, name, plans[name], rows, options.json)


if __name__ == "__main__":
    main()
