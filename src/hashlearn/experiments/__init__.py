"""Methods on data sets, judged: the room that sees data, methods and metrics."""

from hashlearn.experiments.scoring import dataset_truth, judge

__all__ = ["dataset_truth", "judge"]
