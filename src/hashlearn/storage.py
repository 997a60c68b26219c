"""Files that are whole or not there: the cache folder, atomic writing, content hashes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["atomic_path", "cache_dir", "cached_array", "content_key"]

_HASH_BLOCK_BYTES = 1 << 24


def cache_dir() -> Path:
    """The folder for downloads and computed features: ``$HASHLEARN_CACHE``, or the user's cache."""
    named = os.environ.get("HASHLEARN_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hashlearn"


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success it is renamed to ``path``, else removed.

    A reader sees the old file or the whole new one, never a part, also after a crash.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    # The ending stays last: some writers (np.save) append theirs to a name that lacks it.
    handle, name = tempfile.mkstemp(prefix=f".{final.stem}.", suffix=f".tmp{final.suffix}", dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        # mkstemp makes a private file; give the result the permissions an ordinary open() would.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def content_key(*parts: np.ndarray[Any, Any] | str | int | float | None) -> str:
    """SHA-256 over arrays (type, shape and bytes) and plain values: equal content, equal key."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"array {part.dtype.str} {part.shape};".encode())
            rows = max(1, _HASH_BLOCK_BYTES // max(1, part[:1].nbytes))
            for start in range(0, len(part), rows):
                digest.update(np.ascontiguousarray(part[start : start + rows]).view(np.uint8).data)
        else:
            digest.update(f"value {part!r};".encode())
    return digest.hexdigest()


def cached_array(folder: str, key: str, compute: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The array stored under ``key`` in the cache, memory-mapped; computed and stored if it is not there."""
    path = cache_dir() / folder / f"{key}.npy"
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (FileNotFoundError, ValueError, EOFError):
        pass  # absent, or damaged from outside: make it anew
    array = compute()
    with atomic_path(path) as temporary:
        np.save(temporary, array, allow_pickle=False)
    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
