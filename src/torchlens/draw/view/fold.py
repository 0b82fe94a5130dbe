"""Draw repeated identical blocks once: which units repeat which."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from ...graph.graph import Graph
from .module_boxes import BoxPath, ModuleBoxes

_MOST_BOXES_IN_A_BLOCK = 4


@dataclass(slots=True)
class Unit:
    """What becomes one node unless it is collapsed or folded: an operation, or in a rolled picture a layer."""

    places: list[int]
    path: BoxPath
    gathered: str = ""  # why several entries are one unit: "call", "container", "fan"; see gather.py
    count: int = 1  # how many were gathered


@dataclass
class Folding:
    """The outcome. Units are known by their number."""

    original: list[int]  # the unit that each one is a copy of; itself if of none
    copies: dict[BoxPath, list[BoxPath]] = field(default_factory=dict)  # boxes drawn once: the first, and all of them
    _marks: list[dict[int, int]] = field(default_factory=list)  # by unit: for each run of blocks, which block it is in

    def hides(self, source: int, target: int) -> bool:
        """Does this edge lead from one block of a run to another?"""
        if not self.copies:
            return False
        marks, others = self._marks[source], self._marks[target]
        return any(others.get(run, block) != block for run, block in marks.items())


def no_folding(units: list[Unit]) -> Folding:
    return Folding(list(range(len(units))))


def fold_repeats(graph: Graph, module_boxes: ModuleBoxes, units: list[Unit]) -> Folding:
    """Find the runs of neighbouring boxes that hold the same operations, connected in the same way."""
    return _Folder(graph, module_boxes, units).fold()


def find_runs(graph: Graph, module_boxes: ModuleBoxes, units: list[Unit]) -> list[list[list[BoxPath]]]:
    """Every run of neighbouring blocks that look the same, at any depth: its blocks, each of one or a few boxes."""
    return _Folder(graph, module_boxes, units).runs()


class _Folder:
    def __init__(self, graph: Graph, module_boxes: ModuleBoxes, units: list[Unit]) -> None:
        self._graph = graph
        self._module_boxes = module_boxes
        self._units = units
        self._members: dict[BoxPath, list[int]] = {(): []}  # the units in each box, at any depth
        self._children: dict[BoxPath, list[BoxPath | None]] = {}  # the boxes directly in each; None for a unit
        self._plant()
        number = {place: i for i, unit in enumerate(units) for place in unit.places}
        self._parents = [
            dict.fromkeys(number[p] for place in unit.places for p in graph.parents[place] if p in number)
            for unit in units
        ]
        self._folding = Folding(list(range(len(units))), {}, [{} for _ in units])

    def _plant(self) -> None:
        for number, unit in enumerate(self._units):
            for depth in range(len(unit.path)):
                outer, box = unit.path[:depth], unit.path[: depth + 1]
                if box not in self._members:
                    self._members[box] = []
                    self._children.setdefault(outer, []).append(box)
                self._members[box].append(number)
            self._children.setdefault(unit.path, []).append(None)

    def fold(self) -> Folding:
        self._fold_inside(())
        originals, marks = self._folding.original, self._folding._marks
        for unit, original in enumerate(originals):  # originals come first, and may be copies inside an original
            if original != unit:
                marks[unit] = marks[original] | marks[unit]
                originals[unit] = originals[original]
        return self._folding

    def runs(self) -> list[list[list[BoxPath]]]:
        """Outer ones before those inside them."""
        found = []
        for children in self._children.values():
            found += [blocks for blocks in _repetitions(children, self._signature) if len(blocks) > 1]
        return sorted(found, key=lambda blocks: len(blocks[0][0]))

    def _fold_inside(self, outer: BoxPath) -> None:
        for blocks in _repetitions(self._children.get(outer, []), self._signature):
            if len(blocks) > 1:
                self._join(blocks)
            for box in blocks[0]:
                self._fold_inside(box)

    def _join(self, blocks: list[list[BoxPath]]) -> None:
        run = len(self._folding.copies)
        for number, block in enumerate(blocks):
            for box, first in zip(block, blocks[0], strict=True):
                self._folding.copies.setdefault(first, []).append(box)
                for unit, original in zip(self._members[box], self._members[first], strict=True):
                    self._folding._marks[unit][run] = number
                    self._folding.original[unit] = original

    def _signature(self, box: BoxPath) -> Hashable:
        """Equal for boxes that look the same from inside: modules, operations, shapes, connections."""
        members = self._members[box]
        inside = {unit: i for i, unit in enumerate(members)}
        boxes: dict[BoxPath, int] = {}
        rows = []
        for unit in members:
            path = self._units[unit].path
            around = [path[: depth + 1] for depth in range(len(box), len(path))]
            shape = tuple((boxes.setdefault(b, len(boxes)), self._module_boxes.class_name(b)) for b in around)
            sources = tuple(sorted(inside.get(parent, -1) for parent in self._parents[unit]))
            rows.append((self._kind(unit), shape, sources))
        return (self._module_boxes.class_name(box), tuple(rows))

    def _kind(self, unit: int) -> Hashable:
        graph, places = self._graph, self._units[unit].places
        values = [graph.entries[place] for place in places]
        params = graph.params[values[0].call] if values[0].role == "op" else ()
        shapes = [tuple(value.shape) for value in [*values, *params]]
        edits = [tuple(graph.edited.entries.get(place, ())) for place in places]
        along = [graph.edited.edges.get((up, place)) for place in places for up in graph.parents[place]]
        return (graph.layer_types[graph.layers[places[0]]], tuple(shapes), tuple(edits), any(along))


def _repetitions(
    children: list[BoxPath | None], signature_of: Callable[[BoxPath], Hashable]
) -> list[list[list[BoxPath]]]:
    """The boxes in order, as blocks of one or a few boxes that repeat; most are alone: one block of one box."""
    found = []
    for stretch in _stretches(children):
        signatures = [signature_of(box) for box in stretch]
        place = 0
        while place < len(stretch):
            size, count = _longest_repetition(signatures, place)
            found.append([stretch[place + i * size : place + (i + 1) * size] for i in range(count)])
            place += size * count
    return found


def _stretches(children: list[BoxPath | None]) -> list[list[BoxPath]]:
    """The boxes between the operations that stand alone."""
    stretches: list[list[BoxPath]] = [[]]
    for box in children:
        if box is None:
            stretches.append([])
        else:
            stretches[-1].append(box)
    return stretches


def _longest_repetition(signatures: list[Hashable], place: int) -> tuple[int, int]:
    """How long the block is that begins here, and how often it comes: what covers most, short blocks first."""
    best = (1, 1)
    for size in range(1, _MOST_BOXES_IN_A_BLOCK + 1):
        block, count = signatures[place : place + size], 1
        while signatures[place + count * size : place + (count + 1) * size] == block:
            count += 1
        if count > 1 and size * count > best[0] * best[1]:
            best = (size, count)
    return best
