"""DataLoaders: their batches, their workers and their `collate_fn`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from ..errors import ArgumentError
from .input_source import (
    Batch,
    Given,
    IsWanted,
    Peekable,
    Source,
    blamed,
    own_copy,
    rows_in,
    unchanged,
)


def loader_source(loader: DataLoader[Any], given: Given) -> Source:
    if loader.batch_size is None and loader.batch_sampler is None:
        raise ArgumentError("inputs: this DataLoader does not make batches; give it a batch_size")
    size = loader.batch_size
    if size is None or (given.batch_size is not None and given.batch_size != size):
        raise ArgumentError(
            f"batch_size: the DataLoader makes batches of {size}; leave batch_size out to use its batches"
            if size is not None
            else "inputs: a DataLoader with its own batch_sampler may leave out or repeat samples; give it a batch_size"
        )
    if loader.drop_last:
        raise ArgumentError(
            "inputs: this DataLoader drops the last batch if it is not full; make it with drop_last=False"
        )
    if isinstance(loader.dataset, IterableDataset):
        return Batches(loader, size, given)
    if type(loader.sampler) is not SequentialSampler or type(loader.batch_sampler) is not BatchSampler:
        raise ArgumentError(
            "inputs: this DataLoader shuffles or samples, so rows would not be in the order of the data set; "
            "make it with shuffle=False and no sampler"
        )
    return Loader(loader, size, given)


class Loader(Source):
    """A DataLoader over a data set: its workers and its collate_fn, for the batches that are wanted."""

    def __init__(self, loader: DataLoader[Any], batch_size: int, given: Given) -> None:
        self._loader = loader
        self._preprocess = given.preprocess or unchanged
        self.batch_size = batch_size
        self.count = len(loader.dataset)  # type: ignore[arg-type]
        self._skips = given.on_error == "skip"

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        ranges = _Remembered(self.ranges(shard_rows, wanted))
        loaded = iter(_like(self._loader, ranges))
        while True:
            try:
                value = next(loaded)
            except StopIteration:
                return
            except Exception as error:
                rows = ranges.next_one()
                if not self._skips:
                    raise blamed(error, f"loading rows {rows[0]} to {rows[-1]}") from None
                yield self._one_by_one(rows)
                continue
            rows = ranges.next_one()
            yield Batch(rows, [(rows, self._preprocess(value))], some=self._some)

    def _some(self, rows: list[int]) -> Any:
        collate: Any = self._loader.collate_fn
        return self._preprocess(collate([self._loader.dataset[row] for row in rows]))

    def _one_by_one(self, rows: list[int]) -> Batch:
        failed: dict[int, Exception] = {}
        for row in rows:
            try:
                self._loader.dataset[row]
            except Exception as error:
                failed[row] = error
        left = [row for row in rows if row not in failed]
        return Batch(rows, [(left, self._some(left))] if left else [], failed, self._some)


class _Remembered:
    """The rows of each batch, which the loader asks for ahead of time."""

    def __init__(self, ranges: Iterator[list[int]]) -> None:
        self._ranges = ranges
        self._asked: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self._ranges:
            self._asked.append(rows)
            yield rows

    def next_one(self) -> list[int]:
        return self._asked.pop(0)


def _like(loader: DataLoader[Any], batches: Iterable[list[int]]) -> DataLoader[Any]:
    """The same loader for these batches."""
    names = "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator".split()
    same = {name: getattr(loader, name) for name in names}
    if loader.num_workers:
        same["prefetch_factor"] = loader.prefetch_factor
    return DataLoader(loader.dataset, batch_sampler=batches, **same)


class Batches(Source):
    """A DataLoader over a stream: batches one after another."""

    replays = True

    def __init__(self, loader: DataLoader[Any], batch_size: int, given: Given) -> None:
        self._stream = Peekable(loader)
        self._preprocess = given.preprocess or unchanged
        self.batch_size = batch_size

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        return self._read(self._stream.rest(), shard_rows, wanted)

    def some_batches(self, rows: int) -> Iterator[Batch]:
        first = own_copy(self._stream.first(-(-rows // self.batch_size)))  # the run will see it again
        return self._read(iter(first), 1, lambda shard: True)

    def _read(self, stream: Iterator[Any], shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        nothing, start = object(), 0
        ahead = next(stream, nothing)
        while ahead is not nothing:
            now, ahead = ahead, next(stream, nothing)
            value = self._preprocess(now)
            size = rows_in(value)
            if size > self.batch_size or (size < self.batch_size and ahead is not nothing):
                raise ArgumentError(
                    f"inputs: the DataLoader gave a batch of {size} at row {start}, not of {self.batch_size}; with "
                    "several workers a stream ends several times: num_workers=0 or 1 makes whole batches"
                )
            rows = list(range(start, start + size))
            self.read = start + size
            if wanted(start // shard_rows):
                yield Batch(rows, [(rows, value)], last=ahead is nothing)
            start += size
