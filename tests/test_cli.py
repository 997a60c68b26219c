"""The command line as a person or a script uses it, on real files; in processes of its own where that matters."""

import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits

import hashlearn
from command_line import run_here
from hashlearn.vectors import read_vectors, write_vectors

run = run_here


def run_apart(*arguments, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-m", "hashlearn.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "digits.model"
    done = run("fit", "digits", "--method", "itq", "--bits", 12, "--out", path, "--seed", 3)
    assert done.returncode == 0, done.stderr
    assert "itq, 12 bits, from 1,500 vectors of 64 (digits)" in done.stdout
    return path


def test_fit_encode_evaluate_equal_the_library(model, tmp_path):
    dataset = hashlearn.datasets.load("digits")
    expected = hashlearn.ITQ(12, random_state=3).fit(dataset.train)
    np.testing.assert_array_equal(hashlearn.load(model).encode(dataset.queries), expected.encode(dataset.queries))

    write_vectors(tmp_path / "queries.fvecs", dataset.queries.astype(np.float32))
    done = run("encode", model, tmp_path / "queries.fvecs", "--out", tmp_path / "codes.npy", "--json")
    answer = json.loads(done.stdout)
    assert (answer["n_samples"], answer["encoded"]) == (len(dataset.queries), "queries.fvecs")
    np.testing.assert_array_equal(read_vectors(tmp_path / "codes.npy"), expected.encode(dataset.queries))
    run("encode", model, "digits", "--part", "queries", "--out", tmp_path / "part.npy")
    np.testing.assert_array_equal(read_vectors(tmp_path / "part.npy"), expected.encode(dataset.queries))

    done = run("evaluate", model, "--dataset", "digits", "--json", HASHLEARN_CACHE=str(tmp_path))
    answer = json.loads(done.stdout)
    from hashlearn.evaluation import setting
    from hashlearn.experiments import judge

    scores = judge(expected, dataset, setting("digits"))
    assert answer["map"] == scores.map
    assert answer["trained_on"] == answer["dataset"] == "digits"
    assert answer["precision_at_radius"] == {str(r): p for r, p in scores.precision_at_radius.items()}
    assert done.stderr == ""


def test_encode_for_sentence_transformers(tmp_path):
    dataset = hashlearn.datasets.load("digits")
    assert run("fit", "digits", "-b", 16, "-o", tmp_path / "m").returncode == 0
    packed = hashlearn.load(tmp_path / "m").encode(dataset.queries)
    expected = {"ubinary": packed, "binary": packed.astype(np.int16) - 128}
    for chosen, precision in (
        (["--precision", "binary"], "binary"),
        (["--precision", "ubinary"], "ubinary"),
        ([], "ubinary"),
    ):
        arguments = ["--part", "queries", "--format", "sentence-transformers", *chosen, "--out", tmp_path / "e.npy"]
        answer = json.loads(run("encode", tmp_path / "m", "digits", *arguments, "--json").stdout)
        assert (answer["format"], answer["precision"]) == ("sentence-transformers", precision)
        found = read_vectors(tmp_path / "e.npy")
        assert found.dtype == (np.int8 if precision == "binary" else np.uint8)
        np.testing.assert_array_equal(found, expected[precision])
        done = run("encode", tmp_path / "m", "digits", *arguments)
        assert done.stdout.endswith(f"e.npy (sentence-transformers, {precision})\n")
    done = run("encode", tmp_path / "m", "digits", "--format", "packed", "--out", tmp_path / "c.npy", "--json")
    assert (json.loads(done.stdout)["format"], json.loads(done.stdout)["precision"]) == ("packed", None)


def test_evaluate_prints_the_protocol_and_obeys_each_choice(model, tmp_path):
    def answer(*choices):
        done = run("evaluate", model, "-d", "digits", *choices, HASHLEARN_CACHE=str(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout

    plain = answer()
    for words in ("mAP", "P@3", "10 Euclidean nearest neighbours", "whole ranking", "ties in database order"):
        assert words in plain
    changed = {
        ("--truth", "labels"): "equal class labels",
        ("--k", "5"): "5 Euclidean",
        ("--ap", "trapezoid"): "trapezoid rule",
        ("--cutoff", "20"): "top 20",
        ("--ties", "expected"): "ties by expectation",
        ("-r", "1"): "P@1",
        ("--distance", "spherical"): "ranked by spherical Hamming distance",
    }
    for choices, words in changed.items():
        assert words in answer(*choices)
        assert words not in plain


def test_a_model_trained_on_other_data_is_said(model, tmp_path):
    dataset = hashlearn.datasets.load("digits")
    np.save(tmp_path / "x.npy", dataset.train)
    assert run("fit", tmp_path / "x.npy", "-b", 8, "-o", tmp_path / "m").returncode == 0
    done = run("evaluate", tmp_path / "m", "-d", "digits", HASHLEARN_CACHE=str(tmp_path))
    assert done.returncode == 0
    assert "trained on x.npy, not on digits" in done.stderr


def test_a_huge_radius_is_the_whole_and_a_poor_terminal_is_enough(model, tmp_path):
    done = run("evaluate", model, "-d", "digits", "-r", "99999999999999999999", "--json", HASHLEARN_CACHE=str(tmp_path))
    assert json.loads(done.stdout)["precision_at_radius"]["99999999999999999999"] == pytest.approx(10 / 1500)
    for command in (["methods"], ["data", "list"], ["evaluate", model, "-d", "digits"]):
        assert run_apart(*command, PYTHONIOENCODING="ascii", HASHLEARN_CACHE=str(tmp_path)).returncode == 0


def test_a_model_file_says_its_split():
    from types import SimpleNamespace

    from hashlearn._arguments import trained_on_text

    assert trained_on_text(SimpleNamespace(name="cifar10-dh"), 3) == "cifar10-dh split 3"
    assert trained_on_text(SimpleNamespace(name="mnist"), None) == "mnist"


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


def test_a_number_of_neighbours_means_truth_by_neighbours():
    """Also on data that are otherwise judged by labels."""
    from hashlearn._arguments import choose_setting

    for supervised in (False, True):
        nothing = choose_setting("cifar10-dh", None, None, None, None, None, None, supervised=supervised)
        assert (nothing.truth, nothing.k) == ("labels", None)
        chosen = choose_setting("cifar10-dh", None, 7, None, None, None, None, supervised=supervised)
        assert (chosen.truth, chosen.k) == ("neighbours", 7)


def test_a_methods_own_distance_ranks_unless_another_is_asked_for(tmp_path):
    assert run("fit", "digits", "-m", "sph", "-b", 16, "-o", tmp_path / "m").returncode == 0
    found = {}
    for choices in ((), ("--distance", "spherical"), ("--distance", "hamming")):
        done = run("evaluate", tmp_path / "m", "-d", "digits", "--json", *choices, HASHLEARN_CACHE=str(tmp_path))
        found[choices] = json.loads(done.stdout)
    own, spherical, hamming = found.values()
    assert own == spherical
    assert (own["protocol"]["distance"], hamming["protocol"]["distance"]) == ("spherical", "hamming")
    assert own["map"] != hamming["map"]
    assert own["precision_at_radius"] == hamming["precision_at_radius"]


def test_a_supervised_method(tmp_path):
    """Labels of a data set and of a file; judged by labels unless it is told otherwise."""
    short = ["-b", 8, "-p", "max_iter=1", "-p", "lbfgs_iter=20"]
    done = run("fit", "digits", "-m", "sdh-dnn", "-o", tmp_path / "m", *short)
    assert done.returncode == 0, done.stderr
    first, summary = done.stdout.splitlines()
    assert first.startswith("sdh-dnn, 8 bits, from 1,500 vectors of 64 (digits) in ")
    assert summary.startswith("objective ")
    assert (
        ", iterations 1, kept iteration 1, converged no, samples per class 2,000, samples 1,500, classes 10, fewest"
        in summary
    )
    assert re.search(r", pair term [\d.]{,7}, floor of the pair term [\d.]{,7}, ", summary)
    done = run("fit", "digits", "-m", "sdh-dnn", "-o", tmp_path / "m", "--json", *short)
    found = json.loads(done.stdout)
    assert found["iterations"] == 1
    assert found["floor_of_the_pair_term"] < found["pair_term"]
    done = run("evaluate", tmp_path / "m", "-d", "digits")
    assert "truth: equal class labels (10 classes)" in done.stdout
    done = run("evaluate", tmp_path / "m", "-d", "digits", "--truth", "neighbours")
    assert "truth: 10 Euclidean nearest neighbours" in done.stdout
    done = run("evaluate", tmp_path / "m", "-d", "digits", "--k", 5)
    assert "truth: 5 Euclidean nearest neighbours" in done.stdout
    digits = load_digits()
    np.save(tmp_path / "x.npy", digits.data)
    (tmp_path / "y.txt").write_text("\n".join(f"digit {k}" for k in digits.target))
    done = run(
        "fit", tmp_path / "x.npy", "-m", "sdh-dnn", "-o", tmp_path / "m2", *short, "--labels", tmp_path / "y.txt"
    )
    assert "samples 1,797, classes 10" in done.stdout, done.stderr
    done = run("fit", tmp_path / "x.npy", "-m", "sdh-dnn", "-o", tmp_path / "m3", *short)
    assert done.stderr == "hashlearn: error: sdh-dnn learns from labels: give them with --labels FILE.\n"


def test_what_only_python_can_give_is_no_parameter(tmp_path):
    result = run("fit", "digits", "-m", "udh-dnn", "-o", tmp_path / "m", "-p", "callback=print")
    assert result.returncode == 2
    assert "-p takes name=value with one of constraint, decoder, hidden_units, init, init_codes," in result.stderr
    assert "callback" not in result.stderr.partition("got")[0]


def test_methods_and_data_list():
    assert [m["method"] for m in json.loads(run("methods", "--json").stdout)] == list(hashlearn.METHODS)
    text = run("methods").stdout
    assert all(name in text for name in hashlearn.METHODS)
    names = [d["name"] for d in json.loads(run("data", "list", "--json").stdout)]
    assert {"digits", "mnist", "cifar10", "cifar10-dh", "sift1m", "siftsmall", "sift-photos"} <= set(names)
    text = run("data", "list").stdout
    assert "sift-photos: SIFT descriptors of other photographs" in text
    assert "HASHLEARN_SIFT_PHOTOS" in text
    got = json.loads(run("data", "get", "digits", "--json").stdout)
    assert got["train"] == got["database"]
    assert got["train"][1] == 64


def test_parameters_reach_the_method(tmp_path):
    done = run("fit", "digits", "-m", "itq", "-b", 8, "-p", "max_iter=7", "-o", tmp_path / "m", "--json")
    assert json.loads(done.stdout)["n_bits"] == 8
    assert hashlearn.load(tmp_path / "m").max_iter == 7
    run("fit", "digits", "-m", "lsh", "-b", 8, "-p", "center=false", "-o", tmp_path / "m")
    assert hashlearn.load(tmp_path / "m").center is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "nowhere.npy", "-o", "m"], "nowhere.npy is neither a file nor a data set"),
        (["fit", "digits", "-m", "magic", "-o", "m"], "--method must be one of lsh, sh, itq"),
        (["fit", "digits", "-b", "65", "-o", "m"], "n_bits must be between 1 and the number of features for ITQ"),
        (["fit", "digits", "-b", "0", "-o", "m"], "n_bits must be a whole number of at least 1; got 0"),
        (["fit", "digits", "-p", "magic=1", "-o", "m"], "-p takes name=value with one of max_iter"),
        (
            ["fit", "digits", "-p", "max_iter=abc", "-o", "m"],
            "max_iter must be a whole number of at least 1; got 'abc'",
        ),
        (["fit", "digits", "-m", "lsh", "-p", "center=1", "-o", "m"], "center must be True or False; got 1"),
        (["fit", "digits", "--labels", "y.npy", "-o", "m"], "digits is a data set, so --labels would have no effect"),
        (["fit", "digits", "--key", "x", "-o", "m"], "digits is a data set, so --key would have no effect"),
        (
            ["fit", "digits", "-m", "sh", "--seed", "0", "-o", "m"],
            "sh draws nothing at random, so --seed would have no",
        ),
        (["fit", "digits", "-m", "kmh", "-b", "30", "-o", "m"], "n_bits must be a multiple of bits_per_subspace"),
        (
            ["fit", "narrow.npy", "--split", "3", "--source", "x", "-o", "m"],
            "--source and --split would have no effect",
        ),
        (["encode", "MODEL", "narrow.npy", "--part", "train", "-o", "c.npy"], "--part would have no effect"),
        (["encode", "MODEL", "digits", "--key", "x", "-o", "c.npy"], "--key would have no effect"),
        (["data", "get", "digits", "--split", "2"], "split must be 0 for digits"),
        (["fit", "digits", "-o", "/dev/null/m"], "/dev/null"),
        (["fit", "digits", "-o", "/dev/null"], "a file can't be written to '/dev/null'"),
        (["fit", "digits", "-o", "."], "a file can't be written to '.'"),
        (["evaluate", "MODEL", "-d", "digits", "--k", "0"], "--k must be at least 1; got 0"),
        (["encode", "no.model", "digits", "-o", "c.npy"], "no model file is at no.model"),
        (
            ["encode", "MODEL", "digits", "--precision", "binary", "-o", "c.npy"],
            "--format is packed, so --precision would have no effect",
        ),
        (
            ["encode", "MODEL", "digits", "--format", "bits", "-o", "c.npy"],
            "--format must be packed or sentence-transformers; got 'bits'",
        ),
        (
            ["encode", "MODEL", "digits", "--format", "sentence-transformers", "--precision", "int8", "-o", "c.npy"],
            "precision must be ubinary or binary; got 'int8'",
        ),
        (
            ["encode", "MODEL", "digits", "--format", "sentence-transformers", "-o", "c.npy"],
            "n_bits must be a multiple of 8 for sentence-transformers' binary embeddings",
        ),
        (["encode", "MODEL", "torn.npy", "-o", "c.npy"], "torn.npy"),
        (["encode", "MODEL", "narrow.npy", "-o", "c.npy"], "63 features"),
        (["encode", "MODEL", "digits", "-o", "c.jpg"], "c.jpg"),
        (["encode", "MODEL", "digits", "--part", "rest", "-o", "c.npy"], "--part must be train, database or queries"),
        (["encode", "torn.npy", "digits", "-o", "c.npy"], "not a model that can be loaded"),
        (["evaluate", "MODEL", "-d", "mnits"], "--dataset must be one of digits"),
        (["evaluate", "MODEL", "-d", "digits", "--truth", "faith"], "--truth must be neighbours or labels"),
        (["evaluate", "MODEL", "-d", "digits", "--ties", "any"], "ties must be one of index, expected"),
        (["evaluate", "MODEL", "-d", "digits", "--distance", "l2"], "distance must be one of hamming, spherical"),
        (["evaluate", "MODEL", "-d", "digits", "--distance", ""], "distance must be one of hamming, spherical"),
        (["evaluate", "MODEL", "-d", "digits", "--k", "5", "--truth", "labels"], "--k goes with truth by neighbours"),
        (["data", "get", "mnits"], "mnits"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, words, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01")
    np.save("narrow.npy", np.ones((3, 63)))
    done = run(*[model if argument == "MODEL" else argument for argument in arguments], HASHLEARN_CACHE=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("hashlearn: error: ")
    assert words in done.stderr


def test_a_method_that_draws_nothing_needs_no_seed(tmp_path):
    done = run("fit", "digits", "-m", "sh", "-b", 8, "-o", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert isinstance(hashlearn.load(tmp_path / "m"), hashlearn.SH)


def test_labels_are_refused_by_a_method_that_learns_without(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 5)))
    np.save(tmp_path / "y.npy", np.arange(20))
    done = run("fit", tmp_path / "x.npy", "-b", 4, "--labels", tmp_path / "y.npy", "-o", tmp_path / "m")
    assert (done.returncode, done.stderr) == (2, "hashlearn: error: itq learns without labels: leave --labels out.\n")


@pytest.mark.parametrize(
    "command", [[], ["data"], ["methods"], ["data", "list"], ["data", "get"], ["fit"], ["encode"], ["evaluate"]]
)
def test_help_has_an_example(command):
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Example: hashlearn" in done.stdout
    assert run("--version").stdout.startswith("hashlearn 0.")


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


@pytest.mark.parametrize(
    ("method", "parameter", "words"),
    [
        ("itq", "max_iter=1e400", "max_iter must be a whole number of at least 1; got '1e400'"),
        ("itq", "max_iter=1" + "0" * 400, "max_iter must be a whole number of at least 1; got"),
        ("itq", "max_iter=1" + "0" * 200, "max_iter must be at most"),
        ("itq", "max_iter=NaN", "max_iter must be a whole number of at least 1; got 'NaN'"),
        ("udh-dnn", "hidden_units=" + "[" * 5000, "hidden_units must be 'auto' or a list"),
        ("udh-dnn", "hidden_units=" + "[" * 150 + "]" * 150, "hidden_units must be a whole number"),
        ("udh-dnn", "lambda1=1" + "0" * 400, "lambda1 must be a number"),
        ("itq", "units=" + "[" * 5000, "-p takes name=value"),
    ],
)
def test_hostile_parameters_are_one_line_and_exit_code_2(method, parameter, words, tmp_path):
    done = run("fit", "digits", "-m", method, "-p", parameter, "-o", tmp_path / "x.model")
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 700
    assert not list(tmp_path.iterdir())


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


def test_what_the_library_logs_is_a_line_each(tmp_path):
    bad = tmp_path / "results" / "fig-mnist" / "a\nb.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("{")
    done = run_apart("report", tmp_path / "results", "-o", tmp_path / "r.html")
    assert done.returncode == 2
    assert [line.partition(": ")[2].partition(": ")[0] for line in done.stderr.splitlines()] == ["warning", "error"]
