"""Exact searches that read every code: FAISS's Hamming kernels on plain arrays and memory maps, without a copy.

Equal distances are ordered by row.

FAISS runs on one OpenMP thread, and Python threads share the queries instead: on a busy machine OpenMP's threads wait
for each other, and a query can take a hundred times longer on two of them than on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array, Codes
from hashlearn.codes import code_words, distance_type, distances_into
from hashlearn.threads import cores

T = TypeVar("T")
Distances = NDArray[np.int32]
Rows = NDArray[np.int64]

# Lengths in bytes for which FAISS has special kernels; other lengths take two to four times as long.
_FAST_WIDTHS = (4, 8, 16, 20, 32, 64)
# Up to this k a heap is faster than counting (benchmarks/bench_search.py).
MAX_HEAP = 100
# Counting allocates k rows for every distance. If that takes more bytes per query, distances are sorted instead.
_COUNTING_BYTES = 1 << 26
# Comparisons that are worth another thread.
_SHARED_WORK = 1 << 21
# FAISS reads the codes once for all queries of a call, so a call should have a few.
_MIN_SLICE = 4


def scan_width(n_bytes: int) -> int:
    """The number of bytes that a code is padded to, so that it is compared fast."""
    return next((width for width in _FAST_WIDTHS if n_bytes <= width), -(-n_bytes // 8) * 8)


def padded(codes: Codes, width: int) -> Codes:
    """Pad codes with zero bytes to ``width``. The result is contiguous, and a copy only if it must be."""
    if codes.shape[1] == width:
        return np.ascontiguousarray(codes)
    out = np.zeros((len(codes), width), dtype=np.uint8)
    out[:, : codes.shape[1]] = codes
    return out


def is_sorted_for(k: int, width: int) -> bool:
    """Whether the k nearest codes of ``width`` bytes are found by sorting all distances."""
    return _bucket_bytes(k, width) > _COUNTING_BYTES


def _bucket_bytes(k: int, width: int) -> int:
    return (8 * width + 1) * k * 8


def nearest_rows(queries: Codes, codes: Codes, k: int) -> tuple[Distances, Rows]:
    """Find distances and rows (n_queries, k) of the k nearest, by (distance, row); k is at most the number of codes."""
    distances = np.empty((len(queries), k), dtype=np.int32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    width = codes.shape[1]
    find: Callable[[Codes, Array, int, Distances, Rows], None]
    if is_sorted_for(k, width):
        find, among, max_slice = _sort, code_words(codes), 1
    else:
        find, among = _select, codes
        max_slice = len(queries) if k <= MAX_HEAP else max(1, _COUNTING_BYTES // _bucket_bytes(k, width))

    def work(part: slice) -> None:
        find(queries[part], among, k, distances[part], rows[part])

    share(work, len(queries), len(codes), max_slice)
    return distances, rows


def _select(queries: Codes, codes: Codes, k: int, distances: Distances, rows: Rows) -> None:
    import faiss

    with one_openmp_thread():
        if k <= MAX_HEAP:
            heap = faiss.int_maxheap_array_t()
            heap.nh, heap.k = len(queries), k
            heap.val, heap.ids = faiss.swig_ptr(distances), faiss.swig_ptr(rows)
            # The heap orders by distance, then by row.
            faiss.hammings_knn_hc(heap, faiss.swig_ptr(queries), faiss.swig_ptr(codes), len(codes), codes.shape[1], 1)
        else:
            sizes = len(queries), len(codes), k, codes.shape[1]
            arrays = queries, codes, distances, rows
            a, b, d, r = (faiss.swig_ptr(array) for array in arrays)
            faiss.hammings_knn_mc(a, b, *sizes, d, r)


def _sort(queries: Codes, words: Array, k: int, distances: Distances, rows: Rows) -> None:
    n_bits = 8 * queries.shape[1]
    query_words = code_words(queries)
    row_distances = np.empty((1, words.shape[1]), dtype=distance_type(n_bits))
    for i in range(len(queries)):
        distances_into(query_words[:, i : i + 1], words, row_distances)
        # Sort only the rows that are as near as the k-th.
        counts = np.cumsum(np.bincount(row_distances[0], minlength=n_bits + 1))
        near = np.flatnonzero(row_distances[0] <= np.searchsorted(counts, k))
        near = near[np.argsort(row_distances[0, near], kind="stable")[:k]]
        distances[i], rows[i] = row_distances[0, near], near


def rows_within(queries: Codes, codes: Codes, radius: int) -> tuple[Rows, Distances, Rows]:
    """Find all within the radius: offsets (n_queries + 1,), distances and rows, by (query, distance, row)."""
    import faiss

    def work(part: slice) -> tuple[Any, Any, Any]:
        block = queries[part]
        with one_openmp_thread():
            result = faiss.RangeSearchResult(len(block))
            # FAISS's radius is exclusive.
            pointers = faiss.swig_ptr(block), faiss.swig_ptr(codes)
            sizes = len(block), len(codes), radius + 1, codes.shape[1]
            faiss.hamming_range_search(*pointers, *sizes, result)  # type: ignore[attr-defined]
            ends = faiss.rev_swig_ptr(result.lims, len(block) + 1).astype(np.int64)
            size = int(ends[-1])
            distances = faiss.rev_swig_ptr(result.distances, size).astype(np.int32) if size else np.empty(0, np.int32)
            rows = faiss.rev_swig_ptr(result.labels, size).copy() if size else np.empty(0, np.int64)
        return np.diff(ends), distances, rows

    return merge_parts(share(work, len(queries), len(codes), len(queries)))


def merge_parts(parts: list[tuple[Any, Any, Any]]) -> tuple[Rows, Distances, Rows]:
    """Concatenate counts, distances and rows of blocks of queries, and order each query's."""
    counts, distances, rows = (
        np.concatenate(columns) if len(columns) > 1 else columns[0] for columns in zip(*parts, strict=True)
    )
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    counts.cumsum(out=offsets[1:])
    if len(rows) > 1:
        queries = () if len(counts) == 1 else (np.repeat(np.arange(len(counts)), counts),)
        order = np.lexsort((rows, distances, *queries))
        distances, rows = distances[order], rows[order]
    return offsets, distances.astype(np.int32, copy=False), rows


def share(work: Callable[[slice], T], n_queries: int, n_codes: int, max_slice: int) -> list[T]:
    """Map ``work`` over slices of at most ``max_slice`` queries, on as many threads as pay off."""
    n_threads = min(cores(), n_queries, 1 + n_queries * n_codes // _SHARED_WORK)
    # Two slices per thread, so that a slow thread can do fewer; four are slower on an idle machine.
    per_slice = -(-n_queries // n_threads) if n_threads < 2 else max(_MIN_SLICE, -(-n_queries // (2 * n_threads)))
    size = max(1, min(max_slice, per_slice))
    slices = [slice(start, min(start + size, n_queries)) for start in range(0, n_queries, size)]
    if n_threads < 2:
        return [work(part) for part in slices]
    with ThreadPoolExecutor(n_threads) as threads:  # thread_map also limits BLAS, which is not used here
        return list(threads.map(work, slices))


@contextmanager
def one_openmp_thread() -> Iterator[None]:
    """Run FAISS on one OpenMP thread. The setting belongs to the calling thread, and is restored."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
