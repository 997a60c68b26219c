"""Iterative Quantization of canonical correlations with labels (ITQ-CCA).

Y. Gong and S. Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes", CVPR 2011: the
rotation of ITQ after canonical correlation analysis (CCA) instead of PCA. CCA finds the directions w of X and u of the
class indicators Y along which the two agree best:

    Cov(X, Y) (YᵀY)⁻¹ Cov(Y, X) w = ρ² (C + ε I) w,   wᵀ (C + ε I) w = 1.

=======  ========  =============================================================================
symbol   shape     meaning
=======  ========  =============================================================================
X        (m, D)    training data; its mean is taken off
Y        (m, c)    classes, one-hot
C        (D, D)    covariance of X
ε                  ``regularization`` times the mean variance of a feature
M        (D, c)    means of the classes, each times the root of its share of the samples
ρ        (r,)      correlations, largest first
P        (D, r)    directions w, each times its correlation
R        (r, L)    ITQ's rotation
=======  ========  =============================================================================

Since X is centered, the matrix on the left is M Mᵀ, the scatter of the classes' means, of a rank below c. With
C + ε I = T Tᵀ (Cholesky) and T⁻¹M = U diag(ρ) Vᵀ, the directions are T⁻ᵀ U: one triangular solve and a thin SVD.

There are at most c − 1 of them. For longer codes the authors' program goes on with directions of the correlation 0,
which multiplied by it add nothing; so the codes are L planes through the space of the r directions, placed by the
rotation. Here the same without the zeros: R is (r, L), RRᵀ = I.

Cost: 2mD² for C, D³/3 for T, D²c for the directions, then 4mrL an iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats
from hashlearn.hashers._blocks import in_parts, row_blocks, total
from hashlearn.hashers._classes import draw_samples
from hashlearn.hashers._linear import LinearHasher, mean_and_covariance
from hashlearn.hashers._parameters import Rule, count, number, optional
from hashlearn.hashers.itq import quantize
from hashlearn.hashers.steps import center
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# Correlations below this are rounding.
_NONE = 1e-6


class ITQCCA(LinearHasher):
    """ITQ-CCA: bit k of x is the sign of (x − mean)ᵀ (P R)_k, P directions that agree with the labels.

    Labels are of any hashable kind, one for each sample (a tuple or a frozenset is one label).

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code; see the module's docstring for more bits than there are classes.
    regularization : float, default=1e-4
        ε over the mean variance of a feature, above 0: keeps features that never vary, or that are combinations of
        others, from having correlations by chance.
    samples_per_class : int or None, default=None
        Samples of each class to train on, drawn at random; a class that has fewer is used whole. None: all samples, as
        in the paper.
    max_iter : int, default=50
        Iterations of the rotation; the authors' 50.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the samples that are drawn and of the first rotation.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    components_ : ndarray of shape (n_features, n_bits)
        P R.
    correlations_ : ndarray of shape (r,)
        ρ of the directions that are used.
    classes_, class_counts_, samples_ : ndarray
        The classes, how many samples of each were trained on, and which rows of X.
    quantization_loss_ : ndarray of shape (n_iter_,)
        ‖B − V R‖² / m at each iteration.
    n_iter_ : int
    """

    name = "itq-cca"
    supervised = True
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "regularization": number(above=0),
        "samples_per_class": optional(count()),
        "max_iter": count(),
    }

    def __init__(
        self,
        n_bits: int = 32,
        *,
        regularization: float = 1e-4,
        samples_per_class: int | None = None,
        max_iter: int = 50,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.regularization = regularization
        self.samples_per_class = samples_per_class
        self.max_iter = max_iter
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        numbers = draw_samples(self, y, rng, pairs=False)
        X = X if len(numbers) == len(X) else X[self.samples_]
        with (
            thread_map() as threads,
            progress_bar("ITQ-CCA", self.max_iter, unit="iterations", show=self.show_progress) as advance,
        ):
            self.mean_, covariance = mean_and_covariance(X, threads)
            M = _scatter(X, self.mean_, numbers, len(self.classes_), threads)
            W, rho = directions(covariance, M, self.regularization)
            P = (W * rho)[:, : self.n_bits_]
            self.correlations_ = rho[: self.n_bits_]
            self.components_, losses = quantize(
                X, self.mean_, P, self.n_bits_, rng, threads, int(self.max_iter), advance
            )
        self.quantization_loss_ = np.array(losses)
        self.n_iter_ = len(losses)

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "correlations_"):  # read from a file
            return {}
        return {
            "samples": len(self.samples_),
            "classes": len(self.classes_),
            "directions": len(self.correlations_),
        }


def directions(covariance: Floats, M: Floats, regularization: float) -> tuple[Floats, Floats]:
    """w (D, r) and ρ (r,), largest first: all that are above rounding, and one at least."""
    from scipy.linalg import cholesky, solve_triangular

    D = len(covariance)
    variance = float(np.trace(covariance)) / D or 1.0
    try:
        T = cholesky(covariance + regularization * variance * np.eye(D), lower=True)
    except np.linalg.LinAlgError:
        raise ValueError(f"regularization is too small for these data; got {regularization}.") from None
    U, rho, _ = np.linalg.svd(solve_triangular(T, M, lower=True), full_matrices=False)
    # The classes' means, weighted, add up to 0: one of the c correlations is rounding.
    r = max(1, min(M.shape[1] - 1, int(np.count_nonzero(rho > _NONE))))
    W: Floats = solve_triangular(T, U[:, :r], lower=True, trans="T")
    # A direction's sign is arbitrary: its largest entry is made positive, so that the answer is reproducible.
    largest = np.take_along_axis(W, np.abs(W).argmax(axis=0)[None], axis=0)
    return W * np.where(largest < 0, -1.0, 1.0), np.minimum(rho[:r], 1.0)


def _scatter(X: Array, mean: Floats, numbers: Array, c: int, threads: ThreadMap) -> Floats:
    """M (D, c): √(n_k / m) (mean of class k − mean)."""

    from scipy.sparse import csr_array

    def class_sums(rows: slice) -> tuple[Floats]:
        V = center(X[rows], mean)
        Y = csr_array((np.ones(len(V), V.dtype), (numbers[rows], np.arange(len(V)))), shape=(c, len(V)))
        return ((Y @ V).astype(np.float64),)

    (sums,) = total(class_sums, in_parts(row_blocks(X)), threads, large=True)
    counts = np.bincount(numbers, minlength=c)
    return np.asarray((sums / np.sqrt(counts * len(X))[:, None]).T)
