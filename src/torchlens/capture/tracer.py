"""The hot path: one torch function mode that turns every call into a record.

`Tracer.__torch_function__` records the common call from beginning to end, in numbered steps. Other calls go through
`TorchCalls.treat` in calls.py, which decides what to do with a function, and then `Tracer._record`. This code runs for
every torch call of the model, so it makes no strings and no stack traces and interprets nothing: see README.md in this
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from sys import _getframe
from time import perf_counter_ns
from types import FrameType
from typing import Any

from torch import Tensor, is_grad_enabled, is_inference_mode_enabled, nn

from .._torch import (
    MODULE_CALL,
    MODULE_CALL_INSIDE,
    any_autocast,
    autocast_state,
    no_torch_function,
    without_dispatch_modes,
    without_torch_function,
)
from ..errors import ArgumentError
from .calls import NO_SUBCLASS, TorchCalls
from .containers import PLAIN, Unseen, flat_tensors, put_in, rebuild, reconstructed, tensors_in
from .functions import EDIT, OUTPUT, RAISED, Function, known_function
from .identity import Identity
from .keeping import Keeper
from .model_tensors import TensorsById
from .modules import MODULE_BOUNDARY
from .observer import Arguments, Observer
from .records import (
    NO_KWARGS,
    NOT_RECORDED,
    Call,
    ModuleCall,
    NotRebuilt,
    ReadEvent,
    Site,
    Trace,
    Value,
    argument_values,
    facts_of,
    values_in,
)
from .rng import drawn_from
from .tensor_memory import UNVERSIONED

#: Placeholder for a tensor that `Identity.live` has no entry for.
UNKNOWN: tuple[Any, Any, int] = (lambda: None, None, UNVERSIONED)

NO_STATE: tuple[Any, ...] = (False, False, ())
WITH_GRAD: tuple[Any, ...] = (True, False, ())
INFERENCE: tuple[Any, ...] = (False, True, ())

#: Why a module can't be edited there.
_IN_A_TRANSFORM = (
    "the module is called in a transform such as torch.vmap, which shows it wrappers in place of tensors; "
    "edit the operations that the log shows there"
)

#: Makes a `Call` of a tuple, in a third of the time that `Call(...)` takes; the others make objects without content.
_new_module_call = ModuleCall.__new__

#: What is known of a call before it runs: its arguments and keyword arguments, with values in place of tensors; the
#: tensors about to be overwritten, and what they hold; the generator's state; the other state.
_Before = tuple[Any, Any, tuple[Tensor, ...], tuple[Value, ...], "Tensor | None", tuple[Any, ...]]


class Tracer(TorchCalls):
    """While active, appends every torch call of this thread to a `Trace`."""

    # What hot.c reads and writes.
    __slots__ = (
        "_told_calls", "call_counts", "calls", "identity", "last", "module_call", "module_calls", "module_numbers",
        "observers", "sites", "values",
    )  # fmt: skip

    def __init__(
        self,
        trace: Trace,
        tensors_by_id: TensorsById,
        modules: Sequence[nn.Module],
        keeper: Keeper,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        super().__init__()
        self.trace = trace
        self.calls, self.values, self.module_calls = trace.calls, trace.values, trace.module_calls
        self.observers = observers
        self._told_calls = tuple([observer for observer in observers if not observer.only_modules])
        asked = [observer.modules_asked for observer in observers]
        self._told_modules = set().union(*[range(len(modules)) if each is None else each for each in asked])
        self._asked: dict[Function, bool] = {}  # must an observer be told of calls of this function?
        self._asked_before = [o for o in self._told_calls if type(o).before_call is not Observer.before_call]
        self.identity = Identity(trace, tensors_by_id, keeper, self._synthesize, self._told_calls)
        self.module_call = -1  # index of the running one in trace.module_calls
        self.module_numbers = {id(module): number for number, module in enumerate(modules)}
        self.call_counts = [0] * len(modules)
        self.below = False  # recording what was seen at the dispatcher
        self.hidden: Callable[[], Any] = nullcontext  # from dispatch modes of the model's, if it has entered one
        self.sites: dict[int, Site] = {}  # what hot.c has found so far, so that equal ones are one object
        self.last = UNKNOWN  # the entry in `Identity.live` of what the last torch call returned, if it is known

    def prepare(self) -> None:
        super().prepare()
        if self.others or self.witness is not None:
            self.identity.watchful = True

    def close(self) -> None:
        """Let go of everything but the trace."""
        del self.identity
        self.sites.clear()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Every torch call of the model arrives here. Where hot.c could be compiled, calls of the common kind do not:
        it records these itself, as `_record` would."""
        function = known_function(func)
        if function is not None and function.is_metadata_query and not self.others and types in NO_SUBCLASS:
            return func(*args, **kwargs) if kwargs else func(*args)
        return self.treat(func, types, args, kwargs or NO_KWARGS)

    def hide_from_dispatch_modes(self) -> None:
        self.identity.watchful = True
        self.hidden = without_dispatch_modes
        self.forget_last()

    def _record(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        guarded = self.guarded
        self.busy = True
        try:
            if guarded or self.hidden is not nullcontext:
                with no_torch_function(), self.hidden():
                    args, kwargs, before = self._before(function, args, kwargs)
            else:
                args, kwargs, before = self._before(function, args, kwargs)

            if self.witness is not None:
                func = self.witness.aside(func)
            start = perf_counter_ns()
            try:
                result = func(*args, **kwargs)
            except Exception:
                self._after_failure(function, args, kwargs, before, frames_above(3))
                raise
            time = perf_counter_ns() - start

            site = frames_above(3)
            if guarded or type(result) is not Tensor or self.hidden is not nullcontext:
                with no_torch_function(), self.hidden():
                    return self._after(function, args, kwargs, before, result, time, site)
            return self._after(function, args, kwargs, before, result, time, site)
        finally:
            self.busy = False

    def _before(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any], _Before]:
        """What must be recorded before a call runs; with the arguments that it is to get."""
        identity = self.identity
        written: tuple[Tensor, ...] = ()
        overwritten: tuple[Value, ...] = ()
        stored_args = tuple([self._stored(argument) for argument in args])
        stored_kwargs = self._stored_kwargs(kwargs) if kwargs else kwargs
        if self._told_calls:
            args, kwargs = self._before_call(function, args, kwargs, (stored_args, stored_kwargs))
        if function.written is not None or "out" in kwargs:
            written = self._before_write(function, args, kwargs)
            overwritten = tuple([identity.value_of(tensor) for tensor in written])
        if function.touches_memory:
            identity.before_memory_access(function, args[0] if args else kwargs.get("input"))
        draws = function.random and function.is_on(args, kwargs)
        rng = drawn_from(args, kwargs).get_state() if draws else None
        return args, kwargs, (stored_args, stored_kwargs, written, overwritten, rng, state_now())

    def _after(
        self,
        function: Function,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        before: _Before,
        result: Any,
        time: int,
        site: Site,
    ) -> Any:
        """Record what came of a call; return what the caller gets."""
        identity = self.identity
        calls = self.trace.calls
        stored_args, stored_kwargs, written, overwritten, rng, state = before
        if function.brings_in and isinstance(result, Tensor):
            if identity.is_back(result):  # the memory of a known tensor: it has that one's value
                return result
            stored_args = identity.brought_in(result, stored_args, stored_kwargs)
        if type(result) is Tensor:
            fresh = function.fresh and not written
            outputs: tuple[Value, ...] = (identity.new_value(result, "op", len(calls), fresh=fresh),)
        else:
            outputs = self._outputs(result)
        if written:
            outputs += self._after_write(function, written, overwritten)
        if type(result) is Tensor and not identity.watchful and not identity.shared:
            self.last = identity.live.get(id(result), UNKNOWN)
        if outputs:
            place = self.module_call
            calls.append(
                Call(function, stored_args, stored_kwargs, outputs, overwritten, place, site, time, rng, state)
            )
            if self._told_calls:
                result = self.told(result)
            if function.uncounted:
                identity.note_alias(args[0])
            elif function.foreign:
                self._after_foreign(args, kwargs)
        elif function.reads:
            self._read(function, (*stored_args, *stored_kwargs.values()), result, site)
        return result

    def _after_uncommon(self, *call: Any) -> Any:
        """As `_after`, for hot.c: a call of the common kind has returned something else than one plain tensor."""
        self.forget_last()
        with no_torch_function():
            return self._after(*call)

    # ---- what others ask and tell --------------------------------------------------------------------------

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.below = self.identity.below = True
        why = self.why_unreachable(func, args, kwargs) if self._told_calls else None
        try:
            for observer in self._told_calls:
                observer.unreachable = why
            return super().record(func, args, kwargs)
        finally:
            self.below = self.identity.below = False
            for observer in self._told_calls:
                observer.unreachable = None

    def knows(self, tensor: Tensor) -> bool:
        return self.identity.current(tensor) is not None

    def rename(self, tensor: Tensor, result: Tensor) -> Tensor:
        with self.bookkeeping():
            self.identity.bind(result, self.identity.value_of(tensor))
        return result

    def alias(self, tensor: Tensor, result: Tensor) -> None:
        if not self.busy and not self.aside:
            with self.bookkeeping():
                self.identity.value_of(tensor)
                self.identity.value_of(result)

    def constructed(self, tensor: Tensor, data: Any) -> None:
        super().constructed(tensor, data)
        if not isinstance(data, Tensor) and not self.busy and not self.aside:
            with self.bookkeeping():
                self.identity.constructed(tensor, data)

    def adopt(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self.bookkeeping():
            self.identity.before_write(args[0])
            result = func(*args, **kwargs)
            self.identity.adopt(args[0])
        return result

    def before_swap(self, one: Tensor, other: Tensor) -> None:
        self.identity.before_swap(one, other)

    def after_swap(self, one: Tensor, other: Tensor) -> None:
        self.identity.after_swap(one, other)

    def forget_last(self) -> None:
        self.last = UNKNOWN

    def take_turn(self) -> None:
        self.identity.synthesize = self._synthesize
        self.identity.below = self.below

    def _after_failure(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], before: _Before, site: Site
    ) -> None:
        """A call has raised, which the model may catch: record what it had written by then."""
        self.forget_last()
        identity, calls = self.identity, self.trace.calls
        stored_args, stored_kwargs, written, overwritten, rng, state = before
        values = tuple(values_in((*stored_args, *stored_kwargs.values())))
        self.trace.events.append(ReadEvent(RAISED, values, None, self.module_call, len(calls), site))
        with no_torch_function(), self.hidden():
            for tensor in written:  # torch counts a write when it is done
                identity.note_alias(tensor)
            pairs = [pair for pair in zip(written, overwritten, strict=True) if identity.may_differ(*pair)]
            changed, old = tuple([tensor for tensor, _ in pairs]), tuple([value for _, value in pairs])
            outputs = self._after_write(function, changed, old)
            if outputs:
                place = self.module_call
                calls.append(Call(function, stored_args, stored_kwargs, outputs, old, place, site, 0, rng, state))
                self.tell()
            if function.foreign:
                self._after_foreign(args, kwargs)

    # ---- arguments ------------------------------------------------------------------------------------------

    def _stored(self, argument: Any) -> Any:
        """The argument with values in place of tensors."""
        if isinstance(argument, Tensor):
            identity = self.identity
            unwritten = None if identity.watchful else identity.unwritten_params.get(id(argument))
            return unwritten or identity.value_of(argument)
        if type(argument) in PLAIN:
            return argument
        return rebuild(argument, self._stored)

    def _stored_kwargs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._stored(argument) for name, argument in kwargs.items()}

    def _before_write(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, ...]:
        targets = function.written(args, kwargs) if function.written else []
        tensors = tuple(flat_tensors([*targets, kwargs["out"]] if "out" in kwargs else targets))
        for tensor in tensors:
            self.identity.before_write(tensor)
        return tensors

    # ---- results --------------------------------------------------------------------------------------------

    def _outputs(self, result: Any) -> tuple[Value, ...]:
        call = len(self.trace.calls)
        new_value = self.identity.new_value
        if isinstance(result, Tensor):
            return (new_value(result, "op", call),)
        if type(result) in PLAIN:
            return ()
        if isinstance(result, (tuple, list)) and all(isinstance(m, Tensor) or m is None for m in result):
            return tuple([new_value(m, "op", call, i) for i, m in enumerate(result) if m is not None])
        return tuple([new_value(t, "op", call, i) for i, (_, t) in enumerate(tensors_in(result))])

    def _after_write(
        self, function: Function, written: tuple[Tensor, ...], overwritten: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Give each overwritten tensor a new value, unless the call returned it and it has one."""
        call = len(self.trace.calls)
        unreturned = []
        for tensor, old in zip(written, overwritten, strict=True):
            value = self.identity.current(tensor)
            if old.index < 0:  # a lazy module's parameter coming to be
                continue
            if value is not None and value.call == call:
                value.address = old.address
            else:
                role = self.identity.role_after_write(old)
                value = self.identity.new_value(tensor, role, call, address=old.address)
                unreturned.append(value)
            self.identity.after_write(tensor, value, function.reshapes)
        return tuple(unreturned)

    def _after_foreign(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        for tensor in flat_tensors([*args, *kwargs.values()]):
            self.identity.look_again(tensor)

    def _read(self, function: Function, arguments: tuple[Any, ...], result: Any, site: Site) -> None:
        values = tuple([argument for argument in arguments if isinstance(argument, Value)])
        plain = result if type(result) in PLAIN else None
        calls = len(self.trace.calls)
        if self.identity.origins is not None:
            self.identity.origins.add_numbers(result)
        self.trace.events.append(ReadEvent(function.name, values, plain, self.module_call, calls, site))

    def _synthesize(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tensor: Tensor,
        role: str,
        address: str | None,
    ) -> Value:
        calls = self.trace.calls
        value = self.identity.new_value(tensor, role, len(calls), address=address)
        site = frames_above(4)
        calls.append(Call(function, args, kwargs, (value,), (), self.module_call, site, 0, None, NO_STATE))
        self.tell()
        return value

    # ---- observers ------------------------------------------------------------------------------------------

    def tell(self) -> dict[int, Tensor]:
        """Tell the observers of new values; return the tensors that take the place of others, by the ids of these."""
        answers: dict[int, Tensor] = {}
        new = self.identity.untold
        while new:
            value, tensor = new.pop(0)
            first = id(tensor)
            for observer in self._told_calls:
                answer = observer.value(value, tensor, self.module_call)
                if answer is not None and answer is not tensor:
                    answers[first] = tensor = self._replace(value, tensor, answer)
        return answers

    def told(self, result: Any, value: Value | None = None) -> Any:
        """What the caller gets once the observers have been told what a call made: this value, if it is only one."""
        if value is not None and self.identity.untold is not None:
            self.identity.untold.append((value, result))
        with no_torch_function():
            answers = self.tell()
            return put_in(result, answers) if answers else result

    def _is_asked_of(self, function: Function) -> bool:
        asked = self._asked.get(function)
        if asked is None:
            asked = self._asked[function] = any(observer.asks_of(function) for observer in self._told_calls)
        return asked

    def _before_call(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
    ) -> Arguments:
        """Tell the observers of a call; return the arguments that it is to get."""
        with no_torch_function():
            self.tell()
            for observer in self._asked_before:
                args, kwargs = observer.before_call(function, args, kwargs, stored) or (args, kwargs)
        return args, kwargs

    def _replace(self, value: Value, tensor: Tensor, answer: Tensor) -> Tensor:
        """Let `answer` take the place of the `tensor` that a call has just given this value; return what does."""
        identity = self.identity
        if identity.writes.made(value, tensor):
            if facts_of(tensor) != facts_of(answer):
                raise ArgumentError("a value written in place must keep its shape, dtype and device")
            tensor.copy_(answer)  # it reaches every alias, as what the call wrote does
            answer = tensor
        else:
            identity.forget(tensor, value)
        identity.bind(answer, value)
        identity.keep_again(value, answer)
        self.last = identity.live[id(answer)]
        return answer

    # ---- modules --------------------------------------------------------------------------------------------

    def enter_module(
        self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ModuleCall | None:
        """A module call begins. None for another model's module, and for the forward of a call that has begun."""
        number = self.module_numbers.get(id(module))
        if number is None:
            return None
        due, self.forward_due = self.forward_due, None
        if is_forward and due is not None and due.module == number:
            return None
        call = _new_module_call(ModuleCall)
        if len(args) == 1 and not kwargs and type(args[0]) is Tensor and self.last[0]() is args[0]:
            call.entered = (self.last[1],)
        else:
            known = self._known_values((*args, *kwargs.values()) if kwargs else args)
            call.entered = tuple([value for value, _ in known])
        frame: FrameType | None = _getframe(1)
        while frame is not None and frame.f_code is not MODULE_BOUNDARY:
            frame = frame.f_back
        frame = frame and frame.f_back
        site: Site = ()  # the frames above, but for those that every call of a module has
        while frame is not None and (code := frame.f_code) is not MODULE_BOUNDARY:
            if code is not MODULE_CALL_INSIDE and code is not MODULE_CALL:
                site += (code, frame.f_lasti)
            frame = frame.f_back
        trace, counts = self.trace, self.call_counts
        module_calls = trace.module_calls
        call.module, call.parent, call.site, call.exited = number, self.module_call, site, ()
        call.number = counts[number] = counts[number] + 1
        call.start = call.stop = len(trace.calls)
        self.module_call = len(module_calls)
        module_calls.append(call)
        if not is_forward:
            self.forward_due = call
        if self.observers and number in self._told_modules:
            with no_torch_function():
                for observer in self.observers:
                    observer.module_enter(call, self.module_call, args, kwargs)
        return call

    def leave_module(self, call: ModuleCall, result: Any) -> Any:
        """A module call has returned; return what its caller gets."""
        reference, last, _ = self.last
        if type(result) is Tensor and reference() is result:
            call.exited, returned = (last,), [(last, result)]
        else:
            returned = self._known_values((result,), every=True)
            call.exited = tuple([value for value, _ in returned])
        if self.observers and call.module in self._told_modules:
            result = self._tell_of_exit(call, result, returned)
        call.stop = len(self.trace.calls)
        self.module_call = call.parent
        self.forward_due = None
        return result

    def abandon_module(self, call: ModuleCall) -> None:
        """A module call has raised."""
        call.stop = len(self.trace.calls)
        self.module_call = call.parent
        self.forward_due = None

    def _tell_of_exit(self, call: ModuleCall, result: Any, returned: list[tuple[Value, Tensor]]) -> Any:
        """Tell the observers what a module returned; return what its caller gets."""
        answers: dict[int, Tensor] = {}
        ids = [id(tensor) for _, tensor in returned]
        with self.bookkeeping():
            for observer in self.observers:
                observer.unreachable = _IN_A_TRANSFORM if self.aside else None
                given = observer.module_exit(call, returned)
                for place, (value, tensor) in enumerate(returned):
                    if given is not None and given[place] is not tensor:
                        returned[place] = self._replace_returned(call, value, tensor, given[place], observer)
                        answers[ids[place]] = returned[place][1]
            if not answers:
                return result
            call.exited = tuple([value for value, _ in returned])
            return put_in(result, answers)

    def _replace_returned(
        self, call: ModuleCall, value: Value, tensor: Tensor, answer: Tensor, by: Observer
    ) -> tuple[Value, Tensor]:
        """Let `answer` take the place of a tensor that a module returned; return it with the value that it has now."""
        if value.role != "op" or value.call < call.start or self._was_used(value):
            # Others have the tensor as it was: the module's caller gets a value of its own.
            new = self._synthesize(EDIT, (value,), NO_KWARGS, answer, "op", None)
            by.moved(value, new)
            return new, answer
        answer = self._replace(value, tensor, answer)
        for observer in self.observers:
            if observer is not by:
                observer.replaced(value, answer)
        return value, answer

    def _was_used(self, value: Value) -> bool:
        """Has a call used a value since it was made?"""
        after = self.trace.calls[value.call + 1 :]
        return any(parent is value for call in after for _, parent in argument_values(call))

    def _known_values(self, container: tuple[Any, ...], every: bool = False) -> list[tuple[Value, Tensor]]:
        """The values of the tensors in a container, as far as they are known; with `every`, one for each tensor."""
        live = self.identity.live
        found = []
        alone = len(container) == 1 and type(container[0]) is Tensor
        with no_torch_function():  # asking a tensor for its version is a torch call, too
            for tensor in container if alone else flat_tensors(container):
                reference, value, version = live.get(id(tensor), UNKNOWN)
                if reference() is not tensor:
                    if id(tensor) in self.identity.unwritten_params:
                        found.append((self.identity.unwritten_params[id(tensor)], tensor))
                    elif every:
                        found.append((NOT_RECORDED, tensor))
                    continue
                unsure = self.identity.watchful or type(tensor) is not Tensor or version < 0
                if unsure or tensor._version != version:
                    value = self._value_now(tensor)
                found.append((value, tensor))
        return found

    def _value_now(self, tensor: Tensor) -> Value:
        busy, self.busy = self.busy, True
        try:
            with self.hidden():
                return self.identity.value_of(tensor)
        finally:
            self.busy = busy

    # ---- the end --------------------------------------------------------------------------------------------

    def record_output(self, result: Any) -> None:
        """Make an entry for each tensor that the model returned."""
        calls = self.trace.calls
        with without_torch_function(), self.hidden():
            self.identity.model_tensors.warn_of_unseen_writes()
            entries: dict[int, Value] = {}
            unseen: list[Unseen] = []
            for path, tensor in tensors_in(result, unseen):
                origin = self.identity.value_of(tensor)
                value = self.identity.add_output(tensor, origin, len(calls), path)
                calls.append(Call(OUTPUT, (origin,), NO_KWARGS, (value,), (), -1, (), 0, None, NO_STATE))
                self.tell()
                entries.setdefault(id(tensor), value)
            self.trace.warnings += [
                f"the model returned {what}{f' at {path}' if path else ''}, which can't be looked into: what it gives "
                "is not logged as an output"
                for path, what, _ in unseen
            ]
            try:
                self.trace.output = reconstructed(result, Tensor, lambda tensor: entries[id(tensor)])
            except Exception as raised:  # whatever the copying of the user's object raises, the log is whole without it
                reason = f"{type(result).__name__} can't be copied: {type(raised).__name__}: {raised}"
                self.trace.output = NotRebuilt(reason)


def frames_above(depth: int) -> Site:
    """The frames from the one `depth` above the caller outwards, up to the call of the module they run in.

    Pairs of (code, instruction), flattened. The rest of the stack is the module call's own, taken when it began.
    """
    frame: FrameType | None = _getframe(depth + 1)
    pairs: Site = ()
    while frame is not None and (code := frame.f_code) is not MODULE_BOUNDARY:
        pairs += (code, frame.f_lasti)
        frame = frame.f_back
    return pairs


def state_now() -> tuple[Any, ...]:
    """Grad enabled, inference mode, autocast."""
    if any_autocast():
        return (is_grad_enabled(), is_inference_mode_enabled(), autocast_state())
    if is_grad_enabled():
        return WITH_GRAD
    return INFERENCE if is_inference_mode_enabled() else NO_STATE
