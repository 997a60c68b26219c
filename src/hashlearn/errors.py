"""The exceptions hashlearn raises beside the builtin ones; each is a builtin's subclass.

A parameter that breaks its rule is a plain ``ValueError``.
"""

from collections.abc import Iterable


class VectorFileError(ValueError):
    """A file does not hold the vectors its name promises (torn, ragged, not finite, wrong type, empty)."""


class ModelFileError(ValueError):
    """A saved model is damaged, of another version, or does not fit the method it names."""


class IndexFileError(ValueError):
    """A saved index is damaged, of another version, or something else."""


class CollectionError(ValueError):
    """A file is no collection, or damaged, of another version, or its model does not fit."""


class CollectionBusyError(OSError):
    """A collection can't be changed now: another process is writing."""


class DatasetError(OSError):
    """A data set can't be had: none of its sources answered, or its folder was not named."""


class ChecksumError(DatasetError):
    """Bytes were had, but they are not the data set's: says what was expected and what was got."""


class MissingExtraError(ImportError):
    """An optional package is needed; the message names the exact ``pip install`` to run."""


class ImageError(ValueError):
    """A picture can't be read: ``path`` says which, ``reason`` why, in one line."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return " ".join(f"{self.path}: {self.reason}".splitlines())


def shown(value: object) -> str:
    """A value as an error says it: short and on one line, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # lists within lists within lists; a number of more digits than Python writes
        return f"a value of the type {type(value).__name__} that can't be shown"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


_SHOWN_LENGTH = 300


def suggest(name: str, names: Iterable[str]) -> str:
    """End an error about a name that does not exist: the nearest of ``names``, or all of them if none is near.

    Examples
    --------
    >>> suggest("UDH_DNN", ["itq", "udh-dnn"])
    'did you mean udh-dnn?'
    >>> suggest("magic", ["itq", "udh-dnn"])
    'choose from itq, udh-dnn.'
    """
    from difflib import get_close_matches

    lower = {known.lower(): known for known in names}
    near = get_close_matches(name[:_SHOWN_LENGTH].lower(), lower, n=1, cutoff=0.7)
    return f"did you mean {lower[near[0]]}?" if near else f"choose from {', '.join(lower.values())}."


def check_name(kind: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError if ``name`` is not one of ``names``; the message suggests the nearest."""
    if name not in names:
        raise ValueError(f"no {kind} is named {shown(name)}: {suggest(name, names)}")
