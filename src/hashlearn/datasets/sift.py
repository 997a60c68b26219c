"""SIFT descriptors from a folder: SIFT1M and siftsmall (Jégou et al. 2011), and a stand-in.

Files are memory-mapped. A ``.xz`` file is unpacked once, into the cache.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hashlearn._arrays import Array
from hashlearn.datasets._fetch import check_sum, decompress, named_source
from hashlearn.datasets._types import Dataset
from hashlearn.errors import DatasetError
from hashlearn.storage import atomic_path, cache_dir, is_sealed, seal, sha256_file

__all__ = ["load_sift"]


@dataclass(frozen=True)
class SiftFile:
    name: str
    rows: int
    columns: int
    sha256: str | None = None  # of the uncompressed file
    optional: bool = False

    @property
    def limit(self) -> int:
        """Maximal size in bytes: the header of .npy, or the four bytes before each vector; 4-byte values."""
        return 4096 + self.rows * 4 * (self.columns + 1)


@dataclass(frozen=True)
class SiftSet:
    variable: str
    note: str
    base: SiftFile
    learn: SiftFile
    query: SiftFile
    truth: SiftFile | None = None


SETS = {
    "sift1m": SiftSet(
        variable="HASHLEARN_SIFT1M",
        note="the genuine SIFT1M (by its files' names and sizes)",
        base=SiftFile("sift_base.fvecs", 1_000_000, 128),
        learn=SiftFile("sift_learn.fvecs", 100_000, 128),
        query=SiftFile("sift_query.fvecs", 10_000, 128),
        truth=SiftFile("sift_groundtruth.ivecs", 10_000, 100),
    ),
    "siftsmall": SiftSet(
        variable="HASHLEARN_SIFTSMALL",
        note="the genuine siftsmall",
        base=SiftFile(
            "siftsmall_base.fvecs", 10_000, 128, "1e90414a3254361aba48a0d58e461f7661fb135dabb3da985290e94de8f60fe0"
        ),
        learn=SiftFile("siftsmall_learn.fvecs", 25_000, 128, optional=True),
        query=SiftFile(
            "siftsmall_query.fvecs", 100, 128, "095af38bda2741be721447ba97e9286fa918ece946be92a9ae133276eddc1a10"
        ),
        truth=SiftFile(
            "siftsmall_groundtruth.ivecs", 100, 100, "b0717bf276111a166f14dcc2653fd04465b2afd6d34c72be641b622cf99f95ae"
        ),
    ),
    "sift-photos": SiftSet(
        variable="HASHLEARN_SIFT_PHOTOS",
        note="a stand-in made of other photographs, not SIFT1M: never compare its numbers with SIFT1M's",
        base=SiftFile(
            "base.u8.npy", 1_000_000, 128, "9e3c3d48dbfbe37b67f807c3a8d7c90b90da1af3e55b782083606bc2a02e0320"
        ),
        learn=SiftFile(
            "learn.u8.npy", 100_000, 128, "69de85b07756bc67eb5a877be7b819f3d8a29bd435a35d218c5dec0b81aff33b"
        ),
        query=SiftFile("query.u8.npy", 10_000, 128, "24d02e9320bc31082b0b28380013a9d3fadb7271d6f6aaedf05b1ed081402971"),
    ),
}


def load_sift(name: str, source: str | os.PathLike[str] | None = None, *, show_progress: bool | None = None) -> Dataset:
    """Load SIFT descriptors from a folder with the learn, base and query files.

    Parameters
    ----------
    name : {"sift1m", "siftsmall", "sift-photos"}
    source : path-like, optional
        The folder. Default: the one in ``HASHLEARN_SIFT1M``, ``HASHLEARN_SIFTSMALL`` or ``HASHLEARN_SIFT_PHOTOS``.
    show_progress : bool, optional

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetError
        If no folder is given, or a file is missing, damaged or of the wrong size.
    ChecksumError
        If a file has wrong data.
    """
    parts = SETS[name]
    folder = named_source(source, parts.variable)
    if folder is None:
        raise DatasetError(
            f"{name} is read from a folder with {parts.base.name}, {parts.learn.name}, … (or their .xz): "
            f"pass it as source= or in the environment variable {parts.variable}."
        )
    base = _read(folder, parts.base, show_progress)
    without_learn = parts.learn.optional and _find(folder, parts.learn) is None
    learn = base if without_learn else _read(folder, parts.learn, show_progress)
    query = _read(folder, parts.query, show_progress)
    truth = None if parts.truth is None else _read(folder, parts.truth, show_progress)
    if truth is not None and not (truth.min() >= 0 and truth.max() < len(base)):
        raise DatasetError(f"{folder}: the ground truth has rows outside 0…{len(base) - 1}.")
    note = parts.note
    if without_learn:
        note += f"; {parts.learn.name} is not there, so training is on the base"
    elif parts.learn.optional:
        note += f" ({parts.learn.name} by its size)"
    return Dataset(name, learn, base, query, ground_truth=truth, note=note)


def _find(folder: Path, file: SiftFile) -> Path | None:
    """The file or its ``.xz``, whichever exists."""
    plain, packed = folder / file.name, folder / f"{file.name}.xz"
    return plain if plain.is_file() else packed if packed.is_file() else None


def _read(folder: Path, file: SiftFile, show_progress: bool | None) -> Array:
    """Read and check the vectors of a file."""
    from hashlearn.vectors import read_vectors

    path = _find(folder, file)
    if path is None:
        raise DatasetError(f"{folder} has neither {file.name} nor {file.name}.xz.")
    if path.suffix == ".xz":
        path = _unpacked(path, file, show_progress)
    elif file.sha256 is not None:
        check_sum(path, path, file.sha256)
    vectors: Array = read_vectors(path)
    if vectors.shape != (file.rows, file.columns):
        raise DatasetError(
            f"{path} should hold {file.rows:,}×{file.columns} values; got {'×'.join(map(str, vectors.shape))}."
        )
    return vectors


def _unpacked(packed: Path, file: SiftFile, show_progress: bool | None) -> Path:
    """The unpacked copy in the cache, named after the content of the packed file and the file's name."""
    path = cache_dir() / "sift" / f"{sha256_file(packed)[:16]}-{file.name}"
    if not is_sealed(path):
        with atomic_path(path) as temporary:
            with open(temporary, "wb") as target:
                decompress(packed, target, limit=file.limit, show_progress=show_progress)
            if file.sha256 is not None:
                check_sum(f"the content of {packed}", temporary, file.sha256)
        seal(path)
    return path
