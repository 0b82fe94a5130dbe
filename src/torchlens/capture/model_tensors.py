"""The model's own parameters and buffers, which are known before the forward pass begins.

Most are only read: a parameter that has not been written to is recognised by its id alone, without reading its version.
"""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import storage_address
from .keeping import Keeper
from .records import TensorInfo, Trace, Value, facts_of
from .tensor_memory import address_of, is_plain, lies_outside, version_of

_version = attrgetter("_version")


class TensorsById(NamedTuple):
    """Parameters and buffers by id, each with what is known of it. A tensor may be both."""

    params: dict[int, tuple[Tensor, TensorInfo]]
    buffers: dict[int, tuple[Tensor, TensorInfo]]


class ModelTensors:
    """Makes values of parameters and buffers. A parameter becomes one at once, a buffer when it is first used."""

    def __init__(self, by_id: TensorsById, trace: Trace, keeper: Keeper) -> None:
        self.by_id = by_id
        self.trace = trace
        self.unwritten_params: dict[int, Value] = {}  # plain ones, by id
        self.other_params: list[tuple[Tensor, Value]] = []  # of classes that do something of their own
        self.plain_buffers: dict[int, tuple[int, int]] = {}  # their versions and storages, by id
        self._param_storages: list[int]  # in the order of `trace.params`
        self._add_params([about for about in by_id.params.values() if about[1].shape is not None], keeper)
        self._add_buffers(keeper)
        keeper.foreign.discard(0)

    def _add_params(self, params: list[tuple[Tensor, TensorInfo]], keeper: Keeper) -> None:
        tensors = [tensor for tensor, _ in params]
        self._param_storages = _storages(tensors)
        keeper.foreign.update(self._param_storages)
        values = param_values(params, self.unwritten_params)
        self.trace.params += values
        self.trace.param_versions += _versions(tensors)
        if len(self.unwritten_params) < len(values):
            pairs = zip(tensors, values, strict=True)
            self.other_params = [(tensor, value) for tensor, value in pairs if type(tensor) is not Parameter]

    def _add_buffers(self, keeper: Keeper) -> None:
        params, buffers = self.by_id
        storages = _storages([tensor for tensor, _ in buffers.values()])
        keeper.foreign.update(storages)
        for (key, (tensor, info)), storage in zip(buffers.items(), storages, strict=True):
            plain = storage and info.shape is not None and len(info.shape) == 1 and _in_plain_memory(tensor)
            if plain and key not in params:
                self.plain_buffers[key] = (version_of(tensor), storage)  # with more dimensions its order may be any

    def add_param(self, tensor: Tensor, info: TensorInfo) -> Value:
        """A parameter that a lazy module has just made."""
        storage = address_of(tensor) or 0
        shape, dtype, device = facts_of(tensor)
        now = info._replace(shape=shape, dtype=dtype, device=device)
        value = _param(len(self.trace.params), tensor, now)
        self.trace.params.append(value)
        self.trace.param_versions.append(version_of(tensor))
        self._param_storages.append(storage)
        if "params_by_storage" in vars(self):
            self.params_by_storage.setdefault(storage, []).append(value)
        return value

    @cached_property
    def params_by_storage(self) -> dict[int, list[Value]]:
        """The parameters in each storage; those that were written to are taken out. Wanted at the first write."""
        found: dict[int, list[Value]] = {}
        for value, storage in zip(self.trace.params, self._param_storages, strict=True):
            found.setdefault(storage, []).append(value)
        return found

    @cached_property
    def buffer_addresses(self) -> set[str]:
        return {info.address for key, (_, info) in self.by_id.buffers.items() if key not in self.by_id.params}

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


def param_values(params: list[tuple[Tensor, TensorInfo]], plain: dict[int, Value]) -> list[Value]:
    """The values of all parameters, in order, and those of plain ones by id. prepare.c has this function as well."""
    values = [_param(number, tensor, info) for number, (tensor, info) in enumerate(params)]
    plain.update((id(value.kept), value) for value in values if type(value.kept) is Parameter)
    return values


def _param(number: int, tensor: Tensor, info: TensorInfo) -> Value:
    assert info.shape is not None
    facts = (info.shape, info.dtype, info.device)
    return Value(number, "param", -1, None, info.address, facts, "" if info.trainable else None, tensor)


def _storages(tensors: list[Tensor]) -> list[int]:
    """Where their storages are; 0 for a layout that has none."""
    try:
        return list(map(storage_address, tensors))
    except RuntimeError:  # there is a sparse one
        return [address_of(tensor) or 0 for tensor in tensors]


def _versions(tensors: list[Tensor]) -> list[int]:
    try:
        return list(map(_version, tensors))
    except RuntimeError:  # one was made in inference mode
        return [version_of(tensor) for tensor in tensors]


def uninitialized_param(tensor: Tensor) -> Value:
    """Placeholder for the parameter of a lazy module that has not been called yet."""
    return Value(-1, "param", -1, None, None, (torch.Size(()), tensor.dtype, tensor.device), None, None)


def _in_plain_memory(tensor: Tensor) -> bool:
    """Is a tensor in torch's own memory, contiguous, without a history?"""
    return is_plain(tensor) and not lies_outside(tensor)
