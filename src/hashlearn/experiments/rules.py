"""Rules that a claim is tested by: one method against others, in the results of one experiment.

They are rules on differences of means over the seeds (or splits) that both methods have, so that a verdict can be
checked by hand from the numbers beside it:

- *best*: above every rival at each length that the sentence names;
- *beyond the spread*: by more than two standard errors of the difference;
- *clearly*: beyond the spread, and by at least one point;
- *level*: within so many points of the best rival;
- *similar*: within a quarter of the best value;
- *as large*: the difference is at least the published one less two points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hashlearn.experiments.summary import Cell, Outcomes, measure_label, signed_points

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
    "lower",
    "mostly",
    "peak",
    "similar",
]

ALL = (8, 16, 32, 64)
_CLEAR, _SLACK, _QUARTER = 1.0, 2.0, 0.25


class MissingRunError(LookupError):
    """A run that a claim needs is not there."""


@dataclass(frozen=True)
class View:
    """One method against others, in the results of one experiment."""

    outcomes: Outcomes
    subject: str
    rivals: tuple[str, ...]

    @property
    def everyone(self) -> tuple[str, ...]:
        return (self.subject, *self.rivals)

    def mean(self, method: str, n_bits: int, measure: str) -> float:
        cell = self.outcomes.cell(method, n_bits, measure)
        if cell is None:
            raise MissingRunError(f"{self.outcomes.label(method)} at {n_bits} bits is not there")
        return cell.mean

    def difference(self, rival: str, n_bits: int, measure: str) -> Cell:
        """The subject's value less the rival's, seed by seed."""
        for method in (self.subject, rival):
            self.mean(method, n_bits, measure)
        found = self.outcomes.difference(self.subject, rival, n_bits, measure)
        if found is None:
            names = f"{self.outcomes.label(self.subject)} and {self.outcomes.label(rival)}"
            raise MissingRunError(f"{names} have no seed in common at {n_bits} bits")
        return found

    def best_rival(self, n_bits: int, measure: str) -> str:
        """The one that the subject leads by least."""
        return min(self.rivals, key=lambda rival: self.difference(rival, n_bits, measure).mean)

    def against(self, rival: str, n_bits: int, measure: str) -> str:
        """``P@3 at 32 bits 16.57, KMH 15.77 (+0.80 ± 0.05)``: means over what is compared."""
        found = self.difference(rival, n_bits, measure)
        pair = self.outcomes.paired(self.subject, rival, n_bits, measure)
        assert pair is not None
        digits = 3 if measure in ("imbalance", "correlation") else 2
        mine, theirs = (f"{cell.mean:.{digits}f}" for cell in pair)
        name = self.outcomes.label(rival)
        return f"{measure_label(measure)} at {n_bits} bits {mine}, {name} {theirs} ({in_points(found, digits)})"


def in_points(difference: Cell, digits: int = 2) -> str:
    """``+0.80 ± 0.05``, with the standard error; ``within the spread`` where two of them are more than the rest."""
    words = signed_points(difference.mean, digits)
    if difference.error is None:
        return f"{words}, one run"
    return f"{words} ± {difference.error:.{digits}f}" + ("" if _beyond(difference) else ", within the spread")


def _beyond(difference: Cell) -> bool:
    """Whether it is not what chance may give; of a single run that is not known, and it counts."""
    return abs(difference.mean) > 2 * (difference.error or 0.0)


Check = Callable[[View], tuple[bool, str]]


def _compared(pairs: Iterable[tuple[bool, str]]) -> tuple[bool, str]:
    found = list(pairs)
    return all(held for held, _ in found), "; ".join(words for _, words in found)


def best(
    measures: Sequence[str] = ("map",), bits: Sequence[int] = ALL, *, clearly: bool = False, beyond: bool = False
) -> Check:
    """Above every rival at each of these lengths; beyond the spread, or clearly, if that is said."""

    def holds(found: Cell) -> bool:
        if found.mean <= 0 or ((clearly or beyond) and not _beyond(found)):
            return False
        return found.mean >= _CLEAR or not clearly

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        failing = [rival for rival in view.rivals if not holds(view.difference(rival, n_bits, measure))]
        # The rival that decides is shown: the best of those that are not beaten, or of all.
        shown = View(view.outcomes, view.subject, tuple(failing) or view.rivals).best_rival(n_bits, measure)
        return not failing, view.against(shown, n_bits, measure)

    return lambda view: _compared(one(view, n_bits, measure) for measure in measures for n_bits in bits)


def lower(measures: Sequence[str], bits: Sequence[int]) -> Check:
    """Below every rival at each of these lengths, beyond the spread."""

    def one(view: View, n_bits: int, measure: str, rival: str) -> tuple[bool, str]:
        found = view.difference(rival, n_bits, measure)
        return found.mean < 0 and _beyond(found), view.against(rival, n_bits, measure)

    return lambda view: _compared(
        one(view, n_bits, measure, rival) for measure in measures for n_bits in bits for rival in view.rivals
    )


def level(measures: Sequence[str], bits: Sequence[int], within: float) -> Check:
    """Within so many points of the best rival at each of these lengths."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        rival = view.best_rival(n_bits, measure)
        return abs(view.difference(rival, n_bits, measure).mean) <= within, view.against(rival, n_bits, measure)

    return lambda view: _compared(one(view, n_bits, measure) for measure in measures for n_bits in bits)


def similar(measures: Sequence[str], bits: Sequence[int], *, everyone: bool) -> Check:
    """The subject's value, or everyone's, is within a quarter of the best at each of these lengths."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        values = {method: view.mean(method, n_bits, measure) for method in view.everyone}
        top = max(values, key=lambda method: values[method])
        other = min(values, key=lambda method: values[method]) if everyone else view.subject
        words = ", ".join(f"{view.outcomes.label(m)} {values[m]:.2f}" for m in dict.fromkeys((other, top)))
        return values[other] >= (1 - _QUARTER) * values[top], f"{measure_label(measure)} at {n_bits} bits: {words}"

    return lambda view: _compared(one(view, n_bits, measure) for measure in measures for n_bits in bits)


def as_large(published: dict[int, float]) -> Check:
    """The published difference in points of mAP over the only rival, at each length, less a little."""

    def one(view: View, n_bits: int, wanted: float) -> tuple[bool, str]:
        (rival,) = view.rivals
        found = view.difference(rival, n_bits, "map")
        words = f"{n_bits} bits {in_points(found)} (published {wanted:+.1f})"
        return found.mean >= wanted - _SLACK, words

    return lambda view: _compared(one(view, n_bits, wanted) for n_bits, wanted in published.items())


def grows(bits: Sequence[int] = ALL) -> Check:
    """The lead over the best rival, in points of mAP, is larger at the longer half of the lengths."""

    def check(view: View) -> tuple[bool, str]:
        leads = [view.difference(view.best_rival(n_bits, "map"), n_bits, "map").mean for n_bits in bits]
        half = len(bits) // 2
        short, long = sum(leads[:half]) / half, sum(leads[half:]) / (len(bits) - half)
        words = ", ".join(f"{signed_points(lead)} at {n_bits}" for lead, n_bits in zip(leads, bits, strict=True))
        return long > max(short, 0), f"lead over the best rival: {words} bits"

    return check


def drops(measures: Sequence[str], before: int, after: int, *, but: dict[str, str] | None = None) -> Check:
    """Every method's precision falls from one length to a longer one, but that of some named methods rises."""
    exceptions = but or {}

    def one(view: View, measure: str) -> tuple[bool, str]:
        held, rising = True, []
        for method in view.everyone:
            change = view.mean(method, after, measure) - view.mean(method, before, measure)
            if change >= 0:
                rising.append(f"{view.outcomes.label(method)} ({signed_points(change)})")
            held &= (change >= 0) == (exceptions.get(measure) == method)
        return held, f"{measure_label(measure)} rises from {before} to {after} bits for {', '.join(rising) or 'none'}"

    return lambda view: _compared(one(view, measure) for measure in measures)


def below_some(measures: Sequence[str], n_bits: int) -> Check:
    """Some rival is better at this length, by each measure."""

    def one(view: View, measure: str) -> tuple[bool, str]:
        rival = view.best_rival(n_bits, measure)
        return view.difference(rival, n_bits, measure).mean < 0, view.against(rival, n_bits, measure)

    return lambda view: _compared(one(view, measure) for measure in measures)


def peak(measures: Sequence[str], n_bits: int, bits: Sequence[int] = ALL) -> Check:
    """The highest value of all methods and lengths is the subject's at this length."""

    def one(view: View, measure: str) -> tuple[bool, str]:
        found = {(m, length): view.mean(m, length, measure) for m in view.everyone for length in bits}
        method, length = max(found, key=lambda key: found[key])
        held = (method, length) == (view.subject, n_bits)
        # Beside the highest stands the highest of the others, or else the subject's own.
        beside = (view.subject, n_bits)
        if held:
            beside = max((key for key in found if key[0] != view.subject), key=lambda key: found[key])
        top, other = (
            f"{view.outcomes.label(m)} at {bits} bits {found[m, bits]:.2f}" for m, bits in ((method, length), beside)
        )
        return held, f"highest {measure_label(measure)}: {top} ({other})"

    return lambda view: _compared(one(view, measure) for measure in measures)


def mostly(measures: Sequence[str], n_bits: int) -> Check:
    """Every method's value is more than half at this length."""

    def one(view: View, measure: str) -> tuple[bool, str]:
        values = {method: view.mean(method, n_bits, measure) for method in view.everyone}
        least = min(values, key=lambda method: values[method])
        words = f"{measure_label(measure)} at {n_bits} bits: least {view.outcomes.label(least)}, {values[least]:.2f}"
        return values[least] > 50, words

    return lambda view: _compared(one(view, measure) for measure in measures)


def both(*checks: Check) -> Check:
    """All of them hold."""
    return lambda view: _compared(check(view) for check in checks)
