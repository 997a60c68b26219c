"""BRE the slow way: every interval of every weight by the whole sum over pairs, in whole numbers and fractions."""

from fractions import Fraction
from itertools import pairwise

import numpy as np


def sgn(value):
    return 1 if value >= 0 else -1


def objective(B, y):
    """L² Σ_ij (d_M − d_R)², a whole number; d_R = (bits that differ) / L."""
    L = len(B[0])
    total = 0
    for i in range(len(B)):
        for j in range(len(B)):
            d_M = 0 if y[i] == y[j] else 1
            total += (L * d_M - sum(a != b for a, b in zip(B[i], B[j], strict=True))) ** 2
    return total


def dense_objective(B, y):
    """The same, by m × m matrices."""
    L = B.shape[1]
    d_R = (B[:, None, :] != B[None, :, :]).sum(axis=2)
    return int(((L * (y[:, None] != y[None, :]) - d_R) ** 2).sum())


def bit(kappas, w):
    """sgn(Σ_q w_q κ_q) of each sample, exactly; kappas: (s, m)."""
    exact = [Fraction(float(x)) for x in w]
    return [sgn(sum(a * Fraction(float(x)) for a, x in zip(exact, column, strict=True))) for column in kappas.T]


def candidates(kappas, w, q):
    """A weight of each interval between the thresholds where a sample's sign changes, in ascending order; exact."""
    exact = [Fraction(float(x)) for x in w]
    thresholds = set()
    for column in kappas.T:
        values = [Fraction(float(x)) for x in column]
        if values[q] != 0:
            rest = sum(a * x for p, (a, x) in enumerate(zip(exact, values, strict=True)) if p != q)
            thresholds.add(-rest / values[q])
    if not thresholds:
        return []
    t = sorted(thresholds)
    return [t[0] - 1, *((a + b) / 2 for a, b in pairwise(t)), t[-1] + 1]


def with_weight(kappas, w, q, value):
    exact = [Fraction(float(x)) for x in w]
    exact[q] = value
    return [sgn(sum(a * Fraction(float(x)) for a, x in zip(exact, column, strict=True))) for column in kappas.T]


def train(Phi, which, y, W, orders, sweeps):
    """Bits and objective after each sweep; ``orders``: an iterator over the orders of a bit's weights."""
    W = W.copy()
    L = len(W)
    B = np.array([Phi[which[k]].T @ W[k] >= 0 for k in range(L)]).T * 2 - 1
    history = [dense_objective(B, y)]
    for _ in range(sweeps):
        for k in range(L):
            kappas = Phi[which[k]]
            for q in next(orders):
                best, value = None, dense_objective(B, y)
                rest = kappas.T @ W[k] - W[k, q] * kappas[q]
                t = np.sort(-rest / kappas[q])
                for w in (t[0] - 1, *(t[1:] + t[:-1]) / 2, t[-1] + 1):
                    trial = B.copy()
                    trial[:, k] = np.where(rest + w * kappas[q] >= 0, 1, -1)
                    found = dense_objective(trial, y)
                    if found < value:
                        best, value = w, found
                if best is not None:
                    W[k, q] = best
                    B[:, k] = np.where(rest + best * kappas[q] >= 0, 1, -1)
        history.append(dense_objective(B, y))
    return B, W, history
