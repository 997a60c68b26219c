"""NeighborHash without some of its parts, on training data: what each is worth.

    python docs/ablation.py [--json docs/results/neighbor-hash-ablation.json]

It takes about half an hour on two cores. Each result is kept as soon as it is known, and the same command continues.
The parts are not parameters, so the script replaces them in the module. As in the studies, 1,000 training vectors,
always the same, are the queries, and the others are trained on and searched; 32 bits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hashlearn.experiments.grid import experiment, narrowed, plan_runs
from hashlearn.experiments.runner import Runner
from hashlearn.hashers import NeighborHash, _contrast, neighbor_hash
from hashlearn.storage import atomic_path

SEEDS = 3
ABOUT = "mAP in percent at 32 bits, 50 nearest neighbors of 1,000 held-out training vectors"


def rounded_anchors(H: Any, alpha: float, batch: Any, threads: Any, *, slope: float) -> tuple[float, Any]:
    """Both samples of a pair are codes, with the derivative of tanh(2H)."""
    B, derivative = _contrast.straight_through(H)
    value, left, right = _contrast.bit_contrast(B, B, alpha, batch, threads)
    return value, (left + right) * derivative


def all_counted_once(draw: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def batches(*arguments: Any) -> Iterator[Any]:
        for batch in draw(*arguments):
            yield batch._replace(weights=np.ones_like(batch.weights))

    return batches


def random_start(X: Any, mean: Any, P: Any, L: int, rng: np.random.Generator, *_: Any) -> tuple[Any, None]:
    return rng.standard_normal((X.shape[1], L)) / np.sqrt(X.shape[1]), None


VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "anchors rounded to codes": {"bit_loss": rounded_anchors},
    "batches without weights": {"draw_batches": all_counted_once(_contrast.draw_batches)},
    "groups of 1 + 1": {"_MEMBERS": 1},
    "groups of 1 + 15": {"_MEMBERS": 15},
    "members among the true neighbors": {"_DRAWN": 1},
    "members among 4 times as many": {"_DRAWN": 4},
    "from a random projection": {"itq.quantize": random_start},
}


@contextmanager
def replaced(parts: dict[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in parts.items():
            *path, last = name.split(".")
            owner = getattr(neighbor_hash, path[0]) if path else neighbor_hash
            stack.enter_context(patch.object(owner, last, value))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="keep the results in this file; those in it are not made again")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    done = {(row["revision"], row["data"], row["variant"], row["seed"]) for row in rows}
    revision, runner = NeighborHash.revision, Runner()
    for seed, data, name in product(range(SEEDS), ("cifar10", "mnist"), VARIANTS):
        if (revision, data, name, seed) in done:
            continue
        (run,) = plan_runs(narrowed(experiment(f"study-neighbor-hash-{data}"), bits=[32], methods=["default"]), data)
        entry = replace(run.entry, parameters={**run.entry.parameters, "cache_graph": True})
        with replaced(VARIANTS[name]):
            score = runner.run(replace(run, seed=seed, entry=entry))["scores"]["map"]
        rows.append({"revision": revision, "data": data, "variant": name, "seed": seed, "map": round(100 * score, 4)})
        print(rows[-1], flush=True)
        if options.json is not None:
            with atomic_path(options.json) as temporary:
                temporary.write_text(json.dumps({"about": ABOUT, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
