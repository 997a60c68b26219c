"""Supervised Discrete Hashing (SDH).

F. Shen, C. Shen, W. Liu, H. T. Shen, "Supervised discrete hashing", CVPR 2015, with the L2 loss. Signs that classify
linearly, and hash functions on a kernel that give them:

    min_{B, W, P}  J = ‖Y − B W‖² + λ ‖W‖² + ν (‖B − Φ P‖² + λ_F ‖P‖²),   B ∈ {−1, 1}^{m×L}.

=======  ============  =================================================================
symbol   shape         meaning
=======  ============  =================================================================
Y        (m, c)        classes, one-hot
B        (m, L)        codes
W        (L, c)        a linear classifier of codes
Φ        (m, p + 1)    kernel values of the samples with p anchors, and a 1
P        (p + 1, L)    the hash functions: sgn(Φ P)
=======  ============  =================================================================

From random codes, three steps in turn, each the minimum of J in its variables (B step: in each bit):

- B step: each sample alone, min bᵀGb − 2qᵀb with G = WWᵀ and q = Wy + νPᵀφ, bit by bit until no flip helps
  (:func:`._discrete.descend`).
- G step: W = (BᵀB + λI)⁻¹ BᵀY.
- F step: P = (ΦᵀΦ + λ_F I)⁻¹ ΦᵀB.

All that the G and F steps and J need are the sums BᵀB, BᵀY, ΦᵀB and, once, ΦᵀΦ; they are taken in the pass over the
samples that sets B. So Φ is never kept, and an iteration is one pass: 2mpD for Φ, 4mpL and 2mL² a sweep; 2mp² once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hashlearn._arrays import Array, Floats, Indices, Signs
from hashlearn.codes import signs
from hashlearn.hashers._blocks import Rows, row_blocks
from hashlearn.hashers._classes import draw_samples
from hashlearn.hashers._discrete import descend
from hashlearn.hashers._kernel import KernelHasher
from hashlearn.hashers._parameters import FLAG, Rule, count, number, optional
from hashlearn.hashers.steps import center, compile_steps, unit_rows
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# Sweeps over the bits of a code; they end far earlier.
_SWEEPS = 100


class SDH(KernelHasher):
    """Supervised Discrete Hashing: bit k of x is the sign of Σ_q κ(x, anchor_q) P_qk + a_k, a the last row of P.

    Labels are of any hashable kind, one for each sample (a tuple or a frozenset is one label).

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    n_anchors : int, default=1000
        Samples that the kernel compares with, drawn at random; the authors' 1,000. All samples, if there are fewer.
    sigma : float or None, default=0.4
        Width of the kernel exp(−‖x − anchor‖² / (2σ²)); the authors' 0.4, for vectors of unit length. None: the root of
        the mean squared distance of the samples from the anchors.
    unit_length : bool, default=True
        Whether vectors are brought to unit length first, as the authors do. If not, sigma is best None.
    nu : float, default=1e-5
        Weight of the hash functions' errors beside those of the classifier; the authors' value.
    lambda_g, lambda_f : float, default=1 and 1e-2
        Weights of ‖W‖² and ‖P‖²; the authors' values.
    samples_per_class : int or None, default=None
        Samples of each class to train on, drawn at random; a class that has fewer is used whole. None: all samples, as
        in the paper.
    max_iter : int, default=5
        Iterations, each a B, a G and an F step; the authors' 5. Fewer, if no bit changes.
    restart : bool, default=False
        False: each B step continues from the present codes, as in the authors' current program, and J never rises.
        True: it starts from zeros, as in their program of 2015, and J may rise; see docs/methods/sdh.md.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the anchors and of the first codes.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    offset_ : ndarray of shape (n_features,)
        Zeros, if vectors are of unit length.
    unit_, anchors_, bandwidth_ : ndarray
        Whether vectors are of unit length, the anchors, and 2σ².
    weights_, intercept_ : ndarray of shape (n_anchors, n_bits) and (n_bits,)
        P.
    classifier_ : ndarray of shape (n_bits, n_classes)
        W.
    classes_, class_counts_, samples_ : ndarray
        The classes, how many samples of each were trained on, and which rows of X.
    history_ : list of dict
        For each iteration: J / m after each of its three steps, the share of bits that the B step changed.
    n_iter_ : int
    converged_ : bool
        Whether the last B step changed nothing. There is no warning if not: the authors' 5 iterations are an early
        stop.
    """

    name = "sdh"
    supervised = True
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "n_anchors": count(),
        "sigma": optional(number(1e-15, 1e15)),
        "unit_length": FLAG,
        "nu": number(above=0),
        "lambda_g": number(above=0),
        "lambda_f": number(above=0),
        "samples_per_class": optional(count()),
        "max_iter": count(),
        "restart": FLAG,
    }

    unit_: Floats

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_anchors: int = 1000,
        sigma: float | None = 0.4,
        unit_length: bool = True,
        nu: float = 1e-5,
        lambda_g: float = 1.0,
        lambda_f: float = 1e-2,
        samples_per_class: int | None = None,
        max_iter: int = 5,
        restart: bool = False,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.sigma = sigma
        self.unit_length = unit_length
        self.nu = nu
        self.lambda_g = lambda_g
        self.lambda_f = lambda_f
        self.samples_per_class = samples_per_class
        self.max_iter = max_iter
        self.restart = restart
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _unused(self) -> dict[str, str]:
        return {"normalize": "for unit_length=True, which does the same"} if self.unit_length else {}

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        numbers = draw_samples(self, y, rng, pairs=False)
        X = X if len(numbers) == len(X) else X[self.samples_]
        with (
            thread_map() as threads,
            progress_bar("SDH", int(self.max_iter) + 1, unit="passes", show=self.show_progress) as advance,
        ):
            self._choose_kernel(X, rng, threads)
            rows = Rows(X, self.offset_, 1.0, threads, beside=self.n_bits_)
            B = signs(rng.standard_normal((len(X), self.n_bits_)))
            lambdas = Lambdas(float(self.nu), float(self.lambda_g), float(self.lambda_f))
            kernel = compile_steps(self._kernel_steps(), rows.dtype)
            training = Training(rows, kernel, B, numbers, len(self.classes_), lambdas)
            advance(1)
            self.history_: list[dict[str, float]] = []
            settled = False
            while not settled and len(self.history_) < self.max_iter:
                flips = training.code_step(restart=bool(self.restart))
                record = {"codes": training.objective()}
                training.classifier_step()
                record["classifier"] = training.objective()
                training.hash_step()
                record["hash_functions"] = training.objective()
                self.history_.append({**record, "flips": flips / B.size})
                settled = flips == 0
                advance(1)
        self.n_iter_, self.converged_ = len(self.history_), settled
        self.weights_, self.intercept_ = training.P[:-1], training.P[-1]
        self.classifier_ = training.W

    def _choose_kernel(self, X: Array, rng: np.random.Generator, threads: ThreadMap) -> None:
        """Anchors, and what vectors are compared with them by."""
        self.unit_ = np.array(float(self.unit_length))
        if self.unit_length:
            self.offset_ = np.zeros(X.shape[1])
        else:
            mean, square = self._mean_and_square(X, threads)

        def prepared(rows: Any) -> Floats:
            V = center(X[rows], self.offset_)
            return np.asarray(unit_rows(V) if self.unit_length else V, dtype=np.float64)

        self.anchors_ = prepared(np.sort(rng.choice(len(X), min(int(self.n_anchors), len(X)), replace=False)))
        if self.sigma is not None:
            self.bandwidth_ = np.array(2 * float(self.sigma) ** 2)
            return
        if self.unit_length:
            mean = sum((prepared(block).sum(axis=0) for block in row_blocks(X)), np.zeros(X.shape[1])) / len(X)
            square = 1.0
        self._keep_bandwidth(mean, square)

    @property
    def _unit(self) -> bool:
        return bool(self.unit_)

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int | str, ...]]:
        return {**super()._state(n_features, n_bits), "unit_": ()}

    def _check_state(self) -> None:
        super()._check_state()
        if self.unit_ != float(self.unit_length):
            raise ValueError(f"unit_ must be as unit_length is; got {self.unit_}")

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):
            return {}
        last = self.history_[-1]
        return {
            "samples": len(self.samples_),
            "classes": len(self.classes_),
            "iterations": self.n_iter_,
            "objective": last["hash_functions"],
            "converged": self.converged_,
        }


class Lambdas(NamedTuple):
    """The weights of the terms."""

    nu: float
    g: float
    f: float


class Training:
    """B, W and P, and the three steps that lower J in turn."""

    def __init__(
        self,
        rows: Rows,
        kernel: Callable[[Array], Array],
        B: Signs,
        numbers: Indices,
        n_classes: int,
        lambdas: Lambdas,
    ) -> None:
        from scipy.linalg import cho_factor

        self.rows, self.kernel, self.B, self.numbers, self.lambdas = rows, kernel, B, numbers, lambdas
        self.n_classes = n_classes

        def first(block: slice, X: Array) -> tuple[Floats, ...]:
            F = self._features(X)
            return (F.T @ F, *self._sums(block, F, B[block]))

        # In float64: the least eigenvalues of ΦᵀΦ are lost otherwise.
        self.FF, self.BB, self.BY, self.FB = rows.total(first, large=True)
        try:
            self._factor = cho_factor(self.FF + lambdas.f * np.eye(len(self.FF)))
        except np.linalg.LinAlgError:
            raise ValueError(f"lambda_f is too small for these data and anchors; got {lambdas.f}.") from None
        self.classifier_step()
        self.hash_step()

    def _features(self, X: Array) -> Floats:
        """Φ (rows, p + 1) of a block."""
        K = self.kernel(X)
        F = np.empty((len(K), K.shape[1] + 1))
        F[:, :-1] = K
        F[:, -1] = 1
        return F

    def _sums(self, block: slice, F: Floats, B: Signs) -> tuple[Floats, Floats, Floats]:
        """BᵀB, BᵀY and ΦᵀB of a block."""
        b = B.astype(np.float64)
        BY = np.zeros((self.n_classes, b.shape[1]))
        np.add.at(BY, self.numbers[block], b)
        return b.T @ b, BY.T, F.T @ b

    def code_step(self, *, restart: bool) -> int:
        """The B step, from zeros if ``restart``; returns the number of bits that it changed."""
        W, P = self.W, self.P
        G, nu = W @ W.T, self.lambdas.nu

        def step(block: slice, X: Array) -> tuple[Any, ...]:
            F = self._features(X)
            Q = W.T[self.numbers[block]] + nu * (F @ P)
            before = self.B[block]
            B = np.zeros_like(before) if restart else before.copy()
            descend(Q, G, B, _SWEEPS)
            flips = int(np.count_nonzero(before != B))
            return [B], flips, *self._sums(block, F, B)

        codes, flips, self.BB, self.BY, self.FB = self.rows.total(step)
        self.B = np.concatenate(codes)
        return int(flips)

    def classifier_step(self) -> None:
        """The G step."""
        self.W: Floats = np.linalg.solve(self.BB + self.lambdas.g * np.eye(len(self.BB)), self.BY)

    def hash_step(self) -> None:
        """The F step."""
        from scipy.linalg import cho_solve

        self.P: Floats = cho_solve(self._factor, self.FB)

    def objective(self) -> float:
        """J / m, from the sums."""
        (m, L), (nu, g, f) = self.B.shape, self.lambdas
        W, P = self.W, self.P
        # ‖Y‖² = m, ‖B‖² = mL
        loss = m - 2 * np.sum(W * self.BY) + np.sum(W * (self.BB @ W))
        gap = m * L - 2 * np.sum(P * self.FB) + np.sum(P * (self.FF @ P))
        J: Any = loss + g * np.sum(W**2) + nu * (gap + f * np.sum(P**2))
        return float(J / m)
