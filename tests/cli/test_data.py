"""The commands on data sets."""

import json

from command_line import run_here as run


def test_list_and_get():
    names = [d["name"] for d in json.loads(run("data", "list", "--json").stdout)]
    assert {"digits", "mnist", "cifar10", "cifar10-dh", "sift1m", "siftsmall", "sift-photos"} <= set(names)
    text = run("data", "list").stdout
    assert "sift-photos: SIFT descriptors of other photographs" in text
    assert "HASHLEARN_SIFT_PHOTOS" in text
    got = json.loads(run("data", "get", "digits", "--json").stdout)
    assert got["train"] == got["database"]
    assert got["train"][1] == 64
    assert run("data", "get", "digits").stdout.startswith("digits: train 1,500 x 64, database 1,500 x 64, queries 297")
