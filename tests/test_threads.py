"""Threads of ours and of BLAS."""

import threading

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
