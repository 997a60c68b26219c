"""Tables of the documentation, from the results that the benchmarks left in docs/results.

    python benchmarks/tables.py [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; it is written anew, or only compared.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = ("README.md", "docs/methods/udh-dnn.md")
LENGTHS = (8, 16, 32, 64)
LABELS = {
    "lsh": "LSH",
    "itq": "ITQ",
    "default": "UDH-DNN",
    "early stop": "UDH-DNN, early stop",
    "from itq": "UDH-DNN, from ITQ",
    "unscaled": "UDH-DNN, unscaled",
    "unscaled, first": "UDH-DNN, unscaled, first choice",
}
TITLES = {"map": "mAP"}
Row = dict[str, Any]


def rows_of(name: str) -> list[Row]:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["rows"]


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
    datasets: Iterable[str], keys: Iterable[tuple[str, int]], *, spread: bool, without: Iterable[str] = ()
) -> str:
    """A line for each data set and method or variant but some; a column for each (measure, length)."""
    keys = list(keys)
    rows = [
        *({**row, "label": LABELS[row["method"]]} for row in rows_of("baselines")),
        *({**row, "label": LABELS[row["variant"]]} for row in rows_of("udh-dnn")),
    ]
    lines = []
    for dataset in datasets:
        for label in (label for variant, label in LABELS.items() if variant not in without):
            found = {row["n_bits"]: row for row in rows if row["dataset"] == dataset and row["label"] == label}
            if not found:
                continue
            repetitions = sorted({row["repetitions"] for row in found.values()})
            cells = [cell(found.get(n_bits), key, spread=spread) for key, n_bits in keys]
            if any(cells):
                least, most = repetitions[0], repetitions[-1]
                lines.append([f"`{dataset}`", label, str(most) if least == most else f"{least}–{most}", *cells])
    titles = [f"{TITLES.get(key, key.upper())} {n_bits}" for key, n_bits in keys]
    return table(["data", "method", "runs", *titles], lines)


def study() -> str:
    """Every run of the study of UDH-DNN."""

    def order(row: Row) -> tuple[Any, ...]:
        options = row["options"]
        scale = options.get("scale")
        size = (0, 0.0) if scale is None else (1, float(scale)) if scale != "range" else (2, 0.0)
        start = ("method" not in options, options.get("init", ""))
        return row["dataset"], row["n_bits"], start, len(options), options.get("lbfgs_iter", 0), size

    lines = []
    for row in sorted(rows_of("udh-dnn-study"), key=order):
        options, found = dict(row["options"]), row["iterations"]
        kept = row.get("kept", len(found) - 1)
        itq = "method" in options
        scale = options.pop("scale", "")
        for key in ("n_bits", "method"):
            options.pop(key, None)
        maps = [step["map"] for step in found]
        best = max(range(len(maps)), key=maps.__getitem__)
        lines.append(
            [
                f"`{row['dataset']}`",
                str(row["n_bits"]),
                "ITQ itself" if itq else options.pop("init"),
                "unscaled" if scale is None else str(scale),
                str(options.pop("lbfgs_iter", "")),
                ", ".join(f"`{key}={value!r}`" for key, value in options.items()),
                "" if itq else f"{maps[best]:.2f} ({best})",
                f"{maps[kept]:.2f}" if itq else f"{maps[kept]:.2f} ({kept})",
                *(f"{found[kept][f'p@{r}']:.1f}" for r in (2, 3, 4)),
            ]
        )
    head = ["data", "bits", "start", "variance", "L-BFGS", "others", "mAP best (at)", "mAP kept (at)"]
    return table([*head, "P@2", "P@3", "P@4"], lines)


TABLES: dict[str, Callable[[], str]] = {
    "results": lambda: quality(
        ("mnist", "cifar10", "cifar10-dh"),
        (("map", n) for n in LENGTHS),
        spread=True,
        without=("unscaled, first",),
    ),
    "udh-dnn-map": lambda: quality(
        ("mnist", "cifar10", "cifar10-dh", "sift-photos"), (("map", n) for n in LENGTHS), spread=True
    ),
    "udh-dnn-precision": lambda: quality(
        ("mnist", "cifar10"), ((f"p@{r}", n) for r in (3, 4) for n in (16, 32, 64)), spread=False
    ),
    "udh-dnn-precision-dh": lambda: quality(("cifar10-dh",), (("p@2", n) for n in (16, 32, 64)), spread=True),
    "udh-dnn-study": study,
}


def written(text: str) -> str:
    """The page with its tables as they must be."""

    def replace(found: re.Match[str]) -> str:
        return f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}"

    text, n = re.subn(r"(<!-- table: ([\w-]+) -->)\n.*?(<!-- end of table -->)", replace, text, flags=re.DOTALL)
    if not n == text.count("<!-- table:") == text.count("<!-- end of table -->"):
        raise SystemExit("a table's begin or end is misspelt")
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
            raise SystemExit(f"{name} does not show the results: run python benchmarks/tables.py")
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
