"""Where the model read the truth of a tensor: `if`, `while`, `assert`, `a if t else b` ..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..capture.functions import HIDDEN_READS
from ..capture.naming import frames, is_library_code
from ..capture.records import ReadEvent
from ..statements import Statement, find_statement

if TYPE_CHECKING:
    from .graph import Graph

#: Statements that choose what runs next; an assert does not.
BRANCHING = {"if", "elif", "while", "ternary", "comprehension", "guard", "boolop"}
_TESTS = BRANCHING | {"assert"}

#: Reads that no line of Python makes, and what may be no read at all.
_NO_TESTS = {"_local_scalar_dense", *HIDDEN_READS}


@dataclass(frozen=True)
class Condition:
    """One time that a tensor decided something."""

    event: ReadEvent
    statement: Statement
    places: tuple[int, ...]  # the entries whose truth was read

    @property
    def outcome(self) -> bool | None:
        """Which way the test went, where this one tensor decided it."""
        result = self.event.result
        return self.statement.outcome(result) if isinstance(result, bool) else None


@dataclass(frozen=True)
class Conditions:
    """The conditions of a graph and the operations that are there only to evaluate them."""

    seen: list[Condition]
    ends: set[int]  # the entries that conditions were decided by
    branch: set[int]  # the entries that only serve to evaluate a condition
    starts: list[tuple[int, int]]  # edges on which a condition branch leaves the main path
    is_branching: bool  # did a tensor decide what ran next?


def find_conditions(graph: Graph) -> Conditions:
    """Find where a tensor was asked for its truth, and what was computed only for that."""
    seen = _seen(graph)
    ends = {place for condition in seen for place in condition.places}
    branch = _branch(graph, ends)
    starts = [(up, place) for place in sorted(branch) for up in graph.parents[place] if graph.to_output[up]]
    kinds = {condition.statement.kind for condition in seen}
    return Conditions(seen, ends, branch, starts, bool(kinds & {*BRANCHING, "unknown"}))


def _seen(graph: Graph) -> list[Condition]:
    """Conversions of a tensor to a Python bool, and to a number inside a test, in the user's code."""
    found = []
    for event in graph.trace.events:
        innermost = next(frames(event.site), None)
        if innermost is None or is_library_code(innermost[0]) or event.function in _NO_TESTS:
            continue
        statement = find_statement(*innermost)
        if event.function == "__bool__" or statement.kind in _TESTS:
            found.append(Condition(event, statement, _places(graph, event)))
    return found


def _places(graph: Graph, event: ReadEvent) -> tuple[int, ...]:
    return tuple([graph.place[v.index] for v in event.values if v.role != "param" and v.index in graph.place])


def _branch(graph: Graph, ends: set[int]) -> set[int]:
    """Back from the ends of conditions to the first ancestors that lead to an output."""
    stack = [place for place in ends if not graph.to_output[place]]
    found = set(stack)
    while stack:
        for parent in graph.parents[stack.pop()]:
            if parent not in found and not graph.to_output[parent]:
                found.add(parent)
                stack.append(parent)
    return found
