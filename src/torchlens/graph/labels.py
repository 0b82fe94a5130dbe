"""Name the layers: `conv2d_3_7` is the third convolution and the seventh layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..capture.naming import layer_type_of

if TYPE_CHECKING:
    from .graph import Graph


def name_layers(graph: Graph) -> None:
    """Number the layers in order of first appearance, all together and by type."""
    calls, entries = graph.trace.calls, graph.entries
    graph.layer_types = [layer_type_of(entries[first], calls) for first in graph.first_entries.tolist()]
    counts = dict.fromkeys(graph.layer_types, 0)
    graph.layer_type_nums = []
    for layer_type in graph.layer_types:
        counts[layer_type] = number = counts[layer_type] + 1
        graph.layer_type_nums.append(number)
