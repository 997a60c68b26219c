"""Files that are whole or not there: the cache folder, atomic writing, content hashes."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import logging
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

__all__ = [
    "atomic_path",
    "atomic_paths",
    "cache_dir",
    "cached_array",
    "check_target",
    "content_key",
    "is_sealed",
    "is_unicode",
    "open_regular",
    "parse_json",
    "seal",
    "sha256_file",
    "sweep_folders",
    "sync_folder",
    "user_path",
]

logger = logging.getLogger(__name__)

_HASH_BLOCK_BYTES = 1 << 24
_STALE_SECONDS = 24 * 3600
_MAX_JSON_DEPTH = 200


def user_path(text: str | os.PathLike[str], what: str) -> Path:
    """A path as a person writes it: ``~`` is their home. ``what`` names it in the error if there is no such home."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{what} names {text}, whose home folder is not known ({error})") from None


def is_unicode(text: str) -> bool:
    """Not so a file name whose bytes are no UTF-8: Python writes them as characters that no file or screen takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_json(text: str | bytes, *, unique_keys: bool = False) -> Any:
    """What a foreign JSON text says, or a ValueError of one line: nothing that a text holds raises anything else.

    JSON's own rules hold, so ``NaN`` and ``Infinity`` are refused, and so are numbers that float64 can't hold and
    nesting that would exhaust the stack of whoever copies or prints the value. ``unique_keys=True`` refuses an object
    that says the same key twice.
    """
    try:
        value = json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            parse_int=_finite_int,
            parse_float=_finite_float,
            parse_constant=_no_constant,
            object_pairs_hook=_unique if unique_keys else None,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not _is_shallow(value):
        raise ValueError(f"it is nested too deep (more than {_MAX_JSON_DEPTH} levels)")
    return value


def _finite_int(text: str) -> int:
    try:
        value = int(text)
        float(value)
    except (ValueError, OverflowError):  # more digits than Python reads; more than float64 holds
        raise ValueError(f"the number {text[:20]}... is beyond the range of float64") from None
    return value


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is beyond the range of float64")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is there twice")
    return value


def _is_shallow(value: Any) -> bool:
    """Level by level, since a function that calls itself would exhaust the stack too."""
    level = [value]
    for _ in range(_MAX_JSON_DEPTH + 1):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return True
    return False


def cache_dir() -> Path:
    """The folder for downloads and computed features: ``$HASHLEARN_CACHE``, or the user's cache."""
    named = os.environ.get("HASHLEARN_CACHE")
    if named:
        return user_path(named, "HASHLEARN_CACHE")
    base = (
        os.environ.get("XDG_CACHE_HOME")
        or user_path("~", "the default cache folder (HASHLEARN_CACHE is another)") / ".cache"
    )
    return Path(base) / "hashlearn"


def check_target(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Refuse a name that can't become a file: nothing, a folder, a device."""
    if not os.fspath(path) or (os.path.exists(path) and not os.path.isfile(path)):
        raise ValueError(f"a file can't be written to {os.fspath(path)!r}: it is a folder or a device, or no name.")
    return path


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file, to be read; opening a pipe would wait for ever, and a device may have no end.

    Raises:
        OSError: What the system says, or that it is something else.
    """
    name = os.fspath(path)
    _check_regular(name, os.stat(name).st_mode)
    # Another file may have taken its place since, so it is looked at again. Only Windows has O_BINARY and needs it.
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(name, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(name: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a file is needed; it is a folder", name)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a regular file is needed; it is a pipe, socket or device", name)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success it is renamed to ``path``, else removed.

    A reader sees the old file or the whole new one, never a part, also after a crash. A link stays a link, and an
    existing file keeps its permissions.
    """
    with atomic_paths(path) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(*paths: str | os.PathLike[str]) -> Iterator[tuple[Path, ...]]:
    """:func:`atomic_path` of files that belong together: no new one ever stands beside an old one.

    All are written before the first is put in its place. Then the old ones but the first are removed, and the new ones
    take their places in the order of ``paths``: whoever is killed in between leaves files out, and mixes none. So the
    file that says whether the others count comes last.

    Raises:
        OSError: Naming the file in question, such as on a full disk.
    """
    finals = tuple(Path(os.path.realpath(check_target(path))) for path in paths)
    if len(set(finals)) < len(finals):
        raise ValueError(f"files that belong together must have different names; got {', '.join(map(str, finals))}.")
    temporaries: list[Path] = []
    try:
        for final in finals:
            with _errors_name(final):
                temporaries.append(_temporary(final))
        modes = [temporary.stat().st_mode for temporary in temporaries]
        with _errors_name(*finals, temporaries=temporaries):
            yield tuple(temporaries)
        for final, temporary, mode in zip(finals, temporaries, modes, strict=True):
            with _errors_name(final, temporaries=[temporary]):
                _settle(final, temporary, mode)
        _put_in_place(finals, temporaries)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _temporary(final: Path) -> Path:
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final)
    # The ending stays last: some writers (np.save) append theirs to a name that lacks it.
    temporary = final.with_name(f".{_short(final.stem)}.{secrets.token_hex(8)}.tmp{final.suffix}")
    # Made by open, so that the user's umask holds.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return temporary


def _settle(final: Path, temporary: Path, usual_mode: int) -> None:
    """The whole content is on the disk, under the permissions that the file will have."""
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    # Some writers (safetensors) put a file of their own in its place, which nobody else may read.
    os.chmod(temporary, (final.stat().st_mode if final.exists() else usual_mode) & 0o7777)


def _put_in_place(finals: Sequence[Path], temporaries: Sequence[Path]) -> None:
    folders = {final.parent for final in finals}
    for final in reversed(finals[1:]):
        with _errors_name(final):
            final.unlink(missing_ok=True)
            sync_folder(final.parent)  # or a crash may keep the new first file and the old second
    for final, temporary in zip(finals, temporaries, strict=True):
        with _errors_name(final, temporaries=[temporary]):
            os.replace(temporary, final)
    for folder in folders:
        sync_folder(folder)


@contextmanager
def _errors_name(*finals: Path, temporaries: Sequence[Path] = ()) -> Iterator[None]:
    """An error of the system that names no file, or a temporary one, names what was to be written."""
    try:
        yield
    except OSError as error:
        hidden = {str(temporary): str(final) for temporary, final in zip(temporaries, finals, strict=False)}
        # Those of networks, which have types of their own, are not about the file.
        if error.filename is None and type(error) is not OSError:
            raise
        if error.filename is not None and os.fspath(error.filename) not in hidden:
            raise
        name = ", ".join(map(str, finals)) if error.filename is None else hidden[os.fspath(error.filename)]
        if error.errno is None:  # NumPy's: so many bytes requested, so many written
            raise OSError(f"{name} can't be written: {error}") from error
        raise OSError(error.errno, error.strerror, name) from error


def sync_folder(path: str | os.PathLike[str]) -> None:
    """See that the names in a folder are on the disk: a crash may undo a rename before. Not every system can."""
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError:  # Windows; a folder that may be written and not read
        return
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):  # of this disk, not of this kind of system
            raise
    finally:
        os.close(folder)


def sweep_folders(parent: str | os.PathLike[str], prefix: str, files: Collection[str]) -> None:
    """Remove the temporary folders in ``parent`` that killed processes left a day ago or earlier.

    Only those that ``tempfile`` named so and that hold nothing but some of ``files``: a name alone does not make a
    folder ours.
    """
    made = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
    try:
        with os.scandir(parent) as entries:
            folders = [entry for entry in entries if made.fullmatch(entry.name)]
    except OSError:
        return
    for folder in folders:
        with suppress(OSError):  # another's, or gone meanwhile
            _sweep_folder(folder, files)


def _sweep_folder(folder: os.DirEntry[str], files: Collection[str]) -> None:
    if not folder.is_dir(follow_symlinks=False):
        return
    with os.scandir(folder.path) as entries:
        within = list(entries)
    times = [entry.stat(follow_symlinks=False).st_mtime for entry in (folder, *within)]
    ours = all(entry.name in files and entry.is_file(follow_symlinks=False) for entry in within)
    if ours and time.time() - max(times) > _STALE_SECONDS:
        for entry in within:
            os.unlink(entry.path)
        os.rmdir(folder.path)


def _short(stem: str) -> str:
    """A beginning of at most 100 bytes: a name that is long already would become too long."""
    return os.fsencode(stem)[:100].decode("utf-8", "ignore")


def _sweep(final: Path) -> None:
    """Remove what killed writers of the same file left behind a day ago or earlier."""
    pattern = f".{glob.escape(_short(final.stem))}.*.tmp{glob.escape(final.suffix)}"
    for stale in final.parent.glob(pattern):
        try:
            if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                stale.unlink()
        except OSError:
            pass  # another writer's, or gone meanwhile


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def seal(path: Path) -> None:
    """Keep the file's SHA-256 beside it, so that :func:`is_sealed` can tell damage later."""
    with atomic_path(_seal_of(path)) as temporary:
        temporary.write_text(sha256_file(path), encoding="ascii")


def is_sealed(path: Path) -> bool:
    """Whether the file is there and is what was sealed, to the byte."""
    try:
        expected, got = _seal_of(path).read_bytes().decode("latin-1"), sha256_file(path)
    except OSError:
        return False
    if got != expected:
        logger.warning("%s is damaged and is made anew: expected SHA-256 %s, got %s", path, expected[:64], got)
    return got == expected


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def content_key(*parts: np.ndarray[Any, Any] | str | int | float | None) -> str:
    """SHA-256 over arrays (type, shape and bytes) and plain values: equal content, equal key."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"array {part.dtype.str} {part.shape};".encode())
            part = np.atleast_1d(part)
            rows = max(1, _HASH_BLOCK_BYTES // max(1, part[:1].nbytes))
            for start in range(0, len(part), rows):
                digest.update(np.ascontiguousarray(part[start : start + rows]).view(np.uint8).data)
        else:
            digest.update(f"value {part!r};".encode())
    return digest.hexdigest()


def cached_array(folder: str, key: str, compute: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The array stored under ``key`` in the cache, memory-mapped; computed and stored if it is not there.

    What is stored is checked to the byte; a damaged file is made anew. A cache that can't be written costs only a
    warning.
    """
    path = cache_dir() / folder / f"{key}.npy"
    if not is_sealed(path):
        array = compute()
        try:
            with atomic_path(path) as temporary:
                np.save(temporary, array, allow_pickle=False)
            seal(path)
        except OSError as error:
            logger.warning("the cache can't be written (%s); HASHLEARN_CACHE names another folder", error)
            return array
    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
