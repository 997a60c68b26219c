"""Optimizers: gradient descent, L-BFGS (SciPy's) and Adam, as plain functions.

An objective is a sum of named terms: a function of the parameters that returns the terms and the gradient of their sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hashlearn._arrays import Array, Floats
from hashlearn.progress import progress_bar

Terms = dict[str, float]
Objective = Callable[[Floats], tuple[Terms, Floats]]
Batch = TypeVar("Batch")

# How many pairs of steps and gradient changes L-BFGS keeps: more need fewer evaluations, but more time between them.
MEMORY = 20
# How often each sample is used, and in how many steps at least, where nothing else is said.
_EPOCHS, _LEAST_STEPS = 20.0, 300
# Steps over which the learning rate of Adam rises, as a share of all.
_WARM_UP = 0.1
# How often gradient descent halves the rate of a step.
_HALVINGS = 60


class Minimum(NamedTuple):
    """The lowest point of a run of L-BFGS, or the end of one of Adam."""

    theta: Floats
    terms: Terms  #: at theta
    evaluations: int  #: of all samples by L-BFGS, of batches by Adam
    #: False if it ended because its iterations were used up.
    converged: bool


def lbfgs(
    objective: Objective,
    theta: Floats,
    max_iter: int,
    advance: Callable[[float], Any] = lambda _: None,
    *,
    memory: int = MEMORY,
) -> Minimum:
    """Minimize by at most ``max_iter`` iterations of L-BFGS; never ends above its start.

    Parameters
    ----------
    objective : callable
    theta : ndarray of shape (n,)
        Where to start.
    max_iter : int
    advance : callable
        Called with the number of iterations just done.
    memory : int
        How many pairs of steps and gradient changes stand for the Hessian.
    """
    from scipy.optimize import minimize

    best: tuple[float, Terms, Floats] = (np.inf, {}, theta)
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
        options={"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "maxcor": memory, "ftol": 1e-10, "gtol": 1e-9},
    )
    advance(max_iter - result.nit)
    # Status 1: iterations or evaluations used up. 2: the line search finds nothing lower, at the level of the noise.
    _, terms, lowest = best
    return Minimum(lowest, terms, evaluations, converged=result.status != 1)


def gradient_descent(objective: Objective, theta: Floats, rate: float) -> Iterator[tuple[Floats, Terms]]:
    """Yield the parameters and the terms at the start and after each step of gradient descent, without end.

    A step that ends above the start, or is not finite, is repeated at half the rate, which all later steps keep.

    Raises
    ------
    FloatingPointError
        The objective is not finite at the start, or every rate ends above it.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # weights that run away are noticed below
        terms, gradient = objective(theta)
    highest = sum(terms.values())
    if not np.isfinite(highest) or not np.isfinite(gradient).all():
        raise FloatingPointError("the objective is not finite at the start")
    while True:
        yield theta, terms
        for _ in range(_HALVINGS):
            with np.errstate(over="ignore", invalid="ignore"):
                point = theta - rate * gradient
                terms, slope = objective(point)
            if sum(terms.values()) <= highest and np.isfinite(slope).all():
                break
            rate /= 2
        else:
            raise FloatingPointError(f"every rate down to {rate:.2g} ends above the start")
        theta, gradient = point, slope


def adam(
    objective: Callable[[Array, Batch], tuple[Terms, Array]],
    theta: Array,
    batches: Iterable[Batch],
    *,
    rate: float | Callable[[int], float] = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> Iterator[tuple[Array, Terms]]:
    """Yield the parameters after a step of Adam on each batch, and the terms on that batch before the step.

    D. P. Kingma and J. Ba, "Adam: a method for stochastic optimization", ICLR 2015, Algorithm 1.

    Parameters
    ----------
    objective : callable
        Of the parameters and a batch; returns the terms and the gradient of their sum.
    theta : ndarray of shape (n,)
        Where to start; float32 or float64, which is also the type of the steps.
    batches : iterable
    rate : float or callable
        The learning rate, or a function of the number of the step, from 1 on.
    beta1, beta2, epsilon : float

    Yields
    ------
    theta : ndarray of shape (n,)
        One array that is changed in place: copy it to keep it.
    terms : dict
    """
    theta = theta.copy()
    first, second, step = np.zeros_like(theta), np.zeros_like(theta), np.empty_like(theta)
    for t, batch in enumerate(batches, 1):
        terms, gradient = objective(theta, batch)
        size = rate(t) if callable(rate) else rate
        # first += (1 − β₁)(gradient − first), second += (1 − β₂)(gradient² − second): few passes, no new arrays
        first *= beta1
        first += np.multiply(gradient, 1 - beta1, out=step)
        second *= beta2
        np.multiply(gradient, gradient, out=step)
        step *= 1 - beta2
        second += step
        # ε is added to √(second / (1 − β₂ᵗ)), as in the paper's Algorithm 1.
        np.sqrt(second, out=step)
        step += epsilon * np.sqrt(1 - beta2**t)
        np.divide(first, step, out=step)
        step *= size * np.sqrt(1 - beta2**t) / (1 - beta1**t)
        theta -= step
        yield theta, terms


def warm_up_and_fall(t: int, n_steps: int) -> float:
    """The learning rate of step t, from 1 on, as a share of the highest: a rise, then a cosine that falls to 0."""
    warm = max(1, round(_WARM_UP * n_steps))
    return t / warm if t <= warm else 0.5 + 0.5 * float(np.cos(np.pi * (t - warm) / (n_steps - warm + 1)))


def count_steps(m: int, batch_size: int, epochs: float | str) -> int:
    """How many batches of m samples make so many epochs; of ``"auto"``, 20 epochs, and at least 300 batches."""
    if isinstance(epochs, str):
        epochs = max(_EPOCHS, _LEAST_STEPS * batch_size / m)
    return max(round(epochs * m / batch_size), 1)


def train_by_batches(
    objective: Callable[[Array, Batch], tuple[Terms, Array]],
    theta: Array,
    batches: Iterable[Batch],
    *,
    n_steps: int,
    steps_an_epoch: int,
    rate: float,
    name: str,
    show_progress: bool | None,
    advice: str,
) -> tuple[Array, list[Terms]]:
    """Take a step of Adam on each batch, with a learning rate that rises, then falls as a cosine.

    Parameters
    ----------
    objective : callable
    theta : ndarray of shape (n,)
        Where to start.
    batches : iterable
        ``n_steps`` of them.
    n_steps, steps_an_epoch : int
    rate : float
        The highest learning rate.
    name : str
        What the progress bar is called.
    show_progress : bool or None
    advice : str
        What to do if the parameters do not stay finite.

    Returns
    -------
    theta : ndarray of shape (n,)
    history : list of dict
        For each epoch: the mean of each term over its batches, and ``"seconds"``.
    """
    steps = adam(objective, theta, batches, rate=lambda t: rate * warm_up_and_fall(t, n_steps))
    history: list[Terms] = []
    passed: list[Terms] = []
    started = time.perf_counter()
    with progress_bar(name, n_steps, unit="batches", show=show_progress) as advance:
        for t, (theta, terms) in enumerate(steps, 1):
            passed.append(terms)
            advance(1)
            if len(passed) == steps_an_epoch or t == n_steps:
                means = {term: float(np.mean([terms[term] for terms in passed])) for term in terms}
                history.append({**means, "seconds": time.perf_counter() - started})
                passed, started = [], time.perf_counter()
                if not (np.isfinite(list(means.values())).all() and np.isfinite(theta).all()):
                    raise ValueError(f"training diverged: {advice}.")
    return theta, history
