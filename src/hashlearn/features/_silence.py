"""Silence of Pillow in one thread: what it warns of, or logs as an error, while that thread reads a picture.

``warnings.catch_warnings`` exchanges the filters of the whole process, so two threads that use it restore each
other's. Instead one filter is put in front of the others; it asks which thread is warning and matches only where a
picture is being read. No list is exchanged, and other threads hear what they would have heard.

Only another thread that puts a filter of its own in front during those milliseconds can undo it. If that filter makes
errors of warnings, the picture is refused, as by any other error.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["silent_pillow"]

_LOGGER = "PIL.TiffImagePlugin"  # logs an error, and raises it too


class _Here(threading.local):
    """Each thread sees its own ``depth``; stands where the filter of a warning has a pattern for the module."""

    depth = 0

    def match(self, module: str) -> bool:
        return self.depth > 0 and module.partition(".")[0] == "PIL"

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0

    def __reduce__(self) -> str:
        return "_here"  # filters may be sent to other processes, as scikit-learn does


_here = _Here()
_FILTER: Any = ("ignore", None, Warning, _here, 0)  # Python calls match() on whatever has the place of a pattern
_lock = threading.Lock()
_readers = 0


@contextmanager
def silent_pillow() -> Iterator[None]:
    """Hide this thread's warnings from Pillow's modules; nothing is left behind when the last thread is done."""
    global _readers
    with _lock:
        _readers += 1
        if not warnings.filters or warnings.filters[0] is not _FILTER:
            _remove()
            warnings.filters.insert(0, _FILTER)  # type: ignore[attr-defined]
        logging.getLogger(_LOGGER).addFilter(_here)
    _here.depth += 1
    try:
        if getattr(sys.flags, "context_aware_warnings", False):  # Python 3.14 on: filters of this thread go first
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        else:
            yield
    finally:
        _here.depth -= 1
        with _lock:
            _readers -= 1
            if _readers == 0:
                _remove()
                logging.getLogger(_LOGGER).removeFilter(_here)


def _begin_anew() -> None:
    """In a forked child, where the other threads that read pictures are not."""
    global _lock, _readers
    _lock, _readers = threading.Lock(), _here.depth
    if _readers == 0:
        _remove()
        logging.getLogger(_LOGGER).removeFilter(_here)


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_begin_anew)


def _remove() -> None:
    if _FILTER in warnings.filters:
        warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]
