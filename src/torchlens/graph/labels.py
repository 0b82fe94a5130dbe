"""Name the layers: `conv2d_3_7` is the third convolution and the seventh layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..capture.naming import layer_type_of

if TYPE_CHECKING:
    from .graph import Graph


def name_layers(graph: Graph) -> None:
    """Number the layers in order of first appearance, all together and by type."""
    calls = graph.trace.calls
    counts: dict[str, int] = {}
    graph.layer_types, graph.layer_labels, graph.layer_type_nums = [], [], []
    for number, members in enumerate(graph.layer_entries):
        layer_type = layer_type_of(graph.entries[members[0]], calls)
        type_num = counts[layer_type] = counts.get(layer_type, 0) + 1
        graph.layer_types.append(layer_type)
        graph.layer_type_nums.append(type_num)
        graph.layer_labels.append(f"{layer_type}_{type_num}_{number}")
