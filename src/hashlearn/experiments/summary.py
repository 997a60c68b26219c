"""Results over their seeds: what tables, figures and claims are made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from hashlearn.datasets import DATASETS
from hashlearn.experiments.grid import (
    Entry,
    Experiment,
    Run,
    entry_setting,
    experiment,
    is_drawn,
    names,
    plan_runs,
    quick,
    study_names,
)
from hashlearn.experiments.results import Record, changed_parameters, setting_record
from hashlearn.hashers import METHODS

__all__ = ["Cell", "Outcomes", "group_outcomes", "measure_label", "signed_points"]

_MEASURES = {
    "map": "mAP",
    "map_new": "mAP among new samples",
    "map_expected_ties": "mAP with ties by expectation",
}


def measure_label(measure: str) -> str:
    """A measure of ``scores`` as people write it: mAP, P@3."""
    kind, _, radius = measure.partition("@")
    if kind == "empty":
        return f"queries with nothing within {radius}, percent,"
    return _MEASURES.get(measure, measure.upper() if kind == "p" else measure)


def signed_points(value: float, digits: int = 2) -> str:
    """``+1.20`` or ``−0.35``."""
    return f"{value:+.{digits}f}".replace("-", "−")


@dataclass(frozen=True)
class Cell:
    """One measure of one method at one length, by seed (or by split)."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def std(self) -> float | None:
        """Standard deviation over the seeds; None for a single run."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None for a single run, of which it is not known."""
        return None if self.std is None else self.std / math.sqrt(len(self.values))

    def words(self, *, signed: bool = False) -> str:
        """Mean ± standard deviation; the mean alone of a single run."""
        mean = signed_points(self.mean) if signed else f"{self.mean:.2f}"
        return mean if self.std is None else f"{mean} ± {self.std:.2f}"


@dataclass(frozen=True)
class Outcomes:
    """The results of one experiment on one data set. Shares are in percent here."""

    experiment: Experiment
    data: str
    records: tuple[Record, ...]

    def of(self, method: str, n_bits: int) -> list[Record]:
        """The records of a method at a length, by seed."""
        found = [record for record in self.records if (record["method"], record["n_bits"]) == (method, n_bits)]
        return sorted(found, key=lambda record: int(record["seed"]))

    def cell(self, method: str, n_bits: int, measure: str) -> Cell | None:
        """A measure, seed by seed; None if there is no run that has it."""
        values = self._by_seed(method, n_bits, measure)
        return Cell(tuple(values.values())) if values else None

    def _by_seed(self, method: str, n_bits: int, measure: str) -> dict[int, float]:
        """Of ``scores`` in percent, or of ``codes`` as it is."""
        found = {}
        for record in self.of(method, n_bits):
            if measure in record["scores"]:
                found[record["seed"]] = 100 * record["scores"][measure]
            elif measure in record["codes"]:
                found[record["seed"]] = record["codes"][measure]
        return found

    def number(self, method: str, n_bits: int, part: str, name: str) -> Cell | None:
        """Another number of the records, such as ``("training", "seconds")``, as it is."""
        values = [r[part][name] for r in self.of(method, n_bits) if r[part].get(name) is not None]
        return Cell(tuple(map(float, values))) if values else None

    def paired(self, method: str, other: str, n_bits: int, measure: str) -> tuple[Cell, Cell] | None:
        """Both methods' values of the seeds that both have; one that draws nothing has the same at each."""
        ours, theirs = (self._by_seed(name, n_bits, measure) for name in (method, other))
        for own, name, others in ((ours, method, theirs), (theirs, other, ours)):
            if len(own) == 1 and not is_drawn(self.experiment, self._entry(name), self.data):
                own |= dict.fromkeys(others, *own.values())
        seeds = [seed for seed in ours if seed in theirs]
        if not seeds:
            return None
        return Cell(tuple(ours[seed] for seed in seeds)), Cell(tuple(theirs[seed] for seed in seeds))

    def difference(self, method: str, other: str, n_bits: int, measure: str) -> Cell | None:
        """``method`` minus ``other``, seed by seed."""
        pair = self.paired(method, other, n_bits, measure)
        return None if pair is None else Cell(tuple(a - b for a, b in zip(pair[0].values, pair[1].values, strict=True)))

    @property
    def plan(self) -> Experiment:
        """The experiment as it was run: the grid's, or its small version on this data set."""
        return quick(self.experiment, self.data) if self.small else self.experiment

    def planned(self) -> list[Run]:
        """The runs that the grid asks for on this data set."""
        return list(plan_runs(self.plan, self.data))

    def missing(self) -> list[Run]:
        """Those of them that there is no result of."""
        there = {(record["method"], record["n_bits"], record["seed"]) for record in self.records}
        return [run for run in self.planned() if (run.entry.name, run.n_bits, run.seed) not in there]

    @property
    def small(self) -> bool:
        """Whether these are of a small version of the experiment, which says nothing of the paper."""
        return any(record["data"].get("limit") for record in self.records)

    @property
    def methods(self) -> list[str]:
        """Those that there is a result of, in the grid's order."""
        there = {record["method"] for record in self.records}
        return [name for name in self.experiment.methods if name in there]

    @property
    def bits(self) -> list[int]:
        """The lengths that there is a result of."""
        return sorted({int(record["n_bits"]) for record in self.records})

    def label(self, method: str) -> str:
        return self._entry(method).label

    def _entry(self, method: str) -> Entry:
        return next(entry for entry in self.experiment.entries if entry.name == method)


def group_outcomes(records: Iterable[Record]) -> list[Outcomes]:
    """The results by experiment, in the grid's order, and data set, small versions apart.

    Without those of data sets, methods, parameters or settings that are not the grid's (any more): a mean over them
    says nothing.
    """
    groups: dict[tuple[str, str, bool], list[Record]] = {}
    for record in records:
        data = record["data"]
        groups.setdefault((record["experiment"], data["name"], bool(data.get("limit"))), []).append(record)
    found = []
    for name in (*names(), *study_names()):
        for (own, data, small), group in groups.items():
            if own != name or data not in (DATASETS if small else experiment(name).data):
                continue
            outcomes = Outcomes(experiment(name), data, tuple(group))
            wanted = {entry.name: _identity(outcomes.plan, entry) for entry in outcomes.plan.entries}
            fitting = tuple(record for record in group if _record_identity(record) == wanted.get(record["method"]))
            if fitting:
                found.append(replace(outcomes, records=fitting))
    return found


def _identity(plan: Experiment, entry: Entry) -> str:
    """What all runs of an entry in an experiment have in common, whatever their length and seed."""
    revision, setting = METHODS[entry.method].revision, setting_record(entry_setting(plan, entry))
    return json.dumps([entry.method, revision, changed_parameters(entry), setting], sort_keys=True)


def _record_identity(record: Record) -> str:
    names = ("library_method", "revision", "options", "setting")
    return json.dumps([record[name] for name in names], sort_keys=True)
