"""Records as a run writes them, made up."""

import zlib
from dataclasses import asdict

import numpy as np

from hashlearn.experiments.grid import COMPARED, experiment, plan_runs
from hashlearn.experiments.results import FORMAT, all_parameters, changed_parameters
from hashlearn.experiments.summary import group_outcomes

SHAPES = {"train": [500, 20], "database": [600, 20], "queries": [70, 20]}
MACHINE = {
    "processor": "a processor", "cores": 2, "python": "3.12.1", "numpy": "2.1.0", "scipy": "1.14.0",
    "scikit-learn": "1.6.0", "faiss-cpu": "1.9.0", "hashlearn": "0.1.0",
}  # fmt: skip


def make_record(run, **scores):
    """The record of a run; its scores are drawn, but for those that are given (shares, not percent)."""
    rng = np.random.default_rng(zlib.crc32(str(run).encode()))
    level = zlib.crc32(run.entry.name.encode()) % 40 / 100
    names = ["map", "map_expected_ties", *(f"p@{r}" for r in run.setting.protocol.radii)]
    names += ["map_new"] if run.setting.truth == "labels" else []
    names += [f"{kind}@{n}" for kind in ("recall", "real_recall") for n in (10, 50, 100)] if run.recall else []
    drawn = {name: round(level + run.n_bits / 200 + 0.02 * float(rng.random()), 8) for name in names}
    drawn |= {f"empty@{r}": round(float(rng.random()), 8) for r in run.setting.protocol.radii}
    unknown = set(scores) - set(drawn)
    assert not unknown, unknown
    examples = {"queries": [0, 3], "items": [[1, 2, 5], [4, 0, 2]], "distances": [[0, 1, 1], [2, 2, 3]]}
    return {
        "format": FORMAT,
        "key": f"{zlib.crc32(str(run).encode()):016x}",
        "library_method": run.entry.method,
        "n_bits": run.n_bits,
        "seed": run.seed,
        "data": {
            "name": run.data,
            "split": run.split,
            "limit": None if run.limit is None else asdict(run.limit),
            "note": "made up",
            **SHAPES,
        },
        "truth": "50 Euclidean nearest neighbors",
        "setting": {"truth": run.setting.truth, "k": run.setting.k, "protocol": run.setting.protocol.as_dict()},
        "revision": COMPARED[run.entry.method].revision,
        "options": changed_parameters(run.entry),
        "parameters": all_parameters(run.entry),
        "scores": {**drawn, **scores},
        "codes": {
            name: round(float(rng.random()), 8)
            for name in ("imbalance", "max_imbalance", "correlation", "max_correlation", "utilization", "entropy")
        }
        | {"n_codes": int(rng.integers(1, 10**6))},
        "training": {
            "seconds": round(float(rng.random()) * 100, 3),
            "cpu_seconds": round(float(rng.random()) * 200, 3),
            "peak_bytes": int(rng.integers(10**8, 10**9)),
            "warnings": [],
        },
        "encoding_microseconds": round(float(rng.random()) * 20, 3),
        **({"examples": examples} if run.data in ("digits", "mnist", "cifar10") else {}),
        "machine": MACHINE,
        "started": "2026-01-02T03:04:00+00:00",
        "finished": "2026-01-02T03:05:30+00:00",
        "experiment": run.experiment,
        "method": run.entry.name,
        "label": run.entry.label,
    }


def make_records(name, *, methods=None, bits=None, seeds=None):
    """Records of the runs of an experiment, of all or of those that are asked for."""
    chosen = experiment(name)
    return [
        make_record(run)
        for run in plan_runs(chosen, chosen.data[0])
        if (methods is None or run.entry.name in methods)
        and (bits is None or run.n_bits in bits)
        and (seeds is None or run.seed in seeds)
    ]


def make_outcomes(name, values):
    """The outcomes of an experiment whose mAP is ``values[method, n_bits]``: a share for each seed."""
    chosen = experiment(name)
    records = [
        make_record(run, map=values[run.entry.name, run.n_bits][run.seed])
        for run in plan_runs(chosen, chosen.data[0])
        if run.seed < len(values.get((run.entry.name, run.n_bits), ()))
    ]
    (outcomes,) = group_outcomes(records)
    return outcomes
