"""Make the runs of experiments, one after another or several at once; skip finished runs, and collect failures.

Runs are made in worker processes, so that a method that crashes or runs out of memory ends its worker and not the rest.
Only the parent writes results. Whatever ends it, only the runs in progress are lost.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from hashlearn.errors import DatasetError
from hashlearn.experiments.grid import Experiment, Run, plan_runs
from hashlearn.experiments.results import Record, Results, fingerprint, run_key
from hashlearn.experiments.runner import Runner
from hashlearn.threads import cores

_SPAWN = multiprocessing.get_context("spawn")
# How often the display is refreshed while no run ends.
_TICK_SECONDS = 0.5
# BLAS and OpenMP libraries read these when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Observer(Protocol):
    """An object that is notified of events: `hashlearn.experiments.progress_display` has some."""

    def noted(self, words: str) -> None: ...
    def planned(self, done: Sequence[tuple[Run, Record]], pending: Sequence[Run]) -> None: ...
    def started(self, run: Run) -> None: ...
    def finished(self, run: Run, record: Record) -> None: ...
    def failed(self, failure: Failure) -> None: ...
    def tick(self) -> None: ...


@dataclass(frozen=True)
class Failure:
    """A run or a whole experiment that failed (``what``), and why."""

    what: str
    error: str
    details: str = ""


@dataclass
class Outcome:
    """How many runs had a result (``found``), how many were made, and what failed.

    A run that several experiments share is made once, for the first of them, and found for the others.
    """

    found: int = 0
    made: int = 0
    failures: list[Failure] = field(default_factory=list)


def reproduce(chosen: Sequence[Experiment], results: Results, *, jobs: int = 1, observer: Observer) -> Outcome:
    """Make every run of the experiments that has no result yet.

    Parameters
    ----------
    chosen : sequence of Experiment
    results : Results
        Where results are looked up and written.
    jobs : int
        Number of runs at once, which share the cores.
    observer : Observer
        Notified of every event.

    Returns
    -------
    Outcome

    Raises
    ------
    OSError
        A result can't be written, for instance because the disk is full. Earlier results are kept.
    ValueError
        The folder holds something other than results.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}.")
    results.check()
    outcome = Outcome()
    done: list[tuple[Run, Record]] = []
    pending: list[tuple[Run, str]] = []
    for experiment in chosen:
        try:
            runs = _plan(experiment, observer)
        except (OSError, TypeError) as error:  # data that can't be read, or a parameter that the method does not have
            outcome.failures.append(Failure(experiment.name, " ".join(str(error).split())))
            observer.failed(outcome.failures[-1])
            continue
        for run, key in runs:
            record = results.find(run, key)
            if record is None:
                pending.append((run, key))
            else:
                done.append((run, record))
    outcome.found = len(done)
    observer.planned(done, [run for run, _ in pending])
    for run, answer, is_new in _run_pending(pending, results, jobs, observer):
        if isinstance(answer, Failure):
            outcome.failures.append(answer)
            observer.failed(answer)
        else:
            observer.finished(run, answer)
            outcome.made += is_new
            outcome.found += not is_new
    return outcome


def _plan(experiment: Experiment, observer: Observer) -> list[tuple[Run, str]]:
    """Return the experiment's runs on the first of its data sets that is available, with their keys."""
    runner = Runner()
    errors = []
    for name in experiment.data:
        fingerprints: dict[int | None, str] = {}
        planned = list(plan_runs(experiment, name))
        try:
            for run in planned:
                if run.split not in fingerprints:
                    fingerprints[run.split] = fingerprint(runner.dataset(run))
        except DatasetError as error:
            errors.append(" ".join(str(error).split()))
            continue
        if errors:
            observer.noted(f"{experiment.name} is run on {name}: {' '.join(errors)}")
        return [(run, run_key(run, fingerprints[run.split])) for run in planned]
    raise DatasetError(" ".join(errors))


def _run_pending(
    pending: Sequence[tuple[Run, str]], results: Results, jobs: int, observer: Observer
) -> Iterator[tuple[Run, Record | Failure, bool]]:
    """Make runs; yield each with its record, which is already written, or its failure, and whether it was made here."""
    queue = deque(pending)
    workers = [_Worker(max(1, cores() // jobs) if jobs > 1 else None) for _ in range(min(jobs, len(pending)))]
    busy: dict[_Worker, tuple[Run, str]] = {}
    try:
        while queue or busy:
            for worker in workers:
                while queue and worker not in busy:
                    run, key = queue.popleft()
                    record = results.find(run, key)  # another experiment may share the run
                    if record is not None:
                        yield run, record, False
                        continue
                    busy[worker] = run, key
                    observer.started(run)
                    worker.start(run)
            wait([end for worker in busy for end in worker.ends], timeout=_TICK_SECONDS)
            observer.tick()
            for worker in list(busy):
                run, key = busy[worker]
                answer = worker.answer(run)
                if answer is not None:
                    del busy[worker]
                    yield run, answer if isinstance(answer, Failure) else results.write(run, key, answer), True
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that makes runs. It is started when needed, and again if it has died."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._process: Any = None
        self._connection: Connection | None = None

    @property
    def ends(self) -> list[Any]:
        """The objects to wait for."""
        return [self._connection, self._process.sentinel]

    def start(self, run: Run) -> None:
        if self._process is None:
            self._connection, remote = _SPAWN.Pipe()
            self._process = _SPAWN.Process(target=_work, args=(remote,), daemon=True)
            with _environment(self._threads):
                self._process.start()
            remote.close()
        assert self._connection is not None
        with suppress(OSError):  # it has died, which `answer` reports
            self._connection.send(run)

    def answer(self, run: Run) -> Record | Failure | None:
        """Return the result of the run, or None if it is still in progress."""
        assert self._connection is not None
        try:
            if self._connection.poll():
                answer = self._connection.recv()
                return Failure(str(run), *answer) if isinstance(answer, tuple) else answer
        except (EOFError, OSError):
            pass
        else:
            if self._process.is_alive():
                return None
        self._process.join()
        code = self._process.exitcode
        self._process = None
        return Failure(str(run), f"its process ended: {_exit_reason(code)}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return name + (" (was there too little memory?)" if name == "SIGKILL" else "")


@contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """Set the number of threads of processes that are started meanwhile; None leaves it alone."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    if threads is not None:
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _work(connection: Connection) -> None:
    """Run in a worker: receive runs, and send back records, or (error, details) of those that fail."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    os.environ["HASHLEARN_PROGRESS"] = "0"  # the parent shows progress
    _print_to_stderr()  # stdout is for the parent's output
    threading.Thread(target=_end_with_parent, daemon=True).start()
    runner = Runner()
    while True:
        try:
            run = connection.recv()
        except EOFError:
            return
        connection.send(_answer(runner, run))


def _print_to_stderr() -> None:
    """Redirect stdout to stderr, or to nowhere if there is no stderr."""
    target = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else 2
    os.dup2(target, 1)
    sys.stdout = sys.stderr


def _answer(runner: Runner, run: Run) -> Record | tuple[str, str]:
    """Make a run; return its record as JSON values, or (error, details)."""
    try:
        record: Record = json.loads(json.dumps(runner.run(run), allow_nan=False))
        return record
    except Exception as error:
        details = traceback.format_exc()
        with suppress(Exception):  # an exception whose message can't be formatted
            words = " ".join(str(error).split())
            return (f"{type(error).__name__}: {words}" if words else type(error).__name__), details
        return type(error).__name__, details


def _end_with_parent() -> None:
    """End the worker when the parent ends, even in the middle of a run."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
