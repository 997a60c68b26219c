"""Pictures of a folder: find the files, and compute their vectors, in batches or all at once."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hashlearn._arrays import Array, sample_rows
from hashlearn.errors import ImageError, check_count, renamed_parameter, shown
from hashlearn.features._picture import read_picture
from hashlearn.labels import label_list
from hashlearn.progress import progress_bar
from hashlearn.storage import StrPath, is_unicode
from hashlearn.threads import cores

if TYPE_CHECKING:
    from hashlearn.features import Extractor

__all__ = ["IMAGE_ENDINGS", "ImageData", "find_images", "image_vectors", "read_folder", "read_thumbnail"]

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


@dataclass(frozen=True)
class ImageData:
    """The vectors of the pictures in a folder, as :func:`read_folder` returns them.

    Attributes
    ----------
    vectors
        float32 (n, n_features), one row for each picture that can be read.
    paths
        Their paths, relative to the folder.
    labels
        Their labels; None if none were given.
    unreadable
        Pictures that can't be read, and are left out: path and reason.
    """

    vectors: Array
    paths: list[str]
    labels: list[Hashable] | None
    unreadable: list[tuple[str, str]]


def find_images(folder: StrPath) -> list[str]:
    """Find the pictures below a folder, by their endings (``IMAGE_ENDINGS``).

    Hidden files and folders, whose names start with a dot, are left out. Links to files count; links to folders are not
    followed, so that there are no loops. Pictures whose names are not UTF-8 are left out, since they can't be stored
    as text, and so are folders that can't be opened; both are logged as warnings.

    Parameters
    ----------
    folder : path-like

    Returns
    -------
    paths : list of str
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
    """Read a picture at a small size, with its proportions.

    Parameters
    ----------
    path : path-like
    side : int
        The longer side of the result, in pixels.

    Returns
    -------
    image : ndarray of shape (height, width, 3), uint8

    Raises
    ------
    ImageError
        It can't be read.
    """
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
    """Iterate over the paths and vectors of pictures in batches, in the order of ``paths``.

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

    Yields
    ------
    paths : list of str
        The pictures of the batch that can be read.
    vectors : ndarray of shape (n, n_features), float32
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


def read_folder(
    folder: StrPath,
    extractor: Extractor,
    *,
    labels: Any = None,
    sample: int | None = None,
    random_state: int | np.random.Generator = 0,
    show_progress: bool | None = None,
) -> ImageData:
    """Compute the vectors of the pictures in a folder, in the order of :func:`find_images`.

    Parameters
    ----------
    folder
        The folder; pictures in its subfolders count too.
    extractor
        Reads the pictures and computes the vectors. Store its ``description()`` in the metadata of a model that is
        trained on them.
    labels
        ``"folders"``: the label of a picture is the name of the subfolder of ``folder`` that it is in. Otherwise a
        sequence with a label for each path of :func:`find_images`.
    sample
        Read a random sample of at most this number of pictures. None: read all.
    random_state
        Seed of the sample.
    show_progress
        Show a progress bar. None: only on a terminal.

    Returns
    -------
    data : ImageData

    Raises
    ------
    ValueError
        There is no picture, or the labels are not one for each picture. Both are checked before the first picture is
        read.

    Examples
    --------
    >>> from PIL import Image
    >>> from hashlearn.features import GistExtractor
    >>> for label in ("cat", "dog"):
    ...     os.makedirs(f"photos/{label}")
    ...     Image.new("RGB", (64, 64)).save(f"photos/{label}/1.png")
    >>> data = read_folder("photos", GistExtractor(), labels="folders")
    >>> data.vectors.shape, data.paths, data.labels, data.unreadable
    ((2, 512), ['cat/1.png', 'dog/1.png'], ['cat', 'dog'], [])
    """
    if not isinstance(getattr(extractor, "n_features", None), Integral):
        raise ValueError(f"extractor must be an Extractor, such as GistExtractor(); got {shown(extractor)}.")
    if not isinstance(random_state, np.random.Generator):
        check_count("random_state", random_state, least=0)
    paths = find_images(folder)
    classes = None if labels is None else dict(zip(paths, _labels(folder, paths, labels), strict=True))
    rows = sample_rows(len(paths), None if sample is None else check_count("sample", sample), random_state)
    paths = [paths[row] for row in np.arange(len(paths))[rows]]
    readable: list[str] = []
    unreadable: dict[str, str] = {}
    blocks = [np.empty((0, extractor.n_features), np.float32)]
    with progress_bar("reading", len(paths), unit="pictures", show=show_progress) as advance:

        def skip(path: str, reason: str) -> None:
            unreadable[path] = reason
            advance(1)

        for names, block in image_vectors(folder, paths, extractor, on_error=skip):
            readable += names
            blocks.append(block)
            advance(len(names))
    y = None if classes is None else [classes[path] for path in readable]
    return ImageData(np.concatenate(blocks), readable, y, list(unreadable.items()))


def _labels(folder: StrPath, paths: list[str], labels: Any) -> list[Hashable]:
    """Return a label for each path."""
    if isinstance(labels, str) and labels != "folders":
        raise ValueError(f"labels must be 'folders' or a sequence of labels; got {shown(labels)}.")
    if not isinstance(labels, str):
        values = label_list(labels, "labels")
        if len(values) != len(paths):
            raise ValueError(f"labels must have a label for each of the {len(paths):,} pictures; got {len(values):,}.")
        return values
    outside = [path for path in paths if "/" not in path]
    if outside:
        words = f"{len(outside):,} of {len(paths):,} are not in one, such as {outside[0]}"
        raise ValueError(f"labels from folders need every picture in a subfolder of {os.fspath(folder)}; {words}.")
    return [path.partition("/")[0] for path in paths]
