"""What a torch function mode can't see, and how captures are told of it.

A few functions of torch reach the dispatcher without passing any torch function mode, or change what a tensor is
without calling anything. While a capture runs they are replaced by stand-ins that tell the captures of their thread,
and do nothing in other threads.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from .._torch import (
    WITHOUT_DERIVATIVES,
    as_class,
    mode_poppers,
    mode_stack,
    pop_mode,
    push_mode,
    swap_function,
    transform_depth,
    transform_levels,
    unseen_collectives,
    unseen_functions,
)
from .changes import Change, Replaced, Switch

#: Which torch function modes are captures?
IsOurs = Callable[[Any], bool]


def unseen_followed(is_ours: IsOurs) -> list[Change]:
    """The changes that tell the captures of each thread of what they can't see."""
    told = partial(Told, is_ours)
    below = [told(owner, name, _recorded_below) for owner, name in unseen_functions]
    levels = [told(module, begin, partial(_beginning, begin=begin)) for module, begin in transform_levels]
    swaps = [told(torch.utils, "weakref", _weak_references), told(*swap_function, _swapping)]
    made = [told(Parameter, "__new__", _parameter_made), told(Tensor, "__init__", _tensor_made)]
    made += [told(type(torch.autograd.Variable), "__call__", _variable_made), told(Tensor, "as_subclass", _subclassed)]
    modes = [told(TorchDispatchMode, "__enter__", _dispatch_mode_entered)]
    modes += [told(module, name, _popping) for module, name in mode_poppers]
    return [*below, *levels, *made, *swaps, *modes]


def collectives_followed(is_ours: IsOurs) -> list[Change]:
    """The same for functions that communicate with other processes."""
    return [Told(is_ours, owner, name, _recorded_below) for owner, name in unseen_collectives]


#: Gives the captures of this thread, outermost first.
Tracers = Callable[[], list[Any]]


class Told(Replaced):
    """The change that replaces a function by a stand-in, which tells the captures of its thread."""

    def __init__(self, is_ours: IsOurs, owner: Any, name: str, build: Callable[[Any, Tracers], Any]) -> None:
        def build_telling(original: Any, switch: Switch) -> Any:
            return build(original, lambda: tracers_here(is_ours) if switch.on else [])

        super().__init__(vars(owner) if isinstance(owner, ModuleType) else owner, name, build_telling)


def tracers_here(is_ours: IsOurs) -> list[Any]:
    """The captures of this thread, outermost first."""
    return [mode for mode in mode_stack() if is_ours(mode) and not mode.retired]


# ---- modes of both kinds ----------------------------------------------------------------------------------------


def _dispatch_mode_entered(enter: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    """The model enters its own dispatch mode, which must not see what the capture does."""

    @wraps(enter)
    def entered(mode: Any) -> Any:
        for tracer in tracers_here():
            tracer.hide_from_dispatch_modes()
        return enter(mode)

    return entered


class Popped:
    """The innermost torch function mode is off the stack."""

    def __enter__(self) -> Any:
        self._mode = pop_mode()
        return self._mode

    def __exit__(self, *_: object) -> None:
        push_mode(self._mode)


def _popping(pop: Callable[[], Any], tracers_here: Tracers) -> Callable[[], Any]:
    """While torch calls the innermost mode it takes that mode off the stack, in a generator. If an interrupt leaves the
    generator suspended, it puts the mode back when it is freed, and by then the capture may be over."""

    def popped() -> Any:
        tracers = tracers_here()
        return Popped() if tracers and tracers[-1] is mode_stack()[-1] else pop()

    return popped


# ---- recorded at the dispatcher -------------------------------------------------------------------------------


def _recorded_below(function: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    """The function with its operations recorded at the dispatcher."""

    def below(*args: Any, **kwargs: Any) -> Any:
        tracers = tracers_here()
        for tracer in tracers:
            tracer.step_aside()
        try:
            return function(*args, **kwargs)
        finally:
            for tracer in reversed(tracers):
                tracer.step_back()

    return below


def _beginning(function: Callable[..., Any], tracers_here: Tracers, begin: str) -> Callable[..., Any]:
    """From this call on operations are recorded at the dispatcher, until the level of the transform has ended."""

    def begin_below(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        for tracer in tracers_here():
            tracer.step_aside(transform_depth(), derives=begin not in WITHOUT_DERIVATIVES)
        return result

    return begin_below


# ---- tensors that become others -------------------------------------------------------------------------------


def _parameter_made(new: Callable[..., Any], tracers_here: Tracers) -> Any:
    """`nn.Parameter(t)` is another tensor with the value of `t`, which is often dropped right away."""

    @wraps(new)
    def make(*args: Any, **kwargs: Any) -> Any:
        parameter = new(*args, **kwargs)
        data = args[1] if len(args) > 1 else kwargs.get("data")
        for tracer in tracers_here():
            if isinstance(data, Tensor) and tracer.knows(data):
                tracer.rename(data, parameter)
        return parameter

    return staticmethod(make)


def _tensor_made(init: Callable[..., None], tracers_here: Tracers) -> Callable[..., None]:
    """`torch.Tensor(data)`, and the same of a subclass: made of Python's data, or another name for a tensor."""

    @wraps(init)
    def construct(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        if init is not object.__init__:  # which would not take what `__new__` was given
            init(tensor, *args, **kwargs)
        for tracer in tracers_here():
            tracer.constructed(tensor, args[0] if args else kwargs.get("data"))

    return construct


def _variable_made(call: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    """`torch.autograd.Variable(t)` is another name for `t`."""

    @wraps(call)
    def make(kind: Any, *args: Any, **kwargs: Any) -> Any:
        variable = call(kind, *args, **kwargs)
        data = args[0] if args else kwargs.get("data")
        for tracer in tracers_here():
            if isinstance(data, Tensor):
                tracer.alias(data, variable)
        return variable

    return make


def _subclassed(as_subclass: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    """`t.as_subclass(kind)` is another name for `t`."""

    @wraps(as_subclass)
    def aliased(tensor: Tensor, cls: type[Tensor]) -> Any:
        result = as_class(tensor, cls, as_subclass)
        for tracer in tracers_here():
            tracer.alias(tensor, result)
        return result

    return aliased


def _swapping(swap: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    """`torch.utils.swap_tensors` exchanges what two tensors are."""

    def swap_contents(one: Tensor, other: Tensor) -> None:
        tracers = tracers_here()
        for tracer in tracers:
            with tracer.bookkeeping():
                tracer.before_swap(one, other)
        swap(one, other)
        for tracer in tracers:
            with tracer.bookkeeping():
                tracer.after_swap(one, other)

    return swap_contents


def _weak_references(module: Any, tracers_here: Tracers) -> Any:
    """`swap_tensors` refuses tensors with weak references; the one that a capture holds must not count."""

    def references(tensor: Tensor) -> list[Any]:
        known = any(tracer.knows(tensor) for tracer in tracers_here())
        return [] if known else weakref.getweakrefs(tensor)

    return SimpleNamespace(**vars(weakref) | {"getweakrefs": references})
