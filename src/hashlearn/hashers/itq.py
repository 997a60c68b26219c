"""Iterative Quantization (ITQ).

Y. Gong and S. Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes", CVPR 2011.
PCA to L dimensions, then the rotation that brings the projected data closest to the corners of the cube:

    min_{B, R} ‖B − V R‖²,  B ∈ {−1, 1}^{m×L},  RᵀR = I.

=======  ========  ===============================================
symbol   shape     meaning
=======  ========  ===============================================
X        (m, D)    training data; its mean is taken off
P        (D, L)    principal directions of X, largest first
V        (m, L)    X P, the projected data
R        (L, L)    rotation, from a random one
B        (m, L)    codes, sgn(V R)
=======  ========  ===============================================

Each iteration sets B = sgn(V R), the best codes for R, and R = U₂ U₁ᵀ with BᵀV = U₁ S U₂ᵀ, the best rotation for B
(orthogonal Procrustes); neither can raise the loss. Cost: 2mD² + 2mDL for the PCA, 4mL² an iteration.

Of L > D bits, V has all D principal components, and R (D, L) is the part of a rotation of L dimensions that they meet;
R Rᵀ = I, and both steps are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats
from hashlearn.codes import signs
from hashlearn.hashers._blocks import row_blocks
from hashlearn.hashers._linear import LinearHasher, mean_and_covariance, principal_directions
from hashlearn.hashers._parameters import Rule, count
from hashlearn.hashers.steps import center, compute_type
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map


class ITQ(LinearHasher):
    """Iterative Quantization: bit k of x is the sign of (x − mean)ᵀ (P R)_k.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code. Of more bits than features, the bits are signs of projections on a tight frame: the
        rotation is that of vectors with zeros appended up to this length.
    max_iter : int, default=50
        Iterations of the rotation; the authors' 50.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the first rotation.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    components_ : ndarray of shape (n_features, n_bits)
        P R.
    quantization_loss_ : ndarray of shape (n_iter_,)
        ‖B − V R‖² / m at each iteration.
    n_iter_ : int
    """

    name = "itq"
    _parameters: ClassVar[Mapping[str, Rule]] = {"max_iter": count()}

    def __init__(
        self,
        n_bits: int = 32,
        *,
        max_iter: int = 50,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.max_iter = max_iter
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        with (
            thread_map() as threads,
            progress_bar("ITQ", self.max_iter, unit="iterations", show=self.show_progress) as advance,
        ):
            self.mean_, covariance = mean_and_covariance(X, threads)
            self.components_, losses = learn(
                X, self.mean_, covariance, self.n_bits_, rng, threads, self.max_iter, advance
            )
        self.quantization_loss_ = np.array(losses)
        self.n_iter_ = len(losses)


def learn(
    X: Array,
    mean: Floats,
    covariance: Floats,
    L: int,
    rng: np.random.Generator,
    threads: ThreadMap,
    max_iter: int = 50,
    advance: Callable[[float], object] = lambda _: None,
) -> tuple[Floats, list[float]]:
    """P R (D, L) and the loss at each iteration, of data whose mean and covariance are known."""
    P = principal_directions(covariance, min(L, len(covariance)))
    return quantize(X, mean, P, L, rng, threads, max_iter, advance)


def quantize(
    X: Array,
    mean: Floats,
    P: Floats,
    L: int,
    rng: np.random.Generator,
    threads: ThreadMap,
    max_iter: int,
    advance: Callable[[float], object],
) -> tuple[Floats, list[float]]:
    """P R (D, L) and the loss at each iteration, of directions P (D, r).

    If they are fewer than bits, R (r, L) is the part of a rotation that matters: the other rows would meet zeros.
    """
    directions = P.astype(compute_type(X.dtype))
    V = np.concatenate(threads(lambda rows: center(X[rows], mean) @ directions, row_blocks(X)))
    R = _random_rotation(L, rng)[: P.shape[1]]
    losses = []
    for _ in range(max_iter):
        R, loss = _rotate(V, R, threads)
        losses.append(loss)
        advance(1)
    return P @ R, losses


def _random_rotation(L: int, rng: np.random.Generator) -> Floats:
    """An orthogonal matrix, uniform over all of them: Q of a Gaussian matrix, signs fixed by R's diagonal."""
    Q, T = np.linalg.qr(rng.standard_normal((L, L)))
    return Q * signs(np.diag(T))


def _rotate(V: Array, R: Floats, threads: ThreadMap) -> tuple[Floats, float]:
    """One iteration: the best rotation for the codes sgn(V R), and the loss of those codes before it."""

    def part(rows: slice) -> tuple[Array, float]:
        Z = V[rows] @ R.astype(V.dtype)
        B = signs(Z).astype(V.dtype)
        BV = B.T @ V[rows]
        B -= Z
        return BV, float(np.einsum("ij,ij->", B, B, dtype=np.float64))

    BV, loss = np.zeros(R.shape[::-1]), 0.0
    for product, square in threads(part, row_blocks(V, len(R.T))):
        BV += product
        loss += square
    # BᵀV = U₁ S U₂ᵀ;  R = U₂ U₁ᵀ
    U1, _, U2t = np.linalg.svd(BV, full_matrices=False)
    return U2t.T @ U1.T, loss / len(V)
