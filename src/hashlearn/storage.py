"""Atomic writing, content hashes, JSON from untrusted files, and the cache folder."""

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

from hashlearn._arrays import Array

StrPath = str | os.PathLike[str]

logger = logging.getLogger(__name__)

_HASH_BLOCK_BYTES = 1 << 24
_STALE_SECONDS = 24 * 3600
_MAX_JSON_DEPTH = 200


def user_path(text: StrPath, what: str) -> Path:
    """Expand ``~`` in a path.

    Parameters
    ----------
    text : path-like
    what : str
        What gave the path, such as an environment variable; for the error message.

    Returns
    -------
    path : Path

    Raises
    ------
    ValueError
        The home folder is unknown.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{what} names {text}, whose home folder is unknown ({error})") from None


def is_unicode(text: str) -> bool:
    """Whether text can be encoded. A file name that is not valid UTF-8 can't: Python represents it with surrogates.

    Parameters
    ----------
    text : str
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_json(text: str | bytes, *, unique_keys: bool = False) -> Any:
    """Parse JSON from an untrusted source.

    Follows the JSON standard: ``NaN`` and ``Infinity`` are rejected. So are numbers beyond float64, and nesting so deep
    that copying or printing the value would exhaust the stack.

    Parameters
    ----------
    text : str or bytes
        Bytes are UTF-8.
    unique_keys : bool
        Whether to reject an object that has a key twice.

    Returns
    -------
    value : dict, list, str, int, float, bool or None

    Raises
    ------
    ValueError
        The text is rejected. The message is one line.
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
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not _is_shallow(value):
        raise ValueError(f"it is nested too deep (more than {_MAX_JSON_DEPTH} levels)")
    return value


def _finite_int(text: str) -> int:
    _finite_float(text)  # refuses more digits than Python parses, too
    return int(text)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is beyond the range of float64")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice")
    return value


def _is_shallow(value: Any) -> bool:
    """Check the depth level by level, since recursion would exhaust the stack too."""
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
    """The folder for downloads and computed features: ``$HASHLEARN_CACHE``, or the user's cache folder."""
    folder = os.environ.get("HASHLEARN_CACHE")
    if folder:
        return user_path(folder, "HASHLEARN_CACHE")
    base = (
        os.environ.get("XDG_CACHE_HOME")
        or user_path("~", "the default cache folder (set HASHLEARN_CACHE to change it)") / ".cache"
    )
    return Path(base) / "hashlearn"


def check_target(path: StrPath) -> StrPath:
    """Return a path; raise a ValueError if it can't be written as a file: an empty name, a folder, a device.

    Parameters
    ----------
    path : path-like
    """
    if not os.fspath(path) or (os.path.exists(path) and not os.path.isfile(path)):
        raise ValueError(f"a file can't be written to {os.fspath(path)!r}: it is a folder, a device or an empty name.")
    return path


def open_regular(path: StrPath) -> IO[bytes]:
    """Open a regular file for reading. Opening a pipe would block, and a device may have no end.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    file : binary file

    Raises
    ------
    OSError
        If it can't be opened or is not a regular file.
    """
    name = os.fspath(path)
    _check_regular(name, os.stat(name).st_mode)
    # Checked again after opening, since the file may have been replaced. O_BINARY exists only on Windows.
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
def atomic_path(path: StrPath) -> Iterator[Path]:
    """Provide a temporary path beside ``path``. On success it is renamed to ``path``, otherwise removed.

    A reader sees the old file or the complete new one, even after a crash. A symbolic link stays a link, and an
    existing file keeps its permissions.

    Parameters
    ----------
    path : path-like
        The file to write. Folders that are missing are created.

    Yields
    ------
    temporary : Path
        An empty file to write to.
    """
    with atomic_paths(path) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(*paths: StrPath) -> Iterator[tuple[Path, ...]]:
    """:func:`atomic_path` for files that belong together: new and old ones are never mixed.

    All files are written before the first one is renamed. Then all old files but the first are removed, and the new
    ones are renamed in the order of ``paths``. A crash in between leaves files missing but never mixed, so the file
    that makes the others valid should come last.

    Parameters
    ----------
    *paths : path-like
        The files to write, which must have different names.

    Yields
    ------
    temporaries : tuple of Path
        An empty file to write to for each path.

    Raises
    ------
    OSError
        Names the file that could not be written.
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
                _flush(final, temporary, mode)
        _rename_all(finals, temporaries)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _temporary(final: Path) -> Path:
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final)
    # The extension stays last: some writers (np.save) append it to a name without it.
    temporary = final.with_name(f".{_short(final.stem)}.{secrets.token_hex(8)}.tmp{final.suffix}")
    # Created by open, so that the user's umask applies.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return temporary


def _flush(final: Path, temporary: Path, usual_mode: int) -> None:
    """Flush the content to the disk and set the final permissions."""
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    # Some writers (safetensors) replace the file by one that only the user can read.
    os.chmod(temporary, (final.stat().st_mode if final.exists() else usual_mode) & 0o7777)


def _rename_all(finals: Sequence[Path], temporaries: Sequence[Path]) -> None:
    folders = {final.parent for final in finals}
    for final in reversed(finals[1:]):
        with _errors_name(final):
            final.unlink(missing_ok=True)
            sync_folder(final.parent)  # otherwise a crash could leave the new first file and the old second
    for final, temporary in zip(finals, temporaries, strict=True):
        with _errors_name(final, temporaries=[temporary]):
            os.replace(temporary, final)
    for folder in folders:
        sync_folder(folder)


@contextmanager
def _errors_name(*finals: Path, temporaries: Sequence[Path] = ()) -> Iterator[None]:
    """Make an OSError that names no file, or a temporary one, name the final file instead."""
    try:
        yield
    except OSError as error:
        hidden = {str(temporary): str(final) for temporary, final in zip(temporaries, finals, strict=False)}
        # Network errors, which have their own types, are not about the file.
        if error.filename is None and type(error) is not OSError:
            raise
        if error.filename is not None and os.fspath(error.filename) not in hidden:
            raise
        name = ", ".join(map(str, finals)) if error.filename is None else hidden[os.fspath(error.filename)]
        if error.errno is None:  # NumPy's error for a short write
            raise OSError(f"{name} can't be written: {error}") from error
        raise OSError(error.errno, error.strerror, name) from error


def sync_folder(path: StrPath) -> None:
    """Flush a folder's entries to the disk, so that a crash can't undo a rename.

    Does nothing where the system does not support it.

    Parameters
    ----------
    path : path-like
        The folder.

    Raises
    ------
    OSError
        The disk fails or is full.
    """
    try:
        folder = os.open(path, os.O_RDONLY)
    except OSError:  # Windows, or a folder without read permission
        return
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):  # a failure of the disk, not a missing feature
            raise
    finally:
        os.close(folder)


def sweep_folders(parent: StrPath, prefix: str, files: Collection[str]) -> None:
    """Remove temporary folders that killed processes left behind at least a day ago.

    Only folders that ``tempfile`` named with this prefix and that contain nothing but some of ``files``: the name alone
    does not prove that a folder is ours.

    Parameters
    ----------
    parent : path-like
        The folder that they are in.
    prefix : str
        The beginning of their names.
    files : collection of str
        Names of the files that they may contain.
    """
    pattern = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
    try:
        with os.scandir(parent) as entries:
            folders = [entry for entry in entries if pattern.fullmatch(entry.name)]
    except OSError:
        return
    for folder in folders:
        with suppress(OSError):  # another user's, or already gone
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
    """The first 100 bytes of a name, so that a suffix does not make it too long."""
    return os.fsencode(stem)[:100].decode("utf-8", "ignore")


def _sweep(final: Path) -> None:
    """Remove temporary files that killed writers of the same file left behind at least a day ago."""
    pattern = f".{glob.escape(_short(final.stem))}.*.tmp{glob.escape(final.suffix)}"
    for stale in final.parent.glob(pattern):
        try:
            if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                stale.unlink()
        except OSError:
            pass  # another user's, or already gone


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal.

    Parameters
    ----------
    path : Path
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def seal(path: Path) -> None:
    """Store a file's SHA-256 beside it, so that :func:`is_sealed` can detect damage.

    Parameters
    ----------
    path : Path
    """
    with atomic_path(_seal_path(path)) as temporary:
        temporary.write_text(sha256_file(path), encoding="ascii")


def is_sealed(path: Path) -> bool:
    """Whether a file exists and still has the SHA-256 that was stored by :func:`seal`.

    If it has another one, a warning is logged.

    Parameters
    ----------
    path : Path
    """
    try:
        expected, got = _seal_path(path).read_bytes().decode("latin-1"), sha256_file(path)
    except OSError:
        return False
    if got != expected:
        logger.warning("%s is damaged and will be recreated: expected SHA-256 %s, got %s", path, expected[:64], got)
    return got == expected


def _seal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def content_key(*parts: Array | str | int | float | None) -> str:
    """Return a SHA-256 of arrays and plain values, in hexadecimal: equal content, equal key.

    Parameters
    ----------
    *parts : ndarray, str, int, float or None
        Of an array, its type, shape and bytes count.
    """
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


def cached_array(folder: str, key: str, compute: Callable[[], Array]) -> Array:
    """Load an array from the cache; compute and store it if it is missing.

    The stored file is verified by its checksum, and recreated if it is damaged. If the cache can't be written, a
    warning is logged.

    Parameters
    ----------
    folder : str
        Name of a folder in the cache.
    key : str
        Name of the array in it, such as a :func:`content_key`.
    compute : callable
        Returns the array. Called if it is missing or damaged.

    Returns
    -------
    array : ndarray
        Memory-mapped and read-only, unless the cache can't be written.
    """
    path = cache_dir() / folder / f"{key}.npy"
    if not is_sealed(path):
        array = compute()
        try:
            with atomic_path(path) as temporary:
                np.save(temporary, array, allow_pickle=False)
            seal(path)
        except OSError as error:
            logger.warning("the cache can't be written (%s); set HASHLEARN_CACHE to another folder", error)
            return array
    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
