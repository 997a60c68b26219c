"""Average precision and precision@r the slow way: sort every database item for every query, walk down the list."""

from fractions import Fraction
from itertools import pairwise, permutations
from math import inf

import numpy as np


def distances(query_bits, database_bits):
    return [int((np.asarray(query_bits) != np.asarray(item)).sum()) for item in database_bits]


def spherical_distances(query_bits, database_bits):
    """|a xor b| / |a and b| as exact fractions; 0 / 0 (two codes without a 1) is 0, x / 0 infinite."""

    def distance(a, b):
        differing = sum(int(x) != int(y) for x, y in zip(a, b, strict=True))
        common = sum(int(x) == int(y) == 1 for x, y in zip(a, b, strict=True))
        if common == 0:
            return inf if differing else Fraction(0)
        return Fraction(differing, common)

    return [distance(query_bits, item) for item in database_bits]


def average_precision(relevance, n_relevant, rule, cutoff=None):
    """AP of one ranked list of True/False; ``n_relevant``: relevant items in the whole database."""
    if n_relevant == 0:
        return 0.0
    found, total = 0, 0.0
    for rank, relevant in enumerate(relevance[:cutoff], start=1):
        if not relevant:
            continue
        before = 1.0 if rank == 1 else found / (rank - 1)
        found += 1
        at = found / rank
        total += (before + at) / 2 if rule == "trapezoid" else at
    if rule == "retrieved":
        return total / found if found else 0.0
    return total / n_relevant


def ap_by_index(d, relevant, rule, cutoff=None):
    order = np.argsort(d, kind="stable")
    return average_precision([bool(relevant[i]) for i in order], int(np.sum(relevant)), rule, cutoff)


def ap_expected(d, relevant, rule, cutoff=None):
    """The mean of AP over every order of the whole database that respects the distances (tiny databases only)."""
    values = [
        average_precision([bool(relevant[i]) for i in order], int(np.sum(relevant)), rule, cutoff)
        for order in permutations(range(len(d)))
        if all(d[a] <= d[b] for a, b in pairwise(order))
    ]
    return float(np.mean(values))


def precision_within(d, relevant, radius):
    inside = [bool(flag) for distance, flag in zip(d, relevant, strict=True) if distance <= radius]
    return sum(inside) / len(inside) if inside else 0.0
