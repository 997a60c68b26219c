"""Pipelines that end with a hasher."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import hashlearn


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((60, 8))


def test_a_pipeline_encodes_what_its_steps_make(X):
    pipe = hashlearn.make_pipeline(StandardScaler(), hashlearn.ITQ(n_bits=8, random_state=0)).fit(X)
    assert list(pipe.named_steps) == ["standardscaler", "itq"]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    alone = hashlearn.ITQ(n_bits=8, random_state=0).fit(scaled)
    np.testing.assert_array_equal(pipe.encode(X), alone.encode(scaled))


def test_a_hasher_alone_is_a_pipeline(X):
    pipe = hashlearn.make_pipeline(hashlearn.LSH(n_bits=8, random_state=0)).fit(X)
    np.testing.assert_array_equal(pipe.encode(X[:0]), pipe[-1].encode(X[:0]))
    np.testing.assert_array_equal(pipe.encode(X), pipe[-1].encode(X))


def test_a_pipeline_without_a_hasher_says_so(X):
    pipe = hashlearn.make_pipeline(StandardScaler()).fit(X)
    with pytest.raises(TypeError, match="must be a hasher; got StandardScaler"):
        pipe.encode(X)
