"""The commands on models: list the methods, fit, encode, evaluate."""

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
    complete_dataset,
    complete_features,
    complete_method,
    refuse_options,
)
from hashlearn.cli.render import format_value, note, printable, show, table
from hashlearn.progress import count

if TYPE_CHECKING:
    from hashlearn.evaluation import Truth
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


def evaluate(
    model: Model,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", help="A data set (hashlearn data list).", autocompletion=complete_dataset),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="A file of your own vectors, instead of a data set: recall, with re-ranking.")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="With --vectors, a file of queries. Default: 1,000 of the vectors.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="With --vectors: euclidean, cosine or inner_product. Default: euclidean; cosine if the model "
            "normalizes vectors."
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="With --vectors: how many of the first items to compare again by vectors. Default: 5, 10 and 20 k.",
        ),
    ] = None,
    judgments: Annotated[
        Path | None,
        typer.Option(
            help="With --queries, what is relevant: a file of judgments of the TREC or BEIR form, instead of the "
            "nearest neighbors."
        ),
    ] = None,
    query_ids: Annotated[
        Path | None, typer.Option(help="With --judgments: what they call each query, one per line.")
    ] = None,
    item_ids: Annotated[
        Path | None, typer.Option(help="With --judgments: what they call each vector, one per line.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="With --vectors, seed of the draw of queries. Default: 0.")
    ] = None,
    key: Key = None,
    truth: Annotated[
        str | None, typer.Option(help="neighbors or labels. Default: neighbors with --k, otherwise as in the paper.")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k", "-k", help="Number of true neighbors, with truth by neighbors. With --vectors: 10 by default."
        ),
    ] = None,
    ap: Annotated[str | None, typer.Option(help="AP rule: all, retrieved or trapezoid.")] = None,
    cutoff: Annotated[int | None, typer.Option(help="Rank at which the ranking is cut for AP; 0: not at all.")] = None,
    ties: Annotated[str | None, typer.Option(help="Order of equal distances: index or expected.")] = None,
    radius: Annotated[list[int] | None, typer.Option("--radius", "-r", help="Precision@radius; repeatable.")] = None,
    distance: Annotated[
        str | None, typer.Option(help="hamming or spherical. Default: the distance of the method.")
    ] = None,
    source: Source = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on a data set: mAP and precision within Hamming radii, with the protocol that defines them.

    With --vectors, on your own vectors: the recall of nearest neighbors, with and without re-ranking.

    Example: hashlearn evaluate mnist.model --dataset mnist

    Example: hashlearn evaluate mnist.model -d mnist --truth labels --ties expected -r 2

    Example: hashlearn evaluate my.model --vectors vectors.npy --queries queries.npy -k 10
    """
    if (dataset is None) == (vectors is None):
        raise ValueError("give either --dataset or --vectors.")
    protocol = {"truth": truth, "ap": ap, "cutoff": cutoff, "ties": ties, "radius": radius, "distance": distance}
    own: dict[str, Any] = {"queries": queries, "metric": metric, "rerank": rerank, "judgments": judgments}
    own |= {"query_ids": query_ids, "item_ids": item_ids, "seed": seed, "key": key}
    if vectors is not None:
        refuse_options("--vectors is given", **protocol, source=source, split=split)
        return _evaluate_on_vectors(model, vectors, k=k, as_json=as_json, **own)
    assert dataset is not None
    refuse_options("--dataset is given", **own)
    return _evaluate_on_dataset(model, dataset, k, protocol, source, split, as_json)


def _evaluate_on_vectors(
    model: Path,
    vectors: Path,
    *,
    queries: Path | None,
    k: int | None,
    metric: Any,
    rerank: str | None,
    judgments: Path | None,
    query_ids: Path | None,
    item_ids: Path | None,
    seed: int | None,
    key: str | None,
    as_json: bool,
) -> None:
    import hashlearn
    from hashlearn.compare import evaluate_model
    from hashlearn.errors import shown
    from hashlearn.vectors import read_vectors

    if len({judgments is None, query_ids is None, item_ids is None}) > 1:
        raise ValueError("--judgments, --query-ids and --item-ids must be given together.")
    if judgments is not None and queries is None:
        raise ValueError("--judgments must be given together with --queries.")
    if queries is not None:
        refuse_options("--queries is given", seed=seed)
    k = 10 if k is None else k
    depths = None
    if rerank is not None:
        try:
            depths = [int(part) for part in rerank.split(",")]
        except ValueError:
            raise ValueError(f"--rerank must be whole numbers separated by commas; got {shown(rerank)}.") from None
        if min(depths) < k:
            raise ValueError(f"--rerank must be at least {k}, the number of neighbors (-k); got {min(depths)}.")
    for option, file in (("--vectors", vectors), ("--queries", queries)):
        if file is not None:
            inputs.check_file(option, file)
    hasher = hashlearn.load(model)
    X = read_vectors(vectors, key=key)
    Q = None if queries is None else read_vectors(queries, key=key)
    truth = None
    if judgments is not None and query_ids is not None and item_ids is not None:
        Q, truth = _judged(Q, judgments, query_ids, item_ids)
    scores = evaluate_model(hasher, X, Q, k=k, metric=metric, rerank_depths=depths, truth=truth, random_state=seed or 0)
    if as_json:
        return show({"model": str(model), "method": hasher.name, **scores.as_dict()}, True, "")
    rows = []
    for ranking in scores.rankings:
        values = [f"{100 * value:.2f}" for value in ranking.scores.values()]
        values[0] += f" ± {100 * ranking.standard_errors['recall']:.2f}"
        names_of = {"code": "code", "real": "real-valued"}
        rows.append([names_of[ranking.query], f"{ranking.reranked:,}" if ranking.reranked else "", *values])
    columns = [f"{name}@{scores.k}" for name in ("recall", "precision", "nDCG", "MRR")]
    title = f"{hasher.name}, {scores.n_bits} bits: {scores.n_queries:,} queries, {scores.n_database:,} items"
    table(title, ["query", "re-ranked", *columns], rows)
    print(f"percent ± standard error; truth: {scores.truth}")
    if scores.queries_without_relevant:
        print(f"queries without a relevant item, which count 0: {scores.queries_without_relevant:,}")
    if scores.held_out:
        note(
            "the queries were drawn from the vectors. If the model was trained on them, it may find others worse: "
            "give some with --queries."
        )
    return None


def _judged(Q: Any, judgments: Path, query_ids: Path, item_ids: Path) -> tuple[Any, Truth]:
    """Return the queries that were judged, and the truth of them."""
    from hashlearn.evaluation import Truth, read_judgments

    for option, path in (("--judgments", judgments), ("--query-ids", query_ids), ("--item-ids", item_ids)):
        inputs.check_file(option, path)
    names, items = (
        [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        for path in (query_ids, item_ids)
    )
    if len(names) != len(Q):
        raise ValueError(f"--query-ids must have a line for each of the {len(Q):,} queries; got {len(names):,}.")
    all_judgments = read_judgments(judgments)
    judged = {judgment.query for judgment in all_judgments}
    chosen = [number for number, name in enumerate(names) if name in judged]
    if chosen and len(chosen) < len(names):
        note(f"{len(names) - len(chosen):,} of the {len(names):,} queries have no judgments and are left out.")
        Q, names = Q[chosen], [names[number] for number in chosen]
    return Q, Truth.judgments(all_judgments, names, items)


def _evaluate_on_dataset(
    model: Path,
    dataset: str,
    k: int | None,
    protocol: dict[str, Any],
    source: Path | None,
    split: int | None,
    as_json: bool,
) -> None:
    import hashlearn
    from hashlearn.datasets import DATASETS
    from hashlearn.errors import check_name
    from hashlearn.evaluation import choose_setting
    from hashlearn.experiments import judge

    check_name("data set", dataset, DATASETS)
    hasher = hashlearn.load(model)
    choices = {name: protocol[name] for name in ("truth", "ap", "cutoff", "ties")}
    distance = hasher.distance if protocol["distance"] is None else protocol["distance"]
    choices |= {"k": k, "radii": protocol["radius"], "distance": distance}
    setting = choose_setting(dataset, supervised=hasher.supervised, **choices)
    data = inputs.load_dataset(dataset, source, split)
    trained_on = hasher.metadata_.trained_on or "unknown data"
    if trained_on != inputs.describe_dataset(data.name, split):
        note(f"the model was trained on {trained_on}, not on {inputs.describe_dataset(data.name, split)}.")
    scores = judge(hasher, data, setting)
    result = {"model": str(model), "method": hasher.name, "dataset": data.name, "trained_on": trained_on}
    if as_json:
        return show({**result, **scores.as_dict()}, True, "")
    columns = ["method", "bits", "mAP", *(f"P@{r}" for r in scores.precision_at_radius)]
    values = [scores.map, *scores.precision_at_radius.values()]
    row = [hasher.name, str(scores.n_bits), *(f"{100 * value:.2f}" for value in values)]
    table(f"{data.name}: {len(scores.average_precision):,} queries, {scores.n_database:,} items", columns, [row])
    print(f"percent; truth: {scores.truth}; {scores.protocol}")
    if scores.queries_without_relevant:
        print(f"queries without a relevant item, which count 0: {scores.queries_without_relevant:,}")
    if data.note:
        print(data.note)
    return None


def check(
    model: Model,
    vectors: Annotated[Path, typer.Argument(metavar="VECTORS", help="A file of new vectors.")],
    k: Annotated[int, typer.Option("--k", "-k", help="Number of true neighbors.")] = 10,
    metric: Annotated[
        str | None,
        typer.Option(
            help="euclidean, cosine or inner_product. Default: euclidean; cosine if the model normalizes vectors."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw of vectors, and of the training.")] = 0,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a model still fits new vectors, and what training it again on them would bring.

    Of at most 20,000 of the vectors, 1,000 search the others by the model's codes, and by those of a model that is
    trained on the others.

    Example: hashlearn check my.model vectors.npy
    """
    import hashlearn
    from hashlearn.compare import check_model
    from hashlearn.vectors import read_vectors

    inputs.check_file("VECTORS", vectors)
    hasher = hashlearn.load(model)
    found = check_model(hasher, read_vectors(vectors, key=key), k=k, metric=metric, random_state=seed)  # type: ignore[arg-type]
    if as_json:
        return show({"model": str(model), "method": hasher.name, **found.as_dict()}, True, "")
    rows = []
    for name, quality in (("the model", found.model), ("retrained", found.retrained)):
        bits = quality.bits
        values = (quality.recall, quality.explained, bits.imbalance, bits.correlation, bits.utilization)
        rows.append([name, *(f"{100 * value:.1f}" for value in values)])
    columns = [f"recall of {k} in {10 * k}", "variance explained", "imbalance", "correlation", "distinct codes"]
    title = f"{hasher.name}, {hasher.n_bits_} bits: {found.n_queries:,} queries, {found.n_searched:,} items"
    table(title, ["", *columns], rows)
    print(f"percent; gain in recall {100 * found.gain:.1f} ± {100 * found.standard_error:.1f}")
    print(found.verdict)
    return None


COMMANDS = (methods, fit, encode, evaluate, check)
