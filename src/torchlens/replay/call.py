"""Compute one recorded call again, under the circumstances it ran in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor

from .._torch import (
    any_autocast,
    autocast_dtypes,
    call_with_grad,
    inference_scope,
    set_autocast,
    set_autocast_dtypes,
    set_grad_enabled,
)
from ..capture.changes import between
from ..capture.containers import rebuild, tensors_in
from ..capture.functions import ALIAS_UPDATE, IMPLICIT_VIEW, UNWRAP, WRAP
from ..capture.records import Call, Value, fetched
from ..capture.restored import SavedObject
from ..capture.rng import Generates, generator_of
from ..errors import TorchLensError
from .memory import laid_in_memory
from .reasons import NotReplayable

#: The tensor to use for a value; None if there is none.
TensorOf = Callable[[Value], "Tensor | None"]

#: Functions whose result is whatever the memory held.
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new", "new_empty", "new_empty_strided", "resize_",
}  # fmt: skip

#: Gradients are computed from the autograd graph, which is not saved.
_DEPEND_ON_HISTORY = {"grad"}


def saved_tensor(value: Value) -> Tensor | None:
    """What was saved of a value."""
    return value.saved


def recompute(
    call: Call,
    tensor_of: TensorOf = saved_tensor,
    *,
    differentiably: bool = False,
    state: tuple[Any, ...] | None = None,
    may_raise: bool = True,
) -> list[Tensor]:
    """The tensors that a call makes of its arguments, in the order of `call.outputs`.

    Args:
        call: what to compute again.
        tensor_of: the tensor to use for each value among the arguments; by default what was saved. It is asked once for
            each value. The tensors stay as they are: what the call overwrites is copied before.
        differentiably: leave the arguments their autograd history.
        state: grad mode, inference mode and autocast, if not those of the call.
        may_raise: it may have raised in the forward pass, half-way through a write: then what it wrote is the result.
    """
    results = _recompute(call, tensor_of, differentiably, state, may_raise)
    default = _default_type(call, results)
    if default is None:
        return results
    before, set_type = torch.get_default_dtype(), torch.set_default_dtype
    again = partial(_recompute, call, tensor_of, differentiably, state, may_raise)
    return between(lambda frame: set_type(default), again, lambda: set_type(before))


def _recompute(
    call: Call, tensor_of: TensorOf, differentiably: bool, state: tuple[Any, ...] | None, may_raise: bool
) -> list[Tensor]:
    _check_saved([*call.args, *call.kwargs.values()])
    if call.function is ALIAS_UPDATE or call.function is IMPLICIT_VIEW:
        return [laid_in_memory(call, [_known(value, tensor_of) for value in call.args])]
    if call.function is WRAP or call.function is UNWRAP:
        return [_recompute_wrapping(call, tensor_of)]
    if call.function.func is None or call.function.name in _DEPEND_ON_HISTORY:
        raise NotReplayable(f"{call.function.name} depends on more than its arguments")
    if call.function.communicates:
        raise NotReplayable(f"{call.function.name} communicates with other processes")
    arguments = _Arguments(call, tensor_of, differentiably, with_grad=state is None or state[0])
    args, kwargs = arguments.restore(call.args), arguments.restore(dict(call.kwargs))
    if call.function.check is not None:
        call.function.check(args, kwargs)
    circumstances = _Circumstances(call, state or call.state)
    with inference_scope(circumstances.inference):
        body = partial(_called, call, args, kwargs, may_raise)
        result = between(circumstances.begin, body, circumstances.end)
    returned = [tensor for _, tensor in tensors_in(result)]
    # What was overwritten but not returned follows.
    written = [arguments.tensors[value] for value in call.written if value in arguments.tensors]
    returned += [tensor for tensor in written if not any(tensor is other for other in returned)]
    if len(returned) < len(call.outputs):
        raise NotReplayable(f"{call.function.name} returned {len(returned)} tensors, not {len(call.outputs)}")
    return returned[: len(call.outputs)]


def _called(call: Call, args: Any, kwargs: Any, may_raise: bool) -> Any:
    assert call.function.func is not None
    try:
        return call.function.func(*args, **kwargs)
    except TorchLensError:
        raise
    except Exception:
        if not call.written or not may_raise:
            raise
        return None  # what it had written when it raised, in the forward pass as now, is what was logged


def _check_saved(arguments: Iterable[Any]) -> None:
    """A loaded log has only the print of an object that was no plain data."""
    for argument in arguments:
        if isinstance(argument, SavedObject):
            raise NotReplayable(f"an argument was not saved: {argument.description}")
        if isinstance(argument, (torch.UntypedStorage, torch.TypedStorage)):
            raise NotReplayable("an argument is a storage, whose contents at that time were not recorded")
        if isinstance(argument, (tuple, list)):
            _check_saved(argument)


class _Arguments:
    """The arguments of a call with tensors in place of values, each value the same tensor wherever it stands."""

    def __init__(self, call: Call, tensor_of: TensorOf, differentiably: bool, with_grad: bool) -> None:
        self.with_grad = with_grad
        self.written = set(call.written)
        self.in_danger = call.function.foreign  # it may write where it does not say so
        self.tensor_of = tensor_of
        self.differentiably = differentiably
        self.with_all_memory = call.function.reaches_beyond
        self.tensors: dict[Value, Tensor] = {}

    def restore(self, argument: Any) -> Any:
        return self._tensor(argument) if isinstance(argument, Value) else rebuild(argument, self.restore)

    def _tensor(self, value: Value) -> Tensor:
        if value not in self.tensors:
            self.tensors[value] = self._prepared(value, _known(value, self.tensor_of))
        return self.tensors[value]

    def _prepared(self, value: Value, tensor: Tensor) -> Tensor:
        if value in self.written:
            return self._copy(tensor)
        if self.in_danger:
            tensor = self._copy(tensor)
        # Kernels are chosen by whether a gradient is required, and round differently.
        requires_grad = self.with_grad and value.grad_fn is not None and not tensor.is_inference()
        return tensor.detach().requires_grad_(True) if requires_grad and not tensor.requires_grad else tensor

    def _copy(self, tensor: Tensor) -> Tensor:
        if self.differentiably:
            return tensor.clone()
        as_it_lies = self.with_all_memory or tensor.is_quantized
        bare = tensor.detach()
        return call_with_grad(False, deepcopy, bare) if as_it_lies else bare.clone()


class _Circumstances:
    """The grad mode, autocast and random state to run a call in.

    `inference_scope` is around it, and undoes what this does to grad mode, and where autocast is on.
    """

    def __init__(self, call: Call, state: tuple[Any, ...]) -> None:
        self.grad, self.inference, self.autocast = state
        self.dtypes = autocast_dtypes() if self.autocast or any_autocast() else None
        self.generator_state = fetched(call.rng)
        if self.generator_state is not None:
            self.generator = call.kwargs.get("generator") or _generator_of(call)
            self.generator_before = self.generator.get_state()

    def begin(self, frame: FrameType) -> None:
        set_grad_enabled(self.grad)
        if self.dtypes is not None:
            set_autocast(self.autocast)
        if self.generator_state is not None:
            self.generator.set_state(self.generator_state)

    def end(self) -> None:
        if self.dtypes is not None:
            set_autocast_dtypes(self.dtypes)
        if self.generator_state is not None:
            self.generator.set_state(self.generator_before)


def _generator_of(call: Call) -> Generates:
    """What a call drew its random numbers from, as it is where the values are."""
    output = call.outputs[0]
    if isinstance(output.kept, Tensor) and output.kept.device != output.device:
        raise NotReplayable(
            f"its random numbers were drawn on {output.device}, and its values are now on another device"
        )
    return generator_of(output.device)


def _default_type(call: Call, results: list[Tensor]) -> torch.dtype | None:
    """The default type that the call ran with, if its results show that it was another: the model may have set it."""
    for value, tensor in zip(call.outputs, results, strict=True):
        floats = value.dtype.is_floating_point or value.dtype.is_complex
        if tensor.dtype != value.dtype and floats and (tensor.is_floating_point() or tensor.is_complex()):
            logged = value.dtype.to_real()
            return logged if logged.itemsize > 1 and logged != torch.get_default_dtype() else None
    return None


def _recompute_wrapping(call: Call, tensor_of: TensorOf) -> Tensor:
    """Make a tensor that holds others of them, or take one out."""
    held = [_known(part, tensor_of) if isinstance(part, Value) else part for part in call.args]
    if call.function is UNWRAP:
        return cast(Tensor, getattr(held[0], call.kwargs["attribute"]))
    made_of = dict(zip(call.kwargs["names"], held, strict=True))
    kind, geometry = call.kwargs["type"], (call.kwargs["size"], call.kwargs["stride"])
    return cast(Tensor, kind.__tensor_unflatten__(made_of, call.kwargs["context"], *geometry))


def _known(value: Value, tensor_of: TensorOf) -> Tensor:
    tensor = tensor_of(value)
    if tensor is None:
        raise NotReplayable(f"{_in_words(value)} was not saved")
    return tensor


_ROLES = {"param": "parameter", "buffer": "buffer", "update": "buffer", "input": "input"}


def _in_words(value: Value) -> str:
    if value.address and value.role in _ROLES:
        return f"the {_ROLES[value.role]} {value.address}"
    return f"a parent of shape {tuple(value.shape)}"
