"""Work on all cores: blocks of rows in Python threads, each with a BLAS of one thread.

A product of two blocks is too small for BLAS's own threads to share well, and what lies between the products (sigmoids,
sums, casts) would run on one core. So the blocks are shared among threads, and BLAS is held to one thread meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

__all__ = ["ThreadMap", "cores", "thread_map"]

ThreadMap = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


def cores() -> int:
    """The number of cores that this process may use, and at most ``OMP_NUM_THREADS`` if that is set."""
    try:
        n = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        n = os.cpu_count() or 1
    # A number for each level of nesting; of the first alone there are threads here.
    outermost = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    try:
        limit = int(outermost)
    except ValueError:  # no number, or one of more digits than Python reads
        return n
    return min(n, limit) if limit > 0 else n


@contextmanager
def thread_map(n_threads: int | None = None) -> Iterator[ThreadMap]:
    """Yield ``map(function, items) -> list``, which shares the items among threads; BLAS is held to one thread."""
    n_threads = cores() if n_threads is None else n_threads
    with _one_blas_thread():
        if n_threads == 1:
            yield lambda function, items: [function(item) for item in items]
            return
        with ThreadPoolExecutor(n_threads, initializer=_one_blas_thread_here) as pool:
            yield lambda function, items: list(pool.map(function, items))


_lock = Lock()
_holders = 0
_before: list[int] = []


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Most BLAS have one number of threads a process: the first who enters sets it, the last to leave restores it."""
    global _holders, _before
    shared, _ = _libraries()
    with _lock:
        if _holders == 0:
            _before = [library.num_threads for library in shared]
            _set(shared, [1] * len(shared))
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders = max(0, _holders - 1)  # a child that was forked in here began anew
            if _holders == 0:
                _set(shared, _before)


def _one_blas_thread_here() -> None:
    """A BLAS on OpenMP has a number of threads for each Python thread: that of a worker ends with it."""
    _, own = _libraries()
    _set(own, [1] * len(own))


def _begin_anew() -> None:
    """In a forked child, where the other threads that held BLAS to one thread are not, nor those of OpenMP.

    FAISS would wait for OpenMP's for ever, so it has one thread in the child.
    """
    global _holders
    held, _holders = _holders, 0
    _lock.release()
    if held:
        _set(_libraries()[0], _before)
    one_thread = getattr(sys.modules.get("faiss"), "omp_set_num_threads", None)
    if one_thread is not None:
        one_thread(1)


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_begin_anew)


def _set(libraries: list[Any], numbers: list[int]) -> None:
    for library, number in zip(libraries, numbers, strict=True):
        library.set_num_threads(number)
        if hasattr(library, "clear_controlling_thread"):
            # Since threadpoolctl 3.8 the first Python thread that sets a number alone may do so, unless it lets go.
            library.clear_controlling_thread(force=True)


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """The BLAS that NumPy and SciPy use: those with a number of threads for all, and for each Python thread.

    Looking them up takes milliseconds.
    """
    import scipy.linalg  # noqa: F401 - brings its own BLAS, which must be there to be found
    from threadpoolctl import ThreadpoolController

    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    own = [library for library in found if getattr(library, "threading_layer", None) == "openmp"]
    return [library for library in found if library not in own], own
