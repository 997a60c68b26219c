"""Pictures of a folder: find the files, and compute their vectors in batches."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hashlearn._arrays import Array
from hashlearn.errors import ImageError, check_count, renamed_parameter
from hashlearn.features._picture import read_picture
from hashlearn.storage import StrPath, is_unicode
from hashlearn.threads import cores

if TYPE_CHECKING:
    from hashlearn.features import Extractor

__all__ = ["IMAGE_ENDINGS", "find_images", "image_vectors", "read_thumbnail"]

logger = logging.getLogger(__name__)

_Reading: TypeAlias = "Generator[tuple[str, Array | str]]"

# fmt: off
IMAGE_ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".bmp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm",
)
# fmt: on
"""The endings of picture files, in lower case; upper case is accepted too."""

_BATCH = 1024
_BATCH_BYTES = 1 << 26


def find_images(folder: StrPath) -> list[str]:
    """Find the pictures below a folder, by their endings (``IMAGE_ENDINGS``).

    Hidden files and folders, whose names start with a dot, are left out. Links to files count; links to folders are not
    followed, so that there are no loops. Pictures whose names are not UTF-8 are left out, since they can't be stored
    as text, and so are folders that can't be opened; both are logged as warnings.

    Returns
    -------
    Paths relative to ``folder``, with ``/``, sorted.

    Raises
    ------
    ValueError
        There is no picture.
    OSError
        ``folder`` itself can't be opened.
    """
    root = os.fspath(folder)
    paths: list[str] = []
    not_unicode: list[str] = []
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            with os.scandir(os.path.join(root, below) if below else root) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{below}{entry.name}/")
                    elif entry.name.lower().endswith(IMAGE_ENDINGS):
                        (paths if is_unicode(below + entry.name) else not_unicode).append(below + entry.name)
        except OSError as error:
            if not below:
                raise
            logger.warning("%s is left out: %s", ascii(below), error.strerror)
    if not_unicode:
        n, first = len(not_unicode), ascii(min(not_unicode))
        logger.warning("pictures are left out whose names are not UTF-8: %d, %s first", n, first)
    if not paths:
        raise ValueError(f"{root} holds no picture: no file below it ends in {' '.join(IMAGE_ENDINGS)}.")
    return sorted(paths)


def read_thumbnail(path: StrPath, side: int) -> Array:
    """Read a picture at a small size, with its proportions: uint8 (height, width, 3), the longer one ``side``."""
    return read_picture(os.fspath(path), side, color=True, square=False)


@renamed_parameter("features", "extractor")
def image_vectors(
    folder: StrPath,
    paths: Iterable[str],
    extractor: Extractor,
    *,
    batch: int | None = None,
    on_error: Callable[[str, str], object] | None = None,
) -> Iterator[tuple[list[str], Array]]:
    """Iterate over (paths, their vectors float32 (n, n_features)) in batches, in the order of ``paths``.

    One thread per core decodes pictures, at most one batch ahead, and those of more than 16 million pixels one at a
    time: memory is bounded whatever their number and size. Closing the iterator, or collecting it as garbage, ends the
    threads.

    A vector depends on the other pictures of its batch only by rounding, 1e-6 of its norm.

    Parameters
    ----------
    folder
        The folder that the paths are relative to.
    paths
        Paths as :func:`find_images` returns them; consumed as they are needed.
    extractor
        Reads the pictures and computes the vectors.
    batch
        Vectors per batch; the last one may have fewer. None: 1,024, or fewer if they take more than 64 MB.
    on_error
        Called with the path and the reason for each picture that can't be read, in the order of ``paths`` and in the
        caller's thread; the picture is skipped. None: a warning is logged.
    """
    if isinstance(paths, str):
        raise ValueError(f"paths must be a sequence of paths, not one text; got {paths!r}.")
    default = max(1, min(_BATCH, _BATCH_BYTES // prod(extractor.image_shape)))
    batch = default if batch is None else check_count("batch", batch)
    reading = _read_ahead(os.fspath(folder), iter(paths), extractor, max(min(batch, default), 2 * cores()))
    return _batches(reading, extractor, batch, on_error or _log_error)


def _log_error(path: str, reason: str) -> None:
    logger.warning("%s is skipped: %s", ascii(path), reason)


def _batches(
    reading: _Reading, extractor: Extractor, batch: int, on_error: Callable[[str, str], object]
) -> Iterator[tuple[list[str], Array]]:
    # Closed explicitly: after an error in on_error the traceback would keep the reader and its threads alive.
    with closing(reading):
        while True:
            good: list[str] = []
            images: list[Array] = []
            for path, read in reading:
                if isinstance(read, str):
                    on_error(path, read)
                    continue
                good.append(path)
                images.append(read)
                if len(images) == batch:
                    break
            if not images:
                return
            vectors = extractor.describe(np.stack(images))
            del images  # free them while the caller works
            yield good, vectors


def _read_ahead(root: str, paths: Iterator[str], extractor: Extractor, ahead: int) -> _Reading:
    """Iterate over each path with its picture or the reason why it can't be read; at most ``ahead`` are in progress."""

    def read(path: str) -> Array | str:
        try:
            return extractor.prepare(os.path.join(root, path))
        except ImageError as error:
            return error.reason  # not the error, whose traceback would keep the decoded part

    waiting: deque[tuple[str, Future[Array | str]]] = deque()
    pool = ThreadPoolExecutor(cores(), thread_name_prefix="hashlearn-images")
    try:
        while True:
            for path in islice(paths, ahead - len(waiting)):
                waiting.append((path, pool.submit(read, path)))
            if not waiting:
                return
            path, future = waiting.popleft()
            yield path, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
