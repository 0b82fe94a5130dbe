"""Which module, and which call of it, is running?

While a capture runs, each module of the model has an instance attribute `forward` that stands in for its method and
reports when a call begins and ends; a module with hooks also has one for `_call_impl`, which runs them, so that they
are inside the module's call. They are put there once however many captures are running, in whatever threads, and the
last capture to end takes them away. Compared with hooks this is cheaper and sees `module.forward(x)` called directly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn

from .._torch import any_global_hook, has_call_of_its_own, inside_compiled
from ..errors import ArgumentError
from .records import ModuleCall
from .unseen import replaced


class ModuleWatcher(Protocol):
    """What a stand-in reports to."""

    def enter_module(
        self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ModuleCall | None: ...

    def leave_module(self, call: ModuleCall, result: Any) -> Any: ...  # what the caller gets

    def abandon_module(self, call: ModuleCall) -> None: ...  # it raised


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module of a model with its address, under each of its names, parents first.

    As `model.named_modules(remove_duplicate=False)`, but told apart by identity: a class may define when its modules
    are equal, and then torch's own loop merges equal modules, or fails for want of a hash. What `torch.compile` wraps
    around a module is left out: the module inside has its address.
    """
    yield from _named_modules(model, "", ())


def _named_modules(module: nn.Module, address: str, above: tuple[int, ...]) -> Iterator[tuple[str, nn.Module]]:
    module = inside_compiled(module)
    if id(module) in above:  # a module that has a parent of its own as a submodule
        return
    yield address, module
    inside = (*above, id(module))
    for name, child in module._modules.items():
        if child is not None:
            yield from _named_modules(child, f"{address}.{name}" if address else name, inside)


def distinct_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module of a model once, under the first of its names."""
    first: dict[int, tuple[str, nn.Module]] = {}
    for address, module in named_modules(model):
        first.setdefault(id(module), (address, module))
    return list(first.values())


def distinct_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Every parameter of a model once, under the first of its names."""
    first: dict[int, tuple[str, nn.Parameter]] = {}
    for address, module in distinct_modules(model):
        for name, param in module._parameters.items():
            if param is not None:
                first.setdefault(id(param), (f"{address}.{name}" if address else name, param))
    return list(first.values())


class _Watchers(threading.local):
    def __init__(self) -> None:
        self.here: list[ModuleWatcher] = []


_watchers = _Watchers()


@contextmanager
def watch_modules(modules: Iterable[nn.Module], watcher: ModuleWatcher) -> Iterator[None]:
    """Report the calls that this thread makes of these modules to `watcher`."""
    modules = list(modules)
    _install(modules)
    try:
        with reported_here(watcher):
            yield
    finally:
        _uninstall(modules)


@contextmanager
def reported_here(watcher: ModuleWatcher) -> Iterator[None]:
    """Report the calls that this thread makes, of modules that are being watched, to `watcher` as well."""
    _watchers.here = [*_watchers.here, watcher]
    try:
        yield
    finally:
        _watchers.here = _watchers.here[:-1]


@contextmanager
def unreported() -> Iterator[None]:
    """Let modules be as they are without captures, for a while, in which this thread reports nothing."""
    before, _watchers.here = _watchers.here, []
    with _lock:
        taken = [
            (vars(entry.module), name, stand_in)
            for entry in _installed.values()
            for name, stand_in in vars(entry.module).items()
            if isinstance(stand_in, StandIn)
        ]
        for attributes, name, stand_in in taken:
            del attributes[name]
            if name in _installed[id(stand_in.module)].replaced:
                attributes[name] = _installed[id(stand_in.module)].replaced[name]
    try:
        yield
    finally:
        with _lock:
            for attributes, name, stand_in in taken:
                if id(stand_in.module) in _installed:
                    attributes[name] = stand_in
        _watchers.here = before


class StandIn:
    """Stands in for a bound method of a module, `_call_impl` or `forward`."""

    __slots__ = ("__wrapped__", "is_forward", "method", "module")

    def __init__(self, module: nn.Module, name: str) -> None:
        self.method: Callable[..., Any] = getattr(module, name)
        self.module = module
        self.is_forward = name == "forward"
        self.__wrapped__ = self.method  # code that asks for the signature of forward gets it

    def __getattr__(self, name: str) -> Any:
        if name == "method":  # while a copy of this object is being made, it is not there yet
            raise AttributeError(name)
        return getattr(self.method, name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        watchers = _watchers.here
        if len(watchers) == 1:  # as below, in short
            only = watchers[0]
            call = only.enter_module(self.module, self.is_forward, args, kwargs)
            if call is None:
                return self.method(*args, **kwargs)
            try:
                result = self.method(*args, **kwargs)
            except BaseException:
                only.abandon_module(call)
                raise
            return only.leave_module(call, result)
        calls: list[tuple[ModuleWatcher, Any]] = []
        try:
            for watcher in watchers:
                call = watcher.enter_module(self.module, self.is_forward, args, kwargs)
                if call is not None:
                    calls.append((watcher, call))
            result = self.method(*args, **kwargs)
        except BaseException:
            with ExitStack() as stack:
                for watcher, call in calls:
                    stack.callback(watcher.abandon_module, call)
            raise
        return _left(calls, result)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A model that copies a module of its own in forward gets a copy that calls itself, not the original."""
        copied = memo.get(id(self.module), self.module)
        return getattr(type(copied), "forward" if self.is_forward else "_call_impl").__get__(copied)


def _left(calls: list[tuple[ModuleWatcher, Any]], result: Any) -> Any:
    """Tell every watcher, the innermost first; one of them may end the forward pass here, the others see it raise."""
    while calls:
        watcher, call = calls.pop()
        try:
            result = watcher.leave_module(call, result)
        except BaseException:
            with ExitStack() as stack:
                for outer, its_call in calls:
                    stack.callback(outer.abandon_module, its_call)
            raise
    return result


#: Where one module's frames end and the caller's begin.
MODULE_BOUNDARY = StandIn.__call__.__code__


@dataclass
class _Installed:
    module: nn.Module
    users: int
    replaced: dict[str, Any]  # instance attributes that were there before, by name


_installed: dict[int, _Installed] = {}
_lock = threading.Lock()


def _install(modules: list[nn.Module]) -> None:
    anywhere = any_global_hook()
    with _lock:
        for module in modules:
            entry = _installed.get(id(module))
            if entry is not None:
                entry.users += 1
                continue
            attributes, before = vars(module), {}
            for name in _to_replace(module, anywhere):
                if name in attributes:
                    before[name] = attributes[name]
                attributes[name] = StandIn(module, name)
            _installed[id(module)] = _Installed(module, 1, before)


def _to_replace(module: nn.Module, hooks_anywhere: bool) -> tuple[str, ...]:
    if isinstance(module, torch.jit.ScriptModule):
        return ("_call_impl",)
    if hooks_anywhere or has_call_of_its_own(module):
        return ("_call_impl", "forward")
    return ("forward",)


@contextmanager
def new_hooks_noticed() -> Iterator[None]:
    """A model may give a module of its own a hook while it runs: from then on its calls are reported with hooks."""
    names = [f"register_{when}" for when in ("forward_hook", "forward_pre_hook", "full_backward_hook")]
    names += ["register_backward_hook", "register_full_backward_pre_hook"]
    with replaced(*((nn.Module, name, _registering(getattr(nn.Module, name))) for name in names)):
        yield


def _registering(register: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(register)
    def noticed(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _lock:
            if id(module) in _installed and "_call_impl" not in vars(module):
                vars(module)["_call_impl"] = StandIn(module, "_call_impl")
        return register(module, *args, **kwargs)

    return noticed


def _uninstall(modules: list[nn.Module]) -> None:
    with _lock:
        for module in modules:
            entry = _installed[id(module)]
            entry.users -= 1
            if entry.users:
                continue
            del _installed[id(module)]
            attributes = vars(module)
            for name in ("_call_impl", "forward"):
                if not isinstance(attributes.get(name), StandIn):  # the model may have put something else there
                    continue
                if name in entry.replaced:
                    attributes[name] = entry.replaced[name]
                else:
                    del attributes[name]


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model that shares nothing with it.

    Modules with a computed tensor among their attributes (by `torch.nn.utils.weight_norm`, by pruning) refuse to be
    copied, though they compute it anew in each call: the copy gets the bare value.
    """
    memo: dict[int, Any] = {}
    for _, module in distinct_modules(model):
        for attribute in vars(module).values():
            if isinstance(attribute, torch.Tensor) and attribute.grad_fn is not None:
                memo[id(attribute)] = attribute.detach().clone()
    try:
        return deepcopy(model, memo)
    except Exception as error:  # whatever a module or attribute raises that won't be copied
        raise ArgumentError(
            f"the model can't be copied ({type(error).__name__}: {error}), and this runs it on copies; "
            "log_forward_pass(model, x, check_completeness=True).validate() checks a run of the model itself"
        ) from error
