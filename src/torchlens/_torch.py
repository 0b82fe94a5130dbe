"""The only file that touches torch's private names; everything else goes through here."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.nn import parameter as _parameter

__all__ = [
    "LIBRARY_FOLDERS",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "ScriptFunction",
    "UninitializedTensorMixin",
    "any_autocast",
    "autocast_state",
    "call_without",
    "lazy_copy",
    "mode_stack",
    "neg_view",
    "no_torch_function",
    "pop_mode",
    "push_mode",
    "storage_address",
]

_C: Any = torch._C

#: Where torch's and this package's own code lies; everything else is the user's.
LIBRARY_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)

#: What `torch.jit.script` makes of a function.
ScriptFunction: Any = _C.ScriptFunction

#: What the parameters of a lazy module are until its first call.
UninitializedTensorMixin: Any = _parameter.UninitializedTensorMixin  # type: ignore[attr-defined]

#: Inside this context neither a torch function mode nor a tensor subclass sees what is called.
no_torch_function = _C.DisableTorchFunction

push_mode = _C._push_on_torch_function_stack
pop_mode = _C._pop_torch_function_stack

_dispatch_stack_size = _C._len_torch_dispatch_stack
_dispatch_mode_at = _C._get_dispatch_stack_at
_pop_dispatch_mode = _C._pop_torch_dispatch_stack
_push_dispatch_mode = _C._push_on_torch_dispatch_stack

#: Where a tensor's storage object lives: equal for tensors that share memory. Raises for layouts without storage.
storage_address = _C._storage_address


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone()


#: A copy that shares memory until someone asks to write on either side. Raises where memory is not torch's own.
lazy_copy = getattr(torch, "_lazy_clone", _copy)


def call_without(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function without this dispatch mode, if it is the innermost one."""
    size = _dispatch_stack_size()
    if not size or _dispatch_mode_at(size - 1) is not mode:
        return func(*args, **kwargs)
    _pop_dispatch_mode(None)
    try:
        return func(*args, **kwargs)
    finally:
        _push_dispatch_mode(mode)


#: The negative of a tensor without touching its memory, as `x.conj().imag` is.
neg_view: Any = torch._neg_view


def mode_stack() -> list[Any]:
    """The torch function modes of this thread, outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


#: Is autocast on, for any device?
any_autocast = _C._is_any_autocast_enabled


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """The devices for which autocast is on, each with its dtype."""
    devices = ("cpu", "cuda", "mps", "xpu")
    return tuple((d, torch.get_autocast_dtype(d)) for d in devices if torch.is_autocast_enabled(d))
