"""The common base of the full tracer and fastlog's light one: it receives torch calls and tells their kinds apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from threading import get_ident
from types import MethodType
from typing import Any

from torch import Tensor, is_grad_enabled, nn
from torch.overrides import TorchFunctionMode

from .._torch import (
    finished,
    higher_order_kernel,
    mode_stack,
    no_torch_function,
    pop_mode,
    push_dispatch_mode,
    push_mode,
    remove_modes,
    torch_function_state,
    transform_depth,
)
from .containers import flat_tensors
from .dispatcher import Fallback, Watcher, Witness
from .functions import KNOWN, Function, Treatment, classify

RECORD, FOLLOW, IGNORE, OPAQUE = Treatment.RECORD, Treatment.FOLLOW, Treatment.IGNORE, Treatment.OPAQUE

#: The types among the arguments, according to torch, where there is no subclass: methods name that of `self`.
TENSOR_ONLY = (Tensor,)
NO_SUBCLASS = ((), TENSOR_ONLY)


class RunProgress:
    """How far a forward pass is; one for all the tracers that take part in it."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False  # a thread that the model left running is not logged any more


class TorchCalls(TorchFunctionMode):
    """While active, receives every torch call of this thread. Subclasses define `_record`."""

    __slots__ = ("busy", "forward_due", "others")  # for hot.c; all other attributes are in `__dict__`

    only_modules = False  # is it told of module calls only, without being an active mode?
    retired = False  # is its capture over? Then it lets every call pass

    def __init__(self) -> None:
        super().__init__()
        self.progress = RunProgress()
        self.descent: list[Any] = []  # the Python functions being stepped into
        self.busy = False  # recording a call, or running one that is not the model's
        self.guarded = True  # another mode or a tensor subclass might see the bookkeeping
        self.others = True  # there are other modes
        self.watchers: Callable[[Any], Iterable[Watcher]] = lambda tracer: ()  # makes its dispatch modes
        self.dispatched: list[Watcher] = []  # those of this thread
        self.witness: Witness | None = None  # checks that nothing runs unrecorded
        self.aside: list[tuple[Fallback, int]] = []  # what records instead while the tracer has stepped aside
        self.forward_due: Any = None  # a module call whose forward has not begun

    def prepare(self) -> None:
        """Get ready to be active in this thread."""
        with suppress(AttributeError):  # `vars(self)` would make every attribute slower from then on
            del self.__torch_function__
        if self.retired:
            self.__class__ = type(self).__bases__[0]
        self.others = bool(mode_stack())
        self.dispatched = list(self.watchers(self))
        self.witness = next((mode for mode in self.dispatched if isinstance(mode, Witness)), None)

    def retire(self) -> None:
        """Let every call pass from now on: other code may still hold a reference to this mode and activate it again."""
        with suppress(AttributeError):
            del self.__torch_function__
        if not self.retired:
            self.__class__ = _retired(type(self))  # type: ignore[arg-type]
        self.aside.clear()

    def end(self) -> None:
        """The forward pass is over."""
        self.progress.ended = True

    # ---- what each kind does --------------------------------------------------------------------------------

    def _record(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A lowest-level call: make it, and record it."""
        raise NotImplementedError

    def knows(self, tensor: Tensor) -> bool:
        """Has this tensor been seen in this forward pass?"""
        raise NotImplementedError

    def rename(self, tensor: Tensor, result: Tensor) -> Tensor:
        """`result` is another name for what `tensor` holds; returns it."""
        raise NotImplementedError

    def alias(self, tensor: Tensor, result: Tensor) -> None:
        """`result` was made from `tensor` by code that is not seen, and shares its memory."""
        if not self.busy and not self.aside:
            self.rename(tensor, result)

    def constructed(self, tensor: Tensor, data: Any) -> None:
        """`torch.Tensor(data)`, or a subclass of it, was called."""
        if isinstance(data, Tensor):
            self.alias(data, tensor)

    def adopt(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`tensor.set_(storage)` was called, which the dispatcher sees: make the call."""
        with self.bookkeeping():
            return func(*args, **kwargs)

    def hide_from_dispatch_modes(self) -> None:
        """The model enters a dispatch mode of its own, which must not see what the capture does."""
        raise NotImplementedError

    def before_swap(self, one: Tensor, other: Tensor) -> None:
        """`torch.utils.swap_tensors` is about to exchange two tensors."""
        raise NotImplementedError

    def after_swap(self, one: Tensor, other: Tensor) -> None:
        raise NotImplementedError

    def enter_module(self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module call begins. None for another model's module, and for the forward of a call that has begun."""
        raise NotImplementedError

    def leave_module(self, call: Any, result: Any) -> Any:
        """A module call has returned; return what its caller gets."""
        raise NotImplementedError

    def abandon_module(self, call: Any) -> None:
        """A module call has raised."""
        raise NotImplementedError

    def forget_last(self) -> None:
        """What the last call returned may get another value."""

    def take_turn(self) -> None:
        """A tracer of another thread may have recorded meanwhile."""

    # ---- kinds of calls -------------------------------------------------------------------------------------

    def treat(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Record a call, step into it, or let it pass."""
        function = KNOWN.get(func) or classify(func)
        if function.treatment is not IGNORE:
            self.forget_last()
        if function.treatment is RECORD and types in NO_SUBCLASS:
            self.guarded = self.others
            return self._record(function, func, args, kwargs)
        self.guarded = True
        if function.treatment is IGNORE or function.treatment is OPAQUE:
            return self._let_pass(func, args, kwargs)
        if not all(issubclass(kind, Tensor) for kind in types):
            return self._delegate(func, types, args, kwargs)
        if function.treatment is FOLLOW:
            return self._follow(function, func, args, kwargs)
        # A tensor subclass wants to see the function itself, not what it is made of. And some functions call
        # themselves once more; the inner call is then the lowest level there is.
        if function.twin and types in NO_SUBCLASS and not (self.descent and self.descent[-1] is func):
            return self._descend(function, func, args, kwargs)
        return self._record(function, func, args, kwargs)

    def _let_pass(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.busy = True
        try:
            return func(*args, **kwargs)
        finally:
            self.busy = False

    def _descend(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        assert function.twin is not None
        self.descent.append(func)
        try:
            push_mode(self)
            return function.twin(*args, **kwargs)
        finally:
            pop_mode()
            self.descent.pop()

    def _follow(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        kernel = higher_order_kernel(func)
        if kernel is None:
            return self._record(function, func, args, kwargs)
        try:
            push_mode(self)
            return kernel(*args, **kwargs)
        finally:
            pop_mode()

    def _delegate(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the `__torch_function__` of an object that is no tensor, such as a dict of tensors; record its calls."""
        try:
            push_mode(self)
            for argument in [*args, *kwargs.values()]:
                if type(argument) in types and not isinstance(argument, Tensor):
                    result = argument.__torch_function__(func, types, args, kwargs)
                    if result is not NotImplemented:
                        return result
        finally:
            pop_mode()
        return func(*args, **kwargs)

    @contextmanager
    def bookkeeping(self) -> Iterator[None]:
        """Calls made inside are the tracer's own, not the model's."""
        self.forget_last()
        busy, self.busy = self.busy, True
        try:
            with no_torch_function():
                yield
        finally:
            self.busy = busy

    # ---- what only the dispatcher sees -----------------------------------------------------------------------

    def step_aside(self, depth: int = 0, derives: bool = False) -> None:
        """What follows is to be recorded at the dispatcher; calls of torch functions pass unseen. A `depth` says that
        this is over when fewer transforms are running; `derives` that the transform takes derivatives."""
        self.catch_up()
        fallback = Fallback(self, derives)
        if not self.aside:
            # An attribute saves a check in the hot path; torch requires a bound method.
            self.__torch_function__ = MethodType(_pass, self)  # type: ignore[method-assign]
            push_dispatch_mode(fallback)
        self.aside.append((fallback, depth))

    def step_back(self) -> None:
        self.catch_up()
        if self.aside:
            self._pop_aside()

    def catch_up(self) -> None:
        """Resume after transforms that have ended. Nothing reports their end: a stand-in that did could be interrupted,
        and leave torch in the middle of a transform."""
        while self.aside and self.aside[-1][1] > transform_depth():
            self._pop_aside()

    def _pop_aside(self) -> None:
        fallback, _ = self.aside.pop()
        if not self.aside:
            remove_modes(lambda mode: mode is fallback)
            del self.__torch_function__

    def why_unreachable(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Why an edit of an operation that was seen at the dispatcher would be wrong; None if it would not."""
        if any(fallback.derives for fallback, _ in self.aside):
            return "it runs in torch.func.grad or another transform that takes derivatives, which would ignore the edit"
        if not is_grad_enabled() or (KNOWN.get(func) or classify(func)).communicates:
            return None
        # Compiled TorchScript hides from its operations what requires a gradient: there grad mode alone is what counts.
        in_transform = any(depth for _, depth in self.aside)
        if in_transform and not any(tensor.requires_grad for tensor in flat_tensors([*args, *kwargs.values()])):
            return None
        where = "in torch.vmap" if in_transform else "in TorchScript"
        return f"it runs {where}, where gradients would ignore the edit; run the model under torch.no_grad()"

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Record an operation that was seen at the dispatcher."""
        self.forget_last()
        self.guarded = True
        function = KNOWN.get(func) or classify(func)
        witness, self.witness = self.witness, None  # already below Python; torch.func's transforms may be above
        try:
            return self._record(function, finished(func) if function.communicates else func, args, kwargs)
        finally:
            self.witness = witness


class Active:
    """A tracer is active in this thread."""

    def __init__(self, tracer: TorchCalls) -> None:
        self.key = (id(tracer), "active")
        self._tracer = tracer
        self._functions_as_before: Callable[[], None] = lambda: None
        self._thread = 0

    def make(self) -> None:
        remove_modes(_was_put_back)
        self._functions_as_before, self._thread = torch_function_state(), get_ident()
        self._tracer.prepare()
        for mode in self._tracer.dispatched:
            push_dispatch_mode(mode)
        push_mode(self._tracer)

    def undo(self) -> None:
        tracer = self._tracer
        tracer.retire()
        if get_ident() == self._thread:
            self._functions_as_before()
        remove_modes(lambda mode: mode is tracer or (isinstance(mode, Watcher) and mode.tracer is tracer))


def _was_put_back(mode: Any) -> bool:
    """Has other code activated the mode of a capture that is over?"""
    tracer = mode.tracer if isinstance(mode, Watcher) else mode
    return isinstance(tracer, TorchCalls) and tracer.retired


def _pass(tracer: TorchCalls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    if tracer.aside:
        tracer.catch_up()
        if not tracer.aside:
            return tracer.__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
    return func(*args, **(kwargs or {}))


def _let_pass(_: object, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    return func(*args, **(kwargs or {}))


@cache
def _retired(kind: type[TorchCalls]) -> type[TorchCalls]:
    """The class of a retired tracer. An attribute would not do: torch requires a bound method, which is a cycle."""
    return type(f"Retired{kind.__name__}", (kind,), {"__torch_function__": _let_pass, "retired": True})
