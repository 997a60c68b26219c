"""``Collection``: codes, ids, sources and payloads in one SQLite file, with an index in memory that is kept in step."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from hashlearn._arrays import Array, Codes, Ids
from hashlearn.codes import check_codes
from hashlearn.collection import _connection, ingest, queries
from hashlearn.collection._items import Item, check_sources, info_text, payload_texts, to_blobs
from hashlearn.collection._store import Store
from hashlearn.collection.ingest import Images, Ingested
from hashlearn.collection.queries import Match
from hashlearn.errors import CollectionError, ModelFileError, renamed_parameter, shown
from hashlearn.progress import count
from hashlearn.search import Matches, Neighbors
from hashlearn.search.index import HammingIndex, check_ids
from hashlearn.storage import StrPath, check_target, parse_json

if TYPE_CHECKING:
    from typing_extensions import Self

    from hashlearn.features import Extractor
    from hashlearn.hashers import Hasher

__all__ = ["Collection"]


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

    def __init__(self, store: Store) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self._store = store
        self._database = store.database
        self._model: Hasher | None = None
        self.index = store.index
        self.n_bits = self._database.n_bits
        self.path = self._database.path
        #: The file itself, with links resolved.
        self.file = self._database.file

    @classmethod
    def create(
        cls,
        path: StrPath,
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
        from hashlearn.hashers import Hasher, model_key

        if (model is None) == (n_bits is None):
            raise ValueError("a collection takes either a model or n_bits.")
        if not isinstance(model, (Hasher, NoneType)):
            raise ValueError(
                "model must be a fitted hasher, such as hashlearn.load returns (for a pipeline, give n_bits instead, "
                f"and add its codes); got {shown(model)}."
            )
        check_target(path)
        meta: dict[str, Any] = {"hashlearn": version("hashlearn"), "info": info_text({} if info is None else info)}
        meta["next_id"] = int(check_ids([first_id])[0])
        if model is not None:
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
    def open(cls, path: StrPath, *, readonly: bool = False) -> Self:
        """Open a collection.

        Parameters
        ----------
        path
            The file.
        readonly
            Open it for reading only. Otherwise a file of an older version is migrated.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        CollectionError
            The file is damaged or is not a collection.
        """
        return cls(Store(Path(path), readonly=readonly))

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
        return f"Collection({str(self.path)!r}), {count(len(self), 'item')} of {self.n_bits} bits"

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
        if self._model is None and (content := self._database.model()) is not None:
            self._model = self._read_model(content)
        return self._model

    def _require_model(self) -> Hasher:
        """:attr:`model`; a ValueError if there is none."""
        if (model := self.model) is None:
            raise ValueError(f"{self.path} has no model: it takes codes, not vectors.")
        return model

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
        """Whether the collection was created with this model: the same arrays, parameters and metadata.

        Parameters
        ----------
        model : Hasher
            A fitted model.
        """
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
        if (extractor := self.extractor) is not None:
            return extractor
        if "rows" in self.info:
            raise ValueError(f"{self.path} was made of vectors, not of pictures: it takes vectors.")
        self._require_model()
        raise ValueError(
            f"{self.path} takes vectors: its model does not say how to compute those of pictures. Before creating a "
            "collection, set model.metadata_ = ModelMetadata(features=extractor.description())."
        )

    def encode(self, vectors: ArrayLike) -> Codes:
        """Compute the packed codes of vectors with the collection's model.

        Parameters
        ----------
        vectors : array-like of shape (n, n_features)

        Returns
        -------
        codes : ndarray of shape (n, n_bytes), uint8
        """
        model = self._require_model()
        ingest.check_shape(self.path, model, vectors)
        return model.encode(vectors)

    # -- changes ------------------------------------------------------------------------------------------------------

    def add_images(self, images: Images, *, show_progress: bool | None = None, batch: int | None = None) -> Ingested:
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

        Returns
        -------
        ingested : Ingested
            How many were added and how many were known. Pictures that can't be read are left out and listed in its
            ``unreadable``.
        """
        return ingest.add_images(self, self._require_extractor(), images, show_progress=show_progress, batch=batch)

    def add_vectors(
        self,
        vectors: Array,
        *,
        ids: ArrayLike | None = None,
        payloads: Sequence[Any] | None = None,
        by_row: bool = False,
        count_known: bool = False,
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
        count_known
            Count the vectors whose codes were in the collection before (``Ingested.known_codes``), which takes a pass
            over all codes.
        show_progress
            Show a progress bar. None: only on a terminal.

        Returns
        -------
        ingested : Ingested
            How many were added, and how many were known.
        """
        options: dict[str, Any] = {"by_row": by_row, "count_known": count_known, "show_progress": show_progress}
        return ingest.add_vectors(self, vectors, ids=ids, payloads=payloads, **options)

    @renamed_parameter("unless_there", "skip_known")
    def add(
        self,
        codes: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        sources: Sequence[str | None] | None = None,
        payloads: Sequence[Any] | None = None,
        skip_known: bool = False,
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
        skip_known
            Skip items whose id (if ids are given) or else whose source is in the collection, also if another process
            has just added it.

        Returns
        -------
        ids : ndarray of shape (n_added,), int64
            The ids of the items that were added.
        """
        array = check_codes(codes, self.n_bits)
        n = len(array)
        given = None if ids is None else check_ids(ids, n)
        columns = check_sources(sources, n), payload_texts(payloads, n)
        return self._store.add(array, given, *columns, skip_known=skip_known)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items.

        Parameters
        ----------
        ids : array-like of int

        Raises
        ------
        ValueError
            An id is unknown or given twice. Nothing is removed.
        """
        self._store.remove(check_ids(ids))

    def update(
        self,
        ids: ArrayLike,
        codes: ArrayLike | None = None,
        *,
        sources: Sequence[str | None] | None = None,
        payloads: Sequence[Any] | None = None,
    ) -> None:
        """Replace codes, sources or payloads of items; those that are not given are kept.

        Parameters
        ----------
        ids : array-like of int
        codes : array-like of shape (n, n_bytes), optional
        sources : sequence of str or None, optional
        payloads : sequence, optional
            JSON values.

        Raises
        ------
        ValueError
            An id is unknown or given twice. Nothing is changed.
        """
        given = check_ids(ids)
        n = len(given)
        array = None
        columns: dict[str, list[Any]] = {}
        if codes is not None:
            array = check_codes(codes, self.n_bits)
            columns["code"] = list(to_blobs(array))
            if len(array) != n:
                raise ValueError(f"there must be a code for each of the {n} ids; got {len(array)}.")
        if sources is not None:
            columns["source"] = check_sources(sources, n)
        if payloads is not None:
            columns["payload"] = payload_texts(payloads, n)
        if not columns:
            raise ValueError("update needs codes, sources or payloads.")
        self._store.update(given, array, columns)

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
        results : list of lists of Match
            A list for each query, ordered by (distance, id).
        """
        return queries.search_codes(self, self.encode(vectors), k, radius)

    def search_images(self, images: Images, k: int | None = None, *, radius: int | None = None) -> list[list[Match]]:
        """Find the items nearest to each picture.

        Parameters
        ----------
        images
            The path of a picture, or a sequence of paths.
        k, radius
            As for :meth:`search_vectors`.

        Returns
        -------
        results : list of lists of Match
            A list for each picture, ordered by (distance, id).

        Raises
        ------
        ImageError
            A picture can't be read.
        """
        vectors = queries.read_images(self._require_extractor(), images)
        return self.search_vectors(vectors, k, radius=radius)

    def search_ids(self, ids: ArrayLike, k: int | None = None, *, radius: int | None = None) -> list[list[Match]]:
        """Find the items nearest to each of these items, itself included.

        Parameters
        ----------
        ids : array-like of int
        k, radius
            As for :meth:`search_vectors`.

        Returns
        -------
        results : list of lists of Match
            A list for each id, ordered by (distance, id).
        """
        given = check_ids(ids, distinct=False)
        self._store.check_known(given)
        return queries.search_codes(self, self.index.reconstruct(given), k, radius)

    def search(self, codes: ArrayLike, k: int, *, allow: ArrayLike | None = None) -> Neighbors:
        """Find the k nearest items of each code.

        Parameters
        ----------
        codes : array-like of shape (n, n_bytes), uint8
            Packed codes of the queries.
        k : int
            How many items per query. If the collection has fewer, the others are missing: id −1.
        allow : array-like of int, optional
            Search only these ids. Unknown ids are ignored.

        Returns
        -------
        neighbors : Neighbors
            ``distances`` (n, k) and ``ids`` (n, k), ordered by (distance, id).
        """
        return self.index.search(codes, k, allow=allow)

    def within(self, codes: ArrayLike, radius: int, *, allow: ArrayLike | None = None) -> Matches:
        """Find all items within a Hamming distance of each code.

        Parameters
        ----------
        codes : array-like of shape (n, n_bytes), uint8
            Packed codes of the queries.
        radius : int
            The largest distance, inclusive.
        allow : array-like of int, optional
            Search only these ids. Unknown ids are ignored.

        Returns
        -------
        matches : Matches
            ``matches[i]`` is (distances, ids) of query i, ordered by (distance, id).
        """
        return self.index.within(codes, radius, allow=allow)

    def get(self, ids: ArrayLike, *, skip_missing: bool = False) -> list[Item]:
        """Return the items with these ids, in their order.

        Parameters
        ----------
        ids : array-like of int
        skip_missing : bool
            Leave out unknown ids, such as those of items that another process has removed since a search returned
            them.

        Returns
        -------
        items : list of Item

        Raises
        ------
        ValueError
            An id is unknown, and ``skip_missing`` is False.
        """
        given = check_ids(ids, distinct=False).tolist()

        def read() -> list[Any]:
            return list(self._database.select("id, source, payload", "id", list(dict.fromkeys(given))))

        items = {row[0]: self._item(*row) for row in self._database.transact(read)}
        missing = [id for id in given if id not in items]
        if missing and not skip_missing:
            raise ValueError(f"id {missing[0]} is not in the collection.")
        return [items[id] for id in given if id in items]

    def batches(self, size: int = 10_000) -> Iterator[tuple[Codes, list[Item]]]:
        """Iterate over codes and items, by id, as they are in the file at the start, whatever others change meanwhile.

        Parameters
        ----------
        size : int
            Items per batch.

        Yields
        ------
        codes : ndarray of shape (n, n_bytes), uint8
        items : list of Item

        Raises
        ------
        CollectionError
            After the last batch, if the checksum is wrong.
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

        Parameters
        ----------
        sources : sequence of str, optional
            Those to look up; unknown ones are left out. None: all.

        Returns
        -------
        ids : dict of str to list of int
        """
        return self._store.find_ids(None if sources is None else check_sources(sources))

    def ids_of(self, sources: Sequence[str] | None = None) -> dict[str, list[int]]:
        """Deprecated name of :meth:`find_ids`."""
        warnings.warn("Collection.ids_of is now Collection.find_ids.", DeprecationWarning, stacklevel=2)
        return self.find_ids(sources)

    # -- in step with the file ----------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read what other processes have changed; returns whether codes or ids did.

        Sources and payloads are always read from the file.
        """
        model = self._database.meta.get("model_key")
        changed = self._store.refresh()
        if self._database.meta.get("model_key") != model:  # another collection took its place
            self._model = None
        return changed
