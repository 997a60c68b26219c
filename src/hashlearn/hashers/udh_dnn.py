"""Unsupervised Discrete Hashing with a Deep Neural Network (UDH-DNN).

T.-T. Do, A.-D. Doan, N.-M. Cheung, "Discrete hashing with deep neural network", 2015, section 2 and Algorithm 1. A
network whose outputs' signs are the codes, and a linear decoder that gives the vectors back from the codes:

    min_{W, c, B}  J =  λ₀/(2m) ‖X − B W_d − 1 c_d‖²        reconstruction
                      + λ₁/2 (Σ ‖W‖² + ‖W_d‖²)              weights
                      + λ₂/(2m) ‖H − B‖²                    quantization
                      + λ₃/2 ‖HᵀH/m − I‖²                   independence
                      + λ₄/(2m) ‖Hᵀ1‖²                      balance,      B ∈ {−1, 1}^{m×L}.

=========  ============  ================================================================
symbol     shape         meaning
=========  ============  ================================================================
X          (m, D)        training data, centred and scaled
W, c       (s, t), (t,)  weights and biases of the encoder's layers
H          (m, L)        outputs of the encoder, linear in its last layer
B          (m, L)        codes
W_d, c_d   (L, D), (D,)  decoder; it reads B, not H
λ₀ … λ₄                  ``similarity``, 1 in the paper; ``lambda1`` … ``lambda4``
=========  ============  ================================================================

Steps in turn, from codes by ITQ and a first (W, c) step:

- B step, W and c held: with V = X − 1 c_d, Q = λ₀ V W_dᵀ + λ₂ H and G = λ₀ W_d W_dᵀ, J is that of
  :mod:`._discrete`.
- (W, c) step, B held: L-BFGS on the encoder. The decoder does not depend on the encoder: given B it is a ridge
  regression, of which BᵀX, BᵀB, 1ᵀX, 1ᵀB and ‖X‖² are all that is needed (:mod:`._decoder`).

With ``constraint="relaxed"`` H takes the place of B, and there is no quantization and no B step: the decoder reads H,
and is a ridge regression for every H that L-BFGS comes to (:class:`_Relaxed`).

Samples are rows here and columns in the paper, so that matrices are the transposes of the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn.codes import signs_of
from hashlearn.errors import shown
from hashlearn.hashers._decoder import DecoderSums, decoder_sums
from hashlearn.hashers._discrete import descend
from hashlearn.hashers._early_stop import EarlyStop, check_validation
from hashlearn.hashers._lbfgs import Minimum, minimise
from hashlearn.hashers._network import Layer, Slope, Sums, flatten, fold, layers_of, outputs_of
from hashlearn.hashers._network_hasher import NetworkHasher, Samples
from hashlearn.hashers._rows import Rows
from hashlearn.hashers._training import Lambdas, Training, encoder_terms
from hashlearn.hashers.base import check_choice, check_count, check_weight
from hashlearn.threads import ThreadMap

Array = NDArray[Any]
Codes = NDArray[np.int8]
Floats = NDArray[np.float64]


class UDHDNN(NetworkHasher):
    """UDH-DNN: bit k of x is the sign of output k of a network that was trained together with the codes.

    n_bits
        Length of the code; at most the number of features (the codes start from ITQ's).
    hidden_units
        Units of the hidden layers, first to last; ``"auto"``: the paper's (see :func:`._network_hasher.auto_units`).
    lambda1, lambda2, lambda3, lambda4
        Weights of the terms: regularisation, quantization, independence, balance. The paper's.
    similarity
        Weight of the reconstruction, which keeps similar vectors similar; the paper's 1. With 0, B is sgn(H).
    constraint
        ``"discrete"``: the codes are variables of their own, solved for in the B step. ``"relaxed"``: they are left out
        of training, as in methods before the paper's, and are the signs of the outputs afterwards; ``sweeps`` and
        ``lambda2`` have no effect then (but ``init="itq"`` reads the latter), nor are ITQ's codes the start.
    max_iter
        Outer iterations, each a B step and a (W, c) step; the paper's 10. Fewer, if neither has anything left to do.
        Relaxed: each a (W, c) step.
    lbfgs_iter
        Iterations of L-BFGS in a (W, c) step.
    sweeps
        Most sweeps of coordinate descent in a B step.
    decoder
        ``"exact"``: the decoder by ridge regression, solved once for each B. ``"lbfgs"``: by L-BFGS together with the
        encoder, as in the paper; the same minimum, and not always reached. Relaxed: ``"exact"`` only.
    init
        Where the network starts: ``"eigen"``, the paper's; ``"second-moment"``; ``"itq"`` (see :mod:`._start`).
    init_codes
        The codes to start from: ``"itq"``, ITQ's, as in the paper; ``"random"``, to see what of a result is ITQ's.
    scale
        What X is scaled by, after its mean is taken off: a number, so that its total variance is that; None, not at
        all; ``"range"``, the authors' (x − minimum of the feature) / range of all values instead. The terms are weighed
        against the reconstruction of X, so that the scale decides what the lambdas mean.
    validation
        None, or a number of training samples that are queries for an early stop: training ends with the first iteration
        that finds their nearest neighbours no better than the one before (mAP), and keeps the one before.
    validation_neighbours
        How many neighbours of each; they are looked for among at most 50,000 other samples. As large a share of them as
        a search shall find is best.
    random_state
        Seed of ITQ's first rotation and of all other draws: an int, a ``numpy.random.Generator``, or None.
    show_progress
        A progress bar on a terminal: None, as the environment says; True or False, always or never.
    callback
        Called as ``callback(hasher, record)`` after each iteration, when ``hasher`` can encode already; ``record`` is
        the new entry of ``history_``. If it returns True, training ends there. A model file does not keep it.

    Learned: ``offset_``, ``scale_``; ``W1_``, ``c1_``, ``W2_``, … (the encoder); ``decoder_``, ``decoder_offset_``;
    ``history_`` (a dict for each iteration: objective and its terms, flips of the B step, evaluations, seconds);
    ``n_iter_``; ``best_iter_``, the iteration that was kept, the last if there is no early stop; ``converged_``,
    whether the last B step changed at most 1 % of the bits (a warning, if not). Relaxed: the flips of an iteration are
    the signs of H that the (W, c) step before it changed.

    Products are computed in float32 if that holds X, else in float64. X is copied once in that type; a memory map that
    is too large for that is read block by block.
    """

    name = "udh-dnn"
    _beside_state = ("decoder_", "decoder_offset_")

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
        lbfgs_iter: int = 100,
        sweeps: int = 10,
        decoder: str = "exact",
        init: str = "eigen",
        init_codes: str = "itq",
        scale: float | str | None = 5.0,
        validation: int | None = None,
        validation_neighbours: int = 50,
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
        self.lbfgs_iter = lbfgs_iter
        self.sweeps = sweeps
        self.decoder = decoder
        self.init = init
        self.init_codes = init_codes
        self.scale = scale
        self.validation = validation
        self.validation_neighbours = validation_neighbours
        self.random_state = random_state
        self.show_progress = show_progress
        self.callback = callback

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        check_count("sweeps", self.sweeps)
        check_count("validation_neighbours", self.validation_neighbours)
        check_choice("decoder", self.decoder, ("exact", "lbfgs"))
        check_weight("similarity", self.similarity)
        check_choice("constraint", self.constraint, ("discrete", "relaxed"))
        check_choice("init_codes", self.init_codes, ("itq", "random"))
        if self.init_codes == "random" and (self.constraint == "relaxed" or self.init == "itq"):
            raise ValueError(
                "init_codes must be 'itq' for constraint='relaxed', which has no codes, and for init='itq'."
            )
        if self.constraint == "relaxed" and self.decoder != "exact":
            raise ValueError(f"decoder must be 'exact' for constraint='relaxed'; got {shown(self.decoder)}.")
        if self.constraint == "discrete" and not self.similarity and not self.lambda2:
            raise ValueError(
                "similarity and lambda2 must not both be 0 for constraint='discrete': no term would tell what the "
                "codes should be."
            )

    def _samples(self, X: Array, y: list[Hashable] | None, rng: np.random.Generator) -> Samples:
        if self.validation:
            check_validation(int(self.validation), int(self.validation_neighbours), len(X))
        return Samples(X)

    def _begin(self, X: Array, rng: np.random.Generator, threads: ThreadMap) -> tuple[Rows, list[Layer], Codes]:
        rows, layers, B = super()._begin(X, rng, threads)
        if self.init_codes == "random":
            B = 2 * rng.integers(0, 2, B.shape, dtype=np.int8) - np.int8(1)
        return rows, layers, B

    def _training(self, samples: Samples, rows: Rows, layers: Sequence[Layer], B: Codes) -> _Training | _Relaxed:
        similarity, exact, sweeps = float(self.similarity), self.decoder == "exact", int(self.sweeps)
        if self.constraint == "relaxed":
            return _Relaxed(rows, layers, B, self._lambdas, similarity=similarity)
        return _Training(rows, layers, B, self._lambdas, similarity=similarity, exact=exact, sweeps=sweeps)

    def _early_stop(self, samples: Samples, rng: np.random.Generator) -> EarlyStop | None:
        if not self.validation:
            return None
        return EarlyStop.by_neighbours(samples.X, int(self.validation), int(self.validation_neighbours), rng)

    def _keep(self, training: _Training | _Relaxed) -> None:
        super()._keep(training)
        self.decoder_, self.decoder_offset_ = (part.copy() for part in training.decoder)


class _Training(Training):
    """The variables of J, and the two steps that lower it in turn."""

    def __init__(
        self,
        rows: Rows,
        layers: Sequence[Layer],
        B: Codes,
        lambdas: Lambdas,
        *,
        similarity: float = 1.0,
        exact: bool,
        sweeps: int = 10,
    ) -> None:
        super().__init__(rows, layers, B, lambdas)
        self.similarity, self.exact, self.sweeps = similarity, exact, sweeps
        D, L = rows.shape[1], B.shape[1]
        # The paper's start: the identity, cut to L × D.
        self.decoder = Layer(np.eye(L, D), np.zeros(D))
        self.sums = DecoderSums(*rows.total(lambda block, X: decoder_sums(X, B[block].astype(X.dtype))))

    def code_step(self) -> int:
        """The B step; gives the number of bits that it changed."""
        W, c = self.decoder
        dtype = self.rows.dtype
        l0, l2 = self.similarity, dtype(self.lambdas.quantization)
        G, Wt, shift = l0 * (W @ W.T), np.ascontiguousarray(l0 * W.T, dtype=dtype), (l0 * (W @ c)).astype(dtype)
        layers = fold(self.layers, dtype)

        def step(block: slice, X: Array) -> tuple[Any, ...]:
            # Q = λ₀ (X − 1 c_d) W_dᵀ + λ₂ H
            Q = outputs_of(layers, X)
            Q *= l2
            Q += X @ Wt
            Q -= shift
            B = self.B[block]
            flips = descend(Q, G, B, self.sweeps)
            return (flips, *decoder_sums(X, B.astype(dtype)))

        flips, *sums = self.rows.total(step)
        self.sums = DecoderSums(*sums)
        return int(flips)

    def network_step(self, max_iter: int, advance: Callable[[float], None]) -> Minimum:
        """The (W, c) step: J at its end."""
        if self.exact:
            self.decoder = Layer(*self.sums.solve(self.lambdas.weights, self.similarity))
            return super().network_step(max_iter, advance)
        n = len(self.theta)
        minimum = minimise(self.objective, np.append(self.theta, flatten([self.decoder])), max_iter, advance)
        (self.decoder,) = layers_of(minimum.theta[n:], self.decoder.W.shape)
        self.theta = minimum.theta[:n]
        return minimum

    def objective(self, theta: Floats) -> tuple[dict[str, float], Floats]:
        """The five terms of J and its gradient; ``theta`` is the encoder's, and the decoder's if it is not held."""
        m, l0, l1, n = len(self.rows), self.similarity, self.lambdas.weights, len(self.theta)
        (decoder,) = [self.decoder] if self.exact else layers_of(theta[n:], self.decoder.W.shape)
        loss, dW, dc = self.sums.loss(*decoder)
        terms, gradient = self.network(theta[:n], lambda sums: encoder_terms(sums, m, self.lambdas), self.B)
        weights = self._weights(theta[:n], gradient, float(np.sum(decoder.W**2)))
        terms = {"reconstruction": l0 * loss, "weights": weights, **terms}
        if self.exact:
            return terms, gradient
        return terms, np.concatenate([gradient, (l0 * dW + l1 * decoder.W).ravel(), l0 * dc])


class _Relaxed(Training):
    """J with H in the place of B, and no quantization; B holds the signs of H, which nothing depends on.

    The decoder is at its best for every H, so that J is a function of the encoder alone. Where it is best its own
    gradient is 0: ∂J/∂H is as if it were held. In turn with the encoder, held for a whole step, it would hold H too,
    whose mean, and with it the signs, would hardly leave the start.
    """

    def __init__(
        self, rows: Rows, layers: Sequence[Layer], B: Codes, lambdas: Lambdas, *, similarity: float = 1.0
    ) -> None:
        super().__init__(rows, layers, B, lambdas._replace(quantization=0.0))
        self.similarity = similarity
        self._measure()

    def code_step(self) -> int:
        """Nothing is solved here: gives the number of signs of H that the last (W, c) step changed."""
        return self.flips

    def network_step(self, max_iter: int, advance: Callable[[float], None]) -> Minimum:
        """The (W, c) step, L-BFGS on the encoder: J at its end."""
        minimum = super().network_step(max_iter, advance)
        self._measure()
        return minimum

    def objective(self, theta: Floats) -> tuple[dict[str, float], Floats]:
        """The terms of J and its gradient, the decoder at its best."""
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

        (terms, square), gradient = self.network(theta, reduce, None)
        return {**terms, "weights": self._weights(theta, gradient, square)}, gradient

    def _measure(self) -> None:
        """The signs of H and how many of them changed; the decoder, in float64."""
        layers = fold(self.layers, np.float64)

        def step(block: slice, X: Array) -> tuple[Any, ...]:
            X = X.astype(np.float64)
            H = outputs_of(layers, X)
            signs = signs_of(H)
            flips = np.count_nonzero(signs != self.B[block])
            self.B[block] = signs
            return (flips, *decoder_sums(X, H))

        flips, *sums = self.rows.total(step)
        self.flips, self.sums = int(flips), DecoderSums(*sums)
        self.decoder = Layer(*self.sums.solve(self.lambdas.weights, self.similarity))
