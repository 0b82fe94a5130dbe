"""What is known of an operation when it has just run: the argument that predicates are called with."""

from __future__ import annotations

from typing import Any

import torch

from .naming import func_name, grad_fn_name, layer_type_of
from .records import Trace, Value


class AskLater(Exception):
    """A predicate asked for something that only the whole graph can tell."""


class OpInProgress:
    """A value of a running forward pass, under the names that its operation has in a finished log.

    Everything is computed on access. What can't be known yet raises `AskLater`. A few names are its own:
    `kind`, `output_index`, and what begins with `module_`, which the light path knows as well.
    """

    __slots__ = ("_module_call", "_trace", "_value")

    def __init__(self, trace: Trace, value: Value, module_call: int) -> None:
        self._trace = trace
        self._value = value
        self._module_call = module_call  # the running one; index in Trace.module_calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AskLater(name)

    @property
    def kind(self) -> str:
        """What the value comes from: "op", "input", "buffer", "output", "source"."""
        return "buffer" if self._value.role == "update" else self._value.role

    @property
    def layer_type(self) -> str:
        return layer_type_of(self._value, self._trace.calls)

    @property
    def func_name(self) -> str | None:
        return func_name(self._value, self._trace.calls)

    @property
    def output_index(self) -> int | None:
        """Position in the tuple or list that the call returned."""
        return self._value.position

    # ---- the tensor -----------------------------------------------------------------------------------------

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        return tuple(self._value.shape)

    @property
    def tensor_dtype(self) -> torch.dtype:
        return self._value.dtype

    @property
    def tensor_device(self) -> torch.device:
        return self._value.device

    # ---- the module -----------------------------------------------------------------------------------------

    @property
    def module_stack(self) -> tuple[str, ...]:
        """The module calls around the event, from the model in: `("self:1", "features:1", "features.6:1")`."""
        stack = []
        number = self._module_call
        while number >= 0:
            call = self._trace.module_calls[number]
            stack.append(f"{self._trace.modules[call.module].address or 'self'}:{call.number}")
            number = call.parent
        return tuple(stack[::-1])

    @property
    def module_address(self) -> str:
        """The innermost module; the model itself is "self"."""
        if self._module_call < 0:
            return "self"
        return self._trace.modules[self._trace.module_calls[self._module_call].module].address or "self"

    @property
    def module_type(self) -> str:
        if self._module_call < 0:
            return self._trace.model_name
        return self._trace.modules[self._trace.module_calls[self._module_call].module].class_name

    @property
    def module_pass_index(self) -> int:
        """Which call of the module; the first is 1."""
        return self._trace.module_calls[self._module_call].number if self._module_call >= 0 else 1

    @property
    def containing_modules(self) -> list[str]:
        return [label.rpartition(":")[0] for label in self.module_stack[1:]]

    @property
    def containing_module(self) -> str | None:
        return None if self.module_address == "self" else self.module_address

    @property
    def tensor_memory(self) -> int:
        return self._value.nbytes

    @property
    def grad_fn_name(self) -> str | None:
        return grad_fn_name(self._value, self._trace)

    @property
    def is_input_layer(self) -> bool:
        return self._value.role == "input"

    @property
    def is_output_layer(self) -> bool:
        return self._value.role == "output"

    @property
    def is_buffer_layer(self) -> bool:
        return self._value.role in ("buffer", "update")
