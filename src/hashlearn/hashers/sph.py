"""Spherical Hashing (SPH).

J.-P. Heo, Y. Lee, J. He, S.-F. Chang and S.-E. Yoon, "Spherical hashing", CVPR 2012. A bit is a hypersphere,
1 for what is inside. The spheres are to halve the data each, and any two of them to share a quarter of it:

    o_k = m / 2,   o_ij = m / 4   for all i ≠ j.

=======  ========  ==========================================================
symbol   shape     meaning
=======  ========  ==========================================================
X        (m, D)    training data; its mean is taken off
P        (L, D)    pivots, the centers of the spheres
t        (L,)      radii
G        (L, m)    ‖x − p_k‖² − ‖p_k‖² = ‖x‖² − 2 xᵀp_k
τ        (L,)      t_k² − ‖p_k‖²: x is inside sphere k if G ≤ τ_k
o        (L, L)    o_ij, the number of samples inside both sphere i and j
=======  ========  ==========================================================

Pivots that share too much repel each other, those that share too little attract each other:

    f_{i←j} = ½ (o_ij − m/4) / (m/4) (p_i − p_j),   p_i ← p_i + (1/L) Σ_j f_{i←j};

then each radius is set anew to halve the data, until the mean of |o_ij − m/4| and the standard deviation of o_ij are
within tolerances. For a fixed pivot, samples are ordered by G as by their distance, so ‖p_k‖², whose digits would
drown the others in G of a pivot that has moved far out, is never added. Cost: 2mDL + 2mL² + 2DL² an iteration.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hashlearn._arrays import Array, Floats
from hashlearn.hashers._blocks import Rows, total
from hashlearn.hashers._parameters import Rule, count, number
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Center, Spheres, Step, compute_type, squares
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# Values whose difference is at most this many units in the last place of the largest count as equal.
_ROUNDING = 16
# A pivot starts as the mean of this many samples.
_SAMPLES_OF_A_PIVOT = 5


class SPH(Hasher):
    """Spherical Hashing: bit k of x is 1 inside a sphere, ‖x − p_k‖ ≤ t_k, that holds half of the training data.

    Its codes are meant to be ranked by spherical Hamming distance: ``Protocol(distance="spherical")``.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    tol_mean, tol_std : float, default=0.10 and 0.15
        Training ends when the mean of |o_ij − m/4| is at most ``tol_mean`` · m/4 and the standard deviation of o_ij at
        most ``tol_std`` · m/4; the authors' values.
    max_iter : int, default=200
        Most iterations; if the tolerances are not met by then, there is a ConvergenceWarning.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the first pivots.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    pivots_ : ndarray of shape (n_bits, n_features)
        The centers of the spheres, relative to the mean.
    thresholds_, radii_ : ndarray of shape (n_bits,)
        t_k² − ‖p_k‖², and t_k.
    overlap_error_, overlap_std_ : ndarray of shape (n_iter_,)
        Mean of |o_ij − m/4| and standard deviation of o_ij, divided by m/4, after each iteration.
    n_iter_ : int
    converged_ : bool
    """

    name = "sph"
    distance = "spherical"
    _parameters: ClassVar[Mapping[str, Rule]] = {"tol_mean": number(), "tol_std": number(), "max_iter": count()}

    mean_: Floats
    pivots_: Floats
    thresholds_: Floats

    def __init__(
        self,
        n_bits: int = 32,
        *,
        tol_mean: float = 0.10,
        tol_std: float = 0.15,
        max_iter: int = 200,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.tol_mean = tol_mean
        self.tol_std = tol_std
        self.max_iter = max_iter
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    @property
    def radii_(self) -> Floats:
        """The radii t_k (n_bits,)."""
        squares = self.thresholds_ + np.square(self.pivots_).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(squares, 0)))

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        _check_size(X)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        P = _first_pivots(X, self.mean_, self.n_bits_, np.random.default_rng(self.random_state))
        with (
            thread_map() as threads,
            progress_bar("SPH", self.max_iter, unit="iterations", show=self.show_progress) as advance,
        ):
            spheres = _Spheres(X, self.mean_, self.n_bits_, threads)
            tau, o = spheres(P)
            errors: list[float] = []
            deviations: list[float] = []
            self.converged_, why = False, "max_iter"
            while not self.converged_ and len(errors) < self.max_iter:
                moved = P + _forces(P, o, len(X))
                if np.square(moved).sum(axis=1).max() > spheres.limit**2:
                    why = "a pivot left for infinity"
                    break
                still, P = np.array_equal(moved, P), moved
                tau, o = spheres(P)
                error, deviation = _overlap(o, len(X))
                errors.append(error)
                deviations.append(deviation)
                self.converged_ = error <= self.tol_mean and deviation <= self.tol_std
                advance(1)
                if still:
                    why = "no pivot moves any more"
                    break
        self.pivots_, self.thresholds_ = P, tau
        self.overlap_error_, self.overlap_std_ = np.array(errors), np.array(deviations)
        self.n_iter_ = len(errors)
        if not self.converged_:
            error, deviation = _overlap(o, len(X))
            warnings.warn(
                f"SPH has not converged: after {self.n_iter_} iterations ({why}) overlaps of spheres are off by "
                f"{error:.2g} of a quarter of the data on average and vary by {deviation:.2g}; tol_mean is "
                f"{self.tol_mean}, tol_std {self.tol_std}.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _encoder_steps(self) -> list[Step]:
        return [Center(self.mean_), Spheres(self.pivots_, self.thresholds_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        return {"mean_": (n_features,), "pivots_": (n_bits, n_features), "thresholds_": (n_bits,)}

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "converged_"):  # read from a file
            return {}
        return {"iterations": self.n_iter_, "converged": self.converged_}


def _check_size(X: Array) -> None:
    """Refuse values whose squares overflow, or vanish, in the type that is computed in."""
    dtype, D = compute_type(X.dtype), X.shape[1]
    largest = max(abs(float(X.max())), abs(float(X.min())))
    if largest > _longest(dtype) / (2 * np.sqrt(D)):
        raise ValueError(f"X has values whose squares are beyond {dtype.__name__}; divide it first.")


def _longest(dtype: type[np.floating[Any]]) -> float:
    """A length for vectors whose squared distances, and the sums on the way to them, the type holds with ease."""
    return float(np.sqrt(np.finfo(dtype).max)) / 8


def _first_pivots(X: Array, mean: Floats, L: int, rng: np.random.Generator) -> Floats:
    """Each pivot the mean of a few samples: fewer than there are, or all pivots would be one."""
    m = len(X)
    n = min(_SAMPLES_OF_A_PIVOT, -(-m // 2))
    samples = (np.sort(rng.choice(m, n, replace=False)) for _ in range(L))
    return np.array([X[rows].mean(axis=0, dtype=np.float64) for rows in samples]) - mean


def _inner(V: Array, P: Floats, squares: Array) -> Array:
    """Gᵀ (rows, L) of centered rows: ‖x‖² − 2 xᵀp_k."""
    return np.asarray(squares[:, None] - V @ (2 * P.T).astype(V.dtype))


class _Spheres:
    """The training data, and what spheres around given pivots make of it."""

    def __init__(self, X: Array, mean: Floats, L: int, threads: ThreadMap) -> None:
        m, D = X.shape
        self._V = Rows(X, mean, 1.0, threads, beside=L + 1)
        self._threads = threads
        self._G = np.empty((L, m), dtype=self._V.dtype)
        self._squares = self._V.map(lambda _, V: squares(V))
        info = np.finfo(self._V.dtype)
        total = self._squares.sum(dtype=np.float64)
        if total < 1e3 * m * D * info.tiny and np.any(X[0] != X):
            raise ValueError(f"X has values whose squares vanish in {self._V.dtype.__name__}; multiply it first.")
        # Beyond the first of these the type can't tell a sphere from a plane, and a pivot never comes back.
        self.limit = min(float(np.sqrt(self._squares.max())) / float(info.eps), _longest(self._V.dtype))

    def __call__(self, P: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """τ (L,), which halves the data, and o (L, L) with it; o_kk is o_k."""
        G = self._G

        def distances(block: slice, V: Array) -> None:
            G[:, block] = _inner(V, P, self._squares[block]).T

        self._V.each(distances)
        tau = np.array(self._threads(_halving, G))

        def shared(block: slice) -> tuple[NDArray[np.int64]]:
            inside = (G[:, block] <= tau[:, None]).astype(np.float32)
            return ((inside @ inside.T).astype(np.int64),)  # exact: a block has fewer than 2²⁴ rows

        (o,) = total(shared, self._V.parts, self._threads)
        return tau.astype(np.float64), o


def _halving(g: Array) -> Any:
    """A threshold with half of the values g (m,) below it: half way between the two in the middle, m // 2 below.

    So that rounding does not move a sample across. Where values in the middle are equal, but for rounding, all of them
    count as below, and the threshold is half way to the next larger one. (A handful among thousands that happen to be
    as near are no such tie.)
    """
    half = len(g) // 2
    below, above = np.partition(g, (half - 1, half))[half - 1 : half + 1]
    near = g.dtype.type(_ROUNDING * np.finfo(g.dtype).eps) * np.abs(g).max()
    tied = np.count_nonzero(np.abs(g - below) <= near) > 1 + len(g) // 1000
    if above > below and not tied:
        middle = below + (above - below) / 2
        return middle if middle < above else below
    last = g[g <= below + near].max()
    larger = g[g > last]
    return last + (larger.min() - last) / 2 if larger.size else last + 4 * near


def _forces(P: Floats, o: NDArray[np.int64], m: int) -> Floats:
    """f_i (L, D), the mean of the forces on each pivot."""
    C = (o - m / 4) / (m / 4)
    # Σ_j ½ c_ij (p_i − p_j)
    return np.asarray((C.sum(axis=1)[:, None] * P - C @ P) / (2 * len(P)))


def _overlap(o: NDArray[np.int64], m: int) -> tuple[float, float]:
    """Mean of |o_ij − m/4| and standard deviation of o_ij over all pairs i < j, both over m/4; no pairs: 0."""
    shares = o[np.triu_indices(len(o), 1)] / (m / 4)
    return (float(np.abs(shares - 1).mean()), float(shares.std())) if shares.size else (0.0, 0.0)
