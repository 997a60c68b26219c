"""The examples in the documentation and in docstrings run as they are written."""

import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hashlearn

DOCS = Path(__file__).parents[1] / "docs"
SRC = Path(hashlearn.__file__).parents[1]


def python_blocks(name):
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


EXAMPLES = [pytest.param(block, id=f"search.md-{number}") for number, block in enumerate(python_blocks("search.md"))]
# Blocks that continue one another.
EXAMPLES += [pytest.param("\n".join(python_blocks(name)), id=name) for name in ("data.md", "interchange.md")]
WITH_DOCTESTS = [
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SRC / "hashlearn").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.docs
@pytest.mark.parametrize("block", EXAMPLES)
def test_examples_run(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", WITH_DOCTESTS)
def test_doctests(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples write files
    failed, tried = doctest.testmod(import_module(name))
    assert tried
    assert not failed


def test_links_between_pages_lead_somewhere():
    broken = []
    for page in DOCS.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in link and not (page.parent / link).exists():
                broken.append((page.name, link))
    assert not broken
