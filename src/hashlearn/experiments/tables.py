"""Results as tables and sentences, which both the HTML page and the Markdown file show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from hashlearn.datasets import DATASETS
from hashlearn.evaluation import Protocol
from hashlearn.experiments.figures import ablates
from hashlearn.experiments.grid import names
from hashlearn.experiments.results import Record, run_seconds
from hashlearn.experiments.summary import Cell, Outcomes, measure_label, signed_points
from hashlearn.progress import count, duration

_NOTHING = "–"
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
_LIBRARIES = {
    "python": "Python",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "scikit-learn": "scikit-learn",
    "faiss-cpu": "FAISS",
}


@dataclass(frozen=True)
class Td:
    """A cell: its text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of which is the name. ``variants`` is the first row that is not the paper's."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Td, ...], ...]
    variants: int | None = None


def available_measures(outcomes: Outcomes) -> list[str]:
    """Return the measures of the experiment that the results have, and mAP among new samples if known."""
    known = {name for record in outcomes.records for name in record["scores"]}
    return [name for name in (*outcomes.experiment.measures, "map_new") if name in known]


def measure_tables(outcomes: Outcomes, measure: str) -> list[Table]:
    """Return the tables of a measure: scores, differences in an ablation, and a comparison with published scores."""
    tables = (score_table(outcomes, measure), _difference_table(outcomes, measure), _published_table(outcomes, measure))
    return [table for table in tables if table is not None]


def score_table(outcomes: Outcomes, measure: str) -> Table:
    """Tabulate mean ± standard deviation of each method at each number of bits."""
    methods = outcomes.methods
    columns = []
    for n_bits in outcomes.bits:
        cells = [outcomes.cell(method, n_bits, measure) for method in methods]
        means = ["" if cell is None else f"{cell.mean:.2f}" for cell in cells]
        best = max(filter(None, means), key=float, default=None) if len(methods) > 1 else None
        columns.append([Td(_words(cell), mean == best) for cell, mean in zip(cells, means, strict=True)])
    labels = [Td(outcomes.label(method)) for method in methods]
    runs = [Td(_runs(outcomes, method)) for method in methods]
    rows = tuple(zip(labels, *columns, runs, strict=True))
    head = ("method", *(f"{n_bits} bits" for n_bits in outcomes.bits), "runs")
    first_variant = next((i for i, name in enumerate(methods) if name in outcomes.experiment.variants), None)
    return Table(f"{measure_label(measure)}, percent", head, rows, first_variant)


def _published_table(outcomes: Outcomes, measure: str) -> Table | None:
    """Tabulate our scores beside published ones; None if there are none of the methods that were run."""
    published = {
        method: values
        for method in outcomes.methods
        if (values := outcomes.experiment.published.get(method, {}).get(measure))
    }
    bits = [n_bits for n_bits in outcomes.bits if any(n_bits in values for values in published.values())]
    if not bits or outcomes.small:
        return None
    rows = []
    for method, values in published.items():
        row = [outcomes.label(method)]
        for n_bits in bits:
            cell, theirs = outcomes.cell(method, n_bits, measure), values.get(n_bits)
            row.append(_words(cell))
            row.append(_NOTHING if theirs is None else f"{theirs:.2f}")
            row.append(_NOTHING if cell is None or theirs is None else signed_points(cell.mean - theirs))
        rows.append(tuple(map(Td, row)))
    head = ["method"]
    for n_bits in bits:
        head += [f"{n_bits} bits, ours", "published", "difference"]
    return Table(f"{measure_label(measure)}, percent: ours beside the published", tuple(head), tuple(rows))


def _difference_table(outcomes: Outcomes, measure: str) -> Table | None:
    """Tabulate the difference of each method from the subject of an ablation; None for other experiments."""
    subject = outcomes.experiment.subject
    if not ablates(outcomes.experiment) or outcomes.methods == [subject] or subject not in outcomes.methods:
        return None
    rows = []
    for name in outcomes.methods:
        if name != subject:
            cells = (outcomes.difference(name, subject, n_bits, measure) for n_bits in outcomes.bits)
            rows.append((Td(outcomes.label(name)), *(Td(_words(cell, signed=True)) for cell in cells)))
    caption = f"{measure_label(measure)}, percentage points from {outcomes.label(subject)}, mean over seeds"
    return Table(caption, ("method", *(f"{n_bits} bits" for n_bits in outcomes.bits)), tuple(rows))


def code_table(outcomes: Outcomes, bits: Sequence[int] | None = None) -> Table:
    """Tabulate statistics of the codes, averaged over seeds, for all numbers of bits or for ``bits``."""
    columns: dict[str, tuple[str, int, str]] = {
        "imbalance": ("imbalance", 1, ".3f"),
        "max_imbalance": ("largest", 1, ".3f"),
        "correlation": ("correlation", 1, ".3f"),
        "max_correlation": ("largest", 1, ".3f"),
        "n_codes": ("distinct codes", 1, ",.0f"),
        "utilization": ("utilization, %", 100, ".1f"),
        "entropy": ("entropy, bits", 1, ".2f"),
    }
    empty = {name for record in outcomes.records for name in record["scores"] if name.startswith("empty@")}
    columns |= {name: (f"empty at {name.removeprefix('empty@')}, %", 1, ".1f") for name in sorted(empty)}
    rows = []
    for method, n_bits in _pairs(outcomes, bits):
        row = [outcomes.label(method), str(n_bits)]
        for name, (_, factor, form) in columns.items():
            cell = outcomes.cell(method, n_bits, name)
            row.append(_NOTHING if cell is None else f"{factor * cell.mean:{form}}")
        rows.append(tuple(map(Td, row)))
    caption = (
        "Statistics of the database codes, mean over runs. Imbalance: mean and largest |mean of a bit|, bits as ±1. "
        "Correlation: mean and largest |correlation of two bits|. Utilization: distinct codes, as a share of the "
        "largest possible number. Empty: queries without any item within the radius"
    )
    return Table(caption, ("method", "bits", *(words for words, *_ in columns.values())), tuple(rows))


def cost_table(outcomes: Outcomes, bits: Sequence[int] | None = None) -> Table:
    """Tabulate time and memory, for all numbers of bits or for ``bits``."""
    rows = []
    for method, n_bits in _pairs(outcomes, bits):
        records = outcomes.select(method, n_bits)
        seconds = [record["training"]["seconds"] for record in records]
        peaks = [peak for record in records if (peak := record["training"].get("peak_bytes")) is not None]
        row = {
            "method": outcomes.label(method),
            "bits": str(n_bits),
            "cores": ", ".join(map(str, sorted({record["machine"]["cores"] for record in records}))),
            "training, s (min)": _amount(min(seconds)),
            "mean": _amount(fmean(seconds)),
            "CPU, s (mean)": _amount(fmean(record["training"]["cpu_seconds"] for record in records)),
            "peak memory, MB": f"{max(peaks) / 1e6:,.0f}" if peaks else _NOTHING,
            "encoding, µs per vector": _amount(min(record["encoding_microseconds"] for record in records)),
        }
        rows.append(row)
    caption = "Time and memory. Cores: available to a run. Peak memory: of the whole process, including the data"
    return Table(caption, tuple(rows[0]), tuple(tuple(map(Td, row.values())) for row in rows))


def warning_words(outcomes: Outcomes) -> list[str]:
    """Describe each warning of a method, and in how many of its runs it occurred.

    Warnings that differ only in their numbers are merged, and the range of each number is shown.
    """
    warnings: dict[tuple[str, int, tuple[str, ...]], list[list[str]]] = {}
    for record in outcomes.records:
        for warning in record["training"].get("warnings", ()):
            words = tuple(_NUMBER.split(warning))
            warnings.setdefault((record["method"], record["n_bits"], words), []).append(_NUMBER.findall(warning))
    return [
        f"{outcomes.label(method)}, {n_bits} bits, {len(numbers)} of "
        f"{count(len(outcomes.select(method, n_bits)), 'run')}: "
        + "".join(word + _span(column) for word, column in zip(words, [*zip(*numbers, strict=True), ()], strict=True))
        for (method, n_bits, words), numbers in sorted(
            warnings.items(), key=lambda item: (outcomes.methods.index(item[0][0]), item[0][1:])
        )
    ]


def _span(numbers: Sequence[str]) -> str:
    """Format a range: ``6.8 to 9.0``, one number if all are equal, or nothing."""
    least, most = (pick(numbers, key=lambda n: float(n.replace(",", "")), default="") for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def protocol_words(outcomes: Outcomes) -> list[str]:
    """Describe the data, the truth, the protocol and the number of runs in a sentence each."""
    record = outcomes.records[0]
    data = record["data"]
    (n_train, n_features), (n_database, _), (n_queries, _) = data["train"], data["database"], data["queries"]
    chosen = outcomes.plan
    sentences = [
        f"Data: {outcomes.data} ({DATASETS[outcomes.data].description}); "
        f"{n_train:,} vectors of {n_features} dimensions to train on, {n_database:,} to search, "
        f"{n_queries:,} queries.",
        f"Truth: {record['truth']}.",
    ]
    if chosen.held_out:
        sentences.append("The queries were held out from the training data; no test query was used.")
    if "published_neighbors" in record:
        share = 100 * record["published_neighbors"]
        sentences.append(
            f"Of the nearest neighbors published with the data, {share:.2f} % are among as many computed here."
        )
    rules = {r["method"]: Protocol(**r["setting"]["protocol"]) for r in outcomes.records}
    if chosen.recall:
        sentences += [
            "recall@r: the share of the true neighbors that are among the first r items, averaged over the queries.",
            "Items are ordered by Hamming distance, or by their scores for a real-valued query, and then by number.",
            "FAISS's quantizers give distances from the query, whose last digits may differ for items of equal codes.",
        ]
    else:
        sentences.append(f"{replace(rules[record['method']], distance='hamming')}.")
    if others := [outcomes.label(name) for name in outcomes.methods if rules[name].distance == "spherical"]:
        sentences.append(f"{', '.join(others)}: mAP by spherical Hamming distance, precision by Hamming distance.")
    splits = DATASETS[outcomes.data].takes_split
    times = f"{chosen.seeds} {'random splits' if splits else 'seeds'}" if chosen.seeds > 1 else "one seed"
    fewer = [outcomes.label(name) for name in chosen.fewer if name in outcomes.methods]
    sentences.append(
        f"Runs: {times}"
        + ("" if splits or chosen.seeds == 1 else "; one for a method that draws nothing")
        + (f"; fewer of slow methods: {', '.join(fewer)}" if fewer else "")
        + "."
    )
    versions = _each(record["machine"]["hashlearn"] for record in outcomes.records)
    if len(versions) > 1:
        sentences.append(f"The runs were made with several versions of hashlearn: {', '.join(versions)}.")
    undrawn = [outcomes.label(name) for name in outcomes.experiment.undrawn if name in outcomes.methods]
    if undrawn:
        sentences.append(f"Shown in the tables only: {'; '.join(undrawn)}.")
    return sentences


def parameter_words(outcomes: Outcomes) -> list[str]:
    """Describe the parameters of each method that are not defaults."""
    return [
        f"{entry.label}: {entry.method}, " + ", ".join(f"{name} = {value}" for name, value in entry.parameters.items())
        for entry in outcomes.plan.entries
        if entry.parameters and entry.name in outcomes.methods
    ]


def missing_words(outcomes: Outcomes) -> str:
    """Describe the runs that have no result; empty if there are none."""
    missing = outcomes.missing()
    if not missing:
        return ""
    seeds: dict[tuple[str, int], list[str]] = {}
    for run in missing:
        seeds.setdefault((run.entry.label, run.n_bits), []).append(str(run.seed))
    lengths: dict[tuple[str, str], list[str]] = {}
    for (label, n_bits), numbers in seeds.items():
        which = f"seed{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        lengths.setdefault((label, which), []).append(str(n_bits))
    named = "; ".join(f"{label} at {', '.join(bits)} bits ({which})" for (label, which), bits in lengths.items())
    verb = "is" if len(missing) == 1 else "are"
    return f"{len(missing):,} of {count(len(outcomes.planned()), 'run')} {verb} missing. {named}."


def overview(outcomes: Sequence[Outcomes]) -> list[tuple[str, str]]:
    """Return pairs of names and values that summarize what was run, where, and how long it took."""
    records = [record for one in outcomes for record in one.records]
    # Two experiments may share a run: its time counts once.
    distinct: list[Record] = list({record["key"]: record for record in records}.values())
    machines = [record["machine"] for record in distinct]
    planned, missing = sum(len(one.planned()) for one in outcomes), sum(len(one.missing()) for one in outcomes)
    absent = [name for name in names() if name not in {one.experiment.name for one in outcomes}]
    if all(one.experiment.held_out for one in outcomes):
        absent = []  # a report of studies
    shared = (
        f", of which {len(records) - len(distinct)} serve a second experiment" if len(distinct) < len(records) else ""
    )
    training = sum(record["training"]["seconds"] for record in distinct)
    total = sum(map(run_seconds, distinct))
    return [
        ("Runs", f"{len(records):,} of {count(len({one.experiment.name for one in outcomes}), 'experiment')}{shared}"),
        ("Missing", f"{missing:,} of these experiments' {count(planned, 'run')}" if missing else "none"),
        *([("Experiments without any result", ", ".join(absent))] if absent else []),
        ("Training time", f"{duration(training)} in total"),
        ("With loading, encoding and scoring", f"{duration(total)} in total, one run after another"),
        ("Date", " to ".join(dict.fromkeys(pick(r["finished"] for r in distinct)[:10] for pick in (min, max)))),
        ("Machine", "; ".join(_each(f"{m['processor']}, {count(m['cores'], 'core')} per run" for m in machines))),
        ("Version", ", ".join(_each(f"hashlearn {m['hashlearn']}" for m in machines))),
        ("Libraries", "; ".join(_each(_libraries(m) for m in machines))),
    ]


def _libraries(machine: dict[str, Any]) -> str:
    return ", ".join(f"{label} {machine[name]}" for name, label in _LIBRARIES.items() if name in machine)


def _each(words: Iterable[str]) -> list[str]:
    return sorted(set(words))


def _words(cell: Cell | None, *, signed: bool = False) -> str:
    return _NOTHING if cell is None else cell.words(signed=signed)


def _amount(value: float) -> str:
    """Format a number with three digits or more."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _pairs(outcomes: Outcomes, bits: Sequence[int] | None) -> list[tuple[str, int]]:
    lengths = outcomes.bits if bits is None else bits
    return [(method, b) for method in outcomes.methods for b in lengths if outcomes.select(method, b)]


def _runs(outcomes: Outcomes, method: str) -> str:
    """Format the number of runs, for each number of bits if they differ."""
    counts = [len(outcomes.select(method, n_bits)) for n_bits in outcomes.bits]
    return str(counts[0]) if len(set(counts)) == 1 else " / ".join(map(str, counts))
