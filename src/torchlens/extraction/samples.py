"""Samples that are put together here: tensors with all of them, a Dataset or list, image files, any iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count as counting
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from ..capture import rng
from ..errors import ArgumentError
from .images import load_image
from .input_source import (
    BATCH_SIZE,
    Batch,
    Given,
    IsWanted,
    Peekable,
    Preprocess,
    Source,
    blamed,
    own_copy,
    row_words,
    seed_of,
    unchanged,
)
from .plan import Id


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
        self._preprocess = given.preprocess or preprocess or unchanged
        self._skips = given.on_error == "skip"
        self._seed = given.seed
        self.ragged = given.ragged
        self.batch_size = given.batch_size or BATCH_SIZE

    def _load(self, rows: list[int], sample: Callable[[int], Any], for_a_try: bool = False) -> Batch:
        """The samples of these rows as a batch; where shapes differ, as several groups if that is allowed."""
        samples: dict[int, Any] = {}
        failed: dict[int, Exception] = {}
        rng.seed_generators(seed_of(self._seed, rows[0]))  # for a preprocess that draws
        for row in rows:
            try:
                found = sample(row)  # a preprocess may change it, and the run will see it again after a try
                samples[row] = self._preprocess(own_copy(found) if for_a_try else found)
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
    try:
        return default_collate([samples[row] for row in rows])
    except (TypeError, RuntimeError) as error:
        raise ArgumentError(
            f"inputs: rows {rows[0]} to {rows[-1]} can't be put together ({error}); preprocess= makes of each sample "
            "what the model takes, such as a tensor"
        ) from error


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

    def some_batches(self, rows: int) -> Iterator[Batch]:
        for some in self.ranges(self.batch_size, self.some_wanted(rows)):
            yield self._load(some, self._samples.__getitem__, for_a_try=True)


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


class Images:
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
        self._stream = Peekable(samples)
        with suppress(TypeError):
            self.count = len(samples)  # type: ignore[arg-type]

    def batches(self, shard_rows: int, wanted: IsWanted) -> Iterator[Batch]:
        return self._read(self._stream.rest(), shard_rows, wanted)

    def some_batches(self, rows: int) -> Iterator[Batch]:
        first = self._stream.first(-(-rows // self.batch_size) * self.batch_size)
        return self._read(iter(first), 1, lambda shard: True, for_a_try=True)

    def _read(
        self, stream: Iterator[Any], shard_rows: int, wanted: IsWanted, for_a_try: bool = False
    ) -> Iterator[Batch]:
        ahead = list(islice(stream, self.batch_size))
        for start in counting(0, self.batch_size):
            now, ahead = ahead, list(islice(stream, self.batch_size))
            if not now:
                return
            self.read = start + len(now)
            if wanted(start // shard_rows):
                rows = list(range(start, start + len(now)))
                batch = self._load(rows, lambda row, now=now, start=start: now[row - start], for_a_try)  # type: ignore[misc]
                batch.last = not ahead
                yield batch
