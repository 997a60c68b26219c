"""The two maps: gradients against finite differences, blocks, threads, memory maps."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashlearn.hashers import _blocks
from hashlearn.hashers._blocks import Rows, in_parts, is_mapped, row_blocks, shuffled_batches, total
from hashlearn.hashers._network import Evaluation, Layer, Network, Slope, flatten
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


FUNCTIONS = {
    "sigmoid": lambda Z: 1 / (1 + np.exp(-Z)),
    "tanh": np.tanh,
    "relu": lambda Z: Z * (Z > 0),
    None: lambda Z: Z,
}


def slow_outputs(network, layers, X):
    S, depth = X, len(network.sizes) - 1
    for i, (W, c) in enumerate(layers[:depth], 1):
        S = FUNCTIONS[network.activation if i < depth else network.output](S @ W + c)
    return S + X @ layers[-1].W if network.skip else S


def reduce(sums):
    """An objective that uses every sum: J = ‖HᵀH‖²/4 + Σ_c (c + 1) ‖Hᵀy_c‖²/2 + 3 ⟨H, B⟩."""
    weight = np.arange(1, len(sums.class_sums) + 1)[:, None]
    value = np.sum(sums.gram**2) / 4 + np.sum(weight * sums.class_sums**2) / 2 + 3 * sums.agreement
    return float(value), Slope(A=sums.gram, T=weight * sums.class_sums, b=3.0)


def slow_value(network, layers, X, B, y):
    H = slow_outputs(network, layers, X)
    value = np.sum((H.T @ H) ** 2) / 4 + 3 * np.sum(H * B)
    return value + sum((c + 1) * np.sum(H[y == c].sum(axis=0) ** 2) / 2 for c in np.unique(y))


@pytest.mark.parametrize("sizes", [(7, 6, 5, 4), (7, 4), (5, 9, 3), (6, 5, 4, 4, 3)])
@pytest.mark.parametrize(
    ("activation", "output", "skip"),
    [
        ("sigmoid", None, False),
        ("tanh", "tanh", False),
        ("relu", None, True),
        ("tanh", None, True),
        ("relu", "sigmoid", False),
    ],
)
@pytest.mark.parametrize("labeled", [False, True])
def test_value_and_gradient(sizes, activation, output, skip, labeled):
    rng = np.random.default_rng(0)
    layers, X, B, y = example(rng, sizes=sizes)
    if skip:
        layers.append(Layer(rng.standard_normal((sizes[0], sizes[-1])), np.empty(0)))
    y, c = (y, 3) if labeled else (None, 1)
    classes = np.zeros(len(X), int) if y is None else y
    network, theta = Network(sizes, activation, output, skip), flatten(layers)
    value, gradient = Evaluation(network, plain_rows(X))(theta, reduce, B, y, c)
    assert value == pytest.approx(slow_value(network, layers, X, B, classes), rel=1e-12)
    for i in range(len(theta)):  # every weight and every bias
        step = np.zeros(len(theta))
        step[i] = 1e-5
        up, down = (slow_value(network, network.layers(theta + sign * step), X, B, classes) for sign in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-5 * np.abs(gradient).max())


def test_a_skip_is_for_linear_outputs():
    with pytest.raises(ValueError, match="linear output; got 'tanh'"):
        Network((7, 4), output="tanh", skip=True)


def test_an_evaluation_reuses_its_memory_and_still_gives_the_same():
    layers, X, B, y = example(np.random.default_rng(0))
    evaluate, theta = Evaluation(Network((7, 6, 5, 4)), plain_rows(X)), flatten(layers)
    first = evaluate(theta, reduce, B, y, 3)
    evaluate(theta / 2, reduce, B, y, 3)
    again = evaluate(theta, reduce, B, y, 3)
    assert again[0] == first[0]
    np.testing.assert_array_equal(again[1], first[1])


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_outputs(activation):
    layers, X, _, _ = example(np.random.default_rng(1))
    network = Network((7, 6, 5, 4), activation)
    expected = slow_outputs(network, layers, X)
    np.testing.assert_allclose(network.outputs(layers, X), expected, rtol=1e-12, atol=1e-12)


def test_sigmoids_far_out_are_0_and_1_without_a_warning():
    network = Network((1, 1), output="sigmoid")
    layers = network.cast(np.array([1.0, 0.0]), np.float32)
    S = network.outputs(layers, np.array([[-1e4], [0], [1e4]], dtype=np.float32))
    assert S.ravel().tolist() == [0, 0.5, 1]


@pytest.fixture
def small_blocks(monkeypatch, set_block_rows):
    set_block_rows(7)
    monkeypatch.setattr(_blocks, "PARTS", 4)


def test_blocks_do_not_matter(small_blocks, monkeypatch):
    layers, X, B, y = example(np.random.default_rng(2), m=143)
    theta = flatten(layers)
    value, gradient = Evaluation(Network((7, 6, 5, 4)), plain_rows(X))(theta, reduce, B, y, 3)
    monkeypatch.undo()
    whole = Evaluation(Network((7, 6, 5, 4)), plain_rows(X))(theta, reduce, B, y, 3)
    assert value == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(gradient, whole[1], rtol=1e-9, atol=1e-9 * np.abs(gradient).max())


def test_the_number_of_threads_changes_not_one_digit(small_blocks):
    layers, X, B, y = example(np.random.default_rng(3), m=500)
    X = X.astype(np.float32)
    found = []
    for n in (1, 2, 5):
        with thread_map(n) as threads:
            found.append(Evaluation(Network((7, 6, 5, 4)), plain_rows(X, threads))(flatten(layers), reduce, B, y, 3))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_memory_map_gives_the_same(order, small_blocks, tmp_path, set_free_memory):
    layers, X, B, y = example(np.random.default_rng(4), m=300)
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not plain_rows(stored).streamed
    set_free_memory(X.nbytes)
    mapped = plain_rows(stored)
    assert mapped.streamed
    assert not plain_rows(X).streamed
    block = mapped[slice(3, 9)]
    assert block.flags.c_contiguous, "products of rows in another order round differently"
    found = Evaluation(Network((7, 6, 5, 4)), mapped)(flatten(layers), reduce, B, y, 3)
    expected = Evaluation(Network((7, 6, 5, 4)), plain_rows(X))(flatten(layers), reduce, B, y, 3)
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
def test_parts_cover_all_rows_once(m, block, shards):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_blocks, "BLOCK_ROWS", block)
        patch.setattr(_blocks, "PARTS", shards)
        parts = _blocks._even_parts(m)
    assert 1 <= len(parts) <= shards
    blocks = [b for part in parts for b in part]
    assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(m))
    assert all(0 < b.stop - b.start <= block for b in blocks)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_rows_are_centered_and_scaled(dtype, tmp_path):
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
        np.testing.assert_allclose(rows.take(np.array([7, 3, 7])), expected[[7, 3, 7]], rtol=1e-5, atol=1e-5)


def test_rows_are_rounded_after_their_offset_is_taken_off(tmp_path, monkeypatch):
    X = 1e9 + np.random.default_rng(5).standard_normal((50, 3))  # float32 would be off by up to 32
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr(_blocks, "_SHARE_OF_MEMORY", 0.0)
    for source in (X, np.load(tmp_path / "x.npy", mmap_mode="r")):
        rows = Rows(source, np.full(3, 1e9), 2.0, in_order, dtype=np.float32)
        assert rows.streamed == (source is not X)
        for block in (slice(10, 20), np.array([4, 2, 4])):
            taken = rows[block] if isinstance(block, slice) else rows.take(block)
            assert taken.dtype == np.float32
            np.testing.assert_allclose(taken, (X[block] - 1e9) / 2, rtol=1e-6)


@given(st.integers(0, 300), st.integers(1, 40))
def test_batches_hold_every_row_once(n, size):
    batches = list(shuffled_batches(n, size, np.random.default_rng(0)))
    assert sorted(np.concatenate([np.empty(0, int), *batches])) == list(range(n))
    assert all(len(batch) == size for batch in batches[:-1])


def test_batches_are_shuffled_by_the_generator():
    first, second = (np.concatenate(list(shuffled_batches(100, 7, np.random.default_rng(s)))) for s in (0, 1))
    assert (first != np.arange(100)).any()
    assert (first != second).any()


def test_totals_add_arrays_and_join_lists_in_order(set_block_rows):
    set_block_rows(5, 2)
    X = np.arange(200.0).reshape(100, 2)
    for n in (1, 3):
        with thread_map(n) as threads:
            rows, columns = total(
                lambda block: ([block.start], X[block].sum(axis=0)), in_parts(row_blocks(X)), threads, large=n > 1
            )
        assert rows == list(range(0, 100, 5))
        np.testing.assert_array_equal(columns, X.sum(axis=0))
