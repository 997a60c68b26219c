"""Evaluation protocols: every choice that changes a published number has a name and a default.

Two mAP values can be compared only if the ground truth, the AP rule, the cutoff, the order of ties and the distance are
the same. The ground truth is an object of its own (:mod:`hashlearn.evaluation.truth`); the other choices are the fields
of a :class:`Protocol`.
"""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

__all__ = ["SETTINGS", "Protocol", "Setting", "choose_setting", "setting"]

ApRule = Literal["all", "retrieved", "trapezoid"]
TieRule = Literal["index", "expected"]
Distance = Literal["hamming", "spherical"]

_AP_WORDS = {
    "all": "precision at each relevant rank, summed / all relevant items",
    "retrieved": "precision at each relevant rank, summed / relevant items retrieved",
    "trapezoid": "trapezoid rule over the precision-recall steps / all relevant items",
}
_TIE_WORDS = {"index": "ties in database order", "expected": "ties by expectation over all their orders"}
# The usual distance is not mentioned.
_DISTANCE_WORDS = {"hamming": "", "spherical": "ranked by spherical Hamming distance; "}


def _whole(value: Any) -> int | None:
    """An integer of any type as a plain int; None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


@dataclass(frozen=True)
class Protocol:
    """The choices that turn a ranking into numbers.

    A query without any relevant item has AP 0 and stays in the mean.

    Parameters
    ----------
    ap : {"all", "retrieved", "trapezoid"}
        ``"all"``: the sum of the precisions at the ranks of the retrieved relevant items, divided by the number of all
        relevant items. ``"retrieved"``: divided by the number of relevant items retrieved, which differs for a
        truncated list only. ``"trapezoid"``: each recall step of 1 / all relevant is weighted by the mean of the
        precisions just before and at the relevant rank. Before the first rank the precision is 1.
    cutoff : int, optional
        Rank after which the list is truncated for AP. Default: the whole database.
    ties : {"expected", "index"}
        ``"index"``: equal distances are ordered by database index (a stable sort). ``"expected"``: AP is the exact
        expectation over all orders of the tied items, so it does not depend on the order of the database.
    radii : tuple of int
        Hamming radii r of precision@r: per query, the fraction of relevant items among those at distance ≤ r. The
        cutoff does not apply. A query with no item within r counts 0. Always by plain Hamming distance.
    distance : {"hamming", "spherical"}
        The distance that ranks the database. ``"hamming"``: the number of differing bits. ``"spherical"``: the
        spherical Hamming distance |a ⊕ b| / |a ∧ b|, differing bits over common 1 bits, for the codes of SPH. It is
        infinite without common 1 bits, and 0 between two codes that have no 1 bits at all.
    """

    ap: ApRule = "all"
    cutoff: int | None = None
    ties: TieRule = "expected"
    radii: tuple[int, ...] = (2, 3, 4)
    distance: Distance = "hamming"

    def __post_init__(self) -> None:
        for name, choices in (("ap", _AP_WORDS), ("ties", _TIE_WORDS), ("distance", _DISTANCE_WORDS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}.")
        # Lists (from JSON) and NumPy integers are accepted and stored as plain values.
        cutoff = None if self.cutoff is None else _whole(self.cutoff)
        if self.cutoff is not None and (cutoff is None or cutoff < 1):
            raise ValueError(f"cutoff must be a whole number of at least 1, or None; got {self.cutoff!r}.")
        radii = [_whole(radius) for radius in self.radii]
        if any(radius is None or radius < 0 for radius in radii) or len(set(radii)) < len(radii):
            raise ValueError(f"radii must be distinct whole numbers of at least 0; got {self.radii!r}.")
        object.__setattr__(self, "cutoff", cutoff)
        object.__setattr__(self, "radii", tuple(radii))

    def __str__(self) -> str:
        cut = "whole ranking" if self.cutoff is None else f"top {self.cutoff:,}"
        ranked = _DISTANCE_WORDS[self.distance]
        return f"{ranked}AP: {_AP_WORDS[self.ap]}; {cut}; {_TIE_WORDS[self.ties]}; precision@r: an empty ball counts 0"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ``Protocol(**d)`` restores the protocol."""
        return asdict(self)

    @classmethod
    def preset(cls, name: str) -> Protocol:
        """Look up the protocol of one of the paper's experiments.

        Parameters
        ----------
        name : str
            A key of ``SETTINGS``.
        """
        return setting(name).protocol


@dataclass(frozen=True)
class Setting:
    """The ground truth and the protocol of one experiment.

    Attributes
    ----------
    truth : {"neighbors", "labels"}
        What is relevant to a query: its ``k`` Euclidean nearest neighbors, or the items of its class.
    protocol : Protocol
    k : int or None
        Number of true neighbors; None for labels.
    """

    truth: Literal["neighbors", "labels"]
    protocol: Protocol
    k: int | None = None


# Ties by index: the paper does not specify it, and MATLAB's sort, which the authors' code uses, is stable.
_WHOLE = Protocol(ties="index", radii=(3, 4))
_FIFTY = Setting("neighbors", _WHOLE, k=50)
_TEN = Setting("neighbors", _WHOLE, k=10)
_TEN_THOUSAND = Setting("neighbors", Protocol(cutoff=10_000, ties="index", radii=(3, 4)), k=10_000)

#: Settings by data set: the paper's, ``-labels`` those of its supervised experiments; and of data sets that are not in
#: the paper, from ``sift-photos`` on.
SETTINGS: dict[str, Setting] = {
    "mnist": _FIFTY,
    "cifar10": _FIFTY,
    "mnist-labels": Setting("labels", _WHOLE),
    "cifar10-labels": Setting("labels", _WHOLE),
    "cifar10-dh": Setting("labels", Protocol(ties="index", radii=(2,))),
    "sift1m": _TEN_THOUSAND,
    "sift-photos": _TEN_THOUSAND,
    "siftsmall": Setting("neighbors", _WHOLE, k=100),
    "digits": _TEN,
    **dict.fromkeys(("glosses", "glosses-minilm", "package-names"), _TEN),
}


def setting(name: str) -> Setting:
    """Look up a setting of the paper.

    Parameters
    ----------
    name : str
        A key of ``SETTINGS``.

    Returns
    -------
    Setting

    Raises
    ------
    ValueError
        The name is unknown. The message lists the known ones.
    """
    try:
        return SETTINGS[name]
    except KeyError:
        raise ValueError(f"no setting is named {name!r}; choose from {', '.join(SETTINGS)}.") from None


def choose_setting(
    name: str, *, supervised: bool = False, truth: str | None = None, k: int | None = None, **protocol: Any
) -> Setting:
    """Start from the paper's setting for a data set and replace single choices.

    Parameters
    ----------
    name
        Name of the data set, a key of ``SETTINGS``.
    supervised
        Whether the method learns from labels; it is then judged by labels unless ``truth`` or ``k`` is given.
    truth
        ``"neighbors"`` or ``"labels"``. None: ``"neighbors"`` if ``k`` is given, else as in the paper.
    k
        Number of true neighbors. None: the data set's, or 50.
    **protocol
        Fields of :class:`Protocol`. None leaves a field as it is; ``cutoff=0`` is the whole ranking.

    Returns
    -------
    Setting
    """
    if truth == "neighbours":  # the former spelling
        truth = "neighbors"
    if truth not in (None, "neighbors", "labels"):
        raise ValueError(f"truth must be neighbors or labels; got {truth!r}.")
    if k is not None and truth == "labels":
        raise ValueError("k goes with truth by neighbors, not by labels.")
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1; got {k}.")
    base = setting(name)
    if truth is None:
        truth = "neighbors" if k is not None else "labels" if supervised else base.truth
    changes = {field: value for field, value in protocol.items() if value is not None}
    if changes.get("cutoff") == 0:
        changes["cutoff"] = None
    chosen = replace(base.protocol, **changes)
    if truth == "labels":
        return Setting("labels", chosen)
    return Setting("neighbors", chosen, k=k or base.k or 50)
