"""The hot path in C, where it could be compiled when the package was installed.

hot.c has the methods of `Tracer` that run most often, for the calls of the common kind; all others it hands to the
methods in Python. Without it, or with `TORCHLENS_NATIVE=0` in the environment, Python records every call: the results
are the same, and take longer.
"""

from __future__ import annotations

import importlib
import os
from time import perf_counter_ns
from typing import Any

from torch import Tensor, is_grad_enabled, is_inference_mode_enabled
from torch.nn import Parameter

from .._torch import (
    MODULE_CALL,
    MODULE_CALL_INSIDE,
    any_autocast,
    is_zero_tensor,
    lazy_copy,
    set_grad_enabled,
    storage_address,
)
from .containers import PLAIN
from .functions import KNOWN, Function
from .identity import Identity
from .modules import MODULE_BOUNDARY
from .records import NO_KWARGS, Call, ModuleCall, Value
from .tensor_memory import UNVERSIONED
from .tracer import INFERENCE, NO_STATE, WITH_GRAD, Tracer, state_now

#: The methods that hot.c has as well.
_METHODS = ("__torch_function__", "enter_module", "leave_module")

_IN_PYTHON = {name: vars(Tracer)[name] for name in _METHODS}


def _compiled() -> Any:
    """The module made of hot.c, ready for use; None if there is none, or if this torch is too different for it."""
    try:
        hot: Any = importlib.import_module("torchlens.capture._hot")
    except ImportError:
        return None
    try:
        hot.configure(
            record_in_python=_IN_PYTHON["__torch_function__"],
            enter_in_python=_IN_PYTHON["enter_module"],
            leave_in_python=_IN_PYTHON["leave_module"],
            Tensor=Tensor,
            Parameter=Parameter,
            Function=Function,
            Tracer=Tracer,
            Identity=Identity,
            Value=Value,
            Call=Call,
            ModuleCall=ModuleCall,
            MODULE_CALL=MODULE_CALL,
            MODULE_CALL_INSIDE=MODULE_CALL_INSIDE,
            KNOWN=KNOWN,
            PLAIN=PLAIN,
            NO_KWARGS=NO_KWARGS,
            NO_STATE=NO_STATE,
            WITH_GRAD=WITH_GRAD,
            INFERENCE=INFERENCE,
            UNVERSIONED=UNVERSIONED,
            MODULE_BOUNDARY=MODULE_BOUNDARY,
            is_grad_enabled=is_grad_enabled,
            is_inference_mode_enabled=is_inference_mode_enabled,
            any_autocast=any_autocast,
            state_with_autocast=state_now,
            set_grad_enabled=set_grad_enabled,
            lazy_copy=lazy_copy,
            storage_address=storage_address,
            is_zero_tensor=is_zero_tensor,
            is_conj=Tensor.is_conj,
            is_neg=Tensor.is_neg,
            perf_counter_ns=perf_counter_ns,
            version_getter=Tensor._version,
            requires_grad_getter=Tensor.requires_grad,
            is_quantized_getter=Tensor.is_quantized,
            is_cpu_getter=Tensor.is_cpu,
            is_cuda_getter=Tensor.is_cuda,
        )
    except (AttributeError, TypeError):
        return None
    return hot


_hot = _compiled()

#: Could the hot path be compiled?
is_there = _hot is not None


def use(native: bool) -> None:
    """From now on, let the hot path in C record calls, if it is there; or Python alone."""
    for name in _METHODS:
        setattr(Tracer, name, getattr(_hot, name) if native and is_there else _IN_PYTHON[name])


def use_if_wanted() -> None:
    use(os.environ.get("TORCHLENS_NATIVE", "1") != "0")
