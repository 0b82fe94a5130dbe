"""The only file that touches torch's private names; everything else goes through here."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
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
    "current_backward",
    "hook_node_output",
    "is_functorch_wrapped",
    "lazy_copy",
    "mode_stack",
    "no_torch_function",
    "pop_mode",
    "push_mode",
    "saved_for_backward",
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

#: Where a tensor's storage object lives: equal for tensors that share memory. Raises for layouts without storage.
storage_address = _C._storage_address


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone()


#: A copy that shares memory until someone asks to write on either side. Raises where memory is not torch's own.
lazy_copy = getattr(torch, "_lazy_clone", _copy)


def mode_stack() -> list[Any]:
    """The torch function modes of this thread, outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


#: Is autocast on, for any device?
any_autocast = _C._is_any_autocast_enabled


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """The devices for which autocast is on, each with its dtype."""
    devices = ("cpu", "cuda", "mps", "xpu")
    return tuple((d, torch.get_autocast_dtype(d)) for d in devices if torch.is_autocast_enabled(d))


# ---- autograd -------------------------------------------------------------------------------------------------

#: A number for the backward pass that this thread is in; -1 if it is in none.
current_backward = _C._current_graph_task_id

#: Is this a tensor that is valid only inside a transform of torch.func?
is_functorch_wrapped = _C._functorch.is_functorch_wrapped_tensor


def hook_node_output(node: Any, output: int, hook: Callable[[Tensor], None]) -> Callable[[], None]:
    """Hook one output of an autograd node as `Tensor.register_hook` does, without the tensor; return how to undo it."""
    hooks = OrderedDict({0: hook})
    # What is registered is a dict of hooks taken from a tensor, and the place of that tensor among the outputs of the
    # node that made it: any tensor with that place will do.
    with torch.enable_grad():
        stand_in = torch.empty(0) if output == 0 else torch.empty(output + 1, requires_grad=True).unbind()[output]
    stand_in._backward_hooks = hooks  # type: ignore[assignment]
    node._register_hook_dict(stand_in)
    return hooks.clear


def saved_for_backward(node: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an autograd node keeps, as they are: what hooks have put away is not fetched back."""
    for name in _names_of_saved(type(node)):
        saved = getattr(node, "_raw_saved_" + name)
        for each in saved if isinstance(saved, (tuple, list)) else [saved]:
            if each.unpack_hook is None and isinstance(each.data, Tensor):
                yield name, each.data


@lru_cache
def _names_of_saved(kind: type) -> list[str]:
    return [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]
