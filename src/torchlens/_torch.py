"""The only file that touches torch's private names; everything else goes through here.

A version of torch may lack any of them. `private` looks one up, and says what is done where it is missing: something
else that does the same, or a `TorchVersionError` from the part that needs it, when that part is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache, partial
from itertools import chain, repeat, starmap
from typing import Any, TypeVar

import torch
import torch.autograd.forward_ad
import torch.distributed
import torch.export
import torch.jit
import torch.nn.functional
import torch.overrides
from torch import Tensor
from torch.nn import Module
from torch.nn import parameter as _parameter
from torch.nn.modules import module as _module
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import TorchVersionError

__all__ = [
    "ACCELERATORS",
    "LIBRARY_FOLDERS",
    "MODULE_CALL",
    "MODULE_CALL_INSIDE",
    "FakeTensor",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "ScriptFunction",
    "Stance",
    "StorageWeakRef",
    "UninitializedTensorMixin",
    "any_autocast",
    "any_global_hook",
    "as_class",
    "autocast_dtypes",
    "autocast_state",
    "call_with_grad",
    "call_without",
    "communicates",
    "current_backward",
    "data_address",
    "dispatch_stack",
    "finished",
    "function_namespaces",
    "grad_scope",
    "hand_operators_to",
    "has_call_of_its_own",
    "higher_order_kernel",
    "hook_node_output",
    "inference_scope",
    "inside_compiled",
    "is_functorch_wrapped",
    "is_overriding",
    "is_zero_tensor",
    "jagged_parts",
    "known_to_scripts",
    "lazy_copy",
    "make_per_channel_quantized",
    "make_per_tensor_quantized",
    "mode_stack",
    "neg_view",
    "no_torch_function",
    "operator_compiler",
    "others_accelerator",
    "overriding_nothing",
    "pop_mode",
    "program_makers",
    "push_dispatch_mode",
    "push_mode",
    "put_modes",
    "pytree_members",
    "pytree_rebuilt",
    "references",
    "remove_modes",
    "saved_for_backward",
    "schemas_of",
    "set_autocast",
    "set_autocast_dtypes",
    "set_grad_enabled",
    "shares_lazily",
    "storage_address",
    "swap_function",
    "tells_what_is_saved",
    "transform_depth",
    "transform_levels",
    "unseen_collectives",
    "unseen_functions",
    "without_dispatch_modes",
]

T = TypeVar("T")

_C: Any = torch._C

#: The private names that are looked up.
NAMES: list[str] = []


def private(name: str, *, instead: Any = None, part: str | None = None) -> Any:
    """torch's own `name`. Where this torch has none: `instead`; or, for a `part` of this package that can't be without,
    a function that raises `TorchVersionError`."""
    NAMES.append(name)
    try:
        return _find(name)
    except (AttributeError, ImportError):
        return instead if part is None else _missing(name, part)


def _find(name: str) -> Any:
    found: Any = torch
    path = "torch"
    for step in name.split(".")[1:]:
        path += f".{step}"
        found = getattr(found, step) if hasattr(found, step) else importlib.import_module(path)
    return found


def _missing(name: str, part: str) -> Callable[..., Any]:
    def raise_(*args: Any, **kwargs: Any) -> Any:
        raise TorchVersionError(
            f"torch {torch.__version__} has no {name}, without which {part} is not available; "
            "a torch of the range that this package is tested with has it"
        )

    return raise_


class _Nothing:
    """Stands for a class that this torch does not have: nothing is an instance of it."""

    def __call__(self) -> None:
        raise AssertionError("there is nothing to call")


def _never(tensor: Tensor) -> bool:
    return False


_eager_transforms = private("torch._functorch.eager_transforms")
_vmap = private("torch._functorch.vmap")
_operators = private("torch._higher_order_ops.utils")
_MakefxTracer = private("torch.fx.experimental.proxy_tensor._MakefxTracer")
_pytree_nodes: dict[type, Any] = private("torch.utils._pytree.SUPPORTED_NODES", instead={})
without_dispatch_modes = private("torch.utils._python_dispatch._disable_current_modes", instead=nullcontext)

#: What `torch.cond` and its like are.
HigherOrderOperator: Any = private("torch._ops.HigherOrderOperator", instead=_Nothing)

#: What `torch.ops.aten.add.Tensor` and `torch.ops.aten.add` are.
OpOverload: Any = type(torch.ops.aten.add.Tensor)
OpOverloadPacket: Any = type(torch.ops.aten.add)

FakeTensor: Any = private("torch._subclasses.fake_tensor.FakeTensor", instead=_Nothing)

#: Where torch's and this package's own code lies; everything else is the user's.
LIBRARY_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)

#: The code that runs when a module is called, before its forward does: the outer function and the inner one.
MODULE_CALL = getattr(private("torch.nn.Module._wrapped_call_impl"), "__code__", None)
MODULE_CALL_INSIDE = torch.nn.Module._call_impl.__code__

#: Lets go of a storage's memory, but not of the address of what describes it. `expired()` tells when it is gone.
StorageWeakRef: Any = private("torch.multiprocessing.reductions.StorageWeakRef", part="logging a forward pass")

#: What `torch.jit.script` makes of a function.
ScriptFunction: Any = torch.jit.ScriptFunction

#: What the parameters of a lazy module are until its first call.
UninitializedTensorMixin = (_parameter.UninitializedParameter, _parameter.UninitializedBuffer)

_LOGGING = "logging a forward pass"

#: Inside this context neither a torch function mode nor a tensor subclass sees what is called.
no_torch_function = private("torch._C.DisableTorchFunction", part=_LOGGING)

push_mode = private("torch._C._push_on_torch_function_stack", part=_LOGGING)
pop_mode = private("torch._C._pop_torch_function_stack", part=_LOGGING)

_function_modes = private("torch._C._len_torch_function_stack", part=_LOGGING)
_function_mode_at = private("torch._C._get_function_stack_at", part=_LOGGING)

set_grad_enabled = private("torch._C._set_grad_enabled", instead=torch.set_grad_enabled)

#: Inside this context inference mode is on or off; when it ends, grad mode and autocast are as they were, too. It is
#: not written in Python, so that no signal can interrupt its beginning or its end.
inference_scope = private("torch._C._InferenceMode", instead=torch.inference_mode)


def grad_scope() -> Any:
    """A context in which grad mode may be set: when it ends, that is as before.

        with grad_scope():
            set_grad_enabled(False)
            ...

    Unlike `with torch.no_grad():`, whose beginning and end are written in Python, no signal leaves it changed.
    """
    return inference_scope(torch.is_inference_mode_enabled())


def call_with_grad(enabled: bool, func: Callable[..., T], *args: Any) -> T:
    """Call a function with autograd on or off. Unlike `torch.no_grad()`, no signal leaves that changed."""
    before = torch.is_grad_enabled()
    try:
        set_grad_enabled(enabled)
        return func(*args)
    finally:
        set_grad_enabled(before)


_BELOW = "checking completeness, or logging TorchScript and torch.func's transforms,"
_dispatch_stack_size = private("torch._C._len_torch_dispatch_stack", instead=lambda: 0)
_dispatch_mode_at = private("torch._C._get_dispatch_stack_at", part=_BELOW)
_pop_dispatch_mode = private("torch._C._pop_torch_dispatch_stack", part=_BELOW)
push_dispatch_mode = private("torch._C._push_on_torch_dispatch_stack", part=_BELOW)
# One without the others is of no use.
for _each in ("DisableTorchFunction", "_pop_torch_function_stack", "_get_function_stack_at"):
    if not hasattr(_C, _each):
        _function_modes = _missing(f"torch._C.{_each}", _LOGGING)
for _each in ("_len_torch_dispatch_stack", "_get_dispatch_stack_at", "_pop_torch_dispatch_stack"):
    if not hasattr(_C, _each):
        push_dispatch_mode = _missing(f"torch._C.{_each}", _BELOW)


def remove_modes(unwanted: Callable[[Any], bool]) -> None:
    """Take modes away from this thread, wherever they are among others."""
    functions, dispatched = mode_stack(), dispatch_stack()
    if any(map(unwanted, [*functions, *dispatched])):
        put_modes([m for m in functions if not unwanted(m)], [m for m in dispatched if not unwanted(m)])


def put_modes(functions: list[Any], dispatched: list[Any]) -> None:
    """Let this thread have these modes and no others: in one step, which no signal can interrupt, since it is one call
    of a function that is not written in Python."""
    old, old_dispatched = repeat((), _function_modes()), repeat((None,), _dispatch_stack_size())
    popping = chain(starmap(pop_mode, old), starmap(_pop_dispatch_mode, old_dispatched))
    deque(chain(popping, map(push_mode, functions), map(push_dispatch_mode, dispatched)), 0)


def dispatch_stack() -> list[Any]:
    """The dispatch modes of this thread, outermost first."""
    return [_dispatch_mode_at(place) for place in range(_dispatch_stack_size())]


def transform_depth() -> int:
    """How many levels of torch.func's transforms and of forward-mode differentiation this thread is in."""
    return int(_transform_depth() + getattr(torch.autograd.forward_ad, "_current_level", -1) + 1)


_transform_depth = private(
    "torch._C._functorch.get_dynamic_layer_stack_depth", part="logging what runs in torch.func's transforms"
)


def _storage_object(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


#: Where a tensor's storage object lives: equal for tensors that share memory. Raises for layouts without storage.
storage_address = private("torch._C._storage_address", instead=_storage_object)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone()


#: A copy that shares memory until someone asks to write on either side. Raises where memory is not torch's own.
lazy_copy: Callable[[Tensor], Tensor] = private("torch._lazy_clone", instead=_copy)
if not hasattr(_C, "_is_cow_tensor"):  # who can't tell a lazy copy could not undo it
    lazy_copy = _copy


def shares_lazily(tensor: Tensor) -> bool:
    """Does a tensor share its memory with lazy copies, or is it one?"""
    try:
        return bool(_is_lazy(tensor))
    except RuntimeError:  # of a class of its own, without memory
        return False


_is_lazy: Callable[[Tensor], bool] = private("torch._C._is_cow_tensor", instead=_never)

#: Is this one of the zeros without memory that forward-mode differentiation makes?
is_zero_tensor: Callable[[Tensor], bool] = private("torch._is_zerotensor", instead=_never)


def references(tensor: Tensor) -> int:
    """How many references Python has to a tensor, besides those of this function and its caller.

    While autograd keeps a tensor for the backward pass, torch itself holds one. Before torch 2.10 it does so only when
    nobody else does, which is not to be told apart.
    """
    held_by_torch = _torch_holds_what_it_uses() and tensor._use_count() > 1  # type: ignore[attr-defined]
    return sys.getrefcount(tensor) - 3 - held_by_torch


@lru_cache
def _torch_holds_what_it_uses() -> bool:
    """Does torch hold a Python reference to a tensor that it uses itself, whoever else holds one?"""
    with no_torch_function(), inference_scope(False):
        tensor = torch.empty(1, device="cpu")
        before = sys.getrefcount(tensor)
        view = tensor.view(1)  # which refers to it, but not from Python
        return hasattr(view, "_use_count") and sys.getrefcount(tensor) == before + 1


def call_without(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Call a function without this dispatch mode, if it is the innermost one."""
    size = _dispatch_stack_size()
    if not size or _dispatch_mode_at(size - 1) is not mode:
        return func(*args, **kwargs)
    try:
        _pop_dispatch_mode(None)
        return func(*args, **kwargs)
    finally:
        push_dispatch_mode(mode)


def as_class(tensor: Tensor, kind: type[Tensor], as_subclass: Callable[..., Any] = Tensor.as_subclass) -> Tensor:
    """`tensor.as_subclass(kind)`, also where torch (2.4) refuses that while a dispatch mode is on."""
    made: Tensor
    try:
        made = as_subclass(tensor, kind)
    except RuntimeError:
        with without_dispatch_modes():
            made = as_subclass(tensor, kind)
    return made


#: The negative of a tensor without touching its memory, as `x.conj().imag` is.
neg_view: Any = private("torch._neg_view", instead=torch.neg)


def mode_stack() -> list[Any]:
    """The torch function modes of this thread, outermost first."""
    return [_function_mode_at(i) for i in range(_function_modes())]


#: The kinds of devices that torch itself has besides the CPU, and that compute.
ACCELERATORS = ("cuda", "mps", "xpu")

#: The kind of device that another package has brought, if one has: "npu", for example.
others_accelerator: Callable[[], str] = private(
    "torch._C._get_privateuse1_backend_name", instead=lambda: "privateuseone"
)


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """The devices for which autocast is on, each with its dtype."""
    return tuple((d, torch.get_autocast_dtype(d)) for d in _autocast_devices() if torch.is_autocast_enabled(d))


def set_autocast(state: tuple[tuple[str, torch.dtype], ...]) -> None:
    """Let autocast be on for these devices and no others. What it has cast before is forgotten."""
    wanted = dict(state)
    for device in _autocast_devices():
        torch.set_autocast_enabled(device, device in wanted)
    set_autocast_dtypes(wanted)


def autocast_dtypes() -> dict[str, torch.dtype]:
    return {device: torch.get_autocast_dtype(device) for device in _autocast_devices()}


def set_autocast_dtypes(dtypes: dict[str, torch.dtype]) -> None:
    for device, dtype in dtypes.items():
        torch.set_autocast_dtype(device, dtype)
    torch.clear_autocast_cache()


def _autocast_devices() -> tuple[str, ...]:
    """The kinds of devices that autocast knows in this torch."""
    return tuple(device for device in ("cpu", *ACCELERATORS, others_accelerator()) if _knows_autocast(device))


@lru_cache
def _knows_autocast(device: str) -> bool:
    try:
        torch.is_autocast_enabled(device)
    except RuntimeError:
        return False
    return True


def _autocast_anywhere() -> bool:
    return any(torch.is_autocast_enabled(device) for device in _autocast_devices())


#: Is autocast on, for any device?
any_autocast = private("torch._C._is_any_autocast_enabled", instead=_autocast_anywhere)


def _begin_of_memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


#: Where the memory behind a tensor begins. Asking for it does not end the sharing of a lazy copy.
data_address: Callable[[Tensor], int] = private("torch._C._data_address", instead=_begin_of_memory)

_QUANTIZED = "reading a saved quantized tensor"
make_per_tensor_quantized: Callable[..., Tensor] = private("torch._make_per_tensor_quantized_tensor", part=_QUANTIZED)
make_per_channel_quantized: Callable[..., Tensor] = private("torch._make_per_channel_quantized_tensor", part=_QUANTIZED)


def jagged_parts(tensor: Any) -> tuple[Tensor, Tensor, Tensor | None, list[int | None]]:
    """What a nested tensor of the jagged layout is made of: values, offsets, lengths; then the jagged dimension and,
    where they are known, the shortest and the longest length."""
    lengths = [tensor._maybe_min_seqlen, tensor._maybe_max_seqlen]
    return tensor._values, tensor._offsets, tensor._lengths, [tensor._ragged_idx, *lengths]


_variable_functions = private("torch._C._VariableFunctions", instead=torch)
_namespaces = {
    f"torch._C.{name}": private(f"torch._C.{name}")
    for name in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")
}


def function_namespaces() -> dict[str, Any]:
    """Where torch keeps the functions that compute something, by the name under which a saved log refers to them."""
    return {
        "torch": _variable_functions,
        **{name: namespace for name, namespace in _namespaces.items() if namespace is not None},
        "torch.functional": torch.functional,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.init": torch.nn.init,
        "torch.Tensor": torch.Tensor,
    }


def higher_order_kernel(func: Any) -> Callable[..., Any] | None:
    """What a higher-order operator such as `torch.cond` does when nobody transforms it: plain Python that calls its
    functions. None if it has no such form."""
    if _dispatch_stack_size() and _takes_any_mode(func):  # it comes first, and calls again what it has seen
        return lambda *args, **kwargs: func.dispatch(_C.DispatchKey.Python, *args, **kwargs)
    kernel: Callable[..., Any] | None = func.py_kernels.get(_C.DispatchKey.CompositeExplicitAutograd)
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
    return known is None or type(_dispatch_mode_at(_dispatch_stack_size() - 1)) in known


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
        (_namespaces["torch._C._nested"], "nested_tensor"),
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
        (_C, "_create_function_from_trace"),
        (_C, "_create_function_from_trace_with_dict"),
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
    (torch.utils, "swap_tensors") if private("torch._C._swap_tensor_impl") is None else (_C, "_swap_tensor_impl")
)


def finished(func: Any) -> Callable[..., Any]:
    """An operation that communicates with other processes, waiting until it is done: only then is its result there."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(part, _C.ScriptObject) and func.__name__.split(".")[0] not in ("send", "recv_"):
                torch.distributed.Work.unbox(part).wait()
        return result

    return run


# ---- autograd -------------------------------------------------------------------------------------------------

#: A number for the backward pass that this thread is in; -1 if it is in none.
current_backward = private("torch._C._current_graph_task_id", part="saving gradients")

#: Is this a tensor that is valid only inside a transform of torch.func?
is_functorch_wrapped = private("torch._C._functorch.is_functorch_wrapped_tensor", instead=_never)


def hook_node_output(node: Any, output: int, hook: Callable[[Tensor], None]) -> Callable[[], None]:
    """Hook one output of an autograd node as `Tensor.register_hook` does, without the tensor; return how to undo it."""
    hooks = OrderedDict({0: hook})
    # What is registered is a dict of hooks taken from a tensor, and the place of that tensor among the outputs of the
    # node that made it: any tensor with that place will do.
    stand_in = call_with_grad(True, _output_of_a_node, output)
    stand_in._backward_hooks = hooks  # type: ignore[assignment]
    node._register_hook_dict(stand_in)
    return hooks.clear


def _output_of_a_node(place: int) -> Tensor:
    tensor = torch.empty(place + 1, device="cpu", requires_grad=place > 0)
    return tensor.unbind()[place] if place else tensor


def saved_for_backward(node: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an autograd node keeps, as they are: what hooks have put away is not fetched back.

    Ask `tells_what_is_saved` first.
    """
    kind: type = type(node)
    for name in _names_of_saved(kind):
        saved = getattr(node, "_raw_saved_" + name)
        for each in saved if isinstance(saved, (tuple, list)) else [saved]:
            if each.unpack_hook is None and isinstance(each.data, Tensor):
                yield name, each.data


def tells_what_is_saved() -> bool:
    """Does this torch tell whether hooks have put a saved tensor away? Reading one without knowing would run them."""
    return hasattr(_SavedTensor, "unpack_hook")


_SavedTensor = private("torch._C._autograd.SavedTensor")


@lru_cache
def _names_of_saved(kind: type) -> list[str]:
    return [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]


#: What a tensor argument may be without having a say in what is done with it.
_ORDINARY = {Tensor, torch.nn.Parameter, type(None)}


def overriding_nothing(passes_by: Callable[[Any], bool]) -> dict[str, Callable[[Any, Any], Any]]:
    """How to let the functions of `torch.nn.functional` believe that nobody overrides them if only such a mode does:
    for each name by which they ask, what makes an answer of the original one.

    Each of them asks that first, so it is written out for each way to ask.
    """
    count, at = _function_modes, _function_mode_at

    def unary(ask: Any, _: Any) -> Any:
        def one(tensor: Any) -> bool:
            return ask(tensor) and not (type(tensor) in _ORDINARY and count() == 1 and passes_by(at(0)))

        return one

    def sequence(ask: Any, _: Any) -> Any:
        def any_of(tensors: Any) -> bool:
            return ask(tensors) and not (_ORDINARY.issuperset(map(type, tensors)) and count() == 1 and passes_by(at(0)))

        return any_of

    def variadic(ask: Any, _: Any) -> Any:
        def several(*tensors: Any) -> bool:
            return ask(*tensors) and not (
                _ORDINARY.issuperset(map(type, tensors)) and count() == 1 and passes_by(at(0))
            )

        return several

    answers = {"_unary": unary, "_variadic": variadic, "": sequence}
    return {f"has_torch_function{ending}": build for ending, build in answers.items()}


#: What scripts can call, by id: names of operators.
known_to_scripts: Callable[[], dict[int, Any]] = private("torch.jit._builtins._get_builtin_table", instead=dict)


def is_overriding(argument: Any) -> bool:
    """Does this argument see the torch functions that it is given to?"""
    kind = type(argument)
    override = getattr(kind, "__torch_function__", _NO_OVERRIDE)
    return kind is not Tensor and override is not _NO_OVERRIDE


_NO_OVERRIDE = torch.nn.Parameter.__torch_function__


class Stance:
    """What `torch.compile` does from now on, until it is taken back, or somebody has changed it."""

    def __init__(self, name: str) -> None:
        self._frame: Any = importlib.import_module("torch._dynamo.eval_frame")
        self._own = hasattr(self._frame, "_set_stance")
        if self._own:
            self._ours, self._before = self._frame.DynamoStance(name), self._frame._stance
        else:  # before torch 2.6: let nobody choose what runs in place of a Python frame
            self._before = self._frame.set_eval_frame
            choose = _C._dynamo.eval_frame.set_eval_frame
            self._ours = (lambda _: choose(None)) if name == "force_eager" else choose

    def set(self) -> None:
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


def any_global_hook() -> bool:
    """Are there hooks that run with the call of any module?"""
    if hasattr(_module, "_has_any_global_hook"):
        return bool(_module._has_any_global_hook())  # type: ignore[no-untyped-call]
    return any(getattr(_module, name) for name in _GLOBAL_HOOKS)  # torch 2.4


#: Where `torch.nn.modules.module` keeps the hooks that run with the call of any module.
_GLOBAL_HOOKS = ("_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_pre_hooks",
                 "_global_forward_hooks", "_global_forward_hooks_always_called")  # fmt: skip


def inside_compiled(module: Module) -> Module:
    """The module that `torch.compile` has wrapped; any other module itself."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # importing it takes seconds
    while dynamo is not None and isinstance(module, dynamo.OptimizedModule):
        module = module._orig_mod
    return module


def has_call_of_its_own(module: torch.nn.Module) -> bool:
    """Does more happen when a module is called than that its forward runs: hooks, a class that does it in its way?"""
    hooked = module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooked) or type(module)._call_impl is not torch.nn.Module._call_impl
