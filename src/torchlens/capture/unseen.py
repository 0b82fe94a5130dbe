"""What a torch function mode can't see, and where it is caught.

A few functions of torch reach the dispatcher without passing any torch function mode, or change what a tensor is
without calling anything. While a capture runs they are replaced by stand-ins that tell the captures of their thread,
and do nothing in other threads.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import communicates, mode_stack, swap_function, transform_levels, unseen_collectives, unseen_functions

#: Which torch function modes are captures?
IsOurs = Callable[[Any], bool]

#: Whose attribute is replaced, its name, and by what.
Replacement = tuple[Any, str, Any]


@contextmanager
def unseen_followed(is_ours: IsOurs) -> Iterator[None]:
    """Tell the captures of each thread of what they can't see."""
    functions = unseen_functions + (unseen_collectives if communicates() else [])
    below = [(owner, name, _recorded_below(getattr(owner, name), is_ours)) for owner, name in functions]
    levels = [
        replacement
        for module, begin, end in transform_levels
        for replacement in (
            (module, begin, _beginning(getattr(module, begin), is_ours)),
            (module, end, _ending(getattr(module, end), is_ours)),
        )
    ]
    parameters = (Parameter, "__new__", staticmethod(_parameter_made(Parameter.__new__, is_ours)))
    with replaced(*below, *levels, parameters, *_following_swaps(is_ours)):
        yield


@contextmanager
def replaced(*replacements: Replacement) -> Iterator[None]:
    """Replace attributes for a while."""
    before = []
    try:
        for owner, name, replacement in replacements:
            before.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, own in reversed(before):
            if own is None:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, own)


def tracers_here(is_ours: IsOurs) -> list[Any]:
    """The captures of this thread, outermost first."""
    return [mode for mode in mode_stack() if is_ours(mode)]


# ---- recorded at the dispatcher -------------------------------------------------------------------------------


def _recorded_below(function: Callable[..., Any], is_ours: IsOurs) -> Callable[..., Any]:
    """The function with its operations recorded at the dispatcher."""

    def below(*args: Any, **kwargs: Any) -> Any:
        tracers = tracers_here(is_ours)
        for tracer in tracers:
            tracer.step_aside()
        try:
            return function(*args, **kwargs)
        finally:
            for tracer in reversed(tracers):
                tracer.step_back()

    return below


def _beginning(begin: Callable[..., Any], is_ours: IsOurs) -> Callable[..., Any]:
    """From this call on operations are recorded at the dispatcher."""

    def begin_below(*args: Any, **kwargs: Any) -> Any:
        result = begin(*args, **kwargs)
        for tracer in tracers_here(is_ours):
            tracer.step_aside()
        return result

    return begin_below


def _ending(end: Callable[..., Any], is_ours: IsOurs) -> Callable[..., Any]:
    def end_below(*args: Any, **kwargs: Any) -> Any:
        for tracer in reversed(tracers_here(is_ours)):
            tracer.step_back()
        return end(*args, **kwargs)

    return end_below


# ---- tensors that become others -------------------------------------------------------------------------------


def _parameter_made(new: Callable[..., Any], is_ours: IsOurs) -> Callable[..., Any]:
    """`nn.Parameter(t)` is another object for what `t` holds, and often the only one that is left of it."""

    @wraps(new)
    def make(*args: Any, **kwargs: Any) -> Any:
        parameter = new(*args, **kwargs)
        data = args[1] if len(args) > 1 else kwargs.get("data")
        for tracer in tracers_here(is_ours):
            if isinstance(data, Tensor) and tracer.knows(data):
                tracer.rename(data, parameter)
        return parameter

    return make


def _following_swaps(is_ours: IsOurs) -> list[Replacement]:
    """`torch.utils.swap_tensors` exchanges what two tensors are; it refuses if it finds a weak reference to one."""
    swap = getattr(*swap_function)

    def swap_contents(one: Tensor, other: Tensor) -> None:
        tracers = tracers_here(is_ours)
        for tracer in tracers:
            with tracer.bookkeeping():
                tracer.before_swap(one, other)
        swap(one, other)
        for tracer in tracers:
            with tracer.bookkeeping():
                tracer.after_swap(one, other)

    def references(tensor: Tensor) -> list[Any]:
        """All but the one that a capture holds."""
        known = any(tracer.knows(tensor) for tracer in tracers_here(is_ours))
        return [] if known else weakref.getweakrefs(tensor)

    return [(torch.utils, "weakref", SimpleNamespace(getweakrefs=references)), (*swap_function, swap_contents)]
