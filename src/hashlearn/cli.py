"""The command line: parse, call, print. Data goes to stdout, talk to stderr; an error is one line and exit code 2.

Only what is light is imported at the top, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from hashlearn import cli_experiments, cli_search
from hashlearn._arguments import (
    AsJson,
    Key,
    check_out,
    choose_setting,
    is_dataset,
    is_folder,
    load_dataset,
    make_hasher,
    parameter_names,
    picture_vectors,
    read_input_file,
    refuse_options,
    sample_rows,
    trained_on_text,
)
from hashlearn._printing import say, show

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    # For examples to stand on one line where the terminal has room, so that they can be copied.
    context_settings={"max_content_width": 140},
    help="Learn compact binary codes for vectors and images, and search them.\n\n"
    "Example: hashlearn fit digits --method itq --bits 32 --out digits.model && "
    "hashlearn evaluate digits.model --dataset digits",
)
data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The data sets: what there is, and getting it.\n\nExample: hashlearn data get mnist",
)
app.add_typer(data_app, name="data")
app.command()(cli_experiments.reproduce)
app.command()(cli_experiments.report)
for command in (
    cli_search.index,
    cli_search.search,
    cli_search.add,
    cli_search.remove,
    cli_search.info,
    cli_search.duplicates,
    cli_search.export,
):
    app.command()(command)

Source = Annotated[
    Path | None,
    typer.Option(help="Where the data set's files are, if they are not to be fetched: a file or folder."),
]
Split = Annotated[
    int | None, typer.Option(help="Which random split of cifar10-dh: the seed of the repetition, 0 unless given.")
]
Input = Annotated[str, typer.Argument(metavar="INPUT", help="A data set's name (data list) or a file of vectors.")]


class _Told(logging.Handler):
    """What the library logs, in a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"hashlearn: warning: {' '.join(record.getMessage().split())}")


@contextmanager
def _logs_are_told() -> Iterator[None]:
    logger, handler = logging.getLogger("hashlearn"), _Told(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def main() -> None:
    """Run the command line; what a user can mend is told in one line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign is no reason to fail
    warnings.showwarning = lambda message, *_: say(f"hashlearn: warning: {' '.join(str(message).split())}")
    try:
        with _logs_are_told():
            app()
    except (ValueError, OSError, ImportError, MemoryError, RecursionError) as error:
        if os.environ.get("HASHLEARN_DEBUG"):
            raise
        say(f"hashlearn: error: {' '.join(str(error).split()) or type(error).__name__}")
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        # Typer makes an exit of an interrupt.
        if isinstance(end, SystemExit) and end.code != 130:
            raise
        say("hashlearn: interrupted")
        sys.exit(130)


def in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    Console(markup=False).print(grid)


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(f"hashlearn {version_of('hashlearn')}")
        raise typer.Exit


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List the methods and their parameters.

    Example: hashlearn methods
    """
    from hashlearn.hashers import METHODS

    found = [
        {
            "method": name,
            "supervised": method.supervised,
            "parameters": {key: getattr(method(), key) for key in parameter_names(method)},
            "summary": _summary(method),
        }
        for name, method in METHODS.items()
    ]
    if as_json:
        return show(found, True, "")
    rows = [
        [
            str(m["method"]),
            "labels" if m["supervised"] else "none",
            str(m["summary"]),
            ", ".join(f"{key}={value}" for key, value in dict(m["parameters"]).items()),  # type: ignore[call-overload]
        ]
        for m in found
    ]
    return table("Methods", ["method", "needs", "what it does", "parameters (-p name=value)"], rows)


def _summary(method: type[Any]) -> str:
    """The first line of its docstring, which Python leaves out with -OO."""
    return next(iter((method.__doc__ or "").strip().splitlines()), "")


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List the data sets.

    Example: hashlearn data list
    """
    from hashlearn.datasets import DATASETS

    found = [
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
    if as_json:
        return show(found, True, "")
    for name, entry in DATASETS.items():
        sizes = f"{entry.n_train:,} to train, {entry.n_database:,} to search, {entry.n_queries:,} queries"
        print(f"{name}: {entry.description}\n    {sizes}; {entry.n_features} features\n    {entry.how}")
    return None


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, from hashlearn data list.")],
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Get a data set into the cache (and make its features), check it, and say what it is.

    Example: hashlearn data get mnist
    """
    dataset = load_dataset(name, source, split)
    shapes = {part: list(getattr(dataset, part).shape) for part in ("train", "database", "queries")}
    result = {"name": dataset.name, **shapes, "labels": dataset.query_labels is not None, "note": dataset.note}
    sizes = ", ".join(f"{part} {rows:,} x {columns}" for part, (rows, columns) in shapes.items())
    labels = "with labels" if result["labels"] else "without labels"
    show(result, as_json, f"{dataset.name}: {sizes}, {labels}" + (f"\n{dataset.note}" if dataset.note else ""))


@data_app.command("images")
def data_images(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist or cifar10.")],
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
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder; {out} is a file.")
    n = write_pictures(IMAGE_SETS[name](source), out)
    show({"name": name, "folder": str(out), "images": n}, as_json, f"{n:,} images of {name} below {out}")


@app.command()
def fit(
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A data set's name (data list), a file of vectors, or a folder of pictures."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")],
    method: Annotated[str, typer.Option("--method", "-m", help="A method's name (hashlearn methods).")] = "itq",
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of the code.")] = 32,
    labels: Annotated[
        Path | None, typer.Option(help="A label for each vector: a 1-D .npy, or a text file with one a line.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random in the method; 0 unless given.")] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="A parameter of the method, name=value; repeatable.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(help="Learn from so many at random; all unless given, of a folder of pictures 20,000."),
    ] = None,
    side: Annotated[
        int | None, typer.Option(help="Pictures are made so many pixels wide and high for their GIST; 64 unless given.")
    ] = None,
    key: Key = None,
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Learn a code from a data set's training part, a file of vectors or a folder of pictures, and save the model.

    Example: hashlearn fit mnist --method itq --bits 32 --out mnist.model

    Example: hashlearn fit photos --bits 64 --out photos.model

    Example: hashlearn fit vectors.npy -m itq -b 64 -p max_iter=100 -o my.model
    """
    from hashlearn.hashers import ModelMetadata

    check_out(out, None if is_dataset(input) else input, labels)
    hasher = make_hasher(method, bits, seed, parameter or [])
    y: Any = None
    features: dict[str, Any] | None = None
    if is_folder(input):
        refuse_options(f"{input} is a folder", key=key, labels=labels, source=source, split=split)
        X, features = picture_vectors(input, sample, side, seed or 0)
        trained_on = Path(input).resolve().name
    elif is_dataset(input):
        refuse_options(f"{input} is a data set", key=key, labels=labels, side=side)
        dataset = load_dataset(input, source, split)
        X, y, trained_on = dataset.train, dataset.train_labels, trained_on_text(dataset, split)
    else:
        refuse_options(f"{input} is a file", source=source, split=split, side=side)
        X, trained_on = read_input_file(input, key), Path(input).name
        if labels is not None:
            from hashlearn.vectors import read_labels

            y = read_labels(labels)
            if len(y) != len(X):
                raise ValueError(f"--labels must have a label for each of the {len(X)} vectors; it has {len(y)}.")
    if labels is not None and not hasher.supervised:
        raise ValueError(f"{method} learns without labels: leave --labels out.")
    if hasher.supervised and y is None:
        hint = f"{input} has none" if is_dataset(input) else "give them with --labels FILE"
        raise ValueError(f"{method} learns from labels: {hint}.")
    if sample is not None and sample < len(X):
        rows = sample_rows(len(X), sample, seed or 0)
        X, y = X[rows], None if y is None else [y[row] for row in rows]
    start = time.perf_counter()
    hasher.fit(X, y if hasher.supervised else None)
    seconds = time.perf_counter() - start
    hasher.save(out, metadata=ModelMetadata(trained_on, features))
    n, n_features = X.shape
    result = {
        "model": str(out),
        "method": method,
        "n_bits": bits,
        "trained_on": trained_on,
        "n_samples": n,
        "n_features": n_features,
        "seconds": seconds,
    }
    text = f"{method}, {bits} bits, from {n:,} vectors of {n_features} ({trained_on}) in {seconds:.1f} s: {out}"
    summary = hasher.summary()
    if summary:
        text += "\n" + ", ".join(f"{name.replace('_', ' ')} {in_words(value)}" for name, value in summary.items())
    show(result | summary, as_json, text)


@app.command()
def encode(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (hashlearn fit).")],
    input: Input,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of codes to write: .npy, .u8bin, .hdf5, …")],
    part: Annotated[
        str | None, typer.Option(help="Of a data set: train, database or queries; database unless given.")
    ] = None,
    format: Annotated[
        str, typer.Option(help="packed: the codes' bytes; sentence-transformers: its quantized embeddings.")
    ] = "packed",
    precision: Annotated[
        str | None,
        typer.Option(help="Of sentence-transformers: ubinary (uint8) or binary (int8); ubinary unless given."),
    ] = None,
    key: Key = None,
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Turn vectors into packed codes: one row of ceil(bits / 8) bytes each, most significant bit first.

    Example: hashlearn encode my.model vectors.npy --out codes.npy

    Example: hashlearn encode my.model vectors.npy --format sentence-transformers --precision binary --out codes.npy
    """
    import hashlearn
    from hashlearn.interchange.embeddings import check_precision, check_whole_bytes, to_sentence_transformers
    from hashlearn.vectors import format_of, write_vectors

    format_of(out)
    check_out(out, model, None if is_dataset(input) else input)
    if format == "packed":
        refuse_options("--format is packed", precision=precision)
    elif format == "sentence-transformers":
        precision = check_precision("ubinary" if precision is None else precision)
    else:
        raise ValueError(f"--format must be packed or sentence-transformers; got {format!r}.")
    if part not in (None, "train", "database", "queries"):
        raise ValueError(f"--part must be train, database or queries; got {part!r}.")
    hasher = hashlearn.load(model)
    if precision is not None:
        check_whole_bytes(hasher.n_bits_)
    if is_dataset(input):
        refuse_options(f"{input} is a data set", key=key)
        dataset = load_dataset(input, source, split)
        X, name = getattr(dataset, part or "database"), f"{dataset.name}, {part or 'database'}"
    else:
        refuse_options(f"{input} is a file", part=part, source=source, split=split)
        X, name = read_input_file(input, key), Path(input).name
    start = time.perf_counter()
    codes = hasher.encode(X)
    seconds = time.perf_counter() - start
    write_vectors(out, codes if precision is None else to_sentence_transformers(codes, hasher.n_bits_, precision))
    result = {
        "codes": str(out),
        "format": format,
        "precision": precision,
        "encoded": name,
        "n_samples": len(codes),
        "n_bits": hasher.n_bits_,
        "bytes_per_code": codes.shape[1],
        "seconds": seconds,
    }
    text = f"{len(codes):,} codes of {hasher.n_bits_} bits ({codes.shape[1]} bytes each) of {name}: {out}"
    if precision is not None:
        text += f" ({format}, {precision})"
    show(result, as_json, text)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (hashlearn fit).")],
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="A data set's name (hashlearn data list).")],
    truth: Annotated[
        str | None,
        typer.Option(help="neighbours or labels; unless given, neighbours with --k, or as in the paper."),
    ] = None,
    k: Annotated[int | None, typer.Option(help="Number of true neighbours, with truth by neighbours.")] = None,
    ap: Annotated[str | None, typer.Option(help="AP rule: all, retrieved or trapezoid.")] = None,
    cutoff: Annotated[int | None, typer.Option(help="Cut the ranking for AP at this rank; 0: the whole.")] = None,
    ties: Annotated[str | None, typer.Option(help="Order of equal distances: index or expected.")] = None,
    radius: Annotated[list[int] | None, typer.Option("--radius", "-r", help="Precision@radius; repeatable.")] = None,
    distance: Annotated[
        str | None,
        typer.Option(help="What ranks: hamming or spherical; unless given, the method's own (spherical for sph)."),
    ] = None,
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Judge a model on a data set: mAP and precision within Hamming radii, with the protocol that defines them.

    Example: hashlearn evaluate mnist.model --dataset mnist

    Example: hashlearn evaluate mnist.model -d mnist --truth labels --ties expected -r 2
    """
    import hashlearn
    from hashlearn.experiments import judge

    hasher = hashlearn.load(model)
    distance = hasher.distance if distance is None else distance
    chosen = choose_setting(
        dataset, truth, k, ap, cutoff, ties, radius, supervised=hasher.supervised, distance=distance
    )
    data = load_dataset(dataset, source, split)
    trained_on = hasher.metadata_.trained_on or "unknown data"
    if trained_on != trained_on_text(data, split):
        say(f"hashlearn: note: the model was trained on {trained_on}, not on {trained_on_text(data, split)}.")
    scores = judge(hasher, data, chosen)
    result = {"model": str(model), "method": hasher.name, "dataset": data.name, "trained_on": trained_on}
    if as_json:
        return show({**result, **scores.as_dict()}, True, "")
    columns = ["method", "bits", "mAP", *(f"P@{r}" for r in scores.precision_at_radius)]
    values = [scores.map, *scores.precision_at_radius.values()]
    row = [hasher.name, str(scores.n_bits), *(f"{100 * value:.2f}" for value in values)]
    table(f"{data.name}: {len(scores.average_precision):,} queries, {scores.n_database:,} items", columns, [row])
    print(f"percent; truth: {scores.truth}; {scores.protocol}")
    if scores.queries_without_relevant:
        print(f"{scores.queries_without_relevant:,} queries have no relevant item and count 0")
    if data.note:
        print(data.note)
    return None


if __name__ == "__main__":
    main()
