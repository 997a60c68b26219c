"""Names, the parameters a data set has no use for, and digits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import sklearn.datasets

from hashlearn import datasets


def test_names() -> None:
    assert datasets.names() == [
        "digits", "mnist", "cifar10", "cifar10-dh", "sift1m", "siftsmall", "sift-photos",
        "glosses", "glosses-minilm", "package-names",
    ]  # fmt: skip
    assert "stand-in, not SIFT1M" in datasets.DATASETS["sift-photos"].description


def test_an_unknown_name_suggests_the_nearest_or_lists_all() -> None:
    with pytest.raises(ValueError, match=r"no data set is named 'minst': did you mean mnist\?"):
        datasets.load("minst")
    with pytest.raises(ValueError, match=r"no data set is named 'faces': choose from digits, mnist, .*sift-photos"):
        datasets.load("faces")


def test_parameters_without_a_use_are_refused(cache, tmp_path) -> None:
    with pytest.raises(ValueError, match="source must be None for digits, which comes with scikit-learn"):
        datasets.load("digits", source=tmp_path)
    with pytest.raises(ValueError, match="split must be 0 for mnist, which has one split only; got 1"):
        datasets.load("mnist", split=1)
    with pytest.raises(ValueError, match="split must be at least 0; got -1"):
        datasets.load("cifar10-dh", split=-1)
    with pytest.raises(TypeError):
        datasets.load("cifar10-dh", split=0.5)  # type: ignore[arg-type]


def test_digits() -> None:
    dataset = datasets.load("digits")
    entry = datasets.DATASETS["digits"]
    assert dataset.train.shape == (entry.n_train, entry.n_features) == (1500, 64)
    assert dataset.queries.shape == (entry.n_queries, entry.n_features) == (297, 64)
    assert dataset.database is dataset.train
    assert dataset.train.dtype == np.uint8
    assert dataset.train.max() == 16
    assert "1500×64 uint8" in repr(dataset)

    # Every digit is in one part, with its label.
    bunch = sklearn.datasets.load_digits()
    whole = np.column_stack([bunch.data, bunch.target])
    parts = np.vstack(
        [
            np.column_stack([dataset.train, dataset.train_labels]),
            np.column_stack([dataset.queries, dataset.query_labels]),
        ]
    )
    np.testing.assert_array_equal(np.unique(parts, axis=0), np.unique(whole, axis=0))
    share = np.bincount(dataset.query_labels) / np.bincount(bunch.target)
    np.testing.assert_allclose(share, 297 / 1797, atol=1 / 170)

    again = datasets.load("digits")
    np.testing.assert_array_equal(dataset.queries, again.queries)


def test_importing_is_light() -> None:
    heavy = ["sklearn", "PIL", "scipy", "urllib.request", "hashlearn.features.gist"]
    code = f"import sys, hashlearn.datasets; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_splits_are_pinned() -> None:
    """Another generator or order would give other queries, and so other numbers."""
    labels = np.repeat(np.arange(10), 6000)
    for seed, first, total in ((0, [16, 31, 49, 97, 131], 30_058_520), (3, [8, 28, 180, 193, 232], 29_906_029)):
        query_ids, _ = datasets.deep_hashing_split(labels, seed)
        assert query_ids[:5].tolist() == first
        assert query_ids.sum() == total
    digits = datasets.load("digits")
    assert digits.query_labels[:12].tolist() == [9, 1, 2, 3, 4, 9, 0, 8, 4, 1, 7, 5]
    assert (digits.queries.astype(int) * np.arange(64)).sum() == 2_938_878
