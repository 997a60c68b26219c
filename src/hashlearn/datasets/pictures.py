"""Write the images of a data set as PNG files in folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hashlearn.datasets._types import ImageSet
from hashlearn.datasets.cifar10 import cifar10_images
from hashlearn.datasets.mnist import mnist_images
from hashlearn.progress import progress_bar

__all__ = ["IMAGE_SETS", "write_pictures"]

#: Data sets that consist of images.
IMAGE_SETS: dict[str, Callable[..., ImageSet]] = {"mnist": mnist_images, "cifar10": cifar10_images}


def write_pictures(images: ImageSet, folder: str | os.PathLike[str], *, show_progress: bool | None = None) -> int:
    """Write ``train/CLASS/NUMBER.png`` and ``test/CLASS/NUMBER.png`` below a folder.

    The number in a name is the image's row. Existing files are kept, so an interrupted call can be repeated.

    Parameters
    ----------
    images : ImageSet
    folder : path-like
        Created if it does not exist.
    show_progress : bool, optional
        Default: show a progress bar on a terminal only.

    Returns
    -------
    int
        The number of images, including those whose files existed.
    """
    from PIL import Image

    parts = {"train": (images.train_images, images.train_labels), "test": (images.test_images, images.test_labels)}
    n = sum(len(pixels) for pixels, _ in parts.values())
    with progress_bar("writing", n, unit="pictures", show=show_progress) as advance:
        for part, (pixels, labels) in parts.items():
            for row, (image, label) in enumerate(zip(pixels, labels, strict=True)):
                path = Path(folder) / part / images.class_names[label] / f"{row:05}.png"
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    # Renamed when complete, but not flushed to the disk one by one, which would take minutes.
                    temporary = path.with_suffix(".part")
                    Image.fromarray(image).save(temporary, "PNG")
                    os.replace(temporary, path)
                advance(1)
    return n
