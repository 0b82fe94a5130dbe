"""What one torch call costs, worked out from its name, its arguments and the shapes it returned.

    >>> import torch
    >>> x, weight, bias = torch.empty(8, 3), torch.empty(4, 3), torch.empty(4)
    >>> count("linear", (x, weight), {"bias": bias}, [(8, 4)])
    Cost(macs=96, flops=224)
    >>> count("relu_", (torch.empty(8, 4),), {}, [(8, 4)])
    Cost(macs=0, flops=32)
    >>> count("someones_own_op", (x,), {}, [(8, 3)])
    Cost(macs=0, flops=None)

The formulas for torch's own functions are in `formulas.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TensorShape = Sequence[int]


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates of the matrix-like part, and all floating point operations (None: unknown).

    >>> Cost(macs=10, flops=20) + Cost(flops=5)
    Cost(macs=10, flops=25)
    """

    macs: int = 0
    flops: int | None = 0

    def __add__(self, other: Cost) -> Cost:
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        return Cost(self.macs + other.macs, flops)


class UnfamiliarCall(Exception):
    """A function was called in a way that its formula does not know."""


@dataclass(frozen=True)
class FormulaCall:
    """One call as a formula sees it: under the name of the formula. Anything with a `shape` is a tensor.

    >>> import torch
    >>> call = FormulaCall("addmm", (torch.empty(4), torch.empty(8, 3)), {"mat2": torch.empty(3, 4)}, [(8, 4)])
    >>> call.tensor(2, "mat2").shape, call.arg(3, "beta", default=1), call.size
    (torch.Size([3, 4]), 1, 32)
    """

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: Sequence[TensorShape]

    def arg(self, position: int, *names: str, default: Any = None) -> Any:
        """The argument at this position, or else under one of these names."""
        if position < len(self.args):
            return self.args[position]
        return next((self.kwargs[name] for name in names if name in self.kwargs), default)

    def tensor(self, position: int, *names: str) -> Any:
        """The same where a tensor must be; without one, the call counts as unknown."""
        value = self.arg(position, *names)
        if not is_tensor(value):
            raise UnfamiliarCall(f"{self.name}: no tensor at position {position} or as {' or '.join(names)}")
        return value

    @property
    def input(self) -> Any:
        """The first tensor."""
        return self.tensor(0, "input", "self", "query", "input1", "x", "x1", "src")

    @property
    def size(self) -> int:
        """Number of elements in all outputs."""
        return sum(math.prod(shape) for shape in self.outputs)


Formula = Callable[[FormulaCall], Cost]
_formulas: dict[str, Formula] = {}
_OWN_FORMULAS = f"{__package__}.formulas"


def register_formula(*names: str) -> Callable[[Formula], Formula]:
    """Teach `count` the cost of the functions called `names`.

    >>> @register_formula("my_op")
    ... def my_op(call):
    ...     macs = call.size * call.tensor(1, "weight").shape[-1]
    ...     return Cost(macs, flops=2 * macs)
    >>> unregister_formula("my_op")

    `my_op_`, `_my_op` and `__my_op__` share the formula of `my_op` unless they have their own.
    """

    def register(formula: Formula) -> Formula:
        for i, name in enumerate(names):
            if name in _formulas or name in names[:i]:
                raise ValueError(
                    f"there is already a formula for {name!r}; to replace it, call unregister_formula({name!r}) first"
                )
        _formulas.update(dict.fromkeys(names, formula))
        return formula

    return register


def unregister_formula(name: str) -> None:
    """Forget the formula of `name`, for example to register a better one.

    >>> @register_formula("my_op")
    ... def my_op(call):
    ...     return Cost(flops=call.size)
    >>> unregister_formula("my_op")
    """
    if name not in _formulas:
        raise KeyError(f"there is no formula for {name!r}")
    del _formulas[name]


def count(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[TensorShape]) -> Cost:
    """Cost of one call `name(*args, **kwargs)` that returned tensors of the shapes `outputs`.

    >>> import torch
    >>> count("conv2d", (torch.empty(1, 3, 8, 8), torch.empty(16, 3, 3, 3)), {"stride": 2}, [(1, 16, 3, 3)])
    Cost(macs=3888, flops=7776)

    A function without a formula, or called in a way its formula does not know, has `flops=None`.
    """
    known = next((spelling for spelling in _spellings(name) if spelling in _formulas), None)
    if known is None or not all(isinstance(size, int) for shape in outputs for size in shape):
        return Cost(flops=None)  # the size of a nested tensor may be a symbol
    try:
        return _formulas[known](FormulaCall(known, args, kwargs, outputs))
    except UnfamiliarCall:
        return Cost(flops=None)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        if _formulas[known].__module__ != _OWN_FORMULAS:
            raise  # the user's own
        return Cost(flops=None)  # a file can say that a function was called in a way that torch would refuse


def _spellings(name: str) -> Iterator[str]:
    """The name as it is, then relu_ -> relu, special_exp2 -> exp2, slice_copy -> slice, __radd__ -> add."""
    plain = name.partition(".")[0].strip("_")
    yield from (name, plain, plain.removeprefix("special_"), plain.removesuffix("_copy"))
    if name.startswith("__") and plain[:1] in ("r", "i"):
        yield plain[1:]


def is_tensor(value: Any) -> bool:
    return hasattr(value, "shape")
