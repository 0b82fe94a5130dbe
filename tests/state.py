"""What a capture might change, to be compared before and after."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import torch
import torch.distributed
import torch.overrides
from torch import nn
from torch.jit._builtins import _get_builtin_table

from torchlens.capture.changes import _made
from torchlens.capture.modules import _watchers

PLACES = (
    torch, torch.Tensor, torch.nn.functional, nn.Module, nn.Linear, nn.Parameter, torch.overrides, torch._C,
    torch.autograd, torch.autograd.forward_ad, torch._functorch.vmap, torch._functorch.eager_transforms,
    torch._C._nested, torch._C.ScriptFunction, torch.distributed, torch.distributed.ProcessGroup, threading.Thread,
    ThreadPoolExecutor,
)  # fmt: skip


def process_state() -> dict[str, Any]:
    """All that a capture might change around itself."""
    return {
        "names": [names_in(place) for place in PLACES],
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "garbage collector": gc.isenabled(),
        "who is told of collections": list(gc.callbacks),
        "thread": threading.Thread,
        "weak references": torch.utils.weakref,  # type: ignore[attr-defined]
        "tracers": (sys.gettrace(), sys.getprofile()),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "attention's fast path": torch.backends.mha.get_fastpath_enabled(),
        "torch functions": torch._C._is_torch_function_enabled(),
        "default dtype": torch.get_default_dtype(),
        "warning filters": list(warnings.filters),
        "excepthook": sys.excepthook,
        "recursion limit": sys.getrecursionlimit(),
        "collector's thresholds": gc.get_threshold(),
        "what scripts know": what_scripts_know(),
        "stance of torch.compile": vars(sys.modules.get("torch._dynamo.eval_frame", object)).get("_stance"),
        "transforms": torch._C._functorch.get_dynamic_layer_stack_depth(),
        "who is told of module calls": list(_watchers.here),
        "changes": list(_made),
    }


def what_scripts_know() -> dict[int, str | None]:
    """Torch adds its operators to this table when they are first asked for: these are left out."""
    table = _get_builtin_table().items()
    return {key: name for key, name in table if name is None or name.endswith("has_torch_function")}


def names_in(place: Any) -> dict[str, Any]:
    """Everything but the modules, which torch itself imports late."""
    return {name: value for name, value in vars(place).items() if not issubclass(type(value), ModuleType)}


def model_state(model: nn.Module) -> list[Any]:
    """Every attribute of every module, in order, and every attribute of every tensor of the model."""
    modules = [[(name, id(value)) for name, value in vars(module).items()] for module in model.modules()]
    members = [
        [(name, list(value)) for name, value in vars(module).items() if isinstance(value, dict)]
        for module in model.modules()
    ]
    tensors = [dict(vars(t)) for t in (*model.parameters(), *model.buffers())]
    classes = [type(module) for module in model.modules()]
    return [modules, members, tensors, classes]
