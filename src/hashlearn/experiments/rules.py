"""Rules that test claims: one method against others, in the results of one experiment.

The rules use means, so that a verdict can be checked by hand from the numbers beside it. Rules on differences of means
over the seeds (or splits) that both methods have:

- *best*: above every rival at each number of bits, optionally beyond the spread or clearly;
- *lower*: below every rival, beyond the spread;
- *beyond the spread*: by more than two standard errors of the difference (always, for a single run);
- *clearly*: beyond the spread, and by at least one point;
- *level*: within some points of the best rival;
- *as large*: the difference is at least the published one less two points;
- *grows*: the mean lead over the best rival is larger for long codes than for short ones, and positive for long ones;
- *below some*: some rival is better.

Rules on the mean of each method over all its seeds:

- *similar*: all methods are within a quarter of the best; *comparable*: the lower of the subject and its best rival is
  within a quarter of the higher;
- *drops*: every method falls from one number of bits to another, except named ones, which rise by at most two points;
- *peak*: the highest value over all methods and numbers of bits, by each measure or over all, is the subject's;
- *mostly*: every method's value is more than half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from hashlearn.experiments.summary import Cell, Outcomes, measure_label, signed_points

ALL = (8, 16, 32, 64)
_CLEAR, _SLACK, _LITTLE, _QUARTER = 1.0, 2.0, 2.0, 0.25
_MAX_DIGITS = 5


class MissingRunError(LookupError):
    """A run that a claim needs is missing."""


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
            raise MissingRunError(f"{self.outcomes.label(method)} at {n_bits} bits is missing")
        return cell.mean

    def difference(self, rival: str, n_bits: int, measure: str) -> Cell:
        """Return the subject's values minus the rival's, seed by seed."""
        for method in (self.subject, rival):
            self.mean(method, n_bits, measure)
        difference = self.outcomes.difference(self.subject, rival, n_bits, measure)
        if difference is None:
            names = f"{self.outcomes.label(self.subject)} and {self.outcomes.label(rival)}"
            raise MissingRunError(f"{names} have no seed in common at {n_bits} bits")
        return difference

    def best_rival(self, n_bits: int, measure: str) -> str:
        """Return the rival with the highest value relative to the subject."""
        return min(self.rivals, key=lambda rival: self.difference(rival, n_bits, measure).mean)

    def against(self, rival: str, n_bits: int, measure: str) -> str:
        """Format a comparison: ``P@3 at 32 bits 16.57, KMH 15.77 (+0.80 ± 0.05)``."""
        difference = self.difference(rival, n_bits, measure)
        pair = self.outcomes.paired(self.subject, rival, n_bits, measure)
        assert pair is not None
        digits = 3 if measure in ("imbalance", "correlation") else 2
        mine, theirs = (f"{cell.mean:.{digits}f}" for cell in pair)
        name = self.outcomes.label(rival)
        return f"{measure_label(measure)} at {n_bits} bits {mine}, {name} {theirs} ({in_points(difference, digits)})"


def in_points(difference: Cell, digits: int = 2) -> str:
    """Format a difference with its standard error: ``+0.80 ± 0.05``; add ``within the spread`` if it is."""
    if difference.error is None:
        return f"{signed_points(difference.mean, digits)}, one run"
    if difference.error > 0:  # two digits, so that "within the spread" can be checked by hand
        digits = max(digits, min(1 - math.floor(math.log10(difference.error)), _MAX_DIGITS))
    words = f"{signed_points(difference.mean, digits)} ± {difference.error:.{digits}f}"
    return words + ("" if _beyond(difference) else ", within the spread")


def _beyond(difference: Cell) -> bool:
    """Whether a difference is more than two standard errors; true for a single run."""
    return abs(difference.mean) > 2 * (difference.error or 0.0)


Check = Callable[[View], tuple[bool, str]]


def _compared(pairs: Iterable[tuple[bool, str]]) -> tuple[bool, str]:
    checked = list(pairs)
    return all(held for held, _ in checked), "; ".join(dict.fromkeys(words for _, words in checked))


def _each(one: Callable[[View, int, str], tuple[bool, str]], measures: Sequence[str], bits: Sequence[int]) -> Check:
    """Check one number of bits after another, by each measure."""
    return lambda view: _compared(one(view, n_bits, measure) for measure in measures for n_bits in bits)


def best(
    measures: Sequence[str] = ("map",), bits: Sequence[int] = ALL, *, clearly: bool = False, beyond: bool = False
) -> Check:
    """Above every rival at each number of bits; optionally beyond the spread, or clearly."""

    def holds(lead: Cell) -> bool:
        if lead.mean <= 0 or ((clearly or beyond) and not _beyond(lead)):
            return False
        return lead.mean >= _CLEAR or not clearly

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        failing = [rival for rival in view.rivals if not holds(view.difference(rival, n_bits, measure))]
        # The rival that decides is shown: the best of those that are not beaten, or else of all.
        shown = View(view.outcomes, view.subject, tuple(failing) or view.rivals).best_rival(n_bits, measure)
        return not failing, view.against(shown, n_bits, measure)

    return _each(one, measures, bits)


def lower(measures: Sequence[str], bits: Sequence[int]) -> Check:
    """Below every rival at each number of bits, beyond the spread."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        leads = {rival: view.difference(rival, n_bits, measure) for rival in view.rivals}
        return _compared(
            (lead.mean < 0 and _beyond(lead), view.against(rival, n_bits, measure)) for rival, lead in leads.items()
        )

    return _each(one, measures, bits)


def level(measures: Sequence[str] = ("map",), bits: Sequence[int] = ALL, within: float = _LITTLE) -> Check:
    """Within some points of the best rival at each number of bits."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        rival = view.best_rival(n_bits, measure)
        return abs(view.difference(rival, n_bits, measure).mean) <= within, view.against(rival, n_bits, measure)

    return _each(one, measures, bits)


def similar(measures: Sequence[str], bits: Sequence[int]) -> Check:
    """All methods are within a quarter of the best at each number of bits."""
    return _each(lambda view, *where: _within_a_quarter(view, view.everyone, *where), measures, bits)


def comparable(measures: Sequence[str], bits: Sequence[int]) -> Check:
    """The lower of the subject and its best rival is within a quarter of the higher at each number of bits."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        rival = max(view.rivals, key=lambda method: view.mean(method, n_bits, measure))
        return _within_a_quarter(view, (view.subject, rival), n_bits, measure)

    return _each(one, measures, bits)


def _within_a_quarter(view: View, methods: Sequence[str], n_bits: int, measure: str) -> tuple[bool, str]:
    values = {method: view.mean(method, n_bits, measure) for method in methods}
    least, top = (pick(methods, key=lambda method: values[method]) for pick in (min, max))
    words = ", ".join(f"{view.outcomes.label(m)} {values[m]:.2f}" for m in dict.fromkeys((least, top)))
    return values[least] >= (1 - _QUARTER) * values[top], f"{measure_label(measure)} at {n_bits} bits: {words}"


def as_large(published: dict[int, float]) -> Check:
    """The lead in mAP over the only rival is at least the published one less two points, at each number of bits."""

    def one(view: View, n_bits: int, points: float) -> tuple[bool, str]:
        (rival,) = view.rivals
        lead = view.difference(rival, n_bits, "map")
        least = points - _SLACK
        words = f"{n_bits} bits {in_points(lead)} (published {points:+.1f}, enough {least:+.1f})"
        return lead.mean >= least, words

    return lambda view: _compared(one(view, n_bits, points) for n_bits, points in published.items())


def grows(bits: Sequence[int] = ALL) -> Check:
    """The mean lead in mAP over the best rival is larger for the longer half of the codes, and positive there."""

    def check(view: View) -> tuple[bool, str]:
        leads = [view.difference(view.best_rival(n_bits, "map"), n_bits, "map") for n_bits in bits]
        half = len(bits) // 2
        short, long = ([lead.mean for lead in part] for part in (leads[:half], leads[half:]))
        words = "; ".join(f"{in_points(lead)} at {n_bits}" for lead, n_bits in zip(leads, bits, strict=True))
        return fmean(long) > fmean(short) and min(long) > 0, f"lead over the best rival: {words} bits"

    return check


def drops(measures: Sequence[str], before: int, after: int, *, but: dict[str, str] | None = None) -> Check:
    """Every method falls from one number of bits to another, except ``but[measure]``, which rises a little."""
    exceptions = but or {}

    def one(view: View, measure: str) -> tuple[bool, str]:
        changes = {m: view.mean(m, after, measure) - view.mean(m, before, measure) for m in view.everyone}
        exception = exceptions.get(measure)
        held = all(change < 0 for method, change in changes.items() if method != exception)
        held &= exception is None or 0 < changes[exception] <= _LITTLE
        rising = [method for method, change in changes.items() if change >= 0]
        falling = [method for method in changes if method not in rising]
        parts = []
        if rising:
            parts.append("rises for " + ", ".join(_changed(view, method, changes) for method in rising))
        if falling:
            least = max(falling, key=lambda method: changes[method])
            who = "the others" if rising else "all"
            parts.append(f"falls for {who}, least for {_changed(view, least, changes)}")
        return held, f"{measure_label(measure)} from {before} to {after} bits {', '.join(parts)}"

    return lambda view: _compared(one(view, measure) for measure in measures)


def _changed(view: View, method: str, changes: dict[str, float]) -> str:
    return f"{view.outcomes.label(method)} ({signed_points(changes[method])})"


def below_some(measures: Sequence[str], n_bits: int) -> Check:
    """Some rival is better at this number of bits, by each measure."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        rival = view.best_rival(n_bits, measure)
        return view.difference(rival, n_bits, measure).mean < 0, view.against(rival, n_bits, measure)

    return _each(one, measures, (n_bits,))


def peak(measures: Sequence[str], n_bits: int, bits: Sequence[int] = ALL, *, each: bool = True) -> Check:
    """The highest value of all is the subject's at this number of bits, by each measure or over all measures."""

    def one(view: View, measure: str) -> tuple[float, bool, str]:
        means = {(m, length): view.mean(m, length, measure) for m in view.everyone for length in bits}
        method, length = max(means, key=lambda key: means[key])
        held = (method, length) == (view.subject, n_bits)
        # Shown beside it: the highest of the other methods, or the subject's.
        beside = (view.subject, n_bits)
        if held:
            beside = max((key for key in means if key[0] != view.subject), key=lambda key: means[key])
        top, other = (
            f"{view.outcomes.label(m)} at {bits} bits {means[m, bits]:.2f}" for m, bits in ((method, length), beside)
        )
        return means[method, length], held, f"highest {measure_label(measure)}: {top} ({other})"

    def check(view: View) -> tuple[bool, str]:
        peaks = [one(view, measure) for measure in measures]
        counted = peaks if each else [max(peaks)]
        return all(held for _, held, _ in counted), "; ".join(words for _, _, words in peaks)

    return check


def mostly(measures: Sequence[str], n_bits: int) -> Check:
    """Every method's value is more than half at this number of bits."""

    def one(view: View, n_bits: int, measure: str) -> tuple[bool, str]:
        values = {method: view.mean(method, n_bits, measure) for method in view.everyone}
        least = min(values, key=lambda method: values[method])
        words = f"{measure_label(measure)} at {n_bits} bits: least {view.outcomes.label(least)}, {values[least]:.2f}"
        return values[least] > 50, words

    return _each(one, measures, (n_bits,))


def both(*checks: Check) -> Check:
    """All of them hold."""
    return lambda view: _compared(check(view) for check in checks)
