"""Which code for one's own vectors: what measured best, a choice by validation, and how well a model does."""

from hashlearn.compare.check import CodeQuality, ModelCheck, check_model
from hashlearn.compare.choice import Choice, choose, recommended
from hashlearn.compare.own_vectors import ModelScores, Ranking, evaluate_model

__all__ = [
    "Choice",
    "CodeQuality",
    "ModelCheck",
    "ModelScores",
    "Ranking",
    "check_model",
    "choose",
    "evaluate_model",
    "recommended",
]
