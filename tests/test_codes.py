import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hashlearn import codes

bit_arrays = arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 140)), elements=st.integers(0, 1))


def test_sign_of_zero_is_plus_one():
    H = np.array([[0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, 3.0, -2.0]])
    assert codes.signs(H).tolist() == [[1, 1, 1, -1, 1, -1, 1, -1]]
    assert codes.sign_bits(H).tolist() == [[1, 1, 1, 0, 1, 0, 1, 0]]
    assert codes.signs(H).dtype == np.int8
    assert codes.sign_bits(H).dtype == np.uint8


def test_pack_by_hand():
    # 1000 0000 | 01.. .... : most significant bit first, padding zero
    bits = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]])
    assert codes.pack(bits).tolist() == [[128, 64]]
    assert codes.pack(2 * bits - 1).tolist() == [[128, 64]]
    assert codes.unpack(np.array([[128, 64]], dtype=np.uint8), 10).tolist() == bits.tolist()


@given(bit_arrays)
def test_round_trip_of_bits_signs_and_booleans(bits):
    packed = codes.pack(bits)
    assert packed.shape == (bits.shape[0], codes.n_bytes(bits.shape[1]))
    for form in (bits.astype(bool), 2.0 * bits - 1, bits.astype(np.int64), 2 * bits.astype(np.int8) - 1):
        np.testing.assert_array_equal(codes.pack(form), packed)
    np.testing.assert_array_equal(codes.unpack(packed, bits.shape[1]), bits)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[0.5, 1.0]], "the value 0.5"),
        ([[0, -1, 1]], "both 0 and -1"),
        ([[2, 1]], "the value 2"),
        ([[np.nan, 1]], "the value nan"),
        ([1, 0], "2 dimensions"),
        (np.zeros((3, 0)), "at least 1 bit"),
    ],
)
def test_pack_refuses(values, words):
    with pytest.raises(ValueError, match=words):
        codes.pack(values)


@given(st.integers(1, 70), st.data())
def test_stray_padding_bits_are_refused(n_bits, data):
    width = codes.n_bytes(n_bits)
    packed = np.zeros((3, width), dtype=np.uint8)
    padding = 8 * width - n_bits
    if padding == 0:
        packed[:] = 255
        assert codes.unpack(packed, n_bits).all()
        return
    packed[1, -1] = 1 << data.draw(st.integers(0, padding - 1))
    with pytest.raises(ValueError, match="row 1"):
        codes.unpack(packed, n_bits)


@pytest.mark.parametrize(
    ("array", "n_bits", "words"),
    [
        (np.zeros((2, 2), dtype=np.int64), 16, "uint8"),
        (np.zeros((2, 2), dtype=np.uint8), 17, r"\(n, 3\)"),
        (np.zeros(2, dtype=np.uint8), 16, r"\(n, 2\)"),
        (np.zeros((2, 2), dtype=np.uint8), 0, "n_bits must be at least 1"),
    ],
)
def test_unpack_refuses(array, n_bits, words):
    with pytest.raises(ValueError, match=words):
        codes.unpack(array, n_bits)


def test_hamming_by_hand():
    a = np.array([[0b00001111], [0b00000000]], dtype=np.uint8)
    b = np.array([[0b00001110], [0b11111111], [0b00001111]], dtype=np.uint8)
    distances = codes.hamming(a, b)
    assert distances.tolist() == [[1, 4, 0], [3, 8, 4]]
    assert distances.dtype == np.int32


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_hamming_equals_counting_unequal_bits(n_bits, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, (5, n_bits)), rng.integers(0, 2, (9, n_bits))
    expected = (a[:, None] != b[None]).sum(axis=2)
    np.testing.assert_array_equal(codes.hamming(codes.pack(a), codes.pack(b)), expected)


@pytest.mark.parametrize(("n", "m", "width"), [(3, 150_000, 8), (300, 700, 32), (2, 70_000, 3), (1, 1, 1)])
def test_hamming_in_blocks(n, m, width):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (n, width), dtype=np.uint8)
    b = rng.integers(0, 256, (m, width), dtype=np.uint8)
    distances = codes.hamming(a, b)
    rows, columns = rng.integers(0, n, 500), rng.integers(0, m, 500)
    expected = np.unpackbits(a[rows] ^ b[columns], axis=1).sum(axis=1)
    np.testing.assert_array_equal(distances[rows, columns], expected)


def test_hamming_of_nothing_is_empty():
    some, none = np.zeros((2, 3), dtype=np.uint8), np.zeros((0, 3), dtype=np.uint8)
    assert codes.hamming(some, none).shape == (2, 0)
    assert codes.hamming(none, some).shape == (0, 2)


def test_n_bits_may_be_a_numpy_integer():
    assert codes.n_bytes(np.uint8(255)) == 32
    assert codes.unpack(np.full((1, 1), 255, dtype=np.uint8), np.uint8(8)).all()
    with pytest.raises(TypeError):
        codes.n_bytes(2.5)


def test_distances_of_255_and_more_bits_do_not_overflow():
    for n_bits in (255, 256, 257, 1024):
        zeros, ones = np.zeros((1, n_bits)), np.ones((1, n_bits))
        assert codes.hamming(codes.pack(zeros), codes.pack(ones)).item() == n_bits
        assert np.iinfo(codes.distance_type(n_bits)).max >= n_bits


@given(array_shapes(min_dims=1, max_dims=3))
def test_hamming_refuses_what_is_not_packed(shape):
    good = np.zeros((2, 4), dtype=np.uint8)
    if len(shape) != 2:
        with pytest.raises(ValueError, match="packed codes"):
            codes.hamming(np.zeros(shape, dtype=np.uint8), good)
    elif shape[1] != 4:
        with pytest.raises(ValueError, match="equally many bytes"):
            codes.hamming(np.zeros(shape, dtype=np.uint8), good)
    with pytest.raises(ValueError, match="b must be packed"):
        codes.hamming(good, np.zeros((2, 4)))
