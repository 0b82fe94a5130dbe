"""Drop orphans: operations that neither depend on an input nor lead to an output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..capture.functions import HIDDEN_READS
from .ancestry import unreached
from .program import Ints

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
    forth = graph.edges.turned()
    drop = unreached(graph.with_role("input"), graph.edges, forth)
    if drop:
        reads = [event for event in trace.events if event.function not in HIDDEN_READS]
        ends = [v.index for event in reads for v in event.values if v.role != "param" and v.index >= 0]
        drop &= unreached(graph.with_role("output") + ends, forth, graph.edges)
    if drop:
        _keep_only(graph, np.delete(np.arange(len(graph.entries)), sorted(drop)))


def _keep_only(graph: Graph, keep: Ints) -> None:
    graph.entries = [graph.entries[old] for old in keep.tolist()]
    graph.made_by = graph.made_by[keep]
    graph.edges = graph.edges.among(keep)
