"""Every parameter of every method, given what no one should give it."""

import warnings

import numpy as np
import pytest

import hashlearn
from hashlearn.hashers import METHODS

X, y = np.random.default_rng(0).random((40, 6)), np.arange(40) % 3
# So that a fit takes milliseconds.
SMALL = {
    "max_iter": 2,
    "lbfgs_iter": 2,
    "n_anchors": 5,
    "anchors_per_bit": 2,
    "hidden_units": [4],
    "sweeps": 1,
    "validation": None,
}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    **{f"10**{n}": 10**n for n in (400, 5000)},
    **{f"2**{n}": 2**n for n in (63, 64, 100)},
    **{
        str(value): value for value in (-1, 0, 1e308, 1e-308, float("nan"), float("inf"), -float("inf"), True, None, 1j)
    },
    **{
        repr(value): value
        for value in ("", "x", "1" * 5000, "\ud800", b"x", [], {}, {1}, [[1]], [-1], [2**63], [10**400])
    },
    "int64's largest": np.int64(2**63 - 1),
    "an array": np.arange(3),
    "nested": nested(100_000),
    "nested in a list": [nested(1000)],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "parameter"),
    [
        (name, parameter)
        for name, method in METHODS.items()
        for parameter in method._get_param_names()
        if parameter != "show_progress"
    ],
)
def test_a_hostile_parameter_is_refused_in_one_line_or_used(method, parameter):
    own = {name: small for name, small in SMALL.items() if name in METHODS[method]._get_param_names()}
    for name, value in HOSTILE.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                METHODS[method](**{"n_bits": 4, **own, parameter: value}).fit(X, y)
            except (ValueError, TypeError) as error:
                words = str(error)
            else:
                continue
        assert "\n" not in words, name
        assert len(words) < 700, name
        assert "ambiguous" not in words, name


@pytest.mark.parametrize("n_bits", [2**24 + 1, 2**40, 2**63, 2**66, 10**400])
def test_a_code_has_a_longest_length(n_bits):
    with pytest.raises(ValueError, match="n_bits must be a whole number of at least 1 and at most 16777216"):
        hashlearn.LSH(n_bits).fit(X)
    with pytest.raises(ValueError, match="n_bits must be at most 16777216"):
        hashlearn.HammingIndex(n_bits)
