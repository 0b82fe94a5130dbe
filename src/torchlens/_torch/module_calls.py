"""How torch calls a module, and what `torch.compile` makes of one."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any, ParamSpec, TypeVar

import torch
from torch.nn import Module
from torch.nn.modules import module as _module

from ..errors import ArgumentError
from .private_name import private

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: Where torch's and this package's own code lies; everything else is the user's.
LIBRARY_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)

#: The code that runs when a module is called, before its forward does: the outer function and the inner one.
MODULE_CALL = getattr(private("torch.nn.Module._wrapped_call_impl"), "__code__", None)
MODULE_CALL_INSIDE = torch.nn.Module._call_impl.__code__

#: Decides what runs in place of a Python frame; who is asked about it in this thread (an older torch does not tell).
_frames: Any = private("torch._C._dynamo.eval_frame")
_frame_callback: Any = getattr(_frames, "get_eval_frame_callback", None)


class Stance:
    """What `torch.compile` does from now on, until it is taken back, or somebody has changed it."""

    def __init__(self, name: str) -> None:
        self._frame: Any = importlib.import_module("torch._dynamo.eval_frame")
        self._own = hasattr(self._frame, "_set_stance")
        if self._own:
            self._ours, self._before = self._frame.DynamoStance(name), self._frame._stance
        else:  # before torch 2.6: let nobody choose what runs in place of a Python frame
            self._before = self._frame.set_eval_frame
            choose = torch._C._dynamo.eval_frame.set_eval_frame
            self._ours = (lambda _: choose(None)) if name == "force_eager" else choose

    def set(self) -> None:
        if self._own and _frame_callback is not None and _frame_callback() not in (None, False):
            raise ArgumentError(
                "can't log inside a function that torch.compile compiles; decorate that function with "
                "@torch.compiler.disable"
            )
        if self._own:
            self._frame._set_stance(self._ours)
        else:
            self._chosen = self._before(None)
            self._frame.set_eval_frame = self._ours

    def is_set(self) -> bool:
        return (self._frame._stance if self._own else self._frame.set_eval_frame) is self._ours

    def unset(self) -> None:
        if self.is_set() and self._own:
            self._frame._set_stance(self._before)
        elif self.is_set():
            self._frame.set_eval_frame = self._before
            self._before(self._chosen)


def graph_break(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Have code that `torch.compile` compiles call this function as it is.

    As `torch.compiler.disable`, which would import the compiler now, and that takes seconds.
    """

    @wraps(function)
    def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        nobody = _frame_callback is not None and _frame_callback() in (None, False)
        if nobody or "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        disable: Any = torch.compiler.disable
        result: _Result = disable(_outside_compiled_code)(function, *args, **kwargs)
        return result

    vars(called)["_torchdynamo_disable"] = True
    _skip_code(getattr(called, "__code__"))  # noqa: B009
    return called


def _skip_code(code: CodeType) -> None:
    """Frames that run this code are not compiled."""
    if hasattr(_frames, "skip_code"):  # until torch 2.6
        _frames.skip_code(code)
    elif hasattr(_frames, "_FrameExecStrategy"):
        action = _frames._FrameAction
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(action.SKIP, action.DEFAULT))


def _outside_compiled_code(function: Callable[_Arguments, _Result], /, *args: Any, **kwargs: Any) -> _Result:
    """Call the function. What it returns will be used in compiled code: nothing of this package is to be compiled."""
    rules: Any = importlib.import_module("torch._dynamo.trace_rules")
    if LIBRARY_FOLDERS[1][:-1] not in map(os.path.normpath, getattr(rules, "SKIP_DIRS", ())):
        rules.add(__name__.partition(".")[0])
    return function(*args, **kwargs)


def any_global_hook() -> bool:
    """Are there hooks that run with the call of any module?"""
    if hasattr(_module, "_has_any_global_hook"):
        return bool(_module._has_any_global_hook())  # type: ignore[no-untyped-call]
    return any(getattr(_module, name) for name in _GLOBAL_HOOKS)  # torch 2.4


#: Where `torch.nn.modules.module` keeps the hooks that run with the call of any module.
_GLOBAL_HOOKS = ("_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_pre_hooks",
                 "_global_forward_hooks", "_global_forward_hooks_always_called")  # fmt: skip


#: The module where `torch.compile` defines what it wraps around others; importing it takes seconds.
COMPILER = "torch._dynamo.eval_frame"


def inside_compiled(module: Module) -> Module:
    """The module that `torch.compile` has wrapped; any other module itself."""
    dynamo = sys.modules.get(COMPILER)
    while dynamo is not None and isinstance(module, dynamo.OptimizedModule):
        module = module._orig_mod
    return module


def has_call_of_its_own(module: torch.nn.Module) -> bool:
    """Does more happen when a module is called than that its forward runs: hooks, a class that does it in its way?"""
    return has_hooks(module) or calls_in_its_way(type(module))


#: Where a module keeps its hooks.
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")

#: The class of what `nn.Module` returns when a hook is registered: the namespace where it looks for it, and its name.
hook_handle = (vars(_module), "RemovableHandle")


def has_hooks(module: torch.nn.Module) -> bool:
    own = vars(module).get  # asked of every module before a run: a module itself takes longer to look them up
    before, after = own("_forward_pre_hooks"), own("_forward_hooks")
    return bool(before or after or own("_backward_hooks") or own("_backward_pre_hooks"))


def calls_in_its_way(kind: type[torch.nn.Module]) -> bool:
    """Does a class define what happens when a module is called?"""
    return kind._call_impl is not torch.nn.Module._call_impl
