"""A scikit-learn pipeline that ends with a hasher, and returns packed codes as the hasher does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import pipeline

from hashlearn.hashers.base import Hasher


class HashingPipeline(pipeline.Pipeline):
    """A scikit-learn ``Pipeline`` whose last step is a hasher, with the hasher's ``encode``.

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
        last = self.steps[-1][1]
        if not isinstance(last, Hasher):
            raise TypeError(f"the last step of a HashingPipeline must be a hasher; got {type(last).__name__}.")
        return last.encode(self[:-1].transform(X) if len(self.steps) > 1 else X)


def make_pipeline(*steps: Any) -> HashingPipeline:
    """Return a pipeline of transformers and, last, a hasher; as ``sklearn.pipeline.make_pipeline``, with ``encode``.

    Parameters
    ----------
    *steps : estimator
        Each is named after its class.

    Returns
    -------
    pipeline : HashingPipeline
    """
    return HashingPipeline(pipeline.make_pipeline(*steps).steps)
