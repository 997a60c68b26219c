"""Silence of Pillow belongs to the thread that asked for it."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import warnings

import pytest

from hashlearn.features import _picture, _silence
from hashlearn.features._silence import silent_pillow


def warn(module: str = "PIL.TiffImagePlugin") -> None:
    warnings.warn_explicit("odd", UserWarning, "file.py", 1, module=module)


def test_only_inside_and_only_pillow():
    with silent_pillow():
        warn()
        with silent_pillow():
            warn("PIL.Image")
        warn()
        for other in ("hashlearn.features", "PILOT", "numpy"):
            with pytest.raises(UserWarning):  # the tests' own filters make errors of warnings
                warn(other)
    with pytest.raises(UserWarning):
        warn()


def test_other_threads_hear_what_they_would_have_heard():
    heard = []

    def other():
        try:
            warn()
        except UserWarning:
            heard.append("an error")

    with silent_pillow():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        warn()
    assert heard == ["an error"]


def test_threads_that_overlap_leave_the_filters_as_they_were():
    """Whoever comes first leaves first; ``catch_warnings`` would put back what the first one found, or the second."""
    before = list(warnings.filters)
    inside, leave = threading.Event(), threading.Event()
    failures = []

    def second():
        with silent_pillow():
            inside.set()
            leave.wait(10)
            try:
                warn()
            except UserWarning as error:
                failures.append(error)

    with silent_pillow():
        thread = threading.Thread(target=second)
        thread.start()
        assert inside.wait(10)
    leave.set()
    thread.join()
    assert not failures
    assert warnings.filters == before


def test_it_is_put_in_front_again():
    with silent_pillow():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with silent_pillow():
                warn()
        assert warnings.filters.count(_silence._FILTER) == 1
        warnings.filters.insert(0, ("error", None, UserWarning, None, 0))
        try:
            with silent_pillow():
                warn()
                assert warnings.filters.count(_silence._FILTER) == 1
        finally:
            warnings.filters.remove(("error", None, UserWarning, None, 0))
    assert _silence._FILTER not in warnings.filters


def test_after_an_error_inside():
    with pytest.raises(ZeroDivisionError), silent_pillow():
        raise ZeroDivisionError
    assert _silence._FILTER not in warnings.filters
    with pytest.raises(UserWarning):
        warn()


def test_filters_can_be_pickled_meanwhile():
    """scikit-learn sends them to its workers."""
    with silent_pillow():
        copied = pickle.loads(pickle.dumps(warnings.filters))
        assert copied[0][3] is _silence._state


def test_logged_errors(caplog):
    logger = logging.getLogger("PIL.TiffImagePlugin")
    with silent_pillow():
        logger.error("inside")
        thread = threading.Thread(target=lambda: logger.error("elsewhere"))
        thread.start()
        thread.join()
    logger.error("after")
    assert [record.message for record in caplog.records] == ["elsewhere", "after"]
    assert not logger.filters


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_reads_is_not_silent_and_reads():
    """Whatever that thread holds: the filter, the lock of large pictures."""
    entered, left = threading.Event(), threading.Event()

    def read():
        with silent_pillow(), _picture._large:
            entered.set()
            left.wait(60)

    thread = threading.Thread(target=read)
    before = len(warnings.filters)
    thread.start()
    assert entered.wait(60)
    child = os.fork()
    if child == 0:
        free = _picture._large.acquire(timeout=5)
        os._exit(0 if free and len(warnings.filters) == before else 1)
    left.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
