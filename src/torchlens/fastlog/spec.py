"""How a record is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._torch import no_torch_function
from ..errors import ArgumentError
from ..options import usable_device


@dataclass(frozen=True)
class CaptureSpec:
    """How to keep one record: what a predicate returns instead of True.

    >>> small = tl.fastlog.CaptureSpec(dtype=torch.float16)
    >>> recording = tl.fastlog.record(model, x, keep_op=lambda ctx: small if ctx.layer_type == "relu" else False)
    >>> recording[0].activation.dtype, recording[0].context.tensor_dtype
    (torch.float16, torch.float32)

    Args:
        save_activation: keep the value; False keeps only what is known about it.
        save_metadata: keep the context; without it a record has its label, its pass and its value.
        keep_grad: the value stays connected to autograd.
        device: where to move the value.
        dtype: what to convert floating point values to.
        postfunc: a function of the value, before anything else is done with it; what it returns is kept. `tl.reduce`
            has some.
    """

    save_activation: bool = True
    save_metadata: bool = True
    keep_grad: bool = False
    device: Any = None
    dtype: torch.dtype | None = None
    postfunc: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if not (self.save_activation or self.save_metadata):
            raise ArgumentError("a CaptureSpec that saves neither activation nor metadata keeps nothing: return False")
        if self.keep_grad and not self.save_activation:
            raise ArgumentError("keep_grad=True is about the saved activation, but save_activation is False")
        if self.dtype is not None and not (isinstance(self.dtype, torch.dtype) and self.dtype.is_floating_point):
            raise ArgumentError(f"dtype must be a floating point type such as torch.float16, not {self.dtype!r}")
        if self.postfunc is not None and not callable(self.postfunc):
            raise ArgumentError(
                f"postfunc must be a function of a tensor, such as tl.reduce.mean(), not {self.postfunc!r}"
            )
        if self.device is not None:
            try:
                object.__setattr__(self, "device", usable_device(self.device))
            except (RuntimeError, TypeError, AssertionError) as error:
                raise ArgumentError(f"device={self.device!r} can't be used: {error}") from None

    @property
    def converts(self) -> bool:
        return self.device is not None or self.dtype is not None or self.postfunc is not None

    def converted(self, tensor: Tensor) -> Tensor:
        """The value as it is to be stored."""
        if self.postfunc is not None:
            with no_torch_function():  # its calls are not the model's
                tensor = self.postfunc(tensor)
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"postfunc must return a tensor, not {type(tensor).__name__}")
        floats = tensor.is_floating_point() and not tensor.is_quantized
        return tensor.to(device=self.device, dtype=self.dtype if floats else None)

    def with_grad(self) -> CaptureSpec:
        """The same, connected to autograd if it keeps a value at all."""
        return replace(self, keep_grad=True) if self.save_activation else self


#: What `True` means.
AS_IT_IS = CaptureSpec()


def as_spec(answer: Any) -> CaptureSpec | None:
    """What True, False or a spec asks for: a spec, or None for nothing."""
    if isinstance(answer, CaptureSpec):
        return answer
    return AS_IT_IS if answer else None


def check_training(train_mode: bool) -> bool:
    """Refuse to train where nothing can be differentiated."""
    if train_mode and (torch.is_inference_mode_enabled() or not torch.is_grad_enabled()):
        mode = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
        raise ArgumentError(f"train_mode=True needs autograd, which {mode} has switched off; call it outside of that")
    return train_mode
