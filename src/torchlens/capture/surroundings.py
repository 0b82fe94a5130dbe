"""What a capture changes around itself in the process, shared by captures that overlap in several threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import torch
import torch.overrides
from torch import nn

from .._torch import (
    HigherOrderOperator,
    Stance,
    communicates,
    is_overriding,
    known_to_scripts,
    mode_stack,
    operator_compiler,
    overriding_nothing,
)
from .calls import Active, TorchCalls
from .changes import Change, Changes, Replaced, Switch
from .modules import StandInsPut, WatchedHere, new_hooks_noticed
from .programs import programs_made_unseen
from .threads import threads_joined
from .unseen import collectives_followed, unseen_followed

P = ParamSpec("P")
T = TypeVar("T")


def captured(tracer: TorchCalls, modules: Sequence[nn.Module]) -> Changes:
    """All that is different while a tracer records what a model does; `modules` are those that get stand-ins."""
    changes = [*_around(), *(_collectives() if communicates() else ())]
    watched: list[Change] = [StandInsPut(modules), WatchedHere(tracer)] if modules else []
    return Changes([*changes, *watched, Active(tracer)])


def modules_watched() -> Changes:
    """All that is different while somebody is told of module calls, and of no torch call."""
    return Changes(_around_modules())


@cache
def _around_modules() -> tuple[Change, ...]:
    return (DeeperRecursion(), new_hooks_noticed(), *EAGER, *threads_joined(is_tracer))


def plain_run() -> Changes:
    """For a run that a log is to be compared with: what `torch.compile` made runs as it was written."""
    return Changes(_plainly())


@cache
def _around() -> tuple[Change, ...]:
    return (
        YoungObjectsOnly(),
        DeeperRecursion(),
        *_no_detour(),
        new_hooks_noticed(),
        Replaced(vars(torch.overrides), "has_torch_function", _honest),
        *EAGER,
        *unseen_followed(is_tracer),
        *programs_made_unseen(is_tracer),
        *threads_joined(is_tracer),
    )


@cache
def _collectives() -> tuple[Change, ...]:
    return tuple(collectives_followed(is_tracer))


@cache
def _plainly() -> tuple[Change, ...]:
    if operator_compiler is None:
        return EAGER
    owner, name = operator_compiler  # `torch.cond` and its like must compile to work at all
    return (*EAGER, Replaced(vars(owner), name, _compiling))


def is_tracer(mode: Any) -> bool:
    return isinstance(mode, TorchCalls)


class YoungObjectsOnly:
    """Python's garbage collector examines new objects as always, but not again those that it has examined.

    Examining them all takes longer than many a model. And what is young when the capture ends was made during it.
    """

    key = "garbage collector"
    never = 1_000_003  # a number that nobody else asks for

    def make(self) -> None:
        young, middle, old = gc.get_threshold()
        if middle != self.never:
            self._before = middle
            gc.set_threshold(young, self.never, old)

    def undo(self) -> None:
        young, middle, old = gc.get_threshold()
        if middle == self.never:
            gc.set_threshold(young, self._before, old)


class DeeperRecursion:
    """A higher recursion limit: a captured module call takes more frames, and recursive models need their depth."""

    key = "recursion limit"

    def __init__(self) -> None:
        self._before = self._ours = 0

    def make(self) -> None:
        limit = sys.getrecursionlimit()
        if limit != self._ours:
            self._before, self._ours = limit, 2 * limit + 1  # a number that nobody else asks for
            sys.setrecursionlimit(self._ours)

    def undo(self) -> None:
        if sys.getrecursionlimit() == self._ours:
            sys.setrecursionlimit(self._before)


# ---- who overrides what ---------------------------------------------------------------------------------------


def _honest(ask: Callable[..., bool], switch: Switch) -> Callable[..., bool]:
    """`MultiheadAttention` and the transformer layers ask `torch.overrides.has_torch_function` whether to take
    their fast path. A capture would make that answer yes and the model compute something else, so it doesn't count.
    """
    calling = HigherOrderOperator.__call__.__code__  # `torch.cond` and its like are calls to be logged
    to_be_seen = {calling, *calling.co_consts}  # an older torch asks in a function inside

    def has_torch_function(args: Iterable[Any]) -> bool:
        modes = mode_stack() if switch.on else []
        if not modes or not all(is_tracer(mode) for mode in modes) or sys._getframe(1).f_code in to_be_seen:
            return ask(args)
        return any(is_overriding(argument) for argument in args)

    return has_torch_function


def _no_detour() -> list[Change]:
    """The functions of `torch.nn.functional` hand themselves over to whoever overrides them: for a capture, only to
    be stepped into. That detour takes longer than many an operation. So they are told that nobody does, if there is
    nobody but the capture, and it sees the calls that they make.
    """
    functions = vars(torch.nn.functional)
    return [_Unasked(functions, name, build) for name, build in overriding_nothing(is_tracer).items()]


class _Unasked(Replaced):
    """A question that scripts may ask as well: they know the stand-in as what it stands for."""

    def make(self) -> None:
        super().make()
        known_to_scripts()[id(self._stand_in)] = known_to_scripts().get(id(self._own))

    def undo(self) -> None:
        known_to_scripts().pop(id(self._stand_in), None)
        super().undo()


# ---- compiled code --------------------------------------------------------------------------------------------


def _eager() -> tuple[Change, ...]:
    stance = _EagerStance()

    def build(compile_: Callable[..., Any], switch: Switch) -> Callable[..., Any]:
        @wraps(compile_)
        def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
            """The model compiles something in forward, as `torch.cond` does: set the stance now, if it is not set."""
            if switch.on and not stance.was_set:
                stance.set()
            compiled = compile_(*args, **kwargs)
            if operator_compiler is None and _is_operator(sys._getframe(1)) and not any(map(is_tracer, mode_stack())):
                return _compiling(compiled, switch)  # an older `torch.cond`, which must compile to work at all
            return compiled

        return compile_eagerly

    return stance, Replaced(vars(torch), "compile", build)


def _is_operator(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("torch._higher_order_ops.")


class _EagerStance:
    """What `torch.compile` made runs as it was written."""

    key = "stance of torch.compile"

    def __init__(self) -> None:
        self._stance: Stance | None = None
        self.was_set = False  # since it was made

    def make(self) -> None:
        if "torch._dynamo" in sys.modules:  # importing it takes seconds, and nothing is compiled without it
            self.set()

    def set(self) -> None:
        if self._stance is None or not self._stance.is_set():
            self._stance = Stance("force_eager")
            self._stance.set()
        self.was_set = True

    def undo(self) -> None:
        if self._stance is not None:
            self._stance.unset()
        self.was_set = False


#: What `torch.compile` made runs as it was written.
EAGER = _eager()


def _compiling(function: Callable[..., Any], switch: Switch) -> Callable[..., Any]:
    def compiling(*args: Any, **kwargs: Any) -> Any:
        stance = Stance("default")
        try:
            if switch.on:
                stance.set()
            return function(*args, **kwargs)
        finally:
            stance.unset()

    return compiling


# ---- for other work than captures -----------------------------------------------------------------------------


def without_collector(work: Callable[P, T]) -> Callable[P, T]:
    """Decorator for functions that make very many small objects: they run with Python's garbage collector off."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return work(*args, **kwargs)
        try:
            gc.disable()
            return work(*args, **kwargs)
        finally:
            gc.enable()

    return run
