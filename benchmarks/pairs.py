"""SDH-DNN without m × m matrices against the paper's formulas with them, and with twice the data.

A part of bench_train.py: ``python benchmarks/bench_train.py --only pairs``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import machine
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hashlearn import SDHDNN
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._dnn import Lambdas
from hashlearn.hashers._network import Layer, Network, flatten
from hashlearn.hashers.sdh_dnn import Pairs
from hashlearn.threads import thread_map


def example(m: int, sizes: Sequence[int]) -> tuple[Any, list[Layer], Any]:
    """Vectors, layers and codes of the right shapes; what they hold does not change the time."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, sizes[0]), dtype=np.float32)
    layers = [Layer(rng.standard_normal((s, t)) / np.sqrt(s), np.zeros(t)) for s, t in itertools.pairwise(sizes)]
    return X, layers, np.where(rng.random((m, sizes[-1])) < 0.5, -1, 1).astype(np.int8)


def dense_objective(training: Pairs, S: Any, theta: Any) -> tuple[float, Any]:
    """SDH-DNN's objective and gradient as the paper writes them, with m × m matrices; float32."""
    network = training.network
    X, B = training.rows[slice(0, len(training.rows))], training.B.astype(np.float32)
    outputs = network.forward(network.cast(theta, np.float32), X)
    H = outputs[-1]
    m, L = H.shape
    l1, l2, l3, l4 = training.lambdas
    V = H @ H.T
    V /= L
    V -= S
    C = H.T @ H / m - np.eye(L, dtype=np.float32)
    h = H.sum(axis=0)
    square = float(np.einsum("ij,ij->i", V, V).sum(dtype=np.float64))
    value = square / (2 * m) + l2 / (2 * m) * float(np.sum((H - B) ** 2))
    value += l3 / 2 * float(np.sum(C * C)) + l4 / (2 * m) * float(h @ h)
    Delta = 2 / (m * L) * (V @ H) + l2 / m * (H - B) + 2 * l3 / m * H @ C + l4 / m * h
    gradient = np.zeros(len(theta))
    parts, weights = network.layers(gradient), network.layers(theta)
    for layer in range(len(weights) - 1, -1, -1):
        S_in = outputs[layer - 1] if layer else X
        parts[layer].W[...] = S_in.T @ Delta + l1 * weights[layer].W
        parts[layer].c[...] = Delta.sum(axis=0)
        value += l1 / 2 * float(np.sum(weights[layer].W ** 2))
        if layer:
            Delta = Delta @ weights[layer].W.T.astype(np.float32) * S_in * (1 - S_in)
    return value, gradient


def bench_pairs() -> dict[str, Any]:
    """SDH-DNN: an evaluation without m × m matrices against one with them; and twice the data."""
    sizes = (320, 120, 50, 32)
    lambdas = Lambdas(1e-3, 5.0, 1.0, 1e-4)

    def start(m: int, threads: Any) -> Pairs:
        X, layers, B = example(m, sizes)
        y = np.random.default_rng(1).integers(0, 10, m)
        return Pairs(Rows(X, np.zeros(sizes[0]), 1.0, threads), Network(sizes), flatten(layers), B, y, lambdas)

    m = 20_000
    with thread_map() as threads:
        training = start(m, threads)
        terms, gradient = training.objective(training.theta)
        ours = machine.best_seconds(lambda: training.objective(training.theta), 7)
    S = np.where(np.equal.outer(training.y, training.y), np.float32(1), np.float32(-1))
    value, slope = dense_objective(training, S, training.theta)
    dense = machine.best_seconds(lambda: dense_objective(training, S, training.theta), 3)
    result: dict[str, Any] = {
        "m": m,
        "seconds": round(ours, 4),
        "dense_seconds": round(dense, 3),
        "times_faster": round(dense / ours, 1),
        "difference_of_objective": float(abs(value / sum(terms.values()) - 1)),
        "difference_of_gradient": float(np.linalg.norm(gradient - slope) / np.linalg.norm(slope)),
    }
    print("pairs:", ", ".join(f"{key} {value}" for key, value in result.items()), flush=True)
    rows = twice_the_data(start)
    for row in rows:
        print("pairs, twice the data:", ", ".join(f"{key} {value}" for key, value in row.items()))
    return {"pairs": result, "pairs_scaling": rows}


def twice_the_data(start: Any, rounds: int = 15) -> list[dict[str, Any]]:
    """Seconds for m, 2m, 4m and 8m, all sizes in turn, again and again: the best, and ratios of neighbors.

    A ratio by the median of the rounds, whose two sizes were measured one after the other, and one of the best times.
    """
    sizes = (12_500, 25_000, 50_000, 100_000)
    hasher = SDHDNN(32, samples_per_class=None, max_iter=1, lbfgs_iter=20, random_state=0)
    with thread_map() as threads:
        trainings = [start(m, threads) for m in sizes]
        works: dict[str, list[Any]] = {
            "evaluation_seconds": [lambda t=t: t.objective(t.theta) for t in trainings],
            "code_step_seconds": [t.code_step for t in trainings],
        }
        times = {
            key: [[machine.best_seconds(w, 1) for w in work] for _ in range(rounds)] for key, work in works.items()
        }
    fits = [lambda t=t: hasher.fit(t.rows[slice(0, len(t.rows))], t.y) for t in trainings]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        times["fit_seconds"] = [[machine.best_seconds(fit, 1) for fit in fits] for _ in range(3)]
    rows: list[dict[str, Any]] = [{"m": m} for m in sizes]
    for key, measured in times.items():
        table = np.array(measured)
        for i, row in enumerate(rows):
            row[key] = round(float(table[:, i].min()), 4)
            if i:
                row[f"{key}_ratio"] = round(float(np.median(table[:, i] / table[:, i - 1])), 3)
                row[f"{key}_ratio_of_best"] = round(float(table[:, i].min() / table[:, i - 1].min()), 3)
    return rows
