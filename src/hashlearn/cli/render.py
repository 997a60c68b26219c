"""Output: data on stdout, notes and errors on stderr; text, tables, JSON and pages of pictures."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unicodedata import category

from hashlearn.progress import is_open

if TYPE_CHECKING:
    from hashlearn.collection import Match

#: Printed for an item without a source.
NO_SOURCE = "–"
_quiet = False


def set_quiet(quiet: bool) -> None:
    """Turn off progress and notes, in this process and in those that it starts; or turn notes on again."""
    global _quiet
    _quiet = quiet
    if quiet:
        os.environ["HASHLEARN_PROGRESS"] = "0"


def is_quiet() -> bool:
    return _quiet


def say(words: str) -> None:
    """Print one line on stderr, unless --quiet is given."""
    if not _quiet:
        fail(words)


def note(words: str) -> None:
    say(f"note: {words}")


def warn(words: str) -> None:
    fail(f"warning: {' '.join(words.split())}")


def fail(words: str) -> None:
    """Print one line on stderr, whatever a message or the name of a file contains; nothing if stderr is closed."""
    if is_open(sys.stderr):  # without a stderr, print would write to stdout
        with suppress(OSError):  # such as a pipe that is no longer read
            print(printable(f"hashlearn: {' '.join(words.splitlines())}"), file=sys.stderr)


def show(result: Any, as_json: bool, text: str) -> None:
    """Print the result as JSON or as text."""
    print(json.dumps(result, indent=2) if as_json else text)


def printable(text: str) -> str:
    """Escape line breaks, and characters that a terminal would not show or would take for commands."""
    return "".join(c if c.isprintable() or category(c) == "Zs" else c.encode("unicode_escape").decode() for c in text)


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    Console(markup=False).print(grid)


# -- collections ------------------------------------------------------------------------------------------------------


def print_matches(matches: list[Match]) -> None:
    """Print the matches of a query, one per line: distance, id, source and payload."""
    if not matches:
        say("no match")
    for match in matches:
        extra = "" if match.payload is None else "\t" + printable(json.dumps(match.payload, ensure_ascii=False))
        print(f"{match.distance}\t{match.id}\t{printable(match.source or NO_SOURCE)}{extra}")
