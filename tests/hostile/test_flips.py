"""Single bits flipped; ``python tests/hostile/flips.py --flips 5000`` flips more."""

import random

import pytest
from flips import flip_bits
from seeds import all_seeds

pytestmark = pytest.mark.slow

CHECKED = [seed for seed in all_seeds() if seed.checked]


@pytest.mark.parametrize("seed", CHECKED, ids=lambda seed: seed.name)
def test_a_flipped_bit_is_refused_or_changes_nothing(seed, tmp_path_factory):
    counts, wrong = flip_bits(seed, 200, tmp_path_factory.mktemp("flips"), random.Random(1))
    assert not wrong
    assert counts["refused"] > 20
