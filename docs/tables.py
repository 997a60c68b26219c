"""Write the tables of the documentation from the results in docs/results.

    python docs/tables.py [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``. With ``--check`` nothing is written.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from hashlearn.experiments.claims import GAINS
from hashlearn.experiments.grid import experiment
from hashlearn.experiments.results import Results
from hashlearn.experiments.summary import Cell, Outcomes, group_outcomes, signed_points
from hashlearn.hashers import NeighborHash

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
# The methods whose pages show all that was measured of them: without labels, and with.
MEASURED = {False: ("lsh", "itq", "sh", "sph", "kmh", "ba", "dh"), True: ("sdh", "itq-cca", "ksh", "bre")}
PAGES = (
    "README.md",
    "docs/unsupervised.md",
    "docs/supervised.md",
    "docs/search.md",
    *(
        f"docs/methods/{name}.md"
        for name in (
            "neighbor-hash",
            "decoder-hash",
            "label-hash",
            "udh-dnn",
            "sdh-dnn",
            *(name for names in MEASURED.values() for name in names),
        )
    ),
)
LENGTHS = (8, 16, 32, 64)
# What a table is made of: files, and what the methods or variants in each are called. Lines are in the order of LINES,
# or of LINES_BY_LABELS. What an earlier file has is not taken from a later one: the grid's results come first.
Sources = dict[str, dict[str, str]]
# What the grid calls the methods that learn without labels.
GRID_LABELS = {
    entry.name: entry.label
    for name in ("fig-cifar10", "fig-mnist", "fig-sift", "table-dh")
    for entry in experiment(name).entries
}
OTHER_RANKING = GRID_LABELS["sph-own"]
BY_NEIGHBORS: Sources = {
    "reproduce": {name: label for name, label in GRID_LABELS.items() if name.startswith(("lsh", "itq", "udh-dnn"))},
    "udh-dnn": {"unscaled, first": "UDH-DNN, unscaled, first choice"},
}
UNSUPERVISED: Sources = {"reproduce": GRID_LABELS, "udh-dnn": BY_NEIGHBORS["udh-dnn"]}
LINES = (
    *("LSH", "SH", "ITQ", "SPH", OTHER_RANKING, "KMH", "KMH, 8 bits a subspace", "BA", "BA, from ITQ", "DH"),
    *(f"UDH-DNN{more}" for more in ("", ", early stop", ", from ITQ", ", unscaled", ", unscaled, first choice")),
)
BY_LABELS: Sources = {
    "reproduce": {"itq": "ITQ", "sdh-dnn": "SDH-DNN, 2,000 a class", "sdh-dnn-all": "SDH-DNN, all data"},
    "sdh-dnn": {
        "itq": "ITQ",
        "default": "SDH-DNN, 2,000 a class",
        "400": "SDH-DNN, 2,000 a class, 400 iterations a step",
        "all data": "SDH-DNN, all data",
        "all data, 400": "SDH-DNN, all data, 400 iterations a step",
    },
}
SUPERVISED: Sources = {
    "reproduce": {
        "itq-cca": "ITQ-CCA",
        "ksh": "KSH, 2,000 a class",
        "bre": "BRE, 2,000 a class",
        "sdh": "SDH, all data",
        "sdh-restart": "SDH, each B step from zeros",
    },
    "supervised": {
        "itq-cca": "ITQ-CCA",
        "ksh": "KSH, 2,000 a class",
        "ksh, all data": "KSH, all data",
        "bre": "BRE, 2,000 a class",
        "bre, rbf": "BRE, RBF kernel, 2,000 a class",
        "sdh": "SDH, all data",
        "sdh, restart": "SDH, each B step from zeros",
    },
}
ALL_BY_LABELS: Sources = {
    **BY_LABELS,
    **SUPERVISED,
    "reproduce": {**BY_LABELS["reproduce"], **SUPERVISED["reproduce"]},
}
LINES_BY_LABELS = (*BY_LABELS["sdh-dnn"].values(), *SUPERVISED["supervised"].values())
TITLES = {"map": "mAP", "map_seen": "mAP", "map_new": "mAP"}
Row = dict[str, Any]


def read_rows(name: str) -> list[Row]:
    rows: list[Row] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return rows


@cache
def reproduced(folder: str = "reproduce") -> dict[tuple[str, str], Outcomes]:
    """Return the results of `hashlearn reproduce` by experiment and data set; of studies, if that is the folder."""
    outcomes = group_outcomes(Results(RESULTS / folder).all())
    return {(one.experiment.name, one.data): one for one in outcomes if not one.small}


# Runs on the same data and by the same protocol as the paper's figures, of more variants.
BEYOND = ("beyond-mnist", "beyond-cifar10", "beyond-sift")


def is_shown(name: str, *, by_labels: bool) -> bool:
    """Whether an experiment is one of the paper's figures and tables, with or without labels to learn from."""
    paper = name.startswith(("fig-", "table-")) and name.endswith("-sup") == by_labels
    return paper or (name in BEYOND and not by_labels)


def grid_rows(*, by_labels: bool) -> list[Row]:
    """Return the results of `hashlearn reproduce` in the form of the other files' rows."""
    rows = []
    for (name, data), outcomes in reproduced().items():
        if not is_shown(name, by_labels=by_labels):
            continue
        for method, n_bits in product(outcomes.methods, outcomes.bits):
            records = outcomes.select(method, n_bits)
            if not records:
                continue
            row: Row = {"dataset": data, "variant": method, "n_bits": n_bits, "repetitions": len(records)}
            row["method"] = records[0]["library_method"]
            for measure in records[0]["scores"]:
                scores = outcomes.cell(method, n_bits, measure)
                assert scores is not None
                row |= {measure: scores.mean, f"{measure}_std": scores.std}
            row["seconds"] = min(record["training"]["seconds"] for record in records)
            rows.append(row)
    return rows


def labeled_rows(sources: Sources, *, by_labels: bool) -> list[Row]:
    """The rows of all files, each with what it is called, the grid's first."""
    labeled = []
    for file, labels in sources.items():
        for row in grid_rows(by_labels=by_labels) if file == "reproduce" else read_rows(file):
            variant = row["variant"]
            if variant in labels:
                labeled.append({"method": variant.split(",")[0], **row, "label": labels[variant]})
    return labeled


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, body)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def cell(row: Row | None, key: str, *, spread: bool) -> str:
    if row is None or row.get(key) is None:
        return ""
    std = row.get(f"{key}_std")
    return f"{row[key]:.2f} ± {std:.2f}" if spread and std is not None else f"{row[key]:.2f}"


def quality(
    sources: Sources,
    datasets: Iterable[str],
    keys: Sequence[tuple[str, int]],
    *,
    by_labels: bool = False,
    spread: bool,
) -> str:
    """A line for each data set and method or variant; a column for each (measure, length)."""
    # Codes that are ranked by another distance have the same balls.
    left_out = OTHER_RANKING if all(key.startswith("p@") for key, _ in keys) else ""
    rows = labeled_rows(sources, by_labels=by_labels)
    lines = []
    for dataset, label in product(datasets, LINES_BY_LABELS if by_labels else LINES):
        matching = [row for row in rows if row["dataset"] == dataset and row["label"] == label != left_out]
        shown = [
            next((row for row in matching if row["n_bits"] == n_bits and row.get(key) is not None), None)
            for key, n_bits in keys
        ]
        repetitions = sorted({row["repetitions"] for row in shown if row})
        if repetitions:
            least, most = repetitions[0], repetitions[-1]
            cells = [cell(row, key, spread=spread) for row, (key, _) in zip(shown, keys, strict=True)]
            lines.append([f"`{dataset}`", label, str(most) if least == most else f"{least}–{most}", *cells])
    titles = [f"{TITLES.get(key, key.upper())} {n_bits}" for key, n_bits in keys]
    return table(["data", "method", "runs", *titles], lines)


def measured(method: str, *, by_labels: bool) -> str:
    """All that was measured of a method: a line for each data set, variant and length."""
    rows = labeled_rows(SUPERVISED if by_labels else UNSUPERVISED, by_labels=by_labels)
    lines = []
    for dataset, label, n_bits in product(_ALL, LINES_BY_LABELS if by_labels else LINES, LENGTHS):
        identity = (method, dataset, label, n_bits)
        row = next((r for r in rows if (r["method"], r["dataset"], r["label"], r["n_bits"]) == identity), None)
        if row is None:
            continue
        within = ", ".join(f"P@{r} {row[f'p@{r}']:.2f}" for r in (2, 3, 4) if f"p@{r}" in row)
        lines.append(
            [
                f"`{dataset}`",
                label,
                str(n_bits),
                str(row["repetitions"]),
                f"{cell(row, 'map', spread=True)} ({row['map_expected_ties']:.2f})",
                within,
                f"{row['seconds']:.1f}",
            ]
        )
    return table(["data", "method", "bits", "runs", "mAP", "precision within the radius", "seconds"], lines)


def costs(*, supervised: bool) -> str:
    """Time and memory of each method that needs labels, or that needs none."""
    head = ["method", "bits", "fit, seconds", "iterations", "peak memory, GB", "encode, µs a vector"]
    lines = [
        [
            ", ".join([row["method"].upper(), *(f"`{key}={value}`" for key, value in row["options"].items())]),
            str(row["n_bits"]),
            f"{row['fit_seconds']:.1f}",
            str(row["iterations"] or ""),
            f"{row['peak_gigabytes']:.2f}",
            f"{row['encode_microseconds']:.1f}",
        ]
        for row in read_rows("methods")
        if (row["method"] in MEASURED[True]) == supervised
    ]
    return table(head, lines)


def claims() -> str:
    """How far SDH-DNN is above its rivals: published, "similar" where no number is given, and measured here."""
    labels = SUPERVISED["reproduce"]
    lines = []
    for (name, data), outcomes in reproduced().items():
        for rival, published in GAINS.get(name, {}).items():
            said = [f"{published[n]:+.1f}" if n in published else "similar" for n in LENGTHS]
            lines.append([f"`{data}`", rival.upper(), "published", *said])
            for variant, subject in product(
                (v for v in labels if v.split("-")[0] == rival), ("sdh-dnn", "sdh-dnn-all")
            ):
                leads = [outcomes.difference(subject, variant, n, "map") for n in LENGTHS]
                cells = ["" if cell is None else signed_points(cell.mean, 1) for cell in leads]
                lines.append([f"`{data}`", labels[variant], outcomes.label(subject), *cells])
    return table(["data", "above", "", *(f"{n} bits" for n in LENGTHS)], lines)


# The README's tables, of the results of `hashlearn reproduce`: columns by experiment and measure, and the methods.
KEY_BITS = 32
KEY_COLUMNS = {
    ("beyond-mnist", "mnist", "map"): "MNIST, neighbors",
    ("beyond-cifar10", "cifar10", "map"): "CIFAR-10, neighbors",
    ("beyond-sift", "sift-photos", "map"): "`sift-photos`, neighbors",
    ("table-dh", "cifar10-dh", "map"): "CIFAR-10, labels",
}
KEY_METHODS = (
    "lsh",
    "sh",
    "sph",
    "kmh",
    "ba",
    "dh",
    "itq",
    "udh-dnn",
    "udh-dnn-from-itq",
    "udh-dnn-unscaled",
    "neighbor-hash",
)
KEY_COLUMNS_BY_LABELS = {
    ("beyond-mnist-sup", "mnist", "map"): "MNIST",
    ("beyond-mnist-sup", "mnist", "map_new"): "MNIST, new images",
    ("beyond-cifar10-sup", "cifar10", "map"): "CIFAR-10",
    ("beyond-cifar10-sup", "cifar10", "map_new"): "CIFAR-10, new images",
}
KEY_METHODS_BY_LABELS = ("itq", "itq-cca", "bre", "ksh", "sdh", "sdh-dnn", "sdh-dnn-all", "label-hash")


def best_bold(rows: Sequence[Sequence[Cell | None]]) -> list[list[str]]:
    """The values in words, the best of each column in bold."""

    def key(cell: Cell) -> float:
        return float(f"{cell.mean:.2f}")

    best = [max((key(cell) for cell in column if cell), default=None) for column in zip(*rows, strict=True)]

    def words(cell: Cell | None, most: float | None) -> str:
        if cell is None:
            return ""
        return f"**{cell.words()}**" if key(cell) == most else cell.words()

    return [list(map(words, row, best)) for row in rows]


def key_table(columns: dict[tuple[str, str, str], str], methods: Iterable[str]) -> str:
    """A line for each method, a column for each experiment and measure; the best of a column is bold."""
    outcomes = reproduced()
    labels = {entry.name: entry.label for one in outcomes.values() for entry in one.experiment.entries}
    methods = list(methods)
    cells = [
        [outcomes[name, data].cell(method, KEY_BITS, measure) for name, data, measure in columns] for method in methods
    ]
    lines = [[labels[method], *row] for method, row in zip(methods, best_bold(cells), strict=True)]
    return table([f"mAP, {KEY_BITS} bits", *columns.values()], lines)


def by_length(names: Iterable[str], measure: str = "map") -> str:
    """A line for each method of some experiments, a column for each length; the best of an experiment is bold."""
    lines = []
    for (name, data), one in reproduced().items():
        if name in names:
            entries = [entry for entry in one.experiment.entries if any(one.select(entry.name, n) for n in LENGTHS)]
            cells = [[one.cell(entry.name, n, measure) for n in LENGTHS] for entry in entries]
            lines += [[f"`{data}`", e.label, *row] for e, row in zip(entries, best_bold(cells), strict=True)]
    return table(["data", "method", *(f"{n} bits" for n in LENGTHS)], lines)


RECALLS = {
    "recall@10": "Hamming, first 10",
    "recall@100": "first 100",
    "real_recall@10": "real, first 10",
    "real_recall@50": "first 50",
    "real_recall@100": "first 100",
}


def embeddings(name: str, folder: str = "reproduce") -> str:
    """A line for each length and method: recalls by Hamming distance and with real-valued queries.

    The best of a length is bold.
    """
    (one,) = (outcomes for (experiment, _), outcomes in reproduced(folder).items() if experiment == name)
    measures = [measure for measure in RECALLS if measure in one.experiment.measures]
    lines = []
    for n_bits in one.bits:
        runs = [entry.name for entry in one.experiment.entries if one.select(entry.name, n_bits)]
        cells = [[one.cell(name, n_bits, measure) for measure in measures] for name in runs]
        lines += [[str(n_bits), one.label(name), *row] for name, row in zip(runs, best_bold(cells), strict=True)]
    return table(["bits", "method", *(RECALLS[measure] for measure in measures)], lines)


def training_costs() -> str:
    """Seconds and CPU seconds of fits, one method after another on an idle machine."""
    rows = json.loads((RESULTS / "neighbor-hash.json").read_text())["opq"]
    names = {entry.name: entry.label for entry in experiment("beyond-glosses").entries}
    methods = [name for name in rows[0] if name in names]
    lines = [
        [str(row["n_bits"]), *(f"{row[name]['seconds']:.0f} ({row[name]['cpu_seconds']:.0f})" for name in methods)]
        for row in rows
    ]
    return table(["bits", *(names[name] for name in methods)], lines)


def ablation() -> str:
    """NeighborHash's mAP without each of its parts: a column for each data set."""
    rows = json.loads((RESULTS / "neighbor-hash-ablation.json").read_text())["rows"]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["revision"] == NeighborHash.revision:
            found.setdefault(row["variant"], {}).setdefault(row["data"], []).append(row["map"])
    data = ("mnist", "cifar10")
    lines = [[name, *(Cell(tuple(of[d])).words() if d in of else "" for d in data)] for name, of in found.items()]
    return table(["NeighborHash", *(f"`{name}`" for name in data)], lines)


def search_nearest() -> str:
    """HammingIndex beside other exact searches of the same codes."""
    rows = json.loads((RESULTS / "search.json").read_text())["nearest"]
    ways = list(dict.fromkeys(way for row in rows for way in row["milliseconds_a_query"]))
    head = ["bits", "queries", "k", *("HammingIndex" if way == "ours" else way for way in ways), "to the fastest FAISS"]
    lines = [
        [
            str(row["n_bits"]),
            str(row["n_queries"]),
            f"{row['k']:,}",
            *(f"{row['milliseconds_a_query'][way]:.2f}" if way in row["milliseconds_a_query"] else "" for way in ways),
            f"{row['ours_to_fastest_faiss']:.2f}",
        ]
        for row in rows
    ]
    return table(head, lines)


def search_real() -> str:
    """Searches of real vectors by codes, with real-valued queries and by FAISS's quantizers: recall and times."""
    lines = []
    for row in json.loads((RESULTS / "search-real.json").read_text())["real"]:
        for way, recall in row["recall"].items():
            times = (row[key][way] for key in ("milliseconds_of_one", "milliseconds_a_query"))
            lines.append([str(row["n_bits"]), way, f"{100 * recall:.2f}", *(f"{time:.2f}" for time in times)])
    return table(["bits", "search", "recall of 10", "ms, one query", "ms a query, 1,000"], lines)


def search_within() -> str:
    """All within a radius: by a scan and by tables, each beside FAISS's fastest call of the kind."""
    lines = []
    for row in json.loads((RESULTS / "search.json").read_text())["within"]:
        times = row["milliseconds_a_query"]
        cells = [row["codes"], str(row["n_bits"]), f"{row['found_a_query']:.1f}"]
        for way in ("scan", "tables"):
            best = min(time for name, time in times.items() if name != way and way.removesuffix("s") in name)
            cells += [f"{1e3 * times[way]:,.1f}", f"{1e3 * best:,.1f}", f"{times[way] / best:.2f}"]
        lines.append([*cells, *(f"{1e3 * row['milliseconds_of_one'][name]:,.0f}" for name in ("tables", "FAISS"))])
    ways = [f"{way}{more}" for way in ("scan", "tables") for more in (", µs", ", FAISS's", ", ratio")]
    return table(["codes", "bits", "found", *ways, "one query by tables, µs", "FAISS's"], lines)


def search_crossover() -> str:
    """Up to which radius tables are faster than a scan: as measured, and by the plan."""
    cases: dict[tuple[str, int, int], list[Row]] = {}
    for case in json.loads((RESULTS / "search.json").read_text())["tables"]["cases"]:
        cases.setdefault((case["codes"], case["n_bits"], case["n"]), []).append(case)

    def last(rows: list[Row], prefix: str) -> str:
        return str(
            max((row["radius"] for row in rows if row[f"{prefix}tables"] < row[f"{prefix}scan"]), default="none")
        )

    def gain(rows: list[Row], radius: int) -> str:
        ratios = [row["scan"] / row["tables"] for row in rows if row["radius"] == radius]
        return f"{ratios[0]:.1f}" if ratios else ""

    lines = [
        [codes, str(n_bits), f"{n:,}", last(rows, ""), last(rows, "planned_"), *(gain(rows, r) for r in (1, 3, 5))]
        for (codes, n_bits, n), rows in cases.items()
    ]
    head = ["codes", "bits", "how many", "up to radius", "by the plan"]
    return table([*head, *(f"scan / tables, radius {r}" for r in (1, 3, 5))], lines)


def collections() -> str:
    """A collection of a million items: its size, making, opening and changing."""
    rows = json.loads((RESULTS / "search.json").read_text())["collection"]
    lines = [
        [
            "codes, sources and payloads" if row["texts"] else "codes alone",
            str(row["bytes_an_item"]),
            f"{row['seconds_to_make']:.1f}",
            f"{row['seconds_to_open']:.1f}",
            *(f"{row[f'milliseconds_to_{change}_one']:.1f}" for change in ("add", "update", "remove")),
            f"{row['seconds_to_remove_a_hundredth']:.1f}",
        ]
        for row in rows
    ]
    head = ["a million items of", "bytes an item", "made, s", "opened, s"]
    return table([*head, "add one, ms", "update one, ms", "remove one, ms", "remove 10,000 scattered, s"], lines)


def _keys(*names: str, lengths: Iterable[int] = LENGTHS) -> list[tuple[str, int]]:
    return [(name, n_bits) for name in names for n_bits in lengths]


def study(prefixes: str | tuple[str, ...], measure: str = "map", *, seconds: bool = False) -> str:
    """mAP of the studies whose names begin with a prefix, by data set, settings and bits; and CPU seconds."""
    rows: dict[tuple[str, str], dict[int, str]] = {}
    times: dict[tuple[str, str], dict[int, str]] = {}
    for (name, _), one in reproduced("studies").items():
        if name.startswith(prefixes):
            for entry in one.experiment.entries:
                key = (one.data, entry.label)
                row, time = rows.setdefault(key, {}), times.setdefault(key, {})
                for n_bits in one.bits:
                    cell = one.cell(entry.name, n_bits, measure)
                    if cell is not None:
                        row[n_bits] = f"{cell.mean:.2f}"
                        spent = [record["training"]["cpu_seconds"] for record in one.select(entry.name, n_bits)]
                        time[n_bits] = f"{sum(spent) / len(spent):.1f}"
    lengths = sorted({n_bits for row in rows.values() for n_bits in row})
    body = [
        (
            f"`{key[0]}`",
            key[1],
            *(cells[key].get(n, "") for cells in ((rows, times) if seconds else (rows,)) for n in lengths),
        )
        for key in sorted(rows, key=lambda key: key[0])
        if rows[key]  # some runs of it have been made
    ]
    head = ["data", "settings", *(f"{n} bits" for n in lengths)]
    return table([*head, *(f"CPU s, {n} bits" for n in lengths if seconds)], body)


_ALL = ("mnist", "cifar10", "cifar10-dh", "sift-photos")
_IMAGES = ("mnist", "cifar10")
_NEAR = ("p@3", "p@4")
NEIGHBOR_HASH_STUDIES = tuple(f"study-neighbor-hash-{name}" for name in ("mnist", "cifar10", "cells-", "sift"))
TABLES: dict[str, Callable[[], str]] = {
    "results": lambda: key_table(KEY_COLUMNS, KEY_METHODS),
    "results-by-labels": lambda: key_table(KEY_COLUMNS_BY_LABELS, KEY_METHODS_BY_LABELS),
    "unsupervised-map": lambda: quality(UNSUPERVISED, _ALL, _keys("map"), spread=True),
    "unsupervised-precision": lambda: quality(
        UNSUPERVISED, ("mnist", "cifar10", "sift-photos"), _keys(*_NEAR, lengths=(16, 32, 64)), spread=False
    ),
    "unsupervised-precision-dh": lambda: quality(
        UNSUPERVISED, ("cifar10-dh",), _keys("p@2", lengths=(16, 32, 64)), spread=True
    ),
    "methods": partial(costs, supervised=False),
    "methods-supervised": partial(costs, supervised=True),
    **{
        f"{name}-measured": partial(measured, name, by_labels=by_labels)
        for by_labels, names in MEASURED.items()
        for name in names
    },
    "supervised-map": lambda: quality(ALL_BY_LABELS, _IMAGES, _keys("map"), by_labels=True, spread=True),
    "supervised-claims": claims,
    "supervised-precision": lambda: quality(ALL_BY_LABELS, _IMAGES, _keys(*_NEAR), by_labels=True, spread=False),
    "supervised-seen": lambda: quality(ALL_BY_LABELS, _IMAGES, _keys("map_seen"), by_labels=True, spread=True),
    "supervised-new": lambda: quality(ALL_BY_LABELS, _IMAGES, _keys("map_new"), by_labels=True, spread=True),
    "beyond": partial(by_length, BEYOND),
    "beyond-new": partial(by_length, ("beyond-mnist-new", "beyond-cifar10-new")),
    **{name: partial(embeddings, name) for name in ("beyond-glosses", "beyond-glosses-minilm", "beyond-package-names")},
    "neighbor-hash-costs": training_costs,
    "beyond-sup-new": partial(by_length, ("beyond-mnist-sup", "beyond-cifar10-sup"), "map_new"),
    "neighbor-hash-ablation": ablation,
    "neighbor-hash-study": partial(study, NEIGHBOR_HASH_STUDIES),
    "neighbor-hash-glosses-study": partial(embeddings, "study-neighbor-hash-glosses", "studies"),
    "udh-dnn-adam": partial(study, "study-udh-dnn-adam-", seconds=True),
    "sdh-dnn-adam": partial(study, "study-sdh-dnn-adam-", seconds=True),
    "label-hash-study": partial(study, "study-label-hash-", "map_new"),
    "search-nearest": search_nearest,
    "search-real": search_real,
    "search-within": search_within,
    "search-crossover": search_crossover,
    "collections": collections,
    "udh-dnn-map": lambda: quality(BY_NEIGHBORS, _ALL, _keys("map"), spread=True),
    "udh-dnn-precision": lambda: quality(BY_NEIGHBORS, _IMAGES, _keys(*_NEAR, lengths=(16, 32, 64)), spread=False),
    "udh-dnn-precision-dh": lambda: quality(
        BY_NEIGHBORS, ("cifar10-dh",), _keys("p@2", lengths=(16, 32, 64)), spread=True
    ),
    "sdh-dnn-map": lambda: quality(BY_LABELS, _IMAGES, _keys("map"), by_labels=True, spread=True),
    "sdh-dnn-seen": lambda: quality(BY_LABELS, _IMAGES, _keys("map_seen"), by_labels=True, spread=True),
    "sdh-dnn-new": lambda: quality(BY_LABELS, _IMAGES, _keys("map_new"), by_labels=True, spread=True),
    "sdh-dnn-precision": lambda: quality(BY_LABELS, _IMAGES, _keys(*_NEAR), by_labels=True, spread=False),
}


def written(text: str) -> str:
    """The page with its tables as they must be."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}"

    text, n = re.subn(r"(<!-- table: ([\w-]+) -->)\n.*?(<!-- end of table -->)", replace, text, flags=re.DOTALL)
    if not n == text.count("<!-- table:") == text.count("<!-- end of table -->"):
        raise SystemExit("a table's begin or end is misspelled")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the pages are as they must be")
    options = parser.parse_args()
    for name in PAGES:
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = written(before)
        if before == after:
            continue
        if options.check:
            raise SystemExit(f"{name} does not show the results: run python docs/tables.py")
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
