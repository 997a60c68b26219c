"""Damaged and hostile files: every reader gives an answer or a refusal, soon, in bounded memory, and never dies.

    python tests/hostile/mutations.py --cases 200000
    python tests/hostile/mutations.py --minutes 60 --keep .fuzz
    python tests/hostile/mutations.py --case 17 --kind "own .npz"    # one of them again, in this process

Case n of a kind of file is the same on every machine: ``random.Random(f"{kind} {n}")`` makes it. Each runs in a worker
process. What is found is kept in a folder: the file, and beside it what happened.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seeds import Seed, all_seeds, scratch_folder

from hashlearn.memory import forget_peak, peak_memory

SECONDS = 10.0
ADDRESS_SPACE = 4 << 30
_NUMBERS = [0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 65535, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
_NUMBERS += [1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


# -- mutations --------------------------------------------------------------------------------------------------------


def mutated(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """The content with one to a few changes; ``other``: another file of the kind, to take pieces from."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 5, 9])):
        rng.choice(_CHANGES)(data, other, rng)
    return bytes(data)


def _place(data: bytearray, rng: random.Random) -> int:
    """Anywhere, but half of the time near the beginning or the end, where formats keep what they say of themselves."""
    n = max(1, len(data))
    near = rng.randrange(min(n, 200))
    return rng.choice([rng.randrange(n), rng.randrange(n), near, n - 1 - near])


def _flip(data: bytearray, other: bytes, rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, other: bytes, rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])


def _number(data: bytearray, other: bytes, rng: random.Random) -> None:
    size = rng.choice([1, 2, 4, 8])
    number = (rng.choice(_NUMBERS) + rng.choice([-1, 0, 0, 0, 1])) % (1 << 8 * size)
    start = _place(data, rng)
    data[start : start + size] = struct.pack(rng.choice("<>") + "BHIQ"[(1, 2, 4, 8).index(size)], number)


def _digits(data: bytearray, other: bytes, rng: random.Random) -> None:
    """A number in a text."""
    places = [i for i in range(min(len(data), 5000)) if chr(data[i]) in "0123456789"]
    if places:
        start = rng.choice(places)
        number = rng.choice([b"0", b"-1", b"1e999", b"9" * 20, b"9" * 400, b"NaN", b"true", b"null", b"[" * 5000])
        data[start : start + 1] = number


def _cut(data: bytearray, other: bytes, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _remove(data: bytearray, other: bytes, rng: random.Random) -> None:
    start = _place(data, rng)
    del data[start : start + rng.choice([1, 2, 4, 8, 16, 100])]


def _repeat(data: bytearray, other: bytes, rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = data[start : start + rng.choice([1, 2, 4, 8, 16, 100])]


def _insert(data: bytearray, other: bytes, rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = rng.randbytes(rng.choice([1, 2, 4, 8, 50]))


def _move(data: bytearray, other: bytes, rng: random.Random) -> None:
    size, a, b = rng.choice([1, 4, 8, 32, 512]), _place(data, rng), _place(data, rng)
    data[b : b + size] = data[a : a + size]


def _splice(data: bytearray, other: bytes, rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:] = other[rng.randrange(max(1, len(other))) :] if rng.random() < 0.5 else other[start:]


_CHANGES = [*[_flip] * 3, *[_byte] * 3, *[_number] * 4, _digits, _cut, _remove, _repeat, _insert, _move, _splice]


# -- one case ---------------------------------------------------------------------------------------------------------


@dataclass
class Kind:
    """A seed, made: its content, what reading it says, and another file of the same ending with what that says.

    Of pieces of both the other file may be made again, whole.
    """

    seed: Seed
    content: bytes
    expected: Any
    other: bytes = b""
    other_expected: Any = None


def made_kinds(folder: Path, only: str = "") -> list[Kind]:
    kinds = []
    for seed in all_seeds():
        path = folder / f"whole{seed.ending}"
        path.unlink(missing_ok=True)
        seed.make(path)
        content = path.read_bytes()
        kinds.append(Kind(seed, content, seed.read(path)))
        path.unlink()
    for kind in kinds:
        # Of a damaged file without checksums nobody can tell.
        same = [other for other in kinds if other.seed.ending == kind.seed.ending and other.content != kind.content]
        same = [other for other in same if other.seed.checked or not kind.seed.checked] or [kind]
        kind.other, kind.other_expected = same[0].content, same[0].expected
    return [kind for kind in kinds if kind.seed.name.startswith(only)]


def case_content(kind: Kind, number: int) -> bytes:
    return mutated(kind.content, kind.other, random.Random(f"{kind.seed.name} {number}"))


def run_case(kind: Kind, content: bytes, path: Path) -> str | None:
    """What is wrong with reading this file; None: nothing."""
    path.write_bytes(content)
    before = peak_memory() if forget_peak() else None
    try:
        value = kind.seed.read(path)
    except kind.seed.refusals as error:
        if len(str(error).splitlines()) != 1:
            return f"a refusal of several lines: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    else:
        if kind.seed.checked and value not in (kind.expected, kind.other_expected):
            return "accepted, and says something else than was written"
    if before is not None and (peak_memory() or 0) - before > kind.seed.memory << 20:
        return f"took {((peak_memory() or 0) - before) >> 20} MB"
    return None


# -- many cases -------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What came of a run."""

    n_cases: Counter[str] = field(default_factory=Counter)
    #: Of which kind and number, and what happened.
    findings: list[tuple[str, int, str]] = field(default_factory=list)


def _work(kinds: list[Kind], commands: int, answers: int, folder: Path) -> None:
    """In the worker: run the cases that are named on the pipe, one a line, and answer each in one line."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[1]
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ADDRESS_SPACE, soft))
    warnings.simplefilter("ignore")
    with os.fdopen(commands) as lines, os.fdopen(answers, "w") as out:
        for line in lines:
            k, number = map(int, line.split())
            wrong = run_case(kinds[k], case_content(kinds[k], number), folder / f"case{kinds[k].seed.ending}")
            print(json.dumps(wrong), file=out, flush=True)


def fuzz(
    kinds: list[Kind],
    *,
    n_cases: int | None = None,
    seconds: float | None = None,
    first: int = 0,
    n_workers: int = 2,
    show: bool = False,
) -> Found:
    """Run cases until there were so many, or for so long."""
    found, end = Found(), time.monotonic() + (seconds or 1e9)
    turns = _turns(len(kinds), first, n_cases)
    pool = [Process(kinds) for _ in range(n_workers)]
    last = time.monotonic()
    try:
        while True:
            for process in pool:
                answer = process.answer()
                if answer is not None:
                    k, number, wrong = answer
                    found.n_cases[kinds[k].seed.name] += 1
                    if wrong is not None:
                        found.findings.append((kinds[k].seed.name, number, wrong))
                if process.is_idle() and time.monotonic() < end:
                    turn = next(turns, None)
                    if turn is not None:
                        process.start(*turn)
            if all(process.is_idle() for process in pool):
                return found
            Process.wait(pool)
            if show and time.monotonic() - last > 30:
                last = time.monotonic()
                print(f"{sum(found.n_cases.values()):,} cases, {len(found.findings)} findings", flush=True)
    finally:
        for process in pool:
            process.end()


def _turns(n_kinds: int, first: int, n_cases: int | None) -> Iterator[tuple[int, int]]:
    done = 0
    number = first
    while n_cases is None or done < n_cases:
        for k in range(n_kinds):
            if n_cases is None or done < n_cases:
                yield k, number
                done += 1
        number += 1


class Process:
    """A worker process, and the case that it is at. One that hangs or dies is told, and another takes its place."""

    def __init__(self, kinds: list[Kind]) -> None:
        self._kinds = kinds
        self._case: tuple[int, int] | None = None
        self._since = 0.0
        self._folder = tempfile.TemporaryDirectory(dir=scratch_folder())
        self._begin()

    def _begin(self) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._commands)
            os.close(self._answers)
            try:
                _work(self._kinds, commands, answers, Path(self._folder.name))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        os.close(commands)
        os.close(answers)
        self._reader = os.fdopen(self._answers)

    def is_idle(self) -> bool:
        return self._case is None

    def start(self, kind: int, number: int) -> None:
        self._case, self._since = (kind, number), time.monotonic()
        os.write(self._commands, f"{kind} {number}\n".encode())

    def answer(self) -> tuple[int, int, str | None] | None:
        """Kind, number and what was wrong, if the case has come to an end."""
        if self._case is None:
            return None
        if select.select([self._answers], [], [], 0)[0]:
            line = self._reader.readline()
            wrong = json.loads(line) if line else f"the process died: {self._replace()}"
        elif time.monotonic() - self._since > SECONDS:
            self._replace()
            wrong = f"no answer in {SECONDS:.0f} s"
        else:
            return None
        case, self._case = self._case, None
        return *case, wrong

    def _replace(self) -> str:
        status = self._kill()
        self._begin()
        return status

    def _kill(self) -> str:
        """How the process ended, by itself or now."""
        time.sleep(0.05)  # for one that is dying to be dead by its own signal
        os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._commands)
        self._reader.close()
        return f"exit code {os.waitstatus_to_exitcode(status)}"

    def end(self) -> None:
        self._kill()
        self._folder.cleanup()

    @staticmethod
    def wait(processes: list[Process]) -> None:
        """Until one of them has answered, or for a second."""
        select.select([process._answers for process in processes if not process.is_idle()], [], [], 1.0)


def keep(folder: Path, kinds: list[Kind], findings: list[tuple[str, int, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {kind.seed.name: kind for kind in kinds}
    for name, number, wrong in findings:
        stem = f"{name.replace(' ', '-').replace('.', '').replace(',', '')}-{number}"
        (folder / f"{stem}{by_name[name].seed.ending}").write_bytes(case_content(by_name[name], number))
        (folder / f"{stem}.txt").write_text(f"{name}, case {number}\n{wrong}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="how many in all")
    parser.add_argument("--minutes", type=float, help="or for how long")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case of each kind")
    parser.add_argument("--kind", default="", help="kinds whose name begins so")
    parser.add_argument("--case", type=int, help="one case, in this process")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), help="the folder for what is found")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        kinds = made_kinds(Path(folder), options.kind)
        if options.case is not None:
            for kind in kinds:
                content = case_content(kind, options.case)
                print(kind.seed.name, run_case(kind, content, Path(folder) / f"case{kind.seed.ending}"))
            return
        if options.cases is None and options.minutes is None:
            parser.error("say --cases or --minutes")
        seconds = None if options.minutes is None else 60 * options.minutes
        start = time.monotonic()
        found = fuzz(kinds, n_cases=options.cases, seconds=seconds, first=options.first, show=True)
    for name, n in found.n_cases.items():
        print(f"{name}: {n:,} cases, {sum(finding[0] == name for finding in found.findings)} findings")
    print(f"{sum(found.n_cases.values()):,} cases in {time.monotonic() - start:.0f} s, {len(found.findings)} findings")
    if found.findings:
        keep(options.keep, kinds, found.findings)
        for name, number, wrong in found.findings[:20]:
            print(f"{name} {number}: {wrong.splitlines()[0]}")
        print(f"kept in {options.keep}")
        sys.exit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "search"))
    main()
