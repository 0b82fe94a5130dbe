"""Leave out what has nothing to do with the model's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..capture.functions import HIDDEN_READS
from .ancestry import reached
from .link import children_of

if TYPE_CHECKING:
    from .graph import Graph


def drop_orphans(graph: Graph) -> None:
    """Drop entries that neither come from an input nor lead to an output.

    What leads to a condition stays: it decided what the model computed. A forward pass that was cut short has no
    outputs, so nothing is dropped from it.
    """
    trace = graph.trace
    if not trace.complete:
        return
    inputs = [i for i, value in enumerate(graph.entries) if value.role == "input"]
    ends = [i for i, value in enumerate(graph.entries) if value.role == "output"]
    reads = [event for event in trace.events if event.function not in HIDDEN_READS]
    ends += [v.index for event in reads for v in event.values if v.role != "param" and v.index >= 0]
    from_input = reached(inputs, graph.children)
    to_end = reached(ends, graph.parents)
    keep = [i for i in range(len(graph.entries)) if from_input[i] or to_end[i]]
    if len(keep) < len(graph.entries):
        _keep_only(graph, keep)


def _keep_only(graph: Graph, keep: list[int]) -> None:
    new_place = {old: new for new, old in enumerate(keep)}
    graph.entries = [graph.entries[old] for old in keep]
    graph.parents = [tuple([new_place[parent] for parent in graph.parents[old] if parent in new_place]) for old in keep]
    graph.children = children_of(graph.parents)
