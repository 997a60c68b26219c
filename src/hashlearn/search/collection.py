"""``Collection``: codes, ids, sources and payloads in one SQLite file, with an index in memory that is kept in step."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashlearn.codes import check_codes
from hashlearn.errors import CollectionError, ModelFileError
from hashlearn.search import _connection
from hashlearn.search._answers import Matches, Neighbours
from hashlearn.search._checksums import NOTHING, Rows, Tally, tally
from hashlearn.search._database import Database
from hashlearn.search._items import Item, blobs_of, checked_sources, json_text, payload_texts
from hashlearn.search._state import Ids, checked_ids
from hashlearn.search.index import HammingIndex
from hashlearn.storage import check_target, parse_json

if TYPE_CHECKING:
    from typing_extensions import Self

    from hashlearn.hashers import Hasher

__all__ = ["Collection"]


class _Change(NamedTuple):
    """What a transaction does to the codes: ids that go, and codes that come under ids."""

    gone: Ids
    codes: NDArray[np.uint8]
    ids: Ids
    #: What the items that are there afterwards, and of which anything is changed, add up to.
    tally: Tally


def _info_text(info: dict[str, Any]) -> str:
    text = json_text("info", info)
    try:
        parse_json(text)  # as it will be read
    except ValueError as error:
        raise ValueError(f"info must be something that JSON can hold; {error}.") from None
    return text


class Collection:
    """Codes with ids, sources and payloads, kept in one file and searched in memory.

    Every change is a transaction: when the call returns it is on the disk, and whatever happens in the middle of it
    leaves the file as it was. Many may read while one writes; :meth:`refresh` shows what others wrote. What is damaged
    is noticed when it is opened, by checksums. Close it before a process is forked.

    Example:
        >>> from hashlearn import ITQ
        >>> from hashlearn.datasets import load
        >>> from hashlearn.search import Collection
        >>> digits = load("digits")
        >>> model = ITQ(n_bits=32, random_state=0).fit(digits.train)
        >>> with Collection.create("digits.hl", model=model) as collection:
        ...     ids = collection.add(collection.encode(digits.database))
        ...     found = collection.search(collection.encode(digits.queries), k=3)
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
        """Make an empty collection.

        Args:
            path: The file, which must not be there yet.
            model: What makes codes of vectors; kept in the file.
            n_bits: The length of the codes, if there is no model.
            info: Plain values to keep with it (:attr:`info`), such as what features the model takes.
            first_id: Ids that are not given begin with this one.

        Raises:
            FileExistsError: The file is there, or what is left of one.
        """
        if (model is None) == (n_bits is None):
            raise ValueError("a collection takes a model or n_bits, one of them.")
        check_target(path)
        meta: dict[str, Any] = {"hashlearn": version("hashlearn"), "info": _info_text(info or {})}
        meta["next_id"] = int(checked_ids([first_id])[0])
        if model is not None:
            from hashlearn.hashers._model_file import model_bytes, model_key

            n_bits = model.n_bits_
            meta |= {"model": model_bytes(model), "model_key": model_key(model)}
            meta |= {"method": model.name, "n_features": int(model.n_features_in_)}
        assert n_bits is not None
        HammingIndex(n_bits)  # refuses what is no number of bits
        _connection.create(Path(os.path.realpath(path)), int(n_bits), meta)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, readonly: bool = False) -> Self:
        """Open a collection; a :class:`~hashlearn.errors.CollectionError` says what is damaged or does not fit."""
        database = Database(Path(path), readonly=readonly)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Let go of the file; the last to close it clears away what SQLite keeps beside it."""
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
        """The file itself, if :attr:`path` is a link to it."""
        return self._database.file

    @property
    def n_bits(self) -> int:
        return self._database.n_bits

    @property
    def ids(self) -> Ids:
        """All ids, ascending; not to be changed."""
        return self.index.ids

    @property
    def info(self) -> dict[str, Any]:
        """The plain values that it was made with."""
        try:
            found = parse_json(self._database.meta["info"])
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CollectionError(f"{self.path} is damaged: what it was made with is no JSON object.")
        return found

    @property
    def about(self) -> dict[str, Any]:
        """What is known of its making: the version of hashlearn, the model's method and number of features."""
        return {name: self._database.meta.get(name) for name in ("hashlearn", "method", "n_features")}

    # -- the model ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Hasher | None:
        """What makes codes of vectors; None if the collection was made without."""
        if self._model is None:
            content = self._database.model()
            if content is not None:
                self._model = self._read_model(content)
        return self._model

    def _read_model(self, content: bytes) -> Hasher:
        from hashlearn.hashers import Hasher

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model"
            file.write_bytes(content)
            try:
                model = Hasher.load(file)
            except ModelFileError as error:
                reason = str(error).replace(str(file), "it")
                raise CollectionError(f"{self.path} has a model that can't be used: {reason}") from None
        if model.n_bits_ != self.n_bits:
            raise CollectionError(
                f"{self.path} is damaged: its codes have {self.n_bits} bits, its model's {model.n_bits_}."
            )
        return model

    def has_model(self, model: Hasher) -> bool:
        """Whether this is the model that the collection was made with: the same arrays, parameters and remarks."""
        from hashlearn.hashers._model_file import model_key

        return bool(self._database.meta.get("model_key") == model_key(model))

    def encode(self, vectors: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of vectors, by the collection's model."""
        model = self.model
        if model is None:
            raise ValueError(f"{self.path} has no model: it takes codes, not vectors.")
        found = np.asarray(vectors)
        if found.ndim == 2 and found.shape[1] != model.n_features_in_:
            raise ValueError(
                f"{self.path} has a model for vectors of {model.n_features_in_} numbers; got {found.shape[1]}."
            )
        return model.encode(vectors)

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(
        self,
        codes: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        sources: Sequence[str | None] | None = None,
        payloads: Sequence[Any] | None = None,
        unless_there: bool = False,
    ) -> Ids:
        """Add items; returns their ids, which are new ones unless given. An id that was removed is not given again.

        Args:
            codes: Packed codes (n, bytes).
            ids: Whole numbers from 0 on, none of them there.
            sources: Where each item comes from, such as a path; None: nowhere.
            payloads: For each item a value that JSON can hold; None: nothing.
            unless_there: Leave out items whose id, if ids are given, or else whose source is in the collection already,
                also if another process has just added it.
        """
        array = check_codes(codes, self.n_bits)
        n = len(array)
        own, texts = checked_sources(sources, n), payload_texts(payloads, n)
        wanted = None if ids is None else checked_ids(ids, n)
        if unless_there and wanted is None:
            self._database.check_sources()  # which may take long, and others would wait for a transaction

        def write() -> _Change:
            keep = self._new_ones(wanted, own) if unless_there else np.arange(n)
            chosen = np.take(array, keep, axis=0)
            after = self._database.next_id()
            if wanted is not None:
                given = wanted[keep]
            elif after + len(keep) > np.iinfo(np.int64).max:
                raise ValueError("there is no larger id left: give ids.")
            else:
                given = np.arange(after, after + len(keep), dtype=np.int64)
            self.check_new(given)
            new = Rows(given, chosen, [own[row] for row in keep.tolist()], [texts[row] for row in keep.tolist()])
            rows = zip(given.tolist(), blobs_of(chosen), new.sources, new.payloads, strict=True)
            self._database.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
            if len(given):
                after = max(after, int(given.max()) + 1)
                self._database.set_next_id(after)
            return _Change(given[:0], chosen, given, tally(new))

        return self._change(self.index.ids[:0], write).ids

    def check_new(self, ids: ArrayLike) -> None:
        """A ValueError if one of the ids is no id, or given twice, or there already."""
        given = checked_ids(ids)
        there = self.index.contains(given)
        if there.any():
            raise ValueError(f"id {given[there].min()} is in the collection already.")

    def _new_ones(self, ids: Ids | None, sources: list[str | None]) -> NDArray[np.intp]:
        """Which of the items are not there yet, by id or else by source, and not among those before them either."""
        if ids is not None:
            return np.flatnonzero(~self.index.contains(ids))
        seen = set(self.ids_of([source for source in sources if source is not None]))
        new = []
        for row, source in enumerate(sources):
            if source is None or source not in seen:
                new.append(row)
                seen.add(source)  # type: ignore[arg-type]
        return np.array(new, dtype=np.intp)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items. A ValueError, and nothing removed, if an id is not there or is given twice."""
        given = checked_ids(ids)

        def write() -> _Change:
            self._check_known(given)
            self._database.executemany("DELETE FROM items WHERE id = ?", ((id,) for id in given.tolist()))
            return _Change(given, self.index.codes[:0], given[:0], NOTHING)

        self._change(given, write)

    def update(
        self,
        ids: ArrayLike,
        codes: ArrayLike | None = None,
        *,
        sources: Sequence[str | None] | None = None,
        payloads: Sequence[Any] | None = None,
    ) -> None:
        """Give items other codes, sources or payloads; what is left out stays.

        A ValueError, and nothing changed, if an id is not there or is given twice.
        """
        given = checked_ids(ids)
        n = len(given)
        array = None if codes is None else check_codes(codes, self.n_bits)
        if array is not None and len(array) != n:
            raise ValueError(f"there must be a code for each of the {n} ids; got {len(array)}.")
        columns: dict[str, list[Any]] = {}
        if array is not None:
            columns["code"] = list(blobs_of(array))
        if sources is not None:
            columns["source"] = checked_sources(sources, n)
        if payloads is not None:
            columns["payload"] = payload_texts(payloads, n)
        if not columns:
            raise ValueError("update takes codes, sources or payloads: at least one of them.")
        assignments = ", ".join(f"{name} = ?" for name in columns)

        def write() -> _Change:
            self._check_known(given)
            rows = zip(*columns.values(), given.tolist(), strict=True)
            self._database.executemany(f"UPDATE items SET {assignments} WHERE id = ?", rows)
            after = self._database.tally_of(given)
            if array is None:
                return _Change(given[:0], self.index.codes[:0], given[:0], after)
            return _Change(given, array, given, after)

        self._change(given, write)

    def _check_known(self, ids: Ids) -> None:
        unknown = ids[~self.index.contains(ids)]
        if len(unknown):
            raise ValueError(f"id {unknown[0]} is not in the collection.")

    def _change(self, touched: Ids, write: Callable[[], _Change]) -> _Change:
        """Do what ``write`` does in one transaction, and take it over into the index.

        ``touched``: the items that are there and of which something is changed.
        """

        def transaction() -> tuple[_Change, int]:
            self._catch_up()
            database = self._database
            before = database.tally_of(touched)
            change = write()
            known = database.tally()
            assert known is not None  # a file that is written has one
            database.set_tally(known.minus(before).plus(change.tally))
            database.log_change(change.gone if len(change.gone) else change.ids)
            return change, database.last_change()

        self._database.check_process()
        with self._database.lock:  # until the index is in step, for other threads of this process
            change, number = self._database.change(transaction)
            self.index.exchange(change.gone, change.codes, change.ids)
            self._seen = number
        return change

    # -- searches -----------------------------------------------------------------------------------------------------

    def search(self, codes: ArrayLike, k: int, *, allow: ArrayLike | None = None) -> Neighbours:
        """The k nearest of each query: see :meth:`HammingIndex.search`."""
        return self.index.search(codes, k, allow=allow)

    def within(self, codes: ArrayLike, radius: int, *, allow: ArrayLike | None = None) -> Matches:
        """All within a radius of each query: see :meth:`HammingIndex.within`."""
        return self.index.within(codes, radius, allow=allow)

    def get(self, ids: ArrayLike, *, skip_missing: bool = False) -> list[Item]:
        """The items with these ids, in their order.

        A ValueError if one is not there; with ``skip_missing`` it is left out, such as one that another process has
        removed since a search found it.
        """
        wanted = checked_ids(ids, distinct=False).tolist()

        def read() -> list[Any]:
            return list(self._database.select("id, source, payload", "id", list(dict.fromkeys(wanted))))

        found = {row[0]: self._item(*row) for row in self._database.transact(read)}
        if not skip_missing:
            for id in wanted:
                if id not in found:
                    raise ValueError(f"id {id} is not in the collection.")
        return [found[id] for id in wanted if id in found]

    def batches(self, size: int = 10_000) -> Iterator[tuple[NDArray[np.uint8], list[Item]]]:
        """Codes and items, by id, as the file has them when it begins, whatever others change meanwhile.

        A :class:`~hashlearn.errors.CollectionError` after the last if they don't have their checksum.
        """
        for rows in self._database.rows(size):
            texts = zip(rows.ids.tolist(), rows.sources, rows.payloads, strict=True)
            yield rows.codes, [self._item(*row) for row in texts]

    def _item(self, id: int, source: str | None, payload: str | None) -> Item:
        try:
            return Item(id, source, None if payload is None else json.loads(payload))
        except (TypeError, ValueError, RecursionError):
            raise CollectionError(f"{self.path} is damaged: the payload of item {id} is no JSON.") from None

    def ids_of(self, sources: Sequence[str] | None = None) -> dict[str, list[int]]:
        """The ids of the items with these sources, or with any; ascending. Sources that are not there are left out."""
        found: dict[str, list[int]] = {}
        if isinstance(sources, str):
            raise ValueError("sources must be a list of them, not a text.")
        wanted = None if sources is None else list(dict.fromkeys(checked_sources(sources, len(sources))))
        self._database.check_sources()
        for source, id in self._database.select("source, id", "source", wanted):
            found.setdefault(source, []).append(id)
        return {source: sorted(ids) for source, ids in found.items()}

    # -- in step with the file ----------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """See what others changed since; whether codes or ids did. Sources and payloads are always the file's."""
        self._database.check_process()
        with self._database.lock:
            before = self._seen
            renewed = self._database.renew()
            if renewed:  # perhaps another file, whose log tells of other changes
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

    def _exchange(self, gone: Ids, codes: NDArray[np.uint8], ids: Ids) -> None:
        """Take over what was read from the file."""
        try:
            self.index.exchange(gone, codes, ids)
        except ValueError as error:
            raise CollectionError(f"{self.path} is damaged: {error}") from None

    def _catch_up(self) -> None:
        """Take over what changed in the file, inside a transaction."""
        number = self._database.last_change()
        if number == self._seen:
            return
        ranges = self._database.changes_since(self._seen)
        if ranges is None:
            self._read_all()
            return
        known = self.index.ids
        some = [self._database.codes(first, last) for first, last in ranges]
        gone = [known[np.searchsorted(known, first) : np.searchsorted(known, last, "right")] for first, last in ranges]
        ids, codes = (np.concatenate(parts) for parts in zip(*some, strict=True))
        self._exchange(np.concatenate(gone), codes, ids)
        self._seen = number
