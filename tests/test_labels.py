"""Labels: any hashable kind, one for each item, none missing."""

import datetime

import numpy as np
import pandas
import pytest

from hashlearn.labels import class_numbers, label_list

DAY = datetime.date(2020, 1, 1)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([3, 1, 3], [1, 3]),
        (np.array([3, 1, 3], dtype=np.uint8), [1, 3]),
        (("b", "a", "b"), ["a", "b"]),
        (np.array(["b", "a", "b"]), ["a", "b"]),
        ([True, False, True], [False, True]),
        ([0.5, np.inf, 0.5], [0.5, np.inf]),
        ([1, "1", 1], [1, "1"]),
        ([(1, 2), (1,), (1, 2)], [(1,), (1, 2)]),
        ([frozenset({1}), frozenset({2}), frozenset({1})], [frozenset({1}), frozenset({2})]),
        ([int, str, int], [int, str]),
        ([2**63 + 1, -1, 2**63 + 1], [-1, 2**63 + 1]),
        (pandas.Series(["y", "x", "y"], dtype="string"), ["x", "y"]),
        (pandas.Series(["y", "x", "y"], dtype="category"), ["x", "y"]),
        (pandas.Series([2, 1, 2], dtype="Int64"), [1, 2]),
        (np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="M8[D]"), [DAY, datetime.date(2020, 1, 2)]),
        (np.ma.array([5, 4, 5]), [4, 5]),
    ],
)
def test_classes(labels, classes):
    found, numbers = class_numbers(label_list(labels, "y"))
    assert found.tolist() == classes
    assert len(found) == 2
    assert numbers[0] == numbers[2] != numbers[1]
    assert [found[i] == label for i, label in zip(numbers, label_list(labels, "y"), strict=True)] == [True] * 3


@pytest.mark.parametrize(
    "labels",
    [
        ["a", None],
        ["a", float("nan")],
        [1.0, np.nan],
        np.array([1.0, np.nan]),
        np.array([1, np.nan], dtype=complex),
        np.array(["a", None], dtype=object),
        np.array(["2020-01-01", "NaT"], dtype="M8[ns]"),
        np.ma.array([1, 2], mask=[False, True]),
        pandas.Series(["a", None], dtype="string"),
        pandas.Series([1, None], dtype="Int64"),
        pandas.Series(pandas.to_datetime(["2020-01-01", None])),
        [pandas.Timestamp("2020-01-01"), pandas.NaT],
    ],
    ids=repr,
)
def test_missing_labels_are_refused(labels):
    with pytest.raises(ValueError, match="y must have a label for every item; item 1 has none"):
        label_list(labels, "y")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([[1], [2, 3]], r"item 0 is \[1\] \(several labels per item are not supported\)"),
        ([1, {2, 3}], r"item 1 is {2, 3} \(several"),
        (np.array([[1], [2, 3]], dtype=object), r"item 0 is \[1\]"),
        (np.eye(3), r"got shape \(3, 3\); several labels per item are not supported"),
        (np.ones((3, 1)), r"one label per item \(1 dimension\); got shape \(3, 1\)\."),
        (3, "y must be a list of labels, one per item; got 3"),
        ("abc", "y must be a list of labels, one per item; got 'abc'"),
        (b"abc", "y must be a list of labels, one per item; got b'abc'"),
        ({1, 2}, "y must be a list of labels, one per item; got {1, 2}"),
        ({1: 2}, "y must be a list of labels, one per item; got {1: 2}"),
        (pandas.DataFrame({"a": [1, 2], "b": [3, 4]}), r"got shape \(2, 2\); several"),
    ],
)
def test_what_is_not_one_label_an_item_is_refused(labels, words):
    with pytest.raises(ValueError, match=words):
        label_list(labels, "y")
