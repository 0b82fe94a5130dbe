"""Decides about events as they happen: keep the value, remember the event for predicates, stop the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from .._torch import call_with_grad, is_functorch_wrapped, no_torch_function
from ..capture.following import Connections
from ..capture.functions import Function
from ..capture.keeping import Keeper
from ..capture.naming import depends_on_site, layer_type_at
from ..capture.records import Site, facts_of
from ..errors import ArgumentError, TorchLensError
from ..selectors import selector_text
from .events import NO_HISTORY, Event, Frame, History, Name, Run, Tally, new_event
from .light_edits import LightEdits
from .record_context import context_of
from .recording import Record
from .rules import Rules
from .spec import AS_IT_IS, CaptureSpec


class Stopped(BaseException):
    """Ends a forward pass after everything that was selected. The user's code never sees it."""


class Collector:
    """The part that both tracers share. It is told of events only."""

    #: For hot.c; all other attributes are in `__dict__`.
    __slots__ = ("__dict__", "history", "kept", "module_events", "run", "stopped", "tallies", "tallies_at", "total")

    def __init__(
        self,
        rules: Rules,
        keeper: Keeper,
        history_size: int,
        sink: Callable[[Record], None],
        edits: LightEdits | None = None,
    ) -> None:
        self.rules = rules
        self.edits = edits
        self.keeper = keeper
        self.sink = sink
        self.connections = Connections()
        remembers = rules.remembers or (edits is not None and edits.remembers)
        self.history = History(history_size) if remembers else None
        self.trail: list[Event] | None = None  # every event, to try other rules on them
        self.values_of: dict[int, list[int]] = {}  # with them, the values of each event, by its index
        self.outputs: list[tuple[Event, str]] = []  # with them, what the model returned, with the path of each
        self.names_of: dict[int, Sequence[Name | None]] = {}  # with them, the names of what a module call returned
        self.failure: TorchLensError | None = None  # the first; the forward pass goes on
        self.stopped = False  # ignore whatever still happens in this run
        self._left = False
        self.stopping = not rules.stop.is_empty
        self.run = Run(-1, None)
        self.total = 0  # values so far
        self.module_events = 0
        self.kept = 0
        self.tallies: dict[Function, Tally | None] = {}  # None where the type depends on where the call is made:
        self.tallies_at: dict[tuple[Function, Site], Tally] = {}  # the same for each of these places
        self._by_type: dict[str, Tally] = {}
        self.prepare: Callable[[], None] | None = None  # to be called before anything is kept in a run

    def begin(self, run: Run) -> None:
        """A new run begins."""
        self.run = run
        self.stopped = self._left = False
        self.rules.stop.matched.clear()
        for rule in self.rules.all_rules:
            rule.begin()
        self.total = self.module_events = 0
        # Names of kept records refer to the tallies, so they are not used again.
        self.tallies, self.tallies_at, self._by_type = {}, {}, {}
        if self.history is not None:
            self.history.clear()

    # ---- counting -------------------------------------------------------------------------------------------

    def tally_of(self, function: Function, site: Callable[[], Site]) -> Tally:
        """The tally of the layer type that a call has."""
        if not depends_on_site(function):
            tally = self.tally_for(function.layer_type)
            if function.lasts:
                self.tallies[function] = tally
            return tally
        here = site()
        known = self.tallies_at.get((function, here))
        if known is None:
            known = self.tally_for(layer_type_at(function, here))
            if function.lasts:
                self.tallies[function], self.tallies_at[function, here] = None, known
        return known

    def tally_for(self, layer_type: str) -> Tally:
        tally = self._by_type.get(layer_type)
        if tally is None:
            tally = self._by_type[layer_type] = Tally(layer_type)
            rules = self.rules
            tally.spec = rules.promoted(rules.op.always(layer_type))
            unsure = bool(rules.op.unsure(layer_type))
            tally.ask = rules.lone if tally.spec is None and not rules.names_some else None
            unsure |= self.edits is not None and bool(self.edits.wanted(layer_type))
            everything = self.history is not None or self.trail is not None
            tally.looked_at = unsure or everything or tally.spec is not None or rules.stop.may_want(layer_type)
            tally.kept_unasked = tally.spec == AS_IT_IS and not (unsure or everything or self.stopping)
        return tally

    def count(self, tally: Tally) -> Name:
        """The name of the next value of this type."""
        tally.count += 1
        self.total += 1
        return tally, tally.count, self.total - 1

    @property
    def next_number(self) -> int:
        return self.total + self.module_events

    # ---- events ---------------------------------------------------------------------------------------------

    def value(self, kind: str, tensor: Tensor, frame: Frame | None) -> tuple[Name, Record | None]:
        """A value that no operation made: an input, a buffer that is used for the first time in this run."""
        tally, number, total = self.tally_for(kind), self.next_number, self.total
        self.total = total + 1
        tally.count = count = tally.count + 1
        name = (tally, count, total)
        if not tally.looked_at:
            return name, None
        about = (kind, number, self.run, frame, name, None, facts_of(tensor), None, (), ())
        return name, self.look(new_event(Event, about), tensor)

    def look(self, event: Event, tensor: Tensor) -> Record | None:
        """Keep an operation, input or buffer if a rule selects it."""
        record = None
        history = self.history or _NO_PAST
        try:
            ask = event.name[0].ask  # type: ignore[index]
            if ask is None:
                spec = self.rules.spec_for_op(event, history)
            else:
                answer = ask(context_of(event, history))
                spec = None if answer is False else self.rules.spec_answered(self.rules.op.checked(answer, ask, event))
            if spec is not None:
                record = self._keep(event, tensor, spec)
        except Exception as raised:
            self._failed(event, raised)
        if self.trail is None and not self.stopping:  # as `_after`, in short
            history.events.append(event)
            if event.kind == "op":
                history.ops.append(event)
        else:
            self._after(event)
        return record

    def output(self, path: str, tensor: Tensor) -> Record | None:
        """A tensor that the model returned. It is kept if it is selected by its path or its label."""
        tally, number, total = self.tally_for("output"), self.next_number, self.total
        self.total = total + 1
        tally.count += 1
        about = ("output", number, self.run, None, (tally, tally.count, total), None, facts_of(tensor))
        event = Event(*about)
        history = self.history or _NO_PAST
        if self.trail is not None:
            self.outputs.append((event, path))
            return None
        try:
            if self.stopping:  # which is over anyway, but it was found
                self.rules.stop.always("output")
                self.rules.stop.names(event, history, path)
            if tally.spec is not None or self.rules.op.names(event, history, path):
                return self._keep(event, tensor, tally.spec or self.rules.promoted(AS_IT_IS) or AS_IT_IS)
        except Exception as raised:
            self._failed(event, raised)
        return None

    def check_names(self) -> None:
        """At the end of a run: was a name that the user gave ambiguous?"""
        try:
            if not self.stopped:
                self.rules.op.check_names()
        except TorchLensError as error:
            self.failure = self.failure or error

    def module(
        self, kind: str, frame: Frame, tensors: list[Tensor], names: Sequence[Name | None]
    ) -> list[Record | None]:
        """A module call begins, with these tensors among its arguments, or ends, with these among its results."""
        number = self.next_number
        self.module_events += 1
        facts = [facts_of(tensor) for tensor in tensors]
        position = 0 if len(tensors) > 1 else None
        first = Event(kind, number, self.run, frame, None, position, facts[0] if facts else None)
        records: list[Record | None] = []
        try:
            specs = self.rules.specs_for_module(first, self.history or _NO_PAST, names or [None])
            for position, spec in enumerate(specs):
                event = first.beside(position, facts[position]) if position else first
                tensor = tensors[position] if tensors else None
                records.append(self._keep(event, tensor, spec) if spec is not None else None)
        except Exception as raised:
            self._failed(first, raised)
        self._after(first, names)
        return records

    def _after(self, event: Event, names: Sequence[Name | None] = ()) -> None:
        if self.trail is not None:
            self.trail.append(event)
        stop = False
        if self.stopping:
            try:
                stop = self.rules.stops(event, self.history or _NO_PAST, names)
            except Exception as raised:
                self._failed(event, raised)
        if self.history is not None:
            self.history.add(event)
        self.stopped = self.stopped or stop

    def end_if_stopped(self) -> None:
        """Leave the forward pass if it is to stop; once only, since the model may catch the exception."""
        if self.stopped and not self._left:
            self._left = True
            raise Stopped

    # ---- keeping --------------------------------------------------------------------------------------------

    def keep_unasked(self, event: Event, tensor: Tensor, fresh: bool = False) -> Record | None:
        """Keep an operation as it is; `fresh` if nothing else shares its memory, not even a parameter."""
        try:
            if self.prepare is not None and not fresh:
                self.prepare()
            record = Record(self.kept, event, AS_IT_IS)
            record._saved = self.keeper.keep(tensor, fresh)
            self.kept += 1
            self.sink(record)
            return record
        except Exception as raised:
            self._failed(event, raised)
            return None

    def _keep(self, event: Event, tensor: Tensor | None, spec: CaptureSpec) -> Record:
        history = self.history.snapshot() if self.history is not None else NO_HISTORY
        record = Record(self.kept, event, spec, history)
        if tensor is not None and spec.save_activation:
            if self.prepare is not None:
                self.prepare()
            record._saved = self._kept(tensor, spec)
            if spec.keep_grad:
                self._connect(record, tensor, spec)
        self.kept += 1
        self.sink(record)
        return record

    def _kept(self, tensor: Tensor, spec: CaptureSpec) -> Tensor | None:
        saved = self.keeper.keep(tensor)
        return spec.converted(saved) if saved is not None and spec.converts else saved

    def _connect(self, record: Record, tensor: Tensor, spec: CaptureSpec) -> None:
        if not tensor.requires_grad or is_functorch_wrapped(tensor):  # valid only inside torch.func.grad and the like
            return
        if spec.converts:
            tensor = call_with_grad(True, spec.converted, tensor)
        self.connections.add(record, tensor)  # type: ignore[arg-type]
        record._connections = self.connections

    def before_write(self, tensor: Tensor) -> None:
        """The memory of `tensor` is about to be overwritten."""
        if self.connections.by_index:
            with no_torch_function():
                self.connections.before_write(tensor)

    def _failed(self, event: Event, raised: Exception) -> None:
        self.failure = self.failure or failure_of(self.rules, event, raised)


def failure_of(rules: Rules, event: Event, raised: Exception) -> TorchLensError:
    """The error that names which of the user's functions raised."""
    if isinstance(raised, TorchLensError):
        return raised
    asked = [f"{rule.argument} {selector_text(p)}" for rule in rules.all_rules for p in rule.predicates]
    what = f"the predicate {' or '.join(asked)}" if asked else "keeping a record"
    error = ArgumentError(f"{what} raised {type(raised).__name__} for {event.label}: {raised}")
    error.__cause__ = raised
    return error


_NO_PAST = History(0)
