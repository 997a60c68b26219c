"""Evaluate codes: ground truth, and how well a ranking by code finds it."""

from hashlearn.evaluation.diagnostics import BitStatistics, bit_statistics
from hashlearn.evaluation.metrics import Scores, evaluate, evaluate_all
from hashlearn.evaluation.protocol import SETTINGS, Protocol, Setting, choose_setting, setting
from hashlearn.evaluation.truth import Truth, euclidean_neighbours

__all__ = [
    "SETTINGS",
    "BitStatistics",
    "Protocol",
    "Scores",
    "Setting",
    "Truth",
    "bit_statistics",
    "choose_setting",
    "euclidean_neighbours",
    "evaluate",
    "evaluate_all",
    "setting",
]
