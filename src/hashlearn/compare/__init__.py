"""Which code for one's own vectors: what measured best, a choice by validation, and how well a model does."""

from hashlearn.compare.choice import Choice, choose, recommended
from hashlearn.compare.own_vectors import ModelScores, Ranking, evaluate_model

__all__ = ["Choice", "ModelScores", "Ranking", "choose", "evaluate_model", "recommended"]
