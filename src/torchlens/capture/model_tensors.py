"""The model's own parameters and buffers, which are known before the forward pass begins.

Most are only read: a parameter that has not been written to is recognised by its id alone, without reading its version.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import UninitializedTensorMixin
from .keeping import Keeper
from .records import TensorInfo, Trace, Value, facts_of
from .tensor_memory import address_of, is_plain, lies_outside, version_of

_new_value = Value.__new__

#: Parameters and buffers by id, each with its role ("param" or "buffer") and what is known of it.
TensorsById = dict[int, tuple[Tensor, str, TensorInfo]]


class ModelTensors:
    """Makes values of parameters and buffers. A parameter becomes one at once, a buffer when it is first used."""

    def __init__(self, by_id: TensorsById, trace: Trace, keeper: Keeper) -> None:
        self.by_id = by_id
        self.trace = trace
        self.buffer_addresses = {info.address for _, role, info in by_id.values() if role == "buffer"}
        self.unwritten_params: dict[int, Value] = {}  # plain ones, by id
        self.other_params: list[tuple[Tensor, Value]] = []  # of classes that do something of their own
        self.params_by_storage: dict[int, list[Value]] = {}
        self.plain_buffers: dict[int, tuple[int, int]] = {}  # their versions and storages, by id
        unwritten, foreign = self.unwritten_params, keeper.foreign
        for key, (tensor, role, info) in by_id.items():
            storage = address_of(tensor)
            if storage is not None:
                foreign.add(storage)
            if role == "param" and type(tensor) is Parameter:
                unwritten[key] = self.add_param(tensor, info, storage)
            elif role == "param" and not isinstance(tensor, UninitializedTensorMixin):
                self.other_params.append((tensor, self.add_param(tensor, info, storage)))
            elif storage is not None and info.shape is not None and len(info.shape) == 1 and _in_plain_memory(tensor):
                self.plain_buffers[key] = (version_of(tensor), storage)  # with more dimensions its order may be any

    def add_param(self, tensor: Tensor, info: TensorInfo, storage: int | None) -> Value:
        trace = self.trace
        params = trace.params
        address, _, shape, dtype, device, trainable = info
        value = _new_value(Value)  # a model has hundreds, and `__init__` would take as long as all the rest
        value.index, value.role, value.call, value.address, value.kept = len(params), "param", -1, address, tensor
        value.position = value.transformed = None
        value.grad_fn = "" if trainable else None
        value._facts = (shape, dtype, device) if shape is not None else facts_of(tensor)
        params.append(value)
        self.params_by_storage.setdefault(storage or 0, []).append(value)
        trace.param_versions.append(version_of(tensor))
        return value

    def warn_of_unseen_writes(self) -> None:
        """The forward pass is over: warn of parameters that were overwritten by something that capture can't see."""
        versions, values = self.trace.param_versions, list(self.unwritten_params.values())
        try:
            if [value.kept._version for value in values] == [versions[value.index] for value in values]:  # type: ignore
                return
        except (AttributeError, RuntimeError):  # one was made in inference mode, or is kept elsewhere
            pass
        for value in values:
            kept = value.kept
            if isinstance(kept, Tensor) and version_of(kept) != versions[value.index]:
                self.trace.warnings.append(
                    f"the parameter {value.address} was overwritten by code that can't be observed; operations that "
                    "used it are logged with its first value"
                )


def uninitialized_param(tensor: Tensor) -> Value:
    """Placeholder for the parameter of a lazy module that has not been called yet."""
    return Value(-1, "param", -1, None, None, (torch.Size(()), tensor.dtype, tensor.device), None, None)


def _in_plain_memory(tensor: Tensor) -> bool:
    """Is a tensor in torch's own memory, contiguous, without a history?"""
    return is_plain(tensor) and not lies_outside(tensor)
