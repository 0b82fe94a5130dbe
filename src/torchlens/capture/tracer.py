"""The hot path: one torch function mode that turns every call into a record.

Read `Tracer.__torch_function__` first; all else serves it. What is done here is done for every torch call of the
model, so there are no strings, no stack traces and no interpretation: see README.md in this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from .._torch import any_autocast, autocast_state, no_torch_function, pop_mode, push_mode
from .containers import flat_tensors, rebuild, replace_tensors, tensors_in
from .dispatcher import Witness
from .functions import KNOWN, OUTPUT, Function, Treatment, meet
from .identity import Identity, Residents
from .modules import MODULE_BOUNDARY
from .records import NO_KWARGS, Call, Event, ModuleCall, Recording, Site, Value

RECORD, IGNORE, OPAQUE = Treatment.RECORD, Treatment.IGNORE, Treatment.OPAQUE

_PLAIN = {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.Size, torch.layout}
_NO_SUBCLASS = ((), (Tensor,))
_NO_STATE = (False, False, ())


class Tracer(TorchFunctionMode):
    """While active, appends every torch call of this thread to a `Recording`."""

    def __init__(self, recording: Recording, residents: Residents, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.recording = recording
        self.identity = Identity(recording, residents, self._synthesize)
        self.descent: list[Any] = []  # the Python functions being stepped into
        self.busy = False  # with a call that is recorded, or that is none of the model's
        self.module_call = -1  # place of the running one in recording.module_calls
        self.module_numbers = {id(module): number for number, module in enumerate(modules)}
        self.call_counts = [0] * len(modules)
        self.forward_due: ModuleCall | None = None  # a module call whose forward has not begun
        self.witness: Witness | None = None  # of what is not recorded

    def close(self) -> None:
        """Let go of everything but the recording."""
        del self.identity

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        function = KNOWN.get(func) or meet(func)
        kwargs = kwargs or NO_KWARGS
        if function.treatment is RECORD and not types:
            return self._record(function, func, args, kwargs)
        if function.treatment is IGNORE or function.treatment is OPAQUE:
            return self._let_pass(func, args, kwargs)
        if not all(issubclass(kind, Tensor) for kind in types):
            return self._delegate(func, types, args, kwargs)
        # A tensor subclass wants to see the function itself, not what it is made of. And some functions call
        # themselves once more; the inner call is then the lowest level there is.
        if function.twin and types in _NO_SUBCLASS and not (self.descent and self.descent[-1] is func):
            return self._descend(function, func, args, kwargs)
        return self._record(function, func, args, kwargs)

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Record an operation that was seen at the dispatcher."""
        return self._record(KNOWN.get(func) or meet(func), func, args, kwargs)

    def _let_pass(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.busy = True
        try:
            return func(*args, **kwargs)
        finally:
            self.busy = False

    def _descend(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        assert function.twin is not None
        self.descent.append(func)
        push_mode(self)
        try:
            return function.twin(*args, **kwargs)
        finally:
            pop_mode()
            self.descent.pop()

    def _delegate(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Let an object that is no tensor, such as a dict of tensors, do what it does for this function, and watch."""
        push_mode(self)
        try:
            for argument in [*args, *kwargs.values()]:
                if type(argument) in types and not isinstance(argument, Tensor):
                    result = argument.__torch_function__(func, types, args, kwargs)
                    if result is not NotImplemented:
                        return result
        finally:
            pop_mode()
        return func(*args, **kwargs)

    def _record(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        identity = self.identity
        calls = self.recording.calls
        written: tuple[Tensor, ...] = ()
        overwritten: tuple[Value, ...] = ()
        self.busy = True
        try:
            with no_torch_function():
                stored = self._stored
                stored_args = tuple([stored(argument) for argument in args])
                stored_kwargs = {name: stored(argument) for name, argument in kwargs.items()} if kwargs else kwargs
                if function.written is not None or "out" in kwargs:
                    written = self._before_write(function, args, kwargs)
                    overwritten = tuple([identity.value_of(tensor) for tensor in written])
                if function.touches_memory:
                    identity.before_memory_access(function, args[0] if args else kwargs.get("input"))
                rng = _generator_state(kwargs) if function.random else None
                autocast = autocast_state() if any_autocast() else ()
                state = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast)

            if self.witness is not None:
                func = self.witness.aside(func)
            start = perf_counter_ns()
            result = func(*args, **kwargs)
            time = perf_counter_ns() - start

            with no_torch_function():
                if type(result) is Tensor:
                    outputs: tuple[Value, ...] = (identity.new_value(result, "op", len(calls)),)
                else:
                    outputs = self._outputs(result)
                if written:
                    outputs += self._after_write(function, written, overwritten)
                if outputs:
                    site = frames_above(2)
                    module = self.module_call
                    call = Call(
                        function, stored_args, stored_kwargs, outputs, overwritten, module, site, time, rng, state
                    )
                    calls.append(call)
                    if function.name == "data":
                        identity.note_data_alias(args[-1])
                elif function.reads:
                    self._read(function, stored_args, result)
            return result
        finally:
            self.busy = False

    # ---- arguments ------------------------------------------------------------------------------------------

    def _stored(self, argument: Any) -> Any:
        """The argument with values in place of tensors."""
        kind = type(argument)
        if kind is Tensor or kind is Parameter:
            return self.identity.value_of(argument)
        if kind in _PLAIN:
            return argument
        if isinstance(argument, Tensor):
            return self.identity.value_of(argument)
        return rebuild(argument, self._stored)

    def _before_write(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, ...]:
        targets = function.written(args, kwargs) if function.written else []
        tensors = tuple(flat_tensors([*targets, kwargs["out"]] if "out" in kwargs else targets))
        for tensor in tensors:
            self.identity.before_write(tensor)
        return tensors

    # ---- results --------------------------------------------------------------------------------------------

    def _outputs(self, result: Any) -> tuple[Value, ...]:
        call = len(self.recording.calls)
        new_value = self.identity.new_value
        if isinstance(result, Tensor):
            return (new_value(result, "op", call),)
        if type(result) in _PLAIN:
            return ()
        if isinstance(result, (tuple, list)) and all(isinstance(m, Tensor) or m is None for m in result):
            return tuple([new_value(m, "op", call, i) for i, m in enumerate(result) if m is not None])
        return tuple([new_value(t, "op", call, i) for i, (_, t) in enumerate(tensors_in(result))])

    def _after_write(
        self, function: Function, written: tuple[Tensor, ...], overwritten: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """Give each overwritten tensor a new value, unless the call returned it and it has one."""
        call = len(self.recording.calls)
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

    def _read(self, function: Function, args: tuple[Any, ...], result: Any) -> None:
        values = tuple([argument for argument in args if isinstance(argument, Value)])
        plain = result if type(result) in _PLAIN else None
        calls = len(self.recording.calls)
        self.recording.events.append(Event(function.name, values, plain, self.module_call, calls, frames_above(3)))

    def _synthesize(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tensor: Tensor,
        role: str,
        address: str | None,
    ) -> Value:
        calls = self.recording.calls
        value = self.identity.new_value(tensor, role, len(calls), address=address)
        site = frames_above(4)
        calls.append(Call(function, args, kwargs, (value,), (), self.module_call, site, 0, None, _NO_STATE))
        return value

    # ---- modules --------------------------------------------------------------------------------------------

    def enter_module(
        self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ModuleCall | None:
        """A module call begins. None if it is none of this model's, or only the forward of the one just begun."""
        number = self.module_numbers.get(id(module))
        if number is None:
            return None
        due, self.forward_due = self.forward_due, None
        if is_forward and due is not None and due.module == number:
            return None
        self.call_counts[number] += 1
        with no_torch_function():
            entered = self._known_values((*args, *kwargs.values()))
        calls = len(self.recording.calls)
        call = ModuleCall(number, self.call_counts[number], self.module_call, frames_above(2), calls, entered)
        self.module_call = len(self.recording.module_calls)
        self.recording.module_calls.append(call)
        if not is_forward:
            self.forward_due = call
        return call

    def leave_module(self, call: ModuleCall, result: Any) -> None:
        with no_torch_function():
            call.exited = self._known_values((result,))
        call.stop = len(self.recording.calls)
        self.module_call = call.parent
        self.forward_due = None

    def _known_values(self, container: tuple[Any, ...]) -> tuple[Value, ...]:
        values = [self.identity.current(tensor) for tensor in flat_tensors(container)]
        return tuple([value for value in values if value is not None])

    # ---- the end --------------------------------------------------------------------------------------------

    def record_output(self, result: Any) -> None:
        """Make an entry for each tensor that the model returned."""
        calls = self.recording.calls
        with no_torch_function():
            for path, tensor in tensors_in(result):
                origin = self.identity.value_of(tensor)
                value = self.identity.copy_of(origin, "output", len(calls), path)
                calls.append(Call(OUTPUT, (origin,), NO_KWARGS, (value,), (), -1, (), 0, None, _NO_STATE))
            self.recording.output = replace_tensors(result, self.identity.value_of)


def frames_above(depth: int) -> Site:
    """The frames from the one `depth` above the caller outwards, up to the call of the module they run in.

    Pairs of (code, instruction), flattened. The rest of the stack is the module call's own, taken when it began.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    pairs: list[Any] = []
    while frame is not None:
        code = frame.f_code
        if code is MODULE_BOUNDARY:
            break
        pairs += (code, frame.f_lasti)
        frame = frame.f_back
    return tuple(pairs)


def _generator_state(kwargs: Mapping[str, Any]) -> Tensor:
    generator = kwargs.get("generator") or torch.default_generator
    return generator.get_state()
