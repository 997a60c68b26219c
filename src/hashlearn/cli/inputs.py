"""Turn what the user names into vectors: a data set, a file of vectors, or a folder of pictures.

This is the only module of the command line that resolves such names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    "folder": ("features", "labels", "side", "skip_unreadable"),
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


def check_file(option: str, path: str | Path) -> None:
    """Refuse an option whose value is not the path of an existing file."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{option} names {path}, which does not exist.")
    if not Path(path).is_file():
        raise ValueError(f"{option} must be a file; {path} is not.")


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
    input: str, hasher: Hasher, *, labels: str | None, sample: int | None, seed: int | None, **options: Any
) -> Vectors:
    """Read vectors and labels for ``hasher`` to learn from.

    ``options`` are ``features`` and ``side`` of pictures, and those of :func:`read_input`.
    """
    from hashlearn import vectors
    from hashlearn._arrays import sample_rows

    kind = find_kind(input, labels=labels, **options)
    features, side = options.pop("features"), options.pop("side")
    if not hasher.is_random and sample is None and kind != "folder":
        refuse_options(f"{hasher.name} draws nothing at random with these parameters", seed=seed)
    if sample is not None and sample < 2:
        raise ValueError(f"--sample must be at least 2; got {sample}.")
    if labels is not None and not hasher.supervised:
        raise ValueError(f"{hasher.name} learns without labels: leave --labels out.")
    y: Any = labels
    if labels not in (None, FOLDERS):
        check_file("--labels", labels)
        y = vectors.read_labels(labels)
    if kind == "folder":
        return _read_training_pictures(input, hasher, _choose_extractor(features or "gist", side), y, sample, seed or 0)
    if kind == "file" and hasher.supervised and labels in (None, FOLDERS):
        raise ValueError(f"{hasher.name} learns from labels: give them with --labels FILE.")
    data = read_input(input, "train", kind=kind, **options)
    if labels is None:
        y = data.labels if hasher.supervised else None
    elif len(y) != len(data.X):
        raise ValueError(f"--labels must have a label for each of the {len(data.X):,} vectors; it has {len(y):,}.")
    if hasher.supervised and y is None:
        raise ValueError(f"{hasher.name} learns from labels: {input} has none.")
    rows = sample_rows(len(data.X), sample, seed or 0)
    return Vectors(data.X[rows], describe_dataset(data.name, options["split"]), None if y is None else y[rows])


def _choose_extractor(name: str, side: int | None) -> Extractor:
    from inspect import signature

    from hashlearn.errors import check_name
    from hashlearn.features import EXTRACTORS

    check_name("extractor of features", name, EXTRACTORS)
    if "side" not in signature(EXTRACTORS[name]).parameters:
        refuse_options(f"the features {name} have no side", side=side)
    return EXTRACTORS[name](**({} if side is None else {"side": side}))


def _read_training_pictures(
    folder: str, hasher: Hasher, extractor: Extractor, labels: Any, sample: int | None, seed: int
) -> Vectors:
    if hasher.supervised:
        _check_picture_labels(folder, hasher, labels)
    sample = _MAX_TRAINING_PICTURES if sample is None else sample
    data = _read_pictures(folder, extractor, skip_unreadable=True, labels=labels, sample=sample, random_state=seed)
    if len(data.X) < 2:
        raise ValueError(f"{folder} must hold at least 2 pictures that can be read; found {len(data.X)}.")
    return data


def _check_picture_labels(folder: str, hasher: Hasher, labels: Any) -> None:
    """Refuse labels that ``hasher`` can't learn from, before any picture is read."""
    from hashlearn.features import find_images

    paths = find_images(folder)
    in_subfolders = all("/" in path for path in paths)
    if labels is None:
        hint = "--labels folders takes the names of the subfolders" if in_subfolders else "give them with --labels FILE"
        raise ValueError(f"{hasher.name} learns from labels: {hint}.")
    if isinstance(labels, str):  # folders
        labels = [path.partition("/")[0] for path in paths] if in_subfolders else []  # read_folder says which are not
    elif len(labels) != len(paths):
        raise ValueError(f"--labels must have a label for each of the {len(paths):,} pictures; it has {len(labels):,}.")
    if len(set(labels)) == 1:
        raise ValueError(f"{hasher.name} learns from at least two classes; --labels gives only {labels[0]}.")


# -- pictures ---------------------------------------------------------------------------------------------------------


def read_pictures(folder: str, hasher: Hasher, *, skip_unreadable: bool) -> Vectors:
    """Read pictures below a folder, in the order of ``find_images``, as vectors for ``hasher``."""
    from hashlearn.collection.ingest import model_extractor

    extractor = model_extractor(hasher)
    if extractor is None:
        raise ValueError("the model was trained on vectors, not on pictures: give a file of vectors.")
    data = _read_pictures(folder, extractor, skip_unreadable=skip_unreadable)
    if not data.paths:
        raise ValueError(f"{folder} holds no picture that can be read.")
    return data


def _read_pictures(folder: str, extractor: Extractor, *, skip_unreadable: bool, **options: Any) -> Vectors:
    """Read pictures with the options of ``read_folder``; list those that can't be read."""
    from hashlearn.features import read_folder

    data = read_folder(folder, extractor, **options)
    n = len(data.unreadable)
    if n:
        listed = [f"{path}: {reason}" for path, reason in data.unreadable[:_LISTED_PICTURES]]
        listed += [f"{n - _LISTED_PICTURES:,} more"] if n > _LISTED_PICTURES else []
        words = f"{n:,} of {count(n + len(data.paths), 'picture')} can't be read ({'; '.join(listed)})"
        if not skip_unreadable:
            raise ValueError(f"{words}; --skip-unreadable leaves {'it' if n == 1 else 'them'} out.")
        note(f"{words} and {'is' if n == 1 else 'are'} left out.")
    return Vectors(data.vectors, Path(folder).resolve().name, data.labels, data.paths, extractor.description())
