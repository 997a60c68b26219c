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

from hashlearn.collection._checksums import EMPTY, Rows, Tally, as_meta, check_rows, resized, tally
from hashlearn.collection._connection import APPLICATION_ID, OpenFile, translated
from hashlearn.collection._schema import LOG, VERSION, Damage, add_checksums, check_schema, meta_crc, read_meta
from hashlearn.errors import CollectionError

# The log of changes is kept so long: a reader that is further behind reads everything anew.
_MOST_CHANGES = 10_000
# Ids of one change that are so scattered are logged as one range.
_MOST_RANGES = 1_000
_FETCHED = 1_000
# Of one statement.
_VARIABLES = 500
_ITEM = "id, code, source, payload"

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
            self._opened.check_place()
            self.transact(self._migrate, begin="BEGIN IMMEDIATE")
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
        if version[0] not in LOG:
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
        self._check_log()
        meta = read_meta(self._connection, self.version)
        self.n_bits: int = meta["n_bits"]
        if not 8 * (self._width - 1) < self.n_bits <= 8 * self._width:
            raise Damage("it does not say how long its codes are")
        self.meta = {name: value for name, value in meta.items() if name not in ("model", *as_meta(EMPTY))}

    def _check_log(self) -> None:
        """Numbers, of which the last leaves room for more: a reader would miss the changes after it."""
        numbers = "typeof(first) = 'integer' AND typeof(last) = 'integer'"
        log = LOG[self.version]
        ((bad,),) = self.execute(
            f"SELECT count(*) FROM {log} WHERE number NOT BETWEEN 1 AND 1 << 62 OR NOT ({numbers})"
        )
        if bad:
            raise Damage("its log of changes has what is no change")

    def _migrate(self) -> None:
        """From the version of the file to this one's."""
        if self._known_version() == VERSION:  # by another process meanwhile
            return
        self._check_content()
        found = EMPTY
        for rows in self._items():
            found = found.plus(tally(rows))
        add_checksums(self._connection, as_meta(found))
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
            connection = self._connection
            if connection.in_transaction and self._is_interrupted():
                if begin != "BEGIN":
                    raise CollectionError(f"{self.path} is in use by this very thread: it can't be changed meanwhile.")
                return action()
            try:
                _roll_back(connection)  # an action whose end was interrupted
                connection.execute(begin)
                result = action()
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                _roll_back(connection)  # once more, if an interrupt came while that was under way
        return result

    def _is_interrupted(self) -> bool:
        """Whether a transaction of this thread waits for the end of what called this, such as a signal handler."""
        frame = sys._getframe(2)
        while frame := frame.f_back:  # type: ignore[assignment]
            if frame.f_code is Database.transact.__code__ and frame.f_locals["self"] is self:
                return True
        return False

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

    def _kept(self, *names: str) -> list[Any]:
        """Values that change, as they are now."""
        rows = self.execute(f"SELECT name, value, crc FROM meta WHERE name IN ({', '.join('?' * len(names))})", names)
        kept = {name: value for name, value, crc in rows if crc == meta_crc(name, value)}
        if len(kept) != len(names):
            raise CollectionError(f"{self.path} is damaged: its {' or '.join(names)} does not have its checksum.")
        return [kept[name] for name in names]

    def _keep(self, values: dict[str, Any]) -> None:
        rows = [(value, meta_crc(name, value), name) for name, value in values.items()]
        self.executemany("UPDATE meta SET value = ?, crc = ? WHERE name = ?", rows)

    def next_id(self) -> int:
        return int(self._kept("next_id")[0])

    def set_next_id(self, value: int) -> None:
        self._keep({"next_id": value})

    def tally(self) -> Tally | None:
        """What the items must add up to; None in a file that does not say."""
        if self.version == 1:
            return None
        n_items, checksum = self._kept("n_items", "checksum")
        try:
            return Tally(n_items, int(checksum, 16))
        except ValueError:
            raise Damage("its checksum is no number") from None

    def set_tally(self, value: Tally) -> None:
        self._keep(as_meta(value))

    # -- items --------------------------------------------------------------------------------------------------------

    def codes(self, first: int | None = None, last: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Ids, ascending, and packed codes of all items, or of those with ids from ``first`` to ``last``."""
        self.check_process()
        with self.lock, translated(self.path):
            parts = [(rows.ids, rows.codes) for rows in self._items(first, last)]
        if not parts:
            return np.empty(0, np.int64), np.empty((0, self._width), np.uint8)
        ids, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ids, codes

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

    def _items(self, first: int | None = None, last: int | None = None) -> Iterator[Rows]:
        """The items with ids from ``first`` to ``last``, by id; or all, which must have their checksum."""
        columns, where, expected, found = _ITEM, " WHERE id BETWEEN ? AND ?", None, EMPTY
        values: tuple[int | None, ...] = (first, last)
        if first is None:
            where, values, expected = "", (), self.tally()
            # Columns of nothing but NULL would take a third of the time.
            texts = "SELECT 1 FROM items WHERE source IS NOT NULL OR payload IS NOT NULL LIMIT 1"
            columns = _ITEM if self._connection.execute(texts).fetchone() else "id, code"
        cursor = self._connection.execute(f"SELECT {columns} FROM items{where} ORDER BY id", values)
        while rows := self._fetched(cursor):
            some = check_rows(rows, self._width)
            if expected is not None:
                found = found.plus(tally(some))
            yield some
        if expected is not None and found != expected:
            raise Damage("its items do not have the checksum that they were written with")

    def _fetched(self, cursor: sqlite3.Cursor) -> list[Any]:
        self.check_process()
        try:
            return cursor.fetchmany(_FETCHED)
        finally:
            self._opened.check_unchanged()

    def tally_items(self, ids: NDArray[np.int64]) -> Tally:
        """What these items, as far as they are there, add up to."""
        rows = sorted(self.select(_ITEM, "id", ids.tolist()))
        with translated(self.path):
            return tally(check_rows(rows, self._width))

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
        ((number,),) = self.execute(f"SELECT max(number) FROM {LOG[self.version]}")
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
        self.executemany(f"INSERT INTO {LOG[self.version]} (first, last) VALUES (?, ?)", ranges)
        self.execute(f"DELETE FROM {LOG[self.version]} WHERE number <= ?", (self.last_change() - _MOST_CHANGES,))

    def changes_since(self, number: int) -> list[tuple[int, int]] | None:
        """Ranges of ids that were changed after that change; None if the log does not reach back so far."""
        oldest = self.execute(f"SELECT min(number) FROM {LOG[self.version]}")[0][0]
        if oldest > number + 1:
            return None
        ranges = self.execute(
            f"SELECT first, last FROM {LOG[self.version]} WHERE number > ? ORDER BY first, last", (number,)
        )
        merged: list[tuple[int, int]] = []
        for first, last in ranges:
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        return merged


def _roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if there is one."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
