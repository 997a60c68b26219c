"""GIST of CIFAR-10 images: the slow version and a plain batched FFT against `hashlearn.features.gist`.

    python benchmarks/bench_gist.py [--full] [--json FILE]

2,000 images, 320-D and 512-D: the slow version (tests/reference/gist.py, image by image), once; a plain batched FFT
(float64, no cropping, all cores); both paths of `gist`. "cold" includes building the matrices.
GFLOP/s count the matrix products only, over the whole time of a warm run; the machine's own rate is that of a
2048×2048 sgemm in the same run. `--full` times all 60,000 images, cold.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import machine
import numpy as np
import scipy.fft

from hashlearn.datasets import cifar10_images
from hashlearn.features import GIST_320, GIST_512, gist

N_IMAGES = 2_000
paths = importlib.import_module("hashlearn.features.gist")
matrix = importlib.import_module("hashlearn.features._gist_matrix")


def slow_version() -> ModuleType:
    path = Path(__file__).parents[1] / "tests" / "reference" / "gist.py"
    spec = importlib.util.spec_from_file_location("gist_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batched_fft(images: np.ndarray, counts: tuple[int, ...], slow: ModuleType, block: int = 50) -> np.ndarray:
    """The definition over blocks of square even images, with float64 FFTs of whole blocks."""
    workers = os.cpu_count()
    side = images.shape[1]
    f = np.fft.fftfreq(side + 10, 1 / (side + 10))
    gaussian = np.exp(-(f[:, None] ** 2 + f**2) / (16 / np.log(2)))
    filters = [slow.gabor(side + 64, side + 64, s, j, count) for s, count in enumerate(counts) for j in range(count)]

    def filtered(x: np.ndarray, G: np.ndarray) -> np.ndarray:
        return scipy.fft.ifft2(scipy.fft.fft2(x, workers=workers) * G, workers=workers)

    out = []
    for start in range(0, len(images), block):
        x = images[start : start + block].mean(axis=3)
        x -= x.min(axis=(1, 2), keepdims=True)
        x *= 255 / x.max(axis=(1, 2), keepdims=True)
        x = np.pad(np.log(1 + x), ((0, 0), (5, 5), (5, 5)), mode="symmetric")
        x -= filtered(x, gaussian).real
        x = (x / (0.2 + np.sqrt(np.abs(filtered(x**2, gaussian)))))[:, 5:-5, 5:-5]
        spectrum = scipy.fft.fft2(np.pad(x, ((0, 0), (32, 32), (32, 32)), mode="symmetric"), workers=workers)
        cells = []
        for G in filters:
            z = np.abs(scipy.fft.ifft2(spectrum * G, workers=workers))[:, 32:-32, 32:-32]
            means = z.reshape(len(z), 4, side // 4, 4, side // 4).mean(axis=(2, 4))
            cells.append(means.swapaxes(1, 2).reshape(len(z), 16))
        out.append(np.concatenate(cells, axis=1))
    return np.concatenate(out)


def product_flops(scales: list[Any]) -> int:
    """FLOPs an image of the products that `matrix_path` does."""
    flops = 0
    for bases, filters in scales:
        flops += sum(2 * V.size for V in bases if V is not None)
        flops += sum(2 * T.size for pair in filters for T in pair)
        flops += sum(2 * 16 * T.shape[1] // 2 for pair in filters for T in pair)  # the grid
    return flops


def compare(images: np.ndarray, counts: tuple[int, ...], slow: ModuleType) -> dict[str, Any]:
    """Milliseconds an image by each way, and how far the results are apart."""

    def cold() -> None:
        matrix._matrices.cache_clear()
        gist(images, counts)

    assert paths._choose_path(len(images), 32, 32, counts) == "matrix"
    start = time.perf_counter()
    truth = slow.gist_reference(images, counts)
    slow_seconds = time.perf_counter() - start
    difference = np.abs(gist(images, counts) - truth)
    np.testing.assert_allclose(batched_fft(images[:100], counts, slow), truth[:100], atol=1e-9)
    shape = images.shape[1:3]
    seconds = {
        "slow version": slow_seconds / N_IMAGES,
        "batched FFT, float64": machine.best_seconds(lambda: batched_fft(images, counts, slow), 2) / N_IMAGES,
        "gist, FFT path": machine.best_seconds(lambda: paths._describe(images, counts, "fft", lambda amount: None))
        / N_IMAGES,
        "gist, matrix path, cold": machine.best_seconds(cold, 5) / N_IMAGES,
        "gist, matrix path, warm": machine.best_seconds(lambda: gist(images, counts), 7) / N_IMAGES,
    }
    scales = matrix._matrices(*shape, counts)
    flops = product_flops(scales)
    rate = flops / seconds["gist, matrix path, warm"] / 1e9
    sgemm = machine.sgemm_gflops()
    return {
        "milliseconds_per_image": {name: 1e3 * value for name, value in seconds.items()},
        "megaflops_per_image": flops / 1e6,
        "matrix_megabytes": sum(T.nbytes for scale in scales for pair in scale.filters for T in pair) / 1e6,
        "gflops": rate,
        "sgemm_gflops": sgemm,
        "share_of_sgemm": rate / sgemm,
        "max_difference_by_norm": float((np.linalg.norm(difference, axis=1) / np.linalg.norm(truth, axis=1)).max()),
        "max_difference_by_largest": float((difference.max(axis=1) / truth.max(axis=1)).max()),
        "max_relative_difference_of_a_feature": float((difference / truth).max()),
    }


def show(size: int, row: dict[str, Any]) -> None:
    times = row["milliseconds_per_image"]
    base, batched = times["slow version"], times["batched FFT, float64"]
    print(f"\n{size}-D, {N_IMAGES:,} CIFAR-10 images" + f"{'ms/image':>25}{'vs slow':>10}{'vs batched':>12}")
    for name, value in times.items():
        print(f"  {name:<50}{value:8.3f}{base / value:9.1f}x{batched / value:11.1f}x")
    print(f"  matrices: {row['matrix_megabytes']:.0f} MB, {row['megaflops_per_image']:.1f} MFLOP an image")
    print(
        f"  warm: {row['gflops']:.0f} GFLOP/s, {row['share_of_sgemm']:.0%} of this machine's sgemm "
        f"({row['sgemm_gflops']:.0f} GFLOP/s)"
    )
    print(
        f"  largest difference from the slow version: {row['max_difference_by_norm']:.1e} of the descriptor's norm, "
        f"{row['max_difference_by_largest']:.1e} of its largest feature, "
        f"{row['max_relative_difference_of_a_feature']:.1e} of the feature itself"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also time all 60,000 images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    options = parser.parse_args()
    cifar, slow = cifar10_images(), slow_version()
    images = np.ascontiguousarray(cifar.train_images[:N_IMAGES])
    results: dict[str, Any] = {}
    for counts in (GIST_320, GIST_512):
        size = 16 * sum(counts)
        results[f"gist_{size}"] = row = compare(images, counts, slow)
        show(size, row)
        if options.full:
            matrix._matrices.cache_clear()
            everything = (cifar.train_images, cifar.test_images)
            row["full_seconds"] = machine.best_seconds(
                lambda counts=counts, everything=everything: [gist(part, counts) for part in everything], 1
            )
            print(f"  all 60,000 images, cold: {row['full_seconds']:.1f} s")
    print(f"\npeak memory {machine.peak_gigabytes():.2f} GB")
    machine.report("gist", results, options.json)


if __name__ == "__main__":
    main()
