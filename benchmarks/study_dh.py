"""How Deep Hashing depends on the scale of X, the start, the learning rate and the steps, on training data alone.

    python benchmarks/study_dh.py [--json docs/results/dh-study.json]

The split of benchmarks/study.py for cifar10-dh: 1,000 training images are queries, the other 49,727 that are a query in
none of the ten splits are trained on and searched; relevant is the same class. A run that the file holds already is not
repeated. "alike": the mean absolute correlation of two bits; 1 if all say the same, 0 also for a bit that never varies.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import machine
import numpy as np
from study import N_QUERIES, split

from hashlearn import DH, ITQ
from hashlearn.evaluation import Protocol, evaluate
from hashlearn.hashers._lbfgs import minimise
from hashlearn.hashers._linear import mean_and_covariance
from hashlearn.hashers._network import Layer, flatten, layers_of
from hashlearn.hashers._rows import Rows
from hashlearn.hashers.dh import Lambdas, descend, objective, start
from hashlearn.threads import thread_map

PROTOCOL = Protocol.preset("cifar10-dh")
STEPS = (0, 3, 5, 10, 20)
LBFGS_STEPS = (3, 10, 30, 100)
# λ₁ as in a public re-implementation, which sums the quantization over the samples and takes the mean of the variance.
SUMMED = 100 / 49727
# What a run is unless it says otherwise.
PLAIN: dict[str, Any] = {
    "n_bits": 32,
    "scale": 64,
    "start": "eigen",
    "solver": "descent",
    "learning_rate": 0.1,
    "lambdas": [100, 0.001, 0.001],
    "steps": 20,
    "shuffled": None,
}
PLAN: list[dict[str, Any]] = [
    *({"n_bits": n, "scale": scale} for n in (32, 16, 64) for scale in (32, 64, 128, 256)),
    {"n_bits": 16, "scale": 16},
    *({"n_bits": n, "learning_rate": 0.03} for n in (32, 16, 64)),
    *({"learning_rate": rate} for rate in (0.01, 0.3)),
    *({"n_bits": n, "learning_rate": 0.3} for n in (16, 64)),
    *({"n_bits": n, "scale": 256, "learning_rate": 0.3} for n in (16, 32, 64)),
    {"n_bits": 64, "scale": 256, "learning_rate": 1},
    # The same in another order: what the roundings alone are worth.
    *({"n_bits": n, "learning_rate": 0.3, "shuffled": seed} for n in (16, 32, 64) for seed in (1, 2)),
    *({"scale": scale} for scale in (None, 5, "unit rows", "features")),
    *({"start": start} for start in ("rotated", "random")),
    *({"scale": scale, "lambdas": [SUMMED, 0.001, 0.001]} for scale in (None, 64)),
    {"start": "rotated", "lambdas": [SUMMED, 0.001, 0.001]},
    {"start": "rotated", "lambdas": [SUMMED, 1, 0.001]},
    *({"n_bits": n, "solver": "lbfgs"} for n in (32, 16, 64)),
    {"scale": None, "solver": "lbfgs"},
]


def scaled(queries: Any, rest: Any, how: object) -> tuple[Any, Any, float | None]:
    """Vectors whose rows or features are scaled, and what is left to DH's own ``scale``."""
    if how not in ("unit rows", "features"):
        return queries, rest, how  # type: ignore[return-value]
    mean = rest.mean(axis=0, dtype=np.float64).astype(np.float32)
    queries, rest = queries - mean, rest - mean
    if how == "features":
        deviation = rest.std(axis=0)
        return queries / deviation, rest / deviation, None
    return *(X / np.linalg.norm(X, axis=1, keepdims=True) for X in (queries, rest)), None


def begin(how: str, covariance: Any, sizes: tuple[int, ...]) -> list[Layer]:
    """The default's start; its principal directions rotated at random; or orthogonal directions at random."""
    if how == "eigen":
        return start(covariance, sizes)
    rng = np.random.default_rng(0)

    def orthogonal(s: int, t: int) -> Any:
        return np.linalg.qr(rng.standard_normal((s, t)))[0]

    if how == "random":
        return [Layer(orthogonal(s, t), np.zeros(t)) for s, t in pairwise(sizes)]
    (W, c), *others = start(covariance, sizes)
    return [Layer(W @ orthogonal(len(c), len(c)), c), *others]


def alike(bits: Any) -> float:
    B = 2.0 * bits - 1
    B -= B.mean(axis=0)
    length = np.linalg.norm(B, axis=0)
    B /= np.where(length > 0, length, 1)
    C = np.abs(B.T @ B)
    return float((C.sum() - np.trace(C)) / (len(C) * (len(C) - 1)))


def run(options: dict[str, Any], queries: Any, rest: Any, truth: Any) -> list[dict[str, Any]]:
    """What each of some steps has learned."""
    how = PLAIN | options
    queries, rest, scale = scaled(queries, rest, how["scale"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one step does not settle: its network is replaced below
        hasher = DH(how["n_bits"], scale=scale, max_iter=1).fit(rest)
    sizes, lambdas = (rest.shape[1], *(len(layer.c) for layer in hasher.layers_)), Lambdas(*how["lambdas"])
    found = []

    def note(step: int, theta: Any, terms: dict[str, float]) -> None:
        hasher._keep_layers(layers_of(theta, sizes))
        scores = evaluate(hasher.encode(queries), hasher.encode(rest), truth, n_bits=how["n_bits"], protocol=PROTOCOL)
        found.append(
            {
                "step": step,
                "objective": round(sum(terms.values()), 4),
                "quantization": round(terms["quantization"], 4),
                "map": round(100 * scores.map, 2),
                "p@2": round(100 * scores.precision_at_radius[2], 2),
                "alike": round(alike(hasher.transform(rest)), 3),
            }
        )

    with thread_map() as threads:
        covariance = mean_and_covariance(rest, threads)[1]
        order = np.random.default_rng(how["shuffled"]).permutation(len(rest)) if how["shuffled"] else slice(None)
        rows = Rows(rest[order], hasher.offset_, float(hasher.scale_), threads)
        theta = flatten(begin(how["start"], covariance, sizes))

        def value(at: Any) -> Any:
            return objective(rows, at, sizes, lambdas)

        if how["solver"] == "lbfgs":
            for step in LBFGS_STEPS:
                minimum = minimise(value, theta, step, lambda _: None)
                note(step, minimum.theta, minimum.terms)
            return found
        for step, (at, terms) in enumerate(descend(value, theta, how["learning_rate"])):
            if step in STEPS:
                note(step, at, terms)
            if step == how["steps"]:
                return found
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="keep the results in this file, and take up where it ends")
    path = parser.parse_args().json
    before = json.loads(path.read_text()) if path and path.exists() else {"plain": PLAIN, "rows": []}
    if before["plain"] != PLAIN:
        raise SystemExit(f"the file holds runs with other settings: {before['plain']}")
    rows = before["rows"]
    queries, rest, _, truth = split("cifar10-dh", True)
    for options in [*({"method": "itq", "n_bits": n} for n in (16, 32, 64)), *PLAN]:
        if any(row["options"] == options for row in rows):
            continue
        began = time.perf_counter()
        if "method" in options:
            itq = ITQ(options["n_bits"], random_state=0).fit(rest)
            scores = evaluate(itq.encode(queries), itq.encode(rest), truth, n_bits=itq.n_bits_, protocol=PROTOCOL)
            found = [{"map": round(100 * scores.map, 2), "p@2": round(100 * scores.precision_at_radius[2], 2)}]
        else:
            found = run(options, queries, rest, truth)
        rows.append({"options": options, "seconds": round(time.perf_counter() - began, 1), "iterations": found})
        machine.keep(
            {"study": "dh", "queries": N_QUERIES, "protocol": str(PROTOCOL), "plain": PLAIN, "rows": rows}, path
        )
        maps = " ".join(f"{at.get('step', '')}:{at['map']}/{at['p@2']}/{at.get('alike', '')}" for at in found)
        print(f"{options}: {rows[-1]['seconds']} s, {maps}", flush=True)


if __name__ == "__main__":
    main()
