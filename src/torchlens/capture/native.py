"""The hot path in C, where it could be compiled when the package was installed.

hot.c has the methods of `Tracer` that run most often, for the calls of the common kind, and prepare.c has functions
that prepare a run; what is not common they hand to the same methods and functions in Python. Without them, or with
`TORCHLENS_NATIVE=0` in the environment, Python does everything: the results are the same, and take longer.
"""

from __future__ import annotations

import importlib
import os
from time import perf_counter_ns
from typing import Any

from torch import Tensor, is_grad_enabled, is_inference_mode_enabled
from torch.nn import Parameter

from .._torch import (
    COMPILER,
    HOOKS,
    MODULE_CALL,
    MODULE_CALL_INSIDE,
    any_autocast,
    data_address,
    is_zero_tensor,
    lazy_copy,
    no_torch_function,
    set_grad_enabled,
    storage_address,
)
from . import describe, model_tensors, modules
from .containers import PLAIN
from .functions import KNOWN, Function
from .identity import Identity
from .modules import MODULE_BOUNDARY
from .records import NO_KWARGS, Call, ModuleCall, ModuleInfo, TensorInfo, Value, facts_of
from .tensor_memory import UNVERSIONED
from .tracer import INFERENCE, NO_STATE, UNKNOWN, WITH_GRAD, Tracer, state_now

#: What can be done in C as well, by class or module and name: as written in Python, and compiled.
_BOTH: dict[tuple[Any, str], tuple[Any, Any]] = {}

#: What is filled in C: so many slots of `Value` and `ModuleCall`, and these fields of `Call`. If a record gets one
#: more, Python alone makes it, until C does so, too.
_CALL = ("function", "args", "kwargs", "outputs", "written", "module_call", "site", "time", "rng", "state")
_FILLED = (9, 8, 4, 6, 6, _CALL)

#: The same of fastlog's records: so many fields of `Event` and `Frame`.
_OBSERVED = (10, 5)


def _compiled() -> Any:
    """The module made of hot.c, ready for use; None if there is none, or if this torch or our records are new to it."""
    try:
        hot: Any = importlib.import_module("torchlens.capture._hot")
    except ImportError:
        return None
    slots = tuple([len(kind.__slots__) for kind in (Value, ModuleCall, modules.StandIn)])
    if (*slots, len(ModuleInfo._fields), len(TensorInfo._fields), Call._fields) != _FILLED:
        return None
    try:
        hot.configure_shared(
            Tensor=Tensor,
            Parameter=Parameter,
            Value=Value,
            Function=Function,
            KNOWN=KNOWN,
            PLAIN=PLAIN,
            MODULE_BOUNDARY=MODULE_BOUNDARY,
            shape_getter=Tensor.shape,
            dtype_getter=Tensor.dtype,
            device_getter=Tensor.device,
            requires_grad_getter=Tensor.requires_grad,
        )
        hot.configure(
            record_in_python=vars(Tracer)["__torch_function__"],
            enter_in_python=vars(Tracer)["enter_module"],
            leave_in_python=vars(Tracer)["leave_module"],
            Tracer=Tracer,
            Identity=Identity,
            Call=Call,
            ModuleCall=ModuleCall,
            MODULE_CALL=MODULE_CALL,
            MODULE_CALL_INSIDE=MODULE_CALL_INSIDE,
            NO_KWARGS=NO_KWARGS,
            NO_STATE=NO_STATE,
            WITH_GRAD=WITH_GRAD,
            INFERENCE=INFERENCE,
            UNVERSIONED=UNVERSIONED,
            UNKNOWN=UNKNOWN,
            no_torch_function=no_torch_function,
            is_grad_enabled=is_grad_enabled,
            is_inference_mode_enabled=is_inference_mode_enabled,
            any_autocast=any_autocast,
            state_with_autocast=state_now,
            set_grad_enabled=set_grad_enabled,
            lazy_copy=lazy_copy,
            clone_of=Tensor.clone,
            stride=Tensor.stride,
            data_address=data_address,
            storage_address=storage_address,
            is_zero_tensor=is_zero_tensor,
            is_conj=Tensor.is_conj,
            is_neg=Tensor.is_neg,
            perf_counter_ns=perf_counter_ns,
            version_getter=Tensor._version,
            is_quantized_getter=Tensor.is_quantized,
            is_cpu_getter=Tensor.is_cpu,
            is_cuda_getter=Tensor.is_cuda,
        )
        hot.configure_preparing(
            modules_under_in_python=modules._modules_under,
            tensors_of_in_python=describe._tensors_of,
            add_stand_in=modules._add_stand_in,
            class_names=describe.class_names,
            ModuleInfo=ModuleInfo,
            TensorInfo=TensorInfo,
            StandIn=modules.StandIn,
            COMPILER=COMPILER,
            HOOKS=HOOKS,
            FORWARD=modules._FORWARD,
            WITH_HOOKS=modules._WITH_HOOKS,
            NOBODY=modules._NOBODY,
        )
    except (AttributeError, TypeError):
        return None
    return hot


_hot = _compiled()

#: Could the hot path be compiled?
is_compiled = _hot is not None


def use(native: bool) -> None:
    """From now on, let the hot path in C record calls, if it is there; or Python alone."""
    for (owner, name), (in_python, in_c) in _BOTH.items():
        setattr(owner, name, in_c if native else in_python)


def use_if_wanted() -> None:
    """Use the hot path in C, if it is there and the environment does not forbid it."""
    use(os.environ.get("TORCHLENS_NATIVE", "1") != "0")


def take_part(tracer: type, Event: Any, Frame: Any, **others: Any) -> None:
    """Let observe.c see common calls for fastlog's tracer, unless this torch or its records are new to it."""
    if not is_compiled or (len(Event._fields), len(Frame._fields)) != _OBSERVED:
        return
    own = vars(tracer)
    call, enter, leave = own["__torch_function__"], own["enter_module"], own["leave_module"]
    try:
        in_c = _hot.observe, _hot.enter_observed, _hot.leave_observed
        _hot.configure_observing(
            observe_in_python=call,
            enter_observed_in_python=enter,
            leave_observed_in_python=leave,
            LightTracer=tracer,
            Event=Event,
            Frame=Frame,
            Function=Function,
            facts_in_python=facts_of,
            **others,
        )
    except (AttributeError, TypeError):
        return
    _BOTH[tracer, "__torch_function__"] = call, in_c[0]
    _BOTH[tracer, "enter_module"] = enter, in_c[1]
    _BOTH[tracer, "leave_module"] = leave, in_c[2]
    use_if_wanted()


_IN_C = (
    (Tracer, ("__torch_function__", "enter_module", "leave_module")),
    (modules, ("_modules_under", "add_stand_ins", "retire_stand_ins")),
    (describe, ("_each_module", "_tensors_of")),
    (model_tensors, ("param_values",)),
)

if is_compiled:
    for _owner, _names in _IN_C:
        for _name in _names:
            _BOTH[_owner, _name] = vars(_owner)[_name], getattr(_hot, _name)
