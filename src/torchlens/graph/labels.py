"""Name the layers: `conv2d_3_7` is the third convolution and the seventh layer."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ..capture.naming import DIVISION, layer_type_of
from .program import where

if TYPE_CHECKING:
    from .graph import Graph


def name_layers(graph: Graph) -> None:
    """Number the layers in order of first appearance, all together and by type."""
    graph.layer_types = _types(graph)
    numbers: defaultdict[str, count[int]] = defaultdict(lambda: count(1))  # the next one of each type
    graph.layer_type_nums = list(map(next, map(numbers.__getitem__, graph.layer_types)))


def _types(graph: Graph) -> list[str]:
    """The type of each layer: that of its function, unless it depends on the call."""
    calls, firsts = graph.trace.calls, graph.first_entries
    functions = graph.functions
    by_function = [*(function.layer_type for function in functions), ""]  # the last for what no call made
    which = np.concatenate((graph.function_of, [len(functions)]))[graph.made_by[firsts]]
    types = list(map(by_function.__getitem__, which.tolist()))
    asked = where(which == len(functions)).tolist()
    if DIVISION in by_function:
        asked += [layer for layer, layer_type in enumerate(types) if layer_type == DIVISION]
    if graph.trace.buffer_infos:  # which calls may have written to
        asked += [layer for layer, place in enumerate(firsts.tolist()) if graph.entries[place].role == "update"]
    for layer in asked:
        types[layer] = layer_type_of(graph.entries[firsts[layer]], calls)
    return types
