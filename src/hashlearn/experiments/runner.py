"""Make one run: load the data, fit, encode and score, and return everything as JSON values."""

from __future__ import annotations

import platform
import time
import warnings
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hashlearn._arrays import Bytes, Ids
from hashlearn.codes import hamming
from hashlearn.datasets import Dataset, cifar10_images, deep_hashing_split, load
from hashlearn.evaluation import Truth, bit_statistics, evaluate, evaluate_all, evaluate_search
from hashlearn.experiments.grid import Limit, Run
from hashlearn.experiments.results import Record, all_parameters, changed_parameters, setting_record
from hashlearn.experiments.scoring import dataset_truth
from hashlearn.hashers import Hasher
from hashlearn.interchange.quantizers import ProductQuantizer
from hashlearn.memory import forget_peak, peak_memory
from hashlearn.search import HammingIndex, search_real
from hashlearn.threads import cores

# Queries whose nearest items are recorded, to be shown.
_N_EXAMPLES, _N_NEAREST = 8, 10
# Among how many of the first items the true neighbors are counted. Those that are not among the first 10, but 100, are
# found if 100 items are compared again by their vectors.
_FIRST = (10, 50, 100)
# Data sets of images.
_WITH_IMAGES = ("digits", "mnist", "cifar10")
_DIGITS = 8
# Which rows a study holds out, and the number of splits of cifar10-dh whose queries it must not use.
_HELD_OUT_SEED, _N_SPLITS = 123, 10


class Runner:
    """Makes runs, one after another; keeps the data set and the truth of the last one for the next."""

    def __init__(self) -> None:
        self._data: tuple[Any, Dataset] | None = None
        self._truth: tuple[Any, Truth] | None = None

    def dataset(self, run: Run) -> Dataset:
        """Return the data of a run: of the test, of the training set alone (a study), or with new samples to search."""
        source = (run.data, run.split, run.limit, run.held_out, run.new_samples)
        if self._data is None or self._data[0] != source:
            self._data = self._truth = None  # frees the memory first
            dataset = load(run.data, split=run.split or 0)
            if run.held_out:
                dataset = _hold_out(dataset, run.held_out)
            if run.new_samples:
                dataset = _search_queries(dataset)
            self._data = (source, dataset if run.limit is None else _first(dataset, run.limit))
        return self._data[1]

    def truth(self, run: Run) -> Truth:
        dataset = self.dataset(run)
        rule = (run.setting.truth, run.setting.k)
        if self._truth is None or self._truth[0] != rule:
            self._truth = (rule, dataset_truth(dataset, run.setting, show_progress=False))
        return self._truth[1]

    def run(self, run: Run) -> Record:
        """Fit, encode and score, and return the record."""
        started = _now()
        dataset, truth = self.dataset(run), self.truth(run)
        hasher = run.entry.hasher().set_params(n_bits=run.n_bits)
        if "show_progress" in hasher.get_params():
            hasher.set_params(show_progress=False)
        if hasher.is_random:
            hasher.set_params(random_state=run.seed)
        has_peak = forget_peak()
        start, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            hasher.fit(dataset.train, dataset.train_labels if hasher.supervised else None)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = peak_memory() if has_peak else None
        start = time.perf_counter()
        codes = hasher.encode(dataset.database)
        encoding = time.perf_counter() - start
        statistics, examples = {}, {}
        if isinstance(hasher, ProductQuantizer):
            scores = _recall("real_recall", hasher.search(dataset.queries, codes, _FIRST[-1]).ids, truth)
        else:
            query_codes, statistics = hasher.encode(dataset.queries), bit_statistics(codes, run.n_bits).as_dict()
            if run.data in _WITH_IMAGES:
                examples = {"examples": _examples(query_codes, codes)}
            scores = _scores(query_codes, codes, dataset, run, truth)
            if run.recall:
                scores |= _recalls(hasher, query_codes, codes, dataset, truth)
        return {
            "library_method": run.entry.method,
            "n_bits": run.n_bits,
            "seed": run.seed,
            "data": {
                "name": run.data,
                "split": run.split,
                "limit": None if run.limit is None else asdict(run.limit),
                **({"held_out": run.held_out} if run.held_out else {}),
                **({"new_samples": True} if run.new_samples else {}),
                "note": dataset.note,
                **{part: list(getattr(dataset, part).shape) for part in ("train", "database", "queries")},
            },
            "truth": truth.description,
            **_agreement(dataset, run, truth),
            "setting": setting_record(run.setting),
            "revision": hasher.revision,
            "options": changed_parameters(run.entry),
            "parameters": all_parameters(run.entry),
            "scores": {name: round(value, _DIGITS) for name, value in scores.items()},
            "codes": {name: round(value, _DIGITS) for name, value in statistics.items()},
            "training": {
                "seconds": round(seconds, 3),
                "cpu_seconds": round(cpu, 3),
                "peak_bytes": peak,
                "warnings": sorted({" ".join(str(warning.message).split()) for warning in caught}),
                **{name: _plain(value) for name, value in hasher.summary().items()},
            },
            "encoding_microseconds": round(1e6 * encoding / len(dataset.database), 3),
            **examples,
            "machine": machine(),
            "started": started,
            "finished": _now(),
        }


def _first(dataset: Dataset, limit: Limit) -> Dataset:
    """Keep the first vectors of each part. The published neighbors are of all vectors, and dropped."""

    def cut(rows: Any, n: int) -> Any:
        return None if rows is None else rows[:n]

    train = cut(dataset.train, limit.train)
    return replace(
        dataset,
        train=train,
        database=train if dataset.database is dataset.train else cut(dataset.database, limit.train),
        queries=cut(dataset.queries, limit.queries),
        train_labels=cut(dataset.train_labels, limit.train),
        database_labels=cut(dataset.database_labels, limit.train),
        query_labels=cut(dataset.query_labels, limit.queries),
        ground_truth=None,
    )


def _hold_out(dataset: Dataset, n_queries: int) -> Dataset:
    """Split the training set: some rows become queries, the others are trained on and searched.

    No row is used that is a test query: of another split either, where splits are drawn.
    """
    X, labels = dataset.train, dataset.train_labels
    rows = np.arange(len(X))
    if dataset.name == "cifar10-dh":
        images = cifar10_images(show_progress=False)
        every = np.concatenate([images.train_labels, images.test_labels])
        tests = np.concatenate([deep_hashing_split(every, split)[0] for split in range(_N_SPLITS)])
        rows = rows[~np.isin(deep_hashing_split(every, 0)[1], tests)]
    rows = np.random.default_rng(_HELD_OUT_SEED).permutation(rows)
    queries, rest = np.sort(rows[:n_queries]), np.sort(rows[n_queries:])
    train, train_labels = X[rest], None if labels is None else labels[rest]
    return replace(
        dataset,
        train=train,
        database=train,
        queries=X[queries],
        train_labels=train_labels,
        database_labels=train_labels,
        query_labels=None if labels is None else labels[queries],
        ground_truth=None,
    )


def _search_queries(dataset: Dataset) -> Dataset:
    """Split the queries: the even ones search among the odd ones, none of which is trained on."""
    labels = dataset.query_labels
    return replace(
        dataset,
        database=dataset.queries[1::2],
        queries=dataset.queries[::2],
        database_labels=None if labels is None else labels[1::2],
        query_labels=None if labels is None else labels[::2],
        ground_truth=None,
    )


@cache
def machine() -> dict[str, Any]:
    """Describe the machine, on which the times of a run depend."""
    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": cores(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn", "faiss-cpu", "hashlearn")},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _agreement(dataset: Dataset, run: Run, truth: Truth) -> dict[str, float]:
    """Return the share of the published nearest neighbors that are among as many of ours."""
    published = dataset.ground_truth
    if published is None or run.setting.k is None:
        return {}
    k = min(published.shape[1], run.setting.k)
    shared = [np.isin(row[:k], truth.relevant(query)[:k]).mean() for query, row in enumerate(published)]
    return {"published_neighbors": round(float(np.mean(shared)), _DIGITS)}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _scores(query_codes: Bytes, codes: Bytes, dataset: Dataset, run: Run, truth: Truth) -> dict[str, float]:
    """Score codes by the run's protocol, by expectation over ties, and, with labels, among the queries alone."""
    protocols = [run.setting.protocol, replace(run.setting.protocol, ties="expected")]
    scores, expected = evaluate_all(query_codes, codes, truth, protocols, n_bits=run.n_bits, show_progress=False)
    values = {
        "map": scores.map,
        "map_standard_error": float(np.std(scores.average_precision) / len(query_codes) ** 0.5),
    }
    values |= {f"p@{r}": p for r, p in scores.precision_at_radius.items()}
    values |= {f"empty@{r}": share for r, share in scores.empty_at_radius.items()}
    values["map_expected_ties"] = expected.map
    if run.setting.truth == "labels":
        values["map_new"] = _among_queries(query_codes, dataset, run)
    return values


def _recalls(hasher: Hasher, query_codes: Bytes, codes: Bytes, dataset: Dataset, truth: Truth) -> dict[str, float]:
    """Recall by Hamming distance, and with real-valued queries unless the method refuses them."""
    index = HammingIndex(hasher.n_bits_)
    index.add(codes)
    scores = _recall("recall", index.search(query_codes, k=_FIRST[-1]).ids, truth)
    if not hasher.has_query_values:
        return scores
    values = hasher.query_values(dataset.queries)
    found = search_real(values, codes, _FIRST[-1], n_bits=hasher.n_bits_, offsets=hasher.code_offsets(codes))
    return scores | _recall("real_recall", found.ids, truth)


def _recall(name: str, ids: Ids, truth: Truth) -> dict[str, float]:
    """The mean share of the true neighbors that are among the first items found, by their number."""
    scores = evaluate_search(ids, truth, k=_FIRST)
    return {f"{name}@{first}": scores[f"recall@{first}"] for first in _FIRST}


def _among_queries(query_codes: Bytes, dataset: Dataset, run: Run) -> float:
    """Return the mAP on new samples: the even queries search among the odd ones, none of which was trained on."""
    truth = dataset_truth(_search_queries(dataset), run.setting)
    codes = (query_codes[::2], query_codes[1::2])
    return evaluate(*codes, truth, n_bits=run.n_bits, protocol=run.setting.protocol, show_progress=False).map


def _examples(query_codes: Bytes, codes: Bytes) -> dict[str, Any]:
    """Return a few queries, and the items with the nearest codes by Hamming distance."""
    queries = np.linspace(0, len(query_codes) - 1, _N_EXAMPLES).astype(int)
    distances = hamming(query_codes[queries], codes)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :_N_NEAREST]
    return {
        "queries": queries.tolist(),
        "items": nearest.tolist(),
        "distances": np.take_along_axis(distances, nearest, axis=1).tolist(),
    }
