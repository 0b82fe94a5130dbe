"""The inputs as batches of rows: the only part that knows which kinds of inputs users may give.

A source is asked for the batches of the shards that are wanted, in order. What can be reached by number is not read for
a shard that is done; an iterable is read again up to where it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from itertools import count as counting
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, default_collate

from ..capture import rng
from ..errors import ArgumentError
from .images import image_files, is_image_file, load_image, relative_ids, to_tensor
from .plan import Id

E = TypeVar("E", bound=Exception)
IsWanted = Callable[[int], bool]
Preprocess = Callable[[Any], Any]
BATCH_SIZE = 64  # unless another one is asked for


@dataclass
class Batch:
    """Some rows, as the model takes them."""

    rows: list[int]
    groups: list[tuple[list[int], Any]]  # what runs together: all rows, unless their shapes differ
    failed: dict[int, Exception] = field(default_factory=dict)  # rows that could not be loaded
    some: Callable[[list[int]], Any] | None = None  # the same for some of the rows; None if it is unknown
    last: bool = False  # no row follows, as far as that was not known


class Source:
    """Inputs that were given, with the ids of the rows."""

    count: int | None = None
    ids: Sequence[Id] | None = None
    replays = False  # must be read from the beginning to get to the middle
    read = 0  # rows that were read of what replays
    batch_size: int

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        """The batches of each shard that is wanted, in order."""
        raise NotImplementedError

    def some_batches(self, rows: int) -> Iterator[Batch]:
        """Batches to try things on: the first, and more, spread over the inputs, until there are this many rows."""
        assert self.count is not None
        total = -(-self.count // self.batch_size)
        number = min(total, -(-rows // self.batch_size))
        chosen = {index * total // number for index in range(number)}
        return self.batches(self.batch_size, chosen.__contains__)

    def ranges(self, shard_rows: int, wanted: IsWanted) -> Iterator[list[int]]:
        """The rows of each batch, for what can be reached by number."""
        assert self.count is not None
        for shard, start in enumerate(range(0, self.count, shard_rows)):
            if not wanted(shard):
                continue
            stop = min(start + shard_rows, self.count)
            for first in range(start, stop, self.batch_size):
                yield list(range(first, min(first + self.batch_size, stop)))


# ---- what users give ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """The arguments of `tl.extract` that are about inputs."""

    inputs: Any
    batch_size: int | None = None
    preprocess: Preprocess | None = None
    ids: Any = None
    ragged: bool = False
    on_error: str = "raise"
    seed: int = 0


def source_of(given: Given) -> Source:
    """A source for what was given; raises if nothing can be made of it."""
    source = _source(given)
    ids = given.ids
    if ids is not None:
        source.ids = [_id(each) for each in ids]
        if source.count is None:
            source.count = len(source.ids)
        if len(source.ids) != source.count:
            raise ArgumentError(f"there are {len(source.ids)} ids, but {source.count} inputs")
    if source.ids is not None and len(set(source.ids)) < len(source.ids):
        seen: set[Id] = set()
        twice = next(each for each in source.ids if each in seen or seen.add(each))  # type: ignore[func-returns-value]
        raise ArgumentError(f"ids: {twice!r} appears more than once; each input needs its own id")
    if source.count == 0:
        raise ArgumentError("there are no inputs")
    return source


def _source(given: Given) -> Source:
    inputs = given.inputs
    if isinstance(inputs, DataLoader):
        return _loader(inputs, given)
    if isinstance(inputs, (str, os.PathLike)):
        folder = Path(inputs)
        files = image_files(folder)
        return Samples(_Images(files), given, [file.relative_to(folder).as_posix() for file in files], to_tensor)
    if isinstance(inputs, np.ndarray):
        inputs = torch.from_numpy(inputs)
    if given.preprocess is None and _is_columns(inputs):
        return Columns(inputs, given.batch_size or BATCH_SIZE)
    if isinstance(inputs, Sequence) and inputs and all(is_image_file(each) for each in inputs):
        return Samples(_Images([Path(each) for each in inputs]), given, relative_ids(inputs), to_tensor)
    if isinstance(inputs, Tensor) or (hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")):
        if isinstance(inputs, Mapping):
            raise ArgumentError("inputs: a dict must hold tensors, all with the samples in dimension 0")
        return Samples(inputs, given)
    if isinstance(inputs, Iterable):
        return SampleStream(inputs, given)
    raise ArgumentError(
        f"inputs: {type(inputs).__name__} can't be used; a tensor, Dataset, DataLoader, a folder or list of images, "
        "a list or any other iterable of samples can"
    )


def _id(given: Any) -> Id:
    if isinstance(given, str):
        return str(given)
    if hasattr(given, "__index__") and not isinstance(given, bool):
        return int(given.__index__())
    if isinstance(given, os.PathLike):
        return str(given)
    raise ArgumentError(f"ids must be strings or integers, not {given!r}")


def _is_columns(inputs: Any) -> bool:
    """Tensors that have all samples along dimension 0, one for each argument of the model."""
    if isinstance(inputs, Tensor):
        if not inputs.dim():
            raise ArgumentError("inputs: a tensor without dimensions holds no samples")
        return True
    members = list(inputs.values()) if isinstance(inputs, Mapping) else inputs if type(inputs) is tuple else []
    return bool(members) and all(isinstance(member, Tensor) and member.dim() for member in members)


# ---- sources ------------------------------------------------------------------------------------------------


class Columns(Source):
    """Tensors with the samples along dimension 0."""

    def __init__(self, inputs: Any, batch_size: int) -> None:
        self._inputs = inputs
        self.batch_size = batch_size
        lengths = {len(member) for member in _members(inputs)}
        if len(lengths) > 1:
            raise ArgumentError(f"inputs: the tensors have {sorted(lengths)} samples; all need the same number")
        (self.count,) = lengths

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        for rows in self.ranges(shard_rows, wanted):
            value = _mapped(self._inputs, slice(rows[0], rows[-1] + 1))
            yield Batch(rows, [(rows, value)], some=lambda some: _mapped(self._inputs, some))


def _members(inputs: Any) -> list[Tensor]:
    if isinstance(inputs, Tensor):
        return [inputs]
    return list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)


def _mapped(inputs: Any, key: Any) -> Any:
    if isinstance(inputs, Tensor):
        return inputs[key]
    if isinstance(inputs, Mapping):
        return {name: member[key] for name, member in inputs.items()}
    return tuple(member[key] for member in inputs)


class Loading(Source):
    """Samples that are preprocessed and put together here."""

    def __init__(self, given: Given, preprocess: Preprocess | None = None) -> None:
        self._preprocess = given.preprocess or preprocess or _as_it_is
        self._skips = given.on_error == "skip"
        self._seed = given.seed
        self.ragged = given.ragged
        self.batch_size = given.batch_size or BATCH_SIZE

    def _load(self, rows: list[int], sample: Callable[[int], Any]) -> Batch:
        """The samples of these rows as a batch; where shapes differ, as several groups if that is allowed."""
        samples: dict[int, Any] = {}
        failed: dict[int, Exception] = {}
        rng.seed_generators(seed_of(self._seed, rows[0]))  # for a preprocess that draws
        for row in rows:
            try:
                samples[row] = self._preprocess(sample(row))
            except Exception as error:
                if not self._skips:
                    raise blamed(error, f"loading {row_words(self.ids, row)}") from None
                failed[row] = error
        groups = self._groups(samples)
        return Batch(rows, [(group, _stack(samples, group)) for group in groups], failed, partial(_stack, samples))

    def _groups(self, samples: dict[int, Any]) -> list[list[int]]:
        """The rows that can run together: neighbours of the same shape."""
        groups: list[list[int]] = []
        for row, sample in samples.items():
            facts = _facts(sample)
            before = _facts(samples[groups[-1][0]]) if groups else facts
            if groups and before == facts:
                groups[-1].append(row)
            elif groups and not self.ragged:
                raise ArgumentError(
                    f"{row_words(self.ids, row)} has {_shape_text(facts)}, and "
                    f"{row_words(self.ids, groups[-1][0])} has {_shape_text(before)}: preprocess= can make "
                    "them alike, and ragged=True stores values of different shapes"
                )
            else:
                groups.append([row])
        return groups


def _stack(samples: dict[int, Any], rows: list[int]) -> Any:
    return default_collate([samples[row] for row in rows])


class Samples(Loading):
    """Samples by number: a Dataset, a list, image files."""

    def __init__(
        self, samples: Any, given: Given, ids: Sequence[Id] | None = None, preprocess: Preprocess | None = None
    ) -> None:
        super().__init__(given, preprocess)
        self._samples = samples
        self.count = len(samples)
        self.ids = ids

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        for rows in self.ranges(shard_rows, wanted):
            yield self._load(rows, self._samples.__getitem__)


def _facts(sample: Any) -> Any:
    """The shapes of the tensors in a sample."""
    if isinstance(sample, (Tensor, np.ndarray)):
        return tuple(sample.shape)
    if isinstance(sample, Mapping):
        return {name: _facts(member) for name, member in sample.items()}
    if isinstance(sample, (tuple, list)):
        return [_facts(member) for member in sample]
    return None


def _shape_text(facts: Any) -> str:
    return f"shape {facts}" if isinstance(facts, tuple) else f"shapes {facts}"


class _Images:
    """Image files as samples."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, row: int) -> Any:
        return load_image(self._files[row])


class SampleStream(Loading):
    """Samples one after another."""

    replays = True

    def __init__(self, samples: Iterable[Any], given: Given) -> None:
        super().__init__(given)
        self._stream = _Peekable(samples)
        with suppress(TypeError):
            self.count = len(samples)  # type: ignore[arg-type]

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        return self._read(self._stream.rest(), shard_rows, wanted)

    def some_batches(self, rows: int) -> Iterator[Batch]:
        return self._read(
            iter(self._stream.first(-(-rows // self.batch_size) * self.batch_size)), 1, lambda shard: True
        )

    def _read(self, stream: Iterator[Any], shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        ahead = list(islice(stream, self.batch_size))
        for start in counting(0, self.batch_size):
            now, ahead = ahead, list(islice(stream, self.batch_size))
            if not now:
                return
            self.read = start + len(now)
            if wanted(start // shard_rows):
                rows = list(range(start, start + len(now)))
                batch = self._load(rows, lambda row, now=now, start=start: now[row - start])  # type: ignore[misc]
                batch.last = not ahead
                yield batch


class _Peekable:
    """An iterable that is read once, whose first members can be looked at before."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = iter(members)
        self._seen: list[Any] = []

    def first(self, number: int) -> list[Any]:
        self._seen += islice(self._members, max(number - len(self._seen), 0))
        return self._seen[:number]

    def rest(self) -> Iterator[Any]:
        seen, self._seen = self._seen, []
        return chain(seen, self._members)


# ---- DataLoaders --------------------------------------------------------------------------------------------


def _loader(loader: DataLoader[Any], given: Given) -> Source:
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
        self._preprocess = given.preprocess or _as_it_is
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
        self._stream = _Peekable(loader)
        self._preprocess = given.preprocess or _as_it_is
        self.batch_size = batch_size

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        return self._read(self._stream.rest(), shard_rows, wanted)

    def some_batches(self, rows: int) -> Iterator[Batch]:
        return self._read(iter(self._stream.first(-(-rows // self.batch_size))), 1, lambda shard: True)

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


# ---- helpers ------------------------------------------------------------------------------------------------


def _as_it_is(sample: Any) -> Any:
    return sample


def rows_in(value: Any) -> int:
    """How many samples a batch has: the size of its first tensor."""
    for tensor in iter_tensors(value):
        if tensor.dim():
            return len(tensor)
    raise ArgumentError(f"inputs: a batch must hold at least one tensor, not {type(value).__name__} alone")


def iter_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from iter_tensors(member)
    elif isinstance(value, (tuple, list)):
        for member in value:
            yield from iter_tensors(member)


def seed_of(seed: int, row: int) -> int:
    """Where the random generators begin at a batch, so that a shard comes out alike whatever ran before it."""
    return (seed * 1_000_003 + row) % 2**63


def row_words(ids: Sequence[Id] | None, row: int) -> str:
    """A row for messages: with its id, if it has one."""
    return f"row {row}" if ids is None else f"{ids[row]!r} (row {row})"


def noted(error: E, doing: str, advice: str = "") -> E:
    """An exception with a note of what was being done."""
    if hasattr(error, "add_note"):
        error.add_note(f"tl.extract: this was raised while {doing}{advice}")
    return error


def blamed(error: Exception, doing: str) -> Exception:
    """The user's own exception, with a note of what was being done."""
    return noted(error, doing, "; on_error='skip' leaves such samples out")
