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

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.codes import signs_of
from hashlearn.hashers._classes import checked_classes, places, warn_of_small
from hashlearn.hashers._early_stop import EarlyStop
from hashlearn.hashers._network import Block, Layer, Slope, Sums, fold, measure, outputs_of
from hashlearn.hashers._network_hasher import NetworkHasher, Samples
from hashlearn.hashers._rows import Rows
from hashlearn.hashers._training import Lambdas, Training, encoder_terms
from hashlearn.hashers.base import check_count

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
    and Σ (g + 1)² is least if all are equal to it. Codes are real values too.
    """
    n = np.asarray(counts, dtype=np.float64)
    m = n.sum()
    largest = np.sort(_eigenvalues(n))[::-1][:L]
    real = max(0.0, float(m**2 - np.sum(np.maximum(largest, 0) ** 2)))  # ‖S‖² = m²
    within = float(n @ n)
    between = m**2 - within
    codes = between * max(0.0, 1 - within / between) ** 2 if between else 0.0
    return float(real / (2 * m)), float(max(real, codes) / (2 * m))


def _eigenvalues(n: Floats) -> Floats:
    """Of diag(2n) − √n √nᵀ. Of g equal sizes, g − 1 eigenvectors are orthogonal to √n and have the eigenvalue 2n."""
    sizes, g = np.unique(n, return_counts=True)
    roots = np.sqrt(g * sizes)
    return np.append(np.repeat(2 * sizes, g - 1), np.linalg.eigvalsh(np.diag(2 * sizes) - np.outer(roots, roots)))


class SDHDNN(NetworkHasher):
    """SDH-DNN: bit k of x is the sign of output k of a network that was trained on pairs of labelled samples.

    n_bits
        Length of the code; at most the number of features (the codes start from ITQ's).
    hidden_units
        Units of the hidden layers, first to last; ``"auto"``: the paper's (see :func:`._network_hasher.auto_units`).
    samples_per_class
        Samples of each class that are trained on, drawn at random; the paper's 2,000. A class that has fewer is used
        whole. At least 2, so that there are pairs. None: all samples.
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

    Labels are of any hashable kind, one for each sample (a tuple or a frozenset is one label). Several labels a sample
    are refused: the sum over pairs that share one does not factor.

    Learned: ``offset_``, ``scale_``; ``W1_``, ``c1_``, ``W2_``, … (the network); ``classes_``, ``class_counts_`` (how
    many samples of each were trained on), ``samples_`` (which rows of X); ``pair_floor_``, ``pair_floor_codes_``, below
    which the pair term can't fall for any real outputs and for any codes; ``history_`` (a dict for each iteration:
    objective and its terms, the pair term of the codes, flips of the B step, evaluations, seconds); ``n_iter_``;
    ``best_iter_``, the iteration that was kept; ``converged_``, whether the last B step changed at most 1 % of the bits
    (a warning, if not).

    Products are computed in float32 if that holds X, else in float64. Samples that are left out, by samples_per_class
    or for a validation, cost a copy of the others in memory.
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
        lbfgs_iter: int = 100,
        init: str = "eigen",
        scale: float | str | None = 500.0,
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
            check_count("samples_per_class", self.samples_per_class, least=2)

    def _samples(self, X: Array, y: list[Hashable] | None, rng: np.random.Generator) -> Samples:
        self.classes_, numbers = checked_classes(y, "SDH-DNN")
        order = rng.permutation(len(X))
        place = places(numbers[order])
        kept = np.zeros(len(X), dtype=np.bool_)
        if self.validation:
            wanted = int(self.validation)
            spare = order[place > 0]  # no class loses its last sample
            if wanted > min(len(X) // 2, len(spare)):
                raise ValueError(
                    f"validation must leave at least half of the {len(X)} samples and one of each class; "
                    f"got {self.validation}."
                )
            kept[spare[:wanted]] = True
            order = order[~kept[order]]
            place = places(numbers[order])
        if self.samples_per_class is not None:
            order = order[place < int(self.samples_per_class)]
        self.samples_ = np.sort(order)
        warn_of_small(self.classes_, np.bincount(numbers[~kept]), self.samples_per_class, stacklevel=4)
        self.class_counts_ = np.bincount(numbers[self.samples_], minlength=len(self.classes_))
        if self.class_counts_.max() < 2:
            beside = f" beside the {self.validation} of validation" if self.validation else ""
            raise ValueError(
                f"SDH-DNN learns that samples of a class are alike; of the {len(self.classes_)} classes none has two "
                f"samples to train on{beside}."
            )
        self.pair_floor_, self.pair_floor_codes_ = pair_floors(self.class_counts_, self.n_bits_)
        if len(self.samples_) == len(X):
            return Samples(X, numbers)
        held = (X[kept], numbers[kept]) if self.validation else None
        return Samples(X[self.samples_], numbers[self.samples_], held)

    def summary(self) -> dict[str, Any]:
        found = super().summary()
        if not found:
            return {}
        last = self.history_[self.best_iter_]
        # Beside what was asked for, the sizes of the classes say which of them were used whole.
        asked = {} if self.samples_per_class is None else {"samples_per_class": int(self.samples_per_class)}
        return {
            **found,
            **asked,
            "samples": int(self.class_counts_.sum()),
            "classes": len(self.classes_),
            "fewest_of_a_class": int(self.class_counts_.min()),
            "most_of_a_class": int(self.class_counts_.max()),
            "pair_term": last["pairs"],
            "floor_of_the_pair_term": self.pair_floor_,
            "pair_term_of_the_codes": last["pairs_of_codes"],
            "floor_of_the_pair_term_of_codes": self.pair_floor_codes_,
        }

    def _training(self, samples: Samples, rows: Rows, layers: Sequence[Layer], B: Codes) -> _Training:
        assert samples.y is not None
        return _Training(rows, layers, B, samples.y, self._lambdas)

    def _early_stop(self, samples: Samples, rng: np.random.Generator) -> EarlyStop | None:
        if samples.kept is None or samples.y is None:
            return None
        return EarlyStop.by_labels(samples.kept, samples.X, samples.y, rng)


class _Training(Training):
    """The variables of J, and the two steps that lower it in turn."""

    def __init__(self, rows: Rows, layers: Sequence[Layer], B: Codes, y: Array, lambdas: Lambdas) -> None:
        super().__init__(rows, layers, B, lambdas)
        self.y, self.n_classes = y, int(y.max()) + 1

    def code_step(self) -> int:
        """B = sgn(H); gives the number of bits that it changed."""

        def step(block: slice, B: Codes) -> tuple[int]:
            flips = int(np.count_nonzero(self.B[block] != B))
            self.B[block] = B
            return (flips,)

        (flips,) = self._codes_total(step)
        return int(flips)

    def remarks(self) -> dict[str, float]:
        """The pair term of sgn(H)."""

        def sums(block: slice, B: Codes) -> Sums:
            H = B.astype(self.rows.dtype)
            return measure(H, Block(H, B, self.y[block]), self.n_classes)

        return {"pairs_of_codes": pair_term(Sums(*self._codes_total(sums)), len(self.rows))[0]}

    def _codes_total(self, work: Callable[[slice, Codes], tuple[Any, ...]]) -> list[Any]:
        """The sum over all blocks of ``work(block, sgn(H) of the block)``."""
        layers = fold(self.layers, self.rows.dtype)
        return self.rows.total(lambda block, X: work(block, signs_of(outputs_of(layers, X))))

    def objective(self, theta: Floats) -> tuple[dict[str, float], Floats]:
        """The five terms of J and its gradient."""
        m = len(self.rows)

        def reduce(sums: Sums) -> tuple[dict[str, float], Slope]:
            pairs, slope = pair_term(sums, m)
            others, more = encoder_terms(sums, m, self.lambdas)
            return {"pairs": pairs, "weights": 0.0, **others}, Slope(slope.A + more.A, slope.T + more.T, more.b)

        terms, gradient = self.network(theta, reduce, self.B, self.y, self.n_classes)
        terms["weights"] = self._weights(theta, gradient)
        return terms, gradient
