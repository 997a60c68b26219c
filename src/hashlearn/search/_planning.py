"""How a search is to be done: by which engine, and whether tables are worth making by now."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from hashlearn.search._answers import Plan
from hashlearn.search._scan import HEAP_MOST, is_sorted_for
from hashlearn.search._tables import Estimate, Shape, scan_cost


class Size(NamedTuple):
    """How many codes, of how many bits, in how many bytes each."""

    n_codes: int
    n_bits: int
    width: int

    def __str__(self) -> str:
        return f"{self.n_codes:,} codes of {self.n_bits} bits"

    @property
    def scan_cost(self) -> float:
        return scan_cost(self.n_codes, self.width)


def plan_nearest(size: Size, k: int) -> Plan:
    """How the k nearest are found."""
    cost = size.scan_cost / 1e3
    there = min(k, size.n_codes)
    if is_sorted_for(there, size.width):
        return Plan("sort", f"the distances to {size} are sorted, {there:,} being too many to count", 8 * cost)
    how = "the nearest kept in a heap" if k <= HEAP_MOST else "counted by distance"
    return Plan("scan", f"{size} are compared, {how}", 2 * cost)


def plan_within(size: Size, radius: int, estimate: Estimate, there: Shape | None, asked: Mapping[int, int]) -> Plan:
    """How all within a radius are found.

    Tables are made, or replaced by others, once what was asked would have been answered so much sooner by them as it
    takes to make them. So all of it takes at most about twice the least possible, whatever is asked later.

    Args:
        size: Of the index.
        radius: The radius of the queries that are to be answered.
        estimate: Of the same codes.
        there: The tables that are there; None: none.
        asked: For each radius, the number of queries since the last change and since ``there`` was made, those that
            are to be answered included.
    """
    n, scan = size.n_codes, size.scan_cost
    best = estimate.cheapest(radius, n)

    def cost(shape: Shape | None, radius: int) -> float:
        """Nanoseconds of a query, by these tables or by a scan, whichever is sooner."""
        return scan if shape is None else min(scan, estimate.cost(shape, radius, n))

    now, then = cost(there, radius), cost(best, radius)
    compared = f"{size} are compared"
    how = f"{there} of {size} are there, {_times(scan / now)} a scan" if now < scan else compared
    if best is None or then >= now:
        if now < scan:
            return Plan("tables", how, now / 1e3, there)
        return Plan("scan", f"{compared}, which no tables do sooner at radius {radius}", scan / 1e3)
    saved = sum(times * (cost(there, r) - cost(best, r)) for r, times in asked.items())
    missing = best.stored_cost * n - saved
    gain = f"{best} would be {_times(scan / then)} a scan"
    if missing > 0:
        more = f"{gain}, and are made after {ceil(missing / (now - then)):,} more such queries without a change"
        return Plan("tables" if now < scan else "scan", f"{how}; {more}", now / 1e3, there if now < scan else best)
    return Plan("tables", f"{gain} of {size}, and are made for {sum(asked.values()):,} queries", then / 1e3, best)


def _times(ratio: float) -> str:
    return f"{ratio:.0f}× as fast as" if ratio >= 2 else f"{ratio:.1f}× as fast as"
