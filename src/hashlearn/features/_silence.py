"""Hide the warnings and log messages of Pillow in a thread that reads a picture.

``warnings.catch_warnings`` replaces the filters of the whole process, so two threads that use it restore each other's.
Instead, one filter is inserted before the others. It matches only in a thread that reads a picture, so other threads
are not affected.

Another thread can undo this only by inserting a filter of its own during those milliseconds. If that filter turns
warnings into errors, the picture is refused, as after any other error.
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

_LOGGER = "PIL.TiffImagePlugin"  # logs errors that it also raises


class _ReaderState(threading.local):
    """Per-thread state, used in place of a filter's pattern for the module: Python calls its ``match``."""

    depth = 0

    def match(self, module: str) -> bool:
        return self.depth > 0 and module.partition(".")[0] == "PIL"

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0

    def __reduce__(self) -> str:
        return "_state"  # scikit-learn sends filters to other processes


_state = _ReaderState()
_FILTER: Any = ("ignore", None, Warning, _state, 0)
_lock = threading.Lock()
_readers = 0


@contextmanager
def silent_pillow() -> Iterator[None]:
    """Hide warnings of Pillow in this thread. The last thread to leave removes the filter."""
    global _readers
    with _lock:
        _readers += 1
        if not warnings.filters or warnings.filters[0] is not _FILTER:
            _remove()
            warnings.filters.insert(0, _FILTER)  # type: ignore[attr-defined]
        logging.getLogger(_LOGGER).addFilter(_state)
    _state.depth += 1
    try:
        # From Python 3.14 on, the filters of a thread come first.
        if getattr(sys.flags, "context_aware_warnings", False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        else:
            yield
    finally:
        _state.depth -= 1
        with _lock:
            _readers -= 1
            _remove_unused()


def _reset() -> None:
    """In a forked child, which does not have the other threads that read pictures."""
    global _lock, _readers
    _lock, _readers = threading.Lock(), _state.depth
    _remove_unused()


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_reset)


def _remove_unused() -> None:
    if _readers == 0:
        _remove()
        logging.getLogger(_LOGGER).removeFilter(_state)


def _remove() -> None:
    if _FILTER in warnings.filters:
        warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]
