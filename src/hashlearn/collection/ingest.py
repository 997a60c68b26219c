"""Add pictures and vectors to a collection in batches. Each batch is one transaction; an interrupted call resumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Array, Codes, from_torch
from hashlearn.collection._items import one_each, payload_texts
from hashlearn.errors import ModelFileError, shown
from hashlearn.progress import progress_bar
from hashlearn.search.index import check_ids
from hashlearn.storage import StrPath, content_key, is_unicode

if TYPE_CHECKING:
    from hashlearn.collection.collection import Collection
    from hashlearn.features import Extractor
    from hashlearn.hashers import Hasher

__all__ = ["Ingested", "model_extractor", "open_or_create"]

#: The path of a picture or of a folder of pictures, or several.
Images = StrPath | Sequence[StrPath]
_BATCH = 10_000


@dataclass
class Ingested:
    """The result of adding pictures or vectors to a collection.

    Attributes
    ----------
    added
        Number of items that were added.
    already_present
        Number of pictures or rows that were skipped, since they are in the collection.
    unreadable
        Pictures that can't be read: path and reason.
    known_codes
        Number of vectors whose codes were in the collection before, if they were counted (``count_known``). Different
        vectors may have equal codes, but if all of their codes are known, they may have been added before.
    """

    added: int = 0
    already_present: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    known_codes: int = 0


def model_extractor(model: Hasher) -> Extractor | None:
    """Make the extractor whose vectors a model was trained on.

    Parameters
    ----------
    model : Hasher
        A fitted model.

    Returns
    -------
    extractor : Extractor or None
        None if the model's metadata describe no features: it was not trained on pictures.

    Raises
    ------
    ModelFileError
        This version of hashlearn can't compute the vectors that are described.
    """
    from hashlearn.features import make_extractor

    metadata = model.metadata_
    # A text that is not a JSON object is a note.
    description = metadata.notes.get("features") if metadata.features is None else metadata.features
    if description is None:
        return None
    try:
        return make_extractor(description)
    except ValueError as error:
        raise ModelFileError(f"the model's description of its features can't be read: {error}") from None


def open_or_create(
    path: StrPath, model: Hasher, *, source: str, folder: StrPath | None = None, vectors: Array | None = None
) -> Collection:
    """Open the collection at ``path`` if it was created with the same model and input, or create it.

    It does not add the input: :meth:`Collection.add_images` or :meth:`Collection.add_vectors` does, and resumes if
    that was interrupted.

    Parameters
    ----------
    path
        The file.
    model
        Computes the codes.
    source
        The name of the input, stored with the collection.
    folder
        The folder of the pictures, for a collection of pictures. It is stored relative to the collection, so that both
        can be moved together.
    vectors
        The vectors, for a collection of vectors. Their rows are their ids; items added later get larger ids.

    Returns
    -------
    collection : Collection

    Raises
    ------
    ValueError
        The collection was created with another model or input.
    """
    from hashlearn.collection.collection import Collection
    from hashlearn.features import find_images

    path = Path(path)
    info: dict[str, Any] = {"input": source}
    if vectors is not None:
        check_shape("the model", model, vectors)
        info |= {"rows": len(vectors), "content": content_key(vectors)}
    if not path.exists():
        if folder is not None:
            if (extractor := model_extractor(model)) is None:
                raise ValueError(
                    "the model was trained on vectors, not on pictures: give vectors, or fit it on a folder."
                )
            find_images(folder)  # raises if there is no picture, before a file is created
            root = _relative(folder, Path(os.path.realpath(path)).parent)
            info |= {"features": extractor.description(), "root": root}
        try:
            return Collection.create(path, model=model, info=info, first_id=0 if vectors is None else len(vectors))
        except FileExistsError:
            if not path.exists():  # files of an earlier collection are in the way
                raise
            # Another process has created it meanwhile.
    collection = Collection.open(path)
    try:
        _check_same_input(collection, model, info, folder)
    except BaseException:
        collection.close()
        raise
    return collection


def _check_same_input(collection: Collection, model: Hasher, info: dict[str, Any], folder: StrPath | None) -> None:
    path, source, stored = collection.path, info["input"], collection.info
    if not collection.has_model(model):
        raise ValueError(f"{path} was made with another model: choose another name.")
    differs = stored.get("input") != source
    if folder is not None and stored.get("features") is not None:
        root = collection.root
        differs = not (root.exists() and os.path.samefile(folder, root))
        source, stored["input"] = os.path.normpath(folder), display_root(collection)
    if differs:
        raise ValueError(
            f"{path} was made of {stored.get('input')}, not of {source}: choose another name, or add to it."
        )
    if any(stored.get(name) != info.get(name) for name in ("rows", "content")):
        raise ValueError(f"{source} is not what {path} was made of: choose another name, or add to it.")


def _relative(path: StrPath, start: StrPath) -> str:
    try:
        return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(start))).as_posix()
    except ValueError:  # on another drive
        return Path(path).resolve().as_posix()


def display_root(collection: Collection) -> str:
    """The collection's root for messages: relative to the path that the user gave, unless that is a link elsewhere."""
    beside = collection.path.parent / str(collection.info.get("root", "."))
    same = os.path.realpath(beside) == os.path.realpath(collection.root)
    return os.path.normpath(beside if same else collection.root)


def add_images(
    collection: Collection, extractor: Extractor, images: Images, *, show_progress: bool | None, batch: int | None
) -> Ingested:
    """See :meth:`Collection.add_images`."""
    from hashlearn.features import image_vectors

    folder, paths = _find_pictures(images)
    to_source = _source_namer(folder, collection.root)
    by_source = {to_source(path): path for path in paths}  # one picture, however its path is written
    known, result = collection.find_ids(list(by_source)), Ingested()
    sources = {path: source for source, path in by_source.items() if source not in known}
    with progress_bar("indexing", len(sources), unit="pictures", show=show_progress) as advance:

        def skip(path: str, reason: str) -> None:
            result.unreadable.append((path, reason))
            advance(1)

        for read, vectors in image_vectors(folder, list(sources), extractor, batch=batch, on_error=skip):
            codes = collection.encode(vectors)
            result.added += len(collection.add(codes, sources=[sources[path] for path in read], skip_known=True))
            advance(len(read))
    # Before, or by another process meanwhile.
    result.already_present = len(by_source) - result.added - len(result.unreadable)
    return result


def to_paths(images: Images) -> list[str]:
    """Return one path or several as a list of texts."""
    several = isinstance(images, Iterable) and not isinstance(images, (str, bytes, os.PathLike, np.ndarray))
    paths: list[Any] = list(images) if several else [images]  # type: ignore[arg-type]
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"images must be paths of pictures; got {shown(path)}.")
    return [os.fspath(path) for path in paths]


def _find_pictures(images: Images) -> tuple[str, list[str]]:
    """A folder, and the paths of pictures relative to it."""
    from hashlearn.features import find_images

    given = to_paths(images)
    if isinstance(images, (str, os.PathLike)) and os.path.isdir(images):
        return given[0], find_images(images)
    paths: list[str] = []
    for path in given:
        if os.path.isdir(path):
            paths += [os.path.join(path, below) for below in find_images(path)]
        elif not is_unicode(path):
            raise ValueError(f"{path!a} has a name that is not UTF-8, which can't be stored: rename it.")
        elif os.path.exists(path):
            paths.append(path)
        else:
            raise FileNotFoundError(f"{path} is neither a picture nor a folder.")
    return os.curdir, paths


def _source_namer(folder: StrPath, root: Path) -> Callable[[str], str]:
    """A function from a path relative to ``folder`` to the same path relative to ``root``."""
    base, start = os.path.realpath(folder), os.path.realpath(root)
    # Links among the folders are followed; a link to a picture is a picture of its own.
    resolve = cache(lambda below: os.path.relpath(os.path.realpath(os.path.join(base, below)), start))

    def to_source(path: str) -> str:
        below, file = os.path.split(path)
        return Path(resolve(below), file).as_posix()

    return to_source


def check_shape(name: object, model: Hasher, vectors: ArrayLike) -> None:
    """Raise a ValueError if the model does not take vectors of this shape; ``name`` begins the message."""
    shape, n_features = np.shape(vectors), model.n_features_in_
    if len(shape) != 2 or shape[1] != n_features:
        raise ValueError(f"{name} takes vectors of shape (n, {n_features}); got {shape}.")


def add_vectors(
    collection: Collection,
    vectors: Array,
    *,
    ids: ArrayLike | None,
    payloads: Sequence[Any] | None,
    by_row: bool,
    count_known: bool,
    show_progress: bool | None,
) -> Ingested:
    """See :meth:`Collection.add_vectors`."""
    if by_row and ids is not None:
        raise ValueError("give ids or by_row, not both.")
    vectors = from_torch(vectors)
    if not hasattr(vectors, "iloc"):  # a data frame keeps the names of its columns
        vectors = np.asarray(vectors)
    indexer = getattr(vectors, "iloc", vectors)
    # All is checked before the first batch, which would stay if a later one failed.
    check_shape(collection.path, collection._require_model(), vectors)
    result, n = Ingested(), len(vectors)
    for start in range(0, n, _BATCH):
        block = np.asarray(indexer[start : start + _BATCH])
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            bad = start + int(np.isfinite(block).all(axis=1).argmin())
            raise ValueError(f"vectors must be finite; row {bad} is not.")
    payloads = None if payloads is None else one_each("payload", payloads, n)
    payload_texts(payloads, n)
    numbers = np.arange(n) if by_row else None if ids is None else check_ids(ids, n)
    if not by_row and numbers is not None:
        collection.refresh()
        collection._store.check_new(numbers)
    if count_known:
        collection.refresh()
    known = np.sort(_sortable(collection.index.codes)) if count_known else None
    with progress_bar("indexing", n, unit="vectors", show=show_progress) as advance:
        for start in range(0, n, _BATCH):
            rows = np.arange(start, min(start + _BATCH, n))
            new = rows[~collection.index.contains(rows)] if by_row else rows
            if len(new):
                codes = collection.encode(indexer[new])
                new_ids = None if numbers is None else numbers[new]
                values = None if payloads is None else [payloads[row] for row in new.tolist()]
                result.added += len(collection.add(codes, new_ids, payloads=values, skip_known=by_row))
                if known is not None:
                    result.known_codes += _count_members(_sortable(codes), known)
            advance(len(rows))
    result.already_present = n - result.added
    return result


def _sortable(codes: Codes) -> NDArray[np.bytes_]:
    """Packed codes (n, n_bytes) as (n,) byte strings, which NumPy sorts."""
    return np.ascontiguousarray(codes).view(f"S{codes.shape[1]}").reshape(-1)


def _count_members(values: NDArray[np.bytes_], known: NDArray[np.bytes_]) -> int:
    """How many of the values are in the sorted array ``known``."""
    if not len(known):
        return 0
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return int((known[places] == values).sum())
