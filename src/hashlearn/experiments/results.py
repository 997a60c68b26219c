"""Result files: one for each run, under a name that holds a hash of all that the result depends on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import hashlearn
from hashlearn.codes import MAX_BITS
from hashlearn.datasets import Dataset
from hashlearn.evaluation import Setting
from hashlearn.experiments.grid import Entry, Run
from hashlearn.storage import atomic_path, content_key, is_unicode, open_regular, parse_json

__all__ = ["Results", "all_parameters", "fingerprint", "run_key", "run_seconds", "setting_record"]

logger = logging.getLogger(__name__)

#: What a result file looks like; another number is another key.
FORMAT = 1
Record = dict[str, Any]
_NUMBER = (int, float)
_PARTS = ("train", "database", "queries")
_MAX_NUMBER = 1e15  # means and percent of such are numbers too
_MAX_BYTES = 1 << 22  # a thousand times what a result has
# What a reader may rely on, and of what kind it is.
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("experiment", "method", "library_method", "truth", "started", "finished", "key"), str),
    **dict.fromkeys(("n_bits", "seed"), int),
    **dict.fromkeys(("data", "setting", "parameters", "scores", "codes", "training", "machine"), dict),
    "encoding_microseconds": _NUMBER,
}
_WITHIN: dict[str, dict[str, Any]] = {
    "data": {"name": str, **dict.fromkeys(_PARTS, list)},
    "setting": {"truth": str, "protocol": dict},
    "training": {"seconds": _NUMBER, "cpu_seconds": _NUMBER, "warnings": list},
    "machine": {"processor": str, "cores": int, "hashlearn": str},
}


def fingerprint(dataset: Dataset) -> str:
    """A hash of the data, to the byte.

    But computed features of labelled data differ in their last digits from machine to machine: they count by their
    shape. What they are computed from was checked when it was loaded, and the labels say which rows they are.
    """
    parts: list[Any] = [dataset.name]
    arrays = (
        dataset.train,
        *(() if dataset.database is dataset.train else (dataset.database,)),
        dataset.queries,
        dataset.train_labels,
        dataset.database_labels,
        dataset.query_labels,
    )
    for array in arrays:
        if array is None or _is_whole(array) or dataset.query_labels is None:
            parts.append(array)
        else:
            parts += [array.dtype.kind, *array.shape]
    return content_key(*parts)


def _is_whole(array: np.ndarray[Any, Any]) -> bool:
    if array.dtype.kind != "f":
        return True
    some = array[:1000]
    return bool((some == np.round(some)).all())


def all_parameters(entry: Entry) -> dict[str, Any]:
    """All parameters of a method, defaults among them, which may change from version to version."""
    own = {"n_bits", "random_state", "callback", "show_progress"}
    return {name: value for name, value in entry.hasher().get_params().items() if name not in own}


def setting_record(setting: Setting) -> Record:
    """How a run is judged, as plain values."""
    return {"truth": setting.truth, "k": setting.k, "protocol": setting.protocol.as_dict()}


def run_key(run: Run, data: str) -> str:
    """A hash of everything that the run's numbers depend on; ``data``: the fingerprint of its data set.

    The experiment and the method's name in it are not among them: the same run may serve two experiments.
    """
    matters = {
        "format": FORMAT,
        "version": hashlearn.__version__,
        "data": [run.data, run.split, data],
        "truth": [run.setting.truth, run.setting.k],
        "protocol": run.setting.protocol.as_dict(),
        "method": run.entry.method,
        "parameters": all_parameters(run.entry),
        "n_bits": run.n_bits,
        "seed": run.seed,
    }
    return hashlib.sha256(json.dumps(matters, sort_keys=True).encode()).hexdigest()[:16]


def run_seconds(record: Record) -> float:
    """From the start of a run to its end: training, encoding, judging."""
    started, finished = (datetime.fromisoformat(record[name]) for name in ("started", "finished"))
    return max((finished - started).total_seconds(), float(record["training"]["seconds"]))


def _is_result(record: Record) -> bool:
    """Whether it has all that a reader relies on, each of its kind."""

    def fits(values: Record, kinds: dict[str, Any]) -> bool:
        return all(isinstance(values.get(name), kind) for name, kind in kinds.items())

    if record.get("format") != FORMAT or not fits(record, _FIELDS):
        return False
    if not all(fits(record[part], kinds) for part, kinds in _WITHIN.items()):
        return False
    if not all(map(_is_number, _numbers(record))) or not (0 < record["n_bits"] <= MAX_BITS and record["seed"] >= 0):
        return False
    if any(len(record["data"][part]) != 2 for part in _PARTS) or "map" not in record["scores"]:
        return False
    if not all(isinstance(words, str) for words in record["training"]["warnings"]):
        return False
    if not is_unicode(json.dumps(record, ensure_ascii=False)):  # no page could be written of it
        return False
    try:
        return run_seconds(record) >= 0
    except (TypeError, ValueError):  # times that are none
        return False


def _numbers(record: Record) -> Iterator[Any]:
    """All that is reckoned with."""
    training = record["training"]
    yield from chain(record["scores"].values(), record["codes"].values(), *(record["data"][part] for part in _PARTS))
    yield from (record["seed"], record["encoding_microseconds"], record["machine"]["cores"])
    yield from (training["seconds"], training["cpu_seconds"], training.get("peak_bytes") or 0)
    yield record.get("published_neighbours", 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBER) and abs(value) <= _MAX_NUMBER  # which NaN is not


class Results:
    """A folder of result files, ``EXPERIMENT/METHOD-BITS-SEED-KEY.json``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Make the folder and see that it takes files, before long work: an OSError if it does not."""
        probe = self.folder / ".probe"
        with atomic_path(probe) as temporary:
            temporary.write_text("\n")
        probe.unlink(missing_ok=True)

    def path(self, run: Run, key: str) -> Path:
        return self.folder / run.experiment / f"{run.entry.name}-{run.n_bits}-{run.seed}-{key}.json"

    def find(self, run: Run, key: str) -> Record | None:
        """The run's result if it is there; also one of the same run in another experiment, which is then kept here."""
        record = self._read(self.path(run, key))
        if record is not None and record["key"] == key:
            return record
        for other in sorted(self.folder.glob(f"*/*-{run.n_bits}-{run.seed}-{key}.json")):
            record = self._read(other) if other != self.path(run, key) else None
            if record is not None and record["key"] == key:
                return self._named(run, key, record) if self.is_blocked(run, key) else self.write(run, key, record)
        return None

    def is_blocked(self, run: Run, key: str) -> bool:
        """Whether something that is no file has the name of the run's result."""
        path = self.path(run, key)
        return path.exists() and not path.is_file()

    def count(self) -> int:
        """How many result files there are."""
        return sum(1 for _ in self.folder.glob("*/[!.]*.json"))

    def write(self, run: Run, key: str, record: Record) -> Record:
        """Keep a result, whole or not at all."""
        record = self._named(run, key, record)
        with atomic_path(self.path(run, key)) as temporary:
            lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in record.items())
            temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return record

    @staticmethod
    def _named(run: Run, key: str, record: Record) -> Record:
        named = {"experiment": run.experiment, "method": run.entry.name, "label": run.entry.label}
        return {"format": FORMAT, "key": key, **record, **named}

    def all(self) -> Iterator[Record]:
        """Every result in the folder, in the order of the names; of several of one run the latest alone."""
        latest: dict[tuple[Any, ...], Record] = {}
        for path in sorted(self.folder.glob("*/[!.]*.json")):
            record = self._read(path)
            if record is None:
                continue
            data = record["data"]
            of_data = (data["name"], json.dumps(data.get("limit")))
            name = (record["experiment"], *of_data, record["method"], record["n_bits"], record["seed"])
            if name not in latest or latest[name]["finished"] < record["finished"]:
                latest[name] = record
        yield from latest.values()

    @staticmethod
    def _read(path: Path) -> Record | None:
        """What the file holds; None if it is not there, or, with a warning, not a result."""
        try:
            with open_regular(path) as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
            record = parse_json(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s can't be read (%s)", path, error)
            return None
        if isinstance(record, dict) and _is_result(record):
            return record
        logger.warning("%s is not a result file of this version", path)
        return None
