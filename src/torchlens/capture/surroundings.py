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

from .._torch import (
    HigherOrderOperator,
    compiler_stance,
    mode_stack,
    operator_compiler,
    overriding_nothing,
    pop_mode,
    push_mode,
)
from .modules import new_hooks_noticed
from .programs import programs_made_unseen
from .threads import threads_joined
from .unseen import replaced, unseen_followed


@contextmanager
def prepared_surroundings(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """Hold off the garbage collector, keep compiled code eager, let modules choose their path as if unseen, and be
    told of what a torch function mode can't see."""
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
                self.undo.enter_context(_no_detour(is_ours))
                self.undo.enter_context(new_hooks_noticed())
                self.undo.enter_context(_honest_overrides(is_ours))
                self.undo.enter_context(compiled_code_eager())
                self.undo.enter_context(unseen_followed(is_ours))
                self.undo.enter_context(programs_made_unseen(is_ours))
                self.undo.enter_context(threads_joined(is_ours))

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
    to_be_seen = HigherOrderOperator.__call__.__code__  # `torch.cond` and its like are calls to be logged

    def has_torch_function(args: Iterable[Any]) -> bool:
        ours = mode_stack()
        if not ours or not all(is_ours(mode) for mode in ours) or sys._getframe(1).f_code is to_be_seen:
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
def _no_detour(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """The functions of `torch.nn.functional` hand themselves over to whoever overrides them: for a capture, only to
    be stepped into. That detour takes longer than many an operation. So they are told that nobody does, if there is
    nobody but the capture, and it sees the calls that they make.
    """
    with overriding_nothing(is_ours):
        yield


@contextmanager
def compiled_code_eager() -> Iterator[None]:
    """What `torch.compile` made runs as it was written."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # importing it takes seconds, and nothing is compiled without it
            stack.enter_context(compiler_stance("force_eager"))
        else:
            stack.enter_context(replaced((torch, "compile", _eager_before(torch.compile, stack))))
        yield


@contextmanager
def plain_surroundings() -> Iterator[None]:
    """For a run that a log is to be compared with: what `torch.compile` made runs as it was written."""
    with ExitStack() as stack:
        stack.enter_context(compiled_code_eager())
        if operator_compiler is not None:  # `torch.cond` and its like must compile to work at all
            stack.enter_context(replaced((*operator_compiler, _compiling(getattr(*operator_compiler)))))
        yield


def _compiling(function: Callable[..., Any]) -> Callable[..., Any]:
    def compiling(*args: Any, **kwargs: Any) -> Any:
        with compiler_stance("default"):
            return function(*args, **kwargs)

    return compiling


def _eager_before(compile_: Callable[..., Any], stack: ExitStack) -> Callable[..., Any]:
    """The model may compile something in forward, as `torch.cond` does: then is the time."""
    stances: list[Any] = []

    def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
        if not stances:
            stances.append(stack.enter_context(compiler_stance("force_eager")))
        return compile_(*args, **kwargs)

    return compile_eagerly
