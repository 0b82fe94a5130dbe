"""Record one call of one submodule, while the rest of the model runs plainly."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from ..errors import ArgumentError, LayerNotFoundError, near
from ..options import Options
from ..words import counted
from . import rng
from .changes import Changes, Replaced, between
from .keeping import ValueSink
from .modules import named_modules
from .observer import Observer
from .session import RunResult, run_traced
from .surroundings import EAGER


def trace_of(
    model: nn.Module,
    module: str | None,
    args: list[Any],
    kwargs: dict[str, Any],
    options: Options,
    sink: ValueSink | None = None,
    observers: tuple[Observer, ...] = (),
) -> RunResult:
    """Run the model once; return the trace of that, or of one call of a submodule in it, and what the model raised.

    The trace of a submodule is the same as if it had been logged by itself, with what the model gave it. `"core:2"`
    means its second call. What the model raises before that call is raised.
    """
    if module is None:
        return run_traced(model, args, kwargs, options, sink, observers)
    name, number = _address(module)
    wanted = _OneCall(_submodule(model, name), number, dataclasses.replace(options, random_seed=None), sink, observers)
    seed = rng.seed_generators(options.random_seed)
    error = None
    try:
        waiting = wanted.waiting()
        between(waiting.begin, partial(model, *args, **kwargs), waiting.end)
    except BaseException as raised:
        error = raised
    if wanted.run is None:
        times = "never" if not wanted.calls else f"only {counted(wanted.calls, 'time')}"
        raise error or LayerNotFoundError(f"module {module!r} can't be logged: {name} was called {times}")
    trace = wanted.run.trace
    trace.seed, trace.submodule = seed, module
    if ":" not in module and wanted.calls > 1:
        trace.warnings.append(
            f"{name} was called {wanted.calls} times; this is its first call. For another one: module='{name}:2'"
        )
    return wanted.run._replace(error=error)


def _address(address: str) -> tuple[str, int]:
    name, colon, number = address.rpartition(":") if isinstance(address, str) else ("", ":", "")
    if not colon:
        return address, 1
    if not number.isdigit() or int(number) < 1:
        raise ArgumentError(
            f"module must be an address, or an address with a call number such as 'core:2', not {address!r}"
        )
    return name, int(number)


def submodule(model: nn.Module, address: str) -> nn.Module:
    """The submodule at an address, which may have the number of a call (`core:2`)."""
    return _submodule(model, _address(address)[0])


def _submodule(model: nn.Module, name: str) -> nn.Module:
    modules: dict[str, nn.Module] = dict(named_modules(model))
    if name not in modules:
        hint = near(name, filter(None, modules)) or "; print the model to see its modules"
        raise LayerNotFoundError(f"no module {name!r}{hint}")
    if isinstance(modules[name], torch.jit.ScriptModule):
        raise ArgumentError(f"{name} is a scripted module, which can only be logged with the whole model")
    return modules[name]


class _Waiting(Replaced):
    """The change that puts a stand-in for `_call_impl` on a module, to wait for one of its calls."""

    def __init__(self, call: _OneCall, module: nn.Module) -> None:
        super().__init__(vars(module), "_call_impl", lambda method, switch: call.stand_in_for(method))
        self.key = (id(call), "waiting")
        self._inherited = type(module)._call_impl.__get__(module)

    def _original(self) -> Any:
        return self._owner.get(self._name, self._inherited)


class _OneCall:
    """Stands in for a module's `_call_impl` until the wanted call comes, and records that one."""

    def __init__(
        self, module: nn.Module, number: int, options: Options, sink: ValueSink | None, observers: tuple[Observer, ...]
    ) -> None:
        self.calls = 0
        self.run: RunResult | None = None
        self._module = module
        self._number = number
        self._options = options
        self._sink = sink
        self._observers = observers
        self._thread = threading.get_ident()
        self._inside = False  # a recursive module calls itself: that is part of its call

    def waiting(self) -> Changes:
        return Changes([*EAGER, _Waiting(self, self._module)])

    def stand_in_for(self, method: Callable[..., Any]) -> _OneCall:
        self._method = method
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._inside or threading.get_ident() != self._thread:
            return self._method(*args, **kwargs)
        self.calls += 1
        self._inside = True
        try:
            return self._record(args, kwargs) if self.calls == self._number else self._method(*args, **kwargs)
        finally:
            self._inside = False

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call, and give the model what it returned."""
        results: list[Any] = []
        hook = self._module.register_forward_hook(lambda module, args, result: results.append(result))
        try:
            self.run = run_traced(self._module, list(args), kwargs, self._options, self._sink, self._observers)
        finally:
            hook.remove()
        if self.run.error is not None:
            raise self.run.error
        return results[-1]
