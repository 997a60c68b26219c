"""Progress bars: on stderr, only on a terminal, off by one switch (``HASHLEARN_PROGRESS=0``); counts and durations."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["count", "duration", "is_open", "is_watched", "progress_bar"]


def is_open(stream: TextIO | None) -> bool:
    """Whether a stream can be written to.

    Parameters
    ----------
    stream : text stream or None
        Such as ``sys.stderr``, which is None or closed in some processes without a terminal.
    """
    return stream is not None and not getattr(stream, "closed", False)


def is_watched() -> bool:
    """Whether to show progress: stderr is a terminal, and ``HASHLEARN_PROGRESS`` is not 0."""
    return is_open(sys.stderr) and sys.stderr.isatty() and os.environ.get("HASHLEARN_PROGRESS") != "0"


@contextmanager
def progress_bar(
    description: str, total: float | None, *, unit: str = "", show: bool | None = None
) -> Iterator[Callable[[float], None]]:
    """Yield ``advance(amount)``, which updates the bar or does nothing if none is shown.

    Parameters
    ----------
    description : str
    total : float or None
        None if the length is unknown.
    unit : str
        ``"bytes"`` prints sizes and rates.
    show : bool, optional
        Default: show a bar if stderr is a terminal and ``HASHLEARN_PROGRESS`` is not 0.
    """
    if not (is_watched() if show is None else show and is_open(sys.stderr)):
        yield lambda amount: None
        return

    from rich import progress
    from rich.console import Console

    counters: list[progress.ProgressColumn] = [progress.MofNCompleteColumn(), progress.TextColumn(unit)]
    if unit == "bytes":
        counters = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
    columns = [progress.TextColumn("{task.description}"), progress.BarColumn(), *counters]
    columns.append(progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.update(task, advance=amount)


def duration(seconds: float) -> str:
    """Write a duration in words.

    Parameters
    ----------
    seconds : float

    Examples
    --------
    >>> duration(42), duration(200), duration(7500)
    ('42 s', '3 min 20 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count(n: int, word: str) -> str:
    """Write a number of things.

    Parameters
    ----------
    n : int
    word : str
        What is counted, in the singular.

    Examples
    --------
    >>> count(1, "item"), count(2000, "item")
    ('1 item', '2,000 items')
    """
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"
