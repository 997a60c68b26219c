"""The README's example runs as written and prints what the README says."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hashlearn.experiments.summary import Cell

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_is_shown(tmp_path):
    code, shown = re.search(r"```python\n(.*?)```\s+```\n(.*?)```", README, re.DOTALL).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    number = r"\d+\.\d+"
    # Rounding differs between machines' BLAS: the words must agree, the numbers nearly.
    assert re.sub(number, "#", done.stdout) == re.sub(number, "#", shown)
    for got, said in zip(re.findall(number, done.stdout), re.findall(number, shown), strict=True):
        assert float(got) == pytest.approx(float(said), abs=1.0)


def test_every_linked_page_and_picture_is_there():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_tables_show_the_results_that_were_measured():
    command = [sys.executable, ROOT / "docs" / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_everything_that_is_measured_can_be_shown():
    code = """if True:
        import tables
        from hashlearn.experiments import grid
        called = {**tables.UNSUPERVISED, **tables.ALL_BY_LABELS}
        for file in ("udh-dnn", "sdh-dnn", "supervised"):
            assert {row["variant"] for row in tables.read_rows(file)} <= set(called[file]), file
        for sources, lines in ((tables.UNSUPERVISED, tables.LINES), (tables.ALL_BY_LABELS, tables.LINES_BY_LABELS)):
            by_labels = sources is tables.ALL_BY_LABELS
            assert {label for labels in sources.values() for label in labels.values()} <= set(lines)
            for name in filter(lambda name: tables.is_shown(name, by_labels=by_labels), grid.names()):
                rivals = set(grid.experiment(name).methods) - {"neighbor-hash"}  # which has a table of its own
                assert rivals <= set(sources["reproduce"]), name
        text = "".join((tables.ROOT / page).read_text(encoding="utf-8") for page in tables.PAGES)
        for name in tables.TABLES:
            assert f"<!-- table: {name} -->" in text, name
        """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "docs")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_best_of_a_column_is_bold(tables):
    rows = [[Cell((1.0,)), None], [Cell((1.004,)), Cell((2.0, 2.2))], [Cell((0.99,)), Cell((2.0,))]]
    assert tables.best_bold(rows) == [["**1.00**", ""], ["**1.00**", "**2.10 ± 0.14**"], ["0.99", "2.00"]]


@pytest.mark.parametrize(
    ("find", "put", "words"),
    [
        ("| ITQ-CCA | 78.09 ", "| ITQ-CCA | 99.99 ", "README.md does not show the results"),
        ("<!-- end of table -->", "<!-- end of tables -->", "begin or end is misspelled"),
    ],
)
def test_a_table_that_shows_something_else_is_found_and_left_alone(find, put, words, tables, tmp_path, monkeypatch):
    changed = README.replace(find, put)
    assert changed != README
    (tmp_path / "README.md").write_text(changed, encoding="utf-8")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit, match=words):
        tables.main()
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == changed
