"""Creating and opening the SQLite file of a collection, and detecting that the file or the process has changed.

A connection belongs to the process that opened it, and so do SQLite's locks: POSIX drops them as soon as the process
closes any descriptor of the file. So a file that SQLite has open is never opened in another way.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from hashlearn.codes import n_bytes
from hashlearn.collection import _schema
from hashlearn.collection._checksums import EMPTY, Damage, to_meta
from hashlearn.errors import CollectionBusyError, CollectionError
from hashlearn.storage import sweep_folders, sync_folder

#: In the header of a collection's file, to tell it from other SQLite files: "hlc" and a 1.
APPLICATION_ID = 0x686C6301
# How long a writer waits for another.
BUSY_SECONDS = 10.0
_MAGIC = b"SQLite format 3\0"
_TEMPORARY, _NEW = ".hashlearn-", "new"


def create(path: Path, n_bits: int, meta: dict[str, Any]) -> None:
    """Write the file of an empty collection; raise a FileExistsError if it exists, or is created meanwhile."""
    for file in (path, _log_path(path), _shm_path(path)):
        if file.exists():
            # SQLite would take the log of an earlier file for the new one's.
            left = "" if file == path else ", left by an earlier collection"
            raise FileExistsError(f"{file} exists already{left}: choose another name, or remove it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(path.parent, _TEMPORARY, [f"{_NEW}{ending}" for ending in ("", "-wal", "-shm", "-journal")])
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_TEMPORARY) as folder:
        new = Path(folder) / _NEW
        os.close(os.open(new, os.O_CREAT | os.O_WRONLY, 0o666))
        _write_empty(new, n_bits, meta)
        try:
            os.link(new, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise FileExistsError(f"{path} exists already: choose another name, or remove it.") from None
        except OSError:  # no links on this file system
            os.rename(new, path)
    sync_folder(path.parent)


def _write_empty(path: Path, n_bits: int, meta: dict[str, Any]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with translated(path):
            # Readers continue while one writes. The mode is stored in the file.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_schema.VERSION}")
            connection.executescript("BEGIN;" + _schema.tables(_schema.VERSION, n_bytes(n_bits)))
            connection.execute(f"INSERT INTO {_schema.log_table(_schema.VERSION)} VALUES (1, 0, -1)")
            rows = _schema.meta_rows({"next_id": 0, **meta, "n_bits": n_bits, **to_meta(EMPTY)})
            connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
    finally:
        connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of hashlearn: one line that names the file."""
    try:
        yield
    except Damage as error:
        raise CollectionError(f"{path} is damaged: {error}.") from None
    except sqlite3.ProgrammingError as error:
        raise ValueError(f"{path} is closed ({_one_line(error)}).") from error
    except sqlite3.OperationalError as error:
        text = _one_line(error)
        if "locked" in text or "busy" in text:
            raise CollectionBusyError(
                f"{path} is being written by another process, for more than {BUSY_SECONDS:.0f} seconds: try again."
            ) from error
        if "readonly" in text or "read-only" in text:
            raise CollectionError(f"{path} was opened, or can be opened, for reading only.") from error
        if "full" in text or "disk I/O" in text or "unable to open" in text:
            raise OSError(f"{path}: {text}") from error
        raise CollectionError(f"{path} is damaged: {text}.") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter if a message is not UTF-8
        raise CollectionError(f"{path} is damaged, or not a collection: {_one_line(error)}.") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class OpenFile:
    """A connection to a file, and checks that the file and the process are still the same."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path
        #: The file itself, with links resolved: SQLite keeps its log beside it.
        self.file = Path(os.path.realpath(path))
        self._process = os.getpid()
        with _opening, translated(path):
            identity = _identity(self.file)
            if identity in _inherited:
                raise CollectionError(
                    f"{path} was open in the process that this one was forked from: close it before forking, or start "
                    "processes by spawn."
                )
            if identity is None or not any(other.identity == identity for other in _open):
                _check_file(path, self.file)
            before = _fingerprint(self.file)
            self.connection, immutable = _connect(self.file, readonly)
            #: State of the file, if it was opened as immutable, since it can't be locked.
            self._fixed = before if immutable else None
            self._identities = _identities(self.file)
            _open.add(self)

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file."""
        return self._identities[0]

    def in_same_process(self) -> bool:
        """False in a process that was forked from the one that opened the file."""
        return os.getpid() == self._process

    def close(self) -> None:
        with _opening:
            _open.discard(self)
            self.connection.close()

    def size(self) -> int:
        """Bytes of the file and of the log of writes beside it."""
        return sum(path.stat().st_size for path in (self.file, _log_path(self.file)) if path.exists())

    def check_process(self) -> None:
        if not self.in_same_process():
            raise CollectionError(
                f"{self.path} was opened before this process was forked: close it before forking, or start processes "
                "by spawn, and open it in each."
            )

    def was_changed(self) -> bool:
        """Whether a file that can't be locked was changed since it was opened."""
        return self._fixed is not None and self._fixed != _fingerprint(self.file)

    def check_unchanged(self) -> None:
        if self.was_changed():
            raise CollectionError(
                f"{self.path} was changed since it was opened, by a process that could not be locked out: refresh it."
            )

    def check_place(self) -> None:
        """Raise if the file or its log was removed or replaced: what is written to it would be lost."""
        if self._identities != _identities(self.file):
            raise CollectionError(
                f"{self.path} was removed or replaced since it was opened: the change was not saved. Open it again."
            )


_opening = Lock()
_open: WeakSet[OpenFile] = WeakSet()
#: Files that were open in a process that this one was forked from.
_inherited: set[tuple[int, int] | None] = set()


def _forget_open() -> None:
    """In a forked child, never touch the parent's connections.

    Closing one may delete the log, which holds other processes' changes. An extra reference keeps them from being
    closed when they are collected. The same file must not be opened again either: SQLite counts the locks of a process,
    and would rely on locks that the parent has and the child does not.
    """
    global _opening
    _opening = Lock()
    for opened in list(_open):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened.connection))
        _inherited.add(opened.identity)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_open)


def _check_file(path: Path, file: Path) -> None:
    """Refuse a file that is not SQLite's or is truncated, before SQLite opens it."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no collection at {path}.")
    with open(file, "rb") as opened:
        head = opened.read(100)
        size = os.fstat(opened.fileno()).st_size
    if head[:16] != _MAGIC or len(head) < 100:
        raise CollectionError(f"{path} is not a collection: not an SQLite file, or truncated.")
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    expected = page * int.from_bytes(head[28:32], "big")
    log = _log_path(file)
    # With a log beside it, the file may be shorter than its header says.
    if size < expected and not (log.exists() and log.stat().st_size):
        raise CollectionError(f"{path} is truncated: it has {size:,} of {expected:,} bytes.")


def _log_path(file: Path) -> Path:
    """SQLite's write-ahead log."""
    return file.with_name(f"{file.name}-wal")


def _shm_path(file: Path) -> Path:
    return file.with_name(f"{file.name}-shm")


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _identities(file: Path) -> tuple[tuple[int, int] | None, ...]:
    """Of the file, of its log, and of the shared memory beside it."""
    return _identity(file), _identity(_log_path(file)), _identity(_shm_path(file))


def _fingerprint(file: Path) -> tuple[tuple[int, int, int], ...]:
    """Inode, size and time of the file and of its log, which differ after a change."""
    states = []
    for path in (file, _log_path(file)):
        try:
            status = os.stat(path)
        except OSError:
            continue
        if status.st_size:
            states.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(states)


def _connect(path: Path, readonly: bool) -> tuple[sqlite3.Connection, bool]:
    """Open a connection; also return whether it treats the file as immutable."""

    def connect(options: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path))}?{options}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # The file may be hostile: execute nothing in it, and check its pages.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if sys.version_info >= (3, 12):
                connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            connection.execute("SELECT count(*) FROM sqlite_master")
        except BaseException:
            connection.close()
            raise
        return connection

    try:
        connection = connect("mode=rw")
        if readonly:
            # Not mode=ro, which leaves the files that SQLite creates beside it.
            connection.execute("PRAGMA query_only = ON")
        return connection, False
    except sqlite3.OperationalError:
        if not readonly:
            raise
    try:
        return connect("mode=ro"), False
    except sqlite3.OperationalError:
        # Where nothing can be written (a CD, another user's folder), SQLite can't create a log beside the file.
        log = _log_path(path)
        if log.exists() and log.stat().st_size:
            raise
        return connect("mode=ro&immutable=1"), True
