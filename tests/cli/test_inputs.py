"""What a data set's name, a file and a folder stand for; labels of pictures."""

import re

import numpy as np
import pytest
from PIL import Image

import hashlearn
from command_line import picture, run
from hashlearn.cli.inputs import describe_dataset, find_kind
from mean_color import MeanColor


def test_a_model_file_says_its_split():
    assert describe_dataset("cifar10-dh", 3) == "cifar10-dh split 3"
    assert describe_dataset("mnist", None) == "mnist"


def test_kinds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.npy").touch()
    (tmp_path / "photos").mkdir()
    assert [find_kind(name) for name in ("digits", "x.npy", "photos")] == ["dataset", "file", "folder"]
    with pytest.raises(FileNotFoundError, match=r"digit is neither .*: did you mean digits\?"):
        find_kind("digit")
    with pytest.raises(ValueError, match="photos is a folder, so --key and --source would have no effect"):
        find_kind("photos", key="x", source="y", side=3, skip_unreadable=False)


def test_a_data_sets_name_is_the_data_set(tmp_path):
    (tmp_path / "digits").mkdir()
    done = run("fit", "digits", "-m", "itq", "-b", 8, "-o", "m", cwd=tmp_path)
    words = "hashlearn: note: digits is the data set; ./digits would be the folder.\n"
    assert done.stderr == words
    done = run("index", "m", "digits", "-o", "d.hl", cwd=tmp_path)
    assert "1,500 items added" in done.stdout
    assert done.stderr == words
    assert run("encode", "m", "digits", "-o", "digits/c.npy", cwd=tmp_path).stderr == words


def test_a_sample_is_learned_from(vectors):
    folder, X = vectors
    rows = np.sort(np.random.default_rng(0).choice(500, 200, replace=False))
    expected = hashlearn.ITQ(20, random_state=0).fit(X[rows])
    np.testing.assert_array_equal(hashlearn.load(folder / "m").encode(X), expected.encode(X))


# -- labels -----------------------------------------------------------------------------------------------------------


def test_labels_are_refused_by_a_method_that_learns_without(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 5)))
    np.save(tmp_path / "y.npy", np.arange(20))
    done = run(
        "fit", tmp_path / "x.npy", "-m", "itq", "-b", 4, "--labels", tmp_path / "y.npy", "-o", tmp_path / "m", code=2
    )
    assert done.stderr == "hashlearn: error: itq learns without labels: leave --labels out.\n"


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Pictures in subfolders, one of which can't be read; `one` has a single class, and `dogs` no subfolders."""
    folder = tmp_path_factory.mktemp("classes")
    for name in ("photos/cats", "photos/dogs/big", "photos/dogs/small", "one/cats", "dogs"):
        (folder / name).mkdir(parents=True)
    for name in ("one/cats", "dogs"):
        picture(0).save(folder / name / "0.png")
        (folder / name / "broken.png").write_text("not a picture")
    for i in range(24):
        picture(i).save(folder / "photos" / ("cats", "dogs/big", "dogs/small")[i % 3] / f"{i:02}.png")
    (folder / "photos" / "cats" / "broken.png").write_text("not a picture")
    return folder


FIT = ("fit", "photos", "-m", "sdh", "-b", 8, "--side", 16, "-p", "n_anchors=10")


def expected_codes(folder, paths, labels):
    """Of SDH, learned through the library."""
    from hashlearn.features import GistExtractor, image_vectors

    ((_, X),) = image_vectors(folder / "photos", paths, GistExtractor(side=16))
    return X, hashlearn.SDH(8, n_anchors=10, random_state=0).fit(X, labels).encode(X)


def readable(folder):
    from hashlearn.features import find_images

    return [path for path in find_images(folder / "photos") if "broken" not in path]


def test_the_subfolders_are_the_labels(classes, tmp_path):
    done = run(*FIT, "--labels", "folders", "-o", tmp_path / "m", cwd=classes)
    assert "from 24 vectors of 512 (photos)" in done.stdout
    assert re.search(r"note: 1 of 25 pictures can't be read \(cats/broken.png: .*\) and is left out\.\n", done.stderr)
    paths = readable(classes)
    X, codes = expected_codes(classes, paths, [path.split("/")[0] for path in paths])
    np.testing.assert_array_equal(hashlearn.load(tmp_path / "m").encode(X), codes)


def test_labels_in_a_file_are_in_the_order_of_find_images(classes, tmp_path):
    from hashlearn.features import find_images

    labels = {path: f"class {i % 3}" for i, path in enumerate(find_images(classes / "photos"))}
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in labels.values()))
    run(*FIT, "--labels", tmp_path / "y.txt", "-o", tmp_path / "m", cwd=classes)
    paths = readable(classes)
    X, codes = expected_codes(classes, paths, [labels[path] for path in paths])
    np.testing.assert_array_equal(hashlearn.load(tmp_path / "m").encode(X), codes)


def test_labels_follow_the_sample(classes, tmp_path):
    from hashlearn.features import find_images

    run(*FIT, "--labels", "folders", "--sample", 15, "-o", tmp_path / "m", cwd=classes)
    everything = find_images(classes / "photos")
    rows = np.sort(np.random.default_rng(0).choice(len(everything), 15, replace=False))
    paths = [everything[row] for row in rows if "broken" not in everything[row]]
    X, codes = expected_codes(classes, paths, [path.split("/")[0] for path in paths])
    np.testing.assert_array_equal(hashlearn.load(tmp_path / "m").encode(X), codes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["photos", "-m", "ksh"], "ksh learns from labels: --labels folders takes the names of the subfolders."),
        (["photos/cats", "-m", "ksh"], "ksh learns from labels: give them with --labels FILE."),
        (["photos", "-m", "itq", "--labels", "folders"], "itq learns without labels: leave --labels out."),
        (
            ["photos", "-m", "ksh", "--labels", "three.txt"],
            "--labels must have a label for each of the 25 pictures; it has 3.",
        ),
        (["photos", "-m", "ksh", "--labels", "none.txt"], "error: --labels names none.txt, which does not exist."),
        (
            ["x.npy", "-m", "ksh", "--labels", "three.txt"],
            "--labels must have a label for each of the 9 vectors; it has 3.",
        ),
        (["photos", "-m", "ksh", "--labels", "dogs"], "error: --labels must be a file; dogs is not."),
        (["x.npy", "-m", "ksh", "--labels", "none.txt"], "error: --labels names none.txt, which does not exist."),
        (
            ["photos", "-m", "ksh", "--labels", "same.txt"],
            "ksh learns from at least two classes; --labels gives only cat.",
        ),
        (
            ["dogs", "-m", "ksh", "--labels", "folders"],
            "need every picture in a subfolder of dogs; 2 of 2 are not in one, such as 0.png.",
        ),
        (
            ["one", "-m", "ksh", "--labels", "folders"],
            "ksh learns from at least two classes; --labels gives only cats.",
        ),
        (["photos", "--labels", "folders", "-m", "ksh", "--sample", "1"], "--sample must be at least 2; got 1."),
        (["x.npy", "-m", "ksh", "--labels", "folders"], "ksh learns from labels: give them with --labels FILE."),
    ],
)
def test_labels_are_checked_before_any_picture_is_read(arguments, words, classes):
    (classes / "three.txt").write_text("a\nb\na\n")
    (classes / "same.txt").write_text("cat\n" * 25)
    np.save(classes / "x.npy", np.ones((9, 4)))
    done = run("fit", *arguments, "-o", "m", cwd=classes, code=2)
    assert done.stderr.count("\n") == 1  # reading would note the pictures that can't be read
    assert words in done.stderr
    assert not (classes / "m").exists()


def test_a_folder_where_nothing_can_be_read_is_refused(tmp_path, made):
    (tmp_path / "bad").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "bad" / name).write_text("not a picture")
    done = run("fit", "bad", "-o", "m", cwd=tmp_path, code=2)
    assert "bad must hold at least 2 pictures that can be read; found 0" in done.stderr
    done = run("encode", made / "photos.model", "bad", "--skip-unreadable", "-o", "c.npy", cwd=tmp_path, code=2)
    assert "bad holds no picture that can be read" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"bad"}


# -- features ---------------------------------------------------------------------------------------------------------


def test_other_features_are_fitted_and_encoded_with(tmp_path, monkeypatch):
    from hashlearn.features import EXTRACTORS, read_folder

    monkeypatch.setitem(EXTRACTORS, "mean-color", MeanColor)
    (tmp_path / "colors").mkdir()
    for i in range(6):
        Image.new("RGB", (20, 10), (40 * i, 255 - 30 * i, 7 * i)).save(tmp_path / "colors" / f"{i}.png")
    fit = ("fit", "colors", "-m", "lsh", "-b", 8, "-o", "m")
    done = run(*fit, "--features", "mean-color", cwd=tmp_path)
    assert "from 6 vectors of 3 (colors)" in done.stdout
    assert hashlearn.load(tmp_path / "m").metadata_.features == {"kind": "mean-color"}
    done = run("encode", "m", "colors", "-o", "c.npy", cwd=tmp_path)
    assert "6 codes of 8 bits (1 byte each) of colors" in done.stdout
    X = read_folder(tmp_path / "colors", MeanColor()).vectors
    expected = hashlearn.LSH(8, random_state=0).fit(X).encode(X)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), expected)
    done = run(*fit, "--features", "mean-color", "--side", 16, cwd=tmp_path, code=2)
    assert "the features mean-color have no side, so --side would have no effect: leave it out." in done.stderr
    assert (
        "no extractor of features is named 'mean-colr': did you mean mean-color?"
        in run(*fit, "--features", "mean-colr", cwd=tmp_path, code=2).stderr
    )
    run(*fit, "--features", "gist", "--side", 16, cwd=tmp_path)
    assert hashlearn.load(tmp_path / "m").metadata_.features["side"] == 16
    done = run("fit", "digits", "--features", "gist", "-o", "m", cwd=tmp_path, code=2)
    assert "digits is a data set, so --features would have no effect" in done.stderr


def test_one_unreadable_picture_is_spoken_of_in_the_singular(classes, tmp_path):
    run(*FIT, "--labels", "folders", "-o", tmp_path / "m", cwd=classes)
    done = run("encode", tmp_path / "m", "photos", "-o", tmp_path / "c.npy", cwd=classes, code=2)
    assert done.stderr.endswith("; --skip-unreadable leaves it out.\n")


# -- seeds ------------------------------------------------------------------------------------------------------------


def test_the_seed_of_a_sample_is_for_a_method_that_draws_nothing_too(classes, tmp_path):
    digits = hashlearn.datasets.load("digits").train
    run("fit", "digits", "-m", "sh", "-b", 8, "--sample", 100, "--seed", 3, "-o", tmp_path / "m")
    rows = np.sort(np.random.default_rng(3).choice(len(digits), 100, replace=False))
    expected = hashlearn.SH(8).fit(digits[rows])
    np.testing.assert_array_equal(hashlearn.load(tmp_path / "m").encode(digits), expected.encode(digits))
    fit = ("fit", "photos", "-m", "sh", "-b", 8, "--side", 16, "--seed", 3)
    done = run(*fit, "--sample", 10, "-o", tmp_path / "sampled", cwd=classes)
    assert "from 10 vectors" in done.stdout or "from 9 vectors" in done.stdout  # one can't be read
    run(*fit, "-o", tmp_path / "m", cwd=classes)  # at most 20,000 pictures are drawn
