"""Files of pictures to read."""

from __future__ import annotations

import numpy as np
import pytest
from made_pictures import COLOR, SIDE

from hashlearn.features import GistExtractor, read_image


@pytest.fixture
def read(tmp_path):
    """Bytes to pixels."""

    def read(content: bytes, features: GistExtractor = COLOR) -> np.ndarray:
        path = tmp_path / "picture.jpg"
        path.write_bytes(content)
        pixels = read_image(path, features)
        assert pixels.dtype == np.uint8
        assert pixels.shape == (SIDE, SIDE, 3)[: 3 if features.color else 2]
        assert pixels.flags.c_contiguous
        return pixels

    return read
