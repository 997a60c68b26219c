"""Runs in their own processes: skipped when done, collected when they fail, and nothing lost whatever ends them."""

import importlib.metadata
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

import hashlearn
from hashlearn.experiments import grid, scheduler
from hashlearn.experiments.progress_display import Progress
from hashlearn.experiments.results import Results
from hashlearn.experiments.scheduler import reproduce

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="signals"), pytest.mark.slow]


class Told(Progress):
    """Keeps what it is told, in order."""

    def __init__(self):
        super().__init__()
        self.events = []

    def planned(self, done, pending):
        super().planned(done, pending)
        self.events.append(("planned", len(done), len(pending)))

    def started(self, run):
        super().started(run)
        self.events.append(("started", str(run)))

    def finished(self, run, record):
        super().finished(run, record)
        self.events.append(("finished", str(run)))

    def failed(self, failure):
        super().failed(failure)
        self.events.append(("failed", failure.what))


def small(experiment="fig-mnist", methods=("itq", "lsh"), **narrow):
    return grid.narrowed(grid.quick(grid.experiment(experiment), "digits"), methods=methods, **narrow)


def test_runs_are_made_once(tmp_path):
    told = Told()
    outcome = reproduce([small(bits=[8])], Results(tmp_path), observer=told)
    assert (outcome.found, outcome.made, outcome.failures) == (0, 2, [])
    lsh, itq = "fig-mnist lsh 8 bits seed 0", "fig-mnist itq 8 bits seed 0"
    assert told.events == [
        ("planned", 0, 2),
        ("started", itq),
        ("finished", itq),
        ("started", lsh),
        ("finished", lsh),
    ]
    before = (tmp_path / "fig-mnist.jsonl").read_bytes()
    again = Told()
    outcome = reproduce([small()], Results(tmp_path), observer=again)
    assert (outcome.found, outcome.made) == (2, 2)
    assert again.events[0] == ("planned", 2, 2)
    assert (tmp_path / "fig-mnist.jsonl").read_bytes().startswith(before)


def test_a_folder_that_can_not_be_used_is_an_error_before_any_run(tmp_path):
    (tmp_path / "ablation.jsonl").write_text("a list of words\n")
    told = Told()
    with pytest.raises(ValueError, match=r"ablation.jsonl is not a file of results: line 1 can't be read"):
        reproduce([small(bits=[8])], Results(tmp_path), observer=told)
    assert told.events == []


def test_a_damaged_result_is_made_again(tmp_path):
    chosen = small(bits=[8], methods=("itq", "lsh", "sh"))
    assert reproduce([chosen], Results(tmp_path), observer=Told()).made == 3
    path = tmp_path / "fig-mnist.jsonl"
    first, _, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"\xff\n" + third[:-1])
    outcome = reproduce([chosen], Results(tmp_path), observer=Told())
    assert (outcome.found, outcome.made, outcome.failures) == (1, 2, [])
    assert path.read_bytes().startswith(first + b"\xff\n{")
    assert reproduce([chosen], Results(tmp_path), observer=Told()).found == 3


def test_a_release_makes_no_run_again_and_a_revision_those_of_its_method(tmp_path, monkeypatch):
    chosen = [small(bits=[8], methods=("itq", "lsh", "udh-dnn"))]
    assert reproduce(chosen, Results(tmp_path), observer=Told()).made == 3
    versions = importlib.metadata.version
    monkeypatch.setattr(hashlearn, "__version__", "99.0", raising=False)
    monkeypatch.setattr(
        "hashlearn.experiments.runner.version", lambda name: "99.0" if name == "hashlearn" else versions(name)
    )
    outcome = reproduce(chosen, Results(tmp_path), observer=Told())
    assert (outcome.found, outcome.made) == (3, 0)
    monkeypatch.setattr(hashlearn.ITQ, "revision", 2)
    told = Told()
    monkeypatch.setattr(scheduler, "_run_pending", lambda pending, *_: iter(()))  # workers have the old revision
    outcome = reproduce(chosen, Results(tmp_path), observer=told)
    assert outcome.found == 2
    assert [str(run) for run in told.left.values()] == ["fig-mnist itq 8 bits seed 0"]


def test_a_run_that_two_experiments_share_is_made_once(tmp_path):
    told = Told()
    chosen = [small(name, ("itq",), bits=[8]) for name in ("fig-mnist", "ablation")]
    outcome = reproduce(chosen, Results(tmp_path), observer=told)
    assert (outcome.made, outcome.found) == (1, 1)
    assert [event for event in told.events if event[0] == "started"] == [("started", "fig-mnist itq 8 bits seed 0")]
    kept = {record["experiment"]: record["scores"] for record in Results(tmp_path).all()}
    assert kept["fig-mnist"] == kept["ablation"]


@dataclass(frozen=True)
class Deadly(grid.Entry):
    """A method whose process is killed, as by a system that runs out of memory."""

    def hasher(self):
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().hasher()


def test_what_fails_does_not_stop_the_rest(tmp_path):
    good = small(methods=("lsh",)).entries[0]
    bad = replace(good, name="bad", method="itq", parameters={"max_iter": -1})
    deadly = Deadly("deadly", "Deadly", "sh")
    chosen = replace(small(bits=[8]), entries=(bad, deadly, good))
    told = Told()
    outcome = reproduce([chosen], Results(tmp_path), observer=told)
    assert outcome.made == 1
    errors = {failure.what: failure.error for failure in outcome.failures}
    assert errors == {
        "fig-mnist bad 8 bits seed 0": "ValueError: max_iter must be a whole number of at least 1; got -1.",
        "fig-mnist deadly 8 bits seed 0": "its process ended: SIGKILL (was there too little memory?)",
    }
    assert "Traceback" in outcome.failures[0].details
    assert told.events[-1] == ("finished", "fig-mnist lsh 8 bits seed 0")
    assert [record["method"] for record in Results(tmp_path).all()] == ["lsh"]
    # What failed is tried again.
    assert len(reproduce([chosen], Results(tmp_path), observer=Told()).failures) == 2


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError


@dataclass(frozen=True)
class Odd(grid.Entry):
    """A method that does something odd in its worker."""

    def hasher(self):
        if multiprocessing.parent_process() is not None:
            if self.name == "talks":
                print("hello from a worker", flush=True)
                os.write(1, b"hello from C\n")
            if self.name == "wordless":
                raise Wordless
            if self.name == "sleeps":
                time.sleep(100)
            if self.name == "leaves":
                sys.exit(3)
        hasher = super().hasher()
        if self.name == "not-plain":
            object.__setattr__(hasher, "summary", lambda: {"value": np.arange(3)})
        if self.name == "not-a-number":
            object.__setattr__(hasher, "summary", lambda: {"value": float("nan")})
        return hasher


def test_odd_answers_are_failures_and_no_more(tmp_path, capfd):
    names = ("not-plain", "not-a-number", "wordless", "leaves", "talks")
    methods = ("lsh", "itq", "sph", "kmh", "sh")  # each its own key
    entries = tuple(Odd(name, name, method) for name, method in zip(names, methods, strict=True))
    outcome = reproduce([replace(small(bits=[8]), entries=entries)], Results(tmp_path), observer=Told())
    assert outcome.made == 1
    errors = {failure.what.split()[1]: failure.error for failure in outcome.failures}
    assert errors.pop("not-a-number").startswith("ValueError: Out of range float values")
    assert errors == {
        "not-plain": "TypeError: Object of type ndarray is not JSON serializable",
        "wordless": "Wordless",
        "leaves": "its process ended: exit code 3",
    }
    assert capfd.readouterr().out == ""  # which is for the numbers


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at /proc")
def test_a_worker_ends_with_its_parent_in_the_middle_of_a_run(tmp_path):
    code = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from test_scheduler import *
if __name__ == "__main__":
    chosen = replace(small(bits=[8]), entries=(Odd("sleeps", "sleeps", "lsh"),))
    reproduce([chosen], Results(Path(sys.argv[3])), observer=Told())
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    here = os.path.dirname(__file__)
    command = [sys.executable, str(script), here, os.path.dirname(here), str(tmp_path / "results")]
    process = subprocess.Popen(command, start_new_session=True)
    # The parent, the worker, and multiprocessing's own resource tracker.
    wait_until(lambda: len(session_processes(process.pid)) >= 3)
    time.sleep(2)  # the worker is in its run
    process.kill()
    process.wait()
    wait_until(lambda: not session_processes(process.pid), 10)


def test_data_that_can_not_be_had_fails_its_experiment_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("HASHLEARN_SIFT1M", raising=False)
    monkeypatch.delenv("HASHLEARN_SIFT_PHOTOS", raising=False)
    told = Told()
    outcome = reproduce([grid.experiment("fig-sift"), small(bits=[8])], Results(tmp_path), observer=told)
    assert outcome.made == 2
    (failure,) = outcome.failures
    assert failure.what == "fig-sift"
    assert "HASHLEARN_SIFT1M" in failure.error
    assert "HASHLEARN_SIFT_PHOTOS" in failure.error


def test_several_at_once_give_the_same(tmp_path):
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    chosen = [small(methods=("lsh", "itq", "sph"))]
    reproduce(chosen, Results(tmp_path / "one"), observer=Told())
    outcome = reproduce(chosen, Results(tmp_path / "three"), jobs=3, observer=Told())
    assert outcome.made == 6
    scores = [
        {(r["method"], r["n_bits"]): r["scores"] for r in Results(tmp_path / name).all()} for name in ("one", "three")
    ]
    assert scores[0] == scores[1]
    cores = {record["machine"]["cores"] for record in Results(tmp_path / "three").all()}
    assert cores == {1} or cores == {max(1, len(os.sched_getaffinity(0)) // 3)}
    assert os.environ.get("OPENBLAS_NUM_THREADS") == before
    with pytest.raises(ValueError, match="jobs must be at least 1; got 0"):
        reproduce(chosen, Results(tmp_path), jobs=0, observer=Told())


# --- The command, and what ends it ------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "hashlearn.cli", "reproduce", "--quick", "--data", "digits"]


def start(folder, *arguments, **options):
    return subprocess.Popen(
        [*COMMAND, "--out", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def session_processes(group):
    """Processes of a session that still run, by their arguments."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == group and fields[0] != "Z":
                found.append(int(entry))
    return found


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def whole_results(folder):
    """The experiment, method and key of every result, and its line."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines(keepends=True)]
    records = [(json.loads(line), line) for line in lines if line.endswith(b"\n")]
    return {(record["experiment"], record["method"], record["key"]): line for record, line in records}


METHODS = ("--methods", "lsh,sh,itq,sph,dh,sdh,itq-cca,ba")


def killed_after(folder, wanted, seconds):
    """Start the command, kill it so long after there are so many results, and wait until its workers have ended."""
    process = start(folder, *METHODS)
    wait_until(lambda: len(whole_results(folder)) >= wanted or process.poll() is not None)
    time.sleep(seconds)
    process.kill()
    process.communicate()
    wait_until(lambda: not session_processes(process.pid), 10)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at /proc")
def test_kill_9_at_any_time_loses_at_most_the_run_under_way(tmp_path):
    rng = random.Random(0)
    kept = {}
    for _ in range(5):
        wanted = len(kept) + rng.randint(1, 4)
        killed_after(tmp_path, wanted, rng.random() * 0.2)
        now = whole_results(tmp_path)
        assert kept.items() <= now.items()
        assert len(now) >= wanted
        kept = now
    done = start(tmp_path, *METHODS, "--json")
    answer = json.loads(done.communicate(timeout=120)[0])
    assert done.returncode == 0
    assert (answer["found"] >= len(kept), answer["failed"]) == (True, [])
    assert answer["found"] + answer["made"] == len(whole_results(tmp_path))
    assert kept.items() <= whole_results(tmp_path).items()


def test_ctrl_c_ends_it_and_says_how_to_go_on(tmp_path):
    # A shell has the processes that it starts in the background, these tests perhaps, take no notice of Ctrl-C.
    process = start(tmp_path, *METHODS, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_until(lambda: whole_results(tmp_path))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    _, words = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.search(rf"kept in {re.escape(str(tmp_path))}: \d+ results?; the same command continues", words)
    assert "Traceback" not in words
    assert whole_results(tmp_path)
    if os.path.exists("/proc/self/stat"):
        wait_until(lambda: not session_processes(process.pid), 10)


def test_a_full_disk_loses_nothing_that_was_there(tmp_path):
    """A limit on the size of files stands for a disk on which the next result has no place."""
    process = start(tmp_path, "fig-mnist", "--methods", "lsh")
    process.communicate(timeout=60)
    path = tmp_path / "fig-mnist.jsonl"
    before = path.read_bytes()
    assert len(whole_results(tmp_path)) == 2

    import resource

    def limit():  # part of a line can be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 500, len(before) + 500))

    process = start(tmp_path, "fig-mnist", "--methods", "lsh,itq", preexec_fn=limit)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "hashlearn: error: [Errno 27] File too large" in words
    assert "Traceback" not in words
    assert path.read_bytes() == before


def test_failures_are_told_at_the_end_with_exit_code_1(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HASHLEARN_SIFT")}
    command = [*COMMAND[:4], "fig-sift", "check-siftsmall", "--methods", "lsh", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-2:]
    assert last[0].startswith("hashlearn: fig-sift failed: sift1m is read from a folder")
    assert last[1].startswith("hashlearn: check-siftsmall failed: siftsmall is read from a folder")
