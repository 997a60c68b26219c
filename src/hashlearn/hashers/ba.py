"""Binary Autoencoder (BA).

M. Á. Carreira-Perpiñán and R. Raziperchikolaei, "Hashing with binary autoencoders", CVPR 2015. Linear hash functions
whose codes give the vectors back through a linear decoder,

    min_{h, f}  Σ_n ‖x_n − f(h(x_n))‖²,   h(x) = sgn(xᵀ A + a) ∈ {−1, 1}^L,   f(b) = b W + c,

by the method of auxiliary coordinates: codes B of their own, held to h(X) by a penalty μ that grows,

    min_{h, f, B}  E =  ‖X − B W − 1 c‖²  +  μ/4 ‖B − h(X)‖²,   B ∈ {−1, 1}^{m×L}.

=======  ============  =======================================================================================
symbol   shape         meaning
=======  ============  =======================================================================================
X        (m, D)        training data, centered, divided by the widest range of a feature
B        (m, L)        auxiliary codes, at first the signs of the L leading principal components
A, a     (D, L), (L,)  hash functions h
W, c     (L, D), (D,)  decoder f
μ                      penalty: ``mu``, times ``mu_factor`` after each iteration
=======  ============  =======================================================================================

The paper's codes are 0/1: with z = (b + 1)/2 its μ ‖z − h‖² is the μ/4 ‖b − h‖² here. In turn, for each μ:

- f step: least squares, of which BᵀX, BᵀB and a few sums more are all that is needed (:mod:`._decoder`).
- h step: a linear support vector machine for each bit, X the samples and the bits the labels (:mod:`._svm`).
- Z step: for each sample alone the codes that minimize E, a quadratic of L bits (:mod:`._discrete`): up to 16 bits the
  least of all 2^L, found by ruling most of them out at once; beyond, groups of 8 bits in turn, from the better of the
  codes before and the signs of the relaxed solution.

A bit's new support vector machine is taken if it errs less often than the one before; so none of the steps can raise E
while μ is held. Ends when the Z step changes nothing and B = h(X), as happens once μ is large.

Cost of an iteration: 2mDL for the decoder, 4mDL + 4D²L for each step of conjugate gradients, 2mDL for Q and 512mL for
each sweep over the groups of bits (up to 16 bits, some 8,000m for the bounds, and as much for what they leave).
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hashlearn._arrays import Array, Floats, Signs
from hashlearn.codes import signs
from hashlearn.hashers import itq
from hashlearn.hashers._blocks import Rows, row_blocks
from hashlearn.hashers._decoder import DecoderSums, decoder_sums
from hashlearn.hashers._discrete import GROUP, descend, descend_groups, energies, solve
from hashlearn.hashers._linear import LinearHasher, mean_and_covariance, principal_directions
from hashlearn.hashers._parameters import Rule, choice, count, number
from hashlearn.hashers._svm import LinearSVMs, scores
from hashlearn.hashers.steps import Affine, Center, Step
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# Codes of up to this length are solved for exactly by default.
_EXACT_BITS = 2 * GROUP
# Penalties and weights that float32 can tell from nothing and from all, for data whose widest range is 1.
_LEAST, _MOST = 1e-9, 1e9
# Steps of a support vector machine in an iteration; the next goes on from where they end.
_NEWTON_STEPS = 8
# Sweeps over all groups of bits; they end far earlier.
_SWEEPS = 100


class BA(LinearHasher):
    """Binary Autoencoder: bit k of x is the sign of a linear function, trained so that codes give the vectors back.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code; at most the number of features (the codes start from principal components).
    init : {"pca", "itq"}, default="pca"
        Where the codes start: the signs of the leading principal components, as in the paper, or ITQ's codes.
    mu, mu_factor : float, default=5e-3 and 1.2
        First penalty, and what it is multiplied by after each iteration. They are meant for data whose widest feature
        has a range of 1, to which X is scaled; see docs/methods/ba.md.
    max_iter : int, default=60
        Most iterations; training ends earlier when nothing changes any more.
    C : float, default=100.0
        Weight of the errors of the support vector machines; the authors' 100.
    solver : {"newton", "liblinear"}, default="newton"
        Of the support vector machines: ``"newton"`` trains all bits at once; ``"liblinear"`` one by one with
        scikit-learn's LIBLINEAR, as the authors did, with a float64 copy of X. The same minimum.
    z_step : {"auto", "groups"}, default="auto"
        ``"auto"``: exact up to 16 bits, in groups of 8 beyond. ``"groups"``: in groups of 8 at any length (up to 8
        bits the same).
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of ITQ's first rotation, for ``init="itq"`` only: nothing else is drawn.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    components_, intercept_ : ndarray of shape (n_features, n_bits) and (n_bits,)
        A and a.
    decoder_, decoder_offset_, range_ : ndarray
        W and c for the scaled X, and what X was divided by.
    history_ : list of dict
        For each iteration: μ, E / m and its two terms after the Z step, the share of bits that the Z step changed.
    n_iter_ : int
    converged_ : bool
        Whether nothing changed any more; if not, there is a warning.
    """

    name = "ba"
    _max_bits_reason = "whose codes start from a principal direction each"
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "init": choice("pca", "itq"),
        "mu": number(_LEAST, _MOST),
        "mu_factor": number(1),
        "max_iter": count(),
        "C": number(_LEAST, _MOST),
        "solver": choice("newton", "liblinear"),
        "z_step": choice("auto", "groups"),
    }

    intercept_: Floats

    def __init__(
        self,
        n_bits: int = 32,
        *,
        init: str = "pca",
        mu: float = 5e-3,
        mu_factor: float = 1.2,
        max_iter: int = 60,
        C: float = 100.0,
        solver: str = "newton",
        z_step: str = "auto",
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.init = init
        self.mu = mu
        self.mu_factor = mu_factor
        self.max_iter = max_iter
        self.C = C
        self.solver = solver
        self.z_step = z_step
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _unused(self) -> dict[str, str]:
        return {} if self.init == "itq" else {"random_state": "for init='pca', which draws nothing"}

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        with (
            thread_map() as threads,
            progress_bar("BA", self.max_iter, unit="iterations", show=self.show_progress) as advance,
        ):
            self.mean_, covariance = mean_and_covariance(X, threads)
            self.range_ = np.array(_widest_range(X, threads))
            # Beside the rows: codes, and what the support vector machines hold of each.
            rows = Rows(X, self.mean_, float(self.range_), threads, beside=6 * self.n_bits_)
            P = self._directions(X, covariance, threads).astype(rows.dtype)
            B = rows.map(lambda _, X: signs(X @ P))
            svms = (_Liblinear if self.solver == "liblinear" else LinearSVMs)(rows, float(self.C))
            training = _Training(rows, B, svms, exact=self.z_step == "auto" and self.n_bits_ <= _EXACT_BITS)
            self.history_: list[dict[str, float]] = []
            self.converged_ = False
            mu = float(self.mu)
            while not self.converged_ and len(self.history_) < self.max_iter:
                flips = training.code_step(mu)
                self.history_.append({"mu": mu, **training.objective(mu), "flips": flips / B.size})
                # The penalty holds all codes where the hash functions put them: no step has anything left to do.
                self.converged_ = flips == 0 and training.errors == 0
                if not self.converged_:
                    training.decoder_step()
                    training.hash_step()
                mu = min(mu * self.mu_factor, _MOST)
                advance(1)
        self.n_iter_ = len(self.history_)
        # (x − mean) / range · A = (x − mean) · A / range
        self.components_ = training.A[:-1] / self.range_
        self.intercept_ = training.A[-1].copy()
        self.decoder_, self.decoder_offset_ = training.decoder
        if not self.converged_:
            warnings.warn(
                f"BA has not converged after {self.n_iter_} iterations: {training.errors / B.size:.2%} of the bits of "
                "the auxiliary codes are not what the hash functions give. Increase max_iter or mu_factor.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _directions(self, X: Array, covariance: Floats, threads: ThreadMap) -> Floats:
        """Directions (D, L) whose signs are the first codes."""
        if self.init == "pca":
            return principal_directions(covariance, self.n_bits_)
        rng = np.random.default_rng(self.random_state)
        return itq.learn(X, self.mean_, covariance, self.n_bits_, rng, threads)[0]

    def _encoder_steps(self) -> list[Step]:
        return [Center(self.mean_), Affine(self.components_, self.intercept_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        return {**super()._state(n_features, n_bits), "intercept_": (n_bits,)}

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):
            return {}
        last = self.history_[-1]
        return {"iterations": self.n_iter_, "reconstruction": last["reconstruction"], "converged": self.converged_}


class _Training:
    """B, h and f, and the three steps that lower E in turn."""

    def __init__(self, rows: Rows, B: Signs, svms: LinearSVMs | _Liblinear, *, exact: bool) -> None:
        self.rows, self.B, self.svms, self.exact = rows, B, svms, exact
        self.hX = B.copy()  # the codes of the hash functions; at first there are none
        self.A: Floats = np.zeros((rows.shape[1] + 1, B.shape[1]))
        self._wrong = np.full(B.shape[1], len(B) + 1)  # so that the first are taken
        self.sums = self._sums()
        self.decoder_step()
        self.hash_step()

    def _sums(self) -> DecoderSums:
        return DecoderSums(*self.rows.total(lambda block, X: decoder_sums(X, self.B[block].astype(X.dtype))))

    def decoder_step(self) -> None:
        """The f step: least squares."""
        self.decoder = self.sums.solve(0.0)

    def hash_step(self) -> None:
        """The h step; a bit whose new hash function errs no less often than its old one keeps that."""
        A = self.svms.fit(self.B, _NEWTON_STEPS)
        hX = signs(scores(self.rows, A))
        wrong = np.count_nonzero(hX != self.B, axis=0)
        taken = wrong < self._wrong
        self.A[:, taken] = A[:, taken]
        self.hX[:, taken] = hX[:, taken]
        self._count()

    def _count(self) -> None:
        self._wrong = np.count_nonzero(self.hX != self.B, axis=0)

    @property
    def errors(self) -> int:
        """Bits of the codes that differ from the hash functions'."""
        return int(self._wrong.sum())

    def code_step(self, mu: float) -> int:
        """The Z step; returns the number of bits that it changed."""
        W, c = self.decoder
        dtype = self.rows.dtype
        G, Wt, shift = W @ W.T, np.ascontiguousarray(W.T, dtype=dtype), (W @ c).astype(dtype)
        # Without constraints, b = q (G + μ/4 I)⁻¹.
        held = G + mu / 4 * np.eye(len(G))
        relaxed = np.linalg.inv(held).astype(dtype)

        def step(block: slice, X: Array) -> tuple[Any, ...]:
            # Q = (X − 1 c) Wᵀ + μ/4 h(X)
            Q = X @ Wt
            Q -= shift
            Q += dtype(mu / 4) * self.hX[block]
            before = self.B[block]
            B, other = before.copy(), signs(Q @ relaxed)
            better = energies(Q, G, other) < energies(Q, G, B)
            B[better] = other[better]
            if self.exact:
                descend(Q, G, B, _SWEEPS)  # a good code to begin with
                solve(Q, held, B)
            else:
                descend_groups(Q, G, B, _SWEEPS)
            flips = int(np.count_nonzero(before != B))
            return [B], flips, *decoder_sums(X, B.astype(dtype))

        codes, flips, *sums = self.rows.total(step)
        self.B, self.sums = np.concatenate(codes), DecoderSums(*sums)
        self._count()
        return int(flips)

    def objective(self, mu: float) -> dict[str, float]:
        """E / m and its terms."""
        m = len(self.B)
        reconstruction = max(2 * self.sums.loss(*self.decoder)[0], 0.0)  # a difference of large sums
        penalty = mu * self.errors / m  # μ/4 (±2)²
        return {"objective": reconstruction + penalty, "reconstruction": reconstruction, "penalty": penalty}


class _Liblinear:
    """The support vector machines by scikit-learn's LIBLINEAR, a bit at a time, on all cores."""

    def __init__(self, rows: Rows, C: float) -> None:
        if rows.streamed:
            raise ValueError(
                "solver='liblinear' takes all samples in memory at once, and X is too large: use 'newton'."
            )
        self.C = C
        self._X = np.asarray(rows[slice(0, len(rows))], dtype=np.float64)

    def fit(self, Y: Signs, max_steps: int) -> Floats:
        from sklearn.svm import LinearSVC

        def one(k: int) -> Floats:
            if (Y[:, k] == Y[0, k]).all():  # LIBLINEAR wants two classes
                return np.append(np.zeros(self._X.shape[1]), float(Y[0, k]))
            # (Nothing is drawn for dual=False; without a seed NumPy's global generator would be moved all the same.)
            svm = LinearSVC(C=self.C, dual=False, tol=1e-3, max_iter=1000, random_state=0).fit(self._X, Y[:, k])
            return np.append(svm.coef_[0], svm.intercept_)

        with thread_map() as threads:
            return np.stack(threads(one, range(Y.shape[1])), axis=1)


def _widest_range(X: Array, threads: ThreadMap) -> float:
    """The largest of the features' ranges; 1 if all samples are equal."""
    blocks = row_blocks(X)
    ends = threads(lambda rows: (X[rows].min(axis=0), X[rows].max(axis=0)), blocks)
    least, most = ends[0]
    for low, high in ends[1:]:
        least, most = np.minimum(least, low), np.maximum(most, high)
    widest = float((most.astype(np.float64) - least.astype(np.float64)).max())
    return widest if widest > 0 else 1.0
