"""Kernel-based Supervised Hashing (KSH).

W. Liu, J. Wang, R. Ji, Y.-G. Jiang and S.-F. Chang, "Supervised hashing with kernels", CVPR 2012. Signs are to
agree in all bits within a class and differ in all between classes, by hash functions on a kernel:

    min_{A} ‖BBᵀ − L S‖²,   B = sgn(K̄ A) ∈ {−1, 1}^{m×L}.

=======  ========  =======================================================================
symbol   shape     meaning
=======  ========  =======================================================================
K̄        (m, p)    kernel values of the samples with p anchors, less their mean over all X
Y        (m, c)    classes, one-hot
S        (m, m)    1 for two samples of one class, −1 for others: S = 2YYᵀ − 11ᵀ
A, a_k   (p, L)    weights, those of bit k
b_k      (m,)      bit k of the samples, sgn(K̄ a_k)
R        (m, m)    what the bits so far leave: R_k = L S − Σ_{t<k} b_t b_tᵀ
=======  ========  =======================================================================

Bits are learned one after the other. ‖R − bbᵀ‖² = ‖R‖² − 2bᵀRb + m², so that bit k is to maximize bᵀR_k b:

1. Spectral relaxation: max aᵀK̄ᵀRK̄a with aᵀK̄ᵀK̄a = m, the first eigenvector of (K̄ᵀRK̄) a = λ (K̄ᵀK̄) a.
2. Smoothing: from there, min g(a) = −φᵀRφ with φ = 2/(1 + e^{−K̄a}) − 1 = tanh(K̄a / 2) instead of the sign, by
   Nesterov's accelerated gradient. As φ' = (1 − φ²)/2 and R is symmetric, ∇g = −K̄ᵀ((Rφ) ⊙ (1 − φ²)).
3. Of the two a, the one whose signs have the larger bᵀRb.

Neither S nor R is ever made: R v = 2L Y(Yᵀv) − L 1(1ᵀv) − B(Bᵀv) takes sums over classes and a product with the bits so
far, and K̄ᵀRK̄ = 2L (YᵀK̄)ᵀ(YᵀK̄) − L (K̄ᵀ1)(K̄ᵀ1)ᵀ − Σ_t (K̄ᵀb_t)(K̄ᵀb_t)ᵀ changes by a term of rank one a bit. As K̄a is
linear in a, an iteration of step 2 takes two products with K̄, for ∇g and for K̄∇g, however many steps it tries. Cost:
4mp + O(mL) an iteration, O(p³ + mp) a bit beside them, 2mp² once; memory for m · (p + L) numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.codes import signs
from hashlearn.hashers._blocks import row_blocks
from hashlearn.hashers._classes import draw_samples
from hashlearn.hashers._kernel import KernelHasher
from hashlearn.hashers._parameters import Rule, count, number, optional
from hashlearn.hashers._residual import Residual
from hashlearn.hashers.steps import center, compile_steps, compute_type
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# A step of the smoothing is halved at most so often.
_HALVINGS = 50


class KSH(KernelHasher):
    """KSH: bit k of x is the sign of Σ_q κ(x, anchor_q) A_qk + a_k, κ(x, z) = exp(−‖x − z‖² / (2σ²)).

    Labels are of any hashable kind, one for each sample (a tuple or a frozenset is one label).

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    n_anchors : int, default=300
        Anchors, drawn at random from all samples (all of them, if there are fewer); the authors' 300. σ² is the mean of
        ‖x − anchor‖² over all samples and anchors.
    samples_per_class : int or None, default=2000
        Samples of each class to train on, drawn at random. A class that has fewer is used whole. At least 2, so that
        there are pairs. None: all samples.
    max_iter : int, default=500
        Most iterations of the smoothing of a bit; the authors' 500.
    tol : float, default=1e-2
        The smoothing of a bit ends when g changes by at most ``tol`` times the number of samples; the authors' value.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of both draws.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    offset_ : ndarray of shape (n_features,)
        The mean of X.
    anchors_, bandwidth_ : ndarray
        The anchors, and 2σ².
    weights_, intercept_ : ndarray of shape (n_anchors, n_bits) and (n_bits,)
    classes_, class_counts_, samples_ : ndarray
        The classes, how many samples of each were trained on, and which rows of X.
    history_ : list of dict
        For each bit: ``objective``, ‖BBᵀ − L S‖² / (mL)² with the bits up to it; ``smoothed``, whether the smoothed
        weights were kept; ``iterations`` of the smoothing; ``converged``.
    n_iter_ : int
        Iterations of all bits.
    converged_ : bool
        Whether every bit met ``tol``. With the authors' settings most use up their iterations, so no warning says so.
    """

    name = "ksh"
    supervised = True
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "n_anchors": count(),
        "samples_per_class": optional(count(least=2)),
        "max_iter": count(),
        "tol": number(),
    }

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_anchors: int = 300,
        samples_per_class: int | None = 2000,
        max_iter: int = 500,
        tol: float = 1e-2,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.samples_per_class = samples_per_class
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        numbers = draw_samples(self, y, rng)
        anchors = np.sort(rng.choice(len(X), min(int(self.n_anchors), len(X)), replace=False))
        L = self.n_bits_
        with (
            thread_map() as threads,
            progress_bar("KSH", L, unit="bits", show=self.show_progress) as advance,
        ):
            mean, square = self._mean_and_square(X, threads)
            self.anchors_ = center(X[anchors], self.offset_).astype(np.float64)
            self._keep_bandwidth(mean, square)
            KT, kernel_mean = self._kernel_values(X, threads)
            residual = Residual(KT, _by_appearance(numbers), L, threads)
            self.weights_ = np.zeros((len(anchors), L))
            self.history_: list[dict[str, Any]] = []
            for k in range(L):
                self.weights_[:, k], record = learn_bit(residual, int(self.max_iter), float(self.tol))
                self.history_.append(record)
                advance(1)
        self.intercept_ = -kernel_mean @ self.weights_
        self.n_iter_ = sum(record["iterations"] for record in self.history_)
        self.converged_ = all(record["converged"] for record in self.history_)

    def _kernel_values(self, X: Array, threads: ThreadMap) -> tuple[Array, Floats]:
        """K̄ᵀ (p, m) of the samples to train on, and the mean (p,) of the kernel values of all samples."""
        dtype, p = compute_type(X.dtype), len(self.anchors_)
        kernel = compile_steps(self._kernel_steps(), dtype)
        KT = np.empty((p, len(self.samples_)), dtype=dtype)

        def part(rows: slice) -> Floats:
            values = kernel(np.ascontiguousarray(center(X[rows], self.offset_)))
            first, last = np.searchsorted(self.samples_, (rows.start, rows.stop))
            KT[:, first:last] = values[self.samples_[first:last] - rows.start].T
            return np.asarray(values.sum(axis=0, dtype=np.float64))

        mean = sum(threads(part, row_blocks(X, p)), np.zeros(p)) / len(X)
        KT -= mean.astype(KT.dtype)[:, None]
        return KT, mean

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        limit = {} if self.samples_per_class is None else {"samples_per_class": int(self.samples_per_class)}
        return {
            "objective": self.history_[-1]["objective"],
            "iterations": self.n_iter_,
            "bits_smoothed": sum(record["smoothed"] for record in self.history_),
            "converged": self.converged_,
            **limit,
            "samples": len(self.samples_),
            "classes": len(self.classes_),
            "fewest_of_a_class": int(self.class_counts_.min()),
            "most_of_a_class": int(self.class_counts_.max()),
        }


def _by_appearance(numbers: Array) -> Indices:
    """Classes numbered as they first appear, so that their names do not matter to the last digit."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse])


def learn_bit(residual: Residual, max_iter: int, tol: float) -> tuple[Floats, dict[str, Any]]:
    """Learn the next bit and add it to the residual; return its weights a (p,) and its record."""
    a = spectral(residual)
    smooth, values, converged = smoothed(residual, a, max_iter, tol)
    b, other = (signs(residual.values(w)).astype(np.float64) for w in (a, smooth))
    better = residual.quadratic(residual.sums(other)) > residual.quadratic(residual.sums(b))
    residual.add(other if better else b)
    record = {
        "objective": residual.square / (float(residual.L) * len(residual)) ** 2,
        "smoothed": better,
        "iterations": len(values) - 1,
        "converged": converged,
    }
    return smooth if better else a, record


def spectral(residual: Residual) -> Floats:
    """The a (p,) that maximizes aᵀK̄ᵀRK̄a with aᵀK̄ᵀK̄a = m, of those that make a difference; zeros if K̄ is zero."""
    T = residual.basis
    if not T.size:
        return np.zeros(len(T))
    _, vectors = np.linalg.eigh(T.T @ residual.form @ T)
    a = T @ vectors[:, -1]
    # Its sign is arbitrary: the largest entry is made positive, so that the answer is reproducible.
    return np.asarray(a * np.copysign(np.sqrt(len(residual)), a[np.abs(a).argmax()]))


def smoothed(residual: Residual, a: Floats, max_iter: int, tol: float) -> tuple[Floats, list[float], bool]:
    """Lower g from ``a``: the last a (p,), g at the start and after each iteration, and whether it met ``tol``."""
    z = residual.values(a)  # K̄a throughout, also for the other points: a sum of points is one of their z
    values = [-residual.quadratic(residual.squash(z)[1])]
    a0, z0, beta, delta0, delta = a, z, 1.0, 0.0, 1.0
    while len(values) <= max_iter:
        alpha = (delta0 - 1) / delta
        v, z_v = a + alpha * (a - a0), z + alpha * (z - z0)
        phi, sums = residual.squash(z_v)
        g_v, slope = -residual.quadratic(sums), residual.gradient(phi, sums)
        square, z_slope = float(slope @ slope), residual.values(slope)
        for _ in range(_HALVINGS + 1):
            z_new = z_v - z_slope / beta
            g = -residual.quadratic(residual.squash(z_new)[1])
            # g(v − ∇g/β) ≤ g(v) + ∇gᵀ(−∇g/β) + β/2 ‖∇g/β‖²
            if g <= g_v - square / (2 * beta):
                break
            beta *= 2
        else:  # no step helps
            return a, values, True
        a0, z0, a, z = a, z, v - slope / beta, z_new
        delta0, delta = delta, (1 + np.sqrt(1 + 4 * delta**2)) / 2
        values.append(g)
        if abs(values[-1] - values[-2]) <= tol * len(residual):
            return a, values, True
    return a, values, False
