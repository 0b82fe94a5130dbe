"""The graph of a forward pass: entries in execution order, their parents and children, and their layers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from ..capture.functions import Function
from ..capture.records import Trace, Value
from ..capture.surroundings import without_collector
from . import ancestry
from .conditions import Conditions, find_conditions
from .cost import Cost, count
from .edited import Edited, find_edited
from .labels import name_layers
from .layers import group_layers
from .link import link_entries
from .module_tree import ModuleTree
from .orphans import drop_orphans
from .program import Bools, Edges, Ints, bools, where

#: From records to graph. Each fills in what the next ones need.
PASSES = (link_entries, drop_orphans, group_layers, name_layers)


class Graph:
    """Arrays over the entries of a log; entry `i` is the i-th tensor of the forward pass.

    >>> graph = Graph(trace).build()          # doctest: +SKIP
    >>> graph.parents[3]                          # doctest: +SKIP
    (2,)
    """

    entries: list[Value]
    made_by: Ints  # the call that made each entry, -1 for none
    gives_several: Bools  # does each call give more than one value?
    functions: list[Function]  # those that were called, each once
    function_of: Ints  # which of them each call is of
    call_keys: Ints  # a number for each call that equal ones share
    edges: Edges  # from parents to entries
    params: list[tuple[Value, ...]]  # those that each call works with, by call
    layer_of: Ints  # the layer that each entry is a pass of
    pass_of: Ints  # which pass; the first is 1
    layer_types: list[str]  # by layer
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
        label = self.layer_label(layer)
        return label if self.num_passes[layer] == 1 else f"{label}:{self.passes[place]}"

    def layer_label(self, layer: int) -> str:
        """One of `layer_labels`, which are made only where all of them are wanted."""
        return f"{self.layer_types[layer]}_{self.layer_type_nums[layer]}_{layer}"

    # The arrays as lists, made when they are asked for.

    @cached_property
    def parents(self) -> list[tuple[int, ...]]:
        """The parents of each entry: distinct, in argument order."""
        return list(map(tuple, self.edges.lists()))

    @cached_property
    def children(self) -> list[list[int]]:
        """The children of each entry, in execution order."""
        return self.edges.turned().lists()

    @cached_property
    def layers(self) -> list[int]:
        """The layer that each entry is a pass of."""
        layers: list[int] = self.layer_of.tolist()
        return layers

    @cached_property
    def passes(self) -> list[int]:
        """Which pass of its layer each entry is; the first is 1."""
        passes: list[int] = self.pass_of.tolist()
        return passes

    @cached_property
    def uses_params(self) -> Bools:
        """Does each call work with parameters? And a last answer, for what no call made."""
        return bools([*map(bool, self.params), False])

    @property
    def is_branching(self) -> bool:
        """Does any entry feed more than one other?"""
        return bool((np.bincount(self.edges.sources) > 1).any())

    @property
    def first_entries(self) -> Ints:
        """The first pass of each layer."""
        return where(self.pass_of == 1)

    @cached_property
    def num_passes(self) -> list[int]:
        """How many passes each layer has."""
        counts: list[int] = np.bincount(self.layer_of).tolist()
        return counts

    @cached_property
    def layer_entries(self) -> list[list[int]]:
        """The entries of each layer, by pass."""
        return Edges.of(np.bincount(self.layer_of), self.layer_of.argsort(kind="stable")).lists()

    @cached_property
    def layer_labels(self) -> list[str]:
        return list(map(self.layer_label, range(len(self.layer_types))))

    @cached_property
    def layer_numbers(self) -> dict[str, int]:
        """Layers by full and by short label: `conv2d_3_7`, `conv2d_3`."""
        names = zip(self.layer_types, self.layer_type_nums, strict=True)
        short = {f"{layer_type}_{number}": layer for layer, (layer_type, number) in enumerate(names)}
        return short | {label: layer for layer, label in enumerate(self.layer_labels)}

    @cached_property
    def listed(self) -> Sequence[int]:
        """The entries that the log lists: all, or those that were chosen to be saved."""
        chosen = self.trace.listed
        if chosen is None:
            return range(len(self.entries))
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
    def edited(self) -> Edited:
        return find_edited(self)

    @cached_property
    def from_input(self) -> list[bool]:
        return ancestry.reached(self.with_role("input"), self.children)

    @cached_property
    def to_output(self) -> list[bool]:
        return ancestry.reached(self.with_role("output"), self.parents)

    @cached_property
    def distances_from_input(self) -> list[tuple[int, int] | None]:
        return ancestry.distances(self.with_role("input"), self.parents, range(len(self.entries)))

    @cached_property
    def distances_from_output(self) -> list[tuple[int, int] | None]:
        return ancestry.distances(self.with_role("output"), self.children, range(len(self.entries) - 1, -1, -1))

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

    def with_role(self, role: str) -> list[int]:
        """The entries that are inputs, outputs, ..."""
        entries = self.entries
        if role == "input":  # no call made them
            return [place for place in where(self.made_by < 0).tolist() if entries[place].role == role]
        if role == "output":  # a call of no function of torch's made them
            ours = [function.func is None for function in self.functions]
            by_ours = np.concatenate((bools(ours)[self.function_of], [False]))[self.made_by]
            return [place for place in where(by_ours).tolist() if entries[place].role == role]
        return [place for place, value in enumerate(entries) if value.role == role]
