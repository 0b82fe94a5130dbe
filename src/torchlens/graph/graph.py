"""The graph of a forward pass: entries in execution order, who feeds whom, which are passes of one layer."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import Any

from ..capture.records import Trace, Value
from ..capture.surroundings import without_collector
from . import ancestry
from .conditions import Conditions, find_conditions
from .cost import Cost, count
from .labels import name_layers
from .layers import group_layers
from .link import link_entries
from .module_tree import ModuleTree
from .orphans import drop_orphans

#: From records to graph. Each fills in what the next ones need.
PASSES = (link_entries, drop_orphans, group_layers, name_layers)


class Graph:
    """Arrays over the entries of a log; entry `i` is the i-th tensor of the forward pass.

    >>> graph = Graph(trace).build()          # doctest: +SKIP
    >>> graph.parents[3]                          # doctest: +SKIP
    (2,)
    """

    entries: list[Value]
    parents: list[tuple[int, ...]]  # distinct, in argument order
    children: list[list[int]]  # in execution order
    params: list[tuple[Value, ...]]  # those that each call works with, by call
    layers: list[int]  # the layer that each entry is a pass of
    passes: list[int]  # which pass; the first is 1
    layer_entries: list[list[int]]  # the entries of each layer, by pass
    layer_types: list[str]  # by layer
    layer_labels: list[str]  # by layer
    layer_type_nums: list[int]  # by layer

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @without_collector
    def build(self) -> Graph:
        for apply in PASSES:
            apply(self)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        new = memo[id(self)] = Graph(deepcopy(self.trace, memo)).build()
        return new

    def label(self, place: int) -> str:
        """The label of an entry, with the pass if its layer has several."""
        layer = self.layers[place]
        label = self.layer_labels[layer]
        return label if len(self.layer_entries[layer]) == 1 else f"{label}:{self.passes[place]}"

    @cached_property
    def layer_numbers(self) -> dict[str, int]:
        """Layers by full and by short label: `conv2d_3_7`, `conv2d_3`."""
        names = zip(self.layer_types, self.layer_type_nums, strict=True)
        short = {f"{layer_type}_{number}": layer for layer, (layer_type, number) in enumerate(names)}
        return short | {label: layer for layer, label in enumerate(self.layer_labels)}

    @cached_property
    def listed(self) -> list[int]:
        """The entries that the log lists: all, or those that were chosen to be saved."""
        chosen = self.trace.listed
        if chosen is None:
            return list(range(len(self.entries)))
        return sorted(self.place[index] for index in chosen if index in self.place)

    # What is asked for less often is computed when it is.

    @cached_property
    def place(self) -> dict[int, int]:
        """Place among the entries of each value, by its index in the trace."""
        return {value.index: place for place, value in enumerate(self.entries)}

    @cached_property
    def modules(self) -> ModuleTree:
        return ModuleTree(self)

    @cached_property
    def conditions(self) -> Conditions:
        return find_conditions(self)

    @cached_property
    def from_input(self) -> list[bool]:
        return ancestry.reached(self._with_role("input"), self.children)

    @cached_property
    def to_output(self) -> list[bool]:
        return ancestry.reached(self._with_role("output"), self.parents)

    @cached_property
    def distances_from_input(self) -> list[tuple[int, int] | None]:
        return ancestry.distances(self._with_role("input"), self.parents, range(len(self.entries)))

    @cached_property
    def distances_from_output(self) -> list[tuple[int, int] | None]:
        return ancestry.distances(self._with_role("output"), self.children, range(len(self.entries) - 1, -1, -1))

    @cached_property
    def costs(self) -> list[Cost]:
        """The work of each entry; that of a call with several results counts for the first of them."""
        costs = []
        for value in self.entries:
            call = self.trace.calls[value.call] if value.call >= 0 else None
            if call is None or call.function.func is None or call.outputs[0] is not value:
                costs.append(Cost())
            else:
                shapes = [output.shape for output in call.outputs]
                costs.append(count(call.function.name, call.args, call.kwargs, shapes))
        return costs

    def _with_role(self, role: str) -> list[int]:
        return [place for place, value in enumerate(self.entries) if value.role == role]
