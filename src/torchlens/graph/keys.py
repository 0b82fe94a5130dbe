"""When are two calls equal? Each gets a number that equal calls share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from ..capture.functions import Function
from ..capture.records import NUMBERS_AND_WORDS, Call, Value
from .argument_row import MIXED, SIMPLE, ArgumentRow, chosen
from .program import Ints, bools, ints, joined_ranges, number_by_first_use, where

#: A call with more arguments than this is compared as a whole.
_MOST_ARGUMENTS = 12


class Interned(dict[Hashable, int]):
    """Numbers hashable objects in the order in which they are first looked up."""

    def __missing__(self, thing: Hashable) -> int:
        self[thing] = number = len(self)
        return number


class _Tensor:
    """Stands for any tensor: which one it is does not matter for equality."""


class _Nested:
    """Stands before what was looked into."""


class _Whole:
    """Stands before the arguments of a whole call."""


def functions_in(called: Iterable[Function]) -> tuple[list[Function], Ints]:
    """The distinct functions among those that were called, and which of them each call is of."""
    numbers: dict[Any, int] = Interned()
    which = ints(map(numbers.__getitem__, called))
    return list(numbers), which


def call_keys(calls: list[Call], arguments: ArgumentRow, functions: list[Function], function_of: Ints) -> Ints:
    """A number for each call that equal calls share: the same function with the same arguments but for tensors."""
    numbers = Interned()
    names = ints([numbers[function.name] for function in functions])[function_of]
    keys = _numbered([names, *_columns(calls, arguments)])
    indexing = bools([function.name in _INDEX_ARGUMENTS for function in functions])[function_of]
    return _without_indices(calls, where(indexing).tolist(), keys) if indexing.any() else keys


def _columns(calls: list[Call], arguments: ArgumentRow) -> list[Ints]:
    """The first arguments of all calls as numbers, the second ones, ...; and a column for what is compared as a whole.

    0 says that there is none, 1 a tensor.
    """
    numbers = Interned()
    owners, tokens = arguments.owners, np.ones(len(arguments.members), np.int64)
    simple = arguments.kinds == SIMPLE
    tokens[simple] = ints(map(numbers.__getitem__, chosen(arguments.members, simple))) + 2
    mixed = where(arguments.kinds == MIXED).tolist()
    tokens[mixed] = ints([numbers[arguments.types[place], arguments.members[place]] for place in mixed]) + 2
    nested = zip(arguments.others, arguments.index_keys, strict=True)
    keys = [key or _frozen(arguments.members[place]) for place, key in nested]
    tokens[arguments.others] = ints([numbers[_Nested, key] for key in keys]) + 2
    most = min(int(arguments.counts.max(initial=0)), _MOST_ARGUMENTS)
    columns = np.zeros((1 + most, len(calls)), np.int64)
    long = where(arguments.counts > _MOST_ARGUMENTS).tolist()
    whole = list({*arguments.named, *long})
    columns[0, whole] = ints([numbers[_whole_key(calls[number])] for number in whole]) + 1
    positions = joined_ranges(np.zeros_like(arguments.counts), arguments.counts)
    if long:
        near = positions < most
        positions, owners, tokens = positions[near], owners[near], tokens[near]
    columns[1 + positions, owners] = tokens
    return list(columns)


def _whole_key(call: Call) -> Hashable:
    """The keyword arguments, and the positional ones that are too many for a column each."""
    rest = _frozen(call.args[_MOST_ARGUMENTS:]) if len(call.args) > _MOST_ARGUMENTS else None
    return (_Whole, rest, *call.kwargs, *map(_frozen, call.kwargs.values()))


def _numbered(columns: list[Ints]) -> Ints:
    """A number for each row of so many columns, which equal rows share."""
    keys, room = columns[0], int(columns[0].max(initial=0)) + 1  # there are fewer keys than that
    for column in columns[1:]:
        base = int(column.max(initial=0)) + 1
        if room * base >= 2**62:
            keys, room = number_by_first_use(keys), len(keys)
        keys, room = keys * base + column, room * base
    return number_by_first_use(keys)


def _frozen(argument: Any) -> Hashable:
    """A hashable stand-in for an argument: tensors are all alike, numbers of different types are not."""
    kind = type(argument)
    if kind in NUMBERS_AND_WORDS:
        return argument if kind is int else (kind, argument)
    if kind is Value:
        return _Tensor
    if kind is tuple or kind is list:
        return (kind, *[member if type(member) is int else _frozen(member) for member in argument])
    if kind is slice:
        if argument.start is argument.stop is argument.step is None:
            return slice
        return (slice, _frozen(argument.start), _frozen(argument.stop), _frozen(argument.step))
    if isinstance(argument, dict):
        return (dict, *[(name, _frozen(member)) for name, member in argument.items()])
    try:
        hash(argument)
    except TypeError:
        return (kind, id(argument))
    return (kind, argument)


# Where an indexing function takes the index or offset: position and name.
_INDEX_ARGUMENTS = {
    "__getitem__": (1, "index"),
    "__setitem__": (1, "index"),
    "select": (2, "index"),
    "narrow": (2, "start"),
}


def _without_indices(calls: list[Call], indexing: list[int], keys: Ints) -> Ints:
    """`x[:, t]` in a loop has another index at every step, but is one operation of the loop.

    Where one call site indexes with different numbers, they are left out of the key and the site is put in.
    """
    shapes: dict[int, int] = {}  # what is left without an index, as a number, by key
    sites: dict[Hashable, list[int]] = {}
    numbers = Interned()
    for number, key in zip(indexing, keys[indexing].tolist(), strict=True):
        site = calls[number].site
        if site:
            if key not in shapes:
                shapes[key] = numbers[_key_without_index(calls[number])]
            sites.setdefault((id(site[0]), site[1], shapes[key]), []).append(number)
    more = len(keys)  # than any key
    for members in sites.values():
        places = ints(members)
        if len(set(keys[places].tolist())) > 1:
            keys[places] = more
            more += 1
    return keys


def _key_without_index(call: Call) -> Hashable:
    position, name = _INDEX_ARGUMENTS[call.function.name]
    args = tuple([_skeleton(_frozen(a)) if i == position else _frozen(a) for i, a in enumerate(call.args)])
    kwargs = tuple([(k, int if k == name else _frozen(a)) for k, a in call.kwargs.items()])
    return (call.function.name, args, kwargs)


def _skeleton(key: Any) -> Hashable:
    if type(key) is tuple:
        return tuple([_skeleton(member) for member in key])
    return int if type(key) is int else key
