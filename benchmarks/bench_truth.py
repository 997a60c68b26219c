"""Exact Euclidean neighbors: time and memory at the paper's two sizes.

    python benchmarks/bench_truth.py [--json FILE]

MNIST: 10,000 queries, 60,000 × 784, k = 50. SIFT1M's size: 10,000 queries, 1,000,000 × 128 of whole numbers, k = 10,000
(sift-photos if its folder is named, else random numbers of that shape). Beside them FAISS's plain float32 search, which
neither orders ties by id nor checks its rounding.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import faiss
import machine
import numpy as np

from hashlearn.datasets import load
from hashlearn.errors import DatasetError
from hashlearn.evaluation import euclidean_neighbors


def sift_sized() -> tuple[str, np.ndarray, np.ndarray]:
    try:
        sift = load("sift-photos")
        return sift.name, sift.queries, sift.database
    except DatasetError:
        rng = np.random.default_rng(0)
        queries, database = (rng.integers(0, 128, (n, 128), dtype=np.uint8) for n in (10_000, 1_000_000))
        return "random", queries, database


def compare(name: str, queries: np.ndarray, database: np.ndarray, k: int) -> dict[str, object]:
    start = time.perf_counter()
    ids = euclidean_neighbors(queries, database, k)
    ours = time.perf_counter() - start
    peak = machine.peak_gigabytes()
    start = time.perf_counter()
    index = faiss.IndexFlatL2(database.shape[1])
    index.add(np.ascontiguousarray(database, dtype=np.float32))
    _, plain = index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
    theirs = time.perf_counter() - start
    other = sum(len(np.setdiff1d(a, b)) for a, b in zip(ids[::100], plain[::100], strict=True))
    row = {
        "data": name,
        "n_database": len(database),
        "k": k,
        "seconds": round(ours, 1),
        "peak_gb": round(peak, 2),
        "plain_faiss_seconds": round(theirs, 1),
        "ratio": round(ours / theirs, 2),
        "neighbors_that_plain_faiss_misses_per_100_queries": other,
    }
    print(*(f"{key} {value}" for key, value in row.items()), sep=", ")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    path = parser.parse_args().json
    mnist = load("mnist")
    rows = [compare("mnist", mnist.queries, mnist.database, 50), compare(*sift_sized(), 10_000)]
    machine.report("truth", {"rows": rows}, path)


if __name__ == "__main__":
    main()
