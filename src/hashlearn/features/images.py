"""A folder of pictures to vectors: which files, how each becomes a vector, and the vectors batch by batch.

    features = ImageFeatures()
    paths = find_images("photos")
    for names, vectors in image_vectors("photos", paths, features):
        ...

``ImageFeatures`` belongs to whatever is computed from the vectors: a model fitted on one description knows nothing of
vectors made by another.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from hashlearn.errors import ImageError, shown
from hashlearn.features._picture import read_picture
from hashlearn.features.gist import GIST_512, checked_orientations, gist
from hashlearn.storage import is_unicode
from hashlearn.threads import cores

__all__ = ["IMAGE_ENDINGS", "ImageFeatures", "find_images", "image_vectors", "read_image", "read_thumbnail"]

logger = logging.getLogger(__name__)

Array: TypeAlias = "np.ndarray[Any, Any]"
_Reading: TypeAlias = "Generator[tuple[str, Array | str]]"

# fmt: off
IMAGE_ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".bmp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm",
)
# fmt: on
"""The endings of picture files, in any case."""

_VERSION = 1  # of the numbers: raise it when reading, resizing or GIST change them
_SIDES = (4, 1024)
_MAX_FILTERS = 1024
_BATCH = 1024
_BATCH_BYTES = 1 << 26


@dataclass(frozen=True)
class ImageFeatures:
    """How a picture becomes a vector: GIST of the whole picture, resized to a square.

    Parameters
    ----------
    kind
        ``"gist"``, the only one so far.
    side
        The square's side in pixels, 4 to 1,024.
    color
        True: grey is the mean of red, green and blue, as in the data set ``cifar10``. False: grey is luma (ITU-R 601),
        which a JPEG holds ready-made. The vectors are of the same length, and not to be mixed.
    orientations
        Of GIST's filters, scale by scale, finest first (``GIST_320``, ``GIST_512``).
    """

    kind: str = "gist"
    side: int = 64
    color: bool = True
    orientations: tuple[int, ...] = GIST_512

    def __post_init__(self) -> None:
        if self.kind != "gist":
            raise ValueError(f"kind must be 'gist', the only kind of image features; got {shown(self.kind)}.")
        least, most = _SIDES
        if not isinstance(self.side, int) or not least <= self.side <= most:
            raise ValueError(f"side must be a whole number of pixels from {least} to {most}; got {shown(self.side)}.")
        if type(self.color) is not bool:
            raise ValueError(f"color must be True or False; got {shown(self.color)}.")
        counts = checked_orientations(self.orientations)
        if sum(counts) > _MAX_FILTERS:
            raise ValueError(f"orientations must add up to at most {_MAX_FILTERS} filters; got {sum(counts)}.")
        object.__setattr__(self, "orientations", counts)

    @property
    def n_features(self) -> int:
        """The length of a vector."""
        return 16 * sum(self.orientations)

    @property
    def name(self) -> str:
        """In words, such as ``512-D GIST of pictures at 64×64, color``."""
        return f"{self.n_features}-D GIST of pictures at {self.side}×{self.side}, {'color' if self.color else 'gray'}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; :meth:`from_dict` makes an equal object of them."""
        return {
            "version": _VERSION,
            "kind": self.kind,
            "side": self.side,
            "color": self.color,
            "orientations": list(self.orientations),
        }

    @classmethod
    def from_dict(cls, data: Any) -> ImageFeatures:
        """What :meth:`as_dict` gave; a ``ValueError`` if it is anything else, of another version or another kind."""
        if not isinstance(data, dict):
            raise ValueError(f"image features must be a dict; got {type(data).__name__}.")
        version = data.get("version")
        if type(version) is not int or version != _VERSION:
            raise ValueError(
                f"image features must be of version {_VERSION}, the one computed here; got {shown(version)}."
            )
        names = set(cls().as_dict())
        if set(data) != names:
            odd = ", ".join(sorted(map(repr, set(data) ^ names)))
            raise ValueError(f"image features must have the fields {', '.join(sorted(names))}; differs in {odd}.")
        fields = {name: value for name, value in data.items() if name != "version"}
        return cls(**fields)

    def vectors(self, images: Any) -> Array:
        """float32 (n, n_features) of pictures as :func:`read_image` gives them: an array of n, or a list."""
        return gist(images, self.orientations, show_progress=False)


def find_images(folder: str | os.PathLike[str]) -> list[str]:
    """The pictures below ``folder``, by their endings (``IMAGE_ENDINGS``, any case): relative paths with ``/``, sorted.

    Hidden files and folders (a dot first) are left out. Links to files count; links to folders are not followed, so
    that there are no loops. Names that are not UTF-8 can't be stored or printed as text: those pictures are left out,
    and so are folders that can't be opened; both are logged as warnings.

    Raises:
        ValueError: There is no picture.
        OSError: ``folder`` itself can't be opened.
    """
    root = os.fspath(folder)
    found: list[str] = []
    odd: list[str] = []
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
                        (found if is_unicode(below + entry.name) else odd).append(below + entry.name)
        except OSError as error:
            if not below:
                raise
            logger.warning("%s is left out: %s", ascii(below), error.strerror)
    if odd:
        logger.warning("pictures are left out whose names are not UTF-8: %d, %s first", len(odd), ascii(min(odd)))
    if not found:
        raise ValueError(f"{root} holds no picture: no file below it ends in {' '.join(IMAGE_ENDINGS)}.")
    return sorted(found)


def read_image(path: str | os.PathLike[str], features: ImageFeatures) -> Array:
    """A picture ready for ``features.vectors``: uint8 (side, side, 3), or (side, side) if it is gray.

    Of several frames or pages the first; upright by its EXIF data; on white where it is transparent.

    Raises:
        ImageError: It can't be read; ``reason`` says why in one line.
    """
    return read_picture(os.fspath(path), features.side, features.color)


def read_thumbnail(path: str | os.PathLike[str], side: int) -> Array:
    """A small picture to look at, of its own shape: uint8 (height, width, 3), ``side`` the longer of the two."""
    return read_picture(os.fspath(path), side, color=True, square=False)


def image_vectors(
    folder: str | os.PathLike[str],
    paths: Iterable[str],
    features: ImageFeatures,
    *,
    batch: int | None = None,
    on_error: Callable[[str, str], object] | None = None,
) -> Iterator[tuple[list[str], Array]]:
    """(paths, their vectors float32 (n, n_features)), batch by batch, in the order of ``paths``.

    Pictures are decoded by one thread a core, at most a batch ahead of the one that is described, and those of more
    than 16 million pixels one at a time: memory is bounded whatever their number and size. Closing the iterator (or
    leaving it to be collected) ends the threads.

    A vector does not depend on the pictures beside it but for rounding, 1e-6 of its norm.

    Parameters
    ----------
    folder
        What the paths are relative to.
    paths
        As :func:`find_images` gives them; taken one by one as they are needed.
    batch
        Vectors a batch; the last one may have fewer. None: 1,024, or what 64 MB of resized pictures hold.
    on_error
        Called with the path and the reason of each picture that can't be read, in the order of ``paths`` and in the
        caller's thread; the picture is skipped. None: a warning is logged.
    """
    if isinstance(paths, str):
        raise ValueError(f"paths must be several paths, not one text; got {paths!r}.")
    picture = features.side**2 * (3 if features.color else 1)
    usual = max(1, min(_BATCH, _BATCH_BYTES // picture))
    batch = usual if batch is None else batch
    if not isinstance(batch, (int, np.integer)) or batch < 1:
        raise ValueError(f"batch must be a positive whole number; got {batch!r}.")
    reading = _read_ahead(os.fspath(folder), iter(paths), features, max(min(batch, usual), 2 * cores()))
    return _batches(reading, features, int(batch), on_error or _log_error)


def _log_error(path: str, reason: str) -> None:
    logger.warning("%s is skipped: %s", ascii(path), reason)


def _batches(
    reading: _Reading, features: ImageFeatures, batch: int, on_error: Callable[[str, str], object]
) -> Iterator[tuple[list[str], Array]]:
    # Closed by name: after an error in on_error the traceback would keep the reader, and its threads, alive.
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
            vectors = features.vectors(np.stack(images))
            del images  # not needed while the caller works
            yield good, vectors


def _read_ahead(root: str, paths: Iterator[str], features: ImageFeatures, ahead: int) -> _Reading:
    """Each path with its picture, or the reason why there is none; in order, ``ahead`` of them in work or waiting."""

    def read(path: str) -> Array | str:
        try:
            return read_image(os.path.join(root, path), features)
        except ImageError as error:
            return error.reason  # not the error: its traceback would hold the picture as far as it was decoded

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
