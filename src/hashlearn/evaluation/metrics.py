"""Average precision and precision within a Hamming radius, computed block by block on all cores."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Floats
from hashlearn.codes import check_codes, code_words, distance_type, distances_into
from hashlearn.evaluation._ranking_metrics import BlockScores, Distances, SphericalRanks, make_scorers
from hashlearn.evaluation.protocol import Protocol
from hashlearn.evaluation.truth import Truth
from hashlearn.progress import progress_bar
from hashlearn.threads import cores

__all__ = ["Scores", "evaluate", "evaluate_all"]

# Distances that one worker holds at a time (queries × database).
_BLOCK_DISTANCES = 1 << 22
# Longest code for spherical distances: the histogram of its 1.3 million distinct values takes 10 MiB.
_MAX_SPHERICAL_BITS = 2048


@dataclass(frozen=True)
class Scores:
    """The result of :func:`evaluate`. Scores are between 0 and 1.

    Attributes
    ----------
    map : float
        Mean average precision.
    precision_at_radius : dict
        Mean precision within each radius.
    empty_at_radius : dict
        Fraction of queries with no item within each radius.
    average_precision : (n_queries,)
        Average precision of each query.
    precision_within : dict of (n_queries,)
        Precision of each query within each radius.
    n_bits, n_database, queries_without_relevant : int
    protocol : Protocol
    truth : str
        Description of the ground truth.
    """

    map: float
    precision_at_radius: dict[int, float]
    empty_at_radius: dict[int, float]
    average_precision: Floats
    precision_within: dict[int, Floats]
    n_bits: int
    n_database: int
    queries_without_relevant: int
    protocol: Protocol
    truth: str

    def as_dict(self) -> dict[str, Any]:
        """The means and everything that defines them, as plain values for JSON, without the values per query."""
        return {
            "map": self.map,
            "precision_at_radius": {str(r): p for r, p in self.precision_at_radius.items()},
            "empty_at_radius": {str(r): share for r, share in self.empty_at_radius.items()},
            "n_bits": self.n_bits,
            "n_queries": len(self.average_precision),
            "n_database": self.n_database,
            "queries_without_relevant": self.queries_without_relevant,
            "truth": self.truth,
            "protocol": self.protocol.as_dict(),
        }

    def __str__(self) -> str:
        precisions = "".join(f", P@{r} {100 * p:.2f}" for r, p in self.precision_at_radius.items())
        lacking = self.queries_without_relevant
        empty = f"; {lacking:,} queries without a relevant item count 0" if lacking else ""
        return (
            f"mAP {100 * self.map:.2f}{precisions} (percent; {self.n_bits} bits, "
            f"{len(self.average_precision):,} queries, {self.n_database:,} items; "
            f"truth: {self.truth}{empty}; {self.protocol})"
        )


def evaluate(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    truth: Truth,
    *,
    n_bits: int,
    protocol: Protocol | None = None,
    n_jobs: int | None = None,
    show_progress: bool | None = None,
) -> Scores:
    """Rank the database for each query by the protocol's distance and compare the ranking with ``truth``.

    Time grows with queries × database, memory with the database only.

    Parameters
    ----------
    query_codes, database_codes : (n, ceil(n_bits / 8))
        Packed codes (see :mod:`hashlearn.codes`).
    truth : Truth
        The relevant items of each query.
    n_bits : int
        Code length.
    protocol : Protocol, optional
        How rankings become numbers. Default: ``Protocol()``.
    n_jobs : int, optional
        Number of threads. Default: one per available core.
    show_progress : bool, optional
        Default: show a progress bar on a terminal only.

    Returns
    -------
    Scores

    Examples
    --------
    >>> from hashlearn.codes import pack
    >>> from hashlearn.evaluation import Truth, evaluate
    >>> database = pack([[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]])
    >>> queries = pack([[0, 0, 0, 1], [0, 1, 1, 1]])
    >>> truth = Truth.labels(["a", "a"], ["a", "a", "b"])
    >>> evaluate(queries, database, truth, n_bits=4).average_precision.round(4).tolist()
    [1.0, 0.5833]
    """
    protocols = [Protocol() if protocol is None else protocol]
    [scores] = evaluate_all(
        query_codes, database_codes, truth, protocols, n_bits=n_bits, n_jobs=n_jobs, show_progress=show_progress
    )
    return scores


def evaluate_all(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    truth: Truth,
    protocols: Iterable[Protocol],
    *,
    n_bits: int,
    n_jobs: int | None = None,
    show_progress: bool | None = None,
) -> list[Scores]:
    """Like :func:`evaluate`, for several protocols at once. Distances and histograms are computed only once.

    Parameters
    ----------
    query_codes, database_codes, truth
        As for :func:`evaluate`.
    protocols : iterable of Protocol
        At least one.
    n_bits, n_jobs, show_progress
        As for :func:`evaluate`.

    Returns
    -------
    list of Scores
        One for each protocol, in their order.
    """
    protocols = list(protocols)
    if not protocols:
        raise ValueError("protocols must not be empty.")
    for protocol in protocols:
        if not isinstance(protocol, Protocol):
            raise TypeError(f"protocols must be Protocol objects; got {protocol!r}.")
    n_bits = operator.index(n_bits)
    queries = check_codes(query_codes, n_bits, "query_codes")
    database = check_codes(database_codes, n_bits, "database_codes")
    if not len(queries) or not len(database):
        raise ValueError(f"query_codes and database_codes must not be empty; got {len(queries)} and {len(database)}.")
    if len(queries) != truth.n_queries:
        raise ValueError(f"truth is for {truth.n_queries} queries; got query_codes of {len(queries)}.")
    if truth.n_database not in (None, len(database)) or truth.min_database > len(database):
        expected = truth.n_database or f"at least {truth.min_database}"
        raise ValueError(f"truth is for a database of {expected} items; got database_codes of {len(database)}.")

    by_spheres = any(protocol.distance == "spherical" for protocol in protocols)
    if by_spheres and n_bits > _MAX_SPHERICAL_BITS:
        raise ValueError(f"distance 'spherical' ranks codes of at most {_MAX_SPHERICAL_BITS:,} bits; got {n_bits:,}.")

    jobs = cores() if n_jobs is None else n_jobs
    if jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, or None; got {n_jobs}.")
    query_words, database_words = code_words(queries), code_words(database)
    spherical = SphericalRanks(query_words, database_words, n_bits) if by_spheres else None
    scorers = make_scorers(protocols, len(database), n_bits)

    def score(block: range) -> tuple[list[BlockScores], list[int]]:
        """The scores of a range of queries under each protocol, and the number of items relevant to each query."""
        D = np.empty((len(block), len(database)), dtype=distance_type(n_bits))
        distances_into(query_words[:, block.start : block.stop], database_words, D)
        distances = {"hamming": Distances(D, n_bits + 1)}
        if spherical is not None:
            distances["spherical"] = Distances(spherical(block, D), spherical.n_distances)
        relevant = [truth.relevant(query) for query in block]
        results = [scorer(distances[scorer.protocol.distance], distances["hamming"], relevant) for scorer in scorers]
        return results, [len(ids) for ids in relevant]

    # A distance takes one or a few bytes, a histogram bin 8.
    width = max(len(database), 8 * (n_bits + 1 if spherical is None else spherical.n_distances))
    rows = max(1, min(-(-len(queries) // jobs), _BLOCK_DISTANCES // width))
    blocks = [range(start, min(start + rows, len(queries))) for start in range(0, len(queries), rows)]
    parts = []
    with (
        progress_bar("evaluate", len(queries), unit="queries", show=show_progress) as advance,
        ThreadPoolExecutor(jobs) as pool,
    ):
        for block, part in zip(blocks, pool.map(score, blocks), strict=True):
            parts.append(part)
            advance(len(block))
    without = sum(count == 0 for _, counts in parts for count in counts)
    scores = []
    for i, protocol in enumerate(protocols):
        ap, precision, inside = (np.concatenate(arrays) for arrays in zip(*(part[i] for part, _ in parts), strict=True))
        scores.append(
            Scores(
                map=float(ap.mean()),
                precision_at_radius={r: float(precision[:, j].mean()) for j, r in enumerate(protocol.radii)},
                empty_at_radius={r: float((inside[:, j] == 0).mean()) for j, r in enumerate(protocol.radii)},
                average_precision=ap,
                precision_within={r: precision[:, j] for j, r in enumerate(protocol.radii)},
                n_bits=n_bits,
                n_database=len(database),
                queries_without_relevant=without,
                protocol=protocol,
                truth=truth.description,
            )
        )
    return scores
