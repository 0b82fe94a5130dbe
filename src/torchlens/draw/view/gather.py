"""Gather several operations or tensors that a reader sees as one thing into one node.

The results of one call (an LSTM's output and states), the tensors of one container that the model takes or returns (a
cache of keys and values), and the alike members of a very wide fan (300 slices that are put together again).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable

from ...graph.graph import Graph
from .fold import Unit
from .module_boxes import ModuleBoxes

#: A container inside what a model takes or returns is one node if it holds more tensors than this.
FEW = 3

#: So are the arguments or results themselves, and alike operations side by side, if there are more than this.
WIDE = 12

_FIRST_STEP = re.compile(r"""\[(?:'[^']*'|"[^"]*"|[^\]]*)\]|\.?[^.\[]+""")


def gather(graph: Graph, module_boxes: ModuleBoxes, units: list[Unit]) -> list[Unit]:
    """The units, those joined that are one node. Each stands where its first member stood: after what feeds it.

    What an intervention edited stays apart, so that the picture shows which it was.
    """
    edited = _edited(graph)
    edited_calls = {graph.entries[place].call for place in edited}
    units = _joined(units, [_call(graph, unit, edited_calls) for unit in units], "call")
    units = _joined(units, _containers(graph, units), "container")
    if _is_wide(graph.parents) or _is_wide(graph.children):
        units = _joined(units, _Alike(graph, module_boxes, units, edited).classes(), "fan")
    return units


def _joined(units: list[Unit], keys: Iterable[Hashable], how: str) -> list[Unit]:
    """One unit for all that have the same key; None is no key."""
    found: dict[Hashable, list[Unit]] = {}
    for number, (unit, key) in enumerate(zip(units, keys, strict=True)):
        found.setdefault(("alone", number) if key is None else key, []).append(unit)
    return [
        members[0] if len(members) == 1 else Unit(_places(members), members[0].path, how, len(members))
        for members in found.values()
    ]


def _places(units: list[Unit]) -> list[int]:
    return [place for unit in units for place in unit.places]


def _is_wide(neighbours: list[list[int]] | list[tuple[int, ...]]) -> bool:
    return any(len(each) > WIDE for each in neighbours)


def _edited(graph: Graph) -> set[int]:
    return {*graph.edited.entries, *(place for edge in graph.edited.edges for place in edge)}


def _call(graph: Graph, unit: Unit, edited: set[int]) -> Hashable:
    """The calls that made a unit: equal for what they returned together."""
    if graph.entries[unit.places[0]].role != "op":
        return None
    calls = tuple([graph.entries[place].call for place in unit.places])
    return None if edited and not edited.isdisjoint(calls) else calls


# ---- containers -----------------------------------------------------------------------------------------------


def container_of(graph: Graph, place: int) -> str:
    """Where an input or output lies: `['past_key_values']` for `['past_key_values'].layers[0].keys`, "" at the top."""
    address = graph.entries[place].address or ""
    step = _FIRST_STEP.match(address)
    return "" if step is None or step[0] == address else step[0]


def _containers(graph: Graph, units: list[Unit]) -> list[Hashable]:
    keys: list[tuple[str, str] | None] = []
    for unit in units:
        role = graph.entries[unit.places[0]].role
        keys.append((role, container_of(graph, unit.places[0])) if role in ("input", "output") else None)
    counts = Counter(keys)
    return [key if key and counts[key] > (FEW if key[1] else WIDE) else None for key in keys]


# ---- fans -----------------------------------------------------------------------------------------------------


class _Alike:
    """Which units look the same from all sides: operation, shapes, modules around, what feeds them, what they feed."""

    def __init__(self, graph: Graph, module_boxes: ModuleBoxes, units: list[Unit], edited: set[int]) -> None:
        self._graph, self._boxes, self._units, self._edited = graph, module_boxes, units, edited
        number = {place: i for i, unit in enumerate(units) for place in unit.places}
        self._parents = [_neighbours(unit, graph.parents, number) for unit in units]
        self._children = [_neighbours(unit, graph.children, number) for unit in units]
        self._kinds = [self._kind(number) for number in range(len(units))]

    def classes(self) -> list[Hashable]:
        """For each unit the number of its class, if that is wide. What one class feeds is one class, or one unit."""
        above = self._numbered(self._parents, range(len(self._units)))
        below = self._numbered(self._children, reversed(range(len(self._units))))
        classes = _only_wide(zip(above, below, strict=True))
        while True:
            refined = _only_wide(
                (own, _set(self._parents[i], classes), _set(self._children[i], classes)) if own >= 0 else None
                for i, own in enumerate(classes)
            )
            if max(refined, default=-1) == max(classes, default=-1) and (refined.count(-1) == classes.count(-1)):
                return [own if own >= 0 else None for own in refined]
            classes = refined

    def _numbered(self, neighbours: list[list[int]], order: Iterable[int]) -> list[int]:
        """Equal numbers for units whose kind is equal, and that of everything on this side of them."""
        numbers: dict[Hashable, int] = {}
        found, kinds = [-1] * len(self._units), self._kinds
        for number in order:
            sides = tuple(
                sorted({-1 - other if kinds[other] is None else found[other] for other in neighbours[number]})
            )
            key: Hashable = ("alone", number) if kinds[number] is None else (kinds[number], sides)
            found[number] = numbers.setdefault(key, len(numbers))
        return found

    def _kind(self, number: int) -> Hashable:
        """None for what is not to be joined: ends of the model, conditions, layers with several passes, edited ones."""
        graph, unit = self._graph, self._units[number]
        first = unit.places[0]
        value = graph.entries[first]
        several = self._boxes.rolled and graph.num_passes[graph.layers[first]] > 1
        if value.role in ("input", "output") or several or first in graph.conditions.ends:
            return None
        if not self._edited.isdisjoint(unit.places):
            return None
        leaf = self._boxes.leaf(first)
        values = [graph.entries[place] for place in unit.places]
        params = graph.params[value.call] if value.role == "op" else ()
        return (
            value.role,
            graph.layer_types[graph.layers[first]],
            unit.path,
            None if leaf is None else graph.modules.infos[graph.modules.calls[leaf].module].class_name,
            tuple([tuple(each.shape) for each in (*values, *params)]),
        )


def _neighbours(unit: Unit, neighbours: list[list[int]] | list[tuple[int, ...]], number: dict[int, int]) -> list[int]:
    return list(
        dict.fromkeys([number[other] for place in unit.places for other in neighbours[place] if other in number])
    )


def _set(numbers: list[int], classes: list[int]) -> tuple[int, ...]:
    """Classes, and units that are in none as negative numbers."""
    return tuple(sorted({classes[number] if classes[number] >= 0 else -1 - number for number in numbers}))


def _only_wide(keys: Iterable[Hashable]) -> list[int]:
    """Classes by number; -1 for those of few members, and for what has no key."""
    each = list(keys)
    counts = Counter(each)
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) if key is not None and counts[key] > WIDE else -1 for key in each]
