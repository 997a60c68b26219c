"""Linear support vector machines with squared hinge loss, many at once.

For each of L labelings y of the same samples (a column of Y),

    min_w  f(w) = ½ ‖w‖² + C Σ_i max(0, 1 − y_i z_i)²,   z = X w,   y ∈ {−1, 1},

where X has a column of ones, so that the last entry of w is the offset, regularized like the rest: LIBLINEAR's
problem of L2-regularized L2-loss with a bias of 1, and its method, Newton's with conjugate gradients (C.-J. Lin,
R. C. Weng, S. S. Keerthi, "Trust region Newton method for large-scale logistic regression", JMLR 2008), with a line
search in place of the trust region.

=======  ============  ==========================================================
symbol   shape         meaning
=======  ============  ==========================================================
X        (m, D)        samples; the column of ones is not kept
Y        (m, L)        labels, ±1
W        (D + 1, L)    weights and offsets
Z        (m, L)        X W
A        (m, L)        whether a sample counts, y z < 1
=======  ============  ==========================================================

∇f = W − 2C Xᵀ(A ∘ (Y − Z)), ∇²f · V = V + 2C Xᵀ(A ∘ (X V)): a pass over X takes a step of conjugate gradients for all
labelings at once, 4mDL. With a_k the share of samples that count, ∇²f is nearly I + 2C a_k XᵀX: with the eigenvectors
of XᵀX, which are computed once, its inverse is the preconditioner.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array, Floats, Signs
from hashlearn.hashers._blocks import Rows

# LIBLINEAR's rules: the gradient is small enough; conjugate gradients are near enough to the Newton step.
_TOLERANCE = 1e-3
_CG_TOLERANCE = 0.1
_CG_STEPS = 30
# The line search takes a step that lowers f by this share of what its slope promises.
_DECREASE = 0.01


class LinearSVMs:
    """The samples, made ready for several sets of labels; remembers the last solution, to start from it."""

    def __init__(self, rows: Rows, C: float) -> None:
        from scipy.linalg import eigh

        self.rows, self.C = rows, C
        D = rows.shape[1]
        gram, total = rows.total(lambda _, X: ((X.T @ X).astype(np.float64), X.sum(axis=0, dtype=np.float64)))
        moments = np.empty((D + 1, D + 1))
        moments[:D, :D] = gram
        moments[D, :D] = moments[:D, D] = total
        moments[D, D] = len(rows)
        eigenvalues, self._vectors = eigh(moments)
        self._eigenvalues = np.maximum(eigenvalues, 0)
        self.W: Floats | None = None

    def fit(self, Y: Signs, max_steps: int = 50) -> Floats:
        """The weights (D + 1, L) for the labels ``Y``: Newton's method from the weights for the labels before."""
        m, L = Y.shape
        W = np.zeros((self.rows.shape[1] + 1, L)) if self.W is None else self.W.copy()
        positive = np.count_nonzero(Y > 0, axis=0)
        # ∇f(0) = −2C XᵀY
        first = np.linalg.norm(2 * self.C * self._pull(lambda block: Y[block].astype(self.rows.dtype)), axis=0)
        enough = _TOLERANCE * np.maximum(np.minimum(positive, m - positive), 1) / m * first
        going = np.arange(L)  # labelings that are not done
        Z, V = scores(self.rows, W), W
        for _ in range(max_steps):
            slack = self._slack(Y, Z)
            gradient = V - 2 * self.C * self._pull(slack.__getitem__)
            left = np.flatnonzero(np.linalg.norm(gradient, axis=0) > enough[going])
            if not len(left):
                break
            if len(left) < len(going):
                going, gradient = going[left], gradient[:, left]
                Y, Z, V, slack = (np.ascontiguousarray(part[:, left]) for part in (Y, Z, V, slack))
            step, Xstep = self._newton_step(gradient, slack != 0)
            length = self._line_search(V, step, Z, Xstep, Y, np.einsum("ij,ij->j", gradient, step))
            V = V + length * step
            W[:, going] = V
            Xstep *= length.astype(Z.dtype)
            Z += Xstep
        self.W = W
        return W

    def _slack(self, Y: Signs, Z: Array) -> Array:
        """A ∘ (Y − Z); it is 0 just where a sample does not count."""
        return self.rows.map(lambda block, _: np.where(Y[block] * Z[block] < 1, Y[block] - Z[block], 0))

    def _pull(self, of: Callable[[slice], Array]) -> Floats:
        """Xᵀ R (D + 1, L), where ``of(block)`` is a block of R."""

        def work(block: slice, X: Array) -> tuple[Floats, Floats]:
            R = of(block)
            return (X.T @ R).astype(np.float64), R.sum(axis=0, dtype=np.float64)

        return np.vstack(self.rows.total(work))

    def _newton_step(self, gradient: Floats, A: NDArray[np.bool_]) -> tuple[Floats, Array]:
        """V with ∇²f V ≈ −∇f, and X V."""
        share = np.count_nonzero(A, axis=0) / len(A)
        scale = 1 + 2 * self.C * self._eigenvalues[:, None] * share

        def precondition(R: Floats) -> Floats:
            return np.asarray(self._vectors @ ((self._vectors.T @ R) / scale))

        V, residual = np.zeros_like(gradient), -gradient
        XV = np.zeros(A.shape, dtype=self.rows.dtype)
        done = _CG_TOLERANCE * np.linalg.norm(residual, axis=0)
        P = precondition(residual)
        rho = np.einsum("ij,ij->j", residual, P)
        for _ in range(_CG_STEPS):
            # One pass: X P and Xᵀ(A ∘ X P) of a block while it is near.
            XP, pulled = self._push_and_pull(P, A)
            HP = P + 2 * self.C * pulled
            # A labeling that is done has P = 0.
            alpha = rho / np.maximum(np.einsum("ij,ij->j", P, HP), np.finfo(np.float64).tiny)
            V += alpha * P
            XP *= alpha.astype(XP.dtype)
            XV += XP
            residual -= alpha * HP
            going = np.linalg.norm(residual, axis=0) > done
            if not going.any():
                break
            S = precondition(residual)
            before, rho = rho, np.where(going, np.einsum("ij,ij->j", residual, S), 0.0)
            P = np.where(going, S + rho / np.where(going, before, 1.0) * P, 0.0)
        return V, XV

    def _push_and_pull(self, P: Floats, A: NDArray[np.bool_]) -> tuple[Array, Floats]:
        """X P, and Xᵀ(A ∘ X P)."""
        XP = np.empty(A.shape, dtype=self.rows.dtype)
        weights, offsets = P[:-1].astype(XP.dtype), P[-1].astype(XP.dtype)

        def work(block: slice, X: Array) -> tuple[Floats, Floats]:
            np.matmul(X, weights, out=XP[block])
            XP[block] += offsets
            R = A[block] * XP[block]
            return (X.T @ R).astype(np.float64), R.sum(axis=0, dtype=np.float64)

        return XP, np.vstack(self.rows.total(work))

    def _line_search(self, W: Floats, V: Floats, Z: Array, XV: Array, Y: Signs, slope: Floats) -> Floats:
        """For each labeling the largest of 1, ½, ¼, … at which W + step V has lowered f enough."""

        def values(step: Floats) -> Floats:
            def losses(block: slice, _: Array) -> tuple[Floats]:
                slack = np.maximum(1 - Y[block] * (Z[block] + step.astype(Z.dtype) * XV[block]), 0)
                return (np.einsum("ij,ij->j", slack, slack, dtype=np.float64),)

            (loss,) = self.rows.total(losses)
            at = W + step * V
            return np.asarray(0.5 * np.einsum("ij,ij->j", at, at) + self.C * loss)

        now, step = values(np.zeros(len(slope))), np.ones(len(slope))
        for _ in range(30):
            # Below what rounding leaves of f there is nothing to gain.
            short = values(step) > now + _DECREASE * step * slope + np.finfo(Z.dtype).eps * now
            if not short.any():
                break
            step = np.where(short, step / 2, step)
        return step


def scores(rows: Rows, W: Floats) -> Array:
    """X W (m, L), in the type of the rows; the last row of W is the offsets."""
    weights, offsets = W[:-1].astype(rows.dtype), W[-1].astype(rows.dtype)
    return rows.map(lambda _, X: X @ weights + offsets)
