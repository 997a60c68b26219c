"""Pictures and vectors added to a collection and searched, through the library."""

import os
import warnings

import numpy as np
import pytest
from PIL import Image
from scipy import sparse

import hashlearn
from hashlearn.collection import Collection, Ingested, Match, ingest, open_or_create
from hashlearn.errors import ImageError
from hashlearn.features import GistExtractor, image_vectors
from hashlearn.hashers import ModelMetadata

FEATURES = GistExtractor(side=16, orientations=(4, 2))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of 12 pictures of noise, one of them twice, and one file that is no picture."""
    folder = tmp_path_factory.mktemp("made") / "photos"
    (folder / "sub").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / ("sub" if i % 2 else ".") / f"{i:02}.png")
    Image.open(folder / "00.png").save(folder / "sub" / "twin.png")
    (folder / "sub" / "text.jpg").write_text("no picture")
    return folder


@pytest.fixture(scope="module")
def model(photos):
    """Trained on the pictures; loaded, as it knows its features from its file."""
    paths = [f"{i:02}.png" for i in range(0, 12, 2)]
    ((_, X),) = image_vectors(photos, paths, FEATURES)
    made = hashlearn.LSH(n_bits=24, random_state=0).fit(X)
    made.save(photos.parent / "model", metadata=ModelMetadata(features=FEATURES.description()))
    return hashlearn.load(photos.parent / "model")


@pytest.fixture
def collection(photos, model, tmp_path):
    with open_or_create(tmp_path / "x.hl", model, source="photos", folder=photos) as collection:
        collection.add_images(photos)
        yield collection


def test_the_model_of_a_new_collection_is_the_object_that_was_given(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 8))
    model = hashlearn.ITQ(n_bits=8, random_state=0).fit(X)
    with Collection.create(tmp_path / "x.hl", model=model) as collection:
        assert collection.model is model
        assert collection.has_model(model)
    with Collection.open(tmp_path / "x.hl") as collection:
        assert collection.model is not model
        np.testing.assert_array_equal(collection.encode(X), model.encode(X))


def test_a_model_is_read_without_a_temporary_file(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(30, 8))
    Collection.create(tmp_path / "x.hl", model=hashlearn.LSH(n_bits=8, random_state=0).fit(X)).close()
    monkeypatch.setattr("tempfile.mkdtemp", lambda *args, **kwargs: pytest.fail("a temporary folder"))
    monkeypatch.setattr("tempfile.mkstemp", lambda *args, **kwargs: pytest.fail("a temporary file"))
    with Collection.open(tmp_path / "x.hl", readonly=True) as collection:
        assert collection.model.n_bits_ == 8


def test_a_model_with_another_distance_is_warned_about(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 8))
    with pytest.warns(UserWarning, match="sph are meant to be ranked by spherical distance; .* by Hamming"):
        Collection.create(tmp_path / "x.hl", model=hashlearn.SPH(n_bits=8, random_state=0).fit(X)).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Collection.open(tmp_path / "x.hl").close()


def test_a_folder_is_added_once(photos, collection):
    assert len(collection) == 13
    assert {"00.png", "sub/01.png", "sub/twin.png"} < set(collection.find_ids())
    again = collection.add_images(photos)
    assert (again.added, again.already_present) == (0, 13)
    assert [path for path, _ in again.unreadable] == ["sub/text.jpg"]
    assert collection.root.samefile(photos)
    assert collection.extractor == FEATURES


def test_paths_and_folders_may_be_mixed(photos, model, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    with open_or_create(tmp_path / "x.hl", model, source="photos", folder=photos) as collection:
        assert collection.add_images("photos/02.png") == Ingested(added=1)
        result = collection.add_images([photos / "02.png", "photos/../photos/02.png", "photos/04.png", "photos/sub"])
        assert (result.added, result.already_present) == (8, 1)
        assert result.unreadable[0][0] == os.path.join("photos/sub", "text.jpg")
        assert set(collection.find_ids()) == {"02.png", "04.png", "sub/twin.png"} | {
            f"sub/{i:02}.png" for i in range(1, 12, 2)
        }
        with pytest.raises(FileNotFoundError, match=r"gone\.png is neither"):
            collection.add_images(["photos/06.png", "gone.png"])
        assert len(collection) == 9


def test_a_collection_that_is_created_with_a_model_of_pictures_takes_pictures(photos, model):
    with Collection.create(photos.parent / "own.hl", model=model) as collection:
        assert collection.add_images([photos / "00.png", photos / "sub" / "01.png"]).added == 2
        assert list(collection.find_ids()) == ["photos/00.png", "photos/sub/01.png"]
        assert collection.search_images(photos / "00.png", 1)[0][0].source == "photos/00.png"


def test_a_collection_of_vectors_takes_no_pictures(photos, model, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, model.n_features_in_))
    with open_or_create(tmp_path / "x.hl", model, source="x", vectors=X) as collection:
        assert collection.extractor is None
        for call in (collection.add_images, collection.search_images):
            with pytest.raises(ValueError, match="made of vectors"):
                call(photos / "00.png")


def test_search_by_pictures(photos, collection):
    one = collection.search_images(photos / "00.png", k=3)
    assert [len(matches) for matches in one] == [3]
    assert [(match.distance, match.source) for match in one[0][:2]] == [(0, "00.png"), (0, "sub/twin.png")]
    assert isinstance(one[0][0], Match)
    two = collection.search_images([str(photos / "00.png"), photos / "sub" / "01.png"], radius=0)
    assert [[match.source for match in matches] for matches in two] == [["00.png", "sub/twin.png"], ["sub/01.png"]]
    with pytest.raises(ImageError, match=r"text\.jpg"):
        collection.search_images([photos / "00.png", photos / "sub" / "text.jpg"])


def test_search_by_vectors_and_ids_is_ordered_and_complete(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 8))
    model = hashlearn.LSH(n_bits=16, random_state=0).fit(X)
    with Collection.create(tmp_path / "x.hl", model=model) as collection:
        collection.add_vectors(X, ids=np.arange(200) + 5, payloads=[{"row": row} for row in range(200)])
        codes = model.encode(X)
        distances = np.bitwise_count(codes[:3, None] ^ codes[None]).sum(axis=2)
        for query, matches in enumerate(collection.search_vectors(X[:3])):
            order = sorted(range(200), key=lambda row: (distances[query, row], row))[:10]
            assert matches == [Match(row + 5, distances[query, row], None, {"row": row}) for row in order]
        for query, matches in enumerate(collection.search_ids([5, 6, 7], radius=4)):
            near = sorted(np.flatnonzero(distances[query] <= 4), key=lambda row: (distances[query, row], row))
            assert [match.id for match in matches] == [row + 5 for row in near]
        assert [match.id for match in collection.search_ids([9], k=1)[0]] == [9]
        assert len(collection.search_vectors(X[:1], k=1000)[0]) == 200
        for k, radius, words in ((0, None, "k must"), (3, 2, "not both"), (None, -1, "radius must")):
            with pytest.raises(ValueError, match=words):
                collection.search_vectors(X[:1], k, radius=radius)
        with pytest.raises(ValueError, match="id 3 is not in the collection"):
            collection.search_ids([3])


def test_nothing_is_found_in_an_empty_collection(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 8))
    with Collection.create(tmp_path / "x.hl", model=hashlearn.LSH(n_bits=8, random_state=0).fit(X)) as collection:
        assert collection.search_vectors(X[:2]) == [[], []]
        assert collection.search_vectors(X[:2], radius=8) == [[], []]


@pytest.mark.parametrize("n_bits", [8, 20, 72])
def test_vectors_that_are_added_again_are_counted(tmp_path, n_bits, monkeypatch):
    monkeypatch.setattr(ingest, "_BATCH", 7)
    rng = np.random.default_rng(0)
    X, other = rng.normal(size=(50, 8)), rng.normal(size=(30, 8))
    model = hashlearn.LSH(n_bits=n_bits, random_state=0).fit(X)
    with Collection.create(tmp_path / "x.hl", model=model) as collection:
        # Equal codes within one call are no sign of an earlier call.
        assert collection.add_vectors(np.concatenate([X, X]), count_known=True) == Ingested(added=100)
        known = {code.tobytes() for code in model.encode(X)}
        common = sum(code.tobytes() in known for code in model.encode(other))
        result = collection.add_vectors(np.concatenate([other, X]), count_known=True)
        assert result == Ingested(added=80, known_codes=50 + common)
        assert collection.add_vectors(X).known_codes == 0  # not counted
        with pytest.raises(ValueError, match="not both"):
            collection.add_vectors(X[:3], ids=[1, 2, 3], by_row=True)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c, X: c.add_vectors(None), r"takes vectors of shape \(n, 8\); got \(\)"),
        (lambda c, X: c.add_vectors("x.npy"), r"takes vectors of shape \(n, 8\); got \(\)"),
        (lambda c, X: c.add_vectors(X[0]), r"takes vectors of shape \(n, 8\); got \(8,\)"),
        (lambda c, X: c.add_vectors(X[:, :5]), r"takes vectors of shape \(n, 8\); got \(30, 5\)"),
        (lambda c, X: c.search_vectors(X[0]), r"takes vectors of shape \(n, 8\); got \(8,\)"),
        (lambda c, X: c.add_vectors(X, ids="a"), "ids must be whole numbers"),
        (lambda c, X: c.add_vectors(X[:2], payloads="ab"), "payloads must be a list; got 'ab'"),
        (lambda c, X: c.add_vectors(X[:2], payloads={"a": 1, "b": 2}), "payloads must be a list"),
        (lambda c, X: c.add_vectors(X[:2], payloads=2), "payloads must be a list; got 2"),
        (lambda c, X: c.add_vectors(X[:2], payloads={1, 2}), "payloads must be a list"),
        (lambda c, X: c.add_vectors(sparse.csr_array(X)), r"takes vectors of shape \(n, 8\); got \(\)"),
        (lambda c, X: c.find_ids(3), "sources must be a list; got 3"),
        (lambda c, X: c.find_ids("a"), "sources must be a list; got 'a'"),
        (lambda c, X: c.add(c.encode(X[:1]), sources="a"), "sources must be a list; got 'a'"),
        (lambda c, X: c.search_vectors(X, k="3"), "k must be a whole number of at least 1; got '3'"),
        (lambda c, X: c.search_vectors(X, k=True), "k must be a whole number of at least 1; got True"),
        (lambda c, X: c.search_vectors(X, k=0), "k must be at least 1; got 0"),
        (lambda c, X: c.search_vectors(X, radius=1.5), "radius must be a whole number of at least 0; got 1.5"),
        (lambda c, X: c.search_vectors(X, 3, radius=3), "give k or radius, not both"),
        (lambda c, X: c.search_ids("a"), "ids must be whole numbers"),
    ],
)
def test_arguments_that_are_refused(call, why, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 8))
    with Collection.create(tmp_path / "x.hl", model=hashlearn.LSH(n_bits=8, random_state=0).fit(X)) as collection:
        with pytest.raises(ValueError, match=why):
            call(collection, X)
        assert len(collection) == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": "model"}, "model must be a fitted hasher, .*; got 'model'"),
        ({"model": hashlearn.LSH}, "model must be a fitted hasher"),
        ({"model": hashlearn.make_pipeline(hashlearn.LSH())}, "for a pipeline, give n_bits instead, and add its codes"),
        ({"model": hashlearn.LSH()}, "not fitted"),
        ({"n_bits": "8"}, "n_bits must be a whole number of at least 1; got '8'"),
        ({"n_bits": 8, "info": [1]}, r"info must be a dict of JSON values; got \[1\]"),
        ({"n_bits": 8, "first_id": -1}, "ids must be from 0"),
        ({}, "either a model or n_bits"),
    ],
)
def test_a_collection_that_is_not_created(options, why, tmp_path):
    with pytest.raises(ValueError, match=why):
        Collection.create(tmp_path / "x.hl", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("images", [3, None, b"00.png", [3], [b"00.png"], np.zeros((1, 16, 16, 3))])
def test_pictures_are_given_as_paths(images, collection):
    for call in (collection.add_images, collection.search_images):
        with pytest.raises(ValueError, match="images must be paths of pictures; got"):
            call(images)


def test_lists_generators_and_empty_batches(photos, collection, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 8))
    with Collection.create(tmp_path / "v.hl", model=hashlearn.LSH(n_bits=8, random_state=0).fit(X)) as vectors:
        assert vectors.add_vectors(X.tolist(), payloads=(f"row {i}" for i in range(30))).added == 30
        assert [item.payload for item in vectors.get([0, 29])] == ["row 0", "row 29"]
        assert vectors.add_vectors(X[:0]) == Ingested()
        assert vectors.search_vectors(X[:0]) == []
    assert collection.search_images([]) == []
    assert collection.add_images(path for path in [photos / "00.png"]) == Ingested(already_present=1)


def test_nothing_is_added_if_a_late_vector_is_not_finite(tmp_path):
    X = np.random.default_rng(0).normal(size=(12_000, 8))
    model = hashlearn.LSH(n_bits=8, random_state=0).fit(X)
    X[11_500, 3] = np.nan
    with Collection.create(tmp_path / "x.hl", model=model) as collection:
        with pytest.raises(ValueError, match="vectors must be finite; row 11500 is not"):
            collection.add_vectors(X)
        assert len(collection) == 0


def test_data_frames_keep_the_names_of_their_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(0).normal(size=(12_000, 8)), columns=list("abcdefgh"))
    model = hashlearn.LSH(n_bits=8, random_state=0).fit(X)
    with Collection.create(tmp_path / "x.hl", model=model) as collection, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert collection.add_vectors(X).added == 12_000
        np.testing.assert_array_equal(collection.index.codes, model.encode(X))
        with pytest.raises(ValueError, match="feature names"):
            collection.add_vectors(X[list("hgfedcba")])


def test_a_model_that_does_not_say_how_pictures_become_vectors(photos, tmp_path):
    ((_, X),) = image_vectors(photos, ["00.png", "02.png"], FEATURES)
    model = hashlearn.LSH(n_bits=8, random_state=0).fit(np.repeat(X, 8, axis=0))
    with (
        Collection.create(tmp_path / "x.hl", model=model) as collection,
        pytest.raises(ValueError, match=r"set model\.metadata_ = ModelMetadata\(features=extractor"),
    ):
        collection.add_images(photos)
    model.metadata_ = ModelMetadata(features=FEATURES.description())
    with Collection.create(tmp_path / "y.hl", model=model) as collection:
        assert collection.add_images(photos).added == 13
    with pytest.raises(ValueError, match=r"the model takes vectors of shape \(n, 96\); got \(96,\)"):
        open_or_create(tmp_path / "z.hl", model, source="x", vectors=X[0])


def test_former_names_of_parameters(collection):
    code = collection.index.reconstruct([0])
    with pytest.warns(DeprecationWarning, match="the parameter unless_there is now skip_known"):
        assert not len(collection.add(code, [0], unless_there=True))
    with pytest.raises(TypeError, match="unless_there"):
        collection.add(code, [0], unless_there=True, skip_known=True)
    with pytest.warns(DeprecationWarning, match="validation_neighbours is now validation_neighbors"):
        hasher = hashlearn.UDHDNN(validation=10, validation_neighbours=7)
    assert hasher.get_params()["validation_neighbors"] == 7
    assert "validation_neighbours" not in hasher.get_params()


def test_former_places_still_work():
    import hashlearn.search

    for name in ("Collection", "Item", "near_duplicates"):
        with pytest.warns(DeprecationWarning, match=f"hashlearn.collection.{name}"):
            assert getattr(hashlearn.search, name) is getattr(hashlearn.collection, name)
    with pytest.raises(AttributeError):
        hashlearn.search.Elsewhere  # noqa: B018
    assert hashlearn.Collection is Collection
