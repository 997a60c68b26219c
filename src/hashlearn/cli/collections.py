"""The commands on collections: index, search, add, remove, info, duplicates, export."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn.cli.inputs import Vectors, check_file, check_out, find_kind, is_picture, is_sqlite, read_input
from hashlearn.cli.options import AsJson, Input, Key, Model, complete_dataset, refuse_options
from hashlearn.cli.render import NO_SOURCE, note, print_matches, printable, say, show
from hashlearn.progress import count

if TYPE_CHECKING:
    from hashlearn.collection import Collection, Ingested
    from hashlearn.collection.contact_sheet import PictureFiles, PictureRows

CollectionFile = Annotated[Path, typer.Argument(metavar="COLLECTION", help="A collection (hashlearn index).")]
Html = Annotated[Path | None, typer.Option(help="Also write a page with the pictures to this file.")]
PicturesFolder = Annotated[
    Path | None,
    typer.Option("--pictures", help="With --html: show pictures below this folder. Default: the collection's folder."),
]

# Memory that a parsed byte of JSON may take in Python, as in a list of numbers.
_PARSED_BYTES = 20
_LISTED_UNREADABLE = 20


def index(
    model: Model,
    input: Input,
    out: Annotated[Path, typer.Option("--out", "-o", help="The collection to create or to continue.")],
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Create a collection that can be searched: the codes of all pictures below a folder, or of all vectors of a file.

    After an interruption the same command continues. Pictures that can't be read are listed and left out; if none can
    be read, the exit code is 1. The id of a vector is its row. Items that were removed from the collection, but are
    still in the folder or file, are added again.

    Example: hashlearn index photos.model photos --out photos.hl
    """
    import hashlearn
    from hashlearn.collection import open_or_create
    from hashlearn.storage import check_target

    check_target(out)
    hasher = hashlearn.load(model)
    kind = find_kind(input, key=key)
    if kind == "folder":
        with open_or_create(out, hasher, source=Path(input).resolve().name, folder=input) as collection:
            _show_ingested(collection, collection.add_images(input), as_json)
    else:
        data = read_input(input, "database", key, kind)
        with open_or_create(out, hasher, source=data.name, vectors=data.X) as collection:
            _show_ingested(collection, collection.add_vectors(data.X, by_row=True), as_json)


def add(
    collection: CollectionFile,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT ...", help="Pictures, folders, or a file of vectors.")],
    ids: Annotated[Path | None, typer.Option(help="Ids of vectors: a 1-D .npy, or a text file, one per line.")] = None,
    payloads: Annotated[Path | None, typer.Option(help="Payloads of vectors: a file, one JSON value per line.")] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Add pictures or vectors to a collection. Pictures that it already contains are skipped.

    Example: hashlearn add photos.hl new/cat.jpg new/dog.jpg
    """
    from hashlearn.collection import Collection

    with Collection.open(collection) as opened:
        if opened.extractor is None:
            if len(inputs) != 1:
                raise ValueError(f"{collection} was made of vectors: add one file of vectors at a time.")
            data = _read_vectors(inputs[0], "database", key, opened)
            new_ids, values = _read_ids(ids), _read_payloads(payloads)
            ingested = opened.add_vectors(data.X, ids=new_ids, payloads=values, count_known=new_ids is None)
        else:
            refuse_options(f"{collection} is made of pictures", key=key, ids=ids, payloads=payloads)
            for input in inputs:
                if Path(input).is_file() and not is_picture(input, opened):
                    raise _wrong_kind(opened, "pictures and folders", input, "a file of vectors")
            ingested = opened.add_images(inputs)
        _show_ingested(opened, ingested, as_json)


def _read_vectors(input: str, part: str, key: str | None, collection: Collection) -> Vectors:
    """Read vectors to add to a collection or to search it with."""
    kind = find_kind(input, key=key)
    if kind == "folder" or is_picture(input, collection):
        takes = "a file of vectors" if collection.extractor is None else "a picture or a file of vectors"
        raise _wrong_kind(collection, takes, input, "a folder" if kind == "folder" else "a picture")
    return read_input(input, part, key, kind)


def _wrong_kind(collection: Collection, takes: str, input: str, what: str) -> ValueError:
    holds = "vectors" if collection.extractor is None else "pictures"
    return ValueError(f"{collection.path} holds {holds} and takes {takes}; {input} is {what}.")


def _show_ingested(collection: Collection, ingested: Ingested, as_json: bool) -> None:
    for path, reason in ingested.unreadable[:_LISTED_UNREADABLE]:
        say(f"skipped: {printable(path)}: {printable(reason)}")
    more = len(ingested.unreadable) - _LISTED_UNREADABLE
    if more > 0:
        say(f"skipped: {more:,} more (--json lists them all)")
    result = {
        "collection": str(collection.path),
        "items": len(collection),
        "added": ingested.added,
        "already_present": ingested.already_present,
        "known_codes": ingested.known_codes,
        "unreadable": [{"path": path, "reason": reason} for path, reason in ingested.unreadable],
    }
    if ingested.known_codes and ingested.known_codes == ingested.added:
        one = ingested.added == 1
        codes, they = ("code of the vector", "it") if one else (f"codes of all {ingested.added:,} vectors", "they")
        note(f"the collection had the {codes} before: {they} may now be in it twice (hashlearn duplicates).")
    words = [f"{count(ingested.added, 'item')} added"]
    if ingested.already_present:
        words.append(f"{ingested.already_present:,} already present")
    if ingested.unreadable:
        words.append(f"{len(ingested.unreadable):,} unreadable")
    show(result, as_json, f"{', '.join(words)}; {len(collection):,} in {collection.path}")
    if ingested.unreadable and not ingested.added and not ingested.already_present:
        raise typer.Exit(1)


def _read_ids(path: Path | None) -> list[int] | None:
    from hashlearn.vectors import read_labels

    if path is None:
        return None
    check_file("--ids", path)
    labels = [str(label) for label in read_labels(path)]
    if not all(label.isdecimal() for label in labels):
        raise ValueError(f"{path} must hold whole numbers of at least 0, one per line.")
    return [int(label) for label in labels]


def _read_payloads(path: Path | None) -> list[Any] | None:
    if path is None:
        return None
    from hashlearn.memory import free_memory
    from hashlearn.storage import open_regular, parse_json

    check_file("--payloads", path)
    payloads = []
    with open_regular(path) as file:
        size, free = os.fstat(file.fileno()).st_size, free_memory()
        if 0 < free < _PARSED_BYTES * size:
            raise ValueError(f"{path} has {size:,} bytes, too many for the {free:,} bytes of memory that are free.")
        for number, line in enumerate(file, 1):
            try:
                payloads.append(parse_json(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not a JSON value ({error}).") from None
    return payloads


def remove(
    collection: CollectionFile,
    what: Annotated[list[str], typer.Argument(metavar="ID|PATH ...", help="Ids, or paths as `search` shows them.")],
    as_json: AsJson = False,
) -> None:
    """Remove items from a collection, by id or by path. If one does not exist, nothing is removed.

    Example: hashlearn remove photos.hl 17 cats/7.png
    """
    from hashlearn.collection import Collection

    with Collection.open(collection) as opened:
        sources = opened.find_ids(what)
        if any(word not in sources and not word.isdecimal() for word in what):
            # As `search` shows them, with odd characters escaped.
            sources = {printable(source): ids for source, ids in opened.find_ids().items()} | sources
        for word in what:
            if word not in sources and not word.isdecimal():
                raise ValueError(f"{word!r} is neither an id nor the path of an item of {collection}.")
        ids = list(dict.fromkeys(id for word in what for id in sources.get(word) or [int(word)]))
        opened.remove(ids)
        result = {"collection": str(collection), "removed": ids, "items": len(opened)}
        show(result, as_json, f"{count(len(ids), 'item')} removed; {len(opened):,} left in {collection}")


def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A collection (hashlearn index) or a model.")],
    as_json: AsJson = False,
) -> None:
    """Describe a collection or a model.

    Example: hashlearn info photos.hl
    """
    result = _collection_info(file) if is_sqlite(file) else _model_info(file)
    lines = [
        f"{name.replace('_', ' ')}: {f'{value:,}' if isinstance(value, int) else printable(str(value))}"
        for name, value in result.items()
        if value is not None
    ]
    show(result, as_json, "\n".join(lines))


def _collection_info(path: Path) -> dict[str, Any]:
    from hashlearn.collection import Collection
    from hashlearn.collection.ingest import display_root

    with Collection.open(path, readonly=True) as opened:
        extractor = opened.extractor
        return {
            "file": str(path),
            "kind": "collection",
            "items": len(opened),
            "n_bits": opened.n_bits,
            "bytes": path.stat().st_size,
            "method": opened.about["method"],
            "n_features": opened.about["n_features"],
            "features": None if extractor is None else str(extractor),
            "made_of": opened.info.get("input"),
            "pictures_in": None if extractor is None else display_root(opened),
            "hashlearn": opened.about["hashlearn"],
        }


def _model_info(path: Path) -> dict[str, Any]:
    import hashlearn
    from hashlearn.collection.ingest import model_extractor

    hasher = hashlearn.load(path)
    extractor = model_extractor(hasher)
    return {
        "file": str(path),
        "kind": "model",
        "method": hasher.name,
        "n_bits": hasher.n_bits_,
        "n_features": int(hasher.n_features_in_),
        "features": None if extractor is None else str(extractor),
        "trained_on": hasher.metadata_.trained_on,
        "bytes": path.stat().st_size,
    }


def search(
    collection: CollectionFile,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY", help="A picture, a file of vectors, or a data set's name.", autocompletion=complete_dataset
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="Number of nearest items. Default: 10.")] = None,
    radius: Annotated[int | None, typer.Option("--radius", "-r", help="All items within this distance.")] = None,
    id: Annotated[int | None, typer.Option(help="Search with the code of this item, instead of a QUERY.")] = None,
    html: Html = None,
    pictures: PicturesFolder = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Find the items whose codes are nearest to the code of a picture, or of each vector of a file.

    Example: hashlearn search photos.hl query.jpg -k 10 --html found.html

    Example: hashlearn search photos.hl --id 17 --radius 4 --json
    """
    from hashlearn.collection import Collection
    from hashlearn.collection.contact_sheet import Picture, PictureFiles

    if k is not None and radius is not None:
        raise ValueError("-k and --radius do not go together: choose one.")
    if (query is None) == (id is None):
        raise ValueError("a QUERY or --id is needed, one of them.")
    query = query or ""
    _check_page(html, pictures)
    with Collection.open(collection, readonly=True) as opened:
        files = PictureFiles.from_collection(opened, pictures)
        picture: list[Picture] = []  # that was searched with, if it was one
        names: list[Any]
        if id is not None:
            refuse_options("--id names an item", key=key)
            (item,) = opened.get([id])
            if item.source is not None:
                picture = [Picture(files.find(item.source), "query", query=True)]
            names, answers = [item.source or f"id {id}"], opened.search_ids([id], k, radius=radius)
        elif is_picture(query, opened):
            refuse_options(f"{query} is a picture", key=key)
            picture = [Picture(Path(query), "query", query=True)]
            names, answers = [query], opened.search_images(query, k, radius=radius)
        else:
            data = _read_vectors(query, "queries", key, opened)
            names, answers = list(range(len(data.X))), opened.search_vectors(data.X, k, radius=radius)
        size = f"{count(len(opened), 'item')} of {opened.n_bits} bits"
    results = list(zip(names, answers, strict=True))
    if as_json:
        answer = [{"query": name, "matches": [asdict(match) for match in matches]} for name, matches in results]
        print(json.dumps(answer, indent=2))
    elif len(results) == 1:
        print_matches(answers[0])
    else:
        for name, matches in results:
            words = (f"{printable(match.source or str(match.id))} ({match.distance})" for match in matches)
            print(f"{name}: {', '.join(words) or 'nothing'}")
    if html is not None:
        rows = ((str(name), [*picture, *map(files.show, matches)]) for name, matches in results)
        scope = f"{10 if k is None else k} nearest" if radius is None else f"all within {radius}"
        _write_page(html, f"Search of {collection.name}", f"{scope}, of {size}", rows, files)


def duplicates(
    collection: CollectionFile,
    radius: Annotated[int, typer.Option("--radius", "-r", help="Largest Hamming distance between duplicates.")] = 0,
    html: Html = None,
    pictures: PicturesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Find groups of near-duplicates: items linked by steps of at most this distance.

    Example: hashlearn duplicates photos.hl --radius 2 --html twins.html
    """
    from hashlearn.collection import Collection, near_duplicates
    from hashlearn.collection.contact_sheet import PictureFiles

    _check_page(html, pictures)
    with Collection.open(collection, readonly=True) as opened:
        files = PictureFiles.from_collection(opened, pictures)
        groups = [opened.get(ids, skip_missing=True) for ids in near_duplicates(opened.index, radius)]
    titles = [f"{number}: {count(len(group), 'item')}" for number, group in enumerate(groups, 1)]
    if as_json:
        print(json.dumps([[{"id": item.id, "source": item.source} for item in group] for group in groups], indent=2))
    else:
        for title, group in zip(titles, groups, strict=True):
            print(f"group {title}")
            for item in group:
                print(f"  {item.id}\t{printable(item.source or NO_SOURCE)}")
        say(f"{count(len(groups), 'group')}, {count(sum(map(len, groups)), 'item')} in them")
    if html is not None:
        rows = ((f"Group {title}", map(files.show, group)) for title, group in zip(titles, groups, strict=True))
        subtitle = f"{count(len(groups), 'group')} of items linked by distances of at most {radius}"
        _write_page(html, f"Near-duplicates in {collection.name}", subtitle, rows, files)


def _check_page(html: Path | None, pictures: Path | None) -> None:
    """Refuse to write a page over anything but a page, and --pictures without a page."""
    if html is None:
        return refuse_options("no page is written (--html)", pictures=pictures)
    if pictures is not None and not pictures.is_dir():
        raise ValueError(f"--pictures must be a folder; {pictures} is not.")
    check_out(html)
    if html.exists():
        with open(html, "rb") as file:
            head = file.read(1024)
        if head and b"<!doctype html" not in head.lower():
            raise ValueError(f"{html} exists and is not an HTML page: choose another name for --html.")
    return None


def _write_page(path: Path, title: str, subtitle: str, rows: PictureRows, files: PictureFiles) -> None:
    from hashlearn.collection.contact_sheet import write_contact_sheet

    write_contact_sheet(path, title, subtitle, rows)
    say(f"{path} shows the {'pictures' if files.has_pictures else 'ids, since the collection holds vectors'}")
    if files.hidden:
        where = "the collection's folder" if files.folder is None else str(files.folder)
        words = f"{count(len(files.hidden), 'picture')} not shown, because not below {where}"
        note(f"{words}; --pictures DIR shows those below DIR")


def export(
    input: Annotated[Path, typer.Argument(metavar="INPUT", help="A collection, or a model for onnx.")],
    to: Annotated[str, typer.Option(help="faiss, npy, parquet or pgvector; onnx for a model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    table: Annotated[str | None, typer.Option(help="With pgvector: the table. Default: the name of INPUT.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a collection, or a model, for other programs.

    faiss: a binary index with ids. npy: codes, and ids beside them. parquet: a table. pgvector: SQL for PostgreSQL.
    onnx: the encoder of a model.

    Example: hashlearn export photos.hl --to faiss --out photos.faiss

    Example: hashlearn export photos.model --to onnx --out photos.onnx
    """
    from hashlearn.collection import Collection
    from hashlearn.interchange.exports import EXPORTS, export_pgvector

    check_out(out, input)
    if to not in (*EXPORTS, "onnx"):
        raise ValueError(f"--to must be one of {', '.join((*EXPORTS, 'onnx'))}; got {to!r}.")
    if to != "pgvector":
        refuse_options(f"{to} has no tables", table=table)
    if to == "onnx":
        _export_onnx(input, out)
        files, what = [out], "the encoder"
    else:
        if not is_sqlite(input) and input.is_file():
            raise ValueError(f"{input} is not a collection; a model can be exported with --to onnx.")
        with Collection.open(input, readonly=True) as opened:
            files = export_pgvector(opened, out, table=table) if to == "pgvector" else EXPORTS[to](opened, out)
            what = f"{count(len(opened), 'item')} of {opened.n_bits} bits"
    result = {"input": str(input), "to": to, "files": [str(file) for file in files]}
    show(result, as_json, f"{what}: {', '.join(map(str, files))}")


def _export_onnx(input: Path, out: Path) -> None:
    import hashlearn
    from hashlearn.collection import Collection
    from hashlearn.interchange import export_onnx

    if is_sqlite(input):
        with Collection.open(input, readonly=True) as opened:
            hasher = opened.model
        if hasher is None:
            raise ValueError(f"{input} has no model.")
    else:
        hasher = hashlearn.load(input)
    export_onnx(hasher, out)


COMMANDS = (index, search, add, remove, info, duplicates, export)
