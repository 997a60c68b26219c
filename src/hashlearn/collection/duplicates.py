"""Groups of near-duplicates: items that are linked by steps of a small Hamming distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hashlearn.codes import code_words
from hashlearn.progress import progress_bar
from hashlearn.search.index import HammingIndex, Ids

__all__ = ["near_duplicates"]

_BLOCK = 10_000
# Codes of the first block, which shows how much a code finds; later ones are such that a block finds about so much.
_FIRST_BLOCK = 200
_MOST_FOUND = 5_000_000
# Links that are held before they are merged into groups.
_MOST_LINKS = 20_000_000


def near_duplicates(index: HammingIndex, radius: int, *, show_progress: bool | None = None) -> list[Ids]:
    """Groups of at least two ids, each within ``radius`` of another one of its group.

    Groups grow link by link: the two ends of a long one may be further apart than the radius. The ids of a group
    ascend; groups are by size, the largest first, then by their first id.

    Args:
        index: What is searched, by itself.
        radius: The largest distance of a link; 0: equal codes.
        show_progress: A progress bar; None: on a terminal.
    """
    ids, codes = index.snapshot()
    if radius < 0:
        raise ValueError(f"radius must be at least 0; got {radius}.")
    # Equal codes are linked without a search, so that a thousand of them do not make a million pairs.
    rows, group = _distinct(codes)
    if radius and len(rows) > 1:
        group = _linked(np.take(codes, rows, axis=0), index.n_bits, radius, show_progress)[group]
    return _groups(ids, group)


def _distinct(codes: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """A row of each distinct code, and for each row the number of its code."""
    if not len(codes):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    order = np.lexsort(code_words(codes))
    ordered = np.take(codes, order, axis=0)
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    number = np.empty(len(codes), np.intp)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def _linked(codes: NDArray[np.uint8], n_bits: int, radius: int, show_progress: bool | None) -> NDArray[np.intp]:
    """For each of distinct codes, the number of its group."""
    index = HammingIndex(n_bits)
    index.add(codes)
    n = len(codes)
    group = np.arange(n)
    links: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
    held = 0
    with progress_bar("searching", n, unit="codes", show=show_progress) as advance:
        start, size = 0, _FIRST_BLOCK
        while start < n:
            some = codes[start : start + size]
            # The plan counts on all the searches that are still to come.
            engine = index.explain(radius=radius, n_queries=n).engine
            found = index.within(some, radius, engine="tables" if engine == "tables" else "scan")
            a = np.repeat(np.arange(start, start + len(some)), np.diff(found.offsets))
            forward = found.ids > a
            links.append((a[forward], found.ids[forward]))
            held += int(forward.sum())
            if held > _MOST_LINKS:
                group, links, held = _merged(group, links), [], 0
            start += len(some)
            size = min(_BLOCK, max(1, _MOST_FOUND * len(some) // max(1, len(found.ids))))
            advance(len(some))
    return _merged(group, links)


def _merged(group: NDArray[np.intp], links: list[tuple[NDArray[np.intp], NDArray[np.intp]]]) -> NDArray[np.intp]:
    """The groups after more links."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    a, b = (np.concatenate([group[:0], *ends]) for ends in zip(*links, strict=True)) if links else (group[:0],) * 2
    n = len(group)
    graph = coo_array((np.ones(len(a), np.bool_), (group[a], group[b])), shape=(n, n))
    _, merged = connected_components(graph, directed=False)
    return np.asarray(merged[group], dtype=np.intp)


def _groups(ids: Ids, group: NDArray[np.intp]) -> list[Ids]:
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group) if len(group) else np.empty(0, np.intp)
    parts = np.split(ids[order], np.cumsum(sizes)[:-1]) if len(sizes) else []
    found = [part for part in parts if len(part) > 1]
    return sorted(found, key=lambda part: (-len(part), int(part[0])))
