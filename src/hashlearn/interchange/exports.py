"""Export a collection as a FAISS index, NumPy arrays, a Parquet table, or SQL for PostgreSQL with pgvector."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hashlearn._arrays import Bytes
from hashlearn.codes import n_bytes, unpack
from hashlearn.collection import Collection, Item
from hashlearn.errors import import_extra, shown
from hashlearn.storage import atomic_path, atomic_paths

__all__ = ["EXPORTS", "export_faiss", "export_npy", "export_parquet", "export_pgvector"]

_BATCH = 10_000
_ROWS_PER_STATEMENT = 1_000
# An escaped NUL in JSON text; after another backslash it would be plain characters.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def export_faiss(collection: Collection, path: str | os.PathLike[str]) -> list[Path]:
    """Write a FAISS binary index with ids (``IndexBinaryIDMap2`` of an ``IndexBinaryFlat``).

    Read it with ``faiss.read_index_binary``. Codes are padded with zero bits to a multiple of 8, which does not change
    distances.

    Parameters
    ----------
    collection : Collection
    path : path-like
        The file. An existing one is replaced.

    Returns
    -------
    list of Path
        The file written.
    """
    import faiss

    flat = faiss.IndexBinaryFlat(8 * n_bytes(collection.n_bits))
    index = faiss.IndexBinaryIDMap2(flat)
    collection.refresh()
    ids, codes = collection.index.snapshot()
    if len(ids):
        index.add_with_ids(np.ascontiguousarray(codes), np.ascontiguousarray(ids))
    with atomic_path(path) as temporary:
        try:
            faiss.write_index_binary(index, str(temporary))
        except RuntimeError as error:
            raise OSError(f"{path} could not be written: {' '.join(str(error).split())}") from error
    return [Path(path)]


def export_npy(collection: Collection, path: str | os.PathLike[str]) -> list[Path]:
    """Write packed codes (n, n_bytes) to ``NAME.npy`` and their ids (n,) to ``NAME-ids.npy`` in the same folder.

    Parameters
    ----------
    collection : Collection
    path : path-like
        The file of the codes, ``NAME.npy``. Existing files are replaced.

    Returns
    -------
    list of Path
        The files written, codes first.
    """
    path = _check_extension(path, ".npy")
    ids_path = path.with_name(f"{path.stem}-ids.npy")
    collection.refresh()
    ids, codes = collection.index.snapshot()
    with atomic_paths(path, ids_path) as temporaries:  # never new codes with old ids
        for temporary, array in zip(temporaries, (codes, ids), strict=True):
            np.save(temporary, np.ascontiguousarray(array), allow_pickle=False)
    return [path, ids_path]


def export_parquet(collection: Collection, path: str | os.PathLike[str]) -> list[Path]:
    """Write a Parquet table: ``id`` int64, ``code`` (fixed-size binary), ``source`` text, ``payload`` JSON text.

    The file's metadata have the code length, ``n_bits``. Needs the extra ``formats``.

    Parameters
    ----------
    collection : Collection
    path : path-like
        The file, ``NAME.parquet``. An existing one is replaced.

    Returns
    -------
    list of Path
        The file written.
    """
    pa, parquet = import_extra("pyarrow", "formats"), import_extra("pyarrow.parquet", "formats")
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("code", pa.binary(n_bytes(collection.n_bits)), nullable=False),
        pa.field("source", pa.string()),
        pa.field("payload", pa.string()),
    ]
    schema = pa.schema(fields, metadata={"n_bits": str(collection.n_bits)})
    path = _check_extension(path, ".parquet")
    with atomic_path(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for codes, items in collection.batches(_BATCH):
            columns = [
                pa.array([item.id for item in items], pa.int64()),
                pa.array([code.tobytes() for code in codes], fields[1].type),
                pa.array([item.source for item in items], pa.string()),
                pa.array([_payload_text(item) for item in items], pa.string()),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return [path]


def export_pgvector(collection: Collection, path: str | os.PathLike[str], *, table: str | None = None) -> list[Path]:
    """Write SQL that creates a PostgreSQL table with ``id``, ``code`` as ``bit(n)``, ``source`` and ``payload``.

    It is one transaction, needs pgvector, and runs with ``psql DATABASE -f FILE`` or any other client. For the nearest
    codes first, use ``ORDER BY code <~> B'…', id``.

    Parameters
    ----------
    collection : Collection
    path : path-like
        The SQL file.
    table : str, optional
        Name of the table, ``table`` or ``schema.table``. Default: the collection's name.

    Returns
    -------
    list of Path
        The files written.
    """
    quoted = _quoted(_table_name(collection.path.stem) if table is None else table)
    collection.refresh()
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(
            f"-- {len(collection)} codes of {collection.n_bits} bits, from a collection of hashlearn.\n"
            "SET client_encoding = 'UTF8';\nSET standard_conforming_strings = on;\n"
            "BEGIN;\nCREATE EXTENSION IF NOT EXISTS vector;\n"
            f"CREATE TABLE {quoted} (\n    id bigint PRIMARY KEY,\n    code bit({collection.n_bits}) NOT NULL,\n"
            "    source text,\n    payload jsonb\n);\n"
        )
        for codes, items in collection.batches(_ROWS_PER_STATEMENT):
            rows = ",\n".join(
                f"({item.id}, B'{bits}', {', '.join(_sql_texts(item))})"
                for bits, item in zip(_bit_strings(codes, collection.n_bits), items, strict=True)
            )
            file.write(f"INSERT INTO {quoted} (id, code, source, payload) VALUES\n{rows};\n")
        file.write(
            "COMMIT;\n-- Searches of a large table are sooner, but no longer exact, with an index:\n"
            "-- USING hnsw (code bit_hamming_ops)\n"
        )
    return [Path(path)]


#: Formats of ``hashlearn export --to`` for collections. Each function returns the files that it wrote.
EXPORTS: dict[str, Callable[[Collection, str | os.PathLike[str]], list[Path]]] = {
    "faiss": export_faiss,
    "npy": export_npy,
    "parquet": export_parquet,
    "pgvector": export_pgvector,
}


def _payload_text(item: Item) -> str | None:
    return None if item.payload is None else json.dumps(item.payload, ensure_ascii=False)


def _bit_strings(codes: Bytes, n_bits: int) -> list[str]:
    """Each code as text, ``0110…``."""
    text = (unpack(codes, n_bits) + ord("0")).tobytes().decode("ascii")
    return [text[i : i + n_bits] for i in range(0, len(text), n_bits)]


def _sql_texts(item: Item) -> tuple[str, str]:
    """Source and payload as SQL."""
    payload = _payload_text(item)
    if "\0" in (item.source or "") or _ESCAPED_NUL.search(payload or ""):
        raise ValueError(f"item {item.id} has a NUL character in its source or payload, which PostgreSQL can't hold.")
    source, payload = (
        "NULL" if text is None else "'" + text.replace("'", "''") + "'" for text in (item.source, payload)
    )
    return source, payload


def _quoted(table: str) -> str:
    """Quote a table name. Other characters are rejected instead of escaped, to rule out SQL injection."""
    parts = table.split(".")
    if len(parts) > 2 or not all(re.fullmatch(r"[^\W\d]\w*", part) and len(part.encode()) <= 63 for part in parts):
        raise ValueError(
            "a table name must have 1 to 63 bytes of letters, digits and underscores and not start with a digit, or be "
            f"two such names, schema.table; got {shown(table)}."
        )
    return ".".join(f'"{part}"' for part in parts)


def _table_name(stem: str) -> str:
    """Convert a file name to a table name that needs no quotes."""
    return re.sub(r"\W", "_", stem.lower(), flags=re.ASCII).lstrip("0123456789_")[:63] or "codes"


def _check_extension(path: str | os.PathLike[str], extension: str) -> Path:
    path = Path(path)
    if path.suffix.lower() != extension:
        raise ValueError(f"the file extension must be {extension}; got {path.name!r}.")
    return path
