"""The SQLite file behind a collection: its items and their checksums, transactions, what changed since when."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hashlearn.errors import CollectionError
from hashlearn.search._checksums import (
    Rows,
    Sums,
    block_range,
    block_runs,
    block_sums,
    check_sums,
    checked_rows,
    id_range,
    resized,
    whole_blocks,
)
from hashlearn.search._connection import APPLICATION_ID, OpenFile, translated
from hashlearn.search._schema import TABLES, VERSION, Damage, add_checksums, check_schema, meta_crc, read_meta

# The log of changes is kept so long: a reader that is further behind reads everything anew.
_MOST_CHANGES = 10_000
# Ids of one change that are so scattered are logged as one range.
_MOST_RANGES = 1_000
_FETCHED = 1_000
# Of one statement.
_VARIABLES = 500
# Whose checksums are made anew at a time.
_BLOCKS = 100

T = TypeVar("T")


class Database:
    """A connection to the file; safe for several threads, which take turns."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path
        self.lock = RLock()
        self._readonly = readonly
        self._sources_checked = False
        self._opened = OpenFile(path, readonly=readonly)
        try:
            with translated(path):
                self._check()
        except BaseException:
            self.close()
            raise

    @property
    def file(self) -> Path:
        """The file itself, if the path is a link."""
        return self._opened.file

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._opened.connection

    def _check(self) -> None:
        """Refuse what is not ours, or not whole; bring an older file up to date."""
        if sys.version_info >= (3, 11):
            # No value is larger than the file, whatever it says.
            size = max(self._opened.size(), 1_000_000)
            usual = self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        self.version = self._known_version()
        if self.version < VERSION and not self._readonly:
            self.change(self._migrate)
        self.transact(self._check_content)
        if sys.version_info >= (3, 11):
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, usual)
        if not self._readonly:
            # Also after a power cut, what was acknowledged is there.
            self.execute("PRAGMA synchronous = FULL")

    def _known_version(self) -> int:
        (application,), (version,) = self.execute("PRAGMA application_id"), self.execute("PRAGMA user_version")
        if application[0] != APPLICATION_ID:
            raise CollectionError(f"{self.path} is a SQLite file of another program, not a collection.")
        if version[0] not in TABLES:
            raise CollectionError(
                f"{self.path} is a collection of version {version[0]}; this hashlearn reads version {VERSION}."
            )
        return int(version[0])

    def _check_content(self) -> None:
        self.version = self._known_version()
        self._width = check_schema(self._connection, self.version)
        # Every page once and in its place; after that, reading takes no longer than the file is long.
        if (found := self.execute("PRAGMA quick_check(1)")) != [("ok",)]:
            raise Damage(" ".join(str(found[0][0]).split()))
        meta = read_meta(self._connection, self.version)
        self.n_bits: int = meta["n_bits"]
        if not 8 * (self._width - 1) < self.n_bits <= 8 * self._width:
            raise Damage("it does not say how long its codes are")
        meta.pop("model", None)
        self.meta = meta

    def _migrate(self) -> None:
        """From the version of the file to this one's."""
        if self._known_version() == VERSION:  # by another process meanwhile
            return
        self._check_content()
        add_checksums(self._connection)
        for rows in self._items():
            self._insert_sums(block_sums(rows))
        self.version = VERSION

    def close(self) -> None:
        if self._opened.is_own():
            with self.lock:
                self._opened.close()

    def check_process(self) -> None:
        """A CollectionError in a process that was forked from the one that opened the file.

        It stands before every taking of the lock, which a thread that the child does not have may hold.
        """
        self._opened.check_process()

    def renew(self) -> bool:
        """Open the file anew if it was changed behind SQLite's back; whether it was. It may be another one now."""
        self.check_process()
        with self.lock:
            if not self._opened.was_changed():
                return False
            fresh = Database(self.file, readonly=self._readonly)
            if fresh.n_bits != self.n_bits:
                fresh.close()
                raise CollectionError(f"{self.path} is another collection now, of {fresh.n_bits} bits: open it again.")
            before, self._opened = self._opened, fresh._opened
            self.meta, self.version = fresh.meta, fresh.version
            before.close()
            return True

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        self.check_process()
        with self.lock, translated(self.path):
            self._opened.check_unchanged()
            try:
                return self._connection.execute(sql, values).fetchall()
            finally:
                self._opened.check_unchanged()

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.check_process()
        with self.lock, translated(self.path):
            self._connection.executemany(sql, rows)

    def transact(self, action: Callable[[], T], *, begin: str = "BEGIN") -> T:
        """Do all of it or nothing; a reader sees the file as it is at its first look.

        A function rather than a context manager: however it ends, also by an interrupt as it begins, nothing stays
        locked.
        """
        self.check_process()
        with self.lock, translated(self.path):
            try:
                if self._connection.in_transaction:  # two interrupts at once, the second while the first was handled
                    self._connection.execute("ROLLBACK")
                self._connection.execute(begin)
                result = action()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        return result

    def change(self, action: Callable[[], T]) -> T:
        """The same for what writes: it is on the disk when this returns, in the file that has the name."""

        def checked() -> T:
            self._opened.check_place()
            if self._known_version() != self.version:
                raise CollectionError(f"{self.path} was brought to another version since it was opened: open it again.")
            result = action()
            self._opened.check_place()
            return result

        result = self.transact(checked, begin="BEGIN IMMEDIATE")
        self._opened.check_place()
        return result

    # -- what is not an item ------------------------------------------------------------------------------------------

    def model(self) -> bytes | None:
        found = self.execute("SELECT value FROM meta WHERE name = 'model'")
        return bytes(found[0][0]) if found else None

    def next_id(self) -> int:
        ((value, crc),) = self.execute("SELECT value, crc FROM meta WHERE name = 'next_id'")
        if crc != meta_crc("next_id", value):
            raise CollectionError(f"{self.path} is damaged: it does not say which id is the next.")
        return int(value)

    def set_next_id(self, value: int) -> None:
        self.execute("UPDATE meta SET value = ?, crc = ? WHERE name = 'next_id'", (value, meta_crc("next_id", value)))

    # -- items --------------------------------------------------------------------------------------------------------

    def codes(self, first: int | None = None, last: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Ids, ascending, and packed codes of all items, or of those with ids from ``first`` to ``last``."""
        self.check_process()
        blocks = None if first is None or last is None else block_range(first, last)
        with self.lock, translated(self.path):
            parts = [(rows.ids, rows.codes) for rows in self._items(blocks)]
        if not parts:
            return np.empty(0, np.int64), np.empty((0, self._width), np.uint8)
        ids, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
        part = (
            slice(*np.searchsorted(ids, (first, last + 1))) if first is not None and last is not None else slice(None)
        )
        return ids[part], codes[part]

    def rows(self, size: int) -> Iterator[Rows]:
        """All items, by id, so many at a time, as they are at the first.

        By a connection of its own, so that others can go on meanwhile.
        """
        self.execute("SELECT 1")  # an error if this is closed, or was changed
        own = Database(self.file, readonly=True)
        try:
            with translated(self.path):
                # No lock is held while others go on, who may be in another thread.
                own._connection.execute("BEGIN")
                items = resized(own._items(), size)
            while True:
                with translated(self.path):
                    rows = next(items, None)
                if rows is None:
                    return
                yield rows
        finally:
            own.close()

    def _items(self, blocks: tuple[int, int] | None = None) -> Iterator[Rows]:
        """All items by id, or those of the blocks from one to another, compared with their checksums."""
        kept = self._sums(blocks)
        for batch in whole_blocks(self._fetched(blocks)):
            rows = checked_rows(batch, self._width)
            if kept is not None:
                found = block_sums(rows)
                n = len(found.blocks)
                check_sums(found, Sums(kept.blocks[:n], kept.crcs[:n]))
                kept = Sums(kept.blocks[n:], kept.crcs[n:])
            yield rows
        if kept is not None:
            check_sums(Sums(kept.blocks[:0], kept.crcs[:0]), kept)

    def _fetched(self, blocks: tuple[int, int] | None) -> Iterator[list[Any]]:
        where, values = ("", ()) if blocks is None else (" WHERE id BETWEEN ? AND ?", id_range(*blocks))
        cursor = self._connection.execute(f"SELECT id, code, source, payload FROM items{where} ORDER BY id", values)
        while True:
            self.check_process()
            try:
                rows = cursor.fetchmany(_FETCHED)
            finally:
                self._opened.check_unchanged()
            if not rows:
                return
            yield rows

    def _sums(self, blocks: tuple[int, int] | None) -> Sums | None:
        """The checksums that are kept; None in a file that has none."""
        if self.version == 1:
            return None
        where, values = ("", ()) if blocks is None else (" WHERE block BETWEEN ? AND ?", blocks)
        rows = self._connection.execute(f"SELECT block, crc FROM checks{where} ORDER BY block", values).fetchall()
        if not {type(number) for row in rows for number in row} <= {int}:
            raise Damage("a checksum is no number")
        numbers, crcs = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return Sums(numbers, crcs)

    def check_items(self, ids: NDArray[np.int64]) -> None:
        """Before a change: what it changes, or stands beside it under one checksum, must be as it was written."""
        with self.lock, translated(self.path):
            for blocks in block_runs(ids, _BLOCKS):
                for _ in self._items(blocks):
                    pass

    def renew_sums(self, ids: NDArray[np.int64]) -> None:
        """After a change, in its transaction: the checksums of the blocks in which these ids are."""
        with self.lock, translated(self.path):
            for blocks in block_runs(ids, _BLOCKS):
                self._connection.execute("DELETE FROM checks WHERE block BETWEEN ? AND ?", blocks)
                for batch in whole_blocks(self._fetched(blocks)):
                    self._insert_sums(block_sums(checked_rows(batch, self._width)))

    def _insert_sums(self, sums: Sums) -> None:
        rows = zip(sums.blocks.tolist(), sums.crcs.tolist(), strict=True)
        self._connection.executemany("INSERT INTO checks VALUES (?, ?)", rows)

    def check_sources(self) -> None:
        """A CollectionError if the index by source does not agree with the items; looked at before it is first used."""
        if self._sources_checked:
            return
        if (found := self.execute("PRAGMA integrity_check(1)")) != [("ok",)]:
            raise CollectionError(f"{self.path} is damaged: {' '.join(str(found[0][0]).split())}.")
        self._sources_checked = True

    def select(self, columns: str, name: str, values: Sequence[Any] | None = None) -> Iterator[Any]:
        """Columns of the items with one of these ids or sources; None: with any."""
        if values is None:
            yield from self.execute(f"SELECT {columns} FROM items WHERE {name} IS NOT NULL ORDER BY {name}")
            return
        for start in range(0, len(values), _VARIABLES):
            some = values[start : start + _VARIABLES]
            yield from self.execute(f"SELECT {columns} FROM items WHERE {name} IN ({', '.join('?' * len(some))})", some)

    # -- changes ------------------------------------------------------------------------------------------------------

    def last_change(self) -> int:
        ((number,),) = self.execute("SELECT max(number) FROM changes")
        if number is None:
            raise CollectionError(f"{self.path} is damaged: its log of changes is empty.")
        return int(number)

    def log_change(self, ids: NDArray[np.int64]) -> None:
        """Note, in the transaction that changes them, which ids are changed."""
        if not len(ids):
            return
        ordered = np.sort(ids)
        breaks = np.flatnonzero(np.diff(ordered) > 1) + 1
        if len(breaks) >= _MOST_RANGES:
            breaks = breaks[:0]
        starts, ends = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(ordered)]]) - 1
        ranges = zip(ordered[starts].tolist(), ordered[ends].tolist(), strict=True)
        self.executemany("INSERT INTO changes (first, last) VALUES (?, ?)", ranges)
        self.execute("DELETE FROM changes WHERE number <= ?", (self.last_change() - _MOST_CHANGES,))

    def changes_since(self, number: int) -> list[tuple[int, int]] | None:
        """Ranges of ids that were changed after that change; None if the log does not reach back so far."""
        oldest = self.execute("SELECT min(number) FROM changes")[0][0]
        if oldest > number + 1:
            return None
        ranges = self.execute("SELECT first, last FROM changes WHERE number > ? ORDER BY first, last", (number,))
        merged: list[tuple[int, int]] = []
        for first, last in ranges:
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        return merged
