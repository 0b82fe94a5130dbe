"""A single run whose whole structure is recorded, as for a full log, while a collector is told of every event."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..capture.containers import flat_tensors
from ..capture.keeping import Keeper
from ..capture.observer import Observer
from ..capture.records import Call, ModuleCall, Trace, Value, argument_values
from .collector import Collector
from .events import Event, Frame, Name
from .recording import Record


class Watch(Observer):
    """Tells a collector, in its own terms, of what a full capture sees."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.names: dict[int, Name] = {}  # by index of the value
        self.frames: dict[int, Frame] = {}  # of running module calls, by their places

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        self.trace = trace
        self.collector.keeper = keeper

    def before_write(self, tensor: Tensor) -> None:
        self.collector.before_write(tensor)

    def value(self, value: Value, tensor: Tensor, module_call: int) -> None:
        if not self.collector.stopped:
            self._value(value, tensor, self.frames.get(module_call))
        self.collector.end_if_stopped()

    def _value(self, value: Value, tensor: Tensor, frame: Frame | None) -> None:
        collector = self.collector
        if collector.trail is not None:
            collector.values_of[collector.next_number] = [value.index]
        if value.role == "output":
            if collector.trail is not None or collector.rules.asks_outputs():
                _save(value, collector.output(value.address or "", tensor))
            return
        if value.role == "source":
            self.names[value.index] = collector.count(collector.tally_for("source"))
            return
        if value.role != "op":
            kind = "input" if value.role == "input" else "buffer"
            name, record = collector.value(kind, tensor, frame)
            self.names[value.index] = name
            _save(value, record)
            return
        call = self.trace.calls[value.call]
        tally = collector.tallies.get(call.function) or collector.tally_of(call.function, lambda: call.site)
        number = collector.next_number
        self.names[value.index] = name = collector.count(tally)
        if not tally.looked_at:
            return
        # The parents can be found later: the call stays in the trace.
        parents = partial(_parents, call, self.names)
        made = (name, value.position, value.facts, call.function, call.site, parents)
        event = Event("op", number, collector.run, frame, *made)
        keep = collector.keep_unasked if tally.kept_unasked else collector.look
        _save(value, keep(event, tensor))

    def module_enter(self, call: ModuleCall, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.collector.stopped:
            return
        info = self.trace.modules[call.module]
        frame = Frame(call.module, info.address, info.class_name, call.number, self.frames.get(call.parent))
        self.frames[place] = frame
        if self._looks_at(frame):
            tensors = flat_tensors((*args, *kwargs.values()))
            self.collector.module("module_enter", frame, tensors, [None] * len(tensors))
            self.collector.end_if_stopped()
        else:
            self.collector.module_events += 1

    def module_exit(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> None:
        place = next((place for place in reversed(self.frames) if self.trace.module_calls[place] is call), None)
        if place is None or self.collector.stopped:
            return
        frame = self.frames.pop(place)
        if not self._looks_at(frame):
            self.collector.module_events += 1
            return
        names = [self.names.get(value.index) if value.role != "param" else None for value, _ in returned]
        if self.collector.trail is not None:
            self.collector.values_of[self.collector.next_number] = [v.index for v, _ in returned if v.role != "param"]
            self.collector.names_of[self.collector.next_number] = names
        records = self.collector.module("module_exit", frame, [tensor for _, tensor in returned], names)
        for (value, _), record in zip(returned, records, strict=False):
            _save(value, record)
        self.collector.end_if_stopped()

    def _looks_at(self, frame: Frame) -> bool:
        collector = self.collector
        return collector.history is not None or collector.trail is not None or collector.rules.asks_module(frame.module)


def _parents(call: Call, names: dict[int, Name]) -> list[Name]:
    parents = [names.get(parent.index) for _, parent in argument_values(call) if parent.role != "param"]
    return [parent for parent in parents if parent is not None]


def _save(value: Value, record: Record | None) -> None:
    """Put a kept value into the trace, unless a `postfunc` changed it."""
    if record is not None and record.spec.postfunc is None and value.kept is None and value.role != "param":
        _ = value.facts
        value.kept = record._saved if record._saved is not None else record._stored
