"""Exact nearest neighbors, beside brute force in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashlearn.evaluation import METRICS, euclidean_neighbors, nearest_neighbors, neighbors


def brute_force(queries, database, k):
    queries, database = np.asarray(queries, dtype=np.float64), np.asarray(database, dtype=np.float64)
    d = ((queries[:, None, :] - database[None]) ** 2).sum(axis=2)
    return np.argsort(d, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int16])
@pytest.mark.parametrize("k", [1, 10, 200])
def test_neighbors_equal_brute_force(dtype, k):
    rng = np.random.default_rng(0)
    database = (20 * rng.standard_normal((200, 12)) + 100).astype(dtype)
    queries = (20 * rng.standard_normal((30, 12)) + 100).astype(dtype)
    ids = euclidean_neighbors(queries, database, k)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, brute_force(queries, database, k))


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_ties_are_ordered_by_id_even_where_most_vectors_are_equal(seed, k):
    rng = np.random.default_rng(seed)
    database = rng.integers(0, 2, (300, 3))
    queries = rng.integers(0, 2, (4, 3)) + 0.5 * rng.integers(0, 2)  # whole numbers and not
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, k), brute_force(queries, database, k))


def test_differences_that_float32_can_not_see_are_seen():
    """A million away from the origin, neighbors differ in the 8th digit: float32 alone would shuffle them."""
    rng = np.random.default_rng(0)
    database = 1e6 + rng.standard_normal((500, 4))
    database[::7] += 1e4  # so that taking the mean off is not enough
    queries = 1e6 + rng.standard_normal((20, 4))
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, 15), brute_force(queries, database, 15))


def test_unsigned_bytes_whose_squares_float32_does_not_hold():
    """400-D bytes: not the shortcut for small whole numbers, and 1 − 2 must not become 255."""
    rng = np.random.default_rng(0)
    database, queries = (
        rng.integers(0, 256, (500, 400), dtype=np.uint8),
        rng.integers(0, 256, (20, 400), dtype=np.uint8),
    )
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, 30), brute_force(queries, database, 30))


def shells(rng, spread):
    """Queries in the middle of a thin shell far from the data's mean: float32 can't tell its points apart."""
    directions = rng.standard_normal((2000, 8))
    directions *= (1 + spread * rng.random((2000, 1))) / np.linalg.norm(directions, axis=1, keepdims=True)
    away = np.full(8, 30 / np.sqrt(8))
    return away + 1e-9 * rng.standard_normal((25, 8)), np.vstack([directions + away, -directions - away])


def test_rounding_that_would_hide_neighbors_is_noticed():
    queries, database = shells(np.random.default_rng(0), 1e-6)
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, 10), brute_force(queries, database, 10))


@pytest.mark.parametrize("scale", [2.0**-70, 2.0**-30, 2.0**60])
def test_the_scale_of_the_data_does_not_matter(scale):
    queries, database = shells(np.random.default_rng(1), 1e-2)
    expected = brute_force(queries, database, 10)
    np.testing.assert_array_equal(euclidean_neighbors(queries * scale, database * scale, 10), expected)


def test_one_remote_vector_does_not_make_every_query_doubtful(monkeypatch):
    rng = np.random.default_rng(0)
    database, queries = rng.standard_normal((3000, 16)), rng.standard_normal((50, 16))
    database[7] *= 1e4
    widths = []
    import faiss

    class Watched(faiss.IndexFlatL2):
        def search(self, x, k):
            widths.append((len(x), k))
            return super().search(x, k)

    monkeypatch.setattr(faiss, "IndexFlatL2", Watched)
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, 5), brute_force(queries, database, 5))
    assert widths == [(50, 37)]  # one round


def test_whole_numbers_in_the_database_alone_are_no_shortcut():
    """Just beyond the middle between 0 and 1: float32 would see a tie there, and take the lower id."""
    database, queries = np.array([[0.0], [1.0]]), np.array([[0.5 + 1e-9], [0.5 - 1e-9], [0.5]])
    assert euclidean_neighbors(queries, database, 1).tolist() == [[1], [0], [0]]


def test_more_queries_than_a_block():
    rng = np.random.default_rng(0)
    database, queries = rng.random((60, 3)), rng.random((3000, 3))
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, 4), brute_force(queries, database, 4))


def test_numpy_integers_count_as_k():
    rng = np.random.default_rng(0)
    database, queries = rng.random((50, 3)), rng.random((5, 3))
    expected = euclidean_neighbors(queries, database, 4)
    np.testing.assert_array_equal(euclidean_neighbors(queries, database, np.int64(4)), expected)


def test_neighbors_are_cached_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    rng = np.random.default_rng(0)
    database, queries = rng.random((50, 3)), rng.random((5, 3))
    first = euclidean_neighbors(queries, database, 4, cache=True)
    assert len(list(tmp_path.rglob("*.npy"))) == 1
    monkeypatch.setattr(neighbors, "_merged", None)  # a second computation would fail
    np.testing.assert_array_equal(euclidean_neighbors(queries.copy(), database.copy(), 4, cache=True), first)
    for changed in ((queries + 1, database, 4), (queries, database + 1, 4), (queries, database, 3)):
        with pytest.raises(TypeError):
            euclidean_neighbors(*changed, cache=True)


@pytest.mark.parametrize(
    ("queries", "database", "k", "words"),
    [
        (np.zeros((2, 3)), np.zeros((4, 2)), 1, "same number of features; got 3 and 2"),
        (np.zeros((2, 3)), np.zeros((4, 3)), 5, "k must be between 1 and 4"),
        (np.zeros((2, 3)), np.zeros((4, 3)), 0, "k must be between 1 and 4"),
        (np.zeros(3), np.zeros((4, 3)), 1, "queries must be numbers"),
        (np.zeros((2, 3)), np.array([["a"]]), 1, "database must be numbers"),
        (np.zeros((2, 3)), np.full((4, 3), np.nan), 1, "database must be finite"),
        (np.zeros((2, 3)), np.full((4, 3), 1e200) * [[1], [2], [3], [4]], 1, "values below 1e150"),
        (np.array([[1e30, 0, 0]]), np.eye(3), 1, "queries must be finite, with no vector 1e18 times"),
        (np.zeros((2, 1), dtype=int), np.array([[2**60]]), 1, r"up to 2\^53"),
        (np.zeros((2, 3)), np.zeros((4, 3)), 1.0, "k must be a whole number; got 1.0"),
        (np.full((2, 3), np.inf), np.zeros((4, 3)), 1, "queries must be finite"),
    ],
)
def test_bad_input_is_refused(queries, database, k, words):
    with pytest.raises(ValueError, match=words):
        euclidean_neighbors(queries, database, k)


def brute_products(queries, database, k, cosine):
    Q, X = np.asarray(queries, dtype=np.float64), np.asarray(database, dtype=np.float64)
    S = (Q[:, None] * X[None]).sum(axis=2)
    return np.argsort(-S / (np.linalg.norm(X, axis=1) if cosine else 1), axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("k", [1, 10, 200])
def test_largest_products_equal_brute_force(metric, dtype, k):
    rng = np.random.default_rng(0)
    database = (20 * rng.standard_normal((200, 12)) + 100).astype(dtype)
    queries = (20 * rng.standard_normal((30, 12)) + 100).astype(dtype)
    ids = nearest_neighbors(queries, database, k, metric=metric)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, brute_products(queries, database, k, metric == "cosine"))


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e60])
def test_rounding_in_float32_does_not_hide_large_products(metric, scale):
    """All vectors are nearly the same: float32 sees ties where float64 sees an order."""
    rng = np.random.default_rng(0)
    database = scale * (1 + 1e-8 * rng.standard_normal((2000, 8)))
    queries = 1 / scale * (1 + rng.standard_normal((10, 8)))
    ids = nearest_neighbors(queries, database, 5, metric=metric)
    np.testing.assert_array_equal(ids, brute_products(queries, database, 5, metric == "cosine"))


def test_ties_of_products_are_ordered_by_id():
    rng = np.random.default_rng(0)
    database, queries = rng.integers(-1, 2, (300, 3)), rng.integers(-2, 3, (20, 3))
    ids = nearest_neighbors(queries, database, 40, metric="inner_product")
    # Not by products with the unit vector, which rounding could order otherwise.
    np.testing.assert_array_equal(ids, brute_products(queries, database, 40, cosine=False))
    equal = np.repeat(rng.standard_normal((3, 5)), 50, axis=0)
    ids = nearest_neighbors(equal[:1], equal, 50, metric="cosine")
    assert ids.tolist() == [list(range(50))]


def test_a_query_of_zeros_ties_with_everything():
    assert nearest_neighbors([[0.0, 0.0]], [[1.0, 0], [2, 0], [0, 0]], 2, metric="inner_product").tolist() == [[0, 1]]


def test_the_cosine_with_zeros_is_0():
    database = np.array([[-1.0, 0], [0, 0], [1, 1], [0, -2]])
    assert nearest_neighbors([[1.0, 0], [0, 0]], database, 4, metric="cosine").tolist() == [[2, 1, 3, 0], [0, 1, 2, 3]]


def test_metrics_are_cached_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    rng = np.random.default_rng(0)
    database, queries = rng.standard_normal((50, 3)), rng.standard_normal((5, 3))
    results = [nearest_neighbors(queries, database, 9, metric=m, cache=True).tolist() for m in METRICS]
    assert len(list(tmp_path.rglob("*.npy"))) == 3
    assert results == [nearest_neighbors(queries, database, 9, metric=m).tolist() for m in METRICS]
    assert results[0] != results[1] != results[2]


@pytest.mark.parametrize(
    ("queries", "database", "metric", "words"),
    [
        (
            np.ones((1, 2)),
            np.ones((3, 2)),
            "dot",
            "metric must be one of 'euclidean', 'cosine', 'inner_product'; got 'dot'",
        ),
        (np.ones((1, 2)), np.full((3, 2), np.nan), "cosine", "database must be finite, .*; row 0 is not"),
        (np.full((1, 2), np.inf), np.ones((3, 2)), "inner_product", "queries must be finite, .*; row 0 is not"),
    ],
)
def test_vectors_without_a_product_are_refused(queries, database, metric, words):
    with pytest.raises(ValueError, match=words):
        nearest_neighbors(queries, database, 1, metric=metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_blocks_of_the_database_do_not_matter(metric, dtype, monkeypatch, tmp_path):
    """Also not those of a memory map, nor if each has lengths of its own."""
    rng = np.random.default_rng(0)
    database = (np.linspace(1, 50, 500)[:, None] * rng.random((500, 6)) + 1).astype(dtype)
    queries = (100 * rng.random((30, 6)) + 1).astype(dtype)
    expected = nearest_neighbors(queries, database, 20, metric=metric)
    np.save(tmp_path / "x.npy", database)
    for size in (64, 700):
        monkeypatch.setattr(neighbors, "_BLOCK_VALUES", size)
        for vectors in (database, np.load(tmp_path / "x.npy", mmap_mode="r")):
            np.testing.assert_array_equal(nearest_neighbors(queries, vectors, 20, metric=metric), expected)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("size", [10, 1 << 26])
def test_some_rows_of_the_database(metric, size, monkeypatch):
    monkeypatch.setattr(neighbors, "_BLOCK_VALUES", size)
    rng = np.random.default_rng(0)
    database, queries = rng.standard_normal((300, 5)), rng.standard_normal((20, 5))
    rows = np.sort(rng.permutation(300)[:120])
    expected = rows[nearest_neighbors(queries, database[rows], 7, metric=metric)]
    found = nearest_neighbors(queries, database, 7, metric=metric, rows=rows)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int32
    database[rows[-1]] = np.nan
    if metric != "euclidean":
        with pytest.raises(ValueError, match=f"row {rows[-1]} is not"):
            nearest_neighbors(queries, database, 7, metric=metric, rows=rows)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 0], "rows must be distinct, ascending, and from 0 to 3"),
        ([2, 1], "ascending"),
        ([0, 4], "from 0 to 3"),
        ([-1], "from 0"),
        ([0.5], "rows must be whole numbers"),
        ([], "rows must be whole numbers, one dimension, not empty"),
        ([1], "k must be between 1 and 1"),
    ],
)
def test_bad_rows_are_refused(rows, words):
    with pytest.raises(ValueError, match=words):
        nearest_neighbors(np.ones((1, 2)), np.ones((4, 2)), 2, rows=rows)
