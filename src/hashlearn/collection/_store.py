"""The items of a collection: in its file, and their codes in an index in memory that is kept in step with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hashlearn._arrays import Codes, Ids, Indices
from hashlearn.collection._checksums import EMPTY, Rows, Tally, Texts, tally, to_meta
from hashlearn.collection._database import Database
from hashlearn.collection._items import to_blobs
from hashlearn.errors import CollectionError
from hashlearn.search.index import HammingIndex


class _Change(NamedTuple):
    """What a transaction does to the codes: the ids it removes, and the codes it adds with their ids."""

    removed: Ids
    codes: Codes
    ids: Ids
    #: The tally, after the change, of the items that were added or changed.
    tally: Tally


class Store:
    """The file and the index. Arguments are checked by :class:`~hashlearn.collection.Collection`."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.database = Database(path, readonly=readonly)
        self.index = HammingIndex(self.database.n_bits)
        self._seen = 0
        try:
            self.database.transact(self._read_all)
        except BaseException:
            self.database.close()
            raise

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(self, codes: Codes, ids: Ids | None, sources: Texts, payloads: Texts, *, skip_known: bool) -> Ids:
        if skip_known and ids is None:
            self.database.check_sources()  # may take long, so not within the transaction

        def write() -> _Change:
            keep = self._find_new(ids, sources) if skip_known else np.arange(len(codes))
            next_id = self.database.next_id()
            if ids is not None:
                new_ids = ids[keep]
            elif next_id + len(keep) > np.iinfo(np.int64).max:
                raise ValueError("there is no larger id left: give ids.")
            else:
                new_ids = np.arange(next_id, next_id + len(keep), dtype=np.int64)
            self.check_new(new_ids)
            kept = keep.tolist()
            chosen = np.take(codes, keep, axis=0)
            new = Rows(new_ids, chosen, [sources[row] for row in kept], [payloads[row] for row in kept])
            rows = zip(new_ids.tolist(), to_blobs(chosen), new.sources, new.payloads, strict=True)
            self.database.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
            if len(new_ids):
                self.database.write_meta({"next_id": max(next_id, int(new_ids.max()) + 1)})
            return _Change(new_ids[:0], chosen, new_ids, tally(new))

        return self._change(self.index.ids[:0], write).ids

    def _find_new(self, ids: Ids | None, sources: Texts) -> Indices:
        """Rows whose id, or else whose source, is neither in the collection nor in an earlier row."""
        if ids is not None:
            return np.flatnonzero(~self.index.contains(ids))
        seen = set(self.find_ids([source for source in sources if source is not None]))
        new = []
        for row, source in enumerate(sources):
            if source is None or source not in seen:
                new.append(row)
                seen.add(source)  # type: ignore[arg-type]
        return np.array(new, dtype=np.intp)

    def remove(self, ids: Ids) -> None:
        def write() -> _Change:
            self.check_known(ids)
            self.database.executemany("DELETE FROM items WHERE id = ?", ((id,) for id in ids.tolist()))
            return _Change(ids, self.index.codes[:0], ids[:0], EMPTY)

        self._change(ids, write)

    def update(self, ids: Ids, codes: Codes | None, columns: dict[str, list[Any]]) -> None:
        """Replace the values of these columns; ``codes`` if the column ``code`` is one of them."""
        assignments = ", ".join(f"{name} = ?" for name in columns)

        def write() -> _Change:
            self.check_known(ids)
            rows = zip(*columns.values(), ids.tolist(), strict=True)
            self.database.executemany(f"UPDATE items SET {assignments} WHERE id = ?", rows)
            after = self.database.tally_items(ids)
            if codes is None:
                return _Change(ids[:0], self.index.codes[:0], ids[:0], after)
            return _Change(ids, codes, ids, after)

        self._change(ids, write)

    def _change(self, touched: Ids, write: Callable[[], _Change]) -> _Change:
        """Run ``write`` in one transaction and apply its change to the index.

        ``touched``: ids of existing items that it changes.
        """
        database = self.database

        def transaction() -> tuple[_Change, int]:
            self._catch_up()
            before = database.tally_items(touched)
            change = write()
            total = database.tally()
            assert total is not None  # files are migrated before they are written
            database.write_meta(to_meta(total.minus(before).plus(change.tally)))
            database.log_change(change.removed if len(change.removed) else change.ids)
            return change, database.last_change()

        database.check_process()
        with database.lock:  # until the index is in step: other threads use both
            change, number = database.change(transaction)
            self.index.exchange(change.removed, change.codes, change.ids)
            self._seen = number
        return change

    # -- queries ------------------------------------------------------------------------------------------------------

    def check_new(self, ids: Ids) -> None:
        known = self.index.contains(ids)
        if known.any():
            raise ValueError(f"id {ids[known].min()} is in the collection already.")

    def check_known(self, ids: Ids) -> None:
        unknown = ids[~self.index.contains(ids)]
        if len(unknown):
            raise ValueError(f"id {unknown[0]} is not in the collection.")

    def find_ids(self, sources: Texts | None) -> dict[str, list[int]]:
        """Map these sources, or all, to the ids of their items, ascending."""
        self.database.check_sources()
        ids: dict[str, list[int]] = {}
        unique = None if sources is None else list(dict.fromkeys(sources))
        for source, id in self.database.select("source, id", "source", unique):
            ids.setdefault(source, []).append(id)
        return {source: sorted(some) for source, some in ids.items()}

    # -- in step with the file ----------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read what other processes have changed; return whether codes or ids did."""
        self.database.check_process()
        with self.database.lock:
            before = self._seen
            renewed = self.database.renew()  # it may be another file now, with another log
            self.database.transact(self._read_all if renewed else self._catch_up)
            return renewed or self._seen != before

    def _read_all(self) -> None:
        number = self.database.last_change()
        ids, codes = self.database.codes()
        self._exchange(self.index.ids, codes, ids)
        self._seen = number

    def _exchange(self, removed: Ids, codes: Codes, ids: Ids) -> None:
        """Apply a change that was read from the file."""
        try:
            self.index.exchange(removed, codes, ids)
        except ValueError as error:
            raise CollectionError(f"{self.database.path} is damaged: {error}") from None

    def _catch_up(self) -> None:
        """Read the changes since the last one seen, inside a transaction."""
        number = self.database.last_change()
        if number == self._seen:
            return
        ranges = self.database.changes_since(self._seen)
        if ranges is None:
            self._read_all()
            return
        known = self.index.ids
        changed = [self.database.codes(first, last) for first, last in ranges]
        removed = [known[np.searchsorted(known, a) : np.searchsorted(known, b, "right")] for a, b in ranges]
        ids, codes = (np.concatenate(parts) for parts in zip(*changed, strict=True))
        self._exchange(np.concatenate(removed), codes, ids)
        self._seen = number
