"""The commands on models, on real files."""

import json
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

import hashlearn
from command_line import picture, run_apart
from command_line import run_here as run
from hashlearn.vectors import read_vectors, write_vectors


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


def test_evaluate_on_vectors_equals_the_library(model, tmp_path):
    from hashlearn.compare import evaluate_model
    from hashlearn.evaluation import Truth

    digits = hashlearn.datasets.load("digits")
    np.save(tmp_path / "v.npy", digits.database)
    np.save(tmp_path / "q.npy", digits.queries)
    hasher = hashlearn.load(model)
    own = ("evaluate", model, "--vectors", tmp_path / "v.npy")
    done = run(*own, "--queries", tmp_path / "q.npy", "-k", 5, "--metric", "cosine", "--rerank", "20,50", "--json")
    expected = evaluate_model(hasher, digits.database, digits.queries, k=5, metric="cosine", rerank_depths=[20, 50])
    assert {"model": str(model), "method": "itq", **expected.as_dict()} == json.loads(done.stdout)
    assert not done.stderr

    done = run(*own, "--seed", 4)
    recall = evaluate_model(hasher, digits.database, random_state=4).rankings[0].scores["recall"]
    assert f"{100 * recall:.2f} ± " in done.stdout
    assert "truth: the 10 nearest by Euclidean distance" in done.stdout
    assert "note: the queries were drawn from the vectors" in done.stderr

    judged = [(f"q{q}", f"d{d}", 1) for q in range(200) for d in range(0, 1500, 10)]
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} {grade}\n" for q, d, grade in judged), encoding="utf-8")
    (tmp_path / "q.txt").write_text("".join(f"q{q} \n" for q in range(297)) + "\n", encoding="utf-8")
    (tmp_path / "d.txt").write_text("".join(f"d{d}\n" for d in range(1500)), encoding="utf-8")
    judgments = ("--judgments", tmp_path / "qrels", "--query-ids", tmp_path / "q.txt", "--item-ids", tmp_path / "d.txt")
    done = run(*own, "--queries", tmp_path / "q.npy", *judgments, "--rerank", "50", "--json")
    assert "97 of the 297 queries have no judgments and are left out" in done.stderr
    truth = Truth.judgments(judged, [f"q{q}" for q in range(200)], [f"d{d}" for d in range(1500)])
    expected = evaluate_model(hasher, digits.database, digits.queries[:200], truth=truth, rerank_depths=[50])
    assert json.loads(done.stdout)["rankings"] == expected.as_dict()["rankings"]


def test_check_equals_the_library(model, tmp_path):
    from hashlearn.compare import check_model

    digits = hashlearn.datasets.load("digits")
    np.save(tmp_path / "v.npy", digits.database)
    done = run("check", model, tmp_path / "v.npy", "-k", 5, "--seed", 2, "--json")
    expected = check_model(hashlearn.load(model), digits.database, k=5, random_state=2)
    assert {"model": str(model), "method": "itq", **expected.as_dict()} == json.loads(done.stdout)
    done = run("check", model, tmp_path / "v.npy")
    assert "recall of 10 in" in done.stdout
    assert "The model fits these vectors" in done.stdout
    assert run("check", model, "none.npy").stderr == "hashlearn: error: VECTORS names none.npy, which does not exist.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either --dataset or --vectors"),
        (["--vectors", "v.npy", "-d", "digits"], "give either --dataset or --vectors"),
        (["--vectors", "v.npy", "--ties", "index"], "--vectors is given, so --ties would have no effect"),
        (["-d", "digits", "--metric", "cosine"], "--dataset is given, so --metric would have no effect"),
        (["--vectors", "v.npy", "--rerank", "a"], "--rerank must be whole numbers separated by commas; got 'a'"),
        (["--vectors", "v.npy", "--judgments", "j"], "--judgments, --query-ids and --item-ids must be given together"),
        (["--vectors", "no.npy"], "--vectors names no.npy, which does not exist"),
        (["--vectors", "v.npy", "--rerank", "5"], "--rerank must be at least 10, the number of neighbors (-k); got 5"),
        (["--vectors", "v.npy", "-k", "0"], "k must be"),
        (["--vectors", "v.npy", "--queries", "v.npy", "--seed", "1"], "--queries is given, so --seed would have no"),
        (["--vectors", "v.npy", "--metric", "dot"], "metric must be one of 'euclidean', 'cosine', 'inner_product'"),
    ],
)
def test_evaluate_refuses_what_has_no_effect(arguments, words, model, tmp_path):
    np.save(tmp_path / "v.npy", np.ones((3, 64)))
    done = run("evaluate", model, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"hashlearn: error: {words}")


def test_evaluate_prints_the_protocol_and_obeys_each_choice(model, tmp_path):
    def answer(*choices):
        done = run("evaluate", model, "-d", "digits", *choices, HASHLEARN_CACHE=str(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout

    plain = answer()
    for words in ("mAP", "P@3", "10 Euclidean nearest neighbors", "whole ranking", "ties in database order"):
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


@pytest.mark.slow
def test_a_huge_radius_is_the_whole_and_a_poor_terminal_is_enough(model, tmp_path):
    done = run("evaluate", model, "-d", "digits", "-r", "99999999999999999999", "--json", HASHLEARN_CACHE=str(tmp_path))
    assert json.loads(done.stdout)["precision_at_radius"]["99999999999999999999"] == pytest.approx(10 / 1500)
    for command in (["methods"], ["data", "list"], ["evaluate", model, "-d", "digits"]):
        assert run_apart(*command, PYTHONIOENCODING="ascii", HASHLEARN_CACHE=str(tmp_path)).returncode == 0


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


@pytest.mark.slow
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
    done = run("evaluate", tmp_path / "m", "-d", "digits", "--truth", "neighbors")
    assert "truth: 10 Euclidean nearest neighbors" in done.stdout
    done = run("evaluate", tmp_path / "m", "-d", "digits", "--k", 5)
    assert "truth: 5 Euclidean nearest neighbors" in done.stdout
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
    assert (
        "no parameter of udh-dnn is named 'callback': choose from batch_size, constraint, decoder, epochs,"
        in result.stderr
    )
    assert "callback" not in result.stderr.partition("choose from")[2]


def test_methods():
    assert [m["method"] for m in json.loads(run("methods", "--json").stdout)] == list(hashlearn.METHODS)
    text = run("methods").stdout
    assert all(name in text for name in hashlearn.METHODS)


def test_parameters_reach_the_method(tmp_path):
    done = run("fit", "digits", "-m", "itq", "-b", 8, "-p", "max_iter=7", "-o", tmp_path / "m", "--json")
    assert json.loads(done.stdout)["n_bits"] == 8
    assert hashlearn.load(tmp_path / "m").max_iter == 7
    run("fit", "digits", "-m", "lsh", "-b", 8, "-p", "center=false", "-o", tmp_path / "m")
    assert hashlearn.load(tmp_path / "m").center is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["fit", "nowhere.npy", "-o", "m"],
            "nowhere.npy is neither a file nor a folder nor a data set: choose from digits, mnist",
        ),
        (["fit", "digits", "-m", "magic", "-o", "m"], "no method is named 'magic': choose from lsh, "),
        (
            ["fit", "digits", "-m", "sh", "-p", "speed=1", "-o", "m"],
            "no parameter of sh is named 'speed': there are none.",
        ),
        *(
            (["fit", "digits", "-m", typed, "-o", "m"], f"no method is named '{typed}': did you mean {meant}?")
            for typed, meant in {
                "udhdnn": "udh-dnn",
                "UDH-DNN": "udh-dnn",
                "sdh_dnn": "sdh-dnn",
                "ITQCCA": "itq-cca",
                "ITQ": "itq",
            }.items()
        ),
        (["fit", "mnits", "-o", "m"], "mnits is neither a file nor a folder nor a data set: did you mean mnist?"),
        (
            ["fit", "digits", "-m", "itq", "-p", "max_itr=1", "-o", "m"],
            "no parameter of itq is named 'max_itr': did you mean max_iter?",
        ),
        (["fit", "digits", "-m", "itq", "-p", "max_iter", "-o", "m"], "-p takes name=value; got 'max_iter'"),
        (["fit", "digits", "-p", "max_iter=1", "-o", "m"], "--method is auto, so --parameter would have no effect"),
        (["encode", "MODEL", "digits", "--skip-unreadable", "-o", "c.npy"], "--skip-unreadable would have no effect"),
        (["encode", "MODEL", ".", "-o", "c.npy"], "the model was trained on vectors, not on pictures"),
        (
            ["fit", "digits", "-m", "dh", "-b", "65", "-o", "m"],
            "n_bits must be at most the number of features, n_features=64, for DH",
        ),
        (
            ["fit", "digits", "-b", "0", "-o", "m"],
            "n_bits must be a whole number of at least 1 and at most 16777216; got 0",
        ),
        (
            ["fit", "digits", "-m", "itq", "-p", "magic=1", "-o", "m"],
            "no parameter of itq is named 'magic': choose from max_iter",
        ),
        (
            ["fit", "digits", "-m", "itq", "-p", "max_iter=abc", "-o", "m"],
            "max_iter must be a whole number of at least 1; got 'abc'",
        ),
        (["fit", "digits", "-m", "lsh", "-p", "center=1", "-o", "m"], "center must be True or False; got 1"),
        (["fit", "digits", "--labels", "y.npy", "-o", "m"], "digits is a data set, so --labels would have no effect"),
        (["fit", "digits", "--key", "x", "-o", "m"], "digits is a data set, so --key would have no effect"),
        (
            ["fit", "digits", "-m", "sh", "--seed", "0", "-o", "m"],
            "sh draws nothing at random with these parameters, so --seed",
        ),
        (["fit", "digits", "-m", "kmh", "-b", "30", "-o", "m"], "n_bits must be a multiple of bits_per_subspace"),
        (
            ["fit", "narrow.npy", "--split", "3", "--source", "x", "-o", "m"],
            "--source and --split would have no effect",
        ),
        (["encode", "MODEL", "narrow.npy", "--part", "train", "-o", "c.npy"], "--part would have no effect"),
        (["encode", "MODEL", "digits", "--key", "x", "-o", "c.npy"], "--key would have no effect"),
        (["data", "get", "digits", "--split", "2"], "split must be 0 for digits"),
        (["fit", "digits", "-m", "itq", "-o", "/dev/null/m"], "/dev/null"),
        (["fit", "digits", "-o", "/dev/null"], "a file can't be written to '/dev/null'"),
        (["fit", "digits", "-o", "."], "a file can't be written to '.'"),
        (["evaluate", "MODEL", "-d", "digits", "--k", "0"], "k must be at least 1; got 0"),
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
        (["evaluate", "MODEL", "-d", "mnits"], "no data set is named 'mnits': did you mean mnist?"),
        (["evaluate", "MODEL", "-d", "digits", "--truth", "faith"], "truth must be neighbors or labels"),
        (["evaluate", "MODEL", "-d", "digits", "--ties", "any"], "ties must be one of index, expected"),
        (["evaluate", "MODEL", "-d", "digits", "--distance", "l2"], "distance must be one of hamming, spherical"),
        (["evaluate", "MODEL", "-d", "digits", "--distance", ""], "distance must be one of hamming, spherical"),
        (["evaluate", "MODEL", "-d", "digits", "--k", "5", "--truth", "labels"], "k goes with truth by neighbors"),
        (["data", "get", "mnits"], "no data set is named 'mnits': did you mean mnist?"),
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


@pytest.mark.parametrize(
    ("method", "parameter", "words"),
    [
        ("itq", "max_iter=1e400", "max_iter must be a whole number of at least 1; got '1e400'"),
        ("itq", "max_iter=1" + "0" * 400, "max_iter must be a whole number of at least 1; got"),
        ("itq", "max_iter=1" + "0" * 200, "max_iter must be at most"),
        ("itq", "max_iter=NaN", "max_iter must be a whole number of at least 1; got 'NaN'"),
        ("udh-dnn", "hidden_units=" + "[" * 5000, "hidden_units must be 'auto' or a list"),
        ("udh-dnn", "hidden_units=" + "[" * 150 + "]" * 150, "hidden_units must be 'auto' or a list of whole numbers"),
        ("udh-dnn", "lambda1=1" + "0" * 400, "lambda1 must be a number"),
        ("itq", "units=" + "[" * 5000, "no parameter of itq is named 'units'"),
        ("itq", "[" * 5000, "-p takes name=value; got '[["),
        ("itq", "[" * 5000 + "=1", "no parameter of itq is named '[["),
    ],
)
def test_hostile_parameters_are_one_line_and_exit_code_2(method, parameter, words, tmp_path):
    done = run("fit", "digits", "-m", method, "-p", parameter, "-o", tmp_path / "x.model")
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 700
    assert not list(tmp_path.iterdir())


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_encode_a_folder_of_pictures(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for i in range(12):
        picture(i).save(tmp_path / "photos" / ("a" if i % 2 else "") / f"{i:02}.png")
    assert run("fit", "photos", "-b", 8, "--side", 16, "-o", "m", cwd=tmp_path).returncode == 0
    done = run("encode", "m", "photos", "-o", "codes.npy", "--json", cwd=tmp_path)
    assert (json.loads(done.stdout)["n_samples"], json.loads(done.stdout)["encoded"]) == (12, "photos")
    from hashlearn.features import GistExtractor, find_images, image_vectors

    paths = find_images(tmp_path / "photos")
    ((_, X),) = image_vectors(tmp_path / "photos", paths, GistExtractor(side=16))
    expected = hashlearn.load(tmp_path / "m").encode(X)
    np.testing.assert_array_equal(read_vectors(tmp_path / "codes.npy"), expected)
    assert not (tmp_path / "codes-paths.txt").exists()

    for name in ("a/bad\n.png", "worse.jpg"):
        (tmp_path / "photos" / name).write_text("not a picture")
    (tmp_path / "codes.npy").unlink()
    done = run("encode", "m", "photos", "-o", "codes.npy", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "2 of 14 pictures can't be read (a/bad" in done.stderr
    assert re.search(r"worse.jpg: not a picture.*; --skip-unreadable leaves them out", done.stderr)
    assert not (tmp_path / "codes.npy").exists()
    done = run("encode", "m", "photos", "-o", "codes.npy", "--skip-unreadable", cwd=tmp_path)
    assert done.returncode == 0
    assert re.search(r"note: 2 of 14 pictures can't be read .*worse.jpg: not a picture.* and are left out", done.stderr)
    assert done.stdout.endswith("of photos: codes.npy, codes-paths.txt\n")
    np.testing.assert_array_equal(read_vectors(tmp_path / "codes.npy"), expected)
    assert (tmp_path / "codes-paths.txt").read_text().splitlines() == paths


@pytest.mark.slow
def test_auto_chooses_a_method_and_says_why(tmp_path):
    done = run("fit", "digits", "-b", 16, "-o", tmp_path / "m", "--json")
    result = json.loads(done.stdout)
    assert f"hashlearn: note: --method auto: {result['reason']}" in done.stderr
    assert result["method"] == hashlearn.load(tmp_path / "m").name
    assert next(iter(result["scores"])).startswith(result["method"])
    assert {"itq", "neighbor-hash"} <= result["scores"].keys()
