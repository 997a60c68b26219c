"""A scikit-learn pipeline that ends with a hasher, with the hasher's ``encode`` and ``save``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import pipeline

from hashlearn.hashers.base import Hasher


class HashingPipeline(pipeline.Pipeline):
    """A scikit-learn ``Pipeline`` whose last step is a hasher, with the hasher's ``encode`` and ``save``.

    Parameters
    ----------
    steps : list of (str, estimator)
        As for ``sklearn.pipeline.Pipeline``; the last one is a hasher.
    transform_input, memory, verbose
        As for ``sklearn.pipeline.Pipeline``.

    Examples
    --------
    >>> import hashlearn
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pipe = hashlearn.make_pipeline(PCA(40), hashlearn.ITQ(n_bits=32, random_state=0)).fit(X)
    >>> pipe.encode(X).shape
    (1797, 4)
    """

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Return the codes of vectors as packed bytes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors as ``fit`` takes them; there may be none if every step accepts that.

        Returns
        -------
        codes : ndarray of shape (n_samples, ceil(n_bits / 8)), uint8
        """
        hasher = _hasher(self.steps)
        return hasher.encode(self[:-1].transform(X) if len(self.steps) > 1 else X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, if the hasher is the only step.

        A model file has no place for the steps before a hasher: scikit-learn stores those by pickling only. To keep
        them, save the hasher with ``pipeline[-1].save(path)`` and the other steps, ``pipeline[:-1]``, with joblib.

        Parameters
        ----------
        path : str or path
            The file to write.
        """
        hasher = _hasher(self.steps)
        if len(self.steps) > 1:
            raise ValueError(
                "a model file holds a hasher alone: save it with pipeline[-1].save(path), and the steps before it, "
                "pipeline[:-1], with joblib."
            )
        hasher.save(path)


def _hasher(steps: list[tuple[str, Any]]) -> Hasher:
    last = steps[-1][1]
    if not isinstance(last, Hasher):
        raise TypeError(f"the last step of a HashingPipeline must be a hasher; got {type(last).__name__}.")
    return last


def make_pipeline(*steps: Any, **options: Any) -> HashingPipeline:
    """Return a pipeline of transformers and, last, a hasher, with the hasher's ``encode`` and ``save``.

    Parameters
    ----------
    *steps : estimator
        Each is named after its class.
    **options
        ``memory``, ``transform_input`` and ``verbose``, as for ``sklearn.pipeline.make_pipeline``.

    Returns
    -------
    pipeline : HashingPipeline

    Examples
    --------
    >>> import hashlearn
    >>> from sklearn.preprocessing import StandardScaler
    >>> hashlearn.make_pipeline(StandardScaler(), hashlearn.LSH(n_bits=16)).steps[-1][0]
    'lsh'
    """
    plain = pipeline.make_pipeline(*steps, **options)
    _hasher(plain.steps)
    return HashingPipeline(**plain.get_params(deep=False))
