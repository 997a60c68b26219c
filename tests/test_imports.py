"""Who may import whom, checked on the imports that the modules really have (CONTRIBUTING states the same rules).

The rules count every import statement: at the top of a module, inside a function, and for type checkers only. Cycles
and heavy packages matter only for what is imported as soon as a module is.

Not seen are: imports by name (``import_module``, ``import_extra``, ``__getattr__`` of a package); private attributes of
a public module (``storage._sweep`` after ``from hashlearn import storage``); what a name of ``hashlearn`` itself, such
as ``METHODS``, imports when it is used; code outside of ``src``, and programs in strings.
"""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import hashlearn

SRC = Path(hashlearn.__file__).parents[1]

# Foundations import one another and nothing else of hashlearn; everybody may import them.
FOUNDATIONS = {"codes", "errors", "labels", "memory", "progress", "storage", "threads", "_arrays", "_safetensors"}
# What each package may import beside itself and the foundations.
MAY_IMPORT: dict[str, set[str]] = {
    "vectors": set(),
    "features": set(),
    "datasets": {"features", "vectors"},
    "evaluation": {"search"},
    "search": set(),
    "hashers": {"evaluation"},  # for early stopping only, see below
    "collection": {"features", "hashers", "search"},
    "interchange": {"collection", "hashers", "search"},
}
# These stand on all of those and not on each other. They may also use the public names of `hashlearn` itself.
LIBRARY = {*MAY_IMPORT, "hashlearn"}
APPLICATIONS = {"compare", "dask", "experiments", "service"}
MAY_IMPORT |= dict.fromkeys(APPLICATIONS, LIBRARY)
MAY_IMPORT |= {
    "cli": LIBRARY | APPLICATIONS,
    "hashlearn": {"collection", "compare", "hashers", "interchange", "search"},
}
EARLY_STOPPING = {"hashlearn.hashers._early_stop"}
# Slow to import, or optional: imported inside the function that needs them.
HEAVY = {
    *("dask", "distributed", "faiss", "fastapi", "h5py", "matplotlib", "onnx", "onnxruntime", "pandas", "PIL"),
    *("psycopg", "pyarrow", "sentence_transformers", "starlette", "torch", "uvicorn"),
}


class Import(NamedTuple):
    """One imported module, and whether it is imported as soon as the importing module is."""

    target: str
    at_once: bool


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted((SRC / "hashlearn").rglob("*.py"))}


def imports(source: str) -> list[Import]:
    """Everything that a module imports; ``from package import module`` counts as the module."""
    return list(_visit(ast.parse(source), at_once=True))


def _visit(node: ast.AST, at_once: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, at_once) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, f"imports must be absolute: {ast.unparse(node)}"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield Import(full if full in MODULES or alias.name.startswith("_") else str(node.module), at_once)
    later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
        isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    )
    for child in ast.iter_child_nodes(node):
        yield from _visit(child, at_once and not later)


GRAPH = {name: imports(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def unit(module: str) -> str:
    """The package or top-level module that a module belongs to."""
    return module.split(".")[1] if "." in module else "hashlearn"


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "hashlearn"


def is_private_to_another(module: str, target: str) -> bool:
    """Whether a part of the target's name begins with an underscore, below a package that does not hold the module."""
    parts = ["public" if part in FOUNDATIONS else part for part in target.split(".")]
    private = [i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
    return bool(private) and parts[: private[0]] != module.split(".")[: private[0]]


def is_allowed(module: str, target: str) -> bool:
    importer, imported = unit(module), unit(target)
    if (importer, imported) == ("hashers", "evaluation") and module not in EARLY_STOPPING:
        return False
    may_import = MAY_IMPORT.get(importer, set()) | FOUNDATIONS | {importer}
    return imported in may_import and not is_private_to_another(module, target)


def test_every_module_has_its_place():
    assert {unit(name) for name in MODULES} <= FOUNDATIONS | set(MAY_IMPORT)


def test_modules_import_only_what_they_may():
    broken = {
        (module, target)
        for module, imported in GRAPH.items()
        for target, _ in imported
        if is_ours(target) and not is_allowed(module, target)
    }
    assert sorted(broken) == []


def test_no_cycles():
    graph = {
        module: {target for target, at_once in imported if at_once and is_ours(target) and target != module}
        for module, imported in GRAPH.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_heavy_packages_are_imported_where_they_are_used():
    heavy = {
        (module, target)
        for module, imported in GRAPH.items()
        for target, at_once in imported
        if at_once and target.split(".")[0] in HEAVY
    }
    assert sorted(heavy) == []


def test_imports_are_seen_wherever_they_are():
    source = """if True:
        import numpy as np
        from hashlearn import codes
        from hashlearn.codes import pack
        if TYPE_CHECKING:
            from hashlearn.hashers import Hasher
        try:
            import json
        except ImportError:
            pass
        class A:
            def f(self):
                with self:
                    from hashlearn.storage import _sweep
        """
    assert imports(source) == [
        ("numpy", True),
        ("hashlearn.codes", True),
        ("hashlearn.codes", True),
        ("hashlearn.hashers", False),
        ("json", True),
        ("hashlearn.storage._sweep", False),
    ]
    assert "hashlearn.storage" in {target for target, _ in GRAPH["hashlearn.vectors"]}  # the graph is the real one


@pytest.mark.parametrize(
    ("module", "target", "allowed"),
    [
        ("hashlearn.storage", "hashlearn.errors", True),
        ("hashlearn.storage", "hashlearn.vectors", False),
        ("hashlearn.search._scan", "hashlearn._safetensors", True),
        ("hashlearn.search.index", "hashlearn.search._scan", True),
        ("hashlearn.collection.ingest", "hashlearn.search._scan", False),
        ("hashlearn.collection.ingest", "hashlearn.search", True),
        ("hashlearn.search.index", "hashlearn.collection", False),
        ("hashlearn.evaluation.metrics", "hashlearn.hashers", False),
        ("hashlearn.hashers._early_stop", "hashlearn.evaluation", True),
        ("hashlearn.hashers.udh_dnn", "hashlearn.evaluation", False),
        ("hashlearn.experiments.grid", "hashlearn.hashers", True),
        ("hashlearn.experiments.grid", "hashlearn.compare", False),
        ("hashlearn.experiments.grid", "hashlearn.cli", False),
        ("hashlearn.cli.app", "hashlearn.experiments.grid", True),
        ("hashlearn.experiments.results", "hashlearn", True),
        ("hashlearn.search.index", "hashlearn", False),
        ("hashlearn.vectors", "hashlearn.storage._sweep", False),
    ],
)
def test_the_rules(module, target, allowed):
    assert is_allowed(module, target) is allowed


def modules_after(code: str) -> set[str]:
    """The top-level names of the modules that a program has imported at its end."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.slow
def test_importing_hashlearn_is_nearly_free():
    assert not modules_after("import hashlearn") & {*HEAVY, "numpy", "rich", "scipy", "sklearn", "typer"}
    # scikit-learn imports pandas, and pandas pyarrow, where they are installed.
    assert not modules_after("import hashlearn; hashlearn.ITQ") & (HEAVY - {"pandas", "pyarrow"} | {"rich", "typer"})


def test_public_names_follow_from_the_methods(monkeypatch):
    from hashlearn import hashers

    classes = {method.__name__ for method in hashlearn.METHODS.values()}
    assert classes <= set(hashlearn.__all__) <= set(dir(hashlearn))
    others = {"METHODS", "Collection", "HammingIndex", "Hasher", "HashingPipeline", "ModelMetadata", "load"}
    assert set(hashlearn.__all__) - classes == {*others, "choose", "make_pipeline", "recommended"}
    assert all(getattr(hashlearn, name) is not None for name in dir(hashlearn))
    monkeypatch.setattr(hashers, "__all__", [*hashers.__all__, "New"])
    monkeypatch.setattr(hashers, "New", object, raising=False)
    assert hashlearn.New is object
    assert "New" in hashlearn.__all__
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        _ = hashlearn.magic


@pytest.mark.parametrize(
    ("module", "former", "present"),
    [
        ("codes", "bits_of", "codes.sign_bits"),
        ("codes", "signs_of", "codes.signs"),
        ("evaluation", "euclidean_neighbours", "evaluation.euclidean_neighbors"),
        ("search", "Neighbours", "search.Neighbors"),
        ("search", "Collection", "collection.Collection"),
        ("search", "near_duplicates", "collection.near_duplicates"),
        ("vectors", "format_of", "vectors.get_format"),
    ],
)
def test_former_names_still_work(module, former, present):
    home, _, name = f"hashlearn.{present}".rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"hashlearn.{module}.{former} is now hashlearn.{present}"):
        found = getattr(importlib.import_module(f"hashlearn.{module}"), former)
    assert found is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        _ = importlib.import_module(f"hashlearn.{module}").magic


def test_the_former_spelling_of_truth():
    from hashlearn.evaluation import Truth, choose_setting

    with pytest.warns(DeprecationWarning, match=r"Truth.neighbours is now Truth.neighbors"):
        truth = Truth.neighbours([[0, 1]], n_database=3)
    assert truth.description == Truth.neighbors([[0, 1]], n_database=3).description
    assert choose_setting("digits", truth="neighbours") == choose_setting("digits", truth="neighbors")
