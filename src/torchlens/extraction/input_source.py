"""Inputs as batches of rows: what every kind of inputs has, and what helps to read them.

A source is asked for the batches of the shards that are wanted, in order. What can be reached by number is not read for
a shard that is done; an iterable is read again up to where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from ..errors import ArgumentError
from ..words import counted
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
        return self.batches(self.batch_size, self.some_wanted(rows))

    def some_wanted(self, rows: int) -> IsWanted:
        """Which batches these are."""
        assert self.count is not None
        total = -(-self.count // self.batch_size)
        number = min(total, -(-rows // self.batch_size))
        return {index * total // number for index in range(number)}.__contains__

    def ranges(self, shard_rows: int, wanted: IsWanted) -> Iterator[list[int]]:
        """The rows of each batch, for what can be reached by number."""
        assert self.count is not None
        for shard, start in enumerate(range(0, self.count, shard_rows)):
            if not wanted(shard):
                continue
            stop = min(start + shard_rows, self.count)
            for first in range(start, stop, self.batch_size):
                yield list(range(first, min(first + self.batch_size, stop)))


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


class Peekable:
    """An iterable that is read once, whose first members can be looked at before."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = iter(members)
        self._number = 0  # that were read
        self._seen: list[Any] = []

    def first(self, number: int) -> list[Any]:
        self._seen += islice(self._read(), max(number - len(self._seen), 0))
        return self._seen[:number]

    def rest(self) -> Iterator[Any]:
        seen, self._seen = self._seen, []
        return chain(seen, self._read())

    def _read(self) -> Iterator[Any]:
        while True:
            try:
                member = next(self._members)
            except StopIteration:
                return
            except Exception as error:
                raise noted(error, f"reading the inputs, after {counted(self._number, 'item')}") from None
            self._number += 1
            yield member


def unchanged(sample: Any) -> Any:
    return sample


def own_copy(value: Any) -> Any:
    """The same with tensors and arrays of its own."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: own_copy(member) for name, member in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(own_copy, value))
    return value


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
