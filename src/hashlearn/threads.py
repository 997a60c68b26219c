"""Work on all cores: blocks of rows in Python threads, each with a BLAS of one thread.

A product of two blocks is too small for BLAS's own threads to share well, and what lies between the products (sigmoids,
sums, casts) would run on one core. So the blocks are shared among threads, and BLAS is held to one thread meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

__all__ = ["ThreadMap", "cores", "thread_map"]

ThreadMap = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@contextmanager
def thread_map(n_threads: int | None = None) -> Iterator[ThreadMap]:
    """Yield ``map(function, items) -> list``, which shares the items among threads; BLAS is held to one thread."""
    n_threads = cores() if n_threads is None else n_threads
    with _one_blas_thread():
        if n_threads == 1:
            yield lambda function, items: [function(item) for item in items]
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield lambda function, items: list(pool.map(function, items))


_lock = Lock()
_holders = 0
_limits: Any = None


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """BLAS has one number of threads for the process: the first who enters sets it, the last to leave restores it."""
    global _holders, _limits
    with _lock:
        if _holders == 0:
            _limits = _controller().limit(limits=1, user_api="blas")
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                # The library takes orders only from the Python thread that gave the first one, unless told otherwise.
                _free()
                _limits.restore_original_limits()
                _free()


def _free() -> None:
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # since threadpoolctl 3.8
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:
    """The BLAS libraries of this process; looking them up takes milliseconds."""
    import scipy.linalg  # noqa: F401 - brings its own BLAS, which must be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
