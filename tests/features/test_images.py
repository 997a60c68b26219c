"""Folders of pictures: what is found, how it is described, and the vectors batch by batch."""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from made_pictures import encoded, picture
from PIL import Image

from hashlearn.errors import ImageError
from hashlearn.features import (
    EXTRACTORS,
    GIST_320,
    GIST_512,
    IMAGE_ENDINGS,
    GistExtractor,
    ImageFeatures,
    find_images,
    gist,
    image_vectors,
    make_extractor,
    read_folder,
    read_image,
)
from mean_color import MeanColor

module = importlib.import_module("hashlearn.features.images")
gist_module = importlib.import_module("hashlearn.features.gist")
SMALL = GistExtractor(side=16, orientations=(4, 2))


# --- the description ---------------------------------------------------------------------------------------


def test_the_usual_description():
    features = GistExtractor()
    assert features == GistExtractor(64, True, GIST_512)
    assert features.n_features == 512
    assert str(features) == "512-D GIST of pictures at 64×64, color"
    assert str(GistExtractor(side=32, color=False, orientations=GIST_320)) == "320-D GIST of pictures at 32×32, gray"
    assert hash(features) == hash(GistExtractor())


@pytest.mark.parametrize(
    "features", [GistExtractor(), SMALL, GistExtractor(color=False), GistExtractor(orientations=np.array([3, 1]))]
)
def test_round_trip_through_json(features):
    stored = json.loads(json.dumps(features.description()))
    assert GistExtractor.from_description(stored) == features
    assert isinstance(GistExtractor.from_description(stored).orientations, tuple)


def test_the_stored_form_is_pinned():
    stored = {"version": 1, "kind": "gist", "side": 16, "color": True, "orientations": [4, 2]}
    assert SMALL.description() == stored
    # A change of either changes the vectors: the version of the stored form must then change too.
    assert (gist_module._DESCRIPTION_VERSION, gist_module._VERSION) == (1, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "sift"}, "kind must be 'gist'.*got 'sift'"),
        ({"version": 2}, "version 1.*got 2"),
        ({"version": True}, "version 1.*got True"),
        ({"version": None}, "version 1.*got None"),
        ({"blocks": 4}, "must have the fields color, kind, orientations, side, version; differs in 'blocks'"),
        ({1: 4}, "differs in 1"),
        ({"side": 3}, "side must be.*from 4 to 1024; got 3"),
        ({"side": 1025}, "got 1025"),
        ({"side": 32.0}, "got 32.0"),
        ({"side": True}, "got True"),
        ({"color": 1}, "color must be True or False; got 1"),
        ({"orientations": []}, "orientations must be"),
        ({"orientations": [8, 0]}, "orientations must be"),
        ({"orientations": [1000, 25]}, "orientations must add up to at most 1024 filters; got 1025"),
        ({"orientations": None}, "orientations must be"),
    ],
    ids=range(15),
)
def test_other_descriptions_are_refused(change, message):
    with pytest.raises(ValueError, match=message) as caught:
        GistExtractor.from_description(GistExtractor().description() | change)
    assert "\n" not in str(caught.value)


def test_a_missing_field_and_no_dict():
    stored = GistExtractor().description()
    del stored["side"]
    with pytest.raises(ValueError, match="differs in 'side'"):
        GistExtractor.from_description(stored)
    with pytest.raises(ValueError, match="must be a dict; got list"):
        GistExtractor.from_description([])


def test_an_extractor_is_made_by_its_name():
    assert {"gist": GistExtractor} == EXTRACTORS
    assert make_extractor(SMALL.description()) == SMALL
    for description in ({"kind": "sift"}, {"kind": ["gist"]}, {}, None, [], "gist"):
        with pytest.raises(ValueError, match="kind, one of gist; got"):
            make_extractor(description)
    with pytest.raises(ValueError, match=r"version 1.*got None"):
        make_extractor({"kind": "gist"})


def test_another_extractor_needs_a_line_in_the_dict_only(tmp_path, monkeypatch):
    import hashlearn
    from hashlearn.collection import Collection
    from hashlearn.hashers import ModelMetadata

    monkeypatch.setitem(EXTRACTORS, "mean-color", MeanColor)
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (250, 5, 5)]
    for i, color in enumerate(colors):
        Image.new("RGB", (20, 10), color).save(tmp_path / f"{i}.png")
    ((_, X),) = image_vectors(tmp_path, find_images(tmp_path), MeanColor())
    np.testing.assert_array_equal(X, colors)
    hashlearn.LSH(n_bits=16, random_state=0).fit(X).save(
        tmp_path / "model", metadata=ModelMetadata(features=MeanColor().description())
    )
    with Collection.create(tmp_path / "c.hl", model=hashlearn.load(tmp_path / "model")) as collection:
        assert collection.add_images(tmp_path).added == 4
        assert [match.source for match in collection.search_images(tmp_path / "0.png", k=2)[0]] == ["0.png", "3.png"]


def test_the_former_name():
    with pytest.warns(DeprecationWarning, match="use GistExtractor"):
        former = ImageFeatures("gist", 16, orientations=(4, 2))
    assert former.as_dict() == SMALL.description()
    assert former.name == str(SMALL)
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    np.testing.assert_array_equal(former.vectors(images), SMALL.describe(images))
    with pytest.warns(DeprecationWarning, match="use GistExtractor"):
        assert ImageFeatures.from_dict(former.as_dict()) == former
    with (
        pytest.warns(DeprecationWarning, match="use Gist"),
        pytest.raises(ValueError, match="kind must be 'gist'; got 'sift'"),
    ):
        ImageFeatures("sift")


def test_every_field_changes_the_vector(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(picture(40, 30), "PNG"))

    def vector(features: GistExtractor) -> np.ndarray:
        return features.describe(read_image(tmp_path / "a.png", features)[None])[0]

    want = vector(SMALL)
    assert want.shape == (SMALL.n_features,)
    assert want.dtype == np.float32
    for changes in ({"side": 17}, {"color": False}, {"orientations": (4, 3)}):
        got = vector(replace(SMALL, **changes))
        assert got.shape != want.shape or np.abs(got - want).max() > 1e-3 * want.max()


# --- finding -----------------------------------------------------------------------------------------------


def test_find_images(tmp_path, monkeypatch):
    wanted = ["B.JPG", "a/b/c.webp", "a/z.Png", "a.jpg", "ab/c.tiff", "d.jpg/inside.gif", "ä ö.jpeg", "x.y.BMP"]
    other = [".hidden.jpg", ".folder/a.jpg", "a/.deep/a.jpg", "text.txt", "jpg", "a.jpg.bak", "notes.jpgx", "a/c.svg"]
    for name in wanted + other:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert find_images(tmp_path) == sorted(wanted)
    assert find_images(str(tmp_path)) == sorted(wanted)
    monkeypatch.chdir(tmp_path)
    assert find_images(".") == sorted(wanted)
    assert find_images("a") == ["b/c.webp", "z.Png"]
    assert find_images(".folder") == ["a.jpg"]  # hidden, but asked for


@pytest.mark.parametrize("ending", IMAGE_ENDINGS)
def test_every_ending(tmp_path, ending):
    for name in (f"lower{ending}", f"UPPER{ending.upper()}"):
        (tmp_path / name).write_bytes(b"")
    assert find_images(tmp_path) == [f"UPPER{ending.upper()}", f"lower{ending}"]


def test_links(tmp_path):
    folder, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    (folder / "sub").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "far.jpg").write_bytes(b"x")
    (folder / "sub" / "near.jpg").write_bytes(b"x")
    (folder / "sub" / "up").symlink_to("..")
    (folder / "self").symlink_to(".")
    (folder / "out").symlink_to(elsewhere)
    (folder / "far.jpg").symlink_to(elsewhere / "far.jpg")
    (folder / "broken.jpg").symlink_to("nowhere")
    # The broken one is a picture that can't be read: better told than forgotten.
    assert find_images(folder) == ["broken.jpg", "far.jpg", "sub/near.jpg"]
    (tmp_path / "link").symlink_to(folder)
    assert find_images(tmp_path / "link") == ["broken.jpg", "far.jpg", "sub/near.jpg"]


def test_names_that_are_not_utf8(tmp_path, caplog):
    (tmp_path / "good.jpg").write_bytes(b"x")
    folder = os.fsencode(tmp_path)
    try:
        os.mkdir(folder + b"/d\xe9")
        for name in (b"/caf\xe9.jpg", b"/d\xe9/a.jpg", b"/\xff.txt"):
            with open(folder + name, "wb"):
                pass
    except OSError as error:
        pytest.skip(f"this file system has UTF-8 names only: {error}")
    assert find_images(tmp_path) == ["good.jpg"]
    assert [r.message for r in caplog.records] == [
        "pictures are left out whose names are not UTF-8: 2, 'caf\\udce9.jpg' first"
    ]


def test_a_folder_without_pictures(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"holds no picture: no file below it ends in \.jpg \.jpeg .*\.pgm") as caught:
        find_images(tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        find_images(tmp_path / "gone")
    with pytest.raises(NotADirectoryError):
        find_images(tmp_path / "a.txt")


def test_a_folder_that_can_not_be_opened_is_told(tmp_path, monkeypatch, caplog):
    (tmp_path / "locked").mkdir()
    (tmp_path / "a.jpg").write_bytes(b"x")
    original = os.scandir

    def scandir(path):
        if "locked" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return original(path)

    monkeypatch.setattr(module.os, "scandir", scandir)
    assert find_images(tmp_path) == ["a.jpg"]
    assert [record.message for record in caplog.records] == ["'locked/' is left out: Permission denied"]


# --- vectors -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Eleven pictures and three that are none."""
    rng = np.random.default_rng(0)
    (tmp_path / "sub").mkdir()
    for i in range(11):
        noise = rng.integers(0, 256, (20 + i, 30 - i, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / ("sub" if i % 3 else ".") / f"{i:02}.png")
    (tmp_path / "05.jpg").write_bytes(b"no picture")
    (tmp_path / "sub" / "empty.gif").write_bytes(b"")
    (tmp_path / "sub" / "07.tif").mkdir()
    return tmp_path


def alone(folder, path: str, features: GistExtractor = SMALL) -> np.ndarray:
    return gist(read_image(folder / path, features)[None], features.orientations)[0]


def near(got: np.ndarray, want: np.ndarray) -> bool:
    """To 1e-6 of each vector's norm."""
    return bool((np.linalg.norm(got - want, axis=1) <= 1e-6 * np.linalg.norm(want, axis=1)).all())


@pytest.mark.parametrize("batch", [1, 2, 3, 11, 12, None])
@pytest.mark.parametrize("n_threads", [1, 4])
def test_vectors_in_order_and_the_unreadable_told(folder, monkeypatch, batch, n_threads):
    monkeypatch.setattr(module, "cores", lambda: n_threads)
    paths = [*find_images(folder), "gone.png", "sub/07.tif"]
    errors = []
    got = list(image_vectors(folder, paths, SMALL, batch=batch, on_error=lambda *told: errors.append(told)))
    bad = ["05.jpg", "sub/empty.gif", "gone.png", "sub/07.tif"]
    good = [path for path in paths if path not in bad]
    assert len(good) == 11
    assert [path for names, _ in got for path in names] == good
    assert [path for path, _ in errors] == bad
    assert [reason for _, reason in errors][1:] == [
        "the file is empty (0 bytes)",
        "No such file or directory",
        "a file is needed; it is a folder",
    ]
    size = batch or 1024
    assert [len(names) for names, _ in got] == [len(good[i : i + size]) for i in range(0, len(good), size)]
    for names, vectors in got:
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(names), SMALL.n_features)
        assert near(vectors, np.stack([alone(folder, path) for path in names]))


@pytest.mark.slow
@pytest.mark.parametrize("features", [GistExtractor(side=32, orientations=GIST_320), GistExtractor()], ids=str)
def test_neighbors_change_a_vector_by_rounding_only(tmp_path, features):
    """At 32×32 a large batch even takes another way through ``gist``."""
    rng = np.random.default_rng(1)
    n = 540 if features.side == 32 else 40
    for i in range(n):
        Image.fromarray(rng.integers(0, 256, (features.side, features.side, 3), dtype=np.uint8)).save(
            tmp_path / f"{i:03}.png", compress_level=0
        )
    paths = find_images(tmp_path)
    [(_, together)] = image_vectors(tmp_path, paths, features, batch=n)
    chosen = [0, 1, n // 2, n - 1]
    for size in (1, 3):
        got = image_vectors(tmp_path, [paths[i] for i in chosen], features, batch=size)
        assert near(np.concatenate([vectors for _, vectors in got]), together[chosen])
    [(_, again)] = image_vectors(tmp_path, paths, features, batch=n)
    np.testing.assert_array_equal(again, together)


def test_errors_are_logged_unless_asked_for(folder, caplog):
    with caplog.at_level(logging.WARNING, "hashlearn"):
        assert list(image_vectors(folder, ["05.jpg", "gone.png"], SMALL)) == []
    assert [record.message for record in caplog.records][1] == "'gone.png' is skipped: No such file or directory"
    assert len(caplog.records) == 2


def test_no_paths_and_bad_arguments(folder):
    assert list(image_vectors(folder, [], SMALL)) == []
    for batch in (0, -1):
        with pytest.raises(ValueError, match=f"batch must be at least 1; got {batch}"):
            image_vectors(folder, [], SMALL, batch=batch)
    for batch in (2.0, "8"):
        with pytest.raises(ValueError, match=f"batch must be a whole number of at least 1; got {batch!r}"):
            image_vectors(folder, [], SMALL, batch=batch)
    with pytest.raises(ValueError, match="paths must be a sequence of paths"):
        image_vectors(folder, "00.png", SMALL)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("hashlearn-images")]


def test_closing_ends_the_threads_and_reads_no_more(folder, monkeypatch):
    reads = []
    original = module.read_picture

    def slow(path, *a):
        reads.append(path)
        time.sleep(0.01)
        return original(path, *a)

    monkeypatch.setattr(gist_module, "read_picture", slow)
    monkeypatch.setattr(module, "cores", lambda: 2)
    vectors = image_vectors(folder, ["00.png"] * 500, SMALL, batch=100)
    assert not workers(), "before the first batch is asked for there is nothing to end"
    next(vectors)
    assert workers()
    vectors.close()
    assert not workers()
    assert len(reads) < 150
    assert next(vectors, None) is None


def test_an_error_of_the_caller_ends_the_threads(folder):
    def stop(path, reason):
        raise RuntimeError(path)

    with pytest.raises(RuntimeError, match="gone") as caught:
        list(image_vectors(folder, ["00.png", "gone.png", *["00.png"] * 50], SMALL, batch=4, on_error=stop))
    assert not workers()
    del caught


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_not_the_pictures_fault_reaches_the_caller(folder, monkeypatch, error):
    def fail(*a):
        raise error

    monkeypatch.setattr(gist_module, "read_picture", fail)
    with pytest.raises(error):
        list(image_vectors(folder, ["00.png"] * 5, SMALL))
    assert not workers()


@pytest.mark.parametrize("batch", [1, 6])
def test_pictures_are_read_at_once_on_all_cores(folder, monkeypatch, batch):
    together = threading.Barrier(3)
    original = module.read_picture

    def meet(path, *a):
        together.wait(10)  # broken, an error, unless three are here
        return original(path, *a)

    monkeypatch.setattr(gist_module, "read_picture", meet)
    monkeypatch.setattr(module, "cores", lambda: 3)
    assert len(list(image_vectors(folder, ["00.png"] * 6, SMALL, batch=batch))) == 6 // batch


@pytest.mark.parametrize(("batch", "features", "most"), [(5, SMALL, 10), (2, SMALL, 8), (900, SMALL, 1000)])
def test_no_more_is_read_ahead_than_a_batch(folder, monkeypatch, batch, features, most):
    """900 is more than the usual batch of 100: then only the usual one is read ahead."""
    monkeypatch.setattr(module, "cores", lambda: 3)
    monkeypatch.setattr(module, "_BATCH_BYTES", 100 * 16 * 16 * 3)
    taken = itertools.count()
    paths = (path for path, _ in zip(itertools.repeat("00.png"), taken))
    vectors = image_vectors(folder, paths, features, batch=batch)
    next(vectors)
    assert next(taken) - 1 <= most
    vectors.close()


def test_the_usual_batch(folder, monkeypatch):
    sizes = []
    for features in (GistExtractor(side=16), GistExtractor(side=1024), GistExtractor(side=1024, color=False)):
        with monkeypatch.context() as patch:
            patch.setattr(gist_module, "read_picture", lambda path, side, color: np.zeros((4, 4), dtype=np.uint8))
            patch.setattr(GistExtractor, "describe", lambda self, images: images)
            sizes.append(len(next(image_vectors(folder, itertools.repeat("a"), features))[0]))
    assert sizes == [1024, 21, 64]


@pytest.mark.data
def test_cifar10_as_pngs_has_the_data_sets_vectors(tmp_path, monkeypatch):
    from hashlearn.datasets import cifar10_images, load
    from hashlearn.errors import DatasetError

    monkeypatch.setattr(gist_module, "_describe", lambda *a: pytest.skip("CIFAR-10's GIST is not in the cache"))
    try:
        images, want = cifar10_images().test_images[:600], load("cifar10").queries[:600]
    except DatasetError as error:
        pytest.skip(f"CIFAR-10 can't be had: {error}")
    monkeypatch.undo()
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{i:04}.png")
    features = GistExtractor(side=32, orientations=GIST_320)
    for batch in (600, 100):
        got = np.concatenate([v for _, v in image_vectors(tmp_path, find_images(tmp_path), features, batch=batch)])
        assert near(got, want)
        np.testing.assert_allclose(got, want, rtol=2e-4)


def test_import_is_light():
    code = "import sys, hashlearn.features; print(sorted({'PIL', 'scipy', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_image_errors_are_value_errors_that_can_be_pickled():
    error = pickle.loads(pickle.dumps(ImageError("a.jpg", "empty")))
    assert isinstance(error, ValueError)
    assert (error.path, error.reason, str(error)) == ("a.jpg", "empty", "a.jpg: empty")


# --- a folder at once --------------------------------------------------------------------------------------


@pytest.fixture
def labeled(tmp_path):
    """Ten pictures in two subfolders, one of which can't be read."""
    for i in range(10):
        path = tmp_path / "photos" / ("cats/small", "dogs")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (25 * i, 0, 255 - 20 * i)).save(path)
    (tmp_path / "photos" / "dogs" / "5.png").write_text("not a picture")
    return tmp_path / "photos"


def test_a_folder_is_read_with_the_labels_of_its_subfolders(labeled):
    data = read_folder(labeled, SMALL, labels="folders")
    everything = find_images(labeled)
    assert data.paths == [path for path in everything if path != "dogs/5.png"]
    assert data.labels == ["cats"] * 5 + ["dogs"] * 4
    ((path, reason),) = data.unreadable
    assert (path, reason.startswith("not a picture")) == ("dogs/5.png", True)
    ((_, expected),) = image_vectors(labeled, data.paths, SMALL)
    np.testing.assert_array_equal(data.vectors, expected)
    assert read_folder(labeled, SMALL).labels is None


def test_labels_follow_the_sample_of_a_folder(labeled):
    everything = find_images(labeled)
    for seed in (0, 3):
        data = read_folder(labeled, SMALL, labels=list(range(10)), sample=6, random_state=seed)
        rows = np.sort(np.random.default_rng(seed).choice(10, 6, replace=False))
        assert data.labels == [row for row in rows if everything[row] != "dogs/5.png"]
        assert data.paths == [everything[row] for row in data.labels]
        again = read_folder(labeled, SMALL, sample=6, random_state=np.random.default_rng(seed))
        assert again.paths == data.paths
    assert len(read_folder(labeled, SMALL, sample=10).paths) == 9


def test_a_folder_where_nothing_can_be_read(labeled):
    for path in find_images(labeled):
        (labeled / path).write_text("not a picture")
    data = read_folder(labeled, SMALL, labels=np.arange(10))
    assert (data.vectors.shape, data.paths, data.labels) == ((0, SMALL.n_features), [], [])
    assert [path for path, _ in data.unreadable] == find_images(labeled)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": [1, 2]}, "labels must have a label for each of the 10 pictures; got 2."),
        ({"labels": "folder"}, "labels must be 'folders' or a sequence of labels; got 'folder'."),
        ({"random_state": -1}, "random_state must be at least 0; got -1."),
        ({"random_state": "x"}, "random_state must be a whole number of at least 0; got 'x'."),
        ({"labels": [None] * 10}, "labels must have a label for every item; item 0 has none"),
        ({"sample": 0}, "sample must be at least 1; got 0."),
        ({"sample": 2.5}, "sample must be a whole number of at least 1; got 2.5."),
    ],
)
def test_labels_and_sample_are_checked_before_any_picture_is_read(options, words, labeled, monkeypatch):
    monkeypatch.setattr(gist_module, "read_picture", lambda *a: pytest.fail("a picture was read"))
    with pytest.raises(ValueError, match=re.escape(words)):
        read_folder(labeled, SMALL, **options)
    (labeled / "0.png").touch()
    with pytest.raises(
        ValueError, match=r"labels from folders need every .*photos; 1 of 11 are not in one, such as 0.png\."
    ):
        read_folder(labeled, SMALL, labels="folders")
