"""The commands that run the paper's evaluation and report on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn.cli.options import AsJson, check_folder, complete_dataset, complete_experiment
from hashlearn.cli.render import fail, is_quiet, note, say, show, table
from hashlearn.progress import count, is_watched

if TYPE_CHECKING:
    from hashlearn.experiments.grid import Experiment
    from hashlearn.experiments.progress_display import Progress
    from hashlearn.experiments.scheduler import Outcome


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME ...]",
            help="Experiments or studies (--list). Default: all experiments.",
            autocompletion=complete_experiment,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder. Default: results or results-quick.")] = None,
    bits: Annotated[list[str] | None, typer.Option(help="Only these code lengths, such as 16,32.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Only these methods, such as itq,udh-dnn (--list).")] = None,
    seeds: Annotated[int | None, typer.Option(help="At most this number of seeds (or splits) of each.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few vectors, short codes, short training.")] = False,
    data: Annotated[
        str | None,
        typer.Option(
            help="With --quick: run the experiments on this data set, such as digits.", autocompletion=complete_dataset
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Parallel runs, which share the cores; use 1 to measure times.")] = 1,
    list_: Annotated[bool, typer.Option("--list", help="List experiments, studies and methods; run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the paper's evaluation from raw data: every figure and table.

    Finished runs are skipped, so that the same command continues after an interruption. A run that fails does not stop
    the others: it is reported at the end, and the exit code is 1.

    Example: hashlearn reproduce --quick

    Example: hashlearn reproduce fig-mnist --methods itq,udh-dnn --bits 32 --seeds 1
    """
    from hashlearn.experiments import grid
    from hashlearn.experiments.results import Results

    if data is not None and not quick:
        raise ValueError("--data goes with --quick: the experiments define their own data.")
    lengths, entries = _parse_lengths(bits), _split_words(methods)
    if list_ and not names:
        names = [*grid.names(), *grid.study_names()]
    chosen = grid.choose(names or (), bits=lengths, methods=entries, seeds=seeds, small=quick, data=data)
    if list_:
        return _list_experiments(chosen, as_json)
    _note_unused(chosen, lengths, entries)
    folder = out or Path("results-quick" if quick else "results")
    check_folder("--out", folder)
    outcome, progress = _run(chosen, Results(folder), jobs)
    _show_outcome(outcome, progress, folder, as_json)
    if outcome.failures:
        raise typer.Exit(1)
    return None


def _split_words(texts: list[str] | None) -> list[str] | None:
    """``itq,udh-dnn``, or several such texts, as a list."""
    return None if texts is None else ",".join(texts).replace(",", " ").split()


def _parse_lengths(texts: list[str] | None) -> list[int] | None:
    words = _split_words(texts)
    if words is None:
        return None
    if not words or not all(word.isdecimal() for word in words):
        got = ",".join(texts or [])
        raise ValueError(f"--bits must be whole numbers separated by commas, such as 16,32; got {got!r}.")
    return [int(word) for word in words]


def _note_unused(chosen: Sequence[Experiment], bits: list[int] | None, methods: list[str] | None) -> None:
    """Note the code lengths and methods that no chosen experiment has."""
    lengths = {n_bits for experiment in chosen for n_bits in experiment.bits}
    names = {name for experiment in chosen for name in experiment.methods}
    unused_bits = ", ".join(str(n_bits) for n_bits in bits or () if n_bits not in lengths)
    unused_methods = ", ".join(name for name in methods or () if name not in names)
    if unused_bits:
        note(f"no chosen experiment has the bits {unused_bits}")
    if unused_methods:
        where = "" if bits is None else " at these lengths"
        note(f"no chosen experiment has the methods {unused_methods}{where}")


def _list_experiments(chosen: Sequence[Experiment], as_json: bool) -> None:
    from hashlearn.experiments.grid import plan_runs

    result: list[dict[str, Any]] = [
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
    text = [
        f"{entry['experiment']}: {entry['title']}\n"
        f"    {count(entry['runs'], 'run')}; {' or '.join(entry['data'])}; {'/'.join(map(str, entry['bits']))} bits; "
        f"up to {count(entry['seeds'], 'seed')}\n"
        f"    {', '.join(entry['methods'])}"
        for entry in result
    ]
    show(result, as_json, "\n".join(text))


def _run(chosen: list[Experiment], results: Any, jobs: int) -> tuple[Outcome, Progress]:
    from hashlearn.experiments.scheduler import reproduce as run

    with _progress_display(jobs) as progress:
        try:
            return run(chosen, results, jobs=jobs, observer=progress), progress
        except KeyboardInterrupt:
            kept = f"kept in {results.folder}: {count(results.count(), 'result')}"
            say(f"{kept}; the same command continues")
            raise


@contextmanager
def _progress_display(jobs: int) -> Iterator[Progress]:
    from hashlearn.experiments.progress_display import Lines, Live, Progress

    if is_quiet():
        yield Progress(jobs)
    elif is_watched():
        from rich.console import Console

        with Live(Console(stderr=True), jobs) as live:
            yield live
    else:
        yield Lines(sys.stderr, jobs)


def _show_outcome(outcome: Outcome, progress: Progress, folder: Path, as_json: bool) -> None:
    """Print the numbers on stdout and the failures on stderr."""
    from hashlearn.experiments.progress_display import numbers_so_far
    from hashlearn.experiments.summary import measure_label

    numbers: dict[str, dict[str, Any]] = {"map": {}}
    for experiment, measure in dict.fromkeys((run.experiment, run.measure) for run, _ in progress.done):
        numbers.setdefault(measure, {})[experiment] = numbers_so_far(progress.done, experiment)
    if not as_json:
        for measure, experiments in numbers.items():
            for name, scores in experiments.items():
                lengths = sorted({n_bits for row in scores.values() for n_bits in row})
                rows = [[label, *(row.get(n_bits, "") for n_bits in lengths)] for label, row in scores.items()]
                table(f"{name}: {measure_label(measure)}", ["method", *(f"{n} bits" for n in lengths)], rows)
    result = {
        "results": str(folder),
        "found": outcome.found,
        "made": outcome.made,
        "failed": [{"what": failure.what, "error": failure.error} for failure in outcome.failures],
        **numbers,
    }
    made = f"{count(outcome.made, 'run')} made, {outcome.found:,} found"
    show(result, as_json, f"{made}: {folder}; hashlearn report {folder} shows them all")
    for failure in outcome.failures:
        fail(f"{failure.what} failed: {failure.error}")
        if failure.details and os.environ.get("HASHLEARN_DEBUG"):
            for line in failure.details.splitlines():
                fail(line)


def report(
    results: Annotated[Path, typer.Argument(metavar="[RESULTS]", help="Folder of the results.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    markdown: Annotated[Path | None, typer.Option(help="Also write a short version as Markdown.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder of the charts. Default: figures, beside the Markdown.")
    ] = None,
    images: Annotated[bool, typer.Option(help="Show search results as images, which are loaded for it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Turn results into one page: tables, charts, and the paper's claims one by one, with the numbers.

    The page is self-contained: it needs neither a network nor the results.

    Example: hashlearn report results --out report.html
    """
    from hashlearn.experiments.report import left_out_words, write_report
    from hashlearn.storage import check_target

    for target in (out, markdown):
        if target is not None:
            check_target(target)
    if markdown is not None and markdown.resolve() == out.resolve():
        raise ValueError(f"--out and --markdown must be two files; got {out} for both.")
    check_folder("--figures", figures)
    made = write_report(results, out, markdown=markdown, figures=figures, images=images)
    if made.n_left_out:
        note(left_out_words(made.n_left_out, made.n_outdated))
    result = {
        "page": str(made.out),
        "markdown": None if made.markdown is None else str(made.markdown),
        "figures": [str(path) for path in made.figures],
        "runs": made.n_runs,
        "missing": made.n_missing,
        "left_out": made.n_left_out,
    }
    written = ", ".join(str(path) for path in (made.out, made.markdown) if path is not None)
    missing = f", {made.n_missing:,} missing" if made.n_missing else ""
    charts = f", {count(len(made.figures), 'chart')}" if made.figures else ""
    show(result, as_json, f"{count(made.n_runs, 'run')}{missing}: {written}{charts}")


COMMANDS = (reproduce, report)
