"""The light tracer: sees every torch call as the full tracer does, and records only what a rule may keep.

Each call is counted and its result gets a name; an event is made only where a rule may want it. There are no call
records, no values and no versions of memory: parents are known by the tensor object alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, is_grad_enabled, nn
from torch.nn import Parameter

from .._torch import (
    UninitializedTensorMixin,
    any_global_hook,
    dispatch_stack,
    has_call_of_its_own,
    no_torch_function,
    without_torch_function,
)
from ..capture import native
from ..capture.calls import NO_SUBCLASS, TENSOR_ONLY, RunProgress, TorchCalls
from ..capture.changes import Changes, begin_or_undo
from ..capture.containers import PLAIN, all_plain, flat_tensors, put_in, tensors_in
from ..capture.functions import Function, known_function
from ..capture.keeping import HiddenKeeper, give_own_memory
from ..capture.modules import MODULE_BOUNDARY, named_modules
from ..capture.naming import is_library_file
from ..capture.records import NO_KWARGS, Facts, Site, facts_of
from ..capture.session import dispatcher_watched, input_tensors
from ..capture.surroundings import captured, modules_watched
from ..capture.tensor_memory import own_memory
from ..errors import ArgumentError
from .collector import Collector, Stopped
from .events import Event, Frame, History, Name, Run, Tally, new_event, new_frame
from .light_edits import LightEdits
from .spec import check_training

#: Types of arguments that are no parents and hold none.
_NO_PARENTS = PLAIN | {Parameter}

#: Placeholder for a tensor that has no name yet.
_UNKNOWN: tuple[Any, Any, Any] = (lambda: None, None, None)

#: A tensor, its name, and its shape, type and device if these were looked at.
NamedTensor = tuple[ref[Tensor], Name, "Facts | None"]


class LightTracer(TorchCalls):
    """Observes the calls of a model: each call of it, from the outside, is a run.

    It is told of module calls all the time, and of torch calls only while the model is being called, and only if
    something depends on them: watching only modules costs little more than a hook.
    """

    #: For observe.c; all other attributes are in `__dict__`.
    __slots__ = (
        "about", "asked", "call_counts", "collector", "edits", "frame", "guarded", "known", "module_numbers",
    )  # fmt: skip

    def __init__(self, model: nn.Module, collector: Collector) -> None:
        super().__init__()
        self.modules: list[nn.Module] = []
        self.module_numbers: dict[int, int] = {}  # by id
        self.about: list[tuple[int, str, str]] = []  # their numbers, addresses and classes
        for address, module in named_modules(model):
            number = self.module_numbers.setdefault(id(module), len(self.modules))
            if number == len(self.modules):
                self.modules.append(module)
                self.about.append((number, address, type(module).__name__))
        self.call_counts = [0] * len(self.modules)
        self.watchers = partial(dispatcher_watched, modules=_scripted(self.modules))
        self.collector = collector
        self.edits = edits = collector.edits
        self.keeper = collector.keeper
        self.known: dict[int, NamedTensor] = {}  # by id
        self.frame: Frame | None = None  # the running module call
        self.buffers: dict[int, Tensor] = {}  # of the model, by id
        self.runs = 0
        self.warnings: dict[str, None] = {}  # each once, however many runs there are
        self.sample_id: Any = None  # of the next run
        self.may_stop = False  # is there someone who waits for the run to be stopped?
        self.asked = [collector.rules.asks_module(number) for number in range(len(self.modules))]  # about their calls
        self.asks_outputs = collector.rules.asks_outputs()
        self._edits_calls = edits is not None and bool(edits.of_operations)
        self._sees_calls = collector.trail is not None or collector.rules.asks_calls() or self._edits_calls
        self._written: set[int] = set()  # what the running call has overwritten, by id
        self._kept_before = 0  # how many records there were before this run
        self._changes: Changes | None = None  # of the run that is going on

    @property
    def watched(self) -> list[nn.Module]:
        """The modules whose calls matter: all but torch's own that call no other, unless somebody asks about them."""
        if self._sees_calls:
            return self.modules
        edited = self.edits.by_module if self.edits is not None else {}
        return [
            module
            for number, module in enumerate(self.modules)
            if not number or self.asked[number] or number in edited or not _calls_none(module)
        ]

    def close(self) -> None:
        """Let go of everything; what was kept is elsewhere."""
        self.collector.prepare = None

    # ---- runs -----------------------------------------------------------------------------------------------

    def _begin_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        collector = self.collector
        if collector.stopping and not self.may_stop:
            raise ArgumentError(
                "stop_after ends the forward pass early: run it with recorder.log(x), which handles that"
            )
        check_training(collector.rules.train_mode)
        collector.begin(Run(self.runs, self.sample_id))
        if self.edits is not None:
            self.edits.grad_enabled = is_grad_enabled()
        self._kept_before = collector.kept
        self.runs += 1
        self.call_counts = [0] * len(self.modules)
        if self._sees_calls:
            collector.prepare = self._mark_model_tensors
            with_buffers = [own for module in self.modules if (own := module._buffers)]
            self.buffers = {id(buffer): buffer for own in with_buffers for buffer in own.values() if buffer is not None}
        else:  # nothing is known of any tensor, so that what is kept is copied at once
            self.only_modules = True
        with without_torch_function():
            for tensor in self._inputs(args, kwargs):
                self.keeper.mark_foreign(tensor)
                name = collector.value("input", tensor, None)[0]
                facts = facts_of(tensor) if collector.history is not None else None
                # What uses one that is given twice uses the first.
                self.known.setdefault(id(tensor), (ref(tensor), name, facts))
        collector.end_if_stopped()
        self._changes = captured(self, ()) if self._sees_calls else modules_watched()
        begin_or_undo(self._changes, _frame_of_the_model())

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Tensor]:
        """The tensors among the arguments of the model."""
        if not kwargs and all(type(argument) is Tensor for argument in args):
            return args
        hidden: list[str] = []
        inputs = input_tensors(list(args), kwargs, hidden)
        self.warnings.update(dict.fromkeys(hidden))
        return [tensor for _, tensor in inputs]

    def _end_run(self, raised: BaseException | None) -> None:
        """Forget everything about the run; what was kept is elsewhere. A predicate's error shows itself now."""
        self.stop()
        self.end()
        self.only_modules = False
        # A thread that the model has left running has the old one, which tells it that the run is over.
        self.progress = RunProgress()
        if self.collector.kept > self._kept_before:
            with without_torch_function():
                give_own_memory([entry[0] for entry in self.known.values() if entry[0]() is not None])
        self.known.clear()
        self.buffers.clear()
        self.keeper.foreign.clear()
        failure: Exception | None = self.collector.failure
        self.collector.failure = None
        of_edit, edits = None, self.edits
        if edits is not None:
            of_edit, edits.failure = edits.failure, None
        if of_edit is not None and (raised is None or isinstance(raised, Exception)) and raised is not of_edit:
            raise of_edit  # TorchScript makes another error of it
        if failure is not None and (raised is None or isinstance(raised, Stopped)):
            raise failure

    def stop(self) -> None:
        """Undo what is different during a run."""
        changes = self._changes
        if changes is not None:
            try:
                changes.end()
            finally:
                changes.end()
            self._changes = None

    def _mark_model_tensors(self) -> None:
        """Parameters and buffers must not move. The keeper is told so before it keeps anything, and not earlier."""
        self.collector.prepare = None
        parameters = [param for module in self.modules for param in module._parameters.values() if param is not None]
        self.keeper.mark_all_foreign([*parameters, *self.buffers.values()])

    # ---- torch calls ----------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Observe a call of the common kind; `treat` does the same for all kinds. Where observe.c could be compiled, it
        observes all but the first call of each function."""
        collector, known = self.collector, self.known
        # 1. Calls of any other kind are passed on to `treat`; metadata queries such as `x.shape` just run.
        function = known_function(func)
        if (
            (types and types != TENSOR_ONLY)
            or kwargs
            or function is None
            or self.others
            or collector.stopped
            or not (function.simple or (function.in_place and args and type(args[0]) is Tensor))
            or (function.switch is not None and function.is_on(args, NO_KWARGS))
        ):
            if function is not None and function.is_metadata_query and not self.others and types in NO_SUBCLASS:
                return func(*args, **kwargs) if kwargs else func(*args)
            return self.treat(func, types, args, kwargs or NO_KWARGS)
        # 2. Arguments: the names of the tensors among them are the parents.
        parents: list[Name] = []
        for argument in args:
            kind = type(argument)
            if kind is Tensor:
                reference, name, _ = known.get(id(argument), _UNKNOWN)
                parents.append(name if reference() is argument else self._first_seen(argument))
            elif kind not in _NO_PARENTS and not (kind is tuple and all_plain(argument)):
                self._note_parents(argument, parents)
        self.guarded = False
        self.busy = True
        try:
            # 3. What was kept of a tensor gets its own memory before the call overwrites it. Then the call itself.
            if function.in_place and collector.kept:
                self._before_overwriting(args[0])
            result = func(*args)
            # 4. The result is counted and named; `_look` makes an event of it if a rule may want this type.
            if type(result) is Tensor:
                tally = collector.tallies.get(function) or collector.tally_of(function, _site)
                total = collector.total
                collector.total = total + 1
                tally.count = count = tally.count + 1
                name = (tally, count, total)
                if tally.looked_at:
                    result = self._look(function, result, None, parents, function.fresh, name)
                else:
                    known[id(result)] = (ref(result), name, None)
            elif type(result) not in PLAIN:
                result = self._made_several(function, result, parents)
            if function.in_place and result is not args[0]:
                self._overwrote(function, args[0], parents)
        finally:
            self.busy = False
        return result

    def _record(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.collector.stopped:
            return func(*args, **kwargs)
        parents: list[Name] = []
        known = self.known
        for argument in args:
            kind = type(argument)
            if kind is Tensor:
                entry = known.get(id(argument))
                if entry is not None and entry[0]() is argument:
                    parents.append(entry[1])
                else:
                    parents.append(self._first_seen(argument))
            elif kind not in _NO_PARENTS:
                self._note_parents(argument, parents)
        if kwargs:
            for key, argument in kwargs.items():
                self._note_parents(argument, parents if key != "out" else [])
        if function.written is not None or function.escapes or "out" in kwargs:
            targets = list(function.written(args, kwargs)) if function.written is not None else []
            if targets or function.escapes or "out" in kwargs:
                return self._record_write(function, func, args, kwargs, targets, parents)
        self.busy = True
        try:
            result = func(*args, **kwargs)
            if type(result) is Tensor:
                result = self._made(function, result, None, parents, function.fresh)
            elif type(result) not in PLAIN:
                result = self._made_several(function, result, parents)
        finally:
            self.busy = False
        return result

    def _note_parents(self, argument: Any, parents: list[Name]) -> None:
        """Append the names of the tensors in an argument; those that are new are counted first."""
        if type(argument) in _NO_PARENTS:
            return
        if isinstance(argument, Tensor):
            if not isinstance(argument, Parameter):
                parents.append(self._name(argument) or self._first_seen(argument))
        elif isinstance(argument, (list, tuple)):
            for member in argument:
                self._note_parents(member, parents)
        elif isinstance(argument, slice):
            self._note_parents((argument.start, argument.stop, argument.step), parents)
        elif isinstance(argument, Mapping):
            self._note_parents(list(argument.values()), parents)

    def _first_seen(self, tensor: Tensor) -> Name:
        """Name a buffer that is used for the first time, or a tensor from elsewhere."""
        if self.buffers.get(id(tensor)) is tensor:
            return self._count_buffer(tensor)
        collector = self.collector
        with no_torch_function():
            self.keeper.mark_foreign(tensor)
        name = collector.count(collector.tally_for("source"))
        self.known[id(tensor)] = (ref(tensor), name, None)
        return name

    def _name(self, tensor: Tensor) -> Name | None:
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _made(
        self, function: Function, tensor: Tensor, position: int | None, parents: list[Name], fresh: bool = False
    ) -> Tensor:
        """A call has given a tensor its value; `fresh` if that lies in new memory. Returns what the caller gets."""
        collector = self.collector
        name = collector.count(collector.tallies.get(function) or collector.tally_of(function, _site))
        if name[0].looked_at:
            return self._look(function, tensor, position, parents, fresh, name)
        self.known[id(tensor)] = (ref(tensor), name, None)
        return tensor

    def _look(
        self,
        function: Function,
        tensor: Tensor,
        position: int | None,
        parents: list[Name],
        fresh: bool,
        name: Name,
    ) -> Tensor:
        """A rule may select the result of a call, or an edit may change it."""
        collector = self.collector
        tally, _, total = name
        site = _site() if function.may_be_operator else ()  # which has a say in what it is called
        guarded = self.guarded or type(tensor) is not Tensor  # others might see it if the tensor is asked for its shape
        facts: Facts | None = None
        if guarded:
            with no_torch_function():
                facts = facts_of(tensor)
        elif not tally.kept_unasked:
            facts = facts_of(tensor)
        number, run, frame = total + collector.module_events, collector.run, self.frame
        about = ("op", number, run, frame, name, position, facts, function, site, parents)
        event = new_event(Event, about)
        if self._edits_calls:
            event, tensor = self._edited_value(event, function, tensor)
        self.known[id(tensor)] = (ref(tensor), name, event.facts)
        if guarded:
            with no_torch_function():
                collector.look(event, tensor)
        elif tally.kept_unasked:
            collector.keep_unasked(event, tensor, fresh)
        else:
            collector.look(event, tensor)
        if collector.stopped:
            collector.end_if_stopped()
        return tensor

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.edits is None:
            return super().record(func, args, kwargs)
        try:
            self.edits.unreachable = self.why_unreachable(func, args, kwargs)
            return super().record(func, args, kwargs)
        finally:
            self.edits.unreachable = None

    def _edited_value(self, event: Event, function: Function, tensor: Tensor) -> tuple[Event, Tensor]:
        """What takes the place of what a call has made."""
        assert self.edits is not None
        with no_torch_function():
            edited = self.edits.made(event, tensor, self.collector.history)
            if edited is tensor:
                return event, tensor
            if function.in_place or id(tensor) in self._written:  # it reaches every alias, as what the call wrote does
                if facts_of(edited) != facts_of(tensor):
                    raise ArgumentError("interventions: a value written in place must keep its shape, dtype and device")
                edited = tensor.copy_(edited)
            return event._replace(facts=facts_of(edited)), edited

    def _made_several(self, function: Function, result: Any, parents: list[Name]) -> Any:
        """A call has returned something with tensors in it. Returns what the caller gets."""
        if isinstance(result, Tensor):
            return self._made(function, result, None, parents)
        members = result if isinstance(result, (tuple, list)) else [result]
        flat = all(isinstance(member, Tensor) or member is None for member in members)
        new: dict[int, Tensor] = {}
        for position, tensor in enumerate(members if flat else flat_tensors(members)):
            if tensor is not None:
                edited = self._made(function, tensor, position, parents)
                if edited is not tensor:
                    new[id(tensor)] = edited
        return put_in(result, new) if new else result

    def _record_write(
        self,
        function: Function,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        targets: list[Any],
        parents: list[Name],
    ) -> Any:
        """A call that overwrites some of its arguments, or hands out memory."""
        self.busy = True
        try:
            with no_torch_function():
                written = flat_tensors([*targets, kwargs["out"]] if "out" in kwargs else targets)
                for tensor in flat_tensors(args[:1]) if function.escapes else written:
                    self._before_overwriting(tensor, for_good=function.escapes)
            result = func(*args, **kwargs)
            returned = {id(tensor) for tensor in flat_tensors([result])}
            self._written = set(map(id, written))
            result = self._made_several(function, result, parents)
            for tensor in written:
                if id(tensor) in returned or isinstance(tensor, UninitializedTensorMixin):
                    continue
                self._overwrote(function, tensor, parents)
        finally:
            self.busy = False
            self._written = set()
        return result

    def _overwrote(self, function: Function, tensor: Tensor, parents: list[Name]) -> None:
        """A call has given a tensor another value, but not returned it."""
        if self.buffers.get(id(tensor)) is tensor:
            self._count_buffer(tensor)
        else:
            self._made(function, tensor, None, parents)

    def _count_buffer(self, tensor: Tensor) -> Name:
        collector = self.collector
        with no_torch_function():
            name, _ = collector.value("buffer", tensor, self.frame)
        self.known[id(tensor)] = (ref(tensor), name, None)
        if collector.stopped:
            collector.end_if_stopped()
        return name

    def _before_overwriting(self, tensor: Tensor, *, for_good: bool = False) -> None:
        self.collector.before_write(tensor)
        if own_memory(tensor) and for_good:
            self.keeper.mark_foreign(tensor)

    def rename(self, tensor: Tensor, result: Tensor) -> Tensor:
        name = self._name(tensor) or self._first_seen(tensor)
        self.known[id(result)] = (ref(result), name, None)
        return result

    def knows(self, tensor: Tensor) -> bool:
        return self._name(tensor) is not None

    def hide_from_dispatch_modes(self) -> None:
        self.keeper = self.collector.keeper = HiddenKeeper(self.keeper)

    def before_swap(self, one: Tensor, other: Tensor) -> None:
        for tensor in (one, other):
            own_memory(tensor)

    def after_swap(self, one: Tensor, other: Tensor) -> None:
        first, second = self.known.pop(id(one), None), self.known.pop(id(other), None)
        if first is not None:
            self.known[id(other)] = (ref(other), *first[1:])
        if second is not None:
            self.known[id(one)] = (ref(one), *second[1:])

    # ---- modules --------------------------------------------------------------------------------------------

    def enter_module(self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number, parent = self.module_numbers.get(id(module)), self.frame
        if number is None or (parent is None and number):  # not of the model, or the model itself is not running
            return None
        due, self.forward_due = self.forward_due, None if is_forward else number
        if is_forward and due == number:
            return None
        if parent is None:
            return self._enter_model(args, kwargs)
        self.call_counts[number] = count = self.call_counts[number] + 1
        frame = new_frame(Frame, (*self.about[number], count, parent))
        if self.asked[number]:
            try:
                self._at_module("module_enter", frame, (*args, *kwargs.values()))
            except BaseException:  # the run is to stop here
                self.forward_due = None
                raise
        elif self.collector.history is None:
            self.collector.module_events += 1
        else:
            self._pass_by("module_enter", frame, (*args, *kwargs.values()) if kwargs else args)
        self.frame = frame
        return frame

    def _enter_model(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        frame = Frame(*self.about[0], 1, None)
        try:
            self._begin_run(args, kwargs)
            self.call_counts[0] = 1
            self._at_module("module_enter", frame, (*args, *kwargs.values()))
        except BaseException as raised:  # the run is to stop here, or can't begin
            self.forward_due = None
            self._end_run(raised)
            raise
        self.frame = frame
        return frame

    def leave_module(self, call: Any, result: Any) -> Any:
        if self.edits is not None and call.module in self.edits.by_module:
            result = self._edited(self.edits, call, result)
        self.forward_due = None
        parent = call.parent
        if parent is not None and not self.asked[call.module]:
            self.frame = parent
            if self.collector.history is None:
                self.collector.module_events += 1
            else:
                self._pass_by("module_exit", call, (result,))
            return result
        try:
            self._at_module("module_exit", call, (result,))
            if parent is None and result is not None:
                self._at_end(result)
        finally:
            self.frame = parent
            if parent is None:
                self._end_run(None)
        return result

    def _edited(self, edits: LightEdits, call: Any, result: Any) -> Any:
        """What the caller of a module gets, if its result is to be edited."""
        try:
            with self.bookkeeping():
                names = {id(tensor): self._name(tensor) for tensor in flat_tensors((result,))}
                result, new = edits.returned(call, self.collector.run, result)
                for first, tensor in new.items():
                    name = names[first]
                    if name is not None:
                        self.known[id(tensor)] = (ref(tensor), name, None)
                return result
        except BaseException:
            self.abandon_module(call)
            raise

    def abandon_module(self, call: Any) -> None:
        self.forward_due = None
        self._pass_by("module_exit", call, (None,))
        self.frame = call.parent
        if call.parent is None:
            self._end_run(sys.exc_info()[1])

    def _at_end(self, result: Any) -> None:
        """The model has returned."""
        collector = self.collector
        if not collector.stopped and self.asks_outputs:
            with no_torch_function():
                for path, tensor in tensors_in(result):
                    collector.output(path, tensor)
        collector.check_names()

    def _pass_by(self, kind: str, frame: Frame, container: tuple[Any, ...]) -> None:
        """A module call begins or ends that nothing depends on: it is counted, and remembered if there is a history."""
        collector = self.collector
        number = collector.total + collector.module_events
        collector.module_events += 1
        history = collector.history
        if history is None or collector.stopped or (kind == "module_exit" and container[0] is None):
            return
        reference, _, facts = self.known.get(id(container[0]), _UNKNOWN) if len(container) == 1 else _UNKNOWN
        position = None
        if facts is None or reference() is not container[0]:
            with no_torch_function():
                found = [facts_of(tensor) for tensor in flat_tensors(container)]
            facts = found[0] if found else None
            position = 0 if len(found) > 1 else None
        about = (kind, number, collector.run, frame, None, position, facts, None, (), ())
        history.events.append(new_event(Event, about))

    def _at_module(self, kind: str, frame: Frame, container: tuple[Any, ...]) -> None:
        collector = self.collector
        if collector.stopped:
            return
        nothing = kind == "module_exit" and container[0] is None  # was returned, or something was raised
        if nothing or not self.asked[frame.module]:
            self._pass_by(kind, frame, container)
            return
        if self.only_modules and dispatch_stack():  # one of the model's modes, entered without notice
            self.hide_from_dispatch_modes()
        busy, self.busy = self.busy, True
        try:
            with no_torch_function():
                alone = len(container) == 1 and type(container[0]) is Tensor
                tensors: list[Tensor] = [container[0]] if alone else flat_tensors(container)
                names = [self._name(tensor) for tensor in tensors]
                for tensor, name in zip(tensors, names, strict=True):
                    if name is None:
                        self.keeper.mark_foreign(tensor)
                collector.module(kind, frame, tensors, names)
        finally:
            self.busy = busy
        collector.end_if_stopped()


def _scripted(modules: list[nn.Module]) -> list[nn.Module]:
    """Those that run TorchScript. There are many modules, of few classes, so the classes are asked."""
    kinds = {kind for kind in set(map(type, modules)) if issubclass(kind, torch.jit.ScriptModule)}
    return [module for module in modules if type(module) in kinds] if kinds else []


def _calls_none(module: nn.Module) -> bool:
    """Is it certain that it calls no module?"""
    is_torchs = type(module).__module__.startswith("torch.nn.modules.") and not module._modules
    return is_torchs and not has_call_of_its_own(module) and not any_global_hook()


def _frame_of_the_model() -> FrameType | None:
    """The frame that runs as long as the call of the model does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not MODULE_BOUNDARY:
        frame = frame.f_back
    return frame


def _site() -> Site:
    """The frames from the call out to the first that is the user's."""
    frame: FrameType | None = sys._getframe(3)  # over our own, as far as these are always there
    pairs: Site = ()
    while frame is not None:
        code = frame.f_code
        if code is MODULE_BOUNDARY:
            break
        pairs += (code, frame.f_lasti)
        if not is_library_file(code.co_filename):
            break
        frame = frame.f_back
    return pairs


native.take_part(
    LightTracer, Event, Frame, Collector=Collector, Tally=Tally, History=History, is_library_file=is_library_file
)
