"""A hundred kills of each test run; ``python tests/hostile/kills.py --kills 1000`` makes more."""

import os

import pytest
from kills import KINDS, applied, run, settled

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")
def test_nothing_that_was_acknowledged_is_lost_by_kill_9(tmp_path):
    counts = run(100, 0, tmp_path)
    assert counts.keys() == KINDS.keys()
    assert sum(kills for kills, _ in counts.values()) == 100
    assert sum(done for _, done in counts.values()) > 30


def test_a_loss_would_be_seen():
    change = {"kind": "add", "ids": [3, 4], "codes": [[1], [2]], "texts": ["a", "b"]}
    both = applied({}, change)
    assert settled({}, ["ready", change, "done"], both) == (both, 1)
    assert settled({}, ["ready", change], {}) == ({}, 0)  # nothing of what was under way
    assert settled({}, ["ready", change], both) == (both, 0)  # or all of it
    for told, there in (([change, "done"], {}), ([change], {3: both[3]}), ([], both), ([change, "done"], {3: both[3]})):
        with pytest.raises(AssertionError, match="acknowledged"):
            settled({}, told, there)
