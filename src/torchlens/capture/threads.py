"""Threads that a model starts in its forward pass take part in its capture.

A torch function mode is active in one thread. A thread that a captured thread starts, and a task that it hands to a
pool of threads, gets a tracer of its own that writes into the same trace. From then on the tracers take turns:
operations are logged in the order in which they ended. A capture whose model starts no thread pays nothing for this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as _pools
from contextlib import contextmanager
from copy import copy
from functools import partial, wraps
from typing import Any

from torch import nn

from .calls import Active, TorchCalls
from .changes import Change, Changes, between
from .functions import Function
from .modules import WatchedHere, watchers_here
from .records import NO_KWARGS
from .unseen import IsOurs, Told, Tracers


class SharedTracer(TorchCalls):
    """One of several tracers that write into one trace, taking turns."""

    turn: threading.RLock

    @classmethod
    def of(cls, tracer: TorchCalls) -> SharedTracer:
        """The tracer itself, from now on sharing its trace."""
        if not isinstance(tracer, cls):
            tracer.__class__ = _shared_kind(type(tracer))
            assert isinstance(tracer, cls)
            tracer.turn = threading.RLock()
        return tracer

    def branch(self) -> SharedTracer:
        """A tracer for another thread, which begins where this one is."""
        other = copy(self)
        vars(other).pop("__torch_function__", None)  # the other one has not stepped aside
        other.descent, other.aside, other.busy, other.forward_due = [], [], False, None
        other.witness = None
        return other

    def end(self) -> None:
        with self.turn:
            super().end()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.treat(func, types, args, kwargs or NO_KWARGS)

    def _record(self, function: Function, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.progress.ended:
            return func(*args, **kwargs)
        with self.turn:
            self.take_turn()
            return super()._record(function, partial(self._out_of_turn, func), args, kwargs)

    def _out_of_turn(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Make a call. Only recording it is done in turn, not the call itself, which may wait for another thread."""
        depth = None
        try:
            depth = self.turn._release_save()  # type: ignore[attr-defined]
            return func(*args, **kwargs)
        finally:
            if depth is not None:
                self.turn._acquire_restore(depth)  # type: ignore[attr-defined]
            self.take_turn()

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self.turn:
            return super().record(func, args, kwargs)

    @contextmanager
    def bookkeeping(self) -> Iterator[None]:
        with self.turn, super().bookkeeping():
            self.take_turn()
            yield

    def enter_module(self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self.turn:
            self.forget_last()  # another thread may have written to it
            return None if self.progress.ended else super().enter_module(module, is_forward, args, kwargs)

    def leave_module(self, call: Any, result: Any) -> Any:
        with self.turn:
            self.forget_last()
            return result if self.progress.ended else super().leave_module(call, result)

    def abandon_module(self, call: Any) -> None:
        with self.turn:
            self.forget_last()
            if not self.progress.ended:
                super().abandon_module(call)


def _shared_kind(kind: type[TorchCalls]) -> type[SharedTracer]:
    """What a tracer of this kind becomes when it shares its trace."""
    if kind not in _shared_kinds:
        _shared_kinds[kind] = type(f"Shared{kind.__name__}", (SharedTracer, kind), {})
    return _shared_kinds[kind]


_shared_kinds: dict[type[TorchCalls], type[SharedTracer]] = {}


def threads_joined(is_ours: IsOurs) -> list[Change]:
    """Let threads that captured threads start, and tasks that they submit to pools, take part in the capture."""
    return [
        Told(is_ours, threading.Thread, "start", _starting),
        Told(is_ours, ThreadPoolExecutor, "submit", _submitting),
    ]


def _starting(start: Callable[..., None], tracers_here: Tracers) -> Callable[..., None]:
    @wraps(start)
    def start_joined(thread: threading.Thread) -> None:
        tracers = [*tracers_here(), *_told_of_modules()]
        # A pool's thread outlives the task it was started for: there each task takes part by itself.
        if tracers and getattr(thread, "_target", None) is not getattr(_pools, "_worker", None):
            thread.run = _joined(thread.run, tracers)  # type: ignore[method-assign]
        start(thread)

    return start_joined


def _submitting(submit: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    @wraps(submit)
    def submit_joined(pool: Any, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        tracers = [*tracers_here(), *_told_of_modules()]
        return submit(pool, _joined(task, tracers) if tracers else task, *args, **kwargs)

    return submit_joined


def _told_of_modules() -> list[TorchCalls]:
    """The tracers of this thread that are no modes: they are told of module calls alone."""
    here = [watcher for watcher in watchers_here() if isinstance(watcher, TorchCalls)]
    return [tracer for tracer in here if tracer.only_modules]


def _joined(run: Callable[..., Any], tracers: list[TorchCalls]) -> Callable[..., Any]:
    """What `run` does, captured by branches of these tracers."""
    return partial(_run_joined, run, [SharedTracer.of(tracer).branch() for tracer in tracers])


def _run_joined(run: Callable[..., Any], branches: list[SharedTracer], /, *args: Any, **kwargs: Any) -> Any:
    active = [Active(branch) for branch in branches if not branch.only_modules]
    changes = Changes([*(WatchedHere(branch) for branch in branches), *active])
    return between(changes.begin, partial(run, *args, **kwargs), changes.end)
