"""Find the parents and children of every entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..capture.records import Trace, Value, argument_values

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
