"""Apply the edits of a log again, to what was saved: for validation."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ..capture.containers import rebuild
from ..capture.context import OpInProgress
from ..capture.functions import EDIT
from ..capture.records import Applied, Trace, Value, fetched
from ..graph.graph import Graph
from ..replay.reasons import NotReplayable
from .edit_base import Moment
from .sites import donor_at


class AppliedEdits:
    """The edits of a forward pass, by what they were applied to."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.of_value: dict[Value, list[Applied]] = {}
        self.of_edge: dict[tuple[int, Value], list[Applied]] = {}
        self._numbers: dict[int, int] = {}  # how often its edit was applied before, by id
        counts: dict[int, int] = {}
        for applied in trace.applied:
            self._numbers[id(applied)] = counts.get(applied.intervention, 0)
            counts[applied.intervention] = self._numbers[id(applied)] + 1
            if applied.call >= 0:
                self.of_edge.setdefault((applied.call, applied.value), []).append(applied)
            else:
                self.of_value.setdefault(applied.value, []).append(applied)

    def argument(self, call: int, value: Value) -> Tensor | None:
        """What a call got for a value."""
        edited = self.of_edge.get((call, value))
        return value.saved if edited is None else fetched(edited[-1].after)

    def before(self, value: Value) -> Tensor | None:
        """What a value was before it was edited, if it was."""
        edited = self.of_value.get(value)
        return value.saved if edited is None else fetched(edited[0].before)

    def again(self, graph: Graph, applied: Applied, tensor: Tensor | None = None) -> Tensor:
        """The edit, applied once more to what it was applied to, or to another tensor in its place."""
        edit = self.trace.interventions[applied.intervention].edit
        before = fetched(applied.before) if tensor is None else tensor
        if before is None:
            raise NotReplayable("the edited value was not saved")
        value = applied.value
        place = graph.place.get(value.index) if value.role != "param" else None
        label = value.address if place is None else graph.label(place)
        call = self.trace.calls[value.call] if value.call >= 0 else None
        op = OpInProgress(self.trace, value, call.module_call if call is not None else -1)
        arguments = None
        if edit.needs_arguments:
            if call is None or call.function is EDIT or call.function.func is None:
                raise NotReplayable("the arguments of the module whose result was edited were not saved")
            arguments = (rebuild(call.args, _tensor), {name: _tensor(each) for name, each in call.kwargs.items()})
        moment = Moment(op, self._numbers[id(applied)], partial(donor_at, key=label or ""), arguments, value.position)
        result: Tensor = edit.apply(before, moment)
        return result


def _tensor(argument: Any) -> Any:
    return argument.saved if isinstance(argument, Value) else rebuild(argument, _tensor)
