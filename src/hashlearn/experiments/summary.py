"""Results over their seeds: what tables, figures and claims are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from hashlearn.experiments.grid import Experiment, Run, experiment, names, quick, runs_of
from hashlearn.experiments.results import Record

__all__ = ["Cell", "Outcomes", "measure_label", "outcomes_of", "signed_points"]

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
    return _MEASURES.get(measure, measure.upper())


def signed_points(value: float) -> str:
    """``+1.20`` or ``−0.35``."""
    return f"{value:+.2f}".replace("-", "−")


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
    def error(self) -> float:
        """Standard error of the mean; 0 for a single run, of which it is not known."""
        return 0.0 if self.std is None else self.std / math.sqrt(len(self.values))

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
        """A measure of ``scores``, in percent; None if there is no run that has it."""
        values = [100 * r["scores"][measure] for r in self.of(method, n_bits) if measure in r["scores"]]
        return Cell(tuple(values)) if values else None

    def number(self, method: str, n_bits: int, part: str, name: str) -> Cell | None:
        """Another number of the records, such as ``("training", "seconds")``, as it is."""
        values = [r[part][name] for r in self.of(method, n_bits) if r[part].get(name) is not None]
        return Cell(tuple(map(float, values))) if values else None

    def difference(self, method: str, other: str, n_bits: int, measure: str) -> Cell | None:
        """``method`` minus ``other`` in percentage points, seed by seed; of the seeds that both have."""
        ours, theirs = (
            {r["seed"]: 100 * r["scores"][measure] for r in self.of(name, n_bits) if measure in r["scores"]}
            for name in (method, other)
        )
        values = tuple(ours[seed] - theirs[seed] for seed in ours if seed in theirs)
        return Cell(values) if values else None

    @property
    def plan(self) -> Experiment:
        """The experiment as it was run: the grid's, or its small version on this data set."""
        return quick(self.experiment, self.data) if self.small else self.experiment

    def planned(self) -> list[Run]:
        """The runs that the grid asks for on this data set."""
        return list(runs_of(self.plan, self.data))

    def missing(self) -> list[Run]:
        """Those of them that there is no result of."""
        there = {(record["method"], record["n_bits"], record["seed"]) for record in self.records}
        return [run for run in self.planned() if (run.entry.name, run.n_bits, run.seed) not in there]

    @property
    def small(self) -> bool:
        """Whether these are of a small version of the experiment, which says nothing of the paper."""
        return any(record["data"].get("limit") for record in self.records) or self.data not in self.experiment.data

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
        return next(entry.label for entry in self.experiment.entries if entry.name == method)


def outcomes_of(records: Iterable[Record]) -> list[Outcomes]:
    """The results by experiment, in the grid's order, and data set, small versions apart; none that the grid lacks."""
    groups: dict[tuple[str, str, bool], list[Record]] = {}
    for record in records:
        data = record["data"]
        groups.setdefault((record["experiment"], data["name"], bool(data.get("limit"))), []).append(record)
    found = []
    for name in names():
        chosen = experiment(name)
        for (own, data, _), group in groups.items():
            if own != name:
                continue
            known = tuple(record for record in group if record["method"] in chosen.methods)
            if known:
                found.append(Outcomes(chosen, data, known))
    return found
