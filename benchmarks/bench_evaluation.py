"""Evaluation against a stable argsort per query, and at SIFT1M's size.

    python benchmarks/bench_evaluation.py [--json FILE]

1. 10,000 queries × 60,000 codes × 64 bits, whole ranking: `evaluate` on all queries against a plain loop (distances,
   np.argsort(kind="stable"), AP) on a subset of them, per query, all in turn, nine times: ratios of the best times,
   and of the rounds. The loop sorts int32 distances (what `hamming` gives) and, for a stricter rival, uint8 ones (for
   which NumPy has a radix sort). The codes are ITQ's of MNIST, the truth its 50 Euclidean neighbors or its labels.
2. 10,000 queries × 1,000,000 codes × 64 bits, K = 10,000 true neighbors, top 10,000: seconds and peak memory. The
   codes are random within 200 clusters, so that distances vary as those of real codes do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import machine
import numpy as np

from hashlearn import ITQ, codes
from hashlearn.datasets import load
from hashlearn.evaluation import Protocol, Truth, euclidean_neighbors, evaluate, evaluate_all


def clustered_codes(n: int, rng: np.random.Generator, centers: np.ndarray) -> np.ndarray:
    """64-bit codes: a random center with each bit flipped with probability 0.15."""
    flips = np.packbits(rng.random((n, 64), dtype=np.float32) < 0.15, axis=1)
    return centers[rng.integers(0, len(centers), n)] ^ flips


def plain_loop(queries: np.ndarray, database: np.ndarray, truth: Truth, dtype: type) -> list[float]:
    """AP per query the usual way: all distances, a stable sort, precision at each relevant rank."""
    values = []
    for i, query in enumerate(queries):
        distances = codes.hamming(query[None], database)[0].astype(dtype)
        order = np.argsort(distances, kind="stable")
        relevant = np.zeros(len(database), dtype=bool)
        relevant[truth.relevant(i)] = True
        ranks = np.flatnonzero(relevant[order]) + 1
        values.append(float((np.arange(1, len(ranks) + 1) / ranks).mean()))
    return values


def against_argsort(subset: int = 200, rounds: int = 9) -> list[dict[str, object]]:
    mnist = load("mnist")
    hasher = ITQ(64, random_state=0).fit(mnist.train)
    queries, database = hasher.encode(mnist.queries), hasher.encode(mnist.database)
    n_queries = len(queries)
    truths = {
        "50 neighbors": Truth.neighbors(euclidean_neighbors(mnist.queries, mnist.database, 50, cache=True)),
        "10 classes": Truth.labels(mnist.query_labels, mnist.database_labels),
    }
    rows = []
    ways = [(ties, n_jobs) for ties in ("expected", "index") for n_jobs in (None, 1)]
    for name, truth in truths.items():
        works: dict[object, Callable[[], object]] = {
            dtype: partial(plain_loop, queries[:subset], database, truth, dtype) for dtype in (np.int32, np.uint8)
        }
        for ties, n_jobs in ways:
            protocol = Protocol(ties=ties)
            works[ties, n_jobs] = partial(
                evaluate, queries, database, truth, n_bits=64, protocol=protocol, n_jobs=n_jobs
            )
        found = works["index", 1]().average_precision[:subset]
        np.testing.assert_allclose(found, works[np.int32](), rtol=1e-9)
        # All of them in turn, so that a slow moment of the machine does not meet one side alone.
        times = [{key: machine.best_seconds(work, 1) for key, work in works.items()} for _ in range(rounds)]
        best = {key: min(seconds[key] for seconds in times) for key in works}
        for way in ways:
            ties, n_jobs = way
            ratios = {
                f"argsort_{dtype.__name__}_ratio": round(best[dtype] / subset / (best[way] / n_queries), 1)
                for dtype in (np.int32, np.uint8)
            }
            in_turn = sorted(seconds[np.int32] / subset / (seconds[way] / n_queries) for seconds in times)
            row = {
                "truth": name,
                "ties": ties,
                "threads": n_jobs or "all cores",
                "seconds": round(best[way], 2),
                "microseconds_per_query": round(1e6 * best[way] / n_queries, 1),
                **ratios,
                "argsort_int32_ratio_median": round(in_turn[rounds // 2], 1),
                "argsort_int32_ratio_least": round(in_turn[0], 1),
                "argsort_int32_ratio_most": round(in_turn[-1], 1),
            }
            rows.append(row)
            print(*(f"{key} {value}" for key, value in row.items()), sep=", ")
    return rows


def at_a_million(rng: np.random.Generator) -> list[dict[str, object]]:
    n_queries, n, k = 10_000, 1_000_000, 10_000
    centers = rng.integers(0, 256, (200, 8), dtype=np.uint8)
    queries, database = clustered_codes(n_queries, rng, centers), clustered_codes(n, rng, centers)
    first = rng.integers(0, n, (n_queries, 1), dtype=np.int32)
    ids = (first + 97 * np.arange(k, dtype=np.int32)) % n  # distinct: 97·10,000 < 1,000,000
    truth = Truth.neighbors(ids)
    rows = []
    for ties in (("index",), ("expected",), ("index", "expected")):
        protocols = [Protocol(cutoff=10_000, ties=rule) for rule in ties]
        start = time.perf_counter()
        evaluate_all(queries, database, truth, protocols, n_bits=64)
        row = {
            "ties": " and ".join(ties),
            "seconds": round(time.perf_counter() - start, 1),
            "peak_gb": round(machine.peak_gigabytes(), 2),
        }
        rows.append(row)
        print(
            f"1,000,000 codes, K = R = 10,000, ties: {row['ties']}: {row['seconds']} s, peak {row['peak_gb']} GB so far"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    path = parser.parse_args().json
    print(f"one thread's XOR + popcount: {machine.popcount_rate() / 1e9:.2f} billion 64-bit pairs/s")
    rng = np.random.default_rng(0)
    results = {"against_argsort": against_argsort(), "at_a_million": at_a_million(rng)}
    machine.report("evaluation", results, path)


if __name__ == "__main__":
    main()
