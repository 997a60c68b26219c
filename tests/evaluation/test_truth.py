import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashlearn.evaluation import Truth, euclidean_neighbors


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
    monkeypatch.setattr("hashlearn.evaluation.truth._exact_neighbors", None)  # a second computation would fail
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


def test_truth_by_labels_of_any_hashable_kind():
    truth = Truth.labels(["cat", ("a", 1), 7], [7, "cat", "dog", "cat", ("a", 1)])
    assert [truth.relevant(q).tolist() for q in range(3)] == [[1, 3], [4], [0]]
    assert (truth.n_queries, truth.n_database) == (3, 5)
    assert "4 classes" in truth.description


@pytest.mark.parametrize(
    ("query_labels", "database_labels", "words"),
    [
        ([1, None], [1], "item 1 has none"),
        ([1], np.array([1.0, np.nan]), "database_labels must have a label for every item; item 1"),
        ([], [1], "query_labels must not be empty"),
        (np.zeros((2, 3)), [1], "one label per item"),
        ([[1, 2]], [1], r"one hashable label per item; item 0 is \[1, 2\]"),
    ],
)
def test_bad_labels_are_refused(query_labels, database_labels, words):
    with pytest.raises(ValueError, match=words):
        Truth.labels(query_labels, database_labels)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([[0, 1], [2, 2]], "query 1 repeats one"),
        ([[-2, 1]], "at least 0, or -1 for none; got -2"),
        ([[0.5]], "whole numbers"),
        ([1, 2], "whole numbers"),
        (np.zeros((0, 3), dtype=int), "at least one query"),
    ],
)
def test_bad_ids_are_refused(ids, words):
    with pytest.raises(ValueError, match=words):
        Truth.neighbors(ids)


def test_truth_can_be_pickled_and_knows_the_size_of_its_database():
    import pickle

    for truth in (Truth.neighbors([[1, -1], [0, 2]], n_database=3), Truth.labels([1, 2], [2, 2, 1])):
        again = pickle.loads(pickle.dumps(truth))
        assert [again.relevant(q).tolist() for q in (0, 1)] == [truth.relevant(q).tolist() for q in (0, 1)]
        assert again.n_database == 3
    with pytest.raises(ValueError, match="below n_database, 2; got 2"):
        Truth.neighbors([[0, 2]], n_database=2)


def test_missing_neighbors_are_left_out():
    truth = Truth.neighbors([[3, -1, 5], [-1, -1, -1]])
    assert truth.relevant(0).tolist() == [3, 5]
    assert truth.relevant(1).tolist() == []
    assert truth.min_database == 6
