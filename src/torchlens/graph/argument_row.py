"""The arguments of all calls in one flat list, read once, so that the graph's passes can work on arrays."""

from __future__ import annotations

from itertools import chain, compress
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..capture.containers import PLAIN
from ..capture.records import Call, Value
from .program import Bools, Ints, ints

#: Kinds of arguments: a value, an object that holds none and can be compared, or one that has to be searched.
VALUE, SIMPLE, OTHER = 0, 1, 2


class _Kinds(dict[type, int]):
    def __missing__(self, kind: type) -> int:
        return OTHER


_kind_of = _Kinds({**dict.fromkeys(PLAIN - {torch.Size}, SIMPLE), Value: VALUE}).__getitem__

#: Parts of a call, in a third of the time that asking for each by name takes.
_args = itemgetter(Call._fields.index("args"))
_kwargs = itemgetter(Call._fields.index("kwargs"))


class ArgumentRow(NamedTuple):
    """The positional arguments of the calls, one call after the other."""

    members: list[Any]
    types: list[type]
    kinds: NDArray[np.uint8]  # VALUE, SIMPLE or OTHER
    owners: Ints  # the call that each belongs to
    counts: Ints  # how many each call has
    named: list[int]  # the calls that have keyword arguments
    others: list[int]  # the places of kind OTHER
    index_keys: list[tuple[Any, ...] | None]  # for each of these: what `index_key` says

    @classmethod
    def of(cls, calls: list[Call]) -> ArgumentRow:
        each = list(map(_args, calls))
        counts = ints(map(len, each))
        members = list(chain.from_iterable(each))
        types = list(map(type, members))
        kinds = np.frombuffer(bytes(list(map(_kind_of, types))), np.uint8)
        named = list(compress(range(len(calls)), map(_kwargs, calls)))
        others = np.flatnonzero(kinds == OTHER).tolist()
        keys = [index_key(members[place]) if types[place] is tuple else None for place in others]
        return cls(members, types, kinds, np.repeat(np.arange(len(each)), counts), counts, named, others, keys)

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
