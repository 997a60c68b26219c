"""Sentence embeddings: a table of word vectors, and a small transformer (BERT), evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashlearn._arrays import Array
from hashlearn.errors import import_extra
from hashlearn.progress import progress_bar
from hashlearn.threads import thread_map

# Texts that are tokenized at a time, and tokens that go through the transformer at a time.
_TEXTS, _TOKENS = 4096, 8192
# The longest text of MiniLM, in tokens; the added constant of its layer normalization; its heads.
_MAX_TOKENS, _EPSILON, _HEADS = 256, 1e-12, 12

Floats32 = NDArray[np.float32]


def mean_of_words(
    texts: Sequence[str], tokenizer: bytes, table: Array, *, show_progress: bool | None = None
) -> Floats32:
    """Embed each text as the mean of its words' rows in ``table``, scaled to unit length.

    Parameters
    ----------
    texts : sequence of str
    tokenizer : bytes
        Content of a ``tokenizer.json``.
    table : ndarray of shape (n_words, n_features)
    show_progress : bool, optional

    Returns
    -------
    ndarray of shape (n_texts, n_features), float32
    """
    out = np.empty((len(texts), table.shape[1]), dtype=np.float32)
    table = table.astype(np.float32)
    for start, tokens in _tokenized(texts, tokenizer, _no_special_tokens, show_progress, "embedding"):
        lengths = np.fromiter(map(len, tokens), dtype=np.intp, count=len(tokens))
        # Words in order of their number, so that their order in the text does not change the rounding of the sum.
        rows = table[np.concatenate([np.sort(ids) for ids in tokens]).astype(np.intp)]
        some = lengths > 0
        sums = np.tile(table[0], (len(tokens), 1))  # of a text without words
        sums[some] = np.add.reduceat(rows, (np.cumsum(lengths) - lengths)[some], axis=0)
        out[start : start + len(tokens)] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return out


def minilm(
    texts: Sequence[str], tokenizer: bytes, weights: Mapping[str, Array], *, show_progress: bool | None = None
) -> Floats32:
    """Embed each text by a BERT with the weights of all-MiniLM-L6-v2: the mean of its tokens' outputs, of unit length.

    Parameters
    ----------
    texts : sequence of str
    tokenizer : bytes
        Content of its ``tokenizer.json``.
    weights : mapping of str to ndarray
        By their names in its ``model.safetensors``.
    show_progress : bool, optional

    Returns
    -------
    ndarray of shape (n_texts, 384), float32
    """
    batches = _tokenized(texts, tokenizer, _truncated, show_progress, "reading")
    tokens = [ids for _, batch in batches for ids in batch]
    out = np.empty((len(texts), weights["embeddings.word_embeddings.weight"].shape[1]), dtype=np.float32)
    # Texts of one length go together: no padding, no mask.
    by_length: dict[int, list[int]] = {}
    for i, ids in enumerate(tokens):
        by_length.setdefault(len(ids), []).append(i)
    groups = []
    for length, members in sorted(by_length.items()):
        step = max(1, _TOKENS // length)
        groups += [members[start : start + step] for start in range(0, len(members), step)]
    with progress_bar("embedding", len(texts), unit="texts", show=show_progress) as advance, thread_map() as threads:

        def work(members: list[int]) -> None:
            outputs = _bert(np.array([tokens[i] for i in members]), weights).mean(axis=1)
            out[members] = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
            advance(len(members))

        threads(work, groups)
    return out


def _bert(ids: Array, weights: Mapping[str, Array]) -> Floats32:
    """The outputs (texts, tokens, features) of all tokens of texts of one length, (texts, tokens)."""
    from scipy.special import erf

    def linear(x: Array, name: str) -> Array:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normalized(x: Array, name: str) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    (n, t), embeddings = ids.shape, "embeddings"
    x = weights[f"{embeddings}.word_embeddings.weight"][ids]
    x = x + weights[f"{embeddings}.position_embeddings.weight"][:t]
    x += weights[f"{embeddings}.token_type_embeddings.weight"][0]
    x = normalized(x, f"{embeddings}.LayerNorm").reshape(n * t, -1)
    size = x.shape[1] // _HEADS
    for layer in range(sum(name.endswith("attention.self.query.weight") for name in weights)):
        at = f"encoder.layer.{layer}"

        def heads(part: str, x: Array = x, at: str = at) -> Array:
            return linear(x, f"{at}.attention.self.{part}").reshape(n, t, _HEADS, size).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2)
        scores /= np.float32(np.sqrt(size))
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        read = (scores @ heads("value")).transpose(0, 2, 1, 3).reshape(n * t, -1)
        x = normalized(linear(read, f"{at}.attention.output.dense") + x, f"{at}.attention.output.LayerNorm")
        hidden = linear(x, f"{at}.intermediate.dense")
        hidden *= np.float32(0.5) * (1 + erf(hidden * np.float32(np.sqrt(0.5))))  # GELU
        x = normalized(linear(hidden, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")
    return np.asarray(x.reshape(n, t, -1), dtype=np.float32)


def _no_special_tokens(tokenizer: Any, texts: list[str]) -> list[Any]:
    tokenizer.no_truncation()
    return tokenizer.encode_batch(texts, add_special_tokens=False)  # type: ignore[no-any-return]


def _truncated(tokenizer: Any, texts: list[str]) -> list[Any]:
    tokenizer.enable_truncation(_MAX_TOKENS)
    return tokenizer.encode_batch(texts)  # type: ignore[no-any-return]


def _tokenized(
    texts: Sequence[str],
    content: bytes,
    encode: Callable[[Any, list[str]], list[Any]],
    show_progress: bool | None,
    title: str,
) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield the position of each block of texts, and the numbers of their tokens."""
    tokenizer = import_extra("tokenizers", "texts").Tokenizer.from_buffer(content)
    tokenizer.no_padding()
    with progress_bar(title, len(texts), unit="texts", show=show_progress) as advance:
        for start in range(0, len(texts), _TEXTS):
            block = list(texts[start : start + _TEXTS])
            yield start, [encoding.ids for encoding in encode(tokenizer, block)]
            advance(len(block))
