"""The SQLite file behind a collection: its tables, what is ours and whole, transactions, what changed since when."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from hashlearn.codes import n_bytes
from hashlearn.errors import CollectionBusyError, CollectionError

#: In the file's header, so that another program's SQLite file is told from ours: "hlc" and a 1.
APPLICATION_ID = 0x686C6301
VERSION = 1
# How long a writer waits for another one.
BUSY_SECONDS = 10.0
# The log of changes is kept so long: a reader that is further behind reads everything anew.
_MOST_CHANGES = 10_000
# Ids of one change that are so scattered are logged as one range.
_MOST_RANGES = 1_000
_FETCHED = 50_000
# Of one statement.
_VARIABLES = 500
_MAGIC = b"SQLite format 3\0"

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE items (
    id INTEGER PRIMARY KEY CHECK (id >= 0),
    code BLOB NOT NULL CHECK (typeof(code) = 'blob' AND length(code) = {n_bytes}),
    source TEXT,
    payload TEXT
);
CREATE INDEX items_source ON items (source) WHERE source IS NOT NULL;
CREATE TABLE changes (number INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);
INSERT INTO changes VALUES (1, 0, -1);
"""


def create(path: Path, n_bits: int, meta: dict[str, Any]) -> None:
    """Write the file of an empty collection; a FileExistsError if something is there, or comes there meanwhile."""
    for there in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
        if there.exists():
            # A log that is left of an earlier file would be taken for the new one's.
            left = "" if there == path else ", left of an earlier collection"
            raise FileExistsError(f"{there} is there already{left}: choose another name, or remove it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".hashlearn-") as folder:
        made = Path(folder) / "new"
        os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o666))
        _write_empty(made, n_bits, meta)
        try:
            os.link(made, path)  # unlike a renaming, it never takes another's place
        except FileExistsError:
            raise FileExistsError(f"{path} is there already: choose another name, or remove it.") from None
        except OSError:  # no links on this file system
            os.rename(made, path)


def _write_empty(path: Path, n_bits: int, meta: dict[str, Any]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with translated(path):
            # Readers go on while one writes. The mode is kept in the file.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.executescript("BEGIN;" + _TABLES.format(n_bytes=n_bytes(n_bits)) + "COMMIT;")
            rows = {"next_id": 0, **meta, "n_bits": n_bits}
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())
    finally:
        connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours, in one line that names the file."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise ValueError(f"{path} is closed ({error}).") from error
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise CollectionBusyError(
                f"{path} is being written by another process, for more than {BUSY_SECONDS:.0f} seconds: try again."
            ) from error
        if "readonly" in text or "read-only" in text:
            raise CollectionError(f"{path} was opened, or can be opened, for reading only.") from error
        if "full" in text or "disk I/O" in text or "unable to open" in text:
            raise OSError(f"{path}: {text}") from error
        raise CollectionError(f"{path} is damaged: {text}.") from error
    except sqlite3.DatabaseError as error:
        raise CollectionError(f"{path} is damaged, or not a collection: {error}.") from error


class Database:
    """A connection to the file; safe for several threads, which take turns."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path
        #: The file itself, beside which SQLite keeps its log, if the path is a link.
        self.file = Path(os.path.realpath(path))
        self.lock = RLock()
        _check_file(path, self.file)
        self._readonly = readonly
        self._connect()
        try:
            with translated(path):
                self._check_identity()
                if not readonly:
                    # Also after a power cut, what was acknowledged is there.
                    self.execute("PRAGMA synchronous = FULL")
                self.meta = dict(self.execute("SELECT name, value FROM meta WHERE name != 'model'"))
                self.n_bits = int(self.meta["n_bits"])
                self._width = n_bytes(self.n_bits)
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            if isinstance(error, (CollectionError, CollectionBusyError)):
                raise
            raise CollectionError(f"{path} is damaged: it does not say how long its codes are.") from None
        except BaseException:
            self.close()
            raise

    def _check_identity(self) -> None:
        (application,), (version,) = self.execute("PRAGMA application_id"), self.execute("PRAGMA user_version")
        if application[0] != APPLICATION_ID:
            raise CollectionError(f"{self.path} is a SQLite file of another program, not a collection.")
        if version[0] != VERSION:
            raise CollectionError(
                f"{self.path} is a collection of version {version[0]}; this hashlearn reads version {VERSION}."
            )

    def _connect(self) -> None:
        with translated(self.path):
            before = _version(self.file)
            self._connection, immutable = _connect(self.file, self._readonly)
            #: Which file was opened, if SQLite was told that it does not change, as it must be where it can't lock.
            self._fixed = before if immutable else None

    def close(self) -> None:
        with self.lock:
            self._connection.close()

    def _check_unchanged(self) -> None:
        if self._fixed is not None and self._fixed != _version(self.file):
            raise CollectionError(
                f"{self.path} was changed since it was opened, by one whom it can't be locked against: refresh it."
            )

    def renew(self) -> bool:
        """Open the file anew if it was changed behind SQLite's back; whether it was. It may be another one now."""
        with self.lock:
            if self._fixed is None or self._fixed == _version(self.file):
                return False
            fresh = Database(self.file, readonly=self._readonly)
            if fresh.n_bits != self.n_bits:
                fresh.close()
                raise CollectionError(f"{self.path} is another collection now, of {fresh.n_bits} bits: open it again.")
            self._connection.close()
            self._connection, self._fixed, self.meta = fresh._connection, fresh._fixed, fresh.meta
            return True

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.lock, translated(self.path):
            self._check_unchanged()
            try:
                return self._connection.execute(sql, values).fetchall()
            finally:
                self._check_unchanged()

    def _fetched(self, cursor: sqlite3.Cursor, size: int) -> list[Any]:
        try:
            return cursor.fetchmany(size)
        finally:
            self._check_unchanged()

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.lock, translated(self.path):
            self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """All of it or nothing; a reader sees the file as it is at its first look."""
        with self.lock, translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def model(self) -> bytes | None:
        found = self.execute("SELECT value FROM meta WHERE name = 'model'")
        return bytes(found[0][0]) if found else None

    # -- codes --------------------------------------------------------------------------------------------------------

    def codes(self, first: int | None = None, last: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Ids, ascending, and packed codes of all items, or of those with ids from ``first`` to ``last``."""
        where, values = ("", ()) if first is None else (" WHERE id BETWEEN ? AND ?", (first, last))
        ids, blobs = [], []
        with self.lock, translated(self.path):
            cursor = self._connection.execute(f"SELECT id, code FROM items{where} ORDER BY id", values)
            while rows := self._fetched(cursor, _FETCHED):
                some, codes = zip(*rows, strict=True)
                ids.append(np.array(some, dtype=np.int64))
                blobs.append(b"".join(codes))
        found = np.concatenate(ids) if ids else np.empty(0, np.int64)
        content = np.frombuffer(b"".join(blobs), dtype=np.uint8)
        if content.size != len(found) * self._width:
            raise CollectionError(f"{self.path} is damaged: its codes do not have {self.n_bits} bits.")
        return found, content.reshape(len(found), self._width)

    def rows(self, size: int) -> Iterator[list[Any]]:
        """Ids, codes, sources and payloads of all items, by id, so many at a time, as they are at the first.

        By a connection of its own, so that others can go on meanwhile.
        """
        self.execute("SELECT 1")  # an error if this is closed, or was changed
        own = Database(self.file, readonly=True)
        try:
            with translated(self.path):
                # No lock is held while others go on, who may be in another thread.
                own._connection.execute("BEGIN")
                cursor = own._connection.execute("SELECT id, code, source, payload FROM items ORDER BY id")
            while True:
                with translated(self.path):
                    rows = own._fetched(cursor, size)
                if not rows:
                    return
                yield rows
        finally:
            own._connection.close()

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


def _check_file(path: Path, file: Path) -> None:
    """Refuse, before SQLite makes something of it, what is no SQLite file or was cut off."""
    if not file.is_file():
        raise FileNotFoundError(f"no collection is at {path}.")
    with open(file, "rb") as opened:
        head = opened.read(100)
        size = os.fstat(opened.fileno()).st_size
    if head[:16] != _MAGIC or len(head) < 100:
        raise CollectionError(f"{path} is not a collection: not an SQLite file, or cut off.")
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    promised = page * int.from_bytes(head[28:32], "big")
    log = file.with_name(f"{file.name}-wal")
    # Beside a log of writes the file may be behind what its header says.
    if size < promised and not (log.exists() and log.stat().st_size):
        raise CollectionError(f"{path} is cut off: it has {size:,} bytes of {promised:,}.")


def _version(file: Path) -> tuple[tuple[int, int, int], ...]:
    """What another content of the file, or of the log of writes beside it, changes."""
    found = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        try:
            known = os.stat(path)
        except OSError:
            continue
        if known.st_size:
            found.append((known.st_ino, known.st_size, known.st_mtime_ns))
    return tuple(found)


def _connect(path: Path, readonly: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether SQLite takes the file for one that does not change."""

    def connect(options: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?{options}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
        except BaseException:
            connection.close()
            raise
        return connection

    try:
        connection = connect("mode=rw")
        if readonly:
            # Rather than mode=ro, which leaves behind the files that SQLite makes beside it.
            connection.execute("PRAGMA query_only = ON")
        return connection, False
    except sqlite3.OperationalError:
        if not readonly:
            raise
    try:
        return connect("mode=ro"), False
    except sqlite3.OperationalError:
        # Where nothing can be written (a CD, another's folder) there can be no log of writes beside the file either.
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return connect("mode=ro&immutable=1"), True
