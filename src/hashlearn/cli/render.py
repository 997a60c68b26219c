"""Output: data on stdout, notes and errors on stderr; text, tables, JSON and pages of pictures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

from hashlearn.progress import count, is_open

if TYPE_CHECKING:
    from hashlearn.collection import Collection, Match
    from hashlearn.collection.contact_sheet import Row

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


@dataclass
class PictureFiles:
    """The files of the pictures that may be shown: a collection from elsewhere may name any file as a source.

    ``folder``: pictures must be below it, links followed; None: no picture is shown. ``hidden``: sources elsewhere.
    """

    root: Path
    folder: Path | None
    hidden: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, collection: Collection, folder: Path | None) -> PictureFiles:
        """Those below ``folder``, or below the collection's root if that is below the folder of its file."""
        root = collection.root
        if folder is not None:
            if not folder.is_dir():
                raise ValueError(f"--pictures must be a folder; {folder} is not.")
            return cls(root, Path(os.path.realpath(folder)))
        real = Path(os.path.realpath(root))
        return cls(root, real if real.is_relative_to(os.path.realpath(collection.file.parent)) else None)

    def find(self, source: str | None) -> Path | None:
        """The file of a picture, if it may be shown."""
        if source is None:
            return None
        try:
            path = Path(os.path.realpath(self.root / source))
        except (OSError, ValueError):  # no file has such a name
            return None
        if self.folder is not None and path.is_relative_to(self.folder):
            return path
        self.hidden.add(source)
        return None

    def write_page(self, path: Path, title: str, subtitle: str, rows: Iterable[Row]) -> None:
        """Write a page of pictures; note how many of them may not be shown."""
        from hashlearn.collection.contact_sheet import contact_sheet
        from hashlearn.storage import atomic_path

        with atomic_path(path) as temporary:
            temporary.write_text(contact_sheet(title, subtitle, rows), encoding="utf-8")
        say(f"{path} shows the pictures")
        if self.hidden:
            where = "the collection's folder" if self.folder is None else str(self.folder)
            words = f"{count(len(self.hidden), 'picture')} not shown, because not below {where}"
            note(f"{words}; --pictures DIR shows those below DIR")
