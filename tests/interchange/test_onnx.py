"""Exported encoders, run by ONNX Runtime, give the library's bits."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import hashlearn
from hashlearn.errors import MissingExtraError
from hashlearn.hashers.steps import Activation, Center
from hashlearn.interchange import export_onnx

METHODS = {name: method for name, method in hashlearn.METHODS.items() if name != "decoder-hash"}  # see below
every_method = pytest.mark.parametrize("name", METHODS)
pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning")
# The encoders are what is tested: short training makes them as well.
SHORT = {
    "udh-dnn": {"max_iter": 1, "lbfgs_iter": 10},
    "sdh-dnn": {"max_iter": 1, "lbfgs_iter": 10},
    "ba": {"init": "itq", "max_iter": 2},
    "dh": {"max_iter": 2},
    "ksh": {"n_anchors": 20, "max_iter": 20},
    "bre": {"anchors_per_bit": 10, "max_iter": 1},
    "kmh": {"bits_per_subspace": 1},  # of every length; 4 and 8 below
    "sph": {"max_iter": 30},
    "neighbor-hash": {"n_hidden": 8, "code": "bits"},  # cells below
    "label-hash": {"n_hidden": 8},
    "sign": {"threshold": "mean"},  # the digits vary around no 0
}
# Differences in rounding beside the library's own: other orders of sums, and tanh of 5 units in the last place.
TIMES = 8
# Bits of thousands of vectors whose values happen to be within rounding of 0; none where this was written.
FEW = 3


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.data.astype(np.float32), data.target


def fitted(name, X, y, n_bits=12, **parameters):
    hasher = METHODS[name](n_bits, **{**SHORT.get(name, {}), **parameters})
    if hasher.is_random and "random_state" not in parameters:
        hasher.set_params(random_state=0)
    return hasher.fit(X, y)


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, X):
    """bits, codes and values; the file is a valid one, of standard operators."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
    bits, codes, values = session(path).run(["bits", "codes", "values"], {"vectors": X})
    assert (bits.dtype, codes.dtype, values.dtype) == (np.uint8, np.uint8, np.float32)
    np.testing.assert_array_equal(bits, values >= 0)
    np.testing.assert_array_equal(codes, np.packbits(bits, axis=1))
    return bits, codes, values


def rounding(hasher, X):
    """A bound of the rounding of each bit's value (n_bits,), and the values in float64.

    It is taken from the library: the most that float32 is off in any row, times ``TIMES``.
    """
    exact = hasher.decision_function(X.astype(np.float64))
    off = np.abs(hasher.decision_function(X) - exact).max(axis=0)
    return TIMES * (off + np.finfo(np.float32).eps * np.abs(exact).max(axis=0)), exact


def differing(hasher, X, path):
    """How many bits differ from the library's; none may whose value is not within rounding of 0."""
    export_onnx(hasher, path)
    bits, _, values = run(path, X)
    bound, exact = rounding(hasher, X)
    assert (np.abs(values - exact) <= bound).all()
    differ = bits != hasher.transform(X)
    assert (np.abs(exact) <= bound)[differ].all()
    return np.count_nonzero(differ)


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("n_bits", [1, 12, 16, 33])
def test_every_method_gives_the_librarys_codes(name, n_bits, digits, tmp_path):
    X, y = digits
    hasher = fitted(name, X[:400], y[:400], n_bits)
    n = differing(hasher, X, tmp_path / "m.onnx")
    assert n <= FEW
    codes = run(tmp_path / "m.onnx", X)[1]
    assert codes.shape == hasher.encode(X).shape
    assert np.count_nonzero(codes != hasher.encode(X)) <= n


@pytest.mark.slow
@every_method
def test_of_vectors_as_many_and_as_long_as_real_ones(name, tmp_path):
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((10, 784))
    y = rng.integers(0, 10, 10_000)
    X = (centers[y] + rng.standard_normal((10_000, 784))).astype(np.float32)
    hasher = fitted(name, X[:300], y[:300], 32)
    bound, exact = rounding(hasher, X)
    assert (bound < 0.01 * exact.std(axis=0)).all()  # or the test below would say little
    assert differing(hasher, X, tmp_path / "m.onnx") <= FEW  # of 320,000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lsh", {"center": False}),
        ("kmh", {"n_bits": 16, "bits_per_subspace": 4}),
        ("kmh", {"n_bits": 8, "bits_per_subspace": 8}),
        ("neighbor-hash", {"n_bits": 8, "code": "cells"}),
        ("neighbor-hash", {"n_bits": 12, "n_hidden": 0}),
        ("sdh", {"unit_length": False, "sigma": None}),
        ("sdh", {"sigma": None}),
        ("bre", {"kernel": "rbf"}),
        *((name, {"normalize": True}) for name in ("itq", "neighbor-hash", "ksh", "sph")),
        ("dh", {"scale": None}),
        ("dh", {"scale": 0.5, "hidden_units": [20]}),
        ("dh", {"hidden_units": []}),
        *((name, {"scale": scale}) for name in ("udh-dnn", "sdh-dnn") for scale in (None, "range", 0.5)),
        ("udh-dnn", {"hidden_units": []}),
        ("udh-dnn", {"hidden_units": [20]}),
        ("udh-dnn", {"constraint": "relaxed"}),
        ("sdh-dnn", {"hidden_units": [30, 20, 15]}),
    ],
)
def test_options_that_change_the_encoder(name, parameters, digits, tmp_path):
    X, y = digits
    assert differing(fitted(name, X[:400], y[:400], **parameters), X, tmp_path / "m.onnx") <= FEW


@pytest.mark.slow
@every_method
def test_batches_of_any_size(name, digits, tmp_path):
    X, y = digits
    hasher = fitted(name, X[:400], y[:400], 9)
    export_onnx(hasher, tmp_path / "m.onnx")
    for rows in (0, 1, 3):
        bits, codes, values = run(tmp_path / "m.onnx", X[:rows])
        assert (bits.shape, codes.shape, values.shape) == ((rows, 9), (rows, 2), (rows, 9))
        np.testing.assert_array_equal(codes, hasher.encode(X[:3])[:rows])


@pytest.mark.slow
@every_method
def test_constant_features(name, digits, tmp_path):
    X, y = digits[0].copy(), digits[1]
    X[:, 20:50] = 3.7
    assert differing(fitted(name, X[:400], y[:400], 8), X, tmp_path / "m.onnx") <= FEW


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
@every_method
def test_samples_that_are_all_one(name, tmp_path):
    """All values are 0, or the method's constant; KMH's codewords are all equally near."""
    X = np.full((30, 8), 2.5, dtype=np.float32)
    hasher = fitted(name, X, np.arange(30) % 2, 5)
    export_onnx(hasher, tmp_path / "m.onnx")
    np.testing.assert_array_equal(run(tmp_path / "m.onnx", X)[0], hasher.transform(X))


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_the_sign_of_zero_is_positive(tmp_path):
    hasher = hashlearn.LSH(11, center=False, random_state=0).fit(np.eye(4, dtype=np.float32))
    export_onnx(hasher, tmp_path / "m.onnx")
    bits, codes, values = run(tmp_path / "m.onnx", np.array([[0, -0.0, 0, 0]], dtype=np.float32))
    assert (values == 0).all()
    assert (bits == 1).all()
    assert codes.tolist() == [[0b11111111, 0b11100000]]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("sph", {}), ("sdh", {}), ("sdh", {"unit_length": False, "sigma": 5}), ("ksh", {}), ("bre", {"kernel": "rbf"})],
)
def test_squares_that_overflow_or_vanish(name, parameters, digits, tmp_path):
    X, y = digits
    hasher = fitted(name, X[:400], y[:400], **parameters)
    export_onnx(hasher, tmp_path / "m.onnx")
    extreme = X[:8] * np.array([[0], [1e-30], [1e-42], [1e15], [1e25], [-1e25], [2e37], [1]], dtype=np.float32)
    bits, _, values = run(tmp_path / "m.onnx", extreme)
    np.testing.assert_array_equal(bits, hasher.transform(extreme))
    expected = hasher.decision_function(extreme)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4 * np.abs(expected[-1]).max())


def test_a_kernel_is_at_most_1(digits, tmp_path):
    """Also where rounding puts an anchor's squared distance from itself far below 0."""
    X, y = digits
    hasher = fitted("sdh", X[:400], y[:400], sigma=1e-5)
    export_onnx(hasher, tmp_path / "m.onnx")
    most = np.abs(hasher.weights_).sum(axis=0) + np.abs(hasher.intercept_)
    for values in (run(tmp_path / "m.onnx", X[:400])[2], hasher.decision_function(X[:400])):
        assert (np.abs(values) <= 1.001 * most).all()


def test_a_model_of_float64_vectors(digits, tmp_path):
    """Its encoder in float32 is what the library has for float32 vectors."""
    X, y = digits
    for name in ("itq", "ksh", "udh-dnn"):
        assert differing(fitted(name, X[:400].astype(np.float64), y[:400]), X, tmp_path / "m.onnx") <= FEW


def test_what_the_file_says(digits, tmp_path):
    X, y = digits
    for name, distance in (("itq-cca", "hamming"), ("sph", "spherical")):
        export_onnx(fitted(name, X[:400], y[:400], 13), tmp_path / "m.onnx")
        model = onnx.load(tmp_path / "m.onnx")
        assert {entry.key: entry.value for entry in model.metadata_props} == {
            "format": "hashlearn encoder",
            "format_version": "1",
            "hashlearn": hashlearn.__version__,
            "method": name,
            "n_bits": "13",
            "n_features": "64",
            "distance": distance,
        }
        assert (model.producer_name, model.producer_version) == ("hashlearn", hashlearn.__version__)
        assert f"codes of 13 bits for vectors of 64 features, by {name}." in model.doc_string
        assert (model.ir_version, [(entry.domain, entry.version) for entry in model.opset_import]) == (8, [("", 17)])
        found = session(tmp_path / "m.onnx")
        assert [(part.name, part.type, part.shape) for part in (*found.get_inputs(), *found.get_outputs())] == [
            ("vectors", "tensor(float)", ["n", 64]),
            ("bits", "tensor(uint8)", ["n", 13]),
            ("codes", "tensor(uint8)", ["n", 2]),
            ("values", "tensor(float)", ["n", 13]),
        ]


@pytest.mark.slow
@every_method
def test_a_loaded_model_gives_the_same_file(name, digits, tmp_path):
    X, y = digits
    hasher = fitted(name, X[:400], y[:400])
    hasher.save(tmp_path / "model")
    export_onnx(hasher, tmp_path / "a.onnx")
    export_onnx(hashlearn.load(tmp_path / "model"), tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_method_of_ones_own_is_exported_by_its_steps(digits, tmp_path):
    class Odd(hashlearn.LSH):
        name = "odd"

        def _encoder_steps(self):
            return [*super()._encoder_steps(), Activation("relu"), Center(np.ones(self.n_bits_))]

    hasher = Odd(4, random_state=0).fit(digits[0])
    export_onnx(hasher, tmp_path / "m.onnx")
    _, _, values = run(tmp_path / "m.onnx", digits[0])
    assert values.min() == -1
    np.testing.assert_allclose(values, hasher.decision_function(digits[0].astype(np.float32)), rtol=1e-4, atol=1e-4)


def test_an_encoder_that_searches_is_refused(digits, tmp_path):
    hasher = hashlearn.DecoderHash(8, epochs=0, random_state=0).fit(digits[0])
    with pytest.raises(ValueError, match="can't be exported to ONNX: its encoder searches for each code bit by bit"):
        export_onnx(hasher, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_an_export_that_fails_leaves_the_file_as_it_was(digits, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    hasher = fitted("itq", *digits)
    export_onnx(hasher, path)
    before = path.read_bytes()
    with pytest.raises(NotFittedError):
        export_onnx(hashlearn.ITQ(4), path)
    for value in (np.nan, 1e39):
        broken = fitted("itq", *digits)
        broken.components_[3, 2] = value
        with pytest.raises(ValueError, match="can't be exported: some of its values are not finite in float32"):
            export_onnx(broken, path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnx", None)
        with pytest.raises(MissingExtraError, match=r"onnx is needed for this; .*: pip install '\.\[onnx\]'"):
            export_onnx(hasher, path)

    def full_disk(self, data):
        with open(self, "wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        export_onnx(fitted("itq", *digits, n_bits=5), path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["m.onnx"]
