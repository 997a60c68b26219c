"""The commands on data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hashlearn.cli.inputs import load_dataset
from hashlearn.cli.options import AsJson, Source, Split, check_folder, complete_dataset, complete_image_set
from hashlearn.cli.render import show
from hashlearn.progress import count

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List data sets, download them, write their images.\n\nExample: hashlearn data get mnist",
)


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the data sets.

    Example: hashlearn data list
    """
    from hashlearn.datasets import DATASETS

    result = [
        {
            "name": name,
            "description": entry.description,
            "train": [entry.n_train, entry.n_features],
            "database": [entry.n_database, entry.n_features],
            "queries": [entry.n_queries, entry.n_features],
            "how": entry.how,
        }
        for name, entry in DATASETS.items()
    ]
    text = [
        f"{name}: {entry.description}\n"
        f"    {entry.n_train:,} to train, {entry.n_database:,} to search, {entry.n_queries:,} queries; "
        f"{entry.n_features} features\n"
        f"    {entry.how}"
        for name, entry in DATASETS.items()
    ]
    show(result, as_json, "\n".join(text))


@app.command("get")
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name of hashlearn data list.", autocompletion=complete_dataset)
    ],
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Download a data set into the cache, compute its features, check it and describe it.

    Example: hashlearn data get mnist
    """
    dataset = load_dataset(name, source, split)
    shapes = {part: list(getattr(dataset, part).shape) for part in ("train", "database", "queries")}
    result = {"name": dataset.name, **shapes, "labels": dataset.query_labels is not None, "note": dataset.note}
    sizes = ", ".join(f"{part} {rows:,} x {columns}" for part, (rows, columns) in shapes.items())
    labels = "with labels" if result["labels"] else "without labels"
    show(result, as_json, f"{dataset.name}: {sizes}, {labels}" + (f"\n{dataset.note}" if dataset.note else ""))


@app.command("images")
def images(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist or cifar10.", autocompletion=complete_image_set)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")],
    source: Source = None,
    as_json: AsJson = False,
) -> None:
    """Write a data set's images as PNG files: train/CLASS/NUMBER.png and test/CLASS/NUMBER.png.

    Example: hashlearn data images cifar10 --out cifar10
    """
    from hashlearn.datasets.pictures import IMAGE_SETS, write_pictures

    if name not in IMAGE_SETS:
        raise ValueError(f"NAME must be one of {', '.join(IMAGE_SETS)}, which are images; got {name!r}.")
    check_folder("--out", out)
    n = write_pictures(IMAGE_SETS[name](source), out)
    show({"name": name, "folder": str(out), "images": n}, as_json, f"{count(n, 'image')} of {name} below {out}")
