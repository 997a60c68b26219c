"""GIST against the slow float64 version, and against what the definition promises."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hashlearn.features import GIST_320, GIST_512, gist
from reference import gist as slow

module = importlib.import_module("hashlearn.features.gist")  # its name is shadowed by the function's
matrix_module = importlib.import_module("hashlearn.features._gist_matrix")
PATHS = ("matrix", "fft")


def describe(images, orientations=GIST_320, path="fft"):
    return module._describe(np.asarray(images), orientations, path, lambda amount: None)


def pictures(H: int, W: int) -> np.ndarray:
    """Noise, a smooth blob, an edge, a ramp, a random walk, a diagonal line, one bright pixel."""
    rng = np.random.default_rng(H * 100 + W)
    y, x = np.mgrid[:H, :W]
    dot = np.zeros((H, W))
    dot[H // 2, W // 3] = 1
    blob = np.exp(-((y - 0.4 * H) ** 2 + (x - 0.6 * W) ** 2) / (0.2 * H * H))
    walk = rng.standard_normal((H, W)).cumsum(axis=0).cumsum(axis=1)
    return np.stack([rng.random((H, W)), blob, x + 2 * y > W, x, walk, np.eye(H, W), dot])


def errors(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """Largest difference by the descriptor's norm, and of a feature by the descriptor's largest feature.

    A feature that is zero in exact arithmetic (a ramp's, across the ramp) has no relative error of its own.
    """
    difference = np.abs(got - want)
    by_norm = np.linalg.norm(difference, axis=1) / np.linalg.norm(want, axis=1)
    return float(by_norm.max()), float((difference.max(axis=1) / want.max(axis=1)).max())


def grid(descriptors: np.ndarray) -> np.ndarray:
    """(n, filters, grid row, grid column)."""
    return descriptors.reshape(len(descriptors), -1, 4, 4).swapaxes(2, 3)


# --- agreement ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("orientations", [GIST_320, GIST_512, (1,), (3, 2)], ids=str)
@pytest.mark.parametrize("shape", [(4, 4), (5, 7), (7, 5), (9, 9), (16, 16), (12, 21)], ids=str)
def test_agrees_with_the_slow_version(path, orientations, shape):
    images = pictures(*shape)
    got = describe(images, orientations, path)
    assert got.shape == (len(images), 16 * sum(orientations))
    assert max(errors(got, slow.gist_reference(images, orientations))) < 1e-5


@pytest.mark.data
@pytest.mark.parametrize("path", PATHS)
def test_every_feature_of_a_photograph_agrees(path):
    """1e-4 of each feature, however small beside the others, on genuine CIFAR-10 images."""
    from hashlearn.datasets import cifar10_images
    from hashlearn.errors import DatasetError

    try:
        images = cifar10_images().test_images[:60]
    except DatasetError as error:
        pytest.skip(f"CIFAR-10 can't be had: {error}")
    for orientations in (GIST_320, GIST_512):
        want = slow.gist_reference(images, orientations)
        np.testing.assert_allclose(describe(images, orientations, path), want, rtol=1e-4)


@pytest.mark.parametrize("path", PATHS)
def test_faint_marks_on_a_bright_plateau_are_not_lost(path):
    """Where log(1 + x) is large and its differences tiny, p − lowpass(p) must not cancel."""
    image = np.full((1, 32, 32), 250, dtype=np.uint8)
    image[0, 0, 0] = 0
    image[0, 5:8, 20:30] = 249
    want = slow.gist_reference(image)
    np.testing.assert_allclose(describe(image, path=path), want, rtol=1e-3)
    assert max(errors(describe(image, path=path), want)) < 1e-6


def test_the_numbers_are_pinned():
    """A change of the definition, in the fast version and the slow one alike, would change these."""
    y, x = np.mgrid[:32, :32]
    image = (128 + 100 * np.sin(x / 3) * np.cos(y / 5)).astype(np.uint8)[None]
    got = gist(image)[0, [0, 5, 17, 130, 200, 319]]
    np.testing.assert_allclose(got, [0.0345993, 0.0103164, 0.059735, 0.101054, 0.0101156, 0.116012], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("orientations", [GIST_320, GIST_512], ids=str)
def test_agrees_on_digits_and_color_at_32(path, orientations):
    digits = load_digits().images[:8]
    large = np.kron(digits, np.ones((4, 4)))
    color = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    for images in (large, color, pictures(32, 32)):
        want = slow.gist_reference(images, orientations)
        assert max(errors(describe(images, orientations, path), want)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(64, 64), (70, 45), (150, 131)], ids=str)
def test_larger_images(shape):
    images = pictures(*shape)
    assert max(errors(gist(images), slow.gist_reference(images))) < 1e-5


def test_truncation_saves_and_costs_nothing_visible(monkeypatch):
    finest, *coarser = matrix_module._matrices(16, 16, GIST_320)
    assert finest.bases == (None, None)
    for V in (V for scale in coarser for V in scale.bases):
        assert V.shape[1] < 0.9 * V.shape[0]
        np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-5)
    images = pictures(16, 16)
    exact = errors(describe(images, path="matrix"), slow.gist_reference(images))
    monkeypatch.setattr(matrix_module, "RANK_TOLERANCE", 0.1)
    matrix_module._matrices.cache_clear()
    coarse = errors(describe(images, path="matrix"), slow.gist_reference(images))
    matrix_module._matrices.cache_clear()
    assert max(exact) < 1e-5 < max(coarse)


# --- what defines it ---------------------------------------------------------------------------------------


def test_dtype_shape_and_constants():
    images = pictures(8, 10)
    for orientations, size in ((GIST_320, 320), (GIST_512, 512), ([2, 1], 48), (np.array([4, 4]), 128)):
        got = gist(images, orientations)
        assert got.dtype == np.float32
        assert got.shape == (len(images), size)
    assert (GIST_320, GIST_512) == ((8, 8, 4), (8, 8, 8, 8))


@pytest.mark.parametrize("path", PATHS)
def test_intensity_scale_and_offset_do_not_matter(path):
    images = pictures(12, 12)
    want = describe(images, path=path)
    for moved in (images * 1e-200, 1e250 * images, 3 * images - 7):
        assert max(errors(describe(moved, path=path), want)) < 1e-5
    # Stretched values pass through a logarithm, so turning dark into bright is not a mere sign.
    assert errors(describe(-images, path=path), want)[0] > 1e-2


def test_gray_is_the_mean_of_the_channels():
    gray = pictures(12, 14)
    np.testing.assert_allclose(gist(np.repeat(gray[..., None], 3, axis=3)), gist(gray), atol=1e-6)
    np.testing.assert_array_equal(gist(gray[..., None]), gist(gray))
    color = np.random.default_rng(1).integers(0, 256, (3, 12, 14, 3), dtype=np.uint8)
    np.testing.assert_allclose(gist(color), gist(color.mean(axis=3)), atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_constant_images_are_zeros_and_leave_others_alone(path):
    images = pictures(8, 8)
    images[2] = 17.3
    got = describe(images, path=path)
    assert not got[2].any()
    np.testing.assert_allclose(got[[0, 1, 3]], describe(images[[0, 1, 3]], path=path), atol=1e-6)


@pytest.mark.parametrize("scale", [0, 1])
@pytest.mark.parametrize("j", range(8))
def test_a_grating_answers_in_its_own_orientation_and_scale(scale, j):
    """Filter j is centered on the frequency of direction −πj/8 (y downwards): 0 is a vertical grating."""
    y, x = np.mgrid[:64, :64]
    f0 = 0.3 / 1.85**scale
    grating = np.cos(2 * np.pi * f0 * (np.cos(np.pi * j / 8) * x - np.sin(np.pi * j / 8) * y))
    energy = gist(grating[None], (8, 8, 8))[0].reshape(3, 8, 16).mean(axis=2)
    assert np.unravel_index(energy.argmax(), energy.shape) == (scale, j)


@pytest.mark.parametrize("path", PATHS)
def test_cells_are_in_column_major_order(path):
    noise = np.random.default_rng(2).random((32, 32))
    image = np.zeros((16, 32, 32))
    for cell in range(16):
        rows, columns = slice(8 * (cell % 4), 8 * (cell % 4) + 8), slice(8 * (cell // 4), 8 * (cell // 4) + 8)
        image[cell, rows, columns] = noise[rows, columns]
    finest = describe(image, path=path).reshape(16, 20, 16)[:, :8].sum(axis=1)
    np.testing.assert_array_equal(finest.argmax(axis=1), np.arange(16))


def test_grid_bounds_of_sizes_that_four_does_not_divide():
    means = module.grid_means(7)  # quarters begin at 0, 1.75, 3.5, 5.25, rounded down
    np.testing.assert_array_equal(means > 0, np.repeat(np.eye(4), (1, 2, 2, 2), axis=1) > 0)
    np.testing.assert_allclose(means.sum(axis=1), 1)


@pytest.mark.parametrize("path", PATHS)
def test_a_half_turn_turns_the_grid(path):
    images = pictures(16, 16)
    turned = grid(describe(images[:, ::-1, ::-1], path=path))
    np.testing.assert_allclose(turned, grid(describe(images, path=path))[:, :, ::-1, ::-1], atol=2e-6)


def test_a_quarter_turn_turns_the_grid_and_the_orientations():
    """Up to a few per cent: the zero and the Nyquist frequency have no direction, but a filter gives them one."""
    images = pictures(32, 32)
    images = images[[0, 1, 2, 4]]
    before, after = grid(gist(images, (8, 8))), grid(gist(np.rot90(images, axes=(1, 2)), (8, 8)))
    for scale in (slice(0, 8), slice(8, 16)):
        want = np.roll(np.rot90(before[:, scale], axes=(2, 3)), 4, axis=1)
        assert np.abs(after[:, scale] - want).max() < 0.03 * want.max()
        assert np.abs(after[:, scale] - before[:, scale]).max() > 0.3 * want.max()


# --- batches, layouts, sequences ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_blocks_do_not_change_the_result(path, monkeypatch):
    images = np.random.default_rng(3).integers(0, 256, (2 * matrix_module.BLOCK + 3, 8, 8), dtype=np.uint8)
    whole = describe(images, path=path)
    parts = [describe(images[start : start + 50], path=path) for start in range(0, len(images), 50)]
    np.testing.assert_allclose(whole, np.concatenate(parts), atol=1e-6)
    monkeypatch.setattr(module, "_FFT_BLOCK_BYTES", 1)
    np.testing.assert_allclose(whole[:20], describe(images[:20], path=path), atol=1e-6)


def test_memory_layout_does_not_matter_and_the_input_is_left_alone():
    images = np.random.default_rng(4).random((5, 8, 9, 3))
    images.flags.writeable = False
    want = gist(images)
    np.testing.assert_array_equal(gist(np.asfortranarray(images)), want)
    np.testing.assert_array_equal(gist(np.repeat(images, 2, axis=0)[::2]), want)
    np.testing.assert_array_equal(gist(images.astype(">f8")), want)
    np.testing.assert_allclose(gist(images.astype(np.float32)), want, atol=1e-5)
    flipped = np.ascontiguousarray(images.transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(gist(flipped.transpose(0, 2, 1, 3)), want)


def test_a_list_of_mixed_sizes_keeps_its_order():
    rng = np.random.default_rng(5)
    shapes = [(8, 8), (5, 9, 3), (8, 8), (12, 6, 1), (5, 9, 3), (8, 8, 3)]
    images = [rng.random(shape) for shape in shapes]
    images[2] = (images[2] * 255).astype(np.uint8)
    got = gist(images)
    assert got.shape == (6, 320)
    for i, image in enumerate(images):
        np.testing.assert_allclose(got[i], gist(image[None])[0], atol=1e-6)
    np.testing.assert_array_equal(gist(tuple(images)), got)


def test_no_images():
    assert gist(np.empty((0, 8, 8))).shape == (0, 320)
    assert gist([]).shape == (0, 320)


# --- the choice of path ------------------------------------------------------------------------------------


def test_the_rule_weighs_build_against_batch_and_memory():
    assert module._choose_path(1, 32, 32, GIST_320) == "fft"
    assert module._choose_path(60_000, 32, 32, GIST_320) == "matrix"
    assert module._choose_path(60_000, 28, 28, GIST_512) == "matrix"
    assert module._choose_path(10**9, 256, 256, GIST_320) == "fft"


@pytest.mark.slow
@pytest.mark.parametrize("orientations", [GIST_320, GIST_512, (1, 8), (4, 4, 4)], ids=str)
def test_estimates_of_bytes_are_near_the_truth(orientations):
    scales = matrix_module._matrices(20, 20, orientations)
    held = sum(T.nbytes for scale in scales for pair in scale.filters for T in pair)
    assert 0.6 < matrix_module.matrix_costs(20, 20, orientations)[0] / held < 1.2


@pytest.mark.parametrize("path", PATHS)
def test_gist_takes_the_chosen_path(path, monkeypatch):
    taken = []
    for name in ("matrix_path", "_fft_path"):
        original = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, name=name, original=original: (taken.append(name), original(*a))[1]
        )
    monkeypatch.setattr(module, "_choose_path", lambda *arguments: path)
    gist(pictures(8, 8))
    assert taken == [{"matrix": "matrix_path", "fft": "_fft_path"}[path]]


# --- the door ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((8, 8)), r"\(n, H, W\).*got an array of shape \(8, 8\)"),
        (np.zeros((2, 8, 8, 2)), r"\(H, W, 3\); got \(8, 8, 2\)"),
        (np.zeros((2, 8, 8, 4)), r"\(H, W, 3\); got \(8, 8, 4\)"),
        (np.zeros((8, 8, 3)), "at least 4×4 pixels.*got 8×3"),
        (np.zeros((2, 3, 9)), "at least 4×4 pixels.*got 3×9"),
        (np.zeros((2, 8, 8), dtype=np.int64), "uint8 or float.*got int64"),
        (np.zeros((2, 8, 8), dtype=complex), "uint8 or float.*got complex128"),
        (np.zeros((2, 8, 8), dtype=bool), "uint8 or float.*got bool"),
        ([np.zeros((8, 8)), np.zeros(8)], r"image 1 must be \(H, W\).*got \(8,\)"),
        ([np.zeros((8, 8)), np.zeros((8, 2))], "image 1 must be at least 4×4.*got 8×2"),
        ([np.zeros((8, 8)), np.zeros((8, 8), dtype=np.int32)], "image 1 must be of type uint8.*got int32"),
        ("picture.png", "sequence of single images; got str"),
        (None, "sequence of single images; got NoneType"),
    ],
    ids=range(13),
)
def test_bad_images(images, message):
    with pytest.raises(ValueError, match=message) as caught:
        gist(images)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e305])
def test_values_that_are_not_finite_name_the_image(value):
    images = np.zeros((5, 8, 8, 3))
    images[3, 2, 1, 0] = value
    with pytest.raises(ValueError, match=r"finite.*image 3 has"):
        gist(images)
    with pytest.raises(ValueError, match=r"finite.*image 4 has"):
        gist([np.zeros((6, 6)), *images])


@pytest.mark.parametrize("orientations", [(), (8, 0), (8, -1), (8.0, 4), 8, "88", None])
def test_bad_orientations(orientations):
    with pytest.raises(ValueError, match=r"orientations must be one or more positive integers.*got"):
        gist(np.zeros((1, 8, 8)), orientations)


# --- cache, progress, imports ------------------------------------------------------------------------------


def test_cache_is_used_and_keyed_by_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    calls = []
    original = module._describe
    monkeypatch.setattr(module, "_describe", lambda *a: (calls.append(a[1]), original(*a))[1])
    images = pictures(8, 8)
    want = gist(images)
    assert not list(tmp_path.rglob("*"))
    for _ in range(2):
        got = gist(images, cache=True)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.float32
    assert len(calls) == 2  # without the cache, and the first time with it
    gist(images, (8, 8), cache=True)
    gist(images + np.eye(8), cache=True)
    assert len(calls) == 4
    monkeypatch.setattr(module, "_VERSION", module._VERSION + 1)
    gist(images, cache=True)
    assert len(calls) == 5


def test_cache_of_a_list_knows_its_order(tmp_path, monkeypatch):
    monkeypatch.setenv("HASHLEARN_CACHE", str(tmp_path))
    a, b, c = np.random.default_rng(6).random((8, 8)), np.eye(9), np.tri(8)
    for images in ([a, b, c], [a, c, b], [b, a, c], [c, a, b]):
        np.testing.assert_array_equal(gist(images, cache=True), gist(images))
    assert len(list(tmp_path.rglob("*.npy"))) == 4


def test_progress_is_shown_on_request(capsys):
    gist(pictures(8, 8), show_progress=False)
    assert capsys.readouterr().err == ""
    gist(pictures(8, 8), show_progress=True)
    assert "GIST" in capsys.readouterr().err


def test_import_is_light():
    code = "import sys, hashlearn.features; print(sorted({'scipy', 'sklearn', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
