"""The contract of every method: a scikit-learn estimator whose output is a binary code."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hashlearn.codes import MAX_BITS, bits_of, n_bytes, pack
from hashlearn.errors import shown
from hashlearn.hashers._model_file import ModelMetadata, read_model, write_model
from hashlearn.hashers._steps import Step
from hashlearn.labels import label_list
from hashlearn.threads import thread_map

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Hasher", "compute_type", "row_blocks"]

# Elements of X that a block of rows holds: its float32 copy (4 MiB) stays in a shared cache.
_BLOCK_ELEMENTS = 1 << 20
# A step more, or a few times as many, are numbers of 64 bits too.
_MAX_COUNT = 1 << 53


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of all methods: learns from vectors (``fit``), turns vectors into codes (``encode``).

    A method gives ``name``, its keyword parameters (``n_bits`` among them) in ``__init__``, and

    - ``_fit(X, y)``: learn from the checked ``X``; what is learned goes into attributes that end in ``_``;
    - ``_project(X)``: real values (rows, n_bits) of a block of rows, whose signs are the bits;
    - ``_state(n_features, n_bits)``: the learned arrays by name with their shapes, for saving and checking;
    - ``_check_parameters(n_features)``, if it has rules beyond n_bits ≥ 1 (it calls this class's too);
    - ``_steps()``, if ``_project`` can be told in plain steps, so that it can be exported.
    """

    #: The method's name on the command line and in model files; its key in ``METHODS``.
    name: ClassVar[str]
    #: Whether ``fit`` needs labels.
    supervised: ClassVar[bool] = False
    #: The distance that its codes are ranked by unless another is asked for (``Protocol.distance``).
    distance: ClassVar[Literal["hamming", "spherical"]] = "hamming"
    #: Why a code can't have more bits than a vector has features, as a clause; empty if it can.
    _a_direction_a_bit: ClassVar[str] = ""
    #: Parameters of a training run that a model file does not keep; None in a loaded model.
    _not_saved: ClassVar[tuple[str, ...]] = ()

    n_bits: int

    @abstractmethod
    def _fit(self, X: NDArray[Any], y: list[Hashable] | None) -> None:
        """Learn from the checked ``X`` (n_samples, n_features)."""

    @abstractmethod
    def _project(self, X: NDArray[Any]) -> NDArray[Any]:
        """Real values (rows, n_bits) of a block of rows."""

    def _projector(self, dtype: np.dtype[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """``_project`` for many blocks of this type; a method may make ready once what they share."""
        return self._project

    def _steps(self) -> list[Step] | None:
        """``_project`` in plain steps, for encoders in other formats; None if it is not made of them."""
        return None

    @abstractmethod
    def _state(self, n_features: int, n_bits: int) -> Mapping[str, tuple[int | str, ...]]:
        """The learned arrays that a model file holds: their names and shapes.

        A size that depends on the training data has a name instead of a number: one size wherever the name stands.
        """

    def _check_state(self) -> None:
        """Refuse learned arrays, read from a file, that break a rule beyond their shapes, with a ValueError."""

    def _check_parameters(self, n_features: int) -> None:
        """Refuse parameters that break a rule of the method, with the rule and the value."""
        check_count("n_bits", self.n_bits, most=MAX_BITS)
        if self._a_direction_a_bit and self.n_bits > n_features:
            raise ValueError(
                f"n_bits must be between 1 and the number of features for {self.name.upper()}, "
                f"{self._a_direction_a_bit} (n_features={n_features}); got {self.n_bits}."
            )
        check_seed("random_state", getattr(self, "random_state", None))

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from ``X`` (n_samples, n_features); an unsupervised method takes no notice of ``y``."""
        before = dict(self.__dict__)
        try:
            data: NDArray[Any] = validate_data(self, X, dtype="numeric", ensure_min_samples=2)
            self._check_parameters(data.shape[1])
            self.n_bits_ = int(self.n_bits)
            self.metadata_ = ModelMetadata()
            self._fit(data, self._checked_labels(y, len(data)))
        except BaseException:
            # A fit that fails leaves the model as it was.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _checked_labels(self, y: Any, n_samples: int) -> list[Hashable] | None:
        """A label of any hashable kind for each sample, for a method that learns from them; None for the others."""
        if not self.supervised:
            return None
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} learns from labels: it requires y to be passed, but the target y is None.")
        labels = label_list(y, "y")
        if len(labels) != n_samples:
            raise ValueError(f"y must have a label for each of the {n_samples} samples; got {len(labels)}.")
        return labels

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return validate_data(self, X, dtype="numeric", reset=False)  # type: ignore[no-any-return]

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """The real values (n_samples, n_bits) whose signs are the bits; sgn(0) = +1."""
        X = self._checked(X)
        return self._of_blocks(X, np.empty((len(X), self.n_bits_), dtype=compute_type(X.dtype)), lambda H: H)

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """The codes as 0/1 bits (n_samples, n_bits), uint8."""
        X = self._checked(X)
        return self._of_blocks(X, np.empty((len(X), self.n_bits_), dtype=np.uint8), bits_of)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """The codes as packed bytes (n_samples, ceil(n_bits / 8)): see :mod:`hashlearn.codes`."""
        return self._encode(self._checked(X))

    def _encode(self, X: NDArray[Any]) -> NDArray[np.uint8]:
        """``encode`` of vectors that need no check."""
        out = np.empty((len(X), n_bytes(self.n_bits_)), dtype=np.uint8)
        return self._of_blocks(X, out, lambda H: pack(bits_of(H).view(np.bool_)))

    def _of_blocks(
        self, X: NDArray[Any], out: NDArray[Any], finish: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> NDArray[Any]:
        """Fill ``out`` with what ``finish`` makes of the real values of each block of rows, on all cores."""
        project, blocks = self._projector(X.dtype), list(row_blocks(X, self._width))

        def work(rows: slice) -> None:
            out[rows] = finish(project(X[rows]))

        if len(blocks) == 1:
            work(blocks[0])
        else:
            with thread_map() as threads:
                threads(work, blocks)
        return out

    def summary(self) -> dict[str, Any]:
        """What there is to say of the training by name; nothing unless a method has something, or after ``load``."""
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

    @property
    def _width(self) -> int:
        """The most values that are made of one vector on the way to its code."""
        return self.n_bits_

    def _check_unchanged(self) -> None:
        """Refuse to save a model whose parameters are no longer those that its learned arrays have the shape of."""
        if self.n_bits != self.n_bits_:
            raise ValueError(f"n_bits was changed to {self.n_bits} after fit learned {self.n_bits_} bits: fit again.")

    @property
    def _n_features_out(self) -> int:
        return self.n_bits_

    @classmethod
    def draws(cls) -> bool:
        """Whether the method draws anything at random: only then has it a ``random_state``."""
        return "random_state" in cls._get_param_names()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # bits are uint8, whatever X is
        tags.target_tags.required = self.supervised
        return tags


def check_count(name: str, value: object, *, least: int = 1, most: int = _MAX_COUNT) -> None:
    """Refuse what is not a whole number of at least ``least``, or is beyond ``most``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {shown(value)}.")
    if int(value) > most:
        raise ValueError(f"{name} must be at most {most}; got {shown(value)}.")


def check_flag(name: str, value: object, *others: object) -> None:
    """Refuse what is neither True nor False, nor one of ``others``."""
    if not isinstance(value, (bool, np.bool_)) and not any(value is other for other in others):
        raise ValueError(f"{name} must be {' or '.join(map(str, (*others, True, False)))}; got {shown(value)}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse what is not one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}; got {shown(value)}.")


def check_weight(name: str, value: object, *, zero: bool = True) -> None:
    """Refuse what is not a finite real number of at least 0 (``zero=False``: above 0)."""
    flag = isinstance(value, bool)
    try:
        number = float(value) if isinstance(value, Real) and not flag else -1.0
    except OverflowError:  # a whole number beyond float64
        number = np.inf
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(f"{name} must be a number {'of at least' if zero else 'above'} 0; got {shown(value)}.")


def check_seed(name: str, value: Any) -> None:
    """Refuse what no random generator can be made of."""
    # Lists within lists would be followed to the end of the stack.
    flat = not isinstance(value, (list, tuple)) or all(isinstance(number, Integral) for number in value)
    try:
        if flat:
            np.random.default_rng(value)
            return
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be None, a whole number of at least 0 or a Generator; got {shown(value)}.")


def compute_type(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    """float32 for what it holds without loss (or is float32 already), float64 for the rest."""
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


def row_blocks(X: NDArray[Any], width: int = 1) -> Iterator[slice]:
    """Slices that cut ``X`` into blocks of rows of a size that suits the cache, as do ``width`` values of each row."""
    rows = max(1, _BLOCK_ELEMENTS // max(X.shape[1], width))
    return (slice(start, min(start + rows, len(X))) for start in range(0, len(X), rows))
