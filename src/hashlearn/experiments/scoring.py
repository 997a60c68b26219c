"""Score one fitted method on one data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hashlearn.evaluation import Scores, Setting, Truth, euclidean_neighbors, evaluate

if TYPE_CHECKING:
    from hashlearn.datasets import Dataset
    from hashlearn.hashers import Hasher


def dataset_truth(dataset: Dataset, setting: Setting, *, show_progress: bool | None = None) -> Truth:
    """Return the true neighbors of a data set's queries, as ``setting`` defines them.

    Parameters
    ----------
    dataset : Dataset
    setting : Setting
    show_progress : bool, optional
        Whether to show a progress bar; by default, on a terminal only.

    Returns
    -------
    Truth
        Euclidean neighbors are cached.
    """
    if setting.truth == "labels":
        if dataset.query_labels is None or dataset.database_labels is None:
            raise ValueError(f"{dataset.name} has no labels: its truth can only be 'neighbors'.")
        return Truth.labels(dataset.query_labels, dataset.database_labels)
    if setting.k is None:
        raise ValueError("truth by neighbors needs k, the number of true neighbors of a query.")
    ids = euclidean_neighbors(dataset.queries, dataset.database, setting.k, cache=True, show_progress=show_progress)
    description = f"{setting.k:,} Euclidean nearest neighbors"
    return Truth.neighbors(ids, description, n_database=len(dataset.database))


def judge(
    hasher: Hasher, dataset: Dataset, setting: Setting, *, truth: Truth | None = None, show_progress: bool | None = None
) -> Scores:
    """Encode a data set with a fitted method, and evaluate the codes.

    Parameters
    ----------
    hasher : Hasher
    dataset : Dataset
    setting : Setting
    truth : Truth, optional
        The result of `dataset_truth`, if it is known already.
    show_progress : bool, optional
        Whether to show a progress bar; by default, on a terminal only.

    Returns
    -------
    Scores
    """
    codes = (hasher.encode(dataset.queries), hasher.encode(dataset.database))
    if truth is None:  # after encoding, which fails at once if the model does not fit the data
        truth = dataset_truth(dataset, setting, show_progress=show_progress)
    return evaluate(*codes, truth, n_bits=hasher.n_bits_, protocol=setting.protocol, show_progress=show_progress)
