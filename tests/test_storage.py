import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes

from hashlearn.progress import progress_bar
from hashlearn.storage import atomic_path, cache_dir, cached_array, content_key


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
    assert "is damaged and is made anew" in caplog.text


def test_a_cache_that_can_not_be_written_costs_a_warning_only(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path / "file"))
    np.testing.assert_array_equal(cached_array("things", "key", lambda: np.arange(3)), [0, 1, 2])
    assert "HASHLEARN_CACHE names another folder" in caplog.text


def test_a_home_that_is_not_known_is_said(monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", "~nobody-here/cache")
    with pytest.raises(ValueError, match="HASHLEARN_CACHE names ~nobody-here/cache, whose home folder is not known"):
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
