"""Which operations are passes of the same layer?

This file says when two operations are equal; `recurrence.py` finds the layers from that.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..capture.records import Call, Value
from .recurrence import find_layers

if TYPE_CHECKING:
    from .graph import Graph


def group_layers(graph: Graph) -> None:
    """Give every entry its layer and its pass."""
    keys, param_keys = _keys(graph)
    repeats = _may_repeat(keys, param_keys)
    graph.layers = find_layers(keys, param_keys, graph.parents) if repeats else list(range(len(keys)))
    graph.layer_entries = [[] for _ in range(max(graph.layers, default=-1) + 1)]
    graph.passes = []
    for place, layer in enumerate(graph.layers):
        graph.layer_entries[layer].append(place)
        graph.passes.append(len(graph.layer_entries[layer]))


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


def _keys(graph: Graph) -> tuple[list[int], list[int]]:
    """For each entry a number that equal operations share, and one that uses of the same parameters share."""
    calls = graph.trace.calls
    numbers: dict[Hashable, int] = {}
    call_keys = [numbers.setdefault(_call_key(call), len(numbers)) for call in calls]
    _neutralise_indices(calls, call_keys, numbers)
    keys, param_keys = [], []
    for value in graph.entries:
        if value.call < 0 or value.role == "output":
            keys.append(-1)
            param_keys.append(-1)
            continue
        call = calls[value.call]
        key = call_keys[value.call]
        which = call.outputs.index(value) if len(call.outputs) > 1 else 0
        keys.append(numbers.setdefault((key, which), len(numbers)) if which else key)
        used = graph.params[value.call]
        if not used:
            param_keys.append(-1)
            continue
        shared = ("params", call.function.name, tuple([param.index for param in used]), which)
        param_keys.append(numbers.setdefault(shared, len(numbers)))
    return keys, param_keys


# ---- equality -------------------------------------------------------------------------------------------------


def _call_key(call: Call) -> Hashable:
    args = tuple([_frozen(argument) for argument in call.args])
    if not call.kwargs:
        return (call.function.name, args)
    return (call.function.name, args, tuple([(name, _frozen(a)) for name, a in call.kwargs.items()]))


class _Tensor:
    """Stands for any tensor: which one it is does not matter for equality."""


def _frozen(argument: Any) -> Hashable:
    """A hashable stand-in for an argument: tensors are all alike, numbers of different types are not."""
    kind = type(argument)
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
    return argument if kind is int else (kind, argument)


# Where an indexing function takes the index or offset: position and name.
_INDEX_ARGUMENTS = {
    "__getitem__": (1, "index"),
    "__setitem__": (1, "index"),
    "select": (2, "index"),
    "narrow": (2, "start"),
}


def _neutralise_indices(calls: list[Call], keys: list[int], numbers: dict[Hashable, int]) -> None:
    """`x[:, t]` in a loop has another index at every step, but is one operation of the loop.

    Where one call site indexes with different numbers, they are left out of the key and the site is put in.
    """
    sites: dict[Hashable, list[int]] = {}
    for number, call in enumerate(calls):
        if call.function.name in _INDEX_ARGUMENTS and call.site:
            code, instruction = call.site[:2]
            sites.setdefault((id(code), instruction, _key_without_index(call)), []).append(number)
    for site, places in sites.items():
        if len({keys[place] for place in places}) > 1:
            key = numbers.setdefault(("site", site), len(numbers))
            for place in places:
                keys[place] = key


def _key_without_index(call: Call) -> Hashable:
    position, name = _INDEX_ARGUMENTS[call.function.name]
    args = tuple([_skeleton(_frozen(a)) if i == position else _frozen(a) for i, a in enumerate(call.args)])
    kwargs = tuple([(k, int if k == name else _frozen(a)) for k, a in call.kwargs.items()])
    return (call.function.name, args, kwargs)


def _skeleton(key: Any) -> Hashable:
    if type(key) is tuple:
        return tuple([_skeleton(member) for member in key])
    return int if type(key) is int else key
