"""K-means Hashing (KMH).

K. He, F. Wen and J. Sun, "K-means hashing: an affinity-preserving quantization method for learning binary compact
codes", CVPR 2013. The space is cut into M = L / b subspaces, as in product quantization; in each, k-means with k = 2^b
codewords, whose index is a vector's b bits, such that Hamming distances h of indices tell the codewords' distances:

    E = E_quan + λ E_aff,    E_quan = (1/m) Σ_x ‖x − c_{i(x)}‖²,    E_aff = Σ_{i,j} w_ij (‖c_i − c_j‖ − s √h(i, j))².

=======  =============  ========================================================================
symbol   shape          meaning
=======  =============  ========================================================================
X        (m, D)         training data; its mean is taken off
R        (D, D)         principal directions of X, in the order of the subspaces they are given to
Y        (m, d)         X in one subspace, d = D / M or one more
C        (k, d)         codewords c_0, …, c_{k−1} of one subspace
n, μ     (k,), (k, d)   samples of each cell (those whose nearest codeword it is), and their mean
p        (k,)           n / m;  w_ij = p_i p_j
s                       side of the cube that the codewords start as; stays as it is
=======  =============  ========================================================================

The codewords start as the corners of a cube along the b leading directions of the subspace, where E_aff = 0. Then, in
turn: every sample goes to its nearest codeword, which can't raise E_quan (though w, and so E_aff, changes); every
codeword in turn moves, the others held, to lower its part of E, which can't raise E. That part,

    ‖c − μ_j‖² + 2λ Σ_{i≠j} p_i (‖c − c_i‖ − s √h(i, j))²    (times p_j),

knows the samples by n and μ alone. Cost: 2mD² for R, 2mD² for Y, 2mDk an iteration for the cells, at most 120k²D for C.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import in_parts, row_blocks
from hashlearn.hashers._cells import cell_sums, hamming_distances, nearest_cells
from hashlearn.hashers._linear import mean_and_covariance, principal_directions
from hashlearn.hashers._parameters import Rule, count, number
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Affine, Center, Float, Margins, Step, center, compute_type, index_bits, margins
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# Eigenvalues below this share of the largest count as 0, and as this share where a product of them must not be 0.
_LEAST_EIGENVALUE = 1e-10
# A codeword is moved until a step is below this share of the cube's side, or this often.
_STEP, _STEPS = 1e-4, 30
# Codewords whose squared distance is below this share of their squared lengths count as equal.
_SAME = 1e-12
# A subspace is done when no sample changes its cell and no codeword moves by more than this share of the side.
_SETTLED = 1e-3


class KMH(Hasher):
    """K-means Hashing: b bits of x are the index of the nearest of 2^b codewords, in each of n_bits / b subspaces.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code: a multiple of ``bits_per_subspace``, and at most the number of features.
    bits_per_subspace : int, default=4
        b, from 1 to 8; the paper uses 4 and 8.
    affinity_weight : float, default=10.0
        λ, the weight of the distances between codewords; the paper's 10. 0 is plain k-means, whose indices mean
        nothing.
    max_iter : int, default=50
        Most iterations; the authors' 50.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    codewords_ : ndarray of shape (n_bits / b, 2^b, n_features)
        Relative to the mean.
    scale_ : ndarray of shape ()
        The standard deviation of the data, all features together.
    quantization_error_, affinity_error_ : ndarray of shape (n_iter_ + 1,)
        E_quan and E_aff, summed over the subspaces, at the start and after each iteration; only after ``fit``.
    n_iter_ : int
    """

    name = "kmh"
    _max_bits_reason = "which takes a principal direction for each bit"
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "bits_per_subspace": count(most=8),  # 2^b codewords
        "affinity_weight": number(),
        "max_iter": count(),
    }

    mean_: Floats
    codewords_: Floats
    scale_: Floats

    def __init__(
        self,
        n_bits: int = 32,
        *,
        bits_per_subspace: int = 4,
        affinity_weight: float = 10.0,
        max_iter: int = 50,
        normalize: bool = False,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.bits_per_subspace = bits_per_subspace
        self.affinity_weight = affinity_weight
        self.max_iter = max_iter
        self.normalize = normalize
        self.show_progress = show_progress

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        b = self.bits_per_subspace
        if self.n_bits % b:
            raise ValueError(
                f"n_bits must be a multiple of bits_per_subspace for KMH ({b}, {2 * b}, {3 * b}, … for "
                f"bits_per_subspace={b}); got {self.n_bits}."
            )

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        b, D = int(self.bits_per_subspace), X.shape[1]
        M, k = self.n_bits_ // b, 1 << b
        with (
            thread_map() as threads,
            progress_bar("KMH", self.max_iter, unit="iterations", show=self.show_progress) as advance,
        ):
            self.mean_, covariance = mean_and_covariance(X, threads)
            # All is computed in units of the data's standard deviation.
            self.scale_ = np.array(np.sqrt(np.trace(covariance)) or 1.0)
            R = principal_directions(covariance, D)
            eigenvalues = np.einsum("ij,ij->j", R, covariance @ R)
            # A direction without variance holds only rounding, and must not become a bit.
            R[:, eigenvalues <= _LEAST_EIGENVALUE * eigenvalues.max()] = 0
            parts = _allocate(eigenvalues, M)
            data = _projected(X, self.mean_, [R[:, part] / self.scale_ for part in parts], threads)
            del covariance
            codewords, errors = learn(data, b, self.affinity_weight, threads, self.max_iter, advance)
        self.codewords_ = np.empty((M, k, D))
        for p, part in enumerate(parts):
            self.codewords_[p] = codewords[p] @ R[:, part].T * self.scale_
        self.quantization_error_, self.affinity_error_ = (np.array(errors) * self.scale_**2).T
        self.n_iter_ = len(errors) - 1

    def _compile(self, steps: Sequence[Step], dtype: Float) -> Callable[[Array], Array]:
        """The same with samples as columns, which makes the comparisons of distances faster."""
        M, k, _ = self.codewords_.shape
        b = k.bit_length() - 1
        C, half = (part.astype(dtype) for part in self._half_distances())
        half = half[:, None]

        def project(X: Array) -> Array:
            distances: Array = C @ center(X, self.mean_).T  # (M k, rows)
            distances += half
            return margins(distances.reshape(M, k, len(X)), b)

        return project

    def _half_distances(self) -> tuple[Floats, Floats]:
        """C (M k, D) and h (M k,): C x + h are half the squared distances of x from all codewords, but for one number.

        ‖x − c‖² / 2 = ‖x‖² / 2 + ‖c‖² / 2 − xᵀc, of which the first is the same for all c; in units of scale². A
        codeword lies in its subspace: the rest of x counts as much for each of those it is compared with.
        """
        C = self.codewords_.reshape(-1, self.codewords_.shape[2]) / self.scale_
        return C / -self.scale_, 0.5 * np.einsum("ij,ij->i", C, C)

    def _encoder_steps(self) -> list[Step]:
        (M, k, _), (C, half) = self.codewords_.shape, self._half_distances()
        return [Center(self.mean_), Affine(C.T, half), Margins(M, k.bit_length() - 1)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        b = int(self.bits_per_subspace)
        return {"mean_": (n_features,), "codewords_": (n_bits // b, 1 << b, n_features), "scale_": ()}

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        b = self.codewords_.shape[1].bit_length() - 1
        if self.bits_per_subspace != b:
            raise ValueError(
                f"bits_per_subspace was changed to {self.bits_per_subspace} after fit learned {b}: fit again."
            )


def _allocate(eigenvalues: Floats, M: int) -> list[list[int]]:
    """The directions, largest eigenvalue first, of each of ``M`` subspaces of as equal a size as can be.

    Ge, He, Ke and Sun (CVPR 2013): each direction in turn goes to the subspace with room left whose product of
    eigenvalues is the smallest so far; in units in which no eigenvalue is below e, so that each makes it larger.
    """
    D = len(eigenvalues)
    logs = np.log(np.maximum(eigenvalues, _LEAST_EIGENVALUE * (eigenvalues.max() or 1.0)))
    logs += 1 - logs.min()
    room = [D // M + (p < D % M) for p in range(M)]
    parts: list[list[int]] = [[] for _ in range(M)]
    product = np.zeros(M)
    for i in range(D):
        p = int(product.argmin())
        parts[p].append(i)
        product[p] = product[p] + logs[i] if len(parts[p]) < room[p] else np.inf
    return parts


def _projected(X: Array, mean: Floats, directions: list[Floats], threads: ThreadMap) -> list[Array]:
    """(X − mean) R_p (m, d) for the ``directions`` R_p (D, d) of each subspace."""
    dtype = compute_type(X.dtype)
    R = [W.astype(dtype) for W in directions]
    data = [np.empty((len(X), W.shape[1]), dtype=dtype) for W in R]

    def work(rows: slice) -> None:
        V = center(X[rows], mean)
        for Y, W in zip(data, R, strict=True):
            np.matmul(V, W, out=Y[rows])

    threads(work, row_blocks(X))
    return data


def learn(
    data: list[Array],
    b: int,
    weight: float,
    threads: ThreadMap,
    max_iter: int,
    advance: Callable[[float], object] = lambda _: None,
) -> tuple[list[Floats], list[Floats]]:
    """Codewords (2^b, d) of each subspace, and (E_quan, E_aff) of all at the beginning and after each iteration."""
    subspaces = [_Subspace(Y, b, weight) for Y in data]
    active, history = subspaces, []
    for iteration in range(max_iter + 1):
        work = [(subspace, part) for subspace in active for part in subspace.parts]
        results = iter(threads(lambda item: item[0].assign(item[1]), work))
        for subspace in active:
            subspace.gather([next(results) for _ in subspace.parts])
        active = [subspace for subspace in active if not subspace.settled]
        history.append(np.sum([subspace.errors() for subspace in subspaces], axis=0))
        if iteration == max_iter or not active:
            break
        threads(_Subspace.update, active)
        advance(1)
    return [subspace.C for subspace in subspaces], history


class _Subspace:
    """Samples ``Y`` (m, d) of one subspace, their cells, and its codewords ``C``."""

    def __init__(self, Y: Array, b: int, weight: float) -> None:
        self.Y, self.weight = Y, weight
        self.C, self.s = _cube(Y, b)
        self.H = self.s * np.sqrt(hamming_distances(b))
        blocks = row_blocks(Y, 1 << b)
        self.parts = in_parts(blocks)
        self.cells = np.full(len(Y), -1, dtype=np.int16)
        self.square = sum(float(np.einsum("ij,ij->", Y[rows], Y[rows], dtype=np.float64)) for rows in blocks)
        self.settled = False

    def assign(self, part: list[slice]) -> tuple[Indices, Floats, bool]:
        """Put the samples of ``part`` into the cell of their nearest codeword: n and sums, and whether any moved."""
        k, d = self.C.shape
        n, sums, changed = np.zeros(k, dtype=np.intp), np.zeros((k, d)), False
        for rows in part:
            cells = nearest_cells(self.Y[rows], self.C)
            changed = changed or bool((cells != self.cells[rows]).any())
            self.cells[rows] = cells
            n += np.bincount(cells, minlength=k)
            sums += cell_sums(self.Y[rows], cells, k)
        return n, sums, changed

    def gather(self, results: list[tuple[Indices, Floats, bool]]) -> None:
        self.n: Indices = np.sum([n for n, _, _ in results], axis=0)
        self.sums: Floats = np.sum([sums for _, sums, _ in results], axis=0)
        self.changed = any(changed for _, _, changed in results)

    def errors(self) -> tuple[float, float]:
        return _errors(self.C, self.n, self.sums, self.square, self.H)

    def update(self) -> None:
        moved = _update(self.C, self.n, self.sums, self.H, self.weight, _STEP * self.s)
        self.settled = not self.changed and moved <= _SETTLED * self.s


def _cube(Y: Array, b: int) -> tuple[Floats, float]:
    """Codewords at the corners of a cube along the first ``b`` coordinates, and its side.

    PCA hashing: the side s that brings the corners closest to the samples, min Σ ‖y − (s/2) sgn(y)‖², is twice the
    mean of |y|.
    """
    s = 2 * float(np.abs(Y[:, :b]).mean(dtype=np.float64))
    C = np.zeros((1 << b, Y.shape[1]))
    C[:, :b] = s * (index_bits(b) - 0.5)
    return C, s


def _errors(C: Floats, n: Indices, sums: Floats, square: float, H: Floats) -> tuple[float, float]:
    """E_quan and E_aff; ``square``: Σ ‖y‖²."""
    m = n.sum()
    quantization = (square - 2 * np.einsum("ij,ij->", C, sums) + n @ np.einsum("ij,ij->i", C, C)) / m
    affinity = 0.0
    for j in np.flatnonzero(n):
        affinity += n[j] * (n @ (_distances(C[j] - C) - H[j]) ** 2)
    return max(float(quantization), 0.0), float(affinity / m**2)


def _distances(differences: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", differences, differences)))


def _update(C: Floats, n: Indices, sums: Floats, H: Floats, weight: float, tolerance: float) -> float:
    """Move each codeword in turn, in place, to where its part of E is least; the length of the largest move.

    A codeword without samples stays: it has no part in E.
    """
    p, largest = n / n.sum(), 0.0
    for j in np.flatnonzero(n):
        w = p.copy()
        w[j] = 0
        c = _lower(C[j], sums[j] / n[j], C, 2 * weight * w, H[j], tolerance)
        largest = max(largest, float(np.linalg.norm(c - C[j])))
        C[j] = c
    return largest


def _lower(c: Floats, mu: Floats, C: Floats, w: Floats, h: Floats, tolerance: float) -> Floats:
    """From ``c``, towards the least of F(c) = ‖c − μ‖² + Σ_i w_i (‖c − c_i‖ − h_i)²; never above F at the start.

    Replacing −‖c − c_i‖ by its linear bound at the present c gives a quadratic function above F whose least point is a
    gradient step of length 1 / (1 + Σ w): it can't raise F. Longer steps by the rule of Barzilai and Borwein are tried
    first, and taken if they do not raise F either.
    """
    total, pull, wh = 1 + w.sum(), mu + w @ C, w * h
    norms = np.einsum("ij,ij->i", C, C)

    def value_and_gradient(c: Floats) -> tuple[float, Floats]:
        """F and half its gradient."""
        sizes = norms + c @ c
        squares = sizes - 2 * (C @ c)
        # Of two codewords that are all but equal, the direction is lost in rounding: 0 is as good a bound.
        apart = squares > _SAME * sizes
        d = np.sqrt(np.where(apart, squares, 0))
        ratio = np.divide(wh, d, out=np.zeros_like(d), where=apart)
        value = (c - mu) @ (c - mu) + w @ (d - h) ** 2
        return float(value), (total - ratio.sum()) * c - pull + ratio @ C

    value, g = value_and_gradient(c)
    safe = step = 1 / total
    for _ in range(_STEPS):
        move = -step * g
        new_value, new_g = value_and_gradient(c + move)
        if new_value > value:
            if step == safe:  # rounding
                break
            step = safe
            continue
        curvature = move @ (new_g - g)
        square = move @ move
        c, value, g = c + move, new_value, new_g
        if square <= tolerance**2:
            break
        step = min(max(square / curvature, safe), 100 * safe) if curvature > 0 else 100 * safe
    return c
