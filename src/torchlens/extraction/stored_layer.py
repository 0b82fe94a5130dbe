"""One layer of a store, for reading: rows by number, slice, list and id, without the other layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import ArgumentError, StoreError
from ..words import counted, ranges
from .plan import Id, LayerPlan
from .shard import numpy_type
from .writer import shapes_name

if TYPE_CHECKING:
    from .store import Store


class StoredLayer(Dataset[Any]):
    """One layer of a store: rows as NumPy arrays, read when they are asked for. A map-style data set of torch.

    >>> layer = tl.extract(model, x, ["fc"], save_to=folder / "layer")["fc"]
    >>> layer.shape, layer[2].shape, layer[1:4].shape, layer[[4, 0]].shape
    ((5, 5), (5,), (3, 5), (2, 5))
    >>> [batch.shape for batch in layer.batches(2)]
    [torch.Size([2, 5]), torch.Size([2, 5]), torch.Size([1, 5])]
    """

    def __init__(self, store: Store, plan: LayerPlan) -> None:
        self._store = store
        self.plan = plan
        self.name = plan.name
        self.is_ragged = plan.shape is None

    def __len__(self) -> int:
        return len(self._store)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of one."""
        if self.plan.shape is None:
            raise ArgumentError(f"{self.name} is ragged: each row has a shape of its own")
        return len(self), *self.plan.shape

    @property
    def dtype(self) -> Any:
        """As NumPy has it; bfloat16, which it has not, is given as float32."""
        return numpy_type(self.plan.torch_dtype)

    @property
    def ids(self) -> Sequence[Id]:
        return self._store.ids

    @property
    def nbytes(self) -> int:
        """Bytes of all rows that are there or will be; of those that are there, if their shapes vary."""
        if not self.is_ragged:
            return len(self) * self.plan.row_bytes
        return sum(self._store._shard(shard).entries[self.name].nbytes for shard in self._store._done)

    def __repr__(self) -> str:
        shape = "ragged" if self.is_ragged else list(self.shape)
        return f"StoredLayer({self.name}  {str(self.plan.torch_dtype).removeprefix('torch.')}{shape})"

    # ---- rows -----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """Rows by number, slice, list or mask; further indices are those of NumPy. Ragged rows come as a list."""
        if isinstance(key, tuple):
            return self._indexed(*key)
        if key is ...:
            return self[:]
        if isinstance(key, str):
            raise ArgumentError(f"rows are indexed by number; to look up an id, use .by_id({key!r})")
        if isinstance(key, slice):
            return self._rows(range(*key.indices(len(self))))
        if _is_number(key):
            return self._rows([self._numbered(key.__index__())])[0]
        return self._rows([self._numbered(int(row)) for row in self._chosen(key)])

    def _indexed(self, first: Any = slice(None), *further: Any) -> Any:
        """Rows, and something of each."""
        if first is ... and not self.is_ragged:
            number = len(self.shape) - sum(each is not None for each in further)
            return self._indexed(*[slice(None)] * number, *further)
        rows = self[first]
        if self.is_ragged and isinstance(rows, list):
            return [row[further] for row in rows]
        if _is_number(first):
            return rows[further]
        # lists of rows and of places are taken in pairs, as NumPy does
        return rows[(slice(None) if isinstance(first, slice) else np.arange(len(rows)), *further)]

    def _chosen(self, key: Any) -> Any:
        """The numbers in a list or an array of them, or where a mask is true."""
        chosen = np.asarray(key)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            return np.flatnonzero(chosen)
        if chosen.dtype == bool and chosen.ndim:
            raise ArgumentError(
                f"a mask must have one entry for each of the {len(self)} rows, not {list(chosen.shape)}"
            )
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise ArgumentError(f"rows are indexed by a number, a slice, a list of numbers or a mask, not {key!r}")
        return chosen

    def __getitems__(self, rows: list[int]) -> list[Tensor]:
        """What a `DataLoader` asks for: the rows of a batch, read in one go."""
        return list(self.torch(rows))

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.is_ragged:
            raise ArgumentError(f"{self.name} is ragged, which no array can be; store[{self.name!r}][:] is a list")
        values = self[:]
        return values if dtype is None else values.astype(dtype)

    def by_id(self, id: Any) -> Any:
        """The row with this id, or the rows with these."""
        if isinstance(id, str) or _is_number(id):
            return self[self._store.row_of(id if isinstance(id, str) else id.__index__())]
        if not isinstance(id, Iterable):
            raise ArgumentError(f"an id must be a string or an integer, not {id!r}")
        return self[[self._store.row_of(each) for each in id]]

    def torch(self, key: Any = slice(None)) -> Any:
        """The same as tensors, in the type that is stored and in memory of their own."""
        rows = self[key]
        if isinstance(rows, list):
            return [torch.from_numpy(np.array(row)).to(self.plan.torch_dtype) for row in rows]
        return torch.from_numpy(np.array(rows)).to(self.plan.torch_dtype)

    def batches(self, size: int) -> Iterator[Tensor]:
        """All rows as tensors, `size` at a time."""
        if not _is_number(size) or size < 1:
            raise ArgumentError(f"size must be the number of rows in a batch, 1 or more, not {size!r}")
        return (self.torch(slice(start, start + size)) for start in range(0, len(self), size))

    def _numbered(self, row: int) -> int:
        if not -len(self) <= row < len(self):
            raise IndexError(f"{self.name} has {len(self)} rows, and no row {row}")
        return row % len(self)

    def _rows(self, rows: Sequence[int]) -> Any:
        """Rows in the order asked for. Each shard is opened once, and only these rows of it are read."""
        shards = self._by_shard(rows)
        self._check(rows, shards)
        if self.is_ragged:
            found: dict[int, Any] = {}
            for shard, wanted in shards.items():
                found.update(self._ragged(shard, wanted))
            return [found[row] for row in rows]
        if len(shards) == 1:
            ((shard, wanted),) = shards.items()
            return self._values(shard, wanted)
        values = np.empty((len(rows), *(self.plan.shape or ())), self.dtype)
        positions: dict[int, list[int]] = {}
        for position, row in enumerate(rows):
            positions.setdefault(row // self._store.plan.shard_rows, []).append(position)
        for shard, wanted in shards.items():
            values[_slice(positions[shard])] = self._values(shard, wanted)
        return values

    def _values(self, shard: int, rows: list[int]) -> Any:
        """Rows of one shard."""
        places = _slice(self._places(shard, rows))
        return self._store._shard(shard).rows(self.name, places)

    def _by_shard(self, rows: Sequence[int]) -> dict[int, list[int]]:
        shards: dict[int, list[int]] = {}
        for row in rows:
            shards.setdefault(row // self._store.plan.shard_rows, []).append(row)
        return shards

    def _check(self, rows: Sequence[int], shards: dict[int, list[int]]) -> None:
        """Raise if some of the rows are not there."""
        absent = [row for shard in shards if shard not in self._store._done for row in shards[shard]]
        if absent:
            raise StoreError(
                f"{self._store.path}: {len(absent)} of {counted(len(rows), 'row')} not there yet: {ranges(absent)}; "
                "the call that began the store resumes it, and store.rows lists what is there"
            )
        skipped = self._store._skipped_rows(shards)
        left_out = [row for row in rows if row in skipped]
        if left_out:
            raise StoreError(
                f"{self._store.path}: {len(left_out)} of {counted(len(rows), 'row')} skipped: {ranges(left_out)} "
                f"({self._store.ids[left_out[0]]!r} raised {skipped[left_out[0]]}); store.rows lists what is there"
            )

    def _places(self, shard: int, rows: list[int]) -> list[int]:
        """Where rows are in a shard: those that were skipped have no place."""
        start = shard * self._store.plan.shard_rows
        skipped = sorted(self._store._skipped_rows([shard]))
        if not skipped:
            return [row - start for row in rows]
        return [row - start - int(np.searchsorted(skipped, row)) for row in rows]

    def _ragged(self, shard: int, rows: list[int]) -> dict[int, Any]:
        file = self._store._shard(shard)
        values, shapes = file.rows(self.name, slice(None)), file.rows(shapes_name(self.name), slice(None))
        ends = np.concatenate([[0], np.cumsum(shapes.prod(1))])
        places = zip(rows, self._places(shard, rows), strict=True)
        return {row: values[ends[place] : ends[place + 1]].reshape(shapes[place]) for row, place in places}


def _is_number(key: Any) -> bool:
    return hasattr(key, "__index__") and np.ndim(key) == 0 and not isinstance(key, (bool, np.bool_))


def _slice(places: Sequence[int]) -> Any:
    """Consecutive places as a slice, which NumPy takes without a copy."""
    first, last = places[0], places[-1]
    if len(places) == last - first + 1 and all(place == first + i for i, place in enumerate(places)):
        return slice(first, last + 1)
    return list(places)
