"""What all edits have in common: how they print, compare and call functions of the user's."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..capture import rng
from ..errors import ArgumentError


class Moment:
    """What an edit may ask about the place where it is applied."""

    def __init__(
        self,
        op: Any,
        number: int,
        donor: Callable[[Any], Tensor],
        arguments: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
        position: int | None = None,
    ) -> None:
        self.op = op  # the operation, under the names that it has in a log
        self.number = number  # how often the edit was applied before
        self.donor = donor  # what another log holds at this place
        self.arguments = arguments  # of the torch call or the module call whose result is edited
        self.position = position  # of the tensor among the results of that call, if there are several


@dataclass(frozen=True, repr=False, eq=False)
class Edit:
    """One thing to do to a tensor. It never writes into the tensor."""

    @abstractmethod
    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        """The edited tensor."""

    @property
    def members(self) -> tuple[Edit, ...]:
        """The edits that this one is made of."""
        return ()

    @property
    def needs_arguments(self) -> bool:
        """Does it work with the arguments of the call whose result it edits?"""
        return any(member.needs_arguments for member in self.members)

    @property
    def needs_label(self) -> bool:
        """Does it look into a log, where an operation is known by its label?"""
        return any(member.needs_label for member in self.members)

    @property
    def asks_operation(self) -> bool:
        """Does a function of the user's get the operation whose result is edited?"""
        return any(member.asks_operation for member in self.members)

    @property
    def is_backward(self) -> bool:
        """Does it leave the value itself as it is?"""
        return False

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        ordered = sorted(fields(self), key=lambda each: each.kw_only is True)
        given = []
        for each in ordered:
            value = getattr(self, each.name)
            if each.default is MISSING or value is not each.default:
                bare = not each.kw_only and each.default is MISSING
                given.append(written(value) if bare else f"{each.name}={written(value)}")
        return f"{type(self).__name__.lower()}({', '.join(given)})"


def written(value: Any) -> str:
    """A value as the user wrote it, as far as it is short."""
    if isinstance(value, Tensor):
        return repr(value.item()) if value.dim() == 0 else f"<tensor {tuple(value.shape)}>"
    if value is Ellipsis:
        return "..."
    if isinstance(value, slice):
        parts = ["" if part is None else written(part) for part in (value.start, value.stop)]
        return ":".join(parts) + ("" if value.step is None else f":{written(value.step)}")
    if type(value) is tuple:
        return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    if type(value) is list:
        return f"[{', '.join(map(written, value))}]"
    if hasattr(value, "model_name"):
        return f"<log of {value.model_name}>"
    if callable(value) and not isinstance(value, Edit):
        return function_label(value)
    return repr(value)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is type(other) and isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one is other or one == other)


def function_label(function: Any) -> str:
    """What a function of the user's is called."""
    return getattr(function, "__name__", None) or type(function).__name__


# ---- functions of the user's ----------------------------------------------------------------------------------


def asked(function: Callable[..., Any], tensor: Tensor, moment: Moment) -> Any:
    """Call a function of the user's with what it takes. What it draws does not shift the model's random numbers."""
    given = (tensor, moment.op) if takes_two(function) else (tensor,)
    return rng.restoring(partial(function, *given))


def takes_two(function: Callable[..., Any]) -> bool:
    """Does it take the operation as well as the tensor?"""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == 2


def checked_result(function: Any, result: Any) -> Tensor:
    """What a function of the user's returned, which must be a tensor."""
    if not isinstance(result, Tensor):
        raise ArgumentError(
            f"{function_label(function)} returned {type(result).__name__}; an edit returns the new tensor"
        )
    return result
