"""Which module, and which call of it, is running?

While a capture runs, each module of the model has an instance attribute `forward` that stands in for its method and
reports when a call begins and ends; a module with hooks also has one for `_call_impl`, which runs them, so that they
are inside the module's call. They are installed once, however many captures are running in however many threads, and
the last capture to end removes them. Compared with hooks this is cheaper and sees `module.forward(x)` called directly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import nn

from .._torch import (
    HOOKS,
    any_global_hook,
    call_with_grad,
    calls_in_its_way,
    has_hooks,
    hook_handle,
    inside_compiled,
)
from ..errors import ArgumentError
from .changes import Change, Replaced, Switch, made, tell
from .records import ModuleCall


class ModuleWatcher(Protocol):
    """What a stand-in reports to."""

    def enter_module(
        self, module: nn.Module, is_forward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ModuleCall | None: ...

    def leave_module(self, call: ModuleCall, result: Any) -> Any: ...  # what the caller gets

    def abandon_module(self, call: ModuleCall) -> None: ...  # it raised


def named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module of a model with its address, under each of its names, parents first.

    Like `model.named_modules(remove_duplicate=False)`, but by identity: a class may define equality for its modules,
    and then torch's own loop merges equal modules, or fails because they have no hash. What `torch.compile` wraps
    around a module is left out: the module inside has its address.
    """
    return _modules_under(model)


def _modules_under(model: nn.Module) -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    _add_modules(model, "", (), found)
    return found


def _add_modules(module: nn.Module, address: str, above: tuple[int, ...], found: list[tuple[str, nn.Module]]) -> None:
    module = inside_compiled(module)
    if id(module) in above:  # a module that is registered inside itself
        return
    found.append((address, module))
    inside, prefix = (*above, id(module)), address and f"{address}."
    for name, child in module._modules.items():
        if child is not None:
            _add_modules(child, prefix + name, inside, found)


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


class WatchedHere:
    """The calls that this thread makes, of modules with stand-ins, are reported to `watcher`."""

    def __init__(self, watcher: ModuleWatcher) -> None:
        self.key = (id(watcher), "watcher")
        self._watcher = watcher

    def make(self) -> None:
        self.undo()
        _watchers.here = [*_watchers.here, self._watcher]

    def undo(self) -> None:
        _watchers.here = [watcher for watcher in _watchers.here if watcher is not self._watcher]


def watchers_here() -> list[ModuleWatcher]:
    """The watchers that module calls of this thread are reported to."""
    return _watchers.here


class StandIn:
    """Stands in for a bound method of a module, `_call_impl` or `forward`."""

    __slots__ = ("attributes", "before", "called", "name")

    def __init__(self, module: nn.Module, name: str, attributes: dict[str, Any]) -> None:
        # The module, or nobody when this is out of use; is it forward; the method. Together: a class with `__getattr__`
        # looks up every attribute slowly, and these are wanted in each call.
        self.called: tuple[nn.Module, bool, Callable[..., Any]] = (module, name == "forward", getattr(module, name))
        self.name = name
        self.attributes, self.before = attributes, attributes.get(name)  # an instance attribute that was there before

    @property
    def module(self) -> nn.Module:
        return self.called[0]

    @property
    def is_forward(self) -> bool:
        return self.called[1]

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.called[2]  # code that asks for the signature of forward gets it

    def retire(self) -> None:
        self.called = (_NOBODY, *self.called[1:])
        self.hide()

    def hide(self) -> None:
        name, attributes = self.name, self.attributes
        if attributes.get(name) is not self:  # the model has put something else there
            return
        if self.before is None:
            del attributes[name]
        else:
            attributes[name] = self.before

    def __getattr__(self, name: str) -> Any:
        if name == "called":  # while a copy of this object is being made, it is not there yet
            raise AttributeError(name)
        return getattr(self.called[2], name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        watchers = _watchers.here
        module, is_forward, method = self.called
        if len(watchers) == 1:  # as below, in short
            only = watchers[0]
            call = only.enter_module(module, is_forward, args, kwargs)
            if call is None:
                return method(*args, **kwargs)
            try:
                result = method(*args, **kwargs)
            except BaseException:
                only.abandon_module(call)
                raise
            return only.leave_module(call, result)
        calls: list[tuple[ModuleWatcher, Any]] = []
        try:
            for watcher in watchers:
                call = watcher.enter_module(module, is_forward, args, kwargs)
                if call is not None:
                    calls.append((watcher, call))
            result = method(*args, **kwargs)
        except BaseException:
            with ExitStack() as stack:
                for watcher, call in calls:
                    stack.callback(watcher.abandon_module, call)
            raise
        return _left(calls, result)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """If a model copies one of its modules in forward, the copy must call itself, not the original."""
        copied_model = memo.get(id(self.module), self.module)
        return getattr(type(copied_model), "forward" if self.is_forward else "_call_impl").__get__(copied_model)


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


class _Nobody(nn.Module):
    """The watcher of a stand-in that is out of use: ignores everything."""


_NOBODY = _Nobody()


class StandInsPut:
    """The change that puts stand-ins for methods among the instance attributes of modules.

    Where another capture has put one, that one serves both, and the last of the two to end removes it.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.key = (id(self), "stand-ins")
        self._modules = modules
        self.put: list[StandIn] = []

    def make(self) -> None:
        anywhere = any_global_hook()
        kinds = set(map(type, self._modules))
        add_stand_ins(self._modules, {kind: _to_replace(kind, anywhere) for kind in kinds}, self.put)

    def undo(self) -> None:
        others = [stand_in for each in _stand_ins_put() if each is not self for stand_in in each.put]
        retire_stand_ins(self.put, set(map(id, others)))

    def hook_added(self, hooks: Any) -> None:
        """A hook is about to be added to one of the dicts that modules keep theirs in: let the calls of that module
        include the hooks."""
        for stand_in in [each for each in self.put if each.is_forward]:
            if any(stand_in.attributes.get(name) is hooks for name in HOOKS):
                _add_stand_in(stand_in.module, "_call_impl", self.put)


_FORWARD, _WITH_HOOKS = ("forward",), ("_call_impl", "forward")


# prepare.c has these two functions as well, and `_modules_under`.


def add_stand_ins(modules: Sequence[nn.Module], to_replace: dict[type, tuple[str, ...]], put: list[StandIn]) -> None:
    """Put stand-ins for methods, by the classes of their modules, and add them to a list."""
    for module in modules:
        names = to_replace[type(module)]
        for name in _WITH_HOOKS if names is _FORWARD and has_hooks(module) else names:
            _add_stand_in(module, name, put)


def retire_stand_ins(put: list[StandIn], still_used: set[int]) -> None:
    """Remove stand-ins, except for those of which the ids are given."""
    for stand_in in put:
        if id(stand_in) not in still_used:
            stand_in.retire()


def _add_stand_in(module: nn.Module, name: str, put: list[StandIn]) -> None:
    attributes = vars(module)
    there = attributes.get(name)
    if type(there) is StandIn and there.module is module:
        put.append(there)
    else:
        stand_in = StandIn(module, name, attributes)
        put.append(stand_in)
        attributes[name] = stand_in


def _to_replace(kind: type[nn.Module], hooks_anywhere: bool) -> tuple[str, ...]:
    if issubclass(kind, torch.jit.ScriptModule):
        return ("_call_impl",)
    return _WITH_HOOKS if hooks_anywhere or calls_in_its_way(kind) else _FORWARD


def _stand_ins_put() -> list[StandInsPut]:
    return [change for change in made() if isinstance(change, StandInsPut)]


def hide_stand_ins() -> tuple[list[ModuleWatcher], list[StandInsPut]]:
    """Remove the stand-ins for a while, in which module calls of this thread are not reported."""
    hidden = _stand_ins_put()
    watchers, _watchers.here = _watchers.here, []
    for each in hidden:
        for stand_in in each.put:
            stand_in.hide()
    return watchers, hidden


def show_stand_ins(hidden: tuple[list[ModuleWatcher], list[StandInsPut]]) -> None:
    _watchers.here = hidden[0]
    still = _stand_ins_put()
    for each in hidden[1]:
        if each in still:
            for stand_in in each.put:
                stand_in.attributes[stand_in.name] = stand_in


def new_hooks_noticed() -> Change:
    """A model may register a hook on one of its modules while it runs: from then on, its calls include the hooks.

    What is replaced is the name by which `nn.Module` makes the handle of a hook, not its methods: whenever a class is
    changed, Python has to look up anew what it knew of the class and of all that are derived from it.
    """
    return Replaced(*hook_handle, _registering)


def _registering(handle: Callable[..., Any], switch: Switch) -> Callable[..., Any]:
    def noticed(hooks: Any, *args: Any, **kwargs: Any) -> Any:
        if switch.on:
            tell(StandInsPut, lambda put: put.hook_added(hooks))
        return handle(hooks, *args, **kwargs)

    return noticed


def copied_model(model: nn.Module) -> nn.Module:
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
        copy: nn.Module = call_with_grad(torch.is_grad_enabled(), deepcopy, model, memo)  # torch changes it meanwhile
        return copy
    except Exception as error:  # whatever a module or attribute raises that won't be copied
        raise ArgumentError(
            f"this function runs copies of the model, which can't be copied ({type(error).__name__}: {error}); "
            "log_forward_pass(model, x, check_completeness=True).validate() checks a run of the model itself"
        ) from error
