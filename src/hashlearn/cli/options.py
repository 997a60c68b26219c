"""Options and arguments that several commands share, their completion in a shell, and checks of their values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer


def method_names() -> list[str]:
    """Names of the methods, from the names of their modules: importing the methods takes too long for completion."""
    from importlib.util import find_spec
    from pkgutil import iter_modules

    package = find_spec("hashlearn.hashers")
    folders = package.submodule_search_locations if package else None
    names = [module.name for module in iter_modules(folders) if not module.name.startswith("_")]
    return [name.replace("_", "-") for name in names if name not in ("base", "steps")]


def complete_method(incomplete: str) -> list[str]:
    return _starting_with(incomplete, ["auto", *method_names()])


def complete_dataset(incomplete: str) -> list[str]:
    from hashlearn.datasets import DATASETS

    return _starting_with(incomplete, DATASETS)


def complete_features(incomplete: str) -> list[str]:
    from hashlearn.features import EXTRACTORS

    return _starting_with(incomplete, EXTRACTORS)


def complete_image_set(incomplete: str) -> list[str]:
    from hashlearn.datasets.pictures import IMAGE_SETS

    return _starting_with(incomplete, IMAGE_SETS)


def complete_experiment(incomplete: str) -> list[str]:
    from hashlearn.experiments import grid

    return _starting_with(incomplete, [*grid.names(), *grid.study_names()])


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Key = Annotated[
    str | None, typer.Option(help="The array of an .npz file, data set of an .hdf5 file or column of a .parquet file.")
]
Source = Annotated[
    Path | None, typer.Option(help="File or folder with the data set's files, to use instead of a download.")
]
Split = Annotated[int | None, typer.Option(help="Random split of cifar10-dh: the seed of the repetition. Default: 0.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (hashlearn fit).")]
Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A data set's name (hashlearn data list), a file of vectors, or a folder of pictures.",
        autocompletion=complete_dataset,
    ),
]


def refuse_options(why: str, **options: object) -> None:
    """Raise an error for options that were given but would have no effect."""
    given = [name.replace("_", "-") for name, value in options.items() if value is not None and value is not False]
    if given:
        raise ValueError(f"{why}, so --{' and --'.join(given)} would have no effect: leave it out.")


def check_folder(option: str, path: Path | None) -> None:
    """Refuse a file where a folder is to be written."""
    if path is not None and path.exists() and not path.is_dir():
        raise ValueError(f"{option} must be a folder; {path} is a file.")
