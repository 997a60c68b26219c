"""Training and encoding with UDH-DNN and SDH-DNN: against the machine's GEMM rate, PyTorch, twice the data, and memory.

    python benchmarks/bench_train.py [--only PART ...] [--json docs/results/train.json]

PyTorch is optional: pip install torch==2.13.0 (CPU).
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import machine
import numpy as np
from pairs import bench_pairs, example
from sklearn.exceptions import ConvergenceWarning

from hashlearn import UDHDNN
from hashlearn.datasets import load
from hashlearn.experiments.grid import experiment
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._dnn import Lambdas, auto_units
from hashlearn.hashers._network import Layer, Network, flatten
from hashlearn.hashers.udh_dnn import Discrete
from hashlearn.threads import thread_map

LAMBDAS = Lambdas(1e-5, 5e-2, 1e-2, 1e-6)
SIZES = (784, 160, 110, 64)
M = 60_000


def product_flops(m: int, sizes: Sequence[int]) -> int:
    """Of the matrix products of one evaluation: forward, ∂J/∂W, the way back (not into X), HᵀH and H A."""
    layers = [s * t for s, t in itertools.pairwise(sizes)]
    return 2 * m * (2 * sum(layers) + sum(layers[1:]) + 2 * sizes[-1] ** 2)


def start(X: Any, layers: list[Layer], B: Any, threads: Any, *, exact: bool = True) -> Discrete:
    """Training of UDH-DNN at its start, by rows, layers and codes."""
    network = Network((X.shape[1], *(len(layer.c) for layer in layers)))
    return Discrete(Rows(X, np.zeros(X.shape[1]), 1.0, threads), network, flatten(layers), B, LAMBDAS, exact=exact)


def bench_evaluation() -> dict[str, Any]:
    """One value and gradient, as a share of the machine's sgemm rate measured right before and after."""
    rows = []
    for sizes in (SIZES, (784, 120, 50, 32), (320, 120, 50, 32)):
        X, layers, B = example(M, sizes)
        before = machine.sgemm_gflops()
        with thread_map() as threads:
            training = start(X, layers, B, threads)
            evaluate = partial(training.objective, training.theta)
            times = [machine.best_seconds(evaluate, 1) for _ in range(15)]
        rate = max(before, machine.sgemm_gflops())
        gflops = product_flops(M, sizes) / min(times) / 1e9
        row = {
            "units": "→".join(map(str, sizes)),
            "seconds": round(min(times), 4),
            "seconds_median": round(float(np.median(times)), 4),
            "gflops": round(gflops, 1),
            "sgemm_gflops": round(rate, 1),
            "share": round(gflops / rate, 3),
            "share_median": round(product_flops(M, sizes) / float(np.median(times)) / 1e9 / rate, 3),
        }
        print(f"evaluation, m = {M:,}:", ", ".join(f"{key} {value}" for key, value in row.items()))
        rows.append(row)
    return {"evaluation": rows}


def bench_scaling() -> dict[str, Any]:
    """An evaluation, a B step and a whole short fit (ITQ, start and all), for m, 2m and 4m."""
    rows: list[dict[str, Any]] = []
    for m in (M // 4, M // 2, M):
        X, layers, B = example(m, SIZES)
        times: dict[str, float] = {}
        for _ in range(3):
            with thread_map() as threads:
                training = start(X, layers, B.copy(), threads)
                began = time.perf_counter()
                evaluations = training.network_step(20, lambda _: None).evaluations
                middle = time.perf_counter()
                training.code_step()
                found = {"network": (middle - began) / evaluations, "codes": time.perf_counter() - middle}
            times = {key: min(value, times.get(key, np.inf)) for key, value in found.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = machine.best_seconds(lambda X=X: UDHDNN(64, random_state=0, max_iter=1, lbfgs_iter=20).fit(X), 3)
        row = {"m": m, "evaluation_seconds": times["network"], "code_step_seconds": times["codes"], "fit_seconds": fit}
        if rows:
            row |= {f"{key}_ratio": row[key] / rows[-1][key] for key in row if key != "m"}
        row = {key: round(value, 4) for key, value in row.items()}
        print("twice the data:", ", ".join(f"{key} {value}" for key, value in row.items()))
        rows.append(row)
    return {"scaling": rows}


def torch_step(X: Any, layers: list[Layer], B: Any, evaluations: int, *, joint: bool) -> tuple[float, float, int]:
    """The same objective by PyTorch's autograd and LBFGS: its value, seconds and evaluations.

    ``joint``: with the decoder, as the paper writes it; otherwise the terms of the encoder alone.
    """
    import torch

    m, L = B.shape
    data, codes = torch.from_numpy(X), torch.from_numpy(B.astype(np.float32))
    parts = [torch.tensor(part, dtype=torch.float32, requires_grad=True) for layer in layers for part in layer]
    decoder = [torch.eye(L, X.shape[1], requires_grad=joint), torch.zeros(X.shape[1], requires_grad=joint)]
    optimizer = torch.optim.LBFGS(
        parts + decoder * joint,
        max_iter=10**6,
        max_eval=evaluations,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=0,
        tolerance_change=0,
    )
    l1, l2, l3, l4 = LAMBDAS
    count = 0

    def closure() -> Any:
        nonlocal count
        count += 1
        optimizer.zero_grad()
        H = data
        for i in range(0, len(parts) - 2, 2):
            H = torch.sigmoid(H @ parts[i] + parts[i + 1])
        H = H @ parts[-2] + parts[-1]
        loss = l1 / 2 * sum((W**2).sum() for W in parts[::2])
        if joint:
            loss = loss + ((data - codes @ decoder[0] - decoder[1]) ** 2).sum() / (2 * m)
            loss = loss + l1 / 2 * (decoder[0] ** 2).sum()
        loss = loss + l2 / (2 * m) * ((H - codes) ** 2).sum()
        loss = loss + l3 / 2 * ((H.T @ H / m - torch.eye(L)) ** 2).sum() + l4 / (2 * m) * (H.sum(0) ** 2).sum()
        loss.backward()
        return loss

    start = time.perf_counter()
    optimizer.step(closure)
    seconds = time.perf_counter() - start
    return float(closure()), seconds, count - 1


def bench_torch() -> dict[str, Any]:
    """A (W, c) step by us and by a plain PyTorch version: the paper's joint step, and the encoder alone.

    In the joint step we need the sums of the decoder only, and PyTorch goes through all samples for it: that is an
    algorithm's gain. The encoder alone is the same work on both sides.
    """
    try:
        import torch
    except ImportError:
        print("PyTorch left out: pip install torch==2.13.0")
        return {}
    X, layers, B = example(M, SIZES)
    X /= 4
    found = []
    for joint in (True, False):
        torch_step(X, layers, B, 3, joint=joint)  # warm up
        rows = []
        for _ in range(5):
            with thread_map() as threads:
                training = start(X, layers, B, threads, exact=not joint)
                began = time.perf_counter()
                minimum = training.network_step(20, lambda _: None)
                ours = (time.perf_counter() - began) / minimum.evaluations
            value, seconds, count = torch_step(X, layers, B, minimum.evaluations, joint=joint)
            terms = dict(minimum.terms)
            if not joint:
                del terms["reconstruction"]
                terms["weights"] -= LAMBDAS.weights / 2 * float(np.sum(training.decoder.W**2))
            rows.append((ours, seconds / count, sum(terms.values()), value, minimum.evaluations, count))
        best = min(rows)
        row = {
            "step": "joint" if joint else "encoder alone",
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "seconds_per_evaluation": round(best[0], 4),
            "torch_seconds_per_evaluation": round(min(r[1] for r in rows), 4),
            "ratio_of_best": round(min(r[1] for r in rows) / best[0], 2),
            "ratio_median": round(float(np.median([r[1] / r[0] for r in rows])), 2),
            "ratios": [round(r[1] / r[0], 2) for r in rows],
            "objective": round(best[2], 5),
            "torch_objective": round(best[3], 5),
            "evaluations": best[4],
            "torch_evaluations": best[5],
        }
        print("PyTorch:", ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        found.append(row)
    return {"torch": found}


class Stopwatch:
    """Adds up the seconds that the two steps of training take, while it is entered."""

    def __init__(self) -> None:
        self.spent = {"code_step": 0.0, "network_step": 0.0}
        self._originals = {name: getattr(Discrete, name) for name in self.spent}

    def __enter__(self) -> dict[str, float]:
        for name, method in self._originals.items():
            setattr(Discrete, name, self._timed(name, method))
        return self.spent

    def __exit__(self, *_: object) -> None:
        for name, method in self._originals.items():
            setattr(Discrete, name, method)

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def work(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = method(*arguments)
            self.spent[name] += time.perf_counter() - start
            return result

        return work


def bench_end_to_end() -> dict[str, Any]:
    """MNIST, 60,000 × 784, at 8/16/24/32 bits, by the default parameters and from ITQ: time, and where it goes."""
    dataset = load("mnist")
    rows, totals = [], {}
    grid = {entry.name: entry.parameters for entry in experiment("fig-mnist").entries}
    for variant, parameters in (("from itq", grid["udh-dnn-from-itq"]), ("default", grid["udh-dnn"])):
        for n_bits in (8, 16, 24, 32):
            with Stopwatch() as spent, warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                start = time.perf_counter()
                hasher = UDHDNN(n_bits, random_state=0, **parameters).fit(dataset.train)
                seconds = time.perf_counter() - start
            row = {
                "variant": variant,
                "n_bits": n_bits,
                "units": "→".join(map(str, auto_units(n_bits, 784))),
                "seconds": round(seconds, 1),
                "network_seconds": round(spent["network_step"], 1),
                "code_seconds": round(spent["code_step"], 1),
                "evaluations": sum(record["evaluations"] for record in hasher.history_),
            }
            print("MNIST:", ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            rows.append(row)
        totals[variant] = round(sum(row["seconds"] for row in rows if row["variant"] == variant), 1)
        print(f"MNIST, {variant}, all four: {totals[variant]} s")
    return {"end_to_end": rows, "end_to_end_seconds": totals}


# A fit in a process of its own; the limit is on private memory, which a read-only file map is not.
MEMORY_SCRIPT = """
import resource, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from hashlearn import UDHDNN
from hashlearn.codes import pack
path, mapped, limit, out = sys.argv[1], sys.argv[2] == "mapped", int(sys.argv[3]), sys.argv[4]
validation = int(sys.argv[5]) or None
if limit:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
X = np.load(path, mmap_mode="r" if mapped else None)
hasher = UDHDNN(64, random_state=0, max_iter=1, lbfgs_iter=5, validation=validation).fit(X)
fields = dict(line.split(":") for line in open("/proc/self/status").read().splitlines() if ":" in line)
print(hasher.history_[-1]["objective"], int(fields["VmHWM"].split()[0]) * 1024)
np.save(out, np.concatenate([getattr(hasher, name).ravel() for name in ("W1_", "W2_", "W3_")]))
"""


def bench_memory() -> dict[str, Any]:
    """Peak memory against X and the activations; and training from a file larger than the memory it may use."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:

        def run(path: Path, how: str, limit: int, validation: int = 0) -> tuple[float, int, Any]:
            out = Path(folder) / f"{how}.npy"
            command = [sys.executable, "-c", MEMORY_SCRIPT, str(path), how, str(limit), str(out), str(validation)]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                last = result.stderr.strip().splitlines()[-1]
                raise MemoryError(last) if "MemoryError" in last else RuntimeError(result.stderr)
            objective, peak = result.stdout.split()
            return float(objective), int(peak), np.load(out)

        tiny, small, byte = (Path(folder) / f"{name}.npy" for name in ("tiny", "small", "byte"))
        X, _, _ = example(M, SIZES)
        np.save(tiny, X[:1000])
        np.save(small, X)
        _, floor, _ = run(tiny, "memory", 0)
        np.save(byte, np.clip(64 * X + 128, 0, 255).astype(np.uint8))
        activations = 4 * M * sum(SIZES[1:])
        found["in_memory"] = {
            "x_gigabytes": round(X.nbytes / 1e9, 3),
            "activations_gigabytes": round(activations / 1e9, 3),
            "of_a_tiny_fit_gigabytes": round(floor / 1e9, 3),
        }
        for name, path, n in (("float32", small, 0), ("uint8", byte, 0), ("early_stop", small, 1000)):
            _, peak, _ = run(path, "memory", 0, n)
            found["in_memory"] |= {
                f"peak_gigabytes_{name}": round(peak / 1e9, 3),
                f"times_float32_x_beyond_activations_{name}": round((peak - floor - activations) / X.nbytes, 2),
            }
        large = Path(folder) / "large.npy"
        m = 10 * M
        file = np.lib.format.open_memmap(large, mode="w+", dtype=np.float32, shape=(m, SIZES[0]))
        for start in range(0, m, M):
            np.add(X, np.float32(start / m), out=file[start : start + M])
        file.flush()
        size = file.nbytes
        del file
        limit = 1_000_000_000
        start_time = time.perf_counter()
        capped, _, capped_theta = run(large, "mapped", limit)
        seconds = time.perf_counter() - start_time
        free, _, free_theta = run(large, "mapped", 0)
        try:
            run(large, "memory", limit)
            refused = "it was not"
        except MemoryError as error:
            refused = str(error)
        found["out_of_core"] = {
            "file_gigabytes": round(size / 1e9, 2),
            "limit_gigabytes": limit / 1e9,
            "seconds": round(seconds, 1),
            "objective": capped,
            "objective_without_limit": free,
            "largest_difference_of_a_weight": float(np.abs(capped_theta - free_theta).max()),
            "in_memory_under_the_same_limit": refused[:100],
        }
    for name, row in found.items():
        print(f"memory, {name}:", ", ".join(f"{key} {value}" for key, value in row.items()))
    return {"memory": found}


def bench_encoding() -> dict[str, Any]:
    """Vectors a second, against the products' bound at the machine's GEMM rate, and FAISS's ITQ at equal bits."""
    import faiss

    X = load("mnist").train.astype(np.float32)
    rows = []
    for n_bits in (32, 64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            hasher = UDHDNN(n_bits, random_state=0, max_iter=1, lbfgs_iter=3).fit(X)
        itq = faiss.ITQTransform(784, n_bits, True)
        itq.train(X[:20000])
        sizes = (784, *auto_units(n_bits, 784), n_bits)
        rate = machine.sgemm_gflops()
        ours = machine.best_seconds(lambda hasher=hasher: hasher.encode(X), 7)
        theirs = machine.best_seconds(lambda itq=itq: itq.apply(X), 7)
        bound = 2 * len(X) * sum(s * t for s, t in itertools.pairwise(sizes)) / rate / 1e9
        row = {
            "n_bits": n_bits,
            "vectors_per_second": round(len(X) / ours),
            "share_of_gemm_bound": round(bound / ours, 3),
            "faiss_itq_vectors_per_second": round(len(X) / theirs),
            "times_faiss_itq": round(ours / theirs, 2),
            "products_times_itq": round(sum(s * t for s, t in itertools.pairwise(sizes)) / (784 * n_bits), 2),
        }
        print("encoding:", ", ".join(f"{key} {value}" for key, value in row.items()))
        rows.append(row)
    return {"encoding": rows}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "evaluation": bench_evaluation,
    "scaling": bench_scaling,
    "torch": bench_torch,
    "pairs": bench_pairs,
    "memory": bench_memory,
    "encoding": bench_encoding,
    "end-to-end": bench_end_to_end,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="run these alone")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    if os.environ.keys() & {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}:
        raise SystemExit("a number of threads is set in the environment: GEMM and training would use different ones.")
    results: dict[str, Any] = {}
    for part in options.only:
        results |= PARTS[part]()
    machine.report("train", results, options.json)


if __name__ == "__main__":
    main()
