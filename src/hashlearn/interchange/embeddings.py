"""Convert packed codes to quantized embeddings of sentence-transformers, and back.

The precision "ubinary" has the same layout as packed codes (:mod:`hashlearn.codes`): uint8, most significant bit first.
"binary" is the same minus 128, int8. Hamming distances are equal in both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Bytes
from hashlearn.codes import check_codes

PRECISIONS = ("ubinary", "binary")


def check_precision(precision: str) -> str:
    """Check that the precision is one of ``PRECISIONS``."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be {' or '.join(PRECISIONS)}; got {precision!r}.")
    return precision


def check_whole_bytes(n_bits: int) -> None:
    """Reject codes whose length is not a multiple of 8.

    The length of a binary embedding is its number of bytes. Releases of sentence-transformers differ in how they pack
    other lengths: some pad the last byte of each row with zeros, others start the next row in the same byte.
    """
    if n_bits % 8:
        raise ValueError(
            f"n_bits must be a multiple of 8 for sentence-transformers' binary embeddings, which are whole bytes; "
            f"got {n_bits}."
        )


def to_sentence_transformers(codes: ArrayLike, n_bits: int, precision: str = "ubinary") -> Array:
    """Convert packed codes to binary embeddings.

    The bits equal those of sentence-transformers' ``quantize_embeddings`` of ``decision_function``, except for values
    that are exactly 0: they count as positive in hashlearn and as negative in sentence-transformers.

    Parameters
    ----------
    codes : array-like of shape (n, n_bits / 8), uint8
        Packed codes.
    n_bits : int
        Length of the codes, a multiple of 8.
    precision : {"ubinary", "binary"}
        The kind of embeddings, uint8 or int8.

    Returns
    -------
    embeddings : ndarray of shape (n, n_bits / 8), uint8 or int8

    Examples
    --------
    >>> import numpy as np
    >>> to_sentence_transformers(np.array([[0, 255]], dtype=np.uint8), 16, "binary")
    array([[-128,  127]], dtype=int8)
    """
    check_precision(precision)
    check_whole_bytes(n_bits)
    checked = check_codes(codes, n_bits)
    # Flipping the first bit and reading the byte as int8 subtracts 128.
    return checked.copy() if precision == "ubinary" else (checked ^ np.uint8(128)).view(np.int8)


def from_sentence_transformers(embeddings: ArrayLike) -> Bytes:
    """Convert binary embeddings to packed codes, the inverse of :func:`to_sentence_transformers`.

    Parameters
    ----------
    embeddings : array-like of shape (n, n_bytes), uint8 or int8
        Of the precision "ubinary" (uint8) or "binary" (int8).

    Returns
    -------
    codes : ndarray of shape (n, n_bytes), uint8
        Packed codes of 8 * n_bytes bits.

    Examples
    --------
    >>> import numpy as np
    >>> from_sentence_transformers(np.array([[-128, 127]], dtype=np.int8))
    array([[  0, 255]], dtype=uint8)
    """
    array = np.asarray(embeddings)
    if array.dtype not in (np.uint8, np.int8):
        raise ValueError(f"embeddings must be ubinary (uint8) or binary (int8); got {array.dtype}.")
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(f"embeddings must have shape (n, bytes), at least 1 byte each; got {array.shape}.")
    return array.copy() if array.dtype == np.uint8 else array.view(np.uint8) ^ np.uint8(128)
