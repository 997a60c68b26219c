"""The nearest neighbors of every sample among the others: exact, or by an inverted file if there are many samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array, Indices
from hashlearn.hashers._blocks import Rows, blocks_of_size
from hashlearn.progress import progress_bar
from hashlearn.storage import cached_array, content_key
from hashlearn.threads import ThreadMap

#: Up to so many samples the graph is exact; the time for that grows with their square.
EXACT = 100_000
# Samples that are searched for at a time.
_BLOCK = 1024
# An inverted file has so many lists for each root of the number of samples, and learns them from so many samples a
# list. Ever more lists are searched until this share of the true neighbors is found, measured on so many samples, or
# until so many lists are searched.
_LISTS, _SAMPLES_PER_LIST, _RECALL, _CHECKED, _MAX_PROBES = 4, 64, 0.95, 1000, 256
# Iterations of k-means that learn the lists.
_ITERATIONS = 10


class Graph(NamedTuple):
    """The neighbors of each sample."""

    #: Numbers (m, k) of the nearest others, nearest first.
    neighbors: NDArray[np.int32]
    #: The share of the true neighbors that is among them: 1 if the graph is exact, else measured on some samples.
    recall: float


def neighbor_graph(
    rows: Rows, k: int, threads: ThreadMap, *, key: str | None = None, show_progress: bool | None = None
) -> Graph:
    """Find the ``k`` nearest other samples of each sample by Euclidean distance, computed in float32.

    Up to :data:`EXACT` samples all distances are computed. Beyond, FAISS's inverted file is searched, and its recall
    is measured. FAISS keeps a float32 copy of the rows meanwhile, and two for an inverted file. The result does not
    depend on the number of threads.

    Parameters
    ----------
    rows : Rows
        The samples, centered and scaled.
    k : int
        At most m − 1.
    threads : ThreadMap
    key : str, optional
        The content of the samples and their scale, on which roundings depend; then the graph is kept in the cache
        folder, and read from there next time.
    show_progress : bool, optional
    """

    def compute() -> Array:
        neighbors, recall = _search(rows, k, threads, show_progress)
        # The recall is the last row, in millionths.
        return np.vstack([neighbors, np.full((1, k), round(1e6 * recall), dtype=np.int32)])

    if key is None:
        graph = _search(rows, k, threads, show_progress)
    else:
        stored = cached_array("graphs", content_key("graph 2", key, k, EXACT), compute)
        graph = Graph(stored[:-1], float(stored[-1, 0]) / 1e6)
    if graph.recall < _RECALL:
        warnings.warn(
            f"of the true neighbors of the samples, training knows only {graph.recall:.0%}.", UserWarning, stacklevel=2
        )
    return graph


def _search(rows: Rows, k: int, threads: ThreadMap, show_progress: bool | None) -> Graph:
    import faiss

    m, D = rows.shape
    exact = faiss.IndexFlatL2(D)
    for block in blocks_of_size(m, _BLOCK):
        exact.add(rows[block].astype(np.float32))

    def find(index: Any, numbers: Indices, advance: Callable[[float], object] = lambda _: None) -> Array:
        def work(block: slice) -> Array:
            faiss.omp_set_num_threads(1)  # of this Python thread
            _, ids = index.search(rows.take(numbers[block]).astype(np.float32), k + 1)
            advance(len(ids))
            return _without(ids, numbers[block])

        return np.concatenate(threads(work, blocks_of_size(len(numbers), _BLOCK)))

    n_threads = faiss.omp_get_max_threads()
    try:
        with progress_bar("neighbors", m, unit="samples", show=show_progress) as advance:
            if m <= EXACT:
                return Graph(find(exact, np.arange(m), advance), 1.0)
            index, recall = _inverted_file(rows), 0.0
            some = np.arange(0, m, m // _CHECKED)
            truth = find(exact, some)
            while recall < _RECALL and index.nprobe < min(_MAX_PROBES, index.nlist):
                index.nprobe *= 2
                recall = _overlap(truth, find(index, some))
            neighbors = find(index, np.arange(m), advance)
            # Where the lists that are searched hold too few samples, far from all others, FAISS returns -1.
            short = np.flatnonzero((neighbors < 0).any(axis=1))
            if len(short):
                neighbors[short] = find(exact, short)
            return Graph(neighbors, recall)
    finally:
        faiss.omp_set_num_threads(n_threads)


def _without(ids: Array, numbers: Indices) -> NDArray[np.int32]:
    """Return ids (n, k + 1) without each row's own number, or without the last if it is not among them."""
    itself = ids == numbers[:, None]
    itself[~itself.any(axis=1), -1] = True
    return np.asarray(ids[~itself].reshape(len(ids), -1), dtype=np.int32)


def _overlap(truth: Array, ids: Array) -> float:
    return sum(len(np.intersect1d(a, b)) for a, b in zip(truth, ids, strict=True)) / truth.size


def _inverted_file(rows: Rows) -> Any:
    import faiss

    m, D = rows.shape
    n_lists = int(_LISTS * np.sqrt(m))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(D), D, n_lists)
    index.nprobe, index.cp.niter, index.cp.min_points_per_centroid = 4, _ITERATIONS, 1
    step = max(1, m // (_SAMPLES_PER_LIST * n_lists))
    faiss.omp_set_num_threads(1)  # so that sums over samples do not depend on the number of threads
    index.train(rows.take(np.arange(0, m, step)).astype(np.float32))
    for block in blocks_of_size(m, _BLOCK):
        index.add(rows[block].astype(np.float32))
    return index
