"""Exceptions beside the builtin ones, each a subclass of a builtin, and helpers for their messages.

A parameter that breaks its rule raises a plain ``ValueError``.
"""

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def find_renamed(module: str, name: str, renamed: Mapping[str, str]) -> Any:
    """Return what a module's former name stands for, with a DeprecationWarning; for the module's ``__getattr__``.

    Parameters
    ----------
    module, name : str
        The module, and the name that it does not have.
    renamed : mapping of str to str
        Former names of the module, and the present ones with their modules.

    Raises
    ------
    AttributeError
        The module never had the name.
    """
    if name not in renamed:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    home, _, present = renamed[name].rpartition(".")
    warnings.warn(f"{module}.{name} is now {renamed[name]}.", DeprecationWarning, stacklevel=3)
    return getattr(import_module(home), present)


def renamed_parameter(former: str, present: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a function so that it takes a parameter by its former name too, with a DeprecationWarning.

    Parameters
    ----------
    former, present : str
        Names of the parameter.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if former in kwargs and present not in kwargs:
                warnings.warn(f"the parameter {former} is now {present}.", DeprecationWarning, stacklevel=2)
                kwargs[present] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate


class VectorFileError(ValueError):
    """A file does not hold valid vectors: truncated, ragged, not finite, of the wrong type, or empty."""


class ModelFileError(ValueError):
    """A model file is damaged, of an unsupported version, or does not match the method that it names."""


class IndexFileError(ValueError):
    """A file is not an index, or it is damaged or of an unsupported version."""


class CollectionError(ValueError):
    """A file is not a collection, is damaged or of an unsupported version, or its model does not match."""


class CollectionBusyError(OSError):
    """A collection can't be changed now because another process is writing to it."""


class DatasetError(OSError):
    """A data set is not available: every source failed, or its folder was not given."""


class ChecksumError(DatasetError):
    """Data was received but has the wrong checksum. The message has the expected and the actual one."""


class MissingExtraError(ImportError):
    """An optional package is not installed. The message has the ``pip install`` command to run."""


class ImageError(ValueError):
    """An image can't be read.

    Parameters
    ----------
    path : str
        The file.
    reason : str
        Why, in one line.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return " ".join(f"{self.path}: {self.reason}".splitlines())


def import_extra(module: str, extra: str) -> Any:
    """Import an optional module.

    Parameters
    ----------
    module : str
        Name of the module.
    extra : str
        The extra of hashlearn that installs it.

    Returns
    -------
    module

    Raises
    ------
    MissingExtraError
        It is not installed. The message has the command that installs the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is needed for this; run in the checkout of hashlearn: pip install '.[{extra}]'"
        ) from error


def shown(value: object) -> str:
    """Return a value for an error message: its repr, shortened and on one line.

    Parameters
    ----------
    value : object
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # deeply nested lists; an integer with more digits than Python prints
        return f"a value of type {type(value).__name__} that can't be shown"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


_SHOWN_LENGTH, _SHOWN_NAMES = 300, 40


def suggest(name: str, names: Iterable[str]) -> str:
    """End an error about a name that does not exist: the nearest of ``names``, or a list of them.

    Parameters
    ----------
    name : str
        The name that does not exist.
    names : iterable of str
        The names that do.

    Examples
    --------
    >>> suggest("UDH_DNN", ["itq", "udh-dnn"])
    'did you mean udh-dnn?'
    >>> suggest("magic", ["itq", "udh-dnn"])
    'choose from itq, udh-dnn.'
    >>> suggest("magic", [])
    'there are none.'
    """
    from difflib import get_close_matches

    lower = {known.lower(): known for known in names}
    if not lower:
        return "there are none."
    near = get_close_matches(name[:_SHOWN_LENGTH].lower(), lower, n=1, cutoff=0.7)
    if near:
        return f"did you mean {lower[near[0]]}?"
    more = ", ..." if len(lower) > _SHOWN_NAMES else "."
    return f"choose from {', '.join(list(lower.values())[:_SHOWN_NAMES])}{more}"


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return a parameter that must be a whole number as an int.

    Parameters
    ----------
    name : str
        The parameter's name, for an error message.
    value : object
        Its value: an integer of any type, but no bool.
    least : int
        The smallest value that is allowed.

    Returns
    -------
    value : int

    Raises
    ------
    ValueError
        It is not a whole number, or less than ``least``.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number of at least {least}; got {shown(value)}.")
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {number}.")
    return number


def check_name(kind: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError if ``name`` is not one of ``names``; the message suggests the nearest.

    Parameters
    ----------
    kind : str
        What the name stands for, such as "data set".
    name : str
    names : iterable of str
        All names; not an iterator, since it is read twice.
    """
    if name not in names:
        raise ValueError(f"no {kind} is named {shown(name)}: {suggest(name, names)}")
