"""What an extraction leaves, for reading: layers by name, rows by number and by id."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..bundle.hashing import hash_of
from ..errors import ArgumentError, LayerNotFoundError, StoreError, near
from ..words import counted
from .handover import Handover
from .plan import IDS, PLAN, Id, StorePlan, read_ids, read_plan
from .shard import Shard, shard_numbers, shard_path
from .storage import Storage, storage_at
from .stored_layer import StoredLayer

_OPEN = 64  # shards that are kept open


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open what `tl.extract` has written, or has written so far.

    >>> _ = tl.extract(model, x, ["fc", "relu_1_2"], save_to=folder / "acts")
    >>> store = tl.open_store(folder / "acts")
    >>> store
    Store of DemoNetwork: 2 layers, 5 rows, complete
    >>> store["fc"][1:3].shape
    (2, 5)

    Nothing in the files is run or imported, and values are read when they are asked for.
    """
    return Store(storage_at(path))


def is_store(path: str | os.PathLike[str]) -> bool:
    """Is there a store, or the beginning of one?"""
    return storage_at(path).has(PLAN)


class Store(Handover):
    """Layers of a model for all rows of a data set.

    >>> store = tl.extract(model, x, ["fc", "relu_1_2"], save_to=folder / "named", ids=["a", "b", "c", "d", "e"])
    >>> store["relu_1_2"].shape, store["relu_1_2"][[0, 3]].shape, store["relu_1_2"].by_id("c").shape
    ((5, 5), (2, 5), (5,))
    >>> print(store.verify())
    1 shard checked, all as written

    `store.ids` are the ids of the rows, `store.layers` the names of the layers. What is missing or was skipped is
    never given as zeros: it raises, and `store.missing` and `store.skipped` tell.
    """

    def __init__(self, storage: Storage) -> None:
        plan = read_plan(storage)
        if plan is None:
            raise StoreError(f"{storage.where} is not a store; tl.extract(..., save_to={storage.where!r}) makes one")
        self.path = storage.where
        self.plan: StorePlan = plan
        self._storage = storage
        self._open: OrderedDict[int, Shard] = OrderedDict()
        self._layers = {layer.name: layer for layer in plan.layers}
        self.refresh()

    def refresh(self) -> None:
        """Look again at which shards are there: others may be at work."""
        self._done = shard_numbers(self._storage)
        self._open.clear()
        for cached in ("skipped", "_known", "ids", "_rows_of_ids"):
            self.__dict__.pop(cached, None)

    # ---- what there is --------------------------------------------------------------------------------------

    @property
    def layers(self) -> list[str]:
        """The names of the layers."""
        return list(self._layers)

    def __len__(self) -> int:
        """How many rows there are or will be; as far as is known, for inputs that do not say."""
        return self._known[0]

    @cached_property
    def _known(self) -> tuple[int, bool]:
        """How many rows there are, and is that certain?"""
        if self.plan.count is not None:
            return self.plan.count, True
        if not self._done:
            return 0, False
        about = self._shard(max(self._done)).about
        return about.stop, about.last

    @cached_property
    def ids(self) -> Sequence[Id]:
        """The ids of the rows; their numbers, if they were given none."""
        if self.plan.ids is None:
            return range(len(self))
        data, ids = self._storage.read(IDS), read_ids(self._storage)
        if ids is None or data is None or hash_of(data) != self.plan.ids:
            raise StoreError(f"{self.path}/{IDS} is missing or damaged: it does not match the plan of the store")
        return ids

    @cached_property
    def _rows_of_ids(self) -> dict[Id, int]:
        return {id: row for row, id in enumerate(self.ids)}

    @property
    def is_complete(self) -> bool:
        """Is everything there?"""
        return self._known[1] and not self.missing

    @property
    def missing(self) -> list[int]:
        """The shards that are not there yet."""
        return sorted(set(range(-(-len(self) // self.plan.shard_rows))) - self._done)

    @property
    def missing_rows(self) -> list[range]:
        """The rows that are not there yet."""
        found: list[range] = []
        for rows in map(self.plan.rows_of, self.missing):
            begun = found.pop() if found and found[-1].stop == rows.start else rows
            found.append(range(begun.start, rows.stop))
        return found

    @cached_property
    def skipped(self) -> dict[Id, str]:
        """The samples that raised and were left out, with what they raised."""
        return {self.ids[row]: error for row, error in self._skipped_rows().items()}

    def _skipped_rows(self, shards: Iterable[int] | None = None) -> dict[int, str]:
        if self.plan.on_error != "skip":
            return {}
        chosen = sorted(self._done if shards is None else shards)
        return {int(row): error for shard in chosen for row, error in self._shard(shard).about.skipped.items()}

    @property
    def rows(self) -> list[int]:
        """The rows that are there: all but those that are missing or were skipped."""
        skipped = self._skipped_rows()
        done = (row for shard in sorted(self._done) for row in self._rows_of(shard))
        return [row for row in done if row not in skipped]

    def _rows_of(self, shard: int) -> range:
        rows = self.plan.rows_of(shard)
        return range(rows.start, min(rows.stop, len(self)))

    @property
    def nbytes(self) -> int:
        """Bytes of all values that are there or will be; of ragged layers, of those that are there."""
        return sum(self[name].nbytes for name in self.layers)

    def __getstate__(self) -> dict[str, Any]:
        """For workers of a `DataLoader`, which open the files themselves."""
        return {**self.__dict__, "_open": OrderedDict()}

    def __repr__(self) -> str:
        known, certain = self._known
        rows = counted(known, "row") if certain else f"{counted(known, 'row')} so far"
        missing = sum(map(len, self.missing_rows))
        state = "complete" if self.is_complete else f"{missing:,} of them missing" if missing else "not complete yet"
        skipped = f", {len(self.skipped)} skipped" if self._done and self.skipped else ""
        return f"Store of {self.plan.model}: {counted(len(self.layers), 'layer')}, {rows}, {state}{skipped}"

    # ---- values ---------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> StoredLayer:
        """A layer by its name, its label or its short label."""
        if not isinstance(name, str):
            raise ArgumentError(f"a store is asked for one layer by its name, not {name!r}; store.layers lists them")
        if name in self._layers:
            return StoredLayer(self, self._layers[name])
        for layer in self._layers.values():
            if name in (layer.label, layer.label.rpartition("_")[0], layer.source):
                return StoredLayer(self, layer)
        raise LayerNotFoundError(
            f"the store has no layer {name!r}{near(str(name), self._layers)}; store.layers lists them"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __contains__(self, name: object) -> bool:
        return name in self._layers

    def _ipython_key_completions_(self) -> list[str]:
        return self.layers

    def row_of(self, id: Id) -> int:
        """The number of the row with this id."""
        try:
            return self._rows_of_ids[id]
        except KeyError:
            raise LayerNotFoundError(f"no row has the id {id!r}{near(str(id), map(str, self.ids))}") from None

    def _shard(self, number: int) -> Shard:
        shard = self._open.pop(number, None)
        if shard is None:
            shard = Shard(self._storage, shard_path(number))
            expected = self.plan.rows_of(number)
            if shard.about.start != expected.start or shard.about.stop > expected.stop:
                raise StoreError(f"{self.path}/{shard.name} holds other rows than its name says")
        self._open[number] = shard
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return shard

    def verify(self, *, shards: Iterable[int] | None = None) -> StoreReport:
        """Compare everything, or some shards, with the hashes that were written; `print` says what is wrong.

        >>> bool(tl.extract(model, x, "fc", save_to=folder / "fc").verify())
        True
        """
        problems: list[str] = []
        chosen = sorted(self._done if shards is None else shards)
        for number in chosen:
            try:
                problems += self._problems(number)
            except StoreError as error:
                problems.append(str(error))
        if shards is None:
            problems += [f"{self.path}/{shard_path(number)} is missing" for number in self.missing]
            if not self._known[1]:
                problems.append("the inputs have not been read to their end yet")
            try:
                _ = self.ids
            except StoreError as error:
                problems.append(str(error))
        return StoreReport(len(chosen), tuple(problems))

    def _problems(self, number: int) -> list[str]:
        self._open.pop(number, None)
        shard = self._shard(number)
        found = [f"{self.path}/{shard.name} was altered or damaged: {what}" for what in shard.damages()]
        if shard.about.stop != self._rows_of(number).stop:
            found.append(f"{self.path}/{shard.name} ends at row {shard.about.stop}, before its rows do")
        rows = shard.about.stop - shard.about.start - len(shard.about.skipped)
        for layer in self._layers.values() if not found else ():
            entry = shard.entries.get(layer.name)
            shape = None if layer.shape is None else (rows, *layer.shape)
            if entry is None or entry.dtype != layer.torch_dtype or (shape is not None and entry.shape != shape):
                found.append(f"{self.path}/{shard.name} does not hold {layer.name!r} as the plan says")
        return found


@dataclass(frozen=True)
class StoreReport:
    """What `store.verify()` found; true if nothing is wrong.

    >>> report = tl.extract(model, x, "relu_1", save_to=folder / "relu").verify()
    >>> bool(report), report.checked, report.problems
    (True, 1, ())
    """

    checked: int
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "\n".join(self.problems) or f"{counted(self.checked, 'shard')} checked, all as written"
