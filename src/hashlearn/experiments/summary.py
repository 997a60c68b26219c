"""Results grouped by experiment and averaged over seeds: the input of tables, charts and claims."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from hashlearn.datasets import DATASETS
from hashlearn.experiments import grid
from hashlearn.experiments.grid import COMPARED, Entry, Experiment, Run
from hashlearn.experiments.results import Record, changed_parameters, setting_record

_MEASURES = {
    "map": "mAP",
    "map_new": "mAP among new samples",
    "map_expected_ties": "mAP with ties by expectation",
}


def measure_label(measure: str) -> str:
    """Return the usual name of a measure: mAP, P@3, recall@10."""
    kind, _, radius = measure.partition("@")
    if kind == "empty":
        return f"queries with nothing within {radius}, percent,"
    if kind == "real_recall":
        return f"recall@{radius}, real-valued queries"
    return _MEASURES.get(measure, measure.upper() if kind == "p" else measure)


def signed_points(value: float, digits: int = 2) -> str:
    """Format a difference in points: ``+1.20`` or ``−0.35``."""
    return f"{value:+.{digits}f}".replace("-", "−")


@dataclass(frozen=True)
class Cell:
    """The values of one measure of one method at one number of bits, one for each seed or split."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation; None for a single run."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for a single run."""
        return None if self.std is None else self.std / math.sqrt(len(self.values))

    def words(self, *, signed: bool = False) -> str:
        """Format as mean ± standard deviation, or as the mean of a single run."""
        mean = signed_points(self.mean) if signed else f"{self.mean:.2f}"
        return mean if self.std is None else f"{mean} ± {self.std:.2f}"


@dataclass(frozen=True)
class Outcomes:
    """The results of one experiment on one data set, with scores in percent."""

    experiment: Experiment
    data: str
    records: tuple[Record, ...]

    def select(self, method: str, n_bits: int) -> list[Record]:
        """Return the records of a method at a number of bits, by seed."""
        records = [record for record in self.records if (record["method"], record["n_bits"]) == (method, n_bits)]
        return sorted(records, key=lambda record: int(record["seed"]))

    def cell(self, method: str, n_bits: int, measure: str) -> Cell | None:
        """Return the values of a measure; None if no run has it."""
        values = self._by_seed(method, n_bits, measure)
        return Cell(tuple(values.values())) if values else None

    def _by_seed(self, method: str, n_bits: int, measure: str) -> dict[int, float]:
        """Return a measure by seed: of ``scores`` in percent, or of ``codes`` unchanged."""
        values = {}
        for record in self.select(method, n_bits):
            if measure in record["scores"]:
                values[record["seed"]] = 100 * record["scores"][measure]
            elif measure in record["codes"]:
                values[record["seed"]] = record["codes"][measure]
        return values

    def paired(self, method: str, other: str, n_bits: int, measure: str) -> tuple[Cell, Cell] | None:
        """Return both methods' values at the seeds that both have.

        The single value of a method that draws nothing counts for every seed.
        """
        ours, theirs = (self._by_seed(name, n_bits, measure) for name in (method, other))
        for values, name, others in ((ours, method, theirs), (theirs, other, ours)):
            if len(values) == 1 and not grid.depends_on_seed(self.experiment, self.experiment.entry(name), self.data):
                values |= dict.fromkeys(others, *values.values())
        seeds = [seed for seed in ours if seed in theirs]
        if not seeds:
            return None
        return Cell(tuple(ours[seed] for seed in seeds)), Cell(tuple(theirs[seed] for seed in seeds))

    def difference(self, method: str, other: str, n_bits: int, measure: str) -> Cell | None:
        """Return ``method`` minus ``other``, seed by seed."""
        pair = self.paired(method, other, n_bits, measure)
        return None if pair is None else Cell(tuple(a - b for a, b in zip(pair[0].values, pair[1].values, strict=True)))

    @property
    def plan(self) -> Experiment:
        """The experiment as it was run: in full, or its small version on this data set."""
        return grid.quick(self.experiment, self.data) if self.small else self.experiment

    def planned(self) -> list[Run]:
        """Return all runs of the experiment on this data set."""
        return list(grid.plan_runs(self.plan, self.data))

    def missing(self) -> list[Run]:
        """Return the runs that have no result."""
        done = {(record["method"], record["n_bits"], record["seed"]) for record in self.records}
        return [run for run in self.planned() if (run.entry.name, run.n_bits, run.seed) not in done]

    @property
    def small(self) -> bool:
        """Whether these are results of a small version, which says nothing about the paper."""
        return any(record["data"].get("limit") for record in self.records)

    @property
    def methods(self) -> list[str]:
        """The methods that have results, in the order of the grid."""
        done = {record["method"] for record in self.records}
        return [name for name in self.experiment.methods if name in done]

    @property
    def bits(self) -> list[int]:
        """The numbers of bits that have results."""
        return sorted({int(record["n_bits"]) for record in self.records})

    def label(self, method: str) -> str:
        return self.experiment.entry(method).label


def group_outcomes(records: Iterable[Record]) -> list[Outcomes]:
    """Group results by experiment, in the order of the grid, and by data set; small versions are separate.

    Results of data sets, methods, revisions, parameters or settings that are not in the grid (any more) are left out.
    """
    groups: dict[tuple[str, str, bool], list[Record]] = {}
    for record in records:
        data = record["data"]
        groups.setdefault((record["experiment"], data["name"], bool(data.get("limit"))), []).append(record)
    outcomes = []
    for name in (*grid.names(), *grid.study_names()):
        for (other, data, small), group in groups.items():
            if other != name or data not in (DATASETS if small else grid.experiment(name).data):
                continue
            one = Outcomes(grid.experiment(name), data, tuple(group))
            identities = {entry.name: _identity(one.plan, entry) for entry in one.plan.entries}
            fitting = tuple(record for record in group if _record_identity(record) == identities.get(record["method"]))
            if fitting:
                outcomes.append(replace(one, records=fitting))
    return outcomes


def _identity(plan: Experiment, entry: Entry) -> str:
    """What all runs of an entry in an experiment have in common, whatever their length and seed."""
    revision, setting = COMPARED[entry.method].revision, setting_record(grid.entry_setting(plan, entry))
    return json.dumps([entry.method, revision, changed_parameters(entry), setting], sort_keys=True)


def _record_identity(record: Record) -> str:
    names = ("library_method", "revision", "options", "setting")
    return json.dumps([record[name] for name in names], sort_keys=True)
