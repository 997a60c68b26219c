"""Pictures and vectors into a collection: batch by batch, each a transaction, going on where it was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.errors import ModelFileError
from hashlearn.progress import progress_bar
from hashlearn.search._items import payload_texts
from hashlearn.search.collection import Collection
from hashlearn.storage import content_key, parse_json

if TYPE_CHECKING:
    from hashlearn.features import ImageFeatures
    from hashlearn.hashers import Hasher

__all__ = ["Filled", "add_images", "add_vectors", "collection_for", "features_of", "features_text", "root_of"]

_BATCH = 10_000


@dataclass
class Filled:
    """What came of it: how many items were added, how many were there already, what could not be read and why."""

    added: int = 0
    there: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def features_text(features: ImageFeatures) -> str:
    """How a model file says of which features it was learned (``info``)."""
    return json.dumps(features.as_dict())


def features_of(model: Hasher) -> ImageFeatures | None:
    """How pictures become the vectors that the model takes; None if it was learned from vectors."""
    from hashlearn.features import ImageFeatures

    text = getattr(model, "info_", {}).get("features")
    if text is None:
        return None
    try:
        return ImageFeatures.from_dict(parse_json(text))
    except ValueError as error:
        raise ModelFileError(f"what the model says of its features can't be read: {error}") from None


def collection_for(
    path: str | os.PathLike[str],
    model: Hasher,
    *,
    source: str,
    folder: str | os.PathLike[str] | None = None,
    vectors: NDArray[Any] | None = None,
) -> Collection:
    """The collection at ``path``, to be filled: a new one, or one that was begun with the same model and input.

    Args:
        path: The file.
        model: What makes the codes.
        source: The input's name, of which the collection is made.
        folder: Where the pictures are, if it is made of pictures. Kept relative to the collection, so that both can be
            moved together.
        vectors: The vectors, if it is made of vectors. Their rows are their ids; other items get ids behind them.
    """
    path = Path(path)
    info: dict[str, Any] = {"input": source}
    if vectors is not None:
        if vectors.shape[1] != model.n_features_in_:
            raise ValueError(f"the model takes vectors of {model.n_features_in_} numbers; got {vectors.shape[1]}.")
        info |= {"rows": len(vectors), "content": content_key(vectors)}
    if not path.exists():
        features = features_of(model)
        if folder is not None:
            if features is None:
                raise ValueError(
                    "the model was learned from vectors, not from pictures: give vectors, or fit it on a folder."
                )
            info |= {"features": features.as_dict(), "root": _relative(folder, Path(os.path.realpath(path)).parent)}
        try:
            return Collection.create(path, model=model, info=info, first_id=0 if vectors is None else len(vectors))
        except FileExistsError:
            if not path.exists():  # what is left of an earlier one is in the way
                raise
            # Another process was sooner: go on with its.
    found = Collection.open(path)
    try:
        if not found.has_model(model):
            raise ValueError(f"{path} was made with another model: choose another name.")
        known = found.info
        other = known.get("input") != source
        if folder is not None and known.get("features") is not None:
            other = not (os.path.exists(root_of(found)) and os.path.samefile(folder, root_of(found)))
            source, known["input"] = os.path.normpath(folder), root_words(found)
        if other:
            raise ValueError(f"{path} was made of {known.get('input')}, not of {source}: hashlearn add adds to it.")
        if any(known.get(name) != info.get(name) for name in ("rows", "content")):
            raise ValueError(f"{source} is not what {path} was made of: make another, or add to it with hashlearn add.")
    except BaseException:
        found.close()
        raise
    return found


def _relative(path: str | os.PathLike[str], start: str | os.PathLike[str]) -> str:
    try:
        return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(start))).as_posix()
    except ValueError:  # on another drive
        return Path(path).resolve().as_posix()


def root_of(collection: Collection) -> Path:
    """The folder that the sources of a collection of pictures are relative to."""
    return collection.file.parent / str(collection.info.get("root", "."))


def root_words(collection: Collection) -> str:
    """The same as a person would name it: beside the collection, if its path is not a link."""
    beside = collection.path.parent / str(collection.info.get("root", "."))
    same = os.path.realpath(beside) == os.path.realpath(root_of(collection))
    return os.path.normpath(beside if same else root_of(collection))


def image_features(collection: Collection) -> ImageFeatures:
    """How pictures become vectors in this collection."""
    from hashlearn.features import ImageFeatures

    described = collection.info.get("features")
    if described is None:
        raise ValueError(f"{collection.path} was made of vectors, not of pictures: give a file of vectors.")
    return ImageFeatures.from_dict(described)


def add_images(
    collection: Collection,
    folder: str | os.PathLike[str],
    paths: Sequence[str],
    *,
    show_progress: bool | None = None,
    batch: int | None = None,
) -> Filled:
    """Add pictures under their paths relative to the collection's root; those that are there already are passed over.

    Each batch is a transaction: after an interruption the same call goes on.

    Args:
        collection: One that was made for pictures.
        folder: What ``paths`` are relative to.
        paths: The pictures.
        show_progress: A progress bar; None: on a terminal.
        batch: How many pictures a transaction holds; None: as many as are read at once.
    """
    from hashlearn.features import image_vectors

    features = image_features(collection)
    name = _namer(folder, root_of(collection))
    named = {name(path): path for path in paths}  # one picture, however its path is written
    known, filled = collection.ids_of(list(named)), Filled()
    names = {path: own for own, path in named.items() if own not in known}
    filled.there = len(named) - len(names)
    with progress_bar("indexing", len(names), unit="pictures", show=show_progress) as advance:

        def unreadable(path: str, reason: str) -> None:
            filled.unreadable.append((path, reason))
            advance(1)

        for read, vectors in image_vectors(folder, list(names), features, batch=batch, on_error=unreadable):
            codes = collection.encode(vectors)
            added = collection.add(codes, sources=[names[path] for path in read], unless_there=True)
            filled.added += len(added)
            filled.there += len(read) - len(added)  # by another process meanwhile
            advance(len(read))
    return filled


def _namer(folder: str | os.PathLike[str], root: Path) -> Callable[[str], str]:
    """What a path relative to ``folder`` is relative to ``root``."""
    base, start = os.path.realpath(folder), os.path.realpath(root)
    # Links among the folders are followed; one that is the picture itself is a picture of its own.
    folders = cache(lambda below: os.path.relpath(os.path.realpath(os.path.join(base, below)), start))

    def name(path: str) -> str:
        below, file = os.path.split(path)
        return Path(folders(below), file).as_posix()

    return name


def add_vectors(
    collection: Collection,
    vectors: NDArray[Any],
    *,
    ids: Sequence[int] | NDArray[np.int64] | None = None,
    payloads: Sequence[Any] | None = None,
    by_row: bool = False,
    show_progress: bool | None = None,
) -> Filled:
    """Add vectors (n, n_features), in batches that are transactions.

    Args:
        collection: One with a model.
        vectors: The vectors; may be a memory map.
        ids: An id for each; None: new ones. If one is there already, nothing is added.
        payloads: A payload for each; None: nothing. If one is no JSON, nothing is added.
        by_row: The id of a vector is its row, and rows that are there already are passed over: what was interrupted
            goes on.
        show_progress: A progress bar; None: on a terminal.
    """
    filled, n = Filled(), len(vectors)
    for name, given in (("id", ids), ("payload", payloads)):
        if given is not None and len(given) != n:
            raise ValueError(f"there must be one {name} for each of the {n:,} vectors; got {len(given):,}.")
    # All of them before the first batch, which would stay if a later one failed.
    payload_texts(payloads, n)
    if ids is not None:
        collection.refresh()
        collection.check_new(ids)
    with progress_bar("indexing", n, unit="vectors", show=show_progress) as advance:
        for start in range(0, n, _BATCH):
            rows = np.arange(start, min(start + _BATCH, n))
            size = len(rows)
            if by_row:
                rows = rows[~collection.index.contains(rows)]
                filled.there += size - len(rows)
            if len(rows):
                part = slice(int(rows[0]), int(rows[-1]) + 1)
                block = vectors[part] if len(rows) == part.stop - part.start else vectors[rows]
                chosen = rows if by_row else None if ids is None else np.asarray(ids)[rows]
                texts = None if payloads is None else [payloads[row] for row in rows.tolist()]
                added = collection.add(collection.encode(block), ids=chosen, payloads=texts, unless_there=by_row)
                filled.added += len(added)
                filled.there += len(rows) - len(added)
            advance(size)
    return filled
