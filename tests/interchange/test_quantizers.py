"""FAISS's product quantizers: the order of items is that of FAISS's own index."""

import faiss
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from hashlearn.interchange.quantizers import ProductQuantizer


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)


@pytest.mark.parametrize("rotate", [False, True])
def test_items_are_ranked_as_by_faiss(vectors, rotate):
    quantizer = ProductQuantizer(32, rotate=rotate, random_state=1).fit(vectors)
    codes = quantizer.encode(vectors)
    assert codes.shape == (3000, 4)
    queries = vectors[:20] + 0.1
    found = quantizer.search(queries, codes, 5)
    quantizer.index_.add(vectors)
    squares, ids = quantizer.index_.search(queries, 5)
    assert (found.ids == ids).mean() > 0.97  # but for ties and rounding
    expected = (np.sum(queries**2, axis=1)[:, None] - squares) / 2
    np.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-4)


def test_a_seed_decides_the_codes(vectors):
    codes = [ProductQuantizer(16, random_state=seed).fit(vectors).encode(vectors[:50]) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[0] != codes[2]).any()


@pytest.mark.parametrize("n_bits", [12, 24, 0])
def test_parts_must_be_equal(vectors, n_bits):
    with pytest.raises(ValueError, match="n_bits must be a multiple of 8, and the 16 features of n_bits / 8; got"):
        ProductQuantizer(n_bits).fit(vectors)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones((100, 16)), "X must have at least 256 samples, the codes of a subspace; got 100"),
        (np.full((300, 16), np.nan), "NaN"),
        (np.ones(300), "Expected 2D array"),
    ],
)
def test_samples_that_can_not_be_learned_from(X, words):
    with pytest.raises(ValueError, match=words):
        ProductQuantizer(16).fit(X)


def test_bad_input_of_encode_and_search(vectors):
    with pytest.raises(ValueError, match="n_bits must be"):
        ProductQuantizer(16.0).fit(vectors)
    with pytest.raises(NotFittedError):
        ProductQuantizer(16).encode(vectors)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        quantizer = ProductQuantizer(16).fit(vectors.tolist())
        assert faiss.omp_get_max_threads() == 1  # fit leaves it as it was
    finally:
        faiss.omp_set_num_threads(threads)
    codes = quantizer.encode(vectors)
    with pytest.raises(ValueError, match="X must have 16 features, as in fit; got 15"):
        quantizer.encode(vectors[:, 1:])
    with pytest.raises(ValueError, match="X must have 16 features, as in fit; got 15"):
        quantizer.search(vectors[:, 1:], codes, 3)
    with pytest.raises(ValueError, match="Expected 2D array"):
        quantizer.search(vectors[0], codes, 3)
    with pytest.raises(ValueError, match="codes"):
        quantizer.search(vectors[:2], codes[:, :1], 3)
