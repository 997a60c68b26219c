"""Files that are whole or not there: the cache folder, atomic writing, content hashes."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "atomic_path",
    "cache_dir",
    "cached_array",
    "check_target",
    "content_key",
    "is_sealed",
    "is_unicode",
    "seal",
    "sha256_file",
    "user_path",
]

logger = logging.getLogger(__name__)

_HASH_BLOCK_BYTES = 1 << 24
_STALE_SECONDS = 24 * 3600


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


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success it is renamed to ``path``, else removed.

    A reader sees the old file or the whole new one, never a part, also after a crash. A link stays a link, and an
    existing file keeps its permissions.
    """
    final = Path(os.path.realpath(check_target(path)))
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final)
    # The ending stays last: some writers (np.save) append theirs to a name that lacks it.
    temporary = final.with_name(f".{_short(final.stem)}.{secrets.token_hex(8)}.tmp{final.suffix}")
    # Made by open, so that the user's umask holds.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        usual = temporary.stat().st_mode
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        # Some writers (safetensors) put a file of their own in its place, which nobody else may read.
        os.chmod(temporary, (final.stat().st_mode if final.exists() else usual) & 0o7777)
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


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
    with open(path, "rb") as file:
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
