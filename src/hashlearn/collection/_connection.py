"""Files that SQLite has open in this process: made, opened, told from others, left alone after a fork.

A connection belongs to the process that opened it. So do SQLite's locks, and they are gone as soon as the process
closes the file by whatever other way: a file that is open here is never opened beside SQLite.
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
from hashlearn.collection._checksums import EMPTY, as_meta
from hashlearn.collection._schema import LOG, VERSION, Damage, meta_rows, tables
from hashlearn.errors import CollectionBusyError, CollectionError
from hashlearn.storage import sweep_folders, sync_folder

#: In the file's header, so that another program's SQLite file is told from ours: "hlc" and a 1.
APPLICATION_ID = 0x686C6301
# How long a writer waits for another one.
BUSY_SECONDS = 10.0
_MAGIC = b"SQLite format 3\0"
_TEMPORARY, _NEW = ".hashlearn-", "new"


def create(path: Path, n_bits: int, meta: dict[str, Any]) -> None:
    """Write the file of an empty collection; a FileExistsError if something is there, or comes there meanwhile."""
    for file in (path, _log_of(path), _shared_memory_of(path)):
        if file.exists():
            # A log that is left of an earlier file would be taken for the new one's.
            left = "" if file == path else ", left of an earlier collection"
            raise FileExistsError(f"{file} is there already{left}: choose another name, or remove it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(path.parent, _TEMPORARY, [f"{_NEW}{ending}" for ending in ("", "-wal", "-shm", "-journal")])
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_TEMPORARY) as folder:
        made = Path(folder) / _NEW
        os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o666))
        _write_empty(made, n_bits, meta)
        try:
            os.link(made, path)  # unlike a renaming, it never takes another's place
        except FileExistsError:
            raise FileExistsError(f"{path} is there already: choose another name, or remove it.") from None
        except OSError:  # no links on this file system
            os.rename(made, path)
    sync_folder(path.parent)


def _write_empty(path: Path, n_bits: int, meta: dict[str, Any]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with translated(path):
            # Readers go on while one writes. The mode is kept in the file.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.executescript("BEGIN;" + tables(VERSION, n_bytes(n_bits)))
            connection.execute(f"INSERT INTO {LOG[VERSION]} VALUES (1, 0, -1)")
            rows = meta_rows({"next_id": 0, **meta, "n_bits": n_bits, **as_meta(EMPTY)})
            connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
    finally:
        connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours, in one line that names the file."""
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
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a name that is no UTF-8 in SQLite's message
        raise CollectionError(f"{path} is damaged, or not a collection: {_one_line(error)}.") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class OpenFile:
    """A connection to a file, with what shows that the file and the process are still the same."""

    def __init__(self, path: Path, *, readonly: bool) -> None:
        self.path = path
        #: The file itself, beside which SQLite keeps its log, if the path is a link.
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
            before = _version(self.file)
            self.connection, immutable = _connect(self.file, readonly)
            #: Which file was opened, if SQLite was told that it does not change, as it must be where it can't lock.
            self._fixed = before if immutable else None
            self._identities = _identities(self.file)
            _open.add(self)

    @property
    def identity(self) -> tuple[int, int] | None:
        """Which file it is, whatever its name."""
        return self._identities[0]

    def is_own(self) -> bool:
        """Not so in a process that was forked from the one that opened the file."""
        return os.getpid() == self._process

    def close(self) -> None:
        with _opening:
            _open.discard(self)
            self.connection.close()

    def size(self) -> int:
        """Bytes of the file and of the log of writes beside it."""
        return sum(path.stat().st_size for path in (self.file, _log_of(self.file)) if path.exists())

    def check_process(self) -> None:
        if not self.is_own():
            raise CollectionError(
                f"{self.path} was opened before this process was forked: close it before forking, or start processes "
                "by spawn, and open it in each."
            )

    def was_changed(self) -> bool:
        """Whether the file was changed behind SQLite's back, where it could not be locked."""
        return self._fixed is not None and self._fixed != _version(self.file)

    def check_unchanged(self) -> None:
        if self.was_changed():
            raise CollectionError(
                f"{self.path} was changed since it was opened, by a process that could not be locked out: refresh it."
            )

    def check_place(self) -> None:
        """What is written to a file that was removed, or whose log was, is lost."""
        if self._identities != _identities(self.file):
            raise CollectionError(
                f"{self.path} was removed or replaced since it was opened: what was to be written is not kept. "
                "Open it again."
            )


_opening = Lock()
_open: WeakSet[OpenFile] = WeakSet()
#: Files that were open in a process that this one was forked from.
_inherited: set[tuple[int, int] | None] = set()


def _forget_open() -> None:
    """In a forked child: leave the parent's connections alone, for good.

    Even closing one would be wrong: it may take the log of writes away, in which others' changes are. So they are not
    closed when they are collected either: one reference too many is held. And opening the same file again would be
    wrong: SQLite counts a process's locks on a file, and would count on those that the parent has and the child lacks.
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
    log = _log_of(file)
    # Beside a log of writes the file may be behind what its header says.
    if size < promised and not (log.exists() and log.stat().st_size):
        raise CollectionError(f"{path} is cut off: it has {size:,} bytes of {promised:,}.")


def _log_of(file: Path) -> Path:
    """Where SQLite keeps what was written but is not in the file yet."""
    return file.with_name(f"{file.name}-wal")


def _shared_memory_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-shm")


def _identity(file: Path) -> tuple[int, int] | None:
    """Which file has that name, if there is one."""
    try:
        known = os.stat(file)
    except OSError:
        return None
    return known.st_dev, known.st_ino


def _identities(file: Path) -> tuple[tuple[int, int] | None, ...]:
    """Of the file, of the log of writes beside it, and of the memory that processes share over it."""
    return _identity(file), _identity(_log_of(file)), _identity(_shared_memory_of(file))


def _version(file: Path) -> tuple[tuple[int, int, int], ...]:
    """What another content of the file, or of the log of writes beside it, changes."""
    found = []
    for path in (file, _log_of(file)):
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
            # The file may be a stranger's: nothing in it is to be executed, and its pages are not to be believed.
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
        log = _log_of(path)
        if log.exists() and log.stat().st_size:
            raise
        return connect("mode=ro&immutable=1"), True
