"""The SQLite file of a collection: transactions, items with their checksum, and a log of changes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from hashlearn._arrays import Codes, Ids
from hashlearn.collection import _schema
from hashlearn.collection._checksums import EMPTY, Damage, Rows, Tally, check_rows, tally, to_meta
from hashlearn.collection._connection import APPLICATION_ID, OpenFile, translated
from hashlearn.collection._schema import check_schema, log_table, meta_crc, read_meta
from hashlearn.errors import CollectionError

# Changes that the log holds. A reader that is further behind reads all items again.
_MAX_CHANGES = 10_000
# A change of more ranges of ids is logged as one range.
_MAX_RANGES = 1_000
_FETCH_SIZE = 1_000
# Variables of one SQL statement.
_MAX_VARIABLES = 500
_ITEM = "id, code, source, payload"

T = TypeVar("T")


class Database:
    """A connection to the file. Threads may share it; they take turns."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path
        self.lock = RLock()
        self._readonly = readonly
        self._sources_checked = False
        self._opened = OpenFile(path, readonly=readonly)
        #: The file itself, with links resolved.
        self.file = self._opened.file
        try:
            with translated(path):
                self._check()
        except BaseException:
            self.close()
            raise

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._opened.connection

    @property
    def _log(self) -> str:
        """The table of changes."""
        return log_table(self.version)

    def _check(self) -> None:
        """Refuse a file that is not a collection or is damaged; migrate one of an older version."""
        if sys.version_info >= (3, 11):
            # No value can be larger than the file.
            size = max(self._opened.size(), 1_000_000)
            default_limit = self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        self.version = self._read_version()
        if self.version < _schema.VERSION and not self._readonly:
            self._opened.check_place()
            self.transact(self._migrate, begin="BEGIN IMMEDIATE")
        self.transact(self._check_content)
        if sys.version_info >= (3, 11):
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, default_limit)
        if not self._readonly:
            # A committed change survives a power cut.
            self.execute("PRAGMA synchronous = FULL")

    def _read_version(self) -> int:
        (application,), (version,) = self.execute("PRAGMA application_id"), self.execute("PRAGMA user_version")
        if application[0] != APPLICATION_ID:
            raise CollectionError(f"{self.path} is a SQLite file of another program, not a collection.")
        if not 1 <= version[0] <= _schema.VERSION:
            raise CollectionError(
                f"{self.path} is a collection of version {version[0]}; this hashlearn reads version {_schema.VERSION}."
            )
        return int(version[0])

    def _check_content(self) -> None:
        self.version = self._read_version()
        self._width = check_schema(self._connection, self.version)
        # Every page is used once. Without this check, reading a crafted file could take forever.
        if (report := self.execute("PRAGMA quick_check(1)")) != [("ok",)]:
            raise Damage(" ".join(str(report[0][0]).split()))
        self._check_log()
        meta = read_meta(self._connection, self.version)
        self.n_bits: int = meta["n_bits"]
        if not 8 * (self._width - 1) < self.n_bits <= 8 * self._width:
            raise Damage("it does not say how long its codes are")
        self.meta = {name: value for name, value in meta.items() if name not in ("model", *to_meta(EMPTY))}

    def _check_log(self) -> None:
        """Check the types, and that there are larger numbers left: a reader would miss changes without one."""
        valid = "number BETWEEN 1 AND 1 << 62 AND typeof(first) = 'integer' AND typeof(last) = 'integer'"
        ((bad,),) = self.execute(f"SELECT count(*) FROM {self._log} WHERE NOT ({valid})")
        if bad:
            raise Damage("its log of changes has invalid rows")

    def _migrate(self) -> None:
        """Migrate the file to the latest version, inside a transaction."""
        self._check_content()  # reads the version again: another process may have migrated the file meanwhile
        self.version = _schema.migrate(self._connection, self.version)

    def close(self) -> None:
        if self._opened.in_same_process():
            with self.lock:
                self._opened.close()

    def check_process(self) -> None:
        """Raise a CollectionError in a process that was forked from the one that opened the file.

        Call it before taking the lock, which a thread of the parent may hold forever.
        """
        self._opened.check_process()

    def renew(self) -> bool:
        """Open the file again if it was changed and could not be locked; return whether it was.

        It may be another collection now.
        """
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
        """Run ``action`` in one transaction. A reader sees the file as it was at its first read.

        It is not a context manager, so that an interrupt at any moment, also at its start, leaves nothing locked.
        """
        self.check_process()
        with self.lock, translated(self.path):
            connection = self._connection
            if connection.in_transaction and self._is_interrupted():
                if begin != "BEGIN":
                    raise CollectionError(f"{self.path} is in use by this thread: it can't be changed meanwhile.")
                return action()
            try:
                _roll_back(connection)  # of an earlier transaction that was interrupted at its end
                connection.execute(begin)
                result = action()
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                _roll_back(connection)  # again, if an interrupt stopped the first one
        return result

    def _is_interrupted(self) -> bool:
        """Whether the caller, such as a signal handler, interrupted a transaction of this thread."""
        frame = sys._getframe(2)
        while frame := frame.f_back:  # type: ignore[assignment]
            if frame.f_code is Database.transact.__code__ and frame.f_locals["self"] is self:
                return True
        return False

    def change(self, action: Callable[[], T]) -> T:
        """Run an action that writes in one transaction, which is on disk when this returns."""

        def checked() -> T:
            self._opened.check_place()
            if self._read_version() != self.version:
                raise CollectionError(f"{self.path} was migrated since it was opened: open it again.")
            result = action()
            self._opened.check_place()
            return result

        result = self.transact(checked, begin="BEGIN IMMEDIATE")
        self._opened.check_place()
        return result

    # -- meta ---------------------------------------------------------------------------------------------------------

    def model(self) -> bytes | None:
        rows = self.execute("SELECT value FROM meta WHERE name = 'model'")
        return bytes(rows[0][0]) if rows else None

    def _read_values(self, *names: str) -> list[Any]:
        """Read values that can change, and check them."""
        rows = self.execute(f"SELECT name, value, crc FROM meta WHERE name IN ({', '.join('?' * len(names))})", names)
        values = {name: value for name, value, crc in rows if crc == meta_crc(name, value)}
        if len(values) != len(names):
            raise CollectionError(f"{self.path} is damaged: its {' or '.join(names)} does not have its checksum.")
        return [values[name] for name in names]

    def write_meta(self, values: dict[str, Any]) -> None:
        rows = [(value, meta_crc(name, value), name) for name, value in values.items()]
        self.executemany("UPDATE meta SET value = ?, crc = ? WHERE name = ?", rows)

    def next_id(self) -> int:
        return int(self._read_values("next_id")[0])

    def tally(self) -> Tally | None:
        """The stored checksum of all items; None in a file of version 1."""
        if self.version == 1:
            return None
        n_items, checksum = self._read_values("n_items", "checksum")
        try:
            return Tally(n_items, int(checksum, 16))
        except ValueError:
            raise Damage("its checksum is not a number") from None

    # -- items --------------------------------------------------------------------------------------------------------

    def codes(self, first: int | None = None, last: int | None = None) -> tuple[Ids, Codes]:
        """Read ids, ascending, and packed codes of all items, or of those with ids from ``first`` to ``last``."""
        self.check_process()
        with self.lock, translated(self.path):
            parts = [(np.empty(0, np.int64), np.empty((0, self._width), np.uint8))]
            parts += ((rows.ids, rows.codes) for rows in self._items(first, last))
        ids, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ids, codes

    def rows(self, size: int) -> Iterator[Rows]:
        """Iterate over all items by id, in batches of ``size``, as they are at the start.

        It uses another connection, so that other calls can run meanwhile.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1; got {size}.")
        self.execute("SELECT 1")  # raises if this is closed, or the file was changed
        reader = Database(self.file, readonly=True)
        try:
            with translated(self.path):
                # Without transact, whose lock would be held between batches.
                reader._connection.execute("BEGIN")
                yield from reader._items(size=size)
        finally:
            reader.close()

    def _items(self, first: int | None = None, last: int | None = None, size: int = _FETCH_SIZE) -> Iterator[Rows]:
        """Iterate over the items with ids from ``first`` to ``last``, by id; or over all, and check their checksum."""
        columns, where, expected, total = _ITEM, " WHERE id BETWEEN ? AND ?", None, EMPTY
        values: tuple[int | None, ...] = (first, last)
        if first is None:
            where, values, expected = "", (), self.tally()
            # Reading two columns of NULL would take a third of the time.
            texts = "SELECT 1 FROM items WHERE source IS NOT NULL OR payload IS NOT NULL LIMIT 1"
            columns = _ITEM if self._connection.execute(texts).fetchone() else "id, code"
        cursor = self._connection.execute(f"SELECT {columns} FROM items{where} ORDER BY id", values)
        while fetched := self._fetch(cursor, size):
            rows = check_rows(fetched, self._width)
            if expected is not None:
                total = total.plus(tally(rows))
            yield rows
        if expected is not None and total != expected:
            raise Damage("its items do not have the checksum that they were written with")

    def _fetch(self, cursor: sqlite3.Cursor, size: int) -> list[Any]:
        self.check_process()
        try:
            return cursor.fetchmany(size)
        finally:
            self._opened.check_unchanged()

    def tally_items(self, ids: Ids) -> Tally:
        """The checksum of those of these items that exist."""
        rows = sorted(self.select(_ITEM, "id", ids.tolist()))
        with translated(self.path):
            return tally(check_rows(rows, self._width))

    def check_sources(self) -> None:
        """Raise a CollectionError if the index of sources does not match the items. It checks once."""
        if self._sources_checked:
            return
        if (report := self.execute("PRAGMA integrity_check(1)")) != [("ok",)]:
            raise CollectionError(f"{self.path} is damaged: {' '.join(str(report[0][0]).split())}.")
        self._sources_checked = True

    def select(self, columns: str, name: str, values: Sequence[Any] | None = None) -> Iterator[Any]:
        """Read columns of the items with one of these ids or sources, or with any."""
        if values is None:
            yield from self.execute(f"SELECT {columns} FROM items WHERE {name} IS NOT NULL ORDER BY {name}")
            return
        for start in range(0, len(values), _MAX_VARIABLES):
            part = values[start : start + _MAX_VARIABLES]
            yield from self.execute(f"SELECT {columns} FROM items WHERE {name} IN ({', '.join('?' * len(part))})", part)

    # -- changes ------------------------------------------------------------------------------------------------------

    def last_change(self) -> int:
        ((number,),) = self.execute(f"SELECT max(number) FROM {self._log}")
        if number is None:
            raise CollectionError(f"{self.path} is damaged: its log of changes is empty.")
        return int(number)

    def log_change(self, ids: Ids) -> None:
        """Log which ids are changed, in the transaction that changes them."""
        if not len(ids):
            return
        ordered = np.sort(ids)
        breaks = np.flatnonzero(np.diff(ordered) > 1) + 1
        if len(breaks) >= _MAX_RANGES:
            breaks = breaks[:0]
        starts, ends = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(ordered)]]) - 1
        ranges = zip(ordered[starts].tolist(), ordered[ends].tolist(), strict=True)
        self.executemany(f"INSERT INTO {self._log} (first, last) VALUES (?, ?)", ranges)
        self.execute(f"DELETE FROM {self._log} WHERE number <= ?", (self.last_change() - _MAX_CHANGES,))

    def changes_since(self, number: int) -> list[tuple[int, int]] | None:
        """Read the ranges of ids that were changed after change ``number``; None if the log starts later."""
        oldest = self.execute(f"SELECT min(number) FROM {self._log}")[0][0]
        if oldest > number + 1:
            return None
        ranges = self.execute(f"SELECT first, last FROM {self._log} WHERE number > ? ORDER BY first, last", (number,))
        merged: list[tuple[int, int]] = []
        for first, last in ranges:
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        return merged


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back the transaction, if one is open."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
