"""DecoderHash: long codes that a linear decoder turns back into vectors, and real-valued queries.

A vector is approximated by its code, x ≈ b W, and a query is compared with the approximation:

    ‖q − b W‖² = ‖q‖² − s(q, b),    s(q, b) = 2 q Wᵀ bᵀ − ‖b W‖².

The larger the score s, the nearer the item.

=======  ========  ==============================================================================
symbol   shape     meaning
=======  ========  ==============================================================================
X        (m, D)    training data, centered and scaled to a mean squared length of 1
B        (m, L)    codes, ±1
W        (L, D)    decoder
η                  ``anisotropy``
U, c     (D, L)    the map of queries, s(q, b) = (q U + c)·b − ‖b W‖²; starts as 2 Wᵀ and 0
γ                  how sharply the softmax of scores falls with distance
=======  ========  ==============================================================================

Codes and decoder. From ITQ's codes, in turn: W by ridge regression, min ‖X − B W‖² / m + λ‖W‖²; and for each sample,
alone, the code of low

    ‖r‖² + η (r·x)² / ‖x‖²,    r = x − b W,

by annealed coordinate descent (:func:`._discrete.anneal`). η > 0 weighs the error along x more: it is what changes the
scores of the queries to which x is near (R. Guo et al., "Accelerating large-scale inference with anisotropic vector
quantization", ICML 2020). For η = 0 it is the B step of the paper's unsupervised network without the network.

Queries. The codes are held, and U and c are trained by Adam so that of all samples, weighted by exp(γ s), the true
neighbors of a sample have the largest share (:mod:`._contrast`).

Cost, of n samples that are trained on: 2L²n a sweep, 2(L + D)Ln for the decoder, 2n²D for their neighbors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from hashlearn._arrays import Array, Floats, Signs, sample_rows
from hashlearn.codes import check_codes, signs, unpack
from hashlearn.hashers import itq
from hashlearn.hashers._blocks import Rows, row_blocks
from hashlearn.hashers._contrast import Batch, bit_contrast, draw_batches
from hashlearn.hashers._graph import neighbor_graph
from hashlearn.hashers._linear import mean_and_covariance, principal_directions
from hashlearn.hashers._optim import Terms, train_by_batches
from hashlearn.hashers._parameters import Rule, count, number, optional
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Affine, Center, Descent, Scale, Step, compute_type, descent
from hashlearn.progress import progress_bar
from hashlearn.threads import ThreadMap, thread_map

# λ, beside samples whose bits have a mean square of 1.
_RIDGE = 1e-4
# Most sweeps with signs; codes settle in far fewer.
_SWEEPS = 50
# Iterations of ITQ for the first codes.
_ITQ_ITER = 20
# γ; samples of a batch, members of a group beside its first sample, and neighbors that they are drawn from.
_SHARPNESS, _BATCH, _MEMBERS, _DRAWN = 20.0, 1024, 15, 100
# Least number of batches.
_LEAST_STEPS = 100


class DecoderHash(Hasher):
    """DecoderHash: codes from which a linear decoder gives the vectors back, for real-valued queries.

    It is for long codes, with about as many bits as there are features. Items are ranked by ``query_values`` and
    ``code_offsets`` (:func:`hashlearn.search.search_real`). Codes can be compared by Hamming distance too, but are not
    made for it.

    Parameters
    ----------
    n_bits : int, default=256
        Length of the code.
    anisotropy : float, default=0.5
        The weight of that part of the error that lies along the vector, beside the whole. 0: all directions count the
        same.
    max_iter : int, default=3
        How often codes and decoder are learned in turn.
    n_neighbors : int, default=10
        How many nearest neighbors of a sample are its true neighbors when the map of queries is trained.
    epochs : float, default=3.0
        About how often each sample is used to train the map of queries, and in at least 100 batches. 0: it is not
        trained, and the order of items is that of the distances between the query and what the decoder makes of codes.
    learning_rate : float, default=3e-3
        Of Adam, at its highest, in units of the mean size of the map's weights.
    max_samples : int or None, default=50000
        How many samples, drawn at random, are trained on. None: all.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of all draws.
    show_progress : bool, default=None
        Whether to show progress bars; None: on a terminal.

    Attributes
    ----------
    mean_, scale_ : ndarray
        What is taken off X and what it is divided by, √(mean ‖x − mean‖²).
    decoder_ : ndarray of shape (n_bits, n_features)
        W: x ≈ mean_ + scale_ · b W.
    eta_ : ndarray of shape ()
        η: ``anisotropy``, as it was in ``fit``.
    query_map_, query_offset_ : ndarray of shape (n_features, n_bits) and (n_bits,)
        U and c.
    history_ : list of dict
        For each iteration: the mean of ‖x − b W‖², the share of bits that changed, and seconds.
    n_iter_ : int
    query_history_ : list of dict
        For each epoch: the mean loss of its batches, and seconds.

    Examples
    --------
    >>> from hashlearn import DecoderHash
    >>> from hashlearn.datasets import load
    >>> from hashlearn.search import search_real
    >>> digits = load("digits")
    >>> hasher = DecoderHash(n_bits=64, random_state=0).fit(digits.train)
    >>> codes = hasher.encode(digits.train)
    >>> values, offsets = hasher.query_values(digits.queries), hasher.code_offsets(codes)
    >>> search_real(values, codes, k=10, n_bits=64, offsets=offsets).ids.shape
    (297, 10)
    """

    name = "decoder-hash"
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "anisotropy": number(most=1e6),
        "max_iter": count(),
        "n_neighbors": count(),
        "epochs": number(most=1e6),
        "learning_rate": number(above=0),
        "max_samples": optional(count(least=2)),
    }

    mean_: Floats
    scale_: Floats
    decoder_: Floats
    eta_: Floats
    query_map_: Floats
    query_offset_: Floats
    history_: list[dict[str, float]]
    query_history_: list[dict[str, float]]

    def __init__(
        self,
        n_bits: int = 256,
        *,
        anisotropy: float = 0.5,
        max_iter: int = 3,
        n_neighbors: int = 10,
        epochs: float = 3.0,
        learning_rate: float = 3e-3,
        max_samples: int | None = 50_000,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.anisotropy = anisotropy
        self.max_iter = max_iter
        self.n_neighbors = n_neighbors
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.max_samples = max_samples
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _unused(self) -> dict[str, str]:
        reason = "for epochs=0, which leaves the map of queries untrained"
        return {} if self.epochs else {"n_neighbors": reason, "learning_rate": reason}

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        self.eta_ = np.array(float(self.anisotropy))
        with thread_map() as threads:
            self.mean_, covariance = mean_and_covariance(X, threads)
            self.scale_ = np.array(np.sqrt(np.trace(covariance)) or 1.0)
            X = X[sample_rows(len(X), self.max_samples, rng)]
            rows = Rows(X, self.mean_, float(self.scale_), threads, beside=2 * self.n_bits_, dtype=np.float32)
            P = principal_directions(covariance, min(self.n_bits_, X.shape[1]))
            V, _ = itq.quantize(X, self.mean_, P, self.n_bits_, rng, threads, _ITQ_ITER, lambda _: None)
            B: Signs = rows.map(lambda _, X: signs(X @ V.astype(X.dtype)))
            W, _ = decoder_step(rows, B)

            def encoded(W: Floats) -> Signs:
                return rows.map(lambda _, X: descent(X, W, float(self.eta_), _SWEEPS)[0])

            self.history_, self.query_history_ = [], []
            with progress_bar("DecoderHash", self.max_iter, unit="iterations", show=self.show_progress) as advance:
                for _ in range(self.max_iter):
                    started, before = time.perf_counter(), B
                    B = encoded(W)
                    W, loss = decoder_step(rows, B)
                    changed, seconds = float(np.mean(before != B)), time.perf_counter() - started
                    self.history_.append({"loss": loss, "changed": changed, "seconds": seconds})
                    advance(1)
            self.n_iter_ = len(self.history_)
            self.decoder_, U, c = W, 2 * W.T, np.zeros(self.n_bits_)
            if self.epochs:
                U, c = self._train_queries(rows, encoded(W), U, rng, threads)
        self.query_map_, self.query_offset_ = U, c

    def _train_queries(
        self, rows: Rows, B: Signs, U: Floats, rng: np.random.Generator, threads: ThreadMap
    ) -> tuple[Floats, Floats]:
        """U and c, trained from the ``U`` of an untrained map."""
        m, (D, L) = len(rows), U.shape
        n_positive = min(int(self.n_neighbors), m - 1)
        k = min(max(_DRAWN, 2 * n_positive), m - 1)
        neighbors, _ = neighbor_graph(rows, k, threads, show_progress=self.show_progress)
        batch_size = min(_BATCH, m)
        n_steps = max(round(float(self.epochs) * m / batch_size), _LEAST_STEPS)
        batches = draw_batches(neighbors, n_positive, batch_size, _MEMBERS, n_steps, rng)
        start = np.vstack([U, np.zeros((1, L))]).astype(np.float32)
        theta, self.query_history_ = train_by_batches(
            query_objective(rows, B, code_norms(B, self.decoder_), threads),
            start.ravel(),
            batches,
            n_steps=n_steps,
            steps_an_epoch=-(-m // batch_size),
            rate=float(self.learning_rate) * float(np.abs(U).mean()),
            name="queries",
            show_progress=self.show_progress,
            advice="choose a lower learning_rate",
        )
        trained = theta.reshape(D + 1, L).astype(np.float64)
        return trained[:-1], trained[-1]

    def _scaled_steps(self) -> list[Step]:
        return [Center(self.mean_), Scale(np.full(len(self.mean_), 1 / self.scale_))]

    def _encoder_steps(self) -> list[Step]:
        return [*self._scaled_steps(), Descent(self.decoder_, float(self.eta_), _SWEEPS)]

    def query_values(self, X: ArrayLike) -> Array:
        X = self._checked(X)
        steps = [*self._scaled_steps(), Affine(self.query_map_, self.query_offset_)]
        return self._by_blocks(X, np.empty((len(X), self.n_bits_), dtype=compute_type(X.dtype)), lambda H: H, steps)

    def code_offsets(self, codes: ArrayLike) -> Floats:
        check_is_fitted(self)
        packed = check_codes(codes, self.n_bits_)
        L, D = self.decoder_.shape

        def part(rows: slice) -> Floats:
            return -code_norms(2 * unpack(packed[rows], L).view(np.int8) - 1, self.decoder_)

        with thread_map() as threads:
            return np.concatenate([np.empty(0), *threads(part, row_blocks(packed, L + D))])

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        maps = {"decoder_": (n_bits, n_features), "query_map_": (n_features, n_bits), "query_offset_": (n_bits,)}
        return {"mean_": (n_features,), "scale_": (), "eta_": (), **maps}

    def _check_state(self) -> None:
        if not self.scale_ > 0:
            raise ValueError(f"scale_ must be above 0; got {self.scale_}")
        if self.eta_ != self.anisotropy:
            raise ValueError(f"eta_ must be as anisotropy is, {self.anisotropy}; got {self.eta_}")

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        if self.eta_ != self.anisotropy:
            raise ValueError(f"anisotropy was changed to {self.anisotropy} after fit: fit again.")

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        queries = {"query_loss": self.query_history_[-1]["loss"]} if self.query_history_ else {}
        return {"loss": self.history_[-1]["loss"], "iterations": self.n_iter_, **queries}


def decoder_step(rows: Rows, B: Signs) -> tuple[Floats, float]:
    """The W that minimizes ‖X − B W‖² / m + λ‖W‖², and ‖X − B W‖² / m."""
    from scipy.linalg import solve

    def sums(block: slice, X: Array) -> tuple[Floats, Floats, float]:
        b = B[block].astype(X.dtype)
        return (b.T @ b).astype(np.float64), (b.T @ X).astype(np.float64), float(np.vdot(X, X))

    BB, BX, xx = (total / len(rows) for total in rows.total(sums))
    W = np.asarray(solve(BB + _RIDGE * np.eye(len(BB)), BX, assume_a="pos"))
    # ‖X − BW‖² = ‖X‖² + ⟨W, BᵀBW − 2 BᵀX⟩
    return W, float(xx + np.sum(W * (BB @ W - 2 * BX)))


def code_norms(B: Signs, W: Floats) -> Floats:
    """‖b W‖² (rows,) of codes."""
    R = B.astype(np.float64) @ W
    return np.asarray(np.einsum("ij,ij->i", R, R))


def query_objective(
    rows: Rows, B: Signs, norms: Floats, threads: ThreadMap
) -> Callable[[Array, Batch], tuple[Terms, Array]]:
    """The objective of U above c (D + 1, L), as one vector, and a batch; ``norms``: ‖b W‖² of the codes B."""

    def value_and_gradient(theta: Array, batch: Batch) -> tuple[Terms, Array]:
        theta = theta.reshape(-1, B.shape[1])
        X = rows.take(batch.samples)
        values = X @ theta[:-1]
        values += theta[-1]
        # The norm is one more bit of an item, and −1 the query's value for it.
        left = np.hstack([values, np.full((len(X), 1), -1, dtype=X.dtype)])
        right = np.hstack([B[batch.samples], norms[batch.samples, None]]).astype(X.dtype)
        value, slope, _ = bit_contrast(left, right, 2 * _SHARPNESS, batch, threads)
        slope = slope[:, :-1]
        return {"loss": value}, np.vstack([X.T @ slope, slope.sum(axis=0, keepdims=True)]).ravel()

    return value_and_gradient
