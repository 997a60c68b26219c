"""The command line as a whole: help, errors, quiet, completion; in processes of its own where that matters."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hashlearn
from command_line import run_apart
from command_line import run_here as run
from hashlearn.vectors import write_vectors

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "reproduce"


def all_commands():
    from hashlearn.cli.app import app

    names = [command.callback.__name__ for command in app.registered_commands]
    return [*([name] for name in names), ["data", "list"], ["data", "get"], ["data", "images"]]


@pytest.mark.parametrize("command", [[], ["data"], *all_commands()], ids=" ".join)
def test_help_has_an_example(command):
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Example: hashlearn" in done.stdout
    assert not command or command == ["data"] or "--json" in done.stdout
    assert run("--version").stdout.startswith("hashlearn 0.")


@pytest.mark.slow
def test_importing_hashlearn_stays_light():
    heavy = ("faiss", "matplotlib", "pyarrow", "h5py", "sklearn", "scipy", "PIL", "rich", "fastapi", "starlette")
    code = "import hashlearn, sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "hashlearn" in modules
    assert not [name for name in modules if name.split(".")[0] in heavy]
    # Using a name imports what it needs, and no more: no FAISS, plots or HDF5 for a method. (scikit-learn itself
    # imports pandas, and so pyarrow, where they are installed.)
    code = "import hashlearn, sys; hashlearn.ITQ; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "sklearn" in modules
    assert not [name for name in modules if name.split(".")[0] in ("faiss", "matplotlib", "h5py", "PIL", "rich")]


@pytest.mark.parametrize("command", [[], ["fit"], ["search"], ["reproduce"]], ids=" ".join)
def test_help_imports_nothing_heavy(command):
    code = (
        "import sys\n"
        "from hashlearn.cli import main\n"
        f"sys.argv = ['hashlearn', *{command}, '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    print('modules', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert "hashlearn.cli.models" in modules
    heavy = ("numpy", "scipy", "sklearn", "PIL", "faiss")
    assert not [name for name in modules if name.split(".")[0] in heavy]
    assert not [name for name in modules if name.startswith(("hashlearn.datasets", "hashlearn.experiments"))]


@pytest.mark.slow
def test_help_is_quick():
    """Under 1.5 × the time of importing numpy and typer; the best of several, since times are noisy."""

    def seconds(command):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(["-m", "hashlearn.cli", "--help"]) < 1.5 * seconds(["-c", "import numpy, typer"])


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        _ = hashlearn.magic
    assert {"ITQ", "METHODS", "load", "evaluation"} <= set(dir(hashlearn))
    assert hashlearn.__version__ == "0.1.0"


@pytest.mark.slow
def test_python_without_docstrings_is_enough(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 4)))
    record = tmp_path / "results" / "fig-mnist" / "x.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    code = (
        "import sys\n"
        "from hashlearn.cli import main\n"
        "for arguments in (\n"
        "    'methods', 'methods --json', '--help', 'fit --help', 'fit x.npy -b 4 -o m', 'index m x.npy -o c.hl',\n"
        "    'search c.hl x.npy -k 1', 'report results -o r.html'\n"
        "):\n"
        "    sys.argv = ['hashlearn', *arguments.split()]\n"
        "    try:\n"
        "        main()\n"
        "        code = 0\n"
        "    except SystemExit as end:\n"
        "        code = end.code or 0\n"
        "    print('code', code, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    codes = [line for line in done.stderr.splitlines() if line.startswith("code")]
    assert codes == ["code 0"] * 7 + ["code 2"], done.stderr  # of the report, since the file holds no result


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a shell's")
def test_a_process_without_a_stderr_works_and_keeps_its_talk_from_the_data(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 4)))
    write_vectors(tmp_path / "q.npy", np.zeros((1, 4)))
    commands = (
        "fit x.npy -m lsh -b 4 -o m --json",
        "index m x.npy -o c.hl --json",
        "evaluate m -d digits",  # an error
        "reproduce --quick --data digits fig-mnist --methods lsh --bits 8 --seeds 1 --out r --json",
    )
    for command in commands:
        done = subprocess.run(
            f"{sys.executable} -m hashlearn.cli {command} 2>&-",
            shell=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        if command.startswith("evaluate"):
            assert (done.returncode, done.stdout) == (2, "")
        else:
            assert done.returncode == 0, command
            json.loads(done.stdout)


@pytest.mark.slow
def test_what_the_library_logs_is_a_line_each(tmp_path):
    folder = tmp_path / "two\nlines"
    folder.mkdir()
    record = (RESULTS / "fig-mnist.jsonl").read_text(encoding="utf-8").splitlines()[0]
    (folder / "fig-mnist.jsonl").write_text(f"{{}}\n{record}\n", encoding="utf-8")
    done = run_apart("report", folder, "--no-images", "-o", tmp_path / "r.html")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("hashlearn: warning: ")
    assert "line 1" in line


def test_a_warning_is_one_line(tmp_path):
    result = run(
        "fit",
        "digits",
        "-m",
        "udh-dnn",
        "-b",
        8,
        "-o",
        tmp_path / "m",
        "-p",
        "max_iter=1",
        "-p",
        "hidden_units=[20, 9]",
    )
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("hashlearn: warning: UDH-DNN has not converged: ")
    assert hashlearn.load(tmp_path / "m").hidden_units == [20, 9]


# -- quiet ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--quiet", "-q"])
def test_quiet_leaves_notes_out_before_and_after_the_command(flag, tmp_path):
    (tmp_path / "digits").mkdir()
    fit = ["fit", "digits", "-m", "itq", "-b", "8", "-o", "m"]
    assert "note: digits is the data set" in run(*fit, cwd=tmp_path).stderr
    for arguments in ([flag, *fit], [*fit, flag]):
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("itq, 8 bits")
    assert "note: digits is the data set" in run(*fit, cwd=tmp_path).stderr


def test_quiet_leaves_warnings_and_errors(tmp_path):
    short = ["-b", 8, "-o", tmp_path / "m", "-p", "max_iter=1"]
    done = run("-q", "fit", "digits", "-m", "udh-dnn", *short)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: UDH-DNN has not converged" in done.stderr
    assert run("-q", "fit", "nowhere.npy", "-m", "itq", *short).stderr.startswith(
        "hashlearn: error: nowhere.npy is neither"
    )


@pytest.mark.slow
def test_quiet_runs_show_no_progress(tmp_path):
    arguments = [
        "reproduce",
        "fig-mnist",
        "--quick",
        "--data",
        "digits",
        "--methods",
        "lsh",
        "--bits",
        "8",
        "--seeds",
        1,
    ]
    done = run_apart(*arguments, "--out", tmp_path / "loud")
    assert "1 run to make, 0 already made" in done.stderr
    done = run_apart(*arguments, "--out", tmp_path / "quiet", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 run made, 0 found" in done.stdout


def test_quiet_is_not_taken_from_behind_two_dashes(tmp_path):
    done = run("info", "--", "-q", cwd=tmp_path)
    assert done.stderr == "hashlearn: error: no model file is at -q.\n"


# -- completion -------------------------------------------------------------------------------------------------------


def complete(*words):
    """What bash would offer for the last word."""
    environment = {"_HASHLEARN_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["hashlearn", *words])}
    code = "import sys; sys.argv = ['hashlearn']; from hashlearn.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment, "COMP_CWORD": str(len(words))},
    )
    return done.stdout.split()


@pytest.mark.slow
def test_names_are_completed():
    assert complete("fi") == ["fit"]
    assert complete("fit", "digits", "--method", "au") == ["auto"]
    assert complete("fit", "digits", "--method", "it") == ["itq", "itq-cca"]
    assert complete("fit", "mn") == ["mnist"]
    assert complete("fit", "photos", "--features", "g") == ["gist"]
    assert complete("evaluate", "m", "--dataset", "cifar") == ["cifar10", "cifar10-dh"]
    assert complete("data", "get", "sifts") == ["siftsmall"]
    assert complete("data", "images", "") == ["mnist", "cifar10"]
    assert complete("reproduce", "table") == ["table-dh"]
    assert complete("reproduce", "study-b") == ["study-bre-cifar10", "study-ba-cifar10"]
    assert complete("fit", "photos/no") == []  # left to the shell, which completes names of files


def test_completion_knows_every_method_without_importing_one():
    from hashlearn.cli.options import method_names

    assert set(method_names()) == set(hashlearn.METHODS)
    code = "import sys; from hashlearn.cli.options import method_names; method_names(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" not in modules


def test_completion_can_be_installed():
    text = run("--help").stdout
    assert "--install-completion" in text
    assert "--show-completion" in text
