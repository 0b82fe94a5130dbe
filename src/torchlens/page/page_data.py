"""The data of a page about a log: plain lists that become JSON.

The data is laid out so that it compresses well: as columns rather than rows, with strings by their number in one table,
and with differences in place of numbers that grow along a column. Repeated blocks of a model are then repeated bytes,
and ten thousand operations compress to a few hundred kilobytes. `viewer/model.js` is the reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..capture.records import Call, TensorInfo, Value
from ..draw.layout.measure import text_width
from ..draw.view.build import places_with_gradient
from ..draw.view.contents import is_shown_buffer
from ..draw.view.drawable import Drawable
from ..draw.view.elements import Node, Text
from ..draw.view.hierarchy import Hierarchy, make_hierarchy
from ..draw.view.links import arguments_of
from ..draw.view.texts import edit_words
from ..graph.graph import Graph
from ..words import shape_words
from .call_text import described_call
from .code_lines import CodeLines

FORMAT = 1

#: Properties of an operation, one bit each.
FROM_INPUT, IN_PLACE, HIDDEN_BUFFER, HAS_GRADIENT, IN_CONDITION, TO_OUTPUT = (1 << bit for bit in range(6))


class Strings:
    """A table of strings, each stored once and referred to by its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self, texts: Iterable[str]) -> list[int]:
        return [self(text) for text in texts]

    def lines(self, lines: Iterable[Text]) -> list[int]:
        return [self(line.text) for line in lines]

    @property
    def table(self) -> list[str]:
        return list(self._numbers)


def steps(numbers: Iterable[int]) -> list[int]:
    """
    >>> steps([3, 5, 6])
    [3, 2, 1]
    """
    found, before = [], 0
    for number in numbers:
        found.append(number - before)
        before = number
    return found


def page_data(log: Drawable) -> dict[str, Any]:
    """Everything about a log but its values."""
    graph, strings = log.graph, Strings()
    sites = CodeLines(graph, strings)
    found = {
        "format": FORMAT,
        "name": log.model_name,
        "complete": graph.trace.complete,
        "ops": _operations(graph, strings, sites),
        "calls": _module_calls(graph),
        "modules": _modules(graph, strings),
        "modes": _modes(log, strings),
        "conditions": [list(pair) for pair in graph.conditions.starts],
        "warnings": list(graph.trace.warnings),
        "edits": _edits(log),
        **sites.tables(),
    }
    found["strings"] = strings.table
    found["widths"] = _widths(strings.table)
    return found


def _edits(log: Drawable) -> dict[str, str]:
    """For each edited entry, by its number, what an intervention did to it."""
    graph, found = log.graph, dict[int, list[str]]()
    for place, numbers in graph.edited.entries.items():
        found[place] = [edit_words(graph, number) for number in numbers]
    for (parent, child), numbers in graph.edited.edges.items():
        words = ", ".join(edit_words(graph, number) for number in numbers)
        found.setdefault(child, []).append(f"{words} of {graph.label(parent)}, on its way in")
    return {str(place): ", ".join(found[place]) for place in sorted(found)}


def _widths(texts: list[str]) -> dict[str, float]:
    """The widths of characters beyond ASCII, which are not in the page's own table."""
    return {letter: text_width(letter, 1.0) for letter in sorted({*"".join(texts)}) if not " " <= letter <= "~"}


# ---- operations -----------------------------------------------------------------------------------------------


def _operations(graph: Graph, strings: Strings, sites: CodeLines) -> dict[str, list[Any]]:
    trace, entries = graph.trace, graph.entries
    calls: list[Call | None] = [
        trace.calls[value.call] if value.role in ("op", "update") and value.call >= 0 else None for value in entries
    ]
    trainable = {address: info.trainable for info in trace.param_infos for address in info.all_addresses}
    params = [graph.params[value.call] if call is not None else () for value, call in zip(entries, calls, strict=True)]
    return {
        "label": steps(strings.all(graph.label(place) for place in range(len(entries)))),
        "layer": steps(graph.layers),
        "pass": list(graph.passes),
        "type": strings.all(graph.layer_types[layer] for layer in graph.layers),
        "role": strings.all(value.role for value in entries),
        "function": strings.all(call.function.name if call else "" for call in calls),
        "address": strings.all(value.address or "" for value in entries),
        "shape": strings.all(shape_words(value.shape) for value in entries),
        "dtype": strings.all(str(value.dtype).removeprefix("torch.") for value in entries),
        "device": strings.all(str(value.device) for value in entries),
        "bytes": [value.nbytes for value in entries],
        "time": [
            call.time if call is not None and call.outputs[0] is value else 0
            for value, call in zip(entries, calls, strict=True)
        ],
        "flops": [cost.flops for cost in graph.costs],
        "grad_fn": strings.all(value.grad_fn if value.grad_fn and value.grad_fn != "?" else "" for value in entries),
        "params": [[_param(param, trainable, strings) for param in each] for each in params],
        "numel": [sum(param.shape.numel() for param in each) for each in params],
        "home": steps(graph.modules.homes),
        "parents": [[place - parent for parent in each] for place, each in enumerate(graph.parents)],
        "arguments": [_edge_names(graph, place, strings) for place in range(len(entries))],
        "call": [
            described_call(graph, place, call, strings) if call is not None else [] for place, call in enumerate(calls)
        ],
        "site": [sites.number(call) if call is not None else -1 for call in calls],
        "flags": _flags(graph, calls),
    }


def _param(param: Value, trainable: dict[str, bool], strings: Strings) -> list[int]:
    """Address, shape, and whether it is trainable."""
    address = param.address or ""
    return [strings(address), strings(shape_words(param.shape)), int(trainable.get(address, True))]


def _edge_names(graph: Graph, place: int, strings: Strings) -> list[list[int]]:
    """For each parent of an entry that has several, the arguments it is; empty where their order does not matter."""
    parents = graph.parents[place]
    if len(parents) < 2:
        return []
    names = arguments_of(graph, place)
    return [strings.all(names.get(parent, ())) for parent in parents] if names else []


def _flags(graph: Graph, calls: list[Call | None]) -> list[int]:
    with_gradient, branch = places_with_gradient(graph), graph.conditions.branch
    flags = []
    for place, (value, call) in enumerate(zip(graph.entries, calls, strict=True)):
        flag = FROM_INPUT if graph.from_input[place] else 0
        flag |= IN_PLACE if call is not None and call.written else 0
        is_buffer = value.role in ("buffer", "update")
        flag |= HIDDEN_BUFFER if is_buffer and not is_shown_buffer(graph, place, "meaningful") else 0
        flag |= HAS_GRADIENT if place in with_gradient else 0
        flag |= IN_CONDITION if place in branch else 0
        flag |= TO_OUTPUT if graph.to_output[place] else 0
        flags.append(flag)
    return flags


# ---- modules --------------------------------------------------------------------------------------------------


def _module_calls(graph: Graph) -> dict[str, list[int]]:
    calls = graph.modules.calls
    return {
        "module": steps(call.module for call in calls),
        "parent": steps(call.parent for call in calls),
        "number": [call.number for call in calls],
    }


def _modules(graph: Graph, strings: Strings) -> dict[str, list[Any]]:
    modules = graph.modules
    params: list[list[TensorInfo]] = modules.params
    return {
        "address": steps(strings.all(info.address for info in modules.infos)),
        "class": strings.all(info.class_name for info in modules.infos),
        "qualname": strings.all(info.class_qualname for info in modules.infos),
        "training": [int(info.training) for info in modules.infos],
        "params": [sum(info.numel for info in each) for each in params],
        "param_bytes": [sum(info.nbytes for info in each) for each in params],
        "trainable": [sum(info.numel for info in each if info.trainable) for each in params],
    }


# ---- what is drawn --------------------------------------------------------------------------------------------


def _modes(log: Drawable, strings: Strings) -> dict[str, Any]:
    """The nodes and groups of each mode. "rolled" is left out unless something ran several times."""
    graph = log.graph
    modes = {"unrolled": _mode(make_hierarchy(log, "unrolled"), strings)}
    if any(number > 1 for number in graph.passes) or any(call.number > 1 for call in graph.modules.calls):
        modes["rolled"] = _mode(make_hierarchy(log, "rolled"), strings)
    return modes


def _mode(hierarchy: Hierarchy, strings: Strings) -> dict[str, Any]:
    numbers = {group.id: number for number, group in enumerate(hierarchy.groups)}
    nodes, groups, closed = hierarchy.nodes, hierarchy.groups, hierarchy.closed
    return {
        "nodes": {
            **_looks(nodes, strings),
            "id": steps(strings.all(node.id for node in nodes)),
            "place": steps(places[0] for places in hierarchy.places),
            "places": [steps(places)[1:] for places in hierarchy.places],  # the others, from one to the next
            "passes": hierarchy.passes,
            "group": steps(-1 if node.group is None else numbers[node.group] for node in nodes),
        },
        "groups": {
            **_looks(closed, strings),
            "open_lines": [strings.lines(group.lines) for group in groups],
            "parent": steps(-1 if group.parent is None else numbers[group.parent] for group in groups),
            "box": steps(box[-1] for box in hierarchy.boxes),
            "open_dashed": [int(group.dashed) for group in groups],
        },
        "runs": hierarchy.runs,
        "gathers": [[steps(nodes), strings.lines(lines)] for nodes, lines in hierarchy.gathers],
    }


def _looks(nodes: list[Node], strings: Strings) -> dict[str, list[Any]]:
    return {
        "name": steps(strings(node.lines[0].text) for node in nodes),
        "lines": [strings.lines(node.lines[1:]) for node in nodes],
        "shape": strings.all(node.shape for node in nodes),
        "fill": strings.all(node.fill for node in nodes),
        "fill2": strings.all(node.fill2 or "" for node in nodes),
        "dashed": [int(node.dashed) for node in nodes],
    }
