"""Work on all cores: blocks of rows in Python threads, each with a BLAS of one thread.

A product of two blocks is too small for BLAS's own threads to share well, and what lies between the products (tanh,
sums, casts) would run on one core. So the blocks are shared among threads, and BLAS is held to one thread meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    from threadpoolctl import threadpool_limits

    n_threads = cores() if n_threads is None else n_threads
    with threadpool_limits(1, "blas"):
        if n_threads == 1:
            yield lambda function, items: [function(item) for item in items]
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield lambda function, items: list(pool.map(function, items))
