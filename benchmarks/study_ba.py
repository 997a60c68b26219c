"""How the Binary Autoencoder depends on where it starts and on how its penalty grows, on training data alone.

    python benchmarks/study_ba.py [--json docs/results/ba-study.json]

The split of benchmarks/study.py for cifar10: 1,000 training images are queries, the other 49,000 are trained on and
searched; relevant are the 50 Euclidean neighbours. A run that the file holds already is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import machine
from sklearn.exceptions import ConvergenceWarning
from study import N_QUERIES, PROTOCOL, split

from hashlearn import METHODS
from hashlearn.evaluation import evaluate

LENGTHS = (16, 32, 64)
# First penalty and what it is multiplied by; the first is the default.
SCHEDULES = ((5e-3, 1.2), (5e-3, 2.0), (5e-4, 1.2), (5e-2, 1.2))
PLAN: list[dict[str, Any]] = [
    *({"method": "itq", "n_bits": n} for n in LENGTHS),
    *(
        {"method": "ba", "n_bits": n, "init": init, "mu": mu, "mu_factor": factor, "max_iter": 100}
        for n, (mu, factor), init in product(LENGTHS, SCHEDULES, ("pca", "itq"))
    ),
    # Errors of the hash functions cost a hundredth.
    *({"method": "ba", "n_bits": 32, "init": init, "max_iter": 100, "C": 1.0} for init in ("pca", "itq")),
]


def run(options: dict[str, Any], queries: Any, rest: Any, truth: Any) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if name != "method"}
    hasher: Any = METHODS[options["method"]](**given, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        hasher.fit(rest)
    seconds = time.perf_counter() - began
    scores = evaluate(hasher.encode(queries), hasher.encode(rest), truth, n_bits=hasher.n_bits_, protocol=PROTOCOL)
    found = {"map": round(100 * scores.map, 2)}
    found |= {f"p@{r}": round(100 * p, 2) for r, p in scores.precision_at_radius.items()}
    if hasattr(hasher, "history_"):
        first, last = hasher.history_[0], hasher.history_[-1]
        found |= {
            "reconstruction_first": round(first["reconstruction"], 5),
            "reconstruction": round(last["reconstruction"], 5),
            "iterations": hasher.n_iter_,
            "converged": bool(hasher.converged_),
        }
    return {"options": options, "seconds": round(seconds, 1), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="keep the results in this file, and take up where it ends")
    path = parser.parse_args().json
    rows = json.loads(path.read_text())["rows"] if path and path.exists() else []
    queries, rest, _, truth = split("cifar10", False)
    for options in PLAN:
        if any(row["options"] == options for row in rows):
            continue
        rows.append(run(options, queries, rest, truth))
        machine.keep({"study": "ba", "queries": N_QUERIES, "protocol": str(PROTOCOL), "rows": rows}, path)
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)


if __name__ == "__main__":
    main()
