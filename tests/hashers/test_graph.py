"""The neighbors of each sample among the others."""

import numpy as np
import pytest

from hashlearn.hashers import _graph
from hashlearn.hashers._blocks import Rows
from hashlearn.hashers._graph import neighbor_graph
from hashlearn.threads import thread_map


def graph(X, k, n_threads=None, **options):
    with thread_map(n_threads) as threads:
        return neighbor_graph(Rows(X, X.mean(axis=0), 1.0, threads, dtype=np.float32), k, threads, **options)


def brute_force(X, k):
    distances = np.square(X[:, None] - X).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((1500, 6))


def test_small_graphs_are_exact(X):
    neighbors, recall = graph(X, 7)
    assert (neighbors.dtype, recall) == (np.int32, 1.0)
    np.testing.assert_array_equal(neighbors, brute_force(X, 7))


def test_equal_samples_are_neighbors_and_nobody_is_its_own():
    X = np.repeat(np.arange(4.0)[:, None], 3, axis=0)  # four points, three times each
    neighbors, _ = graph(X, 2)
    for i, row in enumerate(neighbors):
        assert i not in row
        assert {j // 3 for j in row.tolist()} == {i // 3}


def test_threads_do_not_matter(X):
    np.testing.assert_array_equal(graph(X, 20, 1).neighbors, graph(X, 20, 3).neighbors)


def test_large_graphs_are_approximate_and_their_recall_is_measured(X, monkeypatch):
    monkeypatch.setattr(_graph, "EXACT", 1000)
    neighbors, recall = graph(X, 10)
    assert all(i not in row for i, row in enumerate(neighbors))
    truth = brute_force(X, 10)
    true_recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(truth.tolist(), neighbors.tolist(), strict=True)])
    assert 0.95 <= recall <= 1
    assert recall == pytest.approx(true_recall, abs=0.01)
    np.testing.assert_array_equal(graph(X, 10, 1).neighbors, graph(X, 10, 3).neighbors)


def test_a_low_recall_is_told_of_a_cached_graph_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    monkeypatch.setattr(_graph, "EXACT", 1000)
    monkeypatch.setattr(_graph, "_MAX_PROBES", 8)
    X = np.random.default_rng(0).standard_normal((1500, 30))
    for _ in range(2):
        with pytest.warns(UserWarning, match="training knows only .*%"):
            graph(X, 10, key="some")
    assert len(list((tmp_path / "graphs").glob("*.npy"))) == 1


@pytest.mark.parametrize("k", [20, 100])
def test_outliers_and_equal_samples_have_all_their_neighbors(k, monkeypatch):
    monkeypatch.setattr(_graph, "EXACT", 1000)
    rng = np.random.default_rng(0)
    far = 100 * rng.standard_normal((60, 2))
    equal = np.zeros((1000, 2))
    X = np.concatenate([rng.standard_normal((4000, 2)), far, equal])
    neighbors, _ = graph(X, k)
    assert neighbors.min() >= 0
    assert all(len(set(row)) == k and i not in row for i, row in enumerate(neighbors.tolist()))


def test_a_low_recall_is_reported(X, monkeypatch):
    monkeypatch.setattr(_graph, "EXACT", 1000)
    monkeypatch.setattr(_graph, "_RECALL", 1.1)
    with pytest.warns(UserWarning, match="training knows only 100%"):
        graph(X, 10)


def test_the_threads_of_faiss_are_left_as_they_were(X):
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        graph(X, 5, 1)
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)


def test_the_cache_keeps_a_graph_by_its_key(X, monkeypatch, tmp_path):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    first = graph(X, 5, key="a")
    monkeypatch.setattr(_graph, "_search", lambda *_: pytest.fail("searched again"))
    again = graph(X, 5, key="a")
    np.testing.assert_array_equal(first.neighbors, again.neighbors)
    assert (again.recall, again.neighbors.shape) == (1.0, (1500, 5))
    with pytest.raises(pytest.fail.Exception, match="searched again"):
        graph(X, 5, key="b")
    with pytest.raises(pytest.fail.Exception, match="searched again"):
        graph(X, 6, key="a")
