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


def test_a_pipeline_needs_a_hasher_at_its_end(X):
    with pytest.raises(TypeError, match="must be a hasher; got StandardScaler"):
        hashlearn.make_pipeline(hashlearn.LSH(), StandardScaler())
    pipe = hashlearn.HashingPipeline([("scaler", StandardScaler())]).fit(X)
    with pytest.raises(TypeError, match="must be a hasher; got StandardScaler"):
        pipe.encode(X)


def test_options_are_those_of_scikit_learn(X, tmp_path):
    pipe = hashlearn.make_pipeline(StandardScaler(), hashlearn.LSH(), memory=str(tmp_path), verbose=True)
    assert (pipe.memory, pipe.verbose) == (str(tmp_path), True)
    with pytest.raises(TypeError, match="verbos"):
        hashlearn.make_pipeline(hashlearn.LSH(), verbos=True)


def test_a_hasher_alone_is_saved_and_other_steps_are_refused(X, tmp_path):
    alone = hashlearn.make_pipeline(hashlearn.LSH(n_bits=8, random_state=0)).fit(X)
    alone.save(tmp_path / "m")
    np.testing.assert_array_equal(hashlearn.load(tmp_path / "m").encode(X), alone.encode(X))
    pipe = hashlearn.make_pipeline(StandardScaler(), hashlearn.LSH(n_bits=8, random_state=0)).fit(X)
    with pytest.raises(ValueError, match=r"save it with pipeline\[-1\]\.save\(path\)"):
        pipe.save(tmp_path / "p")
    assert not (tmp_path / "p").exists()
