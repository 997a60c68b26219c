"""hashlearn: learn compact binary codes for vectors and images, and search them.

The names below are imported when they are first used, so that ``import hashlearn`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlearn.collection import Collection
    from hashlearn.hashers import BA, BRE, DH, ITQ, ITQCCA, KMH, KSH, LSH, METHODS, SDH, SDHDNN, SH, SPH, UDHDNN, Hasher
    from hashlearn.search import HammingIndex

    load = Hasher.load

_MODULES = (
    *("codes", "collection", "datasets", "errors", "evaluation", "experiments", "features", "hashers", "interchange"),
    *("search", "vectors"),
)
_PLACES = {"Collection": "collection", "HammingIndex": "search"}

__all__ = [
    "BA",
    "BRE",
    "DH",
    "ITQ",
    "ITQCCA",
    "KMH",
    "KSH",
    "LSH",
    "METHODS",
    "SDH",
    "SDHDNN",
    "SH",
    "SPH",
    "UDHDNN",
    "Collection",
    "HammingIndex",
    "Hasher",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "load":
        return import_module("hashlearn.hashers").Hasher.load
    if name in _PLACES:
        return getattr(import_module(f"hashlearn.{_PLACES[name]}"), name)
    if name in __all__:
        return getattr(import_module("hashlearn.hashers"), name)
    if name in _MODULES:
        return import_module(f"hashlearn.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("hashlearn")
    raise AttributeError(f"module 'hashlearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
