"""Collections as a stranger may have made them: changed behind the library's back, with checksums that are right."""

import contextlib
import sqlite3

from hashlearn.collection._checksums import check_rows, tally, to_meta
from hashlearn.collection._schema import meta_crc


def altered(path, sql, values=()):
    """Change the file, as damage would."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(sql, values)


def crafted(path, sql, values=()):
    """The same, and make the checksums anew, as one would who wants it to be taken for whole."""
    altered(path, sql, values)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT id, code, source, payload FROM items ORDER BY id").fetchall()
        with contextlib.suppress(Exception):  # of what is no item there is no checksum
            for name, value in to_meta(tally(check_rows(rows, len(rows[0][1]) if rows else 1))).items():
                connection.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
        for name, value in connection.execute("SELECT name, value FROM meta").fetchall():
            connection.execute("UPDATE meta SET crc = ? WHERE name = ?", (meta_crc(name, value), name))


def as_version_1(path):
    """Make the file what the first version of the format was."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            """
            BEGIN;
            CREATE TABLE kept AS SELECT name, value FROM meta WHERE name NOT IN ('n_items', 'checksum');
            DROP TABLE meta;
            CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
            INSERT INTO meta SELECT * FROM kept;
            DROP TABLE kept;
            CREATE TABLE changes (number INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL);
            INSERT INTO changes SELECT * FROM change_log;
            DROP TABLE change_log;
            PRAGMA user_version = 1;
            COMMIT;
            """
        )
