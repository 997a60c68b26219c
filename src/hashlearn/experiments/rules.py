"""Rules that a claim is tested by: one method against others, in the results of one experiment.

They are rules on means over seeds, so that a verdict can be checked by hand from the numbers beside it:

- *best*: the mean is higher than every rival's at each length that the sentence names;
- *clearly*: by at least one point, and by two standard errors of the difference;
- *level*: within so many points of the best rival;
- *as large*: the difference is at least the published one less two points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hashlearn.experiments.summary import Outcomes, measure_label, signed_points

__all__ = [
    "ALL",
    "Check",
    "MissingRunError",
    "View",
    "as_large",
    "below_some",
    "best",
    "both",
    "drops",
    "grows",
    "level",
    "mostly",
    "peak",
]

ALL = (8, 16, 32, 64)
_CLEAR, _SLACK = 1.0, 2.0


class MissingRunError(LookupError):
    """A run that a claim needs is not there."""


@dataclass(frozen=True)
class View:
    """One method against others, in the results of one experiment."""

    outcomes: Outcomes
    subject: str
    rivals: tuple[str, ...]

    def mean(self, method: str, n_bits: int, measure: str) -> float:
        return self._cell(method, n_bits, measure)[0]

    def _cell(self, method: str, n_bits: int, measure: str) -> tuple[float, float]:
        cell = self.outcomes.cell(method, n_bits, measure)
        if cell is None:
            raise MissingRunError(f"{self.outcomes.label(method)} at {n_bits} bits is not there")
        return cell.mean, cell.error

    def difference(self, rival: str, n_bits: int, measure: str) -> tuple[float, float]:
        """Of the means, in points, and its standard error."""
        (a, e), (b, f) = self._cell(self.subject, n_bits, measure), self._cell(rival, n_bits, measure)
        return a - b, math.hypot(e, f)

    def best_rival(self, n_bits: int, measure: str) -> str:
        return max(self.rivals, key=lambda rival: self.mean(rival, n_bits, measure))

    def against(self, rival: str, n_bits: int, measure: str) -> str:
        """``P@3 at 32 bits 16.57, KMH 15.77 (+0.80 ± 0.05)``."""
        difference, error = self.difference(rival, n_bits, measure)
        spread = f" ± {error:.2f}" if error else ""
        theirs = f"{self.outcomes.label(rival)} {self.mean(rival, n_bits, measure):.2f}"
        mine = self.mean(self.subject, n_bits, measure)
        return f"{measure_label(measure)} at {n_bits} bits {mine:.2f}, {theirs} ({signed_points(difference)}{spread})"


Check = Callable[[View], tuple[bool, str]]


def best(measures: Sequence[str] = ("map",), bits: Sequence[int] = ALL, *, clearly: bool = False) -> Check:
    """Above every rival at each of these lengths."""

    def check(view: View) -> tuple[bool, str]:
        held, words = True, []
        for measure in measures:
            for n_bits in bits:
                rival = view.best_rival(n_bits, measure)
                difference, error = view.difference(rival, n_bits, measure)
                held &= difference > (max(_CLEAR, 2 * error) if clearly else 0)
                words.append(view.against(rival, n_bits, measure))
        return held, "; ".join(words)

    return check


def level(measures: Sequence[str], bits: Sequence[int], within: float) -> Check:
    """Within so many points of the best rival at each of these lengths."""

    def check(view: View) -> tuple[bool, str]:
        held, words = True, []
        for measure in measures:
            for n_bits in bits:
                rival = view.best_rival(n_bits, measure)
                held &= abs(view.difference(rival, n_bits, measure)[0]) <= within
                words.append(view.against(rival, n_bits, measure))
        return held, "; ".join(words)

    return check


def as_large(published: dict[int, float]) -> Check:
    """The published difference in points of mAP over the only rival, at each length, less a little."""

    def check(view: View) -> tuple[bool, str]:
        held, words = True, []
        for n_bits, wanted in published.items():
            (rival,) = view.rivals
            difference, error = view.difference(rival, n_bits, "map")
            held &= difference >= wanted - _SLACK
            spread = f" ± {error:.2f}" if error else ""
            words.append(f"{n_bits} bits {signed_points(difference)}{spread} (published {wanted:+.1f})")
        return held, "; ".join(words)

    return check


def grows(bits: Sequence[int] = ALL) -> Check:
    """The lead over the best rival, in points of mAP, is larger at the longer half of the lengths."""

    def check(view: View) -> tuple[bool, str]:
        leads = [view.difference(view.best_rival(n_bits, "map"), n_bits, "map")[0] for n_bits in bits]
        half = len(bits) // 2
        short, long = sum(leads[:half]) / half, sum(leads[half:]) / (len(bits) - half)
        words = ", ".join(f"{signed_points(lead)} at {n_bits}" for lead, n_bits in zip(leads, bits, strict=True))
        return long > max(short, 0), f"lead over the best rival: {words} bits"

    return check


def drops(measures: Sequence[str], before: int, after: int, *, but: dict[str, str] | None = None) -> Check:
    """Every method's precision falls from one length to a longer one, but that of some named methods rises."""
    exceptions = but or {}

    def check(view: View) -> tuple[bool, str]:
        held, words = True, []
        for measure in measures:
            rising = []
            for method in (view.subject, *view.rivals):
                change = view.mean(method, after, measure) - view.mean(method, before, measure)
                if change >= 0:
                    rising.append(f"{view.outcomes.label(method)} ({signed_points(change)})")
                held &= (change >= 0) == (exceptions.get(measure) == method)
            words.append(
                f"{measure_label(measure)} rises from {before} to {after} bits for {', '.join(rising) or 'none'}"
            )
        return held, "; ".join(words)

    return check


def below_some(measures: Sequence[str], n_bits: int) -> Check:
    """Some rival is better at this length."""

    def check(view: View) -> tuple[bool, str]:
        rivals = {measure: view.best_rival(n_bits, measure) for measure in measures}
        held = all(view.difference(rival, n_bits, measure)[0] < 0 for measure, rival in rivals.items())
        return held, "; ".join(view.against(rival, n_bits, measure) for measure, rival in rivals.items())

    return check


def peak(measures: Sequence[str], n_bits: int, bits: Sequence[int] = ALL) -> Check:
    """The highest value of all methods and lengths is the subject's at this length."""

    def check(view: View) -> tuple[bool, str]:
        held, words = True, []
        for measure in measures:
            found = {
                (method, length): view.mean(method, length, measure)
                for method in (view.subject, *view.rivals)
                for length in bits
            }
            method, length = max(found, key=lambda key: found[key])
            held &= (method, length) == (view.subject, n_bits)
            top = f"{view.outcomes.label(method)} at {length} bits, {found[method, length]:.2f}"
            mine = f"{view.outcomes.label(view.subject)} at {n_bits} bits {found[view.subject, n_bits]:.2f}"
            words.append(f"highest {measure_label(measure)}: {top} ({mine})")
        return held, "; ".join(words)

    return check


def mostly(measures: Sequence[str], n_bits: int) -> Check:
    """The subject's value is more than half at this length."""

    def check(view: View) -> tuple[bool, str]:
        values = {measure: view.mean(view.subject, n_bits, measure) for measure in measures}
        words = (f"{measure_label(measure)} at {n_bits} bits {value:.2f}" for measure, value in values.items())
        return min(values.values()) > 50, "; ".join(words)

    return check


def both(*checks: Check) -> Check:
    """All of them hold."""

    def check(view: View) -> tuple[bool, str]:
        results = [each(view) for each in checks]
        return all(held for held, _ in results), "; ".join(words for _, words in results)

    return check
