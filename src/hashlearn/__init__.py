"""hashlearn: learn compact binary codes for vectors and images, and search them.

Public names are imported on first use, so ``import hashlearn`` is nearly free. They are the public names of
:mod:`hashlearn.hashers`, among them a class for each method, those below, and the modules of the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlearn.collection import Collection as Collection
    from hashlearn.compare import choose as choose
    from hashlearn.compare import recommended as recommended
    from hashlearn.hashers import *  # noqa: F403
    from hashlearn.hashers import Hasher
    from hashlearn.interchange.pipeline import HashingPipeline as HashingPipeline
    from hashlearn.interchange.pipeline import make_pipeline as make_pipeline
    from hashlearn.search import HammingIndex as HammingIndex

    load = Hasher.load

_HOMES = {
    "Collection": "collection",
    "HammingIndex": "search",
    "HashingPipeline": "interchange.pipeline",
    "choose": "compare",
    "make_pipeline": "interchange.pipeline",
    "recommended": "compare",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hashlearn")
    if name in _HOMES:
        return getattr(import_module(f"hashlearn.{_HOMES[name]}"), name)
    if name in _modules():
        return import_module(f"hashlearn.{name}")
    if name == "__all__" or not name.startswith("_"):  # Python asks for many names with underscores
        hashers = import_module("hashlearn.hashers")
        if name == "__all__":
            return sorted([*hashers.__all__, *_HOMES, "load"])
        if name == "load":
            return hashers.Hasher.load
        if name in hashers.__all__:
            return getattr(hashers, name)
    raise AttributeError(f"module 'hashlearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), *_modules(), "__version__"])


def _modules() -> list[str]:
    from pkgutil import iter_modules

    return [module.name for module in iter_modules(__path__) if not module.name.startswith("_")]  # noqa: F405
