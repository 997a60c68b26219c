"""What the arguments of the command line stand for: a data set or a file, a method's parameters, a setting.

As light to import as the command line itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn._printing import say
from hashlearn.errors import shown

if TYPE_CHECKING:
    from hashlearn.datasets import Dataset
    from hashlearn.evaluation import Setting
    from hashlearn.hashers import Hasher

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]
Key = Annotated[
    str | None, typer.Option(help="Which array of an .npz, data set of an .hdf5 or column of a .parquet file.")
]
# Parameters of every method that have an option of their own: --bits and --seed.
OWN_OPTIONS = ("n_bits", "random_state")
# Enough for any method; more take longer to describe than to learn from.
PICTURES_TO_LEARN_FROM = 20_000


def is_dataset(input: str) -> bool:
    from hashlearn.datasets import DATASETS

    return input in DATASETS


def is_folder(input: str) -> bool:
    """Whether a folder is meant. A data set's name means the data set, and if there is such a folder too it says so."""
    there = Path(input).is_dir()
    if there and is_dataset(input):
        say(f"hashlearn: note: {input} is the data set; ./{input} would be the folder.")
        return False
    return there


def is_sqlite(path: Path) -> bool:
    """Whether it is such a file as collections are."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(15) == b"SQLite format 3"


def check_out(path: Path, *inputs: str | Path | None) -> None:
    """Refuse to write to what can't become a file, or to a collection or one of the inputs, which would be lost."""
    from hashlearn.storage import check_target

    check_target(path)
    if is_sqlite(path):
        raise ValueError(f"{path} is a collection, or another SQLite file: choose another name to write to.")
    for input in inputs:
        if input is None or not path.exists() or not Path(input).exists():
            continue
        if path.samefile(input) or (Path(input).is_dir() and Path(input).resolve() in path.resolve().parents):
            raise ValueError(f"{path} is what is read, or among it: choose another name to write to.")


def check_page(path: Path | None) -> None:
    """Refuse to write a page over anything but a page."""
    if path is None:
        return
    check_out(path)
    if path.exists():
        with open(path, "rb") as file:
            head = file.read(1024)
        if head and b"<!doctype html" not in head.lower():
            raise ValueError(f"{path} is there, and is no page: choose another name for --html.")


def refuse_options(why: str, **options: object) -> None:
    """An option that would have no effect is an error, not a silence."""
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{why}, so {' and '.join(given)} would have no effect: leave it out.")


def load_dataset(name: str, source: Path | None, split: int | None) -> Dataset:
    from hashlearn.datasets import load

    return load(name, source=source, split=split or 0)


def trained_on_text(dataset: Dataset, split: int | None) -> str:
    """What a model file says of its training data; a random split is another one for each seed."""
    return f"{dataset.name} split {split or 0}" if dataset.name == "cifar10-dh" else dataset.name


def read_input_file(input: str, key: str | None) -> Any:
    from hashlearn.datasets import DATASETS
    from hashlearn.vectors import read_vectors

    if not Path(input).exists():
        raise FileNotFoundError(f"{input} is neither a file nor a data set ({', '.join(DATASETS)}).")
    return read_vectors(input, key=key)


def sample_rows(n: int, size: int, seed: int) -> Any:
    """So many of n rows, drawn at random, ascending."""
    import numpy as np

    if size < 2:
        raise ValueError(f"--sample must be at least 2; got {size}.")
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


def picture_vectors(folder: str, sample: int | None, side: int | None, seed: int) -> tuple[Any, dict[str, Any]]:
    """Vectors of the pictures below a folder, or of some; and what a model must remember to make such vectors."""
    import numpy as np

    from hashlearn.features import GistExtractor, find_images, image_vectors
    from hashlearn.progress import progress_bar

    features = GistExtractor() if side is None else GistExtractor(side=side)
    paths = find_images(folder)
    size = PICTURES_TO_LEARN_FROM if sample is None else sample
    if size < len(paths):
        paths = [paths[row] for row in sample_rows(len(paths), size, seed)]
    unreadable: list[str] = []
    found: list[Any] = [np.empty((0, features.n_features), np.float32)]
    with progress_bar("reading", len(paths), unit="pictures") as advance:
        for names, vectors in image_vectors(folder, paths, features, on_error=lambda path, _: unreadable.append(path)):
            found.append(vectors)
            advance(len(names))
    if unreadable:
        words = f"{len(unreadable):,} of {len(paths):,} pictures can't be read and were left out, {unreadable[0]} first"
        say(f"hashlearn: note: {words}.")
    X = np.concatenate(found)
    if len(X) < 2:
        raise ValueError(f"{folder} must hold at least 2 pictures that can be read; found {len(X)}.")
    return X, features.description()


def make_hasher(method: str, bits: int, seed: int | None, parameters: list[str]) -> Hasher:
    from hashlearn.hashers import METHODS

    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}; got {method!r}.")
    names = parameter_names(METHODS[method])
    chosen: dict[str, Any] = {}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"-p takes name=value with one of {', '.join(names)} for {method}; got {shown(text)}.")
        chosen[name] = parameter_value(value)
    if METHODS[method].draws():
        chosen["random_state"] = seed or 0
    else:
        refuse_options(f"{method} draws nothing at random", seed=seed)
    return METHODS[method](n_bits=bits, **chosen)


def parameter_names(method: type[Hasher]) -> list[str]:
    """What -p takes: not what has an option of its own, nor what only Python can give."""
    return [name for name in method._get_param_names() if name not in (*OWN_OPTIONS, *method._not_saved)]


def parameter_value(text: str) -> Any:
    """``10``, ``0.5``, ``true``, ``none``, ``[90, 20]`` as Python values; anything else as text."""
    from hashlearn.storage import parse_json

    known = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in known:
        return known[text.lower()]
    try:
        return parse_json(text)
    except ValueError:
        return text


def choose_setting(
    dataset: str,
    truth: str | None,
    k: int | None,
    ap: str | None,
    cutoff: int | None,
    ties: str | None,
    radii: list[int] | None,
    *,
    supervised: bool,
    distance: str | None = None,
) -> Setting:
    """The paper's setting for data set and kind of method, with the user's choices in their places."""
    from dataclasses import replace

    from hashlearn.datasets import DATASETS
    from hashlearn.evaluation import setting

    if dataset not in DATASETS:
        raise ValueError(f"--dataset must be one of {', '.join(DATASETS)}; got {dataset!r}.")
    if truth not in (None, "neighbours", "labels"):
        raise ValueError(f"--truth must be neighbours or labels; got {truth!r}.")
    base = setting(dataset)
    changes: dict[str, Any] = {
        "ap": ap,
        "ties": ties,
        "radii": None if radii is None else tuple(radii),
        "distance": distance,
    }
    protocol = replace(base.protocol, **{name: value for name, value in changes.items() if value is not None})
    if cutoff is not None:
        protocol = replace(protocol, cutoff=cutoff or None)
    usual = "neighbours" if k is not None else "labels" if supervised else base.truth
    kind: Any = truth or usual
    if k is not None and kind == "labels":
        raise ValueError("--k goes with truth by neighbours, not by labels.")
    if k is None:
        k = base.k or 50
    if k < 1:
        raise ValueError(f"--k must be at least 1; got {k}.")
    return replace(base, truth=kind, protocol=protocol, k=k if kind == "neighbours" else None)
