"""The arguments of all calls in one flat list, read once, so that the graph's passes can work on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..capture.containers import PLAIN
from ..capture.records import Value
from .program import Bools, Ints, ints, where

#: Kinds of arguments: a value, an object that holds none and can be compared, one that may equal an object of another
#: type (`1.0 == True == 1`), or one that has to be searched.
VALUE, SIMPLE, MIXED, OTHER = 0, 1, 2, 3

_MIXED = {bool, float, complex}


class _Kinds(dict[type, int]):
    def __missing__(self, kind: type) -> int:
        return OTHER


_kinds = {**dict.fromkeys(PLAIN - {torch.Size}, SIMPLE), **dict.fromkeys(_MIXED, MIXED), Value: VALUE}
_kind_of = _Kinds(_kinds).__getitem__


class ArgumentRow(NamedTuple):
    """The positional arguments of the calls, one call after the other."""

    members: list[Any]
    types: list[type]
    kinds: NDArray[np.uint8]  # VALUE, SIMPLE, MIXED or OTHER
    owners: Ints  # the call that each belongs to
    counts: Ints  # how many each call has
    kwargs: Sequence[Mapping[str, Any]]  # of each call
    named: list[int]  # the calls that have keyword arguments
    others: list[int]  # the places of kind OTHER
    index_keys: list[tuple[Any, ...] | None]  # for each of these: what `index_key` says

    @classmethod
    def of(cls, args: Sequence[tuple[Any, ...]], kwargs: Sequence[Mapping[str, Any]]) -> ArgumentRow:
        """The arguments of all calls: those by position, and those by name."""
        counts = ints(map(len, args))
        members = list(chain.from_iterable(args))
        types = list(map(type, members))
        kinds = np.frombuffer(bytes(list(map(_kind_of, types))), np.uint8)
        owners = np.arange(len(args)).repeat(counts)
        named = list(compress(range(len(args)), kwargs))
        others = where(kinds == OTHER).tolist()
        keys = [index_key(members[place]) if types[place] is tuple else None for place in others]
        return cls(members, types, kinds, owners, counts, kwargs, named, others, keys)

    def values(self) -> list[Value]:
        return chosen(self.members, self.kinds == VALUE)


def index_key(index: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What equal indices share, for the usual kind, such as `x[:, 3]`; None for others, which may hold values.

    >>> index_key((slice(None), 3))
    (<class 'tuple'>, <class 'slice'>, 3)
    """
    key: list[Any] = [tuple]
    for member in index:
        kind = type(member)
        if kind is int:
            key.append(member)
        elif kind is slice and member.start is None and member.stop is None and member.step is None:
            key.append(slice)
        else:
            return None
    return tuple(key)


def chosen(members: list[Any], which: Bools) -> list[Any]:
    return list(compress(members, which.tobytes()))
