"""Torch function modes, dispatch modes, and who overrides torch functions."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import chain, repeat, starmap
from typing import Any

import torch
import torch.nn.functional
from torch import Tensor

from .private_name import LOGGING, missing, private

#: Inside this context no dispatch mode sees what is called.
without_dispatch_modes = private("torch.utils._python_dispatch._disable_current_modes", instead=nullcontext)

#: Inside this context neither a torch function mode nor a tensor subclass sees what is called.
#: Since Python 3.14 a signal may fall between its beginning and its body, and then it never ends: for use in a run,
#: whose own end puts that right.
no_torch_function = private("torch._C.DisableTorchFunction", part=LOGGING)


def _no_torch_function_until_dropped() -> Any:
    """The same context, which ends also when nobody holds it any more."""
    scope: Any = private("torch._C._EnableTorchFunction")  # when it is freed, everything is as before
    set_state = private("torch._C._set_torch_function_state")
    states = private("torch._C._TorchFunctionState")
    python: tuple[int, ...] = sys.version_info[:2]
    if python < (3, 14) or None in (scope, set_state, states):
        return no_torch_function

    class WithoutTorchFunction(scope):  # type: ignore[misc]
        def __enter__(self) -> None:
            super().__enter__()
            set_state(states.ALL_DISABLED)

    return WithoutTorchFunction


#: `no_torch_function` for use outside of a run: slower, and no signal leaves it.
without_torch_function = _no_torch_function_until_dropped()


def torch_function_state() -> Callable[[], None]:
    """What puts back whether torch functions are seen, in this thread, as it is now."""
    now = no_torch_function()
    try:
        now.__enter__()
    finally:
        now.__exit__(None, None, None)
    return partial(now.__exit__, None, None, None)


push_mode = private("torch._C._push_on_torch_function_stack", part=LOGGING)
pop_mode = private("torch._C._pop_torch_function_stack", part=LOGGING)

_function_modes = private("torch._C._len_torch_function_stack", part=LOGGING)
_function_mode_at = private("torch._C._get_function_stack_at", part=LOGGING)

_BELOW = "checking completeness, or logging TorchScript and torch.func's transforms,"
dispatch_stack_size = private("torch._C._len_torch_dispatch_stack", instead=lambda: 0)
dispatch_mode_at = private("torch._C._get_dispatch_stack_at", part=_BELOW)
_pop_dispatch_mode = private("torch._C._pop_torch_dispatch_stack", part=_BELOW)
push_dispatch_mode = private("torch._C._push_on_torch_dispatch_stack", part=_BELOW)
# One without the others is of no use.
for _each in ("DisableTorchFunction", "_pop_torch_function_stack", "_get_function_stack_at"):
    if not hasattr(torch._C, _each):
        _function_modes = missing(f"torch._C.{_each}", LOGGING)
for _each in ("_len_torch_dispatch_stack", "_get_dispatch_stack_at", "_pop_torch_dispatch_stack"):
    if not hasattr(torch._C, _each):
        push_dispatch_mode = missing(f"torch._C.{_each}", _BELOW)


def remove_modes(unwanted: Callable[[Any], bool]) -> None:
    """Take modes away from this thread, wherever they are among others."""
    functions, dispatched = mode_stack(), dispatch_stack()
    if any(map(unwanted, [*functions, *dispatched])):
        put_modes([m for m in functions if not unwanted(m)], [m for m in dispatched if not unwanted(m)])


def put_modes(functions: list[Any], dispatched: list[Any]) -> None:
    """Let this thread have these modes and no others: in one step, which no signal can interrupt, since it is one call
    of a function that is not written in Python."""
    old, old_dispatched = repeat((), _function_modes()), repeat((None,), dispatch_stack_size())
    popping = chain(starmap(pop_mode, old), starmap(_pop_dispatch_mode, old_dispatched))
    deque(chain(popping, map(push_mode, functions), map(push_dispatch_mode, dispatched)), 0)


def dispatch_stack() -> list[Any]:
    """The dispatch modes of this thread, outermost first."""
    return [dispatch_mode_at(number) for number in range(dispatch_stack_size())]


def call_without(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function without this dispatch mode, if it is the innermost one."""
    size = dispatch_stack_size()
    if not size or dispatch_mode_at(size - 1) is not mode:
        return func(*args, **kwargs)
    try:
        _pop_dispatch_mode(None)
        return func(*args, **kwargs)
    finally:
        push_dispatch_mode(mode)


def mode_stack() -> list[Any]:
    """The torch function modes of this thread, outermost first."""
    return [_function_mode_at(i) for i in range(_function_modes())]


#: What a tensor argument may be without having a say in what is done with it.
_ORDINARY = {Tensor, torch.nn.Parameter, type(None)}


def overriding_nothing(passes_by: Callable[[Any], bool]) -> dict[str, Callable[[Any, Any], Any]]:
    """How to let the functions of `torch.nn.functional` believe that nobody overrides them if only such a mode does:
    for each name by which they ask, what makes an answer of the original one.

    Each of them asks that first, so it is written out for each way to ask.
    """
    count, at = _function_modes, _function_mode_at

    def unary(ask: Any, _: Any) -> Any:
        def one(tensor: Any) -> bool:
            return ask(tensor) and not (type(tensor) in _ORDINARY and count() == 1 and passes_by(at(0)))

        return one

    def sequence(ask: Any, _: Any) -> Any:
        def any_of(tensors: Any) -> bool:
            return ask(tensors) and not (_ORDINARY.issuperset(map(type, tensors)) and count() == 1 and passes_by(at(0)))

        return any_of

    def variadic(ask: Any, _: Any) -> Any:
        def several(*tensors: Any) -> bool:
            return ask(*tensors) and not (
                _ORDINARY.issuperset(map(type, tensors)) and count() == 1 and passes_by(at(0))
            )

        return several

    answers = {"_unary": unary, "_variadic": variadic, "": sequence}
    return {f"has_torch_function{ending}": build for ending, build in answers.items()}


def is_overriding(argument: Any) -> bool:
    """Does this argument see the torch functions that it is given to?"""
    kind = type(argument)
    override = getattr(kind, "__torch_function__", _NO_OVERRIDE)
    return kind is not Tensor and override is not _NO_OVERRIDE


_NO_OVERRIDE = torch.nn.Parameter.__torch_function__
