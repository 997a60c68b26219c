"""The commands that judge models: evaluate, check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn.cli import inputs
from hashlearn.cli.options import AsJson, Key, Model, Source, Split, complete_dataset, refuse_options
from hashlearn.cli.render import note, show, table

if TYPE_CHECKING:
    from hashlearn.evaluation import Truth


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


COMMANDS = (evaluate, check)
