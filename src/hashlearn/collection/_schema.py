"""The tables of a collection's file, version by version: what they must be, and how an older file becomes a newer one.

Version 2 added the checksums: a CRC-32 of each value of ``meta``, and among these values the sum of all items' hashes.
Its log of changes has another name, so that a program that knows version 1 alone, and has the file open, can't write.
"""

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache
from typing import Any
from zlib import crc32

VERSION = 2


class Damage(Exception):
    """What is wrong with a file, in words that follow its name."""


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

#: What the table of changes is called.
LOG = {1: "changes", VERSION: "change_log"}
_TABLES = {1: _META_1, VERSION: _META_2}


def tables(version: int, n_bytes: int) -> str:
    """The SQL that makes the tables for codes of so many bytes."""
    return _TABLES[version] + _ITEMS.format(n_bytes=n_bytes) + _LOG.format(name=LOG[version])


_WIDTH = re.compile(r"length\(code\) = ([0-9]{1,9})\)")
_REQUIRED: dict[str, type] = {"n_bits": int, "next_id": int, "hashlearn": str, "info": str}
# From version 2 on; the sum as hexadecimal digits.
_CHECKSUMS: dict[str, type] = {"n_items": int, "checksum": str}
_WITH_A_MODEL: dict[str, type] = {"model": bytes, "model_key": str, "method": str, "n_features": int}


def check_schema(connection: sqlite3.Connection, version: int) -> int:
    """The bytes of a code, if the file has the tables of that version and nothing else: no view, no trigger.

    It is compared before anything is read from the tables: a view in their place could take for ever.
    """
    objects = _objects(connection)
    width = next((int(match[1]) for *_, sql in objects if (match := _WIDTH.search(sql or ""))), None)
    if width is None or objects != _expected_objects(version, width):
        raise Damage("its tables are not those of a collection")
    return width


@lru_cache(maxsize=100)
def _expected_objects(version: int, width: int) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(tables(version, width))
        return _objects(connection)
    finally:
        connection.close()


def _objects(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def read_meta(connection: sqlite3.Connection, version: int) -> dict[str, Any]:
    """The values of ``meta``, whose names, types and checksums must be right."""
    crc = "NULL" if version == 1 else "crc"
    rows = connection.execute(f"SELECT name, value, {crc} FROM meta").fetchall()
    meta = {name: value for name, value, _ in rows}
    allowed = _REQUIRED | (_CHECKSUMS if version > 1 else {}) | (_WITH_A_MODEL if "model" in meta else {})
    if meta.keys() != allowed.keys():
        raise Damage(f"it must say {', '.join(allowed)}; it says {', '.join(map(str, meta)) or 'nothing'}")
    for name, value, crc in rows:
        if type(value) is not allowed[name] or (isinstance(value, int) and value < 0):
            raise Damage(f"its {name} is no {allowed[name].__name__} that can be")
        if version > 1 and crc != meta_crc(name, value):
            raise Damage(f"its {name} does not have the checksum that it was written with")
    return meta


def meta_crc(name: str, value: Any) -> int:
    content = value if isinstance(value, bytes) else str(value).encode()
    return crc32(content, crc32(f"{name} {type(value).__name__}".encode()))


def meta_rows(meta: dict[str, Any]) -> list[tuple[str, Any, int]]:
    return [(name, value, meta_crc(name, value)) for name, value in meta.items()]


def add_checksums(connection: sqlite3.Connection, checksums: dict[str, Any]) -> None:
    """From version 1 to 2, inside a transaction."""
    meta = read_meta(connection, 1) | checksums
    connection.execute("DROP TABLE meta")
    connection.execute(_META_2.rstrip(";"))
    connection.executemany("INSERT INTO meta VALUES (?, ?, ?)", meta_rows(meta))
    connection.execute(_LOG.format(name=LOG[2]).rstrip(";"))
    connection.execute(f"INSERT INTO {LOG[2]} SELECT * FROM {LOG[1]}")
    connection.execute(f"DROP TABLE {LOG[1]}")
    connection.execute("PRAGMA user_version = 2")
