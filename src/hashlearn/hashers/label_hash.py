"""LabelHash: a network whose codes tell classes apart, trained by stochastic gradients.

Two losses read the codes B of the labeled samples of a batch. The first is the cross-entropy of a linear classifier,
softmax(B V + 1 c₂); a sample of several classes counts as each of them in equal parts. The second is neighborhood
component analysis (J. Goldberger, S. Roweis, G. Hinton and R. Salakhutdinov, NIPS 2004), a softmax over the other
labeled samples of the batch, weighted by how near their codes are, d_ij the Hamming distance:

    ℓ_i = log Σ_{j≠i} exp(−α d_ij) − log Σ_{j≠i, shares a class with i} exp(−α d_ij).

Samples without a label get one from their neighbors where that can be trusted (:mod:`._spreading`). If there are any,
the same batches hold groups of neighbors too, whose loss is that of :mod:`._contrast`, a softmax over nearest
neighbors, between codes.

The network, and its symbols, are described in :mod:`._class_codes`.

Cost of an epoch: 4mDu + 6muL for the network, 6mbL for pairs in a batch; linear in m.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count as counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Floats
from hashlearn.hashers._blocks import Rows, in_parts, row_blocks, shuffled_batches, total
from hashlearn.hashers._class_codes import LabelBatch, Losses, Sizes, first_weights, folded, n_parts, objective
from hashlearn.hashers._contrast import draw_batches
from hashlearn.hashers._graph import neighbor_graph
from hashlearn.hashers._linear import check_squares
from hashlearn.hashers._optim import count_steps, train_by_batches
from hashlearn.hashers._parameters import FLAG, Rule, choice, count, either, number
from hashlearn.hashers._spreading import spread_labels
from hashlearn.hashers._targets import Targets, checked_targets
from hashlearn.hashers.base import Hasher
from hashlearn.hashers.steps import Activation, Affine, Center, Step, center
from hashlearn.storage import content_key
from hashlearn.threads import ThreadMap, thread_map

# Of groups of neighbors: the weight of their loss; α √L; members of a group beside its first sample; neighbors that
# they are drawn from, for each true one; the share of a batch that they take.
_WEIGHT, _SHARPNESS, _MEMBERS, _DRAWN, _SHARE = 0.1, 2.0, 3, 2, 0.5
# More batches than are ever drawn.
_ENDLESS = 1 << 62


class LabelHash(Hasher):
    """LabelHash: bits of a network that is trained to keep samples of a class near and the others far.

    A sample has one label or several, and some samples may have none: they learn from their Euclidean nearest
    neighbors. What ``fit`` takes as labels is described there.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    n_hidden : int, default=1024
        Hidden units of the network.
    cross_entropy : float, default=1
        Weight of the classifier's loss.
    contrast : float, default=1
        Weight of the loss that compares codes with one another.
    sharpness : float, default=2
        How fast affinity falls with Hamming distance: by a factor of exp(sharpness / √n_bits) for each bit. Of samples
        without labels it is 2.
    dropout : float, default=0.5
        Share of the hidden units that are left out in a step of training, at random; of the features, a fifth of it.
    n_neighbors : int, default=5
        How many nearest neighbors of a sample are its true neighbors; only if samples have no label.
    epochs : float or "auto", default="auto"
        About how often each sample is used. ``"auto"``: 20 times, and more often if that is less than 300 batches.
    batch_size : int, default=512
        Samples that are contrasted with one another.
    learning_rate : float, default=2e-2
        Of Adam, at its highest; it rises over the first tenth of the steps, then falls as a cosine to 0.
    cache_graph : bool, default=False
        Whether to keep the neighbors of the samples in the cache folder; only if samples have no label.
    normalize : bool, default=False
        Whether vectors are brought to unit length first, so that codes are those of directions: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of all draws.
    show_progress : bool, default=None
        Whether to show progress bars; None: on a terminal.

    Attributes
    ----------
    classes_ : ndarray
        The classes: labels, or numbers of the columns of ``y``.
    offset_ : ndarray of shape (n_features,)
        What is taken off X.
    W1_, c1_, W2_, c2_ : ndarray
        The layers of the encoder, relu((X − offset_) W1_ + c1_) W2_ + c2_.
    n_guessed_ : int
        How many samples without a label got one from their neighbors.
    history_ : list of dict
        For each epoch: the mean of each loss over its batches, and seconds.

    Examples
    --------
    >>> from hashlearn import LabelHash
    >>> from hashlearn.datasets import load
    >>> digits = load("digits")
    >>> hasher = LabelHash(n_bits=16, n_hidden=64, random_state=0).fit(digits.train, digits.train_labels)
    >>> hasher.encode(digits.queries).shape
    (297, 2)
    """

    name = "label-hash"
    supervised = True
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "n_hidden": count(most=1 << 16),
        "cross_entropy": number(),
        "contrast": number(),
        "sharpness": number(above=0),
        "dropout": number(most=0.95),
        "n_neighbors": count(),
        "epochs": either(choice("auto"), number(1e-3, 1e6)),
        "batch_size": count(least=8),
        "learning_rate": number(above=0),
        "cache_graph": FLAG,
    }

    classes_: Array
    offset_: Floats
    W1_: Floats
    c1_: Floats
    W2_: Floats
    c2_: Floats

    def __init__(
        self,
        n_bits: int = 32,
        *,
        n_hidden: int = 1024,
        cross_entropy: float = 1.0,
        contrast: float = 1.0,
        sharpness: float = 2.0,
        dropout: float = 0.5,
        n_neighbors: int = 5,
        epochs: float | str = "auto",
        batch_size: int = 512,
        learning_rate: float = 2e-2,
        cache_graph: bool = False,
        normalize: bool = False,
        random_state: Any = None,
        show_progress: bool | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_hidden = n_hidden
        self.cross_entropy = cross_entropy
        self.contrast = contrast
        self.sharpness = sharpness
        self.dropout = dropout
        self.n_neighbors = n_neighbors
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.cache_graph = cache_graph
        self.normalize = normalize
        self.random_state = random_state
        self.show_progress = show_progress

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> LabelHash:
        """Learn from vectors and their classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training vectors; not changed.
        y : array-like of shape (n_samples,) or (n_samples, n_classes)
            A label for each sample, of any hashable kind; None, NaN or the number −1 if a sample has none. Or a matrix
            (dense or sparse), 1 where a sample is of a class and 0 where it is not; all NaN or all −1 in the row of a
            sample whose classes are not known (dense only). Two samples are alike if they share a class.

        Returns
        -------
        self : LabelHash
            The fitted model. If fit fails, the model stays as it was.
        """
        super().fit(X, y)
        return self

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        if not (self.cross_entropy or self.contrast):
            raise ValueError("cross_entropy or contrast must be above 0; got 0 for both.")

    def _unused(self) -> Mapping[str, str]:
        return {} if self.contrast else {"sharpness": "with contrast=0"}

    def _checked_labels(self, y: Any, n_samples: int) -> Targets:
        if y is None:
            super()._checked_labels(y, n_samples)
        return checked_targets(y, n_samples, "LabelHash")

    def _fit(self, X: Array, y: Targets) -> None:
        rng = np.random.default_rng(self.random_state)
        m, L = len(X), self.n_bits_
        self.classes_ = y.classes
        with thread_map() as threads:
            mean, deviation = _mean_and_deviation(X, threads)
            scale = np.where(deviation > 0, deviation, 1)
            rows = Rows(X, mean, scale, threads, dtype=np.float32)
            batch_size = min(int(self.batch_size), m)
            n_steps = count_steps(m, batch_size, self.epochs)
            neighbors, self.n_guessed_ = None, 0
            if len(y.labeled) < m:
                n_positive = min(int(self.n_neighbors), m - 1)
                k, key = min(_DRAWN * n_positive, m - 1), None
                # The distances are those of X, not of standardized features.
                spread = float(deviation.max()) or 1.0
                if self.cache_graph:
                    key = content_key(X, spread)
                plain = Rows(X, mean, spread, threads, dtype=np.float32)
                graph = neighbor_graph(plain, k, threads, key=key, show_progress=self.show_progress)
                del plain
                neighbors = graph.neighbors
                known, y = len(y.labeled), spread_labels(y, neighbors, rng)
                self.n_guessed_ = len(y.labeled) - known
            sizes = Sizes(X.shape[1], int(self.n_hidden), L, len(y.classes))
            batches = _draw(y, neighbors, n_positive if neighbors is not None else 0, batch_size, rng)
            losses = Losses(
                cross_entropy=float(self.cross_entropy),
                contrast=float(self.contrast),
                alpha=float(self.sharpness / np.sqrt(L)),
                neighbors=_WEIGHT,
                neighbor_alpha=_SHARPNESS / float(np.sqrt(L)),
            )
            first = first_weights(sizes, rng)
            seeds = rng.integers(1 << 62, size=n_parts(batch_size))
            theta, self.history_ = train_by_batches(
                objective(rows, sizes, losses, float(self.dropout), seeds, threads),
                first.astype(np.float32),
                (next(batches) for _ in range(n_steps)),
                n_steps=n_steps,
                steps_an_epoch=-(-m // batch_size),
                rate=float(self.learning_rate),
                name="LabelHash",
                show_progress=self.show_progress,
                advice="choose a lower learning_rate or sharpness",
            )
            layers = folded(sizes.split(theta), rows)
        self.offset_ = mean
        self.W1_, self.c1_, self.W2_, self.c2_ = layers[0] / scale[:, None], *layers[1:]

    def _encoder_steps(self) -> list[Step]:
        return [Center(self.offset_), Affine(self.W1_, self.c1_), Activation("relu"), Affine(self.W2_, self.c2_)]

    def _state(self, n_features: int, n_bits: int) -> dict[str, tuple[int, ...]]:
        h = int(self.n_hidden)
        shapes: dict[str, tuple[int, ...]] = {"offset_": (n_features,), "W1_": (n_features, h), "c1_": (h,)}
        return shapes | {"W2_": (h, n_bits), "c2_": (n_bits,)}

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        self._check_parameters(self.n_features_in_)
        if self.n_hidden != len(self.c1_):
            raise ValueError(
                f"n_hidden was changed to {self.n_hidden} after fit learned {len(self.c1_)} units: fit again."
            )

    def summary(self) -> dict[str, Any]:
        if not hasattr(self, "history_"):  # read from a file
            return {}
        last = {name: value for name, value in self.history_[-1].items() if name != "seconds"}
        return {**last, "epochs": len(self.history_), "n_guessed": self.n_guessed_}


def _mean_and_deviation(X: Array, threads: ThreadMap) -> tuple[Floats, Floats]:
    """Return the mean and the deviation of each feature."""
    parts = in_parts(row_blocks(X))
    (sums,) = total(lambda rows: (X[rows].sum(axis=0, dtype=np.float64),), parts, threads)
    mean: Floats = sums / len(X)

    def squares(rows: slice) -> tuple[Floats]:
        with np.errstate(over="ignore", invalid="ignore"):  # noticed below
            return (np.square(center(X[rows], mean)).sum(axis=0, dtype=np.float64),)

    (variance,) = total(squares, parts, threads)
    variance /= len(X)
    check_squares(X, float(variance.sum()))
    return mean, np.sqrt(variance)


def _draw(
    y: Targets, neighbors: Array | None, n_positive: int, batch_size: int, rng: np.random.Generator
) -> Iterator[LabelBatch]:
    """Draw batches without end: labeled samples in rounds, in which none comes twice, and groups of neighbors."""
    n_groups = 0 if neighbors is None else int(_SHARE * batch_size)
    size = min(batch_size - n_groups, len(y.labeled))
    groups = None if neighbors is None else draw_batches(neighbors, n_positive, n_groups, _MEMBERS, _ENDLESS, rng)
    for _ in counter():
        for chosen in shuffled_batches(len(y.labeled), size, rng):
            if len(chosen) < size:
                continue
            labeled, group = y.labeled[chosen], None if groups is None else next(groups)
            samples = labeled if group is None else np.concatenate([labeled, group.samples])
            yield LabelBatch(samples, y.of(labeled, np.float32), group)
