"""A folder of pictures and a file of vectors, each with a model and a collection; not to be changed by a test."""

import re

import numpy as np
import pytest
from PIL import Image

from command_line import picture, run
from hashlearn.vectors import write_vectors


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with pictures, some of them bad, a model and a collection made of it by the command line."""
    folder = tmp_path_factory.mktemp("pictures")
    photos = folder / "photos"
    (photos / "a").mkdir(parents=True)
    (photos / "b").mkdir()
    for i in range(40):
        picture(i).save(photos / "ab"[i % 2] / f"{i:02}.png")
    (photos / "a" / "00.png").rename(photos / "a" / "twin one.png")
    picture(0).save(photos / "b" / "twin two.png")
    (photos / "b" / "broken.png").write_bytes((photos / "b" / "01.png").read_bytes()[:200])
    (photos / "b" / "text.jpg").write_text("not a picture")
    Image.new("CMYK", (30, 20), (10, 200, 30, 0)).save(photos / "b" / "ink.jpg")
    Image.new("1", (1, 1)).save(photos / "b" / "dot.gif")
    done = run("fit", photos, "--bits", 16, "--side", 32, "--out", folder / "photos.model")
    assert "note: 2 of 45 pictures can't be read (b/broken.png: " in done.stderr
    assert "itq, 16 bits, from 43 vectors of 512 (photos)" in done.stdout
    done = run("index", folder / "photos.model", photos, "--out", folder / "photos.hl")
    assert re.search(r"skipped: b/broken.png: .+\n.*skipped: b/text.jpg: not a picture", done.stderr)
    assert done.stdout == f"43 items added, 2 unreadable; 43 in {folder / 'photos.hl'}\n"
    return folder


@pytest.fixture(scope="session")
def vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    X = np.random.default_rng(0).normal(size=(500, 24)).astype(np.float32)
    write_vectors(folder / "x.npy", X)
    write_vectors(folder / "q.fvecs", X[:3])
    run("fit", folder / "x.npy", "-m", "itq", "-b", 20, "--sample", 200, "-o", folder / "m")
    run("index", folder / "m", folder / "x.npy", "--out", folder / "x.hl")
    return folder, X
