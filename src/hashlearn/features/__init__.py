"""Images to feature vectors."""

from hashlearn.features.gist import GIST_320, GIST_512, gist
from hashlearn.features.images import (
    IMAGE_ENDINGS,
    ImageFeatures,
    find_images,
    image_vectors,
    read_image,
    read_thumbnail,
)

__all__ = [
    "GIST_320",
    "GIST_512",
    "IMAGE_ENDINGS",
    "ImageFeatures",
    "find_images",
    "gist",
    "image_vectors",
    "read_image",
    "read_thumbnail",
]
