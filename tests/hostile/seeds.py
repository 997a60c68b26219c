"""Small whole files of every kind that the library reads, and what reading them may do.

A reader gives a value that says all that was read, so that two readings can be compared, or raises one of the errors
that the library documents for its files.
"""

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hashlearn import ITQ, LSH, SDH
from hashlearn.collection import Collection
from hashlearn.errors import CollectionError, ImageError, IndexFileError, ModelFileError, VectorFileError
from hashlearn.hashers import Hasher, ModelMetadata
from hashlearn.search import HammingIndex
from hashlearn.vectors import FORMATS, read_labels, read_vectors, write_vectors


@dataclass(frozen=True)
class Seed:
    """A kind of file: how a whole one is made, how it is read, and what a refusal is."""

    name: str
    ending: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    refusals: tuple[type[BaseException], ...]
    #: Whether what is read must be what was written: the format has checksums over all of it.
    checked: bool = False
    #: Megabytes that a reading may take, whatever the file says.
    memory: int = 300


def array_value(array: Any) -> Any:
    return array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()


def _vectors() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 100, (40, 6)).astype(np.float32)


def _own_vectors(ending: str) -> Seed:
    def make(path: Path) -> None:
        write_vectors(path, _vectors().astype(FORMATS[ending].dtype or np.float32))

    checked = ending in (".npz", ".hdf5", ".h5", ".parquet")
    return Seed(f"own {ending}", ending, make, lambda p: array_value(read_vectors(p)), (VectorFileError,), checked)


def _foreign_vectors() -> list[Seed]:
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq

    X = _vectors()

    def contiguous(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file["train"] = X
            file["more/test"] = X[:2]

    def packed(path: Path) -> None:
        with h5py.File(path, "w", libver="latest") as file:
            file.create_dataset("a/b/vectors", data=X, chunks=(7, 2), compression="gzip", shuffle=True)
            file.create_dataset("x", data=X)

    def listed(path: Path) -> None:
        pq.write_table(pa.table({"id": range(len(X)), "v": X.tolist()}), path, row_group_size=9)

    def fixed(path: Path) -> None:
        rows = pa.array(X.tolist(), pa.list_(pa.float32(), X.shape[1]))
        pq.write_table(pa.table({"v": rows}), path, compression="gzip", data_page_version="2.0")

    def fortran(path: Path) -> None:
        np.save(path, np.asfortranarray(X.astype(">f8")))

    kinds = {
        "contiguous .hdf5": contiguous,
        "packed .hdf5": packed,
        "listed .parquet": listed,
        "fixed .parquet": fixed,
        "fortran .npy": fortran,
        "packed .npz": lambda path: np.savez_compressed(path, x=X),
    }
    keys = {"packed .hdf5": "a/b/vectors"}

    def seed(name: str) -> Seed:
        def read(path: Path) -> Any:
            return array_value(read_vectors(path, key=keys.get(name)))

        return Seed(name, name.split()[1], kinds[name], read, (VectorFileError,))

    return [seed(name) for name in kinds]


def _labels() -> list[Seed]:
    def read(path: Path) -> Any:
        labels = read_labels(path)
        return labels.dtype.kind, labels.tolist()

    def text(path: Path) -> None:
        path.write_text("cat\ndog\nMaus – ü\n" * 20, encoding="utf-8")

    return [
        Seed("labels .txt", ".txt", text, read, (VectorFileError,)),
        Seed("labels .npy", ".npy", lambda p: np.save(p, np.array(["cat", "dog"] * 9)), read, (VectorFileError,)),
    ]


def model_value(model: Hasher) -> Any:
    arrays = {name: array_value(getattr(model, name)) for name in model._state(model.n_features_in_, model.n_bits_)}
    names = getattr(model, "feature_names_in_", None)
    said = [model.name, model.get_params(), model.metadata_.to_info(), None if names is None else list(names)]
    return json.dumps(said, default=str), sorted(arrays.items())


def _models() -> list[Seed]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    models = [
        LSH(n_bits=3, random_state=0).fit(X),
        ITQ(n_bits=5, random_state=0).fit(X),
        SDH(n_bits=4, n_anchors=7, random_state=0).fit(X, rng.integers(0, 3, 60)),
    ]

    def seed(model: Any) -> Seed:
        def make(path: Path) -> None:
            model.save(path, metadata=ModelMetadata("noise"))

        return Seed(
            f"model {model.name}", ".model", make, lambda p: model_value(Hasher.load(p)), (ModelFileError,), True
        )

    return [seed(model) for model in models]


def _index() -> Seed:
    def make(path: Path) -> None:
        index = HammingIndex(n_bits=20)
        index.add(np.random.default_rng(0).integers(0, 16, (50, 3), dtype=np.uint8) * 16)
        index.save(path)

    def read(path: Path) -> Any:
        index = HammingIndex.open(path)
        index.search(index.codes[:1], 3)
        return index.n_bits, array_value(index.ids), array_value(index.codes)

    return Seed("index", ".index", make, read, (IndexFileError,), True)


def make_collection(path: Path) -> None:
    """With all that a collection can hold: a model, info, sources, payloads, ids that were removed, changes."""
    rng = np.random.default_rng(0)
    model = LSH(n_bits=12, random_state=0).fit(rng.normal(size=(60, 8)))
    with Collection.create(path, model=model, info={"input": "noise", "rows": 90}) as collection:
        codes = collection.encode(rng.normal(size=(90, 8)))
        collection.add(codes, sources=[f"a/{i}.png" for i in range(90)], payloads=[{"n": i} for i in range(90)])
        collection.add(codes[:10], ids=5000 + 30 * np.arange(10))
        collection.remove(np.arange(40, 60))
        collection.update([7, 8], codes[:2], sources=["x", None])


def collection_value(collection: Collection) -> Any:
    """All that is in it."""
    items = [(item.id, item.source, item.payload) for item in collection.get(collection.ids)]
    batches = [(codes.tobytes(), batch) for codes, batch in collection.batches(50)]
    if len(collection):
        collection.search(collection.index.codes[:1], 3)
    model = collection.model
    return (
        (collection.n_bits, json.dumps(collection.info), json.dumps(collection.about)),
        array_value(collection.ids),
        array_value(collection.index.codes),
        json.dumps(items),
        batches,
        repr(sorted(collection.find_ids().items())),
        None if model is None else model_value(model),
    )


def read_collection(path: Path, *, readonly: bool = True) -> Any:
    try:
        with Collection.open(path, readonly=readonly) as collection:
            return collection_value(collection)
    finally:
        for ending in ("-wal", "-shm", "-journal"):
            Path(f"{path}{ending}").unlink(missing_ok=True)


def _collections() -> list[Seed]:
    def v1(path: Path) -> None:
        from crafted import as_version_1

        make_collection(path)
        as_version_1(path)

    def written(path: Path) -> Any:
        return read_collection(path, readonly=False)

    return [
        Seed("collection", ".hl", make_collection, read_collection, (CollectionError,), True),
        Seed("collection, to write", ".hl", make_collection, written, (CollectionError,), True),
        Seed("collection of version 1", ".hl", v1, read_collection, (CollectionError,)),
        Seed("collection of version 1, to write", ".hl", v1, written, (CollectionError,)),
    ]


def _pictures() -> list[Seed]:
    from hashlearn.features import GistExtractor, read_image, read_thumbnail

    pixels = np.random.default_rng(0).integers(0, 256, (24, 30, 3), dtype=np.uint8)
    features = GistExtractor(side=32)

    def read(path: Path) -> Any:
        read_thumbnail(path, 16)
        return array_value(read_image(path, features))

    def seed(form: str) -> Seed:
        def make(path: Path) -> None:
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, form)
            path.write_bytes(buffer.getvalue())

        # Honest pictures of this many pixels (features._picture.MAX_PIXELS) take as much.
        return Seed(f"picture {form}", "." + form.lower(), make, read, (ImageError,), memory=2200)

    return [seed(form) for form in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")]


def all_seeds() -> list[Seed]:
    return [
        *(_own_vectors(ending) for ending in FORMATS if ending != ".h5"),
        *_foreign_vectors(),
        *_labels(),
        *_models(),
        _index(),
        *_collections(),
        *_pictures(),
    ]


def scratch_folder() -> str | None:
    """Where files are made and gone at once: in memory, if the system has such a place."""
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
