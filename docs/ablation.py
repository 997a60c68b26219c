"""NeighborHash without some of its parts, on training data: what each is worth.

    python docs/ablation.py [--json docs/results/neighbor-hash-ablation.json]

The parts are not parameters, so the script replaces them in the module. As in the studies, 1,000 training vectors,
always the same, are the queries, and the others are trained on and searched; 32 bits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hashlearn.codes import signs
from hashlearn.experiments.grid import experiment, narrowed, plan_runs
from hashlearn.experiments.runner import Runner
from hashlearn.hashers import _contrast, neighbor_hash

SEEDS = 3


def rounded_anchors(H: Any, alpha: float, batch: Any, threads: Any, *, slope: float) -> tuple[float, Any]:
    """Both samples of a pair are codes, with the derivative of tanh(2H)."""
    B, t = signs(H).astype(H.dtype), np.tanh(2 * H)
    value, left, right = _contrast.bit_contrast(B, B, alpha, batch, threads)
    return value, (left + right) * (2 * (1 - t * t))


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
    parser.add_argument("--json", type=Path, help="keep the results in this file")
    options = parser.parse_args()
    rows, runner = [], Runner()
    for data in ("cifar10", "mnist"):
        chosen = narrowed(experiment(f"study-neighbor-hash-{data}"), bits=[32], methods=["default"])
        for name, parts in VARIANTS.items():
            scores = []
            for seed in range(SEEDS):
                (run,) = plan_runs(chosen, data)
                with replaced(parts):
                    scores.append(100 * runner.run(replace(run, seed=seed))["scores"]["map"])
            rows.append({"data": data, "variant": name, "map": [round(score, 4) for score in scores]})
            print(rows[-1], flush=True)
    if options.json is not None:
        about = "mAP in percent of seeds 0, 1, … at 32 bits, 50 nearest neighbors of 1,000 held-out training vectors"
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
