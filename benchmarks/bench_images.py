"""Folders of pictures to GIST vectors: a plain loop against `hashlearn.features.image_vectors`.

    python benchmarks/bench_images.py [--json FILE]

CIFAR-10's test images as PNGs, at 32×32 (320-D) and at the default size, and JPEGs of 2 megapixels (crops of
scikit-learn's two sample photographs, enlarged). The plain loop opens, decodes and resizes one picture after the
other at full size, and describes them in one batch. "Reading" is without GIST.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import machine
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from hashlearn.datasets import cifar10_images
from hashlearn.features import GIST_320, GistExtractor, find_images, image_vectors, read_image

N_PNGS, N_JPEGS = 2_000, 100
JPEG_SIZE = (1632, 1224)


def write_pngs(folder: Path) -> None:
    for i, image in enumerate(cifar10_images().test_images[:N_PNGS]):
        Image.fromarray(image).save(folder / f"{i:05}.png")


def write_jpegs(folder: Path) -> None:
    photographs = [Image.fromarray(photograph) for photograph in load_sample_images().images]
    rng = np.random.default_rng(0)
    for i in range(N_JPEGS):
        photograph = photographs[i % len(photographs)]
        x, y = rng.integers(0, 100, 2)
        crop = photograph.crop((x, y, x + 500, y + 320))
        crop.resize(JPEG_SIZE, Image.Resampling.BICUBIC).save(folder / f"{i:05}.jpg", quality=90)


def plain_read(path: Path, features: GistExtractor) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((features.side, features.side), Image.Resampling.BILINEAR))


def measure(folder: Path, features: GistExtractor) -> dict[str, float]:
    """Pictures a second."""
    paths = find_images(folder)
    read_image(folder / paths[0], features)
    features.describe(np.zeros((len(paths), features.side, features.side, 3), dtype=np.uint8))  # warm
    work = {
        "plain loop": lambda: features.describe(np.stack([plain_read(folder / path, features) for path in paths])),
        "image_vectors": lambda: list(image_vectors(folder, paths, features)),
        "plain loop, reading": lambda: [plain_read(folder / path, features) for path in paths],
        "read_image, reading": lambda: [read_image(folder / path, features) for path in paths],
    }
    return {name: len(paths) / machine.best_seconds(run) for name, run in work.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    cifar = GistExtractor(side=32, orientations=GIST_320)
    for name, write, features in (
        ("CIFAR-10's PNGs", write_pngs, cifar),
        ("CIFAR-10's PNGs", write_pngs, GistExtractor()),
        ("2-megapixel JPEGs", write_jpegs, cifar),
        ("2-megapixel JPEGs", write_jpegs, GistExtractor()),
        ("2-megapixel JPEGs", write_jpegs, GistExtractor(side=128)),
    ):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            rates = measure(Path(folder), features)
        results[f"{name}: {features}"] = rates
        print(f"\n{name}: {features}")
        for way, rate in rates.items():
            base = rates["plain loop, reading" if "reading" in way else "plain loop"]
            print(f"  {way:<24}{rate:8.0f} a second{rate / base:8.2f}x")
    print(f"\npeak memory {machine.peak_gigabytes():.2f} GB")
    machine.report("images", results, options.json)


if __name__ == "__main__":
    main()
