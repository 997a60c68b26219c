"""Binary Reconstructive Embedding (BRE), supervised.

B. Kulis and T. Darrell, "Learning to hash with binary reconstructive embeddings", NIPS 2009. Bit k of x is
sgn(Σ_q W_kq κ(x, a_kq)), with anchors a_kq of its own, drawn from the samples. Hamming distances d_R, over L, are to be
the distances d_M that the labels give: 0 within a class, 1 between classes.

    min_W  J = Σ_ij (d_M(i, j) − d_R(i, j))²  =  ¼ ‖BBᵀ/L − S‖²

=======  ========  =================================================================
symbol   shape     meaning
=======  ========  =================================================================
Φ        (P, m)    κ of every anchor with the training samples
W        (L, s)    weights; bit k uses the rows ``which[k]`` (s,) of Φ
v        (m,)      Σ_q W_kq κ_q, the real values of a bit; h = sgn(v), one of B
B        (m, L)    codes, ±1
Y        (m, c)    classes, one-hot; y (m,) their numbers
S        (m, m)    1 for two samples of a class, −1 for others: S = 2YYᵀ − 11ᵀ
t        (m,)      where h_i changes as one weight w grows: t = w − v / κ
=======  ========  =================================================================

Coordinate descent: one weight at a time is set to its best value. Between two neighbors in the order of t no bit
changes, so that the m + 1 intervals between them hold all values of J, and the middle of the best one is taken. The
authors sample pairs. Here all m² of them count, and none is made: in bit k, J is a constant − hᵀRh / (2L²) with

    hᵀRh = 2L ‖Yᵀh‖² − L (1ᵀh)² − ‖B̄ᵀh‖²,      B̄ the other bits,

and one sort and running sums give all m + 1 values of it, exactly (:mod:`._pairs`): O(m (log m + L)) a weight, whatever
the number of classes. The kernel values cost 2mDP once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hashlearn._arrays import Array, Floats, Indices, Signs
from hashlearn.codes import signs
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._classes import draw_samples
from hashlearn.hashers._kernel import KERNELS, KernelHasher, kernel_steps
from hashlearn.hashers._pairs import Pairs
from hashlearn.hashers._parameters import Rule, choice, count, number, optional
from hashlearn.hashers.steps import center, compile_steps, unit_rows
from hashlearn.progress import progress_bar
from hashlearn.threads import thread_map

# Thresholds count as equal if they differ by no more than rounding may: by so many units in the last place of each.
_ROUNDING = 4
# Spread of the first weights, the authors'. Only signs count, so that it changes nothing.
_FIRST = 1e-3


class BRE(KernelHasher):
    """Binary Reconstructive Embedding, supervised: bit k of x is sgn(Σ_q W_kq κ(x, a_kq)), a_kq samples.

    Labels are of any hashable kind, one for each sample (a tuple or a frozenset is one label).

    Memory: a copy of the samples that are trained on, and a number for each of them and each anchor, 4 bytes (8 for
    data that float32 does not hold): 128 MB for 20,000 samples, 32 bits and 50 anchors per bit.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    anchors_per_bit : int, default=50
        Samples s, drawn at random for each bit, whose kernel values with x make the bit; the authors' 50. All samples,
        if there are fewer.
    kernel : {"linear", "rbf"}, default="linear"
        ``"linear"``, the authors': κ = xᵀa of centered vectors, anchors of unit length; ``"rbf"``:
        exp(−‖x − a‖² / (2σ²)), σ² the mean squared distance, less its mean over the samples.
    samples_per_class : int or None, default=2000
        Samples of each class to train on, drawn at random. A class that has fewer is used whole. At least 2, so that
        there are pairs. None: all samples.
    max_iter : int, default=30
        Most sweeps over all weights; if training has not ended by then, there is a ConvergenceWarning.
    tol : float, default=1e-4
        Training ends with the first sweep that lowers the objective by no more than this share of it.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of samples, anchors, first weights and order.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    offset_ : ndarray of shape (n_features,)
        The mean of X.
    anchors_, weights_, intercept_, bandwidth_ : ndarray
        With the linear kernel only Σ_q W_kq a_kq counts: ``anchors_`` holds these (n_bits, n_features), ``weights_`` is
        the identity and ``bandwidth_`` 0. With ``"rbf"`` ``anchors_`` holds all that some bit uses, ``weights_`` is 0
        where a bit does not, and ``bandwidth_`` is 2σ².
    classes_, class_counts_, samples_ : ndarray
        The classes, how many samples of each were trained on, and which rows of X.
    objective_ : ndarray of shape (n_iter_ + 1,)
        The mean of (d_M − d_R)² over all pairs of samples, at the start and after each sweep.
    n_iter_ : int
    converged_ : bool
    """

    name = "bre"
    supervised = True
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "anchors_per_bit": count(),
        "kernel": choice(*KERNELS),
        "samples_per_class": optional(count(least=2)),
        "max_iter": count(),
        "tol": number(),
    }

    def __init__(
        self,
        n_bits: int = 32,
        *,
        anchors_per_bit: int = 50,
        kernel: str = "linear",
        samples_per_class: int | None = 2000,
        max_iter: int = 30,
        tol: float = 1e-4,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.anchors_per_bit = anchors_per_bit
        self.kernel = kernel
        self.samples_per_class = samples_per_class
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        numbers = draw_samples(self, y, rng)
        X = X if len(numbers) == len(X) else X[self.samples_]
        anchors, which = _draw_anchors(len(X), self.n_bits_, self.anchors_per_bit, rng)
        with (
            thread_map() as threads,
            progress_bar("BRE", self.max_iter, unit="sweeps", show=self.show_progress) as advance,
        ):
            mean, square = self._mean_and_square(X, threads)
            rows = Rows(X, self.offset_, 1.0, threads)
            self.anchors_ = center(X[anchors], self.offset_).astype(np.float64)
            if self.kernel == "linear":
                self.anchors_, self.bandwidth_ = unit_rows(self.anchors_), np.array(0.0)
            else:
                self._keep_bandwidth(mean, square)
            Phi, means = self._kernel_values(rows)
            descent = Descent(Phi, which, numbers, rng)
            objective = [descent.objective()]
            self.converged_ = False
            while not self.converged_ and len(objective) <= self.max_iter:
                descent.sweep(lambda: advance(1 / self.n_bits_))
                objective.append(descent.objective())
                self.converged_ = objective[-2] - objective[-1] <= self.tol * objective[-2]
        self.weights_ = np.zeros((len(anchors), self.n_bits_))
        np.put_along_axis(self.weights_, which.T, descent.W.T, axis=0)
        self.intercept_ = -means @ self.weights_
        if self.kernel == "linear":
            self.anchors_, self.weights_ = self.weights_.T @ self.anchors_, np.eye(self.n_bits_)
        self.objective_, self.n_iter_ = np.array(objective), len(objective) - 1
        if not self.converged_:
            warnings.warn(
                f"BRE has not converged: sweep {self.n_iter_}, the last (max_iter), still lowered the objective by "
                f"{1 - objective[-1] / objective[-2]:.2g} of it; tol is {self.tol}.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _kernel_values(self, rows: Rows) -> tuple[Array, Floats]:
        """Φ (P, m) and what was taken off its rows (P,)."""
        m, P = len(rows), len(self.anchors_)
        steps = kernel_steps(self.anchors_, None, unit=True) if self._is_linear else self._kernel_steps()
        kernel = compile_steps(steps, rows.dtype)
        Phi = np.empty((P, m), dtype=rows.dtype)

        def fill(block: slice, X: Array) -> None:
            Phi[:, block] = kernel(X).T

        rows.each(fill)
        if self._is_linear:
            return Phi, np.zeros(P)
        means = Phi.mean(axis=1, dtype=np.float64)
        Phi -= means[:, None].astype(Phi.dtype)
        return Phi, means

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "objective_"):  # read from a file
            return {}
        return {
            "samples": int(self.class_counts_.sum()),
            "classes": len(self.classes_),
            "iterations": self.n_iter_,
            "converged": self.converged_,
            "objective": float(self.objective_[-1]),
        }


def _draw_anchors(m: int, L: int, s: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Samples that are anchors of some bit (P,), in ascending order, and which of them each bit has (L, s)."""
    drawn = np.array([rng.choice(m, min(s, m), replace=False) for _ in range(L)])
    anchors, which = np.unique(drawn, return_inverse=True)
    return anchors, which.reshape(drawn.shape)


def best_weight(
    pairs: Pairs, now: int, v: Floats, h: Signs, kappa: Array, w: float, others: float
) -> tuple[float, Floats, Signs, int] | None:
    """The best value of a weight w whose anchor has the values ``kappa`` (m,); None if none is better than w.

    ``others``: the size of the bit's other terms, w κ. Gives w, v, h and hᵀRh (which is ``now``) as they are then.
    """
    rounding = _ROUNDING * float(np.finfo(kappa.dtype).eps)
    size = np.abs(kappa)
    moves = size > rounding * size.max()  # the others never change
    t = np.full(len(v), np.inf)
    np.divide(v, kappa, out=t, where=moves)
    np.subtract(w, t, out=t, where=moves)
    s = signs(kappa) * moves
    order, n = np.argsort(t), int(np.count_nonzero(moves))
    start = np.where(moves, -s, h)
    values = pairs.along(start, order, s)[: n + 1]
    order = order[:n]
    t = t[order]
    # Equal thresholds are passed together. They have these errors.
    errors = rounding * others / size[order] + _ROUNDING * float(np.finfo(v.dtype).eps) * abs(w)
    values[1:n][np.diff(t) <= errors[1:] + errors[:-1]] = now
    j = int(values.argmax())
    if values[j] <= now:
        return None
    if 0 < j < n:
        best = (t[j - 1] + t[j]) / 2
    else:
        end = t[0] if j == 0 else t[-1]
        best = end + (abs(end - w) + np.abs(t).mean() or 1.0) * (-1 if j == 0 else 1)
    start[order[:j]] = s[order[:j]]
    v = v + (best - w) * kappa
    if not np.array_equal(signs(v), start):  # rounding: t is not as good as it seems
        return None
    return float(best), v, start, int(values[j])


class Descent:
    """Coordinate descent on the weights W (L, s), from random ones."""

    def __init__(self, Phi: Array, which: Indices, y: Indices, rng: np.random.Generator) -> None:
        self._Phi, self._which, self._y, self._rng = Phi, which, y, rng
        self.W: Floats = _FIRST * rng.standard_normal(which.shape)
        self._sizes = np.array([np.abs(kappa).mean(dtype=np.float64) for kappa in Phi])
        self.B: Signs = np.empty((Phi.shape[1], len(which)), dtype=np.int8, order="F")
        for k in range(len(which)):
            self.B[:, k] = signs(self.values(k))
        self._pairs = Pairs(self.B, y)

    def values(self, k: int) -> Floats:
        """v (m,) of bit k."""
        return np.asarray(self.W[k] @ self._Phi[self._which[k]])

    def objective(self) -> float:
        """J / m²: (‖BᵀB‖² − 2L (2‖YᵀB‖² − ‖Bᵀ1‖²) + L²m²) / (2Lm)², one division of whole numbers."""
        m, L = self.B.shape
        B = self.B.astype(np.float64)
        K = np.array([np.bincount(self._y, weights=b) for b in B.T])
        pairs = 2 * np.square(K).sum() - np.square(K.sum(axis=1)).sum()
        return float((np.square(B.T @ B).sum() - 2 * L * pairs + (L * m) ** 2) / (2 * L * m) ** 2)

    def sweep(self, advance: Callable[[], object] = lambda: None) -> None:
        """Every weight once, bit by bit, those of a bit in a random order."""
        for k in range(len(self.W)):
            self.visit(k, self._rng.permutation(self.W.shape[1]))
            advance()

    def visit(self, k: int, order: Indices) -> None:
        """The weights of bit k in this order. It never raises the objective."""
        before = self.W[k].copy()
        pairs = self._pairs
        pairs.hold(k)
        v, h = self.values(k), self.B[:, k]
        first = now = pairs.value(h)
        for q in order:
            a, w = self._which[k], self.W[k]
            others = float(np.delete(np.abs(w) * self._sizes[a], q).sum())
            best = best_weight(pairs, now, v, h, self._Phi[a[q]], w[q], others)
            if best is not None:
                self.W[k, q], v, h, now = best
        largest = np.abs(self.W[k]).max()
        self.W[k] = np.ldexp(self.W[k], -np.frexp(largest)[1])  # only signs count; a power of 2 changes no digit
        again = signs(self.values(k))  # without the rounding that adds up above
        if not np.array_equal(again, h) and pairs.value(again) < first:
            self.W[k], again = before, self.B[:, k]
        self.B[:, k] = again
        pairs.put(again)
