"""``Collection``: codes, ids, sources and payloads in one SQLite file, with an index in memory that is kept in step."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Codes, Ids, Indices
from hashlearn.codes import check_codes
from hashlearn.collection import _connection, ingest
from hashlearn.collection._checksums import EMPTY, Rows, Tally, tally
from hashlearn.collection._database import Database
from hashlearn.collection._items import Item, check_sources, payload_texts, to_blobs, to_json
from hashlearn.collection.ingest import Ingested
from hashlearn.errors import CollectionError, ImageError, ModelFileError
from hashlearn.search import Matches, Neighbors
from hashlearn.search.index import HammingIndex, check_ids
from hashlearn.storage import check_target, parse_json

if TYPE_CHECKING:
    from typing_extensions import Self

    from hashlearn.features import Extractor
    from hashlearn.hashers import Hasher

__all__ = ["Collection", "Match"]


@dataclass(frozen=True)
class Match:
    """An item that a search returned, and the Hamming distance of its code from the query's."""

    id: int
    distance: int
    source: str | None
    payload: Any


class _Change(NamedTuple):
    """What a transaction does to the codes: the ids it removes, and the codes it adds with their ids."""

    removed: Ids
    codes: Codes
    ids: Ids
    #: The tally, after the change, of the items that were added or changed.
    tally: Tally


def _info_json(info: dict[str, Any]) -> str:
    text = to_json("info", info)
    try:
        parse_json(text)  # stricter than json.dumps, and used to read it back
    except ValueError as error:
        raise ValueError(f"info must be a JSON value; {error}.") from None
    return text


class Collection:
    """Codes with ids, sources and payloads, stored in one file and searched in memory.

    Every change is a transaction: it is on disk when the call returns, and a failure leaves the file as it was. Many
    processes can read while one writes; :meth:`refresh` shows what others wrote. Checksums detect damage when a file
    is opened. Close a collection before forking a process.

    Results are ranked by Hamming distance, also for a model whose codes are meant for another one
    (``Hasher.distance``; SPH's is the spherical distance). :meth:`create` warns about such a model.

    Examples
    --------
    >>> from hashlearn import ITQ
    >>> from hashlearn.collection import Collection
    >>> from hashlearn.datasets import load
    >>> digits = load("digits")
    >>> model = ITQ(n_bits=32, random_state=0).fit(digits.train)
    >>> with Collection.create("digits.hl", model=model) as collection:
    ...     ingested = collection.add_vectors(digits.database)
    ...     results = collection.search_vectors(digits.queries, k=3)
    """

    def __init__(self, database: Database) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self._database = database
        self._model: Hasher | None = None
        self.index = HammingIndex(database.n_bits)
        self._seen = 0
        database.transact(self._read_all)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        model: Hasher | None = None,
        n_bits: int | None = None,
        info: dict[str, Any] | None = None,
        first_id: int = 0,
    ) -> Self:
        """Create an empty collection.

        Parameters
        ----------
        path
            The file, which must not exist.
        model
            Computes the codes of vectors. It is stored in the file; this object is used until the collection is
            closed, so do not fit it again meanwhile.
        n_bits
            The length of the codes, if there is no model.
        info
            JSON values to store with the collection (:attr:`info`).
        first_id
            The first id to assign to items that are added without ids.

        Raises
        ------
        FileExistsError
            The file exists, or files that SQLite keeps beside it are left from an earlier one.
        """
        if (model is None) == (n_bits is None):
            raise ValueError("a collection takes either a model or n_bits.")
        check_target(path)
        meta: dict[str, Any] = {"hashlearn": version("hashlearn"), "info": _info_json(info or {})}
        meta["next_id"] = int(check_ids([first_id])[0])
        if model is not None:
            from hashlearn.hashers import model_key

            content = io.BytesIO()
            model.save(content)
            n_bits = model.n_bits_
            meta |= {"model": content.getvalue(), "model_key": model_key(model)}
            meta |= {"method": model.name, "n_features": int(model.n_features_in_)}
            if model.distance != "hamming":
                warnings.warn(
                    f"codes of {model.name} are meant to be ranked by {model.distance} distance; a collection ranks "
                    "them by Hamming distance.",
                    stacklevel=2,
                )
        assert n_bits is not None
        HammingIndex(n_bits)  # raises if n_bits is invalid
        _connection.create(Path(os.path.realpath(path)), int(n_bits), meta)
        collection = cls.open(path)
        collection._model = model
        return collection

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, readonly: bool = False) -> Self:
        """Open a collection.

        A file of an older version is migrated, unless it is opened with ``readonly``.

        Raises
        ------
        CollectionError
            The file is damaged or is not a collection.
        """
        database = Database(Path(path), readonly=readonly)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the file. The last process to close it removes the files that SQLite keeps beside it."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, id: object) -> bool:
        return id in self.index

    def __repr__(self) -> str:
        return f"Collection({str(self.path)!r}), {len(self):,} items of {self.n_bits} bits"

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def file(self) -> Path:
        """The file itself, with links resolved."""
        return self._database.file

    @property
    def n_bits(self) -> int:
        return self._database.n_bits

    @property
    def ids(self) -> Ids:
        """All ids, ascending; read-only."""
        return self.index.ids

    @property
    def info(self) -> dict[str, Any]:
        """The JSON values that it was created with."""
        try:
            info = parse_json(self._database.meta["info"])
        except ValueError:
            info = None
        if not isinstance(info, dict):
            raise CollectionError(f"{self.path} is damaged: its info is not a JSON object.")
        return info

    @property
    def about(self) -> dict[str, Any]:
        """The version of hashlearn that created it, the model's method and its number of features."""
        return {name: self._database.meta.get(name) for name in ("hashlearn", "method", "n_features")}

    @property
    def root(self) -> Path:
        """The folder that the sources of pictures are relative to."""
        return self.file.parent / str(self.info.get("root", "."))

    # -- the model ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Hasher | None:
        """Computes the codes of vectors; None if the collection was created without a model."""
        if self._model is None:
            content = self._database.model()
            if content is not None:
                self._model = self._read_model(content)
        return self._model

    def _read_model(self, content: bytes) -> Hasher:
        from hashlearn.hashers import Hasher

        try:
            model = Hasher.load(io.BytesIO(content))
        except ModelFileError as error:
            raise CollectionError(f"{self.path} has a model that can't be used: {error}") from None
        if model.n_bits_ != self.n_bits:
            raise CollectionError(
                f"{self.path} is damaged: its codes have {self.n_bits} bits, its model's {model.n_bits_}."
            )
        return model

    def has_model(self, model: Hasher) -> bool:
        """Whether the collection was created with this model: the same arrays, parameters and metadata."""
        from hashlearn.hashers import model_key

        return bool(self._database.meta.get("model_key") == model_key(model))

    @property
    def extractor(self) -> Extractor | None:
        """Computes the vectors of pictures; None if the collection takes vectors only."""
        from hashlearn.features import make_extractor

        info = self.info
        if info.get("features") is not None:
            return make_extractor(info["features"])
        if "rows" in info or self.model is None:  # created from vectors, though the model may know pictures
            return None
        return ingest.model_extractor(self.model)

    def _require_extractor(self) -> Extractor:
        """:attr:`extractor`; a ValueError if the collection takes vectors only."""
        if (extractor := self.extractor) is None:
            raise ValueError(f"{self.path} was made of vectors, not of pictures: give a file of vectors.")
        return extractor

    def encode(self, vectors: ArrayLike) -> Codes:
        """Compute the packed codes of vectors with the collection's model."""
        model = self.model
        if model is None:
            raise ValueError(f"{self.path} has no model: it takes codes, not vectors.")
        X = np.asarray(vectors)
        if X.ndim == 2 and X.shape[1] != model.n_features_in_:
            raise ValueError(
                f"{self.path} has a model for vectors of {model.n_features_in_} numbers; got {X.shape[1]}."
            )
        return model.encode(vectors)

    # -- changes ------------------------------------------------------------------------------------------------------

    def add_images(
        self,
        images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        show_progress: bool | None = None,
        batch: int | None = None,
    ) -> Ingested:
        """Add pictures. Their sources are their paths relative to :attr:`root`; known sources are skipped.

        Each batch is one transaction. After an interruption, the same call resumes.

        Parameters
        ----------
        images
            A picture, a folder that is searched for pictures, or a sequence of both.
        show_progress
            Show a progress bar. None: only on a terminal.
        batch
            Number of pictures per transaction. None: as many as are read at once.
        """
        return ingest.add_images(self, self._require_extractor(), images, show_progress=show_progress, batch=batch)

    def add_vectors(
        self,
        vectors: Array,
        *,
        ids: ArrayLike | None = None,
        payloads: Sequence[Any] | None = None,
        by_row: bool = False,
        show_progress: bool | None = None,
    ) -> Ingested:
        """Add vectors in batches, each of which is one transaction.

        Parameters
        ----------
        vectors
            Vectors (n, n_features), which may be a memory map.
        ids
            An id for each vector; None assigns new ones. Nothing is added if an id is in the collection.
        payloads
            A JSON value for each vector. Nothing is added if one of them is invalid.
        by_row
            Use the row numbers as ids and skip those that are in the collection. After an interruption, the same call
            resumes.
        show_progress
            Show a progress bar. None: only on a terminal.
        """
        return ingest.add_vectors(self, vectors, ids=ids, payloads=payloads, by_row=by_row, show_progress=show_progress)

    def add(
        self,
        codes: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        sources: Sequence[str | None] | None = None,
        payloads: Sequence[Any] | None = None,
        unless_there: bool = False,
    ) -> Ids:
        """Add items. Ids of removed items are not assigned again.

        Parameters
        ----------
        codes
            Packed codes (n, n_bytes).
        ids
            An id for each item, at least 0 and not in the collection; None assigns new ones.
        sources
            Where each item comes from, such as a path, or None.
        payloads
            A JSON value for each item, or None.
        unless_there
            Skip items whose id (if ids are given) or else whose source is in the collection, also if another process
            has just added it.

        Returns
        -------
        The ids of the items that were added.
        """
        array = check_codes(codes, self.n_bits)
        n = len(array)
        all_sources, texts = check_sources(sources, n), payload_texts(payloads, n)
        given = None if ids is None else check_ids(ids, n)
        if unless_there and given is None:
            self._database.check_sources()  # may take long, so not within the transaction

        def write() -> _Change:
            keep = self._find_new(given, all_sources) if unless_there else np.arange(n)
            chosen = np.take(array, keep, axis=0)
            next_id = self._database.next_id()
            if given is not None:
                new_ids = given[keep]
            elif next_id + len(keep) > np.iinfo(np.int64).max:
                raise ValueError("there is no larger id left: give ids.")
            else:
                new_ids = np.arange(next_id, next_id + len(keep), dtype=np.int64)
            self.check_new(new_ids)
            kept = keep.tolist()
            new = Rows(new_ids, chosen, [all_sources[row] for row in kept], [texts[row] for row in kept])
            rows = zip(new_ids.tolist(), to_blobs(chosen), new.sources, new.payloads, strict=True)
            self._database.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
            if len(new_ids):
                self._database.set_next_id(max(next_id, int(new_ids.max()) + 1))
            return _Change(new_ids[:0], chosen, new_ids, tally(new))

        return self._change(self.index.ids[:0], write).ids

    def check_new(self, ids: ArrayLike) -> None:
        """Raise a ValueError if an id is invalid, given twice or in the collection."""
        given = check_ids(ids)
        known = self.index.contains(given)
        if known.any():
            raise ValueError(f"id {given[known].min()} is in the collection already.")

    def _find_new(self, ids: Ids | None, sources: list[str | None]) -> Indices:
        """Rows whose id, or else whose source, is neither in the collection nor in an earlier row."""
        if ids is not None:
            return np.flatnonzero(~self.index.contains(ids))
        seen = set(self.find_ids([source for source in sources if source is not None]))
        new = []
        for row, source in enumerate(sources):
            if source is None or source not in seen:
                new.append(row)
                seen.add(source)  # type: ignore[arg-type]
        return np.array(new, dtype=np.intp)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items. Raises a ValueError and removes nothing if an id is unknown or given twice."""
        given = check_ids(ids)

        def write() -> _Change:
            self._check_known(given)
            self._database.executemany("DELETE FROM items WHERE id = ?", ((id,) for id in given.tolist()))
            return _Change(given, self.index.codes[:0], given[:0], EMPTY)

        self._change(given, write)

    def update(
        self,
        ids: ArrayLike,
        codes: ArrayLike | None = None,
        *,
        sources: Sequence[str | None] | None = None,
        payloads: Sequence[Any] | None = None,
    ) -> None:
        """Replace codes, sources or payloads of items; those that are not given are kept.

        Raises a ValueError and changes nothing if an id is unknown or given twice.
        """
        given = check_ids(ids)
        n = len(given)
        array = None if codes is None else check_codes(codes, self.n_bits)
        if array is not None and len(array) != n:
            raise ValueError(f"there must be a code for each of the {n} ids; got {len(array)}.")
        columns: dict[str, list[Any]] = {}
        if array is not None:
            columns["code"] = list(to_blobs(array))
        if sources is not None:
            columns["source"] = check_sources(sources, n)
        if payloads is not None:
            columns["payload"] = payload_texts(payloads, n)
        if not columns:
            raise ValueError("update needs codes, sources or payloads.")
        assignments = ", ".join(f"{name} = ?" for name in columns)

        def write() -> _Change:
            self._check_known(given)
            rows = zip(*columns.values(), given.tolist(), strict=True)
            self._database.executemany(f"UPDATE items SET {assignments} WHERE id = ?", rows)
            after = self._database.tally_items(given)
            if array is None:
                return _Change(given[:0], self.index.codes[:0], given[:0], after)
            return _Change(given, array, given, after)

        self._change(given, write)

    def _check_known(self, ids: Ids) -> None:
        unknown = ids[~self.index.contains(ids)]
        if len(unknown):
            raise ValueError(f"id {unknown[0]} is not in the collection.")

    def _change(self, touched: Ids, write: Callable[[], _Change]) -> _Change:
        """Run ``write`` in one transaction and apply its change to the index.

        ``touched``: ids of existing items that it changes.
        """

        def transaction() -> tuple[_Change, int]:
            self._catch_up()
            database = self._database
            before = database.tally_items(touched)
            change = write()
            total = database.tally()
            assert total is not None  # files are migrated before they are written
            database.set_tally(total.minus(before).plus(change.tally))
            database.log_change(change.removed if len(change.removed) else change.ids)
            return change, database.last_change()

        self._database.check_process()
        with self._database.lock:  # until the index is in step: other threads use both
            change, number = self._database.change(transaction)
            self.index.exchange(change.removed, change.codes, change.ids)
            self._seen = number
        return change

    # -- searches -----------------------------------------------------------------------------------------------------

    def search_vectors(
        self, vectors: ArrayLike, k: int | None = None, *, radius: int | None = None
    ) -> list[list[Match]]:
        """Find the items nearest to each vector.

        Parameters
        ----------
        vectors
            Queries (n, n_features).
        k
            How many items per query; 10 if neither ``k`` nor ``radius`` is given.
        radius
            Find all items within this Hamming distance instead.

        Returns
        -------
        A list for each query, ordered by (distance, id).
        """
        return self._search_codes(self.encode(vectors), k, radius)

    def search_images(
        self,
        images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        k: int | None = None,
        *,
        radius: int | None = None,
    ) -> list[list[Match]]:
        """Find the items nearest to each picture; see :meth:`search_vectors`.

        ``images`` is the path of a picture, or a sequence of paths. An :class:`~hashlearn.errors.ImageError` is raised
        if a picture can't be read.
        """
        from hashlearn.features import image_vectors

        def fail(path: str, reason: str) -> None:
            raise ImageError(path, reason)

        extractor = self._require_extractor()
        images = [images] if isinstance(images, (str, os.PathLike)) else images
        paths = [os.fspath(image) for image in images]
        batches = image_vectors("", paths, extractor, on_error=fail)
        vectors = [np.empty((0, extractor.n_features), np.float32), *(batch for _, batch in batches)]
        return self.search_vectors(np.concatenate(vectors), k, radius=radius)

    def search_ids(self, ids: ArrayLike, k: int | None = None, *, radius: int | None = None) -> list[list[Match]]:
        """Find the items nearest to each of these items, itself included; see :meth:`search_vectors`."""
        given = check_ids(ids, distinct=False)
        self._check_known(given)
        return self._search_codes(self.index.reconstruct(given), k, radius)

    def _search_codes(self, codes: Codes, k: int | None, radius: int | None) -> list[list[Match]]:
        if radius is not None:
            if k is not None:
                raise ValueError("give k or radius, not both.")
            pairs = list(self.within(codes, radius))
        else:
            k = 10 if k is None else k
            distances, ids = self.search(codes, min(k, max(1, len(self))))
            pairs = [(d[i >= 0], i[i >= 0]) for d, i in zip(distances, ids, strict=True)]
        # Without those that another process has removed meanwhile.
        unique = dict.fromkeys(id for _, ids in pairs for id in ids.tolist())
        items = {item.id: item for item in self.get(list(unique), skip_missing=True)}
        return [
            [
                Match(id, distance, items[id].source, items[id].payload)
                for distance, id in zip(distances.tolist(), ids.tolist(), strict=True)
                if id in items
            ]
            for distances, ids in pairs
        ]

    def search(self, codes: ArrayLike, k: int, *, allow: ArrayLike | None = None) -> Neighbors:
        """Find the k nearest items of each code: see :meth:`HammingIndex.search`."""
        return self.index.search(codes, k, allow=allow)

    def within(self, codes: ArrayLike, radius: int, *, allow: ArrayLike | None = None) -> Matches:
        """Find all items within a radius of each code: see :meth:`HammingIndex.within`."""
        return self.index.within(codes, radius, allow=allow)

    def get(self, ids: ArrayLike, *, skip_missing: bool = False) -> list[Item]:
        """Return the items with these ids, in their order.

        Raises a ValueError if an id is unknown. With ``skip_missing`` it is left out instead, for items that another
        process may have removed since a search returned them.
        """
        given = check_ids(ids, distinct=False).tolist()

        def read() -> list[Any]:
            return list(self._database.select("id, source, payload", "id", list(dict.fromkeys(given))))

        items = {row[0]: self._item(*row) for row in self._database.transact(read)}
        if not skip_missing:
            for id in given:
                if id not in items:
                    raise ValueError(f"id {id} is not in the collection.")
        return [items[id] for id in given if id in items]

    def batches(self, size: int = 10_000) -> Iterator[tuple[Codes, list[Item]]]:
        """Iterate over codes and items, by id, as they are in the file at the start, whatever others change meanwhile.

        Raises a :class:`~hashlearn.errors.CollectionError` after the last batch if the checksum is wrong.
        """
        for rows in self._database.rows(size):
            texts = zip(rows.ids.tolist(), rows.sources, rows.payloads, strict=True)
            yield rows.codes, [self._item(*row) for row in texts]

    def _item(self, id: int, source: str | None, payload: str | None) -> Item:
        try:
            return Item(id, source, None if payload is None else json.loads(payload))
        except (TypeError, ValueError, RecursionError):
            raise CollectionError(f"{self.path} is damaged: the payload of item {id} is not JSON.") from None

    def find_ids(self, sources: Sequence[str] | None = None) -> dict[str, list[int]]:
        """Map sources to the ids of their items, ascending.

        ``sources``: those to look up; unknown ones are left out. None: all.
        """
        if isinstance(sources, str):
            raise ValueError("sources must be a list of texts, not one text.")
        unique = None if sources is None else list(dict.fromkeys(check_sources(sources, len(sources))))
        self._database.check_sources()
        ids: dict[str, list[int]] = {}
        for source, id in self._database.select("source, id", "source", unique):
            ids.setdefault(source, []).append(id)
        return {source: sorted(some) for source, some in ids.items()}

    def ids_of(self, sources: Sequence[str] | None = None) -> dict[str, list[int]]:
        """Deprecated name of :meth:`find_ids`."""
        warnings.warn("Collection.ids_of is now Collection.find_ids.", DeprecationWarning, stacklevel=2)
        return self.find_ids(sources)

    # -- in step with the file ----------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read what other processes have changed; returns whether codes or ids did.

        Sources and payloads are always read from the file.
        """
        self._database.check_process()
        with self._database.lock:
            before = self._seen
            renewed = self._database.renew()
            if renewed:  # it may be another file, with another log
                self._model = None
                self._database.transact(self._read_all)
            else:
                self._database.transact(self._catch_up)
            return renewed or self._seen != before

    def _read_all(self) -> None:
        number = self._database.last_change()
        ids, codes = self._database.codes()
        self._exchange(self.index.ids, codes, ids)
        self._seen = number

    def _exchange(self, removed: Ids, codes: Codes, ids: Ids) -> None:
        """Apply a change that was read from the file."""
        try:
            self.index.exchange(removed, codes, ids)
        except ValueError as error:
            raise CollectionError(f"{self.path} is damaged: {error}") from None

    def _catch_up(self) -> None:
        """Read the changes since the last one seen, inside a transaction."""
        number = self._database.last_change()
        if number == self._seen:
            return
        ranges = self._database.changes_since(self._seen)
        if ranges is None:
            self._read_all()
            return
        known = self.index.ids
        changed = [self._database.codes(first, last) for first, last in ranges]
        removed = [known[np.searchsorted(known, a) : np.searchsorted(known, b, "right")] for a, b in ranges]
        ids, codes = (np.concatenate(parts) for parts in zip(*changed, strict=True))
        self._exchange(np.concatenate(removed), codes, ids)
        self._seen = number
