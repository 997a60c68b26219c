"""How the command line prints: data on stdout, talk on stderr."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any
from unicodedata import category

from hashlearn.progress import is_open


def show(result: Any, as_json: bool, text: str) -> None:
    """The answer, for a machine or for a person."""
    print(json.dumps(result, indent=2) if as_json else text)


def say(words: str) -> None:
    """Talk, on one line, whatever a library's message or a file's name has in it; nothing if nobody can listen."""
    if is_open(sys.stderr):  # without a stderr, print would write among the data
        with suppress(OSError):  # such as a pipe that nobody reads any more
            print(printable(" ".join(words.splitlines())), file=sys.stderr)


def count(n: int, word: str) -> str:
    """``1 item``, ``2,000 items``."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def printable(text: str) -> str:
    """A text on one line, with what a terminal would take for commands, or would not show, written out."""
    return "".join(c if c.isprintable() or category(c) == "Zs" else c.encode("unicode_escape").decode() for c in text)
