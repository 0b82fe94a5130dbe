"""Torch's own functions by name: the only functions that a loaded log can call.

A bundle stores names, such as "torch._C._nn.linear". They are looked up in a table of torch's own functions; a name
that is not in the table can be shown, but not called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from .._torch import OpOverload, OpOverloadPacket, function_namespaces
from ..capture.functions import TENSOR_PROPERTIES
from ..errors import UnknownFunctionError

_CALLABLE = (BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType)

#: Excluded: they compute nothing, or reach beyond their arguments (files, Python objects, autograd, other processes).
_DENIED = {
    "__class__", "__delattr__", "__dir__", "__getattribute__", "__init__", "__init_subclass__", "__new__", "__reduce__",
    "__reduce_ex__", "__setattr__", "__setstate__", "__subclasshook__", "__torch_dispatch__", "__torch_function__",
    "_make_subclass", "_make_wrapper_subclass", "_reduce_ex_internal", "apply_", "backward", "data_ptr", "from_file",
    "has_torch_function", "map2_", "map_", "register_hook", "register_post_accumulate_grad_hook", "share_memory_",
    "handle_torch_function", "import_module", "module_load",
}  # fmt: skip

_ATEN = re.compile(r"torch\.ops\.aten\.(\w+)(?:\.(\w+))?", re.ASCII)


class UnknownFunction:
    """Placeholder for a function that a saved log names and that is not one of torch's own."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnknownFunctionError(
            f"{self.__name__} is not one of torch's own functions, and a loaded log calls no others: its results "
            "can be read, but not recomputed"
        )

    def __repr__(self) -> str:
        return f"UnknownFunction({self.__name__})"


def torch_name(function: Any) -> str | None:
    """The name of one of torch's own functions; None for all others."""
    if isinstance(function, (OpOverload, OpOverloadPacket)):
        name = f"torch.ops.{function}"
        return name if find(name) is function else None
    return _names().get(_key(function))


def find(name: str) -> Any:
    """Torch's own function with this name; None if there is none."""
    aten = _ATEN.fullmatch(name)
    if aten is None:
        return _functions().get(name)
    operator, overload = aten.groups()
    packet: Any = None if operator in _DENIED else getattr(torch.ops.aten, operator, None)
    if not isinstance(packet, OpOverloadPacket):
        return None
    if overload is None:
        return packet
    overloads: Any = packet.overloads
    return getattr(packet, overload) if overload in overloads() else None


@cache
def _functions() -> dict[str, Any]:
    return dict(_own())


@cache
def _names() -> dict[Any, str]:
    return {_key(function): name for name, function in reversed(_functions().items())}


def _key(function: Any) -> Any:
    """Every access to a built-in method makes a new bound method: they compare equal, but some can't be hashed."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def _own() -> Iterator[tuple[str, Any]]:
    for namespace, owner in function_namespaces().items():
        for name in dir(owner):
            function = getattr(owner, name, None)
            if isinstance(function, _CALLABLE) and name not in _DENIED and _is_torchs(function):
                yield f"{namespace}.{name}", function
    for name in TENSOR_PROPERTIES:
        descriptor = next(vars(kind)[name] for kind in torch.Tensor.__mro__ if name in vars(kind))
        for access in ("__get__", "__set__"):
            yield f"torch.Tensor.{name}.{access}", getattr(descriptor, access)


def _is_torchs(function: Any) -> bool:
    """Is it torch's own? Python functions that a namespace merely imports are not."""
    return not isinstance(function, FunctionType) or function.__module__ in _WRITTEN_IN_PYTHON


_WRITTEN_IN_PYTHON = {"torch._tensor", "torch.functional", "torch.nn.functional", "torch.nn.init"}
