"""Planning a search: which engine to use, and whether tables are worth building."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import NamedTuple

from hashlearn.search._answers import Plan
from hashlearn.search._scan import MAX_HEAP, is_sorted_for
from hashlearn.search._tables import Estimate, Shape, scan_cost


class Size(NamedTuple):
    """The number of codes, their bits, and the bytes that each takes."""

    n_codes: int
    n_bits: int
    width: int

    def __str__(self) -> str:
        return f"{self.n_codes:,} codes of {self.n_bits} bits"

    @property
    def scan_cost(self) -> float:
        return scan_cost(self.n_codes, self.width)


class Costs:
    """Nanoseconds of a query within a radius, by scan or tables."""

    def __init__(self, size: Size, estimate: Estimate) -> None:
        self.size, self.scan, self._estimate = size, size.scan_cost, estimate

    def query(self, shape: Shape | None, radius: int) -> float:
        """By these tables or by a scan, whichever is faster."""
        return self.scan if shape is None else min(self.scan, self.by_tables(shape, radius))

    def by_tables(self, shape: Shape, radius: int) -> float:
        """By these tables; inf: too many lookups."""
        return self._estimate.cost(shape, radius, self.size.n_codes)

    def build(self, shape: Shape) -> float:
        """To build these tables."""
        return shape.insert_cost * self.size.n_codes

    def best(self, radius: int) -> Shape | None:
        """The fastest tables; None: not faster than a scan."""
        best = self.cheapest(radius)
        return best if best is not None and self.by_tables(best, radius) < self.scan else None

    def cheapest(self, radius: int) -> Shape | None:
        return self._estimate.cheapest(radius, self.size.n_codes)


class Ledger:
    """The time that tables would have saved since the last change, or since other tables were built.

    Tables are built when they would have saved as much as it takes to build them. A balance is never negative: a long
    time in which the present tables were best does not count against a new kind of queries.
    """

    def __init__(self) -> None:
        #: The number of queries so far.
        self.n_queries = 0
        self._pending: Counter[int] = Counter()
        self._saved: dict[Shape, float] = {}

    def note(self, radius: int, n_queries: int) -> None:
        """Count queries; :meth:`settle` computes their costs later."""
        self.n_queries += n_queries
        self._pending[radius] += n_queries

    def settle(self, costs: Costs, current: Shape | None) -> None:
        """Add the counted queries to the balances; ``current``: the tables that answered them."""
        for radius, n_queries in self._pending.items():
            best, now = costs.best(radius), costs.query(current, radius)
            if best is not None:
                self._saved.setdefault(best, 0.0)
            for shape, saved in self._saved.items():
                self._saved[shape] = max(0.0, saved + n_queries * (now - costs.query(shape, radius)))
        self._pending.clear()

    def saved(self, shape: Shape) -> float:
        return self._saved.get(shape, 0.0)


def choose(costs: Costs, radius: int, current: Shape | None, ledger: Ledger) -> tuple[Shape | None, Shape | None]:
    """Return the tables to use now (None: scan), and the tables that are worth building (None: none)."""
    best = costs.best(radius)
    now = current if costs.query(current, radius) < costs.scan else None
    better = best is not None and costs.query(best, radius) < costs.query(current, radius)
    return now, best if best is not None and better and ledger.saved(best) >= costs.build(best) else None


def plan_nearest(size: Size, k: int) -> Plan:
    """Plan a search for the k nearest."""
    cost = size.scan_cost / 1e3
    k = min(k, size.n_codes)
    if is_sorted_for(k, size.width):
        return Plan("sort", f"the distances to {size} are sorted, {k:,} being too many to count", 8 * cost)
    reason = "the nearest kept in a heap" if k <= MAX_HEAP else "counted by distance"
    return Plan("scan", f"{size} are compared, {reason}", 2 * cost)


def plan_within(costs: Costs, radius: int, current: Shape | None, ledger: Ledger, n_queries: int) -> Plan:
    """Plan the next ``n_queries`` queries within a radius, as :func:`choose` will decide."""
    best, scan = costs.best(radius), costs.scan
    now, then = costs.query(current, radius), costs.query(best, radius)
    compared = f"{costs.size} are compared"
    reason = f"{current} of {costs.size} exist, {_times(scan / now)} a scan" if now < scan else compared
    if best is None or then >= now:
        if now < scan:
            return Plan("tables", reason, now / 1e3, current)
        return Plan("scan", f"{compared}, which is faster than any tables at radius {radius}", scan / 1e3)
    missing = costs.build(best) - ledger.saved(best) - n_queries * (now - then)
    gain = f"{best} would be {_times(scan / then)} a scan"
    if missing > 0:
        more = f"{gain}, and are built after {ceil(missing / (now - then)):,} more such queries without a change"
        return Plan("tables" if now < scan else "scan", f"{reason}; {more}", now / 1e3, current if now < scan else best)
    return Plan("tables", f"{gain} of {costs.size}, and are worth building", then / 1e3, best)


def _times(ratio: float) -> str:
    return f"{ratio:.0f}× as fast as" if ratio >= 2 else f"{ratio:.1f}× as fast as"
