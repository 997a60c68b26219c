"""Turn what the user names into vectors: a data set, a file of vectors, or a folder of pictures.

This is the only module of the command line that resolves such names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hashlearn.cli.options import refuse_options
from hashlearn.cli.render import note
from hashlearn.progress import count

if TYPE_CHECKING:
    from hashlearn.collection import Collection
    from hashlearn.datasets import Dataset
    from hashlearn.features import Extractor
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
    features: dict[str, Any] | None = None  # description of the extractor of pictures


def find_kind(input: str, **options: object) -> Kind:
    """Return what ``input`` names. Refuse options that have no effect on an input of that kind."""
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
    """Whether ``query`` is a picture, by its ending; without a known one, if the collection holds pictures."""
    from hashlearn.features import IMAGE_ENDINGS
    from hashlearn.vectors import FORMATS

    ending = Path(query).suffix.lower()
    if ending in IMAGE_ENDINGS:
        return True
    return ending not in FORMATS and Path(query).is_file() and collection.extractor is not None


def check_exists(option: str, path: str | Path) -> None:
    """Refuse an option that names a missing file."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{option} names {path}, which does not exist.")


def load_dataset(name: str, source: Path | None = None, split: int | None = None) -> Dataset:
    from hashlearn.datasets import load

    return load(name, source=source, split=split or 0)


def describe_dataset(name: str, split: int | None) -> str:
    """Describe a data set in a model file, with its split if splits are random."""
    return f"{name} split {split or 0}" if name == "cifar10-dh" else name


def read_input(
    input: str,
    part: str,
    key: str | None,
    kind: Kind | None = None,
    source: Path | None = None,
    split: int | None = None,
) -> Vectors:
    """Read the vectors of a file, or of a part of a data set; ``kind`` is that of :func:`find_kind`, if known."""
    from hashlearn import vectors

    if (kind or find_kind(input, key=key)) == "dataset":
        dataset = load_dataset(input, source, split)
        labels = dataset.train_labels if part == "train" else None
        return Vectors(getattr(dataset, part), dataset.name, labels)
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
    input: str, hasher: Hasher, *, labels: str | None, sample: int | None, seed: int, side: int | None, **options: Any
) -> Vectors:
    """Read vectors and labels for ``hasher`` to learn from; ``options`` are those of :func:`read_input`."""
    kind = find_kind(input, labels=labels, side=side, **options)
    if sample is not None and sample < 2:
        raise ValueError(f"--sample must be at least 2; got {sample}.")
    if labels is not None and not hasher.supervised:
        raise ValueError(f"{hasher.name} learns without labels: leave --labels out.")
    if labels not in (None, FOLDERS):
        check_exists("--labels", labels)
    if kind == "folder":
        return _read_training_pictures(input, hasher, labels, sample, seed, side)
    if kind == "file" and hasher.supervised and labels in (None, FOLDERS):
        raise ValueError(f"{hasher.name} learns from labels: give them with --labels FILE.")
    data = read_input(input, "train", kind=kind, **options)
    y = data.labels if labels is None else _read_labels(labels, len(data.X), "vectors")
    if not hasher.supervised:
        y = None
    elif y is None:
        raise ValueError(f"{hasher.name} learns from labels: {input} has none.")
    data = replace(data, labels=y, name=describe_dataset(data.name, options["split"]))
    rows = _sample_rows(len(data.X), sample, seed)
    if rows is None:
        return data
    return replace(data, X=data.X[rows], labels=None if y is None else [y[row] for row in rows])


def _read_training_pictures(
    folder: str, hasher: Hasher, labels: str | None, sample: int | None, seed: int, side: int | None
) -> Vectors:
    """Read pictures below a folder. The labels are checked before the first picture is read."""
    from hashlearn.features import GistExtractor, find_images

    extractor = GistExtractor() if side is None else GistExtractor(side=side)
    paths = find_images(folder)
    y = dict(zip(paths, _picture_labels(folder, paths, hasher, labels), strict=True)) if hasher.supervised else None
    rows = _sample_rows(len(paths), _MAX_TRAINING_PICTURES if sample is None else sample, seed)
    if rows is not None:
        paths = [paths[row] for row in rows]
    if y is not None and len({y[path] for path in paths}) < 2:
        raise ValueError(f"{hasher.name} needs pictures of at least two classes; got one, {y[paths[0]]}.")
    data = _read_pictures(folder, paths, extractor, skip_unreadable=True)
    if len(data.X) < 2:
        raise ValueError(f"{folder} must hold at least 2 pictures that can be read; found {len(data.X)}.")
    return replace(data, labels=None if y is None else [y[path] for path in data.paths])


def _picture_labels(folder: str, paths: list[str], hasher: Hasher, labels: str | None) -> Any:
    """Return a label for each picture: the subfolder of ``folder`` that it is in, or a line of a file."""
    outside = [path for path in paths if "/" not in path]
    if labels is None:
        hint = "give them with --labels FILE" if outside else "--labels folders takes the names of the subfolders"
        raise ValueError(f"{hasher.name} learns from labels: {hint}.")
    if labels != FOLDERS:
        return _read_labels(labels, len(paths), "pictures")
    if outside:
        words = f"{len(outside):,} of {len(paths):,} are not, {outside[0]} first"
        raise ValueError(f"--labels folders needs every picture in a subfolder of {folder}; {words}.")
    return [path.partition("/")[0] for path in paths]


def _read_labels(path: str, n: int, what: str) -> Any:
    from hashlearn import vectors

    labels = vectors.read_labels(path)
    if len(labels) != n:
        raise ValueError(f"--labels must have a label for each of the {n:,} {what}; it has {len(labels):,}.")
    return labels


def _sample_rows(n: int, size: int | None, seed: int) -> Any:
    """Draw the row numbers of a random sample, ascending; None if all rows are used."""
    import numpy as np

    if size is None or size >= n:
        return None
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


# -- pictures ---------------------------------------------------------------------------------------------------------


def read_folder(folder: str, hasher: Hasher, *, skip_unreadable: bool) -> Vectors:
    """Read pictures below a folder, in the order of ``find_images``, as vectors for ``hasher``."""
    from hashlearn.collection.ingest import model_extractor
    from hashlearn.features import find_images

    extractor = model_extractor(hasher)
    if extractor is None:
        raise ValueError("the model was trained on vectors, not on pictures: give a file of vectors.")
    data = _read_pictures(folder, find_images(folder), extractor, skip_unreadable=skip_unreadable)
    if not data.paths:
        raise ValueError(f"{folder} holds no picture that can be read.")
    return data


def _read_pictures(folder: str, paths: list[str], extractor: Extractor, *, skip_unreadable: bool) -> Vectors:
    import numpy as np

    from hashlearn.features import image_vectors
    from hashlearn.progress import progress_bar

    unreadable: list[str] = []
    readable: list[str] = []
    blocks: list[Any] = [np.empty((0, extractor.n_features), np.float32)]

    def skip(path: str, reason: str) -> None:
        unreadable.append(f"{path}: {reason}")

    with progress_bar("reading", len(paths), unit="pictures") as advance:
        for names, block in image_vectors(folder, paths, extractor, on_error=skip):
            readable += names
            blocks.append(block)
            advance(len(names))
    if unreadable:
        more = len(unreadable) - _LISTED_PICTURES
        listed = [*unreadable[:_LISTED_PICTURES], *([f"{more:,} more"] if more > 0 else [])]
        words = f"{len(unreadable):,} of {count(len(paths), 'picture')} can't be read ({'; '.join(listed)})"
        if not skip_unreadable:
            raise ValueError(f"{words}; --skip-unreadable leaves them out.")
        note(f"{words} and are left out.")
    name, features = Path(folder).resolve().name, extractor.description()
    return Vectors(np.concatenate(blocks), name, paths=readable, features=features)
