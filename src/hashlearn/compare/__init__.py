"""Which code for one's own vectors: what measured best, and a choice by validation."""

from hashlearn.compare.choice import Choice, choose, recommended

__all__ = ["Choice", "choose", "recommended"]
