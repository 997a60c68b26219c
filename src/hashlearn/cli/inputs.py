"""Turn what the user names into vectors: a data set, a file of vectors, or a folder of pictures.

This is the only module of the command line that resolves such names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hashlearn.cli.options import refuse_options
from hashlearn.cli.render import note
from hashlearn.progress import count

if TYPE_CHECKING:
    from hashlearn.collection import Collection
    from hashlearn.datasets import Dataset
    from hashlearn.features import ImageFeatures
    from hashlearn.hashers import Hasher

Kind = Literal["dataset", "file", "folder"]
#: Labels are the names of the subfolders (--labels).
FOLDERS = "folders"
# More pictures take longer to describe than a method takes to learn from them.
_MAX_TRAINING_PICTURES = 20_000
_LISTED_PICTURES = 5
_KIND_WORDS = {"dataset": "a data set", "file": "a file", "folder": "a folder"}
# Options that apply to some kinds of input only.
_APPLICABLE = {
    "dataset": ("source", "split", "part"),
    "file": ("key", "labels"),
    "folder": ("labels", "side", "skip_unreadable"),
}


@dataclass(frozen=True)
class Vectors:
    """Vectors (n, n_features), what they are called, labels and paths of pictures where they have any."""

    X: Any
    name: str
    labels: Any = None
    paths: Sequence[str] = ()
    info: dict[str, str] = field(default_factory=dict)  # to keep with a model that learns from them


def find_kind(input: str, **options: object) -> Kind:
    """What ``input`` names. Refuses options that have no effect on an input of that kind."""
    from hashlearn.datasets import DATASETS
    from hashlearn.errors import suggest

    kind: Kind
    if input in DATASETS:
        kind = "dataset"
        if Path(input).is_dir():
            note(f"{input} is the data set; ./{input} would be the folder.")
    elif Path(input).is_dir():
        kind = "folder"
    elif Path(input).exists():
        kind = "file"
    else:
        raise FileNotFoundError(f"{input} is neither a file nor a folder nor a data set: {suggest(input, DATASETS)}")
    unused = {name: value for name, value in options.items() if name not in _APPLICABLE[kind]}
    refuse_options(f"{input} is {_KIND_WORDS[kind]}", **unused)
    return kind


def is_picture(query: str, collection: Collection) -> bool:
    """Whether ``query`` names a picture; one that ends in nothing known does if the collection is of pictures."""
    from hashlearn.features import IMAGE_ENDINGS
    from hashlearn.vectors import FORMATS

    ending = Path(query).suffix.lower()
    if ending in IMAGE_ENDINGS:
        return True
    return ending not in FORMATS and Path(query).is_file() and collection.extractor is not None


def load_dataset(name: str, source: Path | None = None, split: int | None = None) -> Dataset:
    from hashlearn.datasets import load

    return load(name, source=source, split=split or 0)


def describe_dataset(dataset: Dataset, split: int | None) -> str:
    """Describe a data set in a model file, with its split if splits are random."""
    return f"{dataset.name} split {split or 0}" if dataset.name == "cifar10-dh" else dataset.name


def read_input(
    input: str, part: str, *, key: str | None = None, source: Path | None = None, split: int | None = None
) -> Vectors:
    """Vectors of a file, or of one part of a data set."""
    from hashlearn import vectors

    if find_kind(input, key=key, source=source, split=split) == "dataset":
        dataset = load_dataset(input, source, split)
        labels = dataset.train_labels if part == "train" else None
        return Vectors(getattr(dataset, part), describe_dataset(dataset, split), labels)
    return Vectors(vectors.read_vectors(input, key=key), Path(input).name)


def is_sqlite(path: Path) -> bool:
    """Whether it is an SQLite file, as collections are."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(15) == b"SQLite format 3"


def check_out(path: Path, *inputs: str | Path | None) -> None:
    """Refuse to write to a path that can't be a file, to a collection, or to one of the inputs."""
    from hashlearn.datasets import DATASETS
    from hashlearn.storage import check_target

    check_target(path)
    if is_sqlite(path):
        raise ValueError(f"{path} is a collection, or another SQLite file: choose another name to write to.")
    for input in inputs:
        if input is None or input in DATASETS or not path.exists() or not Path(input).exists():
            continue
        if path.samefile(input) or (Path(input).is_dir() and Path(input).resolve() in path.resolve().parents):
            raise ValueError(f"{path} is an input, or part of one: choose another name to write to.")


# -- training data ----------------------------------------------------------------------------------------------------


def read_training(
    input: str,
    hasher: Hasher,
    *,
    labels: str | None,
    sample: int | None,
    seed: int,
    side: int | None,
    key: str | None,
    source: Path | None,
    split: int | None,
) -> Vectors:
    """Vectors and labels for ``hasher`` to learn from. Whatever can be checked is checked before vectors are read."""
    kind = find_kind(input, labels=labels, side=side, key=key, source=source, split=split)
    if sample is not None and sample < 2:
        raise ValueError(f"--sample must be at least 2; got {sample}.")
    if labels is not None and not hasher.supervised:
        raise ValueError(f"{hasher.name} learns without labels: leave --labels out.")
    if kind == "folder":
        return _read_training_pictures(input, hasher, labels, sample, seed, side)
    if kind == "file" and hasher.supervised:
        if labels is None or labels == FOLDERS:
            raise ValueError(f"{hasher.name} learns from labels: give them with --labels FILE.")
        y = _read_labels(labels)
    data = read_input(input, "train", key=key, source=source, split=split)
    if not hasher.supervised:
        y = None
    elif kind == "dataset":
        y = data.labels
        if y is None:
            raise ValueError(f"{hasher.name} learns from labels: {input} has none.")
    elif len(y) != len(data.X):
        raise ValueError(f"--labels must have a label for each of the {len(data.X):,} vectors; it has {len(y):,}.")
    rows = _sample_rows(len(data.X), sample, seed)
    if rows is None:
        return Vectors(data.X, data.name, y)
    return Vectors(data.X[rows], data.name, None if y is None else [y[row] for row in rows])


def _read_training_pictures(
    folder: str, hasher: Hasher, labels: str | None, sample: int | None, seed: int, side: int | None
) -> Vectors:
    from hashlearn.collection.ingest import features_text
    from hashlearn.features import ImageFeatures, find_images

    features = ImageFeatures() if side is None else ImageFeatures(side=side)
    paths = find_images(folder)
    by_path = dict(zip(paths, _picture_labels(folder, paths, hasher, labels), strict=True))
    rows = _sample_rows(len(paths), _MAX_TRAINING_PICTURES if sample is None else sample, seed)
    if rows is not None:
        paths = [paths[row] for row in rows]
    if hasher.supervised and len({by_path[path] for path in paths}) < 2:
        raise ValueError(f"{hasher.name} needs pictures of at least two classes; got one, {by_path[paths[0]]}.")
    X, readable, unreadable = read_pictures(folder, paths, features)
    if unreadable:
        left_out = f"{len(unreadable):,} of {len(paths):,} pictures can't be read and were left out"
        note(f"{left_out}, {unreadable[0][0]} first.")
    if len(X) < 2:
        raise ValueError(f"{folder} must hold at least 2 pictures that can be read; found {len(X)}.")
    y = [by_path[path] for path in readable] if hasher.supervised else None
    return Vectors(X, Path(folder).resolve().name, y, readable, {"features": features_text(features)})


def _picture_labels(folder: str, paths: list[str], hasher: Hasher, labels: str | None) -> Any:
    """A label for each picture: the subfolder of ``folder`` that it is in, or a line of a file."""
    if not hasher.supervised:
        return [None] * len(paths)
    outside = [path for path in paths if "/" not in path]
    if labels is None:
        how = "give them with --labels FILE" if outside else "--labels folders takes the names of the subfolders"
        raise ValueError(f"{hasher.name} learns from labels: {how}.")
    if labels == FOLDERS:
        if outside:
            raise ValueError(
                f"--labels folders needs every picture in a subfolder of {folder}; "
                f"{count(len(outside), 'picture')} are not, {outside[0]} first."
            )
        return [path.partition("/")[0] for path in paths]
    y = _read_labels(labels)
    if len(y) != len(paths):
        raise ValueError(f"--labels must have a label for each of the {len(paths):,} pictures; it has {len(y):,}.")
    return y


def _read_labels(path: str) -> Any:
    from hashlearn import vectors

    return vectors.read_labels(path)


def _sample_rows(n: int, size: int | None, seed: int) -> Any:
    """Row numbers of a random sample, ascending; None if all rows are used."""
    import numpy as np

    if size is None or size >= n:
        return None
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


# -- pictures ---------------------------------------------------------------------------------------------------------


def read_pictures(
    folder: str, paths: Sequence[str], features: ImageFeatures
) -> tuple[Any, list[str], list[tuple[str, str]]]:
    """Vectors of the pictures that can be read, their paths, and (path, reason) of those that can't."""
    import numpy as np

    from hashlearn.features import image_vectors
    from hashlearn.progress import progress_bar

    unreadable: list[tuple[str, str]] = []
    readable: list[str] = []
    blocks: list[Any] = [np.empty((0, features.n_features), np.float32)]
    with progress_bar("reading", len(paths), unit="pictures") as advance:
        for names, block in image_vectors(
            folder, paths, features, on_error=lambda path, reason: unreadable.append((path, reason))
        ):
            readable += names
            blocks.append(block)
            advance(len(names))
    return np.concatenate(blocks), readable, unreadable


def read_folder(folder: str, hasher: Hasher, *, skip_unreadable: bool) -> Vectors:
    """Vectors of all pictures below a folder, in the order of ``find_images``, as the model describes pictures."""
    from hashlearn.collection.ingest import features_of
    from hashlearn.features import find_images

    features = features_of(hasher)
    if features is None:
        raise ValueError("the model was trained on vectors, not on pictures: give a file of vectors.")
    X, readable, unreadable = read_pictures(folder, find_images(folder), features)
    if unreadable:
        listed = "; ".join(f"{path}: {reason}" for path, reason in unreadable[:_LISTED_PICTURES])
        more = len(unreadable) - _LISTED_PICTURES
        words = f"{count(len(unreadable), 'picture')} can't be read ({listed}{f'; {more:,} more' if more > 0 else ''})"
        if not skip_unreadable or not readable:
            raise ValueError(f"{words}; --skip-unreadable leaves them out.")
        note(f"{words}; left out.")
    return Vectors(X, Path(folder).resolve().name, paths=readable)
