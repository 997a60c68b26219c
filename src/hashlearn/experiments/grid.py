"""The grid of experiments (``grid.toml``), the studies (``studies.toml``), and the runs that they stand for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, Literal

from hashlearn.datasets import DATASETS
from hashlearn.errors import check_name
from hashlearn.evaluation import Setting, setting
from hashlearn.hashers import METHODS, Hasher
from hashlearn.interchange.quantizers import ProductQuantizer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


#: What an entry may run: the methods, and others to compare them with.
COMPARED: dict[str, type[Hasher] | type[ProductQuantizer]] = {**METHODS, "faiss-pq": ProductQuantizer}
# Training vectors that serve as queries in a study, if it does not say.
_HELD_OUT = 1000


@dataclass(frozen=True)
class Entry:
    """A method with its parameters: one row of a table, one line of a chart.

    ``distance`` ranks its codes; None stands for the method's own.
    """

    name: str
    label: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    distance: Literal["hamming", "spherical"] | None = None

    def hasher(self) -> Hasher | ProductQuantizer:
        return COMPARED[self.method](**self.parameters)


@dataclass(frozen=True)
class Limit:
    """The numbers of training vectors and of queries that are used, from the first on."""

    train: int
    queries: int


@dataclass(frozen=True)
class Experiment:
    """One figure, table or study: entries by numbers of bits and seeds.

    ``data`` are alternatives, of which the first available one is used. ``variants`` names the entries that are not
    part of the paper's comparison. ``held_out`` is the number of training vectors that serve as queries in a study; 0
    stands for the test queries. ``new_samples``: half of the test queries search the other half, so that no item was
    trained on.
    """

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
    held_out: int = 0
    new_samples: bool = False

    @property
    def recall(self) -> bool:
        """Whether the share of the true neighbors among the first items is measured."""
        return any("recall@" in measure for measure in self.measures)

    @property
    def methods(self) -> list[str]:
        return [entry.name for entry in self.entries]

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)


@dataclass(frozen=True)
class Run:
    """One fit and its scores. ``split`` is None where the data set has only one."""

    experiment: str
    entry: Entry
    data: str
    setting: Setting
    n_bits: int
    seed: int
    split: int | None = None
    limit: Limit | None = None
    held_out: int = 0
    new_samples: bool = False
    recall: bool = False

    @property
    def measure(self) -> str:
        """The measure that is shown while runs are made."""
        return "real_recall@10" if self.recall else "map"

    def __str__(self) -> str:
        return f"{self.experiment} {self.entry.name} {self.n_bits} bits seed {self.seed}"


@cache
def _file(name: str = "grid.toml") -> dict[str, Any]:
    return tomllib.loads(files("hashlearn.experiments").joinpath(name).read_text(encoding="utf-8"))


def names() -> list[str]:
    """Return the names of the experiments, in the order in which they are run."""
    return list(_file()["experiments"])


def study_names() -> list[str]:
    """Return the names of the studies, which are run only when they are named."""
    return list(_file("studies.toml"))


def method_names() -> list[str]:
    """Return the names of the entries that the experiments are made of."""
    return list(_file()["methods"])


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Replace "none" by None, which TOML does not have."""
    return {name: None if value == "none" else value for name, value in parameters.items()}


def _entry(name: str) -> Entry:
    table = {"method": name, **_file()["methods"][name]}
    return Entry(name=name, **{**table, "parameters": _values(table.get("parameters", {}))})


def _with(entry: Entry, parameters: Mapping[str, Any]) -> Entry:
    return replace(entry, parameters={**entry.parameters, **_values(parameters)})


def experiment(name: str) -> Experiment:
    """Return the experiment or study of that name.

    Raises
    ------
    ValueError
        There is none. The message suggests a name.
    """
    if name in study_names():
        return _study(name)
    check_name("experiment", name, [*names(), *study_names()])
    table = _file()["experiments"][name]
    changes = table.get("parameters", {})
    methods = (*table["methods"], *table["variants"])
    base = setting(table.get("setting", table["data"][0]))
    return Experiment(
        name=name,
        title=table["title"],
        data=tuple(table["data"]),
        setting=replace(base, k=table.get("neighbors", base.k)),
        bits=tuple(table["bits"]),
        seeds=table["seeds"],
        measures=tuple(table["measures"]),
        entries=tuple(_with(_entry(method), changes.get(method, {})) for method in methods),
        variants=tuple(table["variants"]),
        subject=table["subject"],
        tuned=table.get("tuned"),
        undrawn=tuple(table.get("undrawn", ())),
        fewer={method: _by_bits(seeds) for method, seeds in table.get("fewer", {}).items()},
        published={
            method: {measure: _by_bits(values) for measure, values in measures.items()}
            for method, measures in table.get("published", {}).items()
        },
        new_samples=table.get("new_samples", False),
    )


def _study(name: str) -> Experiment:
    table = _file("studies.toml")[name]
    base = setting(table.get("setting", table["data"]))
    protocol = replace(base.protocol, cutoff=None, radii=(2, 3, 4))
    method = _entry(table["method"])
    beside = tuple(table.get("beside", ["itq"]))
    varied = []
    for lists in table["grid"]:
        for values in product(*lists.values()):
            parameters = dict(zip(lists, values, strict=True))
            words = [f"{parameter}={value}" for parameter, value in parameters.items()]
            label = ", ".join([method.label, *words])
            entry = replace(_with(method, parameters), name="/".join(words) or "default", label=label)
            varied.append(entry)
    return Experiment(
        name=name,
        title=table["title"],
        data=(table["data"],),
        setting=replace(base, k=table.get("neighbors", base.k), protocol=protocol),
        bits=tuple(table["bits"]),
        seeds=table["seeds"],
        measures=tuple(table.get("measures", ("map", "p@2", "p@3", "p@4"))),
        entries=(*varied, *map(_entry, beside)),
        variants=beside,
        subject=varied[0].name,
        held_out=table.get("held_out", _HELD_OUT),
        new_samples=table.get("new_samples", False),
    )


def _by_bits(table: Mapping[str, Any]) -> dict[int, Any]:
    return {int(n_bits): value for n_bits, value in table.items()}


def quick(chosen: Experiment, data: str | None = None) -> Experiment:
    """Return a small version of an experiment, as ``[quick]`` in the grid describes it.

    Parameters
    ----------
    chosen : Experiment
    data : str, optional
        A data set to use instead of the experiment's own.
    """
    if data is not None:
        check_name("data set", data, DATASETS)
    small = _file()["quick"]
    shorter = small["parameters"]
    by_neighbors = chosen.setting.truth == "neighbors"
    return replace(
        chosen,
        title=f"{chosen.title} (a small version)",
        data=(*_quick_data(chosen), small["otherwise"]) if data is None else (data,),
        setting=replace(chosen.setting, k=small["neighbors"]) if by_neighbors else chosen.setting,
        bits=tuple(small["bits"]),
        seeds=small["seeds"],
        entries=tuple(
            # A study keeps what it compares.
            _with(entry, {**shorter.get(entry.method, {}), **entry.parameters})
            if chosen.held_out
            else _with(_with(entry, shorter.get(entry.method, {})), shorter.get(entry.name, {}))
            for entry in chosen.entries
        ),
        fewer={},
        published={},
        limit=Limit(small["train"], small["queries"]),
        held_out=small["queries"] if chosen.held_out else 0,
    )


def _quick_data(chosen: Experiment) -> tuple[str, ...]:
    """The data sets of a small version: others where the experiment's own take minutes to make."""
    return tuple(_file()["quick"]["data"].get(name, name) for name in chosen.data)


def narrowed(
    chosen: Experiment,
    *,
    bits: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
) -> Experiment:
    """Return the experiment restricted to some of its numbers of bits and entries, and to the first seeds."""
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1; got {seeds}.")
    return replace(
        chosen,
        bits=tuple(b for b in chosen.bits if bits is None or b in bits),
        entries=tuple(entry for entry in chosen.entries if methods is None or entry.name in methods),
        seeds=chosen.seeds if seeds is None else min(seeds, chosen.seeds),
    )


def choose(
    selected: Sequence[str] = (),
    *,
    bits: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
    small: bool = False,
    data: str | None = None,
) -> list[Experiment]:
    """Return the selected experiments and studies, narrowed, in the order in which they are run.

    Parameters
    ----------
    selected : sequence of str
        Names of experiments and studies; if empty, all experiments and no study.
    bits, methods, seeds
        As for `narrowed`. ``methods`` are names of entries: of the experiments, or of a selected study. An experiment
        of which nothing remains is left out.
    small : bool
        Whether to return small versions (`quick`), on the data set ``data`` if that is given.

    Raises
    ------
    ValueError
        A name or value is unknown, or nothing remains.
    """
    for name in selected:
        experiment(name)
    chosen = [experiment(name) for name in (*names(), *study_names()) if name in (selected or names())]
    entries = dict.fromkeys([*method_names(), *(name for one in chosen for name in one.methods)])
    for name in methods or ():
        check_name("method of the experiments", name, entries)
    if small:
        chosen = [quick(one, data) for one in chosen]
    chosen = [narrowed(one, bits=bits, methods=methods, seeds=seeds) for one in chosen]
    chosen = [one for one in chosen if one.bits and one.entries]
    if not chosen:
        raise ValueError("nothing is left to run: no chosen experiment has such methods and bits (--list).")
    return chosen


def depends_on_seed(chosen: Experiment, entry: Entry, data: str) -> bool:
    """Whether results depend on the seed: the method draws something, or the data set's split is drawn."""
    return _is_split(chosen, data) or entry.hasher().is_random


def _is_split(chosen: Experiment, data: str) -> bool:
    return DATASETS[data].takes_split and not chosen.held_out


def entry_setting(chosen: Experiment, entry: Entry) -> Setting:
    """Return the experiment's setting with the distance that ranks the entry's codes: its own, or its method's."""
    distance = entry.distance or COMPARED[entry.method].distance
    return replace(chosen.setting, protocol=replace(chosen.setting.protocol, distance=distance))


def plan_runs(chosen: Experiment, data: str) -> Iterator[Run]:
    """Yield all runs of an experiment on one of its data sets, seed by seed, so that one of each comes first."""
    for seed in range(chosen.seeds):
        for entry in chosen.entries:
            scored_by, is_repeated = entry_setting(chosen, entry), depends_on_seed(chosen, entry, data)
            for n_bits in chosen.bits:
                if seed and (not is_repeated or seed >= chosen.fewer.get(entry.name, {}).get(n_bits, chosen.seeds)):
                    continue
                split = seed if _is_split(chosen, data) else None
                limits = chosen.limit, chosen.held_out, chosen.new_samples, chosen.recall
                yield Run(chosen.name, entry, data, scored_by, n_bits, seed, split, *limits)
