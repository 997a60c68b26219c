"""Supervised Discrete Hashing with a Deep Neural Network (SDH-DNN).

T.-T. Do, A.-D. Doan, N.-M. Cheung, "Discrete hashing with deep neural network", 2015, section 4 and Algorithm 2. The
network of UDH-DNN without its decoder; outputs are to be alike within a class and opposite between classes:

    min_{W, c, B}  J =  1/(2m) ‖HHᵀ/L − S‖²                 pairs
                      + λ₁/2 Σ ‖W‖²                         weights
                      + λ₂/(2m) ‖H − B‖²                    quantization
                      + λ₃/2 ‖HᵀH/m − I‖²                   independence
                      + λ₄/(2m) ‖Hᵀ1‖²                      balance,      B ∈ {−1, 1}^{m×L}.

=========  ============  ================================================================
symbol     shape         meaning
=========  ============  ================================================================
X          (m, D)        training data, centered and scaled
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

exact, and linear in m. Steps in turn, from the codes of ITQ and a first (W, c) step:

- B step, W and c held: B = sgn(H).
- (W, c) step, B held: L-BFGS, or Adam on batches (``solver``).

Samples are rows here and columns in the paper, so that matrices are the transposes of the paper's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Floats, Indices, Signs
from hashlearn.codes import signs
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._classes import checked_classes, places, warn_small_classes
from hashlearn.hashers._dnn import BATCH_SIZE, DNNHasher, Lambdas, encoder_terms, run_adam, weight_term
from hashlearn.hashers._early_stop import EarlyStop
from hashlearn.hashers._network import Block, Evaluation, Network, Slope, Sums, evaluate_batch, measure
from hashlearn.hashers._optim import MEMORY, Minimum, Terms, lbfgs
from hashlearn.hashers._parameters import Rule, count, optional
from hashlearn.progress import progress_bar
from hashlearn.threads import thread_map

# Adam's learning rate by default.
_RATE = 1e-2


def pair_term(sums: Sums, m: int) -> tuple[float, Slope]:
    """Return 1/(2m) ‖HHᵀ/L − S‖² and its ∂/∂H."""
    L = len(sums.gram)
    K = sums.class_sums
    h = K.sum(axis=0)
    square = float(np.sum(sums.gram**2)) / L**2 - 2 / L * (2 * float(np.sum(K * K)) - float(h @ h)) + float(m) ** 2
    return square / (2 * m), Slope(A=2 / (m * L**2) * sums.gram, T=2 / (m * L) * (h - 2 * K), b=0.0)


def pair_floors(counts: ArrayLike, L: int) -> tuple[float, float]:
    """Return lower bounds of the pair term, for real-valued H and for ±1 codes, by the sizes of the classes.

    For real values: HHᵀ has no negative eigenvalue and at most L positive ones, and S has the eigenvalues of
    N^½ (2I − 11ᵀ) N^½, N the sizes; what is left out of them is the error. For codes, whose products HHᵀ/L have a
    diagonal of 1: 1ᵀHHᵀ1 ≥ 0 bounds the mean product g of samples of different classes by −Σn²/M, M = Σ_{a≠b} n_a n_b,
    and Σ (g + 1)² is least if all are equal to it. Signs are real values too.
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


class SDHDNN(DNNHasher):
    """SDH-DNN: bit k of x is the sign of output k of a network that was trained on pairs of labeled samples.

    Labels are of any hashable kind, one for each sample (a tuple or a frozenset is one label). Several labels for a
    sample are refused: the sum over pairs that share one does not factor.

    Products are computed in float32 if that holds X, else in float64. Samples that are left out, by samples_per_class
    or for a validation, cost a copy of the others in memory.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    hidden_units : "auto" or list of int, default="auto"
        Units of the hidden layers, first to last; ``"auto"``: the paper's, interpolated between its lengths.
    samples_per_class : int or None, default=2000
        Samples of each class to train on, drawn at random; the paper's 2,000. A class that has fewer is used whole. At
        least 2, so that there are pairs. None: all samples.
    lambda1, lambda2, lambda3, lambda4 : float
        Weights of the terms: weights, quantization, independence, balance. The defaults are the paper's.
    max_iter : int, default=5
        Outer iterations, each a B step and a (W, c) step; the paper's 5. Training ends earlier if neither step changes
        anything.
    solver : {"lbfgs", "adam"}, default="lbfgs"
        What minimizes in a (W, c) step: ``"lbfgs"``, L-BFGS on all samples, the paper's; ``"adam"``, Adam on batches of
        samples, which is faster; best with ``init="itq"``, since from the paper's start it gets less far.
    lbfgs_iter : int, default=100
        Iterations of L-BFGS in a (W, c) step.
    lbfgs_memory : int, default=20
        How many pairs of steps and gradient changes L-BFGS keeps.
    epochs : int or "auto", default="auto"
        How often Adam uses each sample in a (W, c) step. ``"auto"``: 3 times, and more often if that is less than 250
        batches.
    batch_size : int, default=512
        About how many samples are in a batch of Adam. J is estimated from them as if they stood for all samples.
    learning_rate : float, default=1e-2
        Of Adam, at its highest: in each (W, c) step, it falls from there as a cosine to 0.
    init : {"eigen", "second-moment", "itq"}, default="eigen"
        Where the network starts (see :mod:`._init`); ``"eigen"`` is the paper's.
    scale : float, "range" or None, default=500.0
        A number: X is centered and scaled to this total variance. None: it is only centered. ``"range"``: the authors'
        (x − minimum of the feature) / range of all values.
    validation : int, default=None
        Number of samples that are kept from training as queries for an early stop: training ends with the first
        iteration that finds samples of their class no better than the one before (mAP), and keeps the one before.
        None: no early stop.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the draw of samples, of ITQ's first rotation and of all other draws.
    show_progress : bool, default=None
        Whether to show a progress bar; None: on a terminal.
    callback : callable, default=None
        Called as ``callback(hasher, record)`` after each iteration, when ``hasher`` can encode already; ``record`` is
        the new entry of ``history_``. If it returns True, training ends. It is not saved with the model.

    Attributes
    ----------
    offset_, scale_ : ndarray
        What is taken off X and what it is divided by.
    W1_, c1_, W2_, ... : ndarray
        Weights and biases of the network.
    classes_, class_counts_, samples_ : ndarray
        The classes, how many samples of each were trained on, and which rows of X.
    pair_floor_, pair_floor_codes_ : float
        Lower bounds of the pair term for any real outputs and for any codes.
    history_ : list of dict
        For each iteration: the objective and its terms, the pair term of the codes, flips of the B step, evaluations,
        seconds.
    n_iter_, best_iter_ : int
        The last iteration, and the one that was kept: the last one unless there is an early stop.
    converged_ : bool
        Whether the last B step changed at most 1 % of the bits; if not, there is a warning.
    """

    name = "sdh-dnn"
    supervised = True
    _later_parameters: ClassVar[Mapping[str, Any]] = {"learning_rate": _RATE}
    _parameters: ClassVar[Mapping[str, Rule]] = {"samples_per_class": optional(count(least=2))}

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
        solver: str = "lbfgs",
        lbfgs_iter: int = 100,
        lbfgs_memory: int = 20,
        epochs: int | str = "auto",
        batch_size: int = BATCH_SIZE,
        learning_rate: float = _RATE,
        init: str = "eigen",
        scale: float | str | None = 500.0,
        validation: int | None = None,
        normalize: bool = False,
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
        self.solver = solver
        self.lbfgs_iter = lbfgs_iter
        self.lbfgs_memory = lbfgs_memory
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.init = init
        self.scale = scale
        self.validation = validation
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress
        self.callback = callback

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        started = time.perf_counter()
        rng = np.random.default_rng(self.random_state)
        max_iter = int(self.max_iter)
        X, numbers, kept = self._draw_samples(X, y, rng)
        n, unit = self._budget(len(X))
        with (
            thread_map() as threads,
            progress_bar("SDH-DNN", (max_iter + 1) * n, unit=unit, show=self.show_progress) as advance,
        ):
            rows, network, theta, B = self._initialize(X, rng, threads)
            J = Pairs(rows, network, theta, B, numbers, self._lambdas)
            early = None if kept is None else EarlyStop.by_labels((kept.X, kept.y), X, numbers, rng)

            network_step = self._adam(J, rng, advance) if self.solver == "adam" else self._lbfgs(J, advance)
            self.history_ = []
            for t in range(max_iter + 1):
                flips = J.code_step() if t else 0
                minimum = network_step()
                self._keep_layers(network.layers(J.theta))
                stopped = self._end_iteration(minimum, flips, J.remarks(), early, started)
                if stopped or (t and not flips and minimum.converged):  # neither step has anything left to do
                    break
                started = time.perf_counter()
        self._end_training(flips, B.size, early, stopped=stopped)

    def _draw_samples(
        self, X: Array, y: list[Hashable] | None, rng: np.random.Generator
    ) -> tuple[Array, Indices, Samples | None]:
        """Return the samples to train on, the numbers of their classes, and what is kept for a validation."""
        self.classes_, numbers = checked_classes(y, "SDH-DNN")
        order = rng.permutation(len(X))
        place = places(numbers[order])
        kept = np.zeros(len(X), dtype=np.bool_)
        if self.validation:
            n_queries = int(self.validation)
            spare = order[place > 0]  # no class loses its last sample
            if n_queries > min(len(X) // 2, len(spare)):
                raise ValueError(
                    f"validation must leave at least half of the {len(X)} samples and one of each class; "
                    f"got {self.validation}."
                )
            kept[spare[:n_queries]] = True
            order = order[~kept[order]]
            place = places(numbers[order])
        if self.samples_per_class is not None:
            order = order[place < int(self.samples_per_class)]
        self.samples_ = np.sort(order)
        warn_small_classes(self.classes_, np.bincount(numbers[~kept]), self.samples_per_class, stacklevel=4)
        self.class_counts_ = np.bincount(numbers[self.samples_], minlength=len(self.classes_))
        if self.class_counts_.max() < 2:
            beside = f" beside the {self.validation} of validation" if self.validation else ""
            raise ValueError(
                f"SDH-DNN learns that samples of a class are alike; of the {len(self.classes_)} classes none has two "
                f"samples to train on{beside}."
            )
        self.pair_floor_, self.pair_floor_codes_ = pair_floors(self.class_counts_, self.n_bits_)
        if len(self.samples_) == len(X):
            return X, numbers, None
        held = Samples(X[kept], numbers[kept]) if self.validation else None
        return X[self.samples_], numbers[self.samples_], held

    def summary(self) -> dict[str, Any]:
        facts = super().summary()
        if not facts:
            return {}
        last = self.history_[self.best_iter_]
        # Beside the limit, the sizes of the classes say which of them were used whole.
        limit = {} if self.samples_per_class is None else {"samples_per_class": int(self.samples_per_class)}
        return {
            **facts,
            **limit,
            "samples": int(self.class_counts_.sum()),
            "classes": len(self.classes_),
            "fewest_of_a_class": int(self.class_counts_.min()),
            "most_of_a_class": int(self.class_counts_.max()),
            "pair_term": last["pairs"],
            "floor_of_the_pair_term": self.pair_floor_,
            "pair_term_of_the_codes": last["pairs_of_codes"],
            "floor_of_the_pair_term_of_codes": self.pair_floor_codes_,
        }


class Samples(NamedTuple):
    """Vectors and the numbers of their classes."""

    X: Array
    y: Indices


class Pairs:
    """J of the network (theta) and codes B, and the two steps that lower it in turn."""

    def __init__(self, rows: Rows, network: Network, theta: Floats, B: Signs, y: Indices, lambdas: Lambdas) -> None:
        self.rows, self.network, self.theta, self.B, self.lambdas = rows, network, theta, B, lambdas
        self.y, self.n_classes = y, int(y.max()) + 1
        self._evaluate = Evaluation(network, rows)

    def code_step(self) -> int:
        """B = sgn(H); returns the number of bits that it changed."""
        codes = self._codes()
        before, self.B = self.B, self.rows.map(lambda _, X: codes(X))
        return int(np.count_nonzero(before != self.B))

    def _codes(self) -> Callable[[Array], Signs]:
        """Return a function from a block of rows to its sgn(H)."""
        layers = self.network.cast(self.theta, self.rows.dtype)
        return lambda X: signs(self.network.outputs(layers, X))

    def network_step(self, max_iter: int, advance: Callable[[float], None], memory: int = MEMORY) -> Minimum:
        """The (W, c) step; returns J at its end."""
        minimum = lbfgs(self.objective, self.theta, max_iter, advance, memory=memory)
        self.theta = minimum.theta
        return minimum

    def adam_step(self, steps: Iterator[tuple[Array, Terms]]) -> Minimum:
        """The (W, c) step by steps of Adam; returns J at its end."""
        return run_adam(self, steps)

    def remarks(self) -> dict[str, float]:
        """The pair term of sgn(H)."""
        codes = self._codes()

        def sums(block: slice, X: Array) -> Sums:
            B = codes(X)
            H = B.astype(X.dtype)
            return measure(H, Block(H, B, self.y[block]), self.n_classes)

        return {"pairs_of_codes": pair_term(Sums(*self.rows.total(sums)), len(self.rows))[0]}

    def objective(self, theta: Array, batch: Indices | None = None) -> tuple[Terms, Floats]:
        """The five terms of J and its gradient, or estimates of them from the rows with the numbers ``batch``."""
        m = len(self.rows)

        def reduce(sums: Sums) -> tuple[dict[str, float], Slope]:
            pairs, slope = pair_term(sums, m)
            others, more = encoder_terms(sums, m, self.lambdas)
            return {"pairs": pairs, "weights": 0.0, **others}, Slope(slope.A + more.A, slope.T + more.T, more.b)

        evaluate = self._evaluate if batch is None else partial(evaluate_batch, self.network, self.rows, batch)
        terms, gradient = evaluate(theta, reduce, self.B, self.y, self.n_classes)
        terms["weights"] = weight_term(self.network, theta, gradient, self.lambdas.weights)
        return terms, gradient
