"""Index files that are damaged, foreign or hostile."""

import json
import os

import numpy as np
import pytest

from hashlearn import HammingIndex
from hashlearn.codes import n_bytes
from hashlearn.errors import IndexFileError
from hashlearn.storage import content_key


def written(path, n_bits, codes, ids, *, text=None, extra=b""):
    """A file as hashlearn writes them, whatever is in it."""
    own = {
        "format": "hashlearn index",
        "version": 1,
        "hashlearn": "0.1.0",
        "n_bits": n_bits,
        "sha256": content_key(n_bits, codes, ids),
    }
    header = {
        "__metadata__": {"hashlearn": json.dumps(own)},
        "codes": {"dtype": "U8", "shape": list(codes.shape), "data_offsets": [0, codes.nbytes]},
        "ids": {"dtype": "I64", "shape": [len(ids)], "data_offsets": [codes.nbytes, codes.nbytes + ids.nbytes]},
    }
    text = (text or (lambda header: json.dumps(header)))(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + codes.tobytes() + ids.tobytes() + extra)
    return path


CODES, IDS = np.arange(6, dtype=np.uint8).reshape(3, 2), np.array([0, 5, 9])


def test_a_file_as_it_should_be_opens(tmp_path):
    index = HammingIndex.open(written(tmp_path / "index", 16, CODES, IDS))
    assert index.ids.tolist() == [0, 5, 9]


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("n_bits", [2**24 + 1, 2**40, 2**63, 2**66])
def test_codes_longer_than_any_are_refused(n_bits, mmap, check, tmp_path):
    path = tmp_path / "index"
    width = min(-(-n_bits // 8), 2**48)
    empty = np.empty((0, width), np.uint8)
    written(path, n_bits, empty, np.empty(0, np.int64))
    with pytest.raises(IndexFileError, match="n_bits must be at most 16777216"):
        HammingIndex.open(path, mmap=mmap, check=check)
    written(
        path,
        n_bits,
        CODES,
        IDS,
        text=lambda header: json.dumps({**header, "codes": {**header["codes"], "shape": [3, -(-n_bits // 8)]}}),
    )
    with pytest.raises(IndexFileError):
        HammingIndex.open(path, mmap=mmap, check=check)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("check", [True, False])
def test_an_id_that_has_no_next_one_is_refused(mmap, check, tmp_path):
    ids = np.array([0, 5, 2**63 - 1])
    with pytest.raises(IndexFileError, match="ids must be at most 9223372036854775806"):
        HammingIndex.open(written(tmp_path / "index", 16, CODES, ids), mmap=mmap, check=check)


def test_an_empty_index_of_any_sane_length_opens(tmp_path):
    for n_bits in (1, 64, 2**24):
        empty = np.empty((0, n_bytes(n_bits)), np.uint8)
        assert len(HammingIndex.open(written(tmp_path / "index", n_bits, empty, np.empty(0, np.int64)))) == 0


@pytest.mark.parametrize(
    ("text", "extra", "words"),
    [
        (lambda h: json.dumps(h)[:-1] + ',"ids":' + json.dumps(h["ids"]) + "}", b"", "a key occurs twice"),
        (lambda h: json.dumps(h | {"ids": {**h["ids"], "data_offsets": [0, 24]}}), b"", "overlap"),
        (lambda h: json.dumps(h | {"ids": {**h["ids"], "data_offsets": [4, 28]}}), b"", "overlap"),
        (lambda h: json.dumps(h | {"ids": {**h["ids"], "data_offsets": [14, 38]}}), bytes(8), "leave bytes out"),
        (None, b"x", "are promised"),
        (lambda h: json.dumps(h | {"more": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}), b"", "must hold"),
        (lambda h: json.dumps(h | {"ids": {**h["ids"], "shape": [2**63, 0]}}), b"", "no sizes"),
        (lambda h: json.dumps(h | {"ids": {**h["ids"], "shape": [1] * 100}}), b"", "no sizes"),
        (lambda h: "[" * 5000, b"", "nested too deep"),
        (lambda h: json.dumps(h | {"__metadata__": {"hashlearn": "1" + "0" * 400}}), b"", "beyond the range"),
    ],
)
def test_files_that_contradict_themselves_are_refused(text, extra, words, tmp_path):
    path = written(tmp_path / "index", 16, CODES, IDS, text=text, extra=extra)
    with pytest.raises(IndexFileError, match=words) as caught:
        HammingIndex.open(path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_whichever_bit_is_flipped_the_index_is_the_same_or_refused(tmp_path):
    path = tmp_path / "index"
    index = HammingIndex(16)
    index.add(CODES, IDS)
    index.save(path)
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                found = HammingIndex.open(path, mmap=False)
            except IndexFileError:
                continue
            assert (found.n_bits, found.ids.tolist(), found.codes.tolist()) == (16, IDS.tolist(), CODES.tolist())


def test_a_pipe_is_no_index(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a regular file is needed"):
        HammingIndex.open(tmp_path / "pipe")
