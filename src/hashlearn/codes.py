"""Binary codes: the sign rule, ±1 ⇄ 0/1 ⇄ packed bytes, Hamming distances and spherical ones.

The rules that the whole library follows are decided here and only here:

- sgn(0) = +1, and −0.0 counts as 0.
- Bit 1 stands for the sign +1, bit 0 for −1.
- A packed code is ``ceil(n_bits / 8)`` bytes, the most significant bit first (as ``np.packbits``); the padding
  bits at the end are zero.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.errors import find_renamed

__all__ = ["check_codes", "code_words", "hamming", "n_bytes", "pack", "sign_bits", "signs", "unpack"]

MAX_BITS = 1 << 24
"""The longest code: far beyond any use, and small enough that no array's size overflows."""

# Scratch for one block of XORs: large enough to hide the cost of a call, small enough to stay in cache.
_BLOCK_WORDS = 1 << 18


def sign_bits(H: ArrayLike) -> NDArray[np.uint8]:
    """Return the bits (0/1) of real values: 1 where the value is ≥ 0.

    Parameters
    ----------
    H : array-like of any shape

    Returns
    -------
    bits : ndarray of the same shape, uint8
    """
    return np.greater_equal(H, 0).view(np.uint8)


def signs(H: ArrayLike) -> NDArray[np.int8]:
    """Return the signs (±1) of real values: sgn(0) = +1. The one place where the library takes a sign.

    Parameters
    ----------
    H : array-like of any shape

    Returns
    -------
    signs : ndarray of the same shape, int8

    Examples
    --------
    >>> signs([-0.5, 0.0, 2.0])
    array([-1,  1,  1], dtype=int8)
    """
    return 2 * sign_bits(H).view(np.int8) - np.int8(1)


def n_bytes(n_bits: int) -> int:
    """Return the number of bytes of one packed code.

    Parameters
    ----------
    n_bits : int
        Length of the code, from 1 to ``MAX_BITS``.

    Returns
    -------
    n_bytes : int
        ceil(n_bits / 8).
    """
    n_bits = operator.index(n_bits)  # a NumPy integer could wrap round
    if n_bits < 1:
        raise ValueError(f"n_bits must be at least 1; got {n_bits}.")
    if n_bits > MAX_BITS:
        raise ValueError(f"n_bits must be at most {MAX_BITS}; got {n_bits if n_bits < 1 << 64 else 'more than 2**64'}.")
    return -(-n_bits // 8)


def pack(signs_or_bits: ArrayLike) -> NDArray[np.uint8]:
    """Pack codes, given as ±1 or as 0/1, into bytes.

    Real values are refused: take their signs first (:func:`signs`), so that the rule for 0 is explicit.

    Parameters
    ----------
    signs_or_bits : array-like of shape (n, n_bits)
        All ±1, or all 0/1; booleans count as bits.

    Returns
    -------
    codes : ndarray of shape (n, ceil(n_bits / 8)), uint8

    Raises
    ------
    ValueError
        A value is neither a sign nor a bit, or both 0 and −1 occur.

    Examples
    --------
    >>> pack([[1, -1, -1, 1], [-1, -1, -1, -1]])
    array([[144],
           [  0]], dtype=uint8)
    """
    values = np.asarray(signs_or_bits)
    if values.ndim != 2:
        raise ValueError(f"codes must have 2 dimensions (n, n_bits); got shape {values.shape}.")
    if values.shape[1] < 1:
        raise ValueError("codes must have at least 1 bit; got 0.")
    ones = values == 1
    if values.dtype != np.bool_:
        zeros = values == 0
        if not ((ones | zeros).all() or (ones | (values == -1)).all()):
            raise ValueError(f"codes must be all ±1 or all 0/1; got {_stranger(values, zeros)}.")
    return np.packbits(ones, axis=1)


def _stranger(values: NDArray[Any], zeros: NDArray[np.bool_]) -> str:
    """What makes ``values`` neither ±1 nor 0/1, in words."""
    other = values[~zeros & (values != 1) & (values != -1)]
    return f"the value {other[0]}" if other.size else "both 0 and -1"


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Return the bits (0/1) of packed codes, the inverse of :func:`pack`.

    Parameters
    ----------
    codes : array-like of shape (n, ceil(n_bits / 8)), uint8
        Packed codes.
    n_bits : int
        Length of the codes.

    Returns
    -------
    bits : ndarray of shape (n, n_bits), uint8

    Raises
    ------
    ValueError
        The codes are not of ``n_bits`` bits (:func:`check_codes`).

    Examples
    --------
    >>> unpack(pack([[1, -1, -1, 1]]), n_bits=4)
    array([[1, 0, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(check_codes(codes, n_bits), axis=1, count=n_bits)


def check_codes(codes: ArrayLike, n_bits: int, name: str = "codes") -> NDArray[np.uint8]:
    """Return packed codes as an array, after checking that they are codes of ``n_bits`` bits.

    Parameters
    ----------
    codes : array-like of shape (n, ceil(n_bits / 8)), uint8
        Packed codes.
    n_bits : int
        Length of the codes.
    name : str
        What to call the codes in an error message.

    Returns
    -------
    codes : ndarray of shape (n, ceil(n_bits / 8)), uint8
        Not a copy, if they are an array already.

    Raises
    ------
    ValueError
        The type or the shape is wrong, or a padding bit is not 0.
    """
    array = np.asarray(codes)
    n_bits = operator.index(n_bits)
    width = n_bytes(n_bits)
    if array.dtype != np.uint8:
        raise ValueError(f"{name} must be packed bytes (uint8); got {array.dtype}.")
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"{name} of {n_bits} bits must have shape (n, {width}); got {array.shape}.")
    padding = 8 * width - n_bits
    if padding:
        strays = np.flatnonzero(array[:, -1] & ((1 << padding) - 1))
        if strays.size:
            raise ValueError(
                f"the last {padding} bits of {name} of {n_bits} bits must be 0; row {strays[0]}'s are not."
            )
    return array


def code_words(codes: NDArray[np.uint8]) -> NDArray[Any]:
    """Convert packed codes to machine words: one word position is one contiguous row.

    Parameters
    ----------
    codes : ndarray of shape (n, n_bytes), uint8
        Packed codes.

    Returns
    -------
    words : ndarray of shape (n_words, n)
        The word is the smallest unsigned type that holds the code, at most 64 bits; zero bytes fill the last one.
    """
    n, width = codes.shape
    size = next((s for s in (1, 2, 4) if width <= s), 8)
    padded = np.zeros((n, -(-width // size) * size), dtype=np.uint8)
    padded[:, :width] = codes
    return np.ascontiguousarray(padded.view(f"u{size}").T)


def distance_type(n_bits: int) -> type[np.uint8] | type[np.uint16] | type[np.int32]:
    """The smallest type that holds every distance between codes of ``n_bits`` bits."""
    return np.uint8 if n_bits < 256 else np.uint16 if n_bits < 65536 else np.int32


def distances_into(a_words: NDArray[Any], b_words: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the Hamming distances between ``a_words`` (words, n) and ``b_words`` (words, m) to ``out`` (n, m).

    Runs in blocks; NumPy releases the interpreter lock inside, so threads may call it side by side.
    """
    n, m = out.shape
    columns = max(1, min(m, _BLOCK_WORDS))
    rows = max(1, min(n, _BLOCK_WORDS // columns))
    scratch = np.empty((rows, columns), dtype=a_words.dtype)
    counts = np.empty((rows, columns), dtype=np.uint8)
    for top in range(0, n, rows):
        for left in range(0, m, columns):
            block = out[top : top + rows, left : left + columns]
            x = scratch[: block.shape[0], : block.shape[1]]
            c = counts[: block.shape[0], : block.shape[1]]
            for word, (a, b) in enumerate(zip(a_words, b_words, strict=True)):
                np.bitwise_xor(a[top : top + rows, None], b[left : left + columns], out=x)
                if word == 0:
                    np.bitwise_count(x, out=block, casting="unsafe")
                else:
                    np.bitwise_count(x, out=c)
                    np.add(block, c, out=block, casting="unsafe")


def count_ones(words: NDArray[Any]) -> NDArray[np.int64]:
    """The number of 1 bits of each code (n,) in ``words`` (words, n)."""
    return np.asarray(np.bitwise_count(words).sum(axis=0, dtype=np.int64))


def spherical_ranks(n_bits: int) -> tuple[NDArray[Any], int]:
    """The order of the spherical Hamming distances between codes of ``n_bits`` bits, and how many distinct ones exist.

    The distance of two codes a, b is |a ⊕ b| / |a ∧ b|: differing bits over common 1 bits; without common 1 bits it is
    infinite, but 0 between two codes of no 1 bit at all, which are equal. The table (n_bits + 1, 2 n_bits + 1) holds
    at [|a ⊕ b|, |a| + |b|] the distance's rank, 0 for the distance 0: equal distances have equal ranks.
    """
    differing = np.arange(n_bits + 1)[:, None]
    common, odd = np.divmod(np.arange(2 * n_bits + 1) - differing, 2)  # |a| + |b| = |a ⊕ b| + 2 |a ∧ b|
    possible = (odd == 0) & (common >= 0) & (differing + common <= n_bits)
    x, y = np.broadcast_to(differing, possible.shape)[possible], common[possible]
    # Division rounds correctly, so equal fractions are equal floats; unequal ones are 1 / n_bits² apart (relatively).
    distances = np.divide(x, y, out=np.where(x == 0, 0.0, np.inf), where=y > 0)
    distinct, ranks = np.unique(distances, return_inverse=True)
    table = np.zeros(possible.shape, dtype=distance_type(len(distinct) - 1))
    table[possible] = ranks
    return table, len(distinct)


def hamming(a: ArrayLike, b: ArrayLike) -> NDArray[np.int32]:
    """Return the Hamming distances between all pairs of two sets of packed codes.

    The result holds n × m numbers; for rankings over large sets use :func:`hashlearn.evaluation.evaluate`, which
    never holds them all.

    Parameters
    ----------
    a : array-like of shape (n, n_bytes), uint8
        Packed codes.
    b : array-like of shape (m, n_bytes), uint8
        Packed codes of the same length.

    Returns
    -------
    distances : ndarray of shape (n, m), int32

    Examples
    --------
    >>> hamming(pack([[0, 0, 1]]), pack([[0, 0, 1], [1, 1, 1]]))
    array([[0, 2]], dtype=int32)
    """
    a, b = np.asarray(a), np.asarray(b)
    for name, codes in (("a", a), ("b", b)):
        if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] < 1:
            raise ValueError(f"{name} must be packed codes, uint8 (n, bytes); got {codes.dtype} {codes.shape}.")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b must have equally many bytes a code; got {a.shape[1]} and {b.shape[1]}.")
    out = np.empty((a.shape[0], b.shape[0]), dtype=np.int32)
    distances_into(code_words(a), code_words(b), out)
    return out


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name, {"bits_of": "hashlearn.codes.sign_bits", "signs_of": "hashlearn.codes.signs"})
