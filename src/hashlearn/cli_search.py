"""The commands that index, search and change collections; part of the command line (``cli.py``)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hashlearn._arguments import (
    AsJson,
    Key,
    check_out,
    check_page,
    is_dataset,
    is_folder,
    is_sqlite,
    load_dataset,
    read_input_file,
    refuse_options,
)
from hashlearn._printing import count, printable, say, show
from hashlearn._search_shown import (
    NOWHERE,
    Pictures,
    collection_info,
    duplicate_rows,
    model_info,
    pictures_of,
    print_matches,
    search_rows,
    tell_filled,
    write_page,
)

if TYPE_CHECKING:
    from hashlearn.collection import Collection, Match

CollectionFile = Annotated[Path, typer.Argument(metavar="COLLECTION", help="A collection (hashlearn index).")]
PicturesFolder = Annotated[
    Path | None,
    typer.Option(
        "--pictures",
        help="With --html: show pictures from below this folder; unless given, from below the collection's own.",
    ),
]
# What Python may hold for a byte of JSON text, a list of numbers for one.
_PARSED_BYTES = 20
Html = Annotated[Path | None, typer.Option(help="Also write a page with the pictures to this file.")]


def index(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (hashlearn fit).")],
    input: Annotated[
        str, typer.Argument(metavar="INPUT", help="A folder of pictures, a file of vectors, or a data set's name.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The collection to make, or to go on with.")],
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a collection: the codes of all pictures below a folder, or of all vectors of a file, to be searched.

    Stopped by whatever, the same command goes on where it was. Pictures that can't be read are listed and left out; if
    none can be read, the exit code is 1. The id of a vector is its row. What was removed from the collection, but is
    still in the folder or file, is added again.

    Example: hashlearn index photos.model photos --out photos.hl
    """
    import hashlearn
    from hashlearn.collection import open_or_create
    from hashlearn.storage import check_target

    check_target(out)
    hasher = hashlearn.load(model)
    if is_folder(input):
        refuse_options(f"{input} is a folder", key=key)
        with open_or_create(out, hasher, source=Path(input).resolve().name, folder=input) as collection:
            filled = collection.add_images(input)
            tell_filled(collection, filled, as_json)
    else:
        vectors, name = _vectors(input, key, "database")
        with open_or_create(out, hasher, source=name, vectors=vectors) as collection:
            filled = collection.add_vectors(vectors, by_row=True)
            tell_filled(collection, filled, as_json)


def add(
    collection: CollectionFile,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT ...", help="Pictures, folders of pictures, or one file of vectors.")
    ],
    ids: Annotated[
        Path | None, typer.Option(help="Ids of the vectors: a 1-D .npy, or a text file with one a line.")
    ] = None,
    payloads: Annotated[
        Path | None, typer.Option(help="A payload for each vector: a text file with one JSON value a line.")
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Add pictures or vectors to a collection. Pictures that are in it already are passed over.

    Example: hashlearn add photos.hl new/cat.jpg new/dog.jpg
    """
    from hashlearn.collection import Collection

    with Collection.open(collection) as opened:
        if opened.extractor is None:
            if len(inputs) != 1:
                raise ValueError(f"{collection} was made of vectors: add one file of vectors at a time.")
            vectors, _ = _vectors(inputs[0], key, "database")
            filled = opened.add_vectors(vectors, ids=_read_ids(ids), payloads=_read_payloads(payloads))
        else:
            refuse_options(f"{collection} is made of pictures", key=key, ids=ids, payloads=payloads)
            filled = opened.add_images(inputs)
        tell_filled(opened, filled, as_json)


def remove(
    collection: CollectionFile,
    what: Annotated[list[str], typer.Argument(metavar="ID|PATH ...", help="Ids, or paths as `search` shows them.")],
    as_json: AsJson = False,
) -> None:
    """Remove items from a collection, by id or by path. If one is not there, nothing is removed.

    Example: hashlearn remove photos.hl 17 cats/7.png
    """
    from hashlearn.collection import Collection

    with Collection.open(collection) as opened:
        ids: dict[int, None] = {}
        sources = opened.find_ids(what)
        if any(word not in sources and not word.isdecimal() for word in what):
            # As `search` shows them, which is not always as they are.
            for source, found in opened.find_ids().items():
                if printable(source) != source:
                    sources.setdefault(printable(source), found)
        for word in what:
            if word in sources:
                ids |= dict.fromkeys(sources[word])
            elif word.isdecimal():
                ids[int(word)] = None
            else:
                raise ValueError(f"{word!r} is neither an id nor the path of an item of {collection}.")
        opened.remove(list(ids))
        result = {"collection": str(collection), "removed": list(ids), "items": len(opened)}
        show(result, as_json, f"{count(len(ids), 'item')} removed; {len(opened):,} left in {collection}")


def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A collection (hashlearn index) or a model.")],
    as_json: AsJson = False,
) -> None:
    """Say what a collection or a model is.

    Example: hashlearn info photos.hl
    """
    known = collection_info(file) if is_sqlite(file) else model_info(file)
    lines = [
        f"{name.replace('_', ' ')}: {f'{value:,}' if isinstance(value, int) else printable(str(value))}"
        for name, value in known.items()
        if value is not None
    ]
    show(known, as_json, "\n".join(lines))


def search(
    collection: CollectionFile,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="A picture, a file of vectors, or a data set's name.")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="How many nearest items; 10 unless given.")] = None,
    radius: Annotated[
        int | None, typer.Option("--radius", "-r", help="Instead: all items within this Hamming distance.")
    ] = None,
    id: Annotated[int | None, typer.Option(help="Search for what is like this item, instead of a QUERY.")] = None,
    html: Html = None,
    pictures: PicturesFolder = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Find the items whose codes are nearest to a picture's, or to each vector's of a file.

    Example: hashlearn search photos.hl query.jpg -k 10 --html found.html

    Example: hashlearn search photos.hl --id 17 --radius 4 --json
    """
    from hashlearn.collection import Collection

    if k is not None and radius is not None:
        raise ValueError("-k and --radius do not go together: choose one.")
    if (query is None) == (id is None):
        raise ValueError("a QUERY or --id is needed, one of them.")
    _check_html(html, pictures)
    with Collection.open(collection, readonly=True) as opened:
        shown = pictures_of(opened, pictures)
        matches, names, asked = _search(opened, query, id, key, shown, k, radius)
        results = [
            {"query": name, "matches": [asdict(match) for match in some]}
            for name, some in zip(names, matches, strict=True)
        ]
        if html is not None:
            sought = f"{10 if k is None else k} nearest" if radius is None else f"all within {radius}"
            note = f"{sought}, of {len(opened):,} items of {opened.n_bits} bits"
            write_page(html, f"Search of {collection.name}", note, search_rows(results, asked, shown))
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        for result in results:
            print_matches(result, alone=len(results) == 1)
    if html is not None:
        say(f"hashlearn: {html} shows them")
        shown.tell()


def duplicates(
    collection: CollectionFile,
    radius: Annotated[
        int, typer.Option("--radius", "-r", help="The largest Hamming distance of two that are alike.")
    ] = 0,
    html: Html = None,
    pictures: PicturesFolder = None,
    as_json: AsJson = False,
) -> None:
    """Find groups of near-duplicates: items linked by steps of at most this distance.

    Example: hashlearn duplicates photos.hl --radius 2 --html twins.html
    """
    from hashlearn.collection import Collection, near_duplicates

    _check_html(html, pictures)
    with Collection.open(collection, readonly=True) as opened:
        shown = pictures_of(opened, pictures)
        groups = [opened.get(ids, skip_missing=True) for ids in near_duplicates(opened.index, radius)]
        if html is not None:
            write_page(
                html,
                f"Near-duplicates in {collection.name}",
                f"{count(len(groups), 'group')} of items linked by distances of at most {radius}",
                duplicate_rows(groups, shown),
            )
            shown.tell()
    if as_json:
        found = [[{"id": item.id, "source": item.source} for item in group] for group in groups]
        print(json.dumps(found, indent=2))
    else:
        for number, group in enumerate(groups, 1):
            print(f"group {number}: {count(len(group), 'item')}")
            for item in group:
                print(f"  {item.id}\t{printable(item.source or NOWHERE)}")
        say(f"hashlearn: {count(len(groups), 'group')}, {count(sum(map(len, groups)), 'item')} in them")


def export(
    input: Annotated[
        Path, typer.Argument(metavar="INPUT", help="A collection; for onnx a model, or a collection with one.")
    ],
    to: Annotated[str, typer.Option(help="faiss, npy, parquet or pgvector; onnx for a model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    table: Annotated[
        str | None, typer.Option(help="With pgvector: the table's name; the collection's unless given.")
    ] = None,
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
        files, what = _export_onnx(input, out), "the encoder"
    else:
        if not is_sqlite(input) and input.is_file():
            raise ValueError(f"{input} is no collection; of a model there is --to onnx.")
        with Collection.open(input, readonly=True) as opened:
            files = export_pgvector(opened, out, table=table) if to == "pgvector" else EXPORTS[to](opened, out)
            what = f"{count(len(opened), 'item')} of {opened.n_bits} bits"
    result = {"input": str(input), "to": to, "files": [str(file) for file in files]}
    show(result, as_json, f"{what}: {', '.join(map(str, files))}")


# -- inputs -----------------------------------------------------------------------------------------------------------


def _vectors(input: str, key: str | None, part: str) -> tuple[Any, str]:
    """Vectors and what they are called."""
    if is_dataset(input):
        refuse_options(f"{input} is a data set", key=key)
        return getattr(load_dataset(input, None, None), part), input
    return read_input_file(input, key), Path(input).name


def _read_ids(path: Path | None) -> Any:
    from hashlearn.vectors import read_labels

    if path is None:
        return None
    labels = [str(label) for label in read_labels(path)]
    if not all(label.isdecimal() for label in labels):
        raise ValueError(f"{path} must hold whole numbers from 0 on, one a line.")
    return [int(label) for label in labels]


def _read_payloads(path: Path | None) -> list[Any] | None:
    if path is None:
        return None
    from hashlearn.memory import free_memory
    from hashlearn.storage import open_regular, parse_json

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


def _check_html(html: Path | None, pictures: Path | None) -> None:
    check_page(html)
    if html is None:
        refuse_options("no page is asked for (--html)", pictures=pictures)


def _search(
    opened: Collection, query: str | None, id: int | None, key: str | None, shown: Pictures, k: Any, radius: Any
) -> tuple[list[list[Match]], list[Any], list[Path | None]]:
    """The matches of the queries, their names, and the picture if it is one (None: not to be shown)."""
    from hashlearn.features import IMAGE_ENDINGS
    from hashlearn.vectors import FORMATS

    if query is None:
        assert id is not None
        refuse_options("--id names an item", key=key)
        (item,) = opened.get([id])
        asked = [] if item.source is None else [shown(item.source)]
        return opened.search_ids([id], k, radius=radius), [item.source or f"id {id}"], asked
    ending = Path(query).suffix.lower()
    if ending in IMAGE_ENDINGS or (opened.extractor and ending not in FORMATS and Path(query).is_file()):
        refuse_options(f"{query} is a picture", key=key)
        return opened.search_images(query, k, radius=radius), [query], [Path(query)]
    vectors, _ = _vectors(query, key, "queries")
    return opened.search_vectors(vectors, k, radius=radius), list(range(len(vectors))), []


def _export_onnx(input: Path, out: Path) -> list[Path]:
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
    return [out]
