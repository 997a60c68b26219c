"""Use all cores: Python threads process blocks of rows, and BLAS is limited to one thread.

The product of two blocks is too small for BLAS's own threads to help much, and the operations between products
(sigmoids, sums, casts) would run on one core. So the blocks are distributed over Python threads instead.
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
    """The number of cores that this process may use, at most ``OMP_NUM_THREADS`` if that is set."""
    try:
        n = len(os.sched_getaffinity(0))
    except AttributeError:  # not available on every system
        n = os.cpu_count() or 1
    # The variable has a number per level of nesting; only the first level applies here.
    outermost = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    try:
        limit = int(outermost)
    except ValueError:  # not a number, or one with more digits than Python parses
        return n
    return min(n, limit) if limit > 0 else n


@contextmanager
def thread_map(n_threads: int | None = None) -> Iterator[ThreadMap]:
    """Provide a ``map`` that runs on several threads; meanwhile BLAS is limited to one thread.

    Parameters
    ----------
    n_threads : int, optional
        Number of threads. Default: :func:`cores`.

    Yields
    ------
    map : callable
        ``map(function, items)`` returns the list of results, in the order of ``items``.

    Examples
    --------
    >>> with thread_map() as threads:
    ...     threads(abs, [-1, 2, -3])
    [1, 2, 3]
    """
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
    """Most BLAS have one setting per process: the first caller to enter sets it, the last to leave restores it."""
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
            _holders = max(0, _holders - 1)  # a child process forked in here starts at 0
            if _holders == 0:
                _set(shared, _before)


def _one_blas_thread_here() -> None:
    """A BLAS built on OpenMP has a setting for each Python thread, which ends with the thread."""
    _, per_thread = _libraries()
    _set(per_thread, [1] * len(per_thread))


def _reset_after_fork() -> None:
    """Reset the state in a forked child, which does not have the other threads of its parent.

    FAISS would wait forever for the missing threads of OpenMP, so it gets one thread in the child.
    """
    global _holders
    held, _holders = _holders, 0
    _lock.release()
    if held:
        _set(_libraries()[0], _before)
    one_thread = getattr(sys.modules.get("faiss"), "omp_set_num_threads", None)
    if one_thread is not None:
        one_thread(1)


if hasattr(os, "register_at_fork"):  # not available on every system
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_reset_after_fork)


def _set(libraries: list[Any], numbers: list[int]) -> None:
    for library, number in zip(libraries, numbers, strict=True):
        library.set_num_threads(number)
        if hasattr(library, "clear_controlling_thread"):
            # Since threadpoolctl 3.8 only the first Python thread that sets a number may change it, until it lets go.
            library.clear_controlling_thread(force=True)


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """The BLAS libraries of NumPy and SciPy: those with one setting per process, and per Python thread.

    Cached, because the lookup takes milliseconds.
    """
    import scipy.linalg  # noqa: F401 - loads SciPy's own BLAS
    from threadpoolctl import ThreadpoolController

    libraries = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    per_thread = [library for library in libraries if getattr(library, "threading_layer", None) == "openmp"]
    return [library for library in libraries if library not in per_thread], per_thread
