"""Ctrl-C at any line: an action is run again and again, and interrupted at its first line, its second, and so on."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import hashlearn

_FOLDERS = (str(Path(hashlearn.__file__).parent), contextlib.__file__)


@cache
def _lines(file: str, kind: type[ast.AST]) -> set[int]:
    """The first lines of the statements of a kind."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.lineno for node in ast.walk(tree) if isinstance(node, kind)}  # type: ignore[attr-defined]


def interrupted(action: Callable[[], object], line: int, *, again: bool = False) -> bool:
    """Whether the action was interrupted at that line, counted from 0 over all that it runs; not if it ended before.

    A line that is run several times counts once, or each time with ``again``.

    Python takes no signal between the end of a ``with`` block and the call of ``__exit__``, nor at ``try:``, but it
    tells a line there (that of the ``with`` statement once more), which no block guards: such lines do not count.
    """
    left = line
    seen: set[tuple[str, int]] = set()

    def call(frame: FrameType, _: str, __: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_FOLDERS):
            return None
        entered: set[int] = set()

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            number = frame.f_lineno
            if event == "line" and number not in entered and number not in _lines(file, ast.Try):
                if number in _lines(file, ast.With):
                    entered.add(number)
                if again or (file, number) not in seen:
                    seen.add((file, number))
                    left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        return trace

    before = sys.gettrace()
    sys.settrace(call)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
