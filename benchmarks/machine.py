"""What the benchmarks share: the machine's name and rates, best-of-several timing, writing results."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def best_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of several runs: noise only ever adds time."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def sgemm_gflops(n: int = 2048) -> float:
    """float32 matrix products by this machine's BLAS, GFLOP/s."""
    a = np.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
    out = np.empty_like(a)
    return 2 * n**3 / best_seconds(lambda: np.matmul(a, a, out=out), 5) / 1e9


def popcount_rate(n: int = 1 << 16) -> float:
    """64-bit XOR and popcount by NumPy, one thread, pairs a second."""
    words = np.random.default_rng(0).integers(0, 2**63, n, dtype=np.uint64)
    mixed, counts = np.empty_like(words), np.empty(n, dtype=np.uint8)

    def work() -> None:
        for _ in range(50):
            np.bitwise_count(np.bitwise_xor(words, words[7], out=mixed), out=counts)

    return 50 * n / best_seconds(work, 5)


def describe() -> dict[str, Any]:
    """The machine, for the head of every result."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "processor": name,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sgemm_gflops": round(sgemm_gflops(), 1),
    }


def peak_gigabytes() -> float:
    """The most memory this process has held so far, in units of 10^9 bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def report(name: str, results: dict[str, Any], path: Path | None) -> None:
    """Say the machine; keep the results beside the documentation, if a file was named.

    Parts of the same benchmark that the file holds from an earlier run stay, with the machine of that run.
    """
    here = describe()
    print("machine:", ", ".join(f"{key} {value}" for key, value in here.items()))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(path.read_text()) if path.exists() else {}
        earlier = before if before.get("benchmark") == name else {}
        before, first = earlier.pop("machines", {}), earlier.pop("machine", None)
        machines = {part: before.get(part, first) for part in earlier if part != "benchmark"}
        machines |= dict.fromkeys(results, here)
        path.write_text(json.dumps({**earlier, "benchmark": name, **results, "machines": machines}, indent=2) + "\n")
        print(f"written: {path}")
