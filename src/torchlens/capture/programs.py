"""A model that makes a program of a function or module while it runs: `torch.jit.trace`, `torch.jit.script`, `export`.

What runs meanwhile is no part of the forward pass: its results are thrown away, and a capture that looked on would get
into the program. So captures step out of the way. When the model calls the program, they see that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from .._torch import innermost_dispatch_modes_off, mode_stack, pop_mode, program_makers, push_mode
from .dispatcher import Watcher
from .modules import unreported
from .unseen import IsOurs, replaced, tracers_here


@contextmanager
def programs_made_unseen(is_ours: IsOurs) -> Iterator[None]:
    """Let programs be made as if there were no capture."""
    with replaced(*((owner, name, _unseen(getattr(owner, name), is_ours)) for owner, name in program_makers)):
        yield


def _unseen(make: Callable[..., Any], is_ours: IsOurs) -> Callable[..., Any]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        tracers = tracers_here(is_ours)
        if not tracers:
            return make(*args, **kwargs)
        with ExitStack() as stack:
            for tracer in tracers:
                stack.enter_context(tracer.bookkeeping())
            stack.enter_context(unreported())
            stack.enter_context(_without(tracers))
            stack.enter_context(innermost_dispatch_modes_off(lambda mode: isinstance(mode, Watcher)))
            return make(*args, **kwargs)

    return made


@contextmanager
def _without(tracers: list[Any]) -> Iterator[None]:
    """Take these torch function modes off the stack for a while, wherever they are in it."""
    stack = mode_stack()
    _put(stack, [mode for mode in stack if not any(mode is tracer for tracer in tracers)])
    try:
        yield
    finally:
        _put(mode_stack(), stack)


def _put(old: list[Any], new: list[Any]) -> None:
    for _ in old:
        pop_mode()
    for mode in new:
        push_mode(mode)
