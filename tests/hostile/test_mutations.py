"""Two thousand damaged files of each test run; ``make fuzz MINUTES=60`` makes more, and keeps what it finds."""

import os
import random
import signal
import time

import pytest
from mutations import Kind, Process, fuzz, made_kinds, mutated
from seeds import Seed

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"), pytest.mark.slow]


def test_every_reader_answers_or_refuses(tmp_path):
    found = fuzz(made_kinds(tmp_path), n_cases=2000, n_workers=2)
    assert found.findings == []
    assert sum(found.n_cases.values()) == 2000


def test_a_case_is_the_same_each_time():
    content, other = bytes(range(200)), b"other" * 9
    made = {mutated(content, other, random.Random(f"kind {i}")) for i in range(300)}
    assert made == {mutated(content, other, random.Random(f"kind {i}")) for i in range(300)}
    assert len(made) > 280


def kind_that(read, expected=None, checked=False):
    return Kind(Seed("made", ".x", lambda path: None, read, (ValueError,), checked), b"abcdefgh", expected, b"xyz")


def raises(error):
    def read(path):
        raise error

    return read


def takes_memory(path):
    return len(b"x" * (800 << 20))


@pytest.mark.parametrize(
    ("read", "checked", "words"),
    [
        (lambda path: 1, False, None),
        (lambda path: 1, True, "says something else"),
        (raises(ValueError("no")), True, None),
        (raises(ValueError("no\nno")), False, "several lines"),
        (raises(KeyError("k")), False, "KeyError"),
        (raises(MemoryError()), False, "MemoryError"),
        (lambda path: os.kill(os.getpid(), signal.SIGTERM), False, "died: exit code -15"),
        (lambda path: time.sleep(1000), False, "no answer"),
        (takes_memory, False, "took "),
    ],
)
def test_what_a_reader_may_not_do_is_found(read, checked, words, monkeypatch):
    if words == "no answer":
        monkeypatch.setattr("mutations.SECONDS", 0.5)
    found = fuzz([kind_that(read, 2, checked)], n_cases=2, n_workers=1)
    assert found.n_cases["made"] == 2
    if words is None:
        assert not found.findings
    else:
        assert len(found.findings) == 2
        assert all(words in finding[2] for finding in found.findings)


def test_a_worker_is_replaced(monkeypatch):
    process = Process([kind_that(lambda path: os._exit(3))])
    for number in range(2):
        process.start(0, number)
        while (answer := process.answer()) is None:
            Process.wait([process])
        assert answer[:2] == (0, number)
        assert "exit code 3" in answer[2]
    process.end()
