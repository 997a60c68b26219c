"""The ground truth as an object."""

import numpy as np
import pytest

from hashlearn.evaluation import Truth


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
