"""Operators: their schemas, their namespaces, those that call functions of the user's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional
from torch.utils._python_dispatch import TorchDispatchMode

from .modes import dispatch_mode_at, dispatch_stack_size
from .private_name import Nothing, private

_pytree_nodes: dict[type, Any] = private("torch.utils._pytree.SUPPORTED_NODES", instead={})

#: What `torch.cond` and its like are.
HigherOrderOperator: Any = private("torch._ops.HigherOrderOperator", instead=Nothing)

#: What `torch.ops.aten.add.Tensor` and `torch.ops.aten.add` are.
OpOverload: Any = type(torch.ops.aten.add.Tensor)
OpOverloadPacket: Any = type(torch.ops.aten.add)

_variable_functions = private("torch._C._VariableFunctions", instead=torch)
namespaces = {
    f"torch._C.{name}": private(f"torch._C.{name}")
    for name in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")
}


def function_namespaces() -> dict[str, Any]:
    """Where torch keeps the functions that compute something, by the name under which a saved log refers to them."""
    return {
        "torch": _variable_functions,
        **{name: namespace for name, namespace in namespaces.items() if namespace is not None},
        "torch.functional": torch.functional,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.init": torch.nn.init,
        "torch.Tensor": torch.Tensor,
    }


def higher_order_kernel(func: Any) -> Callable[..., Any] | None:
    """What a higher-order operator such as `torch.cond` does when nobody transforms it: plain Python that calls its
    functions. None if it has no such form."""
    if dispatch_stack_size() and _takes_any_mode(func):  # it comes first, and calls again what it has seen
        return lambda *args, **kwargs: func.dispatch(torch._C.DispatchKey.Python, *args, **kwargs)
    kernel: Callable[..., Any] | None = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    return kernel


def pytree_members(thing: Any) -> list[Any]:
    """What is in an object whose class is registered with torch's pytree; nothing otherwise."""
    node = _pytree_nodes.get(type(thing))
    return list(node.flatten_fn(thing)[0]) if node is not None else []


def pytree_rebuilt(thing: Any, members: list[Any]) -> Any:
    """An object of such a class, with other members."""
    node = _pytree_nodes[type(thing)]
    return node.unflatten_fn(members, node.flatten_fn(thing)[1])


def schemas_of(operator: str) -> list[Any]:
    """The schemas of an operator such as "aten::add_", one for each overload; none if there is no such operator.

    Some names are also those of functions of TorchScript's, on lists and dicts: these are left out.
    """
    if _schemas is None or _has_kernel is None:
        return _schemas_of_overloads(operator)
    return [
        schema
        for schema in _schemas(operator)
        if _has_kernel(f"{operator}.{schema.overload_name}" if schema.overload_name else operator)
    ]


_schemas = private("torch._C._jit_get_schemas_for_operator")
_has_kernel = private("torch._C._dispatch_has_kernel")


def _schemas_of_overloads(operator: str) -> list[Any]:
    namespace, _, name = operator.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return [getattr(packet, overload)._schema for overload in packet.overloads()] if packet is not None else []


def _takes_any_mode(func: Any) -> bool:
    """Can the innermost dispatch mode be asked about this operator? In torch 2.4 only those that it was told of."""
    known = getattr(func, "python_key_mode_table", None)
    return known is None or type(dispatch_mode_at(dispatch_stack_size() - 1)) in known


def hand_operators_to(kind: type) -> None:
    """Let dispatch modes of this class get higher-order operators as they get all others.

    Older versions of torch have a table of modes in each such operator, and refuse one that is not in it.
    """
    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        return
    for operator in _higher_order_operators.values():
        modes = getattr(operator, "python_key_table", None) or getattr(operator, "python_key_mode_table", {})
        if kind not in modes:
            modes[kind] = partial(_handed_over, operator)


def _handed_over(operator: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
    return mode.__torch_dispatch__(operator, (), args, kwargs)


_higher_order_operators: dict[str, Any] = private("torch._ops._higher_order_ops", instead={})
