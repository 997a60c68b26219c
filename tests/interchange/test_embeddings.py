"""Codes as sentence-transformers' quantized embeddings."""

import numpy as np
import pytest

import hashlearn
from hashlearn import codes
from hashlearn.interchange import from_sentence_transformers, to_sentence_transformers


def quantized(values, precision):
    """The rule, slowly: 8 signs a byte, the first the most significant; "binary" is 128 less."""
    out = []
    for row in values:
        signs = ["1" if value > 0 else "0" for value in row]
        numbers = [int("".join(signs[start : start + 8]), 2) for start in range(0, len(signs), 8)]
        out.append([number - 128 if precision == "binary" else number for number in numbers])
    return np.array(out, dtype=np.int8 if precision == "binary" else np.uint8)


@pytest.mark.parametrize("precision", ["ubinary", "binary"])
@pytest.mark.parametrize("n_bits", [8, 24, 128])
def test_codes_are_what_quantizing_their_values_gives(precision, n_bits):
    X = np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32)
    hasher = hashlearn.LSH(n_bits, random_state=0).fit(X)
    packed = hasher.encode(X)
    before = packed.copy()
    found = to_sentence_transformers(packed, n_bits, precision)
    expected = quantized(hasher.decision_function(X), precision)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    back = from_sentence_transformers(found)
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, packed)
    found[:] = back[:] = 0
    np.testing.assert_array_equal(packed, before)  # nothing is shared


def test_every_byte():
    packed = np.arange(256, dtype=np.uint8)[:, None]
    np.testing.assert_array_equal(to_sentence_transformers(packed, 8), packed)
    binary = to_sentence_transformers(packed, 8, "binary")
    np.testing.assert_array_equal(binary[:, 0], np.arange(-128, 128))
    np.testing.assert_array_equal(from_sentence_transformers(binary), packed)
    # A bit turned over in every code changes no distance.
    np.testing.assert_array_equal(
        codes.hamming(binary.view(np.uint8), binary.view(np.uint8)), codes.hamming(packed, packed)
    )


def test_no_rows_and_strides():
    assert to_sentence_transformers(np.empty((0, 2), dtype=np.uint8), 16, "binary").shape == (0, 2)
    assert from_sentence_transformers(np.empty((0, 2), dtype=np.int8)).shape == (0, 2)
    wide = np.random.default_rng(0).integers(-128, 128, (6, 8), dtype=np.int8)
    np.testing.assert_array_equal(from_sentence_transformers(wide[::2, ::-2]), wide[::2, ::-2].astype(int) + 128)


def test_what_does_not_fit_is_refused():
    packed = np.zeros((3, 2), dtype=np.uint8)
    for n_bits in (12, 15, 1):
        with pytest.raises(ValueError, match=f"n_bits must be a multiple of 8 .* whole bytes; got {n_bits}"):
            to_sentence_transformers(packed, n_bits)
    with pytest.raises(ValueError, match="precision must be ubinary or binary; got 'int8'"):
        to_sentence_transformers(packed, 16, "int8")
    with pytest.raises(ValueError, match=r"codes of 8 bits must have shape \(n, 1\); got \(3, 2\)"):
        to_sentence_transformers(packed, 8)
    with pytest.raises(ValueError, match="codes must be packed bytes"):
        to_sentence_transformers(packed.astype(np.int8), 16)
    with pytest.raises(ValueError, match=r"embeddings must be ubinary \(uint8\) or binary \(int8\); got float32"):
        from_sentence_transformers(packed.astype(np.float32))
    for shape in ((3,), (3, 0), (1, 2, 2)):
        with pytest.raises(ValueError, match=r"embeddings must have shape \(n, bytes\)"):
            from_sentence_transformers(np.zeros(shape, dtype=np.uint8))
