"""What a person sees of the runs."""

import io
import re

import pytest
from rich.console import Console

from hashlearn.experiments import grid
from hashlearn.experiments.progress_display import Lines, Live, Progress, numbers_so_far
from hashlearn.experiments.results import run_seconds
from hashlearn.experiments.scheduler import Failure
from hashlearn.progress import duration


def runs(*methods, experiment="fig-mnist", bits=(8, 16), seeds=1):
    chosen = grid.narrowed(grid.experiment(experiment), methods=methods, bits=bits, seeds=seeds)
    return list(grid.plan_runs(chosen, chosen.data[0]))


def record(seconds=10, value=0.25, training=1.0):
    return {
        "started": "2026-01-01T00:00:00+00:00",
        "finished": f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}+00:00",
        "training": {"seconds": training},
        "scores": {"map": value, "p@3": 0.5, "empty@3": 0.1, "map_expected_ties": 0.3},
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.9, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_run_takes_at_least_its_training():
    assert run_seconds(record(70)) == 70
    assert run_seconds(record(0, training=0.3)) == 0.3


def test_the_estimate_is_what_runs_like_it_took():
    progress = Progress()
    itq_8, itq_16, lsh_8, lsh_16 = runs("itq", "lsh")
    progress.planned([], [itq_8, itq_16, lsh_8, lsh_16])
    assert progress.remaining() is None  # nothing is known
    assert progress.counts() == "0 of 4 runs"
    progress.started(itq_8)
    progress.finished(itq_8, record(10))
    assert progress.expected(itq_16) == 10  # the same method and data
    assert progress.expected(lsh_8) == 10  # at least something
    assert progress.remaining() == 30
    progress.finished(lsh_8, record(2))
    assert progress.expected(lsh_16) == 2
    assert progress.remaining() == 12
    progress.finished(itq_16, record(40))
    (again,) = [run for run in runs("itq", bits=(16,), seeds=2) if run.seed == 1]
    assert progress.expected(again) == 40  # the very same at another seed, not the mean of both lengths
    progress.failed(Failure(str(lsh_16), "ValueError: no"))
    assert progress.remaining() == 0
    assert progress.counts() == "3 of 4 runs, 1 failed"


def test_one_run_is_one_run():
    progress = Progress()
    progress.planned([], runs("itq", bits=(8,)))
    assert progress.counts() == "0 of 1 run"


def test_what_runs_counts_down_and_jobs_share():
    progress = Progress(jobs=2)
    first, second = runs("itq")
    progress.planned([(runs("itq", seeds=2)[2], record(10))], [first, second])
    progress.started(first)
    progress.running[str(first)] -= 4  # began four seconds ago
    assert progress.remaining() == pytest.approx((6 + 10) / 2, abs=0.2)
    progress.running[str(first)] -= 100  # it takes longer than expected
    assert progress.remaining() == pytest.approx(5, abs=0.2)


def test_lines():
    stream = io.StringIO()
    lines = Lines(stream)
    first, second = runs("itq")
    lines.planned([], [first, second])
    lines.started(first)
    lines.finished(first, record(75))
    lines.started(second)
    lines.failed(Failure(str(second), "ValueError: no"))
    lines.tick()
    lines.planned([(first, record())], [second])
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()] == [
        "2 runs to make, 0 already made",
        "fig-mnist itq 8 bits seed 0 ...",
        "fig-mnist itq 8 bits seed 0: mAP 25.00, P@3 50.00; 1 min 15 s (1 of 2 runs, about 1 min 15 s left)",
        "fig-mnist itq 16 bits seed 0 ...",
        "fig-mnist itq 16 bits seed 0 FAILED: ValueError: no",
        "1 run to make, 1 already made",
    ]


def test_lines_without_a_stream_go_nowhere(capsys):
    """Without a stderr, as a process in the background may be; print would write to stdout."""
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        lines = Lines(stream)
        lines.noted("a word")
        lines.planned([], [])
    assert capsys.readouterr() == ("", "")
    stream = io.StringIO()
    Lines(stream).noted("one\ntwo")
    assert stream.getvalue().endswith(" one two\n")


def test_live():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    first, second, third = runs("itq", "lsh")[:3]
    with Live(console) as live:
        assert stream.getvalue() == ""
        live.planned([(runs("itq", seeds=2)[2], record(value=0.35))], [first, second, third])
        live.started(first)
        live.finished(first, record())
        live.started(second)
        stream.seek(0)
        stream.truncate()
        console.print(live._render())
        drawn = stream.getvalue()
        assert "2 of 4 runs, about" in drawn
        assert f"running: {second}, 0 s" in drawn
        assert "fig-mnist: mAP so far, percent" in drawn
        live.failed(Failure(str(second), "ValueError: [no]"))
        live.finished(third, record())
    assert f"{second} FAILED: ValueError: [no]" in stream.getvalue()


def test_numbers_so_far():
    done = [(run, record(value=0.2 + 0.1 * run.seed)) for run in runs("itq", seeds=2)]
    done += [(run, record()) for run in runs("itq", experiment="ablation", bits=(16,))]
    assert numbers_so_far(done, "fig-mnist") == {"ITQ": {8: "25.00 (2)", 16: "25.00 (2)"}}
    assert numbers_so_far(done, "ablation") == {"ITQ": {16: "25.00"}}
