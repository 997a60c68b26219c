"""docs/RESULTS.md and its charts are what the report makes of the committed results."""

from pathlib import Path

import pytest

from hashlearn.experiments.report import write_report

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]


def test_the_results_page_is_made_from_the_results(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results").symlink_to(ROOT / "docs" / "results", target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    write_report("docs/results/reproduce", "report.html", markdown="docs/RESULTS.md")
    again = "run hashlearn report docs/results/reproduce --markdown docs/RESULTS.md"
    assert Path("docs/RESULTS.md").read_text() == (ROOT / "docs" / "RESULTS.md").read_text(), again
    made = {path.name: path.read_text() for path in Path("docs/figures").glob("*.svg")}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "figures").glob("*.svg")}
    assert made == kept, again
