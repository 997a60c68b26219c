"""Training of NeighborHash: its share of the machine's GEMM rate, its time by size, and beside FAISS's OPQ.

    python benchmarks/bench_neighbor_hash.py [--only PART ...] [--json docs/results/neighbor-hash.json]

OPQ is compared on sentence embeddings, which need the extra texts. A million vectors are those of sift-photos if
HASHLEARN_SIFT_PHOTOS is set, else random.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np

from hashlearn import NeighborHash
from hashlearn.datasets import load
from hashlearn.errors import DatasetError
from hashlearn.experiments.grid import experiment
from hashlearn.hashers import neighbor_hash


def fit(X: Any, n_bits: int, **options: Any) -> dict[str, Any]:
    """Fit once: seconds of the graph, of the epochs and of all, and the FLOPs of their matrix products."""
    spent = {"graph": 0.0}
    make = neighbor_hash.neighbor_graph

    def timed(*arguments: Any, **more: Any) -> Any:
        start = time.perf_counter()
        graph = make(*arguments, **more)
        spent["graph"] += time.perf_counter() - start
        return graph

    neighbor_hash.neighbor_graph = timed
    try:
        start, cpu = time.perf_counter(), time.process_time()
        hasher = NeighborHash(n_bits, random_state=0, show_progress=False, **options).fit(X)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    finally:
        neighbor_hash.neighbor_graph = make
    m, D = len(X) if hasher.max_samples is None else min(len(X), hasher.max_samples), X.shape[1]
    u, b, n = hasher.n_hidden, min(hasher.batch_size, m), hasher.V_.shape[1]
    steps = max(20 * m, 300 * b) if hasher.epochs == "auto" else hasher.epochs * m  # samples that are used
    network = 4 * D * (n + u) + 6 * u * n
    return {
        "samples": m,
        "features": D,
        "n_bits": n_bits,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "graph_seconds": round(spent["graph"], 2),
        "graph_tflop": round(2 * m * m * D / 1e12, 2),
        "training_seconds": round(sum(epoch["seconds"] for epoch in hasher.history_), 2),
        "training_tflop": round(steps * (network + 6 * b * n) / 1e12, 2),
    }


def bench_fit() -> dict[str, Any]:
    """MNIST, 60,000 × 784, at 64 bits: the graph and the epochs as shares of the rate of sgemm."""
    X = load("mnist").train
    before = machine.sgemm_gflops()
    row = min((fit(X, 64) for _ in range(2)), key=lambda row: row["seconds"])
    rate = max(before, machine.sgemm_gflops())
    for part in ("graph", "training"):
        row[f"{part}_share_of_sgemm"] = round(1e3 * row[f"{part}_tflop"] / row[f"{part}_seconds"] / rate, 2)
    row["sgemm_gflops"] = round(rate, 1)
    print("60,000 × 784:", ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return {"fit": row}


def bench_scaling() -> dict[str, Any]:
    """The time of an epoch for m/4, m/2 and m samples of MNIST."""
    X, rows = np.asarray(load("mnist").train), []
    for m in (15_000, 30_000, 60_000):
        row = min((fit(X[:m], 64, epochs=5) for _ in range(2)), key=lambda row: row["training_seconds"])
        rows.append({"samples": m, "seconds_an_epoch": round(row["training_seconds"] / 5, 3)})
        if len(rows) > 1:
            rows[-1]["ratio"] = round(rows[-1]["seconds_an_epoch"] / rows[-2]["seconds_an_epoch"], 2)
        print("an epoch:", ", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return {"scaling": rows}


def bench_million() -> dict[str, Any]:
    """A million vectors of 128 dimensions at 64 bits."""
    try:
        X, data = load("sift-photos").database, "sift-photos"
    except DatasetError:
        X, data = np.random.default_rng(0).standard_normal((1_000_000, 128), dtype=np.float32), "random"
    row = {"data": data, "vectors": len(X), **fit(X, 64)}
    print("a million:", ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return {"million": row}


def bench_opq() -> dict[str, Any]:
    """Fits of NeighborHash, DecoderHash and FAISS's OPQ in turn: seconds, and CPU seconds."""
    try:
        X = np.ascontiguousarray(load("glosses").train)
    except DatasetError as error:
        print(f"OPQ left out: {error}")
        return {}
    chosen, rows = experiment("beyond-glosses"), []
    for n_bits in chosen.bits:
        row: dict[str, Any] = {"n_bits": n_bits}
        for name in ("neighbor-hash-real", "neighbor-hash-distances", "decoder-hash", "opq"):
            hasher = chosen.entry(name).hasher().set_params(n_bits=n_bits, random_state=0)
            cpu, seconds = time.process_time(), machine.best_seconds(lambda hasher=hasher: hasher.fit(X), 1)
            row[name] = {"seconds": round(seconds, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
            print(f"{n_bits} bits, {name}:", row[name], flush=True)
        rows.append(row)
    return {"opq": rows}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "fit": bench_fit,
    "scaling": bench_scaling,
    "million": bench_million,
    "opq": bench_opq,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these parts alone")
    parser.add_argument("--json", type=Path, help="keep the results in this file")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.only or PARTS:
        results |= PARTS[name]()
    machine.report("neighbor-hash", results, options.json)


if __name__ == "__main__":
    main()
