"""Model files: a safetensors file with the learned arrays and a JSON header. No pickle.

The header holds the format and its version, the method, the parameters, n_bits and n_features. Everything is checked
when a model is read. Two SHA-256 detect damage: of the arrays, and of the rest of the header, which the first files of
this version lack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from types import NoneType
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
_SMALL_BYTES = 1 << 20  # always available
# Unknown keys are refused, so that damage can't hide the checksum by changing its key.
_KEYS = {
    "format", "version", "hashlearn", "method", "n_bits", "n_features", "feature_names", "parameters", "info", "sha256",
    "header_sha256",
}  # fmt: skip


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says about the origin of a model.

    Parameters
    ----------
    trained_on
        The name of the training data.
    features
        The description of the extractor that made the vectors of pictures
        (:func:`hashlearn.features.make_extractor`); None if the model was trained on other vectors.
    notes
        Short texts of your own.
    """

    trained_on: str | None = None
    features: dict[str, Any] | None = None
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.trained_on, (str, NoneType)):
            raise ValueError(f"trained_on must be a text or None; got {shown(self.trained_on)}.")
        if not isinstance(self.notes, dict) or not _are_texts([*self.notes, *self.notes.values()]):
            raise ValueError(f"notes must map texts to texts; got {shown(self.notes)}.")
        # A text from a file that is not JSON is kept as a note.
        if "trained on" in self.notes or _parse(self.notes.get("features")) is not None:
            raise ValueError("notes must not be named 'trained on' or 'features': use trained_on and features.")
        rule = "a dict of JSON values or None"
        if not isinstance(self.features, (dict, NoneType)):
            raise ValueError(f"features must be {rule}; got {shown(self.features)}.")
        _to_json("features", self.features, rule)

    def to_info(self) -> dict[str, str]:
        """The texts by name that a model file stores."""
        info = dict(self.notes)
        if self.trained_on is not None:
            info["trained on"] = self.trained_on
        if self.features is not None:
            info["features"] = json.dumps(_to_json("features", self.features))
        return info

    @classmethod
    def from_info(cls, info: Mapping[str, str]) -> ModelMetadata:
        """Read what a model file stores, the inverse of :meth:`to_info`.

        Parameters
        ----------
        info : mapping of str to str
            Texts by name. A text ``features`` that is not a JSON object is kept as a note.
        """
        notes = dict(info)
        trained_on = notes.pop("trained on", None)
        features = _parse(notes.get("features"))
        if features is not None:
            del notes["features"]
        return cls(trained_on, features, notes)


def write_model(hasher: Hasher, file: str | os.PathLike[str] | IO[bytes], metadata: ModelMetadata) -> None:
    """Write a model to a path, atomically, or to an open binary file."""
    header, arrays = _describe(hasher, metadata)
    if isinstance(file, (str, os.PathLike)):
        write_frame(file, arrays, _text(header))
    else:
        file.write(frame_bytes(arrays, _text(header)))


def _text(header: dict[str, Any]) -> str:
    return json.dumps({**header, "header_sha256": _header_sha256(header)})


def _header_sha256(header: dict[str, Any]) -> str:
    """SHA-256 of the rest of the header."""
    rest = {name: value for name, value in header.items() if name != "header_sha256"}
    return content_key(json.dumps(rest, sort_keys=True))


def model_key(hasher: Hasher) -> str:
    """A hash of the model: of its method, parameters, arrays and metadata, not of the version of hashlearn."""
    header, _ = _describe(hasher, hasher.metadata_)
    return content_key(json.dumps({**header, "hashlearn": None}, sort_keys=True))


def _describe(hasher: Hasher, metadata: ModelMetadata) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header of a model's file, and its arrays."""
    n_features = int(hasher.n_features_in_)
    hasher._check_unchanged()
    names, later = getattr(hasher, "feature_names_in_", None), hasher.later_parameters()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "hashlearn": version("hashlearn"),
        "method": hasher.name,
        "n_bits": hasher.n_bits_,
        "n_features": n_features,
        "feature_names": None if names is None else list(names),
        "parameters": {
            hasher._saved_names.get(name, name): None if name in hasher._not_saved else _to_json(name, value)
            for name, value in hasher.get_params(deep=False).items()
            if name not in later or value != later[name]
        },
        "info": metadata.to_info(),
    }
    arrays = {}
    for name in hasher._state(n_features, hasher.n_bits_):
        arrays[name] = np.asarray(getattr(hasher, name), order="C")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"the model's {name} has values that are not finite: it can't be saved.")
    header["sha256"] = _content(arrays)
    return header, arrays


def _content(arrays: dict[str, Any]) -> str:
    """SHA-256 of the arrays and their names."""
    return content_key(*(part for name in sorted(arrays) for part in (name, arrays[name])))


def _to_json(name: str, value: Any, rule: str = "a plain value (number, text, list, None)") -> Any:
    """A value as it will be read back from JSON."""
    try:
        return parse_json(json.dumps(value, allow_nan=False, default=_to_number))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"{name} must be {rule} for a model to be saved; got {shown(value)}.") from None


def _to_number(value: Any) -> Any:
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
    unknown = sorted(header.keys() - _KEYS)
    if unknown:
        raise refuse(f"its metadata has the key {shown(unknown[0])}, which this hashlearn does not know")

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
    if isinstance(parameters, dict):
        present = {saved: name for name, saved in method._saved_names.items()}
        parameters = {present.get(name, name): value for name, value in parameters.items()}
        parameters = {**method.later_parameters(), **parameters}
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
        raise refuse("its arrays are damaged: their SHA-256 differs")
    sizes: dict[int | str, int] = {}  # the sizes that have a name, from the first array that has it
    for name, rule in state.items():
        array = arrays[name]
        for size, actual in zip(rule, array.shape, strict=False):
            if isinstance(size, str) and actual > 0:
                sizes.setdefault(size, actual)
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
    if "header_sha256" in header and header["header_sha256"] != _header_sha256(header):
        raise refuse("its metadata is damaged: its SHA-256 differs")
    hasher.n_features_in_ = n_features
    hasher.n_bits_ = n_bits
    hasher._normalized = bool(hasher.normalize)
    hasher.metadata_ = ModelMetadata.from_info(info)
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
    """Refuse a file that is larger than the free memory, before it is read."""
    size = file.seek(0, os.SEEK_END)
    if size > _SMALL_BYTES and 0 < (free := free_memory()) < size:
        raise ValueError(f"it has {size:,} bytes, and {free:,} bytes of memory are free")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
