"""Find the parents and children of every entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..capture.records import Call, Value

if TYPE_CHECKING:
    from .graph import Graph


def link_entries(graph: Graph) -> None:
    """Every value becomes an entry; its parents are the values among the arguments of the call that made it."""
    entries = graph.recording.values
    parents = [_parents(call) for call in graph.recording.calls]
    graph.entries = list(entries)
    graph.parents = [parents[value.call] if value.call >= 0 else () for value in entries]
    graph.children = children_of(graph.parents)


def children_of(parents: list[tuple[int, ...]]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parents]
    for node, its_parents in enumerate(parents):
        for parent in its_parents:
            children[parent].append(node)
    return children


def argument_values(call: Call) -> Iterator[tuple[int | str, Value]]:
    """The values among a call's arguments, in order, each with the position or name of the argument it is in.

    The tensor given as `out=` is not one: nothing of it goes into the result.
    """
    for position, argument in enumerate(call.args):
        yield from ((position, value) for value in values_in(argument))
    for name, argument in call.kwargs.items():
        if name != "out":
            yield from ((name, value) for value in values_in(argument))


def values_in(argument: Any) -> list[Value]:
    """The values in an argument, which may be a nest of tuples, lists, dicts and slices."""
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, (tuple, list)):
        return [value for member in argument for value in values_in(member)]
    if isinstance(argument, dict):
        return values_in(list(argument.values()))
    if isinstance(argument, slice):
        return values_in((argument.start, argument.stop, argument.step))
    return []


def _parents(call: Call) -> tuple[int, ...]:
    found = [a for a in call.args if type(a) is Value and a.role != "param"]
    if len(found) == 1 and not call.kwargs and not any(type(a) in _NESTS for a in call.args):
        return (found[0].index,)
    values = [value for _, value in argument_values(call) if value.role != "param"]
    return tuple(dict.fromkeys([value.index for value in values]))


_NESTS = {tuple, list, dict, slice}
