"""Which operations are passes of the same layer?

This file says when two operations are equal; `recurrence.py` finds the layers from that.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..capture.records import NUMBERS_AND_WORDS, Call, Value
from .program import Ints, ranks
from .recurrence import layers_of

if TYPE_CHECKING:
    from .graph import Graph

#: Parts of a call, in a third of the time that asking for each by name takes.
_called = itemgetter(*map(Call._fields.index, ("function", "args", "kwargs")))
_outputs = itemgetter(Call._fields.index("outputs"))


def group_layers(graph: Graph) -> None:
    """Give every entry its layer and its pass."""
    keys, param_keys = _keys(graph)
    if _may_repeat(keys.tolist(), param_keys.tolist()):
        graph.layer_of = layers_of(keys, param_keys, graph.edges)
    else:
        graph.layer_of = np.arange(len(keys))
    graph.pass_of = ranks(graph.layer_of) + 1


def _may_repeat(keys: list[int], param_keys: list[int]) -> bool:
    """Could anything recur? Not if no parameters are used twice and no operation comes twice between two such uses."""
    seen_params: set[int] = set()
    stretch: set[int] = set()
    for key, param_key in zip(keys, param_keys, strict=True):
        if param_key >= 0:
            if param_key in seen_params:
                return True
            seen_params.add(param_key)
            stretch.clear()
        elif key >= 0:
            if key in stretch:
                return True
            stretch.add(key)
    return False


def _keys(graph: Graph) -> tuple[Ints, Ints]:
    """For each entry a number that equal operations share, and one that uses of the same parameters share."""
    calls, made_by = graph.trace.calls, graph.made_by
    numbers: dict[Hashable, int] = {}
    keys = np.array([*_call_keys(calls, numbers), -1], np.int64)[made_by]  # what no call made is equal to nothing
    keys[graph.with_role("output")] = -1
    places = np.flatnonzero(keys >= 0)
    which = _places_in_results(graph, places)
    for place, result in which.items():
        keys[place] = numbers.setdefault((int(keys[place]), result), len(numbers))
    param_keys = np.full(len(keys), -1)
    places = places[graph.uses_params[made_by[places]]]
    uses = []
    for place, number in zip(places.tolist(), made_by[places].tolist(), strict=True):
        params = [param.index for param in graph.params[number]]
        shared = ("params", calls[number].function.name, which.get(place, 0), *params)
        uses.append(numbers.setdefault(shared, len(numbers)))
    param_keys[places] = uses
    return keys, param_keys


def _places_in_results(graph: Graph, places: Ints) -> dict[int, int]:
    """Which of the results of its call an entry is, if it is not the first."""
    calls, entries = graph.trace.calls, graph.entries
    several = np.fromiter((len(outputs) > 1 for outputs in map(_outputs, calls)), np.bool_, len(calls))
    among = places[several[graph.made_by[places]]].tolist()
    found = {place: calls[entries[place].call].outputs.index(entries[place]) for place in among}
    return {place: result for place, result in found.items() if result}


# ---- equality -------------------------------------------------------------------------------------------------


class _Tensor:
    """Stands for any tensor: which one it is does not matter for equality."""


class _Keywords:
    """Stands before the keyword arguments."""


def _call_keys(calls: list[Call], numbers: dict[Hashable, int]) -> list[int]:
    """A number for each call that equal calls share."""
    keys, indexing = [], []
    for number, (function, args, kwargs) in enumerate(map(_called, calls)):
        name = function.name
        key: list[Hashable] = [name]
        for argument in args:
            kind = type(argument)
            if kind is Value:
                key.append(_Tensor)
            elif kind is int:
                key.append(argument)
            else:
                key.append((kind, argument) if kind in NUMBERS_AND_WORDS else _frozen(argument))
        if kwargs:
            key.append((_Keywords, *[(keyword, _frozen(argument)) for keyword, argument in kwargs.items()]))
        keys.append(numbers.setdefault(tuple(key), len(numbers)))
        if name in _INDEX_ARGUMENTS:
            indexing.append(number)
    _neutralise_indices(calls, indexing, keys, numbers)
    return keys


def _frozen(argument: Any) -> Hashable:
    """A hashable stand-in for an argument: tensors are all alike, numbers of different types are not."""
    kind = type(argument)
    if kind in NUMBERS_AND_WORDS:
        return argument if kind is int else (kind, argument)
    if kind is Value:
        return _Tensor
    if kind is tuple or kind is list:
        return (kind, *[_frozen(member) for member in argument])
    if kind is slice:
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


def _neutralise_indices(calls: list[Call], indexing: list[int], keys: list[int], numbers: dict[Hashable, int]) -> None:
    """`x[:, t]` in a loop has another index at every step, but is one operation of the loop.

    Where one call site indexes with different numbers, they are left out of the key and the site is put in.
    """
    without_index: dict[int, Hashable] = {}  # by key, which says what it is
    sites: dict[Hashable, list[int]] = {}
    for number in indexing:
        site, key = calls[number].site, keys[number]
        if site:
            if key not in without_index:
                shape = _key_without_index(calls[number])
                without_index[key] = numbers.setdefault(("without index", shape), len(numbers))
            sites.setdefault((id(site[0]), site[1], without_index[key]), []).append(number)
    for place, members in sites.items():
        if len({keys[number] for number in members}) > 1:
            key = numbers.setdefault(("site", place), len(numbers))
            for number in members:
                keys[number] = key


def _key_without_index(call: Call) -> Hashable:
    position, name = _INDEX_ARGUMENTS[call.function.name]
    args = tuple([_skeleton(_frozen(a)) if i == position else _frozen(a) for i, a in enumerate(call.args)])
    kwargs = tuple([(k, int if k == name else _frozen(a)) for k, a in call.kwargs.items()])
    return (call.function.name, args, kwargs)


def _skeleton(key: Any) -> Hashable:
    if type(key) is tuple:
        return tuple([_skeleton(member) for member in key])
    return int if type(key) is int else key
