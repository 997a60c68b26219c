"""L-BFGS (SciPy's) on an objective that is a sum of named terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[dict[str, float], Floats]]

# Pairs of steps and gradient changes that stand for the Hessian: more need fewer evaluations, more time between.
_MEMORY = 20


class Minimum(NamedTuple):
    theta: Floats
    terms: dict[str, float]  #: at theta
    evaluations: int
    #: False if it ended because its iterations were used up.
    converged: bool


def minimise(objective: Objective, theta: Floats, max_iter: int, advance: Callable[[float], Any]) -> Minimum:
    """At most ``max_iter`` iterations from ``theta``; never ends above where it started."""
    from scipy.optimize import minimize

    best: tuple[float, dict[str, float], Floats] = (np.inf, {}, theta)
    evaluations = 0

    def value_and_gradient(theta: Floats) -> tuple[float, Floats]:
        nonlocal best, evaluations
        terms, gradient = objective(theta)
        value = sum(terms.values())
        evaluations += 1
        if evaluations == 1 and not np.isfinite(value):
            raise ValueError("the objective is not finite for these vectors at this scale; scale them (scale=).")
        if value < best[0]:
            best = (value, terms, theta.copy())
        return value, gradient

    result = minimize(
        value_and_gradient,
        theta,
        jac=True,
        method="L-BFGS-B",
        callback=lambda _: advance(1),
        # The objective is a mean over samples, computed in float32: its last digits are noise.
        options={"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "maxcor": _MEMORY, "ftol": 1e-10, "gtol": 1e-9},
    )
    advance(max_iter - result.nit)
    # Status 1: iterations or evaluations used up. 2: the line search finds nothing lower, at the noise's level.
    _, terms, lowest = best
    return Minimum(lowest, terms, evaluations, converged=result.status != 1)
