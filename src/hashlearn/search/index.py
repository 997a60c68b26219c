"""``HammingIndex``: exact search in binary codes, in memory or from a memory map."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Codes, Ids
from hashlearn.codes import check_codes, n_bytes
from hashlearn.errors import check_count
from hashlearn.search._answers import MISSING, Engine, Matches, Neighbors, Plan
from hashlearn.search._planning import Costs, Ledger, Size, choose, plan_nearest, plan_within
from hashlearn.search._scan import nearest_rows, padded, rows_within, scan_width
from hashlearn.search._state import State, allowed, check_ids, find_rows, more, require_rows, take_rows
from hashlearn.search._tables import Estimate, Shape, Tables, min_queries
from hashlearn.search.real import RealSearch, Scored, checked_offsets, checked_values
from hashlearn.storage import StrPath

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["HammingIndex", "check_ids"]

Offsets = Callable[[Codes], ArrayLike]
_NOT_COPIED = {"_content", "_changing", "_making", "_estimate", "_changed"}


@dataclass(frozen=True, eq=False)
class _Content:
    """The codes of one moment and what was derived from them. A change replaces it as a whole."""

    state: State
    #: Larger arrays that start with the state; codes are appended behind it.
    room: State | None = None
    tables: Tables | None = None
    #: The codes made ready for real-valued queries, and the function that gives their offsets.
    real: tuple[Offsets | None, RealSearch] | None = None
    ledger: Ledger = field(default_factory=Ledger)
    #: Tables that did not fit into memory.
    impossible: set[Shape] = field(default_factory=set)
    #: Radii at which no other tables are better than the present ones.
    served: set[int] = field(default_factory=set)


class HammingIndex:
    """An index of packed codes of ``n_bits`` bits, with ids, that is searched exactly.

    Results are ordered by (distance, id). Ids are whole numbers from 0. Several threads can search at once, also while
    another thread changes the index: each search sees the index before a change or after it.

    The distance is Hamming's, also for codes of a method that are meant for another one (``Hasher.distance``; SPH's is
    the spherical distance).

    Adding ids above all others takes time in proportion to what is added. Other changes copy all codes, which takes
    about as long as a search.

    Parameters
    ----------
    n_bits
        The length of the codes.

    Examples
    --------
    >>> import numpy as np
    >>> from hashlearn.search import HammingIndex
    >>> index = HammingIndex(n_bits=8)
    >>> index.add(np.array([[0b1111_0000], [0b1111_0001], [0b0000_1111]], dtype=np.uint8))
    array([0, 1, 2])
    >>> index.search(np.array([[0b1111_0011]], dtype=np.uint8), k=2)
    Neighbors(distances=array([[1, 2]], dtype=int32), ids=array([[1, 0]]))
    """

    def __init__(self, n_bits: int) -> None:
        self.n_bits = check_count("n_bits", n_bits)
        self._width = scan_width(n_bytes(self.n_bits))
        self._begin(State(np.empty((0, self._width), np.uint8), np.empty(0, np.int64)))

    def _begin(self, state: State) -> None:
        self._make_locks()
        self._estimate: Estimate | None = None
        # How many codes were changed or removed since the estimate was made.
        self._changed = 0
        self._content = _Content(state)
        _indexes.add(self)

    def _make_locks(self) -> None:
        self._changing, self._making = Lock(), Lock()

    @property
    def _state(self) -> State:
        return self._content.state

    def __len__(self) -> int:
        return len(self._state.ids)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, (int, np.integer)) or not 0 <= id < np.iinfo(np.int64).max:
            return False
        return bool(self.contains([int(id)])[0])

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: everything except locks, tables and room."""
        state = self._state
        attributes = {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}
        return {**attributes, "_state": State(np.array(state.codes), np.array(state.ids))}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        state = attributes.pop("_state")
        self.__dict__.update(attributes)
        self._begin(state)

    def __repr__(self) -> str:
        return f"HammingIndex(n_bits={self.n_bits}), {len(self):,} codes"

    @property
    def ids(self) -> Ids:
        """All ids, ascending; read-only."""
        return self.snapshot()[0]

    @property
    def codes(self) -> Codes:
        """All packed codes, ordered by id; read-only."""
        return self.snapshot()[1]

    def snapshot(self) -> tuple[Ids, Codes]:
        """Return all ids, ascending, and their packed codes at one moment; read-only."""
        state = self._state
        ids, codes = state.ids[:], state.codes[:, : n_bytes(self.n_bits)]
        ids.flags.writeable = codes.flags.writeable = False
        return ids, codes

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(self, codes: ArrayLike, ids: ArrayLike | None = None) -> Ids:
        """Add codes.

        Parameters
        ----------
        codes
            Packed codes (n, n_bytes).
        ids
            Their ids (n,). None: the numbers after the largest id.

        Returns
        -------
        ids : ndarray of shape (n,), int64

        Raises
        ------
        ValueError
            An id is in the index or given twice. Nothing is added.
        """
        new = padded(check_codes(codes, self.n_bits), self._width)
        with self._changing:
            state = self._state
            after = int(state.ids[-1]) + 1 if len(state.ids) else 0
            if ids is None:
                if after + len(new) > np.iinfo(np.int64).max:
                    raise ValueError("there is no larger id left: give ids.")
                given = np.arange(after, after + len(new), dtype=np.int64)
            else:
                given = check_ids(ids, len(new))
            self._insert(state, new, given)
        return given

    def _insert(self, state: State, new: Codes, given: Ids) -> None:
        """Replace the content by ``state`` and the new codes."""
        order = np.argsort(given, kind="stable")
        ordered = given[order]
        if not len(given):
            if state is not self._state:
                self._content = _Content(state)
        elif not len(state.ids) or ordered[0] > state.ids[-1]:
            self._append(state, np.take(new, order, axis=0), ordered)
        else:
            places, known = find_rows(state, ordered)
            if known.any():
                raise ValueError(f"id {ordered[known][0]} is in the index already{more(known.sum())}.")
            rows = np.insert(np.arange(len(state.ids)), places, len(state.ids) + order)
            codes = np.take(np.concatenate([state.codes, new]), rows, axis=0)
            self._content = _Content(State(codes, np.insert(state.ids, places, ordered)))

    def _append(self, state: State, codes: Codes, ids: Ids) -> None:
        """Write behind the last code; allocate more room first if there is too little."""
        n, after = len(state.ids), len(state.ids) + len(ids)
        room = self._content.room if state is self._state else None
        if room is None or after > len(room.ids):
            size = max(after, n + n // 2)
            room = State(np.empty((size, self._width), np.uint8), np.empty(size, np.int64))
            room.codes[:n], room.ids[:n] = state
        room.codes[n:after], room.ids[n:after] = codes, ids
        self._content = _Content(State(room.codes[:after], room.ids[:after]), room)

    def remove(self, ids: ArrayLike) -> None:
        """Remove codes.

        Parameters
        ----------
        ids : array-like of int

        Raises
        ------
        ValueError
            An id is unknown or given twice. Nothing is removed.
        """
        self.exchange(ids, np.empty((0, n_bytes(self.n_bits)), np.uint8), ())

    def update(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Replace codes.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
        codes : array-like of shape (n, n_bytes), uint8
            The new packed codes.

        Raises
        ------
        ValueError
            An id is unknown or given twice. Nothing is changed.
        """
        new = padded(check_codes(codes, self.n_bits), self._width)
        with self._changing:
            state = self._state
            rows = require_rows(state, check_ids(ids, len(new)))
            changed = np.array(state.codes)
            changed[rows] = new
            self._changed += len(rows)
            self._content = _Content(State(changed, state.ids))

    def exchange(self, gone: ArrayLike, codes: ArrayLike, ids: ArrayLike) -> None:
        """Remove codes and add others in one step: no search sees a part of it.

        Parameters
        ----------
        gone : array-like of int
            Ids to remove.
        codes : array-like of shape (n, n_bytes), uint8
            Packed codes to add.
        ids : array-like of int, shape (n,)
            Their ids; those in ``gone`` may be used again.

        Raises
        ------
        ValueError
            One of ``gone`` is unknown, one of ``ids`` is in the index and not in ``gone``, or either has an id twice.
            Nothing is changed.
        """
        new = padded(check_codes(codes, self.n_bits), self._width)
        with self._changing:
            state = self._state
            out, given = check_ids(gone), check_ids(ids, len(new))
            if len(out):
                keep = np.ones(len(state.ids), dtype=np.bool_)
                keep[require_rows(state, out)] = False
                state = take_rows(state, np.flatnonzero(keep))
            self._insert(state, new, given)
            self._changed += len(out)

    def reconstruct(self, ids: ArrayLike) -> Codes:
        """Return the packed codes of ids.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
            They may be repeated.

        Returns
        -------
        codes : ndarray of shape (n, n_bytes), uint8

        Raises
        ------
        ValueError
            An id is unknown.
        """
        state = self._state
        return state.codes[require_rows(state, check_ids(ids, distinct=False)), : n_bytes(self.n_bits)]

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each id is in the index.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
            They may be repeated.

        Returns
        -------
        known : ndarray of shape (n,), bool
        """
        return find_rows(self._state, check_ids(ids, distinct=False))[1]

    # -- searches -----------------------------------------------------------------------------------------------------

    def search(self, codes: ArrayLike, k: int, *, allow: ArrayLike | None = None) -> Neighbors:
        """Find the k nearest codes of each query.

        Parameters
        ----------
        codes
            Packed codes (n, n_bytes) of the queries.
        k
            Number of neighbors. If the index has fewer codes, the others are missing: id −1.
        allow
            Search only these ids. Unknown ids are ignored.

        Returns
        -------
        neighbors : Neighbors
            ``distances`` (n, k) and ``ids`` (n, k), ordered by (distance, id).
        """
        queries = padded(check_codes(codes, self.n_bits), self._width)
        k = check_count("k", k)
        state = allowed(self._state, allow)
        distances = np.full((len(queries), k), MISSING, dtype=np.int32)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        n = min(k, len(state.ids))
        if n and len(queries):
            distances[:, :n], rows = nearest_rows(queries, state.codes, n)
            ids[:, :n] = state.ids[rows]
        return Neighbors(distances, ids)

    def search_real(
        self, values: ArrayLike, k: int, *, offsets: Offsets | None = None, allow: ArrayLike | None = None
    ) -> Scored:
        """Find the k codes with the highest scores for each real-valued query: see :func:`search_real`.

        The first search after a change repacks the codes, which takes some tens of milliseconds for a million of them,
        and as many bytes of memory as they have. Later ones take about as long as :meth:`search` if k is at most some
        hundreds, and if not a few bits have nearly all of the weight; otherwise many times as long.

        Parameters
        ----------
        values : array-like of shape (n_queries, n_bits)
            As of :meth:`Hasher.query_values`.
        k : int
            Number of items. If the index has fewer codes, the others are missing: id −1.
        offsets : callable, optional
            Returns what is added to the score of each of some packed codes, such as :meth:`Hasher.code_offsets`. It is
            called once for all codes; another function than in the last search makes it repack them. By default nothing
            is added.
        allow : array-like of int, optional
            Search only these ids. Unknown ids are ignored.

        Returns
        -------
        Scored
            ``scores`` (n_queries, k) and ``ids`` (n_queries, k), ordered by (falling score, id).

        Examples
        --------
        >>> import numpy as np
        >>> from hashlearn.search import HammingIndex
        >>> index = HammingIndex(n_bits=2)
        >>> index.add(np.array([[0b1100_0000], [0b1000_0000], [0b0000_0000]], dtype=np.uint8), ids=[7, 8, 9])
        array([7, 8, 9])
        >>> index.search_real([[1.0, -0.5]], k=2)
        Scored(scores=array([[1.5, 0.5]], dtype=float32), ids=array([[8, 7]]))
        """
        queries, k = checked_values(values, self.n_bits), check_count("k", k)
        if offsets is not None and not callable(offsets):
            raise TypeError(
                "offsets must be a function of packed codes, such as hasher.code_offsets; "
                f"got {type(offsets).__name__}."
            )
        state = allowed(self._state, allow)
        content = self._content
        if allow is None and content.state is state and content.real is not None and content.real[0] == offsets:
            ready = content.real[1]
        else:
            ready = self._make_real(state, offsets, keep=allow is None)
        scores, rows = ready.search(queries, k)
        ids = np.full(rows.shape, -1, dtype=np.int64)
        ids[rows >= 0] = state.ids[rows[rows >= 0]]
        return Scored(scores, ids)

    def _make_real(self, state: State, offsets: Offsets | None, *, keep: bool) -> RealSearch:
        codes = state.codes[:, : n_bytes(self.n_bits)]
        codes.flags.writeable = False
        added = None if offsets is None else checked_offsets(offsets(codes), len(codes))
        ready = RealSearch(codes, self.n_bits, added)
        if keep:
            with self._changing:
                if state is self._state:
                    self._content = replace(self._content, real=(offsets, ready))
        return ready

    def within(
        self, codes: ArrayLike, radius: int, *, allow: ArrayLike | None = None, engine: Engine | None = None
    ) -> Matches:
        """Find all codes within a Hamming distance of each query.

        Parameters
        ----------
        codes
            Packed codes (n, n_bytes) of the queries.
        radius
            The largest distance, inclusive.
        allow
            Search only these ids. Unknown ids are ignored.
        engine
            ``"scan"`` or ``"tables"``. None: the faster one (:meth:`explain`). The result is the same.

        Returns
        -------
        matches : Matches
            ``matches[i]`` is (distances, ids) of query i, ordered by (distance, id).
        """
        queries = padded(check_codes(codes, self.n_bits), self._width)
        radius = min(check_count("radius", radius, 0), self.n_bits)
        if engine not in (None, "scan", "tables"):
            raise ValueError(f"engine must be None, 'scan' or 'tables'; got {engine!r}.")
        if engine == "tables" and allow is not None:
            raise ValueError("tables can't be used with an allow-list: leave engine out, or use 'scan'.")
        state = allowed(self._state, allow)
        if not len(state.ids) or not len(queries):
            return Matches(np.zeros(len(queries) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
        tables = None
        if engine == "tables" or (engine is None and allow is None):
            tables = self._tables_for(state, radius, len(queries), forced=engine is not None)
        if tables is None:
            offsets, distances, rows = rows_within(queries, state.codes, radius)
        else:
            offsets, distances, rows = tables.within(queries, radius)
        return Matches(offsets, distances, state.ids[rows])

    def _tables_for(self, state: State, radius: int, n_queries: int, *, forced: bool) -> Tables | None:
        """Return tables to search in, built if that pays off or ``forced``; None: scan."""
        with self._changing:
            content = self._content
            if state is not content.state and not forced:  # changed meanwhile
                return None
            ledger = content.ledger
            ledger.note(radius, n_queries)
            tables = content.tables if state is content.state else None
            if tables is not None and radius in content.served:
                return tables
            if tables is None and not forced and ledger.n_queries < min_queries(len(state.ids), self._width):
                return None  # too few queries for any tables; skip the estimate
            costs = self._costs(state)
            current = None if tables is None else tables.shape
            ledger.settle(costs, current)
            now, better = choose(costs, radius, current, ledger)
            better = None if better in content.impossible else better
            if now is not None and now == costs.best(radius):
                content.served.add(radius)
            if forced and better is None:
                now = current if current is not None and costs.by_tables(current, radius) < inf else None
                better = costs.cheapest(radius) if now is None else None
                if now is better:
                    raise ValueError(f"radius {radius} would take too many lookups in tables: leave engine out.")
        if better is None:
            return None if now is None else tables
        made = self._make_tables(state, better, tables, wait=forced)
        return (None if now is None else tables) if made is None else made

    def _make_tables(self, state: State, shape: Shape, instead_of: Tables | None, *, wait: bool) -> Tables | None:
        """Build tables, and keep them if the codes have not changed meanwhile.

        Unless ``wait``, return None if another thread is building tables, or if the codes or tables have changed since
        the decision. The lock of changes is not held, so that searches and changes can run meanwhile.
        """
        if not wait and self._making.locked():
            return None
        # Not acquire() and try: an interrupt between the two would leave it locked.
        with self._making:
            content = self._content
            tables = content.tables
            if state is content.state and tables is not None and tables.shape == shape:
                return tables  # built by the thread that held the lock
            if not wait and (state is not content.state or tables is not instead_of):
                return None
            try:
                tables = Tables(state.codes, shape)
            except (MemoryError, RuntimeError):  # FAISS's errors are the latter
                content.impossible.add(shape)
                if wait:
                    raise
                return None
            with self._changing:
                if state is self._state:
                    self._content = replace(self._content, tables=tables, ledger=Ledger(), served=set())
            return tables

    # -- plans --------------------------------------------------------------------------------------------------------

    def explain(self, *, k: int | None = None, radius: int | None = None, n_queries: int = 1) -> Plan:
        """Say how a search would run now. Give either ``k`` or ``radius``.

        Parameters
        ----------
        k : int, optional
            For :meth:`search`: the number of neighbors.
        radius : int, optional
            For :meth:`within`: the largest distance.
        n_queries : int
            The number of queries. Many of them can make tables worth building.

        Returns
        -------
        plan : Plan
        """
        n_queries = check_count("n_queries", n_queries, 0)
        if k is not None and radius is None:
            return plan_nearest(self._size(), check_count("k", k))
        if radius is None or k is not None:
            raise ValueError("explain takes either k or radius.")
        radius = min(check_count("radius", radius, 0), self.n_bits)
        with self._changing:
            if not len(self):
                return Plan("scan", f"{self._size()} are compared", 0.0)
            content, costs = self._content, self._costs(self._state)
            current = None if content.tables is None else content.tables.shape
            content.ledger.settle(costs, current)
            return plan_within(costs, radius, current, content.ledger, n_queries)

    def _costs(self, state: State) -> Costs:
        return Costs(Size(len(state.ids), self.n_bits, self._width), self._fresh_estimate(state))

    def _size(self) -> Size:
        return Size(len(self), self.n_bits, self._width)

    def _fresh_estimate(self, state: State) -> Estimate:
        """Return an estimate from these codes, or an earlier one if most codes are the same."""
        n = len(state.ids)
        if self._estimate is None or self._changed > 0.2 * n or not 0.8 <= self._estimate.n_codes / n <= 1.25:
            self._estimate, self._changed = Estimate(state.codes, self.n_bits), 0
        return self._estimate

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write all codes and ids to one file (safetensors: plain arrays and JSON), atomically.

        Parameters
        ----------
        path
            The file. An existing one is replaced.
        """
        from hashlearn.search._index_file import write_index

        state = self._state
        write_index(path, self.n_bits, state.codes[:, : n_bytes(self.n_bits)], state.ids)

    @classmethod
    def open(cls, path: StrPath, *, mmap: bool = True, check: bool = True) -> Self:
        """Read a saved index.

        Parameters
        ----------
        path
            The file.
        mmap
            Search the file through a memory map, without a copy, if the length of its codes allows it (32, 64, 128,
            160, 256 and 512 bits, and multiples of 64 above). A change to the index copies it and leaves the file.
        check
            Read the whole file and compare it with its checksum.

        Raises
        ------
        IndexFileError
            The file is damaged or is not an index.
        """
        from hashlearn.search._index_file import read_index

        n_bits, codes, ids = read_index(path, mmap=mmap, check=check)
        index = cls(n_bits)
        index._content = _Content(State(padded(codes, index._width), ids))
        return index


_indexes: WeakSet[HammingIndex] = WeakSet()


def _renew_locks() -> None:
    """In a forked child: a thread of the parent may hold a lock. No content is ever half changed."""
    for index in list(_indexes):
        index._make_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
