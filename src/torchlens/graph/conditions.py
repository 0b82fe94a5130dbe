"""Where the model asked a tensor a question: `if`, `while`, `assert`, `a if t else b` ..."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..capture.records import Event
from ..statements import Statement, find_statement
from .sites import frames, is_library_code

if TYPE_CHECKING:
    from .graph import Graph

#: Statements that choose what runs next; an assert does not.
BRANCHING = ("if", "elif", "while", "ternary", "comprehension", "guard", "boolop")
_TESTS = (*BRANCHING, "assert")


@dataclass(frozen=True)
class Condition:
    """One time that a tensor decided something."""

    event: Event
    statement: Statement
    places: tuple[int, ...]  # the entries that were asked


class Conditions:
    """The conditions of a graph and the operations that are there only to evaluate them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def seen(self) -> list[Condition]:
        """Conversions of a tensor to a Python bool, and to a number inside a test, in the user's code."""
        found = []
        for event in self._graph.recording.events:
            innermost = next(frames(event.site), None)
            if innermost is None or is_library_code(innermost[0]):
                continue
            statement = find_statement(*innermost)
            if event.function == "__bool__" or statement.kind in _TESTS:
                found.append(Condition(event, statement, self._places(event)))
        return found

    def _places(self, event: Event) -> tuple[int, ...]:
        place = self._graph.place
        return tuple([place[v.index] for v in event.values if v.role != "param" and v.index in place])

    @cached_property
    def ends(self) -> list[int]:
        """The entries that conditions were decided by: those seen, and single bools that nothing else used."""
        seen = {place for condition in self.seen for place in condition.places}
        return sorted(seen | self._unasked_bools)

    @cached_property
    def _unasked_bools(self) -> set[int]:
        """Single bools that nothing used and whose conversion, if there was one, could not be seen."""
        asked = {place for event in self._graph.recording.events for place in self._places(event)}
        return {p for p in range(len(self._graph.entries)) if p not in asked and self._is_unused_bool(p)}

    def is_terminal_bool(self, place: int) -> bool:
        """Was a condition decided by this entry, and nothing else computed from it?"""
        return place in self._ends and not self._graph.children[place]

    @cached_property
    def _ends(self) -> set[int]:
        return set(self.ends)

    def _is_unused_bool(self, place: int) -> bool:
        value = self._graph.entries[place]
        is_single_bool = value.dtype is torch.bool and math.prod(value.shape) == 1
        return is_single_bool and value.role == "op" and not self._graph.children[place]

    @cached_property
    def branch(self) -> set[int]:
        """The entries that only serve to evaluate a condition: back from its end to the first output ancestor."""
        to_output, parents = self._graph.to_output, self._graph.parents
        stack = [place for place in self.ends if not to_output[place]]
        found = set(stack)
        while stack:
            for parent in parents[stack.pop()]:
                if parent not in found and not to_output[parent]:
                    found.add(parent)
                    stack.append(parent)
        return found

    @cached_property
    def branch_starts(self) -> list[tuple[int, int]]:
        """The edges on which condition branches leave the main path: (output ancestor, first of the branch)."""
        graph = self._graph
        return [
            (parent, place)
            for place in sorted(self.branch)
            for parent in graph.parents[place]
            if graph.to_output[parent]
        ]

    @property
    def is_branching(self) -> bool:
        """Did a tensor decide what ran next? A single bool that nothing used counts if nothing else is known."""
        kinds = {condition.statement.kind for condition in self.seen}
        return bool(kinds & {*BRANCHING, "unknown"} or self._unasked_bools)

    def outcome(self, condition: Condition) -> bool | None:
        """Which way the test went, where this one tensor decided it."""
        result: Any = condition.event.result
        return condition.statement.outcome(result) if isinstance(result, bool) else None
