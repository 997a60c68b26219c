"""One picture file: every kind that is read, how it is resized, and what that costs."""

from __future__ import annotations

import importlib
import io
import struct
from contextlib import contextmanager

import numpy as np
import pytest
from made_pictures import BILINEAR, COLOR, GRAY, SIDE, differ, encoded, exif, picture, pixels_of, png
from PIL import Image, ImageChops

from hashlearn.features import GistExtractor, read_image, read_thumbnail
from hashlearn.memory import forget_peak, peak_memory

module = importlib.import_module("hashlearn.features._picture")

# --- what is read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
@pytest.mark.parametrize("size", [(SIDE, SIDE), (100, 60), (7, 9)], ids=str)
def test_lossless_formats(read, form, size):
    image = picture(*size)
    options = {"lossless": True} if form == "WEBP" else {}
    got = read(encoded(image, form, **options))
    assert differ(got, pixels_of(image)) <= 1
    if size == (SIDE, SIDE):
        np.testing.assert_array_equal(got, np.asarray(image), "at its own size a picture is left as it is")


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
@pytest.mark.parametrize("size", [(SIDE, SIDE), (100, 60), (1001, 707)], ids=str)
def test_jpeg(read, size, options):
    content = encoded(picture(*size), "JPEG", quality=95, **options)
    with Image.open(io.BytesIO(content)) as image:
        assert differ(read(content), pixels_of(image)) <= 4
        assert differ(read(content, GRAY), np.asarray(image.convert("L").resize((SIDE, SIDE), BILINEAR))) <= 3


def test_color_keeps_the_channels_and_gray_is_luma(read):
    image = picture()
    np.testing.assert_array_equal(read(encoded(image, "PNG"), GRAY), np.asarray(image.convert("L")))
    gray = image.convert("L")
    np.testing.assert_array_equal(read(encoded(gray, "PNG")), np.asarray(gray.convert("RGB")))
    np.testing.assert_array_equal(read(encoded(gray, "PNG"), GRAY), np.asarray(gray))


def test_the_whole_picture_is_squeezed_into_the_square(read):
    halves = np.zeros((40, 400), dtype=np.uint8)
    halves[:, 200:] = 200
    got = read(encoded(Image.fromarray(halves), "PNG"), GRAY)
    assert (got[:, :15] == 0).all()
    assert (got[:, 17:] == 200).all()


def test_pixels_are_means_of_what_they_cover(read):
    checks = np.indices((640, 640)).sum(axis=0) % 2 * 255
    got = read(encoded(Image.fromarray(checks.astype(np.uint8)), "PNG"), GRAY)
    assert (np.abs(got.astype(int) - 127) <= 1).all()


def test_one_bit(read):
    image = picture(64, 64).convert("1")
    want = np.asarray(image.convert("L").resize((SIDE, SIDE), BILINEAR))
    assert len(np.unique(want)) > 2
    np.testing.assert_array_equal(read(encoded(image, "PNG"), GRAY), want)


def test_palette(read):
    image = picture(64, 64).quantize(50)
    assert differ(read(encoded(image, "PNG")), pixels_of(image)) <= 1
    assert differ(read(encoded(image, "GIF")), pixels_of(image)) <= 1


@pytest.mark.parametrize("transparency", [3, bytes(range(0, 250, 5))], ids=["one color", "each color"])
def test_palette_with_transparency(read, transparency):
    image = picture(64, 64).quantize(50)
    content = encoded(image, "PNG", transparency=transparency)
    with Image.open(io.BytesIO(content)) as stored:
        assert stored.mode == "P"
        want = on_white(stored)
    assert differ(want, pixels_of(image)) > 30  # it does show
    assert differ(read(content), want) <= 2


def on_white(image: Image.Image) -> np.ndarray:
    rgba = image.convert("RGBA")
    return pixels_of(Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_transparent_is_white(read, mode, form):
    image = picture(90, 64).convert(mode)
    image.putalpha(picture(90, 64).getchannel("G").point(lambda value: 0 if value < 80 else value))
    content = encoded(image, form)
    assert differ(read(content), on_white(image)) <= 2
    assert differ(read(content, GRAY), on_white(image.convert("LA"))[..., 0]) <= 2
    image.putalpha(0)
    assert (read(encoded(image, form)) == 255).all()
    image.putalpha(255)
    assert differ(read(encoded(image, form)), pixels_of(image)) <= 1


def test_an_opaque_alpha_changes_nothing(read):
    image = picture()
    np.testing.assert_array_equal(read(encoded(image.convert("RGBA"), "PNG")), np.asarray(image))


def test_one_transparent_color_of_an_rgb_png(read):
    image = Image.new("RGB", (SIDE, SIDE), (10, 20, 30))
    image.paste((200, 0, 0), (0, 0, 16, SIDE))
    got = read(encoded(image, "PNG", transparency=(10, 20, 30)))
    np.testing.assert_array_equal(got[0, 0], (200, 0, 0))
    np.testing.assert_array_equal(got[0, -1], (255, 255, 255))


def inks() -> Image.Image:
    red, green, blue = picture(64, 64).split()
    return Image.merge("CMYK", (red, green, blue, red.point(lambda value: value // 3)))


def test_cmyk_of_tiff_and_inverted_cmyk_of_adobes_jpeg(read):
    assert differ(read(encoded(inks(), "TIFF")), pixels_of(inks())) <= 1
    content = encoded(inks(), "JPEG", quality=95)
    assert b"Adobe" in content
    assert differ(read(content), pixels_of(inks())) <= 8


def test_cmyk_jpeg_without_adobes_marker_is_not_inverted(read):
    content = encoded(ImageChops.invert(inks()), "JPEG", quality=95)  # Pillow inverts once more
    start = content.index(b"\xff\xee")
    (length,) = struct.unpack(">H", content[start + 2 : start + 4])
    content = content[:start] + content[start + 2 + length :]
    assert b"Adobe" not in content
    assert differ(read(content), pixels_of(inks())) <= 8


def ramp(low: float, high: float) -> np.ndarray:
    return np.linspace(low, high, SIDE * SIDE).reshape(SIDE, SIDE)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize(("low", "high"), [(0, 65535), (100, 4095), (40_000, 40_255)])
def test_gray_of_16_bits_is_stretched(read, form, low, high):
    values = np.rint(ramp(low, high)).astype(np.uint16)
    if form == "PPM":
        content = b"P5 %d %d 65535\n" % values.shape + values.astype(">u2").tobytes()
    else:
        content = encoded(Image.fromarray(values), form)
    got = read(content, GRAY)
    want = (values.astype(float) - low) * (255 / (high - low))
    assert np.abs(got - want).max() <= 0.51


def test_big_endian_tiff_and_floats(read):
    values = np.rint(ramp(500, 9000)).astype(np.uint16)
    head = struct.pack(">2sHI", b"MM", 42, 8)
    tags = [(256, 3, SIDE), (257, 3, SIDE), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, 200), (278, 3, SIDE)]
    tags.append((279, 4, values.nbytes))
    rows = [
        struct.pack(">HHI", tag, kind, 1) + struct.pack(">HH" if kind == 3 else ">I", *([v, 0][: 5 - kind]))
        for tag, kind, v in tags
    ]
    content = (head + struct.pack(">H", len(rows)) + b"".join(rows)).ljust(200, b"\0") + values.astype(">u2").tobytes()
    got = read(content, GRAY)
    assert np.abs(got - (values - 500.0) * (255 / 8500)).max() <= 0.51
    floats = ramp(-1e30, 1e30).astype(np.float32)
    got = read(encoded(Image.fromarray(floats), "TIFF"), GRAY)
    assert (np.diff(got.ravel().astype(int)) >= 0).all()
    assert (got.min(), got.max()) == (0, 255)
    flat = read(encoded(Image.fromarray(np.full((9, 9), 7000, dtype=np.uint16)), "PNG"))
    assert not flat.any()


def test_color_of_16_bits(read):
    values = np.asarray(picture()).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    np.testing.assert_array_equal(read(png(SIDE, SIDE, 16, 2, rows)), np.asarray(picture()))


@pytest.mark.parametrize(("form", "options"), [("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {})])
def test_of_several_frames_the_first(read, form, options):
    first, second = Image.new("RGB", (40, 30), (250, 0, 0)), Image.new("RGB", (40, 30), (0, 0, 250))
    content = encoded(first, form, save_all=True, append_images=[second], **options)
    with Image.open(io.BytesIO(content)) as stored:
        assert stored.n_frames == 2
    assert (read(content) == (250, 0, 0)).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 4000), (2, 2)], ids=str)
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_tiny_and_long_pictures(read, form, size):
    content = encoded(picture(*size), form)
    got = read(content)
    with Image.open(io.BytesIO(content)) as image:
        assert differ(got, pixels_of(image)) <= 2
    assert GistExtractor(side=SIDE).describe(got[None]).shape == (1, 512)


def test_a_line_of_pixels_takes_little_memory(tmp_path):
    path = tmp_path / "line.png"
    Image.new("L", (1, 4_000_000), 77).save(path)
    read_image(path, COLOR)
    if not forget_peak():
        pytest.skip("the system can't count the peak of memory anew")
    before = peak_memory()
    assert (read_image(path, COLOR) == 77).all()
    assert peak_memory() - before < 60e6  # a pass at full height would take 32 × 4,000,000 bytes


TURNS = [  # of orientations 2 to 8
    Image.Transpose.FLIP_LEFT_RIGHT,
    Image.Transpose.ROTATE_180,
    Image.Transpose.FLIP_TOP_BOTTOM,
    Image.Transpose.TRANSPOSE,
    Image.Transpose.ROTATE_270,
    Image.Transpose.TRANSVERSE,
    Image.Transpose.ROTATE_90,
]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_exif_orientation(read, form, orientation):
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}.get(form, {})
    got = read(encoded(picture(), form, exif=exif(orientation), **options))
    stored = Image.fromarray(read(encoded(picture(), form, **options)))
    upright = stored if orientation == 1 else stored.transpose(TURNS[orientation - 2])
    np.testing.assert_array_equal(got, np.asarray(upright))
    assert orientation == 1 or differ(got, np.asarray(stored)) > 50


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_upright(read, orientation):
    np.testing.assert_array_equal(read(encoded(picture(), "PNG", exif=exif(orientation))), np.asarray(picture()))


# --- cost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("features", "mode"), [(COLOR, "RGB"), (GRAY, "L")])
def test_a_large_jpeg_is_decoded_small(read, monkeypatch, features, mode):
    seen = []
    original = module._shrink
    monkeypatch.setattr(
        module, "_shrink", lambda image, *a: (seen.append((image.size, image.mode)), original(image, *a))[1]
    )
    read(encoded(picture(640, 512), "JPEG"), features)
    read(encoded(picture(640, 120), "JPEG"), features)
    read(encoded(picture(640, 512), "PNG"), COLOR)
    assert seen == [((80, 64), mode), ((640, 120), mode), ((640, 512), "RGB")]


def test_a_partial_last_block_does_not_shift_the_picture(read):
    """553 pixels at an eighth are 69.1, not 70."""
    columns = np.zeros((553, 553), dtype=np.uint8)
    columns[:, 276:] = 255
    content = encoded(Image.fromarray(columns), "JPEG", quality=95)
    want = np.asarray(Image.fromarray(columns).resize((SIDE, SIDE), BILINEAR))
    assert differ(read(content, GRAY), want) <= 12


@pytest.mark.parametrize(
    ("form", "options", "alone"), [("PNG", {}, True), ("JPEG", {}, False), ("JPEG", {"progressive": True}, True)]
)
def test_large_pictures_are_decoded_one_at_a_time(read, monkeypatch, form, options, alone):
    entered = []

    @contextmanager
    def lock():
        entered.append(True)
        yield

    content = encoded(picture(300, 300), form, **options)
    monkeypatch.setattr(module, "_large", lock())
    monkeypatch.setattr(module, "_LARGE_PIXELS", 300 * 300 - 1)
    read(content)
    assert entered == [True] * alone
    monkeypatch.setattr(module, "_LARGE_PIXELS", 300 * 300)
    read(content)
    assert entered == [True] * alone


# --- to look at --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "shape"), [((100, 50), (20, 40)), ((50, 100), (40, 20)), ((3, 900), (40, 1)), ((8, 8), (40, 40))]
)
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
def test_a_thumbnail_keeps_its_shape(tmp_path, size, shape, form):
    path = tmp_path / f"x.{form.lower()}"
    path.write_bytes(encoded(picture(*size), form))
    got = read_thumbnail(path, 40)
    assert got.shape == (*shape, 3)
    assert got.dtype == np.uint8


def test_a_thumbnail_is_upright(tmp_path):
    (tmp_path / "x.jpg").write_bytes(encoded(picture(100, 50), "JPEG", exif=exif(6)))
    assert read_thumbnail(tmp_path / "x.jpg", 40).shape == (40, 20, 3)
