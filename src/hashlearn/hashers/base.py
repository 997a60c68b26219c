"""The contract of every method: a scikit-learn estimator whose output is a binary code."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hashlearn._arrays import Array, Floats, from_torch
from hashlearn.codes import MAX_BITS, check_codes, n_bytes, pack, sign_bits
from hashlearn.errors import shown
from hashlearn.hashers._blocks import row_blocks, unit_copy
from hashlearn.hashers._model_file import ModelMetadata, read_model, write_model
from hashlearn.hashers._parameters import FLAG, SEED, Rule, count, optional
from hashlearn.hashers.steps import (
    Affine,
    Center,
    Float,
    Margins,
    Spheres,
    Step,
    UnitLength,
    compile_steps,
    compute_type,
    unit_rows,
    width,
)
from hashlearn.labels import label_list
from hashlearn.threads import thread_map

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Hasher"]


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base class of all methods: learns from vectors (``fit``) and turns vectors into codes (``encode``).

    A method defines ``name``, its keyword parameters in ``__init__`` (``n_bits`` is one of them), and

    - ``_parameters``: the rule for each parameter (:mod:`._parameters`);
    - ``_fit(X, y)``: learn from the checked ``X``; learned attributes end in ``_``;
    - ``_encoder_steps()``: the encoder, as a list of plain steps;
    - ``_state(n_features, n_bits)``: names and shapes of the learned arrays, for saving and checking;
    - ``_check_parameters(n_features)`` and ``_unused()``, if it has rules that involve several parameters.
    """

    #: The method's name on the command line and in model files; its key in ``METHODS``.
    name: ClassVar[str]
    #: Bumped when a change of the method changes its numbers. Results of experiments are keyed by it.
    revision: ClassVar[int] = 1
    #: Whether ``fit`` needs labels.
    supervised: ClassVar[bool] = False
    #: The distance that its codes are ranked by unless a protocol names another (``Protocol.distance``).
    distance: ClassVar[Literal["hamming", "spherical"]] = "hamming"
    #: The rules of the parameters; those of a subclass are added to these.
    _parameters: ClassVar[Mapping[str, Rule]] = {
        "n_bits": count(most=MAX_BITS),
        "normalize": FLAG,
        "random_state": SEED,
        "show_progress": optional(FLAG),
    }
    #: Why a code can't have more bits than a vector has features, as a clause; empty if it can.
    _max_bits_reason: ClassVar[str] = ""
    #: Parameters that older model files lack, and the values that they stand for: these are not written either, so
    #: that files and their keys stay the same. Those of a subclass are added to these.
    _later_parameters: ClassVar[Mapping[str, Any]] = {"normalize": False}
    #: Former names of parameters, under which model files keep them.
    _saved_names: ClassVar[Mapping[str, str]] = {}
    #: Parameters of a training run that a model file does not keep; None in a loaded model.
    _not_saved: ClassVar[tuple[str, ...]] = ()

    n_bits: int
    normalize: bool = False
    #: Whether the fitted model brings vectors to unit length.
    _normalized: bool = False

    @abstractmethod
    def _fit(self, X: Array, y: Any) -> None:
        """Learn from the checked ``X`` (n_samples, n_features), and from what ``_checked_labels`` returned."""

    @abstractmethod
    def _encoder_steps(self) -> list[Step]:
        """Return the steps of the encoder, after vectors are brought to unit length if they are."""

    def encoder_steps(self) -> list[Step]:
        """Return the fitted encoder as plain steps, from vectors to the values whose signs are the bits."""
        return [*([UnitLength()] if self._normalized else []), *self._encoder_steps()]

    def _compile(self, steps: Sequence[Step], dtype: Float) -> Callable[[Array], Array]:
        """Return the function that evaluates the encoder's steps for a block of rows, computed in ``dtype``.

        A method overrides this only if it knows a faster way.
        """
        return compile_steps(steps, dtype)

    @abstractmethod
    def _state(self, n_features: int, n_bits: int) -> Mapping[str, tuple[int | str, ...]]:
        """Return the names and shapes of the learned arrays that a model file holds.

        A size that depends on the training data is a name instead of a number; the same name is the same size.
        """

    def _check_state(self) -> None:
        """Raise a ValueError if learned arrays, read from a file, break a rule beyond their shapes."""

    def _check_parameters(self, n_features: int) -> None:
        """Raise a ValueError, with the rule and the value, if a parameter breaks a rule of the method."""
        rules: dict[str, Rule] = {}
        for base in reversed(type(self).__mro__):
            rules.update(vars(base).get("_parameters", {}))
        for name in self._get_param_names():
            rules[name].check(name, getattr(self, name))
        if self._max_bits_reason and self.n_bits > n_features:
            raise ValueError(
                f"n_bits must be at most the number of features, n_features={n_features}, for {self.name.upper()}, "
                f"{self._max_bits_reason}; got {self.n_bits}."
            )

    def _unused(self) -> Mapping[str, str]:
        """Return the parameters that have no effect beside the others as they are set, each with the reason."""
        return {}

    def _check_effects(self) -> None:
        """Raise a ValueError if a parameter was set that has no effect."""
        for name, reason in self._unused().items():
            default = signature(type(self)).parameters[name].default
            value = getattr(self, name)
            plain = value is None or isinstance(value, (int, float, str, np.generic))
            if not plain or value != default:
                raise ValueError(f"{name} has no effect {reason}; leave it out, or at {default!r}; got {shown(value)}.")

    @property
    def is_random(self) -> bool:
        """Whether ``fit`` draws at random, so that ``random_state`` has an effect."""
        return self.draws() and "random_state" not in self._unused()

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training vectors; not changed.
        y : array-like of shape (n_samples,), default=None
            Labels of any hashable kind. Unsupervised methods ignore them.

        Returns
        -------
        self : Hasher
            The fitted model. If fit fails, the model stays as it was.
        """
        before = dict(self.__dict__)
        try:
            data = self._validated(X, ensure_min_samples=2)
            self._check_parameters(data.shape[1])
            self._check_effects()
            self.n_bits_ = int(self.n_bits)
            self.metadata_ = ModelMetadata()
            labels = self._checked_labels(y, len(data))
            self._normalized = bool(self.normalize)
            if self._normalized:
                data = unit_copy(data)
            self._warn_degenerate(data)
            self._fit(data, labels)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _validated(self, X: ArrayLike, **options: Any) -> Array:
        """Return X as scikit-learn checks it, with an error that says what to do about values that are not finite."""
        try:
            return validate_data(self, from_torch(X), dtype="numeric", **options)  # type: ignore[no-any-return]
        except ValueError as error:
            # scikit-learn goes on to recommend estimators that accept NaN, none of which makes codes.
            first, _, others = str(error).partition("\n")
            if "accept missing values" not in others:
                raise
            raise ValueError(f"{first} {type(self).__name__} needs finite values: drop or fill these rows.") from None

    def _warn_degenerate(self, X: Array) -> None:
        """Warn of data from which no useful code can be learned."""
        if len(X) < self.n_bits_:
            message = f"X has {len(X)} samples, too few to learn the {self.n_bits_} bits of a code from."
        elif all((X[rows] == X[0]).all() for rows in row_blocks(X)):  # ends with the first block that differs
            message = f"all {len(X)} samples are equal: all of them get the same code."
        else:
            return
        warnings.warn(message, UserWarning, stacklevel=3)

    def _checked_labels(self, y: Any, n_samples: int) -> Any:
        """Return the labels, a list with one for each sample, for a supervised method; None for the others.

        A method that learns from more than one label for each sample overrides this.
        """
        if not self.supervised:
            return None
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} learns from labels: it requires y to be passed, but the target y is None.")
        labels = label_list(y, "y")
        if len(labels) != n_samples:
            raise ValueError(f"y must have a label for each of the {n_samples} samples; got {len(labels)}.")
        return labels

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return self._validated(X, reset=False, ensure_min_samples=0)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the real values whose signs are the bits; sgn(0) = +1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors; there may be none.

        Returns
        -------
        values : ndarray of shape (n_samples, n_bits), float32 or float64
        """
        X = self._checked(X)
        return self._by_blocks(X, np.empty((len(X), self.n_bits_), dtype=compute_type(X.dtype)), lambda H: H)

    def query_values(self, X: ArrayLike) -> Array:
        """Return the real values that stand for queries, to be compared with the codes of items.

        A query that is not rounded to a code is compared more precisely. The score of an item is the product of the
        query's values with the item's bits as ±1, plus its :meth:`code_offsets`; the larger, the nearer. The values
        are those of ``decision_function``, unless a method has others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors; there may be none.

        Returns
        -------
        values : ndarray of shape (n_samples, n_bits), float32 or float64

        Raises
        ------
        ValueError
            Products with the method's values say nothing about distances: SPH, whose codes are ranked by spherical
            distance; KMH and cells of NeighborHash, several of whose bits together are the number of a cell (KMH with
            ``bits_per_subspace=1`` is not refused).

        Examples
        --------
        >>> from hashlearn import ITQ
        >>> from hashlearn.datasets import load
        >>> digits = load("digits")
        >>> hasher = ITQ(n_bits=16, random_state=0).fit(digits.train)
        >>> signs = 2.0 * hasher.transform(digits.train) - 1
        >>> scores = hasher.query_values(digits.queries) @ signs.T + hasher.code_offsets(hasher.encode(digits.train))
        >>> scores.argmax(axis=1).shape  # the nearest item of each query
        (297,)
        """
        check_is_fitted(self)
        if reason := self._refuses_real_queries():
            raise ValueError(f"this model of {self.name} has no query_values: {reason}. Compare codes instead.")
        return self.decision_function(X)

    def _refuses_real_queries(self) -> str:
        """Why products with the method's values say nothing about distances; empty if they do."""
        for step in self.encoder_steps():
            match step:
                case Spheres():
                    return "its codes are ranked by spherical distance, which no product with bits gives"
                case Margins(_, b) if b > 1:
                    return f"{b} bits together are the number of a cell, and their values can't be added"
        return ""

    @property
    def ignores_length(self) -> bool:
        """Whether the codes of a fitted model do not depend on the lengths of vectors, as cosines do not."""
        check_is_fitted(self)
        for step in self.encoder_steps():
            match step:
                case UnitLength():
                    return True
                case Center(offset) if not np.any(offset):
                    pass
                case Affine(_, c) if c is None or not np.any(c):
                    pass
                case _:
                    return False
        return True

    @property
    def default_metric(self) -> Literal["cosine", "euclidean"]:
        """By what vectors are near neighbors for a fitted model: cosine, if its codes ignore lengths."""
        return "cosine" if self.ignores_length else "euclidean"

    @property
    def has_query_values(self) -> bool:
        """Whether a fitted model has :meth:`query_values`, which some methods refuse."""
        check_is_fitted(self)
        return not self._refuses_real_queries()

    def code_offsets(self, codes: ArrayLike) -> Floats:
        """Return what is added to the score of each item for real-valued queries (:meth:`query_values`).

        0 for most methods. It depends on the code alone, so it can be computed once and stored beside it.

        Parameters
        ----------
        codes : array-like of shape (n, ceil(n_bits / 8)), uint8
            Packed codes.

        Returns
        -------
        offsets : ndarray of shape (n,), float64
        """
        check_is_fitted(self)
        return np.zeros(len(check_codes(codes, self.n_bits_)))

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Return the codes as bits, 0 or 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors; there may be none.

        Returns
        -------
        bits : ndarray of shape (n_samples, n_bits), uint8
        """
        X = self._checked(X)
        return self._by_blocks(X, np.empty((len(X), self.n_bits_), dtype=np.uint8), sign_bits)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Return the codes as packed bytes (see :mod:`hashlearn.codes`).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Vectors; there may be none.

        Returns
        -------
        codes : ndarray of shape (n_samples, ceil(n_bits / 8)), uint8
        """
        return self._encode(self._checked(X))

    def _encode(self, X: Array) -> NDArray[np.uint8]:
        """``encode`` of vectors that need no check."""
        out = np.empty((len(X), n_bytes(self.n_bits_)), dtype=np.uint8)
        return self._by_blocks(X, out, lambda H: pack(sign_bits(H).view(np.bool_)))

    def _by_blocks(
        self, X: Array, out: Array, finish: Callable[[Array], Array], steps: Sequence[Step] | None = None
    ) -> Array:
        """Fill ``out`` with ``finish`` of what the steps, by default the encoder's, make of blocks, on all cores.

        The steps are those after vectors are brought to unit length.
        """
        steps = self._encoder_steps() if steps is None else steps
        dtype = compute_type(X.dtype)
        project, blocks = self._compile(steps, dtype), row_blocks(X, width(steps))

        def work(rows: slice) -> None:
            out[rows] = finish(project(unit_rows(X[rows].astype(dtype)) if self._normalized else X[rows]))

        if len(blocks) == 1:
            work(blocks[0])
        else:
            with thread_map() as threads:
                threads(work, blocks)
        return out

    def summary(self) -> dict[str, Any]:
        """Return a few facts about the training by name; empty if there are none, or for a loaded model."""
        return {}

    def save(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        *,
        metadata: ModelMetadata | None = None,
        info: Mapping[str, str] | None = None,
    ) -> None:
        """Write the fitted model to one file (safetensors: plain arrays and JSON), atomically.

        The file holds what ``encode`` needs, and the parameters; not the history of the training.

        Parameters
        ----------
        path
            The file to write, or a binary file that is open for writing.
        metadata
            What the model was trained on, its features, and notes. None: ``metadata_``.
        info
            Deprecated: use ``metadata``.
        """
        check_is_fitted(self)
        if info is not None:
            warnings.warn("info of save is deprecated: use metadata.", DeprecationWarning, stacklevel=2)
            metadata = ModelMetadata.from_info(info)
        write_model(self, path, self.metadata_ if metadata is None else metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | IO[bytes]) -> Self:
        """Read a saved model.

        ``Hasher.load``, which is also ``hashlearn.load``, reads a model of any method. ``load`` of a method reads only
        models of that method.

        Parameters
        ----------
        path
            The file to read, or a binary file that is open for reading.

        Raises
        ------
        ModelFileError
            The file is damaged, or is not a model of this method. The message gives the reason.
        """
        return read_model(path, cls)

    @property
    def info_(self) -> dict[str, str]:
        """Deprecated: use ``metadata_``."""
        warnings.warn("info_ is deprecated: use metadata_.", DeprecationWarning, stacklevel=2)
        return self.metadata_.to_info()

    def _check_unchanged(self) -> None:
        """Raise a ValueError if a parameter that decides the shape of learned arrays was changed after ``fit``."""
        if self.n_bits != self.n_bits_:
            raise ValueError(f"n_bits was changed to {self.n_bits} after fit learned {self.n_bits_} bits: fit again.")
        if bool(self.normalize) != self._normalized:
            raise ValueError(f"normalize was changed to {self.normalize} after fit: fit again.")

    @property
    def _n_features_out(self) -> int:
        return self.n_bits_

    @classmethod
    def saved_parameters(cls) -> list[str]:
        """The names of the parameters, without those that only a running program can have, such as callbacks."""
        return [name for name in cls._get_param_names() if name not in cls._not_saved]

    @classmethod
    def later_parameters(cls) -> dict[str, Any]:
        """The parameters that older model files lack, and the values that they stand for."""
        later: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            later.update(vars(base).get("_later_parameters", {}))
        return {name: value for name, value in later.items() if name in cls._get_param_names()}

    @classmethod
    def draws(cls) -> bool:
        """Whether the method has a ``random_state``; whether it has an effect is :attr:`is_random`."""
        return "random_state" in cls._get_param_names()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # bits are uint8, whatever X is
        tags.target_tags.required = self.supervised
        return tags
