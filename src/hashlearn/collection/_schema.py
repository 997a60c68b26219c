"""The tables of a collection's file, their versions, and the migrations from one version to the next.

Version 2 added checksums: a CRC-32 of each value of ``meta``, and one of all items (``_checksums``). It renamed the log
of changes, so that a program that knows version 1 only, and has the file open, can't write.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zlib import crc32

from hashlearn.collection._checksums import EMPTY, Damage, check_rows, tally, to_meta

_ITEMS = """
CREATE TABLE items (
    id INTEGER PRIMARY KEY CHECK (id >= 0),
    code BLOB NOT NULL CHECK (typeof(code) = 'blob' AND length(code) = {n_bytes}),
    source TEXT,
    payload TEXT
);
CREATE INDEX items_source ON items (source) WHERE source IS NOT NULL;
"""
_LOG = "CREATE TABLE {name} (number INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);"
_META_1 = "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
_META_2 = "CREATE TABLE meta (name TEXT PRIMARY KEY, value, crc INTEGER NOT NULL) WITHOUT ROWID;"
_WIDTH = re.compile(r"length\(code\) = ([0-9]{1,9})\)")
_FETCH_SIZE = 1_000
# The names and types of the values of ``meta``.
_REQUIRED: dict[str, type] = {"n_bits": int, "next_id": int, "hashlearn": str, "info": str}
_CHECKSUMS: dict[str, type] = {"n_items": int, "checksum": str}  # from version 2 on; the checksum is hexadecimal
_WITH_A_MODEL: dict[str, type] = {"model": bytes, "model_key": str, "method": str, "n_features": int}


def log_table(version: int) -> str:
    """The name of the table of changes."""
    return "changes" if version == 1 else "change_log"


def tables(version: int, n_bytes: int) -> str:
    """The SQL that creates the tables, for codes of ``n_bytes`` bytes."""
    meta = _META_1 if version == 1 else _META_2
    return meta + _ITEMS.format(n_bytes=n_bytes) + _LOG.format(name=log_table(version))


def check_schema(connection: sqlite3.Connection, version: int) -> int:
    """Return the bytes of a code if the file has exactly the tables of this version: no view, no trigger.

    Call it before reading from the tables: a view in the place of a table could run forever.
    """
    objects = _read_objects(connection)
    width = next((int(match[1]) for *_, sql in objects if (match := _WIDTH.search(sql or ""))), None)
    if width is None or objects != _expected_objects(version, width):
        raise Damage("its tables are not those of a collection")
    return width


@lru_cache(maxsize=100)
def _expected_objects(version: int, width: int) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(tables(version, width))
        return _read_objects(connection)
    finally:
        connection.close()


def _read_objects(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def read_meta(connection: sqlite3.Connection, version: int) -> dict[str, Any]:
    """Read the values of ``meta`` and check their names, types and checksums."""
    crc = "NULL" if version == 1 else "crc"
    rows = connection.execute(f"SELECT name, value, {crc} FROM meta").fetchall()
    meta = {name: value for name, value, _ in rows}
    expected = _REQUIRED | (_CHECKSUMS if version > 1 else {}) | (_WITH_A_MODEL if "model" in meta else {})
    if meta.keys() != expected.keys():
        raise Damage(f"its meta must hold {', '.join(expected)}; it holds {', '.join(map(str, meta)) or 'nothing'}")
    for name, value, crc in rows:
        if type(value) is not expected[name] or (isinstance(value, int) and value < 0):
            raise Damage(f"its {name} is not a valid {expected[name].__name__}")
        if version > 1 and crc != meta_crc(name, value):
            raise Damage(f"its {name} does not have the checksum that it was written with")
    return meta


def meta_crc(name: str, value: Any) -> int:
    content = value if isinstance(value, bytes) else str(value).encode()
    return crc32(content, crc32(f"{name} {type(value).__name__}".encode()))


def meta_rows(meta: dict[str, Any]) -> list[tuple[str, Any, int]]:
    return [(name, value, meta_crc(name, value)) for name, value in meta.items()]


# -- migrations -------------------------------------------------------------------------------------------------------


def _add_checksums(connection: sqlite3.Connection) -> None:
    width = check_schema(connection, 1)
    total = EMPTY
    cursor = connection.execute("SELECT id, code, source, payload FROM items ORDER BY id")
    while rows := cursor.fetchmany(_FETCH_SIZE):
        total = total.plus(tally(check_rows(rows, width)))
    meta = read_meta(connection, 1) | to_meta(total)
    connection.execute("DROP TABLE meta")
    connection.execute(_META_2.rstrip(";"))
    connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", meta_rows(meta))
    connection.execute(_LOG.format(name=log_table(2)).rstrip(";"))
    connection.execute(f"INSERT INTO {log_table(2)} SELECT * FROM {log_table(1)}")
    connection.execute(f"DROP TABLE {log_table(1)}")


#: The migration to each version from the one before it. A new version adds a line here.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {2: _add_checksums}
VERSION = max(MIGRATIONS)


def migrate(connection: sqlite3.Connection, version: int) -> int:
    """Bring a file of ``version`` to :data:`VERSION`, step by step, inside the caller's transaction."""
    while version < VERSION:
        version += 1
        MIGRATIONS[version](connection)
        connection.execute(f"PRAGMA user_version = {version}")
    return version
