"""PyTorch's operator database: every operator with sample inputs, as function, method, in-place and operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.corpora.check import Example, copied, seed_all
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db

#: Each with whether the inputs require gradients: kernels are chosen by that, so both must be seen.
DTYPES: dict[str, tuple[torch.dtype, bool]] = {
    "float32": (torch.float32, True),
    "float64": (torch.float64, False),
    "complex64": (torch.complex64, True),
    "bfloat16": (torch.bfloat16, True),
    "int64": (torch.int64, False),
    "bool": (torch.bool, False),
}

Variant = tuple[str, Callable[..., Any], bool]  # name, what to call, does it write to its first argument


class Operator(nn.Module):
    """A call of one operator. What it writes to must not be a leaf that requires grad, so that is copied before."""

    def __init__(self, function: Callable[..., Any], writes: bool) -> None:
        super().__init__()
        self.function = function
        self.writes = writes

    def forward(self, first: Any, *args: Any, **kwargs: Any) -> Any:
        if self.writes and isinstance(first, Tensor) and first.requires_grad:
            first = first.clone()
        return self.function(first, *args, **kwargs)


def operators(dtype: str) -> list[str]:
    """The names of the operators that take this type on the CPU."""
    return [_name(op) for op in op_db if op.supports_dtype(DTYPES[dtype][0], "cpu")]


def operator_examples(dtype: str, name: str, limit: int | None = None) -> Iterator[Example]:
    """Every sample of an operator in each of its variants; of the samples only the first `limit`."""
    (op,) = [op for op in op_db if _name(op) == name]
    kind, grad = DTYPES[dtype]
    requires_grad = grad and op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
    seed_all()
    for number, sample in enumerate(op.sample_inputs_func(op, "cpu", kind, requires_grad)):
        if number == limit:
            return
        arguments = (sample.input, *sample.args), sample.kwargs
        for variant, function, writes in _variants(op):
            yield Example(f"{name} {dtype} {variant} {number}", _maker(function, writes, arguments))


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def _variants(op: Any) -> list[Variant]:
    variants = [("function", op.get_op(), False), *_methods("", op)]
    if op.get_operator() is not None:
        variants.append(("operator", op.get_operator(), False))
    if op.get_inplace_operator() is not None:
        variants.append(("in-place operator", op.get_inplace_operator(), True))
    for alias in op.aliases:
        variants += [(f"{alias.name} function", alias.op, False), *_methods(f"{alias.name} ", alias)]
    return [variant for variant in variants if variant[1] is not None]


def _methods(prefix: str, op: Any) -> list[Variant]:
    return [(f"{prefix}method", op.method_variant, False), (f"{prefix}in-place", op.inplace_variant, True)]


def _maker(function: Callable[..., Any], writes: bool, arguments: Any) -> Any:
    def fresh() -> tuple[nn.Module, list[Any], dict[str, Any]]:
        args, kwargs = copied(arguments)
        return Operator(function, writes), list(args), kwargs

    return fresh
