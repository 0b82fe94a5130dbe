"""What calls operations that no torch function mode sees: scripts, transforms, collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad
import torch.distributed
import torch.export
import torch.jit
import torch.overrides
from torch import Tensor

from .operators import namespaces
from .private_name import never, private

_eager_transforms = private("torch._functorch.eager_transforms")
_vmap = private("torch._functorch.vmap")
_operators = private("torch._higher_order_ops.utils")
_MakefxTracer = private("torch.fx.experimental.proxy_tensor._MakefxTracer")

#: What `torch.jit.script` makes of a function.
ScriptFunction: Any = torch.jit.ScriptFunction


def transform_depth() -> int:
    """How many levels of torch.func's transforms and of forward-mode differentiation this thread is in."""
    return int(_transform_depth() + getattr(torch.autograd.forward_ad, "_current_level", -1) + 1)


_transform_depth = private(
    "torch._C._functorch.get_dynamic_layer_stack_depth", part="logging what runs in torch.func's transforms"
)

#: The levels that take no derivatives.
WITHOUT_DERIVATIVES = ("_vmap_increment_nesting", "_func_increment_nesting")

#: Where the levels of torch.func's transforms and of forward-mode differentiation begin: module, name.
transform_levels: list[tuple[Any, str]] = [
    (module, begin)
    for module, begin in (
        (_vmap, "_vmap_increment_nesting"),
        (_eager_transforms, "_grad_increment_nesting"),
        (_eager_transforms, "_jvp_increment_nesting"),
        (_eager_transforms, "_func_increment_nesting"),
        (torch.autograd.forward_ad, "enter_dual_level"),
    )
    if hasattr(module, begin)
]

#: What takes the innermost torch function mode off the stack while a function written in Python asks it: module, name.
mode_poppers: list[tuple[Any, str]] = (
    [(torch.overrides, "_pop_mode_temporarily")] if private("torch.overrides._pop_mode_temporarily") else []
)

_ProcessGroup = getattr(torch.distributed, "ProcessGroup", None)
_COLLECTIVES = (
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced", "all_to_all_single",
    "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced",
    "alltoall", "alltoall_base", "broadcast", "gather", "recv", "recv_anysource", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip

#: Functions that call operations out of sight of a torch function mode: owner, name.
unseen_functions: list[tuple[Any, str]] = [
    (owner, name)
    for owner, name in (
        (ScriptFunction, "__call__"),
        (private("torch._C.ScriptMethod"), "__call__"),
        (namespaces["torch._C._nested"], "nested_tensor"),
        (Tensor, "set_"),
        (_eager_transforms, "_autograd_grad"),  # differentiates after its level has ended, for torch.func.vjp
    )
    if hasattr(owner, name)
]

#: The same, of functions that communicate with other processes.
unseen_collectives: list[tuple[Any, str]] = [
    (owner, name)
    for owner, name in (
        *[(_ProcessGroup, name) for name in _COLLECTIVES],
        (torch.distributed, "_broadcast_coalesced"),
    )
    if hasattr(owner, name)
]

_script_module = private("torch._C.ScriptModule")

#: What makes a program of a function or module: owner, name. The first two are what `torch.jit.trace` is made of,
#: under whatever name it was imported.
program_makers: list[tuple[Any, str]] = [
    (owner, name)
    for owner, name in (
        (private("torch.jit._trace"), "_check_trace"),
        (torch._C, "_create_function_from_trace"),
        (torch._C, "_create_function_from_trace_with_dict"),
        (_script_module, "_create_method_from_trace"),
        (_script_module, "_create_method_from_trace_with_dict"),
        (private("torch.jit._script"), "_script_impl"),
        (torch.export, "export"),
        (_MakefxTracer, "trace"),
    )
    if hasattr(owner, name)
]


def communicates() -> bool:
    """Is there a group of processes to communicate with?"""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


#: What compiles the functions given to `torch.cond` and its like: owner, name.
operator_compiler: tuple[Any, str] | None = (
    (_operators, "_hop_compile_and_call") if hasattr(_operators, "_hop_compile_and_call") else None
)

#: What `torch.utils.swap_tensors` exchanges two tensors with, or that itself: owner, name.
swap_function: tuple[Any, str] = (
    (torch.utils, "swap_tensors") if private("torch._C._swap_tensor_impl") is None else (torch._C, "_swap_tensor_impl")
)


def finished(func: Any) -> Callable[..., Any]:
    """An operation that communicates with other processes, waiting until it is done: only then is its result there."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(part, torch._C.ScriptObject) and func.__name__.split(".")[0] not in ("send", "recv_"):
                torch.distributed.Work.unbox(part).wait()
        return result

    return run


#: Is this a tensor that is valid only inside a transform of torch.func?
is_functorch_wrapped = private("torch._C._functorch.is_functorch_wrapped_tensor", instead=never)

#: What scripts can call, by id: names of operators.
known_to_scripts: Callable[[], dict[int, Any]] = private("torch.jit._builtins._get_builtin_table", instead=dict)
