"""The two maps: gradients against finite differences, blocks, threads, memory maps."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashlearn.hashers import _rows
from hashlearn.hashers._network import Layer, Network, Slope, flatten, fold, layers_of, outputs_of
from hashlearn.hashers._rows import Rows, is_mapped
from hashlearn.threads import thread_map


def in_order(function, items):
    return [function(item) for item in items]


def plain_rows(X, thread_map=in_order):
    return Rows(X, np.zeros(X.shape[1]), 1.0, thread_map)


def example(rng, m=50, sizes=(7, 6, 5, 4), n_classes=3):
    layers = [Layer(rng.standard_normal((s, t)), rng.standard_normal(t)) for s, t in itertools.pairwise(sizes)]
    X = rng.standard_normal((m, sizes[0]))
    B = np.where(rng.random((m, sizes[-1])) < 0.5, -1, 1).astype(np.int8)
    return layers, X, B, rng.integers(0, n_classes, m)


def slow_outputs(layers, X):
    for W, c in layers[:-1]:
        X = 1 / (1 + np.exp(-(X @ W + c)))
    return X @ layers[-1].W + layers[-1].c


def reduce(sums):
    """An objective that uses every sum: J = ‖HᵀH‖²/4 + Σ_c (c + 1) ‖Hᵀy_c‖²/2 + 3 ⟨H, B⟩."""
    weight = np.arange(1, len(sums.class_sums) + 1)[:, None]
    value = np.sum(sums.gram**2) / 4 + np.sum(weight * sums.class_sums**2) / 2 + 3 * sums.agreement
    return float(value), Slope(A=sums.gram, T=weight * sums.class_sums, b=3.0)


def slow_value(layers, X, B, y):
    H = slow_outputs(layers, X)
    value = np.sum((H.T @ H) ** 2) / 4 + 3 * np.sum(H * B)
    return value + sum((c + 1) * np.sum(H[y == c].sum(axis=0) ** 2) / 2 for c in np.unique(y))


@pytest.mark.parametrize("sizes", [(7, 6, 5, 4), (7, 4), (5, 9, 3), (6, 5, 4, 4, 3)])
@pytest.mark.parametrize("labelled", [False, True])
def test_value_and_gradient(sizes, labelled):
    layers, X, B, y = example(np.random.default_rng(0), sizes=sizes)
    y, c = (y, 3) if labelled else (None, 1)
    classes = np.zeros(len(X), int) if y is None else y
    network, theta = Network(plain_rows(X), sizes), flatten(layers)
    value, gradient = network(theta, reduce, B, y, c)
    assert value == pytest.approx(slow_value(layers, X, B, classes), rel=1e-12)
    for i in range(len(theta)):  # every weight and every bias
        step = np.zeros(len(theta))
        step[i] = 1e-5
        up, down = (slow_value(layers_of(theta + sign * step, sizes), X, B, classes) for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-5 * np.abs(gradient).max())


def test_outputs():
    layers, X, _, _ = example(np.random.default_rng(1))
    np.testing.assert_allclose(outputs_of(fold(layers, np.float64), X), slow_outputs(layers, X), rtol=1e-12)
    hidden = outputs_of(fold(layers[:1], np.float64, all_hidden=True), X)
    np.testing.assert_allclose(hidden, 1 / (1 + np.exp(-(X @ layers[0].W + layers[0].c))), rtol=1e-12)


def test_sigmoids_far_out_are_0_and_1_without_a_warning():
    layers = [Layer(np.array([[1.0]]), np.zeros(1))]
    S = outputs_of(fold(layers, np.float32, all_hidden=True), np.array([[-1e4], [0], [1e4]], dtype=np.float32))
    assert S.ravel().tolist() == [0, 0.5, 1]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(_rows, "BLOCK_ROWS", 7)
    monkeypatch.setattr(_rows, "SHARDS", 4)


def test_blocks_do_not_matter(small_blocks, monkeypatch):
    layers, X, B, y = example(np.random.default_rng(2), m=143)
    theta = flatten(layers)
    value, gradient = Network(plain_rows(X), (7, 6, 5, 4))(theta, reduce, B, y, 3)
    monkeypatch.undo()
    whole = Network(plain_rows(X), (7, 6, 5, 4))(theta, reduce, B, y, 3)
    assert value == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(gradient, whole[1], rtol=1e-9, atol=1e-9 * np.abs(gradient).max())


def test_the_number_of_threads_changes_not_one_digit(small_blocks):
    layers, X, B, y = example(np.random.default_rng(3), m=500)
    X = X.astype(np.float32)
    found = []
    for n in (1, 2, 5):
        with thread_map(n) as threads:
            found.append(Network(plain_rows(X, threads), (7, 6, 5, 4))(flatten(layers), reduce, B, y, 3))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_memory_map_gives_the_same(order, small_blocks, tmp_path, monkeypatch):
    layers, X, B, y = example(np.random.default_rng(4), m=300)
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not plain_rows(stored).streamed
    monkeypatch.setattr(_rows, "free_memory", lambda: X.nbytes)
    mapped = plain_rows(stored)
    assert mapped.streamed
    assert not plain_rows(X).streamed
    block = mapped[slice(3, 9)]
    assert block.flags.c_contiguous, "products of rows in another order round differently"
    found = Network(mapped, (7, 6, 5, 4))(flatten(layers), reduce, B, y, 3)
    expected = Network(plain_rows(X), (7, 6, 5, 4))(flatten(layers), reduce, B, y, 3)
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


def test_what_is_a_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 3)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_mapped(mapped)
    assert is_mapped(np.asarray(mapped)[1:, ::2])
    for copy in (np.array(mapped), mapped.copy(), mapped.astype(np.float32), mapped[[0, 2]], np.take(mapped, [1], 0)):
        assert not is_mapped(copy)


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 20))
def test_shards_cover_all_rows_once(m, block, shards):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_rows, "BLOCK_ROWS", block)
        patch.setattr(_rows, "SHARDS", shards)
        parts = _rows._shards(m)
    assert 1 <= len(parts) <= shards
    blocks = [b for part in parts for b in part]
    assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(m))
    assert all(0 < b.stop - b.start <= block for b in blocks)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_rows_are_centred_and_scaled(dtype, tmp_path):
    X = np.random.default_rng(5).integers(0, 255, (100, 3)).astype(dtype)
    offset = X.mean(axis=0)
    expected = (X - offset) / 7
    np.save(tmp_path / "x.npy", X)
    for source in (X, np.load(tmp_path / "x.npy", mmap_mode="r")):
        rows = Rows(source, offset, 7.0, in_order)
        block = rows[slice(10, 20)]
        assert block.dtype == (np.float32 if dtype in (np.uint8, np.float32) else np.float64)
        np.testing.assert_allclose(block, expected[10:20], rtol=1e-5, atol=1e-5)
        (total,) = rows.total(lambda block, X: [X.sum(axis=0, dtype=np.float64)])
        np.testing.assert_allclose(total, expected.sum(axis=0), atol=1e-3)
