"""What a capture changes around itself in the process, shared by captures that overlap in several threads.

The first capture to begin makes the change, the last to end undoes it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.overrides

from .._torch import ScriptFunction, mode_stack, pop_mode, push_mode
from .dispatcher import Fallback


@contextmanager
def prepared_surroundings(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """Hold off the garbage collector, keep compiled code eager, and let modules choose their path as if unseen."""
    _shared.enter(is_ours)
    try:
        yield
    finally:
        _shared.leave()


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.undo = ExitStack()

    def enter(self, is_ours: Callable[[Any], bool]) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.undo.enter_context(collector_held_off())
                self.undo.enter_context(_deeper_recursion())
                self.undo.enter_context(_honest_overrides(is_ours))
                self.undo.enter_context(_scripts_recorded(is_ours))
                if "torch._dynamo" in sys.modules:  # importing it takes seconds, and nothing compiles without it
                    self.undo.enter_context(torch.compiler.set_stance("force_eager"))

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.undo.close()


_shared = _Shared()


@contextmanager
def collector_held_off() -> Iterator[None]:
    """Thousands of small records in a row make Python look for cycles again and again; there are none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _deeper_recursion() -> Iterator[None]:
    """Each module call takes a few more frames than without us: a recursive model must get as deep all the same."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(2 * limit)
    try:
        yield
    finally:
        if sys.getrecursionlimit() == 2 * limit:
            sys.setrecursionlimit(limit)


@contextmanager
def _honest_overrides(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """`MultiheadAttention` and the transformer layers ask `torch.overrides.has_torch_function` whether to take
    their fast path. A capture would make that answer yes and the model compute something else, so it doesn't count.
    """
    ask = torch.overrides.has_torch_function

    def has_torch_function(args: Iterable[Any]) -> bool:
        ours = mode_stack()
        if not ours or not all(is_ours(mode) for mode in ours):
            return ask(args)
        for _ in ours:
            pop_mode()
        try:
            return ask(args)
        finally:
            for mode in ours:
                push_mode(mode)

    torch.overrides.has_torch_function = has_torch_function
    try:
        yield
    finally:
        torch.overrides.has_torch_function = ask


@contextmanager
def _scripts_recorded(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """A function compiled by TorchScript runs out of Python's sight: its operations are recorded at the dispatcher."""
    call = ScriptFunction.__call__

    def seen_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for mode in mode_stack():
                if is_ours(mode):
                    stack.enter_context(Fallback(mode))
            return call(self, *args, **kwargs)

    ScriptFunction.__call__ = seen_call
    try:
        yield
    finally:
        ScriptFunction.__call__ = call
