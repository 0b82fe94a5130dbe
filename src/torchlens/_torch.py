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
    "data_address",
    "function_namespaces",
    "is_wrapped",
    "jagged_parts",
    "lazy_copy",
    "make_per_channel_quantized",
    "make_per_tensor_quantized",
    "mode_stack",
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


def data_address(tensor: Tensor) -> int:
    """Where the memory behind a tensor begins. Asking for it does not end the sharing of a lazy copy."""
    if hasattr(_C, "_data_address"):
        return int(_C._data_address(tensor))
    return tensor.untyped_storage().data_ptr()


make_per_tensor_quantized = torch._make_per_tensor_quantized_tensor
make_per_channel_quantized = torch._make_per_channel_quantized_tensor


def jagged_parts(tensor: Any) -> tuple[Tensor, Tensor, Tensor | None, list[int | None]]:
    """What a nested tensor of the jagged layout is made of: values, offsets, lengths; then the jagged dimension and,
    where they are known, the shortest and the longest length."""
    lengths = [tensor._maybe_min_seqlen, tensor._maybe_max_seqlen]
    return tensor._values, tensor._offsets, tensor._lengths, [tensor._ragged_idx, *lengths]


#: Is this a tensor of `torch.func`'s own (in `vmap`, `grad`), which has no value outside of it?
is_wrapped = _C._functorch.is_functorch_wrapped_tensor


def function_namespaces() -> dict[str, Any]:
    """Where torch keeps the functions that compute something, by the name under which a saved log refers to them."""
    return {
        "torch": _C._VariableFunctions,
        "torch._C._nn": _C._nn,
        "torch._C._linalg": _C._linalg,
        "torch._C._fft": _C._fft,
        "torch._C._special": _C._special,
        "torch._C._sparse": _C._sparse,
        "torch._C._nested": _C._nested,
        "torch.functional": torch.functional,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.init": torch.nn.init,
        "torch.Tensor": torch.Tensor,
    }
