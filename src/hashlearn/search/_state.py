"""Codes and their ids at one moment, and checks of ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn._arrays import Codes, Ids
from hashlearn.search._scan import Rows


class State(NamedTuple):
    """Codes (n, padded bytes) and their ids (n,), ascending. It is never changed: searches may be using it."""

    codes: Codes
    ids: Ids


def check_ids(ids: ArrayLike, n: int | None = None, *, distinct: bool = True) -> Ids:
    """Check ids and return them as an array.

    Parameters
    ----------
    ids : int or array-like of int, shape (n,)
        Whole numbers from 0 to 2⁶³ − 2.
    n : int, optional
        How many there must be. Default: any number.
    distinct : bool
        Whether an id may occur only once.

    Returns
    -------
    ids : ndarray of shape (n,), int64

    Raises
    ------
    ValueError
        The ids break one of these rules.
    """
    array = np.asarray(ids)
    if array.ndim == 0:
        array = array[None]
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype == object and all(isinstance(id, int) for id in array.ravel()):
        raise ValueError(f"ids must be from 0 to 2⁶³ − 2; got {max(array.ravel(), key=abs)}.")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"ids must be whole numbers, one dimension; got {array.dtype} {array.shape}.")
    if n is not None and len(array) != n:
        raise ValueError(f"there must be an id for each of the {n} codes; got {len(array)}.")
    if len(array) and (array.min() < 0 or array.max() >= np.iinfo(np.int64).max):
        raise ValueError(f"ids must be from 0 to 2⁶³ − 2; got {array.min() if array.min() < 0 else array.max()}.")
    checked = array.astype(np.int64)
    if distinct and len(checked) > 1:
        ordered = np.sort(checked)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            raise ValueError(f"ids must be distinct; {ordered[1:][twice][0]} is given twice.")
    return checked


def find_rows(state: State, ids: Ids) -> tuple[Rows, NDArray[np.bool_]]:
    """Return the row of each id, or where it would be inserted, and whether it exists."""
    rows = np.searchsorted(state.ids, ids)
    known = rows < len(state.ids)
    known[known] = state.ids[rows[known]] == ids[known]
    return rows, known


def require_rows(state: State, ids: Ids) -> Rows:
    """Return the row of each id; raise a ValueError if one is unknown."""
    rows, known = find_rows(state, ids)
    if not known.all():
        raise ValueError(f"id {ids[~known][0]} is not in the index{more((~known).sum())}.")
    return rows


def more(n: Any) -> str:
    return f" ({int(n) - 1:,} more)" if n > 1 else ""


def allowed(state: State, allow: ArrayLike | None) -> State:
    """Return the part of the state that a search may return."""
    if allow is None:
        return state
    ids = np.sort(check_ids(allow, distinct=False))
    rows, known = find_rows(state, ids)
    rows = rows[known]
    return take_rows(state, rows[np.diff(rows, prepend=-1) > 0])


def take_rows(state: State, rows: Rows) -> State:
    # np.take: indexing a matrix by rows is twenty times slower.
    return State(np.take(state.codes, rows, axis=0), state.ids[rows])
