"""Compute recorded calls again in float64, where rounding all but vanishes.

Two runs that do the same mathematics by other kernels, in another order or in another type differ by rounding, and what
rounding does can't be told from a small mistake. In float64 it falls to 1e-15, and what remains is a real difference.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch import Tensor

from ..capture.containers import rebuild
from ..capture.functions import ALIAS_UPDATE, IMPLICIT_VIEW, OUTPUT
from ..capture.records import Call, Trace, Value, argument_values
from ..capture.tensor_memory import version_of
from ..errors import TorchLensError
from .call import UNINITIALISED, TensorOf, recompute
from .recent import Recent

#: Each real or complex type with its widest relative.
_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}

#: Functions whose result holds nothing yet, whatever arguments they get.
_BLANK = {name for name in UNINITIALISED if "empty" in name}

#: Parameters in float64 that are not made anew for each use: as many as take so many bytes.
_PARAMETER_BYTES = 16 << 20

#: Methods that are a type by name, and do nothing where every type is float64.
_CASTS = {"float", "half", "bfloat16", "double"}

#: Grad mode, inference mode and autocast to compute in.
_PLAIN: tuple[bool, bool, tuple[Any, ...]] = (False, False, ())


class Float64:
    """The calls of one forward pass, one by one, in float64.

    Args:
        trace: the forward pass.
        coarse: a type that parameters, inputs and buffers are rounded to before, so that a model in float32 and its
            copy in bfloat16 begin with the same numbers.
        blank: take memory that nothing was written to yet as zeros, so that two runs agree in it; if it reaches the
            outputs after all, they are not what was computed.

    What can't be computed again keeps its saved value; `kept` says why, by the number of the call.
    """

    def __init__(self, trace: Trace, coarse: torch.dtype = torch.float32, *, blank: bool = True) -> None:
        self.trace = trace
        self.coarse = coarse
        self.blank = blank
        self.kept: dict[int, str] = {}
        self.changed_since = _params_changed_since(trace)
        self._params = Recent(_PARAMETER_BYTES)
        self._replaced: dict[int, Tensor] = {}
        #: Values that an intervention replaced, and calls that took something else: what was saved is what they were.
        self.edited = {each.value.index: each.intervention for each in trace.applied if each.call < 0}
        self.edited_calls = {each.call: each.intervention for each in trace.applied if each.call >= 0}

    def source(self, value: Value) -> Tensor | None:
        """A value that no call made: a parameter, an input, a buffer, a constant. None if it was not saved."""
        if value.role != "param":
            return self._widened(value.saved)
        if value.index in self._replaced:
            return self._replaced[value.index]
        tensor = self._params.get(value.index)
        if tensor is None:
            tensor = self._widened(value.saved)
            if tensor is not None:
                self._params.put(value.index, tensor)
        return tensor

    def with_param(self, value: Value, tensor: Tensor) -> Float64:
        """The same calls with another parameter; this one stays as it is."""
        made = copy(self)
        made.kept, made._replaced = {}, {**self._replaced, value.index: tensor}
        return made

    def results(self, number: int, tensor_of: TensorOf, *, changed: bool = False) -> list[Tensor | None]:
        """What a call makes of the tensors that `tensor_of` gives.

        `changed` says that these are not the saved ones, so that the saved result is no answer.
        """
        call = self.trace.calls[number]
        if call.function is OUTPUT:
            return [tensor_of(call.args[0])]
        if number in self.edited_calls or any(output.index in self.edited for output in call.outputs):
            return self._saved(number)
        if self.blank and call.function.name in _BLANK:
            return [None if tensor is None else torch.zeros_like(tensor) for tensor in self._saved(number)]
        values = [value for _, value in argument_values(call)]
        tensors = [self._tensor(value, tensor_of) for value in values]
        if any(value.role == "param" and value.index in self.changed_since for value in values):
            return self._saved(number, "its weights have been changed since the log was made")
        if not changed and not any(tensor is not None and _has_reals(tensor) for tensor in tensors):
            return [_double(output.saved) for output in call.outputs]  # whole numbers have no rounding
        if call.function.name in UNINITIALISED:
            return self._saved(number)
        return self._computed(number, call, tensor_of)

    def _tensor(self, value: Value, tensor_of: TensorOf) -> Tensor | None:
        return self.source(value) if value.role == "param" else tensor_of(value)

    def _computed(self, number: int, call: Call, tensor_of: TensorOf) -> list[Tensor | None]:
        reason = ""
        for wide in (True, False) if _can_be_wide(call) else (False,):
            try:
                return self._once(call, tensor_of, wide)
            except TorchLensError as error:
                reason = str(error)
            except Exception as error:  # whatever a kernel says of types that it did not get in the forward pass
                reason = reason or f"{type(error).__name__}: {error}"
        return self._saved(number, reason)

    def _once(self, call: Call, tensor_of: TensorOf, wide: bool) -> list[Tensor | None]:
        def argument(value: Value) -> Tensor | None:
            tensor = self._tensor(value, tensor_of)
            return tensor if wide or tensor is None or not _has_reals(tensor) else tensor.to(value.dtype)

        if wide and call.function.name in _CASTS:
            tensor = argument(call.args[0])
            if tensor is not None and tensor.is_floating_point():
                return [tensor]
        if wide:
            call = call._replace(args=_widened_types(call.args), kwargs=_widened_types(dict(call.kwargs)))
        state = _PLAIN if wide else (False, False, call.state[2])
        return [_double(tensor) for tensor in recompute(call, argument, state=state)]

    def _saved(self, number: int, reason: str = "") -> list[Tensor | None]:
        if reason:
            self.kept[number] = reason
        return [_double(output.saved) for output in self.trace.calls[number].outputs]

    def _widened(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or not tensor.is_floating_point():
            return _double(tensor)
        finer = torch.finfo(tensor.dtype).eps < torch.finfo(self.coarse).eps
        return _double(tensor.to(self.coarse) if finer else tensor)


def _params_changed_since(trace: Trace) -> set[int]:
    """A log does not copy parameters: those that were written to since are not what the model ran with."""
    versions = dict(enumerate(trace.param_versions))
    return {
        param.index
        for param in trace.params
        if isinstance(param.kept, Tensor) and version_of(param.kept) != versions.get(param.index, 0)
    }


def _can_be_wide(call: Call) -> bool:
    """In float64 other random numbers would be drawn; memory seen as several types has to keep them."""
    if call.function.random and call.rng is not None:
        return False
    if call.function is ALIAS_UPDATE or call.function is IMPLICIT_VIEW:
        return len({value.dtype for value in (*call.args, *call.outputs)}) == 1
    return True


def _widened_types(argument: Any) -> Any:
    if isinstance(argument, torch.dtype):
        return _WIDE.get(argument, argument)
    return argument if isinstance(argument, Value) else rebuild(argument, _widened_types)


def _has_reals(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _double(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    tensor = tensor.detach()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
