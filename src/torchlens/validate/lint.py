"""Invariants that hold for every log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..capture.records import facts_of
from ..graph.graph import Graph

if TYPE_CHECKING:
    from ..log.model_log import ModelLog


def lint(log: ModelLog) -> list[str]:
    """Check that a log is consistent with itself; return what is wrong, nothing for a sound log.

    >>> tl.lint(log)
    []
    """
    return [problem for check in CHECKS for problem in check(log)]


def _family(log: ModelLog) -> Iterator[str]:
    graph = log.graph
    for place, parents in enumerate(graph.parents):
        label = graph.label(place)
        for parent in parents:
            if not 0 <= parent < place:
                yield f"{label} comes before its parent {parent}"
            elif place not in graph.children[parent]:
                yield f"{label} has the parent {graph.label(parent)}, which does not have it as a child"
        if len(set(parents)) < len(parents):
            yield f"{label} lists a parent twice"
        for child in graph.children[place]:
            if place not in graph.parents[child]:
                yield f"{label} has the child {graph.label(child)}, which does not have it as a parent"
        if graph.entries[place].role == "input" and parents:
            yield f"{label} is an input with parents"
        if graph.entries[place].role == "output" and graph.children[place]:
            yield f"{label} is an output with children"


def _labels(log: ModelLog) -> Iterator[str]:
    labels = log.graph.layer_labels
    if len(set(labels)) < len(labels):
        yield "two layers have the same label"
    for number, label in enumerate(labels):
        if not label.endswith(f"_{number}"):
            yield f"layer {number} is labelled {label}"


def _passes(log: ModelLog) -> Iterator[str]:
    graph = log.graph
    seen = 0
    for place, layer in enumerate(graph.layers):
        if layer > seen:
            yield f"layer {layer} appears before layer {seen}"
        seen = max(seen, layer + 1)
        entries = graph.layer_entries[layer]
        number = graph.passes[place]
        if not 1 <= number <= len(entries) or entries[number - 1] != place:
            yield f"operation {place} is not pass {number} of {graph.layer_labels[layer]}"
    ops = log.all_ops
    for entries in graph.layer_entries:
        types = {(ops[place].layer_type, ops[place].uses_params) for place in entries}
        if len(types) > 1:
            yield f"the passes of {graph.label(entries[0])} are of different kinds"


def _modules(log: ModelLog) -> Iterator[str]:
    modules = log.graph.modules
    for number, call in enumerate(modules.calls):
        label = modules.label(number)
        if not 0 <= call.start <= call.stop <= len(log.graph.trace.calls) and log.is_complete:
            yield f"module call {label} ends before it begins"
        if call.parent >= 0:
            parent = modules.calls[call.parent]
            if call.parent >= number or not parent.start <= call.start <= call.stop <= parent.stop:
                yield f"module call {label} is not inside {modules.label(call.parent)}"
    for module, calls in enumerate(modules.calls_of):
        if [modules.calls[call].number for call in calls] != list(range(1, len(calls) + 1)):
            yield f"the calls of module {modules.infos[module].address or 'self'} are misnumbered"


def _lookups(log: ModelLog) -> Iterator[str]:
    for place, op in enumerate(log.all_ops):
        for key in op.lookup_keys:
            if log[key] is not op:
                yield f"log[{key!r}] is not the operation {place} that lists it"


def _counts(log: ModelLog) -> Iterator[str]:
    graph: Graph = log.graph
    lengths = {len(graph.entries), len(graph.parents), len(graph.children), len(graph.layers), len(graph.passes)}
    if len(lengths) > 1:
        yield "the arrays of the graph differ in length"
    if log.num_tensors_total != sum(len(entries) for entries in graph.layer_entries):
        yield "the layers do not cover the operations"
    for place, value in enumerate(graph.entries):
        if value.call >= 0 and value not in graph.trace.calls[value.call].outputs:
            yield f"operation {place} is not among the results of its call"
        saved = value.saved if graph.trace.values_kept else None  # else it may have been converted
        if saved is None or saved.is_nested:  # a nested tensor has no shape to speak of
            continue
        if facts_of(saved)[:2] != value.facts[:2]:
            yield f"operation {place} was saved with another shape or type than it had"


CHECKS = (_family, _labels, _passes, _modules, _lookups, _counts)
