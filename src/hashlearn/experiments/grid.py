"""The grid of experiments: a readable file (``grid.toml``) and the runs that it stands for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from hashlearn.datasets import DATASETS
from hashlearn.evaluation import Setting, setting
from hashlearn.hashers import METHODS, Hasher

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "Entry",
    "Experiment",
    "Limit",
    "Run",
    "entry_setting",
    "experiment",
    "is_drawn",
    "method_names",
    "names",
    "narrowed",
    "plan_runs",
    "quick",
]


@dataclass(frozen=True)
class Entry:
    """A method with its parameters, as one line of a table and one curve of a figure."""

    name: str
    label: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    distance: Literal["hamming", "spherical"] | None = None
    draws: bool = True

    def hasher(self) -> Hasher:
        return METHODS[self.method](**self.parameters)


@dataclass(frozen=True)
class Limit:
    """How many vectors of a data set are used, the first ones: to learn from and to search in, and queries."""

    train: int
    queries: int


@dataclass(frozen=True)
class Experiment:
    """One figure or table: methods (the paper's, and ``variants`` beside them) by numbers of bits and seeds."""

    name: str
    title: str
    data: tuple[str, ...]
    setting: Setting
    bits: tuple[int, ...]
    seeds: int
    measures: tuple[str, ...]
    entries: tuple[Entry, ...]
    variants: tuple[str, ...]
    subject: str
    tuned: str | None = None
    undrawn: tuple[str, ...] = ()
    fewer: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    published: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)
    limit: Limit | None = None

    @property
    def methods(self) -> list[str]:
        return [entry.name for entry in self.entries]


@dataclass(frozen=True)
class Run:
    """One fit and its judgement. ``split``: of the data set, where splits are random; else ``None``."""

    experiment: str
    entry: Entry
    data: str
    setting: Setting
    n_bits: int
    seed: int
    split: int | None = None
    limit: Limit | None = None

    def __str__(self) -> str:
        return f"{self.experiment} {self.entry.name} {self.n_bits} bits seed {self.seed}"


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("hashlearn.experiments").joinpath("grid.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """The experiments, in the order in which they are run."""
    return list(_file()["experiments"])


def method_names() -> list[str]:
    """The methods with their parameters that experiments are made of."""
    return list(_file()["methods"])


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no None."""
    return {name: None if value == "none" else value for name, value in parameters.items()}


def _entry(name: str) -> Entry:
    table = {"method": name, **_file()["methods"][name]}
    return Entry(name=name, **{**table, "parameters": _values(table.get("parameters", {}))})


def _with(entry: Entry, parameters: Mapping[str, Any]) -> Entry:
    return replace(entry, parameters={**entry.parameters, **_values(parameters)})


def experiment(name: str) -> Experiment:
    """The experiment of that name, or a ValueError that lists the names there are."""
    if name not in names():
        raise ValueError(f"no experiment is named {name!r}; there are: {', '.join(names())}.")
    table = _file()["experiments"][name]
    own = table.get("parameters", {})
    methods = (*table["methods"], *table["variants"])
    return Experiment(
        name=name,
        title=table["title"],
        data=tuple(table["data"]),
        setting=setting(table.get("setting", table["data"][0])),
        bits=tuple(table["bits"]),
        seeds=table["seeds"],
        measures=tuple(table["measures"]),
        entries=tuple(_with(_entry(method), own.get(method, {})) for method in methods),
        variants=tuple(table["variants"]),
        subject=table["subject"],
        tuned=table.get("tuned"),
        undrawn=tuple(table.get("undrawn", ())),
        fewer={method: _by_bits(seeds) for method, seeds in table.get("fewer", {}).items()},
        published={
            method: {measure: _by_bits(values) for measure, values in measures.items()}
            for method, measures in table.get("published", {}).items()
        },
    )


def _by_bits(table: Mapping[str, Any]) -> dict[int, Any]:
    return {int(n_bits): value for n_bits, value in table.items()}


def quick(chosen: Experiment, data: str | None = None) -> Experiment:
    """A small version of an experiment, by the grid's ``[quick]``, or on the data set ``data`` instead of its own."""
    if data is not None and data not in DATASETS:
        raise ValueError(f"data must be one of {', '.join(DATASETS)}; got {data!r}.")
    small = _file()["quick"]
    shorter = small["parameters"]
    how = chosen.setting
    if how.truth == "neighbours":
        how = replace(how, k=small["neighbours"])
    return replace(
        chosen,
        title=f"{chosen.title} (a small version)",
        data=(*chosen.data, small["otherwise"]) if data is None else (data,),
        setting=how,
        bits=tuple(small["bits"]),
        seeds=small["seeds"],
        entries=tuple(
            _with(_with(entry, shorter.get(entry.method, {})), shorter.get(entry.name, {})) for entry in chosen.entries
        ),
        fewer={},
        published={},
        limit=Limit(small["train"], small["queries"]),
    )


def narrowed(
    chosen: Experiment,
    *,
    bits: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
) -> Experiment:
    """The experiment with these lengths and methods of its own alone, and at most so many seeds."""
    unknown = [name for name in methods or () if name not in method_names()]
    if unknown:
        raise ValueError(
            f"no method of the experiments is named {unknown[0]!r}; there are: {', '.join(method_names())}."
        )
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1; got {seeds}.")
    return replace(
        chosen,
        bits=tuple(b for b in chosen.bits if bits is None or b in bits),
        entries=tuple(entry for entry in chosen.entries if methods is None or entry.name in methods),
        seeds=chosen.seeds if seeds is None else min(seeds, chosen.seeds),
    )


def is_drawn(entry: Entry, data: str) -> bool:
    """Whether another seed gives another result: the method draws something, or the data set's split is drawn."""
    return DATASETS[data].takes_split or (entry.draws and METHODS[entry.method].draws())


def entry_setting(chosen: Experiment, entry: Entry) -> Setting:
    """Return the experiment's setting with the distance that ranks the entry's codes: its own, or its method's."""
    distance = entry.distance or METHODS[entry.method].distance
    return replace(chosen.setting, protocol=replace(chosen.setting.protocol, distance=distance))


def plan_runs(chosen: Experiment, data: str) -> Iterator[Run]:
    """All runs of an experiment on one of its data sets: seed by seed, so that one of everything comes first."""
    splits = DATASETS[data].takes_split
    for seed in range(chosen.seeds):
        for entry in chosen.entries:
            how, drawn = entry_setting(chosen, entry), is_drawn(entry, data)
            for n_bits in chosen.bits:
                if seed and (not drawn or seed >= chosen.fewer.get(entry.name, {}).get(n_bits, chosen.seeds)):
                    continue
                yield Run(chosen.name, entry, data, how, n_bits, seed, seed if splits else None, chosen.limit)
