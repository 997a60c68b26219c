"""The genuine MNIST and CIFAR-10, from the user's cache or fetched; skipped where they are not available."""

from __future__ import annotations

import numpy as np
import pytest

from hashlearn import datasets
from hashlearn.errors import ChecksumError, DatasetError

pytestmark = pytest.mark.data


def have(function) -> datasets.ImageSet:
    try:
        return function()
    except ChecksumError:
        raise  # wrong bytes are a failure, not an absence
    except DatasetError as error:
        return pytest.skip(" | ".join(str(error).splitlines()))


@pytest.fixture(scope="module")
def mnist() -> datasets.ImageSet:
    return have(datasets.mnist_images)


@pytest.fixture(scope="module")
def cifar() -> datasets.ImageSet:
    return have(datasets.cifar10_images)


def test_mnist(mnist: datasets.ImageSet) -> None:
    assert mnist.train_images.shape == (60_000, 28, 28)
    assert mnist.test_images.shape == (10_000, 28, 28)
    assert mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.train_labels).tolist() == counts
    assert mnist.train_images.mean() / 255 == pytest.approx(0.1307, abs=1e-4)


def test_load_mnist(mnist: datasets.ImageSet) -> None:
    dataset = datasets.load("mnist")
    entry = datasets.DATASETS["mnist"]
    assert dataset.train.shape == (entry.n_train, entry.n_features)
    assert dataset.queries.shape == (entry.n_queries, entry.n_features)
    assert dataset.database is dataset.train
    np.testing.assert_array_equal(dataset.train[7], mnist.train_images[7].ravel())


def test_cifar10(cifar: datasets.ImageSet) -> None:
    assert cifar.train_images.shape == (50_000, 32, 32, 3)
    assert cifar.test_images.shape == (10_000, 32, 32, 3)
    assert np.bincount(cifar.train_labels).tolist() == [5_000] * 10
    assert np.bincount(cifar.test_labels).tolist() == [1_000] * 10
    assert [cifar.class_names[label] for label in cifar.train_labels[:3]] == ["frog", "truck", "truck"]
    means = cifar.train_images.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.49140, 0.48216, 0.44653], atol=5e-6)


def test_cifar10_splits(cifar: datasets.ImageSet) -> None:
    labels = np.concatenate([cifar.train_labels, cifar.test_labels])
    query_ids, database_ids = datasets.deep_hashing_split(labels, 0)
    entry = datasets.DATASETS["cifar10-dh"]
    assert (len(query_ids), len(database_ids)) == (entry.n_queries, entry.n_database)
    assert np.bincount(labels[query_ids]).tolist() == [100] * 10
