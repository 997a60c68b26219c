"""Docstrings of public names are numpydoc: well-formed sections, and every parameter by its name.

Public are the names in a module's ``__all__``, or in that of a package above it; in a top-level module without one
(``errors``, ``storage``), all names without an underscore. The command line is left out: typer documents its options.
"""

import inspect
import re
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pkgutil import walk_packages

import pytest

import hashlearn

SECTIONS = "Parameters|Attributes|Returns|Yields|Raises|Warns|See Also|Notes|References|Examples"
# Nobody calls these classes themselves: class methods create the objects.
CREATED_BY_CLASS_METHODS = {"hashlearn.collection.collection.Collection", "hashlearn.evaluation.truth.Truth"}


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").startswith("hashlearn")


def public_names(module):
    names = getattr(module, "__all__", None)
    if names is None and module.__name__.count(".") == 1:
        names = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return [name for name in names or [] if not name.startswith("_")]


def public_things():
    """Functions, classes, and the methods and properties that the classes define, by their full names."""
    names = ["hashlearn", *(module.name for module in walk_packages(hashlearn.__path__, "hashlearn."))]
    modules = [import_module(name) for name in names if "._" not in name and not name.startswith("hashlearn.cli")]
    things = {}
    for thing in [getattr(module, name) for module in modules for name in public_names(module)]:
        if is_ours(thing) and (inspect.isclass(thing) or inspect.isroutine(thing)):
            things[f"{thing.__module__}.{thing.__qualname__}"] = thing
    for full_name, owner in [(name, thing) for name, thing in things.items() if inspect.isclass(thing)]:
        for name, member in vars(owner).items():
            is_method = inspect.isroutine(member) and is_ours(member)
            if not name.startswith("_") and (is_method or isinstance(member, property)):
                things[f"{full_name}.{name}"] = member
    return things


THINGS = public_things()


def docstring(full_name):
    """The docstring; if a method has none, that of the nearest base class in the package."""
    owner, _, name = full_name.rpartition(".")
    bases = [base for base in getattr(THINGS.get(owner), "__mro__", ()) if is_ours(base)]
    texts = [thing.__doc__ for thing in (THINGS[full_name], *(vars(base).get(name) for base in bases)) if thing]
    return inspect.cleandoc(next(filter(None, texts), ""))


def arguments(thing):
    """The names of the arguments; of a class, those of ``__init__``."""
    if isinstance(thing, property) or getattr(thing, "_is_protocol", False):
        return []
    if inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing):
        return []
    names = inspect.signature(getattr(thing, "__func__", thing)).parameters
    return [name for name in names if name not in ("self", "cls")]


def described(text, section):
    """The names that a section of a docstring describes."""
    body = re.search(rf"^{section}\n-+\n(.*?)(?=^(?:{SECTIONS})\n|\Z)", text, re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^\S.*", body[1], re.MULTILINE) if body else []
    return [name.lstrip("*") for head in heads for name in head.split(" : ")[0].split(", ")]


def problems(text, thing, expected):
    """What is wrong with a docstring that is to describe the arguments ``expected``, in words."""
    if not text:
        return ["there is no docstring"]
    wrong = []
    for title, rule in pairwise([*text.splitlines(), ""]):
        is_section = re.fullmatch(SECTIONS, title)
        if is_section and rule != "-" * len(title):
            wrong.append(f"the section {title} is underlined by {rule!r}")
        if re.fullmatch("--+", rule) and not is_section:
            wrong.append(f"{title!r} is no section of numpydoc")
    if text.startswith("Deprecated"):
        return wrong
    parameters = described(text, "Parameters")
    if is_dataclass(thing) or hasattr(thing, "_fields"):  # its fields may be described as attributes
        if not set(parameters) <= set(expected) <= {*parameters, *described(text, "Attributes")}:
            wrong.append(f"it must describe the fields {expected}")
    elif parameters != expected:
        wrong.append(f"it must describe the parameters {expected}; it describes {parameters}")
    return wrong


@pytest.mark.parametrize("full_name", THINGS)
def test_docstring(full_name):
    thing = THINGS[full_name]
    expected = [] if full_name in CREATED_BY_CLASS_METHODS else arguments(thing)
    found = problems(docstring(full_name), thing, expected)
    assert not found


def test_public_names_are_found():
    assert {
        "hashlearn.codes.pack",  # listed in a module
        "hashlearn.errors.shown",  # in a top-level module without __all__
        "hashlearn.hashers.itq.ITQ",  # listed in a package
        "hashlearn.search._answers.Plan",  # defined in a private module
        "hashlearn.hashers.base.Hasher.load",  # a class method
        "hashlearn.collection.collection.Collection.ids",  # a property
    } <= THINGS.keys()


GOOD = """Add numbers.

Parameters
----------
a, b : int
    Two of them.
*rest : int

Returns
-------
int"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, ""),
        ("", "no docstring"),
        ("Add numbers.", "must describe the parameters"),
        (GOOD.replace("a, b", "a"), "must describe the parameters"),
        (GOOD.replace("a, b", "a, b, c"), "must describe the parameters"),
        (GOOD.replace("\n-------\n", "\n----\n"), "is underlined by"),
        (GOOD.replace("\n-------\n", "\n"), "is underlined by"),
        (GOOD.replace("Returns", "Results"), "is no section"),
    ],
)
def test_the_rules(text, message):
    def add(a, b, *rest): ...

    found = problems(text, add, arguments(add))
    assert message in " ".join(found)
    assert bool(found) == bool(message)
