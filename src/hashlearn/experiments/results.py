"""Results of runs: one JSON-lines file per experiment, each line keyed by everything that its numbers depend on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from hashlearn._arrays import Array
from hashlearn.codes import MAX_BITS
from hashlearn.datasets import Dataset
from hashlearn.evaluation import Setting
from hashlearn.experiments.grid import COMPARED, Entry, Run
from hashlearn.storage import atomic_path, content_key, is_unicode, open_regular, parse_json, sync_folder

logger = logging.getLogger(__name__)

#: The version of a record's fields; part of every key.
FORMAT = 1
# How every line begins.
_BEGINNING = b'{"format": '
Record = dict[str, Any]
_NUMBER = (int, float)
_PARTS = ("train", "database", "queries")
_MAX_NUMBER = 1e15  # so that means and percentages are finite too
_MAX_BYTES = 1 << 22  # of a line: a thousand times the size of a record
# The fields that readers rely on, with their types.
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("experiment", "method", "library_method", "truth", "started", "finished", "key"), str),
    **dict.fromkeys(("n_bits", "seed", "revision"), int),
    **dict.fromkeys(("data", "setting", "parameters", "options", "scores", "codes", "training", "machine"), dict),
    "encoding_microseconds": _NUMBER,
}
_NESTED_FIELDS: dict[str, dict[str, Any]] = {
    "data": {"name": str, **dict.fromkeys(_PARTS, list)},
    "setting": {"truth": str, "protocol": dict},
    "training": {"seconds": _NUMBER, "cpu_seconds": _NUMBER, "warnings": list},
    "machine": {"processor": str, "cores": int, "hashlearn": str},
}


def fingerprint(dataset: Dataset) -> str:
    """Hash the content of a data set.

    Arrays are hashed byte by byte, with one exception: computed features are hashed by their shape, because their last
    digits differ between machines. The files that they are computed from are verified when they are loaded; the labels,
    or ``dataset.content``, identify the rows.
    """
    parts: list[Any] = [dataset.name] if dataset.content is None else [dataset.name, dataset.content]
    computed = dataset.query_labels is not None or dataset.content is not None
    arrays = (
        dataset.train,
        *(() if dataset.database is dataset.train else (dataset.database,)),
        dataset.queries,
        dataset.train_labels,
        dataset.database_labels,
        dataset.query_labels,
    )
    for array in arrays:
        if array is None or not computed or _is_whole(array):
            parts.append(array)
        else:
            parts += [array.dtype.kind, *array.shape]
    return content_key(*parts)


def _is_whole(array: Array) -> bool:
    """Whether an array holds integers, whatever its type."""
    if array.dtype.kind != "f":
        return True
    sample = array[:1000]
    return bool((sample == np.round(sample)).all())


def all_parameters(entry: Entry) -> dict[str, Any]:
    """Return all parameters of an entry's method, defaults included."""
    excluded = {"n_bits", "random_state", "callback", "show_progress"}
    return {name: value for name, value in entry.hasher().get_params().items() if name not in excluded}


def changed_parameters(entry: Entry) -> dict[str, Any]:
    """Return the parameters of an entry that differ from its method's defaults."""
    defaults = COMPARED[entry.method]().get_params()
    return {name: value for name, value in all_parameters(entry).items() if value != defaults[name]}


def setting_record(setting: Setting) -> Record:
    """Return a setting as JSON values."""
    return {"truth": setting.truth, "k": setting.k, "protocol": setting.protocol.as_dict()}


def run_key(run: Run, data: str) -> str:
    """Hash everything that the numbers of a run depend on.

    The method counts by its name, its revision and the parameters that are not defaults: a release of the package, or a
    new parameter whose default changes nothing, keeps all results, and a changed default needs a new revision. The
    names of the experiment and of the entry do not count, so that two experiments can share a run.

    Parameters
    ----------
    run : Run
    data : str
        The fingerprint of the run's data set.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    ingredients = {
        "format": FORMAT,
        "data": [run.data, run.split, data],
        "setting": setting_record(run.setting),
        "method": run.entry.method,
        "revision": COMPARED[run.entry.method].revision,
        "options": changed_parameters(run.entry),
        "n_bits": run.n_bits,
        "seed": run.seed,
    }
    return hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()[:16]


def run_seconds(record: Record) -> float:
    """Return the seconds from the start of a run to its end: training, encoding and scoring."""
    started, finished = (datetime.fromisoformat(record[name]) for name in ("started", "finished"))
    return max((finished - started).total_seconds(), float(record["training"]["seconds"]))


def _is_result(record: Any) -> bool:
    """Whether a record has every field that readers rely on, with the right type and range."""

    def fits(values: Record, kinds: dict[str, Any]) -> bool:
        return all(isinstance(values.get(name), kind) for name, kind in kinds.items())

    if not isinstance(record, dict) or record.get("format") != FORMAT or not fits(record, _FIELDS):
        return False
    if not all(fits(record[part], kinds) for part, kinds in _NESTED_FIELDS.items()):
        return False
    if not all(map(_is_number, _numbers(record))) or not (0 < record["n_bits"] <= MAX_BITS and record["seed"] >= 0):
        return False
    if any(len(record["data"][part]) != 2 for part in _PARTS) or not {"map", "real_recall@10"} & set(record["scores"]):
        return False
    if not all(isinstance(words, str) for words in record["training"]["warnings"]):
        return False
    if not is_unicode(json.dumps(record, ensure_ascii=False)):  # no page could show it
        return False
    try:
        return run_seconds(record) >= 0
    except (TypeError, ValueError):  # invalid times
        return False


def _has_measures(record: Record, run: Run) -> bool:
    """Whether a record has the recalls, or the mean average precision, that a run measures."""
    return any(name.endswith("recall@10") if run.recall else name == "map" for name in record["scores"])


def _numbers(record: Record) -> Iterator[Any]:
    """Yield every value that is used in arithmetic."""
    training = record["training"]
    yield from chain(record["scores"].values(), record["codes"].values(), *(record["data"][part] for part in _PARTS))
    yield from (record["seed"], record["encoding_microseconds"], record["machine"]["cores"])
    yield from (training["seconds"], training["cpu_seconds"], training.get("peak_bytes") or 0)
    yield record.get("published_neighbors", 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBER) and abs(value) <= _MAX_NUMBER  # false for NaN


class Results:
    """A folder of results, one JSON-lines file per experiment.

    Results are appended and never changed, so that whatever ends a process, it costs at most the line being written:
    readers ignore a last line without its end, and the next writer removes it. A damaged line elsewhere is reported and
    counts as missing.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loaded: dict[Path, tuple[Any, dict[tuple[str, str], Record]]] = {}
        self._reported: set[str] = set()

    def check(self) -> None:
        """Create the folder, and check that it can be written and holds nothing but results of this version.

        Raises
        ------
        OSError
            The folder or a file in it can't be read or written.
        ValueError
            A file in it is not a file of results.
        """
        probe = self.folder / ".probe"
        with atomic_path(probe) as temporary:
            temporary.write_text("\n")
        probe.unlink(missing_ok=True)
        self.count()

    def path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"

    def find(self, run: Run, key: str) -> Record | None:
        """Return the result with this key, or None.

        A result that another experiment or another entry has is copied under the names of this run. One without the
        recalls that this run measures does not count.
        """
        record = self._load(self.path(run.experiment)).get((key, run.entry.name))
        if record is not None and _has_measures(record, run):
            return record
        for path in self._paths():
            for (other, _), record in self._load(path).items():
                if other == key and _has_measures(record, run):
                    return self.write(run, key, record)
        return None

    def count(self) -> int:
        """Return the number of results in the folder."""
        return sum(len(self._load(path)) for path in self._paths())

    def write(self, run: Run, key: str, record: Record) -> Record:
        """Append a result, and return it with the names of its run.

        Raises
        ------
        OSError
            It can't be written. The file is left as it was.
        """
        names = {"experiment": run.experiment, "method": run.entry.name, "label": run.entry.label}
        record = {"format": FORMAT, "key": key, **record, **names}
        self.folder.mkdir(parents=True, exist_ok=True)
        _append_line(self.path(run.experiment), json.dumps(record))
        return record

    def all(self) -> Iterator[Record]:
        """Yield every result in the folder, file by file; of several results of one run, only the latest."""
        latest: dict[tuple[Any, ...], Record] = {}
        for record in chain.from_iterable(self._load(path).values() for path in self._paths()):
            data = record["data"]
            dataset = (data["name"], json.dumps(data.get("limit")))
            run = (record["experiment"], *dataset, record["method"], record["n_bits"], record["seed"])
            if run not in latest or latest[run]["finished"] <= record["finished"]:
                latest[run] = record
        yield from latest.values()

    def _paths(self) -> list[Path]:
        if any(self.folder.glob("*/*-*-*-*.json")):
            raise ValueError(
                f"{self.folder} holds results of an older version, one file per run, which this version does not read; "
                "choose another folder."
            )
        return sorted(self.folder.glob("[!.]*.jsonl"))

    def _load(self, path: Path) -> dict[tuple[str, str], Record]:
        """Return the results in a file by key and method; read again only when the file has changed."""
        try:
            state = os.stat(path)
        except FileNotFoundError:
            return {}
        stamp = (state.st_ino, state.st_size, state.st_mtime_ns)
        if path not in self._loaded or self._loaded[path][0] != stamp:
            records = {(record["key"], record["method"]): record for record in self._read(path)}
            self._loaded[path] = (stamp, records)
        return self._loaded[path][1]

    def _read(self, path: Path) -> list[Record]:
        records, damaged = [], []
        with open_regular(path) as file:
            _lock(file, exclusive=False)  # no line is half written meanwhile
            for number, line in enumerate(iter(lambda: file.readline(_MAX_BYTES + 1), b""), 1):
                if len(line) > _MAX_BYTES:
                    raise ValueError(f"{path} is not a file of results: line {number} is too long.")
                if not line.endswith(b"\n"):
                    if not _may_be_torn(line):
                        damaged.append(f"line {number} is not a result")
                        break
                    self._report(f"{path}: line {number} is cut off, and counts as missing")
                    break
                try:
                    record = parse_json(line)
                except ValueError as error:
                    damaged.append(f"line {number} can't be read ({error})")
                    continue
                if _is_result(record):
                    records.append(record)
                else:
                    damaged.append(f"line {number} is not a result of this version")
        if damaged and not records:
            raise ValueError(f"{path} is not a file of results: {damaged[0]}. Remove it, or choose another folder.")
        for reason in damaged:
            self._report(f"{path}: {reason}, and counts as missing")
        return records

    def _report(self, message: str) -> None:
        """Log a warning once, although a file is read after every change."""
        if message not in self._reported:
            self._reported.add(message)
            logger.warning("%s", message)


def _append_line(path: Path, line: str) -> None:
    """Append a line to a file and flush it to the disk: the whole line, or nothing."""
    is_new = not path.exists()
    with path.open("ab+", buffering=0) as file:
        _lock(file, exclusive=True)
        end = _cut_torn_line(file)
        try:
            rest = memoryview(line.encode() + b"\n")
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.truncate(end)
            raise
    if is_new:
        sync_folder(path.parent)


def _cut_torn_line(file: IO[bytes]) -> int:
    """Remove a last line that has no end, to which the next would be glued; return the size."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    if file.read(1) in (b"\n", b""):
        return size
    file.seek(0)
    content = file.read(size)
    end = content.rfind(b"\n") + 1
    if not _may_be_torn(content[end:]):
        raise ValueError(f"{file.name} ends with something that is not a result. Remove it, or choose another folder.")
    return file.truncate(end)


def _may_be_torn(line: bytes) -> bool:
    """Whether a line without an end may be the beginning of a record."""
    return _BEGINNING.startswith(line[: len(_BEGINNING)])


def _lock(file: IO[bytes], *, exclusive: bool) -> None:
    """Wait for a lock on a file. The system releases it when the file is closed or the process ends."""
    if sys.platform != "win32":
        import fcntl

        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
