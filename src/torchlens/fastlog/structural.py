"""The tracer of a single pass: records the whole structure as a full log does, and observes like the light one."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from .._torch import no_torch_function
from ..capture.containers import flat_tensors
from ..capture.identity import Identity, Residents
from ..capture.keeping import Keeper
from ..capture.records import Call, ModuleCall, Trace, Value
from ..capture.tracer import Tracer
from ..graph.link import argument_values
from .events import Event, Frame, Name
from .observe import Observer
from .recording import Record


class ConnectedIdentity(Identity):
    """Tells the observer what is about to be overwritten: it may hold tensors that are connected to autograd."""

    observer: Observer

    def before_write(self, tensor: Tensor) -> int | None:
        self.observer.before_write(tensor)
        return super().before_write(tensor)

    def expose(self, tensor: Any) -> None:
        if isinstance(tensor, Tensor):
            self.observer.before_write(tensor)
        super().expose(tensor)


class StructuralTracer(Tracer):
    """A full tracer that keeps no values, and tells an observer of every event."""

    def __init__(
        self,
        trace: Trace,
        residents: Residents,
        modules: list[nn.Module],
        keeper: Keeper,
        identity: type[Identity],
        *,
        observer: Observer,
    ) -> None:
        self.observer = observer
        observer.keeper = keeper
        self.watch = trace.chooser = Watch(trace, observer)  # type: ignore[assignment]
        super().__init__(trace, residents, modules, keeper, ConnectedIdentity)
        assert isinstance(self.identity, ConnectedIdentity)
        self.identity.observer = observer

    def enter_module(
        self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ModuleCall | None:
        call = super().enter_module(module, is_forward, args, kwargs)
        if call is not None and not self.observer.stopped:
            self.watch.module_entered(call, self.module_call, (*args, *kwargs.values()))
        return call


class Watch:
    """Stands where the chooser of a full log does: it is shown every new value, and tells the observer."""

    def __init__(self, trace: Trace, observer: Observer) -> None:
        self.trace = trace
        self.observer = observer
        self.names: dict[int, Name] = {}  # by index of the value
        self.frames: dict[int, Frame] = {}  # of running module calls, by their places

    def consider(self, new: list[tuple[Value, Tensor]], module_call: int) -> None:
        considered, new[:] = list(new), []
        for value, tensor in considered:
            if not self.observer.stopped:
                self._value(value, tensor, self.frames.get(module_call))
        self.observer.end_if_stopped()

    def _value(self, value: Value, tensor: Tensor, frame: Frame | None) -> None:
        observer = self.observer
        if value.role == "output":
            if observer.rules.asks_outputs():
                _save(value, observer.output(value.address or "", tensor))
            return
        if observer.trail is not None:
            observer.values_of[observer.next_number] = [value.index]
        if value.role == "source":
            self.names[value.index] = observer.count(observer.tally_for("source"))
            return
        if value.role != "op":
            kind = "input" if value.role == "input" else "buffer"
            name, record = observer.value(kind, tensor, frame)
            self.names[value.index] = name
            _save(value, record)
            return
        call = self.trace.calls[value.call]
        tally = observer.tallies.get(call.function) or observer.tally_of(call.function, lambda: call.site)
        number = observer.next_number
        self.names[value.index] = name = observer.count(tally)
        if not tally.looked_at:
            return
        # Whose child it is can be told later from the call, which stays.
        parents = partial(_parents, call, self.names)
        made = (name, value.position, value.facts, call.function, call.site, parents)
        event = Event("op", number, observer.rollout, frame, *made)
        keep = observer.keep_unasked if tally.kept_unasked else observer.look
        _save(value, keep(event, tensor))

    def module_entered(self, call: ModuleCall, place: int, arguments: tuple[Any, ...]) -> None:
        info = self.trace.modules[call.module]
        frame = Frame(call.module, info.address, info.class_name, call.number, self.frames.get(call.parent))
        self.frames[place] = frame
        if self._looks_at(frame):
            with no_torch_function():
                tensors = flat_tensors(arguments)
                self.observer.module("module_enter", frame, tensors, [None] * len(tensors))
            self.observer.end_if_stopped()
        else:
            self.observer.module_events += 1

    def module_left(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> None:
        place = next((place for place in reversed(self.frames) if self.trace.module_calls[place] is call), None)
        if place is None or self.observer.stopped:
            return
        frame = self.frames.pop(place)
        if not self._looks_at(frame):
            self.observer.module_events += 1
            return
        names = [self.names.get(value.index) if value.role != "param" else None for value, _ in returned]
        if self.observer.trail is not None:
            self.observer.values_of[self.observer.next_number] = [value.index for value, _ in returned]
            self.observer.names_of[self.observer.next_number] = names
        records = self.observer.module("module_exit", frame, [tensor for _, tensor in returned], names)
        for (value, _), record in zip(returned, records, strict=False):
            _save(value, record)
        self.observer.end_if_stopped()

    def _looks_at(self, frame: Frame) -> bool:
        observer = self.observer
        return observer.history is not None or observer.trail is not None or observer.rules.asks_module(frame.module)


def _parents(call: Call, names: dict[int, Name]) -> list[Name]:
    parents = [names.get(parent.index) for _, parent in argument_values(call) if parent.role != "param"]
    return [parent for parent in parents if parent is not None]


def _save(value: Value, record: Record | None) -> None:
    """Put a kept value into the structure."""
    if record is not None and value.kept is None and value.role != "param":
        _ = value.facts
        value.kept = record._saved if record._saved is not None else record._stored
