"""Find the parents and children of every entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..capture.records import Call, Trace, Value

if TYPE_CHECKING:
    from .graph import Graph


def link_entries(graph: Graph) -> None:
    """Every value becomes an entry; its parents are the values among the arguments of the call that made it."""
    entries = graph.trace.values
    parents: list[tuple[int, ...]] = []
    graph.params = []
    for call in graph.trace.calls:
        values = [value for _, value in argument_values(call)]
        indexes = [value.index for value in values if value.role != "param"]
        parents.append(tuple(indexes) if len(indexes) < 2 else tuple(dict.fromkeys(indexes)))
        graph.params.append(_params_among(values, graph.trace))
    graph.entries = list(entries)
    graph.parents = [parents[value.call] if value.call >= 0 else () for value in entries]
    graph.children = children_of(graph.parents)


def _params_among(values: list[Value], trace: Trace) -> tuple[Value, ...]:
    """The parameters among the values that a call works with; also those that an earlier call has changed."""
    found: list[Value] = []
    for value in values:
        if value.role == "param":
            found.append(value)
        elif value.address is not None and value.role == "op":
            found += [param for param in trace.params if param.address == value.address]
    return tuple(found)


def children_of(parents: list[tuple[int, ...]]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parents]
    for node, its_parents in enumerate(parents):
        for parent in its_parents:
            children[parent].append(node)
    return children


def argument_values(call: Call) -> list[tuple[int | str, Value]]:
    """The values among a call's arguments, in order, each with the position or name of the argument it is in.

    The tensor given as `out=` is not one: nothing of it goes into the result.
    """
    found: list[tuple[int | str, Value]] = []
    for position, argument in enumerate(call.args):
        if type(argument) is Value:
            found.append((position, argument))
        elif type(argument) not in _PLAIN:
            found += [(position, value) for value in values_in(argument)]
    for name, argument in call.kwargs.items():
        if name != "out" and type(argument) not in _PLAIN:
            found += [(name, value) for value in values_in(argument)]
    return found


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


#: What holds no values; asked for every argument.
_PLAIN = {int, float, bool, str, type(None)}
