"""Model files that are damaged, foreign or hostile, to the bit."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open

import hashlearn
from hashlearn.errors import ModelFileError
from hashlearn.hashers import METHODS, ModelMetadata, _model_file

X = np.random.default_rng(0).random((30, 3))


def saved(path, **options):
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b", "é"])
    hashlearn.LSH(n_bits=3, random_state=0, **options).fit(frame).save(path, metadata=ModelMetadata("é"))
    return path.read_bytes()


def parts(content):
    """The header of a safetensors file, what hashlearn says in it, and the arrays' bytes."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return header, json.loads(header["__metadata__"]["hashlearn"]), content[8 + size :]


def joined(header, own, arrays):
    header["__metadata__"]["hashlearn"] = own if isinstance(own, str) else json.dumps(own)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + arrays


def everything(model):
    state = {name: getattr(model, name).tobytes() for name in model._state(model.n_features_in_, model.n_bits_)}
    names = model.feature_names_in_.tolist()
    return type(model), model.get_params(), model.metadata_, names, model.n_bits_, model.n_features_in_, state


@pytest.mark.slow
def test_whichever_bit_is_flipped_the_model_is_the_same_or_refused(tmp_path):
    path = tmp_path / "model"
    content = saved(path)
    expected, refused = everything(hashlearn.load(path)), 0
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                model = hashlearn.load(path)
            except ModelFileError:
                refused += 1
            else:
                assert everything(model) == expected, (place, bit)
    assert refused > 0.98 * 8 * len(content)  # é may be written in two ways


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own["parameters"].update(center=False),
        lambda own: own["parameters"].update(random_state=1),
        lambda own: own.update(info={"trained on": "something else"}),
        lambda own: own.update(feature_names=["b", "a", "é"]),
        lambda own: own.update(hashlearn="9.9"),
        lambda own: own.update(header_sha256="0" * 64),
        lambda own: own.update(header_sha256=None),
    ],
)
def test_a_changed_header_is_refused(change, tmp_path):
    path = tmp_path / "model"
    header, own, arrays = parts(saved(path))
    change(own)
    path.write_bytes(joined(header, own, arrays))
    with pytest.raises(ModelFileError, match="its metadata is damaged: its SHA-256 differs"):
        hashlearn.load(path)


def test_a_file_from_before_there_was_a_checksum_of_the_header_loads(tmp_path):
    path = tmp_path / "model"
    header, own, arrays = parts(saved(path))
    expected = everything(hashlearn.load(path))
    del own["header_sha256"]
    path.write_bytes(joined(header, own, arrays))
    assert everything(hashlearn.load(path)) == expected
    own["header_sha257"] = "x"
    path.write_bytes(joined(header, own, arrays))
    with pytest.raises(ModelFileError, match="has the key 'header_sha257'"):
        hashlearn.load(path)


def test_the_key_of_a_model_is_as_it_was_before_there_was_a_checksum_of_the_header(tmp_path):
    """Collections keep it, to tell models apart."""
    saved(tmp_path / "model")
    model = hashlearn.load(tmp_path / "model")
    header, _ = _model_file._describe(model, model.metadata_)
    assert "header_sha256" not in header


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "hashlearn model", "version": 1, "n_bits": 1' + "0" * 400 + "}",
        '{"format": "hashlearn model", "version": 1e999}',
        '{"format": "hashlearn model", "format": "hashlearn model", "version": 1}',
        '{"a":' * 5000,
        "NaN",
    ],
)
def test_hostile_metadata_is_refused(text, tmp_path):
    path = tmp_path / "model"
    header, _, arrays = parts(saved(path))
    path.write_bytes(joined(header, text, arrays))
    with pytest.raises(ModelFileError, match="metadata is not hashlearn's"):
        hashlearn.load(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [2**63, 2**900, -1, 1e308, [[[1]]], {"a": 1}, "x" * 10_000], ids=lambda v: str(v)[:9])
def test_hostile_parameters_are_refused_in_one_line(method, value, tmp_path):
    own = METHODS[method]
    small = {"max_iter": 2, "lbfgs_iter": 2, "n_anchors": 5, "anchors_per_bit": 2, "hidden_units": [4]}
    small["threshold"] = "mean"
    options = {name: few for name, few in small.items() if name in own._get_param_names()}
    path = tmp_path / "model"
    own(n_bits=4, **options).fit(np.random.default_rng(0).random((40, 6)), np.arange(40) % 2).save(path)
    header, said, arrays = parts(path.read_bytes())
    for name in said["parameters"]:
        changed = {**said, "parameters": {**said["parameters"], name: value}}
        changed["header_sha256"] = _model_file._header_sha256(changed)
        path.write_bytes(joined(header, changed, arrays))
        words = ""
        try:
            hashlearn.load(path)  # where the value is one that the method takes
        except ModelFileError as error:
            words = str(error)
        assert "\n" not in words
        assert len(words) < 1500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h["mean_"].update(data_offsets=h["components_"]["data_offsets"]), "has .* bytes|overlap"),
        (lambda h: h["mean_"].update(data_offsets=[0, 24]), "overlap|promised"),
        (lambda h: h["mean_"].update(shape=[2**66]), "no sizes"),
        (lambda h: h["mean_"].update(shape=[2**63, 0], data_offsets=[0, 0]), "no sizes|overlap"),
        (lambda h: h["mean_"].update(shape=[True, 3]), "no sizes"),
        (lambda h: h["mean_"].update(dtype="F7"), "of a type that is not read"),
        (lambda h: h.update(mean_=5), "is not described as an array"),
    ],
)
def test_arrays_that_are_not_where_they_are_said_to_be(change, words, tmp_path):
    path = tmp_path / "model"
    header, own, arrays = parts(saved(path))
    change(header)
    path.write_bytes(joined(header, own, arrays))
    with pytest.raises(ModelFileError, match=words):
        hashlearn.load(path)


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "model"
    content = saved(path)
    size = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + size].rstrip()
    doubled = text[:-1] + b',"mean_":' + json.dumps(json.loads(text)["mean_"]).encode() + b"}"
    path.write_bytes(len(doubled).to_bytes(8, "little") + doubled + content[8 + size :])
    with pytest.raises(ModelFileError, match="a key occurs twice"):
        hashlearn.load(path)


@pytest.mark.filterwarnings("ignore:.* samples:UserWarning")
def test_a_model_larger_than_the_free_memory_is_not_read(tmp_path, monkeypatch):
    hashlearn.LSH(n_bits=1000, random_state=0).fit(np.ones((2, 1000))).save(tmp_path / "model")
    monkeypatch.setattr(_model_file, "free_memory", lambda: 4_000_000)
    with pytest.raises(ModelFileError, match="4,000,000 bytes of memory are free"):
        hashlearn.load(tmp_path / "model")
    monkeypatch.setattr(_model_file, "free_memory", lambda: 0)  # the system does not tell
    hashlearn.load(tmp_path / "model")


def test_what_could_not_be_read_again_is_not_saved(tmp_path):
    for seed in (10**400, 10**5000):
        model = hashlearn.LSH(n_bits=3, random_state=seed).fit(X)
        with pytest.raises(ValueError, match="random_state must be a plain value"):
            model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["", "[" * 10_000, "{}", "5", '{"version": 1e999}', '{"version": 1, "kind": "gist", "side": 1e9}', "NaN"]
)
def test_invalid_features_of_a_model_are_refused(text, tmp_path):
    from hashlearn.collection.ingest import model_extractor

    metadata = ModelMetadata.from_info({"features": text})
    hashlearn.LSH(n_bits=3, random_state=0).fit(X).save(tmp_path / "model", metadata=metadata)
    with pytest.raises(ModelFileError, match="the model's description of its features can't be read"):
        model_extractor(hashlearn.load(tmp_path / "model"))


def test_what_a_file_says_of_its_origin_is_typed_and_its_text_is_as_it_was(tmp_path):
    features = {"version": 1, "kind": "gist", "side": 32, "color": True, "orientations": [8, 8]}
    metadata = ModelMetadata("photos", features, {"by": "é"})
    hashlearn.LSH(n_bits=3, random_state=0).fit(X).save(tmp_path / "model", metadata=metadata)
    _, own, _ = parts((tmp_path / "model").read_bytes())
    assert own["info"] == {"trained on": "photos", "features": json.dumps(features), "by": "é"}
    assert hashlearn.load(tmp_path / "model").metadata_ == metadata


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"trained_on": 5}, "trained_on must be a text or None; got 5"),
        ({"notes": {"a": 5}}, "notes must map texts to texts"),
        ({"notes": {5: "a"}}, "notes must map texts to texts"),
        ({"notes": None}, "notes must map texts to texts"),
        ({"notes": {"trained on": "x"}}, "must not be named 'trained on' or 'features'"),
        ({"notes": {"features": '{"kind": "gist"}'}}, "must not be named 'trained on' or 'features'"),
        ({"features": [1]}, r"features must be a dict of JSON values or None; got \[1\]"),
        ({"features": {"a": np.nan}}, "features must be a dict of JSON values or None for a model to be saved"),
        ({"features": {"a": {1}}}, "features must be a dict of JSON values or None for a model to be saved"),
    ],
)
def test_metadata_that_a_file_can_not_hold(bad, why):
    with pytest.raises(ValueError, match=why):
        ModelMetadata(**bad)


def test_the_former_names_of_metadata(tmp_path):
    model = hashlearn.LSH(n_bits=3, random_state=0).fit(X)
    info = {"trained on": "noise", "features": "pixels", "more": "text"}
    with pytest.warns(DeprecationWarning, match="use metadata"):
        model.save(tmp_path / "model", info=info)
    loaded = hashlearn.load(tmp_path / "model")
    assert loaded.metadata_ == ModelMetadata("noise", None, {"features": "pixels", "more": "text"})
    with pytest.warns(DeprecationWarning, match="use metadata_"):
        assert loaded.info_ == info


def test_models_in_memory(tmp_path):
    model = hashlearn.LSH(n_bits=3, random_state=0).fit(X)
    memory = io.BytesIO()
    model.save(memory)
    model.save(tmp_path / "model")
    assert memory.getvalue() == (tmp_path / "model").read_bytes()
    loaded = hashlearn.load(io.BytesIO(memory.getvalue()))
    np.testing.assert_array_equal(loaded.encode(X), model.encode(X))
    with pytest.raises(ModelFileError, match="the file is not a model that can be loaded"):
        hashlearn.load(io.BytesIO(memory.getvalue()[:-1]))
    with pytest.raises(ModelFileError, match="a model of lsh, not of itq"):
        hashlearn.ITQ.load(memory)


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a regular file is needed"):
        hashlearn.load(tmp_path / "pipe")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to become another user")
def test_what_may_not_be_read_is_said_so(tmp_path):
    """Not that it is damaged. In another process, which gives up its rights."""
    saved(tmp_path / "model")
    hashlearn.HammingIndex(8).save(tmp_path / "index")
    for name in ("model", "index"):
        (tmp_path / name).chmod(0o600)
    code = (
        "import os, sys, hashlearn, hashlearn.hashers, hashlearn.search, hashlearn.search._index_file\n"
        "import hashlearn.hashers._model_file, safetensors\n"
        "files = [os.open(sys.argv[1], os.O_RDONLY)]\n"
        "os.chdir(files[0])\n"
        "os.setuid(65534)\n"
        "for opened, name in ((hashlearn.load, 'model'), (hashlearn.HammingIndex.open, 'index')):\n"
        "    try:\n"
        "        opened(name)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    os.chmod(tmp_path, 0o755)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "PermissionError [Errno 13] Permission denied: 'model'",
        "PermissionError [Errno 13] Permission denied: 'index'",
    ], done.stderr


@pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning")
def test_a_file_of_before_a_parameter_was_added(tmp_path):
    """Its bytes are those of a model at the value that stands for it; another value is kept."""
    X = np.random.default_rng(0).random((60, 12))
    path = tmp_path / "model"
    model = hashlearn.UDHDNN(4, max_iter=1, lbfgs_iter=5, random_state=0).fit(X)
    model.save(path)
    with safe_open(path, "np") as file:
        assert "lbfgs_memory" not in "".join(file.metadata().values())
    assert hashlearn.load(path).lbfgs_memory == 20
    other = hashlearn.UDHDNN(4, max_iter=1, lbfgs_iter=5, lbfgs_memory=3, random_state=0).fit(X)
    other.save(path)
    assert hashlearn.load(path).lbfgs_memory == 3


@pytest.mark.filterwarnings("ignore:.*has not converged:sklearn.exceptions.ConvergenceWarning")
def test_a_parameter_keeps_its_former_name_in_files(tmp_path):
    X = np.random.default_rng(0).random((200, 12))
    model = hashlearn.UDHDNN(4, max_iter=1, lbfgs_iter=5, validation=20, validation_neighbors=7, random_state=0).fit(X)
    model.save(tmp_path / "model")
    with safe_open(tmp_path / "model", "np") as file:
        assert '"validation_neighbours": 7' in "".join(file.metadata().values())
    assert hashlearn.load(tmp_path / "model").validation_neighbors == 7
