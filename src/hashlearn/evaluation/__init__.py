"""Evaluate codes: ground truth, and how well a ranking by code finds it."""

from typing import Any

from hashlearn.errors import find_renamed
from hashlearn.evaluation.diagnostics import BitStatistics, bit_statistics
from hashlearn.evaluation.metrics import Scores, evaluate, evaluate_all
from hashlearn.evaluation.neighbors import METRICS, euclidean_neighbors, nearest_neighbors
from hashlearn.evaluation.protocol import SETTINGS, Protocol, Setting, choose_setting, setting
from hashlearn.evaluation.retrieval import SearchScores, evaluate_search
from hashlearn.evaluation.scorer import recall_scorer
from hashlearn.evaluation.truth import Judgment, Truth, read_judgments

__all__ = [
    "METRICS",
    "SETTINGS",
    "BitStatistics",
    "Judgment",
    "Protocol",
    "Scores",
    "SearchScores",
    "Setting",
    "Truth",
    "bit_statistics",
    "choose_setting",
    "euclidean_neighbors",
    "evaluate",
    "evaluate_all",
    "evaluate_search",
    "nearest_neighbors",
    "read_judgments",
    "recall_scorer",
    "setting",
]


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, name, {"euclidean_neighbours": "hashlearn.evaluation.euclidean_neighbors"})
