"""Discrete coordinate descent: what it promises, and how close it comes to the best of all codes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from hashlearn import ITQ
from hashlearn.codes import signs
from hashlearn.hashers import _discrete
from hashlearn.hashers._discrete import GROUP, anneal, descend, descend_groups, energies, solve


def objective(Q, G, B):
    """bᵀ G b − 2 qᵀ b of each row."""
    B = B.astype(np.float64)
    return np.einsum("ij,jk,ik->i", B, G, B) - 2 * (Q * B).sum(axis=1)


def problem(rng, n, L, D=7):
    W = rng.standard_normal((L, D))
    return rng.standard_normal((n, L)) * 2, W @ W.T, np.where(rng.random((n, L)) < 0.5, -1, 1).astype(np.int8)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 20), st.integers(1, 12))
def test_no_sweep_raises_the_objective(seed, n, L, sweeps):
    Q, G, B = problem(np.random.default_rng(seed), n, L)
    last = objective(Q, G, B)
    for _ in range(sweeps):
        before = B.copy()
        flips = descend(Q, G, B, 1)
        assert flips == (before != B).sum()
        assert set(np.unique(B)) <= {-1, 1}
        now = objective(Q, G, B)
        assert (now <= last + 1e-9).all()
        last = now


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 16))
def test_in_the_end_no_single_flip_helps(seed, n, L):
    Q, G, B = problem(np.random.default_rng(seed), n, L)
    descend(Q, G, B, 1000)
    found = objective(Q, G, B)
    for k in range(L):
        flipped = B.copy()
        flipped[:, k] *= -1
        assert (objective(Q, G, flipped) >= found - 1e-9).all()
    assert descend(Q, G, B, 1000) == 0


def test_many_sweeps_at_once_are_the_same_as_one_after_the_other():
    Q, G, B = problem(np.random.default_rng(1), 200, 12)
    other = B.copy()
    descend(Q, G, B, 3)
    for _ in range(3):
        descend(Q, G, other, 1)
    np.testing.assert_array_equal(B, other)
    more = B.copy()
    assert descend(Q, G, more, 50) > 0, "three sweeps are not enough here, so that the limit is felt"


def test_close_to_the_best_of_all_codes():
    """Brute force over 2^8 codes, in the B step of real data: digits, codes by ITQ and their best decoder."""
    X = load_digits().data
    X = X - X.mean(axis=0)
    H = ITQ(8, random_state=0).fit(X).decision_function(X)
    B = signs(H).astype(np.int8)
    W, *_ = np.linalg.lstsq(B.astype(np.float64), X, rcond=None)
    Q, G = X @ W.T + 0.05 * H, W @ W.T
    everything = np.array(list(product([-1, 1], repeat=8)))
    values = np.einsum("cj,jk,ck->c", everything, G, everything) - 2 * Q @ everything.T
    best = values.min(axis=1)
    start = objective(Q, G, B) - best
    descend(Q, G, B, 100)
    missed = objective(Q, G, B) - best
    assert missed.min() > -1e-6
    assert (missed <= 1e-6).mean() > 0.95, "the very best code for most samples"
    assert missed.sum() < 0.1 * start.sum(), "and most of the way to it for all"


def test_hand_computed():
    # Two bits that repel each other (G₀₁ = 3) and both want to be +1: the first, set first, gives way.
    G = np.array([[1.0, 3.0], [3.0, 1.0]])
    B = np.array([[1, 1]], dtype=np.int8)
    # bit 0: sgn(1 − 3·1) = −1; bit 1: sgn(2 + 3) = +1; then bit 0 stays: sgn(1 − 3) = −1.
    assert descend(np.array([[1.0, 2.0]]), G, B, 10) == 1
    assert B.tolist() == [[-1, 1]]


def test_zero_counts_as_plus():
    B = np.full((1, 3), -1, dtype=np.int8)
    assert descend(np.array([[0.0, -0.0, 0.0]]), np.eye(3), B, 10) == 3
    assert B.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_of_the_products(dtype):
    Q, G, B = problem(np.random.default_rng(5), 300, 10)
    double = B.copy()
    descend(Q, G, double, 20)
    descend(Q.astype(dtype), G, B, 20)
    assert (double == B).mean() > 0.999


def least(Q, G):
    """The least objective of each row, by trying all codes."""
    codes = np.array(list(product((-1, 1), repeat=Q.shape[1])), dtype=np.int8)
    E = np.einsum("ij,jk,ik->i", codes, G, codes) - 2 * (Q @ codes.T)
    return E.min(axis=1)


def test_energies_are_the_objective():
    Q, G, B = problem(np.random.default_rng(0), 50, 9)
    np.testing.assert_allclose(energies(Q, G, B), objective(Q, G, B))


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 12), st.sampled_from([1e-3, 0.1, 10.0]))
def test_solve_finds_the_least_of_all_codes(seed, n, L, definite):
    Q, G, B = problem(np.random.default_rng(seed), n, L, D=3)
    G += definite * np.eye(L)
    solve(Q, G, B)
    np.testing.assert_allclose(objective(Q, G, B), least(Q, G), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("descent", [False, True])
def test_solve_at_its_longest_on_real_data(dtype, descent):
    X = load_digits().data[:80]
    X = X - X.mean(axis=0)
    W = np.linalg.svd(X, full_matrices=False)[2][:16] + 0.02
    Q, G = (X @ W.T).astype(dtype), W @ W.T + 0.1 * np.eye(16)
    B = signs(np.random.default_rng(0).standard_normal((80, 16)))
    if descent:
        descend(Q, G, B, 100)
    solve(Q, G, B)
    np.testing.assert_allclose(objective(Q.astype(np.float64), G, B), least(Q.astype(np.float64), G), rtol=1e-6)
    again = B.copy()
    solve(Q, G, again)
    np.testing.assert_array_equal(again, B)


def test_solve_refuses_what_is_too_long():
    Q, G, B = problem(np.random.default_rng(0), 3, 17)
    with pytest.raises(ValueError, match="at most 16 bits; got 17"):
        solve(Q, G, B)


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 2 * GROUP + 3))
def test_groups_never_raise_the_objective_and_end_where_no_group_helps(seed, n, L):
    Q, G, B = problem(np.random.default_rng(seed), n, L)
    before = objective(Q, G, B)
    one = B.copy()
    descend_groups(Q, G, one, 1)
    descend_groups(Q, G, B, 100)
    found = objective(Q, G, B)
    assert (objective(Q, G, one) <= before + 1e-9).all()
    assert (found <= objective(Q, G, one) + 1e-9).all()
    for start in range(0, L, GROUP):
        rest = np.r_[0:start, min(start + GROUP, L) : L]
        group = np.r_[start : min(start + GROUP, L)]
        inside, q = G[np.ix_(group, group)], Q[:, group] - B[:, rest] @ G[np.ix_(rest, group)]
        held = objective(Q[:, rest], G[np.ix_(rest, rest)], B[:, rest])
        np.testing.assert_allclose(found, least(q, inside) + held, atol=1e-8)


def _long_problem(n=200, dtype=np.float64):
    """16 bits that coordinate descent has been through, of real data."""
    X = load_digits().data[:n]
    X = X - X.mean(axis=0)
    W = np.linalg.svd(X, full_matrices=False)[2][:16] * np.linspace(3, 1, 16)[:, None] + 0.02
    Q, G = (X @ W.T).astype(dtype), W @ W.T + 0.1 * np.eye(16)
    B = signs(Q)
    descend(Q, G, B, 100)
    return Q, G, B


def test_solve_rules_most_codes_out_and_most_of_all_in_its_order(monkeypatch):
    Q, G, B = _long_problem()
    left = []
    one = _discrete._enumerate
    monkeypatch.setattr(_discrete, "_enumerate", lambda Q, *args: left.append(len(Q)) or one(Q, *args))
    solve(Q, G, B.copy())
    in_order, every = sum(left), 256 * len(Q)
    assert in_order < every / 8
    best = _discrete._order(G)
    monkeypatch.setattr(_discrete, "_order", lambda G: best[::-1])
    left.clear()
    solve(Q, G, B.copy())
    assert in_order < sum(left) / 5


def test_solve_in_small_parts_is_the_same(monkeypatch):
    Q, G, _ = _long_problem(60)
    whole = np.ones((60, 16), dtype=np.int8)
    parts = whole.copy()
    solve(Q, G, whole)
    monkeypatch.setattr(_discrete, "_PAIRS", 7)
    solve(Q, G, parts)
    np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("definite", [0.0, 1e-14, 1e-9])
def test_solve_of_a_matrix_that_is_nearly_singular(definite):
    rng = np.random.default_rng(0)
    W = np.repeat(rng.standard_normal((1, 12)), 2, axis=0).T  # rank 1
    Q, G = rng.standard_normal((50, 2)) @ W.T, W @ W.T + definite * np.eye(12)
    B = signs(rng.standard_normal((50, 12)))
    solve(Q, G, B)
    np.testing.assert_allclose(objective(Q, G, B), least(Q, G), atol=1e-8)


@pytest.mark.parametrize("work", [solve, lambda Q, G, B: descend_groups(Q, G, B, 100)])
def test_what_is_but_rounding_changes_no_code(work):
    """Of codes that are equally good, the one that is there stays."""
    rng = np.random.default_rng(0)
    Q = np.zeros((500, 12), dtype=np.float32)
    W = rng.standard_normal((12, 30))
    B = signs(rng.standard_normal((500, 12)))
    work(Q, W @ W.T, B)
    opposite = -B  # bᵀGb is the same
    again = opposite.copy()
    work(Q, W @ W.T, again)
    np.testing.assert_array_equal(again, opposite)


def own_matrices(Q, G, V, B):
    """bᵀ(G + v vᵀ)b − 2 qᵀb of each row, by its own matrix."""
    return np.array([b @ (G + np.outer(v, v)) @ b - 2 * q @ b for q, v, b in zip(Q, V, B.astype(float), strict=True)])


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 20))
def test_annealed_codes_settle_where_no_flip_helps_and_slopes_are_differences_of_energies(seed, n, L):
    rng = np.random.default_rng(seed)
    Q, G, _ = problem(rng, n, L)
    V = rng.standard_normal((n, L))
    B, slopes = anneal(Q, G, V, 1000)
    np.testing.assert_array_equal(signs(slopes), B)
    for k in range(L):
        plus, minus = B.copy(), B.copy()
        plus[:, k], minus[:, k] = 1, -1
        expected = (own_matrices(Q, G, V, minus) - own_matrices(Q, G, V, plus)) / 4
        np.testing.assert_allclose(slopes[:, k], expected, atol=1e-9)


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 20))
def test_no_sweep_from_given_codes_raises_the_energy(seed, n, L):
    rng = np.random.default_rng(seed)
    Q, G, B = problem(rng, n, L)
    V = rng.standard_normal((n, L))
    last = own_matrices(Q, G, V, B)
    for _ in range(4):
        B, _ = anneal(Q, G, V, 1, start=B)
        now = own_matrices(Q, G, V, B)
        assert (now <= last + 1e-9).all()
        last = now


def test_without_vectors_of_their_own_sweeps_are_those_of_plain_descent():
    Q, G, B = problem(np.random.default_rng(2), 300, 20)
    np.testing.assert_array_equal(anneal(Q, G, np.zeros_like(Q), 2, start=B)[0], anneal(Q, G, None, 2, start=B)[0])
    found, _ = anneal(Q, G, None, 2, start=B)
    descend(Q, G, B, 2)
    np.testing.assert_array_equal(found, B)


def test_annealing_finds_lower_energies_than_descent_from_signs():
    rng = np.random.default_rng(3)
    W, X = rng.standard_normal((40, 30)), rng.standard_normal((500, 30)) * 5
    Q, G = X @ W.T, W @ W.T
    B = signs(Q)
    descend(Q, G, B, 100)
    assert objective(Q, G, anneal(Q, G, None, 100)[0]).mean() < objective(Q, G, B).mean()
