"""Broken picture files: some are read nevertheless, the others are refused in one line, and nothing else escapes."""

from __future__ import annotations

import importlib
import io
import os
import struct
import threading
import warnings
import zlib

import numpy as np
import pytest
from made_pictures import COLOR, SIDE, chunk, encoded, picture, png, reason
from PIL import Image, ImageFile, PngImagePlugin

from hashlearn.errors import ImageError
from hashlearn.features import read_image

module = importlib.import_module("hashlearn.features._picture")

# --- what is broken and read nevertheless ------------------------------------------------------------------


BROKEN_EXIF = [
    b"Exif\0\0",
    b"Exif\0\0nonsense",
    b"Exif\0\0II*\0\xff\xff\xff\x7f",
    b"Exif\0\0II*\0\x08\0\0\0\x09\0" + b"\x12\x01\x03\0",
    # The orientation is good; the tag after it promises a million bytes.
    b"Exif\0\0II*\0\x08\0\0\0\x02\0" + struct.pack("<HHIIHHII", 0x0112, 3, 1, 6, 0x0131, 2, 1_000_000, 60) + bytes(4),
]


@pytest.mark.parametrize("data", BROKEN_EXIF, ids=range(len(BROKEN_EXIF)))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_broken_exif(read, form, data):
    content = encoded(picture(), form, exif=data)
    want = encoded(picture(), form)
    got = read(content)
    if data is BROKEN_EXIF[-1]:
        np.testing.assert_array_equal(got, np.rot90(read(want), -1))
    else:
        np.testing.assert_array_equal(got, read(want))


def test_broken_icc_profiles(read):
    want = np.asarray(picture())
    np.testing.assert_array_equal(read(encoded(picture(), "PNG", icc_profile=b"no profile")), want)
    plain = encoded(picture(), "JPEG")
    torn = b"\xff\xe2" + struct.pack(">H", 2 + 14) + b"ICC_PROFILE\0\x09\x02"
    np.testing.assert_array_equal(read(plain[:2] + torn + plain[2:]), read(plain))
    rows = b"".join(b"\0" + row.tobytes() for row in want)
    got = read(png(SIDE, SIDE, 8, 2, rows, chunk(b"iCCP", b"name\0\0not compressed")))
    np.testing.assert_array_equal(got, want)


def test_warnings_stay_inside(read):
    """Pillow does warn of these; here nobody hears it, and nothing depends on what filters do with warnings."""
    exif = encoded(picture(), "JPEG", exif=BROKEN_EXIF[-1])
    frames = png(1, 1, 8, 0, b"\0\0", chunk(b"acTL", bytes(8)))
    for content in (exif, frames):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                image.getexif().get(0x0112)
        assert heard
        results = []
        for action in ("always", "error", "ignore"):
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter(action)
                results.append(read(content))
            assert not heard
        assert all(np.array_equal(results[0], other) for other in results)


# --- what is refused ---------------------------------------------------------------------------------------


def test_no_picture_inside(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"")
    assert reason(path) == "the file is empty (0 bytes)"
    for content in (
        b"x",
        b"These are words.\n" * 100,
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        bytes(999),
    ):
        path.write_bytes(content)
        assert reason(path).startswith("not a picture, or damaged at its beginning (the formats are JPEG, PNG,")


FORMS = {
    "jpeg": ("JPEG", {}),
    "progressive": ("JPEG", {"progressive": True}),
    "png": ("PNG", {}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {}),
    "tiff-lzw": ("TIFF", {"compression": "tiff_lzw"}),
    "tiff-jpeg": ("TIFF", {"compression": "jpeg"}),
    "ppm": ("PPM", {}),
    "webp": ("WEBP", {}),
}
NOISY = ("tiff-lzw", "tiff-jpeg")  # libtiff writes to stderr itself


@pytest.mark.parametrize("form", FORMS)
def test_truncated_files_are_refused(read, form, capfd):
    """Only what lies behind the last pixel may be missing."""
    name, options = FORMS[form]
    content = encoded(picture(70, 50), name, **options)
    whole = read(content)
    refused = 0
    for cut in sorted({*range(0, len(content), max(1, len(content) // 60)), *range(len(content) - 24, len(content))}):
        try:
            np.testing.assert_array_equal(read(content[:cut]), whole)
            assert len(content) - cut < 22
        except ImageError:
            refused += 1
    assert refused >= 60
    assert form in NOISY or capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", FORMS)
def test_damage_gives_a_picture_or_an_image_error(read, form, capfd, caplog):
    name, options = FORMS[form]
    content = encoded(picture(40, 30), name, **options)
    rng = np.random.default_rng(len(content))
    refused = 0
    for _ in range(80):
        damaged = bytearray(content)
        for place in rng.integers(0, min(len(content), rng.choice([60, 300, 10**6])), rng.integers(1, 6)):
            damaged[place] = rng.integers(256)
        try:
            read(bytes(damaged))
        except ImageError:
            refused += 1
    assert refused
    assert form in NOISY or capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize(("width", "height"), [(12_000, 12_000), (60_000, 60_000), (1, 2**28), (2**31 - 1, 2**31 - 1)])
def test_too_many_pixels_are_refused_from_the_header(tmp_path, monkeypatch, width, height):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("was decoded"))
    path = tmp_path / "bomb.png"
    path.write_bytes(png(width, height, 8, 2, bytes(100)))
    assert f"at most {module.MAX_PIXELS:,} are read" in reason(path)


def test_as_many_pixels_as_allowed(tmp_path, monkeypatch):
    """Pillow warns from 89 million on, and tests make errors of warnings."""
    path = tmp_path / "large.png"
    path.write_bytes(png(10_000, 10_000, 8, 2, bytes(100)))
    assert "truncated" in reason(path)
    path.write_bytes(encoded(picture(20, 10), "PNG"))
    monkeypatch.setattr(module, "MAX_PIXELS", 200)
    read_image(path, COLOR)
    monkeypatch.setattr(module, "MAX_PIXELS", 199)
    assert reason(path) == "20 × 10 pixels; at most 199 are read"


def test_a_large_picture_is_not_decoded_without_the_memory_for_it(tmp_path, monkeypatch):
    path = tmp_path / "large.png"
    path.write_bytes(encoded(picture(20, 10), "PNG"))
    monkeypatch.setattr(module, "_LARGE_PIXELS", 100)
    monkeypatch.setattr(module, "free_memory", lambda: 16 * 200 - 1)
    assert reason(path) == "20 × 10 pixels; there is not enough memory free to read them"
    for free in (16 * 200, 0):  # 0: the system does not tell
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        read_image(path, COLOR)


def test_too_many_bytes(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture(), "PNG"))
    size = path.stat().st_size
    monkeypatch.setattr(module, "MAX_BYTES", size)
    read_image(path, COLOR)
    monkeypatch.setattr(module, "MAX_BYTES", size - 1)
    assert reason(path) == f"the file has {size:,} bytes; at most {size - 1:,} are read"


def test_a_png_with_a_huge_text(tmp_path):
    path = tmp_path / "a.png"
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(PngImagePlugin.MAX_TEXT_CHUNK + 1)))
    path.write_bytes(png(1, 1, 8, 0, b"\0\0", text))
    assert "too large" in reason(path).lower()
    path.write_bytes(png(1, 1, 8, 0, b"\0\0", chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(9)))))
    read_image(path, COLOR)


def test_pixels_that_are_no_numbers(tmp_path):
    values = np.ones((8, 8), dtype=np.float32)
    path = tmp_path / "a.tif"
    for bad in (np.nan, np.inf):
        values[3, 3] = bad
        Image.fromarray(values).save(path)
        assert reason(path) == "the pixels must be finite; found NaN or infinity"


def test_a_tiff_that_pillow_logs_as_an_error(tmp_path, caplog):
    content = bytearray(encoded(picture(), "TIFF"))
    at = content.index(struct.pack("<HHI", 277, 3, 1)) + 8  # samples a pixel
    content[at : at + 2] = struct.pack("<H", 4097)
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    with pytest.raises(OSError, match="cannot identify"):
        Image.open(path)
    assert caplog.records
    caplog.clear()
    reason(path)
    assert not caplog.records


def test_folders_pipes_and_what_is_not_there(tmp_path, monkeypatch):
    folder, pipe = tmp_path / "folder.jpg", tmp_path / "pipe.jpg"
    folder.mkdir()
    os.mkfifo(pipe)
    assert reason(folder) == "a file is needed; it is a folder"
    assert reason(tmp_path / "gone.jpg") == "No such file or directory"
    assert "null" in reason(f"{tmp_path}/a\0b.jpg")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    assert "symbolic links" in reason(tmp_path / "loop.jpg")

    def pipes():
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "open", lambda *a: pytest.fail("opening a device can do things"))
            assert reason(pipe) == "a regular file is needed; it is a pipe, socket or device"
        (tmp_path / "regular.jpg").write_bytes(b"x")
        regular = os.stat(tmp_path / "regular.jpg")
        # It became a pipe after it was looked at.
        monkeypatch.setattr(module.os, "stat", lambda path: regular)
        before = len(os.listdir("/dev/fd"))
        assert reason(pipe) == "a regular file is needed; it is a pipe, socket or device"
        assert len(os.listdir("/dev/fd")) == before
        answers.append("both refused")

    answers: list[str] = []
    thread = threading.Thread(target=pipes, daemon=True)
    thread.start()
    thread.join(20)
    assert answers == ["both refused"], "reading a pipe waits for ever"


def test_no_permission(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture(), "PNG"))
    read_image(path, COLOR)  # whatever Pillow imports, it imports now
    path.chmod(0)
    was_root = os.geteuid() == 0
    if was_root:  # who may read everything
        os.seteuid(65534)
    try:
        assert reason(path) == "Permission denied"
    finally:
        if was_root:
            os.seteuid(0)


def test_line_breaks_in_names_stay_out_of_messages(tmp_path):
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "two\nlines.jpg", COLOR)
    assert str(caught.value).endswith("two lines.jpg: No such file or directory")


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_memory_and_interrupts_are_passed_on(tmp_path, monkeypatch, error):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture(), "PNG"))

    def fail(*args):
        raise error

    for owner, name in ((ImageFile.ImageFile, "load"), (PngImagePlugin.PngImageFile, "getexif")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(error):
                read_image(path, COLOR)


@pytest.mark.parametrize(
    "error", [RecursionError, ZeroDivisionError, AssertionError, struct.error, SystemError, Warning]
)
def test_whatever_pillow_raises_is_an_image_error(tmp_path, monkeypatch, error):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture(), "PNG"))

    def fail(self):
        raise error("two\nlines")

    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    assert reason(path) == f"damaged ({error.__name__}: two lines)"


def test_files_are_closed(tmp_path):
    good, bad = tmp_path / "a.tif", tmp_path / "b.tif"
    good.write_bytes(encoded(picture(), "TIFF", compression="tiff_lzw"))
    bad.write_bytes(good.read_bytes()[:2000])
    read_image(good, COLOR)
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        read_image(good, COLOR)
        reason(bad)
        reason(tmp_path)
    assert len(os.listdir("/dev/fd")) == before
