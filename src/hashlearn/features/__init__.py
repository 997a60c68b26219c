"""Pictures to feature vectors: find pictures, and compute their vectors with an :class:`Extractor`.

    data = read_folder("photos", GistExtractor())
    data.vectors, data.paths

A model that was trained on the vectors of one extractor can't be used with those of another. So a model stores the
extractor's description, and :func:`make_extractor` makes an equal extractor from it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hashlearn.errors import renamed_parameter, shown
from hashlearn.features.gist import GIST_320, GIST_512, GistExtractor, gist
from hashlearn.features.images import IMAGE_ENDINGS, ImageData, find_images, image_vectors, read_folder, read_thumbnail
from hashlearn.storage import StrPath

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "EXTRACTORS",
    "GIST_320",
    "GIST_512",
    "IMAGE_ENDINGS",
    "Extractor",
    "GistExtractor",
    "ImageData",
    "ImageFeatures",
    "find_images",
    "gist",
    "image_vectors",
    "make_extractor",
    "read_folder",
    "read_image",
    "read_thumbnail",
]


class Extractor(Protocol):
    """Computes the vectors of pictures. ``str(extractor)`` describes it to people."""

    #: Its key in ``EXTRACTORS``, and ``kind`` in its description.
    name: ClassVar[str]

    @property
    def n_features(self) -> int:
        """The length of a vector."""

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of a prepared picture."""

    def prepare(self, path: StrPath) -> NDArray[np.uint8]:
        """Read a picture as :meth:`describe` takes it. Called from several threads.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        image : ndarray of shape ``image_shape``, uint8

        Raises
        ------
        ImageError
            It can't be read.
        """

    def describe(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Compute the vectors of prepared pictures.

        Parameters
        ----------
        images : ndarray of shape (n, *image_shape), uint8

        Returns
        -------
        vectors : ndarray of shape (n, n_features), float32
        """

    def description(self) -> dict[str, Any]:
        """Return JSON values from which :meth:`from_description` makes an equal extractor."""

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """Make an extractor from its description.

        Parameters
        ----------
        description
            As :meth:`description` returns it; from a file it can be any JSON value.

        Raises
        ------
        ValueError
            The vectors of the extractor would not be those described.
        """


#: Every extractor by its name.
EXTRACTORS: dict[str, type[Extractor]] = {extractor.name: extractor for extractor in (GistExtractor,)}


def make_extractor(description: Any) -> Extractor:
    """Make the extractor that a model or a collection describes.

    Parameters
    ----------
    description
        As :meth:`Extractor.description` returns it; from a file it can be any JSON value.

    Returns
    -------
    extractor : Extractor

    Raises
    ------
    ValueError
        This version of hashlearn can't compute the vectors that are described.

    Examples
    --------
    >>> make_extractor(GistExtractor(side=32).description())
    GistExtractor(side=32, color=True, orientations=(8, 8, 8, 8))
    """
    kind = description.get("kind") if isinstance(description, dict) else None
    if not isinstance(kind, str) or kind not in EXTRACTORS:
        raise ValueError(f"features must have a kind, one of {', '.join(EXTRACTORS)}; got {shown(description)}.")
    return EXTRACTORS[kind].from_description(description)


@renamed_parameter("features", "extractor")
def read_image(path: StrPath, extractor: Extractor) -> NDArray[np.uint8]:
    """Read a picture as ``extractor.describe`` takes it: the same as ``extractor.prepare(path)``.

    Parameters
    ----------
    path : path-like
    extractor : Extractor

    Returns
    -------
    image : ndarray of shape ``extractor.image_shape``, uint8

    Raises
    ------
    ImageError
        It can't be read.
    """
    return extractor.prepare(path)


class ImageFeatures(GistExtractor):
    """Deprecated: use :class:`GistExtractor`."""

    kind = "gist"
    name = property(str)
    vectors = GistExtractor.describe
    as_dict = GistExtractor.description

    def __init__(
        self, kind: str = "gist", side: int = 64, color: bool = True, orientations: tuple[int, ...] = GIST_512
    ) -> None:
        warnings.warn("ImageFeatures is deprecated: use GistExtractor.", DeprecationWarning, stacklevel=2)
        if kind != "gist":
            raise ValueError(f"kind must be 'gist'; got {shown(kind)}.")
        super().__init__(side, color, orientations)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Deprecated: use :meth:`GistExtractor.from_description`."""
        return cls.from_description(data)
