"""Ground truth: which items of a database are relevant to each query, and how much."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Floats, Indices
from hashlearn.errors import shown
from hashlearn.labels import label_list, numbered

__all__ = ["Judgment", "Truth", "read_judgments"]


class Judgment(NamedTuple):
    """How relevant an item is to a query.

    Attributes
    ----------
    query, item : hashable
        What they are called.
    grade : float
        0 or less: not relevant.
    """

    query: Hashable
    item: Hashable
    grade: float


class Truth:
    """The relevant database items of each query.

    Create it with :meth:`neighbors`, :meth:`labels` or :meth:`judgments`.

    Attributes
    ----------
    n_queries : int
    n_database : int or None
        Size of the database. None if only ids are known; then ``min_database`` is a lower bound.
    description : str
        One line for people, printed with every number.
    """

    def __init__(
        self,
        lists: Sequence[Array] | Array,
        list_of_query: Indices | None,
        *,
        description: str,
        n_database: int | None = None,
        min_database: int = 0,
        holes: bool = False,
        grades: Sequence[Floats] | None = None,
    ) -> None:
        self.n_queries = len(lists) if list_of_query is None else len(list_of_query)
        self.n_database = n_database
        self.min_database = min_database
        self.description = description
        self._lists = lists  # of ids; queries may share one
        self._list_of_query = list_of_query  # None: each query has its own, in their order
        self._holes = holes  # whether -1 stands for nothing in a list
        self._grades = grades  # of each query's list; None: all 1

    def relevant(self, query: int) -> Array:
        """Return the ids of the database items that are relevant to a query.

        Parameters
        ----------
        query : int
            Number of the query, from 0.

        Returns
        -------
        ids : ndarray of shape (n_relevant,)
            Distinct ids.
        """
        ids = self._lists[query if self._list_of_query is None else self._list_of_query[query]]
        return ids[ids >= 0] if self._holes else ids

    def grades(self, query: int) -> Floats:
        """Return how relevant the items of :meth:`relevant` are: 1 each, unless they were judged.

        Parameters
        ----------
        query : int
            Number of the query, from 0.

        Returns
        -------
        grades : ndarray of shape (n_relevant,)
            Above 0.
        """
        return np.ones(len(self.relevant(query))) if self._grades is None else self._grades[query]

    @classmethod
    def neighbours(cls, *arguments: Any, **options: Any) -> Truth:
        """Deprecated: use :meth:`neighbors`."""
        warnings.warn("Truth.neighbours is now Truth.neighbors.", DeprecationWarning, stacklevel=2)
        return cls.neighbors(*arguments, **options)

    @classmethod
    def neighbors(cls, ids: ArrayLike, description: str | None = None, *, n_database: int | None = None) -> Truth:
        """Create the ground truth from the ids of each query's true neighbors.

        Parameters
        ----------
        ids : (n_queries, k)
            Database ids; −1 marks a missing neighbor. Not copied, so don't modify it afterwards.
        description : str, optional
        n_database : int, optional
            Size of the database, to be checked against the codes.

        Returns
        -------
        Truth
        """
        ids = np.asarray(ids)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise ValueError(f"neighbors must be whole numbers of shape (n_queries, k); got {ids.dtype} {ids.shape}.")
        if 0 in ids.shape:
            raise ValueError(f"neighbors must have at least one query and one neighbor; got shape {ids.shape}.")
        largest = -1
        holes = False
        rows = max(1, (1 << 22) // ids.shape[1])
        for start in range(0, len(ids), rows):
            block = np.sort(ids[start : start + rows], axis=1)
            if block[:, 0].min() < -1:
                raise ValueError(f"neighbor ids must be at least 0, or -1 for none; got {block[:, 0].min()}.")
            twice = (block[:, 1:] == block[:, :-1]) & (block[:, 1:] >= 0)
            if twice.any():
                row = start + int(np.flatnonzero(twice.any(axis=1))[0])
                raise ValueError(f"neighbor ids must be distinct within a query; query {row} repeats one.")
            largest = max(largest, int(block[:, -1].max()))
            holes = holes or bool(block[:, 0].min() < 0)

        if n_database is not None and largest >= n_database:
            raise ValueError(f"neighbor ids must be below n_database, {n_database}; got {largest}.")
        if description is None:
            description = f"the {ids.shape[1]:,} neighbors given for each query"
        return cls(ids, None, description=description, n_database=n_database, min_database=largest + 1, holes=holes)

    @classmethod
    def labels(
        cls, query_labels: Sequence[Hashable] | ArrayLike, database_labels: Sequence[Hashable] | ArrayLike
    ) -> Truth:
        """Create the ground truth from class labels: an item is relevant if its label equals the query's.

        Parameters
        ----------
        query_labels : array-like of shape (n_queries,)
            A label of any hashable type for each query.
        database_labels : array-like of shape (n_database,)
            A label for each database item.

        Returns
        -------
        Truth

        Examples
        --------
        >>> Truth.labels(["cat", "dog"], ["dog", "cat", "dog"]).relevant(1)
        array([0, 2])
        """
        codes: dict[Hashable, int] = {}
        database = _label_codes(database_labels, codes, "database_labels")
        queries = _label_codes(query_labels, codes, "query_labels")
        # Ids of the items of each class, ascending: slices of one stable sort.
        order = np.argsort(database, kind="stable")
        ends = np.cumsum(np.bincount(database, minlength=len(codes)))
        members = np.split(order, ends[:-1])
        return cls(members, queries, description=f"equal class labels ({len(codes)} classes)", n_database=len(database))

    @classmethod
    def judgments(
        cls,
        judgments: Iterable[tuple[Hashable, Hashable, float]],
        query_ids: Sequence[Hashable] | ArrayLike,
        item_ids: Sequence[Hashable] | ArrayLike,
    ) -> Truth:
        """Create the ground truth from judgments of single items, as of a test collection.

        Items that are not judged, or with a grade of 0 or less, are not relevant. Judgments of other queries are left
        out; a judgment of an unknown item is an error.

        Parameters
        ----------
        judgments : iterable of (query, item, grade)
            As :func:`read_judgments` reads them from a file.
        query_ids : array-like of shape (n_queries,)
            What the judgments call each query.
        item_ids : array-like of shape (n_database,)
            What the judgments call each item of the database.

        Returns
        -------
        Truth

        Examples
        --------
        >>> judgments = [("q1", "d3", 2), ("q1", "d1", 1), ("q2", "d1", 0)]
        >>> truth = Truth.judgments(judgments, ["q1", "q2"], ["d1", "d2", "d3"])
        >>> truth.relevant(0), truth.grades(0)
        (array([0, 2]), array([1., 2.]))
        """
        queries, items = _numbers(query_ids, "query_ids"), _numbers(item_ids, "item_ids")
        graded: list[dict[int, float]] = [{} for _ in queries]
        n, other = 0, "there are none"
        for number, judgment in enumerate(judgments, 1):
            try:
                query, item, grade = judgment
                value = float(grade)
            except (TypeError, ValueError):
                raise ValueError(f"judgment {number} must be (query, item, grade); got {shown(judgment)}.") from None
            if query not in queries:
                other = f"the last is of {shown(query)}, and query_ids has {shown(next(iter(queries)))}"
                continue
            if item not in items:
                raise ValueError(
                    f"judgment {number} is of item {shown(item)}, which is not among the item_ids, such as "
                    f"{shown(next(iter(items)))}."
                )
            if not np.isfinite(value):
                raise ValueError(f"judgment {number} has the grade {value}; grades must be finite.")
            if graded[queries[query]].setdefault(items[item], value) != value:
                raise ValueError(f"judgment {number} gives item {shown(item)} a second grade for the same query.")
            n += 1
        if not n:
            raise ValueError(f"no judgment is of a query that is among the query_ids: {other}.")
        relevant = [sorted((item, grade) for item, grade in of.items() if grade > 0) for of in graded]
        return cls(
            [np.array([item for item, _ in pairs], dtype=np.intp) for pairs in relevant],
            None,
            description=f"{n:,} judgments",
            n_database=len(items),
            grades=[np.array([grade for _, grade in pairs]) for pairs in relevant],
        )


def read_judgments(path: str | os.PathLike[str]) -> list[Judgment]:
    """Read judgments from a file of the TREC or the BEIR form.

    A line of TREC's has four columns, separated by white space: query, iteration (not used), item, grade. One of BEIR's
    has three, separated by tabs, below a line with their names: query, item, grade.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    list of Judgment
        Queries and items are texts.
    """
    judgments = []
    text = Path(path).read_text(encoding="utf-8-sig")
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split("\t") if line.count("\t") == 2 else line.split()
        if not fields:
            continue
        try:
            query, item, grade = fields if len(fields) == 3 else (fields[0], *fields[2:])
            judgments.append(Judgment(query.strip(), item.strip(), float(grade)))
        except ValueError:
            if number == 1 and len(fields) == 3 and fields[2].strip().isalpha():  # the names of the columns
                continue
            raise ValueError(
                f"{path}, line {number}: a judgment has the columns query, iteration, item and grade, "
                f"or query, item and grade separated by tabs; got {shown(line)}."
            ) from None
    if not judgments:
        raise ValueError(f"{path} holds no judgments.")
    return judgments


def _numbers(ids: Any, name: str) -> dict[Hashable, int]:
    """The number of each id, which must be distinct."""
    values = label_list(ids, name)
    numbers = {value: number for number, value in enumerate(values)}
    if not values or len(numbers) < len(values):
        raise ValueError(f"{name} must be distinct, and at least one.")
    return numbers


def _label_codes(labels: Any, codes: dict[Hashable, int], name: str) -> Indices:
    """Map labels of any hashable type to small integers; new labels are added to ``codes``."""
    values = label_list(labels, name)
    if not values:
        raise ValueError(f"{name} must not be empty.")
    return numbered(values, codes)
