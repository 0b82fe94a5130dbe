"""What to do to a value while a model runs. Edits are plain values: they print as they are written.

    >>> E = tl.edits
    >>> E.zero(units=[3, 5])
    zero(units=[3, 5])
    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": E.scale(0.5), "relu_2_4": E.add(1.0)})
    >>> edited["fc"].activation.equal(edited["fc"].activation_before_edit / 2)
    True

Wherever an edit is expected, a tensor or a number stands for `replace`, a function of the tensor (or of the tensor and
the operation) for itself, and a list for its members, one after the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._torch import call_with_grad
from ..capture import rng
from ..capture.containers import flat_tensors
from ..capture.tensor_memory import version_of
from ..errors import ArgumentError
from .edit_arguments import explain_arguments
from .edit_base import Edit, Moment, asked, checked_result, function_label, takes_two

__all__ = [
    "add", "clamp", "gradient", "mean", "noise", "patch", "replace", "resample", "scale", "swap", "where", "zero",
]  # fmt: skip


# ---- edits of all or of a part --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Part(Edit):
    """An edit of all of a tensor, or of a part of it.

    `units` are indices along the channels: dimension 1 of a tensor with four or five dimensions, otherwise the last.
    `at` is an index as in `tensor[at]`. With both, what both choose is edited.
    """

    units: Any = field(default=None, kw_only=True)
    at: Any = field(default=None, kw_only=True)

    @abstractmethod
    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        """The edited part, given as it is; `cut` takes the same part out of a tensor like the whole."""

    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        if self.units is None and self.at is None:
            return self.change(tensor, moment, lambda whole: whole)
        try:
            return (
                self._both(tensor, moment)
                if self.units is not None and self.at is not None
                else self._one(tensor, moment)
            )
        except IndexError as error:
            fits = f", which has units 0 to {self._count(tensor) - 1}" if self.at is None else f": {error}"
            raise ArgumentError(f"{self!r} does not fit a tensor of shape {tuple(tensor.shape)}{fits}") from None

    def _one(self, tensor: Tensor, moment: Moment) -> Tensor:
        index = self.at if self.at is not None else self._units_of(tensor)
        part = tensor[index]
        changed = self.change(part, moment, lambda whole: whole.expand(tensor.shape)[index])
        if changed.dtype != part.dtype:
            raise ArgumentError(f"{self!r} turned a part of a {part.dtype} tensor into {changed.dtype}")
        result = tensor.clone()
        result[index] = changed
        return result

    def _both(self, tensor: Tensor, moment: Moment) -> Tensor:
        inside = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        outside = ~inside
        inside[self.at] = True
        outside[self._units_of(tensor)] = False
        changed = self.change(tensor, moment, lambda whole: whole)
        return torch.where(inside & ~outside, changed, tensor)

    def _units_of(self, tensor: Tensor) -> tuple[Any, ...]:
        units = [self.units] if isinstance(self.units, int) else self.units
        units = list(units) if isinstance(units, (tuple, range)) else units
        if tensor.dim() == 0:
            raise ArgumentError(f"{self!r} chooses units, but the tensor has no dimensions")
        return (slice(None), units) if tensor.dim() in (4, 5) else (..., units)

    @staticmethod
    def _count(tensor: Tensor) -> int:
        """How many units there are: channels of images and videos, else along the last dimension."""
        return tensor.shape[1 if tensor.dim() in (4, 5) else -1]


@dataclass(frozen=True, repr=False, eq=False)
class Zero(Part):
    """Zeros in place of the value, or of a part of it: a lesion.

    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": tl.edits.zero(units=[0])})
    >>> edited["fc"].activation[:, 0].any().item()
    False
    """

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.zeros_like(tensor)


@dataclass(frozen=True, repr=False, eq=False)
class Replace(Part):
    """Another value: a number, or a tensor of the same shape (with `at` or `units`: that fits there)."""

    value: Any

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        if not isinstance(self.value, Tensor):
            return torch.full_like(tensor, self.value)
        if self.value.dim() == 0:
            return self.value.expand(tensor.shape).clone()
        partial = self.units is not None or self.at is not None
        return self.value.expand(tensor.shape) if partial else self.value.clone()


@dataclass(frozen=True, repr=False, eq=False)
class Add(Part):
    """The value plus a number or tensor, times `scale`: steering.

    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": tl.edits.add(torch.ones(5), scale=4)})
    >>> round(edited.interventions[0].largest_change, 3)
    4.0
    """

    value: Any
    scale: float = 1

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        added: Tensor = tensor + (self.value if self.scale == 1 else self.value * self.scale)
        return added


@dataclass(frozen=True, repr=False, eq=False)
class Scale(Part):
    """The value times a factor."""

    factor: Any

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        scaled: Tensor = tensor * self.factor
        return scaled


@dataclass(frozen=True, repr=False, eq=False)
class Clamp(Part):
    """The value, kept between two numbers or tensors."""

    min: Any = None
    max: Any = None

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        return tensor.clamp(self.min, self.max)


@dataclass(frozen=True, repr=False, eq=False)
class Noise(Part):
    """The value plus normal noise, from a generator of its own: the model's random numbers stay what they are."""

    std: float
    seed: int = 0

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        generator = generator_for(self.seed, moment.number)
        drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device="cpu")
        return tensor + (drawn * self.std).to(tensor.device, tensor.dtype)


def generator_for(seed: int, number: int) -> torch.Generator:
    """A generator for one application of an edit."""
    return torch.Generator("cpu").manual_seed(seed * 1_000_003 + number)


# ---- edits that look elsewhere --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class _FromElsewhere(Part):
    """What takes the place of the value comes from a log, or from tensors."""

    @property
    @abstractmethod
    def sources(self) -> list[Any]:
        """Logs, and tensors."""

    @property
    def needs_label(self) -> bool:
        return any(not isinstance(source, Tensor) for source in self.sources)

    def donated(self, moment: Moment) -> list[Tensor]:
        return [source if isinstance(source, Tensor) else moment.donor(source) for source in self.sources]


@dataclass(frozen=True, repr=False, eq=False)
class Mean(_FromElsewhere):
    """The mean over a reference: over the samples (dimension 0) of one or more logs, or of tensors like the value.

    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": tl.edits.mean(over=log)})
    >>> edited["fc"].activation[0].allclose(log["fc"].activation.mean(0))
    True
    """

    over: Any = None

    def __post_init__(self) -> None:
        if self.over is None:
            raise ArgumentError("mean needs over=: one or more logs, or tensors like the value")

    @property
    def sources(self) -> list[Any]:
        return list(self.over) if isinstance(self.over, (list, tuple)) else [self.over]

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        samples = [donated.to(tensor.device) for donated in self.donated(moment)]
        mean = torch.cat(samples).mean(0, keepdim=True)
        return cut(mean) if self.units is not None or self.at is not None else mean.expand(tensor.shape).clone()


@dataclass(frozen=True, repr=False, eq=False)
class Patch(_FromElsewhere):
    """The value that another run has at the same place: activation patching.

    >>> other = tl.log_forward_pass(model, torch.zeros(5, 5))
    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": tl.edits.patch(other)})
    >>> edited["fc"].activation.equal(other["fc"].activation)
    True
    """

    donor: Any

    @property
    def sources(self) -> list[Any]:
        return [self.donor]

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        (donated,) = self.donated(moment)
        return cut(donated) if self.units is not None or self.at is not None else donated.clone()


@dataclass(frozen=True, repr=False, eq=False)
class Resample(_FromElsewhere):
    """For each sample (dimension 0) the value of a random one in a log, from a generator of its own."""

    donor: Any
    seed: int = 0

    @property
    def sources(self) -> list[Any]:
        return [self.donor]

    def change(self, tensor: Tensor, moment: Moment, cut: Callable[[Tensor], Tensor]) -> Tensor:
        (donated,) = self.donated(moment)
        generator = generator_for(self.seed, moment.number)
        total = moment.op.tensor_shape[0] if moment.op.tensor_shape else 1
        drawn = torch.randint(len(donated), (total,), generator=generator, device="cpu")
        return cut(donated[drawn])


# ---- edits of edits -------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Swap(Edit):
    """What another function makes of the same arguments. The operation's own result is not used.

    Of a call with several results each is edited, or the one that is chosen; the function returns them all.

    >>> edited = tl.log_forward_pass(model, x, interventions={"relu_2_4": tl.edits.swap(torch.nn.functional.gelu)})
    >>> edited["relu_2_4"].activation.equal(torch.nn.functional.gelu(edited["fc"].activation))
    True
    """

    function: Callable[..., Any]

    @property
    def needs_arguments(self) -> bool:
        return True

    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        if moment.arguments is None:
            raise ArgumentError(
                f"{self!r} is called with the arguments of an operation; this value was not made by one"
            )
        args, kwargs = moment.arguments
        result = rng.restoring(partial(self.function, *args, **kwargs))
        if moment.position is not None and isinstance(result, (tuple, list)):
            tensors = flat_tensors(result)
            if moment.position >= len(tensors):
                raise ArgumentError(f"{self!r} gave {len(tensors)} tensors; number {moment.position} is edited")
            return tensors[moment.position]
        return checked_result(self.function, result)


@dataclass(frozen=True, repr=False, eq=False)
class Where(Edit):
    """An edit where a condition holds: a function of the tensor (or of the tensor and the operation) that returns True,
    False or a mask; or a mask.

    >>> E = tl.edits
    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": E.where(lambda t: t > 0, E.scale(2))})
    """

    condition: Any
    edit: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "edit", as_edit(self.edit))

    @property
    def members(self) -> tuple[Edit, ...]:
        return (self.edit,)

    @property
    def asks_operation(self) -> bool:
        return (callable(self.condition) and takes_two(self.condition)) or super().asks_operation

    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        holds = asked(self.condition, tensor, moment) if callable(self.condition) else self.condition
        if isinstance(holds, Tensor) and holds.numel() > 1:
            return torch.where(holds.to(tensor.device, torch.bool), self.edit.apply(tensor, moment), tensor)
        return self.edit.apply(tensor, moment) if bool(holds) else tensor


@dataclass(frozen=True, repr=False, eq=False)
class Gradient(Edit):
    """An edit on the way back: of the gradient of the value, which stays as it is.

    >>> E = tl.edits
    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": E.gradient(E.zero())}, train_mode=True)
    """

    edit: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "edit", as_edit(self.edit))
        if self.edit.needs_arguments or self.edit.is_backward:
            raise ArgumentError(f"{self.edit!r} can't edit a gradient")

    @property
    def members(self) -> tuple[Edit, ...]:
        return (self.edit,)

    @property
    def is_backward(self) -> bool:
        return True

    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        if not tensor.requires_grad:
            raise ArgumentError(
                f"{self!r}: nothing requires a gradient here; give an input that does, or train_mode=True where "
                "parameters do, and run outside of torch.no_grad()"
            )
        passed = call_with_grad(True, tensor.view_as, tensor)
        passed.register_hook(lambda gradient: self.edit.apply(gradient, moment))  # type: ignore[no-untyped-call]
        return passed


@dataclass(frozen=True, repr=False, eq=False)
class FunctionEdit(Edit):
    """A function of the user's, of the tensor or of the tensor and the operation."""

    function: Callable[..., Any]

    @property
    def asks_operation(self) -> bool:
        return takes_two(self.function)

    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        given = tensor.clone()  # it may write into it
        version = version_of(given)
        result = checked_result(self.function, asked(self.function, given, moment))
        return tensor if result is given and version_of(given) == version else result

    def __repr__(self) -> str:
        return function_label(self.function)


@dataclass(frozen=True, repr=False, eq=False)
class Several(Edit):
    """Edits one after the other."""

    edits: tuple[Edit, ...]

    @property
    def members(self) -> tuple[Edit, ...]:
        return self.edits

    @property
    def is_backward(self) -> bool:
        return all(edit.is_backward for edit in self.edits)

    def apply(self, tensor: Tensor, moment: Moment) -> Tensor:
        for edit in self.edits:
            tensor = edit.apply(tensor, moment)
        return tensor

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.edits))}]"


def as_edit(given: Any) -> Edit:
    """What a user may give as an edit, as one."""
    if isinstance(given, Edit):
        return given
    if isinstance(given, type):
        raise ArgumentError(f"{given.__name__} is a class; an edit is made by calling it, as in tl.edits.zero()")
    if isinstance(given, (list, tuple)) and given:
        return Several(tuple([as_edit(member) for member in given]))
    if isinstance(given, (Tensor, int, float, complex)):
        return Replace(given)
    if callable(given):
        return FunctionEdit(given)
    raise ArgumentError(
        f"{given!r} is not an edit; use a tensor, a number, a function, a list of edits or one of tl.edits"
    )


zero, replace, add, scale, clamp, noise = Zero, Replace, Add, Scale, Clamp, Noise
mean, patch, resample, swap, where, gradient = Mean, Patch, Resample, Swap, Where, Gradient
for _edit in (zero, replace, add, scale, clamp, noise, mean, patch, resample, swap, where, gradient):
    explain_arguments(_edit)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker is to know the names that there are

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"tl.edits has no {name!r}; there are {', '.join(__all__)}")
