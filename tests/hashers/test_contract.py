"""What every method must do. A method joins by being listed in ``hashlearn.METHODS``."""

import importlib
import io
import json
import pickle
import re
from contextlib import suppress
from functools import cache
from inspect import isabstract
from pkgutil import iter_modules

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import hashlearn
from hashlearn import codes
from hashlearn.errors import ModelFileError
from hashlearn.hashers import ModelMetadata
from hashlearn.hashers._blocks import is_mapped, unit_copy
from hashlearn.hashers._model_file import _content
from hashlearn.hashers.steps import compile_steps, unit_rows

METHODS = hashlearn.METHODS
every_method = pytest.mark.parametrize("name", METHODS)
every_method_that_draws = pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].draws()])
# Methods that train for long: the contract holds for short training too, which warns that it has not converged.
SHORT = {
    "udh-dnn": {"max_iter": 2, "lbfgs_iter": 10},
    "sdh-dnn": {"max_iter": 2, "lbfgs_iter": 10},
    "ba": {"init": "itq", "max_iter": 3},
    "dh": {"max_iter": 2},
    "ksh": {"n_anchors": 20, "max_iter": 20},
    "bre": {"anchors_per_bit": 10, "max_iter": 2},
    "sign": {"threshold": "mean"},  # not short: the digits vary around no 0
    "kmh": {"bits_per_subspace": 1},  # not short, but of every length: its own tests take 4 and 8
    "neighbor-hash": {"n_hidden": 8, "n_neighbors": 5, "learning_rate": 1e-4},  # small steps keep roundings small
    "label-hash": {"n_hidden": 8, "dropout": 0, "learning_rate": 1e-4},
    "decoder-hash": {"max_iter": 2, "epochs": 1},
}
pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning")


def new(name, **parameters):
    """A hasher with short settings; methods that draw nothing have no random_state to set."""
    if not METHODS[name].draws():
        parameters.pop("random_state", None)
    return METHODS[name](**{**SHORT.get(name, {}), **parameters})


@pytest.fixture(scope="module")
def data():
    digits = load_digits()
    return digits.data.astype(np.float32)[:400], digits.target[:400]


@pytest.fixture(scope="module")
def saved(data):
    """The content of the model file of each method, which is fitted once."""

    @cache
    def content(name):
        file = io.BytesIO()
        fitted(name, data).save(file)
        return file.getvalue()

    return content


def fitted(name, data, n_bits=12, random_state=0, **parameters):
    return new(name, n_bits=n_bits, random_state=random_state, **parameters).fit(*data)


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("lsh", {"center": True}),
        ("sh", {}),
        ("itq", {"max_iter": 50}),
        ("sph", {"tol_mean": 0.10, "tol_std": 0.15, "max_iter": 200}),
        ("kmh", {"bits_per_subspace": 4, "affinity_weight": 10.0, "max_iter": 50}),
        ("ba", {"init": "pca", "mu": 5e-3, "mu_factor": 1.2, "max_iter": 60, "C": 100.0, "z_step": "auto"}),
        ("dh", {"lambda1": 100.0, "lambda2": 1e-3, "lambda3": 1e-3, "learning_rate": 0.3, "max_iter": 10, "scale": 64}),
        ("sdh", {"n_anchors": 1000, "sigma": 0.4, "nu": 1e-5, "lambda_g": 1, "lambda_f": 1e-2, "max_iter": 5}),
        ("itq-cca", {"regularization": 1e-4, "max_iter": 50}),
        ("ksh", {"n_anchors": 300, "samples_per_class": 2000, "max_iter": 500, "tol": 1e-2}),
        ("bre", {"anchors_per_bit": 50, "kernel": "linear", "samples_per_class": 2000, "max_iter": 30, "tol": 1e-4}),
        ("udh-dnn", {"lambda1": 1e-5, "lambda2": 5e-2, "lambda3": 1e-2, "lambda4": 1e-6, "max_iter": 10, "scale": 5}),
        ("udh-dnn", {"similarity": 1, "constraint": "discrete", "init_codes": "itq"}),
        ("sdh-dnn", {"lambda1": 1e-3, "lambda2": 5, "lambda3": 1, "lambda4": 1e-4, "max_iter": 5, "scale": 500}),
    ],
)
def test_the_defaults_that_results_were_measured_with(name, defaults):
    assert defaults.items() <= METHODS[name]().get_params().items()


# Two bits: scikit-learn's checks use data of as few as two features.
@parametrize_with_checks([new(name, n_bits=2) for name in METHODS])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_method_of_the_package_is_listed():
    """A class with a name and all that a method needs is in METHODS, under the package's public names."""
    modules = [importlib.import_module(f"hashlearn.hashers.{m.name}") for m in iter_modules(hashlearn.hashers.__path__)]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    methods = {c for c in classes if issubclass(c, hashlearn.Hasher) and not isabstract(c) and hasattr(c, "name")}
    assert methods == set(METHODS.values())
    assert len(METHODS) == len(methods)
    for method in methods:
        assert getattr(hashlearn, method.__name__) is method
        assert method.__name__ in dir(hashlearn)


@every_method
def test_every_parameter_is_documented_and_has_a_rule(name):
    method = METHODS[name]
    documented = re.split(r"Parameters\n    -+\n", method.__doc__)[1].split("    Attributes\n")[0]
    named = {n for line in re.findall(r"^    (\w[\w, ]*) : ", documented, re.M) for n in line.split(", ")}
    parameters = set(method().get_params())
    assert named == parameters
    rules = {rule for base in method.__mro__ for rule in vars(base).get("_parameters", {})}
    assert parameters <= rules


@every_method
@pytest.mark.parametrize("n_bits", [1, 7, 8, 12, 16, 31, 33, 64])
def test_codes_are_packed_bits_of_the_signs(name, n_bits, data):
    hasher = fitted(name, data, n_bits)
    X = data[0]
    H, bits, packed = hasher.decision_function(X), hasher.transform(X), hasher.encode(X)
    assert H.shape == bits.shape == (len(X), n_bits)
    assert packed.shape == (len(X), -(-n_bits // 8))
    assert bits.dtype == packed.dtype == np.uint8
    np.testing.assert_array_equal(bits, (H >= 0).astype(np.uint8))
    np.testing.assert_array_equal(packed, np.packbits(bits, axis=1))
    np.testing.assert_array_equal(codes.unpack(packed, n_bits), bits)


@every_method
def test_more_bits_than_features_are_learned_or_refused(name, data):
    X, y = data[0][:, 20:26], data[1]
    hasher = new(name, n_bits=40, random_state=0)
    if METHODS[name]._max_bits_reason:
        with pytest.raises(ValueError, match="n_bits must be at most the number of features, n_features=6, for"):
            hasher.fit(X, y)
        return
    bits = hasher.fit(X, y).transform(X)
    assert bits.shape == (400, 40)
    assert len(np.unique(bits.T, axis=0)) > 6  # not the same few bits again and again


@every_method
def test_fit_returns_self_and_changes_neither_data_nor_parameters(name, data):
    X, y = data[0].copy(), data[1].copy()
    X.flags.writeable = y.flags.writeable = False
    hasher = new(name, n_bits=8, random_state=3)
    before = hasher.get_params()
    assert hasher.fit(X, y) is hasher
    hasher.encode(X)
    assert hasher.get_params() == before
    np.testing.assert_array_equal(X, data[0])


@every_method
def test_same_seed_same_codes_bit_for_bit(name, data):
    first, second = (fitted(name, data, random_state=7).encode(data[0]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    if METHODS[name].draws():
        assert (fitted(name, data, random_state=8).encode(data[0]) != first).any()


@every_method_that_draws
def test_a_generator_is_a_random_state_too(name, data):
    a = fitted(name, data, random_state=np.random.default_rng(7)).encode(data[0])
    np.testing.assert_array_equal(a, fitted(name, data, random_state=7).encode(data[0]))


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.int64])
def test_every_numeric_type_gives_the_same_codes_up_to_rounding(name, dtype, data):
    X, y = data  # whole numbers 0…16: exact in every type
    a, b = fitted(name, data), new(name, n_bits=12, random_state=0).fit(X.astype(dtype), y)
    assert (a.transform(X) == b.transform(X.astype(dtype))).mean() > 0.99
    if name not in SHORT:  # whole bytes too, where no long path of steps lets the roundings grow
        assert (a.encode(X) == b.encode(X.astype(dtype))).mean() > 0.99


@every_method
def test_fortran_order_strides_and_memory_maps(name, data, tmp_path):
    X, y = data
    hasher = fitted(name, data)
    expected = hasher.encode(X)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for form in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], mapped):
        np.testing.assert_array_equal(hasher.encode(form), expected)
        np.testing.assert_array_equal(new(name, n_bits=12, random_state=0).fit(form, y).encode(X), expected)


@every_method
def test_blocks_of_rows_do_not_matter(name, data, set_block_rows):
    hasher = fitted(name, data)
    expected = hasher.decision_function(data[0])
    set_block_rows(13)
    # Near zero, float32 rounds by the size of what was subtracted: SPH's are squared distances, in thousands.
    atol = max(1e-4, 1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(hasher.decision_function(data[0]), expected, rtol=1e-4, atol=atol)
    np.testing.assert_array_equal(hasher.encode(data[0]), np.packbits(hasher.transform(data[0]), axis=1))
    # Fitted in blocks: other sums, so not the same to the last digit.
    other = fitted(name, data)
    assert (other.transform(data[0]) == hasher.transform(data[0])).mean() > 0.98


@pytest.mark.slow
@every_method
def test_clone_pickle_pipeline_and_grid_search(name, data):
    X, y = data
    hasher = fitted(name, data)
    copy = clone(hasher)
    assert copy.get_params() == hasher.get_params()
    assert not hasattr(copy, "n_bits_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(hasher)).encode(X), hasher.encode(X))
    pipeline = hashlearn.make_pipeline(StandardScaler(), clone(hasher)).fit(X, y)
    # The hasher is the last step, and encodes what the others make.
    expected = pipeline[-1].encode(pipeline[:-1].transform(X))
    np.testing.assert_array_equal(pipeline.encode(X), expected)
    np.testing.assert_array_equal(codes.pack(pipeline.transform(X)), expected)
    np.testing.assert_array_equal(clone(pipeline).fit(X, y).encode(X), expected)

    def length(estimator, X, y=None):
        return estimator.transform(X).shape[1]

    search = GridSearchCV(new(name, random_state=0), {"n_bits": [4, 8, 6]}, scoring=length, cv=2).fit(X, y)
    assert search.best_params_ == {"n_bits": 8}
    assert search.cv_results_["mean_test_score"].tolist() == [4, 8, 6]
    np.testing.assert_array_equal(search.transform(X), fitted(name, data, n_bits=8).transform(X))


@every_method
def test_pandas_output_has_a_name_for_every_bit(name, data):
    import pandas as pd

    X, y = data
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    hasher = new(name, n_bits=3, random_state=0).fit(frame, y).set_output(transform="pandas")
    out = hasher.transform(frame)
    assert list(out.columns) == [f"{name.replace('-', '')}{i}" for i in range(3)]
    np.testing.assert_array_equal(out.to_numpy(), new(name, n_bits=3, random_state=0).fit(X, y).transform(X))


@pytest.mark.slow
@every_method
def test_learned_codes_find_neighbors_better_than_chance(name, data):
    from hashlearn.evaluation import Truth, euclidean_neighbors, evaluate

    X, y = data
    hasher = new(name, n_bits=32, random_state=0).fit(X[100:], y[100:])
    truth = Truth.neighbors(euclidean_neighbors(X[:100], X[100:], 10))
    found = evaluate(hasher.encode(X[:100]), hasher.encode(X[100:]), truth, n_bits=32).map
    chance = 10 / 300
    assert found > 5 * chance


@every_method
@pytest.mark.parametrize("bad", [0, -3, 2.5, "8", True, None])
def test_bad_n_bits_is_refused(name, bad, data):
    with pytest.raises(ValueError, match="n_bits must be a whole number of at least 1 and at most 16777216; got"):
        new(name, n_bits=bad).fit(*data)


@every_method_that_draws
@pytest.mark.parametrize("bad", ["abc", -1, 1.5])
def test_bad_random_state_is_refused(name, bad, data):
    with pytest.raises(ValueError, match="random_state must be None, a whole number"):
        new(name, n_bits=4, random_state=bad).fit(*data)


@every_method
def test_bad_data_is_refused(name, data):
    X, y = data
    hasher = fitted(name, data)
    with pytest.raises(NotFittedError):
        new(name, n_bits=4).encode(X)
    with pytest.raises(ValueError, match="63 features"):
        hasher.encode(X[:, :63])
    holed = X.copy()
    holed[3, 5] = np.nan
    for call in (hasher.encode, hasher.transform, hasher.decision_function, lambda X: clone(hasher).fit(X, y)):
        with pytest.raises(ValueError, match="NaN"):
            call(holed)
    with pytest.raises(ValueError, match="minimum of 2"):
        new(name, n_bits=4).fit(X[:1], y[:1])


@every_method
def test_save_and_load_give_the_same_model(name, data, tmp_path):
    hasher = fitted(name, data, n_bits=13)
    path = tmp_path / "new folder" / "model"
    metadata = ModelMetadata("digits", {"kind": "none"}, {"by": "us"})
    hasher.save(path, metadata=metadata)
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    loaded = hashlearn.load(path)
    assert type(loaded) is METHODS[name]
    assert loaded.get_params() == hasher.get_params()
    assert loaded.metadata_ == metadata
    np.testing.assert_array_equal(loaded.decision_function(data[0]), hasher.decision_function(data[0]))
    np.testing.assert_array_equal(type(loaded).load(path).encode(data[0]), hasher.encode(data[0]))
    loaded.save(path)  # over itself: the remarks stay
    assert hashlearn.load(path).metadata_ == metadata
    assert loaded.fit(*data).metadata_ == ModelMetadata()  # of the old training
    loaded.save(path, metadata=ModelMetadata())
    assert hashlearn.load(path).metadata_ == ModelMetadata()


@every_method
def test_load_keeps_the_names_of_features(name, data, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(data[0], columns=[f"p{i}" for i in range(64)])
    new(name, n_bits=4, random_state=0).fit(frame, data[1]).save(tmp_path / "model")
    loaded = hashlearn.load(tmp_path / "model")
    loaded.encode(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.encode(frame.rename(columns={"p0": "other"}))


@every_method
def test_a_failed_save_leaves_the_old_file(name, data, tmp_path, monkeypatch):
    path = tmp_path / "model"
    hasher = fitted(name, data)
    hasher.save(path)
    before = path.read_bytes()

    def full_disk(arrays, filename, metadata):
        filename.write_bytes(b"half")
        raise SafetensorError("I/O error: no space left on device")  # what the library raises, no OSError

    monkeypatch.setattr("safetensors.numpy.save_file", full_disk)
    with pytest.raises(OSError, match=r"model could not be written: .*no space"):
        fitted(name, data, n_bits=5).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@every_method
def test_what_can_not_be_saved_is_refused(name, data, tmp_path):
    with pytest.raises(NotFittedError):
        new(name, n_bits=4).save(tmp_path / "model")
    if METHODS[name].draws():
        with pytest.raises(ValueError, match="random_state must be a plain value"):
            fitted(name, data, random_state=np.random.default_rng(0)).save(tmp_path / "model")
    with pytest.raises(ValueError, match="n_bits was changed to 5 after fit learned 12"):
        fitted(name, data).set_params(n_bits=5).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def _rewrite(path, change_header=None, change_arrays=None):
    import safetensors

    arrays = load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["hashlearn"])
    if change_header:
        change_header(header)
    if change_arrays:
        change_arrays(arrays)
    if change_arrays:
        header["sha256"] = _content(arrays)  # so that the check that is meant speaks
    save_file(arrays, path, metadata={"hashlearn": json.dumps(header)})


def _spoil_first(value):
    def change(arrays):
        name = next(iter(arrays))
        arrays[name] = value(arrays[name])

    return change


def _nan(array):
    array = array.copy()
    array.flat[0] = np.nan
    return array


@every_method
@pytest.mark.parametrize(
    ("header", "arrays", "words"),
    [
        (lambda h: h.update(version=99), None, "format version is 99"),
        (lambda h: h.update(format="other"), None, "metadata is not hashlearn's"),
        (lambda h: h.update(method="magic"), None, "'magic' is not one of lsh"),
        (lambda h: h.update(version=True), None, "format version is True"),
        (lambda h: h.update(method=[]), None, r"\[\] is not one of lsh"),
        (lambda h: h.update(info=5), None, "info must map"),
        (lambda h: h.update(info={"a": [1]}), None, "info must map"),
        (lambda h: h.update(feature_names=[1] * 64), None, "feature_names must be 64 names"),
        (lambda h: h.update(sha256="0" * 64), None, "SHA-256 differs"),
        (lambda h: h.update(n_bits=0), None, "n_bits and n_features must be"),
        (lambda h: h.update(n_bits=24), None, "n_bits 24; got"),
        (lambda h: h.update(n_features=3), None, "n_features=3|must be real numbers|SHA-256 differs"),
        (lambda h: h["parameters"].update(magic=1), None, "takes the parameters"),
        (lambda h: h["parameters"].popitem(), None, "takes the parameters"),
        (lambda h: h.update(parameters=None), None, "takes the parameters"),
        (lambda h: h.update(feature_names=["a"]), None, "feature_names must be 64 names"),
        (None, lambda a: a.update(extra=np.zeros(3)), "must hold the arrays"),
        (None, lambda a: a.pop(next(iter(a))), "must hold the arrays"),
        (None, _spoil_first(lambda a: a[:-1]), "must be real numbers"),
        (None, _spoil_first(lambda a: a.astype(np.int64)), "must be real numbers"),
        (None, _spoil_first(_nan), "not finite"),
    ],
)
def test_load_refuses_what_does_not_fit(name, header, arrays, words, saved, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(saved(name))
    _rewrite(path, header, arrays)
    with pytest.raises(ModelFileError, match=words) as caught:
        hashlearn.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@every_method_that_draws
def test_load_refuses_a_parameter_that_breaks_a_rule(name, saved, tmp_path):
    (tmp_path / "model").write_bytes(saved(name))
    _rewrite(tmp_path / "model", lambda h: h["parameters"].update(random_state="abc"))
    with pytest.raises(ModelFileError, match="random_state must be None"):
        hashlearn.load(tmp_path / "model")


@pytest.mark.slow
@every_method
def test_load_refuses_a_file_cut_or_changed_anywhere(name, data, tmp_path):
    path = tmp_path / "model"
    hasher = fitted(name, (data[0][:50, :8], data[1][:50]), n_bits=3)
    hasher.save(path)
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelFileError):
            hashlearn.load(path)
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole)):  # every byte of the arrays
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ModelFileError, match=r"SHA-256 differs|not finite"):
            hashlearn.load(path)
    for place in range(8, start):  # a changed header is refused, or was a remark
        changed = bytearray(whole)
        changed[place] ^= 0x15
        path.write_bytes(changed)
        with suppress(ModelFileError):  # any other exception fails the test
            hashlearn.load(path)
    for junk in (b"", b"\0" * 100, b"{}" * 50, b"\xff" * 1000):
        path.write_bytes(junk)
        with pytest.raises(ModelFileError):
            hashlearn.load(path)
    with pytest.raises(FileNotFoundError, match="no model file is at"):
        hashlearn.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no model file is at"):
        hashlearn.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("sdh", {"bandwidth_": np.array(0.0)}, "bandwidth_ must be above 0; got 0.0"),
        ("ksh", {"bandwidth_": np.array(-1.0)}, "bandwidth_ must be above 0; got -1.0"),
        ("bre", {"bandwidth_": np.array(3.0)}, "bandwidth_ must be 0; got 3.0"),
        ("sdh", {"unit_": np.array(0.0)}, "unit_ must be as unit_length is; got 0.0"),
        ("ksh", {"anchors_": np.zeros((0, 64)), "weights_": np.zeros((0, 12))}, "anchors_ must be real numbers"),
        ("ksh", {"weights_": np.zeros((19, 12))}, r"weights_ must be real numbers \(20, 12\)"),
    ],
)
def test_load_refuses_kernels_that_no_training_gives(name, change, words, data, tmp_path):
    fitted(name, data).save(tmp_path / "model")
    _rewrite(tmp_path / "model", None, lambda arrays: arrays.update(change))
    with pytest.raises(ModelFileError, match=words):
        hashlearn.load(tmp_path / "model")


@every_method
def test_what_is_not_finite_is_not_saved(name, data, tmp_path):
    hasher = fitted(name, data)
    first = next(iter(hasher._state(64, 12)))
    setattr(hasher, first, getattr(hasher, first) * np.nan)
    with pytest.raises(ValueError, match=f"the model's {first} has values that are not finite"):
        hasher.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_load_refuses_hostile_metadata(data, tmp_path):
    path = tmp_path / "model"
    fitted("lsh", data).save(path)
    arrays = load_file(path)
    for text in ("[" * 200_000, "[]", "5", "", "{"):
        save_file(arrays, path, metadata={"hashlearn": text})
        with pytest.raises(ModelFileError, match="metadata is not hashlearn's"):
            hashlearn.load(path)
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(ModelFileError, match="not a model that can be loaded"):
        hashlearn.load(path)


@every_method
def test_a_fit_that_fails_leaves_the_model_as_it_was(name, data):
    X, y = data
    hasher = fitted(name, data)
    expected = hasher.encode(X)
    with pytest.raises(ValueError, match="n_bits"):
        hasher.set_params(n_bits=0).fit(X[:, :10], y)
    np.testing.assert_array_equal(hasher.encode(X), expected)


def test_labels_are_checked_for_methods_that_learn_from_them(data):
    class Supervised(hashlearn.LSH):
        supervised = True

    X, y = data
    Supervised(4, random_state=0).fit(X, y)
    for bad, words in (
        (None, "requires y to be passed"),
        (y[:3], "a label for each of the 400 samples; got 3"),
        (np.where(y == 1, np.nan, y), "item 1 has none"),
    ):
        with pytest.raises(ValueError, match=words):
            Supervised(4).fit(X, bad)


def test_memory_of_long_codes_of_short_vectors_is_bounded():
    """1,024 bits of 4 features: blocks are sized by what is made of them."""
    import tracemalloc

    X = np.random.default_rng(0).random((100_000, 4), dtype=np.float32)
    hasher = hashlearn.LSH(1024, random_state=0).fit(X)
    tracemalloc.start()
    codes = hasher.encode(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < codes.nbytes + (64 << 20)


def test_a_methods_own_load_refuses_another_methods_model(data, tmp_path):
    fitted("lsh", data).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="it is a model of lsh, not of itq"):
        hashlearn.ITQ.load(tmp_path / "model")


@every_method
def test_no_vectors_give_no_codes(name, data):
    hasher = fitted(name, data)
    X = data[0][:0]
    assert hasher.encode(X).shape == (0, 2)
    assert hasher.transform(X).shape == hasher.decision_function(X).shape == (0, 12)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        hasher.fit(X, data[1][:0])


@every_method
def test_the_steps_are_the_encoder(name, data):
    """Also of a method that has a faster way of its own."""
    hasher = fitted(name, data)
    for X in (data[0], data[0].astype(np.float64)):
        values = compile_steps(hasher.encoder_steps(), X.dtype.type)(X)
        expected = hasher.decision_function(X)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@every_method
def test_normalize_is_training_and_encoding_of_unit_vectors(name, data, tmp_path):
    X, y = data
    X = X * np.linspace(0.1, 10, len(X), dtype=np.float32)[:, None]
    options = {"sdh": {"unit_length": False}}.get(name, {})
    unit = unit_rows(X)
    expected = new(name, n_bits=12, random_state=0, **options).fit(unit, y)
    hasher = new(name, n_bits=12, random_state=0, normalize=True, **options).fit(X, y)
    np.testing.assert_array_equal(hasher.decision_function(X), expected.decision_function(unit))
    np.testing.assert_array_equal(hasher.encode(X), expected.encode(unit))
    if hasher.has_query_values:
        np.testing.assert_array_equal(hasher.query_values(X), expected.query_values(unit))
    np.testing.assert_array_equal(hasher.encode(2 * X), hasher.encode(X))  # a power of two: no other roundings
    values = compile_steps(hasher.encoder_steps(), np.float32)(X)
    np.testing.assert_allclose(values, hasher.decision_function(X), rtol=1e-4, atol=1e-5 * np.abs(values).max())
    hasher.save(tmp_path / "model")
    loaded = hashlearn.load(tmp_path / "model")
    assert loaded.normalize
    np.testing.assert_array_equal(loaded.encode(X), hasher.encode(X))
    with pytest.raises(ValueError, match="normalize was changed to False after fit: fit again"):
        hasher.set_params(normalize=False).save(tmp_path / "model")


def test_normalize_of_whole_numbers_zeros_and_large_files(data, tmp_path, set_free_memory):
    X = data[0].astype(np.uint8)
    X[3] = 0
    hasher = new("itq", n_bits=12, normalize=True, random_state=0).fit(X)
    assert np.isfinite(hasher.decision_function(X)).all()
    expected = hasher.encode(X)
    np.testing.assert_array_equal(hasher.encode(X.astype(np.float32)), expected)
    np.save(tmp_path / "x.npy", X)
    set_free_memory(1 << 10)  # the unit vectors go to a file
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    again = new("itq", n_bits=12, normalize=True, random_state=0).fit(mapped)
    np.testing.assert_array_equal(again.encode(X), expected)


def test_unit_vectors_of_a_file_too_large_for_memory_are_in_a_file(data, tmp_path, set_free_memory):
    np.save(tmp_path / "x.npy", data[0])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not is_mapped(unit_copy(mapped))
    set_free_memory(1 << 10)
    assert is_mapped(unit_copy(mapped))
    assert not is_mapped(unit_copy(data[0]))
    np.testing.assert_array_equal(unit_copy(mapped), unit_rows(data[0]))


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_in_plain_words(name, bad, data):
    X = data[0].copy()
    X[3, 5] = bad
    hasher = new(name, n_bits=8, random_state=0)
    with pytest.raises(ValueError, match="NaN" if np.isnan(bad) else "inf") as error:
        hasher.fit(X, data[1])
    assert "HistGradientBoosting" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "lsh"])  # which learns nothing
def test_data_that_teaches_nothing_is_reported(name, data):
    X, y = data
    with pytest.warns(UserWarning, match="X has 20 samples, too few to learn the 30 bits of a code from"):
        new(name, n_bits=30, random_state=0).fit(X[:20], y[:20])
    with pytest.warns(UserWarning, match="all 20 samples are equal: all of them get the same code"):
        hasher = new(name, n_bits=4, random_state=0).fit(np.repeat(X[:1], 20, axis=0), y[:20])
    assert len(np.unique(hasher.encode(np.repeat(X[:1], 20, axis=0)), axis=0)) == 1


class FakeTensor:
    """What hashers use of a PyTorch tensor: NumPy can't read bfloat16, nor what requires a gradient."""

    __module__ = "torch"

    def __init__(self, values, dtype="torch.bfloat16", attached=True):
        self.values, self.dtype, self.attached = values, dtype, attached

    def detach(self):
        return FakeTensor(self.values, self.dtype, attached=False)

    def cpu(self):
        return self

    def float(self):
        return FakeTensor(self.values, "torch.float32", self.attached)

    def __array__(self, dtype=None, copy=None):
        if self.attached or self.dtype == "torch.bfloat16":
            raise TypeError("as PyTorch does")
        return np.asarray(self.values, dtype=dtype)


def test_tensors_of_any_kind_are_read(data):
    X, y = data
    expected = fitted("itq", data).encode(X)
    hasher = new("itq", n_bits=12, random_state=0).fit(FakeTensor(X), y)
    np.testing.assert_array_equal(hasher.encode(FakeTensor(X)), expected)


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("udh-dnn", {"constraint": "relaxed", "sweeps": 5}, "sweeps has no effect for constraint='relaxed'"),
        ("udh-dnn", {"constraint": "relaxed", "lambda2": 0.1}, "lambda2 has no effect for constraint='relaxed'"),
        (
            "udh-dnn",
            {"constraint": "relaxed", "random_state": 0},
            "random_state has no effect for constraint='relaxed'",
        ),
        ("udh-dnn", {"similarity": 0, "sweeps": 5}, "sweeps has no effect for similarity=0"),
        ("udh-dnn", {"validation_neighbors": 20}, "validation_neighbors has no effect without validation"),
        ("dh", {"solver": "lbfgs", "learning_rate": 0.1}, "learning_rate has no effect for solver='lbfgs'"),
        ("dh", {"solver": "lbfgs", "tol": 0.1}, "tol has no effect for solver='lbfgs'"),
        ("ba", {"init": "pca", "random_state": 0}, "random_state has no effect for init='pca'"),
        ("sign", {"threshold": "zero", "normalize": True}, "normalize has no effect for threshold='zero'"),
        ("lsh", {"center": False, "normalize": True}, "normalize has no effect for center=False"),
        ("sdh", {"normalize": True}, "normalize has no effect for unit_length=True"),
    ],
)
def test_a_parameter_without_effect_is_refused(name, parameters, words, data):
    hasher = new(name, n_bits=8, **parameters)
    with pytest.raises(ValueError, match=words):
        hasher.fit(*data)


def test_what_draws_at_random():
    assert not METHODS["ba"]().is_random
    assert METHODS["ba"](init="itq").is_random
    assert not METHODS["sh"]().is_random
    assert METHODS["itq"]().is_random
    assert METHODS["udh-dnn"]().is_random
    assert not METHODS["udh-dnn"](constraint="relaxed").is_random
    for drawn in ({"init": "itq"}, {"validation": 100}, {"hidden_units": [90, 20]}):
        assert METHODS["udh-dnn"](constraint="relaxed", **drawn).is_random
