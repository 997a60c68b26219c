"""The commands that run the paper's evaluation and report on it; part of the command line (``cli.py``)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn._arguments import AsJson
from hashlearn._printing import count, say

if TYPE_CHECKING:
    from hashlearn.experiments.grid import Experiment
    from hashlearn.experiments.progress_display import Progress
    from hashlearn.experiments.scheduler import Outcome


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Experiments (--list); all unless given.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the results; results, or results-quick with --quick, unless given."
        ),
    ] = None,
    bits: Annotated[list[str] | None, typer.Option(help="These lengths alone, such as 16,32.")] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="These methods alone, such as itq,udh-dnn (--list).")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="At most so many seeds (or splits) of each.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version of everything: few vectors, short codes, short training.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="With --quick: this data set instead of the experiments' own, such as digits.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs at once, which share the cores; 1 is best for times.")] = 1,
    list_: Annotated[
        bool, typer.Option("--list", help="List the experiments and their methods, and run nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the paper's evaluation from raw data: every figure and table, one result file a run.

    Finished runs are skipped, so that the same command goes on where it was stopped. A run that fails does not stop the
    others: it is told at the end, and the exit code is 1.

    Example: hashlearn reproduce --quick

    Example: hashlearn reproduce fig-mnist --methods itq,udh-dnn --bits 32 --seeds 1
    """
    from hashlearn.experiments import grid
    from hashlearn.experiments.results import Results

    if data is not None and not quick:
        raise ValueError("--data goes with --quick: the experiments themselves have data of their own.")
    lengths, entries = _lengths(bits), _words(methods)
    chosen = grid.choose(names or (), bits=lengths, methods=entries, seeds=seeds, small=quick, data=data)
    if list_:
        return _list(chosen, as_json)
    _note_the_left_out(chosen, lengths, entries)
    folder = out or Path("results-quick" if quick else "results")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out must be a folder; {folder} is a file.")
    outcome, progress = _run(chosen, Results(folder), jobs)
    _tell(outcome, progress, folder, as_json)
    if outcome.failures:
        raise typer.Exit(1)
    return None


def _words(texts: list[str] | None) -> list[str] | None:
    """``itq,udh-dnn``, or several such, as a list."""
    return None if texts is None else ",".join(texts).replace(",", " ").split()


def _lengths(texts: list[str] | None) -> list[int] | None:
    words = _words(texts)
    if words is None:
        return None
    if not words or not all(word.isdecimal() for word in words):
        raise ValueError(
            f"--bits must be whole numbers with commas between, such as 16,32; got {','.join(texts or [])!r}."
        )
    return [int(word) for word in words]


def _note_the_left_out(chosen: Iterable[Experiment], bits: list[int] | None, methods: list[str] | None) -> None:
    """What was asked for and no chosen experiment has; of methods, at these lengths."""
    chosen, where = list(chosen), "" if bits is None else " at these lengths"
    for what, given, there in (
        ("bits {}", bits, {n_bits for experiment in chosen for n_bits in experiment.bits}),
        (f"methods {{}}{where}", methods, {name for experiment in chosen for name in experiment.methods}),
    ):
        left_out = [str(one) for one in given or () if one not in there]
        if left_out:
            named = what.format(", ".join(left_out))
            say(f"hashlearn: note: no chosen experiment has the {named}")


def _list(chosen: Iterable[Experiment], as_json: bool) -> None:
    from hashlearn.experiments.grid import plan_runs

    found = [
        {
            "experiment": experiment.name,
            "title": experiment.title,
            "data": list(experiment.data),
            "bits": list(experiment.bits),
            "seeds": experiment.seeds,
            "methods": experiment.methods,
            "runs": len(list(plan_runs(experiment, experiment.data[0]))),
        }
        for experiment in chosen
    ]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for entry in found:
        print(f"{entry['experiment']}: {entry['title']}")
        lengths = "/".join(map(str, entry["bits"]))  # type: ignore[call-overload]
        print(f"    {entry['runs']} runs; {' or '.join(entry['data'])}; {lengths} bits; up to {entry['seeds']} seeds")  # type: ignore[arg-type]
        print(f"    {', '.join(entry['methods'])}")  # type: ignore[arg-type]


def _run(chosen: list[Experiment], results: Any, jobs: int) -> tuple[Outcome, Progress]:
    from hashlearn.experiments.scheduler import reproduce as run

    with _watch(jobs) as progress:
        try:
            return run(chosen, results, jobs=jobs, observer=progress), progress
        except KeyboardInterrupt:
            kept = f"kept in {results.folder}: {count(results.count(), 'result')}"
            say(f"hashlearn: {kept}; the same command goes on from there")
            raise


@contextmanager
def _watch(jobs: int) -> Iterator[Progress]:
    from hashlearn.experiments.progress_display import Lines, Live
    from hashlearn.progress import is_watched

    if is_watched():
        from rich.console import Console

        with Live(Console(stderr=True), jobs) as live:
            yield live
    else:
        yield Lines(sys.stderr, jobs)


def _tell(outcome: Outcome, progress: Progress, folder: Path, as_json: bool) -> None:
    """The numbers on stdout, what failed on stderr."""
    from hashlearn.experiments.progress_display import numbers_so_far

    names = dict.fromkeys(run.experiment for run, _ in progress.done)
    if as_json:
        failures = [{"what": failure.what, "error": failure.error} for failure in outcome.failures]
        counts = {"results": str(folder), "found": outcome.found, "made": outcome.made, "failed": failures}
        print(json.dumps({**counts, "map": {name: numbers_so_far(progress.done, name) for name in names}}, indent=2))
    else:
        from hashlearn.cli import table

        for name in names:
            numbers = numbers_so_far(progress.done, name)
            lengths = sorted({n_bits for row in numbers.values() for n_bits in row})
            rows = [[label, *(row.get(n_bits, "") for n_bits in lengths)] for label, row in numbers.items()]
            table(f"{name}: mAP", ["method", *(f"{n_bits} bits" for n_bits in lengths)], rows)
        made = f"{count(outcome.made, 'run')} made, {outcome.found:,} found"
        print(f"{made}: {folder}; hashlearn report {folder} shows them all")
    for failure in outcome.failures:
        say(f"hashlearn: {failure.what} failed: {failure.error}")
        if failure.details and os.environ.get("HASHLEARN_DEBUG"):
            for line in failure.details.splitlines():
                say(line)


def report(
    results: Annotated[Path, typer.Argument(metavar="[RESULTS]", help="Folder of the results.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    markdown: Annotated[Path | None, typer.Option(help="Write the same in short as Markdown, too.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder of the charts, SVG; figures beside the Markdown unless given.")
    ] = None,
    images: Annotated[bool, typer.Option(help="Show what was found as images, which are loaded for it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Turn results into one page: tables, charts, and the paper's claims one by one, with the numbers.

    The page needs nothing else, neither a network nor the results.

    Example: hashlearn report results --out report.html
    """
    from hashlearn.experiments.report import write_report
    from hashlearn.storage import check_target

    for target in (out, markdown):
        if target is not None:
            check_target(target)
    if markdown is not None and markdown.resolve() == out.resolve():
        raise ValueError(f"--out and --markdown must be two files; got {out} for both.")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise ValueError(f"--figures must be a folder; {figures} is a file.")
    made = write_report(results, out, markdown=markdown, figures=figures, images=images)
    if made.n_left_out:
        which = "data sets, methods, parameters or settings that are not the grid's"
        say(f"hashlearn: note: left out: {count(made.n_left_out, 'result')} of {which}")
    if as_json:
        answer = {
            "page": str(made.out),
            "markdown": None if made.markdown is None else str(made.markdown),
            "figures": [str(path) for path in made.figures],
            "runs": made.n_runs,
            "missing": made.n_missing,
            "left_out": made.n_left_out,
        }
        print(json.dumps(answer, indent=2))
        return
    written = ", ".join(str(path) for path in (made.out, made.markdown) if path is not None)
    missing = f", {made.n_missing:,} missing" if made.n_missing else ""
    charts = f", {count(len(made.figures), 'chart')}" if made.figures else ""
    print(f"{count(made.n_runs, 'run')}{missing}: {written}{charts}")
