"""Contact sheets of search results: queries beside the items with the nearest codes."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hashlearn._arrays import Array, Bytes
from hashlearn.datasets import cifar10_images, load, mnist_images
from hashlearn.errors import DatasetError
from hashlearn.experiments.results import Record
from hashlearn.experiments.summary import Outcomes

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

logger = logging.getLogger(__name__)

# Shown beside the subject, if the experiment has them, and the number of sheets.
_OTHERS, _MAX_SHEETS = ("sdh", "itq", "itq-cca", "lsh"), 3
_BITS = 32
_QUERIES = 6
# In pixels: the frame of an image, the space between two, the space between a query and its results.
_FRAME, _SPACE, _APART = 2, 2, 8
# Blue and orange, which nearly everybody can tell apart. A tick and a cross say the same.
_SAME, _OTHER, _QUERY = (36, 110, 214), (224, 108, 0), (128, 134, 140)
_CLEAR = 255  # the palette's last entry, which is transparent
_Images = tuple[Bytes, Array, Bytes, Array]


@dataclass(frozen=True)
class Sheet:
    """A contact sheet of one method, with a row for each query."""

    label: str
    png: bytes
    width: int
    height: int
    words: str
    alt: str


@dataclass(frozen=True)
class Gallery:
    """The sheets of an experiment, or a note why there are none."""

    sheets: tuple[Sheet, ...] = ()
    note: str = ""


def make_gallery(outcomes: Outcomes) -> Gallery:
    """Draw sheets of the subject and a few other methods, at 32 bits or the largest number below."""
    records = [record for record in _choose_records(outcomes) if "examples" in record]
    if not records or outcomes.data not in _SOURCES:
        return Gallery()
    try:
        images = _SOURCES[outcomes.data]()
    except DatasetError as error:
        logger.warning("the report shows no examples of %s: %s", outcomes.data, error)
        return Gallery(note=f"No examples are shown: the images of {outcomes.data} are not available.")
    drawn = [(record, examples) for record in records if (examples := _examples(record, images)) is not None]
    return Gallery(tuple(_sheet(outcomes.label(record["method"]), record, *rows, images) for record, rows in drawn))


def _examples(record: Record, images: _Images) -> tuple[list[int], list[list[int]]] | None:
    """Return the rows of the queries and of their results; None if there are no such images."""
    try:
        queries, items = (np.array(record["examples"][name][:_QUERIES]) for name in ("queries", "items"))
    except (TypeError, KeyError, ValueError):  # a record of something else
        return None
    if (queries.ndim, items.ndim) != (1, 2) or len(queries) != len(items) or not items.size:
        return None
    for rows, available in ((queries, images[0]), (items, images[2])):
        if rows.dtype.kind != "i" or rows.min() < 0 or rows.max() >= len(available):
            return None
    return queries.tolist(), items.tolist()


def _choose_records(outcomes: Outcomes) -> list[Record]:
    bits = max((b for b in outcomes.bits if b <= _BITS), default=None)
    if bits is None:
        return []
    methods = dict.fromkeys((outcomes.experiment.subject, *_OTHERS))
    chosen = [records[0] for name in methods if (records := outcomes.select(name, bits))]
    return chosen[:_MAX_SHEETS]


def _digits() -> _Images:
    data = load("digits")
    assert data.query_labels is not None
    assert data.database_labels is not None

    def pictures(vectors: Array) -> Bytes:
        gray = np.clip(np.asarray(vectors, dtype=np.float64) * 255 / 16, 0, 255).astype(np.uint8).reshape(-1, 8, 8)
        return gray.repeat(3, axis=1).repeat(3, axis=2)  # about as large as the others

    return pictures(data.queries), data.query_labels, pictures(data.database), data.database_labels


def _image_set(images: Callable[..., Any]) -> _Images:
    data = images(show_progress=False)
    return data.test_images, data.test_labels, data.train_images, data.train_labels


_SOURCES: dict[str, Callable[[], _Images]] = {
    "digits": _digits,
    "mnist": lambda: _image_set(mnist_images),
    "cifar10": lambda: _image_set(cifar10_images),
}


def _sheet(label: str, record: Record, queries: list[int], items: list[list[int]], images: _Images) -> Sheet:
    from PIL import Image, ImageDraw

    query_images, query_labels, database, database_labels = images
    tile = query_images.shape[1] + 2 * _FRAME
    step = tile + _SPACE
    width, height = step * (1 + len(items[0])) - _SPACE + _APART, step * len(queries) - _SPACE
    sheet, covered = Image.new("RGB", (width, height)), Image.new("L", (width, height))
    draw, cover = ImageDraw.Draw(sheet), ImageDraw.Draw(covered)
    n_same = 0

    def put(pixels: Bytes, x: int, y: int, frame: tuple[int, int, int]) -> None:
        box = (x, y, x + tile - 1, y + tile - 1)
        cover.rectangle(box, fill=255)
        draw.rectangle(box, fill=frame)
        sheet.paste(Image.fromarray(pixels).convert("RGB"), (x + _FRAME, y + _FRAME))

    for row, (query, nearest) in enumerate(zip(queries, items, strict=True)):
        y = row * step
        put(query_images[query], 0, y, _QUERY)
        for column, item in enumerate(nearest):
            same = bool(query_labels[query] == database_labels[item])
            n_same += same
            x = _APART + (column + 1) * step
            put(database[item], x, y, _SAME if same else _OTHER)
            _mark(draw, x + tile, y + tile, same)
    n = sum(map(len, items))
    words = f"{label}, {record['n_bits']} bits: {n_same} of the {n} items are of their query's class"
    shown = f"{len(queries)} query images, each with the {len(items[0])} nearest by code; {words}"
    return Sheet(label, _png(sheet, covered), width, height, words, shown)


def _mark(draw: ImageDraw, right: int, bottom: int, same: bool) -> None:
    """Draw a tick or a cross, white on the color of the frame, in the lower right corner."""
    x, y = right - 9, bottom - 9
    draw.rectangle((x, y, right - 1, bottom - 1), fill=_SAME if same else _OTHER)
    if same:
        draw.line(((x + 1, y + 4), (x + 3, y + 6), (x + 7, y + 2)), fill="white")
    else:
        draw.line(((x + 2, y + 2), (x + 6, y + 6)), fill="white")
        draw.line(((x + 2, y + 6), (x + 6, y + 2)), fill="white")


def _png(sheet: Image, covered: Image) -> bytes:
    """Encode with a palette, at a third of the size. Pixels that are not covered are transparent."""
    from PIL import Image

    drawn = sheet.quantize(_CLEAR, dither=Image.Dither.NONE)
    colors = drawn.getpalette() or []
    drawn.putpalette(colors + [0] * (3 * (_CLEAR + 1) - len(colors)))
    drawn.paste(_CLEAR, mask=covered.point(lambda value: 255 - value))
    file = io.BytesIO()
    drawn.save(file, "PNG", transparency=_CLEAR)
    return file.getvalue()
