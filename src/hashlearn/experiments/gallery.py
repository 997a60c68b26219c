"""What was found, as pictures: queries beside the items whose codes are nearest to theirs."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.datasets import cifar10_images, load, mnist_images
from hashlearn.errors import DatasetError
from hashlearn.experiments.results import Record
from hashlearn.experiments.summary import Outcomes

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["Gallery", "Sheet", "make_gallery"]

logger = logging.getLogger(__name__)

# Beside the subject, those of these that the experiment has; as many in all as fit.
_OTHERS, _MOST = ("sdh", "itq", "itq-cca", "lsh"), 3
_BITS = 32
_QUERIES = 6
# In pixels: the frame of an image, the space between two, the space between a query and what was found.
_FRAME, _SPACE, _APART = 2, 2, 8
# Blue and orange, which nearly everybody tells apart; a tick and a cross say the same.
_SAME, _OTHER, _QUERY = (36, 110, 214), (224, 108, 0), (128, 134, 140)
_CLEAR = 255  # the palette's last entry, which is transparent
_Images = tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.uint8], NDArray[Any]]


@dataclass(frozen=True)
class Sheet:
    """A contact sheet of one method: a row for each query."""

    label: str
    n_bits: int
    png: bytes
    width: int
    height: int
    words: str
    alt: str


@dataclass(frozen=True)
class Gallery:
    """The sheets of an experiment, or why there are none."""

    sheets: tuple[Sheet, ...] = ()
    note: str = ""


def make_gallery(outcomes: Outcomes) -> Gallery:
    """A sheet for the subject and a few others, at 32 bits or the longest length below."""
    records = [record for record in _chosen(outcomes) if "examples" in record]
    if not records or outcomes.data not in _SOURCES:
        return Gallery()
    try:
        images = _SOURCES[outcomes.data]()
    except DatasetError as error:
        logger.warning("the report shows no examples of %s: %s", outcomes.data, error)
        return Gallery(note=f"No examples are shown: the images of {outcomes.data} could not be had.")
    drawn = [(record, examples) for record in records if (examples := _examples(record, images)) is not None]
    return Gallery(tuple(_sheet(outcomes.label(record["method"]), record, *some, images) for record, some in drawn))


def _examples(record: Record, images: _Images) -> tuple[list[int], list[list[int]]] | None:
    """Queries and what was found for each, by their rows; None if there are no such images."""
    try:
        queries, items = (np.array(record["examples"][name][:_QUERIES]) for name in ("queries", "items"))
    except (TypeError, KeyError, ValueError):  # something else, or ragged
        return None
    if (queries.ndim, items.ndim) != (1, 2) or len(queries) != len(items) or not items.size:
        return None
    for rows, there in ((queries, images[0]), (items, images[2])):
        if rows.dtype.kind != "i" or rows.min() < 0 or rows.max() >= len(there):
            return None
    return queries.tolist(), items.tolist()


def _chosen(outcomes: Outcomes) -> list[Record]:
    bits = max((b for b in outcomes.bits if b <= _BITS), default=None)
    if bits is None:
        return []
    wanted = dict.fromkeys((outcomes.experiment.subject, *_OTHERS))
    found = [records[0] for name in wanted if (records := outcomes.of(name, bits))]
    return found[:_MOST]


def _digits() -> _Images:
    data = load("digits")
    assert data.query_labels is not None
    assert data.database_labels is not None

    def pictures(vectors: NDArray[Any]) -> NDArray[np.uint8]:
        grey = np.clip(np.asarray(vectors, dtype=np.float64) * 255 / 16, 0, 255).astype(np.uint8).reshape(-1, 8, 8)
        return grey.repeat(3, axis=1).repeat(3, axis=2)  # as large as others

    return pictures(data.queries), data.query_labels, pictures(data.database), data.database_labels


def _image_set(images: Callable[..., Any]) -> _Images:
    found = images(show_progress=False)
    return found.test_images, found.test_labels, found.train_images, found.train_labels


_SOURCES: dict[str, Callable[[], _Images]] = {
    "digits": _digits,
    "mnist": lambda: _image_set(mnist_images),
    "cifar10": lambda: _image_set(cifar10_images),
}


def _sheet(label: str, record: Record, queries: list[int], items: list[list[int]], images: _Images) -> Sheet:
    from PIL import Image, ImageDraw

    asked, asked_labels, found, found_labels = images
    tile = asked.shape[1] + 2 * _FRAME
    step = tile + _SPACE
    width, height = step * (1 + len(items[0])) - _SPACE + _APART, step * len(queries) - _SPACE
    sheet, covered = Image.new("RGB", (width, height)), Image.new("L", (width, height))
    draw, cover = ImageDraw.Draw(sheet), ImageDraw.Draw(covered)
    n_same = 0

    def put(pixels: NDArray[np.uint8], x: int, y: int, frame: tuple[int, int, int]) -> None:
        box = (x, y, x + tile - 1, y + tile - 1)
        cover.rectangle(box, fill=255)
        draw.rectangle(box, fill=frame)
        sheet.paste(Image.fromarray(pixels).convert("RGB"), (x + _FRAME, y + _FRAME))

    for row, (query, nearest) in enumerate(zip(queries, items, strict=True)):
        y = row * step
        put(asked[query], 0, y, _QUERY)
        for column, item in enumerate(nearest):
            same = bool(asked_labels[query] == found_labels[item])
            n_same += same
            x = _APART + (column + 1) * step
            put(found[item], x, y, _SAME if same else _OTHER)
            _mark(draw, x + tile, y + tile, same)
    n = sum(map(len, items))
    words = f"{label}, {record['n_bits']} bits: {n_same} of the {n} items found are of their query's class"
    shown = f"{len(queries)} query images, each with the {len(items[0])} nearest by code; {words}"
    return Sheet(label, record["n_bits"], _png(sheet, covered), width, height, words, shown)


def _mark(draw: ImageDraw, right: int, bottom: int, same: bool) -> None:
    """A tick or a cross, white on the frame's colour, in the lower right corner."""
    x, y = right - 9, bottom - 9
    draw.rectangle((x, y, right - 1, bottom - 1), fill=_SAME if same else _OTHER)
    if same:
        draw.line(((x + 1, y + 4), (x + 3, y + 6), (x + 7, y + 2)), fill="white")
    else:
        draw.line(((x + 2, y + 2), (x + 6, y + 6)), fill="white")
        draw.line(((x + 2, y + 6), (x + 6, y + 2)), fill="white")


def _png(sheet: Image, covered: Image) -> bytes:
    """With a palette, which is a third of the size; what is not covered is transparent."""
    from PIL import Image

    drawn = sheet.quantize(_CLEAR, dither=Image.Dither.NONE)
    colours = drawn.getpalette() or []
    drawn.putpalette(colours + [0] * (3 * (_CLEAR + 1) - len(colours)))
    drawn.paste(_CLEAR, mask=covered.point(lambda value: 255 - value))
    file = io.BytesIO()
    drawn.save(file, "PNG", transparency=_CLEAR)
    return file.getvalue()
