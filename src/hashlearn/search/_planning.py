"""How a search is to be done: by which engine, and whether tables are worth making by now."""

from __future__ import annotations

from collections import Counter
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


class Costs:
    """Nanoseconds of a query within a radius, by a scan or by tables, whichever is sooner."""

    def __init__(self, size: Size, estimate: Estimate) -> None:
        self.size, self.scan, self._estimate = size, size.scan_cost, estimate

    def of(self, shape: Shape | None, radius: int) -> float:
        return self.scan if shape is None else min(self.scan, self.by_tables(shape, radius))

    def by_tables(self, shape: Shape, radius: int) -> float:
        """inf: too many lookups."""
        return self._estimate.cost(shape, radius, self.size.n_codes)

    def making(self, shape: Shape) -> float:
        return shape.stored_cost * self.size.n_codes

    def best(self, radius: int) -> Shape | None:
        """The tables that are soonest; None: no sooner than a scan."""
        best = self.cheapest(radius)
        return best if best is not None and self.by_tables(best, radius) < self.scan else None

    def cheapest(self, radius: int) -> Shape | None:
        return self._estimate.cheapest(radius, self.size.n_codes)


class Ledger:
    """What tables would have saved, had they been there since the last change, or since others were made.

    Tables are made when their balance has reached what it takes to make them. A balance is never below zero: what the
    tables at hand have served well for long does not stand against a new habit.
    """

    def __init__(self) -> None:
        #: How many queries there were.
        self.n_queries = 0
        self._pending: Counter[int] = Counter()
        self._saved: dict[Shape, float] = {}

    def note(self, radius: int, n_queries: int) -> None:
        """Count queries, without the time to say what they cost."""
        self.n_queries += n_queries
        self._pending[radius] += n_queries

    def settle(self, costs: Costs, there: Shape | None) -> None:
        """Enter what was noted into the balances; ``there``: the tables that it was answered by."""
        for radius, n_queries in self._pending.items():
            best, now = costs.best(radius), costs.of(there, radius)
            if best is not None:
                self._saved.setdefault(best, 0.0)
            for shape, saved in self._saved.items():
                self._saved[shape] = max(0.0, saved + n_queries * (now - costs.of(shape, radius)))
        self._pending.clear()

    def saved(self, shape: Shape) -> float:
        return self._saved.get(shape, 0.0)


def choose(costs: Costs, radius: int, there: Shape | None, ledger: Ledger) -> tuple[Shape | None, Shape | None]:
    """The tables that answer now (None: a scan does), and those that are worth making instead (None: none are)."""
    best = costs.best(radius)
    now = there if costs.of(there, radius) < costs.scan else None
    better = best is not None and costs.of(best, radius) < costs.of(there, radius)
    return now, best if best is not None and better and ledger.saved(best) >= costs.making(best) else None


def plan_nearest(size: Size, k: int) -> Plan:
    """How the k nearest are found."""
    cost = size.scan_cost / 1e3
    there = min(k, size.n_codes)
    if is_sorted_for(there, size.width):
        return Plan("sort", f"the distances to {size} are sorted, {there:,} being too many to count", 8 * cost)
    how = "the nearest kept in a heap" if there <= HEAP_MOST else "counted by distance"
    return Plan("scan", f"{size} are compared, {how}", 2 * cost)


def plan_within(costs: Costs, radius: int, there: Shape | None, ledger: Ledger, n_queries: int) -> Plan:
    """How so many queries more within a radius are answered, as :func:`choose` will have it."""
    best, scan = costs.best(radius), costs.scan
    now, then = costs.of(there, radius), costs.of(best, radius)
    compared = f"{costs.size} are compared"
    how = f"{there} of {costs.size} are there, {_times(scan / now)} a scan" if now < scan else compared
    if best is None or then >= now:
        if now < scan:
            return Plan("tables", how, now / 1e3, there)
        return Plan("scan", f"{compared}, which no tables do sooner at radius {radius}", scan / 1e3)
    missing = costs.making(best) - ledger.saved(best) - n_queries * (now - then)
    gain = f"{best} would be {_times(scan / then)} a scan"
    if missing > 0:
        more = f"{gain}, and are made after {ceil(missing / (now - then)):,} more such queries without a change"
        return Plan("tables" if now < scan else "scan", f"{how}; {more}", now / 1e3, there if now < scan else best)
    return Plan("tables", f"{gain} of {costs.size}, and have been worth making", then / 1e3, best)


def _times(ratio: float) -> str:
    return f"{ratio:.0f}× as fast as" if ratio >= 2 else f"{ratio:.1f}× as fast as"
