"""Rules for the parameters of methods: which values each may have.

A method declares a rule for each of its parameters in the class attribute ``_parameters``; the base class checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from hashlearn.codes import MAX_BITS
from hashlearn.errors import shown

# The next numbers, and small multiples, still fit into 64 bits.
_MAX_COUNT = 1 << 53


class Rule(NamedTuple):
    """What a value must be, in words, and whether it is."""

    must_be: str
    accepts: Callable[[Any], bool]

    def check(self, name: str, value: Any) -> None:
        """Raise a ValueError that names the parameter, the rule and the value."""
        if self.accepts(value):
            return
        # A limit that nobody meets by chance is not part of the rule's words.
        beyond = isinstance(value, Integral) and int(value) > _MAX_COUNT and "at most" not in self.must_be
        raise ValueError(f"{name} must be {f'at most {_MAX_COUNT}' if beyond else self.must_be}; got {shown(value)}.")


def count(least: int = 1, most: int = _MAX_COUNT) -> Rule:
    """A whole number in a range."""
    limits = f"of at least {least}" + ("" if most == _MAX_COUNT else f" and at most {most}")

    def accepts(value: Any) -> bool:
        return not isinstance(value, bool) and isinstance(value, Integral) and least <= int(value) <= most

    return Rule(f"a whole number {limits}", accepts)


def number(least: float = 0.0, most: float = np.inf, *, above: float | None = None) -> Rule:
    """A finite real number from ``least`` to ``most``, or larger than ``above``."""
    limits = f"of at least {least:g}" + ("" if most == np.inf else f" and at most {most:g}")

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        try:
            real = float(value)
        except OverflowError:  # a whole number beyond float64
            return False
        return bool(np.isfinite(real)) and (real > above if above is not None else least <= real <= most)

    return Rule(f"a number {limits if above is None else f'above {above:g}'}", accepts)


def choice(*names: str) -> Rule:
    """One of a few texts."""
    return Rule(" or ".join(map(repr, names)), lambda value: isinstance(value, str) and value in names)


def either(*rules: Rule) -> Rule:
    """What one of the rules accepts."""
    return Rule(", or ".join(rule.must_be for rule in rules), lambda value: any(rule.accepts(value) for rule in rules))


def optional(rule: Rule) -> Rule:
    """None, or what the rule accepts."""
    return Rule(f"None or {rule.must_be}", lambda value: value is None or rule.accepts(value))


def _is_seed(value: Any) -> bool:
    # Nested lists would be followed until the stack overflows.
    if isinstance(value, (list, tuple)) and not all(isinstance(entry, Integral) for entry in value):
        return False
    try:
        np.random.default_rng(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


_UNITS = count(most=MAX_BITS)

FLAG = Rule("True or False", lambda value: isinstance(value, (bool, np.bool_)))
SEED = Rule("None, a whole number of at least 0 or a Generator", _is_seed)
CALLBACK = Rule("a function or None", lambda value: value is None or callable(value))
HIDDEN_UNITS = Rule(
    f"'auto' or a list of whole numbers, of at least 1 and at most {MAX_BITS}",
    lambda value: (
        (isinstance(value, str) and value == "auto")
        or (isinstance(value, (list, tuple)) and all(map(_UNITS.accepts, value)))
    ),
)
