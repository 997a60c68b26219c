"""Time and memory of the methods at 60,000 × 784 (MNIST): fit at 32 bits, encoding; BA at 64 bits, KMH with b = 8 too.

    python benchmarks/bench_methods.py [--only METHOD ...] [--json docs/results/methods.json]

Each fit runs in a process of its own, with the method's default settings; the memory is the most that the process held,
with libraries and data in it. Beside it, what a process holds that loads the data alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import machine

from hashlearn import METHODS

SCRIPT = """
import json, sys, time, warnings
sys.path.insert(0, sys.argv[3])
import numpy as np
import machine
from hashlearn import METHODS
from hashlearn.datasets import load
warnings.simplefilter("ignore")
name, n_bits, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[4])
dataset = load("mnist")
X, y = np.asarray(dataset.train), dataset.train_labels
before = machine.peak_gigabytes()
method = METHODS[name]
hasher = method(n_bits, **options, **({"random_state": 0} if method.draws() else {}))
start = time.perf_counter()
hasher.fit(X, y if method.supervised else None)
fit = time.perf_counter() - start
peak = machine.peak_gigabytes()
encode = machine.best_seconds(lambda: hasher.encode(X))
print(json.dumps({"method": name, "n_bits": n_bits, "options": options,
                  "fit_seconds": round(fit, 2), "peak_gigabytes": round(peak, 3),
                  "data_alone_gigabytes": round(before, 3), "encode_microseconds": round(1e6 * encode / len(X), 3),
                  "iterations": getattr(hasher, "n_iter_", None), "converged": getattr(hasher, "converged_", None)}))
"""
# Networks train for minutes to half an hour; benchmarks/bench_train.py measures them.
LEFT_OUT = ("udh-dnn", "sdh-dnn")


# Beside the default at 32 bits.
OTHERS: dict[str, list[tuple[int, dict[str, Any]]]] = {"ba": [(64, {})], "kmh": [(32, {"bits_per_subspace": 8})]}


def run(name: str, n_bits: int, options: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-c", SCRIPT, name, str(n_bits), str(Path(__file__).parent), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    row: dict[str, Any] = json.loads(done.stdout)
    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=METHODS, help="measure these alone")
    parser.add_argument("--json", type=Path, help="keep the results in this file, beside those of other methods in it")
    options = parser.parse_args()
    names = options.only or [name for name in METHODS if name not in LEFT_OUT]
    rows = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    rows = [row for row in rows if row["method"] not in names]
    order = list(METHODS)
    for name in names:
        rows += [run(name, *plan) for plan in [(32, {}), *OTHERS.get(name, [])]]
        rows.sort(key=lambda row: (order.index(row["method"]), row["n_bits"], len(row["options"])))
    machine.report("methods", {"rows": rows}, options.json)


if __name__ == "__main__":
    main()
