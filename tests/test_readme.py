"""The README's example runs as written and prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = [sys.executable, ROOT / "benchmarks" / "tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
