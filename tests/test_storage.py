import errno
import json
import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes

from hashlearn.progress import progress_bar
from hashlearn.storage import (
    atomic_path,
    atomic_paths,
    cache_dir,
    cached_array,
    content_key,
    open_regular,
    parse_json,
    sweep_folders,
    sync_folder,
)


def test_cache_dir_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path / "a"))
    assert cache_dir() == tmp_path / "a"
    monkeypatch.delenv("HASHLEARN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_dir() == tmp_path / "b" / "hashlearn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "hashlearn"


def test_atomic_path_replaces_on_success_and_only_then(tmp_path):
    path = tmp_path / "deep" / "file.npy"
    with atomic_path(path) as temporary:
        assert temporary.suffix == ".npy"
        temporary.write_text("one")
        assert not path.exists()
    assert path.read_text() == "one"
    with pytest.raises(KeyError), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("two")
        raise KeyError("interrupted")
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["file.npy"]


def test_written_files_have_ordinary_permissions(tmp_path):
    before = os.umask(0o022)
    try:
        with atomic_path(tmp_path / "file") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


@given(arrays(scalar_dtypes(), array_shapes(max_dims=3, min_side=0)))
def test_content_key_is_of_the_content(array):
    assert content_key(array) == content_key(np.asfortranarray(array.copy()))
    assert content_key(array) != content_key(array[None])
    assert content_key(array, 1) != content_key(array, 2)
    assert content_key(array, "1") != content_key(array, 1)


@given(st.integers(0, 5 * 7 - 1))
def test_content_key_sees_every_element(position):
    array = np.zeros((5, 7), dtype=np.float32)
    changed = array.copy()
    changed.flat[position] = 1
    assert content_key(array) != content_key(changed)
    assert content_key(array) != content_key(array.astype(np.int32))


def test_content_key_in_blocks(monkeypatch):
    array = np.random.default_rng(0).random((100, 3))
    whole = content_key(array)
    monkeypatch.setattr("hashlearn.storage._HASH_BLOCK_BYTES", 100)
    assert content_key(array) == whole


def test_cached_array_computes_once_and_again_if_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    calls = []

    def compute():
        calls.append(1)
        return np.arange(6).reshape(2, 3)

    for _ in range(2):
        np.testing.assert_array_equal(cached_array("things", "key", compute), [[0, 1, 2], [3, 4, 5]])
    assert len(calls) == 1
    (path,) = tmp_path.rglob("*.npy")
    path.write_bytes(path.read_bytes()[:-5])
    np.testing.assert_array_equal(cached_array("things", "key", compute), [[0, 1, 2], [3, 4, 5]])
    assert len(calls) == 2


@pytest.mark.slow
def test_every_changed_byte_of_a_cached_array_is_noticed(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    calls = []

    def compute():
        calls.append(1)
        return expected

    cached_array("things", "key", compute)
    (path,) = tmp_path.rglob("*.npy")
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        found = cached_array("things", "key", compute)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    assert len(calls) == 1 + len(whole)
    assert "is damaged and will be recreated" in caplog.text


def test_a_cache_that_can_not_be_written_costs_a_warning_only(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path / "file"))
    np.testing.assert_array_equal(cached_array("things", "key", lambda: np.arange(3)), [0, 1, 2])
    assert "set HASHLEARN_CACHE to another folder" in caplog.text


def test_a_home_that_is_not_known_is_said(monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", "~nobody-here/cache")
    with pytest.raises(ValueError, match="HASHLEARN_CACHE names ~nobody-here/cache, whose home folder is unknown"):
        cache_dir()


def test_links_and_permissions_are_kept(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("one")
    target.chmod(0o600)
    link.symlink_to(target)
    with atomic_path(link) as temporary:
        temporary.write_text("two")
    assert link.is_symlink()
    assert target.read_text() == "two"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["", ".", "pipe"])
def test_what_can_not_become_a_file_is_refused(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(ValueError, match="a file can't be written to"), atomic_path(target) as temporary:
        temporary.write_text("x")
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


def test_what_a_killed_writer_left_is_swept_after_a_day(tmp_path):
    old, young, foreign = (tmp_path / name for name in (".a.1.tmp.npy", ".a.2.tmp.npy", ".b.1.tmp.npy"))
    for file in (old, young, foreign):
        file.write_text("half")
    for file in (old, foreign):
        os.utime(file, (0, 0))
    with atomic_path(tmp_path / "a.npy") as temporary:
        temporary.write_text("whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.2.tmp.npy", ".b.1.tmp.npy", "a.npy"]


def test_progress_is_silent_without_a_terminal_and_drawn_when_asked(capsys, monkeypatch):
    with progress_bar("work", 3, unit="steps") as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")
    with progress_bar("work", 3, unit="steps", show=True) as advance:
        advance(3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "work" in err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("HASHLEARN_PROGRESS", "0")
    with progress_bar("work", 3) as advance:
        advance(1)
    assert capsys.readouterr().err == ""


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        (b"\xff", "not UTF-8"),
        (DEEP, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("[" * 300 + "]" * 300, "nested too deep"),
        ("[NaN]", "NaN is not a JSON number"),
        ("-Infinity", "not a JSON number"),
        (f"[1{'0' * 400}]", "beyond the range of float64"),
        ("1e999", "beyond the range of float64"),
        ("-" + "1" * 5000, "beyond the range of float64"),
    ],
)
def test_foreign_json_that_is_refused(text, words):
    with pytest.raises(ValueError, match=words) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


def test_foreign_json_is_what_json_says():
    text = '{"a": [1, -2.5, 1e308, true, null, "é\\u00e9"], "b": {"c": 18446744073709551616}}'
    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)
    nested = "[" * 200 + "]" * 200
    assert parse_json(nested) == json.loads(nested)
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    with pytest.raises(ValueError, match="twice"):
        parse_json('[{"a": 1, "a": 2}]', unique_keys=True)


@pytest.mark.parametrize("stop", range(8))
@pytest.mark.parametrize("old", [True, False])
def test_files_that_belong_together_are_never_mixed(tmp_path, monkeypatch, stop, old):
    """Whoever is stopped at any step, as by kill -9, leaves files of one kind."""
    paths = [tmp_path / name for name in ("codes", "ids", "more")]
    if old:
        for path in paths:
            path.write_text("old")
    steps = 0

    class KilledError(BaseException):
        pass

    def until_stopped(function):
        def step(*args, **options):
            nonlocal steps
            steps += 1
            if steps > stop:
                raise KilledError
            return function(*args, **options)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(os, name, until_stopped(getattr(os, name)))
        try:
            with atomic_paths(*paths) as temporaries:
                for temporary in temporaries:
                    temporary.write_text("new")
        except KilledError:
            pass
    found = {path.read_text() for path in paths if path.exists()}
    assert len(found) <= 1, found
    if stop == 0:
        assert found == ({"old"} if old else set())
    if steps <= stop:
        assert found == {"new"}
        assert all(path.exists() for path in paths)


def test_no_file_is_replaced_before_all_are_written(tmp_path):
    paths = [tmp_path / "codes.npy", tmp_path / "ids.npy"]
    for path in paths:
        path.write_text("old")
    with pytest.raises(OSError, match=r"No space left.*ids\.npy"), atomic_paths(*paths) as temporaries:  # noqa: PT012
        temporaries[0].write_text("new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(temporaries[1]))
    assert [path.read_text() for path in paths] == ["old", "old"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.npy", "ids.npy"]
    with pytest.raises(ValueError, match="different names"), atomic_paths(paths[0], paths[0]):
        pass


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), OSError("5 requested and 0 written")]
)
def test_an_error_of_a_writer_names_the_file(tmp_path, error):
    path = tmp_path / "file.npy"
    with pytest.raises(OSError, match=r"file\.npy") as caught, atomic_path(path):
        raise error
    assert caught.value.errno == error.errno
    assert error.args[-1] in str(caught.value)
    with pytest.raises(ConnectionResetError, match=r"^the network$"), atomic_path(path):
        raise ConnectionResetError("the network")
    with pytest.raises(FileNotFoundError, match="elsewhere"), atomic_path(path):
        (tmp_path / "elsewhere").read_bytes()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said_of_the_file(tmp_path):
    path = tmp_path / "file"
    with (
        pytest.raises(OSError, match="No space left on device") as caught,
        atomic_path(path),
        open("/dev/full", "w") as file,
    ):
        file.write("x")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)


def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def spy(descriptor):
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "file").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    with atomic_path(tmp_path / "file") as temporary:
        temporary.write_text("x")
    assert synced == [(False, False), (True, True)]


def test_folders_that_can_not_be_synced_are_no_error(tmp_path, monkeypatch):
    sync_folder(tmp_path)
    sync_folder(tmp_path / "nowhere")

    def fail(number):
        def fsync(descriptor):
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", fail(errno.EINVAL))
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)


def test_stale_folders_are_swept_and_nothing_else(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").write_text("x")
    folders = {
        name: tmp_path / f".tmp-{name}" for name in ("old_0000", "young_00", "nested_0", "linked_0", "longer_name")
    }
    for folder in folders.values():
        folder.mkdir()
        (folder / "file").write_text("x")
    (folders["nested_0"] / "more").mkdir()
    (folders["linked_0"] / "more").symlink_to(target / "kept")
    (tmp_path / ".tmp-link_000").symlink_to(target)
    (tmp_path / ".tmp-file_000").write_text("x")
    for name, folder in folders.items():
        if name != "young_00":
            for path in (*folder.iterdir(), folder):
                os.utime(path, (0, 0), follow_symlinks=False)
    sweep_folders(tmp_path, ".tmp-", ["file", "more"])
    assert not folders.pop("old_0000").exists()
    assert all(folder.exists() for folder in folders.values())
    assert (target / "kept").read_text() == "x"
    assert {".tmp-link_000", ".tmp-file_000"} <= {path.name for path in tmp_path.iterdir()}
    sweep_folders(tmp_path / "missing", ".tmp-", ["file"])


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"x"
    with pytest.raises(OSError, match="a regular file is needed"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["None", "closed"])
def test_without_a_stderr_there_is_no_progress_and_no_error(stream, monkeypatch, capsys):
    import io
    import sys

    from hashlearn import ITQ
    from hashlearn.cli.render import say

    closed = io.StringIO()
    closed.close()
    X = np.random.default_rng(0).random((20, 4))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None if stream == "None" else closed)
        for show in (None, True, False):
            with progress_bar("work", 3, show=show) as advance:
                advance(3)
        ITQ(n_bits=2, random_state=0).fit(X)
        say("a word")
    assert capsys.readouterr() == ("", "")
