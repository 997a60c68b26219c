"""Packed codes as the quantized embeddings of sentence-transformers, and back.

Its precision "ubinary" is the library's own packing (:mod:`hashlearn.codes`): uint8, the most significant bit first.
"binary" is the same minus 128, int8. Hamming distances are the same in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.codes import check_codes

PRECISIONS = ("ubinary", "binary")


def check_precision(precision: str) -> str:
    """The precision, if it is one of binary embeddings."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be {' or '.join(PRECISIONS)}; got {precision!r}.")
    return precision


def check_whole_bytes(n_bits: int) -> None:
    """Refuse codes that end within a byte.

    An embedding of the kind has no length beside its bytes. And releases of sentence-transformers differ in what they
    make of such lengths: some fill each row's last byte with zeros, others let one row begin where the last one ends.
    """
    if n_bits % 8:
        raise ValueError(
            f"n_bits must be a multiple of 8 for sentence-transformers' binary embeddings, which are whole bytes; "
            f"got {n_bits}."
        )


def to_sentence_transformers(codes: ArrayLike, n_bits: int, precision: str = "ubinary") -> NDArray[Any]:
    """Packed codes (n, n_bits / 8) as "ubinary" (uint8) or "binary" (int8) embeddings of the same shape.

    A bit is 1 where sentence-transformers' ``quantize_embeddings`` of ``decision_function`` has 1, but for values that
    are exactly 0, which count as positive here and as negative there.
    """
    check_precision(precision)
    check_whole_bytes(n_bits)
    checked = check_codes(codes, n_bits)
    # Minus 128 turns the first bit over; as int8 that is the number.
    return checked.copy() if precision == "ubinary" else (checked ^ np.uint8(128)).view(np.int8)


def from_sentence_transformers(embeddings: ArrayLike) -> NDArray[np.uint8]:
    """Packed codes (n, bytes), of 8 bits a byte, of "ubinary" (uint8) or "binary" (int8) embeddings."""
    array = np.asarray(embeddings)
    if array.dtype not in (np.uint8, np.int8):
        raise ValueError(f"embeddings must be ubinary (uint8) or binary (int8); got {array.dtype}.")
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(f"embeddings must have shape (n, bytes), at least 1 byte each; got {array.shape}.")
    return array.copy() if array.dtype == np.uint8 else array.view(np.uint8) ^ np.uint8(128)
