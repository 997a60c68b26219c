"""The three file formats of CIFAR-10: the home page's binary and Python batches, and PNG sheets.

A batch is decoded into images ``(n, 32, 32, 3)`` and labels ``(n,)``, uint8.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hashlearn._arrays import Bytes
from hashlearn.datasets._fetch import one_line, tar_members
from hashlearn.errors import DatasetError
from hashlearn.storage import parse_json

__all__ = ["ARRAY_NAMES", "Arrays", "decode_sheets", "read_batches"]

Arrays: TypeAlias = dict[str, Bytes]
ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")
TRAIN_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
BATCHES = (*TRAIN_BATCHES, "test_batch")
# Binary first: it needs no unpickling.
_KINDS = {
    ".bin": ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    "": ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
}
_LIMIT = 40_000_000  # bytes; a genuine batch has 31 million
_PIXELS = 3 * 32 * 32


def read_batches(path: Path) -> Arrays:
    """Read images and labels from an archive, a folder with an archive, or a folder of unpacked batches."""
    batches: dict[str, tuple[Bytes, Bytes]] = {}
    for name, content in _raw_batches(path):
        decode = _decode_binary if name.endswith(".bin") else _decode_pickle
        batches[name.removesuffix(".bin")] = decode(content, f"{path}: {name}")
    missing = [name for name in BATCHES if name not in batches]
    if missing:
        raise DatasetError(f"{path} lacks CIFAR-10's {', '.join(missing)}.")
    return _assemble(*zip(*(batches[name] for name in BATCHES), strict=True))


def decode_sheets(files: Mapping[str, bytes]) -> Arrays:
    """Decode six PNGs, each row an image of 1,024 pixels, and two JSON lists of labels (spelled "lables")."""
    from PIL import Image

    try:
        sheets = []
        for name in BATCHES:
            with Image.open(io.BytesIO(files[f"{name}.png"]), formats=["PNG"]) as sheet:
                sheets.append(np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3))
        train_labels, test_labels = (
            np.array(parse_json(files[f"{part}_lables.json"]), dtype=np.uint8) for part in ("train", "test")
        )
        return _assemble(tuple(sheets), (train_labels, test_labels))
    except Exception as error:  # Pillow can raise anything on a damaged image
        raise DatasetError(f"the sheets are damaged: {type(error).__name__}: {one_line(error)}") from error


def _assemble(images: tuple[Bytes, ...], labels: tuple[Bytes, ...]) -> Arrays:
    """Join the parts: the last is the test set, the others are the training set."""
    parts = (np.concatenate(images[:-1]), np.concatenate(labels[:-1]), images[-1], labels[-1])
    return dict(zip(ARRAY_NAMES, map(np.ascontiguousarray, parts), strict=True))


def _raw_batches(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name (``data_batch_1.bin`` or ``data_batch_1``) and the content of each batch that exists."""
    if path.is_file():
        names = [f"{kind_folder}/{name}{ending}" for ending, (kind_folder, _) in _KINDS.items() for name in BATCHES]
        for member, content in tar_members(path, dict.fromkeys(names, _LIMIT)):
            yield member.rsplit("/", 1)[-1], content
        return
    for ending, (kind_folder, archive) in _KINDS.items():
        for folder in (path, path / kind_folder):
            files = [file for name in BATCHES if (file := folder / f"{name}{ending}").is_file()]
            if files:
                yield from ((file.name, _bounded(file)) for file in files)
                return
        if (path / archive).is_file():
            yield from _raw_batches(path / archive)
            return
    expected = [name for kind in _KINDS.values() for name in kind]
    raise DatasetError(f"{path} does not contain CIFAR-10: none of {', '.join(expected)}, and no data_batch_1.")


def _bounded(file: Path) -> bytes:
    if file.stat().st_size > _LIMIT:
        raise DatasetError(f"{file} is too large for a CIFAR-10 batch.")
    return file.read_bytes()


def _to_images(planes: Bytes) -> Bytes:
    """Convert rows of a red, a green and a blue 32×32 plane to ``(n, 32, 32, 3)``."""
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _decode_binary(content: bytes, what: str) -> tuple[Bytes, Bytes]:
    """Rows of one label byte and 3,072 pixel bytes."""
    if len(content) % (1 + _PIXELS):
        raise DatasetError(f"{what} is cut off: {len(content):,} bytes are not a whole number of images.")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + _PIXELS)
    return _to_images(rows[:, 1:]), rows[:, 0]


def _decode_pickle(content: bytes, what: str) -> tuple[Bytes, Bytes]:
    """A Python 2 pickle of a dict with ``data``, an array ``(n, 3072)``, and ``labels``, a list."""
    try:
        batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        planes = batch[b"data"].array()
        labels = np.array(batch[b"labels"], dtype=np.uint8)
        if planes.shape != (len(labels), _PIXELS):
            raise ValueError(f"{len(labels)} labels for images of shape {planes.shape}")
    except _ForbiddenName as error:
        raise DatasetError(f"{what} is refused: {one_line(error)}") from error
    except Exception as error:  # a damaged pickle can raise anything
        raise DatasetError(f"{what} is damaged: {type(error).__name__}: {one_line(error)}") from error
    return _to_images(planes), labels


class _ForbiddenName(pickle.UnpicklingError):
    pass


class _PickledType:
    """Replaces ``numpy.dtype``: stores the type code."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and the like, which bytes don't have


class _PickledArray:
    """Replaces ``numpy.ndarray``: stores the state and creates the array from its raw bytes.

    NumPy's own ``__setstate__`` trusts its arguments, which a malicious pickle could exploit.
    """

    def __init__(self, *_: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> Bytes:
        _, shape, kind, in_columns, raw = self.state
        if kind.code not in (b"u1", "u1") or in_columns:
            raise ValueError("the images are not a row-major uint8 array")
        return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


class _BatchUnpickler(pickle.Unpickler):
    """Accepts only the names that the pickle of an array needs."""

    _NAMES: Mapping[tuple[str, str], type] = {
        ("numpy", "dtype"): _PickledType,
        ("numpy", "ndarray"): _PickledArray,
        ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
        ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return self._NAMES[module_name, global_name]
        except KeyError:
            raise _ForbiddenName(
                f"its pickle refers to {module_name}.{global_name}, which a batch of images does not need"
            ) from None
