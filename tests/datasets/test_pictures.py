"""A data set's images as PNG files."""

import numpy as np
import pytest
from PIL import Image

from hashlearn.datasets import ImageSet
from hashlearn.datasets.pictures import IMAGE_SETS, write_pictures


@pytest.fixture(params=[(), (3,)], ids=["gray", "color"])
def images(request):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (7, 5, 6, *request.param), dtype=np.uint8)
    return ImageSet(pixels[:4], np.array([0, 1, 1, 0]), pixels[4:], np.array([1, 0, 0]), class_names=("cat", "dog"))


def test_files_hold_the_images(images, tmp_path):
    assert write_pictures(images, tmp_path) == 7
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert files == [
        *("test/cat/00001.png", "test/cat/00002.png", "test/dog/00000.png"),
        *("train/cat/00000.png", "train/cat/00003.png", "train/dog/00001.png", "train/dog/00002.png"),
    ]
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "train/cat/00003.png")), images.train_images[3])
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "test/dog/00000.png")), images.test_images[0])


def test_what_is_there_is_left(images, tmp_path):
    write_pictures(images, tmp_path)
    (tmp_path / "train/cat/00003.png").write_text("mine")
    (tmp_path / "train/cat/00000.png").unlink()
    assert write_pictures(images, tmp_path) == 7
    assert (tmp_path / "train/cat/00003.png").read_text() == "mine"
    assert (tmp_path / "train/cat/00000.png").exists()


def test_names_are_those_of_data_sets():
    from hashlearn.datasets import DATASETS

    assert set(IMAGE_SETS) <= set(DATASETS)
