"""The commands that make and use models: list the methods, fit, encode."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn.cli import inputs
from hashlearn.cli.options import (
    AsJson,
    Input,
    Key,
    Model,
    Source,
    Split,
    complete_features,
    complete_method,
    refuse_options,
)
from hashlearn.cli.render import format_value, note, printable, show, table
from hashlearn.progress import count

if TYPE_CHECKING:
    from hashlearn.hashers import Hasher

# Parameters of every method that are options: --bits, --normalize and --seed.
_OPTIONS = ("n_bits", "normalize", "random_state")


def methods(as_json: AsJson = False) -> None:
    """List the methods and their parameters.

    Example: hashlearn methods
    """
    from hashlearn.hashers import METHODS

    result: list[dict[str, Any]] = [
        {
            "method": name,
            "supervised": method.supervised,
            "parameters": {key: getattr(method(), key) for key in parameter_names(method)},
            # The first line of the docstring, which Python leaves out with -OO.
            "summary": next(iter((method.__doc__ or "").strip().splitlines()), ""),
        }
        for name, method in METHODS.items()
    ]
    if as_json:
        return show(result, True, "")
    rows = []
    for entry in result:
        parameters = ", ".join(f"{key}={value}" for key, value in entry["parameters"].items())
        rows.append([entry["method"], "labels" if entry["supervised"] else "none", entry["summary"], parameters])
    return table("Methods", ["method", "needs", "what it does", "parameters (-p name=value)"], rows)


def fit(
    input: Input,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-m",
            help="A method (hashlearn methods), or auto: the best of several on held-out training vectors; with "
            "--labels, of those that learn from labels.",
            autocompletion=complete_method,
        ),
    ] = "auto",
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of the code.")] = 32,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|folders",
            help="A label for each vector or picture: a 1-D .npy, or a text file with one per line; pictures are in "
            "the order of their sorted paths. folders: the subfolder of INPUT that a picture is in.",
        ),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Bring vectors to unit length first: for cosine similarity.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of all random choices: of the sample and of the method. Default: 0.")
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="A parameter of the method, name=value; repeatable.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="Size of a random sample to learn from. Default: all vectors, 20,000 pictures.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Features of pictures. Default: gist.", autocompletion=complete_features)
    ] = None,
    side: Annotated[int | None, typer.Option(help="Width and height of pictures for their GIST. Default: 64.")] = None,
    key: Key = None,
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Learn a code from the training part of a data set, a file of vectors or a folder of pictures; save the model.

    Example: hashlearn fit vectors.npy --bits 64 --out my.model

    Example: hashlearn fit mnist --method itq --bits 32 --out mnist.model

    Example: hashlearn fit photos --bits 64 --out photos.model

    Example: hashlearn fit photos --method sdh --labels folders --bits 16 --out photos.model

    Example: hashlearn fit vectors.npy --normalize --bits 128 --out my.model

    Example: hashlearn fit vectors.npy -m itq -b 64 -p max_iter=100 -o my.model
    """
    from hashlearn.compare import choose, recommended
    from hashlearn.hashers import ModelMetadata

    inputs.check_out(out, input, None if labels == inputs.FOLDERS else labels)
    if method == "auto":
        refuse_options("--method is auto", parameter=parameter)
        hasher = recommended(bits, supervised=labels is not None, normalize=normalize, random_state=seed or 0)
    else:
        hasher = make_hasher(method, bits, seed, parameter or [], normalize=normalize)
    options: dict[str, Any] = {"features": features, "side": side, "key": key, "source": source, "split": split}
    data = inputs.read_training(input, hasher, labels=labels, sample=sample, seed=seed, **options)
    start = time.perf_counter()
    chosen: dict[str, Any] = {}
    if method == "auto":
        choice = choose(data.X, bits, data.labels, normalize=normalize, random_state=seed or 0)
        hasher, method = choice.hasher, choice.hasher.name
        chosen = {"scores": choice.scores, "reason": choice.reason}
        note(f"--method auto: {choice.reason}")
    hasher.fit(data.X, data.labels)
    seconds = time.perf_counter() - start
    hasher.save(out, metadata=ModelMetadata(data.name, data.features))
    n, n_features = data.X.shape
    result = {"model": str(out), "method": method, "n_bits": bits, "trained_on": data.name}
    result |= {"n_samples": n, "n_features": n_features, "seconds": seconds, **chosen}
    text = f"{method}, {bits} bits, from {n:,} vectors of {n_features} ({data.name}) in {seconds:.1f} s: {out}"
    summary = hasher.summary()
    if summary:
        text += "\n" + ", ".join(f"{name.replace('_', ' ')} {format_value(value)}" for name, value in summary.items())
    show(result | summary, as_json, text)


def make_hasher(method: str, bits: int, seed: int | None, parameters: list[str], *, normalize: bool = False) -> Hasher:
    from hashlearn.errors import check_name, shown
    from hashlearn.hashers import METHODS

    check_name("method", method, METHODS)
    chosen: dict[str, Any] = {}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"-p takes name=value; got {shown(text)}.")
        check_name(f"parameter of {method}", name, parameter_names(METHODS[method]))
        chosen[name] = _parse_parameter(value)
    hasher = METHODS[method](n_bits=bits, normalize=normalize, **chosen)
    if hasher.is_random:
        hasher.set_params(random_state=seed or 0)
    return hasher


def parameter_names(method: type[Hasher]) -> list[str]:
    """Parameters for -p: not those that are options, nor those that only Python can set."""
    return [name for name in method.saved_parameters() if name not in _OPTIONS]


def _parse_parameter(text: str) -> Any:
    """``10``, ``0.5``, ``true``, ``none``, ``[90, 20]`` as Python values; anything else as text."""
    from hashlearn.storage import parse_json

    constants = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in constants:
        return constants[text.lower()]
    try:
        return parse_json(text)
    except ValueError:
        return text


def encode(
    model: Model,
    input: Input,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of codes to write: .npy, .u8bin, .hdf5, …")],
    part: Annotated[str | None, typer.Option(help="Part of a data set: train, database (default) or queries.")] = None,
    format: Annotated[str, typer.Option(help="packed, or sentence-transformers: its quantized embeddings.")] = "packed",
    precision: Annotated[
        str | None, typer.Option(help="For sentence-transformers: ubinary (uint8, the default) or binary (int8).")
    ] = None,
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Leave out pictures that can't be read; write the paths of the others to NAME-paths.txt.",
        ),
    ] = False,
    key: Key = None,
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Encode vectors or pictures: one row of ceil(bits / 8) bytes each, most significant bit first.

    The rows of a folder of pictures are in the order of their sorted paths.

    Example: hashlearn encode my.model vectors.npy --out codes.npy

    Example: hashlearn encode photos.model photos --skip-unreadable --out codes.npy

    Example: hashlearn encode my.model vectors.npy --format sentence-transformers --precision binary --out codes.npy
    """
    import hashlearn
    from hashlearn.interchange.embeddings import check_precision, check_whole_bytes, to_sentence_transformers
    from hashlearn.storage import atomic_path
    from hashlearn.vectors import get_format, write_vectors

    get_format(out)
    inputs.check_out(out, model, input)
    if format == "packed":
        refuse_options("--format is packed", precision=precision)
    elif format == "sentence-transformers":
        precision = check_precision("ubinary" if precision is None else precision)
    else:
        raise ValueError(f"--format must be packed or sentence-transformers; got {format!r}.")
    if part not in (None, "train", "database", "queries"):
        raise ValueError(f"--part must be train, database or queries; got {part!r}.")
    kind = inputs.find_kind(input, key=key, part=part, source=source, split=split, skip_unreadable=skip_unreadable)
    hasher = hashlearn.load(model)
    if precision is not None:
        check_whole_bytes(hasher.n_bits_)
    paths_file = out.with_name(f"{out.stem}-paths.txt") if skip_unreadable else None
    if paths_file is not None:
        inputs.check_out(paths_file, model, input)
    if kind == "folder":
        data = inputs.read_pictures(input, hasher, skip_unreadable=skip_unreadable)
    else:
        data = inputs.read_input(input, part or "database", key, kind, source, split)
    name = f"{data.name}, {part or 'database'}" if kind == "dataset" else data.name
    start = time.perf_counter()
    codes = hasher.encode(data.X)
    seconds = time.perf_counter() - start
    write_vectors(out, codes if precision is None else to_sentence_transformers(codes, hasher.n_bits_, precision))
    if paths_file is not None:
        with atomic_path(paths_file) as temporary:
            temporary.write_text("".join(f"{printable(path)}\n" for path in data.paths), encoding="utf-8")
    paths = None if paths_file is None else str(paths_file)
    result: dict[str, Any] = {"codes": str(out), "paths": paths, "format": format, "precision": precision}
    result |= {"encoded": name, "n_samples": len(codes), "n_bits": hasher.n_bits_}
    result |= {"bytes_per_code": codes.shape[1], "seconds": seconds}
    text = (
        f"{count(len(codes), 'code')} of {hasher.n_bits_} bits ({count(codes.shape[1], 'byte')} each) of {name}: {out}"
    )
    if precision is not None:
        text += f" ({format}, {precision})"
    show(result, as_json, text if paths_file is None else f"{text}, {paths_file}")


COMMANDS = (methods, fit, encode)
