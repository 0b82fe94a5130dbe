"""Does a run that is edited take the path of its base? Up to the last site it must, call by call."""

from __future__ import annotations

from bisect import bisect_left

from ..capture.functions import EDIT, UNEDITED
from ..capture.records import Call, Trace, Value, values_given
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
        self.edited: set[int] = set()  # the values that were edited, as numbered in the base
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
                raise DivergenceError(f"{what}; labels are valid only while both runs take the same path")

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
        """The index that a value of the run has in the base; of a parameter a negative number, see `_indexes`."""
        if not self._inserted or value.role == "param":
            return _indexes([value])[0]
        found = self._stands_for.get(value.index)
        return found if found is not None else value.index - bisect_left(self._inserted, value.index)

    def is_same(self, in_base: Value, value: Value) -> bool:
        return _indexes([in_base]) == [self.index(value)]

    def label(self, value: Value) -> str | None:
        """What the base calls a value."""
        if value.role == "param":
            return value.address
        place = self.graph.place.get(self.index(value))
        return None if place is None else self.graph.label(place)

    def _is_same_call(self, before: Call, now: Call) -> bool:
        if before.function.name != now.function.name or len(before.outputs) != len(now.outputs):
            return False
        given, taken = _indexes(values_given(before)), values_given(now)
        found = [self.index(value) for value in taken] if self._inserted else _indexes(taken)
        if given == found or len(given) != len(found):
            return given == found
        return all(a == b or self._was_returned(a, b) for a, b in zip(given, found, strict=True))

    def _was_returned(self, in_base: int, index: int) -> bool:
        """A function may return its argument: then one tensor of the base holds both, and of the edited run two do."""
        value = self.base.values[in_base] if in_base in self.edited else None
        if value is None or value.call < 0 or self.base.calls[value.call].function.fresh:
            return False
        return index in _indexes(values_given(self.base.calls[value.call]))

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


def _indexes(values: list[Value]) -> list[int]:
    """What values are known by in their trace. Parameters are counted by themselves: they get negative numbers."""
    return [-1 - value.index if value.role == "param" else value.index for value in values]
