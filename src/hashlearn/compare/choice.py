"""Choose a method: the one that measured best on the data sets of this library, or the best on one's own vectors."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_array

from hashlearn.errors import check_count
from hashlearn.evaluation import Truth, evaluate, nearest_neighbors
from hashlearn.hashers import Hasher
from hashlearn.hashers.decoder_hash import DecoderHash
from hashlearn.hashers.itq import ITQ
from hashlearn.hashers.label_hash import LabelHash
from hashlearn.hashers.neighbor_hash import NeighborHash
from hashlearn.hashers.sdh import SDH
from hashlearn.labels import label_list, label_matrix
from hashlearn.progress import progress_bar

# Vectors that are held out as queries, or their share if there are few vectors.
_QUERIES, _SHARE = 1000, 0.2
# Vectors that candidates are trained on, at most.
_TRAINED = 20_000
# True neighbors of a query.
_NEIGHBORS = 50
# With fewer vectors a validation says little.
_LEAST = 100
# Nor does one with fewer held-out vectors that can find one of their class.
_LEAST_FINDING = 5
# Candidates beside the default of NeighborHash, where codes are bits (more than 8 of them).
_SHARPNESS = (4.0, 6.0)
_CELL_BITS = 8
# Settings of NeighborHash for real-valued queries, as in the experiments on sentence embeddings; and from how many bits
# a feature on DecoderHash is better.
_FOR_REAL_QUERIES: dict[str, Any] = {
    "loss": "distances",
    "n_neighbors": 10,
    "n_hidden": 1024,
    "learning_rate": 4e-3,
    "max_samples": 65536,
}
_DECODER_SHARE = 2 / 3


class Choice(NamedTuple):
    """A method, and why it was chosen.

    Attributes
    ----------
    hasher : Hasher
        Not fitted yet.
    scores : dict
        The mAP of each candidate in the validation, by its description, best first; empty if there was none.
    reason : str
        A sentence.
    """

    hasher: Hasher
    scores: dict[str, float]
    reason: str


def recommended(
    n_bits: int = 32,
    *,
    supervised: bool = False,
    query: str = "code",
    n_features: int | None = None,
    normalize: bool = False,
    random_state: Any = None,
) -> Hasher:
    """Return the method whose codes of this length measured best, not fitted yet.

    The results are in docs/methods/neighbor-hash.md and label-hash.md. Those for real-valued queries are of sentence
    embeddings of 256 and 384 features, at 64, 128 and 256 bits. :func:`choose` also compares candidates on vectors of
    one's own, by Hamming distance.

    Parameters
    ----------
    n_bits : int, default=32
        Length of the code.
    supervised : bool, default=False
        Whether there are labels to learn from.
    query : {"code", "real"}, default="code"
        What codes will be compared with: the code of the query, by Hamming distance, or its real values
        (:func:`hashlearn.search.search_real`).
    n_features : int, optional
        Features of the vectors; required with ``query="real"``, and not allowed otherwise. With at least two bits for
        every three features the method is DecoderHash, with fewer NeighborHash.
    normalize : bool, default=False
        Whether the model brings vectors to unit length first: for cosine similarity.
    random_state : int, Generator or None, default=None
        Seed of the method.

    Returns
    -------
    Hasher

    Examples
    --------
    >>> from hashlearn import recommended
    >>> recommended(64)
    NeighborHash(n_bits=64)
    >>> recommended(256, query="real", n_features=256, random_state=0)
    DecoderHash(random_state=0)
    """
    Hasher._parameters["n_bits"].check("n_bits", n_bits)
    if query not in ("code", "real"):
        raise ValueError(f"query must be 'code' or 'real'; got {query!r}.")
    if query == "real" and supervised:
        raise ValueError("query must be 'code' for supervised=True: no method with labels is trained for real values.")
    if (n_features is not None) != (query == "real"):
        words = "be given" if query == "real" else "not be given"
        raise ValueError(f"n_features must {words} with query={query!r}.")
    options: dict[str, Any] = {"normalize": normalize, "random_state": random_state}
    if supervised:
        return LabelHash(n_bits, **options)
    if query == "code":
        return NeighborHash(n_bits, **options)
    if n_bits >= _DECODER_SHARE * check_count("n_features", n_features):
        return DecoderHash(n_bits, **options)
    return NeighborHash(n_bits, query="real", **_FOR_REAL_QUERIES, **options)


def choose(
    X: ArrayLike,
    n_bits: int = 32,
    y: Any = None,
    *,
    normalize: bool = False,
    random_state: int | None = None,
    show_progress: bool | None = None,
) -> Choice:
    """Compare candidates on training vectors, and return the best, not fitted yet.

    1,000 vectors, or a fifth if there are fewer than 5,000, are held out. Candidates are trained on the others, or on a
    sample of 20,000 of them. Without labels, held-out vectors search for their 50 nearest neighbors among those that
    were trained on. With labels, half of the held-out vectors search among the other half for those of their class. The
    highest mean average precision by Hamming distance wins. Fewer than 100 vectors are not compared on: the choice is
    ITQ then, or LabelHash with labels. Nor are vectors with so many classes that fewer than 5 of the held-out ones find
    one of their class.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    n_bits : int, default=32
        Length of the code.
    y : array-like of shape (n_samples,) or (n_samples, n_classes), optional
        Labels. Without them, methods that need none are compared. Several labels of a vector, or none (None, NaN, −1),
        as in :class:`LabelHash`, leave no choice but that method.
    normalize : bool, default=False
        Whether models bring vectors to unit length first. Held-out vectors then search for their neighbors by cosine.
    random_state : int, optional
        Seed of the sample and of all methods.
    show_progress : bool, optional
        Whether to show progress bars; by default, on a terminal.

    Returns
    -------
    Choice

    Examples
    --------
    >>> from hashlearn import choose
    >>> from hashlearn.datasets import load
    >>> digits = load("digits")
    >>> choice = choose(digits.train, n_bits=16, random_state=0)
    >>> hasher = choice.hasher.fit(digits.train)
    """
    X = np.asanyarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples and features; it has {X.ndim}.")
    matrix = None if y is None else label_matrix(y)
    labels = None if y is None or matrix is not None else label_list(y, "y", missing=True)
    n_labels = matrix.shape[0] if matrix is not None else len(X if labels is None else labels)
    if n_labels != len(X):
        raise ValueError(f"y must have a label for each of the {len(X):,} vectors; it has {n_labels:,}.")
    first = recommended(n_bits, supervised=y is not None, normalize=normalize, random_state=random_state)
    if len(X) < _LEAST:
        if y is None:  # with so few vectors, neighbors teach nothing
            first = ITQ(n_bits, normalize=normalize, random_state=random_state)
        return Choice(first, {}, f"{len(X):,} vectors are too few to compare methods on, so {first.name} is used.")
    if matrix is not None or (labels is not None and any(label is None or label == -1 for label in labels)):
        reason = f"only {first.name} learns from several labels of a vector, and from vectors without labels."
        return Choice(first, {}, reason)
    candidates = _candidates(first)
    order = np.random.default_rng(random_state).permutation(len(X))
    kept = np.empty(0, dtype=np.intp)
    if labels is not None:  # a vector of each class is trained on
        members = {labels[i]: i for i in order}
        kept = np.fromiter(members.values(), dtype=np.intp)
        order = order[~np.isin(order, kept)]
    n_queries = min(_QUERIES, int(_SHARE * len(order)))
    held_out = order[:n_queries]
    if labels is not None:
        asked, found = [labels[i] for i in held_out[::2]], [labels[i] for i in held_out[1::2]]
        if sum(map(set(found).__contains__, asked)) < _LEAST_FINDING:
            reason = f"too few of the {n_queries:,} held-out vectors find one of their class to compare methods on"
            return Choice(first, {}, f"{reason} ({len(members):,} classes), so {first.name} is used.")
    trained = np.sort(np.concatenate([order[n_queries : n_queries + _TRAINED], kept]))
    train, train_labels = X[trained], None if labels is None else [labels[i] for i in trained]
    for rows in (train, X[held_out]):
        check_array(rows, input_name="X")
    if labels is None:
        queries, database, k = X[held_out], train, min(_NEIGHBORS, len(train))
        metric: Literal["cosine", "euclidean"] = "cosine" if normalize else "euclidean"
        truth = Truth.neighbors(nearest_neighbors(queries, database, k, metric=metric, show_progress=False))
    else:
        queries, database = X[held_out[::2]], X[held_out[1::2]]
        truth = Truth.labels(asked, found)
    scores: dict[str, float] = {}
    with progress_bar("comparing", len(candidates), unit="methods", show=show_progress) as advance:
        for name, candidate in candidates.items():
            hasher = clone(candidate).set_params(show_progress=False) if _shows(candidate) else clone(candidate)
            hasher.fit(train, train_labels)
            codes = hasher.encode(queries), hasher.encode(database)
            scores[name] = evaluate(*codes, truth, n_bits=n_bits, show_progress=False).map
            advance(1)
    scores = dict(sorted(scores.items(), key=lambda item: -item[1]))
    best, *others = (f"{name} {100 * score:.2f}" for name, score in scores.items())
    reason = (
        f"{best} is the highest mAP on {n_queries:,} held-out training vectors, before {', '.join(others)} "
        f"(percent; trained on {len(trained):,})."
    )
    return Choice(candidates[next(iter(scores))], scores, reason)


def _shows(hasher: Hasher) -> bool:
    """Whether a method can show progress."""
    return "show_progress" in hasher.get_params()


def _candidates(first: Hasher) -> dict[str, Hasher]:
    """The recommended method, variants of it, and the best of the others, by their descriptions."""
    n_bits, parameters = first.n_bits, first.get_params()
    options = {name: parameters[name] for name in ("normalize", "random_state")}
    candidates: dict[str, Hasher] = {first.name: first}
    if first.supervised:
        candidates["sdh"] = SDH(n_bits, random_state=options["random_state"])  # always of unit vectors
    else:
        for value in _SHARPNESS if n_bits > _CELL_BITS else ():
            candidates[f"neighbor-hash, sharpness={value:g}"] = NeighborHash(n_bits, sharpness=value, **options)
        if n_bits > _CELL_BITS:
            candidates["neighbor-hash, loss=distances"] = NeighborHash(n_bits, loss="distances", **options)
        candidates["itq"] = ITQ(n_bits, **options)
    return candidates
