"""Search of a million codes: HammingIndex beside plain FAISS calls, usearch and NumPy; tables; a collection.

    python benchmarks/bench_search.py [nearest] [real] [within] [tables] [collection] [--n 1000000] [--json FILE]

nearest     the k nearest, single queries and batches, 64 and 256 bits, by every exact way to the same answer. FAISS
            with one OpenMP thread and with all, since on a busy machine two can be slower than one.
real        the 10 nearest of a million real vectors (package-names, 256-D) by codes of ITQ: by Hamming distance, with
            real-valued queries, and these with the first 100 compared again by their vectors; FAISS's quantizers of as
            many bytes beside them, each with the recall that it has.
within      all within radius 3, by a scan (100 queries a call) and by tables (1,000, right after a run of the same);
            FAISS's own calls beside them, whose answers are not ordered. And one query a call by tables.
tables      what the plans are made of: nanoseconds of a query, of a lookup, of a code found in a table, of a code put
            into one, of a code compared in a scan, over sizes, lengths and radii, on codes at random and on codes in
            clusters; and where tables begin to be faster than a scan, as it is and as the plan says.
collection  a file of a million items, without texts and with: bytes an item, seconds to make and to open, changes.

usearch is run where it is installed. Each line is the best of several runs, the ways in turn, in this one run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import machine
import numpy as np
from scipy.optimize import nnls

from hashlearn import ITQ
from hashlearn.codes import code_words, distances_into
from hashlearn.collection import Collection
from hashlearn.datasets import load
from hashlearn.evaluation import Truth, evaluate_search, nearest_neighbors
from hashlearn.search import HammingIndex, rerank
from hashlearn.search._tables import Estimate, Shape, Tables, scan_cost
from hashlearn.threads import cores

Row = dict[str, Any]


def random_codes(n: int, n_bits: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


def clustered_codes(n: int, n_bits: int, seed: int = 0) -> np.ndarray:
    """Codes around a thousandth as many centers, each bit turned with a chance of 8 %."""
    rng = np.random.default_rng(seed)
    codes = random_codes(max(1, n // 1000), n_bits, seed)[rng.integers(0, max(1, n // 1000), n)]
    for start in range(0, n, 100_000):
        some = codes[start : start + 100_000]
        some ^= np.packbits(rng.random((len(some), n_bits)) < 0.08, axis=1)
    return codes


def in_turn(ways: dict[str, Callable[[], object]], repeats: int, *, warm: bool = False) -> dict[str, float]:
    """The best time of each, run several times over, in an order that is drawn: what ran before is in the cache.

    ``warm``: each is run once more, untimed, right before.
    """
    best = dict.fromkeys(ways, float("inf"))
    draw = np.random.default_rng(0)
    for _ in range(repeats):
        for name in draw.permutation(list(ways)).tolist():
            if warm:
                ways[name]()
            start = time.perf_counter()
            ways[name]()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def with_threads(n: int, work: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        faiss.omp_set_num_threads(n)
        try:
            return work()
        finally:
            faiss.omp_set_num_threads(cores())

    return run


def numpy_nearest(queries: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    words, asked = code_words(codes), code_words(queries)
    found = np.empty((len(queries), k), np.int64)
    row = np.empty((1, len(codes)), np.uint16)
    for i in range(len(queries)):
        distances_into(asked[:, i : i + 1], words, row)
        near = np.argpartition(row[0], k - 1)[:k]
        found[i] = near[np.argsort(row[0, near], kind="stable")]
    return found


def nearest(n: int) -> list[Row]:
    rows = []
    for n_bits in (64, 256):
        codes = random_codes(n, n_bits)
        index = HammingIndex(n_bits)
        index.add(codes)
        flat = {True: faiss.IndexBinaryFlat(n_bits), False: faiss.IndexBinaryFlat(n_bits)}
        for use_heap, one in flat.items():
            one.add(codes)
            one.use_heap = use_heap
        for n_queries in (1, 100):
            queries = random_codes(n_queries, n_bits, 1)
            for k in (10, 100, 1000):
                ways: dict[str, Callable[[], object]] = {"ours": partial(index.search, queries, k)}
                for use_heap, name in ((True, "FAISS, heap"), (False, "FAISS, counting")):
                    work = partial(flat[use_heap].search, queries, k)
                    ways[f"{name}, 1 thread"] = with_threads(1, work)
                    ways[f"{name}, {cores()} threads"] = with_threads(cores(), work)
                others = usearch_ways(codes, queries, k)
                if n_queries == 1:
                    others["NumPy"] = partial(numpy_nearest, queries, codes, k)
                # Each right after a run of the same: FAISS's ways share their arrays, and ours would find its own cold.
                times = in_turn(ways, 40 if n_queries == 1 else 20, warm=True) | in_turn(others, 4)
                faiss_best = min(seconds for name, seconds in times.items() if name.startswith("FAISS"))
                rows.append(
                    {
                        "n": n,
                        "n_bits": n_bits,
                        "n_queries": n_queries,
                        "k": k,
                        "milliseconds_a_query": {
                            name: round(1e3 * seconds / n_queries, 3) for name, seconds in times.items()
                        },
                        "ours_to_fastest_faiss": round(times["ours"] / faiss_best, 2),
                    }
                )
                print(rows[-1], flush=True)
    return rows


def real(n: int) -> list[Row]:
    """Times and recalls on real vectors; RaBitQ takes 8 bytes beside a bit for each of its dimensions."""
    data = load("package-names")
    X, Q = np.ascontiguousarray(data.database[:n]), np.ascontiguousarray(data.queries[:1000])
    truth = Truth.neighbors(nearest_neighbors(Q, X, 10, cache=True))
    sample = X[np.sort(np.random.default_rng(0).permutation(len(X))[:65_536])]
    rows = []
    for n_bytes in (8, 16, 32):
        n_bits = 8 * n_bytes
        hasher = ITQ(n_bits, random_state=0).fit(sample)
        index = HammingIndex(n_bits)
        index.add(hasher.encode(X))
        binary = faiss.IndexBinaryFlat(n_bits)
        binary.add(index.codes)
        ways: dict[str, Callable[[Any], Any]] = {
            "Hamming": lambda V, h=hasher, i=index: i.search(h.encode(V), 10).ids,
            "FAISS, Hamming": lambda V, h=hasher, b=binary: b.search(h.encode(V), 10)[1],
            "real-valued": lambda V, h=hasher, i=index: i.search_real(h.query_values(V), 10).ids,
            "real-valued, 100 re-ranked": lambda V, h=hasher, i=index: (
                rerank(V, i.search_real(h.query_values(V), 100).ids, X, 10).ids
            ),
        }
        quantizers = {"FAISS, PQ": f"PQ{n_bytes}", "FAISS, PQ fast scan": f"PQ{2 * n_bytes}x4fs"}
        if n_bytes > 8:
            quantizers |= {"FAISS, RaBitQ": f"PCA{n_bits - 64},RaBitQ"}
            quantizers |= {"FAISS, RaBitQ fast scan": f"PCA{n_bits - 64},RaBitQfs"}
        for name, description in quantizers.items():
            quantizer = faiss.index_factory(X.shape[1], description)
            quantizer.train(sample)
            quantizer.add(X)
            ways[name] = lambda V, q=quantizer: q.search(V, 10)[1]
        recalls = {name: evaluate_search(way(Q), truth, k=10)["recall@10"] for name, way in ways.items()}
        single = in_turn({name: partial(way, Q[:1]) for name, way in ways.items()}, 40, warm=True)
        batch = in_turn({name: partial(way, Q) for name, way in ways.items()}, 4, warm=True)
        rows.append(
            {
                "n": len(X),
                "n_bits": n_bits,
                "recall": {name: round(recall, 4) for name, recall in recalls.items()},
                "milliseconds_of_one": {name: round(1e3 * seconds, 3) for name, seconds in single.items()},
                "milliseconds_a_query": {name: round(1e3 * seconds / len(Q), 3) for name, seconds in batch.items()},
            }
        )
        print(rows[-1], flush=True)
    return rows


def usearch_ways(codes: np.ndarray, queries: np.ndarray, k: int) -> dict[str, Callable[[], object]]:
    try:
        from usearch.index import MetricKind, ScalarKind, search
    except ImportError:
        print("usearch is not installed, and left out (pip install usearch)")
        return {}

    def work() -> object:
        return search(codes, queries, k, MetricKind.Hamming, exact=True, dtype=ScalarKind.B1)

    return {"usearch, exact": work}


def within(n: int, radius: int = 3) -> list[Row]:
    rows = []
    for kind, make in (("random", random_codes), ("clustered", clustered_codes)):
        for n_bits in (64, 256):
            codes = make(n, n_bits)
            # Near codes that are there: a few of the last bits of the bytes are turned.
            many = codes[:: n // 1000][:1000] ^ random_codes(1000, n_bits, 1) & random_codes(1000, n_bits, 2) & 1
            some = many[:100]
            index = HammingIndex(n_bits)
            index.add(codes)
            flat = faiss.IndexBinaryFlat(n_bits)
            flat.add(codes)
            plan = index.explain(radius=radius, n_queries=10**9)
            start = time.perf_counter()
            index.within(some[:1], radius, engine="tables")
            made = time.perf_counter() - start
            scan = partial(flat.range_search, some, radius + 1)
            scans = {"scan": partial(index.within, some, radius, engine="scan")}
            scans |= {f"FAISS, scan, {t} threads": with_threads(t, scan) for t in (1, cores())}
            tables = {"tables": partial(index.within, many, radius, engine="tables")}
            for shape in {Shape(3, 21), index._tables.shape}:
                hashed = faiss.IndexBinaryMultiHash(n_bits, shape.n_tables, shape.piece)
                hashed.add(codes)
                hashed.nflip = shape.flips(radius)
                if shape == index._tables.shape:
                    single = partial(hashed.range_search, many[:1], radius + 1)
                search = partial(hashed.range_search, many, radius + 1)
                tables |= {f"FAISS, {shape}, {t} threads": with_threads(t, search) for t in (1, cores())}
            times = {name: seconds / len(some) for name, seconds in in_turn(scans, 20, warm=True).items()}
            times |= {name: seconds / len(many) for name, seconds in in_turn(tables, 15, warm=True).items()}
            ones = {"tables": partial(index.within, many[:1], radius), "FAISS": with_threads(1, single)}
            one = in_turn(ones, 200, warm=True)
            found = index.within(many, radius)
            rows.append(
                {
                    "codes": kind,
                    "n": n,
                    "n_bits": n_bits,
                    "radius": radius,
                    "found_a_query": len(found.ids) / len(many),
                    "milliseconds_a_query": {name: round(1e3 * seconds, 5) for name, seconds in times.items()},
                    "milliseconds_of_one": {name: round(1e3 * seconds, 5) for name, seconds in one.items()},
                    "plan": str(plan),
                    "seconds_to_make_tables": round(made, 2),
                }
            )
            print(rows[-1], flush=True)
    return rows


@contextmanager
def one_core() -> Iterator[None]:
    """Searches on one core in here: what plans are made of are times of one."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def tables(n: int) -> Row:
    """Fit the numbers that plans are made of, and compare where plans change engines with where they should."""
    with one_core():
        compared = {width: _comparing(n, width) for width in (4, 8, 16, 20, 32, 64)}
        print("nanoseconds to compare a code, by bytes:", compared, flush=True)
        cases = [
            case
            for kind, make in (("random", random_codes), ("clustered", clustered_codes))
            for n_bits in (64, 128)
            for size in (n // 100, n // 20, n // 5, n)
            for case in _cases(kind, make(size, n_bits), n_bits)
        ]
    lookups, found, spent, stored = (
        np.array([case[name] for case in cases]) for name in ("lookups", "compared", "tables", "stored")
    )
    # Of what does not lie in the cache, where tables matter. Relative errors count: a run is divided by its own time.
    large = np.array([case["n"] >= n // 5 for case in cases])
    lookups, found, spent, stored = (column[large] for column in (lookups, found, spent, stored))
    parts = np.stack([np.ones(len(spent)), lookups, found], axis=1) / spent[:, None]
    costs, _ = nnls(parts, np.ones(len(spent)))
    fitted = dict(zip(("query", "lookup", "found"), costs.tolist(), strict=True)) | {"stored": float(np.median(stored))}
    fitted = {name: round(value, 1) for name, value in fitted.items()}
    print("nanoseconds:", fitted)
    return {"nanoseconds": {**fitted, "compared": compared}, "cases": cases}


def _comparing(n: int, width: int) -> float:
    """Nanoseconds to compare a code of so many bytes in a scan."""
    index = HammingIndex(8 * width)
    index.add(random_codes(n, 8 * width))
    queries = random_codes(100, 8 * width, 1)
    seconds = machine.best_seconds(lambda: index.within(queries, 0, engine="scan"), 4)
    return round(seconds / len(queries) / n * 1e9, 2)


def _cases(kind: str, codes: np.ndarray, n_bits: int) -> Iterator[Row]:
    """For each small radius: what a query takes by a scan and by the tables that are planned, and what was planned."""
    n = len(codes)
    index = HammingIndex(n_bits)
    index.add(codes)
    estimate = Estimate(index._state.codes, n_bits)
    queries = codes[:: max(1, n // 200)][:200]
    counted = faiss.cvar.indexBinaryHash_stats
    for radius in range(13):
        shape = estimate.cheapest(radius, n)
        if shape is None or estimate.cost(shape, radius, n) > 10 * scan_cost(n, n_bits // 8):
            return
        start = time.perf_counter()
        made = Tables(index._state.codes, shape)
        stored = time.perf_counter() - start
        counted.reset()
        made.within(queries, radius)
        ways = {
            "scan": partial(index.within, queries, radius, engine="scan"),
            "tables": partial(made.within, queries, radius),
        }
        compared = counted.ndis / len(queries)
        times = {name: round(seconds / len(queries) * 1e9) for name, seconds in in_turn(ways, 3).items()}
        row = {"codes": kind, "n": n, "n_bits": n_bits, "radius": radius, "shape": str(shape)}
        row |= {"lookups": shape.lookups(radius), "compared": round(compared, 1), **times}
        row |= {
            "planned_scan": round(scan_cost(n, n_bits // 8)),
            "planned_tables": round(estimate.cost(shape, radius, n)),
        }
        yield row | {"stored": round(stored / n / shape.n_tables * 1e9, 1)}
        print(row, flush=True)


def collection(n: int) -> list[Row]:
    return [_collection(n, texts=texts) for texts in (False, True)]


def _collection(n: int, *, texts: bool) -> Row:
    """``texts``: with a source and a payload for each item."""
    codes = random_codes(n, 64)
    sources = [f"photos/{i // 1000:04}/{i:07}.jpg" for i in range(n)] if texts else None
    payloads = [{"label": i} for i in range(n)] if texts else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codes.hl"
        start = time.perf_counter()
        with Collection.create(path, n_bits=64) as made:
            made.add(codes, sources=sources, payloads=payloads)
        seconds = round(time.perf_counter() - start, 2)
        row: Row = {"n": n, "n_bits": 64, "texts": texts, "seconds_to_make": seconds}
        row["bytes_an_item"] = round(path.stat().st_size / n, 1)

        def opened() -> None:
            Collection.open(path, readonly=True).close()

        row["seconds_to_open"] = round(machine.best_seconds(opened), 2)
        with Collection.open(path) as writer, Collection.open(path, readonly=True) as reader:
            if texts:
                start = time.perf_counter()
                writer.find_ids(sources[:1])
                row["seconds_of_the_first_look_up"] = round(time.perf_counter() - start, 2)
            ids = writer.add(codes[:200])
            reader.refresh()
            changes = {
                "add": lambda i: writer.add(codes[i : i + 1]),
                "update": lambda i: writer.update([i], codes[i + 1 : i + 2]),
                "remove": lambda i: writer.remove([int(ids[i])]),
            }
            for name, change in changes.items():
                times, seen = [], []
                for i in range(20):
                    start = time.perf_counter()
                    change(i)
                    times.append(time.perf_counter() - start)
                    start = time.perf_counter()
                    reader.refresh()
                    seen.append(time.perf_counter() - start)
                row[f"milliseconds_to_{name}_one"] = round(1e3 * float(np.median(times)), 2)
                row[f"milliseconds_to_see_it_{name}"] = round(1e3 * float(np.median(seen)), 2)
            scattered = np.sort(np.random.default_rng(0).choice(np.arange(1000, n), n // 100, replace=False))
            start = time.perf_counter()
            writer.remove(scattered)
            row["seconds_to_remove_a_hundredth"] = round(time.perf_counter() - start, 2)
    print(row, flush=True)
    return row


def main() -> None:
    parts: dict[str, Callable[[int], Any]] = {
        "nearest": nearest,
        "real": real,
        "within": within,
        "tables": tables,
        "collection": collection,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which parts; all unless given")
    parser.add_argument("--n", type=int, default=1_000_000, help="how many codes")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    chosen = options.parts or list(parts)
    machine.report("search", {name: parts[name](options.n) for name in chosen}, options.json)


if __name__ == "__main__":
    main()
