"""Judging codes: who is a true neighbour, and how well a ranking by code finds them."""

from hashlearn.evaluation.metrics import Scores, evaluate
from hashlearn.evaluation.protocol import SETTINGS, Protocol, Setting, setting
from hashlearn.evaluation.truth import Truth, euclidean_neighbours

__all__ = [
    "SETTINGS",
    "Protocol",
    "Scores",
    "Setting",
    "Truth",
    "euclidean_neighbours",
    "evaluate",
    "setting",
]
