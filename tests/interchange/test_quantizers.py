"""FAISS's product quantizers: the order of items is that of FAISS's own index."""

import numpy as np
import pytest

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
