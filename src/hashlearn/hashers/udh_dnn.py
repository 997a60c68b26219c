"""Unsupervised Discrete Hashing with a Deep Neural Network (UDH-DNN).

T.-T. Do, A.-D. Doan, N.-M. Cheung, "Discrete hashing with deep neural network", 2015, section 2 and Algorithm 1. A
network whose outputs' signs are the codes, and a linear decoder that reconstructs the vectors from the codes:

    min_{W, c, B}  J =  λ₀/(2m) ‖X − B W_d − 1 c_d‖²        reconstruction
                      + λ₁/2 (Σ ‖W‖² + ‖W_d‖²)              weights
                      + λ₂/(2m) ‖H − B‖²                    quantization
                      + λ₃/2 ‖HᵀH/m − I‖²                   independence
                      + λ₄/(2m) ‖Hᵀ1‖²                      balance,      B ∈ {−1, 1}^{m×L}.

=========  ============  ================================================================
symbol     shape         meaning
=========  ============  ================================================================
X          (m, D)        training data, centered and scaled
W, c       (s, t), (t,)  weights and biases of the encoder's layers
H          (m, L)        outputs of the encoder, linear in its last layer
B          (m, L)        codes
W_d, c_d   (L, D), (D,)  decoder; it reads B, not H
λ₀ … λ₄                  ``similarity``, 1 in the paper; ``lambda1`` … ``lambda4``
=========  ============  ================================================================

Steps in turn, from the codes of ITQ and a first (W, c) step:

- B step, W and c held: with V = X − 1 c_d, Q = λ₀ V W_dᵀ + λ₂ H and G = λ₀ W_d W_dᵀ, J is that of
  :mod:`._discrete`.
- (W, c) step, B held: L-BFGS on the encoder, or Adam on batches (``solver``). The decoder does not depend on the
  encoder: given B it is a ridge regression, of which BᵀX, BᵀB, 1ᵀX, 1ᵀB and ‖X‖² are all that is needed
  (:mod:`._decoder`).

With ``constraint="relaxed"`` H takes the place of B, and there is no quantization and no B step: the decoder reads H,
and is a ridge regression for every H that L-BFGS comes to (:class:`Relaxed`).

Samples are rows here and columns in the paper, so that matrices are the transposes of the paper's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats, Indices, Signs
from hashlearn.codes import signs
from hashlearn.errors import renamed_parameter, shown
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._decoder import DecoderSums, decoder_sums
from hashlearn.hashers._discrete import descend
from hashlearn.hashers._dnn import BATCH_SIZE, DNNHasher, Lambdas, encoder_terms, run_adam, weight_term
from hashlearn.hashers._early_stop import EarlyStop, check_validation
from hashlearn.hashers._network import Evaluation, Layer, Network, Slope, Sums, evaluate_batch, flatten
from hashlearn.hashers._optim import MEMORY, Minimum, Terms, lbfgs
from hashlearn.hashers._parameters import Rule, choice, count, number
from hashlearn.progress import progress_bar
from hashlearn.threads import thread_map

# Adam's learning rate by default.
_RATE = 5e-3


class UDHDNN(DNNHasher):
    """UDH-DNN: bit k of x is the sign of output k of a network that was trained together with the codes.

    Products are computed in float32 if that holds X, else in float64. X is copied once in that type; a memory map that
    is too large for that is read block by block.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    hidden_units : "auto" or list of int, default="auto"
        Units of the hidden layers, first to last; ``"auto"``: the paper's, interpolated between its lengths.
    lambda1, lambda2, lambda3, lambda4 : float
        Weights of the terms: weights, quantization, independence, balance. The defaults are the paper's.
    similarity : float, default=1.0
        Weight of the reconstruction, which keeps similar vectors similar; the paper's 1. With 0, B is sgn(H).
    constraint : {"discrete", "relaxed"}, default="discrete"
        ``"discrete"``: the codes are variables of their own, solved for in the B step. ``"relaxed"``: they are left out
        of training, as in methods before the paper's, and are the signs of the outputs afterwards. There is no B step
        then and training does not start from ITQ's codes, so ``sweeps`` must be left alone, and ``lambda2`` too unless
        ``init="itq"`` reads it.
    max_iter : int, default=10
        Outer iterations, each a B step and a (W, c) step; the paper's 10. Training ends earlier if neither step changes
        anything.
    solver : {"lbfgs", "adam"}, default="lbfgs"
        What minimizes in a (W, c) step: ``"lbfgs"``, L-BFGS on all samples, the paper's; ``"adam"``, Adam on batches of
        samples, which gets about as low in less than a tenth of the time. It takes the exact decoder, and no
        relaxed constraint.
    lbfgs_iter : int, default=100
        Iterations of L-BFGS in a (W, c) step.
    lbfgs_memory : int, default=20
        How many pairs of steps and gradient changes L-BFGS keeps.
    epochs : int or "auto", default="auto"
        How often Adam uses each sample in a (W, c) step. ``"auto"``: 3 times, and more often if that is less than 250
        batches.
    batch_size : int, default=512
        About how many samples are in a batch of Adam. J is estimated from them as if they stood for all samples.
    learning_rate : float, default=5e-3
        Of Adam, at its highest: in each (W, c) step, it falls from there as a cosine to 0.
    sweeps : int, default=10
        Most sweeps of coordinate descent in a B step.
    decoder : {"exact", "lbfgs"}, default="exact"
        ``"exact"``: the decoder by ridge regression, solved once for each B. ``"lbfgs"``: by L-BFGS together with the
        encoder, as in the paper; the same minimum, and not always reached. Relaxed: ``"exact"`` only.
    init : {"eigen", "second-moment", "itq"}, default="eigen"
        Where the network starts (see :mod:`._init`); ``"eigen"`` is the paper's.
    init_codes : {"itq", "random"}, default="itq"
        The codes to start from: ITQ's, as in the paper, or random ones, to see how much of a result is due to ITQ.
    scale : float, "range" or None, default=5.0
        A number: X is centered and scaled to this total variance. None: it is only centered. ``"range"``: the authors'
        (x − minimum of the feature) / range of all values. The terms are weighed against the reconstruction of X, so
        that the scale decides what the lambdas mean.
    validation : int, default=None
        Number of training samples that are queries for an early stop: training ends with the first iteration that finds
        their nearest neighbors no better than the one before (mAP), and keeps the one before. None: no early stop.
    validation_neighbors : int, default=50
        How many neighbors of each query count; they are looked for among at most 50,000 other samples. Best is the
        share of them that a search is meant to find.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of ITQ's first rotation and of all other draws. With ``constraint="relaxed"`` nothing is drawn, so that it
        must be None, unless ``init="itq"``, ``validation`` or ``hidden_units`` is given.
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
        Weights and biases of the encoder.
    decoder_, decoder_offset_ : ndarray
        The decoder.
    history_ : list of dict
        For each iteration: the objective and its terms, flips of the B step, evaluations, seconds. Relaxed: the flips
        are the signs of H that the (W, c) step before changed.
    n_iter_, best_iter_ : int
        The last iteration, and the one that was kept: the last one unless there is an early stop.
    converged_ : bool
        Whether the last B step changed at most 1 % of the bits; if not, there is a warning.
    """

    name = "udh-dnn"
    _saved_names: ClassVar[Mapping[str, str]] = {"validation_neighbors": "validation_neighbours"}
    _beside_state = ("decoder_", "decoder_offset_")
    _later_parameters: ClassVar[Mapping[str, Any]] = {"learning_rate": _RATE}
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "similarity": number(),
        "constraint": choice("discrete", "relaxed"),
        "sweeps": count(),
        "decoder": choice("exact", "lbfgs"),
        "init_codes": choice("itq", "random"),
        "validation_neighbors": count(),
    }

    @renamed_parameter("validation_neighbours", "validation_neighbors")
    def __init__(
        self,
        n_bits: int = 32,
        *,
        hidden_units: str | Sequence[int] = "auto",
        lambda1: float = 1e-5,
        lambda2: float = 5e-2,
        lambda3: float = 1e-2,
        lambda4: float = 1e-6,
        similarity: float = 1.0,
        constraint: str = "discrete",
        max_iter: int = 10,
        solver: str = "lbfgs",
        lbfgs_iter: int = 100,
        lbfgs_memory: int = 20,
        epochs: int | str = "auto",
        batch_size: int = BATCH_SIZE,
        learning_rate: float = _RATE,
        sweeps: int = 10,
        decoder: str = "exact",
        init: str = "eigen",
        init_codes: str = "itq",
        scale: float | str | None = 5.0,
        validation: int | None = None,
        validation_neighbors: int = 50,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
        callback: Callable[[UDHDNN, dict[str, Any]], object] | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.hidden_units = hidden_units
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda3 = lambda3
        self.lambda4 = lambda4
        self.similarity = similarity
        self.constraint = constraint
        self.max_iter = max_iter
        self.solver = solver
        self.lbfgs_iter = lbfgs_iter
        self.lbfgs_memory = lbfgs_memory
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sweeps = sweeps
        self.decoder = decoder
        self.init = init
        self.init_codes = init_codes
        self.scale = scale
        self.validation = validation
        self.validation_neighbors = validation_neighbors
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress
        self.callback = callback

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        if self.init_codes == "random" and (self.constraint == "relaxed" or self.init == "itq"):
            raise ValueError(
                "init_codes must be 'itq' for constraint='relaxed', which has no codes, and for init='itq'."
            )
        if self.solver == "adam" and (self.constraint == "relaxed" or self.decoder != "exact"):
            raise ValueError("solver must be 'lbfgs' for constraint='relaxed' and for decoder='lbfgs'; got 'adam'.")
        if self.constraint == "relaxed" and self.n_bits > n_features:
            raise ValueError(
                f"n_bits must be at most the number of features, n_features={n_features}, for constraint='relaxed', "
                f"whose bits start from a principal direction each; got {self.n_bits}."
            )
        if self.constraint == "relaxed" and self.decoder != "exact":
            raise ValueError(f"decoder must be 'exact' for constraint='relaxed'; got {shown(self.decoder)}.")
        if self.constraint == "discrete" and not self.similarity and not self.lambda2:
            raise ValueError(
                "similarity and lambda2 must not both be 0 for constraint='discrete': no term would tell what the "
                "codes should be."
            )

    def _unused(self) -> dict[str, str]:
        unused = super()._unused()
        if not self.validation:
            unused["validation_neighbors"] = "without validation"
        if self.constraint == "relaxed":
            unused["sweeps"] = "for constraint='relaxed', which has no B step"
            if self.init != "itq":
                unused["lambda2"] = "for constraint='relaxed', which has no quantization term"
                # Layers of other sizes may have more units than the one before; these are drawn.
                if not self.validation and isinstance(self.hidden_units, str):
                    unused["random_state"] = "for constraint='relaxed' with these parameters, which draws nothing"
        elif not self.similarity:
            unused["sweeps"] = "for similarity=0, where B is sgn(H)"
        return unused

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        started = time.perf_counter()
        rng = np.random.default_rng(self.random_state)
        max_iter, n_queries = int(self.max_iter), int(self.validation or 0)
        if n_queries:
            check_validation(n_queries, int(self.validation_neighbors), len(X))
        n, unit = self._budget(len(X))
        with (
            thread_map() as threads,
            progress_bar("UDH-DNN", (max_iter + 1) * n, unit=unit, show=self.show_progress) as advance,
        ):
            rows, network, theta, B = self._initialize(X, rng, threads)
            if self.init_codes == "random":
                B = 2 * rng.integers(0, 2, B.shape, dtype=np.int8) - np.int8(1)
            J: Discrete | Relaxed
            if self.constraint == "discrete":
                exact, sweeps = self.decoder == "exact", int(self.sweeps)
                J = Discrete(rows, network, theta, B, self._lambdas, float(self.similarity), exact=exact, sweeps=sweeps)
            else:
                J = Relaxed(rows, network, theta, B, self._lambdas, float(self.similarity))
            early = EarlyStop.by_neighbors(X, n_queries, int(self.validation_neighbors), rng) if n_queries else None

            network_step = (
                self._adam(J, rng, advance)
                if self.solver == "adam" and isinstance(J, Discrete)
                else self._lbfgs(J, advance)
            )
            self.history_ = []
            for t in range(max_iter + 1):
                flips = J.code_step() if t else 0
                minimum = network_step()
                self._keep_layers(network.layers(J.theta))
                self.decoder_, self.decoder_offset_ = (part.copy() for part in J.decoder)
                stopped = self._end_iteration(minimum, flips, {}, early, started)
                if stopped or (t and not flips and minimum.converged):  # neither step has anything left to do
                    break
                started = time.perf_counter()
        self._end_training(flips, B.size, early, stopped=stopped)


class Discrete:
    """J of the encoder (theta), the decoder and codes B, and the two steps that lower it in turn."""

    def __init__(
        self,
        rows: Rows,
        network: Network,
        theta: Floats,
        B: Signs,
        lambdas: Lambdas,
        similarity: float = 1.0,
        *,
        exact: bool = True,
        sweeps: int = 10,
    ) -> None:
        self.rows, self.network, self.theta, self.B, self.lambdas = rows, network, theta, B, lambdas
        self.similarity, self.exact, self.sweeps = similarity, exact, sweeps
        self._evaluate = Evaluation(network, rows)
        D, L = rows.shape[1], B.shape[1]
        # The paper's start: the identity, cut to L × D.
        self.decoder = Layer(np.eye(L, D), np.zeros(D))
        self.sums = DecoderSums(*rows.total(lambda block, X: decoder_sums(X, B[block].astype(X.dtype))))

    def code_step(self) -> int:
        """The B step; returns the number of bits that it changed."""
        W, c = self.decoder
        dtype = self.rows.dtype
        l0, l2 = self.similarity, dtype(self.lambdas.quantization)
        G, Wt, shift = l0 * (W @ W.T), np.ascontiguousarray(l0 * W.T, dtype=dtype), (l0 * (W @ c)).astype(dtype)
        layers = self.network.cast(self.theta, dtype)

        def step(block: slice, X: Array) -> tuple[Any, ...]:
            # Q = λ₀ (X − 1 c_d) W_dᵀ + λ₂ H
            Q = self.network.outputs(layers, X)
            Q *= l2
            Q += X @ Wt
            Q -= shift
            B = self.B[block].copy()
            flips = descend(Q, G, B, self.sweeps)
            return [B], flips, *decoder_sums(X, B.astype(dtype))

        codes, flips, *sums = self.rows.total(step)
        self.B, self.sums = np.concatenate(codes), DecoderSums(*sums)
        return int(flips)

    def network_step(self, max_iter: int, advance: Callable[[float], None], memory: int = MEMORY) -> Minimum:
        """The (W, c) step; returns J at its end."""
        n = len(self.theta)
        if self.exact:
            self.decoder = Layer(*self.sums.solve(self.lambdas.weights, self.similarity))
            minimum = lbfgs(self.objective, self.theta, max_iter, advance, memory=memory)
        else:
            minimum = lbfgs(
                self.objective, np.append(self.theta, flatten([self.decoder])), max_iter, advance, memory=memory
            )
            self.decoder = self._decoder(minimum.theta[n:])
        self.theta = minimum.theta[:n]
        return minimum

    def adam_step(self, steps: Iterator[tuple[Array, Terms]]) -> Minimum:
        """The (W, c) step by steps of Adam, with the exact decoder; returns J at its end."""
        self.decoder = Layer(*self.sums.solve(self.lambdas.weights, self.similarity))
        return run_adam(self, steps)

    def _decoder(self, theta: Floats) -> Layer:
        """Return the decoder whose parameters are ``theta``."""
        W = self.decoder.W
        return Layer(theta[: W.size].reshape(W.shape), theta[W.size :])

    def objective(self, theta: Array, batch: Indices | None = None) -> tuple[Terms, Floats]:
        """The five terms of J and its gradient; ``theta`` is the encoder's, and the decoder's if that is not held.

        ``batch``: estimates of them from the rows with these numbers.
        """
        m, l0, l1, n = len(self.rows), self.similarity, self.lambdas.weights, len(self.theta)
        decoder = self.decoder if self.exact else self._decoder(theta[n:])
        loss, dW, dc = self.sums.loss(*decoder)
        evaluate = self._evaluate if batch is None else partial(evaluate_batch, self.network, self.rows, batch)
        terms, gradient = evaluate(theta[:n], lambda sums: encoder_terms(sums, m, self.lambdas), self.B)
        weights = weight_term(self.network, theta[:n], gradient, l1, float(np.sum(decoder.W**2)))
        terms = {"reconstruction": l0 * loss, "weights": weights, **terms}
        if self.exact:
            return terms, gradient
        return terms, np.concatenate([gradient, (l0 * dW + l1 * decoder.W).ravel(), l0 * dc])


class Relaxed:
    """J with H in the place of B, and no quantization; B holds the signs of H, which nothing depends on.

    The decoder is the best one for every H, so that J is a function of the encoder alone; its own gradient is 0 there,
    and ∂J/∂H is as if it were held. If it were held for a whole step, it would hold H too, whose mean, and with it the
    signs, would hardly leave the start.
    """

    def __init__(
        self, rows: Rows, network: Network, theta: Floats, B: Signs, lambdas: Lambdas, similarity: float = 1.0
    ) -> None:
        self.rows, self.network, self.theta, self.B = rows, network, theta, B
        self.lambdas, self.similarity = lambdas._replace(quantization=0.0), similarity
        self._evaluate = Evaluation(network, rows)
        self._measure()

    def code_step(self) -> int:
        """Solves nothing; returns the number of signs of H that the last (W, c) step changed."""
        return self.flips

    def network_step(self, max_iter: int, advance: Callable[[float], None], memory: int = MEMORY) -> Minimum:
        """The (W, c) step, L-BFGS on the encoder; returns J at its end."""
        minimum = lbfgs(self.objective, self.theta, max_iter, advance, memory=memory)
        self.theta = minimum.theta
        self._measure()
        return minimum

    def objective(self, theta: Floats) -> tuple[dict[str, float], Floats]:
        """The terms of J and its gradient, with the best decoder."""
        m, l0 = len(self.rows), self.similarity

        def reduce(sums: Sums) -> tuple[tuple[dict[str, float], float], Slope]:
            (h,) = sums.class_sums
            terms, (A, T, *_) = encoder_terms(sums, m, self.lambdas)
            decoder = self.sums._replace(BX=sums.cross, BB=sums.gram, b=h)
            W, c = decoder.solve(self.lambdas.weights, l0)
            loss, *_ = decoder.loss(W, c)
            # λ₀/m (H W_d + 1 c_d − X) W_dᵀ
            slope = Slope(A + l0 / m * (W @ W.T), T + l0 / m * (W @ c), b=0.0, C=-l0 / m * W.T)
            return ({"reconstruction": l0 * loss, **terms, "quantization": 0.0}, float(np.sum(W**2))), slope

        (terms, square), gradient = self._evaluate(theta, reduce, None)
        weights = weight_term(self.network, theta, gradient, self.lambdas.weights, square)
        return {**terms, "weights": weights}, gradient

    def _measure(self) -> None:
        """Set the signs of H, how many of them changed, and the decoder; in float64."""
        layers = self.network.cast(self.theta, np.float64)

        def step(block: slice, X: Array) -> tuple[Any, ...]:
            X = X.astype(np.float64)
            H = self.network.outputs(layers, X)
            B = signs(H)
            return [B], np.count_nonzero(self.B[block] != B), *decoder_sums(X, H)

        codes, flips, *sums = self.rows.total(step)
        self.B, self.flips, self.sums = np.concatenate(codes), int(flips), DecoderSums(*sums)
        self.decoder = Layer(*self.sums.solve(self.lambdas.weights, self.similarity))
