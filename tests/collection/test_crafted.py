"""Collections that a stranger made to hang, to exhaust or to fool: refused in one line, or what they say they are."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from crafted import altered, as_version_1, crafted

from hashlearn import LSH
from hashlearn.collection import Collection, _connection, _schema
from hashlearn.collection._schema import meta_crc
from hashlearn.errors import CollectionError

CODES = np.random.default_rng(0).integers(0, 256, (300, 8), dtype=np.uint8)
FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, x'00' AS code FROM n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "things.hl"
    with Collection.create(path, n_bits=64) as collection:
        collection.add(CODES, sources=[f"{i}.png" for i in range(300)], payloads=[[i] for i in range(300)])
    return path


def refused(path, words):
    for readonly in (True, False):
        start = time.monotonic()
        with pytest.raises(CollectionError, match=words) as caught:
            Collection.open(path, readonly=readonly)
        assert "\n" not in str(caught.value)
        assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items WHERE id = new.id; END",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TABLE more (x)",
        "CREATE INDEX more ON items (payload)",
        "DROP INDEX items_source",
        "ALTER TABLE items ADD COLUMN more",
        "ALTER TABLE meta RENAME COLUMN value TO other",
    ],
)
def test_other_tables_than_those_that_were_written(sql, path):
    altered(path, sql)
    refused(path, "its tables are not those of a collection")


@pytest.mark.parametrize("table", ["items", "meta", "change_log"])
def test_a_view_in_the_place_of_a_table(table, path):
    altered(path, f"ALTER TABLE {table} RENAME TO kept")
    altered(path, f"CREATE VIEW {table} AS {FOR_EVER}")
    refused(path, "its tables are not those of a collection")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        # The total fits.
        ("UPDATE items SET code = CASE id WHEN 0 THEN x'00' WHEN 1 THEN zeroblob(15) ELSE code END", "damaged: "),
        ("UPDATE items SET code = 'abcdefgh' WHERE id = 7", "damaged: "),
        ("UPDATE items SET id = -5 WHERE id = 7", "damaged: "),
        ("UPDATE items SET id = 9223372036854775807 WHERE id = 7", "damaged: "),
        ("UPDATE items SET source = x'ff' WHERE id = 7", "a source or payload is not text"),
        ("UPDATE items SET payload = x'5b5d' WHERE id = 7", "a source or payload is not text"),
        ("UPDATE meta SET value = 1e999 WHERE name = 'n_bits'", "n_bits is not a valid int"),
        ("UPDATE meta SET value = -1 WHERE name = 'next_id'", "next_id is not a valid int"),
        ("UPDATE meta SET value = 9223372036854775807 WHERE name = 'n_bits'", "how long its codes are"),
        ("UPDATE meta SET value = 0 WHERE name = 'n_bits'", "how long its codes are"),
        ("UPDATE meta SET value = x'7b7d' WHERE name = 'info'", "info is not a valid str"),
        ("INSERT INTO meta VALUES ('more', 1, 0)", "meta must hold n_bits"),
        ("INSERT INTO meta VALUES ('model', x'00', 0)", "meta must hold n_bits"),
        ("DELETE FROM change_log", "log of changes is empty"),
        ("DELETE FROM meta WHERE name = 'checksum'", "meta must hold n_bits"),
        ("INSERT INTO change_log VALUES (9223372036854775807, 0, 0)", "log of changes has invalid rows"),
        ("INSERT INTO change_log VALUES (5, 'x', 0)", "damaged: "),
    ],
)
def test_values_of_other_types_and_sizes(sql, words, path):
    crafted(path, sql)
    refused(path, words)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE items SET payload = '[8]' WHERE id = 7",
        "UPDATE items SET source = '8.png' WHERE id = 7",
        "UPDATE items SET source = NULL, payload = source WHERE id = 7",
        "UPDATE items SET code = x'0001020304050607' WHERE id = 7",
        "UPDATE items SET id = 1000 WHERE id = 7",
        "DELETE FROM items WHERE id = 7",
        "INSERT INTO items SELECT 255 + 1000, code, source, payload FROM items WHERE id = 7",
        "UPDATE items SET code = (SELECT code FROM items AS o WHERE o.id = 15 - items.id) WHERE id IN (7, 8)",
        "UPDATE items SET payload = source WHERE id = 7",
        "UPDATE items SET source = '' WHERE id = 7",
    ],
)
def test_items_that_were_changed_by_another_program(sql, path):
    altered(path, sql)
    refused(path, "do not have the checksum that they were written with")


@pytest.mark.parametrize(("value", "words"), [(5, "checksum is not a valid str"), ("zz", "checksum is not a number")])
def test_a_checksum_that_is_none(value, words, path):
    altered(path, "UPDATE meta SET value = ?, crc = ? WHERE name = 'checksum'", (value, meta_crc("checksum", value)))
    refused(path, words)


def test_damage_under_an_open_collection_is_not_written_over(path):
    """A change takes away what it finds, not what was written: the sum tells for ever after."""
    with Collection.open(path) as collection:
        altered(path, "UPDATE items SET payload = '[8]' WHERE id = 7")
        collection.update([9], payloads=["x"])
        collection.update([7], CODES[:1])
        collection.remove([7])
        with pytest.raises(CollectionError, match="do not have the checksum"):
            list(collection.batches())
    refused(path, "do not have the checksum")


def test_an_index_by_source_that_does_not_agree(path):
    """It is looked at before it is first used: that takes longer than the rest together."""
    content, places = path.read_bytes(), []
    while (place := content.find(b"123.png", places[-1] + 1 if places else 0)) >= 0:
        places.append(place)
    assert len(places) == 2  # in the table and in its index
    outcomes = []
    for place in places:
        path.write_bytes(content[:place] + b"124.png" + content[place + 7 :])
        try:
            with Collection.open(path) as collection:
                assert collection.get([123])[0].source == "123.png"
                with pytest.raises(CollectionError, match=r"damaged: .*items_source"):
                    collection.find_ids(["124.png"])
                with pytest.raises(CollectionError, match=r"damaged: .*items_source"):
                    collection.add(CODES[:1], sources=["124.png"], skip_known=True)
                outcomes.append("index")
        except CollectionError as error:
            outcomes.append("table" if "checksum" in str(error) else str(error))
    assert sorted(outcomes) == ["index", "table"]


def test_changes_are_whole_in_memory_and_file(path):
    with Collection.open(path) as collection:
        collection.add(CODES[:3])
        collection.refresh()
        with Collection.open(path, readonly=True) as other:
            np.testing.assert_array_equal(other.index.codes, collection.index.codes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        f"UPDATE items SET payload = '{'[' * 800}{']' * 800}' WHERE id = 0",
        "UPDATE items SET payload = 'NaN' WHERE id = 0",
        f"UPDATE items SET payload = '1{'0' * 400}' WHERE id = 0",
        "UPDATE items SET payload = '1e999' WHERE id = 0",
        f"UPDATE items SET payload = '{'9' * 5000}' WHERE id = 0",
        f"UPDATE meta SET value = '{'[' * 5000}' WHERE name = 'info'",
        "UPDATE meta SET value = '{\"features\": 5}' WHERE name = 'info'",
        'UPDATE meta SET value = \'{"features": {"kind": [1e308]}, "root": 7}\' WHERE name = \'info\'',
    ],
)
def test_the_command_line_shows_no_traceback(sql, path, tmp_path):
    crafted(path, sql)
    for arguments in (["info", path], ["search", path, "--id", "0"], ["search", path, "--id", "0", "--json"]):
        command = [sys.executable, "-m", "hashlearn.cli", *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode in (0, 2)
        assert "Traceback" not in ended.stderr


# -- older files ------------------------------------------------------------------------------------------------------


def content(collection):
    return [(codes.tolist(), items) for codes, items in collection.batches()], collection.info, collection.about


def test_a_file_of_the_first_version_is_read_as_it_is_and_brought_up_to_date_to_be_written(path):
    with Collection.open(path) as collection:
        expected = content(collection)
    as_version_1(path)
    old = path.read_bytes()
    with Collection.open(path, readonly=True) as collection:
        assert content(collection) == expected
        assert collection.find_ids(["7.png"]) == {"7.png": [7]}
    assert path.read_bytes() == old
    with Collection.open(path) as collection:
        assert content(collection) == expected
        assert collection.add(CODES[:2]).tolist() == [300, 301]
    with Collection.open(path, readonly=True) as collection:
        assert len(collection) == 302
    altered(path, "UPDATE items SET payload = '[8]' WHERE id = 7")
    refused(path, "do not have the checksum")


def test_a_file_of_the_first_version_with_a_model(tmp_path):
    path, model = tmp_path / "old.hl", LSH(n_bits=64, random_state=0).fit(np.zeros((3, 5)))
    with Collection.create(path, model=model, info={"a": 1}) as collection:
        collection.add(CODES)
    as_version_1(path)
    for readonly in (True, False):
        with Collection.open(path, readonly=readonly) as collection:
            assert collection.has_model(model)
            assert collection.encode(np.zeros((1, 5))).shape == (1, 8)
            assert collection.info == {"a": 1}


def add_version_3(monkeypatch, migration):
    monkeypatch.setitem(_schema.MIGRATIONS, 3, migration)
    monkeypatch.setattr(_schema, "VERSION", 3)


def test_migrations_run_one_after_another_in_one_transaction(path, monkeypatch):
    as_version_1(path)
    seen = []

    def to_version_3(connection):
        seen.append((connection.in_transaction, connection.execute("PRAGMA user_version").fetchone()[0]))
        seen.append(connection.execute("SELECT count(*) FROM change_log").fetchone()[0] > 0)  # as in version 2
        connection.execute(
            "UPDATE meta SET value = ?, crc = ? WHERE name = 'hashlearn'", ("3!", meta_crc("hashlearn", "3!"))
        )

    add_version_3(monkeypatch, to_version_3)
    with Collection.open(path, readonly=True) as collection:  # read as it is
        assert len(collection) == 300
    assert seen == []
    with Collection.open(path) as collection:
        assert seen == [(True, 2), True]
        assert collection.about["hashlearn"] == "3!"
        assert collection.add(CODES[:1]).tolist() == [300]
        assert collection._database.execute("PRAGMA user_version") == [(3,)]
    Collection.open(path).close()
    assert len(seen) == 2
    monkeypatch.undo()
    refused(path, "version 3; this hashlearn reads version 2")


def test_a_file_of_version_2_runs_the_later_migrations_only(path, monkeypatch):
    monkeypatch.setitem(_schema.MIGRATIONS, 2, lambda _: pytest.fail("it is of version 2"))
    add_version_3(monkeypatch, lambda _: None)
    with Collection.open(path) as collection:
        assert collection._database.execute("PRAGMA user_version") == [(3,)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, sqlite3.OperationalError])
def test_a_migration_that_fails_leaves_the_file_as_it_was(path, monkeypatch, error):
    """Also if the first of two has succeeded."""
    as_version_1(path)
    before = path.read_bytes()

    def fail(connection):
        connection.execute("DELETE FROM items")
        raise error

    add_version_3(monkeypatch, fail)
    with pytest.raises((error, CollectionError)):
        Collection.open(path)
    monkeypatch.undo()
    with Collection.open(path, readonly=True) as collection:
        assert len(collection) == 300
        assert collection._database.version == 1
    assert path.read_bytes()[: len(before)][100:] == before[100:]
    with Collection.open(path) as collection:
        assert len(collection) == 300


def test_damaged_files_of_the_first_version_are_refused(path):
    as_version_1(path)
    altered(path, "UPDATE items SET code = x'00' WHERE id = 7")
    refused(path, "damaged: ")


def test_several_who_upgrade_at_once(path):
    as_version_1(path)
    code = "import sys; from hashlearn.collection import Collection; print(len(Collection.open(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["300\n"] * 4


def test_a_program_that_knows_the_first_version_alone_can_not_write(path):
    """It has the file open while another one upgrades it, and does as it did before."""
    as_version_1(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        assert old.execute("SELECT max(number) FROM changes").fetchone()
        Collection.open(path).close()
        with pytest.raises(sqlite3.OperationalError, match="changes"):
            old.execute("SELECT max(number) FROM changes")
        with pytest.raises(sqlite3.OperationalError, match="changes"):
            old.execute("INSERT INTO changes (first, last) VALUES (1, 2)")


def test_a_file_that_was_brought_to_another_version_meanwhile(path):
    with Collection.open(path) as collection:
        altered(path, "PRAGMA user_version = 1")
        with pytest.raises(CollectionError, match="migrated since it was opened"):
            collection.add(CODES[:1])


# -- folders of killed processes --------------------------------------------------------------------------------------


def test_what_a_killed_create_left_is_swept_after_a_day(tmp_path):
    """And nothing else: not a folder of another form, or with anything else in it."""
    old, new = time.time() - 2 * 24 * 3600, time.time()
    made = {
        "stale_00": (["new", "new-wal"], old),
        "empty_00": ([], old),
        "fresh_00": (["new"], new),
        "other_00": (["new", "mine"], old),
        "models": (["new"], old),
    }
    for name, (files, changed) in made.items():
        folder = tmp_path / f"{_connection._TEMPORARY}{name}"
        folder.mkdir()
        for file in files:
            (folder / file).write_bytes(b"x")
        for path in (*folder.iterdir(), folder):
            os.utime(path, (changed, changed))
    Collection.create(tmp_path / "a.hl", n_bits=8).close()
    left = {file.name.removeprefix(_connection._TEMPORARY) for file in tmp_path.iterdir()}
    assert left == {"a.hl", "fresh_00", "other_00", "models"}
