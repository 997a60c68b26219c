"""Display the progress of runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, TextIO

from hashlearn.experiments.grid import Run
from hashlearn.experiments.results import Record, run_seconds
from hashlearn.experiments.scheduler import Failure
from hashlearn.experiments.summary import measure_label
from hashlearn.progress import count, duration, is_open

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Progress:
    """Keeps track of runs that are done, running and left, and estimates the time left from similar runs."""

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self.begun = time.monotonic()
        self.done: list[tuple[Run, Record]] = []
        self.failures: list[Failure] = []
        self.running: dict[str, float] = {}  # when each began, by name
        self.left: dict[str, Run] = {}  # by name, running ones included
        self.total = 0
        self._seconds: dict[tuple[Any, ...], list[float]] = {}

    def noted(self, words: str) -> None:
        """Receive a note before the runs begin."""

    def planned(self, done: Sequence[tuple[Run, Record]], pending: Sequence[Run]) -> None:
        self.left = {str(run): run for run in pending}
        self.total = len(done) + len(pending)
        for run, record in done:
            self._keep(run, record)

    def started(self, run: Run) -> None:
        self.running[str(run)] = time.monotonic()

    def finished(self, run: Run, record: Record) -> None:
        self._end(str(run))
        self._keep(run, record)

    def failed(self, failure: Failure) -> None:
        self._end(failure.what)
        self.failures.append(failure)

    def tick(self) -> None:
        """Called regularly while runs are in progress."""

    def _end(self, name: str) -> None:
        self.running.pop(name, None)
        self.left.pop(name, None)

    def _keep(self, run: Run, record: Record) -> None:
        self.done.append((run, record))
        for key in self._similar_groups(run):
            self._seconds.setdefault(key, []).append(run_seconds(record))

    @staticmethod
    def _similar_groups(run: Run) -> list[tuple[Any, ...]]:
        """Return groups of runs that take about as long, the most similar first."""
        method = run.entry.method
        return [
            (run.experiment, run.entry.name, run.n_bits),
            (run.data, method, run.n_bits),
            (run.data, method),
            (method,),
            (),
        ]

    def expected(self, run: Run) -> float | None:
        """Estimate the seconds that a run will take; None if nothing is known yet."""
        return next((fmean(self._seconds[key]) for key in self._similar_groups(run) if key in self._seconds), None)

    def remaining(self) -> float | None:
        """Estimate the seconds until all runs are done; None if nothing is known yet."""
        rest = 0.0
        for name, run in list(self.left.items()):
            seconds = self.expected(run)
            if seconds is None:
                return None
            rest += max(0.0, seconds - self.elapsed(name))
        return rest / self.jobs

    def elapsed(self, name: str) -> float:
        begun = self.running.get(name)
        return 0.0 if begun is None else time.monotonic() - begun

    def counts(self) -> str:
        """Describe the progress: ``12 of 84 runs, 3 failed, about 1 h 02 min left``."""
        words = [f"{len(self.done):,} of {count(self.total, 'run')}"]
        if self.failures:
            words.append(f"{len(self.failures)} failed")
        rest = self.remaining()
        if self.left and rest is not None:
            words.append(f"about {duration(rest)} left")
        return ", ".join(words)


def format_scores(record: Record) -> str:
    """Format the scores in percent: ``mAP 24.04, P@3 34.14``, or ``recall@10 24.04``."""
    scores = record["scores"]
    names = [name for name in scores if name.endswith("recall@10")] or [
        name for name in scores if name == "map" or name.startswith("p@")
    ]
    return ", ".join(f"{measure_label(name)} {100 * scores[name]:.2f}" for name in names)


class Lines(Progress):
    """Prints a line for each event."""

    def __init__(self, stream: TextIO | None, jobs: int = 1) -> None:
        super().__init__(jobs)
        self._stream = stream

    def _say(self, words: str) -> None:
        if is_open(self._stream):  # print would otherwise write to stdout, or fail
            print(f"{datetime.now():%H:%M:%S} {' '.join(words.splitlines())}", file=self._stream, flush=True)

    def noted(self, words: str) -> None:
        self._say(words)

    def planned(self, done: Sequence[tuple[Run, Record]], pending: Sequence[Run]) -> None:
        super().planned(done, pending)
        self._say(f"{count(len(pending), 'run')} to make, {len(done):,} already made")

    def started(self, run: Run) -> None:
        super().started(run)
        self._say(f"{run} ...")

    def finished(self, run: Run, record: Record) -> None:
        super().finished(run, record)
        self._say(f"{run}: {format_scores(record)}; {duration(run_seconds(record))} ({self.counts()})")

    def failed(self, failure: Failure) -> None:
        super().failed(failure)
        self._say(f"{failure.what} FAILED: {failure.error}")


class Live(Progress):
    """A context manager that redraws a table of the runs in progress and the scores so far.

    It starts when the runs are planned. Before that, data may be downloaded, which shows its own bars.
    """

    def __init__(self, console: Console, jobs: int = 1) -> None:
        from rich.live import Live as Drawing

        super().__init__(jobs)
        self._drawing = Drawing(console=console, get_renderable=self._render, refresh_per_second=2, transient=True)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *error: Any) -> None:
        self._drawing.stop()

    def planned(self, done: Sequence[tuple[Run, Record]], pending: Sequence[Run]) -> None:
        super().planned(done, pending)
        self._drawing.start()

    def noted(self, words: str) -> None:
        self._drawing.console.print(words, markup=False, highlight=False)

    def failed(self, failure: Failure) -> None:
        super().failed(failure)
        self.noted(f"{failure.what} FAILED: {failure.error}")

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        # Called from another thread while runs go on: works on copies.
        running, done = list(self.running), list(self.done)
        under_way = [f"{name}, {duration(self.elapsed(name))}" for name in running]
        bar = Table.grid()  # a bar alone does not end its line
        bar.add_row(ProgressBar(total=self.total, completed=len(self.done) + len(self.failures), width=60))
        parts: list[RenderableType] = [Text(f"{self.counts()}; running: {'; '.join(under_way) or 'nothing'}"), bar]
        experiment = running[0].split()[0] if running else done[-1][0].experiment if done else None
        numbers = numbers_so_far(done, experiment)
        if numbers:
            lengths = sorted({n_bits for row in numbers.values() for n_bits in row})
            table = Table()
            table.add_column("method")
            for n_bits in lengths:
                table.add_column(f"{n_bits} bits", justify="right")
            for label, row in numbers.items():
                table.add_row(label, *(row.get(n_bits, "") for n_bits in lengths))
            measure = next(run.measure for run, _ in done if run.experiment == experiment)
            parts += [Text(f"{experiment}: {measure_label(measure)} so far, percent"), table]
        return Group(*parts)


def numbers_so_far(done: Sequence[tuple[Run, Record]], experiment: str | None) -> dict[str, dict[int, str]]:
    """Return the mean of the measure in percent by method and bits, with the number of runs if there are several."""
    scores: dict[str, dict[int, list[float]]] = {}
    for run, record in done:
        if run.experiment == experiment:
            value = record["scores"].get(run.measure)
            if value is not None:
                scores.setdefault(run.entry.label, {}).setdefault(run.n_bits, []).append(100 * value)
    return {
        label: {
            n_bits: f"{fmean(values):.2f}" + (f" ({len(values)})" if len(values) > 1 else "")
            for n_bits, values in row.items()
        }
        for label, row in scores.items()
    }
