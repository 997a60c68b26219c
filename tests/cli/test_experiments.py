"""``hashlearn reproduce`` and ``hashlearn report`` as a person types them."""

import json
import os
import subprocess
import sys

import pytest

from command_line import run_here

pytestmark = pytest.mark.slow


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "hashlearn.cli", "reproduce", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **{"env": {**os.environ, "COLUMNS": "200"}, **options},
    )


def test_quick_runs_every_experiment_on_digits(tmp_path):
    done = run("--quick", "--data", "digits", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "results-quick"
    names = {path.stem for path in folder.iterdir()}
    listed = {entry["experiment"]: entry for entry in json.loads(run_here("reproduce", "--list", "--json").stdout)}
    assert names == {name for name in listed if not name.startswith("study-")}
    for name in names:
        entry = listed[name]
        kept = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        assert {record["method"] for record in kept} == set(entry["methods"])
        assert {(record["method"], record["n_bits"]) for record in kept} == {
            (method, n_bits) for method in entry["methods"] for n_bits in (8, 16)
        }
        measures = {name for record in kept for name in record["scores"]}
        assert measures >= ({"recall@10", "real_recall@100"} if "glosses" in name or "names" in name else {"map"})
        assert all(0 < record["scores"].get("map", record["scores"].get("real_recall@10")) <= 1 for record in kept)
    assert "fig-mnist-sup: mAP" in done.stdout
    assert "beyond-glosses: recall@10, real-valued queries" in done.stdout
    assert "hashlearn report results-quick shows them all" in done.stdout


def test_list():
    done = run_here("reproduce", "--list", "table-dh", "--bits", "16,32", "--seeds", 2)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("table-dh: CIFAR-10, 512-D GIST")
    assert lines[1].strip() == "44 runs; cifar10-dh; 16/32 bits; up to 2 seeds"


def test_studies_are_listed_and_their_entries_are_methods():
    listed = {entry["experiment"]: entry for entry in json.loads(run_here("reproduce", "--list", "--json").stdout)}
    assert next(iter(listed)) == "fig-cifar10"
    assert "kernel=rbf" in listed["study-bre-cifar10"]["methods"]
    narrow = ("--methods", "kernel=rbf", "--bits", 16, "--seeds", 1)
    done = run_here("reproduce", "study-bre-cifar10", "--list", *narrow)
    assert done.stdout.splitlines()[1:] == ["    1 run; cifar10; 16 bits; up to 1 seed", "    kernel=rbf"]
    done = run_here("reproduce", "--list", "--methods", "kernel=rbf")
    assert done.stdout.startswith("study-bre-cifar10: ")
    done = run_here("reproduce", "--list", "--methods", "magic")
    assert done.stderr.startswith("hashlearn: error: no method of the experiments is named 'magic': choose from lsh, ")
    assert len(done.stderr) < 1000


def test_narrowed_as_json(tmp_path):
    arguments = ("fig-mnist", "ablation", "--quick", "--data", "digits", "--methods", "itq", "--bits", "8", "--json")
    done = run(*arguments, "--out", tmp_path)
    answer = json.loads(done.stdout)
    assert (answer["found"], answer["made"], answer["failed"]) == (1, 1, [])  # both experiments share one run
    assert answer["map"]["fig-mnist"] == answer["map"]["ablation"]
    assert list(answer["map"]["fig-mnist"]["ITQ"]) == ["8"]
    assert json.loads(run(*arguments, "--out", tmp_path).stdout)["found"] == 2
    more = run_here(
        "reproduce",
        "fig-mnist",
        "--list",
        "--json",
        "--bits",
        "8",
        "--bits",
        "16,24",
        "--methods",
        "itq",
        "--methods",
        "lsh",
    )
    (listed,) = json.loads(more.stdout)
    assert (listed["bits"], listed["methods"]) == ([8, 16], ["itq", "lsh"])


def test_what_is_left_out_and_what_stands_in_is_told(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HASHLEARN_SIFT")}
    arguments = ("fig-sift", "--quick", "--bits", "8,24", "--methods", "lsh,sdh", "--out", tmp_path)
    done = run(*arguments, env=environment)
    assert done.returncode == 0
    assert "note: no chosen experiment has the bits 24" in done.stderr
    assert "note: no chosen experiment has the methods sdh at these lengths" in done.stderr
    assert "fig-sift is run on digits: sift1m is read from a folder" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig-9"], "no experiment is named 'fig-9': choose from fig-cifar10, fig-mnist, "),
        (["--methods", "foo"], "no method of the experiments is named 'foo': choose from lsh, "),
        (["fig-minst"], "no experiment is named 'fig-minst': did you mean fig-mnist?"),
        (["--methods", "udhdnn"], "no method of the experiments is named 'udhdnn': did you mean udh-dnn?"),
        (
            ["--bits", "16", "--bits", "x"],
            "--bits must be whole numbers separated by commas, such as 16,32; got '16,x'.",
        ),
        (["--bits", "x"], "--bits must be whole numbers separated by commas, such as 16,32; got 'x'."),
        (["--bits", ""], "--bits must be whole numbers"),
        (["--bits", "7"], "nothing is left to run"),
        (["--bits", "7", "--list"], "nothing is left to run"),
        (["--seeds", "0"], "seeds must be at least 1; got 0."),
        (["--jobs", "0", "--quick", "--data", "digits"], "jobs must be at least 1; got 0."),
        (["--data", "digits"], "--data goes with --quick"),
        (["--quick", "--data", "foo"], "no data set is named 'foo': choose from digits, mnist, "),
        (["--quick", "--data", "digits", "--out", __file__], "--out must be a folder; "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    done = run_here("reproduce", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hashlearn: error: {words}")
    assert not list(tmp_path.iterdir())


def report(*arguments, cwd):
    return run_here("report", *arguments, cwd=cwd)


def test_from_runs_to_a_page(tmp_path):
    run("fig-mnist-sup", "--quick", "--data", "digits", "--methods", "itq,sdh", cwd=tmp_path)
    done = report("results-quick", "--markdown", "docs/RESULTS.md", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "4 runs, 12 missing: report.html, docs/RESULTS.md, 4 charts\n"
    page = (tmp_path / "report.html").read_text()
    kept = [json.loads(line) for line in (tmp_path / "results-quick" / "fig-mnist-sup.jsonl").read_text().splitlines()]
    for record in kept:
        assert f"{100 * record['scores']['map']:.2f}" in page
    assert "data:image/png;base64," in page  # what was found
    assert "hashlearn reproduce --quick --data digits --out results-quick" in page
    assert "hashlearn report results-quick --out report.html --markdown docs/RESULTS.md" in page
    assert len(list((tmp_path / "docs" / "figures").glob("*.svg"))) == 4
    answer = json.loads(report("results-quick", "--json", "--no-images", cwd=tmp_path).stdout)
    assert answer == {"page": "report.html", "markdown": None, "figures": [], "runs": 4, "missing": 12, "left_out": 0}
    assert "data:image/png" not in (tmp_path / "report.html").read_text()


def test_results_that_are_not_the_grids_are_left_out_and_told(tmp_path):
    run("fig-mnist", "--quick", "--data", "digits", "--methods", "itq,lsh", "--bits", "8", cwd=tmp_path)
    path = tmp_path / "results-quick" / "fig-mnist.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    (record,) = (record for record in records if record["method"] == "itq")
    others = [other for other in records if other is not record]
    others.append({**record, "options": {"max_iter": 5}})
    others.append({**record, "key": "foo", "data": {**record["data"], "name": "foo"}})
    others.append({**record, "key": "bar", "seed": 1, "revision": 99})
    path.write_text("".join(json.dumps(other) + "\n" for other in others))
    done = report("results-quick", cwd=tmp_path)
    assert done.stdout.startswith("1 run, ")
    assert (
        "note: left out: 1 result of another revision of the method, "
        "2 results of data sets, methods, parameters or settings that are not the grid's\n" in done.stderr
    )
    assert f"{100 * record['scores']['map']:.2f}" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is no folder results of results; `hashlearn reproduce` makes one."),
        (["."], ". holds no results of the experiments; `hashlearn reproduce` makes them."),
        ([".", "--out", "."], "a file can't be written to '.'"),
        ([".", "--figures", __file__], "--figures must be a folder; "),
        ([".", "--out", "a", "--markdown", "b/../a"], "--out and --markdown must be two files; got a for both."),
    ],
)
def test_a_report_of_nothing_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    done = report(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hashlearn: error: {words}")
    assert not list(tmp_path.iterdir())
