"""Supervised Discrete Hashing with a Deep Neural Network (SDH-DNN).

T.-T. Do, A.-D. Doan, N.-M. Cheung, "Discrete hashing with deep neural network", 2015, section 4 and Algorithm 2. The
network of UDH-DNN without its decoder; outputs shall be alike within a class and opposite between classes:

    min_{W, c, B}  J =  1/(2m) ‖HHᵀ/L − S‖²                 pairs
                      + λ₁/2 Σ ‖W‖²                         weights
                      + λ₂/(2m) ‖H − B‖²                    quantization
                      + λ₃/2 ‖HᵀH/m − I‖²                   independence
                      + λ₄/(2m) ‖Hᵀ1‖²                      balance,      B ∈ {−1, 1}^{m×L}.

=========  ============  ================================================================
symbol     shape         meaning
=========  ============  ================================================================
X          (m, D)        training data, centred and scaled
Y          (m, c)        classes, one-hot
S          (m, m)        1 for two samples of one class, −1 for others: S = 2YYᵀ − 11ᵀ
W, c       (s, t), (t,)  weights and biases of the layers
H          (m, L)        outputs, linear in the last layer
B          (m, L)        codes
λ₁ … λ₄                  ``lambda1`` … ``lambda4``
=========  ============  ================================================================

Neither S nor HHᵀ is ever made. With K = YᵀH (c, L), the sums of H over each class, and h = Hᵀ1,

    ‖HHᵀ/L − S‖² = ‖HᵀH‖²/L² − (2/L)(2‖K‖² − ‖h‖²) + m²,
    ∂/∂H of its half over m = 2/(mL) (H HᵀH / L − 2YK + 1hᵀ):

exact, and linear in m. Steps in turn, from codes by ITQ and a first (W, c) step:

- B step, W and c held: B = sgn(H).
- (W, c) step, B held: L-BFGS.

Samples are rows here and columns in the paper, so that matrices are the transposes of the paper's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.codes import signs_of
from hashlearn.hashers._early_stop import EarlyStop
from hashlearn.hashers._lbfgs import Minimum, minimise
from hashlearn.hashers._network import Layer, Network, Slope, Sums, flatten, fold, layers_of, outputs_of
from hashlearn.hashers._network_hasher import NetworkHasher, Samples
from hashlearn.hashers._objective import Lambdas, encoder_terms
from hashlearn.hashers._rows import Rows
from hashlearn.hashers.base import check_count, classes_of

Array = NDArray[Any]
Codes = NDArray[np.int8]
Floats = NDArray[np.float64]


def pair_term(sums: Sums, m: int) -> tuple[float, Slope]:
    """1/(2m) ‖HHᵀ/L − S‖² and its ∂/∂H."""
    L = len(sums.gram)
    K = sums.class_sums
    h = K.sum(axis=0)
    square = float(np.sum(sums.gram**2)) / L**2 - 2 / L * (2 * float(np.sum(K * K)) - float(h @ h)) + float(m) ** 2
    return square / (2 * m), Slope(A=2 / (m * L**2) * sums.gram, T=2 / (m * L) * (h - 2 * K), b=0.0)


def pair_floors(counts: ArrayLike, L: int) -> tuple[float, float]:
    """Values that the pair term can't fall below, for real-valued H and for ±1 codes, by the sizes of the classes.

    For real values: HHᵀ has no negative eigenvalue and at most L positive ones, and S has the eigenvalues of
    N^½ (2I − 11ᵀ) N^½, N the sizes; what is left out of them is the error. For codes, whose products HHᵀ/L have a
    diagonal of 1: 1ᵀHHᵀ1 ≥ 0 bounds the mean product g of samples of different classes by −Σn²/M, M = Σ_{a≠b} n_a n_b,
    and Σ (g + 1)² is least if all are equal to it.
    """
    n = np.asarray(counts, dtype=np.float64)
    m = n.sum()
    roots = np.sqrt(n)
    eigenvalues = np.sort(np.linalg.eigvalsh(np.diag(2 * n) - np.outer(roots, roots)))[::-1]
    kept = np.maximum(eigenvalues[:L], 0)
    real = float(np.sum(eigenvalues**2) - np.sum(kept**2))
    within = float(n @ n)
    between = m**2 - within
    codes = between * max(0.0, 1 - within / between) ** 2 if between else 0.0
    return real / (2 * m), codes / (2 * m)


class SDHDNN(NetworkHasher):
    """SDH-DNN: bit k of x is the sign of output k of a network that was trained on pairs of labelled samples.

    n_bits
        Length of the code; at most the number of features (the codes start from ITQ's).
    hidden_units
        Units of the hidden layers, first to last; ``"auto"``: the paper's (see :func:`._network_hasher.auto_units`).
    samples_per_class
        Samples of each class that are trained on, drawn at random; the paper's 2,000. A class that has fewer is used
        whole. None: all samples.
    lambda1, lambda2, lambda3, lambda4
        Weights of the terms: regularisation, quantization, independence, balance. The paper's.
    max_iter
        Outer iterations, each a B step and a (W, c) step; the paper's 5. Fewer, if neither has anything left to do.
    lbfgs_iter
        Iterations of L-BFGS in a (W, c) step.
    init
        Where the network starts: ``"eigen"``, the paper's; ``"second-moment"``; ``"itq"`` (see :mod:`._start`).
    scale
        What X is scaled by, after its mean is taken off: a number, so that its total variance is that; None, not at
        all; ``"range"``, the authors' (x − minimum of the feature) / range of all values instead.
    validation
        None, or a number of samples that are kept from training as queries for an early stop: training ends with the
        first iteration that finds samples of their class no better than the one before (mAP), and keeps the one before.
    random_state
        Seed of the draw of samples, of ITQ's first rotation and of all others: an int, a ``numpy.random.Generator``,
        or None.
    show_progress
        A progress bar on a terminal: None, as the environment says; True or False, always or never.
    callback
        Called as ``callback(hasher, record)`` after each iteration, when ``hasher`` can encode already; ``record`` is
        the new entry of ``history_``. If it returns True, training ends there. A model file does not keep it.

    Labels are of any hashable kind, one for each sample. Several labels a sample are refused: the sum over pairs that
    share one does not factor.

    Learned: ``offset_``, ``scale_``; ``W1_``, ``c1_``, ``W2_``, … (the network); ``classes_``, ``class_counts_`` (how
    many samples of each were trained on); ``pair_floor_``, ``pair_floor_codes_``, below which the pair term can't fall
    for any real outputs and for any codes; ``history_`` (a dict for each iteration: objective and its terms, flips of
    the B step, evaluations, seconds); ``n_iter_``, ``converged_``; ``best_iter_``, the iteration that was kept.

    Products are computed in float32 if that holds X, else in float64.
    """

    name = "sdh-dnn"
    supervised = True

    def __init__(
        self,
        n_bits: int = 32,
        *,
        hidden_units: str | Sequence[int] = "auto",
        samples_per_class: int | None = 2000,
        lambda1: float = 1e-3,
        lambda2: float = 5.0,
        lambda3: float = 1.0,
        lambda4: float = 1e-4,
        max_iter: int = 5,
        lbfgs_iter: int = 400,
        init: str = "eigen",
        scale: float | str | None = 50.0,
        validation: int | None = None,
        random_state: Any = None,
        show_progress: bool | None = None,
        callback: Callable[[SDHDNN, dict[str, Any]], object] | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden_units = hidden_units
        self.samples_per_class = samples_per_class
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.lambda4 = lambda4
        self.max_iter = max_iter
        self.lbfgs_iter = lbfgs_iter
        self.init = init
        self.scale = scale
        self.validation = validation
        self.random_state = random_state
        self.show_progress = show_progress
        self.callback = callback

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        if self.samples_per_class is not None:
            check_count("samples_per_class", self.samples_per_class)

    def _samples(self, X: Array, y: Array | None, rng: np.random.Generator) -> Samples:
        assert y is not None
        self.classes_, numbers = classes_of(y)
        if len(self.classes_) < 2:
            raise ValueError(f"SDH-DNN learns from samples of at least 2 classes; got 1: {self.classes_[0]}.")
        if self.validation and self.validation > len(X) // 2:
            raise ValueError(f"validation must leave at least half of the {len(X)} samples; got {self.validation}.")
        order = rng.permutation(len(X))
        kept = order[: self.validation] if self.validation else order[:0]
        drawn = np.sort(self._drawn(numbers, order[len(kept) :]))
        self.class_counts_ = np.bincount(numbers[drawn], minlength=len(self.classes_))
        self.pair_floor_, self.pair_floor_codes_ = pair_floors(self.class_counts_, self.n_bits_)
        if len(drawn) < len(X):
            return Samples(X[drawn], numbers[drawn], (X[kept], numbers[kept]) if self.validation else None)
        return Samples(X, numbers)

    def _drawn(self, numbers: Array, order: Array) -> Array:
        """The first ``samples_per_class`` of each class in a random order."""
        wanted = self.samples_per_class
        if wanted is None:
            return order
        # Sorted by class, and by the random order within.
        by_class = order[np.argsort(numbers[order], kind="stable")]
        counts = np.bincount(numbers[order], minlength=len(self.classes_))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        small = np.flatnonzero(counts < wanted)
        if 0 < len(small) < len(counts):
            names = ", ".join(f"{self.classes_[i]} ({counts[i]})" for i in small[:5])
            more = f" and {len(small) - 5} more" if len(small) > 5 else ""
            warnings.warn(
                f"classes of fewer than {wanted} samples (samples_per_class) are used whole: {names}{more}.",
                UserWarning,
                stacklevel=5,
            )
        return np.asarray(by_class[rank < wanted])

    def _training(self, samples: Samples, rows: Rows, layers: Sequence[Layer], B: Codes) -> _Training:
        assert samples.y is not None
        return _Training(rows, layers, B, samples.y, self._lambdas)

    def _early_stop(self, samples: Samples, rng: np.random.Generator) -> EarlyStop | None:
        if samples.kept is None or samples.y is None:
            return None
        return EarlyStop.by_labels(samples.kept, samples.X, samples.y)


class _Training:
    """The variables of J, and the two steps that lower it in turn."""

    def __init__(self, rows: Rows, layers: Sequence[Layer], B: Codes, y: Array, lambdas: Lambdas) -> None:
        self.rows, self.B, self.y, self.lambdas = rows, B, y, lambdas
        self.n_classes = int(y.max()) + 1
        self.sizes = (rows.shape[1], *(len(layer.c) for layer in layers))
        self.network = Network(rows, self.sizes)
        self.theta = flatten(layers)

    @property
    def layers(self) -> list[Layer]:
        return layers_of(self.theta, self.sizes)

    def code_step(self) -> int:
        """B = sgn(H); gives the number of bits that it changed."""
        layers = fold(self.layers, self.rows.dtype)

        def step(block: slice, X: Array) -> tuple[int]:
            B = signs_of(outputs_of(layers, X))
            flips = int(np.count_nonzero(self.B[block] != B))
            self.B[block] = B
            return (flips,)

        (flips,) = self.rows.total(step)
        return int(flips)

    def network_step(self, max_iter: int, advance: Callable[[float], None]) -> Minimum:
        """The (W, c) step: J at its end."""
        minimum = minimise(self.objective, self.theta, max_iter, advance)
        self.theta = minimum.theta
        return minimum

    def objective(self, theta: Floats) -> tuple[dict[str, float], Floats]:
        """The five terms of J and its gradient."""
        m, l1 = len(self.rows), self.lambdas.weights

        def reduce(sums: Sums) -> tuple[dict[str, float], Slope]:
            pairs, slope = pair_term(sums, m)
            others, more = encoder_terms(sums, m, self.lambdas)
            return {"pairs": pairs, "weights": 0.0, **others}, Slope(slope.A + more.A, slope.T + more.T, more.b)

        terms, gradient = self.network(theta, reduce, self.B, self.y, self.n_classes)
        for (W, _), (slope, _) in zip(layers_of(theta, self.sizes), layers_of(gradient, self.sizes), strict=True):
            slope += l1 * W
            terms["weights"] += l1 / 2 * float(np.sum(W**2))
        return terms, gradient
