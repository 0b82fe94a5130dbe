"""Draw repeated identical blocks once: which units repeat which."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ..graph.graph import Graph
from ..graph.layers import used_params
from .boxes import BoxPath, Nesting


@dataclass
class Unit:
    """What becomes one node unless it is collapsed or folded: an operation, or in a rolled picture a layer."""

    places: list[int]
    path: BoxPath


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


def fold_repeats(graph: Graph, nesting: Nesting, units: list[Unit]) -> Folding:
    """Find the runs of neighbouring boxes that hold the same operations, connected in the same way."""
    return _Folder(graph, nesting, units).fold()


class _Folder:
    def __init__(self, graph: Graph, nesting: Nesting, units: list[Unit]) -> None:
        self._graph = graph
        self._nesting = nesting
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
        folding = self._folding
        for unit, original in enumerate(folding.original):  # a copy's copies lie in the original
            while folding.original[original] != original:
                folding._marks[unit] |= folding._marks[original]
                original = folding.original[original]
            folding._marks[unit] |= folding._marks[original]
            folding.original[unit] = original
        return folding

    def _fold_inside(self, outer: BoxPath) -> None:
        for run in self._runs(self._children.get(outer, [])):
            if len(run) > 1:
                self._join(run)
            self._fold_inside(run[0])

    def _runs(self, children: list[BoxPath | None]) -> list[list[BoxPath]]:
        runs: list[list[BoxPath]] = []
        last: Hashable = None
        for box in children:
            signature = None if box is None else self._signature(box)
            if box is not None and signature == last:
                runs[-1].append(box)
            elif box is not None:
                runs.append([box])
            last = signature
        return runs

    def _join(self, run: list[BoxPath]) -> None:
        number = len(self._folding.copies)
        self._folding.copies[run[0]] = run
        for block, box in enumerate(run):
            for unit, original in zip(self._members[box], self._members[run[0]], strict=True):
                self._folding._marks[unit][number] = block
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
            shape = tuple((boxes.setdefault(b, len(boxes)), self._nesting.class_name(b)) for b in around)
            sources = tuple(sorted(inside.get(parent, -1) for parent in self._parents[unit]))
            rows.append((self._kind(unit), shape, sources))
        return (self._nesting.class_name(box), tuple(rows))

    def _kind(self, unit: int) -> Hashable:
        graph, places = self._graph, self._units[unit].places
        values = [graph.entries[place] for place in places]
        call = values[0].call
        params = used_params(graph.recording, graph.recording.calls[call]) if values[0].role == "op" else []
        shapes = [tuple(value.shape) for value in [*values, *params]]
        return (graph.layer_types[graph.layers[places[0]]], tuple(shapes))
