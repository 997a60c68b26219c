"""Methods on data sets, judged: the room that sees data, methods and metrics."""

from hashlearn.experiments.judging import dataset_truth, judge

__all__ = ["dataset_truth", "judge"]
