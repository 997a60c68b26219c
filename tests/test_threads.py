"""Threads of ours and of BLAS."""

import os
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from hashlearn.threads import cores, thread_map


def blas_threads():
    """Of the BLAS whose number of threads is the process's; FAISS may bring one whose number is each thread's."""
    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return [library["num_threads"] for library in found if library.get("threading_layer") != "openmp"]


@pytest.mark.parametrize("n_threads", [1, 2, 5, None])
def test_results_are_in_order(n_threads):
    with thread_map(n_threads) as run:
        assert run(abs, range(-30, 0)) == list(range(30, 0, -1))
        assert run(abs, []) == []


def test_blas_has_one_thread_inside_and_its_own_number_after():
    before = blas_threads()
    with thread_map(2):
        assert set(blas_threads()) == {1}
        with thread_map(2):
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}, "the outer one still holds it"
    assert blas_threads() == before


def test_an_error_inside_reaches_the_caller_and_frees_blas():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError), thread_map(2) as run:
        run(lambda x: 1 / x, [1, 0])
    assert blas_threads() == before


def test_two_at_once_that_overlap_leave_blas_as_it_was():
    """The first to enter is the first to leave: its restoring must wait for the other."""
    before = blas_threads()
    entered, left = threading.Event(), threading.Event()
    seen = []

    def second():
        with thread_map(1):
            entered.set()
            left.wait(10)
            seen.append(set(blas_threads()))

    for _ in range(2):  # the second time shows that whoever came last does not hold it for ever
        entered.clear()
        left.clear()
        thread = threading.Thread(target=second)
        with thread_map(1):
            thread.start()
            assert entered.wait(10)
        left.set()
        thread.join()
        assert blas_threads() == before
    assert seen == [{1}, {1}]


def test_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cores() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert cores() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1,2")
    assert cores() == 1


@pytest.mark.parametrize("number", ["", "²", "-1", "0", "9" * 20, "9" * 5000, "1e400", ",", ",1", "None"])
def test_a_number_of_threads_that_is_none_is_no_limit(number, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    most = cores()
    monkeypatch.setenv("OMP_NUM_THREADS", number)
    assert cores() == most


def in_a_child(check, seconds=60):
    """Whether it holds in a forked child; None if the child hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
# From Python 3.12 on a fork beside other threads is warned of: that is what is tried here.
forks_beside_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@forks
@forks_beside_threads
def test_a_fork_while_another_thread_holds_blas():
    before = blas_threads()
    entered, left = threading.Event(), threading.Event()

    def hold():
        with thread_map(2):
            entered.set()
            left.wait(60)

    def is_free():
        own = blas_threads() == before
        with thread_map(2) as run:
            inside = set(blas_threads()) == {1} and run(abs, [-1, -2]) == [1, 2]
        return own and inside and blas_threads() == before

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert entered.wait(60)
        assert in_a_child(is_free)
        assert set(blas_threads()) == {1}, "the parent's is held as before"
    finally:
        left.set()
        thread.join()
    assert blas_threads() == before


@forks
@forks_beside_threads
def test_a_fork_inside_leaves_blas_as_it_was():
    before = blas_threads()
    held = thread_map(1)
    held.__enter__()

    def leave():
        with thread_map(1):
            pass
        held.__exit__(None, None, None)
        return blas_threads() == before

    try:
        assert in_a_child(leave)
    finally:
        held.__exit__(None, None, None)
    assert blas_threads() == before


@pytest.mark.slow
@forks
@forks_beside_threads
def test_a_child_does_what_its_parent_has_done():
    """FAISS's threads, which are OpenMP's, are not there in a forked child."""
    import faiss

    from hashlearn import ITQ, HammingIndex
    from hashlearn.evaluation import euclidean_neighbors

    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 16)).astype(np.float32)

    def work():
        model = ITQ(n_bits=8, max_iter=2, random_state=0).fit(X)
        index = HammingIndex(8)
        index.add(model.encode(X))
        return index.search(model.encode(X[:50]), 3)[0], euclidean_neighbors(X[:200], X, 5)

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        expected = work()
        assert in_a_child(lambda: all(np.array_equal(a, b) for a, b in zip(expected, work(), strict=True)))
    finally:
        faiss.omp_set_num_threads(threads)
