"""Which entries and which edges interventions edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..capture.records import Applied

if TYPE_CHECKING:
    from .graph import Graph


class Edited(NamedTuple):
    """What was edited; with each, the places of its interventions in `Trace.interventions`."""

    entries: dict[int, list[int]]  # by place; an edited parameter counts with the operations that use it
    edges: dict[tuple[int, int], list[int]]  # by the places of parent and child


def find_edited(graph: Graph) -> Edited:
    found = Edited({}, {})
    for applied in graph.trace.applied:
        for numbers in _marks(graph, applied, found):
            if applied.intervention not in numbers:
                numbers.append(applied.intervention)
    return found


def _marks(graph: Graph, applied: Applied, found: Edited) -> list[list[int]]:
    """Where one application of an edit is to be noted."""
    value, children = applied.value, _children(graph, applied)
    if value.role == "param":
        return [found.entries.setdefault(child, []) for child in children]
    parent = graph.place.get(value.index)
    if parent is None:  # an orphan, which was dropped
        return []
    if applied.call < 0:
        return [found.entries.setdefault(parent, [])]
    return [found.edges.setdefault((parent, child), []) for child in children]


def _children(graph: Graph, applied: Applied) -> list[int]:
    """What was made of an edited parameter, or by the call at the end of an edited edge."""
    if applied.call < 0:
        ops = ((place, value) for place, value in enumerate(graph.entries) if value.role == "op")
        return [place for place, value in ops if applied.value in graph.params[value.call]]
    made = graph.trace.calls[applied.call].outputs
    return [graph.place[value.index] for value in made if value.index in graph.place]
