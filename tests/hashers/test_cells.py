"""Cells: k-means, links, and codes of cells."""

import itertools

import numpy as np
import pytest
from sklearn.cluster import KMeans

from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._cells import assign_codes, cell_links, hamming_distances, k_means
from hashlearn.threads import thread_map


def test_k_means_ends_where_lloyd_does():
    X = np.random.default_rng(0).standard_normal((300, 4))
    with thread_map() as threads:
        centers, cells = k_means(Rows(X, np.zeros(4), 1.0, threads), 8, np.random.default_rng(1))
        start = X[np.sort(np.random.default_rng(1).choice(300, 8, replace=False))]
    expected = KMeans(8, init=start, n_init=1, max_iter=25, tol=0, algorithm="lloyd").fit(X)
    np.testing.assert_allclose(centers, expected.cluster_centers_, atol=1e-12)
    np.testing.assert_array_equal(cells, expected.labels_)


def test_fewer_samples_than_cells():
    X = np.random.default_rng(0).standard_normal((5, 3))
    with thread_map() as threads:
        centers, cells = k_means(Rows(X, np.zeros(3), 1.0, threads), 16, np.random.default_rng(1))
    assert np.isfinite(centers).all()
    assert len(cells) == 5


def test_links_count_pairs_of_neighbors_in_two_cells():
    cells = np.array([0, 0, 1, 2])
    neighbors = np.array([[1, 2], [0, 3], [0, 3], [2, 1]])
    links = cell_links(cells, neighbors, 4)
    expected = np.zeros((4, 4))
    for i, row in enumerate(neighbors):
        for j in row:
            if cells[i] != cells[j]:
                expected[cells[i], cells[j]] += 1
                expected[cells[j], cells[i]] += 1
    np.testing.assert_array_equal(links, expected)


def cost(links, codes, b):
    return float((links * hamming_distances(b)[np.ix_(codes, codes)]).sum())


def test_a_ring_of_four_cells_gets_the_best_codes():
    links = np.zeros((4, 4))
    for i in range(4):
        links[i, (i + 1) % 4] = links[(i + 1) % 4, i] = 1
    best = min(cost(links, np.array(codes), 2) for codes in itertools.permutations(range(4)))
    assert best == 8  # each of the four links is one bit, counted twice
    assert cost(links, assign_codes(links, 2, np.random.default_rng(0)), 2) == best


@pytest.mark.parametrize("b", [1, 3, 5])
def test_no_swap_of_two_codes_helps(b):
    rng = np.random.default_rng(b)
    links = rng.integers(0, 50, (1 << b, 1 << b)).astype(float)
    links += links.T
    np.fill_diagonal(links, 0)
    codes = assign_codes(links, b, rng)
    assert sorted(codes.tolist()) == list(range(1 << b))
    reached = cost(links, codes, b)
    for i, j in itertools.combinations(range(1 << b), 2):
        swapped = codes.copy()
        swapped[[i, j]] = swapped[[j, i]]
        assert cost(links, swapped, b) >= reached
    assert reached <= np.mean([cost(links, rng.permutation(1 << b), b) for _ in range(20)])
