"""Experiments: methods on data sets, from a grid of runs to results, tables, charts and claims."""

from hashlearn.experiments.scoring import dataset_truth, judge

__all__ = ["dataset_truth", "judge"]
