"""Model files: one safetensors file, its arrays the learned state, its metadata a JSON text. No pickle.

The JSON names the format and its version, the method, the parameters, n_bits and n_features. Everything is checked
when a model is read; nothing is guessed. Two SHA-256 tell damage: of the arrays, and of the rest of the JSON, which the
first files of this version lack.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from hashlearn._safetensors import frame_bytes, read_array, read_frame, write_frame
from hashlearn.errors import ModelFileError, shown
from hashlearn.memory import free_memory
from hashlearn.storage import content_key, open_regular, parse_json

if TYPE_CHECKING:
    from hashlearn.hashers.base import Hasher

    H = TypeVar("H", bound=Hasher)

FORMAT = "hashlearn model"
VERSION = 1
_SMALL_BYTES = 1 << 20  # of which there is always enough
# A key that is not known is refused, so that no damage can hide the checksum's.
_KEYS = {
    "format", "version", "hashlearn", "method", "n_bits", "n_features", "feature_names", "parameters", "info", "sha256",
    "header_sha256",
}  # fmt: skip


def write_model(hasher: Hasher, file: str | os.PathLike[str] | IO[bytes], info: dict[str, str]) -> None:
    """Write a model to a path, whole or not at all, or to an open binary file."""
    header, arrays = _described(hasher, info)
    if isinstance(file, (str, os.PathLike)):
        write_frame(file, arrays, _text(header))
    else:
        file.write(frame_bytes(arrays, _text(header)))


def _text(header: dict[str, Any]) -> str:
    return json.dumps({**header, "header_sha256": _header_content(header)})


def _header_content(header: dict[str, Any]) -> str:
    """SHA-256 of all that the header says, but for this itself."""
    said = {name: value for name, value in header.items() if name != "header_sha256"}
    return content_key(json.dumps(said, sort_keys=True))


def model_key(hasher: Hasher) -> str:
    """A hash of what its file would say, but for the version of hashlearn that writes it."""
    header, _ = _described(hasher, dict(hasher.info_))
    return content_key(json.dumps({**header, "hashlearn": None}, sort_keys=True))


def _described(hasher: Hasher, info: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file says of a model, and its arrays."""
    n_features = int(hasher.n_features_in_)
    hasher._check_unchanged()
    names = getattr(hasher, "feature_names_in_", None)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "hashlearn": version("hashlearn"),
        "method": hasher.name,
        "n_bits": hasher.n_bits_,
        "n_features": n_features,
        "feature_names": None if names is None else list(names),
        "parameters": {
            name: None if name in hasher._not_saved else _plain(name, value)
            for name, value in hasher.get_params(deep=False).items()
        },
        "info": info,
    }
    arrays = {}
    for name in hasher._state(n_features, hasher.n_bits_):
        arrays[name] = np.asarray(getattr(hasher, name), order="C")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"the model's {name} has values that are not finite: it can't be saved.")
    header["sha256"] = _content(arrays)
    return header, arrays


def _content(arrays: dict[str, Any]) -> str:
    """SHA-256 of the arrays, names and all."""
    return content_key(*(part for name in sorted(arrays) for part in (name, arrays[name])))


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON holds it."""
    try:
        return parse_json(json.dumps(value, allow_nan=False, default=_number))  # as it will be read
    except (TypeError, ValueError, RecursionError):
        raise ValueError(
            f"{name} must be a plain value (number, text, list, None) for a model to be saved; got {shown(value)}."
        ) from None


def _number(value: Any) -> Any:
    if not isinstance(value, np.generic):
        raise TypeError
    return value.item()


def read_model(file: str | os.PathLike[str] | IO[bytes], expected: type[H]) -> H:
    """Read a model from a path or from an open binary file."""
    if not isinstance(file, (str, os.PathLike)):
        return _read(file, "the file", expected)
    try:
        with open_regular(file) as opened:
            return _read(opened, os.fspath(file), expected)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(f"no model file is at {os.fspath(file)}.") from None


def _read(file: IO[bytes], path: str, expected: type[H]) -> H:
    from hashlearn.hashers import METHODS

    def refuse(why: str) -> ModelFileError:
        return ModelFileError(" ".join(f"{path} is not a model that can be loaded: {why}.".splitlines()))

    try:
        _check_memory(file)
        text, spans = read_frame(file)
        arrays = {name: read_array(file, span) for name, span in spans.items()}
    except ValueError as error:
        raise refuse(f"not a safetensors file, or damaged ({_one_line(error)})") from None
    header = _parse(text)
    if header is None or header.get("format") != FORMAT:
        raise refuse("its metadata is not hashlearn's")
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise refuse(f"its format version is {shown(header.get('version'))}, and this hashlearn reads {VERSION}")
    strangers = sorted(header.keys() - _KEYS)
    if strangers:
        raise refuse(f"its metadata must not have the key {shown(strangers[0])}, which this hashlearn does not know")

    name = header.get("method")
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        raise refuse(f"its method {shown(name)} is not one of {', '.join(METHODS)}")
    if not issubclass(method, expected):
        raise refuse(f"it is a model of {method.name}, not of {expected.name}")
    parameters, n_bits, n_features = header.get("parameters"), header.get("n_bits"), header.get("n_features")
    if type(n_bits) is not int or type(n_features) is not int or min(n_bits, n_features) < 1:
        raise refuse(
            f"n_bits and n_features must be whole numbers of at least 1; got {shown(n_bits)} and {shown(n_features)}"
        )
    names = method._get_param_names()
    if not isinstance(parameters, dict) or sorted(parameters) != sorted(names) or parameters["n_bits"] != n_bits:
        raise refuse(f"{method.name} takes the parameters {', '.join(names)}, n_bits {n_bits}; got {shown(parameters)}")

    hasher = method(**parameters)
    try:
        hasher._check_parameters(n_features)
    except (ValueError, TypeError) as error:
        raise refuse(_one_line(error).rstrip(".")) from None
    state = hasher._state(n_features, n_bits)
    if arrays.keys() != state.keys():
        raise refuse(f"it must hold the arrays {', '.join(state)}; it holds {', '.join(arrays)[:200] or 'none'}")
    if header.get("sha256") != _content(arrays):
        raise refuse("its arrays are not those that were saved: their SHA-256 differs")
    sizes: dict[int | str, int] = {}  # those that have a name instead of a number, from the first array with it
    for name, rule in state.items():
        array = arrays[name]
        for size, found in zip(rule, array.shape, strict=False):
            if isinstance(size, str) and found > 0:
                sizes.setdefault(size, found)
        shape = tuple(sizes.get(size, size) for size in rule)
        if array.dtype.kind != "f" or array.shape != shape:
            raise refuse(f"{name} must be real numbers {shape}; got {array.dtype} {array.shape}")
        if not np.isfinite(array).all():
            raise refuse(f"{name} has values that are not finite")
        setattr(hasher, name, array)
    try:
        hasher._check_state()
    except ValueError as error:
        raise refuse(_one_line(error)) from None
    feature_names = header.get("feature_names")
    if feature_names is not None:
        if not _are_texts(feature_names) or len(feature_names) != n_features:
            raise refuse(f"feature_names must be {n_features} names")
        hasher.feature_names_in_ = np.array(feature_names, dtype=object)
    info = header.get("info")
    if not isinstance(info, dict) or not _are_texts(list(info.values())):
        raise refuse("info must map texts to texts")
    if "header_sha256" in header and header["header_sha256"] != _header_content(header):
        raise refuse("its metadata are not those that were saved: their SHA-256 differs")
    hasher.n_features_in_ = n_features
    hasher.n_bits_ = n_bits
    hasher.info_ = info
    return hasher


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _parse(text: str | None) -> dict[str, Any] | None:
    try:
        header = parse_json(text or "", unique_keys=True)
    except ValueError:
        return None
    return header if isinstance(header, dict) else None


def _check_memory(file: IO[bytes]) -> None:
    """Refuse a file that would not fit, before anything is read."""
    size = file.seek(0, os.SEEK_END)
    if size > _SMALL_BYTES and 0 < (free := free_memory()) < size:
        raise ValueError(f"it has {size:,} bytes, and {free:,} bytes of memory are free")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
