"""A network whose codes tell classes apart: its objective and gradient on a batch, and the encoder that it becomes.

=======  ============  ====================================================================================
symbol   shape         meaning
=======  ============  ====================================================================================
X        (b, D)        samples of a batch, each feature with mean 0 and deviation 1; some values are dropped
Z        (b, u)        X W₁, normalized: each unit has mean 0 and deviation 1 over the batch
S        (b, u)        outputs of the hidden layer, relu(Z ⊙ g + 1 c₁); some are dropped
H        (b, L)        S W₂, normalized as Z is
B        (b, L)        codes, sgn(H)
T        (b, c)        classes: 1 where a sample is of a class, else 0
V, c₂                  the classifier of codes, (L, c) and (c,)
α                      sharpness / √L
=======  ============  ====================================================================================

The sign has no useful derivative: that of tanh(2H) takes its place (straight-through). That of a normalization
Z = (Y − mean) / deviation is known: Δ ← (Δ − mean(Δ) − Z mean(Δ ⊙ Z)) / deviation, means over the batch (S. Ioffe and
C. Szegedy, ICML 2015). Dropping (N. Srivastava et al., JMLR 2014) keeps a value with probability 1 − p, and divides it
by that. For encoding nothing is dropped, and means and deviations are those of all training samples; they are folded
into the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.hashers._blocks import Rows, blocks_of_size
from hashlearn.hashers._contrast import Batch, bit_contrast, straight_through
from hashlearn.hashers._optim import Terms
from hashlearn.threads import ThreadMap

# Added to variances before the root is taken: a unit that is constant over a batch stays finite.
_EPSILON = 1e-5
# Values of X that are dropped in training, as a share of the hidden units that are.
_DROPPED_INPUTS = 0.2
# Rows or columns of a batch that are processed together: the sums of a step do not depend on the number of threads.
_PART = 256


class LabelBatch(NamedTuple):
    """Samples to train on in a step: labeled ones, then groups of neighbors."""

    samples: Indices
    #: The classes (n, c) of the first n samples.
    T: Array
    #: The others; None if all are labeled.
    groups: Batch | None


def n_parts(batch_size: int) -> int:
    """In how many parts a batch is processed, at most."""
    return len(blocks_of_size(batch_size, _PART))


class Weights(NamedTuple):
    """The parameters, or their derivatives."""

    W1: Array
    g: Array
    c1: Array
    W2: Array
    V: Array
    c2: Array


class Sizes(NamedTuple):
    """How many features, hidden units, bits and classes there are."""

    D: int
    u: int
    L: int
    c: int

    def split(self, theta: Array) -> Weights:
        """Return the parts of a vector of all parameters (views, not copies)."""
        D, u, L, c = self
        parts, start = [], 0
        for shape in ((D, u), (u,), (u,), (u, L), (L, c), (c,)):
            end = start + int(np.prod(shape))
            parts.append(theta[start:end].reshape(shape))
            start = end
        return Weights(*parts)

    @property
    def total(self) -> int:
        """The number of parameters."""
        D, u, L, c = self
        return D * u + 2 * u + u * L + L * c + c


def first_weights(sizes: Sizes, rng: np.random.Generator) -> Floats:
    """Draw the first parameters."""
    theta = np.zeros(sizes.total)
    first = sizes.split(theta)
    for W in (first.W1, first.W2, first.V):
        W[...] = rng.standard_normal(W.shape) / np.sqrt(len(W))
    first.g[...] = 1
    return theta


class Losses(NamedTuple):
    """Weights of the losses, and how fast affinity falls with each bit."""

    cross_entropy: float
    contrast: float
    alpha: float
    neighbors: float
    neighbor_alpha: float


Quantize = Callable[[Array], tuple[Array, Array]]


def objective(
    rows: Rows,
    sizes: Sizes,
    losses: Losses,
    dropout: float,
    seeds: Array,
    threads: ThreadMap,
    quantize: Quantize = straight_through,
) -> Callable[[Array, LabelBatch], tuple[Terms, Array]]:
    """Return the objective of the parameters and a batch. What is dropped of a part is drawn by the part's own seed."""
    rngs = [np.random.default_rng(seed) for seed in seeds]
    columns = blocks_of_size(sizes.u, _PART)

    def drop(values: Array, p: float, rng: np.random.Generator) -> None:
        if p:
            drawn = np.frombuffer(rng.bytes(2 * values.size), dtype=np.uint16).reshape(values.shape)
            values *= drawn >= round(p * (1 << 16))
            values /= values.dtype.type(1 - p)

    def value_and_gradient(theta: Array, batch: LabelBatch) -> tuple[Terms, Array]:
        w, n, dtype = sizes.split(theta), len(batch.samples), theta.dtype
        gradient = np.empty_like(theta)
        slopes = sizes.split(gradient)
        parts = blocks_of_size(n, _PART)
        X, Z, S, H = (np.empty((n, size), dtype=dtype) for size in (sizes.D, sizes.u, sizes.u, sizes.L))

        def to_hidden(i: int) -> None:
            part = parts[i]
            X[part] = rows.take(batch.samples[part])
            drop(X[part], _DROPPED_INPUTS * dropout, rngs[i])
            np.matmul(X[part], w.W1, out=Z[part])

        threads(to_hidden, range(len(parts)))
        mean, factors = _statistics(Z, parts, threads)

        def to_outputs(i: int) -> None:
            part = parts[i]
            Z[part] -= mean
            Z[part] *= factors
            np.multiply(Z[part], w.g, out=S[part])
            S[part] += w.c1
            np.maximum(S[part], 0, out=S[part])
            drop(S[part], dropout, rngs[i])
            np.matmul(S[part], w.W2, out=H[part])

        threads(to_outputs, range(len(parts)))
        output_mean, output_factors = _statistics(H, parts, threads)
        H -= output_mean
        H *= output_factors

        B, derivative = quantize(H)
        terms, Delta, slopes.V[...], slopes.c2[...] = code_losses(B, w, losses, batch, threads)
        Delta *= derivative
        _through_normalization(Delta, H, output_factors, [slice(0, n)], threads)
        slopes.W2[...] = S.T @ Delta
        of_hidden = np.empty_like(S)

        def to_inputs(part: slice) -> tuple[Array, Array]:
            np.matmul(Delta[part], w.W2.T, out=of_hidden[part])
            of_hidden[part] *= S[part] > 0  # which was neither dropped nor below 0
            if dropout:
                of_hidden[part] /= dtype.type(1 - dropout)
            return of_hidden[part].sum(axis=0), np.einsum("ij,ij->j", of_hidden[part], Z[part])

        sums = threads(to_inputs, parts)
        slopes.c1[...], slopes.g[...] = _added(s for s, _ in sums), _added(s for _, s in sums)
        of_hidden *= w.g
        _through_normalization(of_hidden, Z, factors, parts, threads)

        def weight_slopes(part: slice) -> None:
            slopes.W1[:, part] = X.T @ of_hidden[:, part]

        threads(weight_slopes, columns)
        return terms, gradient

    return value_and_gradient


def _added(items: Iterable[Any]) -> Any:
    first, *others = items
    for other in others:
        first = first + other
    return first


def _statistics(Z: Array, parts: list[slice], threads: ThreadMap) -> tuple[Array, Array]:
    """Return the mean of each column, and 1 / its deviation."""

    def sums(part: slice) -> tuple[Floats, Floats]:
        return Z[part].sum(axis=0, dtype=np.float64), np.einsum("ij,ij->j", Z[part], Z[part]).astype(np.float64)

    results = threads(sums, parts)
    mean, squares = (_added(column) / len(Z) for column in zip(*results, strict=True))
    deviation = np.sqrt(np.maximum(squares - mean * mean, 0) + _EPSILON)
    return mean.astype(Z.dtype), (1 / deviation).astype(Z.dtype)


def _through_normalization(Delta: Array, Z: Array, factors: Array, parts: list[slice], threads: ThreadMap) -> None:
    """Turn ∂J/∂Z into the derivative with respect to what was normalized, in place."""
    n = Delta.dtype.type(len(Delta))
    sums = threads(lambda part: (Delta[part].sum(axis=0), np.einsum("ij,ij->j", Delta[part], Z[part])), parts)
    mean, slope = (_added(column) / n for column in zip(*sums, strict=True))

    def work(part: slice) -> None:
        Delta[part] -= mean
        Delta[part] -= Z[part] * slope
        Delta[part] *= factors

    threads(work, parts)


def code_losses(
    B: Array, w: Weights, losses: Losses, batch: LabelBatch, threads: ThreadMap
) -> tuple[Terms, Array, Array, Array]:
    """Return the losses of codes B, and the derivatives of their sum with respect to B, V and c₂."""
    n = len(batch.T)
    T = batch.T.astype(B.dtype, copy=False)
    Delta = np.zeros_like(B)
    terms: Terms = {}
    value, outputs = cross_entropy(B[:n] @ w.V + w.c2, T)
    terms["cross_entropy"] = losses.cross_entropy * value
    outputs *= outputs.dtype.type(losses.cross_entropy)
    Delta[:n] = outputs @ w.V.T
    if losses.contrast:
        value, slope = class_contrast(B[:n], T, losses.alpha, threads)
        terms["contrast"] = losses.contrast * value
        Delta[:n] += B.dtype.type(losses.contrast) * slope
    if batch.groups is not None:
        value, left, right = bit_contrast(B[n:], B[n:], losses.neighbor_alpha, batch.groups, threads)
        terms["neighbors"] = losses.neighbors * value
        Delta[n:] = B.dtype.type(losses.neighbors) * (left + right)
    return terms, Delta, B[:n].T @ outputs, outputs.sum(axis=0)


def cross_entropy(outputs: Array, T: Array) -> tuple[float, Array]:
    """Return the mean cross-entropy of softmax(outputs), over the samples that have a class, and its derivative."""
    counts = T.sum(axis=1, keepdims=True)
    share = (counts > 0) / max(np.count_nonzero(counts), 1)
    P = outputs - outputs.max(axis=1, keepdims=True)
    log_total = np.log(np.exp(P).sum(axis=1, keepdims=True))
    P -= log_total
    target = T / np.maximum(counts, 1)
    value = -float(np.sum(target * P * share, dtype=np.float64))
    slope = (np.exp(P) - target) * share
    return value, slope.astype(outputs.dtype)


def class_contrast(B: Array, T: Array, alpha: float, threads: ThreadMap) -> tuple[float, Array]:
    """Return the mean of ℓ over the samples that share a class with another, and its derivative.

    The affinity of two codes is exp(α bᵢᵀbⱼ / 2), a multiple of exp(−α d).
    """
    half, least = B.dtype.type(alpha / 2), np.finfo(B.dtype).tiny

    def work(part: slice) -> tuple[float, int, Array, Array]:
        itself = np.arange(part.stop - part.start), np.arange(part.start, part.stop)
        A = B[part] @ B.T
        A[itself] = -np.inf
        A -= np.maximum(A.max(axis=1, keepdims=True), np.finfo(A.dtype).min)  # -∞ if there is no other sample
        A *= half
        np.exp(A, out=A)
        same = T[part] @ T.T > 0
        same[itself] = False
        anchors = same.any(axis=1)
        alike = A * same
        sums = np.maximum(A.sum(axis=1), least), np.maximum(alike.sum(axis=1), least)
        value = float(np.sum(np.log(sums[0]) - np.log(sums[1]), where=anchors, dtype=np.float64))
        A *= (half * anchors / sums[0])[:, None]
        alike *= (half * anchors / sums[1])[:, None]
        A -= alike
        return value, int(anchors.sum()), A @ B, A.T @ B[part]

    values, counts, left, right = zip(*threads(work, blocks_of_size(len(B), _PART)), strict=True)
    n = max(sum(counts), 1)
    return sum(values) / n, (np.concatenate(left) + _added(right)) / B.dtype.type(n)


def folded(w: Weights, rows: Rows) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the layers of the encoder, float64: both normalizations with means and deviations of all samples."""

    def statistics(outputs: Callable[[Array], Array]) -> tuple[Floats, Floats]:
        def work(_: slice, X: Array) -> tuple[Floats, Floats]:
            Z = outputs(X)
            return Z.sum(axis=0, dtype=np.float64), np.square(Z).sum(axis=0, dtype=np.float64)

        sums, squares = rows.total(work)
        mean: Floats = sums / len(rows)
        return mean, 1 / np.sqrt(np.maximum(squares / len(rows) - mean * mean, 0) + _EPSILON)

    mean, factors = statistics(lambda X: X @ w.W1)
    factors *= w.g
    W1, c1 = w.W1 * factors, w.c1 - mean * factors
    W, c = W1.astype(w.W1.dtype), c1.astype(w.W1.dtype)
    mean, factors = statistics(lambda X: np.maximum(X @ W + c, 0) @ w.W2)
    return W1, c1, w.W2 * factors, -mean * factors
