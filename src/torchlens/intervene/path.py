"""Does a run that is edited take the path of its base? Up to the last site it must, call by call."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from ..capture.functions import EDIT, UNEDITED
from ..capture.records import Call, Trace, Value, argument_values
from ..errors import DivergenceError
from ..graph.call_stacks import call_in_words
from ..graph.graph import Graph
from .sites import Sites


class RunPath:
    """Follows a run along its base. Calls that stand only for edits are not counted."""

    def __init__(self, graph: Graph, sites: Sites) -> None:
        self.graph = graph
        self.base: Trace = graph.trace
        self.at = 0  # the next call, as numbered in the base
        calls = [self.base.values[index].call for index in sites.values]
        self._last = max([*calls, *sites.edges], default=-1)  # up to which it must be followed
        self._seen = 0  # calls of the run
        self._inserted: list[int] = []  # values of the run that the base does not have
        self._stands_for: dict[int, int] = {}  # by their indexes: the index in the base

    def follow(self, trace: Trace) -> None:
        """Compare what was recorded since the last time."""
        while self._seen < len(trace.calls) and self.at <= self._last:
            call = trace.calls[self._seen]
            self._seen += 1
            if not self._step(call):
                what = self._difference(trace, call)
                raise DivergenceError(f"{what}; labels hold only as far as the path is the same")

    def _step(self, call: Call) -> bool:
        if call.function is EDIT or call.function is UNEDITED:
            index = call.outputs[0].index
            self._stands_for[index] = self.index(call.args[0])
            self._inserted.append(index)
            return True
        same = self.at < len(self.base.calls) and self._is_same_call(self.base.calls[self.at], call)
        self.at += 1
        return same

    def index(self, value: Value) -> int:
        """The index that a value of the run has in the base."""
        found = self._stands_for.get(value.index)
        return found if found is not None else value.index - bisect_left(self._inserted, value.index)

    def is_same(self, in_base: Value, value: Value) -> bool:
        return in_base.role == value.role and self._name(in_base, True) == self._name(value, False)

    def label(self, value: Value) -> str | None:
        """What the base calls a value."""
        if value.role == "param":
            return value.address
        place = self.graph.place.get(self.index(value))
        return None if place is None else self.graph.label(place)

    def _name(self, value: Value, in_base: bool) -> Any:
        return value.index if in_base or value.role == "param" else self.index(value)

    def _is_same_call(self, before: Call, now: Call) -> bool:
        if before.function.name != now.function.name or len(before.outputs) != len(now.outputs):
            return False
        one = [(at, value.role, self._name(value, True)) for at, value in argument_values(before)]
        other = [(at, value.role, self._name(value, False)) for at, value in argument_values(now)]
        return len(one) == len(other) and all(a == b or a[2] == b[2] for a, b in zip(one, other, strict=True))

    def _difference(self, trace: Trace, call: Call) -> str:
        now = call_in_words(trace, call)
        if self.at > len(self.base.calls):
            return f"the run goes on with {now} where the base ended"
        before = call_in_words(self.base, self.base.calls[self.at - 1])
        return f"the run took another path than the base: {now} ran where {before} did"

    def finish(self, trace: Trace) -> None:
        """The run is over: note where it left the path of the base, which after the last edit it may."""
        while self._seen < len(trace.calls):
            call = trace.calls[self._seen]
            self._seen += 1
            if not self._step(call):
                trace.remarks.append(self._difference(trace, call) + ", after the edits; from there on labels differ")
                return
        if self.at < len(self.base.calls):
            missing = call_in_words(self.base, self.base.calls[self.at])
            trace.remarks.append(f"after the edits the run ended before {missing}, which the base made")
