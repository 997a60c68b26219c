"""From a folder of pictures or a file of vectors to answers, as a person types it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hashlearn
from command_line import picture, run
from hashlearn.collection import Collection
from hashlearn.vectors import write_vectors

pytestmark = pytest.mark.slow


@pytest.fixture
def own(made, tmp_path):
    """A copy of it all, to be changed."""
    import shutil

    shutil.copytree(made, tmp_path / "own")
    return tmp_path / "own"


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_a_collection_of_pictures_holds_their_codes_and_relative_paths(made):
    from hashlearn.features import GistExtractor, read_image

    model, features = hashlearn.load(made / "photos.model"), GistExtractor(side=32)
    assert model.metadata_.features == features.description()
    with Collection.open(made / "photos.hl", readonly=True) as collection:
        items = collection.get(collection.ids)
        assert [item.source for item in items] == sorted(item.source for item in items)
        assert {"a/twin one.png", "b/ink.jpg", "b/dot.gif"} <= {item.source for item in items}
        for item in items[::7]:
            vector = features.describe(read_image(made / "photos" / item.source, features)[None])
            # Rounding by the batch may turn a bit.
            assert np.bitwise_count(collection.index.reconstruct([item.id]) ^ model.encode(vector)).sum() <= 1


def test_indexing_again_adds_what_is_new(own):
    done = run("index", "photos.model", "photos", "-o", "photos.hl", "--json", cwd=own)
    answer = json.loads(done.stdout)
    assert (answer["added"], answer["already_present"], answer["items"]) == (0, 43, 43)
    assert [bad["path"] for bad in answer["unreadable"]] == ["b/broken.png", "b/text.jpg"]
    picture(99).save(own / "photos" / "new.png")
    answer = json.loads(run("index", "photos.model", "photos", "-o", "photos.hl", "--json", cwd=own).stdout)
    assert (answer["added"], answer["items"]) == (1, 44)


@pytest.mark.slow
def test_indexing_goes_on_where_it_was_killed(own, monkeypatch):
    (own / "photos.hl").unlink()
    code = (
        "import sys, time\n"
        "from hashlearn.collection import ingest, Collection\n"
        "import hashlearn.features as f\n"
        "vectors = f.image_vectors\n"
        "def few(*a, **k):\n"
        "    k['batch'] = 5\n"
        "    for batch in vectors(*a, **k):\n"
        "        yield batch\n"
        "        time.sleep(0.2)\n"
        "f.image_vectors = few\n"
        "from hashlearn.cli import main\n"
        "sys.argv = ['hashlearn', 'index', 'photos.model', 'photos', '-o', 'photos.hl']\n"
        "main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=own, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if (own / "photos.hl").exists():
            with Collection.open(own / "photos.hl", readonly=True) as collection:
                if 10 <= len(collection) < 40:
                    break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with Collection.open(own / "photos.hl", readonly=True) as collection:
        before = collection.ids.tolist()
    assert 10 <= len(before) < 43
    answer = json.loads(run("index", "photos.model", "photos", "-o", "photos.hl", "--json", cwd=own).stdout)
    assert (answer["already_present"], answer["added"], answer["items"]) == (len(before), 43 - len(before), 43)


def test_search_with_a_picture(made):
    query = made / "photos" / "b" / "twin two.png"
    answer = json.loads(run("search", made / "photos.hl", query, "-k", 3, "--json").stdout)
    (result,) = answer
    assert result["query"] == str(query)
    assert [match["distance"] for match in result["matches"]][:2] == [0, 0]
    assert {match["source"] for match in result["matches"][:2]} == {"a/twin one.png", "b/twin two.png"}
    text = run("search", made / "photos.hl", query).stdout.splitlines()
    assert len(text) == 10
    assert re.fullmatch(r"0\t\d+\ta/twin one.png", text[0])
    within = json.loads(run("search", made / "photos.hl", query, "--radius", 0, "--json").stdout)
    assert {match["source"] for match in within[0]["matches"]} >= {"a/twin one.png", "b/twin two.png"}
    assert all(match["distance"] == 0 for match in within[0]["matches"])


def test_search_like_an_item(made):
    with Collection.open(made / "photos.hl", readonly=True) as collection:
        (id,) = collection.find_ids()["a/twin one.png"]
    answer = json.loads(run("search", made / "photos.hl", "--id", id, "-k", 2, "--json").stdout)
    assert {match["source"] for match in answer[0]["matches"]} == {"a/twin one.png", "b/twin two.png"}


def test_the_page_shows_the_pictures(made, tmp_path):
    page = tmp_path / "found.html"
    done = run("search", made / "photos.hl", made / "photos" / "a" / "02.png", "-k", 4, "--html", page)
    assert done.stderr == f"hashlearn: {page} shows the pictures\n"
    text = page.read_text(encoding="utf-8")
    assert text.count("<img") == 5
    assert text.count("data:image/jpeg;base64,") == 5
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "<script" not in text
    assert "a/02.png" in text


def test_a_page_of_vectors_shows_ids(vectors, tmp_path):
    page = tmp_path / "found.html"
    words = f"hashlearn: {page} shows the ids, since the collection holds vectors\n"
    assert run("search", vectors[0] / "x.hl", "--id", 3, "-k", 2, "--html", page).stderr == words
    assert "0: id 3" in page.read_text(encoding="utf-8")
    assert run("duplicates", vectors[0] / "x.hl", "--html", page).stderr.endswith(words)


def test_pages_bear_any_name_and_missing_files(own):
    odd = "<b>\"&'.png"
    picture(77).save(own / "photos" / odd)
    run("add", "photos.hl", f"photos/{odd}", cwd=own)
    (own / "photos" / "b" / "twin two.png").unlink()
    run("duplicates", "photos.hl", "--radius", 16, "--html", "twins.html", cwd=own)
    text = (own / "twins.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "no picture" in text
    assert text.count("<img") == 43
    run("search", "photos.hl", f"photos/{odd}", "--html", "found.html", cwd=own)
    text = (own / "found.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "photos/&lt;b&gt;&quot;&amp;&#x27;.png" in text


def test_add_and_remove_pictures(own):
    (own / "more").mkdir()
    for i in (50, 51):
        picture(i).save(own / "more" / f"{i}.png")
    picture(52).save(own / "photos" / "a" / "52.png")
    arguments = ("more", "photos/a/52.png", "photos/a/02.png")
    answer = json.loads(run("add", "photos.hl", *arguments, "--json", cwd=own).stdout)
    assert (answer["added"], answer["already_present"], answer["items"]) == (3, 1, 46)
    with Collection.open(own / "photos.hl", readonly=True) as collection:
        assert {"../more/50.png", "../more/51.png", "a/52.png"} <= set(collection.find_ids())
    found = json.loads(run("search", "photos.hl", "more/50.png", "-k", 1, "--json", cwd=own).stdout)
    assert found[0]["matches"][0]["source"] == "../more/50.png"
    done = run("remove", "photos.hl", "../more/50.png", "a/52.png", 0, cwd=own)
    assert done.stdout == "3 items removed; 43 left in photos.hl\n"
    for words in (["a/52.png"], ["0", "1"], ["../more/50.png"]):
        done = run("remove", "photos.hl", *words, cwd=own, code=2)
        assert re.search("neither|is not", done.stderr)
    assert run("info", "photos.hl", cwd=own).stdout.splitlines()[2] == "items: 43"


def test_pictures_and_collection_can_be_moved_together(own, tmp_path):
    own.rename(tmp_path / "elsewhere")
    page = tmp_path / "found.html"
    run("search", tmp_path / "elsewhere" / "photos.hl", "--id", 3, "-k", 3, "--html", page)
    assert page.read_text(encoding="utf-8").count("<img") == 4


def test_duplicates(made):
    groups = json.loads(run("duplicates", made / "photos.hl", "--json").stdout)
    twins = next(group for group in groups if group[0]["source"] == "a/twin one.png")
    assert "b/twin two.png" in [item["source"] for item in twins]
    done = run("duplicates", made / "photos.hl", "--radius", 16)
    assert done.stdout.startswith("group 1: 43 items\n  0\t")
    assert "1 group, 43 items in them" in done.stderr


def test_info(made):
    answer = json.loads(run("info", made / "photos.hl", "--json").stdout)
    assert (answer["kind"], answer["items"], answer["n_bits"], answer["method"]) == ("collection", 43, 16, "itq")
    assert answer["features"] == "512-D GIST of pictures at 32×32, color"
    assert Path(answer["pictures_in"]) == made / "photos"
    answer = json.loads(run("info", made / "photos.model", "--json").stdout)
    assert (answer["kind"], answer["n_features"], answer["trained_on"]) == ("model", 512, "photos")


def test_a_folder_where_nothing_can_be_read(own):
    (own / "bad").mkdir()
    (own / "bad" / "x.png").write_bytes(b"")
    done = run("add", "photos.hl", "bad", cwd=own, code=1)
    assert "skipped" in done.stderr
    assert "0 items added, 1 unreadable" in done.stdout


# -- vectors ----------------------------------------------------------------------------------------------------------


def test_vectors_are_found_by_their_rows(vectors):
    folder, X = vectors
    answer = json.loads(run("search", folder / "x.hl", folder / "q.fvecs", "-k", 5, "--json").stdout)
    index = hashlearn.search.HammingIndex(20)
    codes = hashlearn.load(folder / "m").encode(X)
    index.add(codes)
    expected = index.search(codes[:3], 5)
    assert [[match["id"] for match in result["matches"]] for result in answer] == expected.ids.tolist()
    assert [[m["distance"] for m in result["matches"]] for result in answer] == expected.distances.tolist()
    lines = run("search", folder / "x.hl", folder / "q.fvecs", "-k", 2).stdout.splitlines()
    assert re.fullmatch(r"0: \d+ \(0\), \d+ \(\d+\)", lines[0])
    assert len(lines) == 3


def test_indexing_vectors_goes_on(vectors, tmp_path):
    folder, _ = vectors
    run("index", folder / "m", folder / "x.npy", "-o", tmp_path / "x.hl")
    run("remove", tmp_path / "x.hl", 3, 499)
    answer = json.loads(run("index", folder / "m", folder / "x.npy", "-o", tmp_path / "x.hl", "--json").stdout)
    assert (answer["added"], answer["already_present"], answer["items"]) == (2, 498, 500)
    with Collection.open(tmp_path / "x.hl") as again, Collection.open(folder / "x.hl") as first:
        np.testing.assert_array_equal(again.index.codes, first.index.codes)


def test_add_vectors_with_ids_and_payloads(vectors, tmp_path):
    folder, _ = vectors
    run("index", folder / "m", folder / "x.npy", "-o", tmp_path / "x.hl")
    (tmp_path / "ids.txt").write_text("1000\n2000\n3000\n")
    (tmp_path / "payloads.jsonl").write_text('{"title": "ä"}\nnull\n[1]\n', encoding="utf-8")
    options = ["--ids", tmp_path / "ids.txt", "--payloads", tmp_path / "payloads.jsonl"]
    run("add", tmp_path / "x.hl", folder / "q.fvecs", *options)
    answer = json.loads(run("search", tmp_path / "x.hl", folder / "q.fvecs", "-k", 2, "--json").stdout)
    assert [result["matches"][1]["id"] for result in answer] == [1000, 2000, 3000]
    assert [result["matches"][1]["payload"] for result in answer] == [{"title": "ä"}, None, [1]]
    assert '{"title": "ä"}' in run("search", tmp_path / "x.hl", "--id", 1000, "-k", 2).stdout
    done = run("add", tmp_path / "x.hl", folder / "q.fvecs", *options, code=2)
    assert "id 1000 is in the collection already" in done.stderr
    assert json.loads(run("add", tmp_path / "x.hl", folder / "q.fvecs", "--json").stdout)["items"] == 506


@pytest.mark.parametrize("wrong", ["ids", "there", "payloads"])
def test_what_can_not_be_added_whole_is_not_added(wrong, vectors, tmp_path):
    folder, X = vectors
    run("index", folder / "m", folder / "x.npy", "-o", tmp_path / "x.hl")
    write_vectors(tmp_path / "many.npy", np.tile(X, (25, 1)))  # more than are added at once
    ids, payloads = [str(1000 + i) for i in range(12_500)], ["null"] * 12_500
    if wrong == "ids":
        ids[12_450] = "1003"
    elif wrong == "there":
        ids[12_450] = "3"
    else:
        payloads[12_450] = "NaN"
    (tmp_path / "ids.txt").write_text("\n".join(ids) + "\n")
    (tmp_path / "payloads.jsonl").write_text("\n".join(payloads) + "\n")
    options = ["--ids", tmp_path / "ids.txt", "--payloads", tmp_path / "payloads.jsonl"]
    run("add", tmp_path / "x.hl", tmp_path / "many.npy", *options, code=2)
    with Collection.open(tmp_path / "x.hl") as collection:
        assert len(collection) == 500


def test_vectors_that_are_added_twice_are_noted(vectors, tmp_path):
    folder, X = vectors
    write_vectors(tmp_path / "first.npy", X[:50])
    run("index", folder / "m", tmp_path / "first.npy", "-o", tmp_path / "x.hl")
    write_vectors(tmp_path / "more.npy", X[50:60])
    assert run("add", tmp_path / "x.hl", tmp_path / "more.npy").stderr == ""
    done = run("add", tmp_path / "x.hl", tmp_path / "more.npy", "--json")
    assert (json.loads(done.stdout)["added"], json.loads(done.stdout)["known_codes"]) == (10, 10)
    assert done.stderr == (
        "hashlearn: note: the collection had the codes of all 10 vectors before: "
        "they may now be in it twice (hashlearn duplicates).\n"
    )
    assert run("add", tmp_path / "x.hl", tmp_path / "more.npy", "-q").stderr == ""
    write_vectors(tmp_path / "one.npy", X[55:56])
    assert "had the code of the vector before: it may" in run("add", tmp_path / "x.hl", tmp_path / "one.npy").stderr


def test_equal_codes_of_other_vectors_are_not_noted(tmp_path):
    X = np.random.default_rng(0).standard_normal((400, 8))
    for name, rows in (("first", X[:300]), ("more", X[300:])):
        write_vectors(tmp_path / f"{name}.npy", rows)
    run("fit", tmp_path / "first.npy", "-m", "itq", "-b", 8, "-o", tmp_path / "m")
    run("index", tmp_path / "m", tmp_path / "first.npy", "-o", tmp_path / "x.hl")
    done = run("add", tmp_path / "x.hl", tmp_path / "more.npy", "--json")
    assert 50 < json.loads(done.stdout)["known_codes"] < 100
    assert done.stderr == ""


def test_a_data_set_by_its_name(tmp_path):
    run("fit", "digits", "-b", 32, "-o", tmp_path / "m")
    run("index", tmp_path / "m", "digits", "-o", tmp_path / "digits.hl")
    answer = json.loads(run("search", tmp_path / "digits.hl", "digits", "-k", 1, "--json").stdout)
    assert len(answer) == 297


def test_batches_keep_their_ids_and_payloads(vectors, tmp_path):
    folder, X = vectors
    run("index", folder / "m", folder / "x.npy", "-o", tmp_path / "x.hl")
    n = 12_500  # more than are added at once
    write_vectors(tmp_path / "more.npy", np.tile(X, (25, 1)))
    (tmp_path / "ids.txt").write_text("".join(f"{1000 + i}\n" for i in range(n)))
    (tmp_path / "payloads.jsonl").write_text("".join(f"{i}\n" for i in range(n)))
    options = ["--ids", tmp_path / "ids.txt", "--payloads", tmp_path / "payloads.jsonl"]
    run("add", tmp_path / "x.hl", tmp_path / "more.npy", *options)
    with Collection.open(tmp_path / "x.hl") as collection:
        codes = hashlearn.load(folder / "m").encode(X)
        np.testing.assert_array_equal(collection.index.codes, np.tile(codes, (26, 1)))
        assert collection.ids.tolist() == [*range(500), *range(1000, 1000 + n)]
        assert [item.payload for item in collection.get(range(1000, 1000 + n))] == list(range(n))


def test_rows_of_another_file_are_not_taken_for_its_own(vectors, tmp_path):
    folder, X = vectors
    write_vectors(tmp_path / "g.npy", X[:5])
    run("index", folder / "m", tmp_path / "g.npy", "-o", tmp_path / "g.hl")
    run("remove", tmp_path / "g.hl", 4)
    assert json.loads(run("add", tmp_path / "g.hl", folder / "q.fvecs", "--json").stdout)["added"] == 3
    run("index", folder / "m", tmp_path / "g.npy", "-o", tmp_path / "g.hl")
    with Collection.open(tmp_path / "g.hl") as collection:
        assert collection.ids.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    for other in (X[:9], X[5:10]):
        write_vectors(tmp_path / "g.npy", other)
        done = run("index", folder / "m", tmp_path / "g.npy", "-o", tmp_path / "g.hl", code=2)
        assert "g.npy is not what" in done.stderr


@pytest.mark.slow
def test_two_who_index_the_same_folder_at_once(own):
    (own / "photos.hl").unlink()
    command = [sys.executable, "-m", "hashlearn.cli", "index", "photos.model", "photos", "-o", "photos.hl", "--json"]
    both = [subprocess.Popen(command, cwd=own, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert sum(answer["added"] for answer in answers) == 43
    with Collection.open(own / "photos.hl") as collection:
        assert len(collection.find_ids()) == len(collection) == 43


def test_one_picture_under_several_spellings(own):
    (own / "more").mkdir()
    picture(60).save(own / "more" / "a.png")
    done = run("add", "photos.hl", "more/a.png", "./more/a.png", "more", cwd=own)
    assert done.stdout.startswith("1 item added; 44")


def test_one_folder_under_several_names(own):
    (own / "link").symlink_to("photos")
    assert run("add", "photos.hl", "link", cwd=own).stdout.startswith("0 items added, 43 already present")
    (own / "photos" / "c").symlink_to("a")
    assert run("add", "photos.hl", "photos/c/02.png", cwd=own).stdout.startswith("0 items added, 1 already present")
    picture(62).save(own / "photos" / "a" / "new.png")
    assert run("index", "photos.model", "link", "-o", "photos.hl", cwd=own).stdout.startswith(
        "1 item added, 43 already"
    )
    with Collection.open(own / "photos.hl") as collection:
        assert collection.find_ids(["a/new.png"])


def test_another_folder_of_the_same_name_is_not_taken_for_its_own(own):
    import shutil

    (own / "other").mkdir()
    shutil.copytree(own / "photos", own / "other" / "photos")
    done = run("index", "photos.model", "other/photos", "-o", "photos.hl", cwd=own, code=2)
    assert "photos.hl was made of photos, not of other/photos: choose another name" in done.stderr
    (own / "moved").mkdir()
    shutil.copy(own / "photos.hl", own / "moved" / "photos.hl")
    done = run("index", "photos.model", "photos", "-o", "moved/photos.hl", cwd=own, code=2)
    assert "was made of moved/photos, not of photos" in done.stderr
    for name in ("photos.hl", "moved/photos.hl"):
        with Collection.open(own / name) as collection:
            assert len(collection) == 43


def test_a_picture_without_an_ending_and_odd_names(own):
    (own / "photos" / "a" / "02.png").rename(own / "plain")
    assert run("search", "photos.hl", "plain", "-k", 1, cwd=own).stdout.startswith("0\t")
    odd = "two\nlines \x1b[31m.png"
    picture(63).save(own / "photos" / odd)
    run("add", "photos.hl", f"photos/{odd}", cwd=own)
    found = run("search", "photos.hl", f"photos/{odd}", "--radius", 0, cwd=own).stdout.splitlines()
    assert "0\t43\ttwo\\nlines \\x1b[31m.png" in found
    assert run("search", "photos.hl", f"photos/{odd}", "-k", 10**20, cwd=own).stdout.count("\n") == 44
    run("remove", "photos.hl", "two\\nlines \\x1b[31m.png", cwd=own)  # as it was shown
    narrow = "at 1.00\u202fPM.png"
    picture(64).save(own / "photos" / narrow)
    run("add", "photos.hl", f"photos/{narrow}", cwd=own)
    assert narrow in run("search", "photos.hl", f"photos/{narrow}", "--radius", 0, cwd=own).stdout
    with Collection.open(own / "photos.hl") as collection:
        assert len(collection) == 44
        collection.update([3], payloads=["\x9b1m \u202e"])
    assert '"\\x9b1m \\u202e"' in run("search", "photos.hl", "--id", 3, "-k", 43, cwd=own).stdout
    assert "\x1b" not in run("search", "photos.hl", "no\x1b[31m.png", cwd=own, code=2).stderr


def test_nothing_is_written_over_what_is_read(own):
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    np.save(own / "x.npy", np.random.default_rng(0).normal(size=(50, 512)).astype(np.float32))
    before[own / "x.npy"] = (own / "x.npy").read_bytes()
    (own / "copy.model").symlink_to("photos.model")
    for arguments in (
        ["export", "photos.model", "--to", "onnx", "-o", "photos.model"],
        ["export", "photos.model", "--to", "onnx", "-o", "copy.model"],
        ["search", "photos.hl", "photos/a/02.png", "--html", "photos/a/02.png"],
        ["search", "photos.hl", "--id", 3, "--html", "photos.model"],
        ["duplicates", "photos.hl", "--html", "photos.model"],
        ["fit", "x.npy", "-b", 8, "-o", "./x.npy"],
        ["fit", "photos", "-b", 8, "-o", "photos/a/02.png"],
        ["encode", "photos.model", "x.npy", "-o", "x.npy"],
    ):
        done = run(*arguments, cwd=own, code=2)
        assert "choose another name" in done.stderr, arguments
    assert {path: path.read_bytes() for path in before} == before
    for _ in range(2):  # a page may be replaced by a page
        run("duplicates", "photos.hl", "--html", "twins.html", cwd=own)


def test_a_collection_behind_a_link_finds_its_pictures(own, tmp_path):
    link = tmp_path / "link.hl"
    link.symlink_to(own / "photos.hl")
    run("search", link, "--id", 3, "-k", 3, "--html", tmp_path / "found.html")
    assert (tmp_path / "found.html").read_text(encoding="utf-8").count("<img") == 4
    assert "43 already present" in run("add", link, own / "photos").stdout


def test_json_is_plain_ascii(own):
    picture(61).save(own / "photos" / "grün.png")
    run("add", "photos.hl", "photos/grün.png", cwd=own)
    done = run("search", "photos.hl", "photos/grün.png", "--radius", 0, "--json", cwd=own)
    assert done.stdout.isascii()
    assert "grün.png" in [match["source"] for match in json.loads(done.stdout)[0]["matches"]]


# -- exports ----------------------------------------------------------------------------------------------------------


def test_exports(made, tmp_path):
    import faiss

    run("export", made / "photos.hl", "--to", "faiss", "--out", tmp_path / "x.faiss")
    assert faiss.read_index_binary(str(tmp_path / "x.faiss")).ntotal == 43
    done = run("export", made / "photos.hl", "--to", "npy", "--out", tmp_path / "x.npy", "--json")
    assert json.loads(done.stdout)["files"] == [str(tmp_path / "x.npy"), str(tmp_path / "x-ids.npy")]
    run("export", made / "photos.hl", "--to", "parquet", "--out", tmp_path / "x.parquet")
    run("export", made / "photos.hl", "--to", "pgvector", "--out", tmp_path / "x.sql", "--table", "mine")
    assert 'CREATE TABLE "mine"' in (tmp_path / "x.sql").read_text(encoding="utf-8")
    for input in ("photos.model", "photos.hl"):
        run("export", made / input, "--to", "onnx", "--out", tmp_path / f"{input}.onnx")
    assert (tmp_path / "photos.model.onnx").read_bytes() == (tmp_path / "photos.hl.onnx").read_bytes()


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search", "none.hl", "q.png"], "there is no collection at none.hl"),
        (["search", "photos.hl"], "a QUERY or --id is needed"),
        (["search", "photos.hl", "photos/a/02.png", "--id", 3], "a QUERY or --id"),
        (["search", "photos.hl", "photos/a/02.png", "-k", 3, "--radius", 2], "do not go together"),
        (["search", "photos.hl", "photos/a/02.png", "-k", 0], "k must be at least 1"),
        (["search", "photos.hl", "photos/a/02.png", "--radius", -1], "radius must be at least 0"),
        (["search", "photos.hl", "none.png"], "none.png"),
        (["search", "photos.hl", "photos/b/text.jpg"], "photos/b/text.jpg: not a picture"),
        (["search", "photos.hl", "x.npy"], "takes vectors of shape (n, 512); got ("),
        (["search", "photos.hl", "--id", 3, "--key", "x"], "--key would have no effect"),
        (["search", "photos.hl", "--id", 4000], "id 4000 is not in the collection"),
        (["search", "photos.model", "photos/a/02.png"], "photos.model is not a collection"),
        (["search", "x.hl", "photos/a/02.png"], "was made of vectors, not of pictures"),
        (["search", "x.hl", "photos"], "x.hl holds vectors and takes a file of vectors; photos is a folder."),
        (
            ["search", "photos.hl", "photos"],
            "photos.hl holds pictures and takes a picture or a file of vectors; photos is a folder.",
        ),
        (["index", "m", "photos", "-o", "new.hl"], "the model was trained on vectors"),
        (["index", "photos.model", "x.npy", "-o", "new.hl"], "takes vectors of shape (n, 512); got (500, 24)."),
        (["index", "m", "x.npy", "-o", "photos.hl"], "was made with another model"),
        (
            ["index", "photos.model", "photos/a", "-o", "photos.hl"],
            "was made of photos, not of photos/a: choose another name, or add to it",
        ),
        (["index", "photos.model", "none", "-o", "new.hl"], "none is neither a file nor a folder"),
        (["index", "photos.model", "empty", "-o", "new.hl"], "empty holds no picture"),
        (["index", "photos.model", "photos", "-o", "photos"], "can't be written to"),
        (
            ["add", "photos.hl", "photos/a/02.png", "x.npy"],
            "photos.hl holds pictures and takes pictures and folders; x.npy is a file of vectors.",
        ),
        (["add", "photos.hl", "none.npy"], "none.npy is neither a picture nor a folder"),
        (["add", "photos.hl", "none.png"], "none.png is neither a picture nor a folder"),
        (["add", "photos.hl", "photos", "--ids", "x.npy"], "would have no effect"),
        (["add", "x.hl", "x.npy", "x.npy"], "one file of vectors at a time"),
        (["add", "x.hl", "photos"], "x.hl holds vectors and takes a file of vectors; photos is a folder."),
        (
            ["add", "x.hl", "photos/a/02.png"],
            "x.hl holds vectors and takes a file of vectors; photos/a/02.png is a picture.",
        ),
        (["add", "x.hl", "x.npy", "--ids", "none.txt"], "--ids names none.txt, which does not exist."),
        (["add", "x.hl", "x.npy", "--payloads", "none.txt"], "--payloads names none.txt, which does not exist."),
        (["add", "x.hl", "x.npy", "--ids", "photos"], "error: --ids must be a file; photos is not."),
        (["add", "x.hl", "x.npy", "--payloads", "photos"], "error: --payloads must be a file; photos is not."),
        (["add", "x.hl", "x.npy", "--ids", "words.txt"], "whole numbers"),
        (
            ["add", "x.hl", "x.npy", "--payloads", "words.txt"],
            "line 1: not a JSON value (Expecting value at character 1)",
        ),
        (["remove", "photos.hl", "nobody.png"], "neither an id nor the path"),
        (["remove", "photos.hl", "12345"], "id 12345 is not in"),
        (["info", "none.hl"], "no model file is at none.hl"),
        (["info", "words.txt"], "not a model that can be loaded"),
        (["duplicates", "photos.hl", "--radius", -1], "radius must be at least 0"),
        (["duplicates", "words.txt"], "not a collection"),
        (["export", "photos.hl", "--to", "csv", "-o", "x"], "--to must be one of faiss, npy, parquet, pgvector, onnx"),
        (["export", "photos.hl", "--to", "npy", "-o", "x.txt"], "must be .npy"),
        (["export", "photos.hl", "--to", "npy", "--table", "t", "-o", "x.npy"], "would have no effect"),
        (["export", "photos.model", "--to", "npy", "-o", "x.npy"], "a model can be exported with --to onnx"),
        (["fit", "photos", "--side", 2, "-o", "new.model"], "side must be"),
        (["fit", "photos", "--key", "x", "-o", "new.model"], "would have no effect"),
        (["fit", "x.npy", "--side", 32, "-o", "new.model"], "would have no effect"),
        (["fit", "x.npy", "--sample", 1, "-o", "new.model"], "--sample must be at least 2"),
        (["fit", "empty", "-o", "new.model"], "holds no picture"),
        (["add", "x.hl", "x.npy", "--ids", "floats.txt"], "whole numbers"),
        (["export", "photos.hl", "--to", "faiss", "-o", "photos.hl"], "is a collection"),
        (["search", "photos.hl", "photos/a/02.png", "--html", "x.hl"], "is a collection"),
        (["fit", "x.npy", "-o", "x.hl"], "is a collection"),
        (["data", "images", "digits", "-o", "new"], "NAME must be one of mnist, cifar10"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, words, errors_folder):
    before = {path.name for path in errors_folder.iterdir()}
    done = run(*arguments, cwd=errors_folder, code=2)
    assert words in done.stderr
    assert done.stderr.startswith("hashlearn: error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert {path.name for path in errors_folder.iterdir()} == before


@pytest.fixture(scope="module")
def errors_folder(made, vectors, tmp_path_factory):
    import shutil

    folder = tmp_path_factory.mktemp("errors") / "all"
    shutil.copytree(made, folder)
    for name in ("x.npy", "q.fvecs", "m", "x.hl"):
        shutil.copy(vectors[0] / name, folder / name)
    (folder / "empty").mkdir()
    (folder / "words.txt").write_text("some\nwords\n")
    (folder / "floats.txt").write_text("1.5\n" * 500)
    return folder


COMMANDS = [["index"], ["search"], ["add"], ["remove"], ["info"], ["duplicates"], ["export"], ["fit"], ["encode"]]
COMMANDS += [["evaluate"], ["check"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_examples_of_the_help_work_as_written(command, made, tmp_path):
    """In a folder that has what they name; those on data that is fetched are left to others."""
    import shutil

    shutil.copytree(made, tmp_path / "here")
    here = tmp_path / "here"
    (here / "new").mkdir()
    (here / "photos" / "cats").mkdir()
    picture(70).save(here / "photos" / "cats" / "7.png")
    for name in ("new/cat.jpg", "new/dog.jpg", "query.jpg"):
        picture(len(name)).save(here / name)
    run("add", "photos.hl", "photos/cats/7.png", cwd=here)
    np.save(here / "vectors.npy", np.random.default_rng(0).normal(size=(600, 70)).astype(np.float32))
    np.save(here / "queries.npy", np.random.default_rng(1).normal(size=(20, 70)).astype(np.float32))
    run("fit", "vectors.npy", "-b", 16, "-o", "my.model", cwd=here)
    if command == ["index"]:
        (here / "photos.hl").unlink()
    text = run(*command, "--help").stdout
    examples = [" ".join(words.split()) for words in re.findall(r"Example: hashlearn ((?:.+\n)+)", text)]
    assert examples
    tried = [words for words in examples if "mnist" not in words]
    for words in tried:
        run(*([*words.split(), "--side", "16"] if words.startswith("fit photos") else words.split()), cwd=here)
    assert tried


# -- what is no file, or holds what it should not --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b"1" + b"0" * 400, "beyond the range"),
        (b"", "Expecting value"),
    ],
)
def test_a_bad_payload_is_said_with_its_line(line, words, vectors, tmp_path):
    path = tmp_path / "payloads.txt"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    done = run("add", vectors[0] / "x.hl", vectors[0] / "x.npy", "--payloads", path, code=2)
    assert f"{path}, line 2: not a JSON value" in done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_payloads_that_the_memory_can_not_hold_are_refused(vectors, tmp_path, monkeypatch):
    path = tmp_path / "payloads.txt"
    path.write_text("1\n" * 1000)
    monkeypatch.setattr("hashlearn.memory.free_memory", lambda: 1000)
    done = run("add", vectors[0] / "x.hl", vectors[0] / "x.npy", "--payloads", path, code=2)
    assert "too many for the 1,000 bytes of memory" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipes_are_refused_and_not_waited_for(vectors, tmp_path):
    """In a process of its own, which can be ended."""
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.png")
    folder = vectors[0]
    commands = [
        ["add", folder / "x.hl", folder / "x.npy", "--payloads", "pipe"],
        ["add", folder / "x.hl", folder / "x.npy", "--ids", "pipe"],
        ["fit", folder / "x.npy", "-m", "ksh", "--labels", "pipe", "-o", "m"],
        ["fit", "mnist", "--source", "pipe", "-o", "m"],
        ["fit", "cifar10", "--source", "pipe", "-o", "m"],
        ["fit", "siftsmall", "--source", "pipe", "-o", "m"],
        ["info", "pipe"],
        ["encode", "pipe", folder / "x.npy", "-o", "c.npy"],
        ["search", folder / "x.hl", "pipe"],
        ["search", folder / "x.hl", "pipe.png"],
        ["search", "pipe", "--id", "1"],
        ["duplicates", folder / "x.hl", "--html", "pipe"],
        ["export", "pipe", "--to", "onnx", "-o", "x.onnx"],
        ["report", "pipe"],
    ]
    code = (
        "import json, sys\n"
        "from hashlearn.cli import main\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['hashlearn', *command]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        print(end.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([[str(word) for word in command] for command in commands])],
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.split() == ["2"] * len(commands), done.stderr
    assert len(done.stderr.splitlines()) == len(commands)


# -- somebody else's collection --------------------------------------------------------------------------------------


def foreign(own, source, root="photos"):
    """A collection like the one that is there, but a picture of the user's is among its own: that item's id."""
    (own.parent / "private").mkdir()
    picture(5).save(own.parent / "private" / "secret.png")
    with Collection.open(own / "photos.hl") as collection:
        info, model, codes = {**collection.info, "root": root}, collection.model, collection.index.codes.copy()
        items = collection.get(collection.ids)
    (own / "photos.hl").unlink()
    (twin,) = (item.id for item in items if item.source == "a/twin one.png")
    sources = [source if item.id == twin else item.source for item in items]
    with Collection.create(own / "photos.hl", model=model, info=info) as collection:
        collection.add(codes, [item.id for item in items], sources=sources)
    return twin


@pytest.mark.parametrize("source", ["../../private/secret.png", "{absolute}", "link.png", "linked/secret.png"])
def test_pictures_outside_of_the_collections_folder_are_not_shown(source, own):
    source = source.format(absolute=own.parent / "private" / "secret.png")
    id = foreign(own, source)
    (own / "photos" / "link.png").symlink_to(own.parent / "private" / "secret.png")
    (own / "photos" / "linked").symlink_to(own.parent / "private")
    for command in (["search", "photos.hl", "--id", id, "-k", 2], ["duplicates", "photos.hl"]):
        done = run(*command, "--html", "page.html", cwd=own)
        assert "1 picture not shown" in done.stderr
        assert "--pictures DIR" in done.stderr
        hidden = (own / "page.html").read_text(encoding="utf-8")
        done = run(*command, "--html", "page.html", "--pictures", own.parent, cwd=own)
        assert "not shown" not in done.stderr
        shown = (own / "page.html").read_text(encoding="utf-8")
        times = 2 if command[0] == "search" else 1  # as the query, too
        assert (hidden.count("no picture"), shown.count("no picture")) == (times, 0)
        assert shown.count("<img") == hidden.count("<img") + times


def test_a_picture_folder_outside_of_the_collections_is_not_shown(own, tmp_path):
    apart = tmp_path / "apart"
    apart.mkdir()
    foreign(own, "a/twin one.png", os.path.relpath(own / "photos", apart))
    (own / "photos.hl").rename(apart / "photos.hl")
    done = run("duplicates", "photos.hl", "--radius", 16, "--html", "page.html", cwd=apart)
    assert "not shown, because not below the collection's folder; --pictures DIR shows" in done.stderr
    assert "<img" not in (apart / "page.html").read_text(encoding="utf-8")
    done = run("duplicates", "photos.hl", "-r", 16, "--html", "page.html", "--pictures", own / "photos", cwd=apart)
    assert "not shown" not in done.stderr
    assert "<img" in (apart / "page.html").read_text(encoding="utf-8")
    # The query is the user's own, wherever it is.
    run("search", "photos.hl", own / "photos" / "a" / "02.png", "-k", 1, "--html", "page.html", cwd=apart)
    assert (apart / "page.html").read_text(encoding="utf-8").count("<img") == 1


def test_a_folder_of_pictures_goes_with_a_page(own):
    for arguments, words in (
        (["duplicates", "photos.hl", "--pictures", "photos"], "--pictures would have no effect"),
        (["search", "photos.hl", "--id", 1, "--pictures", "photos"], "--pictures would have no effect"),
        (["duplicates", "photos.hl", "--html", "x.html", "--pictures", "none"], "--pictures must be a folder"),
    ):
        assert words in run(*arguments, cwd=own, code=2).stderr
