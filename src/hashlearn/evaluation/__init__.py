"""Evaluate codes: ground truth, and how well a ranking by code finds it."""

from typing import Any

from hashlearn.errors import find_renamed
from hashlearn.evaluation.diagnostics import BitStatistics, bit_statistics
from hashlearn.evaluation.metrics import Scores, evaluate, evaluate_all
from hashlearn.evaluation.protocol import SETTINGS, Protocol, Setting, choose_setting, setting
from hashlearn.evaluation.truth import Truth, euclidean_neighbors

__all__ = [
    "SETTINGS",
    "BitStatistics",
    "Protocol",
    "Scores",
    "Setting",
    "Truth",
    "bit_statistics",
    "choose_setting",
    "euclidean_neighbors",
    "evaluate",
    "evaluate_all",
    "setting",
]


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name, {"euclidean_neighbours": "hashlearn.evaluation.euclidean_neighbors"})
