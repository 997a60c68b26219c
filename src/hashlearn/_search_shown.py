"""What the commands of collections show: matches, pages of pictures, what came of filling, what a file is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hashlearn._printing import count, printable, say, show

if TYPE_CHECKING:
    from hashlearn.collection import Collection, Ingested
    from hashlearn.collection.contact_sheet import Row

#: Instead of the source of an item that has none.
NOWHERE = "–"
_SHOWN_UNREADABLE = 20


def print_matches(result: dict[str, Any], *, alone: bool) -> None:
    if not alone:
        found = ", ".join(
            f"{printable(match['source'] or str(match['id']))} ({match['distance']})" for match in result["matches"]
        )
        print(f"{result['query']}: {found or 'nothing'}")
        return
    if not result["matches"]:
        say("hashlearn: nothing was found")
    for match in result["matches"]:
        extra = "" if match["payload"] is None else "\t" + printable(json.dumps(match["payload"], ensure_ascii=False))
        print(f"{match['distance']}\t{match['id']}\t{printable(match['source'] or NOWHERE)}{extra}")


@dataclass
class Pictures:
    """Where the pictures of items may be taken from: a stranger's collection may name any file as a source.

    ``folder``: what they must be below, links followed; None: nothing is shown. ``left_out``: those elsewhere.
    """

    root: Path
    folder: Path | None
    left_out: set[str] = field(default_factory=set)

    def __call__(self, source: str | None) -> Path | None:
        """The picture's file, if there is one that may be shown."""
        if source is None:
            return None
        try:
            path = Path(os.path.realpath(self.root / source))
        except (OSError, ValueError):  # no file has such a name
            return None
        if self.folder is not None and path.is_relative_to(self.folder):
            return path
        self.left_out.add(source)
        return None

    def tell(self) -> None:
        if self.left_out:
            where = "the collection's folder" if self.folder is None else str(self.folder)
            words = f"{count(len(self.left_out), 'picture')} not shown, for not being below {where}"
            say(f"hashlearn: note: {words}; --pictures DIR shows those below DIR")


def pictures_of(opened: Collection, named: Path | None) -> Pictures:
    """Those below the folder the user names; else below the collection's own, if that is below the file's folder."""
    root = opened.root
    if named is not None:
        if not named.is_dir():
            raise ValueError(f"--pictures must be a folder; {named} is none.")
        return Pictures(root, Path(os.path.realpath(named)))
    own = Path(os.path.realpath(root))
    return Pictures(root, own if own.is_relative_to(os.path.realpath(opened.file.parent)) else None)


def search_rows(results: list[dict[str, Any]], asked: Sequence[Path | None], pictures_at: Pictures) -> Iterator[Row]:
    """``asked``: the picture that was searched for, None if it may not be shown; nothing if it was none."""
    from hashlearn.collection.contact_sheet import Picture, Row

    for result in results:
        pictures = [Picture(path, "query", query=True) for path in asked]
        for match in result["matches"]:
            caption = f"{match['distance']}: {match['source'] or 'id ' + str(match['id'])}"
            pictures.append(Picture(pictures_at(match["source"]), caption))
        yield Row(str(result["query"]), pictures)


def duplicate_rows(groups: Any, pictures_at: Pictures) -> Iterator[Row]:
    from hashlearn.collection.contact_sheet import Picture, Row

    for number, group in enumerate(groups, 1):
        pictures = [Picture(pictures_at(item.source), item.source or f"id {item.id}") for item in group]
        yield Row(f"Group {number}: {count(len(group), 'item')}", pictures)


def write_page(path: Path, title: str, note: str, rows: Iterator[Row]) -> None:
    from hashlearn.collection.contact_sheet import contact_sheet
    from hashlearn.storage import atomic_path

    with atomic_path(path) as temporary:
        temporary.write_text(contact_sheet(title, note, rows), encoding="utf-8")


def tell_filled(opened: Collection, filled: Ingested, as_json: bool) -> None:
    for path, reason in filled.unreadable[:_SHOWN_UNREADABLE]:
        say(f"hashlearn: skipped: {printable(path)}: {printable(reason)}")
    more = len(filled.unreadable) - _SHOWN_UNREADABLE
    if more > 0:
        say(f"hashlearn: skipped: {more:,} more (--json lists them all)")
    result = {
        "collection": str(opened.path),
        "items": len(opened),
        "added": filled.added,
        "there_already": filled.already_present,
        "unreadable": [{"path": path, "reason": reason} for path, reason in filled.unreadable],
    }
    if filled.known_codes:
        known = f"{filled.known_codes:,} of the {filled.added:,} codes were in the collection already"
        say(f"hashlearn: note: {known}: were the vectors added before?")
    words = [f"{count(filled.added, 'item')} added"]
    if filled.already_present:
        words.append(f"{filled.already_present:,} there already")
    if filled.unreadable:
        words.append(f"{len(filled.unreadable):,} unreadable")
    show(result, as_json, f"{', '.join(words)}; {len(opened):,} in {opened.path}")
    if filled.unreadable and not filled.added and not filled.already_present:
        raise typer.Exit(1)


def collection_info(path: Path) -> dict[str, Any]:
    from hashlearn.collection import Collection
    from hashlearn.collection.ingest import display_root

    with Collection.open(path, readonly=True) as opened:
        about, own = opened.about, opened.info
        extractor = opened.extractor
        return {
            "file": str(path),
            "kind": "collection",
            "items": len(opened),
            "n_bits": opened.n_bits,
            "bytes": path.stat().st_size,
            "method": about["method"],
            "n_features": about["n_features"],
            "features": None if extractor is None else str(extractor),
            "made_of": own.get("input"),
            "pictures_in": None if extractor is None else display_root(opened),
            "hashlearn": about["hashlearn"],
        }


def model_info(path: Path) -> dict[str, Any]:
    import hashlearn
    from hashlearn.collection.ingest import model_extractor

    hasher = hashlearn.load(path)
    features = model_extractor(hasher)
    return {
        "file": str(path),
        "kind": "model",
        "method": hasher.name,
        "n_bits": hasher.n_bits_,
        "n_features": int(hasher.n_features_in_),
        "features": None if features is None else str(features),
        "trained_on": hasher.metadata_.trained_on,
        "bytes": path.stat().st_size,
    }
