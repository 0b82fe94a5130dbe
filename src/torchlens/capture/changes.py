"""Everything that a capture changes in its process and its thread, in one list that is undone whatever happens.

A signal handler can raise between any two steps of Python: Ctrl-C does. Therefore

- a change is in the list `_made` before it is made, and remembers what was there;
- undoing looks at what is there now. It can be repeated, and leaves alone what the model has changed meanwhile;
- `between` undoes twice, in case the first time is interrupted;
- the next capture undoes what is left of captures that are no longer running;
- after a fork the child undoes everything.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from types import FrameType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
C = TypeVar("C")


class Change(Protocol):
    """A temporary change. Both methods may be called repeatedly."""

    @property
    def key(self) -> Hashable:
        """Equal for changes that are one and the same: made for the first run that needs it, undone after the last."""

    def make(self) -> None: ...

    def undo(self) -> None: ...


class Changes:
    """Changes that are in force while something runs, in the thread that begins it."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = list(changes)
        self._frame: FrameType | None = None  # runs as long as the run does, if that is known
        self._thread = 0
        self._over = False

    def begin(self, frame: FrameType | None = None) -> None:
        with _lock:
            _heal()
            self._frame, self._thread = frame, threading.get_ident()
            _running[self] = None
            for change in self.changes:
                _made.setdefault(change.key, change).make()

    def end(self) -> None:
        if self._over:
            return
        with _lock:
            _running.pop(self, None)
            needed = {change.key for run in _running for change in run.changes}
            for change in reversed(self.changes):
                made = _made.get(change.key)
                if made is not None and change.key not in needed:
                    made.undo()
                    del _made[change.key]
            self._frame, self._over = None, True
            self.changes.clear()

    def is_over(self) -> bool:
        """Has this run ended without undoing its changes?"""
        frame = _frames().get(self._thread)
        try:
            if self._frame is None or frame is None:
                return frame is None
            while frame is not None and frame is not self._frame:
                frame = frame.f_back
            return frame is None
        finally:
            del frame  # it may have been called from here, and would keep itself alive


def _frames() -> dict[int, FrameType]:
    """What each thread is running. Before Python 3.12.2 the garbage collector, if it runs meanwhile, waits for ever."""
    collecting = gc.isenabled()
    try:
        gc.disable()
        return sys._current_frames()
    finally:
        if collecting:
            gc.enable()


def between(begin: Callable[[FrameType], None], body: Callable[[], T], end: Callable[[], None]) -> T:
    """Call `begin`, `body` and, whatever happens, `end`: twice, in case an interrupt falls into the first time.

    Interrupts are noticed when a call has returned and when a function of Python begins. There is no such moment
    between `try` and the first call in it, nor between `finally` and the first call there.
    """
    try:
        begin(sys._getframe())
        return body()
    finally:
        try:
            end()
        finally:
            end()


def begin_or_undo(run: Changes, frame: FrameType | None = None) -> None:
    """Begin a run that the caller will end."""
    try:
        run.begin(frame)
    except BaseException:
        try:
            run.end()
        finally:
            run.end()
        raise


def tell(kind: type[C], something: Callable[[C], None]) -> None:
    """Tell all changes of a kind that are made at this moment."""
    with _lock:
        for change in made():
            if isinstance(change, kind):
                something(change)


def made() -> list[Change]:
    """Everything that is changed at this moment."""
    with _lock:
        return list(_made.values())


_lock = threading.RLock()
_running: dict[Changes, None] = {}
_made: dict[Hashable, Change] = {}
_fork_is_watched = False


def _heal() -> None:
    global _fork_is_watched
    if not _fork_is_watched and hasattr(os, "register_at_fork"):
        _fork_is_watched = True
        os.register_at_fork(after_in_child=_undo_all)
    for run in [run for run in _running if run.is_over()]:
        run.end()


def _undo_all() -> None:
    """In a forked child process, where the threads that made the changes do not exist."""
    global _lock
    _lock = threading.RLock()  # another thread may have held it
    for run in list(_running):
        run.end()


# ---- attributes -----------------------------------------------------------------------------------------------


class Switch:
    """Is a stand-in in use? If other code keeps one after its capture, it only does what the original does."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


#: Makes a stand-in for an original.
Build = Callable[[Any, Switch], Any]

_MISSING = object()


class Replaced:
    """An attribute of a class, or an entry of a dict, that is replaced by a stand-in."""

    def __init__(self, owner: Any, name: Any, build: Build) -> None:
        self.key = (id(owner), name)
        self._owner, self._name, self._build = owner, name, build
        # What the owner itself has, not what it inherits.
        self._there = owner if isinstance(owner, dict) else vars(owner)
        self._own: Any = self
        self._stand_in: Any = self
        self._switch = Switch()

    def make(self) -> None:
        own = self._there.get(self._name, _MISSING)
        if own is not self._stand_in:
            if own is not self._own:
                switch = Switch()
                stand_in = self._build(self._original(), switch)
                self._own, self._switch, self._stand_in = own, switch, stand_in
            self._put(self._stand_in)
        self._switch.on = True

    def undo(self) -> None:
        self._switch.on = False
        if self._there.get(self._name, _MISSING) is self._stand_in:
            self._put(self._own)

    def _original(self) -> Any:
        owner = self._owner
        return owner[self._name] if isinstance(owner, dict) else getattr(owner, self._name)

    def _put(self, value: Any) -> None:
        owner, name = self._owner, self._name
        if isinstance(owner, dict):
            if value is _MISSING:
                del owner[name]
            else:
                owner[name] = value
        elif value is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
