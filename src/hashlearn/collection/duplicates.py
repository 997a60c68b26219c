"""Groups of near-duplicates: items whose codes are linked by small Hamming distances."""

from __future__ import annotations

import numpy as np

from hashlearn._arrays import Codes, Ids, Indices
from hashlearn.codes import code_words
from hashlearn.progress import progress_bar
from hashlearn.search.index import HammingIndex

__all__ = ["near_duplicates"]

_BLOCK = 10_000
# The first block shows how many matches a code has. Later blocks are sized to have about _BLOCK_MATCHES.
_FIRST_BLOCK = 200
_BLOCK_MATCHES = 5_000_000
# Links to collect before they are merged into groups.
_MAX_LINKS = 20_000_000


def near_duplicates(index: HammingIndex, radius: int, *, show_progress: bool | None = None) -> list[Ids]:
    """Find groups of at least two ids, each within ``radius`` of another id of its group.

    Two ids of a group may be further apart than the radius if others link them.

    Parameters
    ----------
    index
        The index to search, such as ``collection.index``.
    radius
        The largest Hamming distance of a link; 0: equal codes.
    show_progress
        Show a progress bar. None: only on a terminal.

    Returns
    -------
    groups : list of ndarray, int64
        Groups of ascending ids; the largest group first, then by their first id.
    """
    ids, codes = index.snapshot()
    if radius < 0:
        raise ValueError(f"radius must be at least 0; got {radius}.")
    # Equal codes are grouped without a search: a thousand of them would make a million pairs.
    rows, group = _distinct(codes)
    if radius and len(rows) > 1:
        group = _link(np.take(codes, rows, axis=0), index.n_bits, radius, show_progress)[group]
    return _groups(ids, group)


def _distinct(codes: Codes) -> tuple[Indices, Indices]:
    """Return a row of each distinct code, and for each row the number of its code."""
    if not len(codes):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    order = np.lexsort(code_words(codes))
    ordered = np.take(codes, order, axis=0)
    new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    number = np.empty(len(codes), np.intp)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def _link(codes: Codes, n_bits: int, radius: int, show_progress: bool | None) -> Indices:
    """Return the group number of each of the distinct codes."""
    index = HammingIndex(n_bits)
    index.add(codes)
    n = len(codes)
    group = np.arange(n)
    links: list[tuple[Indices, Indices]] = []
    held = 0
    with progress_bar("searching", n, unit="codes", show=show_progress) as advance:
        start, size = 0, _FIRST_BLOCK
        while start < n:
            block = codes[start : start + size]
            # Plan for all searches of this function.
            engine = index.explain(radius=radius, n_queries=n).engine
            matches = index.within(block, radius, engine="tables" if engine == "tables" else "scan")
            a = np.repeat(np.arange(start, start + len(block)), np.diff(matches.offsets))
            forward = matches.ids > a
            links.append((a[forward], matches.ids[forward]))
            held += int(forward.sum())
            if held > _MAX_LINKS:
                group, links, held = _merge(group, links), [], 0
            start += len(block)
            size = min(_BLOCK, max(1, _BLOCK_MATCHES * len(block) // max(1, len(matches.ids))))
            advance(len(block))
    return _merge(group, links)


def _merge(group: Indices, links: list[tuple[Indices, Indices]]) -> Indices:
    """Merge the groups that are linked."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    a, b = (np.concatenate([group[:0], *ends]) for ends in zip(*links, strict=True)) if links else (group[:0],) * 2
    n = len(group)
    graph = coo_array((np.ones(len(a), np.bool_), (group[a], group[b])), shape=(n, n))
    _, merged = connected_components(graph, directed=False)
    return np.asarray(merged[group], dtype=np.intp)


def _groups(ids: Ids, group: Indices) -> list[Ids]:
    order = np.argsort(group, kind="stable")
    parts = np.split(ids[order], np.cumsum(np.bincount(group))[:-1])
    return sorted((part for part in parts if len(part) > 1), key=lambda part: (-len(part), int(part[0])))
