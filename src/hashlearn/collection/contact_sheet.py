"""A page of pictures: the matches of each query, or groups of near-duplicates. One file, without links to others."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from hashlearn.collection._items import Item
from hashlearn.errors import ImageError
from hashlearn.storage import StrPath, atomic_path

if TYPE_CHECKING:
    from hashlearn.collection.collection import Collection
    from hashlearn.collection.queries import Match

__all__ = ["Picture", "PictureFiles", "PictureRows", "write_contact_sheet"]

_SIDE = 160
_STYLE = """
:root { color-scheme: light dark; --line: #ddd; --soft: #666; }
@media (prefers-color-scheme: dark) { :root { --line: #444; --soft: #aaa; } }
body { font: 15px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 90rem; padding: 0 1rem; }
section { border-top: 1px solid var(--line); padding: .5rem 0; }
h2 { font-size: 1rem; margin: .3rem 0; overflow-wrap: anywhere; }
.row { display: flex; flex-wrap: wrap; gap: .6rem; }
figure { margin: 0; width: 160px; }
figure img, .none { width: 160px; height: 160px; object-fit: contain; background: var(--line); display: block; }
.none { display: flex; align-items: center; justify-content: center; color: var(--soft); text-align: center; }
.query img { outline: 3px solid #2a7de1; outline-offset: -3px; }
figcaption { color: var(--soft); font-size: 12px; overflow-wrap: anywhere; }
@media (max-width: 30rem) { figure, figure img, .none { width: 44vw; } figure img, .none { height: 44vw; } }
"""


@dataclass(frozen=True)
class Picture:
    """A picture on the page.

    Attributes
    ----------
    path
        Its file. None, or a file that can't be read: "no picture" is shown in its place.
    caption
        The text below it.
    query
        Whether it is marked as a query.
    """

    path: Path | None
    caption: str
    query: bool = False


@dataclass
class PictureFiles:
    """The files of pictures that may be shown: a collection from elsewhere may name any file as a source.

    Attributes
    ----------
    root
        What sources are relative to.
    folder
        Only pictures below it are shown, with links followed. None: no picture is shown.
    has_pictures
        Whether the collection holds pictures, not vectors.
    hidden
        Sources of pictures elsewhere, which were asked for and not shown.
    """

    root: Path
    folder: Path | None
    has_pictures: bool
    hidden: set[str] = field(default_factory=set)

    @classmethod
    def from_collection(cls, collection: Collection, folder: StrPath | None = None) -> PictureFiles:
        """Choose the pictures of a collection that may be shown.

        Parameters
        ----------
        collection : Collection
        folder : path-like, optional
            Show pictures below it. Default: the collection's root, if that is in the folder of the collection's file;
            otherwise no picture is shown.
        """
        root, has_pictures = collection.root, collection.extractor is not None
        if folder is not None:
            return cls(root, Path(os.path.realpath(folder)), has_pictures)
        real = Path(os.path.realpath(root))
        beside = real.is_relative_to(os.path.realpath(collection.file.parent))
        return cls(root, real if beside else None, has_pictures)

    def find(self, source: str | None) -> Path | None:
        """Return the file of a picture if it may be shown.

        Parameters
        ----------
        source : str or None
            The source of an item.

        Returns
        -------
        path : Path or None
            The file, which may not exist. None if there is no source, if no file can have its name, or if the file is
            not below ``folder``; in the last case the source is added to ``hidden``.
        """
        if source is None:
            return None
        try:
            path = Path(os.path.realpath(self.root / source))
        except (OSError, ValueError):  # no file has such a name
            return None
        if self.folder is not None and path.is_relative_to(self.folder):
            return path
        self.hidden.add(source)
        return None

    def show(self, item: Item | Match) -> Picture:
        """Return the picture of an item; its caption is the source, after the distance if the item is a match.

        Parameters
        ----------
        item : Item or Match
            If it has no source, its id is the caption.

        Returns
        -------
        picture : Picture
        """
        caption = item.source or f"id {item.id}"
        return Picture(self.find(item.source), caption if isinstance(item, Item) else f"{item.distance}: {caption}")


#: Pictures, each row with its title.
PictureRows = Iterable[tuple[str, Iterable[Picture]]]


def write_contact_sheet(path: StrPath, title: str, note: str, rows: PictureRows) -> None:
    """Write an HTML page with small copies of the pictures, atomically.

    Parameters
    ----------
    path : path-like
        The file. An existing one is replaced.
    title, note : str
        The heading of the page, and the paragraph below it.
    rows : iterable of (str, iterable of Picture)
        Each row's title and pictures.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(note)}</p>",
    ]
    thumbnail = cache(_thumbnail_url)  # a picture may be in many rows
    for heading, pictures in rows:
        parts.append(f'<section><h2>{escape(heading)}</h2><div class="row">')
        parts += [_figure(picture, thumbnail(picture.path)) for picture in pictures]
        parts.append("</div></section>")
    parts.append("</body></html>\n")
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(parts), encoding="utf-8")


def _figure(picture: Picture, url: str | None) -> str:
    caption = escape(picture.caption)
    shown = '<div class="none">no picture</div>'
    if url is not None:
        shown = f'<img loading="lazy" alt="{caption}" src="{url}">'
    kind = ' class="query"' if picture.query else ""
    return f"<figure{kind}>{shown}<figcaption>{caption}</figcaption></figure>"


def _thumbnail_url(path: Path | None) -> str | None:
    """A small copy as a data URL; None if there is no picture, or it can't be read."""
    if path is None:
        return None
    from PIL import Image

    from hashlearn.features import read_thumbnail

    try:
        pixels = read_thumbnail(path, 2 * _SIDE)  # for high-resolution screens
    except ImageError:
        return None
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
