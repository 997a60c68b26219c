"""Items of a collection, and how they are stored: codes as bytes, sources as text, payloads as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from hashlearn._arrays import Codes
from hashlearn.errors import shown
from hashlearn.storage import is_unicode, parse_json


@dataclass(frozen=True)
class Item:
    """One item of a collection.

    Attributes
    ----------
    id : int
    source : str or None
        Where it comes from, such as a path.
    payload
        A JSON value, or None.
    """

    id: int
    source: str | None
    payload: Any


def to_blobs(codes: Codes) -> Iterable[bytes]:
    content, width = np.ascontiguousarray(codes).tobytes(), codes.shape[1]
    return (content[i : i + width] for i in range(0, len(content), width))


def check_sources(sources: Sequence[str | None] | None, n: int | None = None) -> list[str | None]:
    checked = one_each("source", sources, n)
    for source in checked:
        if source is not None and not (isinstance(source, str) and is_unicode(source)):
            raise ValueError(f"a source must be Unicode text or None; got {source!r}.")
    return checked


def payload_texts(payloads: Sequence[Any] | None, n: int) -> list[str | None]:
    values = one_each("payload", payloads, n)
    return [None if payload is None else to_json("a payload", payload) for payload in values]


def one_each(name: str, values: Iterable[Any] | None, n: int | None) -> list[Any]:
    """Return the values as a list, with one for each of n items unless n is None. None stands for n times None."""
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, (Iterable, NoneType)):
        raise ValueError(f"{name}s must be a list; got {shown(values)}.")
    checked = [None] * (n or 0) if values is None else list(values)
    if n is not None and len(checked) != n:
        raise ValueError(f"there must be a {name} for each of the {n} items; got {len(checked)}.")
    return checked


def to_json(name: str, value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except RecursionError:
        raise ValueError(f"{name} must be a JSON value; this one is nested too deep.") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a JSON value; got {value!r} ({error}).") from None
    return text


def info_text(info: dict[str, Any]) -> str:
    if not isinstance(info, dict):
        raise ValueError(f"info must be a dict of JSON values; got {shown(info)}.")
    text = to_json("info", info)
    try:
        parse_json(text)  # stricter than json.dumps, and used to read it back
    except ValueError as error:
        raise ValueError(f"info must be a JSON value; {error}.") from None
    return text
