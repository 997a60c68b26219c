"""NeighborHash: a network whose codes tell neighbors from the rest, trained by stochastic gradients.

The objective J is a softmax over neighbors (:mod:`._contrast`) with affinities a_ij = exp(−α d_ij), d_ij the Hamming
distance of two codes: of all samples, weighted by how near their codes are to that of x, the true neighbors of x should
have the largest share.

=======  ============  ===========================================================================
symbol   shape         meaning
=======  ============  ===========================================================================
X        (b, D)        samples of a batch, centered and scaled to a mean squared length of 32
H        (b, L)        outputs of the network, X V + relu(X W₁ + 1 c₁) W₂ + 1 c₂
B        (b, L)        codes, sgn(H)
T        (b, L)        what a sample is compared as, tanh(βH), or H
α                      sharpness / √L
P        (b, 2^L)      cells: the probability of each cell, softmax of the outputs H (b, 2^L)
K        (2^L, 2^L)    cells: exp(−α d) of the codes of two cells
=======  ============  ===========================================================================

Bits. d_ij = (L − b_iᵀb_j) / 2, so that a_ij is a multiple of exp((α/2) b_iᵀb_j). Sample i is not rounded there: it is
compared as t_i = tanh(β h_i), or, for real-valued queries, as h_i: a_ij = exp((α/2) t_iᵀb_j). With G the derivative
with respect to log a, ∂J/∂T = (α/2) G B and ∂J/∂B = (α/2) GᵀT. The sign in B has no useful derivative: that of tanh(2H)
takes its place (straight-through). V starts as ITQ's projection, scaled to a deviation of 1, and W₂ as 0, so that the
first codes are ITQ's.

Cells. Up to 8 bits there are few codes, and a code is best thought of as the name of a cell. The cells start as those
of k-means, named such that neighboring cells differ in few bits (:mod:`._cells`): V and c₂ start such that the softmax
is that of −‖x − center‖² / 2, and W₂ as 0. A sample is in each cell with a probability, and the expected affinity of
two samples, a_ij = p_iᵀ K p_j, has an exact derivative. The code of x is the name of its most likely cell.

Cost of an epoch, with u hidden units and n outputs (L, or 2^L for cells): 4mD(n + u) + 6mun for the network, 6mbn for
the affinities, 4mn² more for cells and 2mbD for distances; linear in m.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import numpy as np

from hashlearn._arrays import Array, Floats, sample_rows
from hashlearn.hashers import itq
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._cells import assign_codes, cell_links, hamming_distances, k_means
from hashlearn.hashers._contrast import Batch, bandwidth, bit_loss, cell_loss, draw_batches, with_targets
from hashlearn.hashers._graph import neighbor_graph
from hashlearn.hashers._linear import mean_and_covariance, principal_directions
from hashlearn.hashers._network import Layer, Network, flatten
from hashlearn.hashers._optim import Terms, count_steps, train_by_batches
from hashlearn.hashers._parameters import FLAG, Rule, choice, count, either, number, optional
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Activation, Affine, Center, Margins, Step
from hashlearn.storage import content_key
from hashlearn.threads import ThreadMap, thread_map

# The mean squared length that X is scaled to.
_SQUARE = 32.0
# Codes up to this length can be cells.
_CELL_BITS = 8
# α √L, by default.
_SHARPNESS = {"bits": 5.0, "cells": 11.0}
# β, by the loss.
_SLOPE = {"neighbors": 2.0, "distances": 1.0}
# Outputs of cells start as −‖x − center‖² over this.
_TEMPERATURE = 2.0
# Members of a group beside its first sample; neighbors that they are drawn from, for each true one.
_MEMBERS, _DRAWN = 3, 2
# True neighbors of a sample at least, where only some of the samples are trained on; and how many times as many
# samples there are at least.
_LEAST_NEIGHBORS, _LEAST_RATIO = 5, 10
# Least perplexity of the shares that fall with distance.
_LEAST_PERPLEXITY = 2.0
# Iterations of ITQ for the first codes: its authors'.
_ITQ_ITER = 50


class NeighborHash(Hasher):
    """NeighborHash: bits of a network that is trained to keep the nearest neighbors of each sample near.

    It needs no labels: its teachers are the Euclidean nearest neighbors of the training samples.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    code : {"auto", "bits", "cells"}, default="auto"
        ``"bits"``: each bit is the sign of an output of the network. ``"cells"``: the code is the name of one of
        2^n_bits cells; at most 8 bits. ``"auto"``: cells up to 8 bits, unless queries are real-valued.
    n_hidden : int, default=512
        Hidden units of the network, beside a linear map. 0: the linear map alone.
    n_neighbors : int, default=50
        How many nearest neighbors of a sample are its true neighbors; at most a tenth of the samples. Best is about
        the number that a search is meant to find.
    loss : {"neighbors", "distances"}, default="neighbors"
        ``"neighbors"``: all true neighbors of a sample count the same, and the more of them are near by their codes,
        the better. ``"distances"``: each other sample should have a share that falls with its distance, among about
        ``n_neighbors``; for ``code="bits"``. The second is better for the nearest few, above all by real-valued
        queries, and takes longer to train.
    query : {"code", "real"}, default="code"
        What codes of items will be compared with: ``"code"``, the code of the query, by Hamming distance; ``"real"``,
        the real values of its ``query_values``, by their product with the signs of the item's code
        (:func:`hashlearn.search.search_real`). :class:`~hashlearn.search.HammingIndex` ranks by Hamming distance,
        whatever is chosen here.
    sharpness : float or "auto", default="auto"
        How fast affinity falls with Hamming distance: by a factor of exp(sharpness / √n_bits) for each bit. ``"auto"``:
        5, and 11 for cells.
    epochs : float or "auto", default="auto"
        About how often each sample is used. ``"auto"``: 20 times, and more often if that is less than 300 batches.
    max_samples : int or None, default=100000
        The most samples to train on. Of more, this many are drawn, and ``n_neighbors`` falls by the same factor, to 5
        at least (``loss="distances"``: 2). None: all.
    batch_size : int, default=1024
        Samples that are contrasted with one another; somewhat fewer, since a sample that is drawn twice counts once.
    learning_rate : float, default=2e-3
        Of Adam, at its highest; it rises over the first tenth of the steps, then falls as a cosine to 0.
    cache_graph : bool, default=False
        Whether to keep the neighbors of the samples in the cache folder. Models of other lengths, or with other
        parameters but the same ``n_neighbors``, then start from them. If samples are drawn, ``random_state`` must be
        the same too.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of all draws.
    show_progress : bool, default=None
        Whether to show progress bars; None: on a terminal.

    Attributes
    ----------
    offset_, scale_ : ndarray
        What is taken off X and what it is divided by.
    V_, c2_ : ndarray
        The linear map and the biases of its outputs: a column for each bit or cell.
    W1_, c1_, W2_ : ndarray
        The hidden layer, and what its units add to the outputs; only if there is one.
    graph_recall_ : float
        The share of true neighbors that training knew: 1 up to 100,000 samples that are trained on; beyond, they are
        searched for approximately.
    history_ : list of dict
        For each epoch: the mean loss of its batches, and seconds.

    Examples
    --------
    >>> from hashlearn import NeighborHash
    >>> from hashlearn.datasets import load
    >>> digits = load("digits")
    >>> hasher = NeighborHash(n_bits=16, n_neighbors=10, random_state=0).fit(digits.train)
    >>> hasher.encode(digits.queries).shape
    (297, 2)
    """

    name = "neighbor-hash"
    revision = 2
    _later_parameters: ClassVar[Mapping[str, Any]] = {"max_samples": None, "loss": "neighbors"}
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "code": choice("auto", "bits", "cells"),
        "n_hidden": count(least=0, most=1 << 16),
        "n_neighbors": count(),
        "loss": choice("neighbors", "distances"),
        "query": choice("code", "real"),
        "sharpness": either(choice("auto"), number(above=0)),
        "epochs": either(choice("auto"), number(1e-3, 1e6)),
        "max_samples": optional(count(least=2)),
        "batch_size": count(least=8),
        "learning_rate": number(above=0),
        "cache_graph": FLAG,
    }

    offset_: Floats
    scale_: Floats
    V_: Floats
    c2_: Floats
    W1_: Floats
    c1_: Floats
    W2_: Floats

    def __init__(
        self,
        n_bits: int = 32,
        *,
        code: str = "auto",
        n_hidden: int = 512,
        n_neighbors: int = 50,
        loss: str = "neighbors",
        query: str = "code",
        sharpness: float | str = "auto",
        epochs: float | str = "auto",
        max_samples: int | None = 100_000,
        batch_size: int = 1024,
        learning_rate: float = 2e-3,
        cache_graph: bool = False,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.code = code
        self.n_hidden = n_hidden
        self.n_neighbors = n_neighbors
        self.loss = loss
        self.query = query
        self.sharpness = sharpness
        self.epochs = epochs
        self.max_samples = max_samples
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.cache_graph = cache_graph
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        if self.code == "cells" and self.n_bits > _CELL_BITS:
            raise ValueError(f"n_bits must be at most {_CELL_BITS} for code='cells'; got {self.n_bits}.")
        if self.code == "cells" and self.query == "real":
            raise ValueError("query must be 'code' for code='cells', whose outputs are not bits; got 'real'.")
        if self.code == "cells" and self.loss == "distances":
            raise ValueError("loss must be 'neighbors' for code='cells'; got 'distances'.")

    @property
    def _cells(self) -> bool:
        """Whether codes are the names of cells."""
        auto = self.n_bits <= _CELL_BITS and self.query == "code" and self.loss == "neighbors"
        return self.code == "cells" or (self.code == "auto" and auto)

    def _fit(self, X: Array, y: list[Hashable] | None) -> None:
        rng = np.random.default_rng(self.random_state)
        n_neighbors, perplexity = int(self.n_neighbors), float(self.n_neighbors)
        if self.max_samples is not None and len(X) > self.max_samples:
            m = int(self.max_samples)
            n_neighbors = max(min(n_neighbors, _LEAST_NEIGHBORS), round(n_neighbors * m / len(X)))
            perplexity *= m / len(X)
            X = X[sample_rows(len(X), m, rng)]
        m, L = len(X), self.n_bits_
        with thread_map() as threads:
            mean, covariance = mean_and_covariance(X, threads)
            variance = float(np.trace(covariance))
            self.offset_, self.scale_ = mean, np.array(np.sqrt(variance / _SQUARE) if variance > 0 else 1.0)
            rows = Rows(X, mean, float(self.scale_), threads, dtype=np.float32)
            n_positive = max(min(n_neighbors, m // _LEAST_RATIO), 1)
            perplexity = max(min(perplexity, m / _LEAST_RATIO), _LEAST_PERPLEXITY)
            k, key = min(_DRAWN * n_positive, m - 1), content_key(X, float(self.scale_)) if self.cache_graph else None
            neighbors, self.graph_recall_ = neighbor_graph(rows, k, threads, key=key, show_progress=self.show_progress)

            kind = "cells" if self._cells else "bits"
            sharpness = _SHARPNESS[kind] if isinstance(self.sharpness, str) else float(self.sharpness)
            alpha = sharpness / float(np.sqrt(L))
            if self._cells:
                linear = _first_cells(rows, neighbors[:, :n_positive], L, rng)
                K = np.exp(-alpha * hamming_distances(L)).astype(np.float32)
                loss: Loss = lambda H, batch: cell_loss(H, K, batch, threads)  # noqa: E731
            else:
                P = principal_directions(covariance, min(L, X.shape[1]))
                V, _ = itq.quantize(X, mean, P, L, rng, threads, _ITQ_ITER, lambda _: None)
                linear = _first_bits(rows, V)
                slope = _SLOPE[self.loss] if self.query == "code" else None
                loss = lambda H, batch: bit_loss(H, alpha, batch, threads, slope=slope)  # noqa: E731
            network, layers = _first_network(linear, int(self.n_hidden), rng)

            batch_size = min(int(self.batch_size), m)
            n_steps = count_steps(m, batch_size, self.epochs)
            batches = draw_batches(neighbors, n_positive, batch_size, _MEMBERS, n_steps, rng)
            if self.loss == "distances":
                gamma = bandwidth(rows, perplexity, rng, threads)
                batches = with_targets(batches, rows, gamma, threads)
            theta, self.history_ = train_by_batches(
                objective(rows, network, loss, threads),
                flatten(layers).astype(np.float32),
                batches,
                n_steps=n_steps,
                steps_an_epoch=-(-m // batch_size),
                rate=float(self.learning_rate),
                name="NeighborHash",
                show_progress=self.show_progress,
                advice="choose a lower learning_rate or sharpness",
            )
        self._keep(network.layers(theta.astype(np.float64)))

    def _keep(self, layers: list[Layer]) -> None:
        """Set the learned arrays; those of an earlier fit with a hidden layer are removed."""
        for name in ("W1_", "c1_", "W2_"):
            self.__dict__.pop(name, None)
        *hidden, last = (Layer(W.copy(), c.copy()) for W, c in layers)
        self.V_ = last.W
        if hidden:
            (self.W1_, self.c1_), (self.W2_, self.c2_) = hidden
        else:
            self.c2_ = last.c

    def _encoder_steps(self) -> list[Step]:
        V, c = self.V_ / self.scale_, self.c2_
        n = V.shape[1]
        cells = n != self.n_bits_
        sign = -1.0 if cells else 1.0  # the smallest column is the cell
        if hasattr(self, "W1_"):
            # The linear map passes the hidden layer as its positive and its negative part.
            W1, identity = np.hstack([self.W1_ / self.scale_, V, -V]), np.eye(n)
            steps: list[Step] = [Affine(W1, np.concatenate([self.c1_, np.zeros(2 * n)])), Activation("relu")]
            W = np.vstack([self.W2_, identity, -identity])
        else:
            steps, W = [], V
        last: list[Step] = [Affine(sign * W, sign * c), *([Margins(1, self.n_bits_)] if cells else [])]
        return [Center(self.offset_), *steps, *last]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        outputs, h = 1 << n_bits if self._cells else n_bits, int(self.n_hidden)
        state: dict[str, tuple[int, ...]] = {"offset_": (n_features,), "scale_": ()}
        state |= {"V_": (n_features, outputs), "c2_": (outputs,)}
        return state | ({"W1_": (n_features, h), "c1_": (h,), "W2_": (h, outputs)} if h else {})

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        self._check_parameters(self.n_features_in_)
        learned = {name: getattr(self, name).shape for name in ("V_", "W1_") if hasattr(self, name)}
        state = self._state(self.n_features_in_, self.n_bits_)
        if learned != {name: state[name] for name in ("V_", "W1_") if name in state}:
            raise ValueError("code, query, loss or n_hidden was changed after fit: fit again.")

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        return {"loss": self.history_[-1]["loss"], "epochs": len(self.history_), "graph_recall": self.graph_recall_}


def _first_bits(rows: Rows, V: Floats) -> Layer:
    """A projection V of X, scaled so that its outputs have a deviation of 1."""
    (squares,) = rows.total(lambda _, X: (np.square(X @ V.astype(X.dtype)).sum(axis=0, dtype=np.float64),))
    deviations = np.sqrt(squares / len(rows))
    return Layer(V / np.where(deviations > 0, deviations, 1), np.zeros(V.shape[1]))


def _first_cells(rows: Rows, neighbors: Array, b: int, rng: np.random.Generator) -> Layer:
    """The linear map whose largest output is the nearest center of k-means; column i is the cell with code i."""
    n = 1 << b
    centers, cells = k_means(rows, n, rng)
    C = np.empty_like(centers)
    C[assign_codes(cell_links(cells, neighbors, n), b, rng)] = centers
    # −‖x − c‖² = 2 xᵀc − ‖c‖² − ‖x‖², and ‖x‖² is the same for all cells.
    return Layer(2 * C.T / _TEMPERATURE, -np.einsum("ij,ij->i", C, C) / _TEMPERATURE)


def _first_network(linear: Layer, h: int, rng: np.random.Generator) -> tuple[Network, list[Layer]]:
    """The network and its first layers: the linear map, to which ``h`` hidden units add nothing yet."""
    (V, c), (D, n) = linear, linear.W.shape
    if not h:
        return Network((D, n)), [linear]
    # Inputs of the hidden units have a deviation of √(1/2).
    W1 = rng.standard_normal((D, h)) * np.sqrt(0.5 / _SQUARE)
    layers = [Layer(W1, np.zeros(h)), Layer(np.zeros((h, n)), c), Layer(V, np.empty(0))]
    return Network((D, h, n), "relu", skip=True), layers


Loss = Callable[[Array, Batch], tuple[float, Array]]


def objective(
    rows: Rows, network: Network, loss: Loss, threads: ThreadMap
) -> Callable[[Array, Batch], tuple[Terms, Array]]:
    """Return the objective of the network's parameters and a batch; ``loss``: value and ∂/∂H of the outputs H."""

    def value_and_gradient(theta: Array, batch: Batch) -> tuple[Terms, Array]:
        layers, parts = network.layers(theta), batch.parts()

        def forward(part: slice) -> tuple[Array, list[Array]]:
            X = rows.take(batch.samples[part])
            return X, network.forward(layers, X)

        passed = threads(forward, parts)
        value, slope = loss(np.concatenate([outputs[-1] for _, outputs in passed]), batch)

        def backward(i: int) -> Array:
            X, outputs = passed[i]
            return network.backward(layers, X, outputs, slope[parts[i]])

        gradient, *others = threads(backward, range(len(parts)))
        for other in others:
            gradient += other
        return {"loss": value}, gradient

    return value_and_gradient
