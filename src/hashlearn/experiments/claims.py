"""What the paper says of its experiments, and whether the results agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hashlearn.experiments.summary import Outcomes

__all__ = ["Finding", "Reading", "claims_of"]

Verdict = Literal["holds", "does not hold", "not tested"]


@dataclass(frozen=True)
class Reading:
    """One way to read a claim, and what comes of it."""

    name: str
    verdict: Verdict
    numbers: str


@dataclass(frozen=True)
class Finding:
    """A claim of the paper: where it stands, its words, the experiment that tests it, and its readings."""

    where: str
    words: str
    experiment: str
    readings: list[Reading]


def claims_of(outcomes: list[Outcomes]) -> list[Finding]:
    return []
