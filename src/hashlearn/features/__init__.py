"""Images to feature vectors."""

from hashlearn.features.gist import GIST_320, GIST_512, gist

__all__ = ["GIST_320", "GIST_512", "gist"]
